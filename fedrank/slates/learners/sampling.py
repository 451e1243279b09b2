"""A batch of indices, uniform without replacement, at a cost that depends on the batch only."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, PRNGKeyArray


def sample_without_replacement(key: PRNGKeyArray, size: Int[Array, ""] | int, batch: int) -> Int[Array, " batch"]:
    """Uniform indices without replacement, at the cost of ``batch`` draws, however many rows there are.

    Floyd's algorithm (Bentley and Floyd, *Programming pearls: a sample of brilliance*, CACM 30(9), 1987): for
    j = size − batch … size − 1 draw t uniform on 0 … j, and take t, or j if t has been taken already. Every subset is
    equally likely: by induction the picks before j are uniform subsets of 0 … j − 1, and the step makes j a member with
    probability (picks so far + 1) / (j + 1), as it should. The order is not uniform; a mean over the batch does not see
    it.

    Args:
        key: Typed JAX key, consumed.
        size: Number of rows to sample from; may be traced.
        batch: Number of indices, at least 1.

    Returns:
        Different indices in 0 … size − 1. With fewer rows than ``batch`` (learning should wait), some come again, none
        more than once oftener than another.
    """
    size = jnp.asarray(size, jnp.int32)
    last = jnp.maximum(size - batch, 0) + jnp.arange(batch, dtype=jnp.int32)
    drawn = jax.random.randint(key, (batch,), 0, last + 1, jnp.int32)

    def pick(i, picks):
        return picks.at[i].set(jnp.where(jnp.any(picks == drawn[i]), last[i], drawn[i]))

    none = jnp.full(batch, -1, jnp.int32)
    return jax.lax.fori_loop(0, batch, pick, none) % jnp.maximum(size, 1)
