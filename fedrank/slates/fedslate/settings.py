"""Settings of platforms whose networks take steps: of what they agree on before anything is learnt.

Settings whose default is None follow from others, from the world and the number of rounds; :meth:`Slates.resolved`
fills them in.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal

from jaxtyping import Float, Shaped

from fedrank.core.arrays import AnyArray as Array
from fedrank.core.errors import ConfigError
from fedrank.core.fields import bound, setting
from fedrank.core.lazy import jnp, optax
from fedrank.privacy.noisy_values import ValueNoise
from fedrank.slates.config import LARGEST, World
from fedrank.slates.networks import FederatedQ, IdentityHead, ItemHead, ItemLinearHead, ItemQ, LocalQ
from fedrank.slates.world.best_slate import OPTIMISERS, TARGETS
from fedrank.slates.world.choice import CHOICES, Multinomial

#: Part of the rounds after which ε is at its floor, where no decay is given.
EXPLORING = 1 / 3
#: The smallest ε that a decay leads to; below it, exploration counts as none.
_NO_EXPLORATION = 0.01
#: Numbers about the user that a platform keeps over an episode, beside the satisfaction that it observes.
_TRACES = 3
#: Features of the clock.
_CLOCKS = 2
#: What is left of a trace after a tick: β of RecSim's users (Ie et al. 2019; ``Satisfaction.memory_discount``). A
#: choice of this implementation: the publication's state holds the last five slates instead, and platforms are not
#: told β.
_FADE_A_TICK = 0.9
#: The others' part of a federated value before anything is learnt, where their item is the same.
_SHARE = 0.5
#: Smallest ε where none is given.
_FLOOR = 0.05


@dataclass(frozen=True, kw_only=True)
class Slates:
    """Learning of slates.

    Attributes:
        world: The users, a :class:`~fedrank.slates.world.satisfaction.Satisfaction`; None: not known yet. Of it
            platforms know N, n, and the choice model if ``choice`` is ``"true"``.
        sees: Whether each platform sees clicks and engagement. In the paper the first only, in its extension all.
        learning_rate: Step size of the Adam optimisers of all networks.
        noise: Clipping of Q-values, and noise on them, before they leave a platform; None: neither.
        silent: Nothing crosses: each platform has its own network only, Ω does nothing.

    Raises:
        ConfigError: A number out of range, or settings that contradict each other or do not fit the users.
    """

    silent: ClassVar[bool] = False
    # Values of settings that only a subclass has; an annotation here would put them first among its settings.
    central, others, regress, critic, head_widths = False, "aligned", "greedy", "slateq", None

    discount: float = setting(0.9, "γ, weight of the next round.", low=0, high=1)
    batch: int = setting(32, "Rounds that a step learns from.", low=1, high=10**5)
    memory: int = setting(5000, "Rounds in the replay buffer.", low=2, high=10**7)
    burn_in: int = setting(500, "Rounds before the first step.", low=1, high=10**6)
    learn_every: int = setting(3, "Rounds between steps.", low=1, high=10**6)
    copy_every: int = setting(500, "Rounds between copies to the target networks.", low=1, high=10**6)
    explore: float = setting(
        0.1, "ε of the first round, probability of a random slate at each platform.", low=0, high=1
    )
    decay: float | None = setting(
        None, "Factor of ε a round. Default: a third of the rounds leads to the floor.", low=0, high=1
    )
    floor: float | None = setting(None, "Smallest ε. Default: 0.05, or slates.explore if that is less.", low=0, high=1)
    clock: bool = setting(False, "Platforms know how many rounds of the stay are over: two features more.")
    optimiser: Literal["top-k", "greedy", "exact"] = setting(
        "greedy", "How a slate is made of values: the largest, one by one (eq. 8), or the best of all slates."
    )
    target: Literal["sarsa", "greedy", "top-k", "optimal"] = setting(
        "greedy", "The slate that the next round is valued by: the shown one, or that of an optimiser."
    )
    choice: Literal["true", "learned"] = setting("true", "Choice model: users', or learned.")
    feedback: Literal["first", "all"] = setting("first", "Who has clicks and engagement: the first, or all (extended).")
    objective: Literal["own", "team"] = setting("own", "Maximised: own engagement, or the mean of all with feedback.")
    local_widths: tuple[int, ...] = setting(
        (64, 64), "Units of a platform's hidden layers (in the publication 4,096 × 5)."
    )
    centred: bool | None = setting(
        None, "Engagement counts less its mean so far. Default: yes, where users always click."
    )
    reward_scale: float = setting(15.0, "Divisor of engagement, about a round's.", low=1e-6, high=1e6)
    world: Any = bound()
    sees: tuple[bool, ...] = bound(())
    learning_rate: Any = bound()
    noise: ValueNoise | None = bound()

    def __post_init__(self):
        if self.decay == 0:
            raise ConfigError("slates.decay must be above 0, got 0; for no exploration set slates.explore = 0.")
        if self.discount == 1:
            raise ConfigError("slates.discount must be below 1, got 1: values would have no bound.")
        for name in ("local_widths", "head_widths"):
            for width in getattr(self, name) or ():
                if not 1 <= width <= 65_536:
                    raise ConfigError(f"slates.{name} must be numbers in 1..65536, got {width}.")
        if self.world is not None:
            self._check_users()

    def _check_users(self) -> None:
        if not (self.learning_rate > 0 and self.reward_scale > 0):
            raise ConfigError(
                f"learning rate and reward scale must be positive, got {self.learning_rate} and {self.reward_scale}."
            )
        if len(self.sees) != self.world.platforms or not any(self.sees):
            raise ConfigError(
                f"feedback must say of each of {self.world.platforms} platforms whether it sees clicks, and of one at "
                f"least that it does; got {self.sees}."
            )
        if self.optimiser not in OPTIMISERS or self.target not in TARGETS:
            raise ConfigError(f"no such optimiser or target: {self.optimiser!r}, {self.target!r}.")
        if self.choice == "true" and not isinstance(self.world.choice, Multinomial):
            raise ConfigError(
                "choice = 'true' needs users of a multinomial choice: slate values are for that model. These users "
                "choose otherwise; take choice = 'learned'."
            )
        if self.centred and not self.world.choice.always_clicks:
            raise ConfigError("centred engagement needs users who always click; set centred to false.")

    def derived(self, world: World) -> dict[str, Any]:
        """Values of settings that follow from others and from the users, where they are not given."""
        return {
            "floor": min(_FLOOR, self.explore),
            "others": "aligned" if world.shared_candidates else "pooled",
            "centred": CHOICES.get(world.choice)().always_clicks,
        }

    def resolved(self, rounds: int, world: World) -> Any:
        """The same with those settings filled in that follow from others.

        Args:
            rounds: Rounds of the run, for the decay of ε.
            world: The users: they decide whose items are the same, and who always clicks.

        Raises:
            ConfigError: Settings contradict each other.
        """
        missing = {name: value for name, value in self.derived(world).items() if getattr(self, name) is None}
        filled: Any = dataclasses.replace(self, **missing)
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

    # -- what follows from the settings and the users ------------------------------------------------------------------

    def epsilon(self, round_: Shaped[Array, "*rounds"] | int) -> Float[Array, "*rounds"]:
        """ε of a round, counted from 0: ``max(floor, explore · decay^round)``."""
        s: Any = self  # resolved
        return jnp.maximum(s.explore * jnp.float32(s.decay) ** jnp.asarray(round_, jnp.float32), s.floor)

    @property
    def platforms(self) -> int:
        """K, the number of platforms."""
        return self.world.platforms

    @property
    def episode_rounds(self) -> int:
        """Rounds of the world that one user stays at most, at least 1."""
        return self.world.rounds_per_episode

    @cached_property
    def sizes(self) -> dict[str, int]:
        """Lengths of the axes of messages: N candidates, B transitions, H parameters of Ω."""
        return {
            "candidates": self.world.candidates,
            "transitions": self.batch,
            "parameters": self.federated_network.size,
        }

    @cached_property
    def adam(self) -> optax.GradientTransformation:
        """The optimiser of each network; all have the same step size."""
        return optax.adam(self.learning_rate)

    @cached_property
    def local(self) -> LocalQ:
        """The platforms' own networks, all of the same shape."""
        return ItemQ(self.user_features, self.item_features, self.local_widths)

    @property
    def federated_network(self) -> FederatedQ:
        """Ω where platforms learn alone: it gives a platform its own N values, and its one weight is unused."""
        return IdentityHead()

    @property
    def item_features(self) -> int:
        """Features of a candidate: the one that the world draws."""
        return 1

    @property
    def memory_features(self) -> int:
        """Features of what a platform keeps of the stay so far."""
        return _TRACES

    @property
    def user_features(self) -> int:
        """Features of the user; see :meth:`fedrank.slates.fedslate.learner.ValueLearner.user_features`."""
        return (1 + self.memory_features + _CLOCKS * self.clock) * (self.platforms if self.central else 1)

    def first_memory(self) -> Any:
        """Memory of a further critic, a part of the view, before a platform's first user."""
        return ()

    @property
    def fade(self) -> float:
        """Factor of a trace in a round, in which every platform has a tick: 0.81 with two platforms."""
        return _FADE_A_TICK**self.platforms

    @cached_property
    def order(self) -> tuple[int, ...]:
        """Platforms in the order in which they learn from a batch: those with feedback come first, as in the paper."""
        return tuple(sorted(range(self.platforms), key=lambda p: not self.sees[p]))

    @cached_property
    def serving_platforms(self) -> tuple[int, ...]:
        """The platform by whose federated values each shows its slate: its own, or with feedback the first."""
        if self.regress != "nothing":
            return tuple(range(self.platforms))
        return tuple(p if self.sees[p] else self.order[0] for p in range(self.platforms))


@dataclass(frozen=True, kw_only=True)
class FederatedSlates(Slates):
    """The same where one federated network joins the platforms' values."""

    others: Literal["aligned", "pooled"] | None = setting(
        None,
        "What the federated network gets of others: their mean value of the item in the same place, or of all items. "
        "Default: aligned where all have the same items.",
    )
    regress: Literal["greedy", "shown", "nothing"] = setting(
        "greedy",
        "The slate whose value a platform without feedback fits: its best (eq. 15), the shown one, or nothing: it "
        "shows by the first's values.",
        needs=("slates.feedback", ("first",)),
    )
    head: Literal["residual", "linear"] = setting("residual", "Federated network: hidden layers, or a linear one.")
    critic: str = setting("slateq", "The critic: slateq, or a value learner that an installed package names.")
    head_widths: tuple[int, ...] = setting((32, 32), "Units of its hidden layers (in the publication 2,048 × 4).")

    def _check_users(self) -> None:
        super()._check_users()
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

    @cached_property
    def federated_network(self) -> FederatedQ:  # type: ignore[override] - computed once
        """Ω, which makes N values of a platform's own N and of the others' (Deng et al. 2024, equations 9 to 12)."""
        share = 0.0 if self.others == "pooled" else _SHARE
        return ItemLinearHead(share) if self.head == "linear" else ItemHead(self.head_widths, share=share)


@dataclass(frozen=True, kw_only=True)
class LocalSlates(Slates):
    """The same where each platform has its network for itself."""

    silent: ClassVar[bool] = True

    central: bool = setting(False, "Each platform sees the user as all of them do: no federation, to compare with.")


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
            if value is not None and not 0 < value < LARGEST:
                raise ConfigError(
                    f"sharing.{name} must be above 0 and below {LARGEST:g}, got {value}; or leave it out."
                )
        if not abs(self.centre) < LARGEST:
            raise ConfigError(f"sharing.centre must be within ±{LARGEST:g}, got {self.centre}.")
        if self.epsilon is not None and self.clip is None:
            raise ConfigError("sharing.epsilon needs sharing.clip, the bound that noise is measured by.")

    def noise(self, delta: float) -> ValueNoise | None:
        """Clipping and noise; None: neither. ``delta`` is δ of Gaussian noise."""
        return None if self.clip is None else ValueNoise(self.clip, self.epsilon, delta, self.mechanism, self.centre)


def decay_of(explore: float, floor: float, rounds: int) -> float:
    """The factor that brings ε from its start to its floor in a third of the rounds; 1 where it is there already.

    >>> round(0.5 * decay_of(0.5, 0.05, 300) ** 100, 6)
    0.05
    """
    if floor >= explore:
        return 1.0
    return float((max(floor, _NO_EXPLORATION) / explore) ** (1 / max(1.0, rounds * EXPLORING)))
