"""Settings of the protocols that learn to rank from clicks."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal

from cyclopts import Parameter

from fedrank.core.errors import ConfigError
from fedrank.core.fields import setting
from fedrank.core.privacy_report import DELTA
from fedrank.core.trees import Json
from fedrank.engine import config as engine
from fedrank.engine.config import RunConfig
from fedrank.privacy.accounts.piecewise import Anonymity
from fedrank.privacy.accounts.shuffle import local_epsilon
from fedrank.privacy.piecewise import Piecewise, at_ends_of, best_clipped
from fedrank.privacy.randomised_response import probability
from fedrank.ranking.on_device.reply import CLIP

#: p of FOLtR-ES where neither p nor ε is given: the paper's choice for its main results (Section 6.3).
DEFAULT_P = 0.9
#: Norm that FPDGD clips to where there is noise (ICTIR 2021, at its larger budgets).
DEFAULT_CLIP = 5.0
#: Norm that FPDGD clips the change of a ranker to where ε is that of a user.
CHANGE_CLIP = 1.0
#: Rounds: 2 million interactions of 2,000 devices with 4 each, as in the experiments of FOLtR-ES.
ROUNDS = 250


@dataclass(frozen=True, kw_only=True)
class Evaluation(engine.Evaluation):
    """What is measured about the server's model while it learns."""

    every: int = setting(
        10, "Rounds between evaluations; the first and the last model are always evaluated.", low=1, high=10**7
    )
    measures: tuple[str, ...] = setting(
        ("nDCG@10", "RR@10"), "Offline measures, each over all queries and over judged queries."
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
    """How the run is computed. Nothing here changes what a device draws."""

    kernels: Literal["auto", "on", "off"] = setting(
        "auto", "Compiled CPU kernels: auto uses them on a CPU, off is pure JAX."
    )
    backend: Literal["auto", "numba", "jax"] = setting(
        "auto",
        "What computes whole rounds: numba starts at once, jax compiles first and knows all settings; auto takes numba "
        "where it can.",
    )


@dataclass(frozen=True, kw_only=True)
class RankingConfig(RunConfig):
    """Settings of every protocol of this wing: data, click model, ranker, and numbers of devices and interactions."""

    task: ClassVar[str] = "ranking"

    rounds: int = setting(ROUNDS, "Rounds; a round is one step of the server.", low=1, high=10**6, replaces=("budget",))
    budget: int | None = setting(None, "Interactions of all devices in a run, instead of rounds.", replaces=("rounds",))
    data: str = setting(
        "generated", "Name in the catalogue (fedrank data list), or a LETOR file or folder; or 'generated'."
    )
    fold: int = setting(1, "Fold of the data set, 1 to 5.", low=1, high=5)
    data_seed: int = setting(0, "Seed of generated data, of shares and of who differs how.", low=0, high=2**63 - 1)
    normalise: Literal["auto", "none", "query-minmax"] = setting(
        "auto", "Features: auto leaves data in [0, 1] alone and scales other data to it, query by query."
    )
    holdout: float = setting(
        0.0, "Share of the training queries that become the test part, where the data has none; by data_seed."
    )
    clicks: str = setting("navigational", "Click model: one of fedrank clicks list, or a file of fedrank clicks fit.")
    depth: int = setting(10, "Results that a user is shown, and that the reward counts.", low=1, high=16)
    ranker: str = setting("linear", "Ranker: linear or mlp.")
    hidden: int = setting(10, "Hidden units of the mlp.", low=1, high=4096)
    clients: int = setting(
        2000,
        "Devices; all take part in every round. A central learner has their interactions.",
        low=1,
        high=10**8,
    )
    interactions: int = setting(4, "B, interactions of a device in a round.", low=1, high=10**6)
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

    @classmethod
    def without_derived(cls, values: dict[str, Json]) -> None:
        """Take ``rounds`` out where there is a budget, which it follows from."""
        if values.get("budget") is not None:
            values.pop("rounds", None)

    @property
    def delta(self) -> float:
        """δ of the bound over the whole run."""
        return DELTA


# ------------------------------------------------------------------------------------------------------------- devices


@dataclass(frozen=True, kw_only=True)
class Privacy:
    """Settings of the privacy account that every protocol of devices has."""

    delta: float = setting(DELTA, "δ of the tighter bound for a user over the whole run, and of Gaussian noise.")

    def __post_init__(self):
        if not 0 < self.delta < 1:
            raise ConfigError(f"privacy.delta must be between 0 and 1, got {self.delta}.")


@dataclass(frozen=True, kw_only=True)
class Devices:
    """How devices differ, and which replies are lost or late; by default all are alike and all replies arrive."""

    users: tuple[str, ...] = setting((), "Click models dealt out to the devices; empty: 'clicks' everywhere.")
    amounts: Literal["equal", "skewed"] = setting(
        "equal", "Interactions of a device in a round: equal, or from few to 'interactions'."
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
class DeviceConfig(RankingConfig):
    """Settings of every protocol of devices: their shares of the queries, how they differ, and attackers."""

    share: Literal["uniform", "fixed", "topic", "labels"] = setting(
        "uniform",
        "Queries of a device: uniform draws from all in each interaction, fixed keeps a share of its own, topic a "
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
    privacy: Privacy = field(default_factory=Privacy)
    devices: Devices = field(default_factory=Devices)
    attack: Attack = field(default_factory=Attack)

    def __post_init__(self):
        super().__post_init__()
        if self.attack.share and self.attack.kind == "none":
            raise ConfigError(f"attack.share = {self.attack.share} needs attack.kind, what the attackers do.")

    @property
    def delta(self) -> float:
        """δ of the bound over the whole run, as set."""
        return self.privacy.delta


@dataclass(frozen=True, kw_only=True)
class DefendedConfig(DeviceConfig):
    """Settings of protocols whose server may combine replies by a rule that is robust to attackers."""

    aggregate: str = setting(
        "mean", "How the server combines the replies: mean, or a rule that is robust to attackers (see the reference)."
    )
    byzantine: int | None = setting(
        None,
        "Attackers that the rule allows for; without it as many as attack.share makes, at least 1.",
        low=0,
        high=10**8,
    )


@dataclass(frozen=True, kw_only=True)
class PopulationConfig(DefendedConfig):
    """Settings of protocols whose devices may be new ones every round, out of a population."""

    population: int | None = setting(
        None,
        "Devices that there are; each round is with 'clients' of them. Without it the same 'clients' devices take part "
        "in every round.",
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

    def resolved(self) -> Any:
        """The same with participations filled in.

        Raises:
            ConfigError: See :meth:`RunConfig.resolved`; or more messages than the population may send.
        """
        config = super().resolved()
        participations = self.participations or (None if self.population is None else 1)
        self._check_population(participations)
        return dataclasses.replace(config, participations=participations)

    @property
    def bound_to_rounds(self) -> bool:
        """Whether the ε of a user is divided among all rounds of the run."""
        return getattr(self.privacy, "epsilon_user", None) is not None and self.participations is None

    @property
    def times(self) -> int:
        """Rounds that a device takes part in at most; the ε of a user is divided among so many."""
        return self.participations or (1 if self.population else self.rounds)

    def _check_population(self, participations: int | None) -> None:
        if self.population is None or participations is None:
            return
        if self.share != "uniform":
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


# ----------------------------------------------------------------------------------------------------------- FOLtR-ES


@dataclass(frozen=True, kw_only=True)
class FoltrESPrivacy(Privacy):
    """What a device does to its rewards: one of ``p``, ``epsilon_interaction`` and ``epsilon_user``; else p = 0.9."""

    p: float | None = setting(
        None,
        "Probability that an interaction's metric is sent as it is. Without any ε: 0.9.",
        replaces=("privacy.epsilon_interaction", "privacy.epsilon_user"),
    )
    epsilon_interaction: float | None = setting(
        None,
        "ε of one interaction, instead of p; the paper's unit.",
        low=0,
        high=1000,
        replaces=("privacy.p", "privacy.epsilon_user"),
    )
    epsilon_user: float | None = setting(
        None,
        "ε of all that a user ever does, over all rounds that a device takes part in; one number a message.",
        low=0,
        high=1000,
        replaces=("privacy.p", "privacy.epsilon_interaction"),
    )
    mechanism: Literal["auto", "randomised-response", "laplace", "gaussian", "piecewise"] = setting(
        "auto",
        "auto: piecewise with epsilon_user, else randomised-response on each interaction; laplace or gaussian: noise "
        "on the sums that are sent.",
    )
    clip: float | None = setting(
        None,
        "Largest difference of two rankers that a message tells, as a part of the largest there can be; with "
        f"epsilon_user {CLIP:g} if nothing is said.",
        low=1e-6,
        high=1,
        needs=("privacy.epsilon_user", ()),
    )
    channel: Literal["open", "anonymous"] = setting(
        "open",
        "anonymous: nobody who sees messages knows whose they are, so that epsilon_user (at delta) takes less noise.",
    )

    def __post_init__(self):
        super().__post_init__()
        if self.channel == "anonymous" and self.epsilon_user is None:
            raise ConfigError("privacy.channel = 'anonymous' needs privacy.epsilon_user: its ε at δ is that of a user.")
        names = [name for name in ("p", "epsilon_interaction", "epsilon_user") if getattr(self, name) is not None]
        if len(names) > 1:
            raise ConfigError(f"privacy.{names[0]} and privacy.{names[1]} say the same thing; give one of them.")
        if (self.mechanism == "piecewise" and self.epsilon_user is None) or (
            self.epsilon_user is not None and self.mechanism not in ("auto", "piecewise")
        ):
            raise ConfigError(
                "privacy.epsilon_user and the mechanism 'piecewise' belong together; got "
                f"{self.epsilon_user} and {self.mechanism!r}."
            )

    def probability(self, n: int) -> float:
        """The p of randomised response over n values."""
        if self.epsilon_interaction is not None:
            return probability(self.epsilon_interaction, n)
        return DEFAULT_P if self.p is None else self.p


@dataclass(frozen=True, kw_only=True)
class FoltrESConfig(PopulationConfig):
    """Settings of FOLtR-ES; the defaults are the paper's."""

    protocol: Annotated[str, Parameter(show=False)] = setting("foltr-es", "The protocol.")
    learning_rate: float = setting(0.001, "Step size of Adam.")
    sigma: float = setting(0.01, "σ, standard deviation of the perturbation.")
    antithetic: bool = setting(True, "Try the perturbation in both directions.")
    interleaved: bool | None = setting(
        None,
        "Show lists that both perturbed rankers make together, by team drafting, instead of one's at a time. As said, "
        "or with epsilon_user.",
    )
    ties: Literal["fixed", "random"] = setting("fixed", "Equal scores in the order of the data, or shuffled each time.")
    reward_values: int | None = setting(
        None,
        "Round the reward to so many evenly spaced values: fewer mean a smaller ε at the same p.",
        low=2,
        high=65_537,
    )
    as_published: bool = setting(False, "Draw queries and clicks from the perturbation's seed, as published; biased.")
    privacy: FoltrESPrivacy = field(default_factory=FoltrESPrivacy)

    def resolved(self) -> FoltrESConfig:
        """The same with mechanism, participations and, where nothing is said, p = 0.9 filled in.

        Raises:
            ConfigError: See :meth:`RunConfig.resolved`; or noise without its ε, or more messages than the population
                may send.
        """
        config, privacy = super().resolved(), self.privacy
        mechanism = privacy.mechanism
        if mechanism == "auto":
            mechanism = "randomised-response" if privacy.epsilon_user is None else "piecewise"
        if mechanism in ("laplace", "gaussian") and (privacy.epsilon_interaction is None or privacy.p is not None):
            raise ConfigError(f"privacy.mechanism = {mechanism!r} needs privacy.epsilon_interaction, and no p.")
        bare = privacy.p is None and privacy.epsilon_interaction is None and privacy.epsilon_user is None
        clip = CLIP if privacy.clip is None and privacy.epsilon_user is not None else privacy.clip
        privacy = dataclasses.replace(privacy, mechanism=mechanism, p=DEFAULT_P if bare else privacy.p, clip=clip)
        if privacy.channel == "anonymous" and (self.devices.dropout or self.devices.late):
            raise ConfigError(
                "privacy.channel = 'anonymous' counts on all messages of a round to come in it: set devices.dropout "
                f"and devices.late to 0, got {self.devices.dropout} and {self.devices.late}."
            )
        if privacy.channel == "anonymous" and self.attack.share:
            raise ConfigError(
                "privacy.channel = 'anonymous' counts on all messages of a round to be honest: attackers know their "
                f"own. Set attack.share to 0, got {self.attack.share}."
            )
        interleaved = self.interleaved
        if interleaved is None:
            interleaved = privacy.mechanism == "piecewise" and self.antithetic
        if interleaved and self.as_published:
            raise ConfigError("as_published shows one ranker's list at a time; set interleaved = false.")
        if interleaved and privacy.mechanism != "piecewise" and privacy.probability(2) != 1:
            raise ConfigError(
                "interleaved lists tell of each interaction twice, once for each ranker; they need one number a "
                "message: give privacy.epsilon_user. Or give privacy.p = 1, for no protection."
            )
        return dataclasses.replace(config, privacy=privacy, interleaved=interleaved)

    @property
    def epsilon_message(self) -> float | None:
        """ε of all that is behind one message, against somebody who knows whose it is.

        That of a user, divided by the rounds that a device takes part in; with an anonymous channel as much as comes
        to that there.
        """
        if self.privacy.epsilon_user is None:
            return None
        if self.privacy.channel == "open":
            return self.privacy.epsilon_user / self.times
        epsilon, delta = self.privacy.epsilon_user / self.times, self.privacy.delta / self.times
        return local_epsilon(epsilon, self.clients, delta, at_ends_of(self.privacy.clip or 1.0))

    @property
    def anonymity(self) -> Anonymity | None:
        """The anonymous channel of a run; None without one."""
        if self.privacy.channel == "open" or self.privacy.epsilon_user is None:
            return None
        return Anonymity(self.clients, self.privacy.delta)

    @property
    def piecewise(self) -> Piecewise | None:
        """What privatises the one number of a message; None with other mechanisms."""
        if self.epsilon_message is None:
            return None
        return best_clipped(self.epsilon_message, self.privacy.clip or 1.0)


# ----------------------------------------------------------------------------------- FOLtR-ES with a server that adapts


@dataclass(frozen=True, kw_only=True)
class RewardPrivacy(Privacy):
    """What a device does to each reward by randomised response: ``p`` or ``epsilon_interaction``; else p = 0.9."""

    p: float | None = setting(
        None,
        "Probability that an interaction's metric is sent as it is. Without any ε: 0.9.",
        replaces=("privacy.epsilon_interaction",),
    )
    epsilon_interaction: float | None = setting(
        None, "ε of one interaction, instead of p.", low=0, high=1000, replaces=("privacy.p",)
    )

    def __post_init__(self):
        super().__post_init__()
        if self.p is not None and self.epsilon_interaction is not None:
            raise ConfigError("privacy.p and privacy.epsilon_interaction say the same thing; give one of them.")

    def probability(self, n: int) -> float:
        """The p of randomised response over n values."""
        if self.epsilon_interaction is not None:
            return probability(self.epsilon_interaction, n)
        return DEFAULT_P if self.p is None else self.p


@dataclass(frozen=True, kw_only=True)
class AdaptiveESConfig(DeviceConfig):
    """Settings of FOLtR-ES whose server adapts the perturbations."""

    sigma: float = setting(0.01, "Standard deviation of the perturbation at the start.")
    ties: Literal["fixed", "random"] = setting("fixed", "Equal scores in the order of the data, or shuffled each time.")
    privacy: RewardPrivacy = field(default_factory=RewardPrivacy)


@dataclass(frozen=True, kw_only=True)
class FoltrNESConfig(AdaptiveESConfig):
    """Settings of FOLtR-ES with natural evolution strategies (``foltr-nes``); the defaults are the paper's."""

    protocol: Annotated[str, Parameter(show=False)] = setting("foltr-nes", "The protocol.")
    learning_rate: float = setting(1.0, "Rate of the mean, in perturbations.")
    spread_rate: float | None = setting(
        None, "Rate of the spreads; (3 + ln n)/(5 √n) for n weights if nothing is said. 0 keeps them.", low=0, high=10
    )


@dataclass(frozen=True, kw_only=True)
class FoltrCMAConfig(AdaptiveESConfig):
    """Settings of FOLtR-ES with CMA-ES (``foltr-cma``); the defaults are the tutorial's."""

    protocol: Annotated[str, Parameter(show=False)] = setting("foltr-cma", "The protocol.")
    learning_rate: float = setting(1.0, "Rate of the mean, in perturbations.")
    covariance: Literal["separable", "full"] = setting(
        "separable", "What is learnt of the covariance: a spread a weight, or a matrix, which is broadcast."
    )


# -------------------------------------------------------------------------------------------------------------- FPDGD


@dataclass(frozen=True, kw_only=True)
class FoltrPDGDPrivacy(Privacy):
    """What is done to the weights that devices send; without ``epsilon`` and ``epsilon_user`` nothing is noised."""

    epsilon: float | None = setting(
        None,
        "ε of one round; without any ε nothing is noised.",
        low=0,
        high=1000,
        replaces=("privacy.epsilon_user",),
    )
    epsilon_user: float | None = setting(
        None,
        "ε, at delta, of all that a user ever does, over all rounds that a device takes part in; devices then send "
        "how their weights change.",
        low=0,
        high=1000,
        replaces=("privacy.epsilon",),
    )
    noise: Literal["shares", "server"] = setting(
        "shares",
        "Who adds the noise of epsilon_user. shares: every device a part, in a secure sum; server: the server, which "
        "has to be trusted with what each device sends, and takes some of it back in later rounds.",
        needs=("privacy.epsilon_user", ()),
    )
    clip: float | None = setting(
        None,
        f"Largest norm of the weights that a device sends; with epsilon {DEFAULT_CLIP:g} if nothing is said. With "
        f"epsilon_user, of how they change: {CHANGE_CLIP:g} if nothing is said.",
    )
    clip_norm: Literal["l1", "l2"] | None = setting(
        None, "The norm that is clipped: l1, or with epsilon_user l2, if nothing is said. The paper's is l2."
    )
    secure_sum: bool | None = setting(
        None,
        "The server sees the sum only, without which a device's noise protects nothing. As said, or where devices add "
        "noise.",
    )

    def __post_init__(self):
        super().__post_init__()
        if self.epsilon is not None and self.epsilon_user is not None:
            raise ConfigError("privacy.epsilon and privacy.epsilon_user contradict each other; give one of them.")


@dataclass(frozen=True, kw_only=True)
class FoltrPDGDConfig(PopulationConfig):
    """Settings of FPDGD (``foltr-pdgd``); the defaults are the paper's, without noise."""

    protocol: Annotated[str, Parameter(show=False)] = setting("foltr-pdgd", "The protocol.")
    learning_rate: float = setting(0.1, "Step size of each local step.")
    as_published: bool = setting(False, "The paper's noise, without what it needs to protect anybody.")
    privacy: FoltrPDGDPrivacy = field(default_factory=FoltrPDGDPrivacy)

    def resolved(self) -> FoltrPDGDConfig:
        """The same with clip, norm and secure sum filled in.

        Raises:
            ConfigError: See :meth:`RunConfig.resolved`; or noise, or a secure sum, without what it needs.
        """
        config, privacy = super().resolved(), self.privacy
        user, by_server = privacy.epsilon_user is not None, privacy.noise == "server"
        noised = user or privacy.epsilon is not None
        if user and self.as_published:
            raise ConfigError("as_published has the paper's noise: give privacy.epsilon, not privacy.epsilon_user.")
        if user and privacy.clip_norm == "l1":
            raise ConfigError("privacy.epsilon_user has Gaussian noise, which is made for privacy.clip_norm = 'l2'.")
        if by_server and privacy.secure_sum:
            raise ConfigError("privacy.noise = 'server' has no secure sum: the server clips what each device sends.")
        if noised and privacy.secure_sum is False and not (self.as_published or by_server):
            raise ConfigError(
                "noise of the devices of foltr-pdgd needs the secure sum: a share of noise protects nothing where the "
                "server sees single messages. Leave privacy.secure_sum out, or see privacy.noise and as_published."
            )
        clip = privacy.clip
        if clip is None and noised:
            clip = CHANGE_CLIP if user else DEFAULT_CLIP
        if privacy.secure_sum and clip is None:
            raise ConfigError("privacy.secure_sum needs privacy.clip, the bound that keeps the sum within 32 bits.")
        secure = privacy.secure_sum
        if secure is None:
            secure = noised and not (self.as_published or by_server)
        norm = "l2" if user or self.as_published else privacy.clip_norm or "l1"
        if user and self.attack.share:
            raise ConfigError(
                "privacy.epsilon_user counts on all devices of a round to add their noise and to tell nobody, and "
                f"attackers know their own: set attack.share = 0, got {self.attack.share}."
            )
        if self.population is not None and privacy.epsilon is not None:
            raise ConfigError("privacy.epsilon is of one round; with a population give privacy.epsilon_user instead.")
        if user and self.devices.late:
            raise ConfigError(
                "privacy.epsilon_user counts on one message of a device in a round, and one that is late comes beside "
                f"another: set devices.late = 0, got {self.devices.late}."
            )
        if user and self.devices.amounts != "equal":
            raise ConfigError(
                "privacy.epsilon_user does not hide how many interactions a device made, which every message says: "
                f"set devices.amounts = 'equal', got {self.devices.amounts!r}."
            )
        return dataclasses.replace(
            config, privacy=dataclasses.replace(privacy, clip=clip, secure_sum=secure, clip_norm=norm)
        )


@dataclass(frozen=True, kw_only=True)
class FedOptPDGDConfig(DefendedConfig):
    """Settings of FPDGD with a server optimiser (``fedopt-pdgd``); the server's are those of the paper's text tasks."""

    protocol: Annotated[str, Parameter(show=False)] = setting("fedopt-pdgd", "The protocol.")
    learning_rate: float = setting(0.1, "Step size of each local step.")
    optimiser: Literal["adam", "yogi", "adagrad"] = setting("adam", "The server's optimiser.")
    server_rate: float = setting(0.01, "Step size of the server.")
    beta_1: float = setting(0.9, "Decay of the mean change.")
    beta_2: float = setting(0.99, "Decay of its square, of adam and yogi.")
    tau: float = setting(1e-3, "How adaptive the server's steps are; the smaller, the more.")


@dataclass(frozen=True, kw_only=True)
class FedProxPDGDConfig(DefendedConfig):
    """Settings of FPDGD whose local steps are held near the server's model (``fedprox-pdgd``)."""

    protocol: Annotated[str, Parameter(show=False)] = setting("fedprox-pdgd", "The protocol.")
    learning_rate: float = setting(0.1, "Step size of each local step.")
    mu: float = setting(0.01, "How hard weights are pulled back to the server's after each step.")


@dataclass(frozen=True, kw_only=True)
class COLTRSettings:
    """What only COLTR has; the defaults are published ones but for ``smoothing``."""

    candidates: int = setting(
        499, "Rankers that are compared with the current one on each interaction's log.", low=1, high=1000
    )
    radius: float = setting(1.0, "Distance of the candidates from the current ranker.")
    temperature: float = setting(0.1, "Temperature of the ranking that is shown: the lower, the less it explores.")
    smoothing: float = setting(
        0.1,
        "Temperature of the probabilities that estimates are weighted by; exact where it is 'temperature'. The "
        "published code has 1.",
    )
    caution: float = setting(1.0, "Standard errors that are added to an estimate of loss.", low=0)


@dataclass(frozen=True, kw_only=True)
class FoltrCOLTRConfig(COLTRSettings, DefendedConfig):
    """Settings of COLTR on devices whose weights are averaged (``foltr-coltr``)."""

    protocol: Annotated[str, Parameter(show=False)] = setting("foltr-coltr", "The protocol.")
    learning_rate: float = setting(0.1, "Step size of each local step.")


@dataclass(frozen=True, kw_only=True)
class FedPerPDGDConfig(DefendedConfig):
    """Settings of FPDGD with a personal part of the ranker (``fedper-pdgd``)."""

    protocol: Annotated[str, Parameter(show=False)] = setting("fedper-pdgd", "The protocol.")
    learning_rate: float = setting(0.1, "Step size of each local step.")
    personal: float = setting(
        0.5,
        "Part of each step that stays on the device: 0 is foltr-pdgd, with 1 each device learns alone. Of two layers "
        "the output stays.",
        low=0,
        high=1,
        needs=("ranker", ("linear",)),
    )


@dataclass(frozen=True, kw_only=True)
class RankGuardConfig(DeviceConfig):
    """Settings of RankGuard (``rankguard``): devices merge peers that explain their own clicks better."""

    protocol: Annotated[str, Parameter(show=False)] = setting("rankguard", "The protocol.")
    learning_rate: float = setting(0.1, "Step size of each local step.")
    peers: int = setting(4, "Rankers of other devices that each is shown in a round.", low=1, high=1000)
    history: int = setting(64, "Interactions that a device remembers to judge by.", low=1, high=10_000)
    threshold: float = setting(0.0, "Standard errors by which a ranker must explain the clicks better.", low=0)


@dataclass(frozen=True, kw_only=True)
class AsyncPDGDConfig(DeviceConfig):
    """Settings of FPDGD whose server merges answers as they arrive (``async-pdgd``)."""

    protocol: Annotated[str, Parameter(show=False)] = setting("async-pdgd", "The protocol.")
    learning_rate: float = setting(0.1, "Step size of each local step.")
    mixing: float = setting(0.6, "Weight of an answer that nobody came before, in (0, 1].")
    staleness: float = setting(0.5, "How fast the weight falls with the answers that came before; 0: not at all.")


# ---------------------------------------------------------------------------------------------------- central learners


@dataclass(frozen=True, kw_only=True)
class CentralConfig(RankingConfig):
    """Settings of every central learner: one service has the interactions of all devices."""

    learning_rate: float = setting(0.01, "Step size.")


@dataclass(frozen=True, kw_only=True)
class PDGDConfig(CentralConfig):
    """Settings of PDGD at one central service (``pdgd``)."""

    protocol: Annotated[str, Parameter(show=False)] = setting("pdgd", "The protocol.")
    learning_rate: float = setting(0.1, "Step size.")
    batch: bool = setting(False, "One step a round with the sum of all gradients, as the published baseline does.")


@dataclass(frozen=True, kw_only=True)
class MDPRankConfig(CentralConfig):
    """Settings of MDPRank from clicks at one central service (``mdprank``)."""

    protocol: Annotated[str, Parameter(show=False)] = setting("mdprank", "The protocol.")
    discount: float = setting(1.0, "What a later click counts for a choice, rank by rank, in [0, 1].", low=0, high=1)


@dataclass(frozen=True, kw_only=True)
class COLTRConfig(COLTRSettings, CentralConfig):
    """Settings of COLTR at one central service (``coltr``)."""

    protocol: Annotated[str, Parameter(show=False)] = setting("coltr", "The protocol.")
    learning_rate: float = setting(0.1, "Step size.")


@dataclass(frozen=True, kw_only=True)
class DBGDConfig(CentralConfig):
    """Settings of dueling bandit gradient descent at one central service (``dbgd``)."""

    protocol: Annotated[str, Parameter(show=False)] = setting("dbgd", "The protocol.")
    radius: float = setting(1.0, "Distance of the candidate from the current ranker.")


@dataclass(frozen=True, kw_only=True)
class MGDConfig(CentralConfig):
    """Settings of multileave gradient descent at one central service (``mgd``)."""

    protocol: Annotated[str, Parameter(show=False)] = setting("mgd", "The protocol.")
    radius: float = setting(1.0, "Distance of the candidates from the current ranker.")
    candidates: int = setting(
        9, "Rankers that are compared with the current one in each interaction.", low=1, high=1000
    )
