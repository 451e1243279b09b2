"""A clip that is found privately: some users before the explorers say in which bin the norm of their stay is.

A user is in one bin, so that another stay in place of theirs changes two counts by one each: L2 distance √2, whatever
the norm. Noise is on the counts as it is on the sums, and these users add nothing to the sums, so that finding the clip
costs no ε beside that of the sums.
"""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

#: Bins of a factor of two each, from 2⁻⁴ to 2⁴ times the clip that the settings name. There are few of them because
#: each has noise of its own.
BINS = 8
#: Users whose vectors the clip should leave as they are, as a share. Noise is in proportion to the clip: one that
#: shortens no vector is twice the one that shortens half of them.
QUANTILE = 0.5


def norm_bin(stay: Float[Array, " statistics"], middle: float) -> Int[Array, " bins"]:
    """A 1 in the bin of a stay's norm, else 0; what is beyond the ends is in the first or the last bin."""
    norm = jnp.maximum(jnp.linalg.norm(stay), 1e-30)
    place = jnp.clip(jnp.floor(jnp.log2(norm / middle)) + BINS // 2, 0, BINS - 1)
    return (jnp.arange(BINS) == place).astype(jnp.int32)


def clip_of(counts: Float[Array, " bins"], middle: float) -> Float[Array, ""]:
    """The upper end of the bin with which :data:`QUANTILE` of the users is reached.

    Args:
        counts: Of all platforms together, with their noise.
        middle: The clip that the settings name.
    """
    up_to = jnp.cumsum(jnp.maximum(counts, 0.0))
    place = jnp.argmax(up_to >= QUANTILE * up_to[-1])
    return middle * 2.0 ** (place - BINS // 2 + 1.0)
