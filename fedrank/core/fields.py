"""Fields of configurations: settings, parts, and what a run fills in.

A method or a table of settings is a frozen dataclass of such fields. Command line, TOML files, help texts, sweeps and
the files of a run read them, so that a setting is written once.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from dataclasses import field
from typing import Any


def setting(
    default: Any,
    help: str,
    *,
    low: float | None = None,
    high: float | None = None,
    needs: tuple[str, Sequence[Any]] | None = None,
    replaces: Sequence[str] = (),
    name: str | None = None,
) -> Any:
    """A field of a configuration.

    Args:
        default: Its value where nothing is said.
        help: What it means, in a sentence; the command line's help, the reference and ``config.toml`` print it.
        low: Smallest allowed value, of numbers; None is always allowed where the default is None.
        high: Largest allowed value, of numbers.
        needs: Dotted name of another setting and the values of it with which this one means something; no values
            for any value but that setting's default.
        replaces: Dotted names of settings that say the same in another way; giving this one takes them back.
        name: How tables of a report call the setting; by default by its dotted name.
    """
    about = {"help": help, "low": low, "high": high, "needs": needs, "replaces": tuple(replaces), "name": name}
    return field(default=default, metadata=about)


def part(default: Callable[[], Any], help: str, group: str, kinds: Sequence[str] = ()) -> Any:
    """A field whose value is an object of one of several classes, each with settings: a mechanism, a server step.

    In files it is a table with the part's ``name`` beside its settings. Without a name the table's keys say which part
    is meant: the default one if it has them all, else the one that a key implies.

    Args:
        default: Makes the part that is taken where nothing is said.
        help: What it is for, in a sentence.
        group: Group of entry points whose classes it may be, a key of :data:`fedrank.core.registry.GROUPS`.
        kinds: Values of the classes' attribute ``kind`` that fit here; empty: all classes of the group.
    """
    about = {"help": help, "group": group, "kinds": tuple(kinds)}
    return field(default_factory=default, metadata=about)


def bound(default: Any = None) -> Any:
    """A field that is no setting: the run fills it in, such as the ranker and the users of a simulation."""
    return field(default=default, metadata={"bound": True})


def is_bound(one: dataclasses.Field) -> bool:
    """True if the run fills the field in."""
    return bool(one.metadata.get("bound"))


def is_part(one: dataclasses.Field) -> bool:
    """True if the field's value is an object of one of several classes, chosen by name."""
    return "group" in one.metadata


def fields_of(config: Any) -> Iterator[tuple[dataclasses.Field, Any, type]]:
    """Each field of a configuration that is a setting or holds some, its value, and its dataclass.

    The fields of a run's method stand beside the run's own.
    """
    for one in dataclasses.fields(config):
        value = getattr(config, one.name)
        if one.metadata.get("flat"):
            yield from fields_of(value) if dataclasses.is_dataclass(value) else ()
        elif not is_bound(one):
            yield one, value, type(config)


def settings_of(config: Any, prefix: str = "") -> Iterator[tuple[str, Any, dataclasses.Field]]:
    """Dotted name, value and field of every setting of a configuration.

    Tables are gone into; the settings of a run's method stand beside the run's own; a part is the setting
    ``table.name``, followed by those of the part.
    """
    for one, value, _ in fields_of(config):
        if is_part(one):
            yield f"{prefix}{one.name}.name", value.name, one
        if dataclasses.is_dataclass(value):
            yield from settings_of(value, f"{prefix}{one.name}.")
        elif not is_part(one):
            yield prefix + one.name, value, one
