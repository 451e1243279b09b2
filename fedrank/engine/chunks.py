"""Parties answering in chunks: a chunk bounds the memory and changes nothing else."""

from __future__ import annotations

from collections.abc import Callable

from jaxtyping import Bool, UInt32

from fedrank.core.arrays import JaxArray as Array
from fedrank.core.arrays import PyTree
from fedrank.core.lazy import jax, jnp


def leading(tree: PyTree) -> int:
    """Length of the leading axis of a pytree's leaves."""
    return jax.tree.leaves(tree)[0].shape[0]


def in_chunks(
    answers: Callable[..., tuple[PyTree, PyTree]],
    own: PyTree,
    late: Bool[Array, " parties"],
    chunk: int,
    numbers: UInt32[Array, " parties"] | None = None,
) -> tuple[PyTree, PyTree]:
    """Map ``answers`` over the parties, ``chunk`` at a time, with a smaller chunk at the end where one is left."""
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
