"""AUC with errors from one division of rows: DeLong's variance, of one model or of the difference of two.

DeLong, DeLong, Clarke-Pearson (Biometrics 1988). Where scores come from several folds' models, each row is compared
with the rows of its fold only, and deviations are pooled over folds (LeDell, Petersen, van der Laan, EJS 2015): all
rows count, and no model is judged on rows that it has seen.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy import special

from fedrank.core.trees import Json


class Estimate(NamedTuple):
    """A number with its standard error.

    Attributes:
        value: Such as an AUC, or a difference of two.
        error: Its standard error; NaN where there are too few rows for one.
    """

    value: float
    error: float

    @property
    def p(self) -> float:
        """Two-sided p-value that it is 0; 1 without an error, and of two models that score alike."""
        if not np.isfinite(self.error) or self.error == 0:
            return 1.0
        return float(2 * special.ndtr(-abs(self.value) / self.error))

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """The confidence interval."""
        half = float(special.ndtri(0.5 + level / 2)) * self.error
        return self.value - half, self.value + half

    def as_json(self) -> dict[str, Json]:
        """The number, its error and the ends of its interval; None for what is not finite."""
        low, high = self.interval()
        values = {"value": self.value, "error": self.error, "low": low, "high": high}
        return {name: float(value) if np.isfinite(value) else None for name, value in values.items()}


class Auc(Estimate):
    """An AUC, whose interval is symmetric in its logit and so within [0, 1].

    Pepe, The Statistical Evaluation of Medical Tests for Classification and Prediction (2003).
    """

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """The confidence interval; of an AUC of 0 or 1, whose error DeLong's method takes for 0, that number."""
        spread = self.value * (1 - self.value)
        if not spread > 0:
            return super().interval(level)
        half, middle = float(special.ndtri(0.5 + level / 2)) * self.error / spread, special.logit(self.value)
        return float(special.expit(middle - half)), float(special.expit(middle + half))


class Placements(NamedTuple):
    """Place of each row among those of the other label in its fold.

    Attributes:
        value: AUC: the mean over folds, weighted by rows.
        share: Of a positive row the share of negative rows below it, of a negative one that of positive rows above.
        centre: The AUC of each row's fold.
        positive: Which rows have label 1.
        folds: Number of folds.
    """

    value: float
    share: Float[np.ndarray, " rows"]
    centre: Float[np.ndarray, " rows"]
    positive: Float[np.ndarray, " rows"]
    folds: int


def ranks(values: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """Ranks of numbers from 1, the mean rank of those that are equal; NaN of all where one is NaN.

    As ``scipy.stats.rankdata``, which takes a second to load and ten times as long.
    """
    if np.isnan(values).any():
        return np.full(len(values), np.nan)
    _, which, count = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(count)
    return (last - (count - 1) / 2)[which]


def placements(
    scores: Float[np.ndarray, " rows"], y: Float[np.ndarray, " rows"], fold: Int[np.ndarray, " rows"] | None = None
) -> Placements:
    """Placements of rows. A fold of one label says nothing: its rows have NaN and do not count.

    Args:
        scores: Higher means that label 1 is more likely.
        y: Labels.
        fold: Fold of each row; None: all are of one.
    """
    fold = np.zeros(len(y), int) if fold is None else fold
    share, centre = np.full(len(y), np.nan), np.full(len(y), np.nan)
    total, weight, count = 0.0, 0, 0
    for number in np.unique(fold):
        own = fold == number
        up, down = own & (y > 0), own & (y <= 0)
        n1, n0 = int(up.sum()), int(down.sum())
        if not n1 or not n0:
            continue
        both = ranks(scores[own])
        all_ranks = np.zeros(len(y))
        all_ranks[own] = both
        share[up] = (all_ranks[up] - ranks(scores[up])) / n0
        share[down] = 1 - (all_ranks[down] - ranks(scores[down])) / n1
        value = float(share[up].mean())
        centre[own] = value
        total, weight, count = total + value * int(own.sum()), weight + int(own.sum()), count + 1
    return Placements(total / weight if weight else float("nan"), share, centre, (y > 0).astype(float), count)


def auc(
    scores: Float[np.ndarray, " rows"],
    y: Float[np.ndarray, " rows"],
    fold: Int[np.ndarray, " rows"] | None = None,
    person: Int[np.ndarray, " rows"] | None = None,
) -> Auc:
    """AUC of one model; NaN where no fold has both labels.

    Args:
        scores: Higher means that label 1 is more likely.
        y: Labels.
        fold: Fold of each row; None: all are of one.
        person: Number of each row's person, over whom the error is; None: each row is another's.
    """
    found = placements(scores, y, fold)
    return Auc(found.value, _error(found.share - found.centre, found, person))


def difference(
    first: Float[np.ndarray, " rows"],
    second: Float[np.ndarray, " rows"],
    y: Float[np.ndarray, " rows"],
    fold: Int[np.ndarray, " rows"] | None = None,
    person: Int[np.ndarray, " rows"] | None = None,
) -> Estimate:
    """AUC of the first model minus that of the second, on the same rows; arguments as of :func:`auc`."""
    a, b = placements(first, y, fold), placements(second, y, fold)
    return Estimate(a.value - b.value, _error((a.share - a.centre) - (b.share - b.centre), a, person))


def _error(
    deviation: Float[np.ndarray, " rows"], found: Placements, person: Int[np.ndarray, " rows"] | None = None
) -> float:
    """Standard error of a mean of placements from deviations from their fold's mean.

    Deviations of one person's rows, of both labels, are added before they are squared (Obuchowski, Biometrics 1997).
    """
    part = np.zeros(len(deviation))
    for label in (1.0, 0.0):
        own = (found.positive == label) & np.isfinite(deviation)
        free = int(own.sum()) - found.folds
        if free < 1:
            return float("nan")
        part[own] = deviation[own] / (free * own.sum()) ** 0.5
    if person is not None:
        part = np.bincount(np.unique(person, return_inverse=True)[1], part)
    return float(part @ part) ** 0.5
