"""Exact distribution of a Count Sketch's error for a given document, and its mean absolute value.

A row's error is a sum of independent parts: each other term of the document falls into the asked cell with probability
1/w, with a random sign, and the cell has its noise. Parts add, so their characteristic functions multiply, and one
Fourier transform over whole numbers gives the probabilities. Rows are independent of each other, so the median's
distribution follows from theirs by order statistics.
"""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Float64, Integer

from fedrank.core.errors import ConfigError

_TAIL = 1e-9  # probability that may be cut off
_LARGEST_SCALE = 60.0  # noise beyond is computed in coarser units
_DEVIATIONS = 12.0  # of a row's error on either side that are kept


def row_error(
    counts: Integer[np.ndarray, " terms"], w: int, mechanism: str = "laplace", noise: float = 0.0
) -> Float64[np.ndarray, " errors"]:
    """Probabilities of the errors −L … L of one row, for a term that the counts do not hold.

    Args:
        counts: Counts of the other terms, whole numbers.
        w: Number of cells of a row.
        mechanism: "laplace" (discrete, of scale ``noise``) or "gaussian" (discrete, of deviation ``noise``).
        noise: 0 for none.

    Returns:
        2L + 1 probabilities, symmetric, with a sum of 1.

    Raises:
        ConfigError: There is no such mechanism.
    """
    if mechanism not in ("laplace", "gaussian"):
        raise ConfigError(f"noise is 'laplace' or 'gaussian', got {mechanism!r}.")
    values, times = np.unique(np.abs(np.asarray(counts, np.int64)), return_counts=True)
    spread = math.sqrt(float(values.astype(float) ** 2 @ times) / w)
    reach = math.ceil(_DEVIATIONS * spread + 2 * float(values.max(initial=1)) + 25 * noise)
    size = 1 << (2 * reach + 1).bit_length()
    angle = 2 * np.pi * np.arange(size // 2 + 1) / size
    transform = np.ones_like(angle)
    for value, repeated in zip(values, times, strict=True):
        transform *= (1 - (1 - np.cos(angle * value)) / w) ** repeated
    if noise:
        away = np.minimum(np.arange(size), size - np.arange(size))
        weights = np.exp(-away / noise if mechanism == "laplace" else -0.5 * (away / noise) ** 2)
        transform = transform * np.fft.rfft(weights / weights.sum()).real
    probabilities = np.maximum(np.fft.irfft(transform, size), 0.0)
    half = size // 2 - 1
    probabilities = np.concatenate([probabilities[-half:], probabilities[: half + 1]])
    return probabilities / probabilities.sum()


def mean_median(probabilities: Float64[np.ndarray, " errors"], rows: int) -> float:
    """E|median| of independent draws.

    Args:
        probabilities: Probabilities of −L … L.
        rows: Number of draws; of an even number, the median is the mean of the two middle ones.
    """
    half = len(probabilities) // 2
    below = np.clip(np.cumsum(probabilities), 0.0, 1.0)  # Pr[X ≤ x]
    low, high = (rows + 1) // 2, rows // 2 + 1  # which of the sorted draws are in the middle

    def at_most(order: int) -> Float64[np.ndarray, " errors"]:
        """Pr[the order-th smallest draw ≤ x], for every x."""
        return sum(math.comb(rows, k) * below**k * (1 - below) ** (rows - k) for k in range(order, rows + 1))  # type: ignore[return-value]

    first, second = at_most(low), at_most(high)
    marginal = np.diff(first, prepend=0.0)
    x = np.arange(-half, half + 1)
    if low == high:
        return float(marginal @ np.abs(x))
    kept = np.flatnonzero((first > _TAIL) & (second < 1 - _TAIL))
    window = slice(max(kept[0] - 1, 0), kept[-1] + 2)
    x, f, g = x[window], below[window], second[window]
    # Pr[low-th ≤ a, high-th ≤ b] for a ≤ b: the high-th is ≤ b, less the draws with exactly `low` of them ≤ a and all
    # others above b.
    joint = first[window][:, None] - math.comb(rows, low) * np.outer(f**low, (1 - f) ** low)
    joint = np.where(x[:, None] <= x[None, :], joint, g[None, :])
    mass = np.diff(np.diff(joint, axis=0, prepend=0.0), axis=1, prepend=0.0)
    middle = np.abs(x[:, None] + x[None, :]) / 2
    return float((mass * middle).sum() / mass.sum())


def expected_error(
    counts: Integer[np.ndarray, " terms"], rows: int, w: int, mechanism: str = "laplace", noise: float = 0.0
) -> float:
    """Expected absolute error of an estimated count, over hashes and noise; exact but for strong noise.

    Noise of a scale above 60 is computed in coarser units, in which counts are whole numbers no longer: they are left
    out, and their variance is added to the noise's by squares. The error made is below 1 % for documents of hundreds
    of words.

    Args:
        counts: Counts of the document's other terms.
        rows: Number of rows whose median is taken (z, or z₁ where only those are used).
        w: Number of cells of a row.
        mechanism: "laplace" or "gaussian".
        noise: Scale or deviation of the noise on a cell; independent between cells.
    """
    if noise <= _LARGEST_SCALE:
        return mean_median(row_error(counts, w, mechanism, noise), rows)
    variance = noise**2 * (2 if mechanism == "laplace" else 1)
    wider = math.sqrt(1 + float(np.asarray(counts, np.float64) @ np.asarray(counts, np.float64)) / w / variance)
    alone = mean_median(row_error(np.zeros(0, np.int64), w, mechanism, _LARGEST_SCALE), rows)
    return alone * noise / _LARGEST_SCALE * wider
