"""The account of randomised response: what the reports of one person reveal, over a message and over a run.

The promise is about what leaves the device, and holds against the server itself and anybody who reads the messages.
The account composes the ε of single responses (:func:`fedrank.privacy.randomised_response.epsilon`) as if every
privatised value were sent by itself. A message carries only their mean, so that this is an upper bound.

Its privacy loss is +ε, 0 or −ε: such mechanisms are composed here by their distributions.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

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
from fedrank.privacy.randomised_response import check, epsilon

if TYPE_CHECKING:
    from jaxtyping import Float64  # for type checkers: a device has NumPy alone

#: Compositions beyond this are bounded in closed form.
_EXACT = 1_000_000
#: Probability of totals that are left out of a distribution, and counted as if they gave everything away.
_LEFT_OUT = 1e-15


def basis_of(times: int) -> str:
    """The name, for a report, of how :func:`three_losses_epsilon` composes ``times`` releases."""
    return "privacy loss distribution" if times <= _EXACT else "Hoeffding's bound"


def three_losses_epsilon(epsilon: float, likely: float, unlikely: float, times: int, delta: float) -> float:
    """ε at δ of independent releases, each with a privacy loss of +ε, −ε or 0.

    The total is a multiple of ε, and its distribution the T-th power of a characteristic function: exact up to
    floating-point error and a truncated tail of 1e-15 (Koskela, Jälkö and Honkela, *Computing tight differential
    privacy guarantees using FFT*, AISTATS 2020, on whose grid these losses lie).

    Beyond a million releases the tail is bounded by Hoeffding's inequality instead: the losses lie in [−ε, ε] and have
    the mean m = (``likely`` − ``unlikely``) ε, so T m + ε √(2 T log(1/δ)) holds.

    Args:
        epsilon: ε ≥ 0 of one release; may be infinite.
        likely: Probability of the loss +ε.
        unlikely: Probability of the loss −ε.
        times: Number of releases T, ≥ 0.
        delta: δ in (0, 1).

    Returns:
        ε ≥ 0, never above basic composition.
    """
    if times == 0 or epsilon in (0.0, math.inf):
        return epsilon if times else 0.0
    if times > _EXACT:
        mean, tail = times * (likely - unlikely) * epsilon, epsilon * math.sqrt(2 * times * math.log(1 / delta))
        return min(times * epsilon, mean + tail)
    totals, probabilities, above = _distribution(likely, unlikely, times)
    # δ(e) = left out + Σ P(total = k) (1 − exp(e − k ε)) over k ε > e. From the largest total down, both sums are
    # those of all totals from k on; the second is times exp(k ε), so that nothing overflows.
    fades, weighed = math.exp(-epsilon * totals.step), 0.0
    for total, p in zip(reversed(totals), reversed(probabilities.tolist()), strict=True):
        above, weighed = above + p, weighed * fades + p
        if above - weighed * fades > delta or total == totals.start:  # so at the next lower total; there is none
            break
    if above <= delta:
        return 0.0
    found = total * epsilon + math.log((above - delta) / weighed) if weighed else math.inf
    return min(max(0.0, found), times * epsilon)


def _distribution(likely: float, unlikely: float, times: int) -> tuple[range, Float64[np.ndarray, " totals"], float]:
    """The distribution of a sum of ``times`` numbers that are 1, −1 or 0.

    Returns:
        The totals, float64 [totals]: their probabilities, and how much is left out.
    """
    none = 1.0 - likely - unlikely
    none = none if none > 1e-15 else 0.0  # what rounding leaves of two probabilities that add up to 1
    # Without zeros totals are all even or all odd: twice the number of ones, less T.
    step, shift, smallest = (1, 0, -1) if none else (2, -times, 0)
    each = ((likely, 1), (unlikely, smallest), (none, 0))
    mean = sum(p * value for p, value in each)
    middle, half = round(times * mean), math.ceil(math.sqrt(2 * times * math.log(2 / _LEFT_OUT))) + 1  # Hoeffding
    lowest, highest = max(smallest * times, middle - half), min(times, middle + half)
    n = highest - lowest + 1
    turn = 2 * math.pi * np.arange(n // 2 + 1) / n
    # The characteristic function of a number less its mean, less 1. Terms that cancel at small angles are left out:
    # what is lost in them would be multiplied by the number of releases.
    real = -2 * sum(p * np.sin(turn * (value - mean) / 2) ** 2 for p, value in each)
    imaginary = -sum(p * _sine_less_angle(turn * (value - mean)) for p, value in each)
    with np.errstate(divide="ignore"):  # log 0 where the function is 0, and so its power
        size = times / 2 * np.log1p(np.maximum(real * (2 + real) + imaginary * imaginary, -1.0))
    angle = times * np.arctan2(imaginary, 1 + real) + turn * (middle - times * mean)
    power = np.exp(size) * (np.cos(angle) + 1j * np.sin(angle))
    found = np.roll(np.fft.irfft(power, n), middle - lowest)
    totals = range(step * lowest + shift, step * highest + shift + 1, step)
    left_out = 0.0 if (lowest, highest) == (smallest * times, times) else _LEFT_OUT
    return totals, np.maximum(found, 0.0), left_out


def _sine_less_angle(x: Float64[np.ndarray, " n"]) -> Float64[np.ndarray, " n"]:
    """The sine of each angle less the angle, float64 [n], in radians, to the last digits near 0 too."""
    small, square = np.abs(x) < 1, x * x
    series = 1.0
    for k in (16, 14, 12, 10, 8, 6, 4):  # Horner's form of Taylor's series
        series = 1.0 - square / (k * (k + 1)) * series
    return np.where(small, -x * square / 6 * series, np.sin(x) - x)


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
