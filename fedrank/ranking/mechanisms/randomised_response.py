"""Randomised response on each reward, as in FOLtR-ES (Kharitonov, WSDM 2019, Section 3.3), and no privatisation."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int64
from typing_extensions import override

from fedrank.aggregation.differences import in_range
from fedrank.core.arrays import module_of
from fedrank.core.errors import ConfigError
from fedrank.core.fields import bound, setting
from fedrank.core.privacy_report import DELTA, Unit
from fedrank.metrics.online import OnlineMetric
from fedrank.privacy.accounts.randomised_response import account
from fedrank.privacy.audit import Audit
from fedrank.privacy.randomised_response import epsilon, probability
from fedrank.ranking.mechanisms import ONE_CLICK, RewardMechanism, click_once
from fedrank.ranking.on_device import ClicksToReply

#: p where neither p nor ε is given: the paper's choice for its main results (Section 6.3).
DEFAULT_P = 0.9


@dataclass(frozen=True)
class RandomisedResponse(RewardMechanism):
    """Each reward, one of n values, is sent as it is with probability p, else another value with equal probability.

    Attributes:
        n: Values of the reward; None: not bound to a run.
    """

    name = "randomised-response"
    implied_by = ("p", "epsilon_interaction")

    p: float | None = setting(
        None,
        f"Probability that an interaction's reward is sent as it is. Without any ε: {DEFAULT_P:g}.",
        replaces=("epsilon_interaction",),
    )
    epsilon_interaction: float | None = setting(
        None, "ε of one interaction, instead of p; the paper's unit.", low=0, high=1000, replaces=("p",)
    )
    n: int | None = bound()

    def __post_init__(self):
        super().__post_init__()
        if self.p is not None and self.epsilon_interaction is not None:
            raise ConfigError("privacy.p and privacy.epsilon_interaction say the same thing; give one of them.")

    @override
    def derive_settings(self):
        bare = self.p is None and self.epsilon_interaction is None
        return dataclasses.replace(self, p=DEFAULT_P) if bare else self

    @override
    def bind(self, bounds, metric):
        made = dataclasses.replace(super().bind(bounds, metric), n=metric.n)
        if not 1 / metric.n <= made.probability <= 1:
            raise ConfigError(
                f"p must be in [1/n, 1] = [{1 / metric.n:.4g}, 1] for {metric.name} with n = {metric.n} values, got "
                f"{made.probability}: with p < 1/n the true value would be sent less often than by chance."
            )
        return made

    @property
    def probability(self) -> float:
        """p; from ε where that is given, for which the mechanism must be bound to a run."""
        if self.epsilon_interaction is not None:
            return probability(self.epsilon_interaction, self.n or 2)
        return DEFAULT_P if self.p is None else self.p

    @property
    @override
    def interleaves(self):
        return self.probability == 1

    @classmethod
    @override
    def of_terms(cls, terms):
        return cls(p=terms.p)

    @override
    def terms(self):
        common = {"mechanism": "randomised-response", "epsilon": None, "inside": 0, "outside": 0, "clip": 1.0}
        return {**common, "p": self.probability}

    @override
    def check_halves(self, antithetic):
        return None

    @override
    def clicks_to_reply(self, metric, per_half, antithetic):
        return ClicksToReply(metric, per_half, antithetic, self.probability)

    @override
    def differences(self, to_reply, replies, arrived):
        xp, most = module_of(replies.plus, arrived), to_reply.per_half * to_reply.metric.largest
        plus, difference = replies.plus, xp.asarray(replies.plus).astype(xp.int32)
        minus = replies.minus if to_reply.antithetic else None
        if minus is not None:
            difference = difference - xp.asarray(minus).astype(xp.int32)
        return difference.astype(xp.float32), xp.asarray(arrived) & in_range(plus, minus, most)

    @override
    def account(self, to_reply, interactions, rounds, delta):
        return account(
            p=self.probability,
            n=to_reply.metric.n,
            interactions_per_message=interactions,
            rounds=rounds,
            antithetic=to_reply.antithetic,
            delta=delta,
        )

    @override
    def epsilon_round(self, to_reply, interactions, delta):
        # What composes over rounds takes half a second to import.
        return interactions * epsilon(self.probability, to_reply.metric.n)

    @classmethod
    @override
    def audit(cls, epsilon=1.0, delta=DELTA, values=11):
        """A message with one interaction a half: a sum of several hides more of each than is promised.

        Args:
            epsilon: ε of an interaction, in nats.
            delta: Not used: the promise has none.
            values: n, values of the reward, at least 2.
        """
        depth = 10
        every = np.minimum(np.arange(2**depth), values - 1).astype(np.int32)  # a first click: the next value
        metric = OnlineMetric("audited", depth, tuple(range(values)), max(1, values - 1), every)
        made = ClicksToReply(metric, 1, p=probability(epsilon, values))

        def sample(world: int, trials: int) -> Int64[np.ndarray, " trials"]:
            patterns, words = click_once(made, world, trials)
            reply = made.message(np.zeros(trials, np.uint32), made.sums(patterns, words, None, np), None, np)
            return np.asarray(reply.plus, np.int64)  # type: ignore[union-attr] - a Reply; the other half says nothing

        return Audit(cls.name, Unit.INTERACTION, ONE_CLICK, epsilon, sample)


@dataclass(frozen=True)
class NoPrivacy(RandomisedResponse):
    """Rewards are sent as they are."""

    name = "none"
    implied_by = ()

    p: float | None = bound(1.0)
    epsilon_interaction: float | None = bound()

    @classmethod
    @override
    def audit(cls, epsilon=1.0, delta=DELTA, values=11):
        """None: nothing is promised."""
        return None
