"""Baselines: random slates, slates by one feature, the best slate for the current tick, and one platform's at all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int
from typing_extensions import override

from fedrank.core.errors import ConfigError
from fedrank.core.registry import Registry
from fedrank.slates.world.best_slate import best_slate
from fedrank.slates.world.rollout import Policy
from fedrank.slates.world.satisfaction import NEUTRAL, Satisfaction

_NAMES = {1: "choc", -1: "kale", 0: "random"}


@partial(jax.tree_util.register_dataclass, data_fields=["signs"], meta_fields=["world"])
@dataclass(frozen=True)
class TopFeature(Policy):
    """The n candidates with most chocolate, or with least, or n at random; each platform its own.

    Attributes:
        world: The world.
        signs: One a platform: +1 most chocolate, −1 least (most kale), 0 random.

    Raises:
        ConfigError: Not one sign a platform.
    """

    world: Satisfaction
    signs: tuple[float | jax.Array, ...]

    def __post_init__(self):
        if isinstance(self.signs, tuple) and len(self.signs) != self.world.platforms:
            raise ConfigError(
                f"TopFeature needs a sign for each of {self.world.platforms} platforms, got {self.signs}."
            )

    @property
    @override
    def name(self) -> str:  # choc, kale, random, or one of them a platform: choc/kale
        names = [_NAMES[int(sign)] for sign in self.signs]
        return names[0] if len(set(names)) == 1 else "/".join(names)

    @override
    def act(self, memory, scene, key):
        slates, shape = [], (self.world.candidates,)
        uniforms = jax.vmap(lambda place: jax.random.uniform(jax.random.fold_in(key, place), shape))(
            jnp.arange(self.world.platforms)
        )
        # One platform at a time: selecting from [users, N] is several times faster on a CPU than from [users, K, N].
        for place, kaleness in enumerate(scene.documents):
            sign = jnp.asarray(self.signs[place], jnp.float32)
            score = jnp.where(sign == 0, uniforms[place], sign * self.world.chocolate(kaleness))
            slates.append(jax.lax.top_k(score, self.world.slate)[1])
        return jnp.stack(slates)


@partial(jax.tree_util.register_dataclass, data_fields=[], meta_fields=["world"])
@dataclass(frozen=True)
class Myopic(Policy):
    """The slate with the highest expected engagement in this tick, of a policy that knows the world and the user.

    It uses the user's exposure, which no platform sees; of a platform that acts later in a round, the exposure that is
    expected after the slates of the platforms before it.

    Attributes:
        world: The world.
    """

    world: Satisfaction

    @property
    @override
    def name(self) -> str:
        return "myopic"

    @override
    def act(self, memory, scene, key):
        world = self.world

        def one_platform(exposure, acting):
            kaleness, k = acting
            # Whose turn it is is not known where it is by lot: as if in order.
            tau = None if world.even else world.tau(scene.user.left - k, k)
            worth = world.mean_engagement(kaleness, exposure, tau)
            slate = best_slate(world.choice, world.appeal(kaleness), worth, world.slate, jnp.float32(0))
            return expected_exposure(world, kaleness[slate], exposure), slate

        platforms = jnp.arange(world.platforms)
        return jax.lax.scan(one_platform, scene.user.exposure, (scene.documents, platforms))[1]


@partial(jax.tree_util.register_dataclass, data_fields=["policy", "on"], meta_fields=["world", "source"])
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

    world: Satisfaction
    policy: Any  # JAX also puts its own placeholders into pytrees
    source: int
    on: Any = True

    @property
    @override
    def name(self) -> str:
        return "copying"

    @override
    def begin(self):
        return self.policy.begin()

    @override
    def act(self, memory, scene, key) -> Int[Array, "platforms slots"]:
        slates = self.policy.act(memory, scene, key)
        if self.world.shared_candidates:
            return jnp.where(self.on, jnp.broadcast_to(slates[self.source], slates.shape), slates)

        def in_place_of(documents):
            there = scene._replace(documents=scene.documents.at[self.source].set(documents))
            return self.policy.act(memory, there, key)[self.source]

        return jax.lax.cond(self.on, lambda: jax.vmap(in_place_of)(scene.documents), lambda: slates)

    @override
    def notice(self, memory, scene, slates, turns):
        return self.policy.notice(memory, scene, slates, turns)


def expected_exposure(
    world: Satisfaction, shown: Float[Array, " slots"], exposure: Float[Array, ""]
) -> Float[Array, ""]:
    """The expected exposure after a tick.

    Args:
        world: The world.
        shown: Kaleness of the slate, in slot order.
        exposure: Exposure before the tick.
    """
    chances = world.choice.probabilities(world.appeal(shown))[:-1]
    chocolate = jnp.sum(chances * (world.chocolate(shown) - NEUTRAL))
    return world.memory_discount * exposure - 2.0 * chocolate


@partial(jax.tree_util.register_dataclass, data_fields=["policies", "place"], meta_fields=[])
@dataclass(frozen=True)
class OneOf(Policy):
    """One of several policies without a memory, by its place among them: one compiled program for all of them.

    Attributes:
        policies: The policies.
        place: Which of them, an integer.
    """

    policies: Any  # JAX also puts its own placeholders into pytrees
    place: Any

    @property
    @override
    def name(self) -> str:
        return "one of several"

    @override
    def act(self, memory, scene, key) -> Int[Array, "platforms slots"]:
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
BASELINES.register("myopic", summary="The best slate for this tick, by the true model and the true user.")(Myopic)
