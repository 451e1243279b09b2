"""Composition of mechanisms whose privacy loss is +ε, 0 or −ε, such as randomised response."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from jaxtyping import Float64  # for type checkers: a device has NumPy alone

#: Compositions beyond this are bounded in closed form.
_EXACT = 1_000_000
#: Probability of totals that are left out of a distribution, and counted as if they gave everything away.
_LEFT_OUT = 1e-15


def basis_of(times: int) -> str:
    """The name, for a report, of how :func:`three_losses_epsilon` composes ``times`` releases."""
    return "privacy loss distribution" if times <= _EXACT else "Hoeffding's bound"


def three_losses_epsilon(epsilon: float, likely: float, unlikely: float, times: int, delta: float) -> float:
    """ε at δ of independent releases, each with a privacy loss of +ε, −ε or 0.

    The total is a multiple of ε, and its distribution the T-th power of a characteristic function: exact up to
    floating-point error and a truncated tail of 1e-15 (Koskela, Jälkö and Honkela, *Computing tight differential
    privacy guarantees using FFT*, AISTATS 2020, on whose grid these losses lie).

    Beyond a million releases the tail is bounded by Hoeffding's inequality instead: the losses lie in [−ε, ε] and have
    the mean m = (``likely`` − ``unlikely``) ε, so T m + ε √(2 T log(1/δ)) holds.

    Args:
        epsilon: ε ≥ 0 of one release; may be infinite.
        likely: Probability of the loss +ε.
        unlikely: Probability of the loss −ε.
        times: Number of releases T, ≥ 0.
        delta: δ in (0, 1).

    Returns:
        ε ≥ 0, never above basic composition.
    """
    if times == 0 or epsilon in (0.0, math.inf):
        return epsilon if times else 0.0
    if times > _EXACT:
        mean, tail = times * (likely - unlikely) * epsilon, epsilon * math.sqrt(2 * times * math.log(1 / delta))
        return min(times * epsilon, mean + tail)
    totals, probabilities, above = _distribution(likely, unlikely, times)
    # δ(e) = left out + Σ P(total = k) (1 − exp(e − k ε)) over k ε > e. From the largest total down, both sums are
    # those of all totals from k on; the second is times exp(k ε), so that nothing overflows.
    fades, weighed = math.exp(-epsilon * totals.step), 0.0
    for total, p in zip(reversed(totals), reversed(probabilities.tolist()), strict=True):
        above, weighed = above + p, weighed * fades + p
        if above - weighed * fades > delta or total == totals.start:  # so at the next lower total; there is none
            break
    if above <= delta:
        return 0.0
    found = total * epsilon + math.log((above - delta) / weighed) if weighed else math.inf
    return min(max(0.0, found), times * epsilon)


def _distribution(likely: float, unlikely: float, times: int) -> tuple[range, Float64[np.ndarray, " totals"], float]:
    """The distribution of a sum of ``times`` numbers that are 1, −1 or 0.

    Returns:
        The totals, float64 [totals]: their probabilities, and how much is left out.
    """
    none = 1.0 - likely - unlikely
    none = none if none > 1e-15 else 0.0  # what rounding leaves of two probabilities that add up to 1
    # Without zeros totals are all even or all odd: twice the number of ones, less T.
    step, shift, smallest = (1, 0, -1) if none else (2, -times, 0)
    each = ((likely, 1), (unlikely, smallest), (none, 0))
    mean = sum(p * value for p, value in each)
    middle, half = round(times * mean), math.ceil(math.sqrt(2 * times * math.log(2 / _LEFT_OUT))) + 1  # Hoeffding
    lowest, highest = max(smallest * times, middle - half), min(times, middle + half)
    n = highest - lowest + 1
    turn = 2 * math.pi * np.arange(n // 2 + 1) / n
    # The characteristic function of a number less its mean, less 1. Terms that cancel at small angles are left out:
    # what is lost in them would be multiplied by the number of releases.
    real = -2 * sum(p * np.sin(turn * (value - mean) / 2) ** 2 for p, value in each)
    imaginary = -sum(p * _sine_less_angle(turn * (value - mean)) for p, value in each)
    with np.errstate(divide="ignore"):  # log 0 where the function is 0, and so its power
        size = times / 2 * np.log1p(np.maximum(real * (2 + real) + imaginary * imaginary, -1.0))
    angle = times * np.arctan2(imaginary, 1 + real) + turn * (middle - times * mean)
    power = np.exp(size) * (np.cos(angle) + 1j * np.sin(angle))
    found = np.roll(np.fft.irfft(power, n), middle - lowest)
    totals = range(step * lowest + shift, step * highest + shift + 1, step)
    left_out = 0.0 if (lowest, highest) == (smallest * times, times) else _LEFT_OUT
    return totals, np.maximum(found, 0.0), left_out


def _sine_less_angle(x: Float64[np.ndarray, " n"]) -> Float64[np.ndarray, " n"]:
    """The sine of each angle less the angle, float64 [n], in radians, to the last digits near 0 too."""
    small, square = np.abs(x) < 1, x * x
    series = 1.0
    for k in (16, 14, 12, 10, 8, 6, 4):  # Horner's form of Taylor's series
        series = 1.0 - square / (k * (k + 1)) * series
    return np.where(small, -x * square / 6 * series, np.sin(x) - x)
