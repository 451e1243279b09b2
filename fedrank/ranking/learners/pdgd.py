"""PDGD: pairwise differentiable gradient descent (Oosterhuis & de Rijke, CIKM 2018).

A ranking is drawn from the scores, a user clicks, and the ranker moves so that clicked documents score higher than
documents that were seen and not clicked (the paper's Section 4 and Algorithm 1). For a ranking R, scores s(d), and the
documents D_t that are not above rank t::

    (1)  P(R) = Π_t e^{s(R_t)} / Σ_{d in D_t} e^{s(d)}            Plackett–Luce
    (2)  k > l  for k clicked, l not clicked, and l above a click or right below the last one
    (3)  ρ(k, l) = P(R*) / (P(R) + P(R*)),   R* = R with k and l swapped
    (4)  ∇ = Σ_{k > l} ρ(k, l) · e^{s(k)} e^{s(l)} / (e^{s(k)} + e^{s(l)})² · (∇s(k) − ∇s(l))

ρ makes up for where documents are shown: two documents that would be clicked alike wherever they stood are preferred to
each other with equal expected weight.

Only the first ``depth`` ranks are shown. P is the probability of those, with all documents of the query in its
denominators. Swapping the documents a and b at ranks i < j changes the denominators between them only, so that with L_t
the logarithm of the denominator at rank t::

    (5)  P(R) / P(R*) = Π_{t = i+1..j} (1 + e^{s(a) − L_t} − e^{s(b) − L_t}),    ρ = 1 / (1 + P(R)/P(R*))

b is in D_t, so that its term is at most 1: no factor is negative, all are on the same side of 1, and however far apart
scores are, ρ is a number from 0 to 1.

This file is the definition, in JAX; :mod:`fedrank.ranking.learners.pdgd_kernel` computes the same on the CPU.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int, UInt32

from fedrank.core.arrays import AnyArray
from fedrank.core.arrays import JaxArray as Array
from fedrank.core.lazy import jax, jnp
from fedrank.ranking.clicks.cascade import CascadeUser
from fedrank.ranking.data.queries import FeatureBlocks, PaddedQueries
from fedrank.ranking.learners import pdgd_kernel
from fedrank.ranking.learners.draws import document_bits
from fedrank.ranking.rankers.base import Ranker
from fedrank.ranking.sessions.reference import rank, simulate_clicks
from fedrank.ranking.sessions.results import SessionResults


class PdgdDraws(NamedTuple):
    """A party's random bits for K interactions; none is used twice.

    Attributes:
        documents: uint32 [K, 2]: makes random bits for every document, for drawing a ranking.
        clicks: uint32 [K, depth]: random bits for the user's decision at each rank.
    """

    documents: UInt32[Array, "interactions 2"]
    clicks: UInt32[Array, "interactions depth"]


class Learned(NamedTuple):
    """Result of a party's interactions.

    Attributes:
        weights: float32 [n]: the ranker's weights afterwards.
        sessions: The clicks and the quality of what was shown, [K] each; 0 where no interaction took place.
    """

    weights: Float[AnyArray, "parameters"]
    sessions: SessionResults


def pdgd_steps(
    ranker: Ranker,
    users: tuple[CascadeUser, ...],
    user_index: Int[AnyArray, ""] | int,
    data: PaddedQueries | FeatureBlocks,
    weights: Float[AnyArray, "parameters"],
    rate: Float[AnyArray, ""] | float,
    queries: Int[AnyArray, "interactions"],
    active: Bool[AnyArray, "interactions"],
    rng_bits: PdgdDraws,
    batch: bool = False,
) -> Learned:
    """K interactions of one party, one after another, with a ranker that learns from them.

    Args:
        ranker: The ranker.
        users: Click models of the users, all of one depth. Labels of the data must be below their ``grades``.
        user_index: int32, the number of the user who is at this party.
        data: The queries: feature blocks go to the CPU kernel, padded queries to JAX.
        weights: float32 [n], at the start.
        rate: float32, learning rate η.
        queries: int32 [K]: which query each interaction is about.
        active: bool [K]: which interactions take place; the others change nothing.
        rng_bits: The party's random bits.
        batch: False: the weights move by η times the gradient after each interaction. True: all gradients are taken at
            the starting weights, and the weights move by η times their sum.

    Returns:
        The weights afterwards, and what happened. The nDCG is that of the ranking which was drawn and shown.

    Raises:
        ConfigError: Users do not fit each other, or the kernel does not know the ranker.
    """
    weights, queries, active = (jnp.asarray(x) for x in (weights, queries, active))
    rng_bits = PdgdDraws(*map(jnp.asarray, rng_bits))
    rate, user_index = jnp.asarray(rate, jnp.float32), jnp.asarray(user_index, jnp.int32)
    if isinstance(data, FeatureBlocks):
        weights, patterns, ndcg = pdgd_kernel.steps(
            ranker, users, user_index, data, weights, rate, queries, active, rng_bits.documents, rng_bits.clicks, batch
        )
        return Learned(weights, SessionResults(patterns, ndcg))

    def interact(weights: jax.Array, each: Any) -> tuple[jax.Array, SessionResults]:
        query, takes_place, document_pair, click_bits = each
        features, labels, where = (jnp.asarray(a)[query] for a in (data.features, data.labels, data.where))
        noise = document_bits(document_pair[0], document_pair[1], where.shape[0])
        ranking = sample_ranking(ranker.scores(weights, features), where, noise, users[0].depth)
        sessions = simulate_clicks(users, user_index, labels, where, ranking, click_bits)
        gradient = pdgd_gradient(ranker, weights, features, where, ranking, sessions.patterns)
        return jax.tree.map(lambda leaf: jnp.where(takes_place, leaf, jnp.zeros_like(leaf)), (gradient, sessions))

    each = (queries, active, rng_bits.documents, rng_bits.clicks)
    if batch:
        gradients, sessions = jax.vmap(lambda one: interact(weights, one))(each)
        return Learned(weights + rate * jnp.sum(gradients, axis=0), sessions)

    def step(weights: jax.Array, one: Any) -> tuple[jax.Array, SessionResults]:
        gradient, sessions = interact(weights, one)
        return weights + rate * gradient, sessions

    return Learned(*jax.lax.scan(step, weights, each))


def sample_ranking(
    scores: Float[AnyArray, "documents"],
    where: Bool[AnyArray, "documents"],
    rng_bits: UInt32[AnyArray, "documents"],
    depth: int,
) -> Int[Array, "ranks"]:
    """The first ranks of a ranking drawn from the Plackett–Luce model of the scores, (1).

    An exponential race: with E(d) exponentially distributed, documents by rising E(d)/e^{s(d)} are in Plackett–Luce
    order (the same as by falling score plus Gumbel noise −log E).

    Args:
        scores: float32 [d].
        where: bool [d], False on padding.
        rng_bits: uint32 [d], random bits of each document.
        depth: Ranks wanted; cut to d.

    Returns:
        int32 [min(depth, d)]: indices of documents, padding last.
    """
    # Small values of E decide who comes first; −log(1 − u) has them down to 2⁻³³, where −log u would stop at 2⁻²⁴.
    unit = (rng_bits.astype(jnp.float32) + 0.5) * np.float32(2.0**-32)
    race = -jnp.log1p(-jnp.minimum(unit, np.float32(1 - 2.0**-24)))
    best = jnp.max(jnp.where(where, scores, -jnp.inf))
    index = jnp.arange(scores.shape[0], dtype=jnp.uint32)
    return rank((scores - best) - jnp.log(race), where, index, depth)


def pdgd_gradient(
    ranker: Ranker,
    weights: Float[AnyArray, "parameters"],
    features: Float[AnyArray, "documents features"],
    where: Bool[AnyArray, "documents"],
    ranking: Int[AnyArray, "ranks"],
    pattern: Int[AnyArray, ""] | int,
) -> Float[Array, "parameters"]:
    """The gradient of one interaction, given what was shown and what was clicked: (4).

    Args:
        ranker: The ranker.
        weights: float32 [n].
        features: float32 [d, f] of the query's documents.
        where: bool [d], False on padding.
        ranking: int32 [k], the documents shown; ranks beyond the last document hold padding.
        pattern: int32, bit i is set when the document at rank i + 1 was clicked.

    Returns:
        float32 [n]; the ranker is to move along it, uphill. Zero without a click.
    """
    scores, backward = jax.vjp(lambda weights: ranker.scores(weights, features), weights)
    coefficients = pair_weights(scores, where, ranking, pattern)
    # Each document's ∇s(d) times the sum of its pairs' weights: one pass backwards for all pairs.
    return backward(jnp.zeros_like(scores).at[ranking].add(coefficients))[0]


def pair_weights(
    scores: Float[AnyArray, "documents"],
    where: Bool[AnyArray, "documents"],
    ranking: Int[AnyArray, "ranks"],
    pattern: Int[AnyArray, ""] | int,
) -> Float[Array, "ranks"]:
    """Factor of ∇s(d) of each shown document: Σ of its pairs' weights, + as preferred, − as the other.

    Args:
        scores: float32 [d].
        where: bool [d].
        ranking: int32 [k].
        pattern: int32.

    Returns:
        float32 [k].
    """
    place = jnp.arange(ranking.shape[0])
    shown = where[ranking]
    clicked = shown & (((pattern >> place) & 1) > 0)
    last = jnp.max(jnp.where(clicked, place, -1))
    skipped = shown & ~clicked & (place <= last + 1) & (last >= 0)
    s = jnp.where(shown, scores[ranking], 0.0)

    # L_t over the documents at rank t or below, those that are not shown included; 0 where there is no rank t.
    beyond = jnp.asarray(where).at[ranking].set(False)
    rest = jax.nn.logsumexp(jnp.where(beyond, scores, -jnp.inf))
    below = shown[None, :] & (place[None, :] >= place[:, None])
    logits = jnp.concatenate([jnp.where(below, s[None, :], -jnp.inf), jnp.broadcast_to(rest, (len(place), 1))], axis=1)
    log_denominators = jnp.where(shown, jax.nn.logsumexp(logits, axis=1), 0.0)

    # (5): odds[i, j] = P(R)/P(R*) for i < j.
    relative = jnp.exp(s[None, :] - log_denominators[:, None])  # [t, document]
    factors = 1 + relative[:, :, None] - relative[:, None, :]  # [t, i, j]
    first, second, t = place[None, :, None], place[None, None, :], place[:, None, None]
    between = (t > first) & (t <= second) & (shown[:, None] & shown[None, :])[None]
    odds = jnp.prod(jnp.where(between, jnp.maximum(factors, 0.0), 1.0), axis=0)
    rho = 1 / (1 + odds)  # (3)
    rho = jnp.where(place[:, None] < place[None, :], rho, rho.T)

    smaller = jnp.exp(-jnp.abs(s[:, None] - s[None, :]))  # e^a e^b / (e^a + e^b)² with the larger one taken out
    pairs = jnp.where(clicked[:, None] & skipped[None, :], rho * smaller / jnp.square(1 + smaller), 0.0)
    return jnp.sum(pairs, axis=1) - jnp.sum(pairs, axis=0)
