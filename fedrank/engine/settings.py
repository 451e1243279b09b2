"""Configurations as dictionaries, TOML files and dotted names: the forms that a command line and a file work with."""

from __future__ import annotations

import dataclasses
import os
import types
import typing
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from fedrank.core.errors import ConfigError, UnknownNameError
from fedrank.core.trees import Json, flat, nested
from fedrank.engine.config import settings_of
from fedrank.engine.methods import known_by, method

#: The protocol of a configuration that names none.
DEFAULT_PROTOCOL = "foltr-es"


def as_dict(config: Any) -> dict[str, Json]:
    """Nested plain dictionaries; settings that are None are left out, because TOML has no word for them."""
    out: dict[str, Json] = {}
    for f in dataclasses.fields(config):
        value = getattr(config, f.name)
        if dataclasses.is_dataclass(value):
            out[f.name] = as_dict(value)
        elif value is not None:
            out[f.name] = list(value) if isinstance(value, tuple) else value
    return out


def settings_class(protocol: str) -> type:
    """The dataclass of a protocol's settings.

    Raises:
        UnknownNameError: There is no such protocol.
    """
    return method(protocol).settings


def from_dict(values: dict[str, Json], cls: type | None = None, where: str = "") -> Any:
    """The configuration that a nested dictionary describes; the inverse of :func:`as_dict`.

    Args:
        values: Settings; missing ones take their default.
        cls: The dataclass to fill; by default that of the protocol that ``values`` names, else of the default one.
        where: Prefix for errors.

    Raises:
        UnknownNameError: A key that is no setting.
        ConfigError: A value of the wrong type or out of range.
    """
    if cls is None:
        cls = settings_class(str(values.get("protocol", DEFAULT_PROTOCOL)))
    hints = typing.get_type_hints(cls)
    arguments = {}
    for key, value in values.items():
        if key not in hints:
            knowing = known_by(where + key) if "protocol" in getattr(cls, "__dataclass_fields__", {}) or where else []
            if knowing:
                whose = ", ".join(knowing)
                raise ConfigError(
                    f"{where}{key} means nothing to this protocol; it is a setting of {whose}. Leave it out."
                )
            raise UnknownNameError("setting", where + key, [where + name for name in hints])
        if dataclasses.is_dataclass(hints[key]):
            if not isinstance(value, dict):
                raise ConfigError(f"{where}{key} must be a table of settings, got {value!r}.")
            arguments[key] = from_dict(value, hints[key], f"{where}{key}.")  # type: ignore[arg-type]
        else:
            arguments[key] = _typed(value, hints[key], where + key)
    return cls(**arguments)


def _typed(value: Any, hint: Any, name: str) -> Any:
    if get_origin(hint) in (typing.Union, types.UnionType):
        (hint,) = (h for h in get_args(hint) if h is not type(None))
    if get_origin(hint) is Literal:
        if value not in get_args(hint):
            raise UnknownNameError(f"value of {name}", str(value), get_args(hint))
        return value
    if get_origin(hint) is tuple:
        if issubclass(get_args(hint)[0], StrEnum):
            return tuple(_member(one, get_args(hint)[0], name) for one in _listed(value, "names", name))
        if get_args(hint)[0] is float:
            if not all(type(one) in (int, float) for one in _listed(value, "numbers", name)):
                raise ConfigError(f"{name} must be a list of numbers, got {value!r}.")
            return tuple(map(float, value))
        kind, words = (int, "whole numbers") if get_args(hint)[0] is int else (str, "names")
        if not all(type(one) is kind for one in _listed(value, words, name)):
            raise ConfigError(f"{name} must be a list of {words}, got {value!r}.")
        return tuple(value)
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if not isinstance(value, hint) or (hint is int and isinstance(value, bool)):
        raise ConfigError(f"{name} must be of type {hint.__name__}, got {value!r}.")
    return value


def _listed(value: Any, words: str, name: str) -> list[Any] | tuple[Any, ...]:
    if not isinstance(value, list | tuple):
        raise ConfigError(f"{name} must be a list of {words}, got {value!r}.")
    return value


def _member(value: Any, kind: type[StrEnum], name: str) -> StrEnum:
    if value not in list(kind):
        raise UnknownNameError(f"value of {name}", str(value), [str(one) for one in kind])
    return kind(value)


def drop_replaced(values: dict[str, Json], key: str, cls: type) -> None:
    """Take out of a nested dictionary, in place, the settings that the setting ``key`` replaces, and derived ones."""
    for name, _, one in settings_of(cls()):
        if name == key:
            for other in one.metadata.get("replaces", ()):
                remove(values, other)
    cls.without_derived(values)


def remove(values: dict[str, Json], key: str) -> None:
    """Take the setting of a dotted name out of a nested dictionary, in place, if it is there."""
    *path, last = key.split(".")
    for part in path:
        values = values.get(part, {})
    values.pop(last, None)


def with_setting(config: Any, key: str, value: Any) -> Any:
    """The configuration with one setting changed, by its dotted name.

    Another protocol keeps every setting that was changed from the default of the one before.

    Raises:
        ConfigError: There is no such setting, the value is not allowed, or the new protocol lacks a changed setting.
    """
    if key == "protocol":
        cls = settings_class(value)
        if isinstance(config, cls) and type(config) is cls and config.protocol == value:
            return config
        return from_dict(nested({**changes(config), "protocol": value}), cls)
    values = as_dict(config)
    drop_replaced(values, key, type(config))
    *path, last = key.split(".")
    table = values
    for part in path:
        table = table.setdefault(part, {})
        if not isinstance(table, dict):
            raise ConfigError(f"{key}: {part} is a setting, not a table of settings.")
    table[last] = value
    return from_dict(values, type(config))


def changes(config: Any) -> dict[str, Json]:
    """Dotted names and values of the settings that differ from the defaults of the configuration's class."""
    values = as_dict(config)
    type(config).without_derived(values)
    before = {name: value for name, value, _ in settings_of(type(config)())}
    given = dict(flat(values))
    return {name: value for name, value in given.items() if name != "protocol" and _plain(before.get(name)) != value}


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def read_toml(path: str | os.PathLike[str]) -> dict[str, Json]:
    """A TOML file as a dictionary.

    Raises:
        ConfigError: No such file, or not TOML; says the line.
    """
    import tomllib

    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise ConfigError(f"{os.fspath(path)}: cannot be read ({error.strerror}).") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{os.fspath(path)}: not a TOML file: {error}.") from error


def read_config(path: str | os.PathLike[str], cls: type | None = None) -> Any:
    """The configuration in a TOML file; ``cls`` and errors as :func:`read_toml` and :func:`from_dict` have them."""
    try:
        return from_dict(read_toml(path), cls)
    except ConfigError as error:
        if str(path) in str(error):
            raise
        raise ConfigError(f"{os.fspath(path)}: {error}") from error


def to_toml(config: Any) -> str:
    """The configuration as TOML text, one comment a setting."""
    import tomlkit

    document = tomlkit.document()
    document.add(tomlkit.comment("fedrank run FILE repeats this run."))

    def fill(table: Any, part: Any) -> None:
        for f in dataclasses.fields(part):
            value = getattr(part, f.name)
            if dataclasses.is_dataclass(value):
                below = tomlkit.table()
                fill(below, value)
                table.add(f.name, below)
            elif value is not None:
                item = tomlkit.item(list(value) if isinstance(value, tuple) else value)
                table.add(f.name, item.comment(f.metadata["help"]))

    fill(document, config)
    return tomlkit.dumps(document)
