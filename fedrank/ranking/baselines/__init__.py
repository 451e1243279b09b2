"""Baselines: rankers trained on labels of the same data, measured by the same evaluator."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field

import numpy as np

from fedrank.metrics.online import OnlineMetric
from fedrank.ranking.baselines.label_rankers import Model, fit_baseline
from fedrank.ranking.clicks.cascade import CascadeUser
from fedrank.ranking.data.splits import Splits
from fedrank.ranking.evaluate import Measurement


@dataclass(frozen=True, eq=False)
class Baseline:
    """One label-trained ranker and its values.

    Attributes:
        name: Such as ``"MSE"``.
        per_query: Measure -> float64 [queries of all parts].
        notes: What a reader should know about it.
    """

    name: str
    per_query: dict[str, np.ndarray] = field(repr=False)
    notes: tuple[str, ...]


def baselines(
    names: tuple[str, ...],
    splits: Splits,
    metric: OnlineMetric,
    users: tuple[CascadeUser, ...],
    measures: tuple[str, ...],
    tie_orders: int,
) -> list[Baseline]:
    """Train and evaluate each; what was done before in this process is remembered, for sweeps.

    Args:
        names: Names of :data:`fedrank.ranking.baselines.label_rankers.BASELINES`.
        splits: The data.
        metric: Online metric whose exact expectation is wanted.
        users: Click models to take it under.
        measures: Offline measures.
        tie_orders: As for :class:`~fedrank.ranking.evaluate.Measurement`.

    Raises:
        FedrankError: No such baseline, or it cannot be trained on this data.
    """
    return [_baseline(name, splits, metric, users, measures, tie_orders) for name in names]


# Splits are compared by identity: the runs of a sweep that have the same data have the same object.
@functools.lru_cache(maxsize=16)
def _train_baseline(name: str, splits: _ByIdentity) -> Model:
    return fit_baseline(name, splits.splits)


def _baseline(name, splits, metric, users, measures, tie_orders) -> Baseline:
    return _evaluate_baseline(name, _ByIdentity(splits), metric, users, measures, tie_orders)


class _ByIdentity:
    """Splits as a key: equal where they are the same object, which the key keeps alive."""

    def __init__(self, splits: Splits):
        self.splits = splits

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _ByIdentity) and self.splits is other.splits

    def __hash__(self) -> int:
        return id(self.splits)


@functools.lru_cache(maxsize=64)
def _evaluate_baseline(name, same: _ByIdentity, metric, users, measures, tie_orders) -> Baseline:
    model = _train_baseline(name, same)

    scores = np.concatenate([model.scores(part.features) for part in same.splits.parts().values()])
    values = Measurement(same.splits, metric, users, measures, tie_orders).per_query(scores[None])
    return Baseline(name, {measure: rows[0] for measure, rows in values.items()}, model.notes)
