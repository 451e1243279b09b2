"""Every example in a docstring prints what it says, and none is left out."""

import ast
import doctest
import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def _examples(path: Path) -> int:
    """How many examples the docstrings of a file hold, counted in its text without importing it."""
    text = path.read_text(encoding="utf-8")
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    nodes = [n for n in ast.walk(ast.parse(text)) if isinstance(n, documented)]
    return sum(len(doctest.DocTestParser().get_examples(ast.get_docstring(n) or "")) for n in nodes)


def _name(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


FILES = {
    _name(path): path for path in sorted((ROOT / "fedrank").rglob("*.py")) if ">>>" in path.read_text(encoding="utf-8")
}


def test_there_are_examples():
    assert len(FILES) > 40 and sum(map(_examples, FILES.values())) > 100


@pytest.mark.parametrize("room", sorted({name.split(".")[1] for name in FILES}))
def test_examples_of_a_room(room):
    for name in [name for name in FILES if name.split(".")[1] == room]:
        ran = doctest.testmod(importlib.import_module(name), optionflags=doctest.NORMALIZE_WHITESPACE)
        assert ran.failed == 0, f"{ran.failed} examples in {name} print something else; the report is above"
        wanted = _examples(FILES[name])
        assert ran.attempted == wanted, f"{name} has {wanted} examples, {ran.attempted} ran"
