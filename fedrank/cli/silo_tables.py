"""Flags that say what the columns of a table of silos mean, and the table that they name."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Annotated, Any

from cyclopts import Parameter

from fedrank.core.fields import setting

#: Public ranges of columns of numbers, and levels of columns of names.
Ranges = Annotated[tuple[str, ...], Parameter(name="--range", consume_multiple=True, negative="")]
Levels = Annotated[tuple[str, ...], Parameter(name="--levels", consume_multiple=True, negative="")]


@dataclass(frozen=True, kw_only=True)
class Columns:
    """The meaning of the columns of a table."""

    silo: str = setting("silo", "Column that says whose row it is.")
    drop: tuple[str, ...] = setting((), "Columns that are no features, such as an id.")
    categorical: tuple[str, ...] = setting((), "Columns of numbers that are names, one feature a value.")
    missing: tuple[str, ...] = setting((), "Values that mean a missing one, such as −9 or 999.")


@dataclass(frozen=True, kw_only=True)
class LabelledColumns(Columns):
    """The meaning of the columns of a table with a label."""

    label: str = setting("label", "Column with the label.")
    positive: str | None = setting(None, "Value of the label that counts as 1.")


def table_of(data: str, columns: LabelledColumns) -> Any:
    """The silos of a file or of a set's name; gaps stay gaps.

    Args:
        data: The file, or the name of a set.
        columns: What its columns mean.

    Raises:
        FedrankError: There is no such data, or no such column.
    """
    from fedrank.data import load

    return load(data, "silos", gaps="impute", **asdict(columns))
