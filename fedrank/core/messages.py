"""Messages between parties: their types, declared once, and their layout on the wire.

A message is declared as a class, one line a field: its name, its wire type with the named axes of its shape, and what
the number means, in words that a privacy officer understands::

    from fedrank.core.messages import Array, f4, field, message, u2, u3, u4

    @message(kind=1)
    class Request:
        \"\"\"Server to devices: the model to start from.\"\"\"

        round: Array = field(u4, "number of the round")
        weights: Array = field(f4["parameters"], "the ranker to start from")

    @message(kind=2)
    class Reply:
        \"\"\"Device to server: a sum of its rewards.\"\"\"

        seed: Array = field(u4, "seed of the perturbation that was tried")
        plus: Array = field(u2 | u3, "sum of the privatised rewards", largest="largest_sum")

Everything else follows from the declaration: the class is a frozen dataclass of arrays (and a pytree of JAX, as soon as
JAX is imported; a device needs NumPy only), and a :class:`Layout` of it knows its bytes, encodes and decodes, checks
every number that comes in, describes itself for the documentation, and makes test vectors.

**Wire types.** ``u1``, ``u2``, ``u3``, ``u4`` are unsigned integers of one to four bytes, ``i2`` and ``i4`` signed ones
(two's complement), ``f4`` is an IEEE single. ``u2 | u3`` takes the first of them that holds the largest value.

**Axes.** ``f4["models", "parameters"]`` is an array with two axes; their lengths are given to the layout:
``Layout(Models, models=4, parameters=47)``. Where a length never changes, the declaration has it: ``u1["bytes":32]``.
Only :data:`PUBLIC_AXES` may be used. Anything along another axis (queries, documents, clicks, users, rows) is raw data
and stays at the party.

**Largest values.** ``largest=1`` or ``largest="largest_sum"`` (given to the layout, like a length) bounds an unsigned
integer. A message that has more is refused, so that no sender counts for many.

The wire form, version 1 (all integers little-endian)::

    byte 0         version << 5 | kind      (version 1..7, kind 0..31)
    bytes 1..      the fields in order, each packed without padding

A layout has a fixed size: how long a message is says nothing about what it holds.
"""

from __future__ import annotations

import dataclasses
import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeAlias, TypeVar, dataclass_transform

import numpy as np

from fedrank.core.errors import ConfigError, WireError
from fedrank.core.lazy import dataclass_of_arrays
from fedrank.core.trees import Json

M = TypeVar("M")

#: A field's value: an array or scalar of NumPy or JAX. A message before it is sent may hold either.
Array: TypeAlias = Any

#: Version of the wire form that this package writes.
WIRE_VERSION = 1

#: Axes that a message may have: weights; octets of keys and ciphertexts; parties that share masks; several models, or a
#: number about each; silos whose messages a server passes on; sketches, one a document and field, their cells, and
#: hashed words, which a mechanism of :mod:`fedrank.privacy` made; candidates that a network gave a number to, and the
#: transitions at which it did. Anything else (queries, documents, clicks, users, rows) is raw data and stays at the
#: party.
PUBLIC_AXES = (
    *("parameters", "bytes", "neighbours", "models", "silos", "fields", "sketches", "cells", "hashes"),
    *("candidates", "transitions", "statistics"),
)

_DTYPES = {"u1": 1, "u2": 2, "u3": 3, "u4": 4, "i2": 2, "i4": 4, "f4": 4}
_SIGNED = ("i2", "i4")

#: Attribute of a message class that holds its declaration, and key of a field's metadata that holds the field's.
_DECLARATION = "__fedrank_message__"
_WIRE = "fedrank wire"


# ---------------------------------------------------------------------------------------------------- declaration


@dataclass(frozen=True)
class WireType:
    """The number format of a field, and the axes that its numbers are arranged along.

    Attributes:
        dtypes: Names of the types to choose from, the narrowest first; usually one.
        axes: Name of each axis, and its length: a number, or the name under which the layout is given it. No axes for a
            scalar.
    """

    dtypes: tuple[str, ...]
    axes: tuple[tuple[str, int | str], ...] = ()

    def __getitem__(self, axes: Any) -> WireType:
        """The same along axes: ``f4["parameters"]``, ``u1["silos", "bytes":32]``."""
        if self.axes:
            raise ConfigError(f"{self} has its axes already; write all of them in one pair of brackets.")
        listed = axes if isinstance(axes, tuple) else (axes,)
        pairs = [(axis.start, axis.stop) if isinstance(axis, slice) else (axis, axis) for axis in listed]
        for name, length in pairs:
            if not isinstance(name, str) or not isinstance(length, int | str) or isinstance(length, bool):
                raise ConfigError(
                    'an axis is written "name", or "name":length with a number or the name of a size; '
                    f"got {name!r}:{length!r}."
                )
        return WireType(self.dtypes, tuple(pairs))

    def __or__(self, wider: WireType) -> WireType:
        """The first type of the two that holds the field's largest value: ``u2 | u3``."""
        if not isinstance(wider, WireType):
            return NotImplemented
        if self.axes or wider.axes:
            raise ConfigError(
                f'axes stand behind the choice: ({"|".join((*self.dtypes, *wider.dtypes))})["parameters"].'
            )
        return WireType(self.dtypes + wider.dtypes)

    def __str__(self) -> str:
        axes = ", ".join(name if name == length else f"{name}:{length}" for name, length in self.axes)
        return "|".join(self.dtypes) + (f"[{axes}]" if axes else "")


u1, u2, u3, u4, i2, i4, f4 = (WireType((dtype,)) for dtype in _DTYPES)


@dataclass(frozen=True)
class _Declared:
    """One field of a message, its sizes still open.

    Attributes:
        wire: Types to choose from, and axes.
        meaning: What the number is.
        largest: Largest integer of an honest sender, or the name under which the layout is given it.
    """

    wire: WireType
    meaning: str
    largest: int | str | None

    def check(self, where: str) -> None:
        """Refuse what cannot be a field of a message.

        Raises:
            ConfigError: See the messages; ``where`` names message and field in them.
        """
        wire, dtypes = self.wire, " ".join(_DTYPES)
        if not isinstance(wire, WireType):
            raise ConfigError(f"{where} must have one of the wire types {dtypes}, got {wire!r}.")
        if not isinstance(self.meaning, str) or not self.meaning.strip():
            raise ConfigError(f'{where} must say what it means: field({wire}, "number of the round").')
        for axis, length in wire.axes:
            if axis not in PUBLIC_AXES:
                raise ConfigError(
                    f"{where} has an axis {axis!r}; a message may only have the axes {', '.join(PUBLIC_AXES)}: "
                    "anything along other axes is raw data and stays at the party."
                )
            if isinstance(length, int):
                _length(where, axis, length)
        if len(wire.dtypes) > 1 and self.largest is None:
            raise ConfigError(f"{where} may be {' or '.join(wire.dtypes)}; give the largest value that it must hold.")
        if self.largest is not None and "f4" in wire.dtypes:
            raise ConfigError(f"{where} is a real number; a largest value is for integers.")
        if isinstance(self.largest, int):
            self.dtype(where, self.largest)

    @property
    def sizes(self) -> list[str]:
        """Names of what a layout has to be given: lengths of axes, and the largest value."""
        names = [length for _, length in self.wire.axes if isinstance(length, str)]
        return [*names, self.largest] if isinstance(self.largest, str) else names

    def dtype(self, where: str, largest: int) -> str:
        """The first type that holds ``largest``; of signed types, ±largest."""
        if isinstance(largest, bool) or not isinstance(largest, int | np.integer) or largest < 0:
            raise ConfigError(f"largest value of {where} must be an integer of at least 0, got {largest!r}.")
        for dtype in self.wire.dtypes:
            if largest <= _limits(dtype)[1]:
                return dtype
        raise ConfigError(f"largest value of {where} must fit into {self.wire.dtypes[-1]}, got {largest}.")

    def field(self, message: str, name: str, sizes: Mapping[str, int]) -> Field:
        """The field under these sizes."""
        where = f"{message}.{name}"
        for size in self.sizes:
            if size not in sizes:
                raise ConfigError(
                    f"{where}, {self.wire}, needs {size}: say Layout({message}, {size}=…), or let the protocol have it "
                    f"in its sizes = {{{size!r}: …}}."
                )
        axes = tuple(
            (axis, _length(where, axis, sizes[length] if isinstance(length, str) else length))
            for axis, length in self.wire.axes
        )
        largest = sizes[self.largest] if isinstance(self.largest, str) else self.largest
        dtype = self.wire.dtypes[0] if largest is None else self.dtype(where, largest)
        # Of signed integers, a largest value chooses the width and bounds nothing.
        return Field(name, dtype, self.meaning, axes, None if largest is None or dtype in _SIGNED else int(largest))


def _length(where: str, axis: str, length: Any) -> int:
    if isinstance(length, bool) or not isinstance(length, int | np.integer) or length < 1:
        raise ConfigError(f"axis {axis!r} of {where} must have a length of at least 1, got {length!r}.")
    return int(length)


def field(wire: WireType, meaning: str, *, largest: int | str | None = None) -> Any:
    """One field of a message, as the value of its line in the class.

    Args:
        wire: Wire type, with its axes in brackets.
        meaning: What the number is.
        largest: Largest integer that an honest sender can send, or the name under which a layout is given it. Of
            signed integers it only chooses the width.
    """
    return dataclasses.field(metadata={_WIRE: _Declared(wire, meaning, largest)})


@dataclass(frozen=True)
class _Declaration:
    """The declaration that :func:`message` keeps with the class.

    Attributes:
        name: Name of the message type.
        kind: Its number.
        fields: Its fields by name, in the order of the wire.
    """

    name: str
    kind: int
    fields: dict[str, _Declared]


@dataclass_transform(frozen_default=True, eq_default=False, field_specifiers=(field,))
def message(*, kind: int, name: str | None = None) -> Callable[[type[M]], type[M]]:
    """Make a class a message; see the module for how to write one.

    Args:
        kind: Number of the message type, 0..31, unique within a protocol.
        name: Name in the ledger, if it is not the class's.

    Raises:
        ConfigError: The kind is out of range, or a line of the class is no field of a message.
    """

    def declare(cls: type[M]) -> type[M]:
        called = name or cls.__name__
        if isinstance(kind, bool) or not isinstance(kind, int) or not 0 <= kind < 32:
            raise ConfigError(f"kind of {called} must be in 0..31, got {kind!r}.")
        annotated = inspect.get_annotations(cls)
        for line in annotated:
            if not isinstance(cls.__dict__.get(line), dataclasses.Field):
                raise ConfigError(f'{called}.{line} has no wire type; write {line}: Array = field(u4, "its meaning").')
        for line, value in vars(cls).items():
            if isinstance(value, dataclasses.Field) and line not in annotated:
                raise ConfigError(f"{called}.{line} needs an annotation; write {line}: Array = field(…).")
        made = dataclass(frozen=True, eq=False)(cls)
        declared: dict[str, _Declared] = {}
        for f in dataclasses.fields(made):  # type: ignore[arg-type] - it is a dataclass since the line before
            if not isinstance(one := f.metadata.get(_WIRE), _Declared):
                raise ConfigError(f'{called}.{f.name} must be written with field(u4, "its meaning").')
            one.check(f"{called}.{f.name}")
            declared[f.name] = one
        setattr(made, _DECLARATION, _Declaration(called, kind, declared))
        return dataclass_of_arrays(made)

    return declare


def is_message(value: Any) -> bool:
    """True if ``value`` is a class that :func:`message` has made."""
    return isinstance(value, type) and _DECLARATION in value.__dict__


def sizes_of(message: type) -> tuple[str, ...]:
    """Names of the sizes that a layout of a message has to be given, in the order of its fields."""
    declared = _declaration(message).fields.values()
    return tuple(dict.fromkeys(size for field in declared for size in field.sizes))


def _declaration(message: type) -> _Declaration:
    if not is_message(message):
        raise ConfigError(f"{message!r} is no message; declare it with @message(kind=…).")
    return message.__dict__[_DECLARATION]


# ----------------------------------------------------------------------------------------------------------- layout


@dataclass(frozen=True)
class Field:
    """One field of a layout: all its sizes are known.

    Attributes:
        name: Attribute of the message.
        dtype: ``u1``, ``u2``, ``u3``, ``u4`` (unsigned integers of one to four bytes), ``i2``, ``i4`` (signed, two's
            complement) or ``f4`` (IEEE single).
        meaning: What the number is, in words that a privacy officer understands.
        axes: Name and length of each axis; no axes for a scalar.
        largest: Largest integer that an honest sender can send; more is refused, so that no sender counts for many.
    """

    name: str
    dtype: str
    meaning: str
    axes: tuple[tuple[str, int], ...] = ()
    largest: int | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """Lengths of the axes, in their order; empty for a scalar."""
        return tuple(length for _, length in self.axes)

    @property
    def nbytes(self) -> int:
        """Number of bytes that the field takes on the wire."""
        return _DTYPES[self.dtype] * math.prod(self.shape)

    @property
    def limits(self) -> tuple[int, int]:
        """Smallest and largest integer that may cross."""
        lowest, largest = _limits(self.dtype)
        return lowest, largest if self.largest is None else self.largest


def _limits(dtype: str) -> tuple[int, int]:
    """Smallest and largest integer of a wire type."""
    bits = 8 * _DTYPES[dtype]
    return (-(1 << bits - 1), (1 << bits - 1) - 1) if dtype in _SIGNED else (0, (1 << bits) - 1)


@dataclass(frozen=True, init=False)
class Layout(Generic[M]):
    """The layout of a message on the wire, with its sizes known.

    ``Layout(Request, parameters=47)`` is the layout of a message ``Request`` with the size that its declaration leaves
    open.

    Attributes:
        message: The message's class.
        kind: Number of the message type, 0..31, unique within a protocol.
        fields: Its fields, in the order of the wire.
        name: Name of the message type.

    Raises:
        ConfigError: A size is missing, unknown or out of range.
    """

    message: type[M]
    kind: int
    fields: tuple[Field, ...]
    name: str

    def __init__(self, message: type[M], /, **sizes: int):
        declared, known = _declaration(message), sizes_of(message)
        if unknown := [size for size in sizes if size not in known]:
            raise ConfigError(f"{declared.name} has no size {unknown[0]!r}; it has {', '.join(known) or 'none'}.")
        fields = tuple(one.field(declared.name, name, sizes) for name, one in declared.fields.items())
        parts = {"message": message, "kind": declared.kind, "fields": fields, "name": declared.name}
        for name, part in parts.items():  # frozen: set once, here
            object.__setattr__(self, name, part)

    @property
    def nbytes(self) -> int:
        """Bytes of one message on the wire, header included, before any transport's own overhead."""
        return 1 + sum(f.nbytes for f in self.fields)

    @property
    def head(self) -> bytes:
        """The first byte of its messages: version and kind."""
        return bytes([WIRE_VERSION << 5 | self.kind])

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

    def example(self, seed: int = 0) -> tuple[M, bytes]:
        """A message made of arbitrary numbers, and its bytes: a test vector, the same on every machine.

        Args:
            seed: Another seed, other numbers; at least 0.
        """
        bits = np.random.PCG64(seed)  # its raw words are fixed by NumPy's policy of compatibility
        values: dict[str, np.ndarray] = {}
        for field in self.fields:
            words = bits.random_raw(math.prod(field.shape)).reshape(field.shape)
            if field.dtype == "f4":  # eighths between -16 and 16 are the same in any precision
                values[field.name] = ((words >> np.uint64(56)).astype(np.float32) - 128) / 8
            else:
                lowest, largest = field.limits
                values[field.name] = (words >> np.uint64(16)).astype(np.int64) % (largest - lowest + 1) + lowest
        data = self.encode(self.message(**values))
        return self.decode(data), data

    def describe(self) -> list[Mapping[str, Json]]:
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
    lowest, largest = field.limits
    wrong = values[(values < lowest) | (values > largest)]
    if wrong.size:
        raise WireError(f"{message}.{field.name} must be in {lowest}..{largest}, got {wrong.flat[0]}.")
