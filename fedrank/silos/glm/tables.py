"""Tables for generalised linear models: some of their columns, and labels that are numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from jaxtyping import Float

from fedrank.core.errors import DataError, UnknownNameError
from fedrank.silos.data.coding import as_codes, as_number, refuse_spellings, without
from fedrank.silos.data.coding import numbers_of as column_of_numbers
from fedrank.silos.data.files import read_columns, table_of
from fedrank.silos.data.tables import SiloTable

#: Most levels of a label; more are no levels.
MOST_LEVELS = 20
_PART = 0.25


def with_columns(table: SiloTable, columns: Sequence[str]) -> SiloTable:
    """The table with these columns only; a column of levels is named as a whole or by level (``sex=male``).

    Args:
        table: The silos.
        columns: Names; none: all.

    Raises:
        UnknownNameError: There is no such column; says which was probably meant.
    """
    if not columns:
        return table
    whole = {name: name.split("=")[0] for name in table.feature_names}
    for column in columns:
        if column not in whole and column not in whole.values():
            raise UnknownNameError(f"column of {table.name}", column, tuple(dict.fromkeys(whole.values())))
    kept = [k for k, name in enumerate(table.feature_names) if name in columns or whole[name] in columns]
    silos = tuple(replace(silo, features=silo.features[:, kept]) for silo in table.silos)
    return replace(table, silos=silos, feature_names=tuple(table.feature_names[k] for k in kept))


def numbers_of(
    path: Path,
    silo: str,
    label: str,
    drop: Sequence[str] = (),
    categorical: Sequence[str] = (),
    missing: Sequence[str] = (),
) -> tuple[SiloTable, list[Float[np.ndarray, " rows"]]]:
    """A table whose label is a number, and the labels of each silo.

    The reader of tables wants a label of two values; here that is whether the number lies above the mean.

    Args:
        path: A CSV or parquet file.
        silo: Column of the silo.
        label: Column of the label.
        drop: Columns to leave out.
        categorical: Columns of codes.
        missing: Values that mean a missing one.

    Raises:
        UnknownNameError: There is no such column.
        DataError: The label is not a number everywhere, or never varies.
    """
    columns = read_columns(path, drop)
    for name in (silo, label):
        if name not in columns:
            raise UnknownNameError(f"column of {path.name}", name, columns)
    if (found := column_of_numbers(label, without(columns[label], missing), path)) is None:
        raise DataError(f"label {label!r} holds text; a linear model needs a number.", path)
    numbers = [None if n != n else n for n in found[0].tolist()]
    known = np.array([n for n in numbers if n is not None], float)
    if not len(known) or known.min() == known.max():
        raise DataError(f"label {label!r} never varies; there is nothing to fit.", path)
    table, labels = _carry(path, columns, numbers, float(known.mean()), silo, label, drop, categorical, missing)
    return replace(table, notes=(*table.notes, *filter(None, [found[1]]))), labels


def levels_of(
    path: Path,
    silo: str,
    label: str,
    drop: Sequence[str] = (),
    categorical: Sequence[str] = (),
    missing: Sequence[str] = (),
) -> tuple[SiloTable, list[Float[np.ndarray, " rows"]], tuple[str, ...]]:
    """A table whose label has several levels: the table, the number of each row's level, and the levels in order.

    Args:
        path: A CSV or parquet file.
        silo: Column of the silo.
        label: Column of the label.
        drop: Columns to leave out.
        categorical: Columns of codes.
        missing: Values that mean a missing one.

    Raises:
        UnknownNameError: There is no such column.
        DataError: The label has fewer than three levels, or too many.
    """
    columns = read_columns(path, drop)
    for name in (silo, label):
        if name not in columns:
            raise UnknownNameError(f"column of {path.name}", name, columns)
    texts = as_codes(without(columns[label], missing))
    refuse_spellings(f"label {label!r} has the values", texts, "Write each value in one way.", path)
    found = sorted({text for text in texts if text is not None}, key=_in_order)
    if not 3 <= len(found) <= MOST_LEVELS:
        raise DataError(
            f"label {label!r} has {len(found)} levels; a multinomial model needs 3 to {MOST_LEVELS}. With two, take "
            "the logistic family; of a number the linear one.",
            path,
        )
    place = {text: float(k) for k, text in enumerate(found)}
    numbers = [None if text is None else place[text] for text in texts]
    # Not whole: no table has such a code for what is missing.
    columns[label] = [None if number is None else str(number + _PART) for number in numbers]
    table, labels = _carry(path, columns, numbers, 0.5, silo, label, drop, categorical, missing)
    return table, [one - _PART for one in labels], tuple(found)


def _in_order(text: str) -> tuple[float, str]:
    number = as_number(text)
    return (float("inf") if number is None else number), text


def _carry(
    path: Path,
    columns: dict,
    numbers: Sequence[float | None],
    at: float,
    silo: str,
    label: str,
    drop: Sequence[str],
    categorical: Sequence[str],
    missing: Sequence[str],
) -> tuple[SiloTable, list[Float[np.ndarray, " rows"]]]:
    """The table of a label of numbers: as a feature it passes through whatever the reader does to rows."""
    above = f"{label} above its mean"
    columns[above] = [None if n is None else str(int(n > at)) for n in numbers]
    table = table_of(columns, path.name.split(".")[0], silo, above, None, drop, categorical, missing, path=path)
    place = table.feature_names.index(label)
    labels = [silo_.features[:, place].astype(float) for silo_ in table.silos]
    kept = [k for k in range(table.n_features) if k != place]
    if not kept:
        raise DataError("there is no column besides the silo and the label; nothing to fit.", path)
    silos = tuple(replace(silo_, features=silo_.features[:, kept]) for silo_ in table.silos)
    names = tuple(table.feature_names[k] for k in kept)
    notes = tuple(
        note for note in table.notes if "above its mean" not in note and "AUC" not in note and repr(label) not in note
    )
    return replace(table, silos=silos, feature_names=names, label=label, notes=notes), labels
