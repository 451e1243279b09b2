"""What a platform of the published FedSlate sees: its choice model, past slates and numbers of items."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int


def choice_scores(
    observed: Float[Array, ""], kaleness: Float[Array, " candidates"]
) -> tuple[Float[Array, " candidates"], Float[Array, ""]]:
    """The published choice model (slateq.py): softmax over [observed · feature, 1].

    Args:
        observed: What the platform sees of the user's satisfaction.
        kaleness: The feature of each candidate, in [0, 1].

    Returns:
        The score of each candidate, and of no click.
    """
    v = jax.nn.softmax(jnp.append(observed * kaleness, 1.0))
    return v[:-1], v[-1]


def past_after(
    past: Float[Array, "slates slots"], slot: Int[Array, ""], engagement: Float[Array, ""]
) -> Float[Array, "slates slots"]:
    """Engagement by slot of the last slates, newest first, with one slate more; ``slot`` is the clicked one."""
    row = jnp.where(jnp.arange(past.shape[1]) == slot, engagement, 0.0)
    return jnp.concatenate([row[None], past[:-1]])


def numbered(features: Float[Array, " candidates"], first: Int[Array, ""]) -> Float[Array, "candidates 2"]:
    """Features of candidates beside their numbers, which count up from ``first``."""
    numbers = (first + jnp.arange(features.shape[0])).astype(jnp.float32)
    return jnp.stack([features, numbers], axis=1)
