"""What crosses between parties, as types with a size.

A message is a frozen dataclass of arrays. Its :class:`Layout` says how it looks on the wire: which fields, which number
of bytes each, which axes. The layout is the contract: the ledger counts its bytes, `encode`/`decode` follow it to the
byte, and a test walks over every protocol's layouts and refuses an axis of raw data.

The wire form, version 1 (all integers little-endian)::

    byte 0         version << 5 | kind      (version 1..7, kind 0..31)
    bytes 1..      the fields in order, each packed without padding

A fixed layout has a fixed size: how long a message is says nothing about what it holds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Generic, TypeVar

import numpy as np

from fedrank.core.errors import ConfigError, WireError

M = TypeVar("M")

#: Version of the wire form that this package writes.
WIRE_VERSION = 1

#: Axes that a message may have: weights; octets of keys and ciphertexts; parties that share masks; several models, or a
#: number about each; silos whose messages a server passes on; sketches, one a document and field, their cells, and
#: hashed words, which a mechanism of :mod:`fedrank.privacy` made; candidates that a network gave a number to, and the
#: moments at which it did. Anything else (queries, documents, clicks, users, rows) is raw data and stays at the party.
PUBLIC_AXES = (
    *("parameters", "bytes", "neighbours", "models", "silos", "fields", "sketches", "cells", "hashes"),
    *("candidates", "moments"),
)

_DTYPES = {"u1": 1, "u2": 2, "u3": 3, "u4": 4, "i2": 2, "i4": 4, "f4": 4}
_SIGNED = ("i2", "i4")


@dataclass(frozen=True)
class Field:
    """One field of a message.

    Attributes:
        name: Attribute of the message.
        dtype: ``u1``, ``u2``, ``u3``, ``u4`` (unsigned integers of so many bytes), ``i2``, ``i4`` (signed, two's
            complement) or ``f4`` (IEEE single).
        meaning: What the number is, in words that a privacy officer understands.
        axes: Name and length of each axis; no axes for a scalar.
        largest: Largest integer that an honest sender can send; more is refused, so that nobody counts for many.
    """

    name: str
    dtype: str
    meaning: str
    axes: tuple[tuple[str, int], ...] = ()
    largest: int | None = None

    def __post_init__(self):
        if self.dtype not in _DTYPES:
            raise ConfigError(f"dtype of field {self.name!r} must be one of {', '.join(_DTYPES)}, got {self.dtype!r}.")
        if self.largest is not None and (
            self.dtype in ("f4", *_SIGNED) or not 0 <= self.largest < 1 << 8 * _DTYPES[self.dtype]
        ):
            raise ConfigError(f"largest of field {self.name!r} must be an integer that unsigned {self.dtype} can hold.")
        for axis, _ in self.axes:
            if axis not in PUBLIC_AXES:
                raise ConfigError(
                    f"field {self.name!r} has an axis {axis!r}; a message may only have the axes "
                    f"{', '.join(PUBLIC_AXES)}: anything along other axes is raw data and stays at the party."
                )

    @property
    def shape(self) -> tuple[int, ...]:
        """Lengths of the axes."""
        return tuple(length for _, length in self.axes)

    @property
    def nbytes(self) -> int:
        """Bytes on the wire."""
        return _DTYPES[self.dtype] * math.prod(self.shape)


@dataclass(frozen=True)
class Layout(Generic[M]):
    """How a message type looks on the wire.

    Attributes:
        message: The dataclass.
        kind: Number of the message type, 0..31, unique within a protocol.
        fields: Its fields, in the order of the wire.
    """

    message: type[M]
    kind: int
    fields: tuple[Field, ...]

    def __post_init__(self):
        if not 0 <= self.kind < 32:
            raise ConfigError(f"kind of {self.name} must be in 0..31, got {self.kind}.")
        declared = [f.name for f in fields(self.message)]  # type: ignore[arg-type]
        if declared != [f.name for f in self.fields]:
            raise ConfigError(
                f"layout of {self.name} lists {[f.name for f in self.fields]}, the message has {declared}."
            )

    @property
    def name(self) -> str:
        """Name of the message type."""
        return self.message.__name__

    @property
    def nbytes(self) -> int:
        """Bytes of one message on the wire, header included, before any transport's own overhead."""
        return 1 + sum(f.nbytes for f in self.fields)

    def encode(self, message: M) -> bytes:
        """The message as bytes.

        Args:
            message: One message: leaves of the layout's shapes, no batch axis.

        Raises:
            WireError: A field has another shape, or a value beyond its dtype or its largest.
        """
        for field in self.fields:
            value = np.asarray(getattr(message, field.name))
            if value.shape != field.shape:
                raise WireError(f"{self.name}.{field.name} must have shape {field.shape}, got {value.shape}.")
        return self.encode_all(message, ())

    def encode_all(self, messages: M, lead: tuple[int, ...]) -> bytes:
        """Many messages as bytes, one after the other; errors as :meth:`encode`.

        Args:
            messages: Leaves with the leading axes ``lead``.
            lead: Such as ``(parties,)``.
        """
        count = math.prod(lead)
        out = np.empty((count, self.nbytes), np.uint8)
        out[:, 0] = WIRE_VERSION << 5 | self.kind
        position = 1
        for field in self.fields:
            value = np.asarray(getattr(messages, field.name))
            if value.shape != (*lead, *field.shape):
                raise WireError(f"{self.name}.{field.name} must have shape {(*lead, *field.shape)}, got {value.shape}.")
            out[:, position : position + field.nbytes] = _pack(self.name, field, value).reshape(count, field.nbytes)
            position += field.nbytes
        return out.tobytes()

    def decode(self, data: bytes) -> M:
        """The message from bytes; the inverse of :meth:`encode`.

        Raises:
            WireError: Another version, another kind, another length, a number that is not finite or beyond its largest.
        """
        if len(data) != self.nbytes:
            raise WireError(f"{self.name} has {self.nbytes} bytes, got {len(data)}.")
        return self._decode(np.frombuffer(data, np.uint8).reshape(1, -1), ())

    def decode_all(self, data: bytes) -> M:
        """Messages that stand one after the other, as leaves with a leading axis of messages; errors as :meth:`decode`.

        One message that is wrong makes all of them wrong.
        """
        if len(data) % self.nbytes:
            raise WireError(f"messages {self.name} of {self.nbytes} bytes each cannot have {len(data)} bytes together.")
        rows = np.frombuffer(data, np.uint8).reshape(-1, self.nbytes)
        return self._decode(rows, (len(rows),))

    def _decode(self, rows: np.ndarray, lead: tuple[int, ...]) -> M:
        heads = rows[:, 0]
        for version in (heads >> 5)[heads >> 5 != WIRE_VERSION]:
            raise WireError(
                f"{self.name}: wire version {version} is not supported; this package speaks {WIRE_VERSION}."
            )
        for kind in (heads & 31)[heads & 31 != self.kind]:
            raise WireError(f"{self.name} is message kind {self.kind}, got kind {kind}.")
        values: dict[str, np.ndarray] = {}
        position = 1
        for field in self.fields:
            values[field.name] = _unpack(self.name, field, rows[:, position : position + field.nbytes], lead)
            position += field.nbytes
        return self.message(**values)

    def describe(self) -> list[Mapping[str, Any]]:
        """One row a field: name, dtype, bytes and meaning; the header first."""
        header = {"name": "header", "dtype": "u1", "bytes": 1, "meaning": "message kind and version"}
        rows = [{"name": f.name, "dtype": f.dtype, "bytes": f.nbytes, "meaning": f.meaning} for f in self.fields]
        return [header, *rows]


def _pack(message: str, field: Field, value: np.ndarray) -> np.ndarray:
    """The bytes of a field of all messages, one after the other: uint8."""
    if field.dtype == "f4":
        with np.errstate(over="ignore"):  # what overflows single precision is refused in the next line
            packed = value.astype("<f4")
        if not np.isfinite(packed).all():
            raise WireError(f"{message}.{field.name} must be finite, got {value[~np.isfinite(packed)].flat[0]}.")
        return packed.reshape(-1).view(np.uint8)
    width = _DTYPES[field.dtype]
    if value.dtype.kind not in "iu":
        raise WireError(f"{message}.{field.name} must hold integers, got dtype {value.dtype}.")
    wide = value.astype(np.int64)
    _check_range(message, field, wide)
    if field.dtype in _SIGNED:
        return wide.astype(f"<{field.dtype}").reshape(-1).view(np.uint8)
    return wide.astype("<u8").reshape(-1, 1).view(np.uint8)[:, :width]


def _unpack(message: str, field: Field, rows: np.ndarray, lead: tuple[int, ...]) -> np.ndarray:
    """The values [*lead, *shape] of a field, from its bytes in each message: uint8 [messages, bytes]."""
    shape = (*lead, *field.shape)
    if field.dtype == "f4":
        value = np.ascontiguousarray(rows).view("<f4").reshape(shape)
        if not np.isfinite(value).all():
            raise WireError(f"{message}.{field.name} must be finite, got {value[~np.isfinite(value)].flat[0]}.")
        return value.astype(np.float32)
    if field.dtype in _SIGNED:
        return np.ascontiguousarray(rows).view(f"<{field.dtype}").reshape(shape).astype(np.int32)
    width = _DTYPES[field.dtype]
    raw = rows.reshape(-1, width)
    wide = np.zeros((len(raw), 8), np.uint8)
    wide[:, :width] = raw
    whole = wide.view("<u8").reshape(shape).astype(np.int64)
    _check_range(message, field, whole)
    # Counts and sums become signed, so that their differences are; only four full bytes need an unsigned type.
    return whole.astype(np.uint32 if width == 4 else np.int32)


def _check_range(message: str, field: Field, values: np.ndarray) -> None:
    lowest, largest = 0, (1 << 8 * _DTYPES[field.dtype]) - 1 if field.largest is None else field.largest
    if field.dtype in _SIGNED:
        half = 1 << 8 * _DTYPES[field.dtype] - 1
        lowest, largest = -half, half - 1
    wrong = values[(values < lowest) | (values > largest)]
    if wrong.size:
        raise WireError(f"{message}.{field.name} must be in {lowest}..{largest}, got {wrong.flat[0]}.")
