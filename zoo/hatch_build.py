"""Adds the reproductions of papers, which lie beside this folder in a clone, to what is built of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class Reproductions(BuildHookInterface):
    """Adds the folder to wheels and source distributions; a wheel built from the latter finds it in the package."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Have the folder included where it is beside this one."""
        beside = Path(self.root).parent / "reproductions"
        if version != "editable" and beside.is_dir() and not (Path(self.root) / "PKG-INFO").is_file():
            build_data["force_include"][str(beside)] = "fedrank_zoo/reproductions"
