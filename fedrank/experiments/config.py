"""Everything that decides the outcome of a run: a frozen dataclass, a TOML file, the flags of ``fedrank run``.

A field is a flag (``--clients 2000``), a key of the file (``clients = 2000``) and an argument in Python; a nested field
is ``--privacy.p`` and the key ``p`` of the table ``[privacy]``. What is not given has the default of Kharitonov (2019).
"""

from __future__ import annotations

import dataclasses
import os
import types
import typing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from fedrank.core.errors import ConfigError, UnknownNameError
from fedrank.privacy.accountant import DELTA
from fedrank.privacy.randomised_response import probability
from fedrank.protocols.table import PROTOCOLS

#: p when neither p nor ε is given: the paper's choice for its main results (Section 6.3).
DEFAULT_P = 0.9
#: Rounds when neither rounds nor a budget is given: 2 million interactions of 2,000 devices with 4 each (the paper's).
DEFAULT_ROUNDS = 250


def setting(default: Any, help: str) -> Any:
    """A field of a configuration with its help text."""
    return field(default=default, metadata={"help": help})


@dataclass(frozen=True)
class Privacy:
    """How a device privatises what it sends; give ``p`` or ``epsilon``, not both."""

    p: float | None = setting(
        None,
        "Probability that an interaction's metric is sent as it is. Without p and epsilon: 0.9.",
    )
    epsilon: float | None = setting(None, "ε of one interaction, instead of p.")
    delta: float = setting(DELTA, "δ of the tighter bound for a user over the whole run.")

    def probability(self, n: int) -> float:
        """The p of randomised response over n values."""
        if self.epsilon is not None:
            return probability(self.epsilon, n)
        return DEFAULT_P if self.p is None else self.p


@dataclass(frozen=True)
class Evaluation:
    """What is measured about the server's model while it learns."""

    every: int = setting(10, "Rounds between evaluations; the first and the last model are always evaluated.")
    measures: tuple[str, ...] = setting(
        ("nDCG@10", "RR@10"), "Offline measures, each over all queries and over judged queries."
    )
    users: tuple[str, ...] = setting((), "Click models for the exact expected metric; empty: the one that trains.")
    tie_orders: int = setting(
        1, "Shuffles of equal scores that an evaluation averages over, the same each time; 0: in the order of the data."
    )


@dataclass(frozen=True)
class Compute:
    """How the run is computed. Nothing here changes what a device draws."""

    chunk: int = setting(16384, "Devices × seeds that answer at once; bounds the memory.")
    kernels: Literal["auto", "on", "off"] = setting(
        "auto", "Compiled CPU kernels: auto uses them on a CPU, off is pure JAX."
    )
    checkpoint_seconds: float = setting(30.0, "Seconds between checkpoints, which a killed run resumes from.")
    debug: bool = setting(
        False, "Without jit, device by device: slow, but an error names exchange, device and arguments."
    )


@dataclass(frozen=True)
class RunConfig:
    """One experiment: the same protocol, data and users under several seeds.

    Raises:
        ConfigError: A setting is out of range or contradicts another.
        UnknownNameError: A name that no registry has.
    """

    protocol: str = setting("foltr-es", "The protocol.")
    data: str = setting(
        "generated", "Name in the catalogue (fedrank data list), or a LETOR file or folder, or 'generated'."
    )
    fold: int = setting(1, "Fold of the data set, 1 to 5.")
    data_seed: int = setting(0, "Seed of generated data.")
    normalise: Literal["auto", "none", "query-minmax"] = setting(
        "auto", "Features: auto leaves data in [0, 1] alone and scales other data to it, query by query."
    )
    clicks: str = setting("navigational", "Click model: perfect, navigational or informational.")
    ranker: str = setting("linear", "Ranker: linear or mlp.")
    hidden: int = setting(10, "Hidden units of the mlp.")
    clients: int = setting(2000, "Devices; all take part in every round.")
    share: Literal["uniform", "fixed"] = setting(
        "uniform", "Queries of a device: uniform draws from all in each interaction, fixed keeps a share of its own."
    )
    queries_per_client: int | None = setting(
        None, "Size of a fixed share; without it, the queries are dealt out evenly."
    )
    interactions: int = setting(4, "B, interactions of a device in a round.")
    rounds: int = setting(0, "Rounds; a round is one step of the server. 0: what the budget gives, or 250.")
    budget: int | None = setting(None, "Interactions of all devices in a run, instead of rounds.")
    reward: str = setting("MaxRR", "Metric of an interaction's clicks that is maximised: MaxRR or DCG.")
    sigma: float = setting(0.01, "σ, standard deviation of the perturbation.")
    learning_rate: float = setting(1e-3, "Step size of Adam.")
    antithetic: bool = setting(True, "Try the perturbation in both directions.")
    ties: Literal["fixed", "random"] = setting(
        "fixed", "Equal scores: in the order of the data, or shuffled each time."
    )
    as_published: bool = setting(
        False,
        "Draw queries and clicks from the perturbation's seed, as the published code does; biased.",
    )
    seeds: int = setting(5, "How many runs with different seeds.")
    seed: int = setting(0, "The first seed; the others follow.")
    privacy: Privacy = field(default_factory=Privacy)
    evaluation: Evaluation = field(default_factory=Evaluation)
    compute: Compute = field(default_factory=Compute)

    def __post_init__(self):
        PROTOCOLS.entry(self.protocol)
        for name, value, low, high in (
            ("fold", self.fold, 1, 5),
            ("hidden", self.hidden, 1, 4096),
            ("clients", self.clients, 1, 10**8),
            ("interactions", self.interactions, 1, 10**6),
            ("seeds", self.seeds, 1, 1000),
            ("seed", self.seed, 0, 2**32 - 1001),
            ("data_seed", self.data_seed, 0, 2**63 - 1),
            ("evaluation.every", self.evaluation.every, 1, 10**7),
            ("evaluation.tie_orders", self.evaluation.tie_orders, 0, 10**4),
            ("compute.chunk", self.compute.chunk, 1, 10**8),
        ):
            if not low <= value <= high:
                raise ConfigError(f"{name} must be in {low}..{high}, got {value}.")
        object.__setattr__(self, "rounds", self._rounds())  # frozen: resolved once, here
        if self.queries_per_client is not None and (self.share != "fixed" or self.queries_per_client < 1):
            raise ConfigError("queries_per_client must be at least 1 and needs share = 'fixed'.")
        if self.privacy.p is not None and self.privacy.epsilon is not None:
            raise ConfigError("privacy.p and privacy.epsilon say the same thing; give one of them.")
        if self.privacy.p is None and self.privacy.epsilon is None:
            object.__setattr__(self, "privacy", dataclasses.replace(self.privacy, p=DEFAULT_P))
        if not 0 < self.privacy.delta < 1:
            raise ConfigError(f"privacy.delta must be between 0 and 1, got {self.privacy.delta}.")
        if self.compute.checkpoint_seconds < 0:
            raise ConfigError(
                f"compute.checkpoint_seconds must not be negative, got {self.compute.checkpoint_seconds}."
            )

    def _rounds(self) -> int:
        rounds = self.rounds
        if self.budget is not None:
            a_round = self.clients * self.interactions
            if self.budget < a_round:
                raise ConfigError(f"budget must be at least one round, {a_round:,} interactions; got {self.budget:,}.")
            if rounds not in (0, self.budget // a_round):
                raise ConfigError(
                    f"rounds = {rounds} and budget = {self.budget:,} disagree: the budget is {self.budget // a_round} "
                    f"rounds of {a_round:,} interactions. Give one of them."
                )
            rounds = self.budget // a_round
        elif rounds == 0:
            rounds = DEFAULT_ROUNDS
        if not 1 <= rounds <= 10**6:
            raise ConfigError(f"rounds must be in 1..{10**6}, got {rounds}.")
        return rounds

    @property
    def all_seeds(self) -> tuple[int, ...]:
        """The seeds of the runs."""
        return tuple(range(self.seed, self.seed + self.seeds))


def as_dict(config: Any) -> dict[str, Any]:
    """Nested plain dictionaries; settings that are None are left out, because TOML has no word for them."""
    out: dict[str, Any] = {}
    for f in dataclasses.fields(config):
        value = getattr(config, f.name)
        if dataclasses.is_dataclass(value):
            out[f.name] = as_dict(value)
        elif value is not None:
            out[f.name] = list(value) if isinstance(value, tuple) else value
    return out


def from_dict(values: dict[str, Any], cls: type = RunConfig, where: str = "") -> Any:
    """The configuration that a nested dictionary describes; the inverse of :func:`as_dict`.

    Args:
        values: Settings; missing ones take their default.
        cls: The dataclass to fill.
        where: Prefix for errors.

    Raises:
        UnknownNameError: A key that is no setting.
        ConfigError: A value of the wrong type or out of range.
    """
    hints = typing.get_type_hints(cls)
    arguments = {}
    for key, value in values.items():
        if key not in hints:
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
        if not isinstance(value, list | tuple) or not all(isinstance(v, str) for v in value):
            raise ConfigError(f"{name} must be a list of names, got {value!r}.")
        return tuple(value)
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if not isinstance(value, hint) or (hint is int and isinstance(value, bool)):
        raise ConfigError(f"{name} must be of type {hint.__name__}, got {value!r}.")
    return value


#: Settings that say the same in another way.
_RIVALS = {"rounds": "budget", "budget": "rounds", "privacy.p": "privacy.epsilon", "privacy.epsilon": "privacy.p"}


def drop_rivals(values: dict[str, Any], key: str) -> None:
    """Take out of a nested dictionary what says the same as a setting in another way, in place."""
    if key in _RIVALS:
        *path, last = _RIVALS[key].split(".")
        for part in path:
            values = values.get(part, {})
        values.pop(last, None)


def with_setting(config: RunConfig, key: str, value: Any) -> RunConfig:
    """The configuration with one setting changed, by its dotted name.

    >>> with_setting(RunConfig(), "privacy.p", 0.5).privacy.p
    0.5
    """
    values = as_dict(config)
    drop_rivals(values, key)
    if values.get("budget") is not None:
        values.pop("rounds", None)  # follows from the budget, and may change with the setting
    *path, last = key.split(".")
    table = values
    for part in path:
        table = table.setdefault(part, {})
        if not isinstance(table, dict):
            raise ConfigError(f"{key}: {part} is a setting, not a table of settings.")
    table[last] = value
    return from_dict(values)


def read_toml(path: str | os.PathLike[str]) -> dict[str, Any]:
    """A TOML file as a dictionary.

    Raises:
        ConfigError: No such file, or not TOML; says the line.
    """
    import tomllib

    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{os.fspath(path)}: cannot be read ({error.strerror}).") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{os.fspath(path)}: not a TOML file: {error}.") from error


def read_config(path: str | os.PathLike[str]) -> RunConfig:
    """The configuration in a TOML file; errors as :func:`read_toml` and :func:`from_dict`."""
    try:
        return from_dict(read_toml(path))
    except ConfigError as error:
        if str(path) in str(error):
            raise
        raise ConfigError(f"{os.fspath(path)}: {error}") from error


def to_toml(config: RunConfig) -> str:
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
