"""Measures of scores with NumPy: those of :mod:`fedrank.ranking.evaluate` that runs have by default."""

from __future__ import annotations

import re

import numpy as np
from jaxtyping import Bool, Float, Float32, Int, UInt32

from fedrank.metrics.online import OnlineMetric
from fedrank.ranking.clicks.cascade import CascadeUser, pattern_probabilities

#: Lists whose pattern probabilities are held at a time: 256 × 1,024 floats are 1 MiB.
_BATCH = 256
_KNOWN = re.compile(r"(nDCG|RR)(?:@([1-9]\d*))?")


def known(measures: tuple[str, ...]) -> bool:
    """True if all of these offline measures are computed here."""
    return all(_KNOWN.fullmatch(name) for name in measures)


def breakers(bits: UInt32[np.ndarray, " queries"] | None, shape: tuple[int, int]) -> UInt32[np.ndarray, "queries d"]:
    """:func:`fedrank.ranking.sessions.reference.tie_breakers`: the same bits; None keeps the order of the data."""
    index = np.broadcast_to(np.arange(shape[1], dtype=np.uint32), shape)
    return index if bits is None else mix32(bits[:, None] ^ mix32(index))


def mix32(words: UInt32[np.ndarray, "..."]) -> UInt32[np.ndarray, "..."]:
    """:func:`fedrank.ranking.sessions.reference.mix32` with NumPy: the same bits."""
    words = (words ^ (words >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    words = (words ^ (words >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    return words ^ (words >> np.uint32(16))


def ranking(
    scores: Float[np.ndarray, "models queries d"], where: Bool[np.ndarray, "queries d"], ties: UInt32[np.ndarray, "q d"]
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
    """:func:`fedrank.ranking.sessions.expected.expected_metric`: the sum over all click patterns, in closed form."""
    values = metric.values[metric.index[: 1 << labels.shape[1]]].astype(np.float32)
    out = np.empty(len(labels), np.float32)
    for at in range(0, len(labels), _BATCH):
        part = slice(at, at + _BATCH)
        out[part] = pattern_probabilities(user, labels[part], shown[part], np) @ values
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
        measures: Names of offline measures, such as ``"nDCG@10"``, all :func:`known`.
        scores: float32 [models, q, d].
        labels: int32 [q, d].
        where: bool [q, d], False on padding.
        rng_bits: uint32 [orders, q] for shuffles of equal scores; None keeps the order of the data.
    """
    labels = np.where(where, labels, 0)
    gains = (np.int32(1) << labels) - 1
    best = -np.sort(-gains, axis=-1)
    sums: dict[str, np.ndarray] = {}
    orders = [None] if rng_bits is None else list(rng_bits)
    for bits in orders:
        order = ranking(scores, where, breakers(bits, where.shape))
        ranked, shown = (np.take_along_axis(np.broadcast_to(a, order.shape), order, -1) for a in (labels, where))
        values: dict[str, np.ndarray] = {}
        for user in users if metric is not None else ():
            assert metric is not None  # or there is no user to ask
            top = [a[..., : user.depth].reshape(-1, min(user.depth, where.shape[-1])) for a in (ranked, shown)]
            values[f"expected {metric.name} ({user.name})"] = expected_values(user, metric, *top).reshape(
                order.shape[:-1]
            )
        for name in measures:
            values[name] = _offline(name, ranked, best)
        for name, found in values.items():
            sums[name] = sums[name] + found if name in sums else found
    return {name: total / np.float32(len(orders)) for name, total in sums.items()}


def _offline(
    name: str, ranked: Int[np.ndarray, "models queries d"], best: Int[np.ndarray, "queries d"]
) -> Float[np.ndarray, "models queries"]:
    match = _KNOWN.fullmatch(name)
    assert match is not None  # asked for before
    k = min(int(match[2]), ranked.shape[-1]) if match[2] else ranked.shape[-1]
    top = ranked[..., :k]
    if match[1] == "RR":
        hit = top >= 1
        return np.where(hit.any(-1), np.float32(1) / (hit.argmax(-1) + 1), np.float32(0)).astype(np.float32)
    discount = (1 / np.log2(2 + np.arange(k))).astype(np.float32)
    ideal = best[:, :k].astype(np.float32) @ discount
    found = ((np.int32(1) << top) - 1).astype(np.float32) @ discount
    return np.where(ideal > 0, found / np.where(ideal > 0, ideal, np.float32(1)), np.float32(0))
