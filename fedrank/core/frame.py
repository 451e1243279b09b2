"""Data frames: columns of equal length by name, NumPy arrays in memory and parquet in files."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from fedrank.core.errors import DataError

#: Type of a column -> its dtype. A missing number is NaN, a missing text None.
_DTYPES = {int: np.dtype(np.int64), float: np.dtype(np.float64), bool: np.dtype(bool), str: np.dtype(object)}
_MAGIC = b"PAR1"


class Frame:
    """Columns of equal length, by name, in order.

    As in a frame of pandas, ``len`` counts rows, ``in`` and iteration go over names, and ``frame["round"]`` is a
    column: an array of whole numbers, of floats (NaN where a value is missing), of booleans, or of text. Text, and
    whole numbers or booleans of which one is missing, are of dtype object, with None where a value is missing.
    ``frame[rows]``, of a mask, indices or a slice, is a table.

    Polars, pyarrow and DuckDB read it over Arrow's stream, ``polars.DataFrame(frame)``; pandas takes
    ``pandas.DataFrame(dict(frame))``.

    Args:
        columns: Name -> one value a row: an array, a list, or one value for all rows.
        schema: Name -> ``int``, ``float``, ``bool`` or ``str``; without it, types are those of the values.

    Raises:
        DataError: Columns differ in length.
    """

    def __init__(self, columns: Mapping[str, Any], schema: Mapping[str, type] | None = None):
        found = {name: _column(values, (schema or {}).get(name)) for name, values in columns.items()}
        lengths = {len(values) for values in found.values() if values.ndim}
        if len(lengths) > 1:
            sizes = ", ".join(f"{name} {len(values)}" for name, values in found.items() if values.ndim)
            raise DataError(f"the columns of a table must have one length, got {sizes}.")
        self._height = lengths.pop() if lengths else min(1, len(found))
        self._columns = {
            name: values if values.ndim else np.full(self._height, values.item(), values.dtype)
            for name, values in found.items()
        }

    @staticmethod
    def of_rows(rows: Iterable[Sequence[Any] | Mapping[str, Any]], schema: Mapping[str, type]) -> Frame:
        """A table of rows, each a sequence in the schema's order, or values by name, where an absent one is missing."""
        rows = [[row.get(name) for name in schema] if isinstance(row, Mapping) else row for row in rows]
        columns = list(zip(*rows, strict=True)) or [()] * len(schema)
        return Frame(dict(zip(schema, columns, strict=True)), schema)

    @staticmethod
    def of_dicts(rows: Iterable[Mapping[str, Any]]) -> Frame:
        """A table of values by name, where an absent one is missing; types are those of the values."""
        rows = list(rows)
        names = dict.fromkeys(name for row in rows for name in row)
        return Frame({name: [row.get(name) for row in rows] for name in names})

    @staticmethod
    def concat(tables: Sequence[Frame]) -> Frame:
        """The rows of tables with the same columns, one table after the other.

        Raises:
            ValueError: There is no table.
            DataError: A table has other columns than the first.
        """
        if not tables:
            raise ValueError("concat needs a table")
        first = tables[0]
        for table in tables:
            if table.columns != first.columns:
                raise DataError(f"tables must have the same columns, got {first.columns} and {table.columns}.")
        return Frame({name: np.concatenate([table[name] for table in tables]) for name in first})

    @property
    def columns(self) -> list[str]:
        """The names of the columns, from left to right."""
        return list(self._columns)

    def keys(self) -> list[str]:
        """As :attr:`columns`, so that ``dict(frame)`` is the columns by name."""
        return self.columns

    @property
    def schema(self) -> dict[str, type]:
        """Name -> ``int``, ``float``, ``bool`` or ``str``."""
        return {name: type_of(values) for name, values in self._columns.items()}

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of rows and columns."""
        return self._height, len(self._columns)

    def __len__(self) -> int:
        return self._height

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __contains__(self, name: object) -> bool:
        return name in self._columns

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, str):
            return self._columns[key]
        rows = np.arange(self._height)[key]
        return Frame({name: values[rows] for name, values in self._columns.items()})

    def where(self, **values: Any) -> Frame:
        """The rows that have these values in the columns of these names; a tuple stands for each of its values."""
        mask = np.ones(self._height, bool)
        for name, value in values.items():
            column, wanted = self._columns[name], value if isinstance(value, tuple) else (value,)
            mask &= np.logical_or.reduce([column == one for one in wanted]) if wanted else False
        return self[mask]

    def sort(self, *names: str) -> Frame:
        """The rows in ascending order of columns, the first named first; rows that are alike keep their order."""
        return self[np.lexsort([_sortable(self._columns[name]) for name in reversed(names)])]

    def select(self, names: Iterable[str]) -> Frame:
        """The columns of these names, in this order."""
        return Frame({name: self._columns[name] for name in names})

    def with_columns(self, columns: Mapping[str, Any]) -> Frame:
        """The table with columns replaced or put at its end; one value stands for every row."""
        return Frame({**self._columns, **columns})

    def groups(self, *names: str) -> list[tuple[tuple[Any, ...], Frame]]:
        """The rows by their values in columns: (values, rows), in ascending order of the values."""
        if not self._height:
            return []
        codes = np.zeros(self._height, np.int64)
        for name in names:
            values, inverse = np.unique(_sortable(self._columns[name]), return_inverse=True)
            codes = codes * len(values) + inverse
        order = np.argsort(codes, kind="stable")
        parts = np.split(order, np.flatnonzero(np.diff(codes[order])) + 1)
        return [(tuple(self._columns[name][part[:1]].tolist()[0] for name in names), self[part]) for part in parts]

    def unique(self, name: str) -> list[Any]:
        """The values of a column, each once, ascending."""
        return sorted(set(self._columns[name].tolist()))

    def means(self, by: str, of: str = "value") -> dict[Any, float]:
        """The mean of a column for each value of another, ascending."""
        return {key: float(rows[of].mean()) for (key,), rows in self.groups(by)}

    def tuples(self) -> list[tuple[Any, ...]]:
        """The rows, as values of Python, None where one is missing."""
        return list(zip(*map(to_list, self._columns.values()), strict=True))

    def dicts(self) -> list[dict[str, Any]]:
        """The rows, as values of Python by name, None where one is missing."""
        return [dict(zip(self._columns, row, strict=True)) for row in self.tuples()]

    def to_csv(self, *, header: bool = True) -> str:
        """The table as comma-separated text; a missing value is an empty cell."""
        buffer = io.StringIO()
        writer = csv.writer(buffer, lineterminator="\n")
        writer.writerows([self.columns, *self.tuples()] if header else self.tuples())
        return buffer.getvalue()

    @staticmethod
    def from_csv(content: bytes, names: Iterable[str] | None = None) -> Frame:
        """The table in comma-separated text with a line of names; other values than numbers and booleans are text.

        Args:
            content: The text, in UTF-8.
            names: The columns that are wanted, as far as they are there; None: all.

        Raises:
            DataError: Lines differ in length, or it is no text in UTF-8; says which line.
        """
        from arro3.core import DataType, Field, Schema
        from arro3.io import infer_csv_schema, read_csv

        kept = (DataType.int64(), DataType.float64(), DataType.bool())
        try:
            found = infer_csv_schema(io.BytesIO(content), has_header=True)
            schema = Schema([one if one.type in kept else Field(one.name, DataType.string()) for one in found])
            table = read_csv(io.BytesIO(content), schema, has_header=True).read_all()
            return Frame.from_arrow(table if names is None else table.select([n for n in names if n in found.names]))
        except Exception as error:  # arro3 raises plain ones
            raise error if isinstance(error, DataError) else DataError(str(error)) from error

    def to_parquet(self) -> bytes:
        """The table as a parquet file; a missing value is null."""
        from arro3.io import write_parquet

        buffer = io.BytesIO()
        write_parquet(self, buffer)
        return buffer.getvalue()

    @staticmethod
    def from_parquet(content: bytes) -> Frame:
        """The table in a parquet file.

        Raises:
            DataError: The file is none, cut or damaged, or holds values that a table cannot.
        """
        from arro3.io import read_parquet

        if not (content.startswith(_MAGIC) and content.endswith(_MAGIC)):
            raise DataError("it is no parquet file, or one that is cut or damaged")
        with _damage_as_error():
            return Frame.from_arrow(read_parquet(io.BytesIO(content)))

    @staticmethod
    def blocks_of_parquet(path: Path, columns: Iterable[str] | None = None, rows: int = 1 << 16) -> Iterator[Frame]:
        """The table in a parquet file, block by block.

        Args:
            path: The file.
            columns: Columns of the blocks, those that the file has; None: all.
            rows: Rows of a block; the file's own pieces, some thousand rows each, are not cut.

        Raises:
            DataError: As :meth:`from_parquet`.
        """
        from arro3.core import Table as ArrowTable
        from arro3.io import read_parquet

        wanted = None if columns is None else set(columns)
        with _damage_as_error():
            pieces, waiting = [], 0
            reader = read_parquet(path)
            names = [name for name in reader.schema.names if wanted is None or name in wanted]
            for piece in reader:
                pieces.append(piece.select(names))
                waiting += piece.num_rows
                if waiting >= rows:
                    yield Frame.from_arrow(ArrowTable.from_batches(pieces))
                    pieces, waiting = [], 0
            if pieces:
                yield Frame.from_arrow(ArrowTable.from_batches(pieces))

    @staticmethod
    def from_arrow(source: Any) -> Frame:
        """The table of an object with ``__arrow_c_stream__``; dates, lists and decimals stay objects.

        Raises:
            DataError: Two columns have one name.
        """
        from arro3.core import Table as ArrowTable

        table = ArrowTable.from_arrow(source)
        names = table.column_names
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise DataError(f"two columns of the data frame are named {twice!r}; give each column a distinct name.")
        return Frame({name: _from_arrow(table[name]) for name in names})

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        from arro3.core import Table as ArrowTable

        columns = {name: _to_arrow(values) for name, values in self._columns.items()}
        return ArrowTable.from_pydict(columns).__arrow_c_stream__(requested_schema)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Frame) and self.columns == other.columns and self.tuples() == other.tuples()

    __hash__ = None  # type: ignore[assignment]  # it compares by content and holds arrays

    def _cells(self) -> list[list[str]]:
        """The names and the rows that are shown, as text; of many rows the first and the last."""
        rows = self if self._height <= _SHOWN else Frame.concat([self[: _SHOWN // 2], self[-_SHOWN // 2 :]])
        cells = [self.columns, *([_cell(value) for value in row] for row in rows.tuples())]
        if self._height > _SHOWN:
            cells.insert(1 + _SHOWN // 2, ["…"] * len(self._columns))
        return cells

    def __repr__(self) -> str:
        cells = self._cells()
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        lines = ["  ".join(c.rjust(w) for c, w in zip(row, widths, strict=True)) for row in cells]
        return "\n".join([f"frame of {self._height} rows and {len(self._columns)} columns", *lines])

    def _repr_html_(self) -> str:
        head, *rows = ([escape(cell) for cell in row] for row in self._cells())
        names = "".join(f"<th>{name}</th>" for name in head)
        body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
        return f"<table><thead><tr>{names}</tr></thead><tbody>{body}</tbody></table>"


#: Most rows that a table shows of itself.
_SHOWN = 20


@contextmanager
def _damage_as_error() -> Iterator[None]:
    """Errors of arro3, which says of a damaged file what it met in it, as :class:`DataError`."""
    try:
        yield
    except (DataError, GeneratorExit):
        raise
    except Exception as error:
        raise DataError(f"the parquet file is damaged ({error})") from error
    except BaseException as error:
        if type(error).__name__ != "PanicException":  # what arro3 raises for a footer that makes no sense
            raise
        raise DataError("the parquet file is damaged: its footer cannot be read") from error


def type_of(values: np.ndarray) -> type:
    """``int``, ``float``, ``bool`` or ``str`` of a column; ``object`` if its values are of another, or of several."""
    if values.dtype.kind != "O":
        return {"i": int, "u": int, "f": float, "b": bool}.get(values.dtype.kind, object)
    found = {str if isinstance(value, str) else type(value) for value in values.tolist() if value is not None}
    return found.pop() if len(found) == 1 and found <= {str, int, bool} else object if found else str


def missing_in(values: np.ndarray) -> np.ndarray:
    """True in each row of a column where the value is missing."""
    if values.dtype.kind == "O":
        return np.array([value is None for value in values.tolist()], bool)
    return np.isnan(values) if values.dtype.kind in "fM" else np.zeros(len(values), bool)


def to_list(values: np.ndarray) -> list[Any]:
    """A column as values of Python, None where one is missing."""
    if values.dtype.kind == "f" and (gaps := np.isnan(values)).any():
        return [None if gap else value for value, gap in zip(values.tolist(), gaps.tolist(), strict=True)]
    return values.tolist()


def _cell(value: Any) -> str:
    return "–" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)


def _column(values: Any, kind: type | None) -> np.ndarray:
    """The values as an array of one of the types of columns, or, of one value, without a dimension.

    Raises:
        DataError: They are of several dimensions, or no values of the type.
    """
    if isinstance(values, tuple | list):
        numbers = all(isinstance(value, bool | int | float | np.number | np.bool_) for value in values)
        if kind is float or (kind is None and not numbers and all(isinstance(value, float | None) for value in values)):
            values = [np.nan if value is None else value for value in values]
        elif not numbers:
            values = objects_of(values)
    array = np.asarray(values)
    if array.ndim > 1:
        raise DataError(f"a column of a table must have one value a row, got an array of shape {array.shape}.")
    if array.dtype.kind in "US":
        array = array.astype(object)
    if kind is None or (array.dtype == _DTYPES[kind] and kind is not str):
        return array
    if kind is not float and missing_in(np.atleast_1d(array)).any() and kind is not str:
        raise DataError(f"a column of type {kind.__name__} must have a value in every row.")
    if kind is str and array.size and type_of(np.atleast_1d(array)) is not str:
        raise DataError(f"a column of text must hold text, got {type_of(np.atleast_1d(array)).__name__}.")
    return array.astype(_DTYPES[kind])


def objects_of(values: Sequence[Any]) -> np.ndarray:
    """The values as they are, one a row: dtype object."""
    return np.fromiter(values, object, len(values))


def _sortable(values: np.ndarray) -> np.ndarray:
    """A column as NumPy sorts it: objects by their place among all in order, a missing one first."""
    if values.dtype.kind != "O":
        return values
    known = sorted({value for value in values.tolist() if value is not None})
    places = {None: 0} | {value: place for place, value in enumerate(known, start=1)}
    return np.array([places[value] for value in values.tolist()], np.int64)


def _from_arrow(column: Any) -> np.ndarray:
    from arro3.core import DataType

    tests = {int: DataType.is_integer, float: DataType.is_floating, bool: DataType.is_boolean}
    kind = next((kind for kind, fits in tests.items() if fits(column.type)), None)
    if DataType.is_null(column.type):
        return np.full(len(column), np.nan)
    if kind is None or not len(column) or (column.null_count and kind is not float):
        return objects_of(column.to_pylist()).astype(object if len(column) or kind is None else _DTYPES[kind])
    return _column(column.to_pylist(), float) if column.null_count else column.to_numpy()


def _to_arrow(values: np.ndarray) -> Any:
    from arro3.core import Array, DataType

    kind = type_of(values)
    if kind is object:
        raise DataError("a table of other values than numbers, booleans and text cannot be written.")
    if values.dtype.kind == "O" or missing_in(values).any():
        kinds = {str: DataType.string(), int: DataType.int64(), float: DataType.float64(), bool: DataType.bool()}
        return Array(to_list(values), kinds[kind])
    return Array.from_numpy(np.ascontiguousarray(values, values.dtype.newbyteorder("=")))
