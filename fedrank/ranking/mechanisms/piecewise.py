"""One privatised number a message, with an ε of all that a user ever does (:mod:`fedrank.privacy.piecewise`).

**The account** says what that number reveals, over a message and a life. The promise is about what leaves the device,
and holds against the server itself and anybody who reads the messages. Its unit is all that a user did: the number is
the only thing in a message that depends on the user.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Int64
from typing_extensions import override

from fedrank.core.arrays import module_of
from fedrank.core.errors import ConfigError
from fedrank.core.fields import bound, setting
from fedrank.core.privacy_report import (
    AND_NOT,
    BASIC,
    DELTA,
    NOBODY,
    OF_A_RUN,
    SEED,
    AuditedBy,
    PrivacyReport,
    Promise,
    Unit,
    remark,
)
from fedrank.core.words import format_count
from fedrank.metrics.online import REWARDS
from fedrank.privacy.accounts.randomised_response import basis_of, three_losses_epsilon
from fedrank.privacy.accounts.shuffle import shuffled_epsilon
from fedrank.privacy.audit import Audit
from fedrank.privacy.piecewise import (
    LARGEST_EPSILON,
    WORDS,
    Piecewise,
    at_ends_of,
    best_clipped,
    clipped_second_moment,
    local_epsilon,
)
from fedrank.privacy.randomised_response import os_words
from fedrank.ranking.mechanisms import Bounds, RewardMechanism
from fedrank.ranking.on_device import ClicksToReply, clip_of

#: How ε of a user was found where messages are anonymous.
AMONG_OTHERS = "an anonymous channel, rounds added up"


@dataclass(frozen=True)
class Anonymity:
    """A channel that takes messages to the server without saying whose they are.

    Attributes:
        reports: Messages of a round among which each is hidden, at least 1.
        delta: δ of the ε over all messages of a user, in (0, 1).
    """

    reports: int
    delta: float


def account(
    mechanism: Piecewise,
    interactions: int,
    messages: int,
    delta: float,
    participations: int | None = None,
    anonymity: Anonymity | None = None,
    clip: float = 1.0,
) -> PrivacyReport:
    """The privacy report of a run with the piecewise mechanism.

    Args:
        mechanism: What privatises the number of a message.
        interactions: Interactions behind one message.
        messages: Messages that a user sends in the run; 0 before it starts.
        delta: δ of the composed ε of a user, in (0, 1).
        participations: Most messages that a device ever sends, where something sees to it; None: nothing does.
        anonymity: The anonymous channel that messages take; None: they take none.
        clip: Largest number that is told, as a part of the largest there can be: for an audit; no ε depends on it.

    Raises:
        ConfigError: ``messages`` is negative, or δ out of range.

    >>> report = account(Piecewise(1.0), interactions=4, messages=1, delta=1e-6, participations=1)
    >>> report.epsilon(Unit.USER)
    1.0
    """
    if messages < 0:
        raise ConfigError(f"messages must be at least 0, got {messages}.")
    if not 0.0 < delta < 1.0:
        raise ConfigError(f"delta must be in (0, 1), got {delta}.")
    # Rounded down to an integer of 2³² words, the exact ε is a little less; a promise of the number asked for holds.
    one, user = mechanism.epsilon, messages * mechanism.epsilon
    promises = [Promise(Unit.INTERACTION, one), Promise(Unit.MESSAGE, one)]
    trust, hidden = NOBODY, None
    if anonymity is not None and messages:
        each = shuffled_epsilon(mechanism, anonymity.reports, anonymity.delta / messages)
        hidden = Promise(Unit.USER, messages * each, anonymity.delta, AMONG_OTHERS)
        promises.append(hidden)
        trust = "whoever runs the anonymous channel, not to say whose a message is or which two are one device's"
    if messages > 1:
        composed = composed_epsilon(mechanism, messages, delta)
        if composed < user:
            promises.append(Promise(Unit.USER, composed, delta, basis_of(messages)))
    return PrivacyReport(
        mechanism="piecewise mechanism",
        trust=trust,
        promises=(*promises, Promise(Unit.USER, user, basis=BASIC)),
        covers=_COVERS if hidden is None else (_HIDDEN, *_COVERS),
        not_covered=(SEED, *OF_A_RUN) if hidden is None else (MADE_UP, SEED, *OF_A_RUN),
        details={
            "reports": mechanism.reports,
            "window": mechanism.inside,
            "exact_epsilon_message": mechanism.exact_epsilon,
            "variance_worst": mechanism.worst_variance,
            "delta": delta,
            "rounds": messages,
            "participations": participations,
            "interactions_per_round": interactions,
        },
        words=(*_among_others(hidden, anonymity), _paragraph(mechanism, interactions, messages, user, participations)),
        audit=AuditedBy(
            "piecewise",
            {
                "epsilon": mechanism.epsilon,
                "inside": mechanism.inside,
                "outside": mechanism.outside,
                "interactions": interactions,
                "clip": clip,
            },
        ),
    )


def composed_epsilon(mechanism: Piecewise, times: int, delta: float) -> float:
    """ε at δ of ``times`` reports, all of whose truths may change.

    The worst pair of truths has windows that overlap least. Its privacy loss is +ε on the reports in one window only,
    −ε on those in the other only, and 0 elsewhere.

    Args:
        mechanism: What makes a report.
        times: Number of reports, ≥ 0.
        delta: δ in (0, 1).
    """
    return three_losses_epsilon(mechanism.epsilon, *mechanism.chances, times, delta)


_COVERS = (
    "Everything a user did: all searches, results and clicks behind all counted messages, with the ε of a user; "
    "nothing else about them is sent.",
    "Against all readers of the messages, the server included, whatever ranker the server sent out.",
    "All that is behind one message, with the ε of a message.",
)


#: What a promise with a δ that rests on an anonymous channel is about, and what it is not.
_HIDDEN = (
    "With the ε of a user that has a δ: against all who cannot tell whose a message is, where all devices of a "
    "round get the same ranker. All that follows is about the ε without a δ."
)
MADE_UP = (
    "Messages of a round that an attacker made or knows hide no other: the ε that has a δ counts on all of them to "
    "come from devices that follow the protocol."
)


def _among_others(hidden: Promise | None, anonymity: Anonymity | None) -> tuple[str, ...]:
    """The promise of an anonymous channel in a paragraph; none without one."""
    if hidden is None or anonymity is None:
        return ()
    return (
        "Over all of training, whatever a user did changes what anybody sees by a factor of at most "
        f"e^{hidden.epsilon:.4g} = {math.exp(hidden.epsilon):,.3g}, but for a probability of δ = {hidden.delta:.0e}, "
        f"as long as no reader knows which of the {anonymity.reports:,} messages of a round is whose (Feldman, "
        "McMillan and Talwar 2021). Messages need a channel for that, such as a mix or a relay that two parties run: a "
        "server that devices talk to knows their addresses, and one that hands different rankers to different devices "
        "knows more. Against a reader who knows whose a message is, the next paragraph holds.",
    )


def _paragraph(mechanism: Piecewise, each: int, messages: int, user: float, participations: int | None) -> str:
    over = "Over all of training" if participations is not None else f"Over {format_count(messages, 'message')}"
    factor = f"{math.exp(user):,.3g}" if user < 500 else "∞"
    limit = (
        f"A device sends at most {format_count(participations, 'message')}, ever."
        if participations is not None
        else "Nothing limits how many messages a device sends; every further one adds its ε."
    )
    return (
        f"{over}, whatever a user did changes what anybody sees by a factor of at most e^{user:.4g} = {factor}, "
        f"without any trust in the server.{remark(user)} A message is the seed of a perturbation and one of "
        f"{mechanism.reports} numbers about {format_count(each, 'interaction')} together, drawn so that each is at "
        f"most e^{mechanism.epsilon:.4g} times as likely for one user as for any other (piecewise mechanism). "
        f"{limit}{AND_NOT}"
    )


@dataclass(frozen=True)
class PiecewiseNumber(RewardMechanism):
    """The difference of the halves' sums is sent as one number, privatised by the piecewise mechanism.

    Attributes:
        largest_epsilon: Largest ε of a message.
        member: Member of the family that is used; None: the one with the least variance.
    """

    name = "piecewise"
    implied_by = ("epsilon_user", "channel")
    one_number = True
    words = WORDS
    largest_epsilon = LARGEST_EPSILON

    epsilon_user: float = setting(
        1.0,
        "ε of all that a user ever does, in all rounds of a device; one number a message.",
        low=0,
        high=1000,
    )
    clip: float | None = setting(
        None,
        "Largest difference of two rankers that is told, a part of the largest possible; without it 0.12/√B.",
        low=1e-6,
        high=1,
    )
    channel: Literal["open", "anonymous"] = setting(
        "open",
        "anonymous: a channel hides whose a message is; ε (at delta) takes less noise.",
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
        return cls(epsilon_user=terms.epsilon, clip=terms.clip, member=terms.number_mechanism)

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
        (:func:`fedrank.privacy.piecewise.local_epsilon`).
        """
        bounds = self.bounds or Bounds()
        if self.channel == "open":
            return self.epsilon_user / bounds.times
        epsilon, delta = self.epsilon_user / bounds.times, self.delta / bounds.times
        return local_epsilon(epsilon, bounds.clients or 1, delta, at_ends_of(self.effective_clip))

    @override
    def second_moment(self, epsilon):
        return clipped_second_moment(epsilon)

    @functools.cached_property
    def mechanism(self) -> Piecewise:
        """The member of the family that privatises the number of a message."""
        return self.member or best_clipped(self.epsilon_message, self.effective_clip)

    @override
    def clicks_to_reply(self, metric, per_half, antithetic):
        return ClicksToReply(metric, per_half, antithetic, number_mechanism=self.mechanism, clip=self.effective_clip)

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
        return account(self.mechanism, interactions, rounds, delta, times, hidden, self.effective_clip)

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
        made = ClicksToReply(REWARDS.get("MaxRR")(10), max(1, interactions // 2), number_mechanism=mechanism, clip=clip)

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
