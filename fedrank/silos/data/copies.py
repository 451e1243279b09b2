"""Rows of a silo that stand more than once: which, and whether there are more of them than by chance."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

#: Share of rows that stand more than once up to which nothing is said: a patient may come twice.
_SHARE = 0.05
#: How many times as many pairs of equal rows there must be as by chance.
_TIMES = 6.0
#: Pairs that are added to those that were counted, as few say little.
_FEW = 3.0
#: Of a table's only column that varies: fewest values; standard errors by which the share of values that stand more
#: than once must pass what chance gives; and the middle ratio of two gaps between values that follow each other, the
#: smaller one above, under which the values lie on no grid. Of independent values it is a third.
_VALUES, _ERRORS, _RATIO = 20, 3.0, 0.5


class Copies(NamedTuple):
    """Equal rows of a silo; labels do not count, as a copy may have another one.

    Attributes:
        group: A number for each row, the same for equal rows.
        share: Share of the rows that have an equal one.
        chance: Share of rows that would have an equal one if values were independent.
    """

    group: Int[np.ndarray, " rows"]
    share: float
    chance: float

    @property
    def first(self) -> Int[np.ndarray, " rows"]:
        """The first row of each group."""
        return np.sort(np.unique(self.group, return_index=True)[1])

    @property
    def text(self) -> str:
        """The finding, to follow a silo's name and "has"."""
        return f"{self.share:.0%} of its rows more than once, where chance would give {self.chance:.1%}"


def copies(x: Float[np.ndarray, "rows columns"]) -> Copies | None:
    """The rows that stand more than once, where there are more of them than by chance; else None.

    Rows of few columns with few values each are equal by chance. Of the column whose values differ most, pairs of rows
    that differ elsewhere say how often two values are equal; among pairs that are equal elsewhere it is about as often,
    unless there are copies. Where one column alone varies, rows are copies if more of its values stand more than once
    than of as many that are equally likely, and they lie on no grid, as ages or rounded measurements do.

    Args:
        x: Features; a missing value equals a missing value.
    """
    n = len(x)
    if n < 2 or not x.shape[1]:
        return None
    # -0 becomes 0 and all NaN one, so that equal rows are equal bytes.
    rows = np.where(np.isnan(x), np.nan, x + 0.0)
    group, counts = _groups(rows)
    share = float(counts[counts > 1].sum() / n)
    if share <= _SHARE:
        return None
    varies = [np.unique(column, return_counts=True) for column in rows.T]
    varies = [one for one in varies if len(one[0]) > 1]
    if len(varies) == 1:
        return Copies(group, share, 0.0) if _repeats(*varies[0]) else None
    among = [_pairs(np.unique(column, return_counts=True)[1]) for column in rows.T]
    most = int(np.argmin(among))
    pairs, equal = n * (n - 1) / 2, _pairs(counts)
    elsewhere = _pairs(_groups(np.delete(rows, most, axis=1))[1])
    if elsewhere == pairs:
        return None
    by_chance = elsewhere * (among[most] - equal + _FEW) / (pairs - elsewhere)
    return Copies(group, share, min(1.0, 2 * by_chance / n)) if equal > _TIMES * by_chance else None


def _repeats(values: Float[np.ndarray, " values"], counts: Int[np.ndarray, " values"]) -> bool:
    """Whether more of a column's values, ascending, stand more than once than by chance, on no grid."""
    known = np.isfinite(values)
    values, counts = values[known], counts[known]
    if len(values) < _VALUES:
        return False
    # By chance counts are Poisson, but for values that were not drawn; unequal chances make single ones more.
    mean = rate = float(counts.mean())
    for _ in range(100):
        rate = mean * (1 - np.exp(-rate))
    share = 1 - rate * np.exp(-rate) / max(1 - np.exp(-rate), 1e-12)
    if np.mean(counts > 1) <= share + _ERRORS * np.sqrt(share * (1 - share) / len(values)):
        return False
    gaps = np.diff(values)
    return bool(np.median(np.minimum(gaps[1:], gaps[:-1]) / np.maximum(gaps[1:], gaps[:-1])) < _RATIO)


def _groups(rows: Float[np.ndarray, "rows columns"]) -> tuple[Int[np.ndarray, " rows"], Int[np.ndarray, " groups"]]:
    """The number of each row's group of equal rows, and how many rows each group has."""
    # By a hash of 64 bits, as sorting whole rows takes long. High bits go down first: whole numbers have no low ones.
    bits = np.ascontiguousarray(rows, np.float64).view(np.uint64)
    odd = np.random.Generator(np.random.PCG64(0)).integers(0, 2**63, rows.shape[1], np.uint64) * 2 + 1
    mixed = (bits ^ (bits >> 31)) * odd
    _, group, counts = np.unique((mixed ^ (mixed >> 29)).sum(axis=1), return_inverse=True, return_counts=True)
    return group, counts


def _pairs(counts: Int[np.ndarray, " values"]) -> float:
    return float((counts * (counts - 1) / 2).sum())
