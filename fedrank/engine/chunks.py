"""Parties answering in chunks: a chunk bounds the memory and changes nothing else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp


def leading(tree: Any) -> int:
    """Length of the leading axis of a pytree's leaves."""
    return jax.tree.leaves(tree)[0].shape[0]


def in_chunks(
    answers: Callable[..., tuple[Any, Any]], own: Any, late: jax.Array, chunk: int, numbers: Any = None
) -> tuple[Any, Any]:
    """Map over parties, ``chunk`` at a time; what is left over goes last, in one smaller chunk."""
    parties = leading(own)
    numbers = jnp.arange(parties, dtype=jnp.uint32) if numbers is None else numbers
    whole = parties // chunk * chunk
    if parties <= chunk:
        return answers(own, numbers, late)

    def split(leaf):
        return leaf[:whole].reshape(whole // chunk, chunk, *leaf.shape[1:])

    def join(leaf):
        return leaf.reshape(whole, *leaf.shape[2:])

    _, done = jax.lax.scan(
        lambda carry, part: (carry, answers(*part)), None, (jax.tree.map(split, own), split(numbers), split(late))
    )
    done = jax.tree.map(join, done)
    if whole == parties:
        return done
    rest = answers(jax.tree.map(lambda leaf: leaf[whole:], own), numbers[whole:], late[whole:])
    return jax.tree.map(lambda a, b: jnp.concatenate([a, b]), done, rest)
