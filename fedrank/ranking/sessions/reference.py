"""Sessions in JAX: the definition, and the path for accelerators.

Works on :class:`~fedrank.ranking.data.queries.PaddedQueries`. The CPU kernel (:mod:`fedrank.ranking.sessions.kernel`)
must give the same clicks from the same draws; :mod:`fedrank.ranking.sessions.devices` chooses between the two.

Results of a session are the clicks of a user on lists, and the quality of the lists.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int, UInt32

from fedrank.core.arrays import AnyArray
from fedrank.core.arrays import JaxArray as Array
from fedrank.core.lazy import jax, jnp
from fedrank.core.rng import perturbation_jax
from fedrank.ranking.clicks.cascade import CascadeUser, decision_tables, pattern_from
from fedrank.ranking.data.queries import FeatureBlocks, PaddedQueries
from fedrank.ranking.on_device import BOTH, MINUS, PLUS
from fedrank.ranking.rankers.base import Ranker


class SessionResults(NamedTuple):
    """Clicks of a user on lists of results, and the quality of the lists.

    Attributes:
        patterns: int32 [...]: bit i is set when the document at rank i + 1 was clicked.
        ndcg: float32 [...]: nDCG of the list that was shown, down to the last rank shown; 0 for a query without a
            relevant document. From the labels, which only a simulation has.
    """

    patterns: Int[AnyArray, "*interactions"]
    ndcg: Float[AnyArray, "*interactions"]


@dataclass(frozen=True, eq=False)
class Perturbed:
    """A model that is perturbed along one direction at a party; or at a cohort's parties, with axes in front.

    Attributes:
        ranker: The ranker.
        users: Click models of the users. Labels of the data must be below their ``grades``.
        user_index: int32, the number of the user who is at this party.
        data: The queries.
        center: float32 [n], the model.
        seed: uint32, seed of the perturbation.
    """

    ranker: Ranker
    users: tuple[CascadeUser, ...]
    user_index: Int[AnyArray, "*#cohort"] | int
    data: PaddedQueries | FeatureBlocks
    center: Float[AnyArray, "*#cohort parameters"]
    seed: UInt32[AnyArray, "*#cohort"]


@dataclass(frozen=True, eq=False)
class Interactions:
    """Queries, each answered with a list, and the random bits of each.

    Attributes:
        queries: int32 [..., K]: which query each interaction is about.
        clicks: uint32 [..., K, depth]: random bits for the user's decision at each rank.
        ties: uint32 [..., K]: the order of equal scores, where it is random.
        toss: uint32 [..., K]: who goes first in each pair of turns (:mod:`fedrank.ranking.on_device`), where two
            rankers make a list; None where lists are of one ranker.
    """

    queries: Int[AnyArray, "*lists"]
    clicks: UInt32[AnyArray, "*lists depth"]
    ties: UInt32[AnyArray, "*lists"]
    toss: UInt32[AnyArray, "*lists"] | None = None

    @property
    def arrays(self) -> tuple[Any, ...]:
        """Queries and bits in the order of the kernels; tosses last, if there are any."""
        every = (self.queries, self.clicks, self.ties)
        return every if self.toss is None else (*every, self.toss)


class InterleavedResults(NamedTuple):
    """Clicks of a user on lists that two rankers made together, and the clicks credited to each ranker.

    Attributes:
        shown: The clicks on the lists, and how good these were.
        credited: int32 [2, ...]: the clicks on documents of each ranker and on those of both, as
            :attr:`SessionResults.patterns`.
    """

    shown: SessionResults
    credited: Int[AnyArray, "2 *interactions"]


def mix32(rng_bits: UInt32[AnyArray, "..."]) -> Any:
    """A bijection of 32-bit integers that scatters neighbours (the finaliser of MurmurHash3); NumPy or JAX."""
    rng_bits = (rng_bits ^ (rng_bits >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    rng_bits = (rng_bits ^ (rng_bits >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    return rng_bits ^ (rng_bits >> np.uint32(16))


def tie_breakers(
    rng_bits: UInt32[AnyArray, "*lists"], documents: int, random: bool
) -> UInt32[AnyArray, "*lists {documents}"]:
    """Among documents with equal scores the one with the smaller tie breaker ranks first.

    Args:
        rng_bits: uint32 [...], random bits of each interaction; not used when ``random`` is False.
        documents: Number of documents d.
        random: Shuffle equal scores anew in each interaction, or keep the order of the data.

    Returns:
        uint32 [..., d], no two equal in a list.
    """
    index = np.broadcast_to(np.arange(documents, dtype=np.uint32), (*rng_bits.shape, documents))
    return mix32(rng_bits[..., None] ^ mix32(index)) if random else index


def rank(
    scores: Float[AnyArray, "*lists documents"],
    where: Bool[AnyArray, "*lists documents"],
    breakers: UInt32[AnyArray, "*lists documents"],
    depth: int,
) -> Int[Array, "*lists ranks"]:
    """The documents at the first ``depth`` ranks: by falling score, then by rising tie breaker; padding last.

    Args:
        scores: float32 [..., d].
        where: bool [..., d], False on padding.
        breakers: uint32 [..., d].
        depth: Ranks wanted; cut to d.

    Returns:
        int32 [..., min(depth, d)]: indices of documents.
    """
    scores = jnp.where(scores == 0, 0.0, scores)  # −0 and 0 are the same score
    falling = jnp.where(where & ~jnp.isnan(scores), -scores, jnp.inf)  # not a number ranks last
    index = jnp.broadcast_to(jnp.arange(scores.shape[-1], dtype=jnp.int32), scores.shape)
    *_, order = jax.lax.sort((jnp.asarray(~where), falling, jnp.asarray(breakers), index), num_keys=3)
    return order[..., :depth]


def shown_ndcg(
    labels: Int[AnyArray, "*lists documents"],
    where: Bool[AnyArray, "*lists documents"],
    order: Int[AnyArray, "*lists ranks"],
) -> Float[Array, "*lists"]:
    """NDCG of lists as they are shown, cut where the screen ends; 0 for a query without a relevant document.

    Args:
        labels: int32 [..., d] of the query's documents.
        where: bool [..., d].
        order: int32 [..., k], the documents shown.

    Returns:
        float32 [...]: gain 2^label − 1, discount 1/log2(1 + rank).
    """
    gains = jnp.where(where, jnp.exp2(labels.astype(jnp.float32)) - 1, 0.0)
    discounts = jnp.asarray(1 / np.log2(2 + np.arange(order.shape[-1])), jnp.float32)
    ideal = jnp.einsum("...k,k->...", jax.lax.top_k(gains, order.shape[-1])[0], discounts)
    found = jnp.einsum("...k,k->...", jnp.take_along_axis(gains, order, axis=-1), discounts)
    return jnp.where(ideal > 0, found / jnp.where(ideal > 0, ideal, 1.0), 0.0)


def simulate_clicks(
    users: tuple[CascadeUser, ...],
    user_index: Int[AnyArray, ""] | int,
    labels: Int[AnyArray, "*lists documents"],
    where: Bool[AnyArray, "*lists documents"],
    order: Int[AnyArray, "*lists ranks"],
    rng_bits: UInt32[AnyArray, "*lists depth"],
) -> SessionResults:
    """Clicks of a user on shown lists, and the lists' nDCG.

    Args:
        users: All users.
        user_index: int32, number of the user who sees the lists.
        labels: int32 [..., d] of the queries' documents.
        where: bool [..., d].
        order: int32 [..., k], the documents shown.
        rng_bits: uint32 [..., depth]: random bits for the user's decision at each rank.
    """
    click, leave = (jnp.asarray(table)[user_index] for table in decision_tables(users))
    shown, grades = (jnp.take_along_axis(a, order, axis=-1) for a in (where, labels))
    patterns = pattern_from(click, leave, grades, shown, rng_bits[..., : order.shape[-1]])
    return SessionResults(patterns, shown_ndcg(labels, where, order))


def run_sessions(model: Perturbed, steps: tuple[float, ...], lists: Interactions, random_ties: bool) -> SessionResults:
    """Sessions; arguments as in :func:`fedrank.ranking.sessions.devices.run_sessions`."""
    features, labels, where, weights = _rows_and_weights(model, steps, lists)
    scores = jax.vmap(model.ranker.scores)(weights, features)
    order = rank(scores, where, tie_breakers(lists.ties, scores.shape[-1], random_ties), model.users[0].depth)
    return simulate_clicks(model.users, model.user_index, labels, where, order, lists.clicks)


def _rows_and_weights(model: Perturbed, steps: tuple[float, ...], lists: Interactions) -> tuple[Any, Any, Any, Any]:
    """Features, labels and places of the lists' documents; and the model at each step, float32 [H, n]."""
    data: Any = model.data
    noise = perturbation_jax(jnp.asarray(model.seed), model.ranker.size)
    weights = model.center[None] + jnp.asarray(steps, jnp.float32)[:, None] * noise[None]
    return data.features[lists.queries], data.labels[lists.queries], data.where[lists.queries], weights


def draft_lists(
    first: Int[Array, "ranks"], second: Int[Array, "ranks"], documents: int, toss: UInt32[AnyArray, ""]
) -> tuple[Int[Array, "ranks"], Int[Array, "ranks"]]:
    """One list of two by team drafting; :func:`fedrank.ranking.on_device.draft` in JAX.

    Args:
        first: int32 [k], the documents at a ranker's first ranks, best first, padding last.
        second: int32 [k], the other's, over the same documents.
        documents: Number of documents with padding.
        toss: uint32: who goes first in each pair of turns.

    Returns:
        int32 [k]: the documents shown, and whose each is.
    """
    ranks = first.shape[-1]

    def take(state, rank):
        taken, starts, whose = state
        one, other = (a[jnp.argmin(taken[a])] for a in (first, second))  # the best that is not taken
        both = starts & (one == other)
        tossed = (jnp.asarray(toss) >> rank.astype(jnp.uint32)) & np.uint32(1) == 1
        whose = jnp.where(starts, jnp.where(both, whose, tossed), ~whose)
        chosen = jnp.where(both | whose, one, other)
        team = jnp.where(both, BOTH, jnp.where(whose, PLUS, MINUS))
        return (taken.at[chosen].set(True), starts ^ ~both, whose), (chosen, team)

    start = (jnp.zeros(documents, bool), jnp.bool_(True), jnp.bool_(False))
    _, (order, team) = jax.lax.scan(take, start, jnp.arange(ranks))
    return order, team


def run_interleaved(model: Perturbed, step: float, lists: Interactions, random_ties: bool) -> InterleavedResults:
    """Lists made of two rankers' lists; arguments as in :func:`fedrank.ranking.sessions.devices.run_interleaved`."""
    features, labels, where, weights = _rows_and_weights(model, (step, -step), lists)
    documents, users = features.shape[-2], model.users
    scores = jax.vmap(model.ranker.scores, in_axes=(0, None))(weights, features)  # [2, interactions, documents]
    breakers = tie_breakers(lists.ties, documents, random_ties)
    first, second = (rank(one, where, breakers, users[0].depth) for one in scores)
    order, team = jax.vmap(draft_lists, in_axes=(0, 0, None, 0))(first, second, documents, jnp.asarray(lists.toss))
    shown = simulate_clicks(users, model.user_index, labels, where, order, lists.clicks)
    ranks = jnp.asarray(1 << np.arange(order.shape[-1]), jnp.int32)
    own = [jnp.sum(jnp.where(team != other, ranks, 0), axis=-1, dtype=jnp.int32) for other in (MINUS, PLUS)]
    return InterleavedResults(shown, jnp.stack([shown.patterns & mask for mask in own]))
