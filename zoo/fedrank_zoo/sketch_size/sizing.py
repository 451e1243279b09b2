"""Exact distribution of a Count Sketch's error for a given document, and its mean absolute value.

A row's error is a sum of independent parts: each other term of the document falls into the asked cell with probability
1/w, with a random sign, and the cell has its noise. Parts add, so their characteristic functions multiply, and one
Fourier transform over whole numbers gives the probabilities. Rows are independent of each other, so the median's
distribution follows from theirs by order statistics.

Choosing a sketch's size: variance, error bounds and expected errors.

Notation: z rows of w cells; f a document's counts, F₂ the sum of their squares. Equations and theorems are those of
CS-F-LTR (Journal of Software 2021 and ICDE 2021). The facts behind the advice:

* One row is unbiased with variance (F₂ − f_t²)/w + noise, exactly.
* Noise on every cell of a sketch that is published once has to cover all z cells that one occurrence changes.
  Laplace noise of scale z/ε a cell leaves, after the median of z rows, an error that grows with √z; Gaussian noise of
  deviation proportional to √z leaves an error that z hardly changes. At a fixed number of
  cells, small z and wide w are therefore best under Laplace noise, and no worse under Gaussian noise (:func:`advise`).
* Without noise, more rows help against collisions until rows get too narrow.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float64, Int64, Integer, Real

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


#: Noise on a cell: Laplace of scale z/ε, Gaussian of deviation √z · multiplier.
MECHANISMS = ("laplace", "gaussian")
#: Rows that :func:`advise` tries.
ROWS = (1, 2, 3, 4, 5, 7, 10, 15, 20, 30)


def residual(counts: Real[np.ndarray, " terms"], heaviest: int) -> float:
    """F₂^Res of Theorem 2: the sum of squares of all but the ``heaviest`` largest counts."""
    rest = np.sort(np.abs(np.asarray(counts, np.float64)))[::-1][heaviest:]
    return float(rest @ rest)


def theorem_2(f2_residual: float, w: int, epsilon: float = math.inf, terms: int = 1) -> float:
    """The error that Theorem 2 (one term) and Theorem 3 (the sum over ``terms``) promise with high probability.

    √(16·terms/ε² + 64·terms·F₂^Res/w), for noise of scale 1/ε on every cell. It does
    not hold where half of the rows or more are bad, which the proof has happen to a row with probability 3/8.
    """
    return math.sqrt(16 * terms / epsilon**2 + 64 * terms * f2_residual / w)


def cell_noise(z: int, mechanism: str, strength: float) -> float:
    """Parameter of the noise on a cell of a sketch that is published once.

    Args:
        z: Rows; one occurrence changes one cell of each by one.
        mechanism: "laplace" or "gaussian".
        strength: ε of one occurrence for Laplace; for Gaussian the deviation at z = 1, as
            ``fedrank.privacy.calibration.gaussian_sigma(epsilon, delta, 1.0)`` gives it.

    Returns:
        Scale z/ε, or deviation √z · strength.

    Raises:
        ConfigError: There is no such mechanism, or the strength is not positive.
    """
    if mechanism not in MECHANISMS or not strength > 0:
        raise ConfigError(f"noise is one of {', '.join(MECHANISMS)} with a positive strength, got {mechanism!r}.")
    return z / strength if mechanism == "laplace" else math.sqrt(z) * strength


class Advice(NamedTuple):
    """A shape of a sketch and the errors to expect with it.

    Attributes:
        z: Number of rows.
        w: Number of cells of a row.
        error: Expected absolute error of a count, noise and collisions together.
        collisions: The same without noise.
        noise: Parameter of the noise on a cell (scale or deviation); 0 without noise.
    """

    z: int
    w: int
    error: float
    collisions: float
    noise: float


def advise(
    cells: int,
    counts: Integer[np.ndarray, " terms"],
    mechanism: str = "laplace",
    strength: float = math.inf,
    rows: Sequence[int] = ROWS,
) -> list[Advice]:
    """Shapes with a given number of cells, best first, for a sketch that is published once.

    Args:
        cells: z · w may not be more.
        counts: Counts of a typical document; a word that is not in it is asked about.
        mechanism: "laplace" or "gaussian".
        strength: As in :func:`cell_noise`; infinite for no noise (of either mechanism).
        rows: Values of z to try.

    Returns:
        One entry for every z that leaves two cells a row, by expected error.

    Raises:
        ConfigError: There is no such mechanism, or too few cells for any of the rows.
    """
    found = []
    for z in rows:
        w = cells // z
        if w < 2:
            continue
        noise = 0.0 if math.isinf(strength) else cell_noise(z, mechanism, strength)
        collisions = expected_error(counts, z, w)
        error = expected_error(counts, z, w, mechanism, noise) if noise else collisions
        found.append(Advice(z, w, error, collisions, noise))
    if not found:
        raise ConfigError(f"{cells} cells are too few for {min(rows, default=1)} rows of two.")
    return sorted(found, key=lambda advice: (advice.error, advice.z))


def zipf_document(tokens: int, exponent: float = 1.07, distinct: float = 0.61) -> Int64[np.ndarray, " words"]:
    """Counts of a typical document: Zipf's law over its different words.

    Args:
        tokens: Number of words.
        exponent: Exponent of Zipf's law.
        distinct: Different words as a share of all words (0.61 at 300 words of a generated collection with a
            vocabulary of 50,000).

    Returns:
        Counts of at least 1 with a sum near ``tokens``.
    """
    ranks = np.arange(1, max(1, round(distinct * tokens)) + 1, dtype=np.float64)
    low, high = 1e-9, float(tokens)
    for _ in range(60):  # the constant that makes the rounded counts add up, by bisection
        middle = (low + high) / 2
        if np.maximum(1, np.round(middle / ranks**exponent)).sum() < tokens:
            low = middle
        else:
            high = middle
    return np.maximum(1, np.round(high / ranks**exponent)).astype(np.int64)
