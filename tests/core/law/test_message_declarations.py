"""Declared messages: what a declaration gives, what it refuses, and JAX before and after it."""

import dataclasses
import struct
import subprocess
import sys

import jax
import numpy as np
import pytest

from fedrank.core.errors import ConfigError, WireError
from fedrank.core.messages import (
    PUBLIC_AXES,
    Array,
    Layout,
    f4,
    field,
    i2,
    i4,
    is_message,
    message,
    sizes_of,
    u1,
    u2,
    u3,
    u4,
)


@message(kind=5)
class Everything:
    """Nobody to nobody: a field of every type."""

    flags: Array = field(u1["silos"], "a flag a silo", largest=1)
    count: Array = field(u2, "a count", largest="most")
    total: Array = field(u2 | u3, "a sum", largest="most")
    word: Array = field(u4, "a word")
    keys: Array = field(u1["silos", "bytes":3], "a key a silo")
    noisy: Array = field(i2 | i4, "a count with noise", largest="widest")
    signed: Array = field(i4["neighbours":"others"], "a signed number of each of the others")
    weights: Array = field(f4["models", "parameters"], "models")


SIZES = {"silos": 2, "most": 300, "widest": 9, "others": 4, "models": 2, "parameters": 3}


def by_struct(layout, data):
    """An independent reading of the wire form, from what the layout says about itself: numbers, field by field."""
    assert data[0] == 1 << 5 | layout.kind
    values, at = {}, 1
    for row in layout.describe()[1:]:
        part, width = data[at : at + row["bytes"]], int(row["dtype"][1])
        cut = [part[i : i + width] for i in range(0, len(part), width)]
        if row["dtype"] == "f4":
            values[row["name"]] = [struct.unpack("<f", one)[0] for one in cut]
        else:
            values[row["name"]] = [int.from_bytes(one, "little", signed=row["dtype"][0] == "i") for one in cut]
        at += row["bytes"]
    assert at == len(data)
    return values


def test_a_declaration_gives_a_layout():
    layout = Layout(Everything, **SIZES)
    assert [(f.name, f.dtype, f.axes, f.largest) for f in layout.fields] == [
        ("flags", "u1", (("silos", 2),), 1),
        ("count", "u2", (), 300),
        ("total", "u2", (), 300),
        ("word", "u4", (), None),
        ("keys", "u1", (("silos", 2), ("bytes", 3)), None),
        ("noisy", "i2", (), None),
        ("signed", "i4", (("neighbours", 4),), None),
        ("weights", "f4", (("models", 2), ("parameters", 3)), None),
    ]
    assert (layout.name, layout.kind, layout.message) == ("Everything", 5, Everything)
    assert layout.nbytes == 1 + 2 + 2 + 2 + 4 + 6 + 2 + 16 + 24
    assert [row["meaning"] for row in layout.describe()][1:3] == ["a flag a silo", "a count"]
    assert set(sizes_of(Everything)) == set(SIZES)
    assert layout == Layout(Everything, **SIZES) and hash(layout) == hash(Layout(Everything, **SIZES))
    assert layout != Layout(Everything, **{**SIZES, "models": 3})


@pytest.mark.parametrize(
    ("largest", "dtype"), [(0, "u2"), (2**16 - 1, "u2"), (2**16, "u3"), (2**24 - 1, "u3"), (2**24, "u4")]
)
def test_the_first_type_that_holds_the_largest_value_is_taken(largest, dtype):
    @message(kind=1)
    class Sum:
        plus: Array = field(u2 | u3 | u4, "a sum", largest="most")

    (made,) = Layout(Sum, most=largest).fields
    assert (made.dtype, made.largest) == (dtype, largest)


@pytest.mark.parametrize(("largest", "dtype"), [(2**15 - 1, "i2"), (2**15, "i4")])
def test_of_signed_integers_the_largest_value_chooses_the_width_only(largest, dtype):
    layout = Layout(Everything, **{**SIZES, "widest": largest})
    noisy = layout.fields[5]
    assert (noisy.dtype, noisy.largest) == (dtype, None)
    example, _ = layout.example()
    lowest = dataclasses.replace(example, noisy=np.int64(noisy.limits[0]))
    assert int(layout.decode(layout.encode(lowest)).noisy) == noisy.limits[0] < -largest


def test_a_message_is_a_frozen_class_of_arrays():
    assert dataclasses.is_dataclass(Everything) and is_message(Everything)
    example, _ = Layout(Everything, **SIZES).example()
    with pytest.raises(dataclasses.FrozenInstanceError):
        example.word = 3
    with pytest.raises(TypeError):
        Everything(1, 2)


def test_a_message_may_be_called_by_another_name_and_add_fields():
    @message(kind=6, name="Model")
    class Start:
        round: Array = field(u4, "number of the round")

    @message(kind=7)
    class More(Start):
        weights: Array = field(f4["parameters"], "the model")

    assert Layout(Start).name == "Model" and Layout(Start).nbytes == 5
    assert [f.name for f in Layout(More, parameters=2).fields] == ["round", "weights"]
    assert Layout(More, parameters=2).kind == 7


def test_a_message_may_have_no_field():
    @message(kind=0)
    class Done:
        """Party to server: it has done so."""

    assert Layout(Done).nbytes == 1 and Layout(Done).encode(Done()) == b"\x20"


# ------------------------------------------------------------------------------------------------------ test vectors


def test_examples_are_read_alike_by_an_independent_reader():
    for seed in [0, 1, 2**31]:
        layout = Layout(Everything, **SIZES)
        example, data = layout.example(seed)
        assert len(data) == layout.nbytes and layout.encode(example) == data
        read = by_struct(layout, data)
        for f in layout.fields:
            np.testing.assert_array_equal(np.asarray(getattr(example, f.name)).reshape(-1), read[f.name])
            assert np.shape(getattr(example, f.name)) == f.shape
        assert max(read["flags"]) <= 1 and read["total"][0] <= 300


def test_an_example_is_the_same_on_every_machine():
    expected = "25 00 01 56 00 2c 00 16 0a 90 d0 0b 08 c9 00 5e be"
    assert Layout(Everything, **SIZES).example(3)[1].hex(" ").startswith(expected)
    assert Layout(Everything, **SIZES).example(3)[1] != Layout(Everything, **SIZES).example(4)[1]


def test_a_number_beyond_the_largest_is_refused_both_ways():
    layout = Layout(Everything, **SIZES)
    example, data = layout.example()
    with pytest.raises(WireError, match=r"flags must be in 0..1, got 2"):
        layout.encode(dataclasses.replace(example, flags=np.array([0, 2])))
    with pytest.raises(WireError, match=r"flags must be in 0..1, got 2"):
        layout.decode(data[:1] + b"\x02" + data[2:])


# ---------------------------------------------------------------------------------------------------------- refusals


def declared(wire=u4, meaning="a number", **more):
    return lambda: message(kind=1)(
        type("Bad", (), {"__annotations__": {"x": Array}, "x": field(wire, meaning, **more)})
    )


def test_what_is_wrong_is_said():
    for declare, says in [
        (declared(meaning=""), "Bad.x must say what it means"),
        (declared(meaning="  "), "Bad.x must say what it means"),
        (declared(f4["parameters":0]), "at least 1, got 0"),
        (declared(f4["parameters":-3]), "at least 1, got -3"),
        (declared(u2 | u3), "largest"),
        (declared(f4, largest=3), "real number"),
        (declared(u1, largest=256), "must fit into u1, got 256"),
        (declared(u1, largest=-1), "at least 0"),
        (lambda: f4["models"]["parameters"], "one pair of brackets"),
        (lambda: f4[3], "axis is written"),
        (lambda: f4["parameters":2.5], "axis is written"),
        (lambda: u2 | u3["parameters"], "behind the choice"),
        (lambda: message(kind=32)(type("Bad", (), {})), r"0\.\.31"),
        (lambda: message(kind=-1)(type("Bad", (), {})), r"0\.\.31"),
        (lambda: message(kind=1)(type("Bad", (), {"__annotations__": {"x": Array}})), "Bad.x has no wire type"),
        (lambda: message(kind=1)(type("Bad", (), {"__annotations__": {"x": Array}, "x": 3})), "has no wire type"),
        (lambda: message(kind=1)(type("Bad", (), {"x": field(u4, "a number")})), "needs an annotation"),
        (
            lambda: message(kind=1)(type("Bad", (), {"__annotations__": {"x": Array}, "x": dataclasses.field()})),
            "must be written with field",
        ),
        (lambda: Layout(int), "no message"),
        (lambda: Layout(Everything), "silos"),
        (lambda: Layout(Everything, **SIZES, rows=3), "no size 'rows'"),
        (lambda: Layout(Everything, **{**SIZES, "parameters": 0}), "at least 1, got 0"),
        (lambda: Layout(Everything, **{**SIZES, "parameters": -1}), "at least 1, got -1"),
        (lambda: Layout(Everything, **{**SIZES, "parameters": True}), "at least 1, got True"),
        (lambda: Layout(Everything, **{**SIZES, "most": 2**16}), "Everything.count must fit into u2, got 65536"),
        (lambda: Layout(Everything, **{**SIZES, "most": -1}), "at least 0, got -1"),
        (lambda: Layout(type("Undeclared", (Everything,), {}), **SIZES), "no message"),
    ]:
        with pytest.raises(ConfigError, match=says):
            declare()


_WRONG_TYPES = """
from fedrank.core.errors import ConfigError
from fedrank.core.messages import Array, Layout, f4, field, message, u4

def declared(wire=u4, meaning="a number", kind=1):
    @message(kind=kind)
    class Bad:
        x: Array = field(wire, meaning)
    return Bad

for attempt in (
    lambda: declared("u4"), lambda: declared(int), lambda: declared(meaning=None), lambda: declared(kind="1"),
    lambda: declared(kind=True), lambda: Layout(declared(f4["parameters"]), parameters=2.0),
):
    try:
        attempt()
    except ConfigError as error:
        print(error)
"""


def test_wrong_types_are_refused_without_a_type_checker():
    done = subprocess.run([sys.executable, "-c", _WRONG_TYPES], capture_output=True, text=True, timeout=60)
    said = done.stdout.splitlines()
    about = ("got 'u4'", "got <class 'int'>", "Bad.x must say", "got '1'", "got True", "got 2.0")
    assert len(said) == len(about), done.stderr
    assert all(part in line for part, line in zip(about, said, strict=True)), said


def test_raw_data_cannot_be_declared():
    for axis in ["queries", "documents", "clicks", "users", "rows", "items"]:
        with pytest.raises(ConfigError, match=f"Bad.x has an axis '{axis}'.*raw data"):
            declared(f4["parameters", axis])()
        assert axis not in PUBLIC_AXES


# ------------------------------------------------------------------------------------------------------------- JAX


def test_a_message_is_a_pytree():
    example, _ = Layout(Everything, **SIZES).example()
    doubled = jax.jit(lambda m: jax.tree.map(lambda leaf: leaf * 2, m))(example)
    assert isinstance(doubled, Everything)
    np.testing.assert_array_equal(doubled.weights, 2 * example.weights)
    leaves = [leaf.shape for leaf in jax.tree.leaves(example)]
    assert leaves == [np.shape(getattr(example, f.name)) for f in dataclasses.fields(Everything)]


_DECLARE = """
import sys
{first}
from fedrank.core.messages import Array, field, message, u4
before = "jax" in sys.modules
@message(kind=1)
class Number:
    value: Array = field(u4, "a number")
{then}
import jax
print(before, jax.tree.map(lambda x: x + 1, Number(1)).value)
"""

_EXCHANGE = """
import jax
from fedrank.core.protocol import Exchange
class Ask(Exchange, request=Number, reply=Number):
    ...
"""

_SIMULATOR = """
from fedrank.engine.simulator import Simulator
Simulator(None)
from fedrank.core.lazy import jnp
jnp.ones
"""


@pytest.mark.parametrize(
    ("first", "then", "before"),
    [
        ("import jax", "", "True"),
        ("", _EXCHANGE, "False"),
        (
            "",
            _SIMULATOR,
            "False",
        ),
        ("", "import jax\n@message(kind=2)\nclass Other:\n    value: Array = field(u4, 'a number')", "False"),
    ],
    ids=["jax first", "exchange later", "simulator later", "another message later"],
)
def test_a_message_is_a_pytree_whichever_is_imported_first(first, then, before):
    program = _DECLARE.format(first=first, then=then)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == [before, "2"], done.stderr


def test_messages_need_no_jax():
    program = (
        "import sys; sys.modules['jax'] = None\n"
        "from fedrank.core.messages import Array, Layout, field, message, u4\n"
        "@message(kind=1)\nclass Number:\n    value: Array = field(u4, 'a number')\n"
        "print(Layout(Number).encode(Number(258)).hex())"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == ["2102010000"], done.stderr
