"""Policies of the platforms together, and the engagement that they get.

A policy fills the slates of all platforms at the beginning of a round. Policies are pytrees: numbers that may vary
(which feature, a table of values) are leaves, settings are structure, so that one compiled program serves all policies
of a kind.
"""

from __future__ import annotations

import abc
import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key, PRNGKeyArray, UInt32

from fedrank.core.arrays import AnyArray
from fedrank.core.lazy import jit
from fedrank.core.streams import split, typed
from fedrank.slates.world.satisfaction import Satisfaction, Scene, Turn


class Policy(abc.ABC):
    """A rule for the slates of all platforms. A pytree, so that it can be an argument of a jitted function."""

    @property
    @abc.abstractmethod
    def name(self) -> str:
        """Name of the policy in tables."""

    def begin(self) -> Any:
        """The policy's memory when an episode begins: a pytree of arrays, by default empty."""
        return ()

    @abc.abstractmethod
    def act(self, memory: Any, scene: Scene, key: PRNGKeyArray) -> Int[Array, "platforms slots"]:
        """The slates of one round: candidates in slot order.

        Args:
            memory: The policy's memory.
            scene: The round's beginning. A real platform knows ``observed`` and ``documents``; a policy that uses
                ``user`` is only there to compare with, and says so.
            key: Typed JAX key, consumed.
        """

    def notice(self, memory: Any, scene: Scene, slates: Int[Array, "platforms slots"], turns: Turn) -> Any:
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
    """What one user did in each round at each platform.

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

    first: UInt32[AnyArray, "*users 2"]
    world: UInt32[AnyArray, "*users rounds 2"]
    policy: UInt32[AnyArray, "*users rounds 2"]


def stay_keys(keys: UInt32[np.ndarray, "*users 2"], rounds: int) -> StayKeys:
    """The keys that :func:`rollout` makes of a user's key.

    Args:
        keys: Both words of each user's key.
        rounds: Of a stay.
    """
    first, rest = np.moveaxis(split(keys, 2), -2, 0)
    return StayKeys(first, *np.moveaxis(split(split(rest, rounds), 2), -2, 0))


def rollout(world: Satisfaction, policy: Policy, key: PRNGKeyArray | StayKeys) -> Episode:
    """One episode, from a new user's first round to the last.

    Args:
        world: The world.
        policy: Fills the slates.
        key: Typed JAX key of this episode, or the keys that are made of it.
    """

    def one_round(carry, keys):
        memory, scene = carry
        for_world, for_policy = map(typed, keys) if isinstance(keys, tuple) else jax.random.split(keys)
        slates = policy.act(memory, scene, for_policy)
        after, turns, _ = world.round(scene, slates, world.draw(for_world))
        clicked = jnp.take_along_axis(scene.documents, jnp.maximum(turns.item, 0)[:, None], axis=1)[:, 0]
        kaleness = jnp.where(turns.item >= 0, clicked, jnp.nan)
        row = Episode(turns.engagement, turns.item, kaleness, world.satisfaction(scene.user.exposure))
        return (policy.notice(memory, scene, slates, turns), after), row

    if isinstance(key, StayKeys):
        first, rounds = typed(key.first), (key.world, key.policy)
    else:
        first, rest = jax.random.split(key)
        rounds = jax.random.split(rest, world.rounds_per_episode)
    start = (policy.begin(), world.first(world.draw(first)))
    return jax.lax.scan(one_round, start, rounds)[1]


class Played(NamedTuple):
    """What a policy brought, user by user, and when it served what.

    Attributes:
        engagement: Undiscounted return of every platform in every episode.
        kale: Mean share of kale of what was clicked, by round; NaN where nothing was.
        satisfaction: Mean satisfaction as a round begins.
    """

    engagement: Float[Array, "*runs episodes platforms"]
    kale: Float[Array, "*runs rounds platforms"]
    satisfaction: Float[Array, "*runs rounds"]


def play(world: Satisfaction, policy: Policy, keys: Key[Array, " episodes"] | StayKeys) -> Played:
    """Play episodes; arguments as of :func:`returns`, whose keys may be :class:`StayKeys`."""
    seen = jax.vmap(lambda key: rollout(world, policy, key))(keys)
    kale = 1.0 - world.chocolate(seen.kaleness)
    return Played(jnp.sum(seen.engagement, axis=1), jnp.nanmean(kale, axis=0), jnp.mean(seen.satisfaction, axis=0))


@functools.partial(jit, quick=True, static_argnames="world")
def played(world: Satisfaction, policy: Policy, keys: Key[Array, " episodes"] | StayKeys) -> Played:
    """As :func:`play`, compiled."""
    return play(world, policy, keys)


@functools.partial(jit, quick=True, static_argnames="world")
def returns(world: Satisfaction, policy: Policy, keys: Key[Array, " episodes"]) -> Float[Array, "episodes platforms"]:
    """Undiscounted return of every platform in every episode.

    Args:
        world: The world; one compiled program for each.
        policy: Fills the slates; one compiled program for each kind.
        keys: Typed JAX keys [episodes].
    """
    return jax.vmap(lambda key: jnp.sum(rollout(world, policy, key).engagement, axis=0))(keys)
