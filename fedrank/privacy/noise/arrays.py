"""Exact noise on integers for whole arrays: discrete Laplace and discrete Gaussian, for millions of numbers.

The samplers of :mod:`fedrank.privacy.noise.discrete` draw number by number with Python's integers, which is right for
a device that sends a few hundred. A silo that publishes sketches of its documents needs tens of millions. Here the same
distributions are drawn by inversion: a uniform number U in [0, 1) from the operating system falls between two
thresholds P(X ≤ k), and k is the draw.

**Why this is exact.** U is a stream of random bits, of which 32 are drawn first. Thresholds are kept as the whole
numbers ⌊2³² P(X ≤ k)⌋, found with as many decimal digits as it takes to be sure of them. The first 32 bits of U are
either below or above such a number, and then U is below or above the threshold whatever bits come next; or they are
equal to it, and then more bits of U are drawn and compared with more bits of the threshold until they differ. No
rounding takes part in the outcome, and no tail is cut off: it belongs to the word of ones, which is always a tie.

**Large scales.** A geometric variable of ratio e^(−1/t) is L + B·H with L and H independent, L the same variable
given L < B, and H geometric of ratio e^(−B/t). Each part has a short table. Discrete Laplace noise is a geometric size
and a random sign, negative zeros drawn again (Canonne, Kamath and Steinke, NeurIPS 2020, Algorithm 2).

How long a draw takes hardly depends on what is drawn, but it is not constant. Noise from these functions cannot be
seeded. :func:`drawn` has the same distributions from a simulation's generator, and protects no data.
"""

from __future__ import annotations

import bisect
import decimal
import functools
import math
import os
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Int64, UInt32

from fedrank.core.errors import ConfigError
from fedrank.privacy.noise.discrete import LARGEST_SCALE, discrete_gaussian

#: Thresholds ⌊2^bits P(X ≤ k)⌋, k = 0, 1, … for a number of bits; of an endless distribution, up to the word of ones.
Thresholds = Callable[[int], tuple[int, ...]]

#: Bits of U that are drawn first.
_BITS = 32

#: Entries of one table of a geometric variable.
_TABLE = 4096

#: Largest σ that has a table; beyond it numbers are drawn one by one.
_LARGEST_SIGMA = 2**12

#: Numbers drawn at a time: a block fits into the processor's cache.
_BLOCK = 2**18

#: From this σ on, a simulation's discrete Gaussian is a rounded normal variable: equal to a part in 2,500 up to 6 σ.
_ROUNDED_FROM = 64.0

#: Decimal digits beyond those of the thresholds: room for cancellation and for errors that add up.
_GUARD = 40

#: Of the guard digits, how many may be wrong. Products of up to 2²⁰ factors of a relative error 10⁻ᵖ, and differences
#: of numbers 2³⁰ times as large as they, lose 20 digits at most.
_LOST = 30


def exact_laplace(scale: Fraction | float, size: int | tuple[int, ...]) -> Int64[np.ndarray, "*size"]:
    """Discrete Laplace noise, P(X = x) ∝ e^(−|x|/t), exactly, from the operating system's randomness.

    Args:
        scale: Scale t in (0, 2³⁰] steps, taken as the exact fraction that it is.
        size: Shape wanted.

    Returns:
        int64 ``size``.

    Raises:
        ConfigError: The scale is out of range.
    """
    parts = _laplace_parts(_check_scale("scale", scale))
    return _blocks(functools.partial(_laplace_block, parts), size)


def exact_gaussian(sigma: Fraction | float, size: int | tuple[int, ...]) -> Int64[np.ndarray, "*size"]:
    """Discrete Gaussian noise, P(X = x) ∝ e^(−x²/(2σ²)), exactly, from the operating system's randomness.

    Args:
        sigma: σ in (0, 2³⁰] steps, taken as the exact fraction that it is. Up to 2¹² whole arrays are drawn at once,
            beyond that number by number.
        size: Shape wanted.

    Returns:
        int64 ``size``.

    Raises:
        ConfigError: σ is out of range.
    """
    exact = _check_scale("sigma", sigma)
    if exact > _LARGEST_SIGMA:
        return discrete_gaussian(exact, math.prod(_shape(size))).reshape(_shape(size))
    return _blocks(functools.partial(_gaussian_block, _gaussian_parts(exact)), size)


def drawn(
    rng: np.random.Generator, mechanism: str, scale: Fraction | float, size: int | tuple[int, ...]
) -> Int64[np.ndarray, "*size"]:
    """The same distributions quickly, from a simulation's generator. It protects no data.

    Args:
        rng: Generator; whoever knows its seed can take the noise off again.
        mechanism: ``"laplace"`` or ``"gaussian"``.
        scale: Scale t, or σ, in steps.
        size: Shape wanted.

    Returns:
        int64 ``size``.

    Raises:
        ConfigError: The mechanism is unknown or the scale out of range.
    """
    value, shape = float(_check_scale("scale", scale)), _shape(size)
    if mechanism == "laplace":
        p = -math.expm1(-1.0 / value)
        return rng.geometric(p, shape) - rng.geometric(p, shape)
    if mechanism != "gaussian":
        raise ConfigError(f"mechanism must be 'laplace' or 'gaussian', got {mechanism!r}.")
    if value >= _ROUNDED_FROM:
        return np.rint(rng.normal(0.0, value, shape)).astype(np.int64)
    x = np.arange(-math.ceil(9.0 * value) - 1, math.ceil(9.0 * value) + 2)
    below = np.cumsum(np.exp(-0.5 * (x / value) ** 2))
    return x[np.searchsorted(below / below[-1], rng.random(shape), side="right")]


class _Part(NamedTuple):
    """A table: its thresholds to any number of bits, to the first 32, and what one step of the draw is worth."""

    thresholds: Thresholds
    table: UInt32[np.ndarray, " entries"]  # ascending
    step: int


def _laplace_block(parts: tuple[_Part, ...], n: int) -> Int64[np.ndarray, "{n}"]:
    sizes, negative = _draw_by_inversion(parts, n), _signs(n)
    again = np.flatnonzero((sizes == 0) & negative)
    while again.size:  # else zero would come twice as often
        sizes[again], negative[again] = _draw_by_inversion(parts, again.size), _signs(again.size)
        again = again[(sizes[again] == 0) & negative[again]]
    return np.where(negative, -sizes, sizes)


def _gaussian_block(parts: tuple[_Part, ...], n: int) -> Int64[np.ndarray, "{n}"]:
    sizes = _draw_by_inversion(parts, n)
    return np.where(_signs(n), -sizes, sizes)  # the table is that of |X|: no zero comes twice


@functools.lru_cache(maxsize=64)
def _laplace_parts(scale: Fraction) -> tuple[_Part, ...]:
    """The parts of a geometric variable of ratio e^(−1/t)."""
    parts, step = [], 1
    while scale > step * _TABLE // 16:
        parts.append(_part(functools.partial(_geometric_thresholds, scale / step, _TABLE), step))
        step *= _TABLE
    parts.append(_part(functools.partial(_geometric_thresholds, scale / step, 0), step))
    return tuple(parts)


@functools.lru_cache(maxsize=64)
def _gaussian_parts(sigma: Fraction) -> tuple[_Part, ...]:
    return (_part(functools.partial(_gaussian_thresholds, sigma), 1),)


def _part(thresholds: Thresholds, step: int) -> _Part:
    return _Part(thresholds, np.array(thresholds(_BITS), np.uint32), step)


def _draw_by_inversion(parts: tuple[_Part, ...], n: int) -> Int64[np.ndarray, "{n}"]:
    """Draws of the sum of the parts. Of each: how many of its thresholds are at most U."""
    total = np.zeros(n, np.int64)
    for thresholds, table, step in parts:
        words = np.frombuffer(os.urandom(4 * n), np.uint32)
        found = np.searchsorted(table, words, side="left")
        for tie in np.flatnonzero(table[np.minimum(found, table.size - 1)] == words):
            found[tie] = _resolve_tie(thresholds, int(words[tie]))
        total += step * found
    return total


def _resolve_tie(thresholds: Thresholds, word: int) -> int:
    """The draw where the first bits of U are those of a threshold: more bits until they differ."""
    bits = _BITS
    while True:
        word, bits = (word << bits) | int.from_bytes(os.urandom(bits // 8), "big"), 2 * bits
        finer = thresholds(bits)
        place = bisect.bisect_left(finer, word)
        if place == len(finer) or finer[place] != word:
            return place


@functools.lru_cache(maxsize=32)
def _geometric_thresholds(scale: Fraction, below: int, bits: int) -> tuple[int, ...]:
    """Of a geometric variable L of ratio e^(−1/t), given L < ``below`` unless that is 0."""

    def chances():
        ratio = (-Decimal(scale.denominator) / Decimal(scale.numerator)).exp()
        whole = 1 - ratio**below if below else Decimal(1)
        power = Decimal(1)
        for _ in range(below - 1) if below else iter(int, 1):
            power *= ratio
            yield (1 - power) / whole

    return _floors(chances, bits)


@functools.lru_cache(maxsize=32)
def _gaussian_thresholds(sigma: Fraction, bits: int) -> tuple[int, ...]:
    """Of the size |X| of discrete Gaussian noise."""

    def chances():
        step = (-(Decimal(sigma.denominator) ** 2) / (2 * Decimal(sigma.numerator) ** 2)).exp()
        twice, weights, weight, step = step * step, [Decimal(1)], Decimal(2), step
        smallest = Decimal(10) ** -(decimal.getcontext().prec + 10)
        while weight > smallest:  # what is left out is below 2¹⁵ weights of this size
            weight, step = weight * step, step * twice
            weights.append(weight)
        whole = sum(weights)
        total = Decimal(0)
        for weight in weights:
            total += weight
            yield total / whole

    return _floors(chances, bits)


def _floors(chances: Callable, bits: int) -> tuple[int, ...]:
    """⌊2^bits c⌋ for increasing chances c < 1, each of them certain; the last may be the word of ones."""
    digits = math.ceil(bits * math.log10(2.0)) + _GUARD
    ones = 2**bits - 1
    while True:
        with decimal.localcontext(decimal.Context(prec=digits, Emin=decimal.MIN_EMIN, Emax=decimal.MAX_EMAX)):
            floors, wrong = [], Decimal(10) ** (_LOST - digits)
            for chance in chances():
                low, high = int((chance - wrong) * 2**bits), int((chance + wrong) * 2**bits)
                if low != min(high, ones):
                    break  # more digits are needed to be sure
                floors.append(low)
                if low == ones:
                    break
            else:
                return tuple(floors)
            if floors and floors[-1] == ones:
                return tuple(floors)
        digits += _GUARD


def _signs(n: int) -> Bool[np.ndarray, "{n}"]:
    """Random signs, True for negative, from the operating system's randomness."""
    return np.unpackbits(np.frombuffer(os.urandom((n + 7) // 8), np.uint8), count=n).astype(bool)


def _blocks(block: Callable[[int], Int64[np.ndarray, " n"]], size: int | tuple[int, ...]) -> Int64[np.ndarray, "*size"]:
    """Noise of a shape, drawn block by block."""
    shape = _shape(size)
    flat = np.empty(math.prod(shape), np.int64)
    for start in range(0, flat.size, _BLOCK):
        flat[start : start + _BLOCK] = block(min(_BLOCK, flat.size - start))
    return flat.reshape(shape)


def _shape(size: int | tuple[int, ...]) -> tuple[int, ...]:
    return (size,) if isinstance(size, int) else size


def _check_scale(name: str, scale: Fraction | float) -> Fraction:
    if not 0 < scale <= LARGEST_SCALE:
        raise ConfigError(f"{name} of noise must be in (0, 2**30] steps, got {scale}.")
    return Fraction(scale)
