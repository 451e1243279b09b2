"""Discrete noise on the two sums of rewards that a device sends: the paper's outlook on continuous metrics."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int64
from typing_extensions import override

from fedrank.aggregation.differences import in_range
from fedrank.core.arrays import module_of
from fedrank.core.fields import bound, setting
from fedrank.core.privacy_report import DELTA, Unit
from fedrank.metrics.online import REWARDS
from fedrank.privacy.audit import Audit
from fedrank.privacy.noisy_values import NoisyValues
from fedrank.ranking.mechanisms import ONE_CLICK, RewardMechanism, click_once
from fedrank.ranking.on_device import ClicksToReply

#: Laplace noise exceeds this many scales with a probability of e⁻⁴⁰, Gaussian noise with a much smaller one.
_TAIL = 40


@dataclass(frozen=True)
class LaplaceSums(RewardMechanism):
    """Discrete Laplace noise on each sum of rewards.

    Attributes:
        largest_reward: Largest reward, in steps: what one interaction can change; 0: not bound to a run.
    """

    name = "laplace"

    epsilon_interaction: float | None = setting(None, "ε of one interaction.", low=0, high=1000)
    largest_reward: int = bound(0)

    @override
    def derive_settings(self):
        self.check_epsilon("epsilon_interaction")
        return self

    @override
    def clicks_to_reply(self, metric, per_half, antithetic):
        return ClicksToReply(metric, per_half, antithetic, noisy=True)

    @classmethod
    @override
    def of_terms(cls, terms):
        return cls(epsilon_interaction=terms.epsilon)

    @override
    def terms(self):
        common = {"mechanism": self.name, "p": 1.0, "inside": 0, "outside": 0, "clip": 1.0}
        return {**common, "epsilon": self.epsilon_interaction}

    @override
    def bind(self, bounds, metric):
        return dataclasses.replace(super().bind(bounds, metric).derive_settings(), largest_reward=metric.largest)

    @property
    def noise(self) -> NoisyValues:
        """The noise on a sum."""
        return NoisyValues(self.name, self.epsilon_interaction or 0.0, self.delta, self.largest_reward)

    @override
    def draw(self, key, halves):
        return self.noise.draw(key, (halves,))

    @override
    def draw_from_os(self, halves):
        return self.noise.draw_from_os((halves,))

    @override
    def draw_of_cohort(self, noise, halves):
        return np.moveaxis(noise.laplace(self.noise.scale, halves), -1, 0)

    @override
    def differences(self, to_reply, replies, arrived):
        xp, most = module_of(replies.plus, arrived), to_reply.per_half * to_reply.metric.largest
        difference = xp.asarray(replies.plus).astype(xp.int32) - xp.asarray(replies.minus).astype(xp.int32)
        tail = math.ceil(_TAIL * self.noise.scale)
        honest = in_range(replies.plus + tail, replies.minus + tail, most + 2 * tail)
        return difference.astype(xp.float32), xp.asarray(arrived) & honest

    @override
    def account(self, to_reply, interactions, rounds, delta):
        return self.noise.account(to_reply.per_half, 2, rounds, delta)

    @classmethod
    @override
    def audit(cls, epsilon=1.0, delta=DELTA):
        metric = REWARDS.get("MaxRR")(10)
        made = ClicksToReply(metric, 1, noisy=True)
        noise = NoisyValues(cls.name, epsilon, delta, metric.largest)

        def sample(world: int, trials: int) -> Int64[np.ndarray, " trials"]:
            patterns, words = click_once(made, world, trials)
            drawn = np.stack([np.asarray(noise.draw_from_os((trials,))), np.zeros(trials, np.int32)])
            reply = made.message(np.zeros(trials, np.uint32), made.sums(patterns, words, None, np), drawn, np)
            return np.asarray(reply.plus, np.int64)  # type: ignore[union-attr] - a NoisyReply; the other half has no part

        gaussian = cls.name == "gaussian"
        # Noise of devices is drawn number by number.
        said = (epsilon, sample, delta if gaussian else 0.0, gaussian, True, 50_000)
        return Audit(f"{cls.name}-sums", Unit.INTERACTION, ONE_CLICK, *said)


@dataclass(frozen=True)
class GaussianSums(LaplaceSums):
    """Discrete Gaussian noise on each sum of rewards, with ``delta`` of one interaction."""

    name = "gaussian"

    @override
    def draw_of_cohort(self, noise, halves):
        return np.moveaxis(noise.gaussian(self.noise.scale, halves), -1, 0)
