"""One privatised number a message, with an ε of all that a user ever does (:mod:`fedrank.privacy.piecewise`)."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Int64
from typing_extensions import override

from fedrank.core.arrays import module_of
from fedrank.core.errors import ConfigError
from fedrank.core.fields import bound, setting
from fedrank.core.privacy_report import DELTA, Unit
from fedrank.metrics.online import REWARDS
from fedrank.privacy.accounts import piecewise as piecewise_account
from fedrank.privacy.accounts.piecewise import Anonymity
from fedrank.privacy.accounts.shuffle import local_epsilon
from fedrank.privacy.audit import Audit
from fedrank.privacy.piecewise import WORDS, Piecewise, at_ends_of, best_clipped
from fedrank.privacy.randomised_response import os_words
from fedrank.ranking.mechanisms import Bounds, RewardMechanism
from fedrank.ranking.on_device.reply import ClicksToReply, clip_of


@dataclass(frozen=True)
class PiecewiseNumber(RewardMechanism):
    """The difference of the halves' sums is sent as one number, privatised by the piecewise mechanism.

    Attributes:
        member: Member of the family that is used; None: the one with the least variance.
    """

    name = "piecewise"
    implied_by = ("epsilon_user", "channel")
    one_number = True

    epsilon_user: float | None = setting(
        None,
        "ε of all that a user ever does, over all rounds that a device takes part in; one number a message.",
        low=0,
        high=1000,
    )
    clip: float | None = setting(
        None,
        "Largest difference of two rankers that a message tells, as a part of the largest there can be; 0.12/√B for B "
        "interactions if nothing is said.",
        low=1e-6,
        high=1,
    )
    channel: Literal["open", "anonymous"] = setting(
        "open",
        "anonymous: messages arrive through a channel that hides whose they are, so that epsilon_user (at delta) takes "
        "less noise.",
    )
    member: Piecewise | None = bound()

    def __post_init__(self):
        super().__post_init__()
        if not 0 < self.effective_clip <= 1 or self.channel not in ("open", "anonymous"):
            raise ConfigError(
                "privacy.clip must be in (0, 1] and privacy.channel 'open' or 'anonymous', got "
                f"{self.effective_clip} and {self.channel!r}."
            )

    @property
    def effective_clip(self) -> float:
        """The clip, also where none was given."""
        return clip_of((self.bounds or Bounds()).interactions) if self.clip is None else self.clip

    @override
    def derive_settings(self):
        if self.member is None:
            self.check_epsilon("epsilon_user")
        return self

    @override
    def bind(self, bounds, metric):
        if self.channel == "anonymous" and (bounds.dropout or bounds.late):
            raise ConfigError(
                "privacy.channel = 'anonymous' counts on all messages of a round to come in it: set devices.dropout "
                f"and devices.late to 0, got {bounds.dropout} and {bounds.late}."
            )
        if self.channel == "anonymous" and bounds.attackers:
            raise ConfigError(
                "privacy.channel = 'anonymous' counts on all messages of a round to be honest: attackers know which "
                f"are theirs. Set attack.share to 0, got {bounds.attackers}."
            )
        made = super().bind(bounds, metric).derive_settings()
        made.mechanism  # noqa: B018 - refuses an ε that is out of range
        return made

    @property
    @override
    def simulated_only(self):
        if self.channel == "open":
            return ""
        return (
            "privacy.channel = 'anonymous' can be simulated only: here a server knows which node or device sent what. "
            "Set privacy.channel to 'open'."
        )

    @classmethod
    @override
    def of_terms(cls, terms):
        return cls(epsilon_user=terms.epsilon, clip=terms.clip, member=terms.piecewise)

    @override
    def terms(self):
        member = {"inside": self.mechanism.inside, "outside": self.mechanism.outside, "clip": self.effective_clip}
        return {"mechanism": self.name, "p": 1.0, "epsilon": self.epsilon_message, **member}

    @property
    @override
    def of_a_user(self):
        return True

    @property
    @override
    def interleaves(self):
        return True

    @property
    def epsilon_message(self) -> float:
        """ε of all interactions behind one message, against a server that knows which device sent it.

        With an open channel that of a user, divided by the rounds that a device takes part in. With an anonymous
        channel the larger ε of a message for which a round's shuffled messages have that ε, at δ divided alike
        (:func:`fedrank.privacy.accounts.shuffle.local_epsilon`).
        """
        bounds = self.bounds or Bounds()
        if self.channel == "open":
            return (self.epsilon_user or 0.0) / bounds.times
        epsilon, delta = (self.epsilon_user or 0.0) / bounds.times, self.delta / bounds.times
        return local_epsilon(epsilon, bounds.clients or 1, delta, at_ends_of(self.effective_clip))

    @functools.cached_property
    def mechanism(self) -> Piecewise:
        """The member of the family that privatises the number of a message."""
        return self.member or best_clipped(self.epsilon_message, self.effective_clip)

    @override
    def clicks_to_reply(self, metric, per_half, antithetic):
        return ClicksToReply(metric, per_half, antithetic, piecewise=self.mechanism, clip=self.effective_clip)

    @override
    def differences(self, to_reply, replies, arrived):
        xp, mechanism = module_of(replies.report, arrived), self.mechanism
        report = xp.asarray(replies.report).astype(xp.int32)
        estimates = xp.asarray((mechanism.estimates * to_reply.largest_difference).astype(np.float32))
        honest = (report >= 0) & (report < mechanism.reports)
        return estimates[xp.clip(report, 0, mechanism.reports - 1)], xp.asarray(arrived) & honest

    @override
    def largest(self, to_reply):
        return to_reply.largest_difference * self.mechanism.scale

    @override
    def account(self, to_reply, interactions, rounds, delta):
        bounds = self.bounds or Bounds()
        times = bounds.participations or (None if bounds.population is None else 1)
        hidden = None if self.channel == "open" else Anonymity(bounds.clients or 1, self.delta)
        return piecewise_account.account(
            self.mechanism, interactions, rounds, delta, times, hidden, self.effective_clip
        )

    @classmethod
    @override
    def audit(cls, epsilon=1.0, delta=DELTA, interactions=4, inside=0, outside=0, clip=None):
        """A message about everything that a device did.

        Args:
            epsilon: ε of a message, in nats.
            delta: Not used: the promise has none.
            interactions: B, interactions behind a message; even.
            inside: Reports in the mechanism's window; 0: the best for this ε.
            outside: Reports outside it.
            clip: Largest difference that a message tells, as a part of the largest there can be; None: the default.
        """
        clip = clip_of(interactions) if clip is None else clip
        mechanism = Piecewise(epsilon, inside, outside) if inside else best_clipped(epsilon, clip)
        made = ClicksToReply(REWARDS.get("MaxRR")(10), max(1, interactions // 2), piecewise=mechanism, clip=clip)

        def sample(world: int, trials: int) -> Int64[np.ndarray, " trials"]:
            patterns = np.zeros((2, trials, made.per_half), np.int32)
            patterns[world] = 1  # a click on the first result
            sums = made.sums(patterns, np.zeros((*patterns.shape, 2), np.uint32), None, np)
            reply = made.message(np.zeros(trials, np.uint32), sums, os_words((trials, WORDS)), np)
            return np.asarray(reply.report, np.int64)  # type: ignore[union-attr] - a PrivateReply

        worlds = (
            "the user clicks on the first result of every list of one half and on none of the other, or the reverse"
        )
        return Audit(cls.name, Unit.MESSAGE, worlds, epsilon, sample)
