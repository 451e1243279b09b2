"""A silo's noisy statistics as a file that it may send to others, and the book of what it has sent."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedrank.core.errors import ConfigError, DataError, FormatError, MissingDataError
from fedrank.core.trees import Json
from fedrank.engine.checkpoint import write_atomically
from fedrank.privacy.calibration import concentrated_epsilon
from fedrank.silos.glm import symmetric
from fedrank_zoo.noisy_statistics.ranges import Ranges
from fedrank_zoo.noisy_statistics.releases import RecordNoise, Statistics

#: What the files are, and the version that is written.
_FORMAT, _VERSION = "fedrank-silo-statistics", 2


@dataclass(frozen=True, eq=False)
class Message:
    """Message of one silo.

    Attributes:
        silo: Its name.
        label: What label 1 means.
        ranges: Public ranges of the columns.
        epsilon: ε of a record.
        delta: δ.
        statistics: The noisy sums.
    """

    silo: str
    label: str
    ranges: Ranges
    epsilon: float
    delta: float
    statistics: Statistics

    def as_json(self) -> dict[str, Json]:
        """As it stands in the file."""
        s, r = self.statistics, self.ranges
        return {
            "format": _FORMAT,
            "version": _VERSION,
            "silo": self.silo,
            "label": self.label,
            "epsilon": self.epsilon,
            "delta": self.delta,
            "rows": s.rows,
            "columns": [[n, lo, hi] for n, lo, hi in zip(r.names, r.low.tolist(), r.high.tolist(), strict=True)],
            "levels": {column: list(levels) for column, levels in r.levels.items()},
            "clip": r.clip,
            "sigma_first": s.sigma_first,
            "sigma_second": s.sigma_second,
            "first": s.first.tolist(),
            "second": s.second[np.triu_indices(len(s.first))].tolist(),
        }

    def write(self, path: Path) -> None:
        """Write the file."""
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, (json.dumps(self.as_json(), ensure_ascii=False) + "\n").encode())


def read_message(path: Path) -> Message:
    """Read what a silo sent.

    Raises:
        MissingDataError: There is no such file.
        FormatError: It is no such message, or a number in it cannot be.
    """
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
        if told["format"] != _FORMAT or told["version"] != _VERSION:
            old = "; in version 1 columns came from the rows, so that its ε does not hold" * (told["version"] == 1)
            raise ValueError(f"format {told['format']!r}, version {told['version']!r}{old}")
        names, low, high = zip(*told["columns"], strict=True)
        levels = {str(column): tuple(map(str, those)) for column, those in told["levels"].items()}
        ends = np.array(low, float), np.array(high, float)
        ranges = Ranges(tuple(map(str, names)), *ends, float(told["clip"]), levels)
        p = len(names) + 1
        first, upper = np.array(told["first"], float), np.array(told["second"], float)
        second = symmetric(upper, p)
        sigmas = float(told["sigma_first"]), float(told["sigma_second"])
        rows = int(told["rows"])
        numbers = np.concatenate([first, upper, ranges.low, ranges.high, [ranges.clip, *sigmas]])
        good = np.isfinite(numbers).all() and first.shape == (p,) and rows > 0 and min(sigmas) >= 0 < ranges.clip
        if not good or not (ranges.low < ranges.high).all() or second[0, 0] != rows:
            raise ValueError("numbers that cannot be")
        made = Statistics(first, second, rows, *sigmas)
        return Message(
            str(told["silo"]), str(told["label"]), ranges, float(told["epsilon"]), float(told["delta"]), made
        )
    except FileNotFoundError:
        raise MissingDataError("there is no such message; give the path of what a silo sent.", path) from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise FormatError(f"this is no message of fedrank silos send: {error}.", path) from error


def check_ranges(message: Message, ranges: Ranges) -> None:
    """Refuse a message that is about other columns or ranges.

    Raises:
        DataError: Says what differs.
    """
    theirs = message.ranges
    if theirs.names != ranges.names or theirs.levels != ranges.levels:
        other = sorted(set(theirs.names) ^ set(ranges.names)) or "their order or their levels"
        raise DataError(f"{message.silo} sent sums of other columns ({other}); all silos need the same.")
    same = np.array_equal(theirs.low, ranges.low) and np.array_equal(theirs.high, ranges.high)
    if not same or theirs.clip != ranges.clip:
        at = [
            n
            for n, a, b in zip(ranges.names, theirs.low != ranges.low, theirs.high != ranges.high, strict=True)
            if a or b
        ]
        raise DataError(
            f"{message.silo} used another range of {', '.join(at) or 'a row (clip)'}; agree on ranges and send again."
        )


def refuse_other_books(data: Path, column: str | None) -> None:
    """Refuse to begin a second count of a table's records, by another column of silos, or with none.

    Books beside a table each count the records of one silo. By another column a record would be of two silos, and each
    book would count it alone.

    Args:
        data: The table; its books are beside it.
        column: Its column of silos; None: all of it is of one silo.

    Raises:
        ConfigError: A book was written with another column.
        FormatError: A book cannot be read.
    """
    for book in sorted(data.absolute().parent.glob("*.sent.json")):
        if not book.name.startswith(f"{data.name}."):
            continue
        # Books of before the column was written down: the name of one by a column has a silo.
        unsaid = None if book.name == f"{data.name}.sent.json" else column or "another"
        for one in _releases(book):
            if (other := one.get("column", unsaid)) != column:
                raise ConfigError(
                    f"rows of this table were sent {_by(other)} before (see {book}), and are now to be sent "
                    f"{_by(column)}: their ε would be counted in two books. Send with the same column of silos "
                    "(--silo), or an old file again."
                )


def _by(column: str | None) -> str:
    return "as rows of one silo" if column is None else f"by column {column!r}"


def _releases(book: Path) -> list[dict[str, Any]]:
    """Releases that a book holds; empty without a book.

    Raises:
        FormatError: It cannot be read, so that what was sent is not known.
    """
    try:
        kept = json.loads(book.read_text(encoding="utf-8")) if book.exists() else []
        return [{**one, "rho": float(one["rho"])} for one in kept]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise FormatError(f"the book of releases cannot be read ({error}); nothing is sent.", book) from error


def spend(book: Path, noise: RecordNoise, delta: float, limit: float, about: Mapping[str, Any]) -> float:
    """Write a release into a table's book before it leaves; refuse one that is too many.

    Args:
        book: A file beside the table; made where there is none.
        noise: The release's noise.
        delta: δ of all releases together.
        limit: Largest ε of all of them together.
        about: What else the book says of it.

    Returns:
        ε of a record of all releases so far, this one included.

    Raises:
        ConfigError: The limit would be passed.
        FormatError: The book cannot be read, so that what was sent is not known.
    """
    kept = _releases(book)
    before = sum(one["rho"] for one in kept)
    total = concentrated_epsilon(before + noise.rho, delta)
    if total > limit * (1 + 1e-9):
        raise ConfigError(
            f"with this release the records of this table would have ε = {total:.3g} at δ = {delta:.0e} in all, and "
            f"{limit:g} is the limit (--limit). {len(kept)} were sent before; see {book}. Send an "
            "old file again instead."
        )
    kept.append({"rho": noise.rho, "epsilon": noise.epsilon, "delta": noise.delta, **about})
    write_atomically(book, (json.dumps(kept, indent=1, ensure_ascii=False) + "\n").encode())
    return total
