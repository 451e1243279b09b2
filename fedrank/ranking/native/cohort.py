"""What simulated devices of all native rounds do: draw queries, and keep what their users went through."""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Int, Shaped, UInt32

from fedrank.core.arrays import AnyArray
from fedrank.core.rng import below
from fedrank.metrics.online import OnlineMetric
from fedrank.ranking.sessions.devices import Device
from fedrank.ranking.sessions.results import SessionResults


def beside(leaf: Shaped[np.ndarray, "*lead"], like: Shaped[AnyArray, "*lead ..."]) -> Shaped[np.ndarray, "..."]:
    """An array [runs, parties] with as many axes as another that begins with these two."""
    return leaf.reshape(*leaf.shape, *(1,) * (like.ndim - leaf.ndim))


def drawn_queries(
    held: Int[np.ndarray, " held"], device: Device, words: UInt32[AnyArray, "runs parties *interactions"]
) -> Int[np.ndarray, "runs parties *interactions"]:
    """:func:`fedrank.ranking.sessions.devices.draw_queries` for a cohort."""
    first, count = (beside(np.asarray(leaf), words) for leaf in (device.first, device.count))
    return held[first + np.asarray(below(words, count.astype(np.uint32)))]


def experienced(
    device: Device,
    metric: OnlineMetric,
    sessions: SessionResults,
    active: Bool[np.ndarray, "runs parties *interactions"],
) -> Device:
    """:func:`fedrank.ranking.sessions.devices.record_experience` for a cohort."""
    axes = tuple(range(2, active.ndim))
    n = np.maximum(active.sum(axis=axes), 1).astype(np.float32)
    values = metric.values.astype(np.float32)[metric.index[sessions.patterns]]
    reward, ndcg = (
        np.where(active, found, np.float32(0)).sum(axis=axes, dtype=np.float32) / n for found in (values, sessions.ndcg)
    )
    return device._replace(reward=reward, ndcg=ndcg)
