"""Evaluation of a model on every part of the data: the exact expected metric, and offline measures from the labels.

The top ranks of a query fix the probability of each click pattern in closed form; the metric's value of each pattern
weighs it. What remains is the sum over patterns, 1,024 of them for ten ranks. All of it is computed with NumPy.

Documents are scored first, then all parts are measured, a small collection as one array; each part's mean is taken
afterwards, over all its queries and over its judged ones (those with a relevant document).

Scores of documents come from a kernel on the CPU where it knows the ranker, else from JAX. A run's evaluation and a
model that is loaded from a file score here, so that they agree to the last bit.
"""

from __future__ import annotations

import functools
from dataclasses import replace

import numpy as np
from jaxtyping import Bool, Float, Float32, Int, UInt32

from fedrank.core.arrays import AnyArray
from fedrank.core.arrays import JaxArray as Array
from fedrank.core.compiled import njit, prange
from fedrank.core.errors import DataError
from fedrank.core.kernels import ONE_AT_A_TIME, check_shapes, freeze
from fedrank.core.lazy import on_cpu
from fedrank.engine.model import blocks, scores
from fedrank.engine.run_folder import Score
from fedrank.metrics.offline import MOST_LABEL, offline_metric
from fedrank.metrics.online import OnlineMetric
from fedrank.ranking.clicks.cascade import CascadeUser, pattern_probabilities
from fedrank.ranking.data.queries import QuerySet, concatenate
from fedrank.ranking.data.splits import Splits
from fedrank.ranking.rankers.base import Ranker
from fedrank.ranking.sessions.reference import tie_breakers


class Documents:
    """Documents that rankers score.

    Args:
        features: float32 [documents, f].
    """

    def __init__(self, features: Float[np.ndarray, "documents features"]):
        self._features = features

    @functools.cached_property
    def _blocks(self) -> list[Float[Array, "block_rows features"]]:
        return blocks(self._features)

    def scores(self, ranker: Ranker, weights: Float[AnyArray, "parameters"]) -> Float32[np.ndarray, "documents"]:
        """The scores by a model.

        Args:
            ranker: What ranks.
            weights: float32 [parameters].
        """
        shape = ranker.kernel_shape()
        if shape is not None and on_cpu():
            return row_scores(weights, self._features, shape[1])
        return scores(ranker, weights, self._blocks, len(self._features))


@njit(cache=True, nogil=True, parallel=True, fastmath={"contract", "reassoc"})
def _fill(features, weights, hidden, out):
    rows, f = features.shape
    into = hidden * f
    for i in prange(rows):
        row = features[i]
        total = np.float32(0)
        if hidden == 0:
            for j in range(f):
                total += weights[j] * row[j]
        for h in range(hidden):
            of_unit = weights[h * f : (h + 1) * f]
            z = np.float32(0)
            for j in range(f):
                z += of_unit[j] * row[j]
            z += weights[into + h]
            total += weights[into + hidden + h] * max(z, np.float32(0))
        out[i] = total


def row_scores(
    weights: Float[AnyArray, "parameters"], features: Float[AnyArray, "rows features"], hidden: int
) -> Float32[np.ndarray, "rows"]:
    """Scores of rows, each by itself, so that a score depends on its row only; those of a ranker but for rounding.

    Args:
        weights: float32 [size], in the order of the linear ranker, or with hidden units of the two-layer one.
        features: float32 [rows, f].
        hidden: Hidden units; 0 for the linear ranker.
    """
    features = freeze(features, np.float32)
    out = np.empty(len(features), np.float32)
    check_shapes(weights=(weights, (hidden * (features.shape[1] + 2) if hidden else features.shape[1],)))
    with ONE_AT_A_TIME:
        _fill(features, freeze(weights, np.float32), hidden, out)
    return out


#: Lists whose pattern probabilities are held at a time: 256 × 1,024 floats are 1 MiB.
_BATCH = 256


def ranking(
    scores: Float[np.ndarray, "models queries d"], where: Bool[np.ndarray, "queries d"], ties: UInt32[AnyArray, "q d"]
) -> Int[np.ndarray, "models queries d"]:
    """Documents from the first rank on: by falling score, then by rising tie breaker, padding last.

    Score and tie breaker make one integer that rises as ranks do.
    """
    rising = np.where(where & ~np.isnan(scores), np.where(scores == 0, np.float32(0), -scores), np.float32(np.inf))
    bits = rising.astype(np.float32).view(np.uint32)
    ordered = np.where(bits >> np.uint32(31), ~bits, bits | np.uint32(0x80000000)).astype(np.uint64)
    key = (ordered << np.uint64(32)) | ties
    key = np.where(where, key, (np.uint64(0xFFFFFFFF) << np.uint64(32)) | np.arange(where.shape[-1], dtype=np.uint64))
    return np.argsort(key, axis=-1)


def expected_values(
    user: CascadeUser, metric: OnlineMetric, labels: Int[np.ndarray, "lists k"], shown: Bool[np.ndarray, "lists k"]
) -> Float32[np.ndarray, " lists"]:
    """Expected metric of shown lists, exactly: the sum over all click patterns of probability times value.

    Args:
        user: Click model of the user.
        metric: Reward of the clicks of a session.
        labels: int32 [lists, k], labels of the shown documents, best rank first; k ≤ ``user.depth``.
        shown: bool [lists, k], False on padding.
    """
    values = metric.values[metric.index[: 1 << labels.shape[1]]].astype(np.float32)
    out = np.empty(len(labels), np.float32)
    for at in range(0, len(labels), _BATCH):
        part = slice(at, at + _BATCH)
        out[part] = pattern_probabilities(user, labels[part], shown[part]) @ values
    return out


def measure_queries(
    metric: OnlineMetric | None,
    users: tuple[CascadeUser, ...],
    measures: tuple[str, ...],
    scores: Float[np.ndarray, "models queries d"],
    labels: Int[np.ndarray, "queries d"],
    where: Bool[np.ndarray, "queries d"],
    rng_bits: UInt32[np.ndarray, "orders queries"] | None,
) -> dict[str, Float[np.ndarray, "models queries"]]:
    """Measures of every query, averaged over orders of equal scores.

    Args:
        metric: Reward whose exact expectation is wanted; None: offline measures only.
        users: Click models to take it under.
        measures: Names of offline measures, such as ``"nDCG(dcg='exp-log2')@10"``.
        scores: float32 [models, q, d].
        labels: int32 [q, d].
        where: bool [q, d], False on padding.
        rng_bits: uint32 [orders, q] for shuffles of equal scores; None keeps the order of the data.
    """
    sums: dict[str, np.ndarray] = {}
    labels = np.where(where, labels, 0)
    best = -np.sort(-labels, axis=-1)
    orders = np.zeros((1, len(where)), np.uint32) if rng_bits is None else rng_bits
    for bits in orders:
        order = ranking(scores, where, tie_breakers(bits, where.shape[1], rng_bits is not None))
        ranked, shown = (np.take_along_axis(np.broadcast_to(a, order.shape), order, -1) for a in (labels, where))
        values: dict[str, np.ndarray] = {}
        for user in users if metric is not None else ():
            assert metric is not None  # or there is no user to ask
            top = [a[..., : user.depth].reshape(-1, min(user.depth, where.shape[-1])) for a in (ranked, shown)]
            values[f"expected {metric.name} ({user.name})"] = expected_values(user, metric, *top).reshape(
                order.shape[:-1]
            )
        for name in measures:
            values[name] = offline_metric(name)(None, ranked, shown, best=best)
        for name, found in values.items():
            sums[name] = sums[name] + found if name in sums else found
    return {name: total / np.float32(len(orders)) for name, total in sums.items()}


#: A collection with at most this many documents, padding included, is evaluated as one array.
_ONE_ARRAY = 2**20
#: Larger ones in groups of similar length: up to this many documents, up to twice as many, …
_SMALLEST = 64


def _buckets(queries: QuerySet, smallest: int) -> list[tuple[np.ndarray, tuple[np.ndarray, np.ndarray]]]:
    """Labels and where there are any, [q, d], of queries of similar length; see :meth:`QuerySet.groups`."""
    found = []
    for chosen in queries.groups(smallest):
        lengths = queries.lengths[chosen]
        where = np.arange(lengths.max()) < lengths[:, None]
        labels = np.zeros(where.shape, np.int32)
        labels[where] = queries.select(chosen).labels
        found.append((chosen, (labels, where)))
    return found


class Measurement:
    """Measures what scores of the documents are worth, on all parts of a data set.

    Args:
        splits: The data; features are not looked at.
        metric: Online metric whose exact expectation is wanted; None: offline measures only.
        users: Click models to take it under.
        measures: Names of offline measures, such as ``"nDCG(dcg='exp-log2')@10"``.
        tie_orders: Shuffles of equal scores to average over; 0 keeps the order of the data. Data that is sorted by
            label would otherwise make a ranker without an opinion a perfect one.

    Raises:
        DataError: Labels are too large for offline measures.
    """

    def __init__(
        self,
        splits: Splits,
        metric: OnlineMetric | None,
        users: tuple[CascadeUser, ...],
        measures: tuple[str, ...],
        tie_orders: int = 0,
    ):
        self._parts = splits.parts()
        labels = [replace(part, features=np.zeros((part.n_documents, 1))) for part in self._parts.values()]
        everything = concatenate(labels, repeats=True)
        padded = everything.n_queries * everything.longest
        self._buckets = _buckets(everything, everything.longest if padded <= _ONE_ARRAY else _SMALLEST)
        self._offsets, self._judged = everything.offsets, everything.has_relevant
        rng_bits = tie_order_bits(tie_orders, everything.n_queries) if tie_orders else None
        self._tie_bits = [None if rng_bits is None else rng_bits[:, chosen] for chosen, _ in self._buckets]
        if measures and (most := max(part.max_label for part in self._parts.values())) > MOST_LABEL:
            raise DataError(f"offline measures know labels up to {MOST_LABEL}, {splits.name} has {most}.")
        for name in measures:
            offline_metric(name)  # a misspelt name is told before anything is trained
        self._asked = metric, users, measures

    @property
    def queries(self) -> dict[str, list]:
        """Split, qid and judged of each column of :meth:`per_query`, as lists [queries]."""
        return {
            "split": [split for split, part in self._parts.items() for _ in range(part.n_queries)],
            "qid": [qid for part in self._parts.values() for qid in part.qids.tolist()],
            "judged": self._judged.tolist(),
        }

    def per_query(
        self, document_scores: Float[np.ndarray, "models documents"]
    ) -> dict[str, Float[np.ndarray, "models queries"]]:
        """Every measure of every query of all parts, one after another.

        Args:
            document_scores: float32 [models, documents], scores of the documents of all parts, one after another.

        Returns:
            Name -> float64 [models, queries].
        """
        out: dict[str, np.ndarray] = {}
        for (chosen, (labels, where)), rng_bits in zip(self._buckets, self._tie_bits, strict=True):
            padded = np.zeros((len(document_scores), *where.shape), np.float32)
            rows = np.concatenate([np.arange(*self._offsets[q : q + 2].tolist()) for q in chosen])
            padded[:, where] = document_scores[:, rows]
            found = measure_queries(*self._asked, padded, labels, where, rng_bits)
            for name, values in found.items():
                out.setdefault(name, np.zeros((len(document_scores), len(self._judged))))[:, chosen] = values
        return out

    def means(self, values: dict[str, np.ndarray]) -> list[list[Score]]:
        """Means of :meth:`per_query`'s values over each part's queries and its judged ones, a list for each model."""
        scores: list[list[Score]] = [[] for _ in next(iter(values.values()), ())]
        start = 0
        for split, queries in self._parts.items():
            part = slice(start, start + queries.n_queries)
            start = part.stop
            judged = self._judged[part]
            for name, table in values.items():
                for model, row in enumerate(table[:, part]):
                    scores[model].append(Score(split, name, float(row.mean())))
                    if name in self._asked[2] and judged.any():  # no mean over no queries
                        scores[model].append(Score(split, f"{name} (judged)", float(row[judged].mean())))
        return scores


class Evaluator:
    """Evaluates rankers on all parts of a data set.

    Args:
        splits: The data.
        ranker: The ranker, a function from features to scores.
        metric: Online metric whose exact expectation is wanted.
        users: Click models to take it under.
        measures: Names of offline measures.
        tie_orders: Shuffles of equal scores to average over, as of :class:`Measurement`.
    """

    def __init__(
        self,
        splits: Splits,
        ranker: Ranker,
        metric: OnlineMetric,
        users: tuple[CascadeUser, ...],
        measures: tuple[str, ...],
        tie_orders: int = 0,
    ):
        self.measurement = Measurement(splits, metric, users, measures, tie_orders)
        self._ranker = ranker
        features = [part.features for part in splits.parts().values()]
        self._documents = Documents(np.concatenate(features))

    def scores(self, weights: Float[AnyArray, "models parameters"]) -> Float32[np.ndarray, "models documents"]:
        """Scores of all documents of all parts, one part after another, by each model."""
        models = np.asarray(weights, np.float32)
        return np.stack([self._documents.scores(self._ranker, row) for row in models])

    def per_query(
        self, weights: Float[AnyArray, "models parameters"]
    ) -> dict[str, Float[np.ndarray, "models queries"]]:
        """Every measure of every query of all parts, one after another: name -> float64 [models, queries]."""
        return self.measurement.per_query(self.scores(weights))

    def __call__(self, weights: Float[AnyArray, "models parameters"]) -> list[list[Score]]:
        """The scores of each model.

        Args:
            weights: float32 [models, n].
        """
        return self.measurement.means(self.per_query(weights))


def tie_order_bits(orders: int, queries: int) -> UInt32[np.ndarray, "{orders} {queries}"]:
    """Random bits for shuffles of equal scores, the same in every evaluation: uint32 [orders, queries]."""
    return np.random.Generator(np.random.PCG64(20190211)).integers(0, 2**32, (orders, queries), dtype=np.uint32)
