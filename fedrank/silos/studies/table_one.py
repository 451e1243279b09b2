"""Table 1 of a study: counts, means, deviations, quantiles and missing values of columns, by silo and group.

One round. Of a column of levels each silo sends the rows of each level, of a number the count, the sum, the sum of
squares and the counts up to the ends of the codebook's bins, of which quantiles are interpolated; of both the missing
ones. A count above 0 and below the smallest cell is not told, and of a number nothing is told in a group where fewer
rows have a value, or another value than the commonest one. Where one cell alone of a group, or of a level over the
groups, would be missing, it would follow from the others and the total, which another question may tell; so the next
smallest one is not told either. Bins are joined until none is small in any group. How many values are missing is told
as it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from fedrank.core.frame import Frame
from fedrank.core.trees import Json
from fedrank.silos.studies.codebook import Column
from fedrank.silos.studies.formula import Design
from fedrank.silos.studies.protocol import Analysis, Ask
from fedrank.silos.studies.table import Block

#: Quantiles of a number that a table shows.
QUANTILES = (0.25, 0.5, 0.75)


@dataclass(frozen=True, eq=False)
class Cell:
    """One column of one group, of one silo or of all.

    Attributes:
        silo: The silo's name; empty of all together.
        group: Level of the grouping column; empty without one.
        column: The column.
        known: Rows with a value; NaN where it is not told, like the following.
        missing: Rows without one.
        mean: Mean of a number.
        deviation: Standard deviation of a number (divisor: n − 1).
        quantiles: Of a number, at :data:`QUANTILES`.
        counts: Level -> rows of it, of a column of levels.
    """

    silo: str
    group: str
    column: str
    known: float
    missing: float
    mean: float = np.nan
    deviation: float = np.nan
    quantiles: tuple[float, ...] = ()
    counts: Mapping[str, float] | None = None


@dataclass(frozen=True, eq=False)
class TableOne:
    """Table 1: a :class:`Cell` for each silo and for all together, group and column, in this order.

    Attributes:
        cells: The cells.
        smallest_cell: Counts above 0 and below it are not told.
    """

    cells: tuple[Cell, ...]
    smallest_cell: int

    def frame(self) -> Frame:
        """A row for each silo, group, column and statistic; the value is NaN where it is not told."""
        rows: list[tuple[str, str, str, str, float]] = []
        for one in self.cells:
            told: dict[str, float] = {"missing": one.missing}
            if one.counts is None:
                told |= {"rows": one.known, "mean": one.mean, "deviation": one.deviation}
                told |= {f"quantile {q:g}": value for q, value in zip(QUANTILES, one.quantiles, strict=True)}
            else:
                told |= {f"rows of {level}": count for level, count in one.counts.items()}
            rows += [(one.silo or "all", one.group, one.column, what, value) for what, value in told.items()]
        return Frame.of_rows(rows, {"silo": str, "group": str, "column": str, "statistic": str, "value": float})

    def as_json(self) -> dict[str, Json]:
        """As JSON can hold it."""
        return {
            "smallest_cell": self.smallest_cell,
            "cells": [
                {
                    "silo": one.silo or None,
                    "group": one.group or None,
                    "column": one.column,
                    "rows": finite(one.known),
                    "missing": finite(one.missing),
                    **(
                        {"counts": {level: finite(count) for level, count in one.counts.items()}}
                        if one.counts is not None
                        else {
                            "mean": finite(one.mean),
                            "deviation": finite(one.deviation),
                            "quantiles": {f"{q:g}": finite(v) for q, v in zip(QUANTILES, one.quantiles, strict=True)},
                        }
                    ),
                }
                for one in self.cells
            ],
        }


def count_columns(design: Design, blocks: Iterable[Block]) -> Float[np.ndarray, " numbers"]:
    """A silo's half: its numbers, NaN where a cell is too small to be told.

    Args:
        design: Columns, and the groups after ``|``.
        blocks: The silo's rows.
    """
    book = design.codebook
    groups, columns = _groups(design), _columns(design)
    sizes = [_size(column) for column in columns]
    sums = [[np.zeros(size) for size in sizes] for _ in groups]
    usual = [_Usual(len(groups)) for _ in columns]
    for block in blocks:
        used = design.complete(block)
        whose = block[design.by] if design.by else np.zeros(len(used))
        for g in range(len(groups)):
            own = whose == g
            for column, into, alike in zip(columns, sums[g], usual, strict=True):
                values = block[column.name]
                into += _count(values[own & used], column)
                into[0] += int(np.isnan(values[own]).sum())
                alike.see(g, values[own & used])
    told = [
        _suppress(np.array(of), column, alike, book.rules.smallest_cell)
        for of, column, alike in zip(zip(*sums, strict=True), columns, usual, strict=True)
    ]
    return np.concatenate([numbers[g] for g in range(len(groups)) for numbers in told])


def table_one(design: Design) -> Analysis[TableOne]:
    """The server's half."""
    answers = yield Ask("counts")
    groups, columns = _groups(design), _columns(design)
    sizes = [_size(column) for column in columns]
    cells = []
    together = np.sum(list(answers.values()), axis=0)  # NaN where a silo does not tell
    for silo, numbers in {**answers, "": together}.items():
        parts = iter(np.split(numbers, np.cumsum(sizes * len(groups))[:-1]))
        cells += [_cell(silo, group, column, next(parts)) for group in groups for column in columns]
    return TableOne(tuple(cells), design.codebook.rules.smallest_cell)


def _groups(design: Design) -> tuple[str, ...]:
    return design.codebook.column(design.by).levels if design.by else ("",)


def _columns(design: Design) -> list[Column]:
    return [design.codebook.column(name) for name in design.factors if name != design.codebook.site]


def _size(column: Column) -> int:
    """Length of what a silo sends of a column and group: missing rows, then counts, or moments and a histogram."""
    return 1 + len(column.levels) if column.levels else 4 + len(column.grid())


def _count(values: Float[np.ndarray, " rows"], column: Column) -> Float[np.ndarray, " numbers"]:
    """0, and the counts of levels, or count, moments and histogram of a number."""
    known = values[~np.isnan(values)]
    if column.levels:
        return np.concatenate([[0.0], np.bincount(known.astype(int), minlength=len(column.levels))])
    middle = (column.low + column.high) / 2
    bins = np.bincount(np.searchsorted(column.grid(), known, side="left"), minlength=len(column.grid()))
    return np.concatenate([[0.0, len(known), (known - middle).sum(), ((known - middle) ** 2).sum()], bins])


class _Usual:
    """The commonest value of a column in each group, and the number of rows with another one."""

    def __init__(self, groups: int):
        self.value: dict[int, float] = {}
        self.others = np.zeros(groups)

    def see(self, group: int, values: Float[np.ndarray, " rows"]) -> None:
        """Count the rows of a block; a value that more than half of the rows have is their median."""
        known = values[~np.isnan(values)]
        if not len(known):
            return
        if group not in self.value:
            self.value[group] = float(np.median(known))
        self.others[group] += (known != self.value[group]).sum()


def _suppress(
    numbers: Float[np.ndarray, "groups numbers"], column: Column, usual: _Usual, least: int
) -> Float[np.ndarray, "groups numbers"]:
    """The numbers of a column that may be told, NaN in place of the others; histograms as counts up to a bin's end."""
    missing, rest = numbers[:, :1], numbers[:, 1:]
    if column.levels:
        return np.hstack([missing, np.where(_find_hidden(rest, least), np.nan, rest)])
    small = (rest[:, 0] > 0) & ((rest[:, 0] < least) | ((usual.others > 0) & (usual.others < least)))
    hidden = _hide_second(small, rest[:, 0])
    bins = rest[:, 3:]
    # Of the groups that are hidden the sum may follow from the other groups and the total.
    parts = np.vstack([bins[~hidden], bins[hidden].sum(axis=0)])
    up_to = np.where(_find_ends(parts[parts.sum(axis=1) >= least], least), bins.cumsum(axis=1), np.nan)
    return np.hstack([missing, np.where(hidden[:, None], np.nan, np.hstack([rest[:, :3], up_to]))])


def _find_hidden(counts: Float[np.ndarray, "groups levels"], least: int) -> Bool[np.ndarray, "groups levels"]:
    """The counts that are not told: small ones, and others until no row or column of the table hides one alone."""
    hidden = (counts > 0) & (counts < least)
    while True:
        before = hidden.copy()
        for row, own in zip(hidden, counts, strict=True):
            row[:] = _hide_second(row, own)
            if row.sum() == 1:  # all others are 0: with them the total would be the count
                row[:] = True
        for level in range(counts.shape[1] if len(counts) > 1 else 0):
            hidden[:, level] = _hide_second(hidden[:, level], counts[:, level])
        if (hidden == before).all():
            return hidden


def _hide_second(hidden: Bool[np.ndarray, " cells"], counts: Float[np.ndarray, " cells"]) -> Bool[np.ndarray, " cells"]:
    """Cells that are hidden; where that is one, the smallest of the others goes as well."""
    others = np.where(hidden | (counts == 0), np.inf, counts)
    if hidden.sum() != 1 or not np.isfinite(others).any():
        return hidden
    return hidden | (np.arange(len(counts)) == np.argmin(others))


def _find_ends(bins: Float[np.ndarray, "groups bins"], least: int) -> Bool[np.ndarray, " bins"]:
    """Bins up to whose ends counts are told: from one end to the next no group has above 0 and below ``least`` rows."""
    total, told, last, kept = np.cumsum(bins, axis=1), np.zeros(bins.shape[1], bool), np.zeros(len(bins)), []

    def is_small(step: Float[np.ndarray, " groups"]) -> bool:
        return bool(((step > 0) & (step < least)).any())

    for k, up_to in enumerate(total.T):
        if not is_small(up_to - last):
            last = up_to
            kept.append(k)
    while kept and is_small(total[:, -1] - total[:, kept[-1]]):  # a small rest at the end joins the bins before it
        kept.pop()
    told[kept] = told[-1] = True
    return told


def _cell(silo: str, group: str, column: Column, numbers: np.ndarray) -> Cell:
    missing = float(numbers[0])
    if column.levels:
        counts = dict(zip(column.levels, map(float, numbers[1:]), strict=True))
        return Cell(silo, group, column.name, float(np.sum(numbers[1:])), missing, counts=counts)
    n, total, squares = map(float, numbers[1:4])
    middle = (column.low + column.high) / 2
    mean, deviation = np.nan, np.nan
    if n > 0:
        mean = middle + total / n
    if n > 1:
        deviation = float(np.sqrt(max(0.0, squares - total**2 / n) / (n - 1)))
    return Cell(silo, group, column.name, n, missing, mean, deviation, _quantiles(column, numbers[4:]))


def _quantiles(column: Column, up_to: np.ndarray) -> tuple[float, ...]:
    """Quantiles by a straight line between the ends of bins whose counts are told."""
    known = ~np.isnan(up_to)
    if not known.any() or not up_to[known][-1] > 0:
        return (np.nan,) * len(QUANTILES)
    ends = np.concatenate([[column.low], column.grid()[known]])
    counts = np.concatenate([[0.0], up_to[known]])
    rising = np.concatenate([np.diff(counts) > 0, [True]])  # of a flat part the right end
    rising[0] |= len(counts) == 1
    return tuple(float(np.interp(q * counts[-1], counts[rising], ends[rising])) for q in QUANTILES)


def finite(value: Any) -> Json:
    """A number as JSON can hold it: None for NaN and infinity."""
    return None if isinstance(value, float) and not np.isfinite(value) else value
