"""Settings of runs in which platforms share users.

``slates.mode`` is a bundle of settings: ``corrected`` has none of the faults of the published code, ``published`` has
all of them (:mod:`fedrank.slates.fedslate_2024`). Settings whose default is None follow from the mode, and some also
from the world and the number of rounds; :meth:`PlatformsConfig.resolved` fills them in. A setting that is given stands
in either mode; ``slates.faults`` names the faults that are on, so that one can be switched on or off alone.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal

from cyclopts import Parameter

from fedrank.core.errors import ConfigError
from fedrank.core.fields import setting
from fedrank.core.privacy_report import DELTA
from fedrank.engine import config as engine
from fedrank.engine.config import NamedRunConfig
from fedrank.slates.fedslate_2024 import FEDERATED_FAULTS, PUBLISHED, PUBLISHED_RATE, Fault

#: Policies that a run can be compared with.
BASELINES = ("random", "choc", "kale", "myopic", "optimum")
#: Rounds of a user: 122 ticks of two platforms (TianYaDY/FedSlate).
EPISODE = 61
#: Part of the rounds after which ε is at its floor, where no decay is given.
EXPLORING = 1 / 3
#: The smallest ε that a decay leads to; below it, exploration counts as none.
_NO_EXPLORATION = 0.01
#: Largest bound of a value.
_LARGEST = 1e6

#: What settings of ``[slates]`` are where nothing is given and the mode is ``corrected``.
CORRECTED: dict[str, Any] = {
    "memory": 5000,
    "burn_in": 500,
    "explore": 0.1,
    "decay": None,  # follows from the rounds
    "floor": 0.05,
    "snap": 0.0,
    "choice": "true",
    "others": None,  # follow from the world
    "centred": None,
    "local_widths": (64, 64),
    "head_widths": (32, 32),
    "reward_scale": 15.0,
    "faults": (),
}
#: Step size where none is given and the mode is ``corrected``.
CORRECTED_RATE = 3e-4


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
    time_budget: int | None = setting(
        None, "Ticks of a user, a multiple of platforms. Default: 61 rounds, 122 ticks of two platforms."
    )

    def __post_init__(self):
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
class Slates:
    """Learning of slates. Defaults in brackets follow from the mode: corrected, published."""

    #: Faults that the protocol can have.
    possible_faults: ClassVar[tuple[Fault, ...]] = tuple(fault for fault in Fault if fault not in FEDERATED_FAULTS)

    mode: Literal["corrected", "published"] = setting("corrected", "Defaults: corrected, or as in the published code.")
    discount: float = setting(0.9, "γ, weight of the next round.", low=0, high=1)
    batch: int = setting(32, "Rounds that a step learns from.", low=1, high=10**5)
    memory: int | None = setting(None, "Rounds in the replay buffer (5,000; 2,000).", low=2, high=10**7)
    burn_in: int | None = setting(None, "Rounds before the first step (500; 5,000).", low=1, high=10**6)
    learn_every: int = setting(3, "Rounds between steps.", low=1, high=10**6)
    copy_every: int = setting(500, "Rounds between copies to the target networks.", low=1, high=10**6)
    explore: float | None = setting(
        None, "ε of the first round, probability of a random slate at each platform (0.1; 1).", low=0, high=1
    )
    decay: float | None = setting(
        None, "Factor of ε a round (a third of the rounds leads to the floor; 0.99995).", low=0, high=1
    )
    floor: float | None = setting(None, "Smallest ε (0.05; 0).", low=0, high=1)
    snap: float | None = setting(None, "Once ε has fallen below this it is 0 (0, which is never; 0.1).", low=0, high=1)
    clock: bool = setting(False, "Platforms know how many rounds of the stay are over: two features more.")
    optimiser: Literal["top-k", "greedy", "exact"] = setting(
        "greedy", "How a slate is made of values: the largest, one by one (eq. 8), or the best of all slates."
    )
    target: Literal["sarsa", "greedy", "top-k", "optimal"] = setting(
        "greedy", "The slate that the next round is valued by: the shown one, or that of an optimiser."
    )
    choice: Literal["true", "learned", "published"] | None = setting(
        None, "Choice model: users', learned, or upside down (true; published)."
    )
    feedback: Literal["first", "all"] = setting("first", "Who has clicks and engagement: the first, or all (extended).")
    objective: Literal["own", "team"] = setting("own", "Maximised: own engagement, or the mean of all with feedback.")
    local_widths: tuple[int, ...] | None = setting(
        None, "Units of a platform's hidden layers (64, 64; 64 × 5, in the publication 4,096 × 5)."
    )
    centred: bool | None = setting(None, "Engagement counts less its mean so far (yes, where users always click; no).")
    reward_scale: float | None = setting(None, "Divisor of engagement (15, about a round's; 1).", low=1e-6, high=1e6)
    faults: tuple[Fault, ...] | None = setting(
        None, "Faults of the published code that are on, for comparison with it (none; all that the protocol can have)."
    )

    def __post_init__(self):
        if self.decay == 0:
            raise ConfigError("slates.decay must be above 0, got 0; for no exploration set slates.explore = 0.")
        if self.discount == 1:
            raise ConfigError("slates.discount must be below 1, got 1: values would have no bound.")
        for name in ("local_widths", "head_widths"):
            for width in getattr(self, name, None) or ():
                if not 1 <= width <= 65_536:
                    raise ConfigError(f"slates.{name} must be numbers in 1..65536, got {width}.")
        if self.faults is not None:
            for fault in self.faults:
                if fault not in self.possible_faults:
                    raise ConfigError(f"slates.faults: {fault} means nothing without a federated network.")
            in_order = tuple(fault for fault in self.possible_faults if fault in self.faults)
            object.__setattr__(self, "faults", in_order)  # frozen: sorted once, here


@dataclass(frozen=True, kw_only=True)
class FederatedSlates(Slates):
    """The same where one federated network joins the platforms' values."""

    possible_faults: ClassVar[tuple[Fault, ...]] = tuple(Fault)

    others: Literal["aligned", "pooled"] | None = setting(
        None,
        "What the federated network gets of others: their mean value of the item in the same place, or of all items "
        "(aligned where all have the same items; aligned).",
    )
    regress: Literal["greedy", "shown", "nothing"] = setting(
        "greedy",
        "The slate whose value a platform without feedback fits: its best (eq. 15), the shown one, or nothing: it "
        "shows by the first's values.",
        needs=("slates.feedback", ("first",)),
    )
    head: Literal["residual", "linear"] = setting("residual", "Federated network: hidden layers, or a linear one.")
    critic: str = setting("slateq", "The critic: slateq, or a value learner that an installed package names.")
    head_widths: tuple[int, ...] | None = setting(
        None, "Units of its hidden layers (32, 32; 32 × 4, in the publication 2,048 × 4)."
    )


@dataclass(frozen=True, kw_only=True)
class Sharing:
    """Clipping of values before they leave a platform, and noise on them."""

    clip: float | None = setting(None, "Values are cut to this range around centre, ±. Default: sent as they are.")
    centre: float = setting(0.0, "Middle of that range: a public number.", needs=("sharing.clip", ()))
    epsilon: float | None = setting(
        None, "ε of each list of values that crosses, by noise on it; needs clip. Default: no noise."
    )
    mechanism: Literal["gaussian", "laplace"] = setting(
        "gaussian", "The noise; Gaussian noise at privacy.delta.", needs=("sharing.epsilon", ())
    )

    def __post_init__(self):
        for name in ("clip", "epsilon"):
            value = getattr(self, name)
            if value is not None and not 0 < value < _LARGEST:
                raise ConfigError(
                    f"sharing.{name} must be above 0 and below {_LARGEST:g}, got {value}; or leave it out."
                )
        if not abs(self.centre) < _LARGEST:
            raise ConfigError(f"sharing.centre must be within ±{_LARGEST:g}, got {self.centre}.")
        if self.epsilon is not None and self.clip is None:
            raise ConfigError("sharing.epsilon needs sharing.clip, the bound that noise is measured by.")


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
class PlatformsConfig(NamedRunConfig):
    """Settings of every protocol of platforms that share users."""

    task: ClassVar[str] = "slates"

    rounds: int = setting(
        400 * EPISODE, "Rounds, in each of which every platform shows a slate; a user has 61.", low=1, high=10**6
    )
    world: World = field(default_factory=World)
    slates: Slates = field(default_factory=Slates)
    evaluation: Evaluation = field(default_factory=Evaluation)

    @property
    def delta(self) -> float:
        """δ of the account of a run."""
        return DELTA

    def resolved(self) -> PlatformsConfig:
        """The same with everything filled in that follows from the mode, the world and the rounds.

        Raises:
            ConfigError: Settings contradict each other.
        """
        super().resolved()
        return dataclasses.replace(self, slates=resolved_slates(self.slates, self.rounds, self.world))

    @classmethod
    def without_derived(cls, values: dict[str, Any]) -> None:
        """Take out, in place, what the mode, the world and the rounds of a nested dictionary come to anyway."""
        slates = values.get("slates")
        if not isinstance(slates, dict) or slates.get("mode", "corrected") not in ("corrected", "published"):
            return
        mode, explore = slates.get("mode", "corrected"), slates.get("explore")
        bundle = bundle_of(mode, explore, _world_of(values), cls().slates.possible_faults)
        first = bundle["explore"] if explore is None else explore
        if slates.get("decay") == decay_of(
            first, slates.get("floor", bundle["floor"]), values.get("rounds", cls.rounds)
        ):
            slates.pop("decay")
        for name, usual in bundle.items():
            value = slates.get(name)
            if value is not None and (tuple(value) if isinstance(value, list) else value) == usual:
                slates.pop(name)


@dataclass(frozen=True, kw_only=True)
class NetworksConfig(PlatformsConfig):
    """Settings of platforms whose networks take steps."""

    learning_rate: float | None = setting(None, "Step size of Adam. Default: 0.0003; 0.01 as published.")

    def resolved(self) -> NetworksConfig:
        """As :meth:`PlatformsConfig.resolved`."""
        filled: Any = super().resolved()
        return filled if self.learning_rate else dataclasses.replace(filled, learning_rate=rate_of(self.slates.mode))

    @classmethod
    def without_derived(cls, values: dict[str, Any]) -> None:
        """As :meth:`PlatformsConfig.without_derived`."""
        slates = values.get("slates")
        mode = slates.get("mode", "corrected") if isinstance(slates, dict) else "corrected"
        super().without_derived(values)
        if values.get("learning_rate") == rate_of(mode):
            values.pop("learning_rate")


@dataclass(frozen=True, kw_only=True)
class FedSlateConfig(NetworksConfig):
    """FedSlate: platforms that share users learn which slates to show, one of them without feedback."""

    protocol: Annotated[str, Parameter(show=False)] = setting("vertical-slate", "The protocol; see fedrank protocols.")
    slates: FederatedSlates = field(default_factory=FederatedSlates)
    sharing: Sharing = field(default_factory=Sharing)
    privacy: Privacy = field(default_factory=Privacy)

    @property
    def delta(self) -> float:
        """δ of the account of a run."""
        return self.privacy.delta


@dataclass(frozen=True, kw_only=True)
class LocalSlates(Slates):
    """The same where each platform has its network for itself."""

    central: bool = setting(False, "Each platform sees the user as all of them do: no federation, to compare with.")


@dataclass(frozen=True, kw_only=True)
class SlateQConfig(NetworksConfig):
    """SlateQ: platforms that share users learn each by itself."""

    protocol: Annotated[str, Parameter(show=False)] = setting("slateq", "The protocol; see fedrank protocols.")
    slates: LocalSlates = field(default_factory=LocalSlates)


@dataclass(frozen=True, kw_only=True)
class Planning:
    """Exploration, learning and planning of platforms that learn from sums over users."""

    mode: ClassVar[str] = "corrected"
    faults: ClassVar[tuple[Fault, ...]] = ()

    feedback: Literal["first", "all"] = setting(
        "first", "Which platforms have clicks and engagement: the first, or all."
    )
    explorers: int | None = setting(
        None,
        "Users who are served to find out what they like; models are made of them, and no platform explores again. "
        "Default: 200, or all users of the run if there are fewer.",
        low=1,
        high=65_536,
    )
    hold: float = setting(0.2, "Probability a round that a platform which explores draws another taste.")
    learner: str = setting(
        "planned-slates", "The learner: planned-slates, or one from sums over users that an installed package names."
    )
    releases: int = setting(
        1, "Times that sums cross, each of as many explorers; planned-slates plans by the last.", low=1, high=1000
    )
    scale: float = setting(10.0, "A typical engagement of a click, a public number.", low=1e-6, high=1e6)
    observed: bool = setting(
        True, "What platforms observe of the satisfaction says what the past does, beside engagement."
    )
    differ: bool | None = setting(
        None,
        "Users may forgive one platform more than another: those without feedback send sums too, of satisfaction. "
        "Default: yes, but not in a secure sum.",
    )
    caution: float = setting(
        0.75, "Standard errors by which greed is taken to cost more than it was found to.", low=0.0, high=10.0
    )
    design: Literal["known", "sent"] = setting(
        "known",
        "Whether the matrix of least squares follows from how users choose, or crosses, clipped and noised like sums.",
    )

    def __post_init__(self):
        if not 0 < self.hold <= 1:
            raise ConfigError(f"slates.hold must be above 0 and at most 1, got {self.hold}.")


@dataclass(frozen=True, kw_only=True)
class SumSharing:
    """Clipping and noise of a platform's sums, before they leave it."""

    clip: float | None = setting(
        None,
        "Largest L2 norm of what a user adds to the sums. Default: the learner's, 20 of planned-slates.",
        low=1e-3,
        high=1e6,
    )
    bounders: int = setting(
        0,
        "Users before the explorers by whom the clip is found, with the same ε; clip is then the middle of what is "
        "tried.",
        low=0,
        high=65_536,
    )
    epsilon: float | None = setting(
        None, "ε of a user's whole stay at all platforms together, at privacy.delta. Default: no noise."
    )
    secure_sum: bool = setting(
        False, "The coordinator sees the total of the platforms with feedback only; needs three of them."
    )

    def __post_init__(self):
        if self.epsilon is not None and not 0 < self.epsilon < _LARGEST:
            raise ConfigError(
                f"sharing.epsilon must be above 0 and below {_LARGEST:g}, got {self.epsilon}; or leave it out."
            )


@dataclass(frozen=True, kw_only=True)
class PlannedSlatesConfig(PlatformsConfig):
    """Planned slates: platforms that share users fit one model of engagement together, and plan the stay alone."""

    protocol: Annotated[str, Parameter(show=False)] = setting("planned-slates", "The protocol; see fedrank protocols.")
    slates: Planning = field(default_factory=Planning)  # type: ignore[assignment] - settings of another protocol
    sharing: SumSharing = field(default_factory=SumSharing)
    privacy: Privacy = field(default_factory=Privacy)

    @property
    def delta(self) -> float:
        """δ of the account of a run."""
        return self.privacy.delta

    def resolved(self) -> PlannedSlatesConfig:
        """The same with everything filled in that follows from the world and the rounds.

        Raises:
            ConfigError: The run is shorter than a user's stay, or than its explorers' stays.
        """
        NamedRunConfig.resolved(self)
        stay = self.world.ticks // self.world.platforms
        users, bounders = self.rounds // stay - self.sharing.bounders, self.sharing.bounders
        if users < 1:
            before = f", and the stays of the {bounders} users by whom the clip is found" if bounders else ""
            raise ConfigError(
                f"rounds must be at least {(bounders + 1) * stay}, one user's stay of {stay} rounds{before}; got "
                f"{self.rounds}."
            )
        explorers = min(200, users) if self.slates.explorers is None else self.slates.explorers
        if not 1 <= explorers <= users:
            raise ConfigError(
                f"slates.explorers must be from 1 to the {users} users of this run, got {explorers}: models are made "
                f"when they have left. A user stays {stay} rounds; raise rounds."
            )
        differ = not self.sharing.secure_sum if self.slates.differ is None else self.slates.differ
        return dataclasses.replace(self, slates=dataclasses.replace(self.slates, explorers=explorers, differ=differ))

    @classmethod
    def without_derived(cls, values: dict[str, Any]) -> None:
        """Take out, in place, what :meth:`resolved` fills in anyway."""
        slates = values.get("slates")
        if not isinstance(slates, dict):
            return
        world = values.get("world") if isinstance(values.get("world"), dict) else {}
        platforms = world.get("platforms", 2)  # type: ignore[union-attr]
        users = values.get("rounds", cls.rounds) // ((world.get("time_budget") or EPISODE * platforms) // platforms)  # type: ignore[union-attr]
        sharing = values.get("sharing")
        users -= sharing.get("bounders", 0) if isinstance(sharing, dict) else 0
        if slates.get("explorers") == min(200, users):
            slates.pop("explorers")
        if slates.get("differ") is (not (isinstance(sharing, dict) and bool(sharing.get("secure_sum")))):
            slates.pop("differ")


# -- what follows from the mode ----------------------------------------------------------------------------------------


def rate_of(mode: str) -> float:
    """Step size of a mode."""
    return CORRECTED_RATE if mode == "corrected" else PUBLISHED_RATE


def bundle_of(mode: str, explore: float | None, world: World, possible: tuple[Fault, ...]) -> dict[str, Any]:
    """Settings of ``[slates]`` where none is given.

    Args:
        mode: ``corrected`` or ``published``.
        explore: ε of the first round, if it is given: there is no floor above it.
        world: The users: in the corrected mode it decides whose items are the same, and who always clicks.
        possible: Faults that the protocol can have.
    """
    bundle = CORRECTED if mode == "corrected" else PUBLISHED
    bundle = {**bundle, "floor": min(bundle["floor"], bundle["explore"] if explore is None else explore)}
    bundle["faults"] = tuple(fault for fault in bundle["faults"] if fault in possible)
    if mode == "corrected":
        from fedrank.slates.world.choice import CHOICES  # it needs JAX

        bundle["others"] = "aligned" if world.shared_candidates else "pooled"
        bundle["centred"] = CHOICES.get(world.choice)().always_clicks
    return bundle


def decay_of(explore: float, floor: float, rounds: int) -> float:
    """The factor that brings ε from its start to its floor in a third of the rounds; 1 where it is there already.

    >>> round(0.5 * decay_of(0.5, 0.05, 300) ** 100, 6)
    0.05
    """
    if floor >= explore:
        return 1.0
    return float((max(floor, _NO_EXPLORATION) / explore) ** (1 / max(1.0, rounds * EXPLORING)))


def resolved_slates(slates: Slates, rounds: int, world: World) -> Slates:
    """Settings with those filled in that follow from the mode.

    Args:
        slates: As configured.
        rounds: Rounds of the run, for the decay of ε.
        world: The users.

    Raises:
        ConfigError: Settings contradict each other.
    """
    known = {one.name for one in dataclasses.fields(slates)}
    given = {name: value for name, value in vars(slates).items() if value is not None}
    bundle = bundle_of(slates.mode, slates.explore, world, slates.possible_faults)
    bundle = {name: value for name, value in bundle.items() if name in known}
    filled: Any = dataclasses.replace(slates, **{**bundle, **given})
    if filled.floor > filled.explore:
        raise ConfigError(
            f"slates.floor must not be above slates.explore = {filled.explore:g}, got {filled.floor}: ε only falls."
        )
    if filled.decay is None:
        filled = dataclasses.replace(filled, decay=decay_of(filled.explore, filled.floor, rounds))
    for name, value in (("slates.memory", filled.memory), ("slates.burn_in", filled.burn_in)):
        if value <= filled.batch:  # the newest round has no next one yet
            raise ConfigError(f"{name} must be above slates.batch = {filled.batch}, got {value}.")
    return filled


def _world_of(values: dict[str, Any]) -> World:
    """The world of a nested dictionary, as far as a bundle depends on it."""
    given, names = values.get("world"), ("shared_candidates", "choice")
    return World(**{name: given[name] for name in names if name in given}) if isinstance(given, dict) else World()
