"""Numbers in README and documentation are those of the last ``make numbers``, and the commands still give them."""

import importlib.util
import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def numbers():
    spec = importlib.util.spec_from_file_location("docs_numbers", ROOT / "docs" / "numbers.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["docs_numbers"] = module
    spec.loader.exec_module(module)
    return module


def test_marked_numbers_are_those_that_were_measured(numbers):
    kept = json.loads(numbers.KEPT.read_text(encoding="utf-8"))
    found = [(page, *mark) for page in numbers.pages() for mark in numbers.marked(page)]
    assert {ROOT / "README.md"} <= {page for page, _, _ in found}
    assert [(page, name) for page, name, value in found if kept.get(name) != value] == []


def test_numbers_without_a_mark_are_not_kept(numbers):
    kept = json.loads(numbers.KEPT.read_text(encoding="utf-8"))
    assert set(kept) == {name for page in numbers.pages() for name, _ in numbers.marked(page)}
    assert {name.partition(".")[0] for name in kept} == set(numbers.RUNS)


@pytest.mark.minutes
@pytest.mark.parametrize("name", ["demo"])
def test_the_commands_still_give_them(numbers, name, monkeypatch):
    monkeypatch.delenv("XLA_FLAGS", raising=False)  # compiled as users compile it
    kept = json.loads(numbers.KEPT.read_text(encoding="utf-8"))
    for key, value in numbers.measure(name).items():
        was, now = (float(text.replace(",", "")) for text in (kept[key], value))
        assert now == pytest.approx(was, abs=2e-3), key  # another processor may round a ranking's ties otherwise
