"""The words that the glossary says are not used: no class, function or method of the package has such a name."""

import ast
import functools
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "reference" / "glossary.md").read_text(encoding="utf-8")
WORDS = re.findall(r"^\| `(\w+)` \|", PAGE.split("## Words that are not used")[1], flags=re.MULTILINE)


@functools.cache  # not while tests are collected, which every worker does
def defined():
    """Names of all classes, functions and methods, with where they stand."""
    out: dict[str, list[str]] = {}
    for path in sorted((ROOT / "fedrank").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                out.setdefault(node.name, []).append(f"{path.relative_to(ROOT)}:{node.lineno}")
    return out


def test_the_list_is_read():
    assert len(WORDS) >= 15 and "Simulator" in defined()


@pytest.mark.parametrize("word", WORDS)
def test_a_word_that_is_not_used_names_nothing(word):
    assert defined().get(word, []) == []


def test_words_of_our_own_are_used():
    own = re.findall(r"^\| (\w+) \|", PAGE.split("## Words that are not used")[0], flags=re.MULTILINE)[1:]
    text = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "fedrank").rglob("*.py")).lower()
    assert own and [word for word in own if not re.search(rf"\b{word}\b", text)] == []
