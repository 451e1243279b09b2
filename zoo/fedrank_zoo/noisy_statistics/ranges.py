"""Columns, ranges and levels that are public before any row is read, and rows brought into a ball by them.

What one record can change is bounded only if its values are. The bounds must not come from the rows: the largest age
of a hospital's patients is one patient's age, and a level that one patient has would be one more column. They are those
of a codebook, a device, or a convention. A value outside them is moved to the end of its range or counts as missing;
it is not refused, as a refusal would depend on a record.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from fedrank.core.errors import ConfigError, DataError, UnknownNameError
from fedrank.silos.data.coding import Coding, as_codes, cell_number, without
from fedrank.silos.records.ranges import check_ranges
from fedrank.silos.sceptic.learners import Own

#: Length of a row, as a share of the longest that there can be, beyond which it is shortened.
_CLIP = 0.6


class Ranges(NamedTuple):
    """Public ranges of columns.

    Attributes:
        names: Names of the columns; that of a level is ``column=level``.
        low: Smallest values.
        high: Largest values.
        clip: Largest length of a row in units of half a range; longer ones are shortened to it.
        levels: Column of names -> its levels.
    """

    names: tuple[str, ...]
    low: Float[np.ndarray, " columns"]
    high: Float[np.ndarray, " columns"]
    clip: float
    levels: Mapping[str, tuple[str, ...]] = {}

    def scale_rows(self, x: Float[np.ndarray, "rows columns"]) -> Float[np.ndarray, "rows columns"]:
        """Inputs of a network, as a run scales them; 0 for what is missing."""
        return np.nan_to_num((x - (self.low + self.high) / 2) / ((self.high - self.low) / 4), nan=0.0)

    def rows(self, x: Float[np.ndarray, "rows columns"]) -> Float[np.ndarray, "rows columns+1"]:
        """Rows with a one in front, each column from −1 to 1, and no row but for the one longer than ``clip``.

        What is missing becomes the middle of its range: a silo's own mean would depend on all of its records.
        """
        middle, half = (self.high + self.low) / 2, (self.high - self.low) / 2
        made = np.nan_to_num((np.clip(x, self.low, self.high) - middle) / half, nan=0.0)
        length = np.linalg.norm(made, axis=1, keepdims=True)
        return np.column_stack([np.ones(len(x)), made * np.minimum(1.0, self.clip / np.maximum(length, 1e-12))])


def ranges_of(
    names: Sequence[str],
    given: Mapping[str, tuple[float, float]],
    clip: float | None = None,
    levels: Mapping[str, tuple[str, ...]] | None = None,
) -> Ranges:
    """The ranges of a table's columns.

    Args:
        names: Its columns; one that is a level already, such as ``sex=male``, is 0 or 1.
        given: Smallest and largest value of each column of numbers.
        clip: Largest length of a row, in half ranges; None: three fifths of the square root of the number of columns,
            which cuts few rows whose values lie about the middle.
        levels: Levels of each column of names; it becomes a column of 0 and 1 a level, of two levels one column.

    Raises:
        UnknownNameError: A range or levels are of no column.
        ConfigError: A column has none, or both; a range or levels are none, or ``clip`` is not above 0.
    """
    levels = {} if levels is None else dict(levels)
    check_ranges(names, given)
    for name, those in levels.items():
        if name not in names:
            raise UnknownNameError("column with levels", name, names)
        if name in given or len(set(those)) < max(2, len(those)) or not all(those):
            raise ConfigError(f"{name!r} needs a range or two or more different levels, got {', '.join(those)!r}.")
    unknown = [name for name in names if name not in given and name not in levels and "=" not in name]
    if unknown:
        raise ConfigError(
            f"record-level privacy needs a range or the levels of every column, and there is none of "
            f"{', '.join(unknown)}. Give what the codebook says, such as --range {unknown[0]}=0:100 for numbers or "
            f"--levels {unknown[0]}=a,b,c for names, or leave it out (--drop {unknown[0]}); do not look it up in the "
            "rows, which would tell what is in them."
        )
    ends: dict[str, tuple[float, float]] = {}
    for name in names:
        if name in levels:
            own = levels[name][1:] if len(levels[name]) == 2 else levels[name]
            ends |= {f"{name}={level}": (0.0, 1.0) for level in own}
        else:
            ends[name] = given.get(name, (0.0, 1.0))
    longest = _CLIP * float(np.sqrt(len(ends))) if clip is None else clip
    if not 0 < longest < np.inf:
        raise ConfigError(f"clip must be above 0 and finite, got {longest:g}.")
    low, high = (np.array(one, float) for one in zip(*ends.values(), strict=True))
    return Ranges(tuple(ends), low, high, longest, levels)


@dataclass(frozen=True, eq=False)
class PublicRows:
    """A silo's rows in public columns.

    Attributes:
        own: Features and labels; a label is ½ where it is missing. There is a row for each record.
        notes: How many values were outside their ranges and levels: for the silo alone, as it is about records.
    """

    own: Own
    notes: tuple[str, ...] = field(repr=False)


def public_rows(
    columns: Mapping[str, Sequence[Any]],
    ranges: Ranges,
    *,
    silo: str,
    of: str,
    label: str,
    positive: str,
    missing: Sequence[str] = (),
) -> PublicRows:
    """A silo's rows, each cell read by itself, so that no record changes how another one is read.

    Args:
        columns: The table's columns by name, None where a value is missing.
        ranges: The public columns.
        silo: Column of the silo; a table without it is of one silo.
        of: The silo whose rows are taken. A row without a silo is one of them in number, but all of it counts as
            missing: each silo's message would have it, and each silo's book would count it alone.
        label: Column of the label.
        positive: The value of the label that is 1; every other one is 0.
        missing: Values that mean a missing one.

    Raises:
        DataError: A column is missing, or no row is of the silo.
    """
    if label not in columns:
        raise UnknownNameError("column", label, columns)
    notes: list[str] = []
    whose = as_each(columns[silo]) if silo in columns else [None] * len(columns[label])
    (name,) = as_each([of])
    kept = [row for row, owner in enumerate(whose) if owner is None or owner == name]
    if not kept or (silo in columns and name not in whose):
        raise DataError(f"no row is of silo {of!r} in column {silo!r}.")
    if silo in columns and (count := sum(owner is None for owner in whose)):
        notes.append(f"{count} rows have no silo: nothing of them is taken, they count as rows of missing values.")
        columns = {
            column: [None if owner is None else value for value, owner in zip(values, whose, strict=True)]
            for column, values in columns.items()
        }
    sources = Coding(ranges.levels).sources(ranges.names, list(columns))
    cells = {name: without(columns[name], missing) for name in {column for column, _ in sources.values()}}
    out = []
    for number, (column, level) in enumerate(sources.values()):
        values = [cells[column][row] for row in kept]
        there = np.array([value is not None for value in values])
        if level is None:
            found = np.array([np.nan if v is None or (n := cell_number(v)) is None else n for v in values], float)
            odd = int((there & np.isnan(found)).sum())
            outside = int(((found < ranges.low[number]) | (found > ranges.high[number])).sum())
            notes += [f"{odd} values of {column} are no numbers and count as missing."] * bool(odd)
            notes += [f"{outside} values of {column} lie outside its range and count as its end."] * bool(outside)
        else:
            codes, those = as_each(values), as_each(ranges.levels[column])
            (mine,) = as_each([level])
            found = np.array([float(code == mine) if code in those else np.nan for code in codes])
            odd = sum(code is not None and code not in those for code in codes)
            note = f"{odd} values of {column} are none of its levels and count as missing."
            notes += [note] * (bool(odd) and note not in notes)
        out.append(found)
    (one,) = as_each([positive])
    labels = [as_each([columns[label][row]])[0] for row in kept]
    y = np.array([0.5 if what is None else float(what == one) for what in labels])
    if unlabelled := int((y == 0.5).sum()):
        notes.append(f"{unlabelled} rows have no label and count as half of each.")
    return PublicRows(Own(np.stack(out, axis=1), y), tuple(notes))


def as_each(values: Sequence[Any]) -> list[str | None]:
    """Values as names, each by itself: 1 and 1.0 are one name whatever else is there."""
    return [as_codes([value])[0] for value in values]


def parsed_levels(texts: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Levels as a command line has them: ``ward=A,B,C``.

    Raises:
        ConfigError: One cannot be read.
    """
    out = {}
    for text in texts:
        name, _, levels = text.partition("=")
        if not name or not levels:
            raise ConfigError(f"levels are written as column=a,b,c, such as sex=f,m; got {text!r}.")
        out[name] = tuple(level.strip() for level in levels.split(","))
    return out
