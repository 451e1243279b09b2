"""A trained ranker with everything that scoring documents needs."""

from __future__ import annotations

import itertools
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float32, Int
from typing_extensions import override

from fedrank.core.errors import DataError, FedrankWarning, ModelError
from fedrank.core.trees import Json
from fedrank.data import load
from fedrank.data.frames import list_names, query_ids, table_of
from fedrank.data.sources import is_known
from fedrank.engine.layers import Dense, Layer, QueryMinMax, Relu, SignedLog, Standardise
from fedrank.engine.model import MEASURES, Model, ModelParts, best_first, run_lines, tensor
from fedrank.ranking.data.queries import QuerySet
from fedrank.ranking.data.reader import QueryReader
from fedrank.ranking.data.splits import Constants, Splits, normalise
from fedrank.ranking.evaluate import Documents, Measurement
from fedrank.ranking.rankers.base import RANKERS, Ranker
from fedrank.ranking.rankers.given import as_ranker
from fedrank.ranking.rankers.linear import Linear
from fedrank.ranking.rankers.mlp import TwoLayer


@dataclass(frozen=True, eq=False, repr=False)
class RankingModel(Model):
    """A ranker with its weights.

    Attributes:
        ranker: The ranker.
        weights: float32 [ranker.size].
        normalise: How features are normalised before they are scored: ``query-minmax`` maps each feature of each query
            to [0, 1], ``none`` takes them as they are; else the name of the constants.
        names: Names of the features in their order; empty where the data had none.
        about: Where the model comes from.
        constants: Constants of the normalisation, where it is by constants.
    """

    task: ClassVar[str] = "ranking"

    ranker: Ranker
    weights: Float32[np.ndarray, "parameters"]
    normalise: str = "none"
    names: tuple[str, ...] = ()
    about: Mapping[str, Json] = field(default_factory=dict)
    constants: Constants | None = None

    def __post_init__(self):
        if np.shape(self.weights) != (self.ranker.size,):
            raise ModelError(f"weights must have shape ({self.ranker.size},), got {np.shape(self.weights)}.")
        if self.names and len(self.names) != self.ranker.n_features:
            raise ModelError(f"names must be {self.ranker.n_features}, one a feature, got {len(self.names)}.")
        if self.constants is not None and self.constants.centre.shape != (self.ranker.n_features,):
            raise ModelError(
                f"constants must be of {self.ranker.n_features} features, got {len(self.constants.centre)}."
            )

    @property
    @override
    def architecture(self) -> dict[str, Json]:
        return {
            "ranker": self._ranker_name,
            "n_features": self.ranker.n_features,
            "hidden": getattr(self.ranker, "hidden", 0),
            "normalise": self.normalise,
            "feature_names": list(self.names),
            **({} if self.constants is None else {"constants": self.constants.as_json()}),
        }

    @property
    def _ranker_name(self) -> str:
        """Name of the entry point that makes the very ranker again; empty if there is none."""
        ranker, hidden = self.ranker, getattr(self.ranker, "hidden", 0)
        same = (
            one.name for one in RANKERS if one.obj is type(ranker) and one.obj.build(self.n_features, hidden) == ranker
        )
        return next(same, "")

    @property
    @override
    def tensors(self) -> dict[str, np.ndarray]:
        return self.ranker.tensors(self.weights)

    @classmethod
    @override
    def from_parts(cls, parts: ModelParts) -> RankingModel:
        a = parts.architecture
        name = a["ranker"]
        ranker = None if parts.own is None else as_ranker(parts.own, int(a["n_features"]))
        if ranker is None:
            if not name:
                raise ModelError(
                    "its ranker is of a class that no package registers (entry points of fedrank.rankers), or has "
                    "its own settings. Hand one over that is made in the same way: load(path, own=ranker)."
                )
            ranker = RANKERS.get(name).build(int(a["n_features"]), int(a["hidden"]))
        # The layout of the vector is known to the ranker, which says where each number of the vector goes.
        weights = np.zeros(ranker.size, np.float32)
        places = np.arange(ranker.size, dtype=np.int64)
        for part, at in _places(ranker, places).items():
            weights[at] = tensor(parts.tensors, part, at.shape)
        constants = Constants.from_json(a["constants"]) if "constants" in a else None
        return cls(ranker, weights, a["normalise"], tuple(a["feature_names"]), parts.about, constants)

    @property
    @override
    def n_features(self) -> int:
        return self.ranker.n_features

    @override
    def layers(self) -> tuple[Layer, ...]:
        first: tuple[Layer, ...] = (QueryMinMax(),) if self.normalise == "query-minmax" else ()
        if self.constants is not None:
            logs = (SignedLog(),) if self.constants.how == "log" else ()
            first = *logs, Standardise(self.constants.centre, self.constants.spread)
        parts = {name: np.asarray(values, np.float32) for name, values in self.tensors.items()}
        if isinstance(self.ranker, Linear):
            return *first, Dense(parts["weight"].T)
        if isinstance(self.ranker, TwoLayer):
            hidden = Dense(parts["hidden.weight"].T, parts["hidden.bias"])
            return *first, hidden, Relu(), Dense(parts["output.weight"].T)
        return super().layers()

    # ------------------------------------------------------------------------------------------------------- scoring

    @override
    def score(self, features: Any, qid: Sequence[Any] | np.ndarray | None = None) -> Float32[np.ndarray, "documents"]:
        """Scores of documents; within a query the highest ranks first.

        Args:
            features: [documents, features] in the order of the training data; or a data frame, whose columns are found
                by :attr:`feature_names` where the model knows them.
            qid: The query of each document; documents of a query stand together. None: the column ``qid`` of a data
                frame. All are of one query in an array, and in a frame of nothing but the features.

        Returns:
            float32 [documents]: the very numbers that the run's own evaluation ranked by.

        Raises:
            DataError: The features do not fit; says which.
        """
        table = table_of(features, self.n_features, self.names)
        qid = query_ids(features, self.names, needed=self.normalise == "query-minmax") if qid is None else qid
        ids = np.zeros(len(table), np.int64) if qid is None else np.asarray(qid)
        if ids.shape != (len(table),):
            raise DataError(f"qid must name the query of each of {len(table)} documents, got shape {ids.shape}.")
        if not len(table):
            return np.zeros(0, np.float32)
        queries = load((table, np.zeros(len(table), np.int64), ids), QueryReader(normalise="none")).train
        self._warn_of_lone(queries)
        return self._scores(self._pad_and_normalise(queries))

    def rank(self, features: Any, qid: Sequence[Any] | np.ndarray | None = None) -> Int[np.ndarray, "documents"]:
        """Row numbers of the documents, best first; with ``qid`` query after query in their order, best first in each.

        Equal scores stay in the order of the rows. Arguments and errors as of :meth:`score`.
        """
        qid = query_ids(features, self.names) if qid is None else qid
        return best_first(self.score(features, qid), qid)

    def _warn_of_lone(self, queries: QuerySet) -> None:
        """Warn of queries with one document, all of whose features are 0 after normalisation within the query."""
        lone = int((queries.lengths == 1).sum())
        if lone and self.normalise == "query-minmax":
            warnings.warn(
                f"{lone} of {queries.n_queries} queries have one document: this model normalises features within a "
                "query, which makes all of them 0 there. Score a document together with the others of its query.",
                FedrankWarning,
                stacklevel=3,
            )

    def _scores(self, queries: QuerySet) -> Float32[np.ndarray, "documents"]:
        """Scores of documents whose features are normalised."""
        return Documents(queries.features).scores(self.ranker, self.weights)

    # ---------------------------------------------------------------------------------------------- data with queries

    def read(self, data: Any, fold: int = 1, *, labelled: bool = True) -> Splits:
        """Data as the model needs it, normalised as the training data was.

        Args:
            data: In any form that :func:`fedrank.data.load` takes.
            fold: 1 .. 5 of a set that has folds.
            labelled: Whether a data frame must have labels.

        Raises:
            DataError: The features do not fit the model's.
        """
        loaded = load(data, QueryReader(normalise="none", fold=fold, labelled=labelled))
        found = loaded.train.n_features
        # A LETOR file leaves out features that are 0, so that it may not show the last ones; a set that is known does.
        is_file = isinstance(data, str | os.PathLike) and not (isinstance(data, str) and is_known(data, self.task))
        if found > self.n_features or (found != self.n_features and not is_file):
            raise DataError(
                f"{loaded.name} has {found} features, the model {self.n_features}; it cannot be scored. Give data with "
                "the features that the model was trained on."
            )
        if found < self.n_features:
            warnings.warn(
                f"{loaded.name} shows {found} features, the model has {self.n_features}; those that are left out count "
                "as 0.",
                FedrankWarning,
                stacklevel=2,
            )
        if self.names and loaded.feature_names and loaded.feature_names != self.names:
            odd = [name for name in loaded.feature_names if name not in self.names]
            what = f"the model does not know {list_names(odd)}" if odd else "their order differs"
            raise DataError(f"the features of {loaded.name} are not the model's: {what}.")
        for part in loaded.parts().values():
            self._warn_of_lone(part)
        return loaded.map(self._pad_and_normalise)

    def prepare(self, splits: Splits) -> Splits:
        """Data whose features are as they were given, normalised as the model needs.

        Raises:
            DataError: It has another number of features.
        """
        if splits.train.n_features != self.n_features:
            raise DataError(f"{splits.name} has {splits.train.n_features} features, the model {self.n_features}.")
        made = splits.map(self._pad_and_normalise)
        return replace(made, normalised=self.normalise, constants=self.constants)

    def _pad_and_normalise(self, queries: QuerySet) -> QuerySet:
        """The queries with as many features as the model has (a LETOR file may leave the last ones out), normalised."""
        lacking = self.n_features - queries.n_features
        if lacking:
            queries = replace(queries, features=np.pad(queries.features, ((0, 0), (0, lacking))))
        if self.constants is not None:
            return replace(queries, features=self.constants.apply(queries.features))
        return normalise(queries, self.normalise)

    @override
    def evaluate(self, data: Any, measures: Sequence[str] = MEASURES, *, fold: int = 1) -> dict[str, dict[str, float]]:
        """Offline measures of the model on labelled queries.

        Args:
            data: In any form that :func:`fedrank.data.load` takes.
            measures: Offline measures, such as ``nDCG(dcg='exp-log2')@10``; see :mod:`fedrank.metrics.offline`.
            fold: 1 .. 5 of a set that has folds.

        Returns:
            Part of the data -> measure -> mean over all queries; with `` (judged)`` behind the name over those that
            have a relevant document. Equal scores are ordered as in a run's evaluation: by one shuffle, always the
            same.
        """
        splits = self.read(data, fold)
        measurement = Measurement(splits, None, (), tuple(measures), tie_orders=1)
        found = np.concatenate([self._scores(part) for part in splits.parts().values()])
        table: dict[str, dict[str, float]] = {}
        for score in measurement.means(measurement.per_query(found[None]))[0]:
            table.setdefault(score.split, {})[score.measure] = score.value
        return table

    @override
    def trec_run(self, data: Any, *, name: str = "fedrank", part: str = "", fold: int = 1) -> Iterator[str]:
        """Lines of a TREC run file: query, ``Q0``, document, rank, score, name of the run.

        Args:
            data: In any form that :func:`fedrank.data.load` takes; a data frame needs no labels. Documents have the
                names of the data (``#docid =`` in LETOR's comments, the column ``docid`` of a data frame); where it
                has none, a document is named after its query and its place in it, from 1, as in ``q7-3``.
            name: Name of the run.
            part: Part of the data: ``train``, ``vali`` or ``test``; by default ``test`` if the data has it, else all.
            fold: 1 .. 5 of a set that has folds.

        Raises:
            DataError: The features do not fit the model's, or there is no such part.
            ModelError: The name has white space, which separates the words of a line.
        """
        splits = self.read(data, fold, labelled=False)
        part = part or ("train" if splits.test is None else "test")
        if part not in splits.parts():
            raise DataError(f"{splits.name} has no part {part!r}; it has {', '.join(splits.parts())}.")
        queries = splits.parts()[part]
        found = self._scores(queries)
        places = zip(queries.qids, itertools.pairwise(queries.offsets.tolist()), strict=True)
        return run_lines(
            ((qid, queries.document_names(number), found[a:b]) for number, (qid, (a, b)) in enumerate(places)), name
        )


def _places(ranker: Ranker, places: np.ndarray) -> dict[str, np.ndarray]:
    """Places in the vector of the numbers of each tensor: the ranker's own layout of two halves that float32 holds."""
    low, high = (ranker.tensors(half.astype(np.float32)) for half in (places % 2**20, places // 2**20))
    return {part: low[part].astype(np.int64) + 2**20 * high[part].astype(np.int64) for part in low}
