"""Steps of simulated devices in all native rounds: draw queries, and record what their users went through."""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Int, Shaped, UInt32

from fedrank.core.arrays import AnyArray
from fedrank.core.compiled import njit
from fedrank.core.kernels import check_shapes, freeze
from fedrank.metrics.online import OnlineMetric
from fedrank.privacy.randomised_response import threshold
from fedrank.ranking.on_device.reply import ClicksToReply
from fedrank.ranking.sessions.devices import Device
from fedrank.ranking.sessions.results import SessionResults

_u32 = np.uint32


def _rows(array: Shaped[AnyArray, "runs parties *inner"]) -> Shaped[np.ndarray, "rows items"]:
    """A row for each party, runs one after another; a view where it can be."""
    array = np.asarray(array)
    return array.reshape(array.shape[0] * array.shape[1], -1)


@njit(cache=True, nogil=True)
def _fill_queries(held, first, count, words, out):
    for party in range(len(out)):
        begin, bound = first[party], _u32(count[party])
        for k in range(out.shape[1]):
            word = words[party, k]
            high = _u32((word >> _u32(16)) * bound)
            out[party, k] = held[begin + (_u32(high + (_u32((word & _u32(0xFFFF)) * bound) >> _u32(16))) >> _u32(16))]


def drawn_queries(
    held: Int[np.ndarray, " held"], device: Device, words: UInt32[AnyArray, "runs parties *interactions"]
) -> Int[np.ndarray, "runs parties *interactions"]:
    """:func:`fedrank.ranking.sessions.devices.draw_queries` for a cohort."""
    rows = _rows(words)
    out = np.empty(rows.shape, np.int32)
    first, count = (freeze(np.asarray(leaf).reshape(-1), np.int32) for leaf in (device.first, device.count))
    check_shapes(first=(first, (len(rows),)), count=(count, (len(rows),)))
    _fill_queries(freeze(held, np.int32), first, count, rows, out)
    return out.reshape(words.shape)


@njit(cache=True, nogil=True)
def _fill_experience(values, patterns, quality, active, reward, ndcg):
    for party in range(len(reward)):
        one, other, n = np.float32(0), np.float32(0), 0
        for k in range(patterns.shape[1]):
            if active[party, k]:
                one += values[patterns[party, k]]
                other += quality[party, k]
                n += 1
        reward[party], ndcg[party] = one / np.float32(max(n, 1)), other / np.float32(max(n, 1))


def record_cohort_experience(
    device: Device,
    metric: OnlineMetric,
    sessions: SessionResults,
    active: Bool[np.ndarray, "runs parties *interactions"],
) -> Device:
    """:func:`fedrank.ranking.sessions.devices.record_experience` for a cohort."""
    lead = sessions.patterns.shape[:2]
    reward, ndcg = np.empty((2, lead[0] * lead[1]), np.float32)
    values = metric.values.astype(np.float32)[metric.index]
    patterns, quality = freeze(_rows(sessions.patterns), np.int32), freeze(_rows(sessions.ndcg), np.float32)
    took_place, shape = freeze(_rows(active), np.bool_), (reward.size, patterns.shape[1])
    check_shapes(patterns=(patterns, shape), quality=(quality, shape), active=(took_place, shape))
    _fill_experience(values, patterns, quality, took_place, reward, ndcg)
    return device._replace(reward=reward.reshape(lead), ndcg=ndcg.reshape(lead))


@njit(cache=True, nogil=True)
def _fill_sums(patterns, words, active, index, numerators, lies, least_lie, out):
    n, halves = _u32(len(numerators) - 1), out.shape[1]
    each = patterns.shape[1] // halves
    for party in range(len(out)):
        for k in range(patterns.shape[1]):
            if not active[party, k]:
                continue
            value = index[patterns[party, k]]
            if lies and np.int64(words[party, 2 * k]) >= least_lie:
                word = words[party, 2 * k + 1]
                high = _u32((word >> _u32(16)) * n)
                other = np.int32(_u32(high + (_u32((word & _u32(0xFFFF)) * n) >> _u32(16))) >> _u32(16))
                value = other + np.int32(other >= value)
            out[party, k // each] += numerators[value]


def private_sums(
    to_reply: ClicksToReply,
    patterns: Int[np.ndarray, "runs parties halves interactions"],
    words: UInt32[AnyArray, "runs parties halves interactions 2"] | None,
    active: Bool[np.ndarray, "runs parties halves interactions"],
) -> Int[np.ndarray, "runs parties halves"]:
    """:meth:`fedrank.ranking.on_device.reply.ClicksToReply.sums` for a cohort.

    Args:
        to_reply: What a device replies with.
        patterns: The clicks.
        words: Random words for randomised response; None with p = 1, where none are read.
        active: Which interactions took place.

    Raises:
        ValueError: p < 1, and the words are missing or not two an interaction.
    """
    metric, rows = to_reply.metric, freeze(_rows(patterns), np.int32)
    out, lies = np.zeros((len(rows), patterns.shape[2]), np.int32), to_reply.p < 1
    bits = freeze(_rows(words), np.uint32) if lies and words is not None else np.empty((0, 0), np.uint32)
    took_place = freeze(_rows(active), np.bool_)
    check_shapes(active=(took_place, rows.shape))
    if lies:
        check_shapes(words=(bits, (len(rows), 2 * rows.shape[1])))
    _fill_sums(
        rows,
        freeze(bits, np.uint32),
        took_place,
        freeze(metric.index, np.int32),
        freeze(metric.numerators, np.int32),
        lies,
        threshold(to_reply.p, metric.n) if lies else 2**32,
        out,
    )
    return out.reshape(patterns.shape[:3])
