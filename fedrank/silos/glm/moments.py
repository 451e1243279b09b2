"""What columns of all silos are like, from sums: how many values there are, their means and deviations.

Two sums: counts and totals first, then squares around the common mean, which loses no digits where a column's mean is
large against its deviation.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from fedrank.silos.glm.sums import Adder

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

    def standardised(self, x: Float[np.ndarray, "rows columns"]) -> Float[np.ndarray, "rows columns"]:
        """(x − mean)/deviation; 0 for what is missing and for columns that never vary."""
        varies = self.deviation > 0
        made = np.where(varies, (x - self.mean) / np.where(varies, self.deviation, 1.0), 0.0)
        return np.where(np.isnan(made), 0.0, made)


def moments_of(silos: Sequence[Float[np.ndarray, "_ columns"]], add: Adder | None = None) -> Moments:
    """Moments of the columns of all silos' rows.

    Args:
        silos: Each silo's rows.
        add: What adds; by default in the clear.
    """
    add = Adder() if add is None else add
    known = [~np.isnan(x) for x in silos]
    first = add([
        np.concatenate([there.sum(axis=0), np.where(there, x, 0.0).sum(axis=0)])
        for x, there in zip(silos, known, strict=True)
    ])  # fmt: skip
    count, total = np.split(first, 2)
    mean = total / np.maximum(count, 1)
    squares = add([
        np.where(there, (x - mean) ** 2, 0.0).sum(axis=0) for x, there in zip(silos, known, strict=True)
    ])  # fmt: skip
    deviation = np.sqrt(squares / np.maximum(count, 1))
    return Moments(count, mean, np.where(deviation > _CONSTANT * np.abs(mean), deviation, 0.0))
