"""Evaluation of a model on every part of the data: the exact expected metric, and offline measures from the labels.

Documents are scored first, then all parts are measured as one array, so that a small collection costs one compilation;
each part's mean is taken afterwards, over all its queries and over its judged ones (those with a relevant document).
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float, Float32

from fedrank.core.arrays import AnyArray
from fedrank.core.errors import DataError
from fedrank.core.lazy import jax, jit, jnp, on_cpu
from fedrank.engine.run_folder import Score
from fedrank.metrics.offline import MOST_LABEL, offline_metric
from fedrank.metrics.online import OnlineMetric
from fedrank.ranking.clicks.cascade import CascadeUser
from fedrank.ranking.data.queries import PaddedQueries, QuerySet, concatenate
from fedrank.ranking.data.splits import Splits
from fedrank.ranking.measures import known, measure_queries
from fedrank.ranking.rankers.base import Ranker
from fedrank.ranking.scoring import Documents
from fedrank.ranking.sessions.expected import expected_rewards, rankings, tie_order_bits

#: A collection with at most this many documents, padding included, is evaluated as one array.
_ONE_ARRAY = 2**20
#: Larger ones in groups of similar length: up to this many documents, up to twice as many, …
_SMALLEST = 64


@dataclass(frozen=True)
class _Measures:
    """Measures to compute; equal ones share a compiled program, so that the runs of a sweep compile it once."""

    metric: OnlineMetric | None
    users: tuple[CascadeUser, ...]
    measures: tuple[str, ...]

    def per_query(self, scores: jax.Array, data: PaddedQueries, rng_bits: jax.Array | None) -> dict[str, jax.Array]:
        if rng_bits is None:
            return self._measure_order(data, rankings(scores, data.where))
        shuffled = jax.lax.map(lambda bits: self._measure_order(data, rankings(scores, data.where, bits)), rng_bits)
        return jax.tree.map(lambda values: jnp.mean(values, axis=0), shuffled)

    def _measure_order(self, data: PaddedQueries, order: jax.Array) -> dict[str, jax.Array]:
        values: dict[str, jax.Array] = {}
        if self.metric is not None:
            for user in self.users:
                values[f"expected {self.metric.name} ({user.name})"] = expected_rewards(user, self.metric, data, order)
        # The offline measures are given minus the rank as the score, so that equal scores are ordered once, above.
        ranks = -jnp.argsort(order, axis=-1).astype(jnp.float32)
        for name in self.measures:
            values[name] = offline_metric(name)(ranks, data.labels, data.where)
        return values


@functools.partial(jit, static_argnums=0)
def _values(
    measures: _Measures, scores: jax.Array, data: PaddedQueries, rng_bits: jax.Array | None
) -> dict[str, jax.Array]:
    return jax.vmap(measures.per_query, in_axes=(0, None, None))(scores, data, rng_bits)


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
        measures: Names of offline measures, such as ``"nDCG@10"``.
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
        self._measures = _Measures(metric, users, measures)

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
        here = known(self._measures.measures) and on_cpu()
        for (chosen, (labels, where)), rng_bits in zip(self._buckets, self._tie_bits, strict=True):
            padded = np.zeros((len(document_scores), *where.shape), np.float32)
            rows = np.concatenate([np.arange(*self._offsets[q : q + 2].tolist()) for q in chosen])
            padded[:, where] = document_scores[:, rows]
            asked = self._measures
            if here:
                found = measure_queries(asked.metric, asked.users, asked.measures, padded, labels, where, rng_bits)
            else:
                data = PaddedQueries(np.zeros((*where.shape, 0), np.float32), labels, where.sum(1, dtype=np.int32))
                found = _values(asked, jnp.asarray(padded), data, rng_bits)
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
                    if name in self._measures.measures and judged.any():  # no mean over no queries
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
