"""The structure of the package: no import circles, no hidden imports, no part that asks which wing it has."""

import ast
import functools
import re
import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from fedrank.core import registry

ROOT = Path(__file__).resolve().parents[2]
FILES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted((ROOT / "fedrank").rglob("*.py"))
}
WINGS = ("ranking", "silos", "texts", "slates")

#: What asks which wing a run, a configuration or an experiment is of. Wings ask their tasks instead.
FAMILY = re.compile(
    r"\b(of_silos|of_texts|of_platforms|between_silos|is_silos)\b"
    r"|\brun\.(silos|texts|slates)\b"
    r"|isinstance\([^)]*\b(Silo|Text|Slate)(s|Experiment|Run)?\b"
    r"|\btask\s*(==|!=|in)\s*[\[(\"']"
)


@functools.cache
def tree(name):
    """A module's syntax tree."""
    return ast.parse(FILES[name].read_text(encoding="utf-8"))


@pytest.fixture(scope="module", autouse=True)
def _forget_trees():
    """They are 200 MB."""
    yield
    tree.cache_clear()


def imports(name):
    """The modules of fedrank that a module imports, wherever in it."""
    found = set()
    for node in ast.walk(tree(name)):
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                found.add(full if full in FILES else node.module)
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return {module for module in found if module in FILES and module != name}


def circles(graph):
    """Strongly connected components of more than one module (Tarjan)."""
    index, low, stack, out = {}, {}, [], []

    def visit(node):
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in graph[node]:
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            component = []
            while not component or component[-1] != node:
                component.append(stack.pop())
            if len(component) > 1:
                out.append(sorted(component))

    for node in graph:
        if node not in index:
            visit(node)
    return out


def test_circles_are_found():
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}) == [["a", "b", "c"]]


def test_programs_beside_the_package_import_what_is_there():
    """Benchmarks, reproductions and pages are not run by tests: a moved name would go unnoticed."""
    beside = [path for folder in ("benchmarks", "reproductions", "docs", "examples") for path in _sources(folder)]
    assert len(beside) > 60
    missing = []
    for path in beside:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.ImportFrom) or (node.module or "").partition(".")[0] != "fedrank":
                continue
            names = [alias.name for alias in node.names if f"{node.module}.{alias.name}" not in FILES]
            known = _names_in(node.module) if node.module in FILES else set()
            missing += [f"{path.relative_to(ROOT)}: {node.module}.{name}" for name in names if name not in known]
    assert missing == []


def _sources(folder):
    return [path for path in sorted((ROOT / folder).rglob("*.py")) if "_build" not in path.parts]


def _names_in(module):
    """Names that a module defines or imports, wherever in it."""
    nodes = list(ast.walk(tree(module)))
    found = {node.name for node in nodes if isinstance(node, ast.ClassDef | ast.FunctionDef)}
    found |= {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    return found | {(node.asname or node.name).partition(".")[0] for node in nodes if isinstance(node, ast.alias)}


def test_no_modules_import_each_other_in_a_circle():
    assert circles({name: imports(name) for name in FILES}) == []


def hidden(name):
    """Imports of fedrank that only a type checker sees."""
    return [
        ast.unparse(inner)
        for node in ast.walk(tree(name))
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for inner in ast.walk(node)
        if isinstance(inner, ast.ImportFrom) and (inner.module or "").startswith("fedrank")
    ]


def test_no_import_is_for_type_checkers_only():
    assert {name: found for name in FILES if (found := hidden(name))} == {}


def test_nothing_outside_a_wing_asks_which_wing_it_has():
    outside = [path for name, path in FILES.items() if name.split(".")[1:2] not in [[wing] for wing in WINGS]]
    assert len(outside) > 100
    lines = [(path, i, line) for path in outside for i, line in enumerate(path.read_text("utf-8").splitlines(), 1)]
    assert [f"{path}:{i}: {line}" for path, i, line in lines if FAMILY.search(line)] == []


BUILT_IN = [
    (group, name, value)
    for group, points in tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"].items()
    for name, value in points.items()
]


def test_an_entry_point_of_fedrank_leads_to_a_part_of_that_name():
    for group, name, value in BUILT_IN:
        found = registry.get(group, name)
        assert found == EntryPoint(name, value, group).load(), (group, name)  # else: install this clone again
        if group not in ("fedrank.data", "fedrank.audits", "fedrank.search_engines"):  # a file of data sets; functions
            assert found.name == name, group


def test_a_file_in_a_group_with_entry_points_registers_nothing_in_code():
    registries = re.compile(r"\b(RANKERS|USERS|AGGREGATORS|\w*CATALOGUE)\.register\(")
    assert not [name for name, path in FILES.items() if registries.search(path.read_text(encoding="utf-8"))]
