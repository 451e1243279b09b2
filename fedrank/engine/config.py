"""Settings of every run, whatever is learnt: seeds, rounds, evaluation, computation, and the method with its own.

A field is a flag of ``fedrank run PROTOCOL`` (``--clients 2000``), a key of ``config.toml`` (``clients = 2000``) and an
argument in Python; a nested dataclass is a table of the file, and its fields are flags with a dot (``--privacy.p``).
What is not given has the class's default.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any, ClassVar

from fedrank.core import registry
from fedrank.core.errors import ConfigError
from fedrank.core.fields import setting, settings_of
from fedrank.core.privacy_report import DELTA


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """Settings of how the models are measured while they learn; a wing's settings are a subclass."""

    every: int = setting(
        1, "Rounds between evaluations; the first and the last model are always evaluated.", low=1, high=10**7
    )


@dataclass(frozen=True, kw_only=True)
class Compute:
    """Settings of the computation. Nothing here changes what a party draws."""

    chunk: int = setting(16384, "Parties × seeds that answer at once; bounds the memory.", low=1, high=10**8)
    checkpoint_seconds: float = setting(30.0, "Seconds between checkpoints, which a killed run resumes from.", low=0)
    debug: bool = setting(False, "Without jit, party by party: slow, but an error names exchange, party and arguments.")


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """One experiment: the same protocol and data under several seeds.

    Attributes:
        method: The protocol, whose fields are settings beside those of the run.
        given: Where :meth:`resolved` made this configuration, the one that it was made from.
        said: Dotted names of the settings that were given, defaults among them.

    Raises:
        ConfigError: A setting is out of range or contradicts another.
    """

    #: Name of the task (an entry point of ``fedrank.tasks``); a wing's settings name theirs.
    task: ClassVar[str] = ""
    rounds: int = setting(100, "Rounds; a round is one step of the server.", low=1, high=10**6)
    seeds: int = setting(5, "Number of runs with different seeds.", low=1, high=1000)
    seed: int = setting(0, "The first seed; the others follow.", low=0, high=2**32 - 1001)
    evaluation: Evaluation = field(default_factory=Evaluation)
    compute: Compute = field(default_factory=Compute)
    method: Any = field(default=None, metadata={"flat": True})
    given: Any = field(default=None, compare=False, repr=False, metadata={"bound": True})
    said: frozenset[str] = field(default=frozenset(), compare=False, repr=False, metadata={"bound": True})

    def __post_init__(self):
        check_ranges(self)

    @property
    def protocol(self) -> str:
        """Name of the method; empty without one."""
        return "" if self.method is None else self.method.name

    @classmethod
    def of(cls, method: Any) -> Any:
        """The configuration of a run of a method, in which nothing else is changed.

        Raises:
            ConfigError: It is no method of the wing.
        """
        return cls(method=method)

    def unchanged(self) -> Any:
        """The configuration of the same method in which nothing is changed; a method of the caller's own stays."""
        named = self.protocol in registry.names("fedrank.protocols")
        return type(self).of(type(self.method)() if named else self.method)

    @property
    def all_seeds(self) -> tuple[int, ...]:
        """The seed of each run, ``seeds`` whole numbers from ``seed`` on."""
        return tuple(range(self.seed, self.seed + self.seeds))

    @property
    def bound_to_rounds(self) -> bool:
        """True if a promise depends on the number of rounds, which then cannot change once the run has begun."""
        return False

    def resolved(self) -> Any:
        """The same with every default that depends on other settings filled in, checked as a whole.

        Raises:
            ConfigError: A setting was changed that means nothing with the others, or one is missing.
        """
        check_needs(self, self.unchanged())
        return dataclasses.replace(self.derive_settings(), given=self.as_given)

    def derive_settings(self) -> Any:
        """The same with every default that depends on other settings filled in; by default there is none.

        Raises:
            ConfigError: Settings contradict each other, or one is missing.
        """
        return self

    def in_every_round(self) -> Any:
        """The same run where each party takes part in every round, as nodes of a network do; by default itself."""
        return self

    @property
    def as_given(self) -> Any:
        """The configuration before :meth:`resolved` filled anything in; itself where that did not make it."""
        before = self.given
        return before if before is not None and before.resolved() == self else self

    @property
    def delta(self) -> float:
        """δ of the run's privacy account."""
        return DELTA


def check_ranges(config: Any) -> None:
    """Check every number of a configuration against the range that its field states.

    Raises:
        ConfigError: One is outside; says its dotted name, the range and what came.
    """
    for name, value, one in settings_of(config):
        low, high = one.metadata.get("low"), one.metadata.get("high")
        if value is None or (low is None and high is None):
            continue
        if (low is not None and not value >= low) or (high is not None and not value <= high):
            allowed = f"in {low}..{high}" if None not in (low, high) else f"at least {low}" if high is None else None
            raise ConfigError(f"{name} must be {allowed or f'at most {high}'}, got {value}.")


def check_needs(config: Any, default: Any = None) -> None:
    """Refuse a setting that was changed although it means nothing with the others.

    Args:
        config: The configuration.
        default: The same without any change; by default what its class is made of without arguments.

    Raises:
        ConfigError: Says which, and what it needs.
    """
    default = type(config)() if default is None else default
    before = {name: value for name, value, _ in settings_of(default)}
    now = {name: value for name, value, _ in settings_of(config)}
    for name, value, one in settings_of(config):
        needs = one.metadata.get("needs")
        if needs is None or value == before.get(name, one.default):
            continue
        where, allowed = needs
        if now.get(where) not in allowed if allowed else now.get(where) == before.get(where):
            what = f"{where} = {' or '.join(map(repr, allowed))}" if allowed else where
            raise ConfigError(f"{name} means nothing without {what}; set both, or leave it out.")
