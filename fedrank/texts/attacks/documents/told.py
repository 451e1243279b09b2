"""What an attack on documents tells, as numbers: how much is read, and how well a text is found."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Float64, Int64

from fedrank.texts.attacks.documents.collection import Holdings
from fedrank.texts.attacks.world import Finding, mean_interval

#: A document is readable where more than this part of its words is read that a guess would not name.
READABLE = 0.05
#: A text is found where the area under the curve is above this; 0.5 is chance.
FOUND = 0.6
#: Normal quantile of 99 % intervals.
_QUANTILE = 2.5758


class Reading(NamedTuple):
    """What was read of some documents, one entry each.

    Attributes:
        share: The part of the different words that was read and that a guess did not name.
        precision: The part of what was read that is right; 1 where nothing was read.
    """

    share: Float64[np.ndarray, " documents"]
    precision: Float64[np.ndarray, " documents"]

    @classmethod
    def empty(cls) -> Reading:
        """Nothing, of no document."""
        return cls(np.zeros(0), np.zeros(0))

    def with_document(
        self,
        held: Holdings,
        document: int,
        read: Int64[np.ndarray, " words"],
        prior: Float64[np.ndarray, " vocabulary"],
    ) -> Reading:
        """With one more document.

        Args:
            held: All documents.
            document: Its number.
            read: Numbers of the words that the attacker names.
            prior: How likely each word is to him before he attacks: a word of a half or more is a guess.
        """
        true = held.counts.indices[held.counts.indptr[document] : held.counts.indptr[document + 1]]
        right = np.intersect1d(read, true)
        new = right[prior[right] < 0.5]
        share = len(new) / max(len(true), 1)
        precision = len(right) / len(read) if len(read) else 1.0
        return Reading(np.append(self.share, share), np.append(self.precision, precision))


def interval_of(reading: Reading) -> tuple[float, float]:
    """Ends of a 99 % interval of the mean part of a document that is read."""
    low, high = (float(np.clip(end, 0.0, 1.0)) for end in mean_interval(reading.share))
    return low, high


def finding_of_reading(attack: str, mode: str, reading: Reading, words: str) -> Finding:
    """How much of documents is read."""
    share = float(reading.share.mean())
    low, high = interval_of(reading)
    right = f"{100 * reading.precision.mean():.0f} % of the words that it names are right"
    return Finding(
        attack, mode, "words read", share, low, high, READABLE, low > READABLE, len(reading.share), f"{words}; {right}"
    )


def interval_of_auc(area: float, trials: int) -> tuple[float, float]:
    """Ends of a 99 % interval of an area under the curve, by Hanley and McNeil (1982).

    Args:
        area: The area.
        trials: Number of texts; half of them are there.
    """
    half = trials / 2
    first, second = area / (2 - area), 2 * area * area / (1 + area)
    spread = area * (1 - area) + (half - 1) * (first + second - 2 * area * area)
    deviation = math.sqrt(max(spread, 0.0)) / half
    low, high = (float(np.clip(area + sign * _QUANTILE * deviation, 0.0, 1.0)) for sign in (-1, 1))
    return low, high


def finding_of_auc(attack: str, mode: str, area: float, trials: int, words: str) -> Finding:
    """How well a text is found."""
    low, high = interval_of_auc(area, trials)
    return Finding(attack, mode, "AUC", area, low, high, FOUND, low > FOUND, trials, words)


def auc(inside: Float[np.ndarray, " n"], outside: Float[np.ndarray, " m"]) -> float:
    """Probability that evidence about a text that is there is larger; a tie counts a half.

    >>> auc(np.array([2.0, 1.0]), np.array([0.0, 1.0]))
    0.875
    """
    larger = (inside[:, None] > outside[None, :]).mean()
    return float(larger + 0.5 * (inside[:, None] == outside[None, :]).mean())
