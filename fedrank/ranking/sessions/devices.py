"""Simulated devices: the queries that each holds, its user's click model, and its interactions in a round.

In a session a query is ranked and its user clicks. Two layouts of the same data lead to two implementations of the same
function: padded arrays to pure JAX (any device), feature-major blocks to the CPU kernel. Both take their randomness as
arguments, so that they can be compared draw by draw.

A cohort is the devices of a native round: it draws queries, and records what their users went through.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped, UInt32

from fedrank.core.arrays import AnyArray, PyTree
from fedrank.core.arrays import JaxArray as Array
from fedrank.core.compiled import njit
from fedrank.core.errors import ConfigError
from fedrank.core.kernels import check_shapes, freeze
from fedrank.core.lazy import jnp
from fedrank.core.protocol import Party
from fedrank.core.rng import below
from fedrank.metrics.online import OnlineMetric
from fedrank.privacy.randomised_response import threshold
from fedrank.ranking.clicks.cascade import CascadeUser, decision_tables
from fedrank.ranking.data.partition import Shares
from fedrank.ranking.data.queries import FeatureBlocks, PaddedQueries
from fedrank.ranking.on_device import ClicksToReply
from fedrank.ranking.rankers.base import Ranker
from fedrank.ranking.sessions import kernel, reference
from fedrank.ranking.sessions.reference import Interactions, InterleavedResults, Perturbed, SessionResults

#: How equal scores are ordered: as the documents stand in the data, or shuffled anew in each interaction.
TIES = ("fixed", "random")

#: Most queries of a device: one of them is drawn with 16-bit arithmetic.
MAX_QUERIES = 65_535


def check_ties(ties: str) -> bool:
    """True for ``"random"``.

    Raises:
        ConfigError: Neither ``"fixed"`` nor ``"random"``.
    """
    if ties not in TIES:
        raise ConfigError(f"ties must be one of {', '.join(TIES)}, got {ties!r}.")
    return ties == "random"


def check_fit(
    ranker: Ranker, users: tuple[CascadeUser, ...], data: PaddedQueries | FeatureBlocks, shares: Shares
) -> None:
    """Refuse data that does not fit its ranker, its users or its shares.

    A kernel would read past the end of an array, and JAX clamp the index: wrong numbers either way.

    Raises:
        ConfigError: Another number of features, a label that the user does not know, or a share of other queries.
    """
    found = data.n_features if isinstance(data, FeatureBlocks) else data.features.shape[-1]
    if found != ranker.n_features:
        raise ConfigError(f"the ranker takes {ranker.n_features} features, the data has {found}.")
    decision_tables(users)  # refuses users who do not fit each other
    user, largest = users[0], int(np.max(np.asarray(data.labels)))
    if largest >= user.grades:
        raise ConfigError(
            f"the {user.name} user knows labels 0..{user.grades - 1}, the data has labels up to {largest}."
        )
    first, count, queries = (np.asarray(a, np.int64) for a in (shares.first, shares.count, shares.queries))
    if count.min() < 1 or count.max() > MAX_QUERIES:
        raise ConfigError(
            f"a device's share must hold 1 to {MAX_QUERIES:,} queries, got {count.min():,} to {count.max():,}. "
            "Give each device its own share, or use a part of the data."
        )
    if first.min() < 0 or (first + count).max() > len(queries):
        raise ConfigError(f"a share reaches beyond the list of {len(queries):,} queries that shares are cut from.")
    known = len(np.asarray(data.length))
    if queries.min() < 0 or queries.max() >= known:
        raise ConfigError(f"shares name queries up to {queries.max()}, the data has {known}.")


def run_sessions(
    model: Perturbed, steps: tuple[float, ...], lists: Interactions, ties: str = "fixed"
) -> SessionResults:
    """One party's sessions with a model that is perturbed along one direction: H steps along it, K queries at each.

    The model of step h is ``center + steps[h] · perturbation(seed)``.

    Args:
        model: The model, the user and the queries.
        steps: H numbers, such as (σ, −σ) for antithetic halves.
        lists: The interactions, [H, K].
        ties: ``"fixed"`` or ``"random"``: the order of equal scores.

    Returns:
        The clicks and the quality of what was shown, [H, K] each.
    """
    layout: Any = kernel if isinstance(model.data, FeatureBlocks) else reference
    return layout.run_sessions(model, steps, lists, check_ties(ties))


def run_interleaved(model: Perturbed, step: float, lists: Interactions, ties: str = "fixed") -> InterleavedResults:
    """One party's sessions with lists that ``center + step · perturbation(seed)`` and its opposite make together.

    Args:
        model: The model, the user and the queries.
        step: How far both are from the model.
        lists: The interactions, [K], with tosses. The order of equal scores is the same for both rankers.
        ties: ``"fixed"`` or ``"random"``.

    Returns:
        The clicks and the quality of what was shown, [K] each, and the clicks as each ranker is credited with them.

    Raises:
        ValueError: There are no tosses.
    """
    if lists.toss is None:
        raise ValueError("lists of two rankers need tosses")
    layout: Any = kernel if isinstance(model.data, FeatureBlocks) else reference
    return layout.run_interleaved(model, step, lists, check_ties(ties))


#: One integer for each device; None for a default.
PerDevice: TypeAlias = Sequence[int] | AnyArray | None


class Device(NamedTuple):
    """State of a device.

    Attributes:
        first: int32: start of its share in the list of all shares' queries.
        count: int32: how many queries its user asks about, each equally likely.
        user: int32: number of its user's click model.
        amount: int32: interactions its user makes in a round, at most the protocol's.
        reward: float32: true mean metric of the last round. Never leaves; a simulator draws its curves from it.
        ndcg: float32: mean nDCG of what was shown in the last round; as reward.
        kept: What else the protocol keeps on the device, a pytree of arrays; nothing by default.
    """

    first: Int[AnyArray, "*parties"]
    count: Int[AnyArray, "*parties"]
    user: Int[AnyArray, "*parties"]
    amount: Int[AnyArray, "*parties"]
    reward: Float[AnyArray, "*parties"]
    ndcg: Float[AnyArray, "*parties"]
    kept: PyTree = ()


def devices(
    ranker: Ranker,
    users: tuple[CascadeUser, ...],
    data: PaddedQueries | FeatureBlocks,
    shares: Shares,
    interactions: int,
    user_index: PerDevice = None,
    amounts: PerDevice = None,
) -> Party:
    """All devices of a simulation: the collection once, one share of it each.

    Args:
        ranker: What ranks.
        users: Click models of the users that devices have.
        data: The queries.
        shares: Which queries each device asks about.
        interactions: Most interactions of a device in a round.
        user_index: int [parties], number of each device's user; None: the first everywhere.
        amounts: int [parties], interactions of each device in a round; None: ``interactions``.

    Returns:
        ``shared`` is (data, queries of the shares), ``own`` a :class:`Device` with leading axis [parties].

    Raises:
        ConfigError: The data does not fit the ranker or the users, a share the data, or a number is out of range.
    """
    check_fit(ranker, users, data, shares)
    parties = shares.parties

    def numbers(values: PerDevice, default: int, what: str, low: int, high: int) -> np.ndarray:
        values = np.full(parties, default) if values is None else np.asarray(values)
        if values.shape != (parties,):
            raise ConfigError(f"{what} must be given for each of {parties} devices, got shape {values.shape}.")
        if values.min() < low or values.max() > high:
            raise ConfigError(f"{what} must be in {low}..{high}, got {values.min()}..{values.max()}.")
        return values.astype(np.int32)

    own = Device(
        np.asarray(shares.first, np.int32),
        np.asarray(shares.count, np.int32),
        numbers(user_index, 0, "numbers of users", 0, len(users) - 1),
        numbers(amounts, interactions, "interactions in a round", 1, interactions),
        np.zeros(parties, np.float32),
        np.zeros(parties, np.float32),
    )
    return Party((data, np.asarray(shares.queries, np.int32)), own)


def draw_queries(
    queries: Int[AnyArray, "held"], device: Device, rng_bits: UInt32[AnyArray, "*interactions"]
) -> Int[Array, "*interactions"]:
    """The query that each of some random integers stands for at a device: int32, of the shape of ``rng_bits``."""
    return jnp.asarray(queries)[device.first + below(rng_bits, device.count.astype(jnp.uint32))]


def record_experience(
    device: Device,
    values: Float[AnyArray, "*interactions"],
    sessions: SessionResults,
    active: Bool[AnyArray, "*interactions"],
) -> Device:
    """The device after its interactions, with the means for a simulator's curves.

    Args:
        device: Before.
        values: float32 [...], true metric value of each interaction.
        sessions: The same interactions.
        active: bool [...]: which of them took place.
    """
    n = jnp.maximum(jnp.sum(active), 1)
    mean = [jnp.sum(jnp.where(active, x, 0.0)) / n for x in (values, sessions.ndcg)]
    return device._replace(reward=mean[0], ndcg=mean[1])


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


def draw_cohort_queries(
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
    """:meth:`fedrank.ranking.on_device.ClicksToReply.sums` for a cohort.

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
