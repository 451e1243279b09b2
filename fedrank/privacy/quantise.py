"""Real numbers to integers and back, so that they can be summed modulo 2³² and protected by integer noise.

A unit is cut into ``steps`` equal steps, a power of two, so that multiplying by it is exact in floating point: rounding
happens once, in :func:`quantise`, where its effect on norms is known. Sums are taken modulo 2³² and read as integers
from −2³¹ to 2³¹ − 1, so that :func:`check_sum` must hold beforehand; afterwards no party can see that a sum ran over.
"""

from __future__ import annotations

import math
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np

from fedrank.core.arrays import ArrayT
from fedrank.core.errors import ConfigError

if TYPE_CHECKING:  # a device, which runs this, has NumPy only
    from jaxtyping import Float, Float32, Int32, Integer

#: How a number between two steps is rounded, and what is said about it in help texts.
ROUNDINGS = {"down": "towards zero: no norm grows, so that noise need not", "nearest": "to the nearest step"}


class GridTooFineError(ConfigError):
    """Numbers in steps of this grid do not fit into the integers that they are summed in; a coarser grid may do."""


def check_steps(steps: int) -> None:
    """Refuse a number of steps that floating point cannot multiply by exactly.

    Raises:
        ConfigError: ``steps`` is not a power of two from 1 to 2³⁰.
    """
    if steps < 1 or steps > 2**30 or steps & (steps - 1):
        raise ConfigError(
            f"steps of a unit must be a power of two from 1 to 2**30, got {steps}. Use 2**16 where in doubt."
        )


def check_sum(parties: int, clip: float, steps: int, noise: int = 0) -> None:
    """Refuse a sum that could run over: ``parties · ⌈clip · steps⌉ + noise`` must stay below 2³¹.

    Args:
        parties: Vectors in the sum.
        clip: Largest absolute value of one coordinate of one vector.
        steps: Steps of a unit.
        noise: Largest absolute value, in steps, that the noise in one coordinate of the sum may take. Noise has no
            bound; discrete Laplace noise of scale t exceeds 40 t with a probability of e⁻⁴⁰.

    Raises:
        ConfigError: It could run over, or an argument is out of range.
    """
    check_steps(steps)
    if parties < 1 or not 0.0 < clip < math.inf or noise < 0:
        raise ConfigError(
            "parties must be at least 1, clip positive and finite, and noise at least 0; "
            f"got {parties}, {clip}, {noise}."
        )
    # A clip is applied in single precision, which may be the larger one.
    largest = parties * math.ceil(max(clip, float(np.float32(clip))) * steps) + noise
    if largest >= 2**31:
        raise GridTooFineError(
            f"a sum over {parties:,} parties of values up to {clip} in steps of 1/{steps:,}, with noise up to "
            f"{noise:,} steps, can reach {largest:,}, beyond the 2**31 - 1 that 32 bits hold. Use fewer steps, a "
            "smaller clip or smaller cohorts."
        )


def clip_to_norm(
    values: Float[ArrayT, "*vectors d"], bound: float, norm: str = "l2", xp: ModuleType = np
) -> Float[ArrayT, "*vectors d"]:
    """Each vector scaled down to a norm of at most ``bound``; shorter ones stay as they are.

    Single precision adds up d numbers with a relative error of about d 2⁻²⁴, so that the bound aimed at is smaller by
    more than twice that: the clipped vector's true norm is never above ``bound``.

    Args:
        values: float32 [..., d].
        bound: Largest norm, positive.
        norm: ``"l1"``, the sum of absolute values, or ``"l2"``, the root of the sum of squares.
        xp: ``numpy`` or ``jax.numpy``.

    Returns:
        float32 [..., d]. A vector with a number that is infinite or none becomes zero.
    """
    if norm not in ("l1", "l2") or not 0.0 < bound < math.inf:
        raise ConfigError(f"norm must be 'l1' or 'l2' and bound positive and finite, got {norm!r} and {bound}.")
    # Divided by the largest value first, so that squares neither overflow nor vanish.
    largest = xp.max(xp.abs(values), axis=-1, keepdims=True)
    usable = xp.isfinite(largest) & (largest > 0)
    largest = xp.where(usable, largest, 1)
    values = xp.where(usable, values, 0)
    unit = values / largest
    sizes = xp.sum(xp.abs(unit) if norm == "l1" else unit * unit, axis=-1, keepdims=True)
    length = sizes if norm == "l1" else xp.sqrt(sizes)
    aim = xp.float32(bound * (1.0 - (values.shape[-1] + 8) * 2.0**-23))
    short = length <= aim / xp.maximum(largest, aim * xp.float32(1e-30))  # the maximum: no quotient may overflow
    return xp.where(short, values, unit * (aim / xp.maximum(length, 1)))


def quantise(
    values: Float[ArrayT, "*shape"],
    steps: int,
    clip: float,
    rounding: str = "down",
    xp: ModuleType = np,
) -> Int32[ArrayT, "*shape"]:
    """Real numbers as whole numbers of steps.

    Args:
        values: float32 [...]; what is not a number becomes 0, what is beyond the clip is set to it.
        steps: Steps of a unit, a power of two.
        clip: Largest absolute value of a coordinate; ``clip · steps`` below 2³¹.
        rounding: One of :data:`ROUNDINGS`.
        xp: ``numpy`` or ``jax.numpy``.

    Returns:
        int32 [...].

    >>> quantise(np.array([0.3, -0.3, 9.0], np.float32), steps=4, clip=2.0).tolist()
    [1, -1, 8]
    >>> quantise(np.array([0.4, -0.4], np.float32), steps=4, clip=2.0, rounding="nearest").tolist()
    [2, -2]
    """
    check_sum(1, clip, steps)
    if rounding not in ROUNDINGS:
        raise ConfigError(f"rounding must be one of {', '.join(ROUNDINGS)}, got {rounding!r}.")
    # The cast of what is not a number is undefined: it could become any integer, beyond every bound.
    scaled = xp.clip(xp.where(xp.isnan(values), xp.float32(0), values), -clip, clip) * xp.float32(steps)
    return (xp.trunc if rounding == "down" else xp.rint)(scaled).astype(np.int32)


def dequantise(total: Integer[ArrayT, "*shape"], steps: int, xp: ModuleType = np) -> Float32[ArrayT, "*shape"]:
    """A sum of whole numbers of steps as real numbers.

    Args:
        total: int32 or uint32 [...]: a sum modulo 2³².
        steps: Steps of a unit, as in :func:`quantise`.
        xp: ``numpy`` or ``jax.numpy``.

    Returns:
        float32 [...], between −2³¹/steps and 2³¹/steps.

    >>> dequantise(np.array([2**32 - 6, 6], np.uint32), steps=4).tolist()
    [-1.5, 1.5]
    """
    check_steps(steps)
    return total.astype(np.int32).astype(xp.float32) * xp.float32(1.0 / steps)
