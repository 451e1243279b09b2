"""Rows that were followed, from a table with a column for the silo, the time and the event."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedrank.core.errors import DataError, UnknownNameError
from fedrank.silos.data.files import read_columns, table_of
from fedrank.silos.data.values import as_codes, as_number
from fedrank.silos.glm.federated import references
from fedrank.silos.glm.tables import with_columns
from fedrank.silos.survival.rows import Followed


def followed_of(
    path: Path,
    silo: str,
    time: str,
    event: str,
    columns: Sequence[str] = (),
    drop: Sequence[str] = (),
    categorical: Sequence[str] = (),
    missing: Sequence[str] = (),
) -> tuple[tuple[str, ...], list[Followed], tuple[str, ...]]:
    """Names of the silos, their rows, and names of the columns, the first level of each column of levels left out.

    Args:
        path: A CSV or parquet file.
        silo: Column of the silo.
        time: Column of times.
        event: Column of events, 0 or 1.
        columns: The features to take; none: all.
        drop: Columns to leave out.
        categorical: Columns of codes.
        missing: Values that mean a missing one.

    Raises:
        UnknownNameError: There is no such column.
        DataError: Times are no numbers, or events not of two values.
    """
    read = read_columns(path, drop)
    _need(read, (silo, time, event), path)
    if any(as_number(value) is None for value in read[time] if value is not None):
        raise DataError(f"column {time!r} has values that are no numbers; times are needed.", path)
    table = table_of(read, path.name.split(".")[0], silo, event, None, drop, categorical, path, missing)
    place = table.feature_names.index(time)
    times = [one.features[:, place].astype(float) for one in table.silos]
    wanted = with_columns(table, columns)
    first = [wanted.feature_names[k] for k in references(wanted)]
    kept = [k for k, name in enumerate(wanted.feature_names) if name != time and name not in first]
    if not kept:
        raise DataError("there is no column besides the silo, the time and the event; --by draws curves.", path)
    rows = [
        Followed(one.features[:, kept].astype(float), at, one.labels.astype(float))
        for one, at in zip(wanted.silos, times, strict=True)
    ]
    return table.names, rows, tuple(wanted.feature_names[k] for k in kept)


def grouped_of(
    path: Path, silo: str, time: str, event: str, by: str
) -> tuple[tuple[str, ...], list[Followed], list[list[str]]]:
    """Names of the silos, times and events of their rows, and the group of each row; rows without a group are left out.

    Args:
        path: A CSV or parquet file.
        silo: Column of the silo.
        time: Column of times.
        event: Column of events, 0 or 1.
        by: Column of the groups.

    Raises:
        UnknownNameError: There is no such column.
        DataError: Times or events are no numbers.
    """
    read = read_columns(path)
    _need(read, (silo, time, event, by), path)
    numbers = {}
    for name in (time, event):
        numbers[name] = [np.nan if value is None else as_number(value) for value in read[name]]
        if any(value is None for value in numbers[name]):
            raise DataError(f"column {name!r} has values that are no numbers.", path)
    whose, group = as_codes(read[silo]), as_codes(read[by])
    names = tuple(sorted({one for one in whose if one is not None}))
    rows, groups = [], []
    for name in names:
        own = [k for k, one in enumerate(whose) if one == name and group[k] is not None]
        at, there = (np.array([numbers[column][k] for k in own], float) for column in (time, event))
        rows.append(Followed(np.zeros((len(own), 0)), at, there))
        groups.append([str(group[k]) for k in own])
    return names, rows, groups


def _need(read: dict[str, list[Any]], names: Sequence[str], path: Path) -> None:
    for name in names:
        if name not in read:
            raise UnknownNameError(f"column of {path.name}", name, read)
