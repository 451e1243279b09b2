"""What a silo can learn from its own rows: a regularised logistic model, boosted trees.

A model here is a vector of coefficients of standardised columns with the intercept first, and the moments that
standardise; trees are a scikit-learn object. Both score rows by log-odds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from fedrank.silos.glm.families import Sums, sums
from fedrank.silos.glm.moments import Moments, moments_of
from fedrank.silos.glm.newton import Fit, Newton, ridge
from fedrank.silos.sceptic.rows import Own, folds

#: Log-odds of label 1 of rows.
Scorer = Callable[[Float[np.ndarray, "rows columns"]], Float[np.ndarray, " rows"]]

#: Strengths of the L2 penalty of a silo by itself, on standardised columns.
PENALTIES = (0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
#: That of a silo which has too few rows to choose.
DEFAULT_PENALTY = 10.0
#: Rounds of Newton's method; a penalised model takes four to eight.
_NEWTON = Newton(40)
#: Fewest rows of the rarer label by which a penalty is chosen.
_FEWEST = 4


@dataclass(frozen=True, eq=False)
class Glm:
    """A logistic model.

    Attributes:
        beta: Coefficients of standardised columns, the intercept first.
        moments: What standardises.
    """

    beta: Float[np.ndarray, " p"]
    moments: Moments

    def __call__(self, x: Float[np.ndarray, "rows columns"]) -> Float[np.ndarray, " rows"]:
        """Log-odds of rows."""
        return design(x, self.moments) @ self.beta


def design(x: Float[np.ndarray, "rows columns"], moments: Moments) -> Float[np.ndarray, "rows p"]:
    """Standardised columns behind one of ones; what is missing becomes the mean."""
    return np.column_stack([np.ones(len(x)), moments.standardised(x)])


def fit_glm(
    silos: Sequence[tuple[Float[np.ndarray, "_ p"], Float[np.ndarray, " _"]]],
    penalty: Float[np.ndarray, "p p"] | float,
    centre: Float[np.ndarray, " p"] | None = None,
    start: Float[np.ndarray, " p"] | None = None,
) -> Fit:
    """A penalised logistic model of rows of one silo or of several, by sums of their derivatives.

    Args:
        silos: Standardised rows and labels of each.
        penalty: Λ, or the strength of an L2 penalty.
        centre: What coefficients are pulled to; None: 0.
        start: β of the first round.
    """
    p = silos[0][0].shape[1]
    penalty = ridge(p, penalty) if isinstance(penalty, float | int) else penalty

    def ask(beta: np.ndarray) -> Sums:
        first, *others = (sums("logistic", beta, x, y) for x, y in silos)
        for one in others:
            first = first + one
        return first

    return _NEWTON(ask, np.zeros(p) if start is None else start, penalty, centre)


def log_loss(scores: Float[np.ndarray, " rows"], y: Float[np.ndarray, " rows"]) -> float:
    """Mean cross-entropy of log-odds."""
    return float(np.mean(np.logaddexp(0.0, scores) - y * scores))


def choose_penalty(own: Own, rng: np.random.Generator, count: int = 5) -> float:
    """The penalty with the smallest cross-validated log-loss on a silo's own rows.

    Args:
        own: The rows.
        rng: Draws the folds.
        count: Number of folds.
    """
    if own.rarer < _FEWEST:
        return DEFAULT_PENALTY
    fold = folds(own, count, rng)
    loss = np.zeros(len(PENALTIES))
    for number in np.unique(fold):
        train, test = own[fold != number], own[fold == number]
        moments = moments_of([train.x])
        x, there = design(train.x, moments), design(test.x, moments)
        start = None
        for k in reversed(range(len(PENALTIES))):  # from the strongest, each beginning where the last one ended
            start = fit_glm([(x, train.y)], PENALTIES[k], start=start).beta
            loss[k] += log_loss(there @ start, test.y) * test.rows
    return PENALTIES[int(np.argmin(loss))]


def fit_alone(own: Own, penalty: float) -> Glm:
    """A silo's logistic model of its own rows, standardised by itself."""
    moments = moments_of([own.x])
    return Glm(fit_glm([(design(own.x, moments), own.y)], penalty).beta, moments)


def fit_trees(own: Own) -> Scorer:
    """Gradient-boosted trees of a silo's own rows (scikit-learn), which know missing values by themselves."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    # Trees of few leaves, as there are few rows; scikit-learn's own 20 rows a leaf would not split 40.
    settings: dict[str, Any] = {"max_leaf_nodes": 8, "min_samples_leaf": 5, "l2_regularization": 1.0}
    model = HistGradientBoostingClassifier(learning_rate=0.05, max_iter=100, random_state=0, **settings)
    model.set_params(early_stopping=False)
    low, high = np.fmin.reduce(own.x, axis=0), np.fmax.reduce(own.x, axis=0)
    varies = high > low  # False where nothing is known; scikit-learn refuses a column without a value
    if own.rarer == 0 or not varies.any():
        return lambda x: np.zeros(len(x))
    model.fit(own.x[:, varies], own.y)
    return lambda x: model.decision_function(x[:, varies])
