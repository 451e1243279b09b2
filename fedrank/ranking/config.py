"""Settings of runs that learn to rank from clicks, beside those of the method.

A method's settings are the fields of its class (:mod:`fedrank.ranking.protocol`).
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from typing_extensions import override

from fedrank.core.errors import ConfigError
from fedrank.core.fields import bound, setting
from fedrank.core.privacy_report import DELTA
from fedrank.core.protocol import Protocol
from fedrank.engine import config as engine
from fedrank.engine.config import RunConfig

#: Rounds: 2 million interactions of 2,000 devices with 4 each, as in the experiments of FOLtR-ES.
ROUNDS = 250

#: B, interactions of a device in a round, as in the experiments of FOLtR-ES.
INTERACTIONS = 4

#: Devices in all where an ε is of a user's life and neither rounds nor devices of a round were given.
POPULATION = 200_000


@dataclass(frozen=True)
class OwnProtocol:
    """A protocol of the caller's own as the method of a run: any :class:`~fedrank.core.protocol.Protocol`.

    Attributes:
        protocol: The protocol.
    """

    protocol: Protocol = bound()
    interactions: int = setting(INTERACTIONS, "B, interactions of a device in a round.", low=1, high=10**6)

    @property
    def name(self) -> str:
        """Name of the protocol."""
        return self.protocol.name


@dataclass(frozen=True, kw_only=True)
class Evaluation(engine.Evaluation):
    """Measurements of the server's model while it learns."""

    every: int = setting(
        10, "Rounds between evaluations; the first and the last model are always evaluated.", low=1, high=10**7
    )
    measures: tuple[str, ...] = setting(
        ("nDCG(dcg='exp-log2')@10", "RR@10"), "Offline measures, each over all queries and over judged queries."
    )
    users: tuple[str, ...] = setting((), "Click models for the exact expected metric; empty: the one that trains.")
    tie_orders: int = setting(
        1,
        "Shuffles of equal scores that an evaluation averages over, the same each time; 0: in the order of the data.",
        low=0,
        high=10**4,
    )
    baselines: tuple[str, ...] = setting(
        ("MSE",), "Rankers trained on labels, to compare with: MSE, RankingSVM, LambdaMART."
    )


@dataclass(frozen=True, kw_only=True)
class Compute(engine.Compute):
    """Settings of the computation. Nothing here changes what a device draws."""

    kernels: Literal["auto", "on", "off"] = setting(
        "auto", "Compiled CPU kernels: auto uses them on a CPU, off is pure JAX."
    )
    backend: Literal["auto", "numba", "jax"] = setting(
        "auto",
        "What computes whole rounds: numba starts at once, jax compiles first and knows all settings; auto takes numba "
        "where it can.",
    )


@dataclass(frozen=True)
class Bounds:
    """Facts of a run that a promise may rest on.

    Attributes:
        rounds: Rounds of the run.
        clients: Devices of a round; None: not known.
        population: Devices in all; None: the same devices take part in every round.
        participations: Most rounds that a device takes part in; None: all.
        dropout: Probability that a device is not heard in a round.
        late: Probability that a reply comes rounds later.
        attackers: Share of the devices that attack.
        equal: All devices make equally many interactions.
        interactions: B, interactions of a device in a round.
    """

    rounds: int = 1
    clients: int | None = None
    population: int | None = None
    participations: int | None = None
    dropout: float = 0.0
    late: float = 0.0
    attackers: float = 0.0
    equal: bool = True
    interactions: int = 4

    def __post_init__(self):
        if self.participations is not None and self.participations < 1:
            raise ConfigError(f"participations must be at least 1, got {self.participations}.")

    @property
    def times(self) -> int:
        """Most rounds that a device takes part in; the ε of a user is divided among them."""
        return self.participations or (1 if self.population else self.rounds)


@dataclass(frozen=True, kw_only=True)
class RankingRun(RunConfig):
    """Settings of every run of this wing: the method, data, click model, ranker, and number of devices."""

    task: ClassVar[str] = "ranking"

    rounds: int = setting(ROUNDS, "Rounds; a round is one step of the server.", low=1, high=10**6, replaces=("budget",))
    budget: int | None = setting(None, "Interactions of all devices in a run, instead of rounds.", replaces=("rounds",))
    data: str = setting(
        "generated", "Name in the catalogue (fedrank data list), or a LETOR file or folder; or 'generated'."
    )
    fold: int = setting(1, "Fold of the data set, 1 to 5.", low=1, high=5)
    data_seed: int = setting(0, "Seed of generated data, of shares and of who differs how.", low=0, high=2**63 - 1)
    start_from: str = setting(
        "", "Model to start from, such as one of fedrank learn-from-log; data is then normalised as it needs."
    )
    normalise: Literal["auto", "none", "query-minmax", "standard", "min-max", "log"] = setting(
        "auto",
        "Features: auto leaves data in [0, 1] alone and scales other data to it, query by query (query-minmax); "
        "standard, min-max and log take constants of the training part, as search engines need them.",
    )
    holdout: float = setting(
        0.0, "Share of the training queries that become the test part, where the data has none; by data_seed."
    )
    divide: int | None = setting(
        None,
        "Seed by which all queries at hand are divided in five by lot, three fifths to train; fold is the one tested.",
        low=0,
        high=2**63 - 1,
    )
    clicks: str = setting(
        "navigational",
        "Click model: one of fedrank data clicks list, or a file of fedrank data clicks fit (fedrank-zoo).",
    )
    depth: int = setting(10, "Results that a user is shown, and that the reward counts.", low=1, high=16)
    ranker: str = setting("linear", "Ranker: linear or mlp.")
    hidden: int = setting(10, "Hidden units of the mlp.", low=1, high=4096)
    clients: int = setting(
        2000,
        "Devices of a round. A central learner has their interactions.",
        low=1,
        high=10**8,
    )
    reward: str = setting("MaxRR", "Metric of an interaction's clicks that is maximised: MaxRR, DCG, nDCG or MeanRR.")
    evaluation: Evaluation = field(default_factory=Evaluation)
    compute: Compute = field(default_factory=Compute)

    def __post_init__(self):
        if self.budget is not None:
            object.__setattr__(self, "rounds", self._rounds_of_budget(self.budget))  # frozen: derived once, here
        super().__post_init__()
        if not 0 <= self.holdout < 1:
            raise ConfigError(f"holdout must be in [0, 1), got {self.holdout}.")

    def _rounds_of_budget(self, budget: int) -> int:
        a_round = self.clients * self.interactions
        if budget < a_round:
            raise ConfigError(f"budget must be at least one round, {a_round:,} interactions; got {budget:,}.")
        if self.rounds not in (ROUNDS, budget // a_round):
            raise ConfigError(
                f"rounds = {self.rounds} and budget = {budget:,} disagree: the budget is {budget // a_round} "
                f"rounds of {a_round:,} interactions. Give one of them."
            )
        return budget // a_round

    @override
    @classmethod
    def of(cls, method: Any) -> Any:
        return cls(method=method if hasattr(method, "interactions") else OwnProtocol(method))

    @property
    def interactions(self) -> int:
        """Interactions of a device in a round."""
        return self.method.interactions or INTERACTIONS

    @property
    def in_all_rounds(self) -> bool:
        """True if the same devices take part in all rounds."""
        return True

    @property
    def bounds(self) -> Bounds:
        """Facts of the run that a promise may rest on."""
        return Bounds(rounds=self.rounds, clients=self.clients, interactions=self.interactions)

    @override
    def derive_settings(self) -> Any:
        """The same with what a mechanism of privacy says by default filled in.

        Raises:
            ConfigError: See :meth:`RunConfig.resolved`; or a setting that a mechanism needs is missing.
        """
        config, privacy = super().derive_settings(), getattr(self.method, "privacy", None)
        if privacy is None:
            return config
        return dataclasses.replace(config, method=dataclasses.replace(self.method, privacy=privacy.derive_settings()))

    @property
    def delta(self) -> float:
        """δ of the bound over the whole run."""
        return getattr(getattr(self.method, "privacy", None), "delta", DELTA)


@dataclass(frozen=True, kw_only=True)
class Devices:
    """Differences between devices, and lost or late replies; by default all are alike and all replies arrive."""

    users: tuple[str, ...] = setting((), "Click models dealt out to the devices; empty: 'clicks' everywhere.")
    amounts: Literal["equal", "skewed"] = setting(
        "equal", "Interactions of a device: equal, or from few to 'interactions'."
    )
    dropout: float = setting(0.0, "Probability that a device is not heard in a round.")
    late: float = setting(0.0, "Probability that a reply is to the question of 'delay' rounds ago: a straggler.")
    delay: int = setting(5, "Rounds that stragglers are behind.", needs=("devices.late", ()))


@dataclass(frozen=True, kw_only=True)
class Attack:
    """Settings of the attack that some devices carry out: which attack, and what share of the devices."""

    kind: str = setting(
        "none",
        "What attackers send (see the reference), or 'poisoned-clicks' for inverted users.",
        needs=("attack.share", ()),
    )
    share: float = setting(0.0, "Share of the devices that attack.", low=0, high=1)


@dataclass(frozen=True, kw_only=True)
class DeviceRun(RankingRun):
    """Settings of every run of devices: their shares of the queries, how they differ, their population, attackers."""

    share: Literal["uniform", "fixed", "topic", "labels"] = setting(
        "uniform",
        "Queries of a device: uniform draws from all in each interaction, fixed keeps the same share, topic a "
        "share of similar queries, labels sees documents of few relevance grades only.",
    )
    queries_per_client: int | None = setting(
        None,
        "Size of a fixed share; without it, the queries are dealt out evenly.",
        low=1,
        needs=("share", ("fixed",)),
    )
    topics: int = setting(
        10, "Topics that share = 'topic' cuts the queries into.", low=1, high=10**4, needs=("share", ("topic",))
    )
    labels_per_client: int = setting(
        1,
        "Relevance grades that a device sees with share = 'labels'.",
        low=1,
        high=100,
        needs=("share", ("labels",)),
    )
    population: int | None = setting(
        None,
        "Devices in all, 'clients' of them in a round. Without it new ones in every round for an ε of a user's life "
        "(200,000 if neither rounds nor clients are given), else the same in all.",
        low=1,
        high=10**12,
    )
    participations: int | None = setting(
        None,
        "Most rounds that a device ever takes part in; with a population 1 if nothing is said.",
        low=1,
        high=10**6,
        needs=("population", ()),
    )
    devices: Devices = field(default_factory=Devices)
    attack: Attack = field(default_factory=Attack)

    def __post_init__(self):
        super().__post_init__()
        if self.attack.share and self.attack.kind == "none":
            raise ConfigError(f"attack.share = {self.attack.share} needs attack.kind, what the attackers do.")

    @property
    @override
    def bounds(self) -> Bounds:
        return dataclasses.replace(
            super().bounds,
            population=self.population,
            participations=self.participations,
            dropout=self.devices.dropout,
            late=self.devices.late,
            attackers=self.attack.share,
            equal=self.devices.amounts == "equal",
        )

    @override
    def derive_settings(self) -> Any:
        """The same with population, participations, rounds, clients, interactions and step size filled in.

        Where an ε is of a user's life, devices are new ones in every round (``new_devices`` of a method), unless a
        population was given or they keep their queries. What was not given of rounds and clients together, interactions
        and step size is chosen for the ε.

        Raises:
            ConfigError: See :meth:`RunConfig.resolved`; or more messages than the population may send.
        """
        config = super().derive_settings()
        if self.population is not None and not getattr(self.method, "populations", False):
            raise ConfigError(f"population means nothing to {self.protocol}: its devices take part in every round.")
        if self.share != "uniform":
            config = config.in_every_round()
        unchanged, population = self.unchanged(), config.population
        said = {*self.said, *(one for one in ("rounds", "clients") if getattr(self, one) != getattr(unchanged, one))}
        said |= {"budget"} if self.budget is not None else set()
        said |= {"rounds", "clients"} if population is not None and config.in_all_rounds else set()
        if population is None and self._has_new_devices:
            population = self.rounds * self.clients if said & {"rounds", "clients", "budget"} else POPULATION
        participations = config.participations or (None if population is None else 1)
        config = dataclasses.replace(config, population=population, participations=participations)
        choose = getattr(config.method, "choose_schedule", None)
        if choose is not None and (chosen := choose(config.bounds, said)) is not None:
            rounds, clients, method = chosen
            config = dataclasses.replace(config, rounds=rounds, clients=clients, method=method)
        if not config.method.interactions:
            method = dataclasses.replace(config.method, interactions=INTERACTIONS)
            config = dataclasses.replace(config, method=method)
        config._check_population(participations)
        return config

    @override
    def in_every_round(self) -> Any:
        if self.population is None and self.participations is None and self._has_new_devices:
            return dataclasses.replace(self, population=self.clients, participations=self.rounds)
        return self

    @property
    @override
    def in_all_rounds(self) -> bool:
        return self.population is None or (self.population, self.participations) == (self.clients, self.rounds)

    @property
    def _of_a_user(self) -> bool:
        return getattr(getattr(self.method, "privacy", None), "of_a_user", False)

    @property
    def _has_new_devices(self) -> bool:
        return self._of_a_user and getattr(self.method, "new_devices", False)

    @property
    def bound_to_rounds(self) -> bool:
        """True if the ε of a user is divided among all rounds of the run."""
        return self._of_a_user and self.in_all_rounds

    def _check_population(self, participations: int | None) -> None:
        if self.population is None or participations is None:
            return
        if self.share != "uniform" and not self.in_all_rounds:
            raise ConfigError(
                f"population needs share = 'uniform', got {self.share!r}: the devices of a population are alike, so "
                "that they need not be held one by one."
            )
        messages, most = self.rounds * self.clients, self.population * participations
        if self.population < self.clients or messages > most:
            raise ConfigError(
                f"{self.rounds:,} rounds of {self.clients:,} clients are {messages:,} messages, more than "
                f"{self.population:,} devices may send that take part in at most {participations} of the rounds "
                f"({most:,}). Take a larger population or more participations, fewer rounds or fewer clients."
            )
