"""Rows that were followed, from a table with a column for the silo, the time and the event."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from fedrank.core.errors import DataError, UnknownNameError
from fedrank.silos.data.coding import as_codes, numbers_of, refuse_spellings, without
from fedrank.silos.data.files import features_of, names_in, positive_of, read_columns, silo_names
from fedrank.silos.data.looks import looks_wrong
from fedrank.silos.survival.cox import Followed


class FollowedTable(NamedTuple):
    """Rows of silos that were followed.

    Attributes:
        names: Names of the silos.
        rows: Their rows; NaN where a value is missing.
        columns: Names of the columns.
        notes: What a reader of the numbers must know of the table.
        groups: Group of each row of each silo; empty without groups.
    """

    names: tuple[str, ...]
    rows: list[Followed]
    columns: tuple[str, ...]
    notes: tuple[str, ...]
    groups: list[list[str]]


def followed_of(
    path: Path,
    silo: str,
    time: str,
    event: str,
    columns: Sequence[str] = (),
    drop: Sequence[str] = (),
    categorical: Sequence[str] = (),
    missing: Sequence[str] = (),
) -> FollowedTable:
    """Rows with their columns, the first level of each column of levels left out.

    Args:
        path: A CSV or parquet file.
        silo: Column of the silo.
        time: Column of times.
        event: Column of events: 1 or true is an event, 0 or false none; of two other values the later in order is one.
        columns: The features to take; none: all.
        drop: Columns to leave out.
        categorical: Columns of codes.
        missing: Values that mean a missing one.

    Raises:
        UnknownNameError: There is no such column.
        DataError: Times are no numbers, events of more than two values, or no column is left.
    """
    read = read_columns(path, drop)
    sources = [name if name in read else name.partition("=")[0] for name in columns]  # sex=male is of column sex
    _need(read, (silo, time, event, *sources, *drop, *categorical), path)
    at, there, notes = _outcome(read, time, event, missing, path)
    wanted = [name for name in read if name not in (silo, time, event, *drop) and (not columns or name in sources)]
    if not wanted:
        raise DataError("there is no column besides the silo, the time and the event; --by draws curves.", path)
    found = features_of({name: read[name] for name in wanted}, categorical, missing, path)
    notes += found.notes
    varies = found.varies
    if not varies.all():
        gone = [name for name, keep in zip(found.names, varies, strict=True) if not keep]
        notes.append(f"Left out, as they never vary: {', '.join(gone)}.")
    # Of the levels of a column the first is what the others are compared with.
    first = [f"{column}={levels[0]}" for column, levels in found.levels.items() if len(levels) > 2]
    asked = set(columns).difference(read)
    if unknown := asked.difference(found.names):
        raise UnknownNameError(f"column of {path.name}", min(unknown), found.names)
    kept = [
        k
        for k, name in enumerate(found.names)
        if varies[k] and (name in asked or (name not in first and (not asked or name.partition("=")[0] in columns)))
    ]
    if not kept:
        raise DataError("no column varies; there is nothing to fit.", path)
    x, names = found.matrix[:, kept], tuple(found.names[k] for k in kept)
    known = ~np.isnan(there)
    notes += looks_wrong(x[known], there[known].astype(np.int8), names)
    return _by_silo(read, silo, Followed(x, at, there), names, notes, path)


def grouped_of(path: Path, silo: str, time: str, event: str, by: str, missing: Sequence[str] = ()) -> FollowedTable:
    """Times and events of rows, and the group of each row; rows without a group are left out and counted.

    Args:
        path: A CSV or parquet file.
        silo: Column of the silo.
        time: Column of times.
        event: Column of events: 1 or true is an event, 0 or false none; of two other values the later in order is one.
        by: Column of the groups.
        missing: Values that mean a missing one.

    Raises:
        UnknownNameError: There is no such column.
        DataError: Times are no numbers, or events of more than two values.
    """
    read = read_columns(path)
    _need(read, (silo, time, event, by), path)
    at, there, notes = _outcome(read, time, event, missing, path)
    group = as_codes(without(read[by], missing))
    refuse_spellings(f"column {by!r} has the groups", group, "Write each group in one way.", path)
    known = np.array([one is not None for one in group])
    if not known.all():
        notes.append(f"{int((~known).sum())} of {len(known)} rows have no group and were left out.")
    read = {silo: [value for value, keep in zip(read[silo], known, strict=True) if keep]}
    rows = Followed(np.zeros((int(known.sum()), 0)), at[known], there[known])
    return _by_silo(read, silo, rows, (), notes, path, [one for one in group if one is not None])


def _outcome(
    read: Mapping[str, Sequence[Any]], time: str, event: str, missing: Sequence[str], path: Path
) -> tuple[Float[np.ndarray, " rows"], Float[np.ndarray, " rows"], list[str]]:
    """Times and events, NaN where one is missing, and notes on how they are written."""
    if (found := numbers_of(time, without(read[time], missing), path)) is None:
        raise DataError(f"column {time!r} has values that are no numbers; times are needed.", path)
    truth = {"true": 1, "false": 0}
    codes = as_codes([truth.get(str(value).lower(), value) for value in without(read[event], missing)])
    # Of 0 and 1 the event is known, also where all rows have it or none has.
    known = set(codes) - {None}
    one = "1" if known and known <= {"0", "1"} else positive_of(codes, event, None, path, "event")
    there = np.array([np.nan if code is None else float(code == one) for code in codes])
    return found[0], there, [found[1]] if found[1] else []


def _by_silo(
    read: Mapping[str, Sequence[Any]],
    silo: str,
    rows: Followed,
    columns: tuple[str, ...],
    notes: Sequence[str],
    path: Path,
    group: Sequence[str] = (),
) -> FollowedTable:
    """Rows by silo; those without a silo are left out and counted."""
    whose = np.array([name or "" for name in silo_names(read[silo], silo, path)])
    out = list(notes)
    if lost := int((whose == "").sum()):
        out.append(f"{lost} of {len(whose)} rows have no silo and were left out.")
    names = tuple(names_in(read, silo, path))
    parts = [Followed(rows.x[own], rows.time[own], rows.event[own]) for own in (whose == name for name in names)]
    groups = [[one for one, owner in zip(group, whose, strict=False) if owner == name] for name in names]
    return FollowedTable(names, parts, columns, tuple(out), groups if len(group) else [])


def _need(read: Mapping[str, Sequence[Any]], names: Sequence[str], path: Path) -> None:
    for name in names:
        if name not in read:
            raise UnknownNameError(f"column of {path.name}", name, read)
