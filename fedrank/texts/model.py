"""A trained model of texts as an object that scores: a ranker of 16 features, and how each silo scales them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float, Float32, Int
from typing_extensions import override

from fedrank.core.errors import DataError, ModelError, UnknownNameError
from fedrank.data.frames import as_frame, features_of
from fedrank.engine.layers import Dense, Layer, QueryStandardise, Softmax, Standardise
from fedrank.engine.model import Model
from fedrank.engine.scoring import blocks, scores
from fedrank.texts.data.collection import texts_of
from fedrank.texts.data.corpus import corpus_of
from fedrank.texts.data.counts import TermColumns
from fedrank.texts.data.features import NAMES, statistics_of
from fedrank.texts.graded import GradedLearner
from fedrank.texts.scores import ROWS
from fedrank.texts.silo_sketch.setup.rows import CONSTANT, scale_of

#: Mean and deviation of each feature, float64 [features] each.
Scale = tuple[Float[np.ndarray, " features"], Float[np.ndarray, " features"]]


@dataclass(frozen=True, eq=False, repr=False)
class TextModel(Model):
    """The ranker that silos with texts have trained together.

    Attributes:
        learner: The ranker's settings.
        weights: float32 [learner.size].
        scaling: Rows by which features are scaled: ``silo``, ``federation`` or ``query``, the list itself.
        scales: Silo -> mean and deviation by which it scales features; empty for ``query``, and where nobody knows
            them, as at a server that has no texts (:meth:`fitted` sets them).
        stem: Whether words are stemmed before they are counted.
        stopwords: Whether stop words are left out.
        as_published: Whether features are as printed (:func:`~fedrank.texts.data.features.text_features`).
        about: Where the model comes from.
    """

    task: ClassVar[str] = "texts"

    learner: GradedLearner
    weights: Float32[np.ndarray, " size"]
    scaling: str = "silo"
    scales: Mapping[str, Scale] = field(default_factory=dict)
    stem: bool = True
    stopwords: bool = True
    as_published: bool = False
    about: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self):
        if np.shape(self.weights) != (self.learner.size,):
            raise ModelError(f"weights must have shape ({self.learner.size},), got {np.shape(self.weights)}.")
        for silo, pair in self.scales.items():
            for values in pair:
                if np.shape(values) != (self.learner.features,):
                    raise ModelError(
                        f"mean and deviation of {silo!r} must have shape ({self.learner.features},), got "
                        f"{np.shape(values)}."
                    )

    @property
    @override
    def architecture(self) -> dict[str, Any]:
        return {
            "n_features": self.learner.features,
            "grades": self.learner.grades,
            "loss": self.learner.loss,
            "feature_names": list(NAMES),
            "scaling": self.scaling,
            "scales": {silo: [values.tolist() for values in pair] for silo, pair in self.scales.items()},
            "stem": self.stem,
            "stopwords": self.stopwords,
            "as_published": self.as_published,
        }

    @property
    @override
    def tensors(self) -> dict[str, np.ndarray]:
        return {"weights": self.weights}

    @classmethod
    @override
    def from_parts(
        cls,
        architecture: Mapping[str, Any],
        tensors: Mapping[str, np.ndarray],
        about: Mapping[str, Any],
        own: Any = None,
    ) -> TextModel:
        a = architecture
        if tuple(a["feature_names"]) != NAMES:
            raise ModelError("its features are not those of this version of fedrank; train again.")
        scales = {
            silo: (np.asarray(mean, np.float64), np.asarray(deviation, np.float64))
            for silo, (mean, deviation) in a["scales"].items()
        }
        learner = GradedLearner(int(a["n_features"]), int(a["grades"]), a["loss"])
        return cls(
            learner, tensors["weights"], a["scaling"], scales, a["stem"], a["stopwords"], a["as_published"], about
        )

    def fitted(self, features: Any, silo: str) -> TextModel:
        """The same model with the scale of a silo's own rows.

        Args:
            features: Features of its labelled training rows, as of :meth:`score`.
            silo: What to call it.
        """
        x = self._table(features).astype(np.float64)
        return replace(self, scales={**self.scales, silo: scale_of(len(x), x.sum(axis=0), (x**2).sum(axis=0))})

    def _scale(self, silo: str | None) -> Scale:
        """The scale of a silo.

        Raises:
            ModelError: Nobody knows it, or there are several and none was named.
            UnknownNameError: There is no such silo.
        """
        if not self.scales:
            raise ModelError(
                "it does not say how features are scaled: the server that wrote it has no texts. A silo sets its own "
                "with model.fitted(features of its training rows, name)."
            )
        if silo is None and (len(self.scales) == 1 or self.scaling == "federation"):
            return next(iter(self.scales.values()))
        if silo is None:
            raise ModelError(
                f"each silo scales features by its own rows; say whose: silo=… (--silo). There are "
                f"{', '.join(self.scales)}."
            )
        if silo not in self.scales:
            raise UnknownNameError("silo", silo, self.scales)
        return self.scales[silo]

    @override
    def for_party(self, name: str) -> TextModel:
        """The model with the scale of one silo only, which can be handed on and exported.

        Raises:
            ModelError: Each query's documents are scaled by themselves, or nobody knows the scales.
            UnknownNameError: There is no such silo.
        """
        if self.scaling == "query":
            raise ModelError(f"it scales the documents of each query by themselves; leave the silo {name!r} out.")
        return replace(self, scales={name: self._scale(name)})

    @override
    def layers(self) -> tuple[Layer, ...]:
        first = QueryStandardise(CONSTANT) if self.scaling == "query" else Standardise(*self._scale(None))
        n, grades = self.learner.features, self.learner.grades
        if self.learner.loss == "classification":  # the mean grade of the distribution
            matrix = self.weights.reshape(n + 1, grades)
            return first, Dense(matrix[:n], matrix[n]), Softmax(), Dense(np.arange(grades, dtype=np.float32)[:, None])
        return first, Dense(self.weights[:n, None], self.weights[n : n + 1])

    # ------------------------------------------------------------------------------------------------------- scoring

    @override
    def score(
        self, features: Any, qid: Sequence[Any] | np.ndarray | None = None, *, silo: str | None = None
    ) -> Float32[np.ndarray, " documents"]:
        """Scores of documents; within a query the highest ranks first.

        Args:
            features: [documents, 16] in the order of :attr:`feature_names`, not scaled; or a data frame with columns of
                these names.
            qid: The query of each document, where features are scaled within a query; None: all are of one.
            silo: Whose scale to take, where each silo has its own.

        Returns:
            float32 [documents]: the very numbers that the run's own evaluation ranked by.

        Raises:
            DataError: The features do not fit; says which.
            ModelError: The model does not know the scale.
        """
        table = self._table(features)
        if self.scaling == "query":
            return self._scores(self._by_list(table, qid))
        mean, deviation = self._scale(silo)
        return self._scores(((table.astype(np.float64) - mean) / deviation).astype(np.float32))

    def score_texts(
        self, query: str, documents: Sequence[str | tuple[str, str]], *, silo: str | None = None
    ) -> Float32[np.ndarray, " documents"]:
        """Scores of documents for a query, from their texts.

        How rare a word is, is told by these documents: hand over all that are searched. (A silo in a run knows how rare
        it is in the whole federation; a file that told it would tell the federation's words.)

        Args:
            query: The query.
            documents: Texts, or pairs of title and text.
            silo: As of :meth:`score`.

        Raises:
            DataError: There is no document.
            ModelError: The model does not know the scale.
            MissingExtraError: The extra ``texts`` is not installed.
        """
        pairs = [("", one) if isinstance(one, str) else one for one in documents]
        names = [str(number) for number in range(len(pairs))]
        titles, bodies = (dict(zip(names, [pair[i] for pair in pairs], strict=True)) for i in (0, 1))
        corpus = corpus_of(texts_of("documents", titles, bodies, {"query": query}, []), self.stem, self.stopwords)
        terms = corpus.queries[0]
        statistics = statistics_of((corpus,), corpus.vocabulary).of(terms)
        return self.score(TermColumns(corpus).features(terms, statistics, None, self.as_published), silo=silo)

    def rank_texts(
        self, query: str, documents: Sequence[str | tuple[str, str]], *, silo: str | None = None
    ) -> Int[np.ndarray, " documents"]:
        """Places of the documents, best first; arguments and errors as of :meth:`score_texts`."""
        return np.argsort(-self.score_texts(query, documents, silo=silo), kind="stable")

    def _scores(self, x: Float32[np.ndarray, "documents features"]) -> Float32[np.ndarray, " documents"]:
        return scores(self.learner, self.weights, blocks(x, ROWS), len(x)) if len(x) else np.zeros(0, np.float32)

    def _by_list(self, table: Float32[np.ndarray, "documents features"], qid: Any) -> Float32[np.ndarray, "_ features"]:
        ids = np.zeros(len(table), np.int64) if qid is None else np.asarray(qid)
        if ids.shape != (len(table),):
            raise DataError(f"qid must name the query of each of {len(table)} documents, got shape {ids.shape}.")
        out = np.zeros_like(table)
        for one in np.unique(ids):
            x = table[ids == one].astype(np.float64)
            mean, deviation = scale_of(float(len(x)), x.sum(axis=0), (x**2).sum(axis=0))
            out[ids == one] = ((x - mean) / deviation).astype(np.float32)
        return out

    def _table(self, features: Any) -> Float32[np.ndarray, "documents features"]:
        frame = as_frame(features)
        if frame is not None:
            missing = [name for name in NAMES if name not in frame.columns]
            if missing:
                raise DataError(f"the data frame lacks {len(missing)} of the model's features: {', '.join(missing)}.")
            features = features_of(frame, NAMES)
        table = np.asarray(features)
        if table.ndim != 2 or table.shape[1] != self.n_features or table.dtype.kind not in "fiub":
            raise DataError(
                f"features must be numbers of shape [documents, {self.n_features}], got {table.dtype} of shape "
                f"{table.shape}."
            )
        with np.errstate(over="ignore"):
            table = table.astype(np.float32)
        if not np.isfinite(table).all():
            row, column = np.argwhere(~np.isfinite(table))[0]
            raise DataError(f"feature {NAMES[column]!r} of row {row} is no finite number of 32 bits.")
        return table
