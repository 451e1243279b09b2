"""Values of a table's cells, as numbers or as names, and how columns become features: of other rows the same ones."""

from __future__ import annotations

import re
import shlex
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from fedrank.core.errors import DataError
from fedrank.core.trees import Json

#: Numbers with a decimal comma, or with points between thousands; and those with commas between thousands.
_COMMA = re.compile(r"[+-]?(\d+|\d{1,3}(\.\d{3})+)(,\d+)?")
_POINT = re.compile(r"[+-]?(\d+|\d{1,3}(,\d{3})+)(\.\d+)?")
#: What has a number in it, and a sign that says that it is one: a bound, a share, a measured value.
_NEARLY = re.compile(r"[<>=≤≥~≈±+-]*\s*\d[\d.,]*\s*%?")
_DATE = re.compile(
    r"^\d{4}([-/.])\d{1,2}\1\d{1,2}([T ].*)?$|^\d{1,2}([-./])\d{1,2}\3\d{2,4}$"
    r"|^\d{1,2}[-./ ]+[^\W\d]{3,}[-./, ]+\d{2,4}$|^[^\W\d]{3,}[-./ ]+\d{1,2}[-./, ]+\d{4}$"
)
#: Largest number that a network can take.
LARGEST = float(np.finfo(np.float32).max)
#: Values that an error names.
_VALUES_SHOWN = 5


def as_number(value: Any) -> float | None:
    """The number that a value is, also one written as text; None if it is not one. True and False are not numbers."""
    if isinstance(value, bool):
        return None
    if isinstance(value, str):
        if "_" in value:  # Python reads 1_2 as 12, and no table means that
            return None
        value = value.replace("\N{MINUS SIGN}", "-")
    try:
        return float(value)
    except (TypeError, ValueError):
        return None


def cell_number(value: Any) -> float | None:
    """The number that one cell is, read without a look at any other: with a decimal comma, grouped digits or a %.

    None where it may be several numbers, such as 1,204, or is none.

    >>> [cell_number(text) for text in ("1.204,5", "1,204.5", "−3", "95 %", "1,204", "<0.3")]
    [1204.5, 1204.5, -3.0, 95.0, None, None]
    """
    if isinstance(value, bool):
        return float(value)
    if (number := as_number(value)) is not None or not isinstance(value, str):
        return number
    text = _plain(value)
    read = {number for way in (_with_comma, _with_point) if (number := way(text)) is not None}
    return read.pop() if len(read) == 1 else None


def is_date(values: Sequence[Any]) -> bool:
    """True if a column has a date written as text."""
    return any(isinstance(value, str) and _DATE.match(value) for value in values)


def numbers_of(
    name: str, values: Sequence[Any], path: Path | None = None
) -> tuple[Float[np.ndarray, " rows"], str] | None:
    """A column as numbers, NaN where one is missing, and a note on how it is written; None where it holds text alone.

    Decimal commas, grouped digits, minus signs of typography and percent signs are read where the whole column allows
    one reading.

    Args:
        name: Name of the column.
        values: Its cells, None where one is missing.
        path: The file, for errors.

    Raises:
        DataError: It holds dates, a number that is not finite, numbers beside text, or numbers that may be read in two
            ways; says which.
    """
    if is_date(values):
        raise DataError(
            f"column {name!r} holds dates, such as {next(v for v in values if is_date([v]))!r}; leave it out "
            f"({write_flag('drop', name)}), or write a number in its place, such as days since the first visit.",
            path,
        )
    if (found := _read(name, values, path)) is None:
        return None
    numbers, note = found
    column = np.array([np.nan if number is None else number for number in numbers], float)
    wrong = np.array([value is not None for value in values], bool) & ~(np.abs(column) <= LARGEST)
    if wrong.any():
        row = int(np.flatnonzero(wrong)[0])
        raise DataError(
            f"column {name!r} has the value {values[row]!r} in row {row + 1}, which is no finite "
            f"number of 32 bits (at most {LARGEST:.1e}). Mend it, leave it empty, or drop the column.",
            path,
        )
    return column, note


def _read(name: str, values: Sequence[Any], path: Path | None) -> tuple[list[float | None], str] | None:
    """The numbers of a column and a note on how they are written; None where it holds text alone."""
    numbers = [None if value is None else as_number(value) for value in values]
    known = [value for value in values if value is not None]
    if len(known) == sum(number is not None for number in numbers):
        return numbers, ""
    texts = [None if value is None else _plain(str(value)) for value in values]
    plain = [text for text in texts if text is not None]
    shares = [value for value in known if str(value).strip().endswith("%")]
    if len(shares) in (0, len(known)):
        ways = [way for way in (_with_comma, _with_point) if all(way(text) is not None for text in plain)]
        twofold = [k for k, text in enumerate(plain) if len({way(text) for way in ways}) > 1]
        if twofold:
            raise DataError(
                f"column {name!r} has {known[twofold[0]]!r}, in which the comma may be a decimal one or stand between "
                "thousands. Write its numbers with a decimal point, or say that they are names "
                f"({write_flag('categorical', name)}).",
                path,
            )
        if ways:
            commas = ways[0] is _with_comma and any("," in text for text in plain)
            said = ["decimal commas"] * commas + ["percent signs"] * bool(shares) or ["digits in groups"]
            note = f"Column {name!r} has {' and '.join(said)} and was read as numbers."
            return [None if text is None else ways[0](text) for text in texts], note
    odd = [value for value in known if as_number(value) is None]
    if not shares:  # by the way of writing that fits most of the others
        ways = [[v for v in known if way(_plain(str(v))) is None] for way in (_with_point, _with_comma)]
        odd = min(ways, key=len)
    if len(odd) == len(known) and not any(_NEARLY.fullmatch(text) for text in plain):
        return None
    row = values.index(odd[0]) + 1
    raise DataError(
        f"column {name!r} has numbers and text: {len(odd)} of {len(known)} values are no plain numbers, the first in "
        f"row {row}: {quote_names(dict.fromkeys(map(str, odd)))}. Write numbers in their place; where they mean a "
        f"missing value, say so ({write_flag('missing', odd[0])}); where the column holds names, say that "
        f"({write_flag('categorical', name)}).",
        path,
    )


def _plain(text: str) -> str:
    """A text without a typographic minus, a percent sign, and spaces between digits."""
    text = text.strip().replace("\N{MINUS SIGN}", "-").removesuffix("%").strip()
    return re.sub(r"(?<=\d)[\N{NO-BREAK SPACE}\N{NARROW NO-BREAK SPACE}\N{THIN SPACE} '](?=\d{3}(\D|$))", "", text)


def _with_comma(text: str) -> float | None:
    """The number with a decimal comma and points between thousands."""
    return float(text.replace(".", "").replace(",", ".")) if _COMMA.fullmatch(text) else None


def _with_point(text: str) -> float | None:
    """The number with a decimal point and commas between thousands."""
    return float(text.replace(",", "")) if _POINT.fullmatch(text) else as_number(text)


def without(values: Sequence[Any], missing: Sequence[str]) -> Sequence[Any]:
    """A column with None where a value is one of those that mean a missing one: −9 and −9.0 are one."""
    if not missing:
        return values
    gone, numbers = set(missing), {number for one in missing if (number := as_number(one)) is not None}
    return [None if v is not None and (str(v) in gone or as_number(v) in numbers) else v for v in values]


def as_codes(values: Sequence[Any]) -> list[str | None]:
    """Values as names; if all are numbers, 1 and 1.0 get the same name."""
    numbers = [None if v is None else as_number(v) for v in values]
    all_numbers = all(n is not None or v is None for n, v in zip(numbers, values, strict=True))
    # Beyond 2^53, and for infinity and NaN, a float would merge what differs.
    if all_numbers and all(n is None or abs(n) < 2**53 for n in numbers):
        return [None if n is None else repr(int(n)) if n.is_integer() else repr(n) for n in numbers]
    return [None if v is None else str(v) for v in values]


def refuse_spellings(what: str, names: Iterable[str | None], mend: str, path: Path | None = None) -> None:
    """Refuse names that differ in capitals, spaces or the way accents are stored, which are most likely one.

    Args:
        what: What they are, to begin a sentence.
        names: The names.
        mend: What to do, as a sentence.
        path: The file, for errors.

    Raises:
        DataError: Names two of them.
    """
    seen: dict[str, str] = {}
    for name in sorted({name for name in names if name is not None}):
        key = " ".join(unicodedata.normalize("NFKC", name).casefold().split())
        if key in seen:
            raise DataError(f"{what} {seen[key]!r} and {name!r}, which differ in spelling alone. {mend}", path)
        seen[key] = name


def refuse_levels(name: str, levels: Iterable[str | None], path: Path | None = None) -> None:
    """Refuse levels of a column that differ in spelling alone.

    Raises:
        DataError: Names two of them.
    """
    flag = write_flag("categorical", name)
    mend = f"Write them in one way; where they are two, say that the column holds names ({flag})."
    refuse_spellings(f"column {name!r} has the values", levels, mend, path)


def write_flag(flag: str, value: Any) -> str:
    """A flag of the command line with its value, quoted where a shell needs it.

    >>> write_flag("missing", "<5")
    "--missing '<5'"
    >>> write_flag("missing", "--")
    '--missing=--'
    """
    value = str(value)
    between = "=" if value.startswith("-") and not value[1:2].isdigit() else " "  # else it is read as a flag
    return f"--{flag}{between}{shlex.quote(value)}"


def quote_names(names: Iterable[str]) -> str:
    """A few names in quotes, and how many more there are."""
    names = list(names)
    more = f" and {len(names) - _VALUES_SHOWN} more" if len(names) > _VALUES_SHOWN else ""
    return ", ".join(map(repr, names[:_VALUES_SHOWN])) + more


@dataclass(frozen=True)
class Coding:
    """Map of columns to features: numbers stay numbers, text and codes become a column of 0 and 1 a level.

    Attributes:
        levels: Column -> its levels. The feature of a level is named ``column=level``; not every level has one.
        codes: Those of these columns whose numbers are codes: 1 and 1.0 are one level.
        never_zero: Columns in which 0 means that the value was not measured.
        label: Column of the label; empty where the table has none.
        positive: The value of the label that counts as 1.
    """

    levels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    codes: tuple[str, ...] = ()
    never_zero: tuple[str, ...] = ()
    label: str = ""
    positive: str = ""

    def as_json(self) -> dict[str, Json]:
        """The coding as JSON can hold it."""
        return {
            "levels": {name: list(levels) for name, levels in self.levels.items()},
            "codes": list(self.codes),
            "never_zero": list(self.never_zero),
            "label": self.label,
            "positive": self.positive,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Json]) -> Coding:
        """The inverse of :meth:`as_json`."""
        return cls(
            levels={name: tuple(levels) for name, levels in value["levels"].items()},
            codes=tuple(value["codes"]),
            never_zero=tuple(value["never_zero"]),
            label=value["label"],
            positive=value["positive"],
        )

    def sources(self, names: Sequence[str], columns: Sequence[str]) -> dict[str, tuple[str, str | None]]:
        """Source of each feature: a column of numbers, or a level of a column.

        Args:
            names: Names of the features.
            columns: Names of the columns that there are.

        Returns:
            Feature -> (column, None), or (column, level).

        Raises:
            DataError: Columns are missing; says which.
        """
        of_level = {f"{column}={level}": (column, level) for column, levels in self.levels.items() for level in levels}
        found: dict[str, tuple[str, str | None]] = {}
        missing: list[str] = []
        for name in names:
            column, level = of_level.get(name, (name, None))
            if name in columns:
                found[name] = (name, None)
            elif column in columns:
                found[name] = (column, level)
            elif column not in missing:
                missing.append(column)
        if missing:
            listed = quote_names(missing)
            raise DataError(f"the table lacks {len(missing)} of the columns that the model needs: {listed}.")
        return found

    def features(
        self, columns: Mapping[str, Sequence[Any]], names: Sequence[str]
    ) -> Float[np.ndarray, "rows features"]:
        """The features of rows.

        Args:
            columns: Columns by name, None where a value is missing; others than those needed are left out.
            names: Names of the features, in order.

        Returns:
            float64 [rows, features], NaN where a value is missing.

        Raises:
            DataError: A column is missing, holds no number where one is needed, or a level that is not known.
        """
        sources = self.sources(names, list(columns))
        coded: dict[str, list[str | None]] = {}
        for column in {column for column, level in sources.values() if level is not None}:
            values = columns[column]
            coded[column] = (
                as_codes(values) if column in self.codes else [None if v is None else str(v) for v in values]
            )
            for row, value in enumerate(coded[column], 1):
                if value is not None and value not in self.levels[column]:
                    known = ", ".join(map(repr, self.levels[column]))
                    raise DataError(
                        f"column {column!r} has the value {value!r} in row {row}, which no row of training had; "
                        f"known are {known}. Leave it empty where it is unknown."
                    )
        out = []
        for column, level in sources.values():
            if level is None:
                out.append(self._numbers(column, columns[column]))
            else:
                out.append(np.array([np.nan if v is None else float(v == level) for v in coded[column]]))
        rows = len(next(iter(columns.values()), ()))
        return np.stack(out, axis=1) if out else np.zeros((rows, 0))

    def _numbers(self, column: str, values: Sequence[Any]) -> Float[np.ndarray, " rows"]:
        found = numbers_of(column, [float(value) if isinstance(value, bool) else value for value in values])
        if found is None:
            text = next(value for value in values if value is not None)
            raise DataError(f"column {column!r} holds text, such as {text!r}; the model needs numbers.")
        numbers = found[0]
        if column in self.never_zero:
            numbers[numbers == 0] = np.nan
        return numbers
