"""Settings that the platforms of FedSlate and their coordinator agree on before anything is learnt."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from jaxtyping import Float, Shaped

from fedrank.core.arrays import JaxArray as Array
from fedrank.core.errors import ConfigError
from fedrank.core.lazy import jnp, optax
from fedrank.privacy.noisy_values import ValueNoise
from fedrank.slates.fedslate_2024 import PAST, Fault
from fedrank.slates.networks import FederatedQ, LocalQ
from fedrank.slates.world.best_slate import OPTIMISERS, TARGETS
from fedrank.slates.world.choice import Multinomial
from fedrank.slates.world.satisfaction import Satisfaction

#: Numbers about the user that a platform keeps over an episode, beside the satisfaction that it observes.
_TRACES = 3
#: Features of the clock.
_CLOCKS = 2
#: What is left of a trace after a tick: β of RecSim's users (Ie et al. 2019; ``Satisfaction.memory_discount``). A
#: choice of this implementation: the publication's state holds the last five slates instead, and platforms are not
#: told β.
_FADE_A_TICK = 0.9


@dataclass(frozen=True)
class Exploration:
    """ε of round t: ``max(floor, start · decay^t)``, and 0 for good once that is below ``snap``.

    Attributes:
        start: ε of the first round, in [0, 1].
        decay: Factor a round, in (0, 1].
        floor: Smallest ε, in [0, 1].
        snap: Once ε has fallen below this it is 0; with 0 it never is.
    """

    start: float = 0.1
    decay: float = 0.9995
    floor: float = 0.05
    snap: float = 0.0

    def __post_init__(self):
        if not (0 <= self.floor <= 1 and 0 <= self.start <= 1 and 0 < self.decay <= 1 and 0 <= self.snap <= 1):
            raise ConfigError(f"exploration must be of probabilities and a decay in (0, 1], got {self}.")

    def epsilon(self, round_: Shaped[Array, "*rounds"] | int) -> Float[Array, "*rounds"]:
        """ε of a round, counted from 0."""
        falling = self.start * jnp.float32(self.decay) ** jnp.asarray(round_, jnp.float32)
        return jnp.where(falling < self.snap, 0.0, jnp.maximum(falling, self.floor))


@dataclass(frozen=True)
class SlateSettings:
    """Settings that platforms and coordinator agree on.

    Attributes:
        world: The users; of it platforms know N, n, and the choice model if ``choice`` is ``"true"``.
        local: The platforms' own networks, all of the same shape.
        head: The federated network Ω.
        feedback: Whether each platform sees clicks and engagement. In the paper the first only, in its extension all.
        discount: γ a round, in [0, 1].
        learning_rate: Step size of the Adam optimisers of all networks.
        batch: B, transitions in a batch.
        memory: Transitions in a platform's replay buffer.
        burn_in: Rounds before learning begins.
        learn_every: Rounds between two batches.
        copy_every: Rounds between copies to the target networks.
        exploration: ε by round.
        clock: Whether how near the end of the stay is, is among the features: where greed costs, kale pays until the
            last rounds and chocolate in them.
        optimiser: How slates are put together, one of :data:`~fedrank.slates.world.best_slate.OPTIMISERS`.
        target: Which next slate a target is about, one of :data:`~fedrank.slates.world.best_slate.TARGETS`.
        choice: The choice model of the agents: the users' own, a learnt one, or the published one.
        objective: ``own``: a target is about a platform's own engagement. ``team``: about the mean of all platforms
            that see theirs; where only one does, that is its own.
        others: ``aligned``: candidate i beside the others' candidate i. ``pooled``: one number, their mean.
        regress: Which slate of a platform without feedback has its value regressed: the best by its values (equation
            15), or the one that it showed. ``nothing``: it learns nothing, and is served the federated values of the
            first platform with feedback; no target goes to it.
        reward_scale: Divisor of engagement before it is learnt from.
        centred: Whether a platform's mean engagement is subtracted before it is learnt from ("reward centring", Naik et
            al. 2024), so that values need not grow from 0 to r/(1 − γ), and with them everything that happens to be
            shown. Only where users always click: no click is worth 0.
        silent: Nothing crosses: each platform has its own network only, Ω does nothing. For baselines.
        central: Each platform sees the user as all of them do: no federation. For baselines.
        noise: Clipping of Q-values, and noise on them, before they leave a platform; None: neither.
        faults: Faults of the published code.

    Raises:
        ConfigError: A number out of range, or settings that contradict each other.
    """

    world: Satisfaction
    local: LocalQ
    head: FederatedQ
    feedback: tuple[bool, ...] = (True, False)
    discount: float = 0.9
    learning_rate: float = 3e-4
    batch: int = 32
    memory: int = 5000
    burn_in: int = 500
    learn_every: int = 3
    copy_every: int = 500
    exploration: Exploration = Exploration()
    clock: bool = False
    optimiser: str = "greedy"
    target: str = "greedy"
    choice: Literal["true", "learned", "published"] = "true"
    objective: Literal["own", "team"] = "own"
    others: Literal["aligned", "pooled"] = "aligned"
    regress: Literal["greedy", "shown", "nothing"] = "greedy"
    reward_scale: float = 15.0
    centred: bool = True
    silent: bool = False
    central: bool = False
    noise: ValueNoise | None = None
    faults: tuple[Fault, ...] = ()

    def __post_init__(self):
        for what, value, low, high in (
            ("discount", self.discount, 0, 1),
            ("batch", self.batch, 1, 10**5),
            ("memory", self.memory, self.batch + 1, 10**7),
            ("burn_in", self.burn_in, self.batch + 1, 10**7),
            ("learn_every", self.learn_every, 1, 10**6),
            ("copy_every", self.copy_every, 1, 10**7),
        ):
            if not low <= value <= high:
                raise ConfigError(f"{what} must be in {low}..{high}, got {value}.")
        if not (self.learning_rate > 0 and self.reward_scale > 0):
            raise ConfigError(
                f"learning rate and reward scale must be positive, got {self.learning_rate} and {self.reward_scale}."
            )
        if len(self.feedback) != self.world.platforms or not any(self.feedback):
            raise ConfigError(
                f"feedback must say of each of {self.world.platforms} platforms whether it sees clicks, and of one at "
                f"least that it does; got {self.feedback}."
            )
        if self.optimiser not in OPTIMISERS or self.target not in TARGETS:
            raise ConfigError(f"no such optimiser or target: {self.optimiser!r}, {self.target!r}.")
        if self.choice == "true" and not isinstance(self.world.choice, Multinomial):
            raise ConfigError(
                "choice = 'true' needs users of a multinomial choice: slate values are for that model. These users "
                "choose otherwise; take choice = 'learned'."
            )
        if Fault.MOVING_TARGETS in self.faults and Fault.ONLINE_OTHERS not in self.faults:
            raise ConfigError(
                "the fault moving-targets is about online values in targets, so it needs online-others: target "
                "networks do not move."
            )
        if self.centred and not self.world.choice.always_clicks:
            raise ConfigError("centred engagement needs users who always click; set centred to false.")
        if self.silent and self.noise is not None:
            raise ConfigError("platforms that send nothing have nothing to add noise to; leave noise out.")
        if self.regress == "nothing" and not self.world.shared_candidates:
            raise ConfigError(
                "regress = 'nothing' serves one platform's values to others, which needs the same items at all; set "
                "shared_candidates to true."
            )
        if self.regress == "nothing" and self.choice == "learned":
            raise ConfigError(
                "regress = 'nothing' sends a platform without feedback nothing to learn from, the learnt choice model "
                "included; take choice = 'true'."
            )

    @property
    def platforms(self) -> int:
        """K, the number of platforms."""
        return self.world.platforms

    @cached_property
    def sizes(self) -> dict[str, int]:
        """Lengths of the axes of messages: N candidates, B transitions, H parameters of Ω."""
        return {"candidates": self.world.candidates, "transitions": self.batch, "parameters": self.head.size}

    @cached_property
    def adam(self) -> optax.GradientTransformation:
        """The optimiser of each network; all have the same step size, as in the published code."""
        return optax.adam(self.learning_rate)

    @property
    def item_features(self) -> int:
        """Features of a candidate: the one that the world draws; with the published code's fault its number, too."""
        return 2 if Fault.ITEM_NUMBERS in self.faults else 1

    @property
    def user_features(self) -> int:
        """Features of the user; see :func:`fedrank.slates.fedslate.platform.user_features`."""
        mine = 1 + (PAST * self.world.slate if Fault.SHORT_MEMORY in self.faults else _TRACES) + _CLOCKS * self.clock
        return mine * (self.platforms if self.central else 1)

    @property
    def fade(self) -> float:
        """Factor of a trace in a round, in which every platform has a tick: 0.81 with two platforms."""
        return _FADE_A_TICK**self.platforms

    @cached_property
    def order(self) -> tuple[int, ...]:
        """Platforms in the order in which they learn from a batch: those with feedback come first, as in the paper."""
        return tuple(sorted(range(self.platforms), key=lambda p: not self.feedback[p]))

    @cached_property
    def serving_platforms(self) -> tuple[int, ...]:
        """The platform by whose federated values each shows its slate: its own, or with feedback the first."""
        if self.regress != "nothing":
            return tuple(range(self.platforms))
        return tuple(p if self.feedback[p] else self.order[0] for p in range(self.platforms))

    def check_networks(self) -> None:
        """Refuse a local network for other features.

        Raises:
            ConfigError: Says which features it must take.
        """
        if (self.local.user_features, self.local.item_features) != (self.user_features, self.item_features):  # type: ignore[attr-defined]
            raise ConfigError(
                f"local networks must take {self.user_features} features of a user and {self.item_features} of a "
                f"candidate, these take {self.local}."
            )
