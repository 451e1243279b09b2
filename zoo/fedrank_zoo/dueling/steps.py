"""Dueling bandits: try rankers near the current one on the user, and step towards those that win.

Dueling Bandit Gradient Descent (DBGD; Yue & Joachims, ICML 2009) with one candidate, Multileave Gradient Descent (MGD;
Schuth, Oosterhuis, Whiteson, de Rijke, WSDM 2016) with several. One interaction::

    u_c uniform on the unit sphere, for each candidate c        (normal numbers, brought to length 1)
    θ and all θ + radius·u_c rank the query's documents
    the user sees one list made of these rankings               (probabilistic multileaving)
    c wins if its credit for the clicks is above that of θ
    θ ← θ + step · mean of u_c over the winners                 (the "mean-winner" update; none: θ stays)

Nothing is differentiated, so any ranker will do. What users see is made by candidates too, at a distance of ``radius``
from the current ranker: the price of exploring, which online performance shows.

**Clicks that do not depend on documents still move θ, a little.** All rankers then have the same expected credit, but
how often one has more than another depends on how alike they rank: who ranks as θ does never wins. At θ = 0, with
documents in no particular order, nothing distinguishes a direction, and the expected step is zero. Elsewhere it is not:
with random clicks on ten documents of five normal features, its part along θ was −0.2 % of a step for DBGD and 1.6 %
for MGD with nine candidates where θ has norm 1, and −0.6 % and −1.3 % at 5 (300,000 interactions each, errors 0.05 %).
A perfect user's clicks move θ by 7 to 20 % of a step towards what is relevant.

Two layouts of the data lead to two implementations, as for sessions: padded arrays to the JAX reference in this file,
feature-major blocks to :mod:`fedrank_zoo.dueling.kernel`.
"""

from __future__ import annotations

from typing import NamedTuple

from jaxtyping import Bool, Float, Int, UInt32

from fedrank.core.arrays import AnyArray
from fedrank.core.arrays import JaxArray as Array
from fedrank.core.errors import ConfigError
from fedrank.core.lazy import jax, jnp
from fedrank.core.rng import perturbation_jax
from fedrank.ranking.clicks.cascade import CascadeUser
from fedrank.ranking.data.queries import FeatureBlocks, PaddedQueries
from fedrank.ranking.learners import Learned
from fedrank.ranking.rankers.base import Ranker
from fedrank.ranking.sessions.reference import SessionResults, rank, simulate_clicks
from fedrank_zoo.dueling.kernel import duels
from fedrank_zoo.dueling.multileaving import CLOSE, assignment, credit, document_weights, multileave


class DuelDraws(NamedTuple):
    """The random bits of K interactions; none is used twice.

    Attributes:
        directions: uint32 [K, candidates]: seeds of the directions u.
        assign: uint32 [K, depth]: which ranker gives the document at each rank.
        pick: uint32 [K, depth]: which of its documents.
        clicks: uint32 [K, depth]: random bits for the user's decision at each rank.
    """

    directions: UInt32[Array, "interactions candidates"]
    assign: UInt32[Array, "interactions depth"]
    pick: UInt32[Array, "interactions depth"]
    clicks: UInt32[Array, "interactions depth"]


def direction(seed: UInt32[AnyArray, ""], size: int) -> Float[Array, "{size}"]:
    """A direction, uniform on the unit sphere: the perturbation of a seed, brought to length 1.

    Args:
        seed: uint32.
        size: Number of coordinates n.

    Returns:
        float32 [n].
    """
    noise = perturbation_jax(jnp.asarray(seed), size)  # never 0: no entry of the table of normals is
    return noise / jnp.sqrt(jnp.sum(noise * noise))


def dueling_steps(
    ranker: Ranker,
    users: tuple[CascadeUser, ...],
    user_index: Int[AnyArray, ""] | int,
    data: PaddedQueries | FeatureBlocks,
    weights: Float[AnyArray, "parameters"],
    step: Float[AnyArray, ""] | float,
    radius: float,
    candidates: int,
    queries: Int[AnyArray, "interactions"],
    active: Bool[AnyArray, "interactions"],
    rng_bits: DuelDraws,
) -> Learned:
    """One party's K interactions, one after another, each with a step of DBGD or MGD.

    Args:
        ranker: The ranker.
        users: Click models of the users. Labels of the data must be below their ``grades``.
        user_index: int32, the number of the user who is at this party.
        data: The queries.
        weights: float32 [n], before the first interaction.
        step: float32, length of a step; 0.01 in published experiments.
        radius: Distance of the candidates; 1 in published experiments.
        candidates: 1 for DBGD; 9 or 49 in published experiments with MGD.
        queries: int32 [K]: which query each interaction is about.
        active: bool [K]: one that does not take place changes nothing, and is seen as no click and no quality.
        rng_bits: Random bits of the interactions.

    Returns:
        Weights after the last interaction, and what happened.

    Raises:
        ConfigError: There are not as many directions as candidates, or fewer than one.
    """
    if candidates < 1 or rng_bits.directions.shape[-1] != candidates:
        raise ConfigError(
            f"candidates must be at least 1 and have a direction each, got {candidates} candidates and "
            f"{rng_bits.directions.shape[-1]} directions."
        )
    user_index, step = jnp.asarray(user_index, jnp.int32), jnp.asarray(step, jnp.float32)
    weights, queries, active = (jnp.asarray(x) for x in (weights, queries, active))
    rng_bits = DuelDraws(*map(jnp.asarray, rng_bits))
    if isinstance(data, FeatureBlocks):
        learned, *sessions = duels(ranker, users, user_index, data, weights, step, radius, queries, active, *rng_bits)
        return Learned(learned, SessionResults(*sessions))

    def interact(weights, interaction):
        query, active, bits = interaction
        learned, sessions = _interaction(ranker, users, user_index, data, weights, step, radius, query, bits)
        sessions = jax.tree.map(lambda x: jnp.where(active, x, jnp.zeros_like(x)), sessions)
        return jnp.where(active, learned, weights), sessions

    return Learned(*jax.lax.scan(interact, weights, (queries, active, rng_bits)))


def _interaction(
    ranker: Ranker,
    users: tuple[CascadeUser, ...],
    user_index: jax.Array,
    data: PaddedQueries,
    weights: jax.Array,
    step: jax.Array,
    radius: float,
    query: jax.Array,
    rng_bits: DuelDraws,
) -> tuple[jax.Array, SessionResults]:
    """One interaction, with its random bits: the weights after it, and what happened."""
    u = jax.vmap(lambda seed: direction(seed, ranker.size))(rng_bits.directions)
    rankers = jnp.concatenate([weights[None], weights[None] + jnp.float32(radius) * u])  # the current one first
    features, labels, where = data.features[query], data.labels[query], data.where[query]
    scores = jax.vmap(ranker.scores, in_axes=(0, None))(rankers, features)
    documents = scores.shape[-1]
    in_order = jnp.broadcast_to(jnp.arange(documents, dtype=jnp.uint32), scores.shape)
    rankings = rank(scores, jnp.broadcast_to(where, scores.shape), in_order, documents)

    depth = min(users[0].depth, documents)
    chances = document_weights(rankings, where)
    shown = multileave(rankings, chances, where, rng_bits.assign[:depth], rng_bits.pick[:depth])
    sessions = simulate_clicks(users, user_index, labels, where, shown, rng_bits.clicks)
    clicked = (sessions.patterns >> jnp.arange(depth)) & 1 == 1

    credits = credit(assignment(chances, where, shown), clicked)
    wins = (credits[1:] > credits[0] + CLOSE).astype(jnp.float32)
    towards = jnp.sum(wins[:, None] * u, axis=0) / jnp.maximum(jnp.sum(wins), 1)
    return weights + step * towards, sessions
