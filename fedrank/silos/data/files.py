"""Read a user's own table of silos from a CSV or parquet file, or from a data frame.

Numbers stay numbers, in double precision. Text and yes-or-no columns become columns of 0 and 1, one a level, levels in
order; a column with two levels becomes one. A column of numbers and text is refused, as it may be either. A value is
missing where a CSV cell is empty or one of :data:`MISSING`, or a parquet value is null or NaN; it is missing in all
columns that come of it.

Excel, Stata, SPSS, SAS and Feather files are read by well-kept libraries.
"""

from __future__ import annotations

import codecs
import csv
import datetime
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from fedrank.core.errors import DataError, FormatError, MissingDataError, MissingExtraError, UnknownNameError
from fedrank.core.frame import Frame, to_list
from fedrank.data.frames import is_missing
from fedrank.data.lines import read_lines, read_pieces
from fedrank.silos.config import Silos
from fedrank.silos.data.coding import (
    Coding,
    as_codes,
    as_number,
    numbers_of,
    quote_names,
    refuse_levels,
    refuse_spellings,
    without,
    write_flag,
)
from fedrank.silos.data.looks import copies, looks_wrong
from fedrank.silos.data.tables import Silo, SiloTable

#: Function of pyreadstat that reads a file, by the end of its name.
_STATISTICS = {
    ".dta": "read_dta", ".sav": "read_sav", ".zsav": "read_sav", ".por": "read_por",
    ".sas7bdat": "read_sas7bdat", ".xpt": "read_xport",
}  # fmt: skip
_SHEETS, _ARROW = (".xlsx", ".xlsm"), (".feather", ".arrow", ".ipc")
#: Ends of the names of all files that :func:`read_statistics` reads.
SUFFIXES = (*_STATISTICS, *_SHEETS, *_ARROW)


def read_statistics(path: Path) -> dict[str, list[Any]]:
    """The columns of a file of Excel (its first sheet), Stata, SPSS, SAS or Feather; dates as text.

    Args:
        path: A file whose name ends in one of :data:`SUFFIXES`.

    Raises:
        MissingExtraError: The library that reads it is not installed.
        FormatError: The file is damaged, or none of its kind.
    """
    suffix = path.suffix.lower()
    try:
        if suffix in _SHEETS:
            columns = _sheet(path)
        elif suffix in _ARROW:
            from arro3.io import read_ipc

            frame = Frame.from_arrow(read_ipc(path))
            columns = {name: to_list(frame[name]) for name in frame}
        else:
            import pyreadstat

            columns, _ = getattr(pyreadstat, _STATISTICS[suffix])(path, output_format="dict")
    except ImportError as missing:
        raise MissingExtraError(missing.name or "pyreadstat", "tables", f"a file {suffix}") from missing
    except FormatError:
        raise
    except Exception as cause:  # libraries differ in their errors
        raise FormatError(f"the file cannot be read: {cause}.", path) from cause
    return {str(name): [_plain(value) for value in values] for name, values in columns.items()}


def _sheet(path: Path) -> dict[str, list[Any]]:
    import openpyxl

    rows = openpyxl.load_workbook(path, read_only=True, data_only=True).worksheets[0].iter_rows(values_only=True)
    names = ["" if name is None else str(name).strip() for name in next(rows, ())]
    while names and not names[-1]:
        names.pop()
    if not names or not all(names) or len(set(names)) < len(names):
        raise FormatError("the first row of the first sheet must name every column, each once.", path)
    kept = [row for row in rows if any(value is not None for value in row)]
    return {name: [row[k] if k < len(row) else None for row in kept] for k, name in enumerate(names)}


def _plain(value: Any) -> Any:
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    return None if value == "" or value != value else value


#: Texts that mean a missing value in a CSV file, in any case; "none" does not: it is a level of many columns.
MISSING = frozenset({"", "?", "na", "n/a", "nan", "null"})
#: Largest number of levels of a text column; with more it is a name, or a number with typing errors.
MOST_LEVELS = 50

_SEPARATORS = ",;\t|"
_SHOWN = 5
#: Columns as they are usually called.
_USUAL = Silos()


def read_silos(path: Path, about: Silos = _USUAL, fewest: int = 2) -> SiloTable:
    """A table of silos from a file: one row a line, with a column for the silo and one for the label.

    Silos come in order of their names. Rows without silo or label, columns that never vary, and rows without any value
    are removed, and a note says so. A silo with one class stays, with a note.

    Args:
        path: A CSV file (UTF-8 or UTF-16; comma, semicolon, tab or bar; also .gz, .bz2, .xz), or parquet.
        about: What the columns mean (:data:`fedrank.silos.config.OWN_FILE`). Without ``positive`` the label must have
            two values, and the later in order is 1: 1 of 0 and 1, yes of no and yes, True of False and True.
        fewest: Fewest silos; with 1 the file of one silo may lack the column, too.

    Raises:
        MissingDataError: There is no such file.
        UnknownNameError: There is no such column; says which was probably meant.
        FormatError: The file, or a line of it, cannot be read.
        DataError: What is in it cannot be used: one silo, a label without two values, infinite numbers, text with
            too many levels.
    """
    return table_of(read_columns(path, about.drop), path.name.split(".")[0], about, fewest, path)


def read_columns(path: Path, drop: Sequence[str] = ()) -> dict[str, list[Any]]:
    """The columns of a file: text, numbers or booleans, None where a value is missing.

    Args:
        path: A CSV or parquet file, or one of Excel, Stata, SPSS, SAS or Feather.
        drop: Columns that may hold anything, as they are left out.

    Raises:
        MissingDataError: There is no such file.
        FormatError: The file, or a line of it, cannot be read.
    """
    if is_parquet(path):
        return _parquet(path, drop)
    if path.suffix.lower() in SUFFIXES:
        return {name: [None] * len(cells) if name in drop else cells for name, cells in read_statistics(path).items()}
    return _csv(path)


def is_parquet(path: Path) -> bool:
    """True if a file is parquet, by its first bytes.

    Raises:
        MissingDataError: There is no such file.
    """
    if not path.is_file():
        what = "this is a folder" if path.is_dir() else "there is no such file"
        raise MissingDataError(f"{what}; give the path of a CSV or parquet file.", path)
    with open(path, "rb") as file:
        return file.read(4) == b"PAR1"


def table_of(
    columns: Mapping[str, Sequence[Any]],
    name: str,
    about: Silos = _USUAL,
    fewest: int = 2,
    path: Path | None = None,
) -> SiloTable:
    """A table of silos from columns of one length, None where a value is missing.

    Args:
        columns: The columns by name.
        name: What to call the table.
        about: As of :func:`read_silos`.
        fewest: Fewest silos; with 1 the column of the silo may be missing.
        path: The file that they are from, for errors.

    Raises:
        UnknownNameError: There is no such column; says which was probably meant.
        DataError: What is in them cannot be used; see :func:`read_silos`.
    """
    silo, label, person, drop, categorical = about.silo, about.label, about.person, about.drop, about.categorical
    columns = dict(columns)
    notes = []
    alone = fewest < 2 and silo not in columns and silo == "silo"  # a column that was named must be there
    for one in (*([] if alone else [silo]), label, *drop, *categorical, *filter(None, [person])):
        if one not in columns:
            raise UnknownNameError(f"column of {'the data frame' if path is None else path.name}", one, columns)
    if silo == label or {silo, label} & {*drop, person}:
        raise DataError(
            f"the silo {silo!r} and the label {label!r} must be two columns, neither of them dropped.", path
        )
    persons = number_persons(columns.pop(person)) if person else None
    if alone:
        columns[silo] = [name] * len(columns[label])
        notes.append(f"There is no column {silo!r}: all rows were taken as those of one silo.")
    whose, what = silo_names(columns.pop(silo), silo, path), as_codes(columns.pop(label))
    known = np.array([s is not None and w is not None for s, w in zip(whose, what, strict=True)])
    if not known.all():
        notes.append(f"{int((~known).sum())} of {len(known)} rows have no silo or no label and were left out.")
    one = positive_of(what, label, about.positive, path)
    kept = {name: values for name, values in columns.items() if name not in drop}
    names, matrix, levels, more = _features(kept, about, path)
    notes += more
    owners, labels = np.array([str(s) for s in whose]), np.array([w == one for w in what], np.int8)
    silos = []
    for owner in in_order({s for s, k in zip(whose, known, strict=True) if k}):
        own = known & (owners == owner)
        silos.append(Silo(owner, matrix[own], labels[own], person=None if persons is None else persons[own]))
    if len(silos) < fewest:
        got = f"one silo only, {silos[0].name!r}" if silos else "no silo"
        raise DataError(f"column {silo!r} names {got}; a federation needs two.", path)
    others = in_order({w for w in what if w is not None and w != one})
    against = " or ".join(map(repr, others[:_SHOWN])) + (" …" if len(others) > _SHOWN else "")
    notes.append(f"Label 1 is {label} = {one!r}, label 0 is {against}.")
    for one_class in (s for s in silos if s.positive in (0, s.n_rows)):
        notes.append(f"All labels of silo {one_class.name} are {int(one_class.positive > 0)}: its AUC is undefined.")
    codes = tuple(column for column in categorical if column in levels)
    coding = Coding(levels, codes, label=label, positive=one)
    table = SiloTable(name, tuple(silos), names, f"{label} = {one}", notes=tuple(notes), coding=coding)
    table = table.drop_uninformative()
    if not table.n_features:
        raise DataError("no column varies; there is nothing to learn from.", path)
    x, y = (np.concatenate([getattr(one, part) for one in table.silos]) for part in ("features", "labels"))
    twice = [f"Silo {one.name} has {found.text}." for one in table.silos if (found := copies(one.features)) is not None]
    return replace(table, notes=(*table.notes, *looks_wrong(x, y, table.feature_names), *twice))


def _features(
    columns: Mapping[str, Sequence[Any]], about: Silos, path: Path | None
) -> tuple[tuple[str, ...], Float[np.ndarray, "rows features"], dict[str, tuple[str, ...]], list[str]]:
    """Columns of one length as features: numbers stay numbers, names become a feature a level.

    Returns:
        Names of the features; their values, NaN where one is missing; the levels of each column of names; a sentence
        for each column that was not written in the usual way.

    Raises:
        DataError: There is no column, or what is in one cannot be used.
    """
    names: list[str] = []
    features: list[np.ndarray] = []
    levels: dict[str, tuple[str, ...]] = {}
    notes: list[str] = []
    for name, cells in columns.items():
        values = without(cells, about.missing)
        found = None if name in about.categorical else numbers_of(name, values, path)
        if found is not None:
            names.append(name)
            features.append(found[0])
            notes += filter(None, found[1:])
            continue
        codes = _codes(name, values, name in about.categorical, path)
        levels[name] = tuple(in_order(set(codes) - {None}))
        for level, column in _encode(name, codes):
            names.append(level)
            features.append(column)
    if not features:
        raise DataError("there is no column besides the silo and the label; nothing to learn from.", path)
    return tuple(names), np.stack(features, axis=1), levels, notes


def number_persons(values: Sequence[Any]) -> Int[np.ndarray, " rows"]:
    """The number of each row's person, from 0; a row without one is another person's."""
    names = as_codes(values)
    own = [("row", row) if name is None else ("name", name) for row, name in enumerate(names)]
    seen: dict[tuple[str, Any], int] = {}
    return np.array([seen.setdefault(one, len(seen)) for one in own], int)


def silo_names(values: Sequence[Any], silo: str, path: Path | None = None) -> list[str | None]:
    """The silo of each row.

    Raises:
        DataError: Two silos have one name but for its spelling.
    """
    whose = as_codes(values)
    refuse_spellings(f"column {silo!r} names the silos", whose, "Write each silo's name in one way.", path)
    return whose


def _csv(path: Path) -> dict[str, list[str | None]]:
    """Columns of text, None where missing."""
    names, rows = csv_rows(path)
    cells = [[None if cell.lower() in MISSING else cell for cell in row] for row in rows]
    if not cells:
        raise FormatError("the file has a first line with names and no rows.", path)
    return dict(zip(names, map(list, zip(*cells, strict=True)), strict=True))


def csv_rows(path: Path) -> tuple[list[str], Iterator[list[str]]]:
    """The names in the first line of a CSV file, and its rows, cells without spaces around them.

    Raises:
        FormatError: The file, or a line of it, cannot be read.
    """
    lines = _text(path)
    if (first := next(lines, None)) is None:  # a packed file of nothing
        raise FormatError("the file is empty; was its download cut off?", path)
    separator = max(_SEPARATORS, key=first.count)
    names = [name.strip() for name in next(csv.reader([first], delimiter=separator))]
    if len(set(names)) < len(names) or "" in names:
        twice = next(name for name in names if not name or names.count(name) > 1)
        what = f"two columns are named {twice!r}" if twice else "a column has no name"
        raise FormatError(f"{what}; the first line must name every column, each once.", path, 1)
    return names, _rows(csv.reader(lines, delimiter=separator, strict=True), len(names), path)


def _rows(reader: Any, width: int, path: Path) -> Iterator[list[str]]:
    try:
        for row in reader:
            if not row:  # a blank line
                continue
            if len(row) != width:
                raise FormatError(
                    f"expected {width} values as in the first line, got {len(row)}.", path, reader.line_num + 1
                )
            yield [cell.strip() for cell in row]
    except csv.Error as cause:
        raise FormatError(f"this line cannot be read as CSV: {cause}.", path, reader.line_num + 1) from cause


def _text(path: Path) -> Iterator[str]:
    """The lines of a CSV file as text: UTF-8, or UTF-16 with a byte-order mark, as spreadsheets write it."""
    if next(read_pieces(path), b"").startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        try:
            text = b"".join(read_pieces(path)).decode("utf-16")
        except UnicodeDecodeError as cause:
            raise FormatError("the text is not the UTF-16 that it begins as; save the file as UTF-8.", path) from cause
        yield from io.StringIO(text, newline=None)
        return
    for number, line in enumerate(read_lines(path), start=1):
        if b"\0" in line:
            raise FormatError("this is neither CSV text nor a parquet file.", path, number)
        try:
            yield line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as cause:
            raise FormatError(
                f"byte {cause.start + 1} of this line is not UTF-8; save the file as UTF-8.", path, number
            ) from cause


def _parquet(path: Path, drop: Sequence[str]) -> dict[str, list[Any]]:
    """As :func:`columns_of`, of a parquet file."""
    try:
        frame = Frame.from_parquet(path.read_bytes())
    except (DataError, OSError) as cause:
        raise FormatError(f"{cause}.", path) from cause
    if not len(frame):
        raise FormatError("the file has no rows.", path)
    return columns_of(frame, drop, path)


def columns_of(frame: Frame, drop: Sequence[str] = (), path: Path | None = None) -> dict[str, list[Any]]:
    """The columns of a data frame: numbers, booleans or text, None where a value is missing.

    Args:
        frame: The frame.
        drop: Columns that may hold anything, as they are left out.
        path: The file that it is from, for errors.

    Raises:
        DataError: There is no row, or a column is of another type.
    """
    if not len(frame):
        raise DataError("the data frame has no rows.", path)
    columns: dict[str, list[Any]] = {}
    for name in frame:
        if name in drop:  # whatever is in it
            columns[name] = [None] * len(frame)
            continue
        values = [float(value) if isinstance(value, Decimal) else value for value in to_list(frame[name])]
        if odd := {type(value) for value in values if value is not None} - {str, int, float, bool}:
            kind = min(one.__name__ for one in odd)
            raise DataError(f"column {name!r} is of type {kind}; turn it into numbers or text, or drop it.", path)
        columns[name] = [None if is_missing(value) or value == "" else value for value in values]
    return columns


def in_order(names: set[Any]) -> list[str]:
    """Names in order: by number if all are numbers."""
    numbers = {name: as_number(name) for name in names}
    if any(n is None for n in numbers.values()):
        return sorted(names)
    return sorted(names, key=lambda name: (numbers[name], name))


def positive_of(what: Sequence[str | None], label: str, positive: Any, path: Path | None) -> str:
    """The value of the label that counts as 1.

    Args:
        what: The label of each row.
        label: Its column.
        positive: The value that counts as 1, where one is said.
        path: The file, for errors.

    Raises:
        DataError: Labels have fewer than two values, or more and it is not said which counts; or one value is written
            in two ways.
    """
    refuse_spellings(f"label {label!r} has the values", what, "Write each value in one way.", path)
    values = in_order({value for value in what if value is not None})
    shown = quote_names(values)
    one = as_codes([positive])[0] if positive is not None else values[-1] if values else None
    if positive is not None and one not in values:
        raise DataError(f"label {label!r} never has the value {positive!r} that was to be 1; it has {shown}.", path)
    if positive is None and len(values) > 2:
        raise DataError(
            f"label {label!r} has {len(values)} values, {shown}, where two are needed. Choose with positive which one "
            "is 1; all others become 0.",
            path,
        )
    if one is None or len(values) < 2:
        got = f"one value only, {shown}" if values else "no values"
        raise DataError(f"label {label!r} has {got}; two are needed.", path)
    return one


def _codes(name: str, values: Sequence[Any], categorical: bool, path: Path | None) -> list[str | None]:
    """The values of a column of names."""
    codes = as_codes(values) if categorical else [None if v is None else str(v) for v in values]
    levels = set(codes) - {None}
    if len(levels) > MOST_LEVELS:
        raise DataError(
            f"column {name!r} is text with {len(levels)} levels, more than {MOST_LEVELS}. Leave it out "
            f"({write_flag('drop', name)}) or group its levels; if it names persons with several rows each, say so "
            f"({write_flag('person', name)}).",
            path,
        )
    if not categorical:
        refuse_levels(name, levels, path)
    return codes


def _encode(name: str, codes: list[str | None]) -> Iterator[tuple[str, Float[np.ndarray, " rows"]]]:
    """A column of names as one or more named columns of 0 and 1, NaN where missing."""
    levels = in_order(set(codes) - {None})
    of = np.array([-1 if code is None else levels.index(code) for code in codes])
    # Of two levels one column says everything.
    for number in [1] if len(levels) == 2 else range(len(levels)):
        yield f"{name}={levels[number]}", np.where(of < 0, np.nan, of == number).astype(float)
