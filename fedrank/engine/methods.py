"""Methods: protocols as the command line, files and tables know them, by name."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from fedrank.core import registry
from fedrank.core.errors import ConfigError
from fedrank.core.fields import settings_of
from fedrank.core.protocol import Protocol
from fedrank.core.trees import Json
from fedrank.engine.config import RunConfig

_GROUP = "fedrank.protocols"


@dataclass(frozen=True)
class PrivacyMode:
    """One way to run a protocol that promises something else than its defaults do.

    Attributes:
        name: A few words, such as ``"secure sum"``.
        settings: What differs from the defaults, in sections, as in a file; none: the defaults by another name.
        known: What is known of it: what it costs in quality, as measured, and where, or that it is broken; empty:
            nothing was measured.
    """

    name: str
    settings: Mapping[str, Json]
    known: str = ""


@dataclass(frozen=True)
class Method:
    """A row of the table of protocols.

    Attributes:
        name: How users call it.
        task: Name of its task (an entry point of ``fedrank.tasks``).
        protocol: Its class, whose fields are its settings.
        summary: One sentence.
        paper: Author, title, venue, year.
        crosses: What leaves a party.
        file: Where to read it.
        citation: Key in ``core/references.bib``; empty if there is nothing to cite.
        modes: Ways to run it that promise something else about privacy than its defaults.
        recommended: Whether it is the one to take for its task where nothing speaks for another.
    """

    name: str
    task: str
    protocol: type[Protocol]
    summary: str
    paper: str = "for comparison"
    crosses: str = ""
    file: str = ""
    citation: str = ""
    modes: tuple[PrivacyMode, ...] = ()
    recommended: bool = False

    def defaults(self) -> Any:
        """The configuration of a run with this method in which nothing is changed."""
        return run_settings(self.protocol).of(self.protocol())


def run_settings(protocol: Protocol | type[Protocol]) -> type[RunConfig]:
    """The class of the settings of a protocol's runs: its own, or that of its task."""
    return getattr(protocol, "run_settings", None) or registry.get("fedrank.tasks", protocol.task).settings


def method(name: str) -> Method:
    """The method of that name.

    Raises:
        UnknownNameError: There is none.
    """
    return describe_protocol(registry.get(_GROUP, name))


@functools.cache
def describe_protocol(cls: type[Protocol]) -> Method:
    """A protocol's class as a row of the table of protocols: its first line, its publication, what crosses."""
    return Method(
        name=cls.name,
        task=cls.task,
        protocol=cls,
        summary=(inspect.getdoc(cls) or "").partition("\n")[0],
        paper=cls.published,
        crosses=cls.crosses,
        file=_file_of(cls),
        citation=cls.paper,
        modes=cls.modes,
        recommended=bool(vars(cls).get("recommended")),
    )


def _file_of(cls: type) -> str:
    """The file of a class, from its package on: ``"fedrank/ranking/central.py"``."""
    module = cls.__module__.replace(".", "/")
    return f"{module}/__init__.py" if PurePath(inspect.getfile(cls)).stem == "__init__" else f"{module}.py"


def method_names() -> list[str]:
    """Names of all methods; nothing is imported."""
    return registry.names(_GROUP)


def task_of(protocol: str, task: str | None = None) -> Any:
    """The task of a protocol.

    Args:
        protocol: Name of the protocol.
        task: Name of the task where the protocol came as an object and has no entry point.

    Raises:
        UnknownNameError: There is no such protocol, or no such task.
    """
    return registry.get("fedrank.tasks", task or method(protocol).task)


def known_by(setting: str) -> list[str]:
    """Names of the methods that have a setting or a table of that dotted name, for error messages."""
    out = []
    for name in method_names():
        try:
            known = {one for one, _, _ in settings_of(method(name).defaults())}
        except ConfigError:  # a package that cannot be imported
            continue
        if any(one == setting or one.startswith(f"{setting}.") for one in known):
            out.append(name)
    return out
