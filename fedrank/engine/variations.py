"""Several experiments that differ in some settings, one directory each; what a figure of a paper is made of.

A sweep is a configuration and, for some of its settings, a list of values; every combination is run. In a file, the
lists stand in the table ``[vary]``::

    data = "mq2008"
    [vary]
    "privacy.p" = [0.15, 0.25, 0.5, 1.0]

Settings that change together are *cases*, each with a name; every case is run with every combination::

    [[case]]
    name = "FOLtR-ES"
    [[case]]
    name = "PDGD"
    protocol = "pdgd"
    learning_rate = 0.1

A value may bring settings along, as a table that has the varied setting, too::

    protocol = [{ protocol = "foltr-es", "privacy.p" = 0.9 }, "pdgd"]

A list ``["all"]`` stands for all values that the data on this machine allows, such as its folds.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fedrank.core.errors import ConfigError
from fedrank.core.trees import Json, flat
from fedrank.engine.config import RunConfig
from fedrank.engine.methods import task_of
from fedrank.engine.settings import read_toml, with_setting

#: A list of this alone stands for all values that the data on this machine allows.
ALL = "all"


@dataclass(frozen=True)
class Variation:
    """One experiment of a sweep.

    Attributes:
        name: Such as ``"privacy.p=0.15"``; also its directory.
        config: Its configuration.
        where: What it differs in: dotted names of settings and their values; ``"case"`` and the case's name.
    """

    name: str
    config: RunConfig
    where: dict[str, Json]


def variations(config: RunConfig, vary: dict[str, list[Any]], cases: Sequence[dict[str, Json]] = ()) -> list[Variation]:
    """All combinations, the last setting varying fastest.

    Args:
        config: What they have in common.
        vary: Dotted names of settings and the values each takes.
        cases: Settings that change together, nested as in a file, each with a ``name``.

    Raises:
        ConfigError: No values, one twice, an unknown setting, or a combination that is not allowed.

    >>> from fedrank.engine.settings import from_dict
    >>> [v.name for v in variations(from_dict({}), {"clients": [10, 20]})]
    ['clients=10', 'clients=20']
    """
    if not vary and not cases:
        raise ConfigError("a sweep needs at least one setting to vary, such as --vary privacy.p=0.25,0.5,1.")
    for key, values in vary.items():
        if not values or len({str(_value_of(key, value)) for value in values}) != len(values):
            raise ConfigError(f"vary {key!r} needs one or more values, no two the same; got {values!r}.")
    brought = {name for key, values in vary.items() for value in values for name in _brought_by(key, value)}
    if twice := brought & vary.keys():
        raise ConfigError(f"vary: a value brings {', '.join(sorted(twice))} along, which varies by itself.")
    names = [case.get("name") for case in cases]
    if None in names or len(set(names)) < len(names):
        raise ConfigError(f"every [[case]] needs a distinct name; got {names}.")
    out = []
    for case in cases or ({},):
        common = config
        for key, value in flat({k: v for k, v in case.items() if k != "name"}):
            common = with_setting(common, key, value)
        for where in _combinations(common, vary):
            changed = common
            for key, value in where.items():
                changed = _with_value(changed, key, value)
            where = {key: _value_of(key, value) for key, value in where.items()}
            if cases:
                where = {"case": case["name"], **where}
            out.append(Variation(",".join(f"{key}={_short(value)}" for key, value in where.items()), changed, where))
    taken = [v.name for v in out]
    if twice := next((name for name in taken if taken.count(name) > 1), None):
        raise ConfigError(
            f"two runs of the sweep would have the directory {twice!r}; give cases names that differ in letters."
        )
    return out


def _combinations(config: RunConfig, vary: dict[str, list[Any]]) -> list[dict[str, Json]]:
    """Every combination of values by dotted name, the last fastest; ``all`` is what the other settings allow."""
    found = []
    given = {key: values for key, values in vary.items() if values != [ALL]}
    for combination in itertools.product(*given.values()):
        known = dict(zip(given, combination, strict=True))
        changed = config
        for key, value in known.items():
            changed = _with_value(changed, key, value)
        every = {key: _values_here(changed, key) for key in vary if key not in given}
        lists = {key: every.get(key, vary[key]) for key in vary}
        for more in itertools.product(*every.values()):
            values = known | dict(zip(every, more, strict=True))
            found.append(([lists[key].index(values[key]) for key in vary], {key: values[key] for key in vary}))
    return [where for _, where in sorted(found, key=lambda one: one[0])]


def _with_value(config: RunConfig, key: str, value: Json) -> RunConfig:
    """The configuration with one varied setting changed, and with those that its value brings along."""
    config = with_setting(config, key, _value_of(key, value))
    for name, more in _brought_by(key, value).items():
        config = with_setting(config, name, more)
    return config


def _brought_by(key: str, value: Json) -> dict[str, Json]:
    """The settings that a varied value brings along, by dotted name."""
    if not isinstance(value, dict) or key not in value:
        return {}
    return dict(flat({name: more for name, more in value.items() if name != key}))


def _value_of(key: str, value: Json) -> Json:
    """The value of the varied setting itself."""
    return value[key] if isinstance(value, dict) and key in value else value


def _values_here(config: RunConfig, key: str) -> list[Any]:
    """The values that ``all`` stands for.

    Raises:
        ConfigError: The setting has no such list.
    """
    found = task_of(config.protocol).values_here(config, key)
    if found is None:
        raise ConfigError(f"vary {key!r}: {ALL!r} means nothing for this setting; give its values.")
    return found


def read_sweep(path: str | os.PathLike[str]) -> tuple[dict[str, Json], dict[str, list[Any]], list[dict[str, Json]]]:
    """A sweep's file: the common settings as a dictionary, what varies, and the cases.

    Raises:
        ConfigError: No such file, or tables of another form.
    """
    values = read_toml(path)
    vary, cases = values.pop("vary", {}), values.pop("case", [])
    values.pop("study", None)  # how a reproduction shows the sweep
    if not isinstance(vary, dict) or not all(isinstance(v, list) for v in vary.values()):
        raise ConfigError(f"{os.fspath(path)}: [vary] must be a table of lists, such as clients = [50, 2000].")
    if not isinstance(cases, list) or not all(isinstance(case, dict) for case in cases):
        raise ConfigError(f"{os.fspath(path)}: cases must be tables [[case]], each with a name.")
    return values, vary, cases


def parse_vary(texts: list[str]) -> dict[str, list[Any]]:
    """``["privacy.p=0.15,0.5"]`` to ``{"privacy.p": [0.15, 0.5]}``; values are read as TOML, else as words.

    Raises:
        ConfigError: Not of this form, or a setting named twice.
    """
    out: dict[str, list[Any]] = {}
    for text in texts:
        key, equals, values = text.partition("=")
        if not equals or not key or not values:
            raise ConfigError(f"--vary must look like privacy.p=0.25,0.5,1, got {text!r}.")
        if key in out:
            raise ConfigError(f"--vary names {key!r} twice; give all its values in one list.")
        whole = _toml(f"[{values}]")
        out[key] = whole if whole is not None else [read_value(v.strip()) for v in values.split(",")]
    return out


def _toml(text: str) -> Any:
    import tomllib

    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return None


def read_value(text: str) -> Any:
    """A setting's value in a text: read as TOML, else a word."""
    value = _toml(text)
    return text if value is None else value


def _short(value: Any) -> str:
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return re.sub(r"[^\w.+-]+", "-", text).strip("-")  # a directory's name on any system
