"""Names to things: protocols, click models, rankers, metrics, data sets.

An entry carries one sentence for tables and help texts, and the key of the publication to cite for it. A registry with
a group of entry points has what installed packages name there, fedrank among them: an
:class:`Entry`, or the thing itself, whose docstring then begins with the sentence. Only what is asked for is imported.

Other packages add parts by entry points: protocols, tasks, rankers, click models, rules, data sets and more. A package
names its parts in its ``pyproject.toml``; fedrank's own are named in the same way::

    [project.entry-points."fedrank.protocols"]
    my-idea = "my_package:MyIdea"

An entry point is imported when its part is asked for, so that names alone cost nothing.

The publications behind the parts are one bibliography, ``references.bib`` in this folder.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib import resources
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Generic, TypeVar

from fedrank.core.errors import ConfigError, UnknownNameError

#: Groups of entry points, and what a part of each is called in errors.
GROUPS = {
    "fedrank.protocols": "protocol",
    "fedrank.tasks": "task",
    "fedrank.rankers": "ranker",
    "fedrank.clicks": "click model",
    "fedrank.aggregation": "aggregation rule",
    "fedrank.mechanisms": "mechanism of privacy",
    "fedrank.presentations": "presentation",
    "fedrank.server_steps": "server step",
    "fedrank.attackers": "attack",
    "fedrank.objectives": "local objective",
    "fedrank.data": "data set",
    "fedrank.audits": "audit",
    "fedrank.attestation": "attestation",
    "fedrank.slate_learners": "learner of slates",
    "fedrank.search_engines": "search engine",
    "fedrank.formats": "format of data",
    "fedrank.candidates": "way to choose foreign documents",
    "fedrank.searches": "search for settings",
    "fedrank.trackers": "tracker",
    "fedrank.executors": "executor",
    "fedrank.commands": "command",
    "fedrank.modules": "library of modules",
}


@functools.cache
def _points(group: str) -> dict[str, Any]:
    # Entry points of whichever library finds them: importlib_metadata, once something imports it, answers for Python's.
    found: dict[str, EntryPoint] = {}
    for point in entry_points(group=group):
        other = found.get(point.name)
        if other is not None and other.value != point.value:
            raise ConfigError(
                f"two packages name a {GROUPS[group]} {point.name!r}: {other.value} and {point.value}. Uninstall one."
            )
        found[point.name] = point
    return found


def names(group: str) -> list[str]:
    """Names of the parts of a group (a key of :data:`GROUPS`), sorted; nothing is imported."""
    return sorted(_points(group))


def place(group: str, name: str) -> str:
    """``module:name`` of a part of a group (a key of :data:`GROUPS`), empty if there is none; nothing is imported."""
    points = _points(group)
    return points[name].value if name in points else ""


@functools.cache
def get(group: str, name: str) -> Any:
    """A part, imported.

    Args:
        group: A key of :data:`GROUPS`.
        name: Its name.

    Raises:
        UnknownNameError: No package names such a part.
        ConfigError: Its package fails to import it; says which and why.
    """
    points = _points(group)
    if name not in points:
        raise UnknownNameError(GROUPS[group], name, names(group), plug_ins=True)
    try:
        return points[name].load()
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"the {GROUPS[group]} {name!r} ({points[name].value}) cannot be imported: {error}") from error


def class_name(cls: type) -> str:
    """``module:name`` of a class, by which files know it."""
    return f"{cls.__module__}:{cls.__qualname__}"


T = TypeVar("T")
S = TypeVar("S")


@dataclass(frozen=True)
class Entry(Generic[T]):
    """One named thing.

    Attributes:
        name: How users call it.
        obj: The thing itself.
        summary: One sentence.
        citation: Key in ``core/references.bib``; empty if there is nothing to cite.
    """

    name: str
    obj: T
    summary: str
    citation: str = ""


def as_entry(name: str, found: Any) -> Entry[Any]:
    """The :class:`Entry` of an entry point: the object itself if it is one, else made from it and its docstring."""
    if isinstance(found, Entry):
        return found
    return Entry(name, found, (inspect.getdoc(found) or name).partition("\n")[0])


class Registry(Generic[T]):
    """Named things of one kind: those of a group of entry points by name, then those registered in code in their order.

    Args:
        kind: What one of them is called in errors.
        group: The group, a key of :data:`fedrank.core.registry.GROUPS`; None: things are registered in code only.

    >>> colours = Registry("colour")
    >>> colours.register("red", summary="The colour of a ripe tomato.")((255, 0, 0))
    (255, 0, 0)
    >>> colours.get("red")
    (255, 0, 0)
    >>> colours.get("rad")
    Traceback (most recent call last):
    ...
    fedrank.core.errors.UnknownNameError: There is no colour named 'rad'. Did you mean 'red'? Known: red.
    """

    def __init__(self, kind: str, group: str | None = None):
        self.kind, self.group = kind, group
        self._entries: dict[str, Entry[T]] = {}

    def register(self, name: str, *, summary: str, citation: str = "") -> Callable[[S], S]:
        """Add an entry; usable as a decorator.

        Raises:
            ConfigError: The name is taken.
        """

        def add(obj: S) -> S:
            if name in self:
                raise ConfigError(f"The {self.kind} {name!r} is registered already; choose another name.")
            self._entries[name] = Entry(name, obj, summary, citation)  # type: ignore[arg-type]
            return obj

        return add

    def entry(self, name: str) -> Entry[T]:
        """The entry of that name.

        Raises:
            UnknownNameError: No entry has that name.
        """
        if name in self._entries:
            return self._entries[name]
        if name not in self._names_of_group():
            raise UnknownNameError(self.kind, name, self.names(), plug_ins=self.group is not None)
        return self._entry_of_group(name)

    def _names_of_group(self) -> list[str]:
        """Names of what the entry points of the registry's group lead to."""
        return [] if self.group is None else names(self.group)

    def _entry_of_group(self, name: str) -> Entry[T]:
        """The entry that an entry point of the registry's group leads to."""
        return as_entry(name, get(str(self.group), name))

    def get(self, name: str) -> T:
        """The thing of that name; errors as :meth:`entry`."""
        return self.entry(name).obj

    def names(self) -> list[str]:
        """All names: those of the group of entry points, then those registered in code in their order."""
        return list(dict.fromkeys([*self._names_of_group(), *self._entries]))

    def __iter__(self) -> Iterator[Entry[T]]:
        return iter([self.entry(name) for name in self.names()])

    def __contains__(self, name: object) -> bool:
        return name in self.names()


@functools.cache
def references() -> dict[str, str]:
    """All BibTeX entries, by key."""
    text = resources.files("fedrank.core").joinpath("references.bib").read_text(encoding="utf-8")
    starts = [m.start() for m in re.finditer(r"^@\w+\{", text, flags=re.MULTILINE)]
    entries = [text[a:b].strip() for a, b in zip(starts, [*starts[1:], len(text)], strict=True)]
    return {re.match(r"@\w+\{([^,\s]+)", entry).group(1): entry for entry in entries}  # type: ignore[union-attr]


def bibtex(keys: Iterable[str]) -> str:
    """The BibTeX entries of these keys, each once, in the order given; empty keys are skipped.

    Raises:
        UnknownNameError: No entry has that key.
    """
    known = references()
    chosen: dict[str, str] = {}
    for key in keys:
        if key and key not in known:
            raise UnknownNameError("reference", key, known)
        if key:
            chosen[key] = known[key]
    return "\n\n".join(chosen.values())
