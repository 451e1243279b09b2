"""Configurations as dictionaries, TOML files and dotted names: the forms that a command line and a file work with."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import types
import typing
from collections.abc import Collection, Iterator
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from fedrank.core import registry
from fedrank.core.errors import ConfigError, UnknownNameError
from fedrank.core.fields import fields_of, is_bound, is_part, settings_of
from fedrank.core.trees import Json, flat, nest
from fedrank.engine.checkpoint import write_atomically
from fedrank.engine.methods import known_by, method

#: The protocol of a configuration that names none.
DEFAULT_PROTOCOL = "foltr-es"


def as_dict(config: Any) -> dict[str, Json]:
    """Nested plain dictionaries of all settings of a run: its protocol's name, and :func:`table_of`."""
    return {"protocol": config.protocol, **table_of(config)}


def table_of(config: Any) -> dict[str, Json]:
    """Nested plain dictionaries of all settings, the method's beside the run's.

    Settings that are None are left out, because TOML has no word for them, and with a setting that takes the place of
    others (``budget`` that of ``rounds``) those others.
    """
    out: dict[str, Json] = {}
    for one, value, _ in fields_of(config):
        named = {"name": value.name} if is_part(one) else {}
        if named or dataclasses.is_dataclass(value):
            out[one.name] = named | (table_of(value) if dataclasses.is_dataclass(value) else {})
        elif value is not None:
            out[one.name] = _plain(value)
    for one, value, _ in fields_of(config):
        for other in one.metadata.get("replaces", ()) if one.default is None and value is not None else ():
            if "." not in other:
                out.pop(other, None)
    return out


def defaults(protocol: str) -> Any:
    """The configuration of a protocol in which nothing is changed.

    Raises:
        UnknownNameError: There is no such protocol.
    """
    return method(protocol).defaults()


def from_dict(values: dict[str, Json], base: Any = None) -> Any:
    """The configuration of a run that a nested dictionary describes; the inverse of :func:`as_dict`.

    Args:
        values: Settings; missing ones are those of ``base``.
        base: A configuration; by default that of the protocol that ``values`` names, else of the default one.

    Raises:
        UnknownNameError: A key that is no setting.
        ConfigError: A value of the wrong type or out of range.
    """
    if base is None:
        base = defaults(str(values.get("protocol", DEFAULT_PROTOCOL)))
    if (named := values.get("protocol", base.protocol)) != base.protocol:
        raise ConfigError(f"protocol is {base.protocol!r} here, got {named!r}.")
    settings = {key: value for key, value in values.items() if key != "protocol"}
    said = {name for name, _ in flat(settings)}
    return dataclasses.replace(from_table(settings, base, of_method=True), said=base.said | said)


def from_table(values: dict[str, Json], base: Any, where: str = "", *, of_method: bool = False) -> Any:
    """The settings that a nested dictionary describes; the inverse of :func:`table_of`.

    Args:
        values: Settings; missing ones are those of ``base``.
        base: Settings, or their dataclass, which is made without arguments.
        where: Prefix for errors.
        of_method: They are of a run with a method, so that an error says which methods know an unknown one.

    Raises:
        UnknownNameError: A key that is no setting.
        ConfigError: A value of the wrong type or out of range.
    """
    # A class is made of the given settings alone: its other defaults may follow from them.
    cls = base if isinstance(base, type) else type(base)
    hints = _type_hints(cls)
    fields = {one.name: one for one in dataclasses.fields(cls) if not is_bound(one)}
    inner = {name: getattr(base, name) for name, one in fields.items() if one.metadata.get("flat")}
    of_inner = {
        key.partition(".")[0]: name
        for name, part in inner.items()
        if dataclasses.is_dataclass(part)
        for key, _, _ in settings_of(part)
    }
    arguments: dict[str, Any] = {}
    below: dict[str, dict[str, Json]] = {}
    for key, value in values.items():
        if key in of_inner:
            below.setdefault(of_inner[key], {})[key] = value
        elif key not in fields or key in inner:
            knowing = known_by(where + key) if of_method else []
            if knowing:
                whose = ", ".join(knowing)
                raise ConfigError(
                    f"{where}{key} means nothing to this protocol; it is a setting of {whose}. Leave it out."
                )
            known = [*(name for name in fields if name not in inner), *of_inner]
            raise UnknownNameError("setting", where + key, [where + name for name in known])
        elif is_part(fields[key]):
            arguments[key] = part_from(value, getattr(base, key), fields[key], where + key)
        elif dataclasses.is_dataclass(hints[key]):
            if not isinstance(value, dict):
                raise ConfigError(f"{where}{key} must be a table of settings, got {value!r}.")
            inside = hints[key] if base is cls else getattr(base, key)
            arguments[key] = from_table(value, inside, f"{where}{key}.", of_method=of_method)
        else:
            arguments[key] = _typed(value, hints[key], where + key)
    for name, given in below.items():
        arguments[name] = from_table(given, inner[name], where, of_method=of_method)
    return cls(**arguments) if base is cls else dataclasses.replace(base, **arguments)  # type: ignore[type-var]


def parts_of(one: dataclasses.Field) -> dict[str, type]:
    """The classes that a field of :func:`fedrank.core.fields.part` may be an instance of, by name."""
    group, kinds = one.metadata["group"], one.metadata["kinds"]
    found = {name: registry.get(group, name) for name in registry.names(group)}
    return {name: cls for name, cls in found.items() if not kinds or cls.kind in kinds}


def part_from(value: Json, base: Any, one: dataclasses.Field, where: str) -> Any:
    """The part that a table describes, or a name alone.

    Args:
        value: The table; or a name; or the part itself, of a caller in Python.
        base: The part that stands there now, whose settings are kept where the table has no others.
        one: The field.
        where: Its dotted name, for errors.

    Raises:
        UnknownNameError: No such part, or no such setting of it.
        ConfigError: A value of the wrong type or out of range.
    """
    known = parts_of(one)
    if isinstance(value, str):
        value = {"name": value}
    if not isinstance(value, dict):
        if getattr(type(value), "kind", None) in one.metadata["kinds"] or isinstance(value, tuple(known.values())):
            return value
        raise ConfigError(f"{where} must be a name or a table of settings, got {value!r}.")
    settings = {key: given for key, given in value.items() if key != "name"}
    cls = part_class(settings, str(value["name"]) if "name" in value else None, base, known, where)
    start = base if type(base) is cls else cls(**_shared_changes(base, cls)) if "name" in value else cls()
    if not dataclasses.is_dataclass(start):
        if settings:
            raise ConfigError(
                f"{where}.{next(iter(settings))} means nothing: {where} = {start.name!r} has no settings."
            )
        return start
    for key in (key for key in settings if key not in names_of_part(cls)):
        if having := [name for name, other in known.items() if key in names_of_part(other)]:
            raise ConfigError(
                f"{where}.{key} means nothing with {where}.name = {cls.name!r}; it is a setting of {', '.join(having)}."
            )
    return from_table(settings, start, f"{where}.", of_method=True)


def parts_in(config: Any) -> dict[str, dataclasses.Field]:
    """The fields of a configuration and of its method that hold parts, by name."""
    return {one.name: one for one, _, _ in fields_of(config) if is_part(one)}


def setting_names(base: Any) -> list[str]:
    """Dotted names of all settings of a configuration's protocol, those of every part that it may have among them."""
    names = [name for name, _, _ in settings_of(base)]
    for part, one in parts_in(base).items():
        for cls in parts_of(one).values():
            names += [full for name in names_of_part(cls) if (full := f"{part}.{name}") not in names]
    return names


def part_class(settings: dict[str, Json], name: str | None, base: Any, known: dict[str, type], where: str) -> Any:
    """The class of the part that a name asks for, or settings without one.

    Args:
        settings: The settings, without the name.
        name: The name; None: there is none.
        base: The part that stands there now.
        known: Classes that it may have, by name.
        where: Dotted name of the field, for errors.

    Raises:
        UnknownNameError: No such part.
        ConfigError: The settings are those of several parts.
    """
    if name is None:
        return _implied(settings, base, known, where)
    if name == base.name:
        return type(base)
    if name not in known:
        raise UnknownNameError(f"value of {where}.name", name, list(known), plug_ins=True)
    return known[name]


def setting_hints(config: Any, prefix: str = "") -> dict[str, Any]:
    """Dotted name and type of every setting of a configuration, as :func:`settings_of` has them."""
    found: dict[str, Any] = {}
    for one, value, cls in fields_of(config):
        if is_part(one):
            found[f"{prefix}{one.name}.name"] = str
        if dataclasses.is_dataclass(value):
            found |= setting_hints(value, f"{prefix}{one.name}.")
        elif not is_part(one):
            found[prefix + one.name] = _type_hints(cls)[one.name]
    return found


@functools.cache
def _type_hints(cls: type) -> dict[str, Any]:
    return typing.get_type_hints(cls)


def names_of_part(cls: type) -> set[str]:
    """Names of the settings of a part's class, without those that a run fills in."""
    return (
        {one.name for one in dataclasses.fields(cls) if not is_bound(one)} if dataclasses.is_dataclass(cls) else set()
    )


def _implied(settings: dict[str, Json], base: Any, known: dict[str, type], where: str = "") -> type:
    """The class of the part that a table without a name means.

    Raises:
        ConfigError: Its settings are those of several parts.
    """
    if settings.keys() <= names_of_part(type(base)):
        return type(base)
    implied = {key: cls for cls in known.values() for key in getattr(cls, "implied_by", ()) if key in settings}
    if len(set(implied.values())) > 1:
        whole = [cls for cls in set(implied.values()) if settings.keys() <= names_of_part(cls)]
        if len(whole) != 1:
            said = " and ".join(f"{where}.{key} ({cls.name})" for key, cls in implied.items())
            raise ConfigError(f"{said} contradict each other; give one of them.")
        return whole[0]
    return next(iter(implied.values()), type(base))


def _typed(value: Any, hint: Any, name: str) -> Any:
    if get_origin(hint) in (typing.Union, types.UnionType):
        (hint,) = (h for h in get_args(hint) if h is not type(None))
    if get_origin(hint) is Literal:
        if value not in get_args(hint):
            raise UnknownNameError(f"value of {name}", str(value), get_args(hint))
        return value
    if get_origin(hint) is tuple:
        kind, listed = get_args(hint)[0], isinstance(value, list | tuple)
        if listed and issubclass(kind, StrEnum):
            for one in value:
                if one not in list(kind):
                    raise UnknownNameError(f"value of {name}", str(one), map(str, kind))
            return tuple(map(kind, value))
        if not listed or not all(type(one) in ((int, float) if kind is float else (kind,)) for one in value):
            words = {float: "numbers", int: "whole numbers"}.get(kind, "names")
            raise ConfigError(f"{name} must be a list of {words}, got {value!r}.")
        return tuple(map(kind, value))
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if not isinstance(value, hint) or (hint is int and isinstance(value, bool)):
        raise ConfigError(f"{name} must be of type {hint.__name__}, got {value!r}.")
    return value


def make_room(values: dict[str, Json], given: Collection[str], config: Any) -> None:
    """Take out of a nested dictionary, in place, the settings that others replace, such as ``budget`` ``rounds``.

    Args:
        values: All settings of a configuration, some of them given anew.
        given: Dotted names of those.
        config: The configuration before.
    """
    for name, value, one in settings_of(config):
        table = name.rpartition(".")[0]
        for other in one.metadata.get("replaces", ()):
            replaced = f"{table}.{other}" if table and "." not in other else other
            if replaced not in given and (name in given or (one.default is None and value is not None)):
                remove(values, replaced)


def remove(values: dict[str, Json], key: str) -> None:
    """Take the setting of a dotted name out of a nested dictionary, in place, if it is there."""
    *path, last = key.split(".")
    for part in path:
        values = values.get(part, {})
    values.pop(last, None)


def with_setting(config: Any, key: str, value: Any) -> Any:
    """The configuration with one setting changed, by its dotted name.

    Another protocol keeps every setting that was changed from the default of the one before. A setting of another part
    than the one that stands there puts that part in its place.

    Raises:
        ConfigError: There is no such setting, the value is not allowed, or the new protocol lacks a changed setting.
    """
    if key == "protocol":
        if config.protocol == value:
            return config
        changed = changes(dataclasses.replace(config.as_given, said=frozenset()))
        known = setting_names(defaults(value))  # a default that was given and that the other lacks says nothing
        kept = {name: one for name, one in changes(config).items() if name in changed or name in known}
        return from_dict(nest({**kept, "protocol": value}))
    config = config.as_given
    values = as_dict(config)
    make_room(values, (key,), config)
    *path, last = key.split(".")
    table = values
    for part in path:
        table = table.setdefault(part, {})
        if not isinstance(table, dict):
            raise ConfigError(f"{key}: {part} is a setting, not a table of settings.")
    table[last] = value
    if len(path) == 1 and "name" in table:
        _change_part(values, config, path[0], last)
    return dataclasses.replace(from_dict(values, config.unchanged()), said=config.said | {key})


def _change_part(values: dict[str, Json], config: Any, name: str, changed: str) -> None:
    """Leave in the table of a part, in place, what fits the part that one changed setting of it asks for."""
    one = parts_in(config).get(name)
    if one is None:
        return
    now, table = _part_of(config, name), values[name]
    known = parts_of(one)
    if changed == "name":
        cls = known.get(table["name"])
    elif changed in names_of_part(type(now)):
        return
    else:
        cls = _implied({changed: None}, now, known, name)
    if cls is not None and cls is not type(now):
        kept = _shared_changes(now, cls) if changed == "name" else {changed: table[changed]}
        values[name] = {"name": cls.name, **kept}


def _shared_changes(now: Any, cls: type) -> dict[str, Json]:
    """Settings of a part that were changed and that a class which takes its place by name has as well."""
    if not dataclasses.is_dataclass(now):
        return {}
    before, own = table_of(type(now)()), names_of_part(cls)
    return {key: value for key, value in table_of(now).items() if key in own and value != before.get(key)}


def changes(config: Any) -> dict[str, Json]:
    """Dotted names and values of the settings that were given, or differ from those of :meth:`RunConfig.unchanged`."""
    config = config.as_given
    values, unchanged = as_dict(config), config.unchanged()
    before = {name: value for name, value, _ in settings_of(unchanged)}
    for name in parts_in(config):
        now = _part_of(config, name)
        if type(now) is not type(_part_of(unchanged, name)) and dataclasses.is_dataclass(now):
            before |= {f"{name}.{key}": value for key, value, _ in settings_of(type(now)())}
    given = dict(flat(values))
    return {
        name: value
        for name, value in given.items()
        if name != "protocol" and (name in config.said or _plain(before.get(name)) != value)
    }


def _part_of(config: Any, name: str) -> Any:
    return getattr(getattr(config, "method", config), name)


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


def read_config(path: str | os.PathLike[str], base: Any = None) -> Any:
    """The configuration in a TOML file; ``base`` and errors as :func:`read_toml` and :func:`from_dict` have them."""
    with named_in_errors(path):
        return from_dict(read_toml(path), base)


@contextlib.contextmanager
def named_in_errors(path: str | os.PathLike[str]) -> Iterator[None]:
    """A configuration error of the block begins with the file that is read in it."""
    try:
        yield
    except ConfigError as error:
        if str(error).startswith(os.fspath(path)):
            raise
        raise ConfigError(f"{os.fspath(path)}: {error}") from error


def write_settings(path: Path, settings: Any, comment: str) -> None:
    """Write a dataclass of settings as a TOML file that :func:`read_toml` reads, with a comment a setting.

    Args:
        path: The file.
        settings: The settings; those that are None are left out.
        comment: First line of the file.
    """
    write_atomically(path, _commented(table_of(settings), settings, comment).encode())


def to_toml(config: Any) -> str:
    """All settings of a configuration as TOML text, one comment a setting."""
    return _commented(as_dict(config), config)


def given_toml(config: Any) -> str:
    """The protocol and the settings that differ from its defaults, as TOML text with one comment a setting."""
    return _commented(nest({"protocol": config.protocol, **changes(config)}), config)


def _commented(settings: dict[str, Json], config: Any, comment: str = "fedrank run FILE repeats this run.") -> str:
    import tomlkit

    helps = {name: one.metadata.get("help", "") for name, _, one in settings_of(config)}
    document = tomlkit.document()
    document.add(tomlkit.comment(comment))

    def fill(table: Any, values: dict[str, Json], prefix: str) -> None:
        for key, value in sorted(values.items(), key=lambda one: isinstance(one[1], dict)):
            if isinstance(value, dict):
                below = tomlkit.table()
                fill(below, value, f"{prefix}{key}.")
                table.add(key, below)
            else:
                item = tomlkit.item(value)
                table.add(key, item.comment(helps[prefix + key]) if helps.get(prefix + key) else item)

    fill(document, settings, "")
    return tomlkit.dumps(document)
