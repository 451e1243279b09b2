"""The last so many moments, kept to learn from: a ring of rows, as arrays.

Adding a row inside a jitted scan changes the arrays in place. Two platforms that add in the same rounds and look up the
same indices get moments that correspond.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp


class Replay(NamedTuple):
    """A ring buffer.

    Attributes:
        rows: Pytree of arrays [capacity, ...].
        position: int32 [], where the next row goes.
        filled: int32 [], how many rows there are, at most the capacity.
    """

    rows: Any
    position: jax.Array
    filled: jax.Array


def empty(capacity: int, example: Any) -> Replay:
    """A buffer without rows.

    Args:
        capacity: How many rows are kept, at least 1.
        example: A row: a pytree of arrays; only shapes and types are used.
    """
    rows = jax.tree.map(lambda leaf: jnp.zeros((capacity, *jnp.shape(leaf)), jnp.result_type(leaf)), example)
    return Replay(rows, jnp.int32(0), jnp.int32(0))


def add(replay: Replay, row: Any) -> Replay:
    """With one more row; in a full buffer it takes the place of the oldest."""
    rows = jax.tree.map(lambda kept, new: kept.at[replay.position].set(new), replay.rows, row)
    capacity = jax.tree.leaves(replay.rows)[0].shape[0]
    return Replay(rows, (replay.position + 1) % capacity, jnp.minimum(replay.filled + 1, capacity))


def take(replay: Replay, indices: jax.Array) -> Any:
    """The rows at ``indices`` int32 [B]: the pytree with leaves [B, ...]."""
    return jax.tree.map(lambda kept: kept[indices], replay.rows)


def indices(key: jax.Array, size: jax.Array | int, batch: int) -> jax.Array:
    """Uniform indices without replacement, at the cost of ``batch`` draws, however many rows there are.

    Floyd's algorithm (Bentley and Floyd, *Programming pearls: a sample of brilliance*, CACM 30(9), 1987): for
    j = size − batch … size − 1 draw t uniform on 0 … j, and take t, or j if t has been taken already. Every subset is
    equally likely: by induction the picks before j are uniform subsets of 0 … j − 1, and the step makes j a member with
    probability (picks so far + 1) / (j + 1), as it should. The order is not uniform; a mean over the batch does not see
    it.

    Args:
        key: Typed JAX key.
        size: How many rows there are; may be traced.
        batch: How many indices, at least 1.

    Returns:
        int32 [batch], all different, in 0 … size − 1. With fewer rows than ``batch`` (learning should wait), some come
        again, none more than once oftener than another.
    """
    size = jnp.asarray(size, jnp.int32)
    last = jnp.maximum(size - batch, 0) + jnp.arange(batch, dtype=jnp.int32)
    drawn = jax.random.randint(key, (batch,), 0, last + 1, jnp.int32)

    def pick(i, picks):
        return picks.at[i].set(jnp.where(jnp.any(picks == drawn[i]), last[i], drawn[i]))

    none = jnp.full(batch, -1, jnp.int32)
    return jax.lax.fori_loop(0, batch, pick, none) % jnp.maximum(size, 1)
