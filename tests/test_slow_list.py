"""The list of slow tests is kept up with the tests."""

import ast
from pathlib import Path

from slow_list import listed_tests

ROOT = Path(__file__).resolve().parents[1]


def test_every_slow_test_is_there_and_listed_once():
    listed = [*listed_tests("slow"), *listed_tests("minutes")]
    assert len(set(listed)) == len(listed)
    functions = {}
    for test in listed:
        path, _, name = test.partition("::")
        if path not in functions:
            tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
            functions[path] = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
        found = functions[path].get(name.partition("[")[0])
        assert not name or found is not None, test
        if "[" in name:  # a case: of parameters, or of a fixture's
            assert found.args.args or any("parametrize" in ast.unparse(one) for one in found.decorator_list), test
    for mark in ("slow", "minutes"):  # a case may be listed for minutes where its test is listed as slow
        listed = listed_tests(mark)
        assert not [test for test in listed if "[" in test and test.partition("[")[0] in listed]
