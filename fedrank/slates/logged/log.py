"""A platform's log: what it showed, with which probability, and what that earned.

The form is that of the Open Bandit Dataset (Saito et al., NeurIPS Datasets and Benchmarks 2021): comma-separated text
with a line of names, and a row for each item that was shown::

    timestamp, item_id, position, click, propensity_score

``propensity_score`` is the probability with which the platform showed this item at this position. ``position`` and
``timestamp`` may be missing: one position then, and the order of the file. Other columns are passed over.
"""

from __future__ import annotations

import dataclasses
import io
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
from jaxtyping import Bool, Float64, Int64, Shaped

from fedrank.core.errors import DataError, FormatError, MissingDataError
from fedrank.data.lines import unpacked

ITEM, POSITION, CLICK, PROPENSITY, TIME = "item_id", "position", "click", "propensity_score", "timestamp"
#: Columns that a log must have.
NEEDED = (ITEM, CLICK, PROPENSITY)
#: Endings of the files of a folder that are tried.
_ENDINGS = (".csv", ".csv.gz", ".csv.bz2", ".csv.xz")
#: Most pairs of item and position, so that tables of them fit into the memory.
MOST_CELLS = 10_000_000


@dataclass(frozen=True, eq=False)
class Log:
    """What one platform logged, in the order of time.

    Attributes:
        name: The platform.
        items: What was shown, places in ``item_ids``.
        positions: Where, places in ``position_ids``.
        rewards: What it earned: 1 for a click, 0 for none, or any number.
        propensity: The probability with which the platform showed it there, in (0, 1].
        item_ids: Identifiers of the items, ascending.
        position_ids: Identifiers of the positions, ascending.

    Raises:
        DataError: There is no row, columns differ in length, or a number is out of range.
    """

    name: str
    items: Int64[np.ndarray, " rows"]
    positions: Int64[np.ndarray, " rows"]
    rewards: Float64[np.ndarray, " rows"]
    propensity: Float64[np.ndarray, " rows"]
    item_ids: Shaped[np.ndarray, " items"]
    position_ids: Shaped[np.ndarray, " positions"]

    def __post_init__(self):
        n = len(self.items)
        if not n or any(len(part) != n for part in (self.positions, self.rewards, self.propensity)):
            raise DataError(f"log {self.name}: needs columns of one length with at least one row.")
        cells = len(self.item_ids) * len(self.position_ids)
        if not 1 <= cells <= MOST_CELLS:
            raise DataError(f"log {self.name}: items times positions must be in 1..{MOST_CELLS:,}, got {cells:,}.")
        for what, values, good, should in (
            (ITEM, self.items, _within(self.items, self.item_ids), "a place in item_ids"),
            (POSITION, self.positions, _within(self.positions, self.position_ids), "a place in position_ids"),
            (CLICK, self.rewards, np.isfinite(self.rewards), "finite"),
            (PROPENSITY, self.propensity, (self.propensity > 0) & (self.propensity <= 1), "above 0 and at most 1"),
        ):
            _all_good(self.name, what, values, good, should)

    def __len__(self) -> int:
        return len(self.items)

    def part(self, rows: slice | Int64[np.ndarray, " some"] | Bool[np.ndarray, " rows"]) -> Log:
        """Some of the rows."""
        return dataclasses.replace(
            self,
            items=self.items[rows],
            positions=self.positions[rows],
            rewards=self.rewards[rows],
            propensity=self.propensity[rows],
        )


def _within(places: np.ndarray, ids: np.ndarray) -> Bool[np.ndarray, " rows"]:
    return (places >= 0) & (places < len(ids))


def _all_good(name: str, what: str, values: np.ndarray, good: Bool[np.ndarray, " rows"], should: str) -> None:
    if not good.all():
        row = int(np.flatnonzero(~good)[0])
        raise DataError(f"log {name}: {what} must be {should}, got {values[row]} in row {row + 1}.")


def read_logs(paths: Iterable[str | os.PathLike[str]]) -> tuple[Log, ...]:
    """The logs of platforms that show the same items, one a file.

    Args:
        paths: Files, plain or packed; of a folder, all files with the columns of a log. A platform is named after its
            file. Items and positions are numbered over all of them: identifiers that are numbers in their order.

    Raises:
        DataError: A file is no log; says which line and why.
    """
    files: list[Path] = []
    for path in map(Path, paths):
        files += _logs_of(path) if path.is_dir() else [path]
    if not files:
        raise MissingDataError("give at least one log: a file, or a folder with some.")
    frames = [_frame(file) for file in files]
    names = [file.name.split(".csv")[0] for file in files]
    if len(set(names)) < len(names):
        names = [str(file) for file in files]
    items, item_ids = _numbered([frame[ITEM] for frame in frames])
    positions, position_ids = _numbered([frame[POSITION] for frame in frames])
    return tuple(
        Log(
            name,
            items[place],
            positions[place],
            frame[CLICK].cast(pl.Float64).to_numpy(),
            frame[PROPENSITY].cast(pl.Float64).to_numpy(),
            item_ids,
            position_ids,
        )
        for place, (name, frame) in enumerate(zip(names, frames, strict=True))
    )


def _logs_of(folder: Path) -> list[Path]:
    found = []
    for file in sorted(folder.iterdir()):
        if file.name.endswith(_ENDINGS) and file.is_file():
            head = next(iter(unpacked(file)), b"").decode(errors="replace")
            if set(NEEDED) <= {name.strip().strip('"') for name in head.split(",")}:
                found.append(file)
    if not found:
        raise MissingDataError(f"no file of the folder has the columns {', '.join(NEEDED)}.", folder)
    return found


def _frame(file: Path) -> pl.DataFrame:
    """The columns of a log in the order of time."""
    text = b"".join(unpacked(file))
    try:
        names = pl.read_csv(io.BytesIO(text), n_rows=0).columns
        wanted = [name for name in (TIME, ITEM, POSITION, CLICK, PROPENSITY) if name in names]
        frame = pl.read_csv(io.BytesIO(text), columns=wanted, infer_schema_length=10_000)
    except pl.exceptions.PolarsError as cause:
        raise FormatError(f"is no table of commas: {str(cause).splitlines()[0]}", file) from cause
    if missing := [name for name in NEEDED if name not in names]:
        raise FormatError(f"a log needs the columns {', '.join(NEEDED)}; there is no {', '.join(missing)}.", file, 1)
    if frame.is_empty():
        raise FormatError("there is no row under the names of the columns.", file, 1)
    for name in wanted:
        kind, gaps = frame[name].dtype, frame[name].null_count()
        if gaps:
            raise FormatError(f"column {name} must have a value in every row; {gaps} rows have none.", file)
        if name in (CLICK, PROPENSITY) and not (kind.is_numeric() or kind == pl.Boolean):
            raise FormatError(f"column {name} must have numbers, got values of type {kind}.", file)
    if POSITION not in names:
        frame = frame.with_columns(pl.lit(1).alias(POSITION))
    return frame.sort(TIME, maintain_order=True) if TIME in names else frame


def _numbered(columns: Sequence[pl.Series]) -> tuple[list[Int64[np.ndarray, " rows"]], Shaped[np.ndarray, " ids"]]:
    """Columns of identifiers as places in the list of all, and that list; identifiers that are no numbers are text."""
    if all(column.dtype.is_integer() for column in columns):
        values = [column.to_numpy() for column in columns]
    else:
        values = [column.cast(pl.String).to_numpy().astype(str) for column in columns]
    ids = np.unique(np.concatenate(values))
    return [np.searchsorted(ids, one) for one in values], ids
