"""Settings of runs in which platforms share users, beside those of the method.

A method's settings are the fields of its class (:mod:`fedrank.slates.protocol`).
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from typing_extensions import override

from fedrank.core.errors import ConfigError
from fedrank.core.fields import bound, setting
from fedrank.core.privacy_report import DELTA
from fedrank.engine import config as engine
from fedrank.engine.config import RunConfig
from fedrank.slates.world.departures import DEPARTURES

#: Policies that a run can be compared with.
#: best-fixed wins an A/B test (:func:`fedrank.slates.results.list_rules`) on as many other users as a run learns from.
BASELINES = ("random", "choc", "kale", "kale-then-choc", "best-fixed", "myopic", "optimum")
#: Rounds of a user: 122 ticks of two platforms (TianYaDY/FedSlate).
EPISODE = 61
#: Largest bound of a value, and of ε.
LARGEST = 1e6


@dataclass(frozen=True, kw_only=True)
class World:
    """The users that platforms share, and what platforms can show them."""

    preset: Literal["recsim", "paper", "tension", "stock"] = setting(
        "recsim",
        "Choc and Kale: recsim as in its code; paper as in FedSlate's text, where users like chocolate; tension, where "
        "greed costs; stock RecSim's own, for one platform, a slate of 1 and a time_budget of 60.",
    )
    candidates: int = setting(10, "N, items to choose from, new ones in every round.", low=1, high=10_000)
    slate: int = setting(3, "n, items that are shown.", low=1)
    features: int = setting(
        1, "d, features by which platforms know an item; more than one for planned-slates alone.", low=1, high=64
    )
    platforms: int = setting(2, "K, platforms that share a user.", low=1, high=26)
    sensitivity: float | None = setting(
        None, "τ, how strongly satisfaction follows consumption. Default: the preset's.", low=0, high=100
    )
    sensitivities: tuple[float, ...] = setting(
        (), "τ of each platform, where users forgive some more than others. Default: sensitivity at all."
    )
    drift: float = setting(0.0, "Logarithm of the factor by which τ has changed at the end of a stay.", low=-7, high=7)
    memory_discount: float | None = setting(
        None, "β, the part of past consumption that is left after a tick. Default: the preset's, 0.9."
    )
    observation_noise: float | None = setting(
        None, "Standard deviation of the noise on observed satisfaction. Default: the preset's, 0.1.", low=0, high=100
    )
    semantics: Literal["recsim-code", "paper"] | None = setting(
        None, "A high kaleness is chocolate, or kale. Default: the preset's."
    )
    choice: Literal["multinomial", "multinomial-no-click", "proportional", "cascade"] = setting(
        "multinomial", "How users choose from a slate."
    )
    shared_candidates: bool = setting(True, "All platforms have the same items in a round, or each its own.")
    turns: Literal["in-order", "shuffled"] | None = setting(
        None, "Who acts first: always the same, or by lot. Default: the preset's."
    )
    departure: str | None = setting(
        None,
        "How users depart from what platforms believe of them: third-kind, clickbait, bots, late, few, cascade. "
        "Default: not at all. The optimum is then that of the believed users, and no bound.",
    )
    time_budget: int | None = setting(
        None, "Ticks of a user, a multiple of platforms. Default: 61 rounds, 122 ticks of two platforms."
    )

    def __post_init__(self):
        if self.departure is not None:
            DEPARTURES.get(self.departure)
        if not 1 <= self.slate <= self.candidates:
            raise ConfigError(f"world.slate must be in 1..{self.candidates}, got {self.slate}.")
        if not self.platforms <= self.ticks <= 10**6:
            raise ConfigError(f"world.time_budget must be in {self.platforms}..{10**6}, got {self.ticks}.")
        if self.sensitivities and len(self.sensitivities) != self.platforms:
            raise ConfigError(
                f"world.sensitivities must be one a platform, {self.platforms} of them, got {len(self.sensitivities)}."
            )
        if not all(0 <= one <= 100 for one in self.sensitivities):
            raise ConfigError(f"world.sensitivities must be in 0..100, got {self.sensitivities}.")
        if self.memory_discount is not None and not 0 <= self.memory_discount < 1:
            raise ConfigError(f"world.memory_discount must be in [0, 1), got {self.memory_discount}.")
        if self.platforms > 0 and self.ticks % self.platforms:
            raise ConfigError(
                f"world.time_budget must be a multiple of world.platforms = {self.platforms}, got {self.ticks}: in a "
                "round every platform has a tick."
            )

    @property
    def ticks(self) -> int:
        """Number of ticks that a user stays."""
        return EPISODE * self.platforms if self.time_budget is None else self.time_budget


@dataclass(frozen=True, kw_only=True)
class Privacy:
    """δ of the account of noise."""

    delta: float = setting(DELTA, "δ of Gaussian noise, and of the tighter bound for a user over the whole run.")

    def __post_init__(self):
        if not 0 < self.delta < 1:
            raise ConfigError(f"privacy.delta must be between 0 and 1, got {self.delta}.")


@dataclass(frozen=True, kw_only=True)
class Evaluation(engine.Evaluation):
    """Evaluation of the networks while they learn: engagement of fresh users without exploration."""

    every: int = setting(
        20 * EPISODE,
        "Rounds between evaluations; the first and the last networks are always evaluated.",
        low=1,
        high=10**7,
    )
    episodes: int = setting(128, "Fresh users that an evaluation averages over, in each run.", low=2, high=10**6)
    baselines: tuple[str, ...] = setting(BASELINES, "Policies to compare with; all of them by default.")


@dataclass(frozen=True, kw_only=True)
class SlatesRun(RunConfig):
    """Settings of every run of this wing: the method, the users, and how networks are judged.

    Attributes:
        own: A protocol of the caller's own, whose users and numbers are its own as well.
    """

    task: ClassVar[str] = "slates"

    rounds: int = setting(
        400 * EPISODE, "Rounds, in each of which every platform shows a slate; a user has 61.", low=1, high=10**8
    )
    start_from: str = setting(
        "",
        "Model of the same method to start from, as a file. A plan is tested, or kept if a new fit says nothing; "
        "networks learn on.",
    )
    world: World = field(default_factory=World)
    evaluation: Evaluation = field(default_factory=Evaluation)
    own: Any = bound()

    @property
    def played(self) -> Any:
        """The protocol: the method, or the caller's own."""
        return self.method if self.own is None else self.own

    @property
    @override
    def protocol(self) -> str:
        return self.played.name

    @override
    @classmethod
    def of(cls, method: Any) -> SlatesRun:
        # A protocol that has its own users is not changed by a run's settings.
        return cls(method=method) if method.world is None else cls(own=method)

    @override
    def unchanged(self) -> SlatesRun:
        return type(self)(method=None if self.method is None else self.method.unchanged(), own=self.own)

    @override
    def derive_settings(self) -> SlatesRun:
        return self if self.method is None else dataclasses.replace(self, method=self.method.resolved(self))

    @property
    def delta(self) -> float:
        """δ of the account of a run."""
        return self.played.delta
