"""Numbers in README and documentation are those of the last ``make numbers``, and the commands still give them."""

import json
import re
from pathlib import Path

import measured
import pytest

from fedrank_zoo.reproduce.study import load_file

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def numbers():
    return measured


def test_marked_numbers_are_those_that_were_measured(numbers):
    kept = json.loads(numbers.KEPT.read_text(encoding="utf-8"))
    found = [(page, *mark) for page in numbers.pages() for mark in numbers.marked(page)]
    assert {ROOT / "README.md"} <= {page for page, _, _ in found}
    assert [(page, name) for page, name, value in found if kept.get(name) != value] == []


def test_numbers_without_a_mark_are_not_kept(numbers):
    kept = json.loads(numbers.KEPT.read_text(encoding="utf-8"))
    assert set(kept) == {name for page in numbers.pages() for name, _ in numbers.marked(page)}
    assert {name.partition(".")[0] for name in kept} == set(numbers.RUNS)


RESULTS = (ROOT / "docs" / "explanation" / "results.md").read_text(encoding="utf-8")


def tables(text):
    """The Markdown tables of a page, each with the paragraph that follows it."""
    blocks = [block.strip() for block in text.split("\n\n")]
    return [(block, after) for block, after in zip(blocks, [*blocks[1:], ""], strict=True) if block.startswith("|")]


@pytest.mark.parametrize(("table", "after"), tables(RESULTS), ids=[table.split("|")[1] for table, _ in tables(RESULTS)])
def test_a_table_of_results_is_measured_anew_or_names_its_command_and_seeds(numbers, table, after):
    rows = table.splitlines()[2:]
    anew = all(numbers.MARK.search(row) for row in rows)
    assert anew or re.match(r"`fedrank [^`]+`, seeds \d+ to \d+", after), "neither marks nor a command with its seeds"
    bare = [row for row in rows if re.search(r"\d", re.sub(r"^\|[^|]*\|", "", numbers.MARK.sub("", row)))]
    assert not anew or bare == []


def test_the_page_of_results_has_a_table_for_each_task():
    assert len(tables(RESULTS)) >= 4
    assert tables("text\n\n| a |\n| - |\n| 1 |\n\nafter") == [("| a |\n| - |\n| 1 |", "after")]


def test_the_table_of_trials_is_that_of_its_file():
    """Rows of worlds that plans were not made for, as ``python -m benchmarks.slate_trials`` prints them."""
    trials = load_file(ROOT / "benchmarks" / "slate_trials.py")
    page = (ROOT / "reproductions" / "fedslate_2024" / "worlds.md").read_text(encoding="utf-8")
    kept = json.loads(trials.RESULTS.read_text(encoding="utf-8"))
    assert set(kept) == set(trials.ROWS)
    for name, row in kept.items():
        assert f"| {name} | {' | '.join(trials.words_of(row['runs']))} |" in page


@pytest.mark.minutes
@pytest.mark.parametrize("name", ["demo"])
def test_the_commands_still_give_them(numbers, name, monkeypatch):
    monkeypatch.delenv("XLA_FLAGS", raising=False)  # compiled as users compile it
    kept = json.loads(numbers.KEPT.read_text(encoding="utf-8"))
    for key, value in numbers.measure(name).items():
        was, now = (float(text.replace(",", "")) for text in (kept[key], value))
        assert now == pytest.approx(was, abs=2e-3), key  # another processor may round a ranking's ties otherwise
