"""ε-local privacy of a vector that a device sends (Duchi, Jordan, Wainwright, JASA 2018, Section 4.2.3, L2 ball)."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from typing_extensions import override

from fedrank.core.arrays import module_of
from fedrank.core.errors import ConfigError
from fedrank.core.fields import bound, setting
from fedrank.core.lazy import jax
from fedrank.core.privacy_report import (
    BASIC,
    DELTA,
    NOBODY,
    OF_A_RUN,
    AuditedBy,
    PrivacyReport,
    Promise,
    Unit,
)
from fedrank.privacy.audit import Audit
from fedrank.privacy.quantise import clip_to_norm
from fedrank.ranking.mechanisms.weights import ClearWeights, WeightsReply


@dataclass(frozen=True)
class DuchiBall(ClearWeights):
    """Each device sends a random vector of one length, likelier on the side of the sphere where its own points.

    A vector v, clipped to the length C, becomes Cv/‖v‖ with probability 1/2 + ‖v‖/2C and −Cv/‖v‖ otherwise. The reply
    is uniform on the half of a sphere around that with probability e^ε/(e^ε + 1), else on the other half. Its radius
    makes the mean of the reply v::

        B = C · (e^ε + 1)/(e^ε − 1) · √π Γ((n + 1)/2)/Γ(n/2)

    ε is of one message, whatever is behind it; the server needs no trust. The error grows with √n/ε.
    """

    name = "duchi-ball"
    simulated = "random numbers in floating point give secrets away by their last bits: simulate it, deploy sums."
    changes = True

    epsilon: float = setting(1.0, "ε of one message, against everybody.", low=1e-3, high=100)
    clip: float = setting(1.0, "Largest L2 norm of the change that a device tells.", low=1e-9, high=1e9)
    clip_norm: str = bound("l2")

    in_the_clear, native = False, False  # type: ignore[assignment] - constants of this class

    def __post_init__(self):
        super().__post_init__()
        if not 0 < self.epsilon <= 100 or not self.clip:
            raise ConfigError(
                f"privacy.epsilon must be in (0, 100] and privacy.clip above 0, got {self.epsilon} and {self.clip}."
            )

    @functools.cached_property
    def radius(self) -> float:
        """B, the length of every reply."""
        along = math.lgamma((self.size + 1) / 2) - math.lgamma(self.size / 2)
        return self.clip / math.tanh(self.epsilon / 2) * math.sqrt(math.pi) * math.exp(along)

    @override
    def draw(self, key):
        side, half, around = jax.random.split(key, 3)
        return jax.random.uniform(side), jax.random.uniform(half), jax.random.normal(around, (self.size,))

    @override
    def message(self, vector, amount, noise):
        side, half, around = noise
        xp: Any = module_of(vector, around)
        vector = self.clip_vectors(vector)
        length = xp.sqrt(xp.sum(vector**2, axis=-1))
        turned = xp.where(side < 0.5 + length / (2 * self.clip), 1.0, -1.0)
        turned = turned * xp.where(half < 1 / (1 + math.exp(-self.epsilon)), 1.0, -1.0)
        # A vector of zeros points somewhere: both sides are equally likely then.
        own = xp.where((length > 0)[..., None], vector, xp.eye(self.size, dtype=xp.float32)[0])
        there = turned * xp.sum(own * around, axis=-1)
        scale = xp.where(there < 0, -1.0, 1.0) * self.radius / xp.sqrt(xp.sum(around**2, axis=-1))
        return WeightsReply((around * scale[..., None]).astype(xp.float32), amount)

    @override
    def clipped_again(self, vectors):
        return clip_to_norm(vectors, self.radius * (1 + 1e-5), "l2", module_of(vectors))  # honest ones are as long

    @override
    def combine(self, state, replies, arrived, rule, byzantine):
        change, heard, noise = super().combine(state, replies, arrived, rule, byzantine)
        return state.weights + change, heard, noise

    @override
    def account(self, rounds, delta):
        times = min(rounds, self.bounds.times) if self.bounds else rounds
        whole = Promise(Unit.USER, times * self.epsilon, basis=BASIC)
        return PrivacyReport(
            "Duchi, Jordan and Wainwright's ball",
            NOBODY,
            (Promise(Unit.MESSAGE, self.epsilon), whole),
            covers=("How the weights that a device sends change.",),
            not_covered=("How many interactions they come from.", *OF_A_RUN),
            details={"rounds": rounds, "clip": self.clip, "radius": self.radius},
            audit=AuditedBy(self.name, {"epsilon": self.epsilon}),
        )

    @classmethod
    @override
    def audit(cls, epsilon=1.0, delta=DELTA):
        """Two vectors of the largest length that point in opposite directions, told apart by the side of the reply.

        Args:
            epsilon: ε of a message, in nats.
            delta: Not used: the promise has none.
        """
        made = cls(epsilon=epsilon, size=8)

        def sample(world: int, trials: int) -> Any:
            rng = np.random.default_rng()
            noise = rng.random(trials), rng.random(trials), rng.normal(size=(trials, made.size))
            vectors = np.zeros((trials, made.size), np.float32)
            vectors[:, 0] = made.clip * (1 - 2 * world)
            sent = made.message(vectors, np.ones(trials, np.int32), noise).weights
            return (np.asarray(sent)[:, 0] > 0).astype(np.int64)

        return Audit(cls.name, Unit.MESSAGE, "a device's change of its weights, or its opposite", epsilon, sample)
