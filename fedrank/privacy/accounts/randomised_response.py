"""The account of randomised response: what the reports of one person reveal, over a message and over a run.

The promise is about what leaves the device, and holds against the server itself and anybody who reads the messages.
The account composes the ε of single responses (:func:`fedrank.privacy.randomised_response.epsilon`) as if every
privatised value were sent by itself. A message carries only their mean, so that this is an upper bound.
"""

from __future__ import annotations

import math

from fedrank.core.errors import ConfigError
from fedrank.core.privacy_report import (
    AND_NOT,
    BASIC,
    DELTA,
    EVERYBODY,
    NOBODY,
    OF_A_RUN,
    SEED,
    SINGLE,
    AuditedBy,
    PrivacyReport,
    Promise,
    Unit,
    remark,
)
from fedrank.core.words import format_count
from fedrank.privacy.accounts.composition import basis_of, three_losses_epsilon
from fedrank.privacy.randomised_response import check, epsilon

#: What is not covered if every value is sent as it is.
REWARDS = "The rewards: they are sent as they are."


def account(
    *,
    p: float,
    n: int,
    interactions_per_message: int,
    rounds: int,
    antithetic: bool = True,
    delta: float = DELTA,
) -> PrivacyReport:
    """The privacy report of a run with randomised response.

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
    >>> [round(report.epsilon(unit, basis=BASIC), 1) for unit in (Unit.MESSAGE, Unit.USER)]
    [18.0, 4499.8]
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
    of_user = total * one if total else 0.0
    composed = composed_epsilon(p, n, total, delta)
    half = (Promise(Unit.HALF, interactions_per_message // 2 * one, basis=BASIC),) if antithetic else ()
    return PrivacyReport(
        mechanism="randomised response" if p < 1.0 else "none",
        trust=NOBODY if p < 1.0 else EVERYBODY,
        promises=(
            Promise(Unit.INTERACTION, one, basis=SINGLE),
            *half,
            Promise(Unit.MESSAGE, interactions_per_message * one, basis=BASIC),
            Promise(Unit.USER, composed, delta, basis_of(total)),
            Promise(Unit.USER, of_user, basis=BASIC),
        ),
        covers=_COVERS if p < 1.0 else (),
        not_covered=(*((REWARDS,) if p == 1.0 else ()), SEED, *OF_A_RUN),
        details={
            "p": p,
            "values": n,
            "delta": delta,
            "rounds": rounds,
            "interactions_per_round": interactions_per_message,
        },
        words=(_paragraph(p, n, interactions_per_message, rounds, of_user, composed, delta),),
        audit=AuditedBy("randomised-response", {"epsilon": one, "values": n}) if 1 / n < p < 1.0 else None,
    )


_COVERS = (
    "The rewards in the messages, and through them queries, results and clicks; nothing else about an interaction "
    "is sent.",
    "Against all readers of the messages, the server included, whatever ranker the server sent out.",
    "One interaction, with the ε of an interaction, which enters one message of the run; all interactions of one "
    "message, with the ε of a message.",
    "Everything a user did in the counted rounds, repeated and related queries included, with the ε of a user: by "
    "adding up for certain, by privacy loss distributions but for δ.",
)


def _paragraph(p: float, n: int, each: int, rounds: int, basic: float, composed: float, delta: float) -> str:
    interactions, one = format_count(each, "interaction"), epsilon(p, n)
    if one == math.inf:
        return (
            "Every value is sent as it is (p = 1). There is no differential privacy: whoever reads a message learns "
            f"the mean reward of {interactions}, and ε is infinite."
        )
    size = remark(min(basic, composed))
    return (
        f"Before a reward leaves the device it is replaced, with probability {1 - p:.3g}, by another of its {n:,} "
        f"values (randomised response). One interaction is protected with ε = {one:.3g}, without any trust in the "
        f"server: whatever it was, no message becomes more than {math.exp(one):,.3g} times as likely. A message tells "
        f"about {interactions} and has ε = {each * one:.3g} if all of them change. A user who sends "
        f"{format_count(rounds, 'message')} has, over the run, ε = {basic:.4g} by basic composition, and "
        f"ε = {composed:.4g} at δ = {delta:.0e}.{size}"
        f"{' The protection to rely on is the one per interaction.' if size else ''}{AND_NOT}"
    )


def composed_epsilon(p: float, n: int, times: int, delta: float) -> float:
    """ε at δ of ``times`` independent randomised responses, all of whose truths may change.

    The privacy loss of one response is +ε, 0 or −ε, with probabilities max(p, q), (n − 2) q and min(p, q), where
    q = (1 − p)/(n − 1). On a grid of step ε the privacy loss distribution is therefore exact, and so is its
    composition, up to floating-point error and a truncated tail of 1e-15. (Where the total is above about 700,
    dp-accounting rounds it up to a multiple of the single ε.) The composition also holds when later queries and
    rankers depend on earlier reports, because the same pair of distributions is the worst in each step (Zhu, Dong
    & Wang, AISTATS 2022).

    Args:
        p: Probability of the truth.
        n: Number of values.
        times: Number of responses, ≥ 0.
        delta: δ in (0, 1).

    Returns:
        ε ≥ 0, never above basic composition; ``inf`` for p = 1.
    """
    q = (1.0 - p) / (n - 1)
    return three_losses_epsilon(epsilon(p, n), max(p, q), min(p, q), times, delta)
