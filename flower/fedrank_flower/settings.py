"""Settings of a Flower run and of a Flower node: flat tables of scalars with kebab-case names.

A run's table (``[tool.flwr.app.config]``, overridden by ``flwr run -c``) has every setting of its protocol that means
something outside a simulator, and those of :class:`FlowerSettings`. ``privacy.p`` is called ``privacy-p``; only
``rounds`` is called as Flower calls it. Flower knows neither lists nor the absence of a value: a list is text with
commas; a number below zero, empty text, or ``"auto"`` for a yes or no, stands for "not given" where nothing need be
given. The table has the settings of all parts that may stand in a protocol, such as those of every mechanism: "not
given" where the part that is named (``privacy-name``) has its default, or knows no such setting.

A node's table (``--node-config``) is the node's own: where its data is, and where its chance comes from. No run can say
that for it.
"""

from __future__ import annotations

import dataclasses
import os
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fedrank.core import registry
from fedrank.core.errors import ConfigError, UnknownNameError
from fedrank.core.fields import setting, settings_of
from fedrank.core.trees import Json
from fedrank.engine.config import RunConfig
from fedrank.engine.deployment import NodeSettings
from fedrank.engine.methods import method
from fedrank.engine.settings import (
    DEFAULT_PROTOCOL,
    as_dict,
    defaults,
    from_dict,
    from_table,
    parts_in,
    parts_of,
    setting_hints,
    with_setting,
)
from fedrank.engine.task import Task

Scalar = bool | int | float | str

#: Settings for simulations only: over a network a run has one seed, replies are lost by themselves, and no party is
#: made an attacker.
SIMULATED = {
    *("seeds", "budget", "devices.dropout", "devices.late", "devices.delay", "attack.kind", "attack.share"),
    *("evaluation.baselines", "evaluation.folds", "compute.checkpoint_seconds", "compute.debug"),
}
#: Names of settings that Flower has another word for.
_RENAMED = {"rounds": "num-server-rounds"}
_YES = {"auto": None, "yes": True, "no": False}
#: Source of random numbers of nodes that have no table of settings, as in Flower's simulation.
CHANCE_VARIABLE = "FEDRANK_CHANCE"


@dataclass(frozen=True)
class FlowerSettings:
    """Settings of the server besides those of the experiment.

    Raises:
        ConfigError: A setting is out of range.
    """

    checkpoint_dir: str = setting("fedrank-flower", "Folder of the server that the run is kept in, and resumed from.")
    min_available_nodes: int = setting(2, "Nodes that a round needs: connected before it, and heard in it.")
    round_timeout: float = setting(600.0, "Seconds after which a request is closed with the replies that have come.")
    round_attempts: int = setting(3, "Number of times that a request is sent before too few replies stop the run.")
    n_features: int = setting(
        0, "Features of a document or a row, where the server has no data; 0: it has the run's data."
    )

    def __post_init__(self):
        for name, value, low, high in (
            ("min-available-nodes", self.min_available_nodes, 1, 10**6),
            ("round-timeout", self.round_timeout, 1, 10**7),
            ("round-attempts", self.round_attempts, 1, 1000),
            ("n-features", self.n_features, 0, 10**6),
        ):
            if not low <= value <= high:
                raise ConfigError(f"{name} must be in {low}..{high}, got {value}.")
        if not self.checkpoint_dir:
            raise ConfigError("checkpoint-dir must name a folder of the server; what a run learns is kept there.")


def task_of(config: RunConfig) -> Task:
    """The task that the run's protocol belongs to, as the engine knows it."""
    return registry.get("fedrank.tasks", method(config.protocol).task)


def flat_names(base: Any) -> dict[str, str]:
    """The flat name of each setting of a run -> its dotted name, those of :class:`FlowerSettings` left out.

    Args:
        base: A configuration of the run's protocol.
    """
    simulated = SIMULATED | {*task_of(base).simulated}
    return {
        _RENAMED.get(name, name.replace(".", "-").replace("_", "-")): name
        for name in _hints(base)
        if name not in simulated
    }


def flatten(config: RunConfig, settings: FlowerSettings | None = None) -> dict[str, Scalar]:
    """The table of a run; the inverse of :func:`read_run`.

    Args:
        config: The run's settings.
        settings: Further settings of the server.

    Raises:
        ConfigError: A setting differs from its default that only a simulator knows.
    """
    hints, default = _hints(config), config.unchanged()
    for name in sorted((SIMULATED - {"seeds", "budget"}) & hints.keys()):  # one seed is run; budgets became rounds
        if _value(config, name) != _value(default, name):
            raise ConfigError(f"{name} is for simulators: over a network it happens by itself. Leave it out.")
    own = settings or FlowerSettings()
    return {
        **{flat: _as_scalar(_value(config, name), hints[name]) for flat, name in flat_names(config).items()},
        **{f.name.replace("_", "-"): getattr(own, f.name) for f in dataclasses.fields(own)},
    }


def read_run(values: Mapping[str, Scalar]) -> tuple[Any, FlowerSettings]:
    """The run's and the server's settings from a run's table; missing ones have their defaults.

    Raises:
        ConfigError: A value is out of range or contradicts another.
        UnknownNameError: A name that is no setting.
    """
    base = defaults(str(values.get("protocol", DEFAULT_PROTOCOL)))
    for part in parts_in(base):
        if f"{part}-name" in values:
            base = with_setting(base, f"{part}.name", values[f"{part}-name"])
    names, hints = flat_names(base), _hints(base)
    own = {f.name.replace("_", "-"): f.name for f in dataclasses.fields(FlowerSettings)}
    nested: dict[str, Json] = {"seeds": 1}
    told: dict[str, Json] = {}
    for flat, value in values.items():
        if flat in own:
            told[own[flat]] = value
        elif flat in names:
            *path, last = names[flat].split(".")
            given = _from_scalar(value, hints[names[flat]], flat)
            if given is not None:
                table = nested
                for part in path:
                    table = table.setdefault(part, {})
                table[last] = given
        else:
            raise UnknownNameError("setting of a Flower run", flat, [*names, *own])
    config = from_dict(nested).in_every_round().resolved()
    if reason := task_of(config).no_network:
        raise ConfigError(f"{config.protocol!r} does not run through Flower: {reason}")
    return config, from_table(told, FlowerSettings)


def read_node(values: Mapping[str, Scalar]) -> NodeSettings:
    """A node's settings; names of other apps are ignored.

    Raises:
        ConfigError: As :class:`NodeSettings`.
    """
    known = {f.name.replace("_", "-"): f.name for f in dataclasses.fields(NodeSettings)}
    given = {known[flat]: value for flat, value in values.items() if flat in known}
    for flat in ("partition-id", "num-partitions"):
        if known[flat] not in given:
            raise ConfigError(
                f"{flat} is missing in the node's settings; start the SuperNode with --node-config "
                "'partition-id=0 num-partitions=2', numbered from 0."
            )
    given.setdefault("chance", os.environ.get(CHANCE_VARIABLE, "os"))
    return from_table(given, NodeSettings)


def about(config: RunConfig) -> dict[str, Json]:
    """The settings that a checkpoint belongs to: all but the run's length, computation and evaluation.

    The length is among them where a promise counts on it.
    """
    free = ("compute", "evaluation") if config.bound_to_rounds else ("rounds", "budget", "compute", "evaluation")
    return {k: v for k, v in as_dict(config).items() if k not in free}


def _hints(config: Any) -> dict[str, Any]:
    """Dotted name and type of every setting of a configuration, the protocol among them.

    The settings of all parts that may stand there are listed, and may be None, so that a table can choose another part.
    """
    found = {"protocol": str, **setting_hints(config)}
    for table, field in parts_in(config).items():
        for cls in parts_of(field).values():
            if dataclasses.is_dataclass(cls):
                found |= {name: hint | None for name, hint in setting_hints(cls(), f"{table}.").items()}
    return {"protocol": found.pop("protocol"), **found}


def _value(config: RunConfig, name: str) -> Any:
    """Value of a setting; None: that of a part's default, or of a part that does not stand there."""
    if name == "protocol":
        return config.protocol
    table, _, setting = name.partition(".")
    if setting != "name" and table in parts_in(config):
        part = getattr(getattr(config, "method", config), table)
        value = getattr(part, setting, None)
        return None if value == getattr(type(part)(), setting, None) else value
    return {key: value for key, value, _ in settings_of(config)}[name]


def _optional(hint: Any) -> type | None:
    """The type of a value that may be None, ``str`` for one of some words; None for others."""
    if typing.get_origin(hint) not in (typing.Union, types.UnionType):
        return None
    kind = next(h for h in typing.get_args(hint) if h is not type(None))
    return str if typing.get_origin(kind) is typing.Literal else kind


def _as_scalar(value: Any, hint: Any) -> Any:
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    kind = _optional(hint)
    if kind is bool:
        return next(word for word, meaning in _YES.items() if meaning is value)
    if kind is not None and value is None:
        return "" if kind is str else kind(-1)
    return value


def _from_scalar(value: Scalar, hint: Any, name: str) -> Any:
    kind = _optional(hint)
    if typing.get_origin(hint) is tuple:
        return _from_list(value, typing.get_args(hint)[0], name)
    if kind is bool:
        if not isinstance(value, str) or value not in _YES:
            raise UnknownNameError(f"value of {name}", str(value), _YES)
        return _YES[value]
    if kind is str and value == "":
        return None
    if kind is not None and isinstance(value, int | float) and value < 0:
        return None
    return value


def _from_list(value: Scalar, kind: type, name: str) -> list[Any]:
    if not isinstance(value, str):
        raise ConfigError(
            f"{name} must be {'numbers' if kind is int else 'names'} with commas between them, got {value!r}."
        )
    parts = [part.strip() for part in value.split(",") if part.strip()]
    try:
        return [kind(part) for part in parts]
    except ValueError as error:
        raise ConfigError(f"{name} must be whole numbers with commas between them, got {value!r}.") from error
