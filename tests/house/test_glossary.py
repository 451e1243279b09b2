"""Names and docstrings of the package: words of the glossary, functions named by verbs, docstrings that state."""

import ast
import functools
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "reference" / "glossary.md").read_text(encoding="utf-8")
WORDS = re.findall(r"^\| `(\w+)` \|", PAGE.split("## Words that are not used")[1], flags=re.MULTILINE)

#: Words of an identifier: ``SendLossGradient`` has Send, Loss and Gradient.
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_QUESTION = re.compile(r"(What|Which|Who|Whose|Whom|How|Where|When|Whether|Why)\b")
_UNNAMED = re.compile(
    r"\b(nobody|somebody|everybody|so many|of (its|their) own|as said|(that|who) (are|is) there)\b", re.I
)
_PARTICIPLE = re.compile(r"_?[a-z]+(ed|told|met|shown|kept|made|drawn|given|said|heard|seen|sent|found|left|held)")
#: Words that end like a participle and are none, or are nouns.
_NOUNS = {"seed", "need", "feed", "speed", "embed", "shared", "seeded", "exceed", "proceed"}
#: Names and lines that are there; lower a number with each that goes.
MOST_PARTICIPLES, MOST_UNNAMED = 75, 32


@functools.cache  # not while tests are collected, which every worker does
def trees():
    """The syntax trees of all files."""
    files = sorted((ROOT / "fedrank").rglob("*.py"))
    return {path: ast.parse(path.read_text(encoding="utf-8")) for path in files}


@pytest.fixture(scope="module", autouse=True)
def _forget_trees():
    """They are 200 MB."""
    yield
    trees.cache_clear()


def defined():
    """Names of all classes, functions and methods, with where they stand."""
    out: dict[str, list[str]] = {}
    for path, tree in trees().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                out.setdefault(node.name, []).append(f"{path.relative_to(ROOT)}:{node.lineno}")
    return out


def test_words_that_are_not_used_are_in_no_name():
    names = defined()
    assert len(WORDS) >= 15 and "Simulator" in names
    assert {name: where for name, where in names.items() if set(WORDS) & {name, *_WORD.findall(name)}} == {}


def test_docstrings_state_what_a_thing_is():
    """No docstring begins with a question word."""
    asking = []
    for path, tree in trees().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                first = (ast.get_docstring(node) or "").partition("\n")[0]
                if _QUESTION.match(first):
                    asking.append(f"{path.relative_to(ROOT)}: {first}")
    assert asking == []


def test_functions_are_named_by_verbs():
    found = [
        f"{path.relative_to(ROOT)}: {node.name}"
        for path, tree in trees().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        if _PARTICIPLE.fullmatch(node.name) and node.name.lstrip("_") not in _NOUNS
    ]
    assert len(found) <= MOST_PARTICIPLES, found


def test_lines_name_the_actor_or_the_quantity():
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in trees()
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if _UNNAMED.search(line)
    ]
    assert len(found) <= MOST_UNNAMED, found


def test_documents_name_the_actor_or_the_quantity():
    """Not in code: ``--trust nobody`` is a value of a setting."""
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "flower" / "README.md"]
    for folder, pattern in (("docs", "**/*.md"), ("benchmarks", "*.md"), ("apps", "*/*.md"), ("sdk", "*/README.md")):
        pages += (ROOT / folder).glob(pattern)
    made = {ROOT / "docs" / "_build", ROOT / "docs" / "generated"}
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line}"
        for path in pages
        if not made.intersection(path.parents)
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if _UNNAMED.search(re.sub(r"`[^`]*`", "", line))
    ]
    assert len(pages) > 80 and found == []


def test_words_of_our_own_are_used():
    own = re.findall(r"^\| (\w+) \|", PAGE.split("## Words that are not used")[0], flags=re.MULTILINE)[1:]
    text = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "fedrank").rglob("*.py")).lower()
    assert own and [word for word in own if not re.search(rf"\b{word}\b", text)] == []
