"""Checks of a table of silos: identifiers, copies of the label, codes for missing values, far outliers.

Nothing is changed here. Each finding names the column, says why, and which setting would mend it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from fedrank.silos.data.coding import write_flag

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
        return copies_text(self.share, self.chance)


def copies_text(share: float, chance: float) -> str:
    """Words on a share of rows that stand more than once, and on the one that chance would give."""
    return f"{share:.0%} of its rows more than once, where chance would give {chance:.1%}"


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


def group_rows(
    x: Float[np.ndarray, "rows columns"], person: Int[np.ndarray, " rows"] | None
) -> Int[np.ndarray, " rows"] | None:
    """A number for each row, from 0 in order of first rows, the same for copies and for rows of one person.

    Args:
        x: Features.
        person: Number of each row's person; None: rows are of different persons.

    Returns:
        The numbers; None where each row stands by itself.
    """
    found = copies(x)
    if found is None and person is None:
        return None
    group = np.arange(len(x))
    several = [one for one in (found and found.group, person) if one is not None]
    while True:  # a copy may be under another person's number: groups that share a row are one
        before = group
        for one in several:
            least = np.full(int(one.max(initial=0)) + 1, len(x))
            np.minimum.at(least, one, group)
            group = least[one]
        if np.array_equal(before, group):
            return np.unique(group, return_inverse=True)[1]


def _repeats(values: Float[np.ndarray, " values"], counts: Int[np.ndarray, " values"]) -> bool:
    """True if more of a column's values, ascending, stand more than once than by chance, on no grid."""
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


#: Numbers that are often written for an unknown value.
SENTINELS = (-1, -7, -8, -9, -77, -88, -99, -777, -888, -999, -9999, 77, 88, 99, 777, 888, 999, 9999, 99999)
#: Texts that are often written for an unknown value, in small letters.
UNKNOWNS = frozenset((
    "--", ".", "missing", "n.a.", "n. a.", "not known", "not available", "unknown",
    "k.a.", "k. a.", "k/a", "keine angabe", "unbekannt", "inconnu", "n/c", "non connu", "sconosciuto",
    "n/d", "n.d.", "n. d.", "nd", "s/d", "s.d.", "sin dato", "sin datos", "ns/nc", "no consta", "desconocido",
))  # fmt: skip
#: Fewest rows for an identifier or a copy of the label to be told from chance.
_FEWEST = 20
#: A value flattens a column if its distance from the median is more than this times the spread of the middle nine
#: tenths.
_FAR = 50.0


def looks_wrong(
    x: Float[np.ndarray, "rows features"], y: Int[np.ndarray, " rows"], names: Sequence[str]
) -> tuple[str, ...]:
    """A sentence for each column that may not be what a model should learn from.

    Args:
        x: Features of all silos; NaN where a value is missing.
        y: Labels, 0 or 1.
        names: Names of the features.
    """
    out = []
    for k, name in enumerate(names):
        column = x[:, k].astype(float)
        known = ~np.isnan(column)
        values, labels = column[known], y[known]
        level = name.partition("=")[2]
        if level.lower() in UNKNOWNS:
            out.append(f"{name!r} reads as a missing value; if it is one, say so ({write_flag('missing', level)}).")
        if len(values) < _FEWEST:
            continue
        if _tells(values, labels):
            out.append(
                f"{name!r} tells the label by itself, as a copy of it would; if it is one, leave it out "
                f"({write_flag('drop', name)})."
            )
        elif _identifies(values):
            out.append(
                f"{name!r} has another whole number in every row, as an identifier has; leave it out "
                f"({write_flag('drop', name)})."
            )
        elif same := _persons(column, np.delete(x, k, axis=1), [one for one in names if one != name]):
            out.append(
                f"rows with one value of {name!r} agree in {', '.join(same[:3])}, as rows of one person do; if they "
                f"are, say so ({write_flag('person', name)}), and they stay in one fold."
            )
        else:
            far = _outlier(values)
            code = find_sentinel(values if far is None else values[values != far])  # an outlier hides a code
            if code is not None:
                count = int((values == code).sum())
                out.append(
                    f"{name!r} is {code:g} in {count} rows, far from its other values, as a code for a missing value "
                    f"is; if it is one, say so ({write_flag('missing', f'{code:g}')})."
                )
            if far is not None:
                out.append(
                    f"{name!r} has a value of {far:.3g}, so far from the others that it flattens the column; mend it, "
                    f"or drop the column ({write_flag('drop', name)})."
                )
    return tuple(out)


def _tells(values: Float[np.ndarray, " rows"], y: Int[np.ndarray, " rows"]) -> bool:
    """True if the smallest value of one label is above the largest of the other."""
    ones, zeros = values[y > 0], values[y <= 0]
    if min(len(ones), len(zeros)) < _FEWEST // 4:
        return False
    return bool(ones.min() > zeros.max() or zeros.min() > ones.max())


def _identifies(values: Float[np.ndarray, " rows"]) -> bool:
    whole = np.all(values == np.round(values)) and len(np.unique(values)) == len(values)
    # Counted through: few numbers are left out between the smallest and the largest.
    return bool(whole and values.max() - values.min() < 3 * len(values))


#: Of rows of one person: fewest that follow a first one; share that agree with it in a column that does not change from
#: visit to visit; share of all pairs of rows that may agree in that column, and in all such columns, by chance.
_FOLLOW, _AGREE, _USUAL, _BY_CHANCE = 20, 0.98, 0.8, 0.2


def _persons(
    column: Float[np.ndarray, " rows"], others: Float[np.ndarray, "rows others"], names: Sequence[str]
) -> list[str]:
    """Columns in which rows agree that have one value of a column of whole numbers, where these look like persons."""
    known = np.flatnonzero(~np.isnan(column))
    values = column[known]
    different, first, whose = np.unique(values, return_index=True, return_inverse=True)
    follow = np.flatnonzero(first[whose] != np.arange(len(values)))
    if len(different) < _FEWEST or len(follow) < _FOLLOW or (values != np.round(values)).any():
        return []
    one, other = others[known[follow]], others[known[first[whose[follow]]]]
    agree = ((one == other) | (np.isnan(one) & np.isnan(other))).mean(axis=0)
    pairs = _pairs(np.array([len(others)]))
    usual = np.array([_pairs(np.unique(of, return_counts=True)[1]) for of in others.T]) / pairs
    same = np.flatnonzero((agree >= _AGREE) & (usual <= _USUAL))
    return [names[k] for k in same.tolist()] if len(same) > 1 and usual[same].prod() <= _BY_CHANCE else []


def find_sentinel(values: Float[np.ndarray, " rows"]) -> float | None:
    """A value that looks like a code for a missing one, such as -9 or 999; None where there is none."""
    for code in SENTINELS:
        there = values == code
        rest = values[~there]
        if there.sum() < 2 or len(np.unique(rest)) < 3:
            continue
        low, high = rest.min(), rest.max()
        apart = low - code if code < low else code - high if code > high else -1.0
        # A negative number where there is no other, or one that lies further off than the others lie apart.
        if (code < 0 <= low) or apart > (high - low):
            return float(code)
    return None


def _outlier(values: Float[np.ndarray, " rows"]) -> float | None:
    """The value furthest from the others, if it lies far from them and occurs once."""
    low, middle, high = np.quantile(values, [0.05, 0.5, 0.95])
    far = np.abs(values - middle)
    place = int(far.argmax())
    once = (values == values[place]).sum() == 1
    return float(values[place]) if high > low and once and far[place] > _FAR * (high - low) else None
