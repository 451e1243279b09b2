"""Parts that other packages add by entry points: protocols, tasks, rankers, click models, rules, data sets and more.

A package names its parts in its ``pyproject.toml``; fedrank's own are named in the same way::

    [project.entry-points."fedrank.protocols"]
    my-idea = "my_package:MyIdea"

An entry point is imported when its part is asked for, so that names alone cost nothing.
"""

from __future__ import annotations

import functools
from importlib.metadata import EntryPoint, entry_points
from typing import Any

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
    "fedrank.attacks": "command of fedrank privacy attack",
    "fedrank.reproductions": "command of fedrank reproduce",
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
        raise UnknownNameError(GROUPS[group], name, names(group))
    try:
        return points[name].load()
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"the {GROUPS[group]} {name!r} ({points[name].value}) cannot be imported: {error}") from error


def class_name(cls: type) -> str:
    """``module:name`` of a class, by which files know it."""
    return f"{cls.__module__}:{cls.__qualname__}"
