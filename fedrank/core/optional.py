"""Packages that an extra brings: loaded at their first use, and named by one error where they are missing."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any

from fedrank.core.errors import MissingExtraError


def is_installed(package: str) -> bool:
    """True if a package can be imported; it is not imported."""
    return find_spec(package) is not None


def require(extra: str, why: str, *packages: str) -> None:
    """Check for all packages of an extra before work begins that needs them later.

    Args:
        extra: The extra of fedrank that brings them.
        why: What needs them, the beginning of a sentence: ``"A page"``.
        *packages: Their names in an import.

    Raises:
        MissingExtraError: One of them is not installed.
    """
    for package in packages:
        if not is_installed(package):
            raise MissingExtraError(package, extra, why)


class OptionalModule(ModuleType):
    """A module that is imported when one of its names is first asked for.

    Args:
        package: Its name in an import.
        extra: The extra of fedrank that brings it.
        why: What needs it, the beginning of a sentence.

    Raises:
        MissingExtraError: From asking for a name where the package is not installed.
    """

    def __init__(self, package: str, extra: str, why: str):
        super().__init__(package)
        self.__dict__["_needed"] = (extra, why)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # what inspects modules asks for these, and needs no package
            raise AttributeError(name)
        require(*self.__dict__["_needed"], self.__name__.partition(".")[0])
        return getattr(import_module(self.__name__), name)
