"""An anonymous channel: what reports reveal to an observer who sees all of a round, but not whose each is.

Each of n devices sends one report that is ε₀-locally private. If no observer knows which report is whose, a device
hides among the others: its report could be that of any of them who would have said the same. The bound is that of
Feldman, McMillan and Talwar (*Hiding among the clones*, FOCS 2021, Theorem 3.1): an observer who is told even more than
a shuffler shows has to tell apart

* P: the counts (A + D, C − A + 1 − D), and
* Q: the counts (A + 1 − D, C − A + D),

where D is 1 with probability e^ε₀/(e^ε₀ + 1), C of the n − 1 others say something that does not depend on their own
data, and A of these, each with probability ½, say what the device would have said. C is binomial. For any mechanism
each of the others does so with probability e^−ε₀ (Lemma 3.4 of the paper).

Of some mechanisms more is known than ε₀ (:class:`Telling`): reports that are likelier for one truth or the other have a
probability below 1 together, and the device says anything telling with that probability only.

δ at ε is then a sum over C of binomial tails: P is more than e^ε times Q from some first count on. It is summed as it
is, but for a part of C of probability 1e-18, which is added to δ.
"""

from __future__ import annotations

import math
from typing import Protocol, runtime_checkable

import numpy as np

from fedrank.core.errors import ConfigError

#: Part of the distribution of C that is counted as lost instead of summed.
_CUT = 1e-18
#: Halvings of an interval in which an ε lies: to 2⁻⁴⁰ of its length.
_HALVINGS = 40


@runtime_checkable
class Telling(Protocol):
    """A mechanism of which more is known than its ε."""

    @property
    def epsilon(self) -> float:
        """ε₀ of one report, in nats."""
        ...

    @property
    def chances(self) -> tuple[float, float]:
        """Probabilities of a report that is likelier for one of two truths, given this one and given the other.

        Each of the other devices, whatever its truth, says such a report with twice the second at least.
        """
        ...


def clones_delta(epsilon: float, epsilon0: float, clone: float, reports: int) -> float:
    """δ at ε of one report among many, P against Q as above.

    Args:
        epsilon: ε ≥ 0 of what is seen, in nats.
        epsilon0: ε₀ of one report.
        clone: Probability that another device's report does not depend on its data, in [0, 1].
        reports: n, reports of a round, with that of the device itself.

    Raises:
        ConfigError: A number is out of range.
    """
    from scipy.stats import binom

    if reports < 1 or not 0.0 <= clone <= 1.0 or not (epsilon >= 0.0 and epsilon0 >= 0.0):
        raise ConfigError(
            "a round needs one report or more, a probability in [0, 1] and ε of 0 or more; got "
            f"{reports}, {clone}, {epsilon} and {epsilon0}."
        )
    if epsilon >= epsilon0:
        return 0.0
    low, high = binom.ppf(_CUT / 2, reports - 1, clone), binom.isf(_CUT / 2, reports - 1, clone)
    c = np.arange(max(0, int(low)), int(high) + 1)
    likely = 1 / (1 + math.exp(-epsilon0))
    # P(x)/Q(x) = (q x + (1 − q)(c + 1 − x)) / ((1 − q) x + q (c + 1 − x)) grows with x: above e^ε from here on.
    part = (math.exp(epsilon) * likely - (1 - likely)) / (2 * likely - 1) / (1 + math.exp(epsilon))
    first = np.floor(part * (c + 1)) + 1
    with_, without = binom.sf(first - 2, c, 0.5), binom.sf(first - 1, c, 0.5)
    p, q = likely * with_ + (1 - likely) * without, (1 - likely) * with_ + likely * without
    return float(np.sum(binom.pmf(c, reports - 1, clone) * np.maximum(p - math.exp(epsilon) * q, 0.0))) + _CUT


def clones_epsilon(delta: float, epsilon0: float, clone: float, reports: int) -> float:
    """ε at δ of one report among many, rounded up; arguments as of :func:`clones_delta`."""
    if not 0.0 < delta < 1.0:
        raise ConfigError(f"delta must be in (0, 1), got {delta}.")
    low, high = 0.0, epsilon0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if clones_delta(middle, epsilon0, clone, reports) <= delta else (middle, high)
    return high


def shuffled_epsilon(mechanism: Telling, reports: int, delta: float) -> float:
    """ε at δ of one report among those of a round, seen through an anonymous channel.

    Args:
        mechanism: What makes a report.
        reports: n, reports of a round, at least 1.
        delta: δ in (0, 1).
    """
    likely, unlikely = mechanism.chances
    telling = likely + unlikely
    return 0.0 if delta >= telling else clones_epsilon(delta / telling, mechanism.epsilon, 2 * unlikely, reports)


def shuffled_delta(mechanism: Telling, reports: int, epsilon: float) -> float:
    """δ at ε, the inverse of :func:`shuffled_epsilon`.

    Args:
        mechanism: What makes a report.
        reports: n, reports of a round, at least 1.
        epsilon: ε ≥ 0, in nats.
    """
    likely, unlikely = mechanism.chances
    return (likely + unlikely) * clones_delta(epsilon, mechanism.epsilon, 2 * unlikely, reports)


def any_shuffled_epsilon(epsilon0: float, reports: int, delta: float) -> float:
    """The same for any mechanism that is ε₀-locally private (Feldman, McMillan and Talwar 2021).

    >>> round(any_shuffled_epsilon(4.0, 20_000, 1e-8), 2)
    0.51
    """
    return clones_epsilon(delta, epsilon0, math.exp(-epsilon0), reports)
