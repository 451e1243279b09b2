"""Moments of columns over silos, by sums of each silo's own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

#: A column is constant where its deviation is below this share of its largest possible value.
_CONSTANT = 1e-12


class Moments(NamedTuple):
    """Moments of columns; what is missing (NaN) does not count.

    Attributes:
        count: Number of values.
        mean: Mean; 0 of a column without a value.
        deviation: Standard deviation (divisor: count); 0 where a column never varies.
    """

    count: Float[np.ndarray, " columns"]
    mean: Float[np.ndarray, " columns"]
    deviation: Float[np.ndarray, " columns"]

    def standardise(self, x: Float[np.ndarray, "rows columns"]) -> Float[np.ndarray, "rows columns"]:
        """(x − mean)/deviation; 0 for what is missing and for columns that never vary."""
        varies = self.deviation > 0
        made = np.where(varies, (x - self.mean) / np.where(varies, self.deviation, 1.0), 0.0)
        return np.where(np.isnan(made), 0.0, made)


def moments_of(silos: Sequence[Float[np.ndarray, "_ columns"]]) -> Moments:
    """Moments of the columns of all silos' rows.

    Args:
        silos: Each silo's rows.
    """
    known = [~np.isnan(x) for x in silos]
    count = np.sum([there.sum(axis=0) for there in known], axis=0).astype(float)
    total = np.sum([np.where(there, x, 0.0).sum(axis=0) for x, there in zip(silos, known, strict=True)], axis=0)
    mean = total / np.maximum(count, 1)
    squares = np.sum(
        [np.where(there, (x - mean) ** 2, 0.0).sum(axis=0) for x, there in zip(silos, known, strict=True)], axis=0
    )
    deviation = np.sqrt(squares / np.maximum(count, 1))
    return Moments(count, mean, np.where(deviation > _CONSTANT * np.abs(mean), deviation, 0.0))


def combine_moments(silos: Sequence[Moments]) -> Moments:
    """Moments of all rows, from those of each silo's own (Chan, Golub and LeVeque, The American Statistician 1983)."""
    count, mean, deviation = (np.array(one) for one in zip(*silos, strict=True))
    total = count.sum(axis=0)
    middle = (count * mean).sum(axis=0) / np.maximum(total, 1)
    squares = (count * (deviation**2 + (mean - middle) ** 2)).sum(axis=0)
    spread = np.sqrt(squares / np.maximum(total, 1))
    return Moments(total, middle, np.where(spread > _CONSTANT * np.abs(middle), spread, 0.0))
