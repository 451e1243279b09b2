"""MDPRank from clicks: REINFORCE on the ranking as a sequence of choices (Wei et al., SIGIR 2017).

A ranking R is drawn document by document from the softmax of the scores of those that are left, a user clicks, and
every choice is credited with what was clicked from its rank on (the paper's Equations 5 to 7, Algorithm 1)::

    (1)  π(R_t | D_t) = e^{s(R_t)} / Σ_{d in D_t} e^{s(d)}        D_t: documents not above rank t
    (2)  G_t = Σ_{k ≥ t} γ^{k − t} c_k / log₂(1 + k)              c_k = 1 where rank k was clicked
    (3)  ∇ = Σ_t G_t ∇ log π(R_t | D_t)

The paper has relevance labels in place of clicks. With γ = 1 the expectation of (3) is the gradient of the expected DCG
of clicks: it learns what is clicked where it stands, and does not make up for where documents are shown as PDGD does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int
from typing_extensions import override

from fedrank.core.arrays import AnyArray
from fedrank.core.arrays import AnyArray as Array
from fedrank.core.fields import setting
from fedrank.core.lazy import jax, jnp
from fedrank.ranking.central import Central
from fedrank.ranking.clicks.cascade import CascadeUser
from fedrank.ranking.data.queries import PaddedQueries
from fedrank.ranking.learners import Learned, PdgdDraws, document_bits, sample_ranking
from fedrank.ranking.rankers.base import Ranker
from fedrank.ranking.sessions.reference import SessionResults, simulate_clicks


def policy_gradient_steps(
    ranker: Ranker,
    users: tuple[CascadeUser, ...],
    user_index: Int[AnyArray, ""] | int,
    data: PaddedQueries,
    weights: Float[AnyArray, "parameters"],
    rate: Float[AnyArray, ""] | float,
    queries: Int[AnyArray, "interactions"],
    active: Bool[AnyArray, "interactions"],
    rng_bits: PdgdDraws,
    discount: float = 1.0,
) -> Learned:
    """K interactions of one party, one after another; arguments as :func:`fedrank.ranking.learners.pdgd_steps`.

    ``discount`` is γ, in [0, 1].
    """
    rng_bits, rate = PdgdDraws(*map(jnp.asarray, rng_bits)), jnp.asarray(rate, jnp.float32)

    def step(weights: jax.Array, each: Any) -> tuple[jax.Array, SessionResults]:
        query, takes_place, document_pair, click_bits = each
        features, labels, where = (jnp.asarray(a)[query] for a in (data.features, data.labels, data.where))
        noise = document_bits(document_pair[0], document_pair[1], where.shape[0])
        ranking = sample_ranking(ranker.scores(weights, features), where, noise, users[0].depth)
        sessions = simulate_clicks(users, user_index, labels, where, ranking, click_bits)
        gradient = policy_gradient(ranker, weights, features, where, ranking, sessions.patterns, discount)
        gradient, sessions = jax.tree.map(lambda x: jnp.where(takes_place, x, jnp.zeros_like(x)), (gradient, sessions))
        return weights + rate * gradient, sessions

    each = (jnp.asarray(queries), jnp.asarray(active), rng_bits.documents, rng_bits.clicks)
    return Learned(*jax.lax.scan(step, jnp.asarray(weights), each))


def policy_gradient(
    ranker: Ranker,
    weights: Float[AnyArray, "parameters"],
    features: Float[AnyArray, "documents features"],
    where: Bool[AnyArray, "documents"],
    ranking: Int[AnyArray, "ranks"],
    pattern: Int[AnyArray, ""] | int,
    discount: float = 1.0,
) -> Float[Array, "parameters"]:
    """The gradient of one interaction, (3); zero without a click.

    Args:
        ranker: The ranker.
        weights: float32 [n].
        features: float32 [d, f] of the query's documents.
        where: bool [d], False on padding.
        ranking: int32 [k], the documents shown; ranks beyond the last document hold padding.
        pattern: int32, bit i is set when the document at rank i + 1 was clicked.
        discount: γ.

    Returns:
        float32 [n]; the ranker is to move along it, uphill.
    """
    place = jnp.arange(ranking.shape[0])
    shown = jnp.asarray(where)[ranking]
    gains = jnp.asarray(1 / np.log2(2 + np.arange(ranking.shape[0])), jnp.float32)
    rewards = jnp.where(shown & (((jnp.asarray(pattern) >> place) & 1) > 0), gains, 0.0)
    later = place[None, :] - place[:, None]
    returns = jnp.where(later >= 0, jnp.asarray(discount, jnp.float32) ** jnp.maximum(later, 0), 0.0) @ rewards

    def credited(weights: jax.Array) -> jax.Array:
        scores = ranker.scores(weights, jnp.asarray(features))
        taken = jnp.zeros((len(place), scores.shape[0]), bool).at[place, ranking].set(True)
        above = jnp.cumsum(taken, axis=0) - taken > 0
        left = jax.nn.logsumexp(jnp.where(jnp.asarray(where)[None] & ~above, scores[None], -jnp.inf), axis=1)
        logs = jnp.where(shown, scores[ranking] - jnp.where(shown, left, 0.0), 0.0)
        return jnp.sum(returns * logs)

    return jax.grad(credited)(jnp.asarray(weights))


@dataclass(frozen=True)
class MDPRank(Central):
    """Central: one service learns from all clicks by REINFORCE on ranking as a sequence of choices."""

    discount: float = setting(1.0, "γ, weight of a later click for a choice, rank by rank, in [0, 1].", low=0, high=1)

    name, paper = "mdprank", "wei2017mdprank"
    published = "Wei et al.: Reinforcement Learning to Rank with Markov Decision Process, SIGIR 2017"
    draws_rankings = True
    compiled = False

    @property
    @override
    def widths(self) -> list[int]:
        return [1, 2, self.user.depth]

    @override
    def learn(self, party, weights, rate, about, active, words):
        bits = PdgdDraws(*words)
        known = (self.ranker, self.users, party.own.user, party.shared[0], weights, rate)
        return policy_gradient_steps(*known, about, active, bits, self.discount)
