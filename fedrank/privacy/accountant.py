"""The accountant: what the reports of one person reveal, added up over a message and over a run.

Local differential privacy: the promise is about what leaves the device, and holds against the server itself
and anybody who reads the messages. Each ε has a unit, the thing that may change without the messages becoming
more than e^ε times as likely:

*interaction*   one query of one user, with its results, clicks and reward.

*message*       everything that the message tells about: all its interactions at once.

*user*          everything a person did in the whole run.

The accountant composes the ε of randomised response (:func:`fedrank.privacy.randomised_response.epsilon`) as
if every privatised value were sent by itself. A message carries only their mean, so that this is an upper
bound.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from fedrank.core.errors import ConfigError
from fedrank.privacy.randomised_response import check, epsilon

#: δ of the tighter bound for a user, unless told otherwise: below one in the number of users of a large application.
DELTA = 1e-6

#: Compositions beyond this are bounded in closed form: the exact distribution would take minutes.
_EXACT = 1_000_000

#: The name of the mechanism in ``privacy.json``.
MECHANISM = "randomised response"

#: What no ε of a device's messages promises.
NOT_COVERED = (
    "That a person takes part, in which rounds, and how often.",
    "What carries a message: network address, time of sending, and anything the transport adds.",
    "The seed. It must be drawn without looking at any data and be used for the perturbation alone; "
    "then it says nothing about the person, but no ε says so.",
    "Devices whose random numbers somebody else knows.",
    "What the trained ranker shows about people in general. It may apply to somebody who never took part.",
    "Whoever can read the device itself.",
)


@dataclass(frozen=True)
class PrivacyReport:
    """The privacy of a run, per unit. All ε in nats; ``inf`` where nothing is promised.

    Attributes:
        mechanism: What is done to each value before it is used.
        p: Probability that a value is the true one.
        values: Number n of values the metric takes.
        epsilon_interaction: ε of one interaction, δ = 0: one interaction changes, all else stays. It is also
            the ε of one interaction in a message and in the run, since each interaction enters one message
            only.
        epsilon_half: ε of one of the two numbers in an antithetic message, δ = 0: all interactions behind it
            change. None if the message has a single number.
        epsilon_message: ε of one message, δ = 0: all its interactions change.
        epsilon_user_basic: ε of a user over the run by basic composition, δ = 0: everything the user did
            changes.
        epsilon_user_pld: ε of a user over the run at ``delta``, by composing the exact privacy loss
            distribution.
        delta: δ of ``epsilon_user_pld``.
        rounds: Messages a user sends in the run.
        interactions_per_round: Interactions B in one message.
        covers: What the numbers promise, in sentences.
        not_covered: What no number here promises, in sentences.
    """

    mechanism: str
    p: float
    values: int
    epsilon_interaction: float
    epsilon_half: float | None
    epsilon_message: float
    epsilon_user_basic: float
    epsilon_user_pld: float
    delta: float
    rounds: int
    interactions_per_round: int
    covers: tuple[str, ...]
    not_covered: tuple[str, ...]

    @property
    def epsilon_round(self) -> float:
        """ε of one message; a device sends one a round."""
        return self.epsilon_message

    def as_json(self) -> dict[str, Any]:
        """The content of ``privacy.json``; an infinite ε becomes ``None``, as JSON has no infinity."""
        names = [f.name for f in fields(self) if f.name not in ("covers", "not_covered")]
        content = {name: getattr(self, name) for name in names}
        content = {k: None if v == math.inf else v for k, v in content.items()}
        return {**content, "covers": list(self.covers), "not_covered": list(self.not_covered)}

    def in_words(self) -> str:
        """A paragraph for somebody who has to decide whether this may be deployed."""
        if self.epsilon_interaction == math.inf:
            return (
                "Every value is sent as it is (p = 1). There is no differential privacy: whoever reads a message "
                f"learns the mean reward of {_count(self.interactions_per_round, 'interaction')}, and ε is infinite."
            )
        size = (
            " An ε of this size over a run is a formal bound with little meaning of its own; the protection to rely on "
            "is the one per interaction."
            if min(self.epsilon_user_basic, self.epsilon_user_pld) > 20
            else ""
        )
        return (
            f"Before a reward leaves the device it is replaced, with probability {1 - self.p:.3g}, by another of its "
            f"{self.values:,} values (randomised response). One interaction is protected with "
            f"ε = {self.epsilon_interaction:.3g}: whatever it was, no message becomes more than "
            f"{math.exp(self.epsilon_interaction):,.3g} times as likely. A message tells about "
            f"{_count(self.interactions_per_round, 'interaction')} and has ε = {self.epsilon_message:.3g} if all of "
            f"them change. Somebody who sends {_count(self.rounds, 'message')} has, over the run, "
            f"ε = {self.epsilon_user_basic:.4g} by basic composition, and ε = {self.epsilon_user_pld:.4g} at "
            f"δ = {self.delta:.0e}.{size} Not covered, among other things: that a person takes part, when, and from "
            "which network address."
        )


#: The same of a run that was counted beforehand, and simulated.
_OF_A_RUN = (
    "Rounds beyond those counted here: every further message adds to the ε of its user.",
    "People in a simulation. All its random numbers follow from the run's seed, so that it protects nobody and only "
    "shows what a deployed protocol would promise.",
)


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def account(
    *,
    p: float,
    n: int,
    interactions_per_message: int,
    rounds: int,
    antithetic: bool = True,
    delta: float = DELTA,
) -> PrivacyReport:
    """What randomised response promises for a run.

    Args:
        p: Probability of the truth, in (0, 1].
        n: Number of values of the metric.
        interactions_per_message: Interactions B behind one message, in both halves together.
        rounds: Messages a user sends in the run; 0 before it starts.
        antithetic: A message carries two means, each of B/2 interactions; else one mean of B.
        delta: δ of the composed ε of a user, in (0, 1).

    Raises:
        ConfigError: An argument is out of range, or B is odd although there are two halves.

    >>> report = account(p=0.9, n=11, interactions_per_message=4, rounds=250)
    >>> round(report.epsilon_interaction, 2), round(report.epsilon_message, 2), round(report.epsilon_user_basic)
    (4.5, 18.0, 4500)
    """
    check(p, n)
    if interactions_per_message < 1 or (antithetic and interactions_per_message % 2):
        raise ConfigError(
            f"interactions of a message must be {'even, for two halves' if antithetic else 'at least 1'}, "
            f"got {interactions_per_message}. Use an even number, or no antithetic halves (--no-antithetic)."
        )
    if rounds < 0:
        raise ConfigError(f"rounds must be at least 0, got {rounds}.")
    if not 0.0 < delta < 1.0:
        raise ConfigError(f"delta must be in (0, 1), got {delta}. Basic composition needs no delta.")
    one = epsilon(p, n)
    total = interactions_per_message * rounds
    return PrivacyReport(
        mechanism=MECHANISM if p < 1.0 else "none",
        p=p,
        values=n,
        epsilon_interaction=one,
        epsilon_half=interactions_per_message // 2 * one if antithetic else None,
        epsilon_message=interactions_per_message * one,
        epsilon_user_basic=total * one if total else 0.0,
        epsilon_user_pld=composed_epsilon(p, n, total, delta),
        delta=delta,
        rounds=rounds,
        interactions_per_round=interactions_per_message,
        covers=_covers(one),
        not_covered=(*(("The rewards: they are sent as they are.",) if p == 1.0 else ()), *NOT_COVERED, *_OF_A_RUN),
    )


def _covers(one: float) -> tuple[str, ...]:
    if one == math.inf:
        return ()
    return (
        "The rewards in the messages, and through them queries, results and clicks; nothing else about an interaction "
        "is sent.",
        "Against everybody who reads the messages, the server included, whatever ranker the server sent out.",
        "One interaction, with the ε of an interaction; all interactions of one message, with the ε of a message.",
        "Everything a user did in the counted rounds, repeated and related queries included, with the ε of a user: by "
        "adding up for certain, by privacy loss distributions but for δ.",
    )


def composed_epsilon(p: float, n: int, times: int, delta: float) -> float:
    """ε at δ of ``times`` independent randomised responses, all of whose truths may change.

    The privacy loss of one response is +ε, 0 or −ε, with probabilities max(p, q), (n − 2) q and min(p, q), where
    q = (1 − p)/(n − 1). On a grid of step ε the privacy loss distribution is therefore exact, and so is its
    composition, up to floating-point error and a truncated tail of 1e-15. (Where the total is above about 700,
    dp-accounting rounds it up to a multiple of the single ε.) The composition also holds when later queries and
    rankers depend on earlier reports, because the same pair of distributions is the worst in each step (Zhu, Dong
    & Wang, AISTATS 2022).

    Beyond a million responses the tail is bounded by Hoeffding's inequality instead: the losses lie in [−ε, ε] and have
    the mean ``|p − q| ε``, so ``T |p − q| ε + ε √(2 T log(1/δ))`` holds.

    Args:
        p: Probability of the truth.
        n: Number of values.
        times: Number of responses, ≥ 0.
        delta: δ in (0, 1).

    Returns:
        ε ≥ 0, never above basic composition; ``inf`` for p = 1.
    """
    from dp_accounting.pld import pld_pmf, privacy_loss_distribution

    one = epsilon(p, n)
    if times == 0 or one in (0.0, math.inf):
        return one if times else 0.0
    q = (1.0 - p) / (n - 1)
    if times > _EXACT:
        return min(times * one, times * abs(p - q) * one + one * math.sqrt(2 * times * math.log(1 / delta)))
    losses = {1: max(p, q), 0: (n - 2) * q, -1: min(p, q)}
    pmf = pld_pmf.create_pmf(losses, discretization=one, infinity_mass=0.0, pessimistic_estimate=True)
    composed = privacy_loss_distribution.PrivacyLossDistribution(pmf).self_compose(times)
    with np.errstate(over="ignore"):  # e^ε beyond double precision: compared with, never used
        return min(float(composed.get_epsilon_for_delta(delta)), times * one)
