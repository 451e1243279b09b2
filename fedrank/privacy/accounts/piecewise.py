"""The account of the piecewise mechanism: what one privatised number a message reveals, over a message and a life.

The promise is about what leaves the device, and holds against the server itself and anybody who reads the messages. Its
unit is all that a user did: the number is the only thing in a message that depends on the user.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from fedrank.core.errors import ConfigError
from fedrank.core.privacy_report import (
    AND_NOT,
    BASIC,
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
from fedrank.privacy.accounts.composition import basis_of, three_losses_epsilon
from fedrank.privacy.accounts.shuffle import shuffled_epsilon
from fedrank.privacy.piecewise import Piecewise

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
    apart = min(mechanism.inside, mechanism.outside)
    inside = mechanism.threshold / 2**32
    likely, unlikely = apart * inside / mechanism.inside, apart * (1 - inside) / mechanism.outside
    return three_losses_epsilon(mechanism.epsilon, likely, unlikely, times, delta)


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
