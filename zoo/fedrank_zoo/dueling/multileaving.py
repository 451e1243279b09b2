"""Probabilistic multileaving: one list from several rankers, and what its clicks say about each.

A ranker l is a distribution over the documents of a query: the document at its rank r has a probability of 1/r^τ, so
that it mostly proposes its best and may propose any (Hofmann, Whiteson, de Rijke, CIKM 2011, for two rankers; Schuth et
al., SIGIR 2015, for more)::

    P(d | l) = rank_l(d)^(−τ) / Σ over documents e not yet taken of rank_l(e)^(−τ)

The list is made from the top. At each rank one of the rankers is chosen, each equally likely, and a document is drawn
from its distribution. Who was chosen is then forgotten: a document's click is credited to every ranker by the
probability that it had been the one, given the list,

    P(l | d) = P(d | l) / Σ over rankers m of P(d | m)

with the distributions as they were at that rank. That is exact and not an approximation, because the choices at
different ranks are independent of each other given the list. A ranker's credit is the number of clicks it is
expected to have brought: the sum of P(l | d) over the clicked documents d. Where clicks do not depend on the documents,
all rankers have the same expected credit, whatever they rank.

The published code compares rankers by 10,000 sampled assignments instead: who got more of the clicks, more often. With
a single click the two agree; with several, this compares means where that compares medians.

This is the definition, in JAX; :mod:`fedrank_zoo.dueling.kernel` computes the same on the CPU. ``L`` is
the number of rankers, ``d`` of documents with padding, ``k`` of ranks shown.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float, Float64, Int, UInt32

from fedrank.core.arrays import AnyArray
from fedrank.core.arrays import JaxArray as Array
from fedrank.core.lazy import jax, jnp
from fedrank.core.rng import below, uniform

#: τ: how much a ranker prefers its first document, as in all published experiments.
TAU = 3

#: Credits that differ by less, in clicks, are equal: two single-precision sums of the same numbers differ by less, two
#: rankings that differ where it matters by more.
CLOSE = 1e-5


def rank_weights(documents: int) -> Float64[np.ndarray, "{documents}"]:
    """1/r^τ of each rank r from 1: float64 [documents].

    >>> rank_weights(3).round(3).tolist()
    [1.0, 0.125, 0.037]
    """
    return 1 / np.arange(1, documents + 1, dtype=np.float64) ** TAU


def document_weights(
    rankings: Int[AnyArray, "rankers documents"], where: Bool[AnyArray, "documents"]
) -> Float[Array, "rankers documents"]:
    """1/r^τ of each document in each ranking; 0 on padding.

    Args:
        rankings: int32 [L, d]: each ranker's documents, best first, padding last.
        where: bool [d], False on padding.

    Returns:
        float32 [L, d].
    """
    ranks = jnp.argsort(rankings, axis=-1)  # the inverse of a permutation
    table = jnp.asarray(rank_weights(rankings.shape[-1]), jnp.float32)
    return jnp.where(where[None], table[ranks], 0.0)


def multileave(
    rankings: Int[AnyArray, "rankers documents"],
    weights: Float[AnyArray, "rankers documents"],
    where: Bool[AnyArray, "documents"],
    assign: UInt32[AnyArray, "ranks"],
    pick: UInt32[AnyArray, "ranks"],
) -> Int[Array, "ranks"]:
    """Draw a list.

    Args:
        rankings: int32 [L, d]: each ranker's documents, best first, padding last.
        weights: float32 [L, d]: :func:`document_weights`.
        where: bool [d].
        assign: uint32 [k], k ≤ d: which ranker is chosen at each rank.
        pick: uint32 [k]: which of its documents; probabilities are exact to 2⁻²⁴.

    Returns:
        int32 [k]: the documents shown; padding where there are fewer documents than ranks.
    """
    rankers, documents = rankings.shape

    def take(taken, rank):
        number, assign, pick = rank
        ranker = below(assign, np.uint32(rankers)).astype(jnp.int32)
        order = rankings[ranker]
        free = (where & ~taken)[order]
        so_far = jnp.cumsum(jnp.where(free, weights[ranker][order], 0.0))
        drawn = free & (so_far > uniform(pick, jnp) * so_far[-1])
        # Sums may be rounded so that none is drawn, and when all documents are taken there is none: padding follows.
        last = jnp.where(jnp.any(free), documents - 1 - jnp.argmax(free[::-1]), number)
        document = order[jnp.where(jnp.any(drawn), jnp.argmax(drawn), last)]
        return taken.at[document].set(True), document

    numbers = jnp.arange(assign.shape[0], dtype=jnp.int32)
    return jax.lax.scan(take, jnp.zeros(documents, bool), (numbers, assign, pick))[1]


def assignment(
    weights: Float[AnyArray, "rankers documents"],
    where: Bool[AnyArray, "documents"],
    shown: Int[AnyArray, "ranks"],
) -> Float[Array, "rankers ranks"]:
    """P(l | d): the probability that ranker l was the one chosen at a rank, given the list.

    Args:
        weights: float32 [L, d]: :func:`document_weights`.
        where: bool [d].
        shown: int32 [k]: the list.

    Returns:
        float32 [L, k]; each column sums to 1, or is 0 where nothing is shown.
    """
    weights, ranks = jnp.asarray(weights), jnp.arange(shown.shape[0])
    place = jnp.full(weights.shape[1], shown.shape[0]).at[shown].set(ranks)  # of each document in the list
    left = where[None] & (place[None] >= ranks[:, None])  # [k, d]: not yet taken when this rank was filled
    total = jnp.sum(jnp.where(left[None], weights[:, None], 0.0), axis=-1)
    probability = weights[:, shown] / jnp.where(total > 0, total, 1.0)  # P(d | l)
    of_all = jnp.sum(probability, axis=0, keepdims=True)
    return probability / jnp.where(of_all > 0, of_all, 1.0)


def credit(assigned: Float[AnyArray, "rankers ranks"], clicked: Bool[AnyArray, "ranks"]) -> Float[Array, "rankers"]:
    """Each ranker's expected number of clicks.

    Args:
        assigned: float32 [L, k]: :func:`assignment`.
        clicked: bool [k].

    Returns:
        float32 [L]; sums to the number of clicks.
    """
    return jnp.sum(jnp.where(clicked[None], assigned, 0.0), axis=-1)
