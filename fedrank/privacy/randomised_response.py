"""Randomised response: report the true value with probability p, else any other value with equal probability.

The privatisation of FOLtR-ES (Kharitonov 2019, Section 3.3), for a metric with n values, applied to each
interaction before anything is averaged or sent. Written on the *number* of a value (0 .. n − 1), so that it
does not matter what the values are.

It gives ε-local differential privacy (:func:`epsilon`): whatever one interaction was, no report is
more than e^ε times as likely as under any other interaction. Interactions are added up, with what is not covered, by
:mod:`fedrank.privacy.accounts.randomised_response`.

The random words are the caller's. On a real device they must come from the operating system
(:func:`os_words`). Words from a simulation's key make a simulated report with the right distribution and
protect no user: whoever knows the key can tell which reports are true.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from fedrank.core.arrays import AnyArray, ArrayT
from fedrank.core.errors import ConfigError
from fedrank.core.rng import below

if TYPE_CHECKING:  # a device, which runs this, has NumPy only
    from jaxtyping import Float, Integer, Real, UInt32

    #: One or several numbers, each a value of a metric or a mean of values.
    Numbers: TypeAlias = float | Real[AnyArray, "*shape"]
    #: All n values of a metric.
    Values: TypeAlias = Sequence[float] | Real[np.ndarray, " n"]


def check(p: float, n: int) -> None:
    """Refuse parameters for which randomised response is not defined.

    Raises:
        ConfigError: p is outside (0, 1], or n outside 2 .. 65,537.
    """
    if not 0.0 < p <= 1.0:
        raise ConfigError(
            f"p of randomised response, the probability of the truth, must be in (0, 1], got {p}. "
            "Use p = 1 to send without privatisation, p = 1/n to send nothing but noise."
        )
    if not 2 <= n <= 65_537:
        raise ConfigError(f"n of randomised response, the number of values, must be in 2..65,537, got {n}.")


def epsilon(p: float, n: int) -> float:
    """The ε of one report, in nats: ``|log(p (n − 1) / (1 − p))|``.

    A value is reported with probability p if it is the truth and with q = (1 − p)/(n − 1) if not, so the
    likelihood of a report changes by a factor of at most max(p/q, q/p) when the truth changes. The paper's
    equation (10) is the case p > 1/n; below 1/n a report says what the truth probably is *not*, and that is
    information as well.

    Args:
        p: Probability of the truth, in (0, 1].
        n: Number of values, at least 2.

    Returns:
        ε ≥ 0; 0 at p = 1/n, ``inf`` at p = 1.

    >>> round(epsilon(0.9, 11), 4)
    4.4998
    """
    check(p, n)
    # 1/n is seldom a binary fraction: without this line rounding would leave an ε of 1e-16 there.
    if p == 1 / n:
        return 0.0
    return math.inf if p == 1.0 else abs(math.log(p) + math.log(n - 1) - math.log1p(-p))


def probability(epsilon: float, n: int) -> float:
    """The p ≥ 1/n that gives this ε: e^ε / (e^ε + n − 1), the inverse of :func:`epsilon`.

    Args:
        epsilon: ε ≥ 0 of one report, in nats; ``inf`` gives 1.
        n: Number of values, at least 2.

    >>> round(probability(4.4998, 11), 4)
    0.9
    """
    if not epsilon >= 0.0:
        raise ConfigError(f"epsilon of randomised response must be a number ≥ 0, got {epsilon}.")
    p = 1.0 / (1.0 + (n - 1) * math.exp(-epsilon))
    check(p, n)
    if epsilon < math.inf and p > 1.0 - 2.0**-32:
        most = math.log((2**32 - 1) * (n - 1))
        raise ConfigError(
            f"epsilon of randomised response over {n} values must be at most {most:.2f}, or infinite, got {epsilon}: "
            "a lie this rare cannot be drawn with 32 bits. Use p = 1 to send without privatisation."
        )
    return p


def debias(reported: Numbers, values: Values, p: float) -> Numbers:
    """An unbiased estimate of the true mean from a mean of reports: the inverse of the paper's equation 7.

    Args:
        reported: [...] reports, or means of reports.
        values: [n] all values of the metric.
        p: Probability of the truth, other than 1/n.

    Raises:
        ConfigError: p = 1/n: the reports carry no information.
    """
    slope, constant = _affine(values, p)
    if slope == 0.0:
        raise ConfigError(f"Reports with p = 1/n = {p} carry no information about the truth; choose a larger p.")
    return (reported - constant) / slope


def _affine(values: Values, p: float) -> tuple[float, float]:
    """Slope and constant of a report's expectation as a function of the truth: f₀ (pn − 1)/(n − 1) + C (equation 7)."""
    values = np.asarray(values, np.float64)
    check(p, values.size)
    q = (1.0 - p) / (values.size - 1)
    return (0.0 if p == 1 / values.size else p - q), q * float(values.sum())


def threshold(p: float, n: int) -> int:
    """Number of the 2³² words that mean "report the truth": p·2³² rounded towards 2³²/n, in 1 .. 2³².

    Rounded so, the probability of the truth makes no report reveal more than :func:`epsilon` says, but for n·2⁻³²
    at p = 1/n. Only p = 1 gives 2³², however close to 1 another
    p is: rounding must not turn a finite ε into an infinite one.
    """
    if p == 1.0:
        return 2**32
    exact = p * 2**32  # a power of two: the product is exact
    words = math.floor(exact) if p * n >= 1.0 else min(math.ceil(exact), 2**32 // n)
    return min(max(words, 1), 2**32 - 1)


def privatise(
    index: Integer[ArrayT, "*shape"], words: UInt32[AnyArray, "*shape 2"], p: float, n: int
) -> Integer[ArrayT, "*shape"]:
    """Apply randomised response to the number of a value.

    Integer operations only, on NumPy and on JAX arrays alike. The probability of the truth is p rounded to a
    multiple of 2⁻³² (:func:`threshold`); the other values' probabilities differ from each other by less than
    2⁻³² (1 − p), a relative difference below (n − 1) 2⁻³². With p = 1 the truth comes back whatever the
    words.

    Args:
        index: int32 [...], the true value's number, in 0 .. n − 1.
        words: uint32 [..., 2], fresh random words: the first decides whether the truth is reported, the second which
            other value is reported if not.
        p: Probability of the truth, in (0, 1].
        n: Number of values.

    Returns:
        int32 [...], the number to report, in 0 .. n − 1.

    >>> words = np.array([[0, 7], [2**32 - 1, 0], [2**32 - 1, 2**32 - 1]], np.uint32)
    >>> privatise(np.array([0, 0, 0], np.int32), words, p=0.5, n=3).tolist()
    [0, 1, 2]
    """
    check(p, n)
    # Compared with threshold − 1, which fits into 32 bits for p = 1 as well.
    lie = (words[..., 0] > np.uint32(threshold(p, n) - 1)).astype(np.int32)
    other = below(words[..., 1], np.uint32(n - 1)).astype(np.int32)
    other = other + (other >= index)  # skip the truth: 0 .. n − 2 become the n − 1 other values
    return index + lie * (other - index)  # type: ignore[return-value] - of the kind of the index


def os_words(shape: tuple[int, ...]) -> UInt32[np.ndarray, "*shape"]:
    """Random words from the operating system, for the randomised response of a real device.

    Do not keep them, log them or derive them from anything: simulated words, or words another party knows, do
    not protect anyone.

    Args:
        shape: Shape wanted, such as ``(interactions, 2)``.

    Returns:
        uint32 ``shape``.
    """
    return np.frombuffer(bytearray(os.urandom(4 * math.prod(shape))), np.uint32).reshape(shape)


def worst_case_epsilon(distributions: Sequence[Sequence[float]] | Float[np.ndarray, "..."], p: float) -> float:
    """The exact ε when the metric is itself random, as clicks are (the paper's equation 9 and Table 2).

    Random clicks hide a user in addition: an attacker who wants to tell query 1 from query 2 sees
    only a report whose distribution given each query is smoother than that of randomised response alone. The
    worst case is over all pairs of queries and all reports. It holds for users who click by these
    distributions and for no others: :func:`epsilon` is the guarantee, this is a measurement.

    Args:
        distributions: float [lists, n]; row i is the distribution of the metric's value under list i, sums to
            1.
        p: Probability of the truth.

    Returns:
        ε ≥ 0 in nats; ``inf`` if some list excludes a report that another makes possible.
    """
    distributions = np.asarray(distributions, np.float64)
    if distributions.ndim != 2 or not distributions.size:
        raise ConfigError(f"distributions must be an array [lists, n], got shape {distributions.shape}.")
    n = distributions.shape[1]
    check(p, n)
    reports = distributions * p + (1.0 - distributions) * ((1.0 - p) / (n - 1))
    largest, smallest = reports.max(axis=0), reports.min(axis=0)
    possible = largest > 0.0
    with np.errstate(divide="ignore"):
        return float(np.log(largest[possible] / smallest[possible]).max())
