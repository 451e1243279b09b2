"""Names to things: protocols, click models, rankers, metrics, data sets.

An entry carries one sentence for tables and help texts, and the key of the publication to cite for it. A registry with
a group of entry points has what installed packages name there, fedrank among them (:mod:`fedrank.core.plugins`): an
:class:`Entry`, or the thing itself, whose docstring then begins with the sentence. Only what is asked for is imported.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from fedrank.core import plugins
from fedrank.core.errors import ConfigError, UnknownNameError

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
        group: The group, a key of :data:`fedrank.core.plugins.GROUPS`; None: things are registered in code only.

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
            raise UnknownNameError(self.kind, name, self.names())
        return self._entry_of_group(name)

    def _names_of_group(self) -> list[str]:
        """Names of what the entry points of the registry's group lead to."""
        return [] if self.group is None else plugins.names(self.group)

    def _entry_of_group(self, name: str) -> Entry[T]:
        """The entry that an entry point of the registry's group leads to."""
        return as_entry(name, plugins.get(str(self.group), name))

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
