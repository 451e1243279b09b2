"""Exact value of a ranker to a user: the expectation over the user's clicks, without sampling.

The top ranks of a query fix the probability of each click pattern in closed form; the metric's value of each pattern
weighs it. What remains is the sum over patterns, 1,024 of them for ten ranks.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float, Int, UInt32

from fedrank.core.arrays import AnyArray
from fedrank.core.arrays import JaxArray as Array
from fedrank.core.lazy import jax, jnp
from fedrank.metrics.online import OnlineMetric
from fedrank.ranking.clicks.cascade import CascadeUser, pattern_probabilities
from fedrank.ranking.data.queries import PaddedQueries
from fedrank.ranking.sessions.reference import rank, tie_breakers

#: Queries whose pattern probabilities are held at a time: 256 × 1,024 floats are 1 MiB.
_BATCH = 256


def expected_metric(
    user: CascadeUser,
    metric: OnlineMetric,
    labels: Int[AnyArray, "*lists ranks"],
    where: Bool[AnyArray, "*lists ranks"],
) -> Float[Array, "*lists"]:
    """Expected metric of shown lists.

    Args:
        user: Click model of the user.
        metric: Reward of the clicks of a session.
        labels: int32 [..., k], labels of the shown documents, best rank first; k ≤ ``user.depth``.
        where: bool [..., k].

    Returns:
        float32 [...].
    """
    values = jnp.asarray(metric.values[metric.index[: 1 << labels.shape[-1]]], jnp.float32)
    return jnp.einsum("...p,p->...", pattern_probabilities(user, labels, where), values, precision="highest")


def rankings(
    scores: Float[AnyArray, "queries documents"],
    where: Bool[AnyArray, "queries documents"],
    tie_bits: UInt32[AnyArray, "queries"] | None = None,
) -> Int[Array, "queries documents"]:
    """The full ranking of every query.

    Args:
        scores: float32 [q, d], scores of the documents; a higher one ranks first.
        where: bool [q, d], false for padding.
        tie_bits: uint32 [q] to shuffle equal scores; None keeps the order of the data.

    Returns:
        int32 [q, d]: documents from the first rank on, padding last.
    """
    rng_bits = jnp.zeros(scores.shape[:-1], jnp.uint32) if tie_bits is None else tie_bits
    breakers = tie_breakers(rng_bits, scores.shape[-1], tie_bits is not None)
    return rank(jnp.asarray(scores), jnp.asarray(where), breakers, scores.shape[-1])


def expected_rewards(
    user: CascadeUser, metric: OnlineMetric, data: PaddedQueries, order: Int[AnyArray, "queries documents"]
) -> Float[Array, "queries"]:
    """Exact expected metric of each query.

    Args:
        user: Click model; ``user.depth`` results are shown.
        metric: Reward of the clicks of a session.
        data: q queries.
        order: int32 [q, d], their rankings.

    Returns:
        float32 [q].
    """
    order = order[:, : user.depth]
    labels = jnp.take_along_axis(data.labels, order, axis=-1)
    where = jnp.take_along_axis(data.where, order, axis=-1)
    return jax.lax.map(
        lambda shown: expected_metric(user, metric, *shown), (labels, where), batch_size=min(_BATCH, len(labels))
    )


def tie_order_bits(orders: int, queries: int) -> UInt32[np.ndarray, "{orders} {queries}"]:
    """Random bits for shuffles of equal scores, the same in every evaluation: uint32 [orders, queries]."""
    return np.random.Generator(np.random.PCG64(20190211)).integers(0, 2**32, (orders, queries), dtype=np.uint32)
