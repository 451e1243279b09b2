"""What a Flower run and a Flower node are told: flat tables of scalars with kebab-case names.

A run's table (``[tool.flwr.app.config]``, overridden by ``flwr run -c``) has every setting of its protocol that means
something outside a simulator, and those of :class:`FlowerSettings`. ``privacy.p`` is called ``privacy-p``; only
``rounds`` is called as Flower calls it. Flower knows neither lists nor the absence of a value: a list is text with
commas; a number below zero, empty text, or ``"auto"`` for a yes or no, stands for "not given" where nothing need be
given.

A node's table (``--node-config``) is the node's own: where its data is, and where its chance comes from. No run can say
that for it.
"""

from __future__ import annotations

import dataclasses
import os
import types
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from fedrank.core import plugins
from fedrank.core.errors import ConfigError, UnknownNameError
from fedrank.core.fields import setting
from fedrank.engine.config import RunConfig
from fedrank.engine.methods import method
from fedrank.engine.settings import DEFAULT_PROTOCOL, as_dict, from_dict, settings_class
from fedrank.experiments.config import RunConfig as OldConfig
from fedrank.experiments.known import family
from fedrank.privacy.accountant import DELTA

Scalar = bool | int | float | str
#: Settings of a run.
Settings = RunConfig | OldConfig

#: Settings that mean nothing here: a run has one seed, a network loses replies by itself, nobody is told to lie.
SIMULATED = {
    *("seeds", "budget", "devices.dropout", "devices.late", "devices.delay", "attack.kind", "attack.share"),
    *("evaluation.baselines", "compute.checkpoint_seconds", "compute.debug"),
}
#: Tables of runs of silos, with tables and with texts; other runs have all settings but these.
TEXT_TABLES = ("texts", "sketch", "training")
# What runs of silos have beside their tables.
_OF_TEXTS = {
    *("protocol", "data", "data_seed", "learning_rate", "rounds", "seed", "compute.chunk", "i_know", "privacy.delta")
}
#: Names of settings that Flower has a word of its own for.
_RENAMED = {"rounds": "num-server-rounds"}
_YES = {"auto": None, "yes": True, "no": False}
#: Where a party's chance comes from.
CHANCES = ("os", "seed")
#: Says it for nodes that have no table of their own, as in Flower's simulation.
CHANCE_VARIABLE = "FEDRANK_CHANCE"


@dataclass(frozen=True)
class FlowerSettings:
    """What the server is told beside the experiment.

    Raises:
        ConfigError: A setting is out of range.
    """

    checkpoint_dir: str = setting("fedrank-flower", "Folder of the server that the run is kept in, and resumed from.")
    min_available_nodes: int = setting(2, "Nodes that a round needs: to be there before it, and to be heard in it.")
    round_timeout: float = setting(600.0, "Seconds after which a question is closed with the answers that are there.")
    round_attempts: int = setting(3, "How often a question is asked before too few answers stop the run.")
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


@dataclass(frozen=True)
class NodeSettings:
    """What a node is told by those who run it.

    Attributes:
        partition_id: Number of its block of the run's parties, from 0.
        num_partitions: How many blocks there are.
        data: File or folder of its own queries, a silo's own table or texts, instead of the data that the run names.
        data_folder: Where sets of the catalogue are looked for; empty: ``FEDRANK_DATA`` or the platform's cache.
        state_dir: Folder in which its parties' own state outlasts the node's process; empty: Flower keeps it.
        chance: ``"os"``: what protects people comes from the operating system. ``"seed"``: from the run's seed, as in a
            simulator, so that a run can be repeated; whoever knows the seed sees through every lie.
        most_epsilon: Largest ε of one round that this node's parties agree to; below 0: any, also none at all.
        most_sketch_epsilon: Of a silo with texts, the largest ε of one occurrence of a word in what it shows others;
            below 0: any, but with texts of its own not none at all, which takes ``inf``.
        most_openings: Of a silo with texts of its own, how often it may hand out sketches, all runs together that use
            this ``state_dir``; ε is spent each time.
        gateway: Address of a hub that relays: real devices answer instead of simulated ones.
        gateway_token: File with that hub's admin token.
        gateway_seconds: How long its devices have for a round, before it is closed with what has come.

    Raises:
        ConfigError: A setting is missing, of the wrong type or out of range.
    """

    partition_id: int
    num_partitions: int
    data: str = ""
    data_folder: str = ""
    state_dir: str = ""
    chance: str = "os"
    most_epsilon: float = -1.0
    most_sketch_epsilon: float = -1.0
    most_openings: int = 1
    gateway: str = ""
    gateway_token: str = ""
    gateway_seconds: float = 300.0

    def __post_init__(self):
        if bool(self.gateway) != bool(self.gateway_token) or not 0 < self.gateway_seconds < 1e7:
            raise ConfigError(
                "a gateway needs gateway and gateway-token, the hub's address and the file of its admin token, and "
                f"gateway-seconds above 0; got {self.gateway!r}, {self.gateway_token!r}, {self.gateway_seconds}."
            )
        if not 0 <= self.partition_id < self.num_partitions:
            raise ConfigError(
                f"partition-id must be in 0..num-partitions − 1, got {self.partition_id} of {self.num_partitions}."
            )
        if self.chance not in CHANCES:
            raise UnknownNameError("source of chance", self.chance, CHANCES)


def task_of(config: Any) -> str:
    """Name of the task of a run."""
    if isinstance(config, RunConfig):
        return method(config.protocol).task
    return {"devices": "ranking", "platforms": "slates"}.get(family(config.protocol).name, family(config.protocol).name)


def delta_of(config: Any) -> float:
    """δ of the bound over the whole run; its default where the run's protocol has no such setting."""
    return config.privacy.delta if hasattr(config, "privacy") else DELTA


def flat_names(cls: type) -> dict[str, str]:
    """The flat name of each setting of a run -> its dotted name, those of :class:`FlowerSettings` left out.

    Args:
        cls: The settings of the run's protocol.
    """
    simulated = SIMULATED
    if issubclass(cls, RunConfig):
        simulated = SIMULATED | {*plugins.get("fedrank.tasks", method(cls().protocol).task).simulated}
    return {
        _RENAMED.get(name, name.replace(".", "-").replace("_", "-")): name
        for name, _ in _leaves(cls)
        if name not in simulated
    }


def flatten(config: Any, settings: FlowerSettings | None = None) -> dict[str, Scalar]:
    """A run's table; the inverse of :func:`read_run`.

    Args:
        config: The run's settings.
        settings: What else the server is told.

    Raises:
        ConfigError: A setting differs from its default that only a simulator knows.
    """
    cls = type(config)
    hints, default = dict(_leaves(cls)), cls(protocol=config.protocol)
    for name in sorted((SIMULATED - {"seeds", "budget"}) & hints.keys()):  # one seed is run; budgets became rounds
        if _value(config, name) != _value(default, name):
            raise ConfigError(f"{name} is for simulators: over a network it happens by itself. Leave it out.")
    own = settings or FlowerSettings()
    return {
        **{
            flat: _as_scalar(_value(config, name), hints[name])
            for flat, name in flat_names(cls).items()
            if not isinstance(config, OldConfig) or _means_something(name, config)
        },
        **{f.name.replace("_", "-"): getattr(own, f.name) for f in dataclasses.fields(own)},
    }


def _means_something(name: str, config: OldConfig) -> bool:
    table = name.split(".")[0]
    return table in TEXT_TABLES or name in _OF_TEXTS


def read_run(values: Mapping[str, Scalar]) -> tuple[Any, FlowerSettings]:
    """The experiment and the server's settings in a run's table; what is missing has its default.

    Raises:
        ConfigError: A value is out of range or contradicts another.
        UnknownNameError: A name that is no setting.
    """
    cls = settings_class(str(values.get("protocol", DEFAULT_PROTOCOL)))
    names, hints = flat_names(cls), dict(_leaves(cls))
    own = {f.name.replace("_", "-"): f.name for f in dataclasses.fields(FlowerSettings)}
    nested: dict[str, Any] = {"seeds": 1}
    told: dict[str, Any] = {}
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
    config = from_dict(nested).resolved()
    if task_of(config) == "slates":
        raise ConfigError(
            f"{config.protocol!r} does not run through Flower: a round of platforms takes milliseconds, a message of "
            "Flower seconds. Use fedrank serve platform and fedrank coordinate platforms."
        )
    return config, from_dict(told, FlowerSettings)


def read_node(values: Mapping[str, Scalar]) -> NodeSettings:
    """A node's settings; names that other apps may have put there are left alone.

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
    return from_dict(given, NodeSettings)


def about(config: Any) -> dict[str, Any]:
    """What a checkpoint belongs to: everything but how long the run is, how it is computed and what is measured."""
    return {k: v for k, v in as_dict(config).items() if k not in ("rounds", "budget", "compute", "evaluation")}


def block(parties: int, partition: int, partitions: int) -> range:
    """The parties that a node answers for: the blocks follow one another and differ by one party at most.

    Args:
        parties: Parties of the run.
        partition: Number of the block, from 0.
        partitions: How many blocks.

    Raises:
        ConfigError: Nobody is left for this block.

    >>> [list(block(5, i, 2)) for i in (0, 1)]
    [[0, 1], [2, 3, 4]]
    """
    numbers = range(parties * partition // partitions, parties * (partition + 1) // partitions)
    if not numbers:
        raise ConfigError(
            f"partition {partition} of {partitions} is empty: the run has {parties} parties (clients); use fewer nodes."
        )
    return numbers


def _leaves(cls: type, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted name and type of every setting."""
    hints = typing.get_type_hints(cls)
    for name in (field.name for field in dataclasses.fields(cls)):
        if dataclasses.is_dataclass(hints[name]):
            yield from _leaves(typing.cast(type, hints[name]), f"{prefix}{name}.")
        else:
            yield prefix + name, hints[name]


def _value(config: Any, name: str) -> Any:
    for part in name.split("."):
        config = getattr(config, part)
    return config


def _optional(hint: Any) -> type | None:
    """The type of a value that may be None; None for others."""
    if typing.get_origin(hint) not in (typing.Union, types.UnionType):
        return None
    return next(h for h in typing.get_args(hint) if h is not type(None))


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
