"""Makes the modules of ``fedrank_device`` from those that ``fedrank.deploy.device`` imports.

A clone has one source for both distributions. This hook follows the imports of ``fedrank.deploy.device``, and copies
each module of fedrank that it meets with ``fedrank.`` in imports and cross references changed to ``fedrank_device.``.
So both can be installed side by side, and neither imports the other. The source distribution holds the modules made; a
wheel that is built from it copies them as they are.
"""

from __future__ import annotations

import ast
import re
import shutil
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

#: The module whose imports are followed.
ROOT_MODULE = "fedrank.deploy.device"
PACKAGE, TARGET = "fedrank", "fedrank_device"


def file_of(module: str, clone: Path) -> Path | None:
    """The file of a module of fedrank; None if the name is no module (but a class or a function in one)."""
    path = clone.joinpath(*module.split("."))
    if (path / "__init__.py").is_file():
        return path / "__init__.py"
    return path.with_suffix(".py") if path.with_suffix(".py").is_file() else None


def is_for_type_checkers(node: ast.AST) -> bool:
    """Whether a node is ``if TYPE_CHECKING:``."""
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)


def imports_in(tree: ast.AST) -> list[ast.Import | ast.ImportFrom]:
    """All imports below a node, without those for type checkers only."""
    found: list[ast.Import | ast.ImportFrom] = []
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            found.append(node)
        elif is_for_type_checkers(node):
            found += [each for part in node.orelse for each in imports_in(part)]  # type: ignore[attr-defined]
        else:
            found += imports_in(node)
    return found


def imported_by(tree: ast.AST, clone: Path) -> set[str]:
    """The modules of fedrank that a module imports, anywhere in it."""
    names: set[str] = set()
    for node in imports_in(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif node.level:
            raise ValueError(f"a relative import in the modules of {ROOT_MODULE}: line {node.lineno}")
        elif node.module:
            modules = {f"{node.module}.{alias.name}" for alias in node.names}
            names |= {node.module, *(name for name in modules if file_of(name, clone))}
    return {name for name in names if name.partition(".")[0] == PACKAGE}


def closure(clone: Path) -> dict[str, Path]:
    """The modules of fedrank that a device loads, with their files, without the package's own ``__init__``.

    Args:
        clone: The folder that holds the package ``fedrank``.

    Raises:
        ValueError: A module imports the top of fedrank, which a device does not have, or a module that is not there.
    """
    found: dict[str, Path] = {}
    waiting = [ROOT_MODULE]
    while waiting:
        module = waiting.pop()
        if module in found:
            continue
        file = file_of(module, clone)
        if file is None or module == PACKAGE:
            raise ValueError(f"the modules of {ROOT_MODULE} import {module}, which is not for devices")
        found[module] = file
        parents = module.split(".")
        waiting += [".".join(parents[:length]) for length in range(2, len(parents))]
        waiting += sorted(imported_by(ast.parse(file.read_text(encoding="utf-8")), clone))
    return dict(sorted(found.items()))


def rewritten(text: str, modules: dict[str, Path]) -> str:
    """A module's text with fedrank's name changed in its imports and in cross references to what devices have.

    Args:
        text: Source of a module.
        modules: The modules that devices have.
    """
    lines = text.splitlines(keepends=True)
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            for number in range(node.lineno - 1, node.end_lineno or node.lineno):
                lines[number] = re.sub(rf"\b{PACKAGE}\.", f"{TARGET}.", lines[number])
    names = "|".join(re.escape(module.removeprefix(f"{PACKAGE}.")) for module in modules)
    return re.sub(rf"(:[a-z]+:`~?){PACKAGE}\.(?=(?:{names})[.`])", rf"\1{TARGET}.", "".join(lines))


class DeviceModules(BuildHookInterface):
    """Adds the modules to a distribution that is built in a clone."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Write the modules into a temporary folder and have them included."""
        clone = Path(self.root).parent
        self.made: Path | None = None
        if version == "editable":
            raise ValueError("fedrank-device has no source of its own to edit: install fedrank in editable mode.")
        if (Path(self.root) / "PKG-INFO").is_file():  # an unpacked source distribution holds the modules
            return
        modules = closure(clone)
        self.made = Path(tempfile.mkdtemp(prefix="fedrank-device-"))
        for file in modules.values():
            to = self.made / file.relative_to(clone / PACKAGE)
            to.parent.mkdir(parents=True, exist_ok=True)
            to.write_text(rewritten(file.read_text(encoding="utf-8"), modules), encoding="utf-8")
            build_data["force_include"][str(to)] = f"{TARGET}/{to.relative_to(self.made).as_posix()}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Delete the temporary folder."""
        if self.made is not None:
            shutil.rmtree(self.made)
