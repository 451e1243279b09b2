"""Policies of the platforms together, and the engagement that they get.

A policy fills the slates of all platforms at the beginning of a round. Policies are pytrees: numbers that may vary
(which feature, a table of values) are leaves, settings are structure, so that one compiled program serves all policies
of a kind.

The baselines are random slates, slates by one feature, the best slate for the current tick, and one platform's slates
at all.
"""

from __future__ import annotations

import abc
import functools
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int, Key, UInt32
from typing_extensions import override

from fedrank.core.arrays import AnyArray, JaxArray, module_of, take
from fedrank.core.arrays import AnyArray as Array
from fedrank.core.errors import ConfigError
from fedrank.core.lazy import dataclass_of_arrays, jax, jit, jnp
from fedrank.core.registry import Registry
from fedrank.core.streams import fold_words, split, stream, uniforms, wrap_keys
from fedrank.slates.world.best_slate import best_slate, largest
from fedrank.slates.world.choice import Multinomial, Proportional
from fedrank.slates.world.satisfaction import NEUTRAL, RoundDraws, Satisfaction, Scene, Turn


class Policy(abc.ABC):
    """A rule for the slates of all platforms. A pytree, so that it can be an argument of a jitted function."""

    #: Name of the policy in tables.
    name: str

    def begin(self) -> Any:
        """The policy's memory when an episode begins: a pytree of arrays, by default empty."""
        return ()

    @abc.abstractmethod
    def act(self, memory: Any, scene: Scene, key: Key[Array, ""]) -> Int[Array, "*#users platforms slots"]:
        """The slates of one round: candidates in slot order.

        Args:
            memory: The policy's memory.
            scene: The round's beginning. A real platform knows ``observed`` and ``documents``; a policy that uses
                ``user`` is only there to compare with, and says so.
            key: Typed JAX key, consumed.
        """

    def notice(self, memory: Any, scene: Scene, slates: Int[Array, "*#users platforms slots"], turns: Turn) -> Any:
        """The policy's memory after a round.

        Args:
            memory: Its memory before.
            scene: The round's beginning.
            slates: What was shown.
            turns: The outcome, entries [K].
        """
        del scene, slates, turns
        return memory


class Episode(NamedTuple):
    """Outcome of one user in each round at each platform.

    Attributes:
        engagement: 0 where nothing was clicked.
        items: The clicked candidate; −1: nothing.
        kaleness: Of the clicked candidate; NaN where nothing was clicked.
        satisfaction: The user's as the round begins, without noise.
    """

    engagement: Float[Array, "rounds platforms"]
    items: Int[Array, "rounds platforms"]
    kaleness: Float[Array, "rounds platforms"]
    satisfaction: Float[Array, " rounds"]


class StayKeys(NamedTuple):
    """The keys of users' stays, made with NumPy before a program is compiled: the words of each.

    A program that splits a user's key into these keys takes a fifth longer to compile, and longer to run.

    Attributes:
        first: Of the first scene.
        world: Of what happens, by round.
        policy: Of what a policy draws, by round.
    """

    first: UInt32[AnyArray, "*#users 2"]
    world: UInt32[AnyArray, "*#users rounds 2"]
    policy: UInt32[AnyArray, "*#users rounds 2"]


def stay_keys(keys: UInt32[np.ndarray, "*#users 2"], rounds: int) -> StayKeys:
    """The keys that :func:`rollout` makes of a user's key.

    Args:
        keys: Both words of each user's key.
        rounds: Of a stay.
    """
    first, rest = np.moveaxis(split(keys, 2), -2, 0)
    return StayKeys(first, *np.moveaxis(split(split(rest, rounds), 2), -2, 0))


def rollout(world: Satisfaction, policy: Policy, key: Key[Array, ""] | StayKeys) -> Episode:
    """One episode, from a new user's first round to the last.

    Args:
        world: The world.
        policy: Fills the slates.
        key: Typed JAX key of this episode, or the keys that are made of it.
    """

    def one_round(carry, keys):
        memory, scene = carry
        for_world, for_policy = map(wrap_keys, keys) if isinstance(keys, tuple) else jax.random.split(keys)
        slates = policy.act(memory, scene, for_policy)
        after, turns, _ = world.round(scene, slates, world.draw(for_world))
        clicked = jnp.take_along_axis(scene.documents, jnp.maximum(turns.item, 0)[:, None], axis=1)[:, 0]
        kaleness = jnp.where(turns.item >= 0, clicked, jnp.nan)
        row = Episode(turns.engagement, turns.item, kaleness, world.satisfaction(scene.user.exposure))
        return (policy.notice(memory, scene, slates, turns), after), row

    if isinstance(key, StayKeys):
        first, rounds = wrap_keys(key.first), (key.world, key.policy)
    else:
        first, rest = jax.random.split(key)
        rounds = jax.random.split(rest, world.rounds_per_episode)
    start = (policy.begin(), world.first(world.draw(first)))
    return jax.lax.scan(one_round, start, rounds)[1]


class Played(NamedTuple):
    """Outcome of a policy, user by user, and what it served when.

    Attributes:
        engagement: Undiscounted return of every platform in every episode.
        kale: Mean share of kale of what was clicked, by round; NaN where nothing was.
        satisfaction: Mean satisfaction as a round begins.
    """

    engagement: Float[Array, "*runs episodes platforms"]
    kale: Float[Array, "*runs rounds platforms"]
    satisfaction: Float[Array, "*runs rounds"]


def play(world: Satisfaction, policy: Policy, keys: Key[Array, " episodes"] | StayKeys) -> Played:
    """Play episodes.

    Args:
        world: The world.
        policy: Fills the slates.
        keys: Typed JAX keys [episodes], or the keys that are made of each.
    """
    seen = jax.vmap(lambda key: rollout(world, policy, key))(keys)
    return _summarise(world, seen.engagement, seen.kaleness, seen.satisfaction)


def play_together(world: Satisfaction, policy: Policy, keys: StayKeys, draws: Sequence[RoundDraws] = ()) -> Played:
    """As :func:`play`, with NumPy: all users of all runs at once, round by round.

    Args:
        world: The world.
        policy: Fills the slates; one of :func:`plays_together`.
        keys: Of the users, [*runs, episodes].
        draws: What :func:`draws_of` makes of the keys, where several policies are played.
    """
    memory, scene = policy.begin(), world.first(world.draw(keys.first))
    draws = draws or draws_of(world, keys)
    seen = []
    for number in range(world.rounds_per_episode):
        slates = policy.act(memory, scene, keys.policy[..., number, :])
        after, turns, _ = world.round(scene, slates, draws[number])
        clicked = take(scene.documents, np.maximum(turns.item, 0)[..., None])[..., 0]
        kaleness = np.where(turns.item >= 0, clicked, np.float32(np.nan))
        seen.append((turns.engagement, kaleness, world.satisfaction(scene.user.exposure)))
        memory, scene = policy.notice(memory, scene, slates, turns), after
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of rounds without a click
        runs = keys.first.ndim - 2
        return _summarise(world, *(np.stack(each, axis=runs + 1) for each in zip(*seen, strict=True)), runs=runs)


def draws_of(world: Satisfaction, keys: StayKeys) -> list[RoundDraws]:
    """The random numbers of each round of users' stays, with NumPy."""
    return [world.draw(keys.world[..., number, :]) for number in range(world.rounds_per_episode)]


def plays_together(world: Satisfaction) -> bool:
    """True if NumPy can play these users: a subclass may have transitions for one user, a cascade is planned in JAX."""
    return type(world) is Satisfaction and type(world.choice) in (Multinomial, Proportional)


def _summarise(world: Satisfaction, engagement: Any, kaleness: Any, satisfaction: Any, runs: int = 0) -> Played:
    """Outcome of users, [*runs, episodes, rounds, ...]; ``runs`` is the number of axes of runs."""
    xp = module_of(engagement)
    kale = xp.nanmean(1.0 - world.chocolate(kaleness), axis=runs)
    return Played(engagement.sum(axis=runs + 1), kale, satisfaction.mean(axis=runs))


@functools.partial(jit, quick=True, static_argnames="world")
def play_compiled(world: Satisfaction, policy: Policy, keys: Key[Array, " episodes"] | StayKeys) -> Played:
    """As :func:`play`, compiled."""
    return play(world, policy, keys)


_NAMES = {1: "choc", -1: "kale", 0: "random"}


@dataclass_of_arrays
@dataclass(frozen=True)
class TopFeature(Policy):
    """The n candidates with most chocolate, or with least, or n at random; each platform its own.

    Attributes:
        world: The world.
        signs: One a platform: +1 most chocolate, −1 least (most kale), 0 random.

    Raises:
        ConfigError: Not one sign a platform.
    """

    world: Satisfaction = field(metadata={"static": True})
    signs: tuple[float | jax.Array, ...]

    def __post_init__(self):
        if isinstance(self.signs, tuple) and len(self.signs) != self.world.platforms:
            raise ConfigError(
                f"TopFeature needs a sign for each of {self.world.platforms} platforms, got {self.signs}."
            )

    @property
    @override
    def name(self) -> str:  # type: ignore[override] - choc, kale, random, or one of them a platform: choc/kale
        names = [_NAMES[int(sign)] for sign in self.signs]
        return names[0] if len(set(names)) == 1 else "/".join(names)

    @override
    def act(self, memory, scene, key):
        slates, shape = [], (self.world.candidates,)
        if isinstance(key, np.ndarray):
            for place, sign in enumerate(self.signs):
                chocolate = self.world.chocolate(scene.documents[..., place, :])
                score = uniforms(stream(fold_words(key, place), *shape)) if sign == 0 else sign * chocolate
                slates.append(largest(score, self.world.slate))
            return np.stack(slates, axis=-2)
        by_lot = jax.vmap(lambda place: jax.random.uniform(jax.random.fold_in(key, place), shape))(
            jnp.arange(self.world.platforms)
        )
        # One platform at a time: selecting from [users, N] is several times faster on a CPU than from [users, K, N].
        for place, kaleness in enumerate(scene.documents):
            sign = jnp.asarray(self.signs[place], jnp.float32)
            score = jnp.where(sign == 0, by_lot[place], sign * self.world.chocolate(kaleness))
            slates.append(jax.lax.top_k(score, self.world.slate)[1])
        return jnp.stack(slates)


@dataclass_of_arrays
@dataclass(frozen=True)
class LateChocolate(Policy):
    """Most kale until the last rounds of a stay, most chocolate in them: a rule for which nothing is learnt.

    Attributes:
        world: The world.
        rounds: The last rounds.
    """

    world: Satisfaction = field(metadata={"static": True})
    rounds: int = field(default=7, metadata={"static": True})

    name = "kale-then-choc"

    @override
    def act(self, memory, scene, key):
        xp, world = module_of(scene.documents, scene.user.left), self.world
        sign = xp.where(scene.user.left <= self.rounds * world.platforms, np.float32(1), np.float32(-1))
        score = sign[..., None, None] * world.chocolate(scene.documents)
        return largest(score, world.slate) if xp is np else jax.lax.top_k(score, world.slate)[1].astype(jnp.int32)


@dataclass_of_arrays
@dataclass(frozen=True)
class Myopic(Policy):
    """The slate with the highest expected engagement in this tick, of a policy that knows the world and the user.

    It uses the user's exposure, which no platform sees; of a platform that acts later in a round, the exposure that is
    expected after the slates of the platforms before it.

    Attributes:
        world: The world.
    """

    world: Satisfaction = field(metadata={"static": True})

    name = "myopic"

    @override
    def act(self, memory, scene, key):
        world = self.world

        def one_platform(exposure, acting):
            kaleness, k = acting
            # Whose turn it is is not known where it is by lot: as if in order.
            tau: Any = None if world.even else world.tau(scene.user.left - k, k)
            each = tau if np.ndim(tau) == 0 else tau[..., None]
            worth = world.mean_engagement(kaleness, exposure[..., None], each)
            nothing = module_of(exposure).zeros_like(exposure)
            slate = best_slate(world.choice, world.appeal(kaleness), worth, world.slate, nothing)
            return expected_exposure(world, take(kaleness, slate), exposure), slate

        return by_turns(one_platform, scene.user.exposure, scene.documents)


@dataclass_of_arrays
@dataclass(frozen=True)
class Copying(Policy):
    """Every platform shows what one of them would show of the same candidates: "B is served A's values".

    What a platform gains by learning from others must be read against this.

    Attributes:
        world: The world.
        policy: The policy of the platforms.
        source: Number of the platform that the others copy.
        on: bool; False: every platform does as ``policy`` says. An array, so that one compiled program serves both.
    """

    world: Satisfaction = field(metadata={"static": True})
    policy: Any  # JAX also puts its own placeholders into pytrees
    source: int = field(metadata={"static": True})
    on: Any = True

    name = "copying"

    @override
    def begin(self):
        return self.policy.begin()

    @override
    def act(self, memory, scene, key) -> Int[Array, "*#users platforms slots"]:
        slates = self.policy.act(memory, scene, key)
        if isinstance(slates, np.ndarray):
            return self._copy_source(memory, scene, key, slates) if self.on else slates
        if self.world.shared_candidates:
            return jnp.where(self.on, jnp.broadcast_to(slates[self.source], slates.shape), slates)

        def in_place_of(documents):
            there = scene._replace(documents=jnp.asarray(scene.documents).at[self.source].set(documents))
            return self.policy.act(memory, there, key)[self.source]

        return jax.lax.cond(self.on, lambda: jax.vmap(in_place_of)(scene.documents), lambda: slates)

    def _copy_source(self, memory, scene, key, slates):
        """Slates of the source from each platform's candidates, with NumPy."""
        if self.world.shared_candidates:
            return np.broadcast_to(slates[..., [self.source], :], slates.shape)
        shown = []
        for place in range(self.world.platforms):
            documents = np.array(scene.documents)
            documents[..., self.source, :] = scene.documents[..., place, :]
            there = scene._replace(documents=documents)
            shown.append(self.policy.act(memory, there, key)[..., self.source, :])
        return np.stack(shown, axis=-2)

    @override
    def notice(self, memory, scene, slates, turns):
        return self.policy.notice(memory, scene, slates, turns)


def by_turns(one_platform: Callable[[Any, Any], tuple[Any, Any]], before: Any, documents: Any) -> Any:
    """Slates of the platforms in order, [..., K, slots]; what each does is known to those after it.

    Args:
        one_platform: From what is known, and candidates and number of a platform, to what is known after it, and its
            slate.
        before: What the first knows.
        documents: Kaleness of the candidates, [..., K, candidates].
    """
    if isinstance(documents, JaxArray):
        return jax.lax.scan(one_platform, before, (documents, jnp.arange(len(documents))))[1]
    slates = []
    for place in range(documents.shape[-2]):
        before, slate = one_platform(before, (documents[..., place, :], place))
        slates.append(slate)
    return np.stack(slates, axis=-2)


def expected_exposure(
    world: Satisfaction, shown: Float[AnyArray, "*#users slots"], exposure: Float[AnyArray, "*#users"]
) -> Float[AnyArray, "*#users"]:
    """The expected exposure after a tick.

    Args:
        world: The world.
        shown: Kaleness of the slate, in slot order.
        exposure: Exposure before the tick.
    """
    chances = world.choice.probabilities(world.appeal(shown))[..., :-1]
    chocolate = (chances * (world.chocolate(shown) - NEUTRAL)).sum(axis=-1)
    return world.memory_discount * exposure - 2.0 * chocolate


@dataclass_of_arrays
@dataclass(frozen=True)
class OneOf(Policy):
    """One of several policies without a memory, by its place among them: one compiled program for all of them.

    Attributes:
        policies: The policies.
        place: Which of them, an integer.
    """

    policies: Any  # JAX also puts its own placeholders into pytrees
    place: Any

    name = "one of several"

    @override
    def act(self, memory, scene, key) -> Int[Array, "*#users platforms slots"]:
        return jax.lax.switch(self.place, [policy.act for policy in self.policies], memory, scene, key)


#: Baselines by name; each entry makes one for a world. The optimum is in :mod:`fedrank.slates.world.optimum`.
BASELINES: Registry[Callable[[Satisfaction], Policy]] = Registry("baseline")

BASELINES.register("random", summary="n candidates at random.")(
    lambda world: TopFeature(world, (0.0,) * world.platforms)
)
BASELINES.register("choc", summary="The n candidates with most chocolate.")(
    lambda world: TopFeature(world, (1.0,) * world.platforms)
)
BASELINES.register("kale", summary="The n candidates with least chocolate.")(
    lambda world: TopFeature(world, (-1.0,) * world.platforms)
)
BASELINES.register("kale-then-choc", summary="Most kale, and in the last seven rounds most chocolate.")(LateChocolate)
BASELINES.register("myopic", summary="The best slate for this tick, by the true model and the true user.")(Myopic)
