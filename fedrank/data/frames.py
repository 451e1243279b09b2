"""Tables that a caller hands over: data frames as :class:`~fedrank.core.table.Frame`, sparse arrays as dense ones.

Training, scoring, ranking and evaluating read them here, so that a column means the same to all.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
from jaxtyping import Float, Float32, Float64, Shaped

from fedrank.core.errors import DataError, UnknownNameError
from fedrank.core.frame import Frame, missing_in, objects_of, type_of

#: Columns of a data frame with the query of a row's document, its label and its name, unless others are named.
QUERY, LABEL, DOCUMENT = "qid", "label", "docid"


def as_frame(source: Any) -> Frame | None:
    """A data frame as a table; None if the source is no data frame.

    Args:
        source: A table, a frame of polars (lazy ones are computed) or pandas, or an object with
            ``__arrow_c_stream__``, such as a table of pyarrow or a relation of DuckDB.

    Raises:
        DataError: Two columns have one name, or a column cannot be read.
    """
    if isinstance(source, Frame):
        return source
    if _is_polars(source) and hasattr(source, "collect"):
        source = source.collect()
    if hasattr(source, "columns") and (hasattr(source, "iloc") or _is_polars(source)):
        names = list(map(str, source.columns))
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise DataError(f"two columns of the data frame are named {twice!r}; give each column a distinct name.")
        columns = (source.iloc[:, i] if hasattr(source, "iloc") else source.to_series(i) for i in range(len(names)))
        return Frame({name: _cells(values) for name, values in zip(names, columns, strict=True)})
    if not hasattr(source, "__arrow_c_stream__"):
        return None
    try:
        return Frame.from_arrow(source)
    except DataError:
        raise
    except Exception as cause:  # arro3 raises plain ones
        raise DataError(f"the data frame cannot be read: {cause}. Give each column values of one type.") from cause


def with_columns(frame: Frame, columns: Mapping[str, Any]) -> Frame:
    """The frame with columns put in or replaced.

    Args:
        frame: The frame.
        columns: Name -> a value a row, in an array, a list, or a series of polars or pandas; None: no such column.

    Raises:
        DataError: A column has another length.
    """
    columns = {name: values for name, values in columns.items() if values is not None}
    for name, values in columns.items():
        if np.shape(values)[:1] != (len(frame),):
            raise DataError(f"{name} must have one value in each of {len(frame)} rows, got {np.shape(values)}.")
    return frame.with_columns({name: _cells(values) for name, values in columns.items()})


def _is_polars(source: Any) -> bool:
    return type(source).__module__.partition(".")[0] == "polars"


#: Types of polars, besides floats, that are arrays of numbers where no value is missing.
_WHOLE = {f"{sign}Int{bits}" for sign in ("", "U") for bits in (8, 16, 32, 64)} | {"Boolean"}


def _cells(values: Any) -> np.ndarray:
    """The values of a column: an array of numbers or booleans, NaN where a float is missing, or objects with None.

    Whole numbers of which one is missing are objects, because as floats large ones would merge.
    """
    if _is_polars(values):
        if values.dtype.is_float() or (str(values.dtype) in _WHOLE and not values.null_count()):
            return values.to_numpy()
        array: Any = objects_of(values.to_list())
    else:
        gaps = getattr(values, "hasnans", False) and getattr(values.dtype, "kind", "O") != "f"
        array = values.to_numpy(**({"dtype": object} if gaps else {})) if hasattr(values, "to_numpy") else values
        array = np.asarray(array)
        array = objects_of(list(values)) if array.dtype.kind in "mM" else array
    if array.dtype.kind == "U":
        return array.astype(object)
    if array.dtype.kind != "O":
        return array
    plain = (one.item() if isinstance(one, np.bool_ | np.number | np.str_) else one for one in array.tolist())
    return objects_of([None if is_missing(value) else value for value in plain])


def is_missing(value: Any) -> bool:
    """True if a value of a data frame is missing: None, NaN, or NA of pandas, which has no truth value."""
    return value is None or type(value).__name__ == "NAType" or (isinstance(value, float) and math.isnan(value))


#: Types of objects that are numbers.
_REAL = numbers.Real | Decimal


def numbers_of(values: np.ndarray) -> Float64[np.ndarray, " rows"] | None:
    """A column as float64, NaN where a value is missing; None if it holds something else than numbers and booleans."""
    if values.dtype.kind in "biuf":
        return values.astype(np.float64)
    if values.dtype.kind != "O" or not all(one is None or isinstance(one, _REAL) for one in values.tolist()):
        return None
    return np.array([math.nan if one is None else float(one) for one in values.tolist()])


def name_type(values: np.ndarray) -> str:
    """The name of a column's type, or of that of its first value that is no number, for errors."""
    odd = (type(one).__name__ for one in values.tolist() if one is not None and not isinstance(one, _REAL))
    return next(odd, "object") if values.dtype.kind == "O" else str(values.dtype)


def features_of(frame: Frame, names: Sequence[str]) -> Float64[np.ndarray, "rows columns"]:
    """Columns of numbers side by side: float64 [rows, columns], NaN where a value is missing.

    Raises:
        UnknownNameError: There is no such column.
        DataError: A column holds no numbers; says which.
    """
    out = np.empty((len(frame), len(names)))
    for place, name in enumerate(names):
        values = numbers_of(column(frame, name))
        if values is None:
            kind = name_type(frame[name])
            raise DataError(f"column {name!r} of the data frame is of type {kind}; a feature is a number. Drop it.")
        out[:, place] = values
    return out


def ids_of(values: Any, what: str) -> Shaped[np.ndarray, " rows"]:
    """Ids, whole numbers or text, one in every row, such as the query of each document.

    Args:
        values: The ids: an array, a list, or a series of polars or pandas. Floats that are whole numbers are taken as
            integers, such as pandas makes of a column of integers with a gap.
        what: What they are, for the error.

    Raises:
        DataError: One is missing or no id; or floats of 2⁵³ or more, of which neighbours are one number, so that ids
            have been merged already.
    """
    ids = _cells(values)
    whole = ids.dtype.kind != "f" or np.all(np.isfinite(ids) & (ids == np.floor(ids)))
    if ids.dtype.kind == "O":  # of one kind, so that no two are written alike
        kinds = {type_of(ids)} if ids.size and not missing_in(ids).any() else {object}
        whole = kinds <= {str, int} or not ids.size
    if ids.ndim != 1 or not whole:
        raise DataError(f"{what} must be whole numbers or text, one in every row.")
    if ids.dtype.kind != "f":
        return ids
    most = 2 ** (np.finfo(ids.dtype).nmant + 1)
    if ids.size and np.abs(ids).max() >= most:
        raise DataError(
            f"{what} are {ids.dtype} numbers of {most:,} and above, got {np.abs(ids).max():.0f}: each of these stands "
            "for several whole numbers, so that different ids are one. Read the column as integers or as text."
        )
    return ids.astype(np.int64)


def column(frame: Frame, name: str) -> np.ndarray:
    """A column by its name.

    Raises:
        UnknownNameError: There is no such column; says which was probably meant.
    """
    if name not in frame.columns:
        raise UnknownNameError("column of the data frame", name, frame.columns)
    return frame[name]


def as_array(values: Any) -> np.ndarray:
    """An array of the values; a dense one of a sparse matrix of scipy."""
    return values.toarray() if hasattr(values, "toarray") else np.asarray(values)


def table_of(features: Any, n_features: int, names: Sequence[str]) -> Shaped[np.ndarray, "rows features"]:
    """The features as an array of numbers, in the model's order.

    Args:
        features: Numbers [rows, features]; or a data frame, whose columns are found by their names.
        n_features: Number of features of the model.
        names: Their names; empty if they are not known.

    Raises:
        DataError: There are other features than the model's, or something else than numbers; says which.
    """
    frame = as_frame(features)
    return array_of(features, n_features) if frame is None else columns_of(frame, n_features, names)


def query_ids(features: Any, names: Sequence[str], *, needed: bool = True) -> Shaped[np.ndarray, " rows"] | None:
    """The query of each row of a data frame, by its column ``qid``; None where all rows are of one query.

    Args:
        features: The frame; or an array, whose rows are of one query.
        names: Names of the model's features. A frame of nothing else, but for labels and documents, is of one query.
        needed: Whether the queries matter.

    Raises:
        DataError: A row has none; or there is no such column, but one that the model does not know.
    """
    frame = as_frame(features)
    if frame is None:
        return None
    if QUERY in frame.columns:
        return ids_of(frame[QUERY], f"column {QUERY!r}")
    others = [name for name in frame.columns if name not in (*names, LABEL, DOCUMENT)]
    if others and needed:
        raise DataError(
            f"the data frame has no column {QUERY!r}, and others than the features: {list_names(others)}. Say which "
            f"query each row is of: qid=…, or a column {QUERY!r}; or drop them, if all rows are of one query."
        )
    return None


def columns_of(frame: Frame, n_features: int, names: Sequence[str]) -> Float[np.ndarray, "rows features"]:
    """The columns of a data frame that are a model's features, float64, NaN where a value is missing.

    Raises:
        DataError: The model does not know the names of its features, or columns are missing or hold no numbers.
    """
    need_names(n_features, names)
    missing = [name for name in names if name not in frame.columns]
    if missing:
        raise DataError(f"the data frame lacks {len(missing)} of the model's features: {list_names(missing)}.")
    return features_of(frame, names)


def need_names(n_features: int, names: Sequence[str]) -> None:
    """Refuse a data frame for a model that does not know the names of its features.

    Raises:
        DataError: There are no names.
    """
    if not names:
        raise DataError(
            "the model's features have no names, so that columns cannot be matched. Hand over an array "
            f"of {n_features} columns in the order of the training data."
        )


def array_of(features: Any, n_features: int) -> Shaped[np.ndarray, "rows features"]:
    """The caller's features as an array of numbers [rows, features].

    Raises:
        DataError: It has another shape or holds something else.
    """
    table = as_array(features)
    if table.ndim != 2 or table.shape[1] != n_features or table.dtype.kind not in "fiub":
        raise DataError(
            f"features must be numbers of shape [rows, {n_features}], got {table.dtype} of shape {table.shape}."
        )
    return table


def in_single_precision(
    table: Shaped[np.ndarray, "rows features"], names: Sequence[str], *, missing: bool = False
) -> Float32[np.ndarray, "rows features"]:
    """The features in single precision.

    Args:
        table: The features.
        names: Their names, for the error; empty if they are not known.
        missing: Whether a value may be missing (NaN).

    Raises:
        DataError: A value is infinite or too large, or missing where it must not be; says which.
    """
    with np.errstate(over="ignore"):
        table = table.astype(np.float32)
    odd = np.isinf(table) if missing else ~np.isfinite(table)
    if odd.any():
        row, column = np.argwhere(odd)[0]
        name = repr(names[column]) if names else str(column)
        hint = " Mark it as missing (NaN)." if missing else ""
        raise DataError(f"feature {name} of row {row} is no finite number of 32 bits.{hint}")
    return table


def list_names(names: Sequence[str], most: int = 5) -> str:
    """Names for an error message, the first few of them."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(map(repr, names[:most])) + more
