"""A first draft of a codebook from one silo's own table, for people to correct and agree on.

Types and levels are guessed, ranges are rounded outwards, and both are marked: a range or a level that comes from one
table is not public knowledge until all silos have agreed on it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedrank.core.errors import DataError, UnknownNameError
from fedrank.silos.data.coding import as_codes, as_number, numbers_of, without
from fedrank.silos.data.files import read_columns
from fedrank.silos.data.looks import find_sentinel
from fedrank.silos.studies.codebook import Codebook, Column, Question, Rules
from fedrank.silos.studies.table import guess_names

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
) -> tuple[Codebook, dict[str, str]]:
    """A codebook that fits a table, and for each column what should be looked at.

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
        DataError: The file cannot be read, or names no silo.
    """
    columns = read_columns(path)
    whose = columns.pop(site, None)
    names = tuple(silos) or tuple(guess_names(whose or ()))
    if not names:
        raise DataError(f"name the silos of the study: the file has no column {site!r} that does.", path)
    for name in (*categorical, *identifiers):
        if name not in columns:
            raise UnknownNameError(f"column of {path.name}", name, columns)
    clusters = {name for one in questions for name in re.findall(r"cluster\(\s*([^)]+?)\s*\)", one.formula)}
    made, notes = {}, {}
    for name, cells in columns.items():
        if name in clusters:
            made[name], notes[name] = Column(name=name, role="cluster"), "rows of one value belong together"
            continue
        values = without(cells, missing)
        made[name], notes[name] = _column(name, values, name in categorical, name in identifiers, missing, path)
    book = Codebook(
        study=study, silos=names, columns=made, site=site, questions=tuple(questions), rules=rules or Rules()
    )
    return book, notes


def _column(
    name: str, values: Sequence[Any], is_code: bool, is_identifier: bool, missing: Sequence[str], path: Path
) -> tuple[Column, str]:
    known = [value for value in values if value is not None]
    if is_identifier or not known:
        return Column(name=name, role="identifier"), "never read" if is_identifier else "empty in this table"
    try:
        found = None if is_code else numbers_of(name, values, path)
    except DataError:  # dates, or numbers beside text
        found = None
    codes = as_codes(values)
    levels = sorted({code for code in codes if code is not None}, key=_in_order)
    gone = tuple(missing)
    if found is not None:
        numbers = found[0][~np.isnan(found[0])]
        few = len(levels) <= _CODES and np.equal(numbers, np.round(numbers)).all()
        if not few:
            looks = " it may be an identifier" if _is_running(numbers) else ""
            if (code := find_sentinel(numbers)) is not None:
                numbers, gone = numbers[numbers != code], (*gone, f"{code:g}")
                looks = f" {code:g} looks like a missing value"
            low, high = _widen(float(numbers.min()), float(numbers.max()))
            return Column(name=name, range=(low, high), missing=gone), f"from this table; is it public?{looks}"
    if len(levels) < 2 or len(levels) > _LEVELS:
        what = "one value only" if len(levels) < 2 else f"{len(levels)} different texts"
        return Column(name=name, role="identifier"), f"{what} in this table; never read"
    return Column(name=name, levels=tuple(levels), missing=gone), "levels of this table; are there others?"


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
