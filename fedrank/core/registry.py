"""Names to things: protocols, click models, rankers, metrics, data sets.

An entry carries one sentence for tables and help texts, and the key of the publication to cite for it. A registry with
a group of entry points also has what other installed packages name there (:mod:`fedrank.core.plugins`): an
:class:`Entry`, or the thing itself, whose docstring then begins with the sentence.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

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


class Registry(Generic[T]):
    """Named things of one kind, in the order in which they were registered.

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
            if name in self._entries:
                raise ConfigError(f"The {self.kind} {name!r} is registered already; choose another name.")
            self._entries[name] = Entry(name, obj, summary, citation)  # type: ignore[arg-type]
            return obj

        return add

    def entry(self, name: str) -> Entry[T]:
        """The entry of that name.

        Raises:
            UnknownNameError: No entry has that name.
        """
        if name not in self._entries and name in self._named():
            found = plugins.get(str(self.group), name)
            summary = (inspect.getdoc(found) or name).partition("\n")[0]
            self._entries[name] = found if isinstance(found, Entry) else Entry(name, found, summary)
        if name not in self._entries:
            raise UnknownNameError(self.kind, name, self.names())
        return self._entries[name]

    def _named(self) -> list[str]:
        """Names of the entry points of the registry's group."""
        return [] if self.group is None else plugins.names(self.group)

    def get(self, name: str) -> T:
        """The thing of that name; errors as :meth:`entry`."""
        return self.entry(name).obj

    def names(self) -> list[str]:
        """All names: those registered in code in their order, then those of other packages."""
        return list(dict.fromkeys([*self._entries, *self._named()]))

    def __iter__(self) -> Iterator[Entry[T]]:
        return iter([self.entry(name) for name in self.names()])

    def __contains__(self, name: object) -> bool:
        return name in self.names()
