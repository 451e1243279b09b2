"""What a platform that plans keeps, what it shows, and what a user's visit leaves with it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Float32, Int, PRNGKeyArray
from typing_extensions import override

from fedrank.core.arrays import PyTree
from fedrank.core.errors import ConfigError
from fedrank.core.protocol import Environment
from fedrank.privacy.calibration import replacement_sensitivity, shared_gaussian_sigma
from fedrank.slates.planning.engagement import (
    FEATURES,
    STEPS,
    clipped,
    features,
    item_feature,
    next_taste,
    taste_slate,
    whitening,
)
from fedrank.slates.planning.stay import GRID, LISTS, mean_click, others_ticks, planned_slate, worth
from fedrank.slates.world.rollout import Policy
from fedrank.slates.world.satisfaction import Satisfaction, Scene, Turn


@dataclass(frozen=True)
class PlanningSettings:
    """What platforms and their coordinator agree on.

    Attributes:
        world: The users; of it platforms know N, n, K, the rounds of a stay, and how users choose.
        feedback: Whether each platform sees clicks and engagement.
        explorers: Users who are served to find out what they like; after them nobody is.
        hold: Probability a round that a platform which explores draws another taste, in (0, 1].
        fade: Factor of a platform's trace of clicks a round, in [0, 1).
        scale: Divisor of engagement before its logarithm is taken: a typical engagement, above 0.
        clip: Largest L2 norm of what a user adds to the sums, above 0.
        epsilon: ε of a user's whole stay at all platforms together; None: no noise.
        delta: δ of it.

    Raises:
        ConfigError: A number out of range, or nobody has feedback.
    """

    world: Satisfaction
    feedback: tuple[bool, ...]
    explorers: int = 200
    hold: float = 0.05
    fade: float = 0.81
    scale: float = 10.0
    clip: float = 10.0
    epsilon: float | None = None
    delta: float = 1e-5

    def __post_init__(self):
        for what, value in (("scale", self.scale), ("clip", self.clip)):
            if not 0.0 < value < 1e6:
                raise ConfigError(f"{what} must be above 0 and below a million, got {value}.")
        if not (0.0 < self.hold <= 1.0 and 0.0 <= self.fade < 1.0):
            raise ConfigError(f"hold must be in (0, 1] and fade in [0, 1), got {self.hold} and {self.fade}.")
        # The sums are integers of 32 bits in steps, of which a user adds up to STEPS.
        if not 1 <= self.explorers <= 2**30 // STEPS:
            raise ConfigError(f"explorers must be in 1..{2**30 // STEPS:,}, got {self.explorers}.")
        if len(self.feedback) != self.world.platforms or not any(self.feedback):
            raise ConfigError(f"feedback must be one bool a platform, one of them True, got {self.feedback}.")
        if self.epsilon is not None and not (0.0 < self.epsilon < 1e6 and 0.0 < self.delta < 1.0):
            raise ConfigError(f"epsilon must be positive and delta in (0, 1), got {self.epsilon} and {self.delta}.")

    @property
    def release_round(self) -> int:
        """The round after which sums are sent and plans made: the last one of the last explorer."""
        return self.explorers * self.world.rounds_per_episode - 1

    @property
    def releases(self) -> int:
        """Messages that tell of a user: one of each platform with feedback."""
        return sum(self.feedback)

    @cached_property
    def whiten(self) -> Float32[np.ndarray, "features features"]:
        """What features are whitened by; see :func:`~fedrank.slates.planning.engagement.whitening`."""
        return whitening(self.world, self.fade, self.hold)

    @property
    def sensitivity(self) -> float:
        """The largest L2 distance, in steps, between what two users add to the sums of a platform."""
        return replacement_sensitivity(1.0, "l2", FEATURES, "l2", STEPS)

    @property
    def sigma(self) -> float | None:
        """σ of the discrete Gaussian noise on each platform's sums, in steps; None without noise."""
        if self.epsilon is None:
            return None
        return shared_gaussian_sigma(self.epsilon, self.delta, self.sensitivity, 1, FEATURES, self.releases)


class PlatformState(NamedTuple):
    """What a platform has for itself.

    Attributes:
        number: Number of the platform, from 0.
        feedback: Whether it sees clicks and engagement.
        trace: Fading sum of −z over what the user clicked here; without feedback, over what it expects to be clicked.
        left: Rounds until the user leaves, this one included.
        taste: While it explores: +1 shows the items of the highest feature, −1 those of the lowest.
        documents: The candidates' feature, in [0, 1].
        slate: The slate that it shows in this round.
        lists: Lists of candidates that it had, the newest of them.
        rounds: Rounds so far.
        stay: Σ L⁻¹ f y over the clicks of the user who is there.
        sums: Sums over the users who have left, clipped, in steps.
        model: The model of engagement; zeros before it is told one.
        table: Its plan; see :func:`fedrank.slates.planning.stay.plan`.
    """

    number: Int[Array, ""]
    feedback: Bool[Array, ""]
    trace: Float[Array, ""]
    left: Int[Array, ""]
    taste: Float[Array, ""]
    documents: Float[Array, " candidates"]
    slate: Int[Array, " slots"]
    lists: Float[Array, "lists candidates"]
    rounds: Int[Array, ""]
    stay: Float[Array, " features"]
    sums: Int[Array, " features"]
    model: Float[Array, " features"]
    table: Float[Array, "rounds grid"]


def first_state(s: PlanningSettings, number: Int[Array, ""] | int) -> PlatformState:
    """A platform's state before its first user."""
    world, zero = s.world, jnp.float32(0.0)
    return PlatformState(
        number=jnp.int32(number),
        feedback=jnp.asarray(s.feedback)[number],
        trace=zero,
        left=jnp.int32(world.rounds_per_episode),
        taste=zero,
        documents=jnp.zeros(world.candidates, jnp.float32),
        slate=jnp.zeros(world.slate, jnp.int32),
        lists=jnp.zeros((LISTS, world.candidates), jnp.float32),
        rounds=jnp.int32(0),
        stay=jnp.zeros(FEATURES, jnp.float32),
        sums=jnp.zeros(FEATURES, jnp.int32),
        model=jnp.zeros(FEATURES, jnp.float32),
        table=jnp.zeros((world.rounds_per_episode, GRID), jnp.float32),
    )


def explored(s: PlanningSettings, own: PlatformState, draws: Float[Array, "2"]) -> PlatformState:
    """The platform with the slate that it shows while it explores.

    Args:
        s: Settings.
        own: The platform.
        draws: Two numbers uniform in [0, 1).
    """
    taste = next_taste(own.taste, draws, s.hold)
    return own._replace(taste=taste, slate=taste_slate(taste, own.documents, s.world.slate))


def planned(s: PlanningSettings, own: PlatformState) -> Int[Array, " slots"]:
    """The slate of the plan; before there is one, the first candidates, which are as good as any."""
    typical = mean_click(s.world, own.lists)
    others = others_ticks(s.world, own.number, own.left)
    item = item_feature(own.documents)
    later = own.table[own.left - 1]
    values = worth(s.world, s.fade, own.model, later, own.trace, item, others, typical)
    return planned_slate(s.world, own.documents, values)


def _clicked(s: PlanningSettings, own: PlatformState, turn: Turn) -> Float[Array, ""]:
    """The feature of what was clicked, 0 for nothing; without feedback, what is expected."""
    world, shown = s.world, own.documents[own.slate]
    expected = jnp.vdot(world.choice.probabilities(world.appeal(shown))[:-1], item_feature(shown))
    clicked = jnp.where(turn.item >= 0, item_feature(own.documents[turn.item]), 0.0)
    return jnp.where(own.feedback, clicked, expected)


def next_state(
    s: PlanningSettings, own: PlatformState, turn: Turn, documents: Float[Array, " candidates"], over: Bool[Array, ""]
) -> PlatformState:
    """The platform's state after a round.

    Args:
        s: Settings.
        own: The state in the round.
        turn: What came of its slate; a platform without feedback uses nothing of it.
        documents: The candidates of the next round.
        over: Whether the user has left.
    """
    item = _clicked(s, own, turn)
    told = own.feedback & (turn.item >= 0)
    logarithm = jnp.log(jnp.where(told, turn.engagement, s.scale) / s.scale)
    stay = own.stay + jnp.where(told, s.whiten @ features(own.trace, item) * logarithm, 0.0)
    counts = over & (own.rounds <= s.release_round)
    return own._replace(
        trace=jnp.where(over, 0.0, s.fade * own.trace - item),
        left=jnp.where(over, s.world.rounds_per_episode, own.left - 1),
        taste=jnp.where(over, 0.0, own.taste),
        documents=documents,
        lists=own.lists.at[own.rounds % LISTS].set(own.documents),
        rounds=own.rounds + 1,
        stay=jnp.where(over, 0.0, stay),
        sums=own.sums + jnp.where(counts, clipped(stay, s.clip), 0),
    )


@dataclass(frozen=True)
class UserVisits(Environment):
    """One user visits all platforms, round by round; a new one comes when the time is over.

    Attributes:
        settings: The settings.
    """

    settings: PlanningSettings

    @override
    def begin(self, key, own):
        world = self.settings.world
        scene = world.first(world.draw(key))
        return scene, own._replace(documents=scene.documents)

    @override
    def happen(self, world, own, key, number):
        users = self.settings.world
        after, turns, over = users.round(world, own.slate, users.draw(key))
        each = jax.vmap(partial(next_state, self.settings), in_axes=(0, 0, 0, None))
        return after, each(own, turns, after.documents, over), {"engagement": turns.engagement, "over": over}


@partial(jax.tree_util.register_dataclass, data_fields=("own",), meta_fields=("settings",))
@dataclass(frozen=True)
class PlannedPolicy(Policy):
    """What platforms show by their plans, without exploration, for fresh episodes.

    Attributes:
        settings: The settings.
        own: What each platform has, leaves [K, ...].
    """

    settings: PlanningSettings
    own: Any  # JAX also puts its own placeholders into pytrees

    @property
    @override
    def name(self) -> str:
        return "planned-slates"

    @override
    def begin(self) -> PyTree:
        k = self.settings.world.platforms
        return jnp.zeros(k), jnp.full(k, self.settings.world.rounds_per_episode, jnp.int32)

    def _platforms(self, memory: PyTree, scene: Scene) -> PlatformState:
        return self.own._replace(trace=memory[0], left=memory[1], documents=scene.documents)

    @override
    def act(self, memory: PyTree, scene: Scene, key: PRNGKeyArray) -> Int[Array, "platforms slots"]:
        return jax.vmap(partial(planned, self.settings))(self._platforms(memory, scene))

    @override
    def notice(self, memory: PyTree, scene: Scene, slates: Int[Array, "platforms slots"], turns: Turn) -> PyTree:
        own = self._platforms(memory, scene)._replace(slate=slates)
        clicked = jax.vmap(partial(_clicked, self.settings))(own, turns)
        return self.settings.fade * own.trace - clicked, own.left - 1
