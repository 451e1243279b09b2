"""The generated reference is complete, and the specification of the perturbation stands on its own."""

import hashlib
import re
import struct

import generate
import numpy as np
import perturbation_reference as reference
import pytest
from pages import ROOT

from fedrank.core import rng
from fedrank.engine.methods import method, method_names


@pytest.mark.parametrize("seed", generate.SEEDS, ids=hex)
def test_the_written_specification_is_what_the_package_does(seed):
    """The page's program shares no line with the package."""
    assert reference.halves(seed, 9) == rng.perturbation_halves(seed, 9).tolist()
    np.testing.assert_array_equal(np.array(reference.perturbation(seed, 480), np.float32), rng.perturbation(seed, 480))


def test_the_generator_is_the_published_one():
    """Known answers of Threefry-2x32-20: ``kat_vectors`` of Random123, the library of the generator's authors."""
    ones = np.uint32(0xFFFFFFFF)
    known = [
        ((0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
        ((ones, ones), (ones, ones), (0x1CB996FC, 0xBB002BE7)),
        ((0x13198A2E, 0x03707344), (0x243F6A88, 0x85A308D3), (0xC4923A9C, 0x483DF7A0)),
    ]
    for key, counter, expected in known:
        arrays = [np.array([word], np.uint32) for word in (*key, *counter)]
        got = rng.threefry_2x32((arrays[0], arrays[1]), (arrays[2], arrays[3]))
        assert (int(got[0][0]), int(got[1][0])) == expected


def test_the_printed_checksum_is_that_of_the_specified_table():
    values = b"".join(struct.pack("<f", reference.normal(h)) for h in range(65536))
    assert hashlib.sha256(values).hexdigest() in generate.vectors()


def test_every_setting_is_documented_with_help():
    for name in method_names():
        settings = list(generate.settings(method(name).defaults()))
        assert settings and not [f"{name}: {key}" for key, _, _, text in settings if not text.strip()]


def test_the_page_of_settings_names_each_of_them():
    page = generate.configuration()
    rows = set(re.findall(r"^\| `([^`]+)` \|", page, flags=re.MULTILINE))
    for name in method_names():
        assert {key for key, *_ in generate.settings(method(name).defaults())} - {"protocol"} <= rows
        assert f"`{name}`" in page


def test_the_page_of_commands_has_the_demo_and_the_run():
    page = generate.commands()
    assert "demo" in page and "run" in page


def test_every_registered_name_is_in_the_catalogue():
    page = generate.catalogue()
    for name in ("perfect", "navigational", "informational", "linear", "mlp", "MaxRR"):
        assert f"| `{name}` |" in page


@pytest.fixture(scope="module")
def messages():
    return generate.messages()


def test_examples_are_the_printed_numbers(messages):
    """Read by the page's words alone: the bytes of a table's row are its number in the example."""
    pattern = r"\n((?:\|.*\n)+)\nExample: `([0-9a-f ]+)` is (.*)\.\n"
    found = re.findall(pattern, messages)
    assert len(found) > 20
    for table, text, values in found:
        data = bytes.fromhex(text)
        for row in table.strip().splitlines()[3:]:
            span, name, kind, _ = (cell.strip() for cell in row.strip("|").split("|", 3))
            first, _, last = span.partition("–")
            part, form = data[int(first) : int(last or first) + 1], kind[1:3]
            printed = re.search(rf"(?:^|, ){name[1:-1]} = (\[.*?\](?=, [a-z]|$)|[^,\[]+)", values)
            assert printed, (name, values)
            numbers = [float(x) for x in re.findall(r"-?[\d.]+(?:e[+-]?\d+)?", printed.group(1))]
            width = int(form[1])
            cut = [part[i : i + width] for i in range(0, len(part), width)]
            if form == "f4":
                assert numbers == [struct.unpack("<f", one)[0] for one in cut]
            else:
                assert numbers == [int.from_bytes(one, "little", signed=form[0] == "i") for one in cut]


def test_tables_of_bytes_add_up(messages):
    """The span of the last row ends at the length that is printed above the table."""
    tables = re.findall(r": ([\d,]+) bytes\.\n(?:[^|\n].*\n|\n)*((?:\|.*\n)+)", messages)
    assert len(tables) == sum(len(m) for m in generate.layouts().values())
    for length, table in tables:
        last = re.match(r"\| (?:\d+–)?(\d+) ", table.strip().splitlines()[-1])
        assert last and int(last.group(1)) == int(length) - 1


def test_pages_do_not_name_machines_or_registries():
    pattern = re.compile(r"(?<![\w.])/(?:work|tmp|root|home)/\w|py" + r"pi\.org|pythonhosted")
    for path in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]:
        if not {"_build", "generated"} & set(path.relative_to(ROOT).parts):
            assert not pattern.search(path.read_text(encoding="utf-8")), path
