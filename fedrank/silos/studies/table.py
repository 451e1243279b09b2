"""One silo's table as the codebook reads it: numbers in double precision, levels as their number, in blocks of rows.

Each cell is read by itself: what another row holds never changes how it is read. A cell that is no number, lies outside
its range or is none of the levels counts as missing; how many do is for the silo alone (:meth:`Table.notes`).

A first draft of a codebook is made from one silo's own table, for people to correct and agree on. Types and levels are
guessed, ranges are rounded outwards, and both are marked: a range or a level that comes from one table is not public
knowledge until all silos have agreed on it.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from fedrank.core.errors import DataError, FormatError, UnknownNameError
from fedrank.core.frame import Frame
from fedrank.silos.data.coding import (
    as_codes,
    as_number,
    cell_number,
    numbers_of,
    refuse_levels,
    refuse_spellings,
    without,
    write_flag,
)
from fedrank.silos.data.files import MISSING, SUFFIXES, csv_rows, is_parquet, read_columns, read_statistics
from fedrank.silos.data.looks import UNKNOWNS, find_sentinel
from fedrank.silos.studies.codebook import Codebook, Column, Question, Rules, as_text

#: Columns of some rows, by name: numbers, numbers of levels, numbers of clusters; NaN where one is missing.
Block = dict[str, Float[np.ndarray, " rows"]]
#: Column -> why cells of it that are not empty count as missing, and how many.
Unread = dict[str, Counter[str]]
#: Rows that are read at once.
BLOCK = 1 << 16


@dataclass(eq=False)
class Table:
    """The rows of one silo.

    Attributes:
        codebook: What the columns mean.
        silo: Name of the silo.
        read: Reads columns, given their names and where to count cells that are not read, block by block.
    """

    codebook: Codebook
    silo: str
    read: Callable[[Sequence[str], Unread], Iterator[Block]]

    def blocks(self, names: Sequence[str]) -> Iterator[Block]:
        """Blocks of rows with these columns.

        Raises:
            UnknownNameError: The codebook has no such column.
        """
        for name in names:
            self.codebook.column(name)
        return self.read(names, {})

    def notes(self) -> list[str]:
        """Sentences on cells that count as missing, for the silo alone; all columns are read."""
        unread: Unread = {name: Counter() for name in _readable(self.codebook)}
        for _ in self.read(list(unread), unread):
            pass
        return [
            f"{count:,} cells of column {name!r} {reason} and count as missing."
            for name, reasons in unread.items()
            for reason, count in reasons.items()
        ]


def own_table(path: Path, codebook: Codebook, silo: str) -> Table:
    """The table of one silo's file; of a file with a column of silos, its rows.

    A parquet file is read anew for each question, block by block; the columns of other files are kept in memory.

    Args:
        path: A CSV or parquet file, or one of Excel, Stata, SPSS, SAS or Feather.
        codebook: What its columns mean.
        silo: The silo's name in the codebook.

    Raises:
        MissingDataError: There is no such file.
        UnknownNameError: The codebook names no such silo.
        FormatError: The file cannot be read.
        DataError: A column of the codebook is not in the file.
    """
    if silo not in codebook.silos:
        raise UnknownNameError("silo of the codebook", silo, codebook.silos)
    clusters: dict[str, dict[Any, int]] = {}

    def stream(names: Sequence[str], unread: Unread) -> Iterator[Block]:
        return _blocks(path, codebook, names, silo, unread, clusters)

    if is_parquet(path):
        return Table(codebook, silo, stream)
    unread: Unread = {name: Counter() for name in _readable(codebook)}
    kept = list(stream(list(unread), unread))

    def read(names: Sequence[str], into: Unread) -> Iterator[Block]:
        for name in into:
            into[name].update(unread[name])
        return ({name: block[name] for name in names} for block in kept)

    return Table(codebook, silo, read)


def _readable(codebook: Codebook) -> list[str]:
    """Columns that are read at all."""
    return [name for name, about in codebook.columns.items() if about.role != "identifier"]


def pooled_tables(path: Path, codebook: Codebook, site: str = "") -> list[Table]:
    """The table of each silo of a file that holds the rows of all: for simulations.

    Args:
        path: The file.
        codebook: What its columns mean.
        site: Column with the silo's name in this file; by default that of the codebook.

    Raises:
        DataError: The file has no column of silos, or it names none of the codebook's silos.
        FormatError: The file cannot be read.
    """
    columns, site = _readable(codebook), site or codebook.site
    blocks: list[Block] = []
    whose: list[str | None] = []
    clusters: dict[str, dict[Any, int]] = {}
    for cells in _cells(path, columns, site):
        if site not in cells:
            raise DataError(
                f"there is no column {site!r} that names the silo of each row; say which does: --site.", path
            )
        whose += [None if _is_missing(one) else as_text(one) for one in cells.pop(site)]
        blocks.append(_as_numbers(cells, codebook, {}, clusters))
    refuse_spellings(f"column {site!r} names the silos", whose, "Write each silo's name in one way.", path)
    owners = np.array([name or "" for name in whose])
    if not np.isin(owners, codebook.silos).any():
        raise DataError(f"column {site!r} names none of {', '.join(codebook.silos)}.", path)
    whole = {name: np.concatenate([block[name] for block in blocks]) for name in columns}

    def part(silo: str) -> Table:
        own = owners == silo
        kept = {name: values[own] for name, values in whole.items()}

        def read(names: Sequence[str], _: Unread) -> Iterator[Block]:
            yield {name: kept[name] for name in names}

        return Table(codebook, silo, read)

    return [part(silo) for silo in codebook.silos]


def _blocks(
    path: Path,
    codebook: Codebook,
    names: Sequence[str],
    silo: str,
    unread: Unread,
    clusters: dict[str, dict[Any, int]],
) -> Iterator[Block]:
    """Blocks of a silo's file."""
    for cells in _cells(path, names, codebook.site):
        whose = cells.pop(codebook.site, None)
        if whose is not None:
            own = np.array([not _is_missing(one) and as_text(one) == silo for one in whose])
            cells = {name: np.asarray(values, object)[own].tolist() for name, values in cells.items()}
        yield _as_numbers(cells, codebook, unread, clusters)


def _cells(path: Path, names: Sequence[str], optional: str | None = None) -> Iterator[dict[str, Any]]:
    """The columns of a file in blocks, as they are written."""
    if is_parquet(path):
        try:
            for frame in Frame.blocks_of_parquet(path, (*names, *filter(None, [optional])), BLOCK):
                yield {name: frame[name] for name in _choose_columns(list(frame), names, optional, path)}
        except DataError as cause:
            raise cause if cause.path else FormatError(f"{cause}.", path) from cause
        return
    if path.suffix.lower() in SUFFIXES:
        columns = read_statistics(path)
        yield {name: columns[name] for name in _choose_columns(list(columns), names, optional, path)}
        return
    header, rows = csv_rows(path)
    wanted = _choose_columns(header, names, optional, path)
    places = [header.index(name) for name in wanted]
    while block := list(islice(rows, BLOCK)):
        columns = list(zip(*block, strict=True))
        yield {name: columns[place] for name, place in zip(wanted, places, strict=True)}


def _choose_columns(header: Sequence[str], names: Sequence[str], optional: str | None, path: Path) -> list[str]:
    if missing := [name for name in names if name not in header]:
        raise DataError(
            f"there is no column {missing[0]!r}, which the codebook has. Rename it in the file: all silos have one "
            "name for it.",
            path,
        )
    return [*names, *([optional] if optional is not None and optional in header and optional not in names else [])]


def _as_numbers(
    cells: Mapping[str, Any],
    codebook: Codebook,
    unread: Unread,
    clusters: dict[str, dict[Any, int]],
) -> Block:
    """Cells as numbers."""
    out = {}
    for name, values in cells.items():
        column, count = codebook.columns[name], unread.get(name, Counter())
        if column.role == "cluster":
            seen = clusters.setdefault(name, {})
            keys = (None if _is_missing(one) else as_text(one) for one in values)
            out[name] = np.array([np.nan if key is None else seen.setdefault(key, len(seen)) for key in keys], float)
        elif column.levels:
            out[name] = _levels(values, column, count)
        else:
            out[name] = _numbers(values, column, count)
    return out


def _numbers(values: Any, column: Column, count: Counter[str]) -> Float[np.ndarray, " rows"]:
    """A column of numbers; NaN where a cell is missing, no number, or outside the range."""
    gone = {number for one in column.missing if (number := as_number(one)) is not None}
    if isinstance(values, np.ndarray) and values.dtype.kind in "fiub":
        found = values.astype(float)
    else:
        texts = ["nan" if _is_missing(one) or one in column.missing else one for one in values]
        try:
            if any("_" in one for one in texts if isinstance(one, str)):
                raise ValueError  # 1_0 is 10 to NumPy, and no number to a table
            found = np.array(texts, float)
        except (TypeError, ValueError):  # a cell is not written as a plain number
            read = [np.nan if one == "nan" else cell_number(one) for one in texts]
            if odd := sum(one is None for one in read):
                count["are no numbers"] += odd
            found = np.array([np.nan if one is None else one for one in read], float)
    if gone:
        found[np.isin(found, list(gone))] = np.nan
    with np.errstate(invalid="ignore"):
        outside = (found < column.low) | (found > column.high)
    if outside.any():
        count[f"lie outside {column.low:g} to {column.high:g}"] += int(outside.sum())
        found[outside] = np.nan
    return found


def _levels(values: Any, column: Column, count: Counter[str]) -> Float[np.ndarray, " rows"]:
    """A column of levels as their numbers; NaN where a cell is missing or none of them."""
    place = {level: float(k) for k, level in enumerate(column.levels)}
    place |= {code: place[level] for code, level in column.codes.items()}
    loose = {" ".join(text.casefold().split()): number for text, number in place.items()}
    seen: dict[Any, float] = {}

    def number_of(value: Any) -> float:
        if _is_missing(value) or (text := as_text(value).strip()) in column.missing:
            return np.nan
        return place.get(text, loose.get(" ".join(text.casefold().split()), np.inf))

    if isinstance(values, np.ndarray) and values.dtype.kind in "iubf":
        different, places = np.unique(values, return_inverse=True)
        out = np.array([number_of(value) for value in different.tolist()])[places]
    else:
        for value in set(values):
            seen[value] = number_of(value)
        out = np.array([seen[value] for value in values])
    odd = np.isinf(out)
    if odd.any():
        count["are none of its levels"] += int(odd.sum())
        out[odd] = np.nan
    return out


def _is_missing(value: Any) -> bool:
    return value is None or value != value or (isinstance(value, str) and value.strip().lower() in MISSING)


#: Most levels that a column of whole numbers may have to be taken for codes, and most of a column of names.
_CODES, _LEVELS = 2, 50


def draft_codebook(
    path: Path,
    *,
    study: str,
    silos: Sequence[str] = (),
    site: str = "site",
    categorical: Sequence[str] = (),
    missing: Sequence[str] = (),
    identifiers: Sequence[str] = (),
    questions: Sequence[Question] = (),
    rules: Rules | None = None,
) -> tuple[Codebook, dict[str, str], list[str]]:
    """A codebook that fits a table, for each column what should be looked at, and notes for the rows' owner alone.

    Args:
        path: A CSV or parquet file.
        study: Name of the study.
        silos: Names of the silos; none: those in column ``site``.
        site: Column with the silo's name, where the file has one.
        categorical: Columns of numbers that are names.
        missing: Values that mean a missing one in every column.
        identifiers: Columns that name a person or a record, and are never read.
        questions: The plan.
        rules: Rules of disclosure.

    Raises:
        DataError: The file cannot be read, names no silo, or has a column of a question that is no number and no name.
    """
    columns = read_columns(path)
    whose = columns.pop(site, None)
    names = tuple(silos) or tuple(sorted({as_text(value) for value in whose or () if not _is_missing(value)}))
    if not names:
        raise DataError(f"name the silos of the study: the file has no column {site!r} that does (--site).", path)
    for name in (*categorical, *identifiers):
        if name not in columns:
            raise UnknownNameError(f"column of {path.name}", name, columns)
    clusters = {name for one in questions for name in re.findall(r"cluster\(\s*([^)]+?)\s*\)", one.formula)}
    made, notes, alone = {}, {}, []
    for name, cells in columns.items():
        if name in clusters:
            made[name], notes[name] = Column(name=name, role="cluster"), "rows of one value belong together"
            continue
        values = without(cells, missing)
        if name in identifiers:
            counts = Counter(value for value in values if value is not None).values()
            if twice := [count for count in counts if count > 1]:
                alone.append(
                    f"Values of {name!r} that stand in several rows: {len(twice)}, in {sum(twice)} rows. Mend copies; "
                    f"of persons who came twice, take errors by person: cluster({name}) in the formula, --errors "
                    "cluster."
                )
        needed = name not in identifiers and any(one.mentions(name) for one in questions)
        made[name], notes[name] = _column(name, values, name in categorical, name in identifiers, missing, path, needed)
        for level in made[name].levels if needed else ():
            if level.lower() in UNKNOWNS:
                flag = write_flag("missing", level)
                alone.append(f"{name}={level} reads as a missing value; if it is one, say so ({flag}).")
    book = Codebook(
        study=study, silos=names, columns=made, site=site, questions=tuple(questions), rules=rules or Rules()
    )
    return book, notes, alone


def _column(
    name: str,
    values: Sequence[Any],
    is_code: bool,
    is_identifier: bool,
    missing: Sequence[str],
    path: Path,
    needed: bool,
) -> tuple[Column, str]:
    """A column and a note on it; one that a question needs is refused where it is no number and no name."""
    known = [value for value in values if value is not None]
    if is_identifier or not known:
        return Column(name=name, role="identifier"), "never read" if is_identifier else "empty in this table"
    unknown = tuple(sorted({one for one in as_codes(known) if one is not None and one.lower() in UNKNOWNS}))
    mixed = ""
    try:
        found = None if is_code else numbers_of(name, without(values, unknown), path)
    except DataError:  # dates, or numbers beside text
        if needed:
            raise
        found, mixed = None, ", dates or numbers beside text"
    codes = as_codes(values)
    levels = sorted({code for code in codes if code is not None}, key=_in_order)
    gone = tuple(missing)
    if found is not None:
        numbers = found[0][~np.isnan(found[0])]
        few = len(levels) <= _CODES and np.equal(numbers, np.round(numbers)).all()
        if not few:
            looks, gone = " it may be an identifier;" if _is_running(numbers) else "", (*gone, *unknown)
            if (code := find_sentinel(numbers)) is not None:
                numbers, gone = numbers[numbers != code], (*gone, f"{code:g}")
            looks += "".join(f" {one} looks like a missing value and is listed as one;" for one in gone[len(missing) :])
            low, high = _widen(float(numbers.min()), float(numbers.max()))
            return Column(
                name=name, range=(low, high), missing=gone
            ), f"from this table; is it public?{looks.rstrip(';')}"
    if len(levels) < 2 or len(levels) > _LEVELS:
        what = "one value only" if len(levels) < 2 else f"{len(levels)} different texts"
        if needed:
            raise DataError(f"column {name!r}, which the formula has, has {what}; it is no term.", path)
        return Column(name=name, role="identifier"), f"{what} in this table{mixed}; never read"
    if needed and not is_code:
        refuse_levels(name, levels, path)
    looks = "".join(f" {code} looks like a missing value: list it in missing if it is one;" for code in unknown)
    return Column(
        name=name, levels=tuple(levels), missing=gone
    ), f"levels of this table; are there others?{looks.rstrip(';')}"


def _widen(low: float, high: float) -> tuple[float, float]:
    """A range that holds another and says less of its ends: multiples of a tenth of its size's power of ten."""
    size = max(high - low, abs(high), abs(low), 1e-300) if high == low else high - low
    step = 10.0 ** math.floor(math.log10(size))
    step = step if size / step >= 2 else step / 2
    low_end, high_end = math.floor(low / step) * step, math.ceil(high / step) * step
    if high_end == low_end:
        high_end += step
    return float(f"{low_end:.12g}"), float(f"{high_end:.12g}")


def _is_running(numbers: np.ndarray) -> bool:
    """True if numbers are whole and all different, as those of records are."""
    different = len(np.unique(numbers)) == len(numbers)
    return len(numbers) > 20 and different and bool(np.equal(numbers, np.round(numbers)).all())


def _in_order(text: str) -> tuple[float, str]:
    number = as_number(text)
    return (math.inf if number is None else number), text
