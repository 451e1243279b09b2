"""Flags that say what the columns of a table of silos mean, and the table that they name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from fedrank.core.errors import ConfigError
from fedrank.core.fields import setting

#: Public ranges of columns of numbers, and levels of columns of names.
Ranges = Annotated[tuple[str, ...], Parameter(name="--range", consume_multiple=True, negative="")]
Levels = Annotated[tuple[str, ...], Parameter(name="--levels", consume_multiple=True, negative="")]


@dataclass(frozen=True, kw_only=True)
class Public:
    """Public knowledge of the columns of a table."""

    range_: Ranges = setting((), "Public range of a column of numbers, such as age=0:110.")
    levels: Levels = setting((), "Public levels of a column of names, such as sex=f,m.")
    codebook: Path | None = setting(None, "Codebook of a study: its ranges and levels, in place of the two above.")
    clip: float | None = setting(None, "Largest length of a row, in half ranges; the same at all silos.")

    @property
    def is_given(self) -> bool:
        """True if ranges of numbers are public knowledge."""
        return bool(self.range_) or self.codebook is not None

    def of(self, names: Sequence[str]) -> Any:
        """The :class:`~fedrank.silos.records.ranges.Ranges` of columns.

        Raises:
            ConfigError: There are both a codebook and ranges or levels.
        """
        from fedrank.silos.records.ranges import parse_ranges, parsed_levels, ranges_of
        from fedrank.silos.studies.codebook import read_codebook

        if self.codebook is not None:
            if self.range_ or self.levels:
                raise ConfigError("ranges and levels are those of the codebook; leave --range and --levels out.")
            about = [one for name, one in read_codebook(self.codebook).columns.items() if name in names]
            given = {one.name: (one.low, one.high) for one in about if one.range}
            levels = {one.name: one.levels for one in about if one.levels}
            return ranges_of(names, given, self.clip, levels)
        return ranges_of(names, parse_ranges(self.range_), self.clip, parsed_levels(self.levels))


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


def table_of(data: str, columns: LabelledColumns, **more: Any) -> Any:
    """The silos of a file or of a set's name; gaps stay gaps.

    Args:
        data: The file, or the name of a set.
        columns: What its columns mean.
        more: Further settings of :func:`fedrank.data.load`.

    Raises:
        FedrankError: There is no such data, or no such column.
    """
    from fedrank.data import load

    return load(data, "silos", gaps="impute", **asdict(columns), **more)
