"""What platforms and coordinator keep where only sums are seen, and the grid on which numbers are summed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fedrank.core.protocol import Encounter
from fedrank.privacy.quantise import check_sum, dequantise, quantise
from fedrank.slates.vertical_slate.settings import SlateSettings
from fedrank.slates.vertical_slate.state import (
    PlatformOwn,
)
from fedrank.slates.vertical_slate.visits import Visits

#: To the nearest step. Towards zero, what is summed would shrink.
_ROUNDING = "nearest"


@dataclass(frozen=True)
class Grid:
    """Numbers as whole steps, which can be summed modulo 2³².

    Attributes:
        clip: How far a number may be from the middle, in units; what is beyond is set to it.
        steps: Steps of a unit, a power of two.
        centre: The middle: a public number.
        unit: A unit.
    """

    clip: float
    steps: int
    centre: float = 0.0
    unit: float = 1.0

    def check(self, platforms: int, noise: int = 0) -> None:
        """Refuse a sum over so many platforms that may run over.

        Args:
            platforms: K.
            noise: Largest noise of one platform, in steps.

        Raises:
            ConfigError: It may.
        """
        check_sum(platforms, self.clip, self.steps, platforms * noise)

    def words(self, values: jax.Array, noise: jax.Array | None = None) -> jax.Array:
        """Numbers to steps modulo 2³²: uint32 of the argument's shape.

        Args:
            values: float32 [...]; what is not a number becomes the middle.
            noise: int32 [...], in steps; None: none.
        """
        part = (values - jnp.float32(self.centre)) * jnp.float32(1.0 / self.unit)
        steps = quantise(part, self.steps, self.clip, _ROUNDING, xp=jnp)
        return (steps if noise is None else steps + noise).astype(jnp.uint32)

    def mean(self, total: jax.Array, count: int) -> jax.Array:
        """A sum of so many numbers' steps to their mean: float32 of the argument's shape.

        Args:
            total: uint32 [...], modulo 2³².
            count: How many numbers are in it.
        """
        return dequantise(total, self.steps, jnp) * jnp.float32(self.unit / count) + jnp.float32(self.centre)


class PooledOwn(NamedTuple):
    """What a platform has for itself.

    Attributes:
        platform: As in FedSlate.
        now: uint32 [N], what it last sent of a round: to be taken out of the sum.
        batch: uint32 [B, N], of a batch.
        following: uint32 [B, N], likewise.
        targets: float32 [B], its own targets; zeros without feedback.
    """

    platform: PlatformOwn
    now: Any
    batch: Any
    following: Any
    targets: Any

    @property
    def weights(self) -> Any:
        """Its Q-network, float32 [P]."""
        return self.platform.weights

    @property
    def choice(self) -> Any:
        """Its choice model, float32 [2]."""
        return self.platform.choice


class PooledState(NamedTuple):
    """What the coordinator has: of platforms nothing but sums.

    Attributes:
        round: uint32, rounds so far.
        key: Of its own chance, which moments to learn from.
        weights: float32 [H], the federated network Ω.
        target: float32 [H], its target network.
        optimiser: State of its Adam.
        looked: bool, whether everybody was heard in this round.
        values: uint32 [N], the sum of values of this round.
        whole: bool, whether everybody was heard for the batch, and then for its targets.
        batch: uint32 [B, N], the sum of values of the batch.
        following: uint32 [B, N], the same of target networks, one round later.
        targets: float32 [B], mean target of the platforms with feedback.
        choice: float32 [2], mean choice model of those.
    """

    round: Any
    key: Any
    weights: Any
    target: Any
    optimiser: Any
    looked: Any
    values: Any
    whole: Any
    batch: Any
    following: Any
    targets: Any
    choice: Any


@dataclass(frozen=True)
class PooledVisits(Encounter):
    """The users of FedSlate.

    Attributes:
        settings: The settings, and the world among them.
    """

    settings: SlateSettings

    def begin(self, key: Any, own: PooledOwn) -> tuple[Any, PooledOwn]:
        """As :meth:`Visits.begin`."""
        world, platform = Visits(self.settings).begin(key, own.platform)
        return world, own._replace(platform=platform)

    def happen(self, world: Any, own: PooledOwn, key: Any, number: Any) -> tuple[Any, PooledOwn, dict[str, Any]]:
        """As :meth:`Visits.happen`."""
        world, platform, seen = Visits(self.settings).happen(world, own.platform, key, number)
        return world, own._replace(platform=platform), seen


def summed(words: jax.Array, arrived: jax.Array) -> jax.Array:
    """All that a coordinator may use of replies: their sum modulo 2³²; zeros unless everybody was heard.

    Args:
        words: uint32 [K, ...].
        arrived: bool [K].
    """
    total = jnp.sum(words.astype(jnp.uint32), axis=0, dtype=jnp.uint32)
    return jnp.where(jnp.all(arrived), total, jnp.zeros_like(total))
