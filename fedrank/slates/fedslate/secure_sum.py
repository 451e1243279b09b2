"""How platforms' numbers are summed so that the coordinator sees nothing but their sum: as whole steps modulo 2³².

Every number is rounded to a grid and added modulo 2³². In a deployment each platform's integers are masked so that the
masks cancel in the sum (:mod:`fedrank.privacy.secure_sum`). The simulator leaves the masks out: :func:`total` is all
that it does with the integers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int32, UInt32

from fedrank.core.errors import ConfigError
from fedrank.core.messages import Layout
from fedrank.privacy.noise.values import ValueNoise
from fedrank.privacy.quantise import check_sum, dequantise, quantise

#: With fewer platforms, a sum without one's own part is another platform's.
MIN_PLATFORMS = 3
#: Discrete Laplace noise exceeds so many scales with a probability of e⁻⁴⁰, Gaussian noise more rarely.
_TAIL = 40


@dataclass(frozen=True)
class Grid:
    """Numbers as whole steps, which can be summed modulo 2³².

    Attributes:
        clip: How far a number may be from the centre, in units; what is beyond is set to it.
        steps: Steps of a unit, a power of two.
        centre: The middle of the range: a public number.
        unit: Length of a unit.
    """

    clip: float
    steps: int
    centre: float = 0.0
    unit: float = 1.0

    def check(self, platforms: int, noise: int = 0) -> None:
        """Refuse a sum over ``platforms`` numbers that may exceed 32 bits.

        Args:
            platforms: K.
            noise: Largest noise of one platform, in steps.

        Raises:
            ConfigError: The sum may exceed 32 bits.
        """
        check_sum(platforms, self.clip, self.steps, platforms * noise)

    def integers(
        self, values: Float[Array, "*shape"], noise: Int32[Array, "*shape"] | None = None
    ) -> UInt32[Array, "*shape"]:
        """Numbers as steps modulo 2³², rounded to the nearest: towards zero, what is summed would shrink.

        Args:
            values: What is not a number becomes the centre.
            noise: Noise in steps; None: none.
        """
        part = (values - jnp.float32(self.centre)) * jnp.float32(1.0 / self.unit)
        steps = quantise(part, self.steps, self.clip, "nearest", xp=jnp)
        return (steps if noise is None else steps + noise).astype(jnp.uint32)

    def mean(self, total: UInt32[Array, "*shape"], count: int) -> Float[Array, "*shape"]:
        """The mean of ``count`` numbers from the sum of their steps.

        Args:
            total: Sum modulo 2³².
            count: How many numbers are in it.
        """
        return dequantise(total, self.steps, jnp) * jnp.float32(self.unit / count) + jnp.float32(self.centre)


@dataclass(frozen=True)
class SecureSum:
    """Settings of the sums.

    Attributes:
        clip: Largest absolute value of a Q-value, a target or a parameter of a choice model; what is beyond is set to
            it. Where there is noise, Q-values are cut to its range instead.
        steps: Steps that a unit of those is cut into, a power of two. With noise that has an ε, its grid is taken.
        gradient_clip: Largest L2 norm of a platform's gradient by Ω.
        gradient_steps: Steps that a unit of a gradient is cut into, a power of two.
    """

    clip: float = 1024.0
    steps: int = 2**16
    gradient_clip: float = 10.0
    gradient_steps: int = 2**22

    def values_grid(self, noise: ValueNoise | None) -> Grid:
        """The grid of Q-values; the noise's own, where there is noise, so that what is added are whole steps."""
        if noise is None:
            return self.targets_grid
        steps = self.steps if noise.epsilon is None else noise.steps
        return Grid(1.0, steps, noise.centre, noise.clip)

    @property
    def targets_grid(self) -> Grid:
        """The grid of targets and of choice models."""
        return Grid(self.clip, self.steps)

    @property
    def gradient_grid(self) -> Grid:
        """The grid on which gradients are rounded to integers for the secure sum."""
        return Grid(self.gradient_clip, self.gradient_steps)

    def check(self, platforms: int, candidates: int, noise: ValueNoise | None) -> None:
        """Refuse what cannot be summed in secret.

        Args:
            platforms: K.
            candidates: N.
            noise: Each platform's own noise, added before summing; None: none.

        Raises:
            ConfigError: Fewer platforms than three, or a sum that may exceed 32 bits.
        """
        if platforms < MIN_PLATFORMS:
            raise ConfigError(
                f"a secure sum needs {MIN_PLATFORMS} platforms or more, got {platforms}: of two, each can always "
                "subtract its own values from the sum, and what is left are the other's. Leave secure_sum out."
            )
        noisy = noise is not None and noise.epsilon is not None
        largest = math.ceil(_TAIL * noise.scale(candidates)) if noisy else 0  # type: ignore[union-attr]
        self.values_grid(noise).check(platforms, largest)
        self.targets_grid.check(platforms)
        self.gradient_grid.check(platforms)


def total(integers: UInt32[Array, "platforms *shape"], arrived: Bool[Array, " platforms"]) -> UInt32[Array, "*shape"]:
    """All that a coordinator may use of replies: their sum modulo 2³²; zeros unless every platform was heard."""
    summed = jnp.sum(integers.astype(jnp.uint32), axis=0, dtype=jnp.uint32)
    return jnp.where(jnp.all(arrived), summed, jnp.zeros_like(summed))


def length(layout: Layout) -> int:
    """Number of integers in a message that is summed."""
    return sum(int(np.prod(field.shape)) for field in layout.fields)


def as_vector(message: Any) -> UInt32[np.ndarray, " integers"]:
    """The integers of one message as one vector, for a secure sum."""
    return np.concatenate([np.asarray(getattr(message, f.name), np.uint32).reshape(-1) for f in fields(message)])


def from_vector(layout: Layout, vector: UInt32[np.ndarray, " integers"]) -> Any:
    """The inverse of :func:`as_vector`: a sum of vectors as one message."""
    values, position = {}, 0
    for field in layout.fields:
        size = int(np.prod(field.shape))
        values[field.name] = vector[position : position + size].reshape(field.shape)
        position += size
    return layout.message(**values)
