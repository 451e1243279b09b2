"""Features that are handed to a model, checked against those that it knows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float, Float32, Shaped

from fedrank.core.errors import DataError
from fedrank.data.frames import QUERY, as_frame, features_of

if TYPE_CHECKING:
    import polars as pl


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


def query_ids(features: Any) -> Shaped[np.ndarray, " rows"] | None:
    """The query of each row of a data frame that has the column ``qid``; None where there is none.

    Raises:
        DataError: A row has none.
    """
    frame = as_frame(features)
    if frame is None or QUERY not in frame.columns:
        return None
    if frame[QUERY].null_count():
        raise DataError(f"column {QUERY!r} must have a value in every row.")
    return frame[QUERY].to_numpy()


def columns_of(frame: pl.DataFrame, n_features: int, names: Sequence[str]) -> Float[np.ndarray, "rows features"]:
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
    table = np.asarray(features)
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
