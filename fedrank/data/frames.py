"""Data frames of other libraries as those of polars."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float64

from fedrank.core.errors import DataError, UnknownNameError

if TYPE_CHECKING:
    import polars as pl


#: Column of a data frame with the query of a row's document, unless another is named.
QUERY = "qid"


def as_frame(source: Any) -> pl.DataFrame | None:
    """A data frame as one of polars; None if the source is no data frame.

    Args:
        source: A frame of polars (lazy ones are computed) or pandas, or an object with ``__arrow_c_stream__`` or
            ``__dataframe__``, such as a table of pyarrow or a relation of DuckDB.

    Raises:
        DataError: Two columns have one name, or a column holds what a frame of polars cannot hold.
    """
    own = type(source).__module__.partition(".")[0] == "polars"
    pandas = not own and hasattr(source, "columns") and hasattr(source, "iloc")
    if not (own or pandas or hasattr(source, "__arrow_c_stream__") or hasattr(source, "__dataframe__")):
        return None
    import polars as pl

    if isinstance(source, pl.DataFrame):
        return source
    if isinstance(source, pl.LazyFrame):
        return source.collect()
    try:
        if pandas:  # through arrow it would need pyarrow
            return pl.DataFrame(_columns(source))
        if hasattr(source, "__arrow_c_stream__"):
            return pl.DataFrame(source)
        return pl.from_dataframe(source) if hasattr(source, "__dataframe__") else None
    except (pl.exceptions.PolarsError, TypeError) as cause:
        raise DataError(f"the data frame cannot be read: {cause}. Give each column values of one type.") from cause


def _columns(frame: Any) -> dict[str, Any]:
    """The columns of a frame of pandas: arrays of numbers, or lists with None where a value is missing."""
    columns = {}
    for place, name in enumerate(map(str, frame.columns)):
        if name in columns:
            raise DataError(f"two columns of the data frame are named {name!r}; give each column a distinct name.")
        values = frame.iloc[:, place].to_numpy()
        if values.dtype.kind == "O":
            values = [None if _is_missing(value) else value for value in values.tolist()]
        columns[name] = values
    return columns


def _is_missing(value: Any) -> bool:
    """True if pandas marks a value as missing: None, NaN, or NA, which has no truth value."""
    return value is None or type(value).__name__ == "NAType" or (isinstance(value, float) and math.isnan(value))


def features_of(frame: pl.DataFrame, names: Sequence[str]) -> Float64[np.ndarray, "rows columns"]:
    """Columns of numbers side by side: float64 [rows, columns], NaN where a value is missing.

    Raises:
        UnknownNameError: There is no such column.
        DataError: A column holds no numbers; says which.
    """
    import polars as pl

    for name in names:
        kind = column(frame, name).dtype
        if not (kind.is_numeric() or kind == pl.Boolean):
            raise DataError(f"column {name!r} of the data frame is of type {kind}; a feature is a number. Drop it.")
    return frame.select(pl.col(name).cast(pl.Float64) for name in names).to_numpy()


def whole_ids(ids: np.ndarray, what: str) -> np.ndarray:
    """Ids as they are; those that came as floats, but are whole numbers, as integers.

    Args:
        ids: Of any type, such as the floats that pandas makes of a column of integers with a gap.
        what: What they are, for the error.

    Raises:
        DataError: Floats of 2⁵³ or more, of which neighbours are one number, so that ids have been merged already.
    """
    if ids.dtype.kind != "f" or not np.all(np.isfinite(ids) & (ids == np.floor(ids))):
        return ids
    most = 2 ** (np.finfo(ids.dtype).nmant + 1)
    if ids.size and np.abs(ids).max() >= most:
        raise DataError(
            f"{what} are {ids.dtype} numbers of {most:,} and above, got {np.abs(ids).max():.0f}: each of these stands "
            "for several whole numbers, so that different ids are one. Read the column as integers or as text."
        )
    return ids.astype(np.int64)


def column(frame: pl.DataFrame, name: str) -> pl.Series:
    """A column by its name.

    Raises:
        UnknownNameError: There is no such column; says which was probably meant.
    """
    if name not in frame.columns:
        raise UnknownNameError("column of the data frame", name, frame.columns)
    return frame[name]
