"""The list of slow tests is kept up with the tests."""

import ast
from pathlib import Path

from slow_list import slow_tests

ROOT = Path(__file__).resolve().parents[1]


def test_every_slow_test_is_there_and_listed_once():
    listed = slow_tests()
    assert len(set(listed)) == len(listed)
    functions = {}
    for test in listed:
        path, _, name = test.partition("::")
        if path not in functions:
            tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
            functions[path] = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
        assert name.partition("[")[0] in functions[path], test
        assert "[" not in test or test.partition("[")[0] not in listed, test
