"""What simulated devices of all native rounds do: draw queries, and keep what their users went through."""

from __future__ import annotations

import functools

import numpy as np
from jaxtyping import Bool, Float32, Int, Shaped, UInt32

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
    n = np.maximum(_totals(active.astype(np.float32)), np.float32(1))
    values = metric.values.astype(np.float32)[metric.index[sessions.patterns]]
    reward, ndcg = (_totals(np.where(active, found, np.float32(0))) / n for found in (values, sessions.ndcg))
    return device._replace(reward=reward, ndcg=ndcg)


def _totals(array: Float32[np.ndarray, "runs parties *interactions"]) -> Float32[np.ndarray, "runs parties"]:
    """Sums over a party's interactions. NumPy's own are slow over axes of a few numbers."""
    flat = array.reshape(*array.shape[:2], -1)
    return (
        functools.reduce(np.add, (flat[..., k] for k in range(flat.shape[2]))) if flat.shape[2] <= 16 else flat.sum(2)
    )
