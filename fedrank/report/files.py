"""Files of a run directory, read and checked: every failure names the file and says what to do."""

from __future__ import annotations

import dataclasses
import json
import math
import types
import typing
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from fedrank.core.errors import DataError, RunError
from fedrank.core.frame import Frame, type_of
from fedrank.core.trees import Json


def existing(file: Path) -> Path:
    """The file, if it is there.

    Raises:
        RunError: It is missing.
    """
    if not file.exists():
        raise RunError(
            f"{file}: missing. A run directory must have {file.name}; if the run was interrupted, 'fedrank run' on its "
            "configuration resumes it."
        )
    return file


def json_object(file: Path, *, needed: bool = True) -> dict[str, Json]:
    """The JSON object in a file; an empty one if the file is missing and not needed.

    Raises:
        RunError: The file is missing, cut, or holds something else.
    """
    if not needed and not file.exists():
        return {}
    try:
        value = json.loads(existing(file).read_text(encoding="utf-8"))
    except ValueError as error:
        raise RunError(f"{file}: not valid JSON ({error}): cut or edited. Run again to restore it.") from error
    if not isinstance(value, dict):
        raise RunError(f"{file}: must hold a JSON object, got {type(value).__name__}. Run again to restore it.")
    return value


#: What a column of a run's table holds, by its type.
_NAMES = {int: "integer", float: "number", str: "text", bool: "yes or no"}


def parquet(file: Path, columns: Mapping[str, type]) -> Frame:
    """A table with these columns and no others; numbers are floats.

    Args:
        file: Which file.
        columns: By name, the type of each: the schema with which the run wrote it.

    Raises:
        RunError: The file is missing, cut, or of another schema.
    """
    try:
        table = Frame.from_parquet(existing(file).read_bytes())
    except (DataError, OSError) as error:
        raise RunError(f"{file}: not readable as parquet ({error}). Run again to restore it.") from error
    if missing := [name for name in columns if name not in table]:
        raise RunError(
            f"{file}: column {missing[0]!r} is missing, got {', '.join(table.columns)}. "
            "The file is of another version of "
            "fedrank: make the report with that version, or run again."
        )
    for name, kind in columns.items():
        # Whole numbers may stand for numbers.
        if (found := type_of(table[name])) is not kind and (found, kind) != (int, float):
            raise RunError(
                f"{file}: column {name!r} must hold {_NAMES[kind]} values, got {found.__name__}. "
                "Run again to restore it."
            )
    numbers = {name: table[name].astype(np.float64) for name, kind in columns.items() if kind is float}
    return table.select(columns).with_columns(numbers)


def convert_content(file: Path, what: str, make: Callable[[], Any]) -> Any:
    """Convert a file's content by ``make``; an error of ``make`` becomes one that names the file.

    Args:
        file: Which file.
        what: What it must hold, for the error.
        make: Fails with a KeyError, TypeError, ValueError or AttributeError where the content has another shape.

    Raises:
        RunError: The content has another shape.
    """
    try:
        return make()
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise RunError(
            f"{file}: must hold {what}; this one does not ({type(error).__name__}: {error}). Run again to restore it."
        ) from error


#: Type of a number that is null in a file where it is undefined, and then NaN.
Undefinable = Annotated[float, "null is NaN"]


def convert(kind: Any, raw: Any) -> Any:
    """A value of JSON as a type: a data class by its fields, tuple, mapping, text, number, or as it is.

    Where the type allows None, an undefined number is None, too.

    Raises:
        KeyError, TypeError, ValueError, AttributeError: The value has another shape.
    """
    parts = typing.get_args(kind)
    if dataclasses.is_dataclass(kind):
        return object_of(kind, raw)
    if types.NoneType in parts:
        return None if raw is None or raw != raw else convert(parts[0], raw)
    if typing.get_origin(kind) is Annotated:
        return math.nan if raw is None else convert(parts[0], raw)
    if typing.get_origin(kind) is tuple:
        return tuple(convert(parts[0], one) for one in raw)
    if typing.get_origin(kind) is Mapping:
        return {str(name): convert(parts[1], one) for name, one in raw.items()}
    if kind not in (bool, float, int, str):
        return raw
    if raw is None or (kind in (int, float) and isinstance(raw, str)):
        raise TypeError(f"{raw!r} is no {kind.__name__}")
    return kind(raw)


def object_of(cls: Any, raw: Mapping[str, Json], **given: Any) -> Any:
    """An object of a data class: ``given`` fields as they are, others from JSON as :func:`convert` has them.

    A field that is missing or null has its default; one without a default is an error, unless its type allows null.
    """
    hints, read = typing.get_type_hints(cls, include_extras=True), {}
    for one in dataclasses.fields(cls):
        optional = (one.default, one.default_factory) != (dataclasses.MISSING, dataclasses.MISSING)
        if one.name in raw and one.name not in given and not (optional and raw[one.name] is None):
            read[one.name] = convert(hints[one.name], raw[one.name])
    return cls(**read, **given)
