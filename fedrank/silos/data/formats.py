"""Tables in statisticians' files: Excel, Stata, SPSS, SAS and Feather, read by well-kept libraries."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

from fedrank.core.errors import FormatError, MissingExtraError
from fedrank.core.frame import Frame, to_list

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
