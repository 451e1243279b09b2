"""Rows of a silo that stand more than once: which, and whether there are more of them than by chance."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

#: Share of rows that stand more than once up to which nothing is said: a patient may come twice.
_SHARE = 0.05
#: How many times as many pairs of equal rows there must be as columns that are independent would give.
_TIMES = 10.0


class Copies(NamedTuple):
    """Equal rows of a silo; labels do not count, as a copy may have another one.

    Attributes:
        group: A number for each row, the same for equal rows.
        share: Share of the rows that have an equal one.
        chance: The same as it would be by chance if columns were independent.
    """

    group: Int[np.ndarray, " rows"]
    share: float
    chance: float

    @property
    def text(self) -> str:
        """The finding, to follow a silo's name and "has"."""
        return f"{self.share:.0%} of its rows more than once, where chance would give {self.chance:.1%}"


def copies(x: Float[np.ndarray, "rows columns"]) -> Copies | None:
    """The rows that stand more than once, where there are more of them than by chance; else None.

    Rows of few columns with few values each are equal by chance. The number of pairs that are equal by chance is that
    of all pairs times, for each column, the share of pairs that are equal in it, among pairs that differ somewhere.

    Args:
        x: Features; a missing value equals a missing value.
    """
    n = len(x)
    if n < 2 or x.shape[1] < 2:
        return None
    # -0 becomes 0 and all NaN one, so that equal rows are equal bytes.
    rows = np.ascontiguousarray(np.where(np.isnan(x), np.nan, x + 0.0))
    _, group, counts = np.unique(
        rows.view(f"V{rows.itemsize * rows.shape[1]}")[:, 0], return_inverse=True, return_counts=True
    )
    share = float(counts[counts > 1].sum() / n)
    if share <= _SHARE:
        return None
    pairs, equal = n * (n - 1) / 2, _pairs(counts)
    values = [np.unique(column, return_counts=True)[1] for column in rows.T]
    values = [found for found in values if len(found) > 1]
    alike = float(np.prod([(_pairs(found) - equal) / (pairs - equal) for found in values]))
    if len(values) < 2 or equal <= _TIMES * pairs * alike:
        return None
    return Copies(group, share, min(1.0, 2 * pairs * alike / n))


def _pairs(counts: Int[np.ndarray, " values"]) -> float:
    return float((counts * (counts - 1) / 2).sum())
