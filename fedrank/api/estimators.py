"""Estimators of scikit-learn over :func:`fedrank.train`: :class:`RankingEstimator` and :class:`SiloClassifier`.

They check what is handed over as scikit-learn does; a run trains and its models score. They need the extra ``sklearn``.
"""

from __future__ import annotations

import warnings
from numbers import Integral
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float, Float32, Shaped
from typing_extensions import override

from fedrank.api.training import train
from fedrank.core.errors import ConfigError, DataError, FedrankWarning, MissingExtraError, UnknownNameError
from fedrank.core.frame import Frame
from fedrank.core.protocol import Protocol
from fedrank.data.frames import DOCUMENT, LABEL, QUERY, as_array, as_frame, features_of, ids_of
from fedrank.engine.progress import Listener
from fedrank.engine.run import config_of
from fedrank.engine.settings import setting_names
from fedrank.silos.config import ALL, Silos
from fedrank.silos.data.files import silo_names

try:
    from sklearn.base import BaseEstimator, ClassifierMixin
    from sklearn.metrics import accuracy_score
    from sklearn.utils import check_array, check_random_state, check_X_y
    from sklearn.utils.multiclass import check_classification_targets, type_of_target
    from sklearn.utils.validation import check_is_fitted, validate_data
except ImportError as cause:
    raise MissingExtraError("scikit-learn", "sklearn", "An estimator") from cause

#: Settings of a run that an estimator says in another way: ``random_state``, and what ``fit`` takes.
_SAID = {"seed", "seeds", "data"}


class _Estimator(BaseEstimator):
    """Base of the estimators: settings of the method as parameters, and the checks of tables.

    Attributes:
        task: Name of the task whose methods are trained.
        ids: Column of a data frame with what a row belongs to, and the argument that takes its place.
        beside: Columns of a data frame that are no features.
        grades: Whether labels are numbers.
    """

    task: ClassVar[str]
    ids: ClassVar[str]
    grades: ClassVar[bool] = False
    beside: ClassVar[frozenset[str]]

    method: str | Protocol
    random_state: Any

    @override
    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The parameters, settings of the method that were given among them."""
        return {name: vars(self)[name] for name in sorted(vars(self)) if name[0] != "_" and name[-1] != "_"}

    @override
    def set_params(self, **params: Any) -> Any:
        """Set parameters, also settings of the method that were not given before.

        Raises:
            UnknownNameError: There is no such parameter.
        """
        own = self._get_param_names()
        if settings := params.keys() - set(own):
            dotted = setting_names(config_of(params.get("method", self.method), {}))
            known = {*own, *(part for name in dotted for part in name.split("."))} - _SAID
            for name in sorted(settings):
                if name.partition("__")[0] not in known:
                    raise UnknownNameError(f"parameter of {type(self).__name__}", name, known)
        for name, value in params.items():
            setattr(self, name, value)
        return self

    def _train(self, data: tuple[Any, ...], listener: Listener | None) -> None:
        if (task := config_of(self.method, {}).task) != self.task:
            raise ConfigError(f"{type(self).__name__} trains methods of {self.task}; {self.method!r} is one of {task}.")
        settings = self.get_params()
        seed = settings.pop("random_state")
        seed = seed if isinstance(seed, Integral) else check_random_state(seed).randint(2**31 - 1)
        self.result_ = train(settings.pop("method"), data, seed=int(seed), listener=listener, **settings)

    def _read(self, X: Any, ids: Any, y: Any = None, *, fits: bool = False) -> tuple[Any, Any, Any]:
        """The features as a frame, an array or a sparse matrix; what each row belongs to, None if not said; labels."""
        # Columns that have numbers in place of names are read as an array is.
        unnamed = hasattr(X, "iloc") and not any(isinstance(name, str) for name in getattr(X, "columns", ()))
        frame = None if unnamed else as_frame(X)
        how: dict[str, Any] = {"reset": fits, **({"y": y} if fits else {})}
        finite = "allow-nan" if self.__sklearn_tags__().input_tags.allow_nan else True
        if frame is None:
            checked: Any = validate_data(self, X, accept_sparse="csr", ensure_all_finite=finite, **how)
            table, y = checked if fits else (checked, y)
        else:
            ids = frame[self.ids] if ids is None and self.ids in frame.columns else ids
            table = frame.select(name for name in frame if name not in self.beside)
            validate_data(self, X=_Names(table), skip_check_array=True, **how)  # type: ignore[arg-type]
            if finite is True:
                check_array(features_of(table, table.columns), input_name="X", estimator=self)
        if y is not None:
            y = check_X_y(np.zeros((table.shape[0], 1)), y, y_numeric=self.grades)[1]
        ids = None if ids is None else ids_of(ids, self.ids)
        if ids is not None and len(ids) != table.shape[0]:
            raise DataError(f"{self.ids} must have a value for each of {table.shape[0]} rows, got {len(ids)}.")
        return table, ids, y

    def __getstate__(self) -> dict[str, Any]:
        # A run's folder stays where it is; what was learnt goes along.
        kept: Any = super().__getstate__()
        return {name: value for name, value in kept.items() if name != "result_"}

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:
        bundle = super()._repr_mimebundle_(**kwargs)
        if hasattr(self, "result_"):
            bundle["text/html"] = bundle.get("text/html", "") + self.result_._repr_html_()
        return bundle


class _Names:
    """The size and the names of the columns of a frame, as scikit-learn asks any data frame for them."""

    def __init__(self, frame: Frame):
        self.shape, self.column_names = frame.shape, lambda: frame.columns

    def __dataframe__(self) -> _Names:
        return self


class RankingEstimator(_Estimator):
    """A ranker that simulated devices learn from clicks, as an estimator; its ``score`` is nDCG(dcg='exp-log2')@10.

    Labels are grades, whole numbers from 0 on. In any order of rows the documents of a query are found by ``qid``, or
    by the column ``qid`` of a data frame; its columns ``docid`` and ``label`` are no features either.

    Args:
        method: Name of a method of ranking, or a method.
        random_state: Seed of the run.
        settings: Settings of :func:`fedrank.train`, such as ``rounds``, ``clients`` or ``privacy__p``.

    Attributes:
        model_: The trained :class:`~fedrank.ranking.model.RankingModel`.
        result_: The run's :class:`~fedrank.api.result.Result`; an estimator that was pickled has none.
    """

    task = "ranking"
    ids, beside = QUERY, frozenset({QUERY, LABEL, DOCUMENT})
    grades = True

    __metadata_request__fit: ClassVar = {"qid": True}
    __metadata_request__predict: ClassVar = {"qid": True}
    __metadata_request__score: ClassVar = {"qid": True}

    def __init__(self, method: str | Protocol = "foltr-es", *, random_state: Any = 0, **settings: Any):
        self.method = method
        self.random_state = random_state
        self.set_params(**settings)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.input_tags.sparse = True
        return tags

    def fit(self, X: Any, y: Any, qid: Any = None, *, listener: Listener | None = None) -> RankingEstimator:
        """Train.

        Args:
            X: [documents, features], an array, a sparse matrix or a data frame.
            y: Grade of each document.
            qid: Query of each document; None: the column of a data frame, else all are of one query, with a warning.
            listener: Hears of the progress.
        """
        table, ids, y = self._read(X, qid, y, fits=True)
        self.has_queries_ = ids is not None
        if ids is None:
            warnings.warn(
                f"No query ids are given: all {len(y)} rows are taken for the documents of one query. Give qid=….",
                FedrankWarning,
                stacklevel=2,
            )
        self._train(_by_query(table, y, ids)[1], listener)
        self.model_ = self.result_.model()
        return self

    def predict(self, X: Any, qid: Any = None) -> Float32[np.ndarray, " documents"]:
        """Score of each document; within a query the highest ranks first. Without ``qid`` all are of one query."""
        check_is_fitted(self, "model_")
        table, ids, _ = self._read(X, qid)
        features = as_array(table) if as_frame(table) is None else features_of(table, table.columns)
        order, (features, _, ids) = _by_query(features, None, ids)
        scores = np.empty(len(order), np.float32)
        scores[order] = self.model_.score(features, ids)
        return scores

    def score(self, X: Any, y: Any, qid: Any = None, sample_weight: Any = None) -> float:
        """Mean nDCG(dcg='exp-log2')@10 over all queries, with the gain 2^label − 1, as ``model_.evaluate`` has it.

        A pipeline hands over ``sample_weight=None``; there are no weights of documents.

        Raises:
            DataError: There are weights; or no query ids, and there were in training.
        """
        check_is_fitted(self, "model_")
        if sample_weight is not None:
            raise DataError(
                "nDCG(dcg='exp-log2')@10 is a mean over queries: documents have no weights. Leave sample_weight out."
            )
        table, ids, y = self._read(X, qid, y)
        if ids is None and self.has_queries_:
            raise DataError(
                "score needs the query of each row as fit did: qid=…, or a data frame's column. A cross-validation "
                "hands it over with sklearn.set_config(enable_metadata_routing=True) and params={'qid': qid}."
            )
        return self.model_.evaluate(_by_query(table, y, ids)[1], ["nDCG(dcg='exp-log2')@10"])["train"][
            "nDCG(dcg='exp-log2')@10"
        ]


def _by_query(table: Any, y: Any, ids: Shaped[np.ndarray, " rows"] | None) -> tuple[np.ndarray, tuple[Any, Any, Any]]:
    """Rows with those of a query together, queries in order of their first rows; and which row each one was."""
    ids = np.zeros(table.shape[0], np.int64) if ids is None else ids
    _, first, query = np.unique(ids, return_index=True, return_inverse=True)
    order = np.argsort(first[query], kind="stable")
    return order, (table[order], None if y is None else np.asarray(y)[order], ids[order])


class SiloClassifier(ClassifierMixin, _Estimator):
    """A classifier of two classes for each of several silos, which average models and keep their rows.

    Of each silo's rows, ``train`` are trained on (by default 0.6) and some of the others choose among models.

    Args:
        method: Name of a method of silos, or a method.
        target: The silo to make a model for; ``all``: one for each.
        random_state: Seed of the run.
        settings: Settings of :func:`fedrank.train`, such as ``rounds``, ``train`` or ``bandit__arms``.

    Attributes:
        classes_: The two classes, in order.
        models_: Silo -> its trained :class:`~fedrank.silos.model.SiloModel`.
        result_: The run's :class:`~fedrank.api.result.Result`; an estimator that was pickled has none.
    """

    task = "silos"
    ids, beside = Silos().silo, frozenset({Silos().silo, Silos().label})

    __metadata_request__fit: ClassVar = {"silo": True}
    __metadata_request__predict: ClassVar = {"silo": True}
    __metadata_request__predict_proba: ClassVar = {"silo": True}
    __metadata_request__decision_function: ClassVar = {"silo": True}
    __metadata_request__score: ClassVar = {"silo": True}

    def __init__(
        self,
        method: str | Protocol = "bandit-fedavg",
        *,
        target: str = ALL,
        random_state: Any = 0,
        **settings: Any,
    ):
        self.method = method
        self.target = target
        self.random_state = random_state
        self.set_params(**settings)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        tags.input_tags.sparse = tags.input_tags.allow_nan = True
        return tags

    def fit(self, X: Any, y: Any, silo: Any = None, *, listener: Listener | None = None) -> SiloClassifier:
        """Train.

        Args:
            X: [rows, features], an array, a sparse matrix or a data frame; NaN where a value is missing.
            y: One of two classes for each row.
            silo: The silo of each row; None: the column ``silo`` of a data frame.
            listener: Hears of the progress.

        Raises:
            DataError: There are no silos, or what they hold cannot be used.
        """
        table, silos, y = self._read(X, silo, y, fits=True)
        check_classification_targets(y)
        if (kind := type_of_target(y)) != "binary":
            raise DataError(f"Only binary classification is supported. The type of the target is {kind}.")
        self.classes_, labels = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise DataError(f"y has one class, {self.classes_[0]!r}, where two are needed.")
        if silos is None:
            raise DataError("the silo of each row is needed: silo=…, or the column 'silo' of a data frame.")
        self._train((_named(table), labels, silos), listener)
        models = self.result_.models()
        named = zip(map(str, silos), silo_names(silos.tolist(), self.ids), strict=True)  # a run writes 01 as 1
        self.models_ = {silo: models[name] for silo, name in dict(named).items() if name in models}
        return self

    def decision_function(self, X: Any, silo: Any = None) -> Float32[np.ndarray, " rows"]:
        """Log-odds of the second class for each row, by the model of its silo.

        Raises:
            DataError: There are several models, and silos are not given.
            UnknownNameError: There is no model for a silo.
        """
        check_is_fitted(self, "models_")
        table, silos, _ = self._read(X, silo)
        frame = _named(table)
        if silos is None:
            if len(self.models_) > 1:
                raise DataError(f"say whose each row is, of {', '.join(self.models_)}: silo=…, or a column 'silo'.")
            return next(iter(self.models_.values())).score(frame)
        odds = np.empty(len(silos), np.float32)
        for name in np.unique(silos):
            if str(name) not in self.models_:
                raise UnknownNameError("silo with a model", str(name), self.models_)
            rows = np.flatnonzero(silos == name)
            odds[rows] = self.models_[str(name)].score(frame[rows])
        return odds

    def predict_proba(self, X: Any, silo: Any = None) -> Float[np.ndarray, "rows 2"]:
        """Probability of each class, by the model of the row's silo; errors as of :meth:`decision_function`."""
        odds = self.decision_function(X, silo).astype(np.float64)
        return np.exp(-np.logaddexp(0, np.stack([odds, -odds], axis=1)))

    def predict(self, X: Any, silo: Any = None) -> np.ndarray:
        """The more probable class, by the model of the row's silo; errors as of :meth:`decision_function`."""
        second = self.decision_function(X, silo) > 0
        return self.classes_[second.astype(int)]

    @override
    def score(self, X: Any, y: Any, silo: Any = None, sample_weight: Any = None) -> float:
        """Share of rows whose predicted class is ``y``, 0 to 1; ``sample_weight`` [rows] weights them."""
        return float(accuracy_score(y, self.predict(X, silo), sample_weight=sample_weight))


def _named(table: Any) -> Any:
    """The table as a data frame; columns of an array have names by their number."""
    frame = as_frame(table)
    if frame is not None:
        return frame
    rows = as_array(table)
    return Frame({f"feature {number}": column for number, column in enumerate(rows.T, 1)})
