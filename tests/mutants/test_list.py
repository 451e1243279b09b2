"""The list of mutants is kept up with the code, and what is done with their outcomes is right."""

import ast
from collections import Counter

import pytest

from tests.mutants.run import ROOT, WHOLE, Mutant, Outcome, mutants, passes, score, table

ALL = mutants()


def test_there_are_enough_of_every_area():
    counts = Counter(mutant.area for mutant in ALL)
    assert sum(counts.values()) >= 150 and min(counts.values()) >= 7
    assert set(WHOLE) < set(counts)
    assert len({mutant.id for mutant in ALL}) == len(ALL)


@pytest.mark.slow
def test_a_mutant_can_be_applied_and_is_still_a_program():
    """Its text occurs exactly once in its file. Where the code has changed, change the mutant with it."""
    for mutant in ALL:
        changed = mutant.applied((ROOT / mutant.file).read_text(encoding="utf-8"))
        assert mutant.old != mutant.new, mutant.id
        ast.parse(changed, mutant.id)


def _functions(path: str) -> set[str]:
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_the_tests_that_are_to_kill_them_are_there():
    for test in {test for mutant in ALL for test in mutant.tests}:
        path, _, name = test.partition("::")
        assert (ROOT / path).is_file(), test
        assert not name or name.partition("[")[0] in _functions(path), test


def outcome(area, state):
    return Outcome(Mutant("m", area, "f", "a", "b", "because", ()), state)


def test_scores_count_what_could_be_killed():
    found = [outcome("core", "killed")] * 19 + [outcome("core", "survived"), outcome("core", "equivalent")]
    assert score(found) == 0.95 and passes(found)
    assert not passes([*found, outcome("core", "broken")])
    assert not passes([*[outcome("core", "killed")] * 99, outcome("store", "survived")])
    assert "95%" in table(found) and "because" in table(found)
