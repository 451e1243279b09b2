"""Calibration of probabilities: Brier score, intercept and slope, curve, net benefit, prediction sets.

All from cross-fitted log-odds of a silo's own rows. Conformal sets hold the true label with a probability of 1 − α for
rows like the silo's own, of each label (Mondrian; Vovk, Gammerman, Shafer 2005): a label is in a row's set unless fewer
than α of the other rows with that label are as unlike it. A threshold that all silos share does not give this to each.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float
from scipy.special import expit

from fedrank.core.errors import ConfigError
from fedrank.core.trees import Json
from fedrank.silos.glm.newton import Newton, Sums, sums
from fedrank.silos.sceptic.auc import Estimate

#: Log-odds beyond these mean certainty.
_SURE = 12.0
#: Thresholds of the decision curve.
_THRESHOLDS = tuple(round(0.05 * k, 2) for k in range(1, 15))


class Bin(NamedTuple):
    """Rows of about one probability.

    Attributes:
        predicted: Their mean probability.
        observed: Share of label 1.
        rows: Number of rows.
    """

    predicted: float
    observed: float
    rows: int


class Threshold(NamedTuple):
    """Consequences of acting from a probability on.

    Attributes:
        probability: The threshold.
        benefit: Net benefit: true positives less false positives, each weighed as the threshold weighs them, by row
            (Vickers and Elkin 2006).
        benefit_all: That of acting on every row; acting on none has 0.
        sensitivity: Share of the rows with label 1 that are acted on.
        specificity: Share of the others that are not.
    """

    probability: float
    benefit: float
    benefit_all: float
    sensitivity: float
    specificity: float


class Calibration(NamedTuple):
    """Agreement of probabilities with labels.

    Attributes:
        brier: Mean squared difference.
        brier_without: That of the share of label 1 as every row's probability.
        intercept: In log-odds, of the labels given the model's: 0 is right; above, probabilities are too low.
        slope: 1 is right; below, they are too extreme.
        bins: Of about as many rows each.
        thresholds: The decision curve.
    """

    brier: float
    brier_without: float
    intercept: Estimate
    slope: Estimate
    bins: tuple[Bin, ...]
    thresholds: tuple[Threshold, ...]

    def as_json(self) -> dict[str, Json]:
        """As it stands in a file."""
        ends = {name: getattr(self, name) for name in ("intercept", "slope")}
        return {
            "brier": self.brier,
            "brier_without_a_model": self.brier_without,
            **{
                name: {"value": one.value, "low": one.interval()[0], "high": one.interval()[1]}
                for name, one in ends.items()
            },
            "curve": [one._asdict() for one in self.bins],
            "decision_curve": [one._asdict() for one in self.thresholds],
        }


def calibration(scores: Float[np.ndarray, " rows"], y: Float[np.ndarray, " rows"], bins: int = 10) -> Calibration:
    """Calibration of log-odds.

    Args:
        scores: Cross-fitted log-odds.
        y: Labels, of both kinds.
        bins: Number of bins of the curve, fewer where there are fewer than ten rows for each.
    """
    scores = np.clip(scores, -_SURE, _SURE)
    probability = expit(scores)
    share = float(y.mean())
    # The intercept with the slope held at 1, the slope with its own intercept (Cox 1958; Van Calster et al. 2019).
    held = _fit(np.ones((len(y), 1)), y, scores)
    free = _fit(np.column_stack([np.ones(len(y)), scores]), y, np.zeros(len(y)))
    order = np.argsort(probability, kind="stable")
    parts = [part for part in np.array_split(order, max(1, min(bins, len(y) // 10))) if len(part)]
    curve = tuple(Bin(float(probability[p].mean()), float(y[p].mean()), len(p)) for p in parts)
    return Calibration(
        brier=float(np.mean((probability - y) ** 2)),
        brier_without=share * (1 - share),
        intercept=held[0],
        slope=free[-1],
        bins=curve,
        thresholds=tuple(threshold(scores, y, t) for t in _THRESHOLDS),
    )


def threshold(scores: Float[np.ndarray, " rows"], y: Float[np.ndarray, " rows"], probability: float) -> Threshold:
    """Consequences of acting on every row of at least this probability.

    Raises:
        ConfigError: It is not between 0 and 1.
    """
    if not 0 < probability < 1:
        raise ConfigError(f"a threshold must be a probability between 0 and 1, got {probability:g}.")
    acted, odds = expit(scores) >= probability, probability / (1 - probability)
    share, right = float(y.mean()), float((acted * y).mean())
    return Threshold(
        probability,
        right - float((acted * (1 - y)).mean()) * odds,
        share - (1 - share) * odds,
        right / share,
        1 - float((acted * (1 - y)).mean()) / (1 - share),
    )


class Sets(NamedTuple):
    """Conformal sets of labels.

    Attributes:
        level: 1 − α.
        zero: Whether 0 is in each row's set.
        one: Whether 1 is.
        coverage: Share of rows whose label is in their set.
        coverage_of: The same by label, 0 and 1.
        single: Share of rows with one label in their set: those that are told.
    """

    level: float
    zero: Bool[np.ndarray, " rows"]
    one: Bool[np.ndarray, " rows"]
    coverage: float
    coverage_of: tuple[float, float]
    single: float

    def as_json(self) -> dict[str, Json]:
        """As it stands in a file."""
        return {
            "level": self.level,
            "coverage": self.coverage,
            "coverage_of_0": self.coverage_of[0],
            "coverage_of_1": self.coverage_of[1],
            "one_label": self.single,
        }


def conformal(scores: Float[np.ndarray, " rows"], y: Float[np.ndarray, " rows"], level: float = 0.9) -> Sets:
    """A set of labels for each row, each from the other rows.

    Args:
        scores: Cross-fitted log-odds.
        y: Labels.
        level: Probability that a set holds the true label, of each label.

    Raises:
        ConfigError: The level is not between 0 and 1.
    """
    if not 0 < level < 1:
        raise ConfigError(f"the level of conformal sets must be between 0 and 1, got {level:g}.")
    inside = []
    for label in (0.0, 1.0):
        # The more a row looks like the other label, the less it conforms with this one.
        strange = scores if label == 0 else -scores
        own = np.sort(strange[y == label])
        at_least = len(own) - np.searchsorted(own, strange, side="left")
        among = np.where(y == label, len(own), len(own) + 1)  # a row of the label is among these rows itself
        count = np.where(y == label, at_least, at_least + 1)
        inside.append(count / among > 1 - level)
    zero, one = inside
    holds = np.where(y > 0, one, zero)
    by_label = tuple(float(holds[y == label].mean()) if (y == label).any() else float("nan") for label in (0, 1))
    return Sets(level, zero, one, float(holds.mean()), (by_label[0], by_label[1]), float((zero ^ one).mean()))


def _fit(
    x: Float[np.ndarray, "rows p"], y: Float[np.ndarray, " rows"], offset: Float[np.ndarray, " rows"]
) -> list[Estimate]:
    """Coefficients of a logistic model with an offset, and their errors."""
    beside = np.column_stack([offset, x])

    def ask(beta: np.ndarray) -> Sums:
        got = sums("logistic", np.append(1.0, beta), beside, y)
        return Sums(got.value, got.gradient[1:], got.information[1:, 1:])

    made = Newton()(ask, np.zeros(x.shape[1]))
    error = np.sqrt(np.diag(made.covariance))
    return [Estimate(float(b), float(e)) for b, e in zip(made.beta, error, strict=True)]
