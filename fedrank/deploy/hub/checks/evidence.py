"""A test that may be looked at after every round: is the mean of bounded numbers below a bound?

A *test martingale* (Shafer, Shen, Vereshchagin and Vovk, "Test Martingales, Bayes Factors and p-Values", Statistical
Science 2011; for bounded numbers Waudby-Smith and Ramdas, "Estimating means of bounded random variables by betting",
JRSS B 2024, Section 4): a gambler with 1 unit bets, before each number comes, that it will be below the bound. If the
mean of every number, given those before, is at least the bound, the gambler's money is expected not to grow. By
Ville's inequality it then ever reaches 1/α with probability at most α, however long the game goes on and whenever
somebody looks.

How much to bet and when to begin is not known, so the money is divided among gamblers: they begin in different rounds,
1/(j(j + 1)) of it in round j, and bet different parts of what they may, equally many. Those who begin when the model
begins to sink have not lost what others lost while it rose. Of all who bet the same part only the sum of their money is
needed, which makes a step of a few numbers::

    S ← (S + 1/(j(j + 1))) · Π (1 − λ (x − bound)),        money = mean of S over λ + 1/(t + 1) after t rounds
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

#: Parts of the largest bet that gamblers bet; with the largest, one number may cost them all they have.
FRACTIONS = tuple(0.5**k for k in range(1, 9))
#: Money is not counted beyond this.
_RICH = 1e300


class Evidence:
    """Evidence that the mean of bounded numbers is below a bound.

    Args:
        bound: The bound.
        highest: Largest number that can come, above the bound.
        kept: The result of an earlier :meth:`as_json`; None at the beginning.
    """

    def __init__(self, bound: float, highest: float, kept: dict[str, Any] | None = None):
        self.bound, self.highest = bound, highest
        self._sums = np.array([0.0] * len(FRACTIONS) if kept is None else kept["sums"], np.float64)
        self._rounds = 0 if kept is None else int(kept["rounds"])

    def add(self, numbers: Sequence[float] | Float[np.ndarray, " numbers"]) -> None:
        """Add the numbers of one round, in any order; none of them is above ``highest``."""
        x = np.asarray(numbers, np.float64) - self.bound
        self._rounds += 1
        bets = np.array(FRACTIONS) / (self.highest - self.bound)
        gains = np.log1p(-bets[:, None] * x).sum(axis=1)
        begun = self._sums + 1 / (self._rounds * (self._rounds + 1))
        self._sums = np.exp(np.minimum(np.log(begun) + gains, math.log(_RICH)))

    @property
    def money(self) -> float:
        """What 1 has become; above 1/α, the mean is below the bound or something happened whose chance is at most α."""
        return float(self._sums.mean()) + 1 / (self._rounds + 1)

    def as_json(self) -> dict[str, Any]:
        """The state, from which another process goes on."""
        return {"sums": self._sums.tolist(), "rounds": self._rounds}


def half_width(numbers: int, largest: float, alpha: float, about: int = 1000) -> float:
    """Half the width of an interval around the mean of numbers that holds at all times together.

    The normal mixture of Robbins ("Statistical Methods Related to the Law of the Iterated Logarithm", Annals of
    Mathematical Statistics 1970) for numbers within ±``largest``, which are sub-Gaussian with that as their deviation
    (Hoeffding's lemma).

    Args:
        numbers: How many numbers, at least 1.
        largest: Largest absolute value.
        alpha: Chance that the interval ever misses the mean of the means.
        about: Number of numbers at which the interval is the narrowest that it can be.
    """
    r = about / (2 * math.log(1 / alpha) + math.log(2 * math.log(1 / alpha) + 1))  # near the best, Howard et al. 2021
    return largest / numbers * math.sqrt((numbers + r) * math.log((numbers + r) / (r * alpha**2)))
