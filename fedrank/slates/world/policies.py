"""Baselines: chance, one feature, the best slate for now, and slates that never change."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp

from fedrank.core.errors import ConfigError
from fedrank.core.registry import Registry
from fedrank.slates.world.best_slate import best_slate
from fedrank.slates.world.rollout import Policy
from fedrank.slates.world.satisfaction import NEUTRAL, Satisfaction, Scene

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
    def name(self) -> str:
        """``"choc"``, ``"kale"``, ``"random"``, or one of them a platform: ``"choc/kale"``."""
        names = [_NAMES[int(sign)] for sign in self.signs]
        return names[0] if len(set(names)) == 1 else "/".join(names)

    def act(self, memory, scene: Scene, key: jax.Array) -> jax.Array:
        """The slates, int32 [K, n]; the best candidate first."""
        slates = []
        # One platform at a time: selecting from [users, N] is several times faster on a CPU than from [users, K, N].
        for place, kaleness in enumerate(scene.documents):
            sign = jnp.asarray(self.signs[place], jnp.float32)
            chance = jax.random.uniform(jax.random.fold_in(key, place), kaleness.shape)
            score = jnp.where(sign == 0, chance, sign * self.world.chocolate(kaleness))
            slates.append(jax.lax.top_k(score, self.world.slate)[1])
        return jnp.stack(slates)


@partial(jax.tree_util.register_dataclass, data_fields=["slates"], meta_fields=["world"])
@dataclass(frozen=True)
class Constant(Policy):
    """The same places of the list in every round, whatever stands there: what a saturated positional network does.

    Attributes:
        world: The world.
        slates: int32 [K, n].
    """

    world: Satisfaction
    slates: jax.Array

    @property
    def name(self) -> str:
        """``"constant"``."""
        return "constant"

    def act(self, memory, scene: Scene, key: jax.Array) -> jax.Array:
        """The slates, int32 [K, n]."""
        return self.slates


@partial(jax.tree_util.register_dataclass, data_fields=[], meta_fields=["world"])
@dataclass(frozen=True)
class Myopic(Policy):
    """A yardstick: the slate with the highest expected engagement in this tick.

    It knows the world and sees the exposure; before a platform's turn, what is expected of it after the slates of those
    before.

    Attributes:
        world: The world.
    """

    world: Satisfaction

    @property
    def name(self) -> str:
        """``"myopic"``."""
        return "myopic"

    def act(self, memory, scene: Scene, key: jax.Array) -> jax.Array:
        """The slates, int32 [K, n]."""
        world = self.world

        def one_platform(exposure, kaleness):
            worth = world.mean_engagement(kaleness, exposure)
            slate = best_slate(world.choice, world.appeal(kaleness), worth, world.slate, jnp.float32(0))
            return expected_exposure(world, kaleness[slate], exposure), slate

        return jax.lax.scan(one_platform, scene.user.exposure, scene.documents)[1]


def expected_exposure(world: Satisfaction, shown: jax.Array, exposure: jax.Array) -> jax.Array:
    """The expected exposure after a tick.

    Args:
        world: The world.
        shown: float32 [n], kaleness of the slate, in slot order.
        exposure: float32 scalar, before the tick.
    """
    chances = world.choice.probabilities(world.appeal(shown))[:-1]
    chocolate = jnp.sum(chances * (world.chocolate(shown) - NEUTRAL))
    return world.memory_discount * exposure - 2.0 * chocolate


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
