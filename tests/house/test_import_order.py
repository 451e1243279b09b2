"""Every module can be the first that is imported: no module needs one that is only half executed.

Found from the sources: that takes a second, where a process for each of the modules would take many minutes.
"""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def statements(body):
    """The import statements that are executed with a module: not those of functions and of type checkers."""
    for node in body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node
        elif isinstance(node, ast.If):
            yield from statements([*([] if "TYPE_CHECKING" in ast.unparse(node.test) else node.body), *node.orelse])
        elif isinstance(node, ast.Try):
            yield from statements(
                [*node.body, *node.orelse, *node.finalbody, *(s for h in node.handlers for s in h.body)]
            )
        elif isinstance(node, ast.With | ast.ClassDef):
            yield from statements(node.body)


def packages(name):
    """The packages that a module is in, which are executed before it."""
    while name := name.rpartition(".")[0]:
        yield name


def needed(name, source, modules):
    """Modules that are executed whole before a module goes on, but for the packages that it is in itself."""
    found = set()
    for node in statements(ast.parse(source).body):
        if isinstance(node, ast.Import):
            named = {alias.name for alias in node.names}
        else:
            assert not node.level and node.module, f"{name}: a relative import"
            below = {f"{node.module}.{alias.name}" for alias in node.names}
            named = below if below <= modules.keys() else {node.module, *(below & modules.keys())}
        for one in named & modules.keys():
            found |= {one, *(above for above in packages(one) if above not in packages(name))}
    return found - {name}


def circles(graph):
    """Circles of a graph, each as the list of its nodes."""
    state, found = {}, []

    def walk(node, path):
        state[node] = "open"
        for other in sorted(graph.get(node, ())):
            if state.get(other) == "open":
                found.append([*path[path.index(other) :], node] if other in path else [other, node])
            elif other not in state:
                walk(other, [*path, node])
        state[node] = "done"

    for node in sorted(graph):
        if node not in state:
            walk(node, [])
    return found


def sources(folder):
    paths = [path.relative_to(folder) for path in folder.rglob("*.py")]
    return {
        ".".join(path.parent.parts if path.name == "__init__.py" else path.with_suffix("").parts): (
            folder / path
        ).read_text()
        for path in paths
    }


def graph_of(modules):
    return {name: needed(name, source, modules) for name, source in modules.items()}


def test_no_module_is_imported_in_a_circle():
    modules = sources(ROOT / "fedrank")
    modules = {f"fedrank.{name}" if name else "fedrank": source for name, source in modules.items()}
    assert len(modules) > 300
    assert circles(graph_of(modules)) == []


@pytest.mark.parametrize(
    ("modules", "circle"),
    [
        # A package whose first lines import what imports something else of the package.
        ({"p": "", "p.a": "from p.b import B", "p.b": "from p.c.d import D", "p.c": "import p.b", "p.c.d": ""}, True),
        ({"p": "from p.a import A", "p.a": "from p.b import B", "p.b": ""}, False),
        ({"p": "from p.a import A", "p.a": "from p import VERSION"}, True),
        ({"p": "from p.a import A", "p.a": "from p import b", "p.b": ""}, False),
        ({"p": "", "p.a": "if TYPE_CHECKING:\n    import p.b", "p.b": "import p.a"}, False),
        ({"p": "", "p.a": "def later():\n    import p.b", "p.b": "import p.a"}, False),
    ],
)
def test_circles_are_found_where_python_finds_them(modules, circle):
    assert bool(circles(graph_of(modules))) == circle
