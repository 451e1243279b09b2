"""Learners for a silo's own rows: a regularised logistic model, boosted trees.

A model here is a vector of coefficients of standardised columns with the intercept first, and the moments that
standardise; trees are a scikit-learn object. Both score rows by log-odds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.special import expit

from fedrank.core.lazy import require
from fedrank.silos.data.looks import copies, group_rows
from fedrank.silos.data.tables import SiloTable
from fedrank.silos.glm import Fit, Moments, Sums, moments_of, newton, ridge, sums
from fedrank.silos.sceptic.auc import Estimate, auc, difference


class Own(NamedTuple):
    """The rows of one silo.

    Attributes:
        x: Features; NaN where a value is missing.
        y: Labels, 0 or 1.
        person: Number of the person whose row it is, where a person may have several; None: each row is another's.
    """

    x: Float[np.ndarray, "rows columns"]
    y: Float[np.ndarray, " rows"]
    person: Int[np.ndarray, " rows"] | None = None

    def __getitem__(self, which) -> Own:  # type: ignore[override]
        return Own(self.x[which], self.y[which], None if self.person is None else self.person[which])

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(self.y)

    @property
    def group(self) -> Int[np.ndarray, " rows"]:
        """Number of each row's group, from 0: rows that are copies, or of one person."""
        found = group_rows(self.x, self.person)
        return np.arange(self.rows) if found is None else found

    @property
    def rarer(self) -> int:
        """Groups of rows of the rarer label; a group with both counts as 1."""
        group = self.group
        positive = int((np.bincount(group, self.y) > 0).sum())
        return min(positive, int(group.max(initial=-1)) + 1 - positive)

    @property
    def first(self) -> Int[np.ndarray, " rows"]:
        """The first row of each group of copies, and all rows where there are none: those that judge a model."""
        found = copies(self.x)
        return np.arange(self.rows) if found is None else found.first

    def auc(self, scores: Float[np.ndarray, " rows"], fold: Int[np.ndarray, " rows"] | None = None) -> Estimate:
        """AUC of scores on these rows, one of each group of copies, with an error over persons."""
        one = self[self.first]
        return auc(scores[self.first], one.y, None if fold is None else fold[self.first], one.person)

    def difference(
        self, first: Float[np.ndarray, " rows"], second: Float[np.ndarray, " rows"], fold: Int[np.ndarray, " rows"]
    ) -> Estimate:
        """AUC of the first scores minus that of the second, like :meth:`auc`."""
        judge = self.first
        one = self[judge]
        return difference(first[judge], second[judge], one.y, fold[judge], one.person)


def rows_of(table: SiloTable) -> list[Own]:
    """The rows of every silo, double precision."""
    return [Own(silo.features.astype(float), silo.labels.astype(float), silo.person) for silo in table.silos]


def folds(own: Own, count: int, rng: np.random.Generator) -> Int[np.ndarray, " rows"]:
    """A fold for each row, in which each label has its share of groups up to one; a group of rows is in one fold.

    Args:
        own: The rows.
        count: Number of folds; there are as many as groups of the rarer label if these are fewer, and at least 2.
        rng: Draws the order.
    """
    group = own.group
    label = np.bincount(group, own.y) > 0
    positive = int(label.sum())
    count = max(2, min(count, positive, len(label) - positive))
    out = np.empty(len(label), int)
    start = 0
    for of in (True, False):
        some = rng.permutation(np.flatnonzero(label == of))
        out[some] = (np.arange(len(some)) + start) % count
        start += len(some)  # the next label begins where this one ended, so that folds are of one size
    return out[group]


#: Log-odds of label 1 of rows.
Scorer = Callable[[Float[np.ndarray, "rows columns"]], Float[np.ndarray, " rows"]]

#: Strengths of the L2 penalty of a silo by itself, on standardised columns.
PENALTIES = (0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
#: That of a silo which has too few rows to choose.
DEFAULT_PENALTY = 10.0
#: Rounds of Newton's method; a penalised model takes four to eight.
_ROUNDS = 40
#: Share of the value that a step of :func:`fit_many` gains, below which it is the last: the next gains its square.
_CLOSE = 1e-12
#: Fewest rows of the rarer label by which a penalty is chosen.
_FEWEST = 4


@dataclass(frozen=True, eq=False)
class Glm:
    """A logistic model.

    Attributes:
        beta: Coefficients of standardised columns, the intercept first.
        moments: What standardises.
        partners: Of a model that is shrunk to others', the posterior weight of the sets with each of them; else None.
    """

    beta: Float[np.ndarray, " p"]
    moments: Moments
    partners: Float[np.ndarray, " others"] | None = None

    def __call__(self, x: Float[np.ndarray, "rows columns"]) -> Float[np.ndarray, " rows"]:
        """Log-odds of label 1 [rows], of rows in the columns' own units; NaN is a missing value."""
        return design(x, self.moments) @ self.beta


def design(x: Float[np.ndarray, "rows columns"], moments: Moments) -> Float[np.ndarray, "rows p"]:
    """Standardised columns behind one of ones; what is missing becomes the mean."""
    return np.column_stack([np.ones(len(x)), moments.standardise(x)])


def fit_glm(
    silos: Sequence[tuple[Float[np.ndarray, "_ p"], Float[np.ndarray, " _"]]],
    penalty: Float[np.ndarray, "p p"] | float,
    centre: Float[np.ndarray, " p"] | None = None,
) -> Fit:
    """A penalised logistic model of rows of one silo or of several, by sums of their derivatives.

    Args:
        silos: Standardised rows and labels of each.
        penalty: Λ, or the strength of an L2 penalty.
        centre: What coefficients are pulled to; None: 0.
    """
    p = silos[0][0].shape[1]
    penalty = ridge(p, penalty) if isinstance(penalty, float | int) else penalty

    def ask(beta: np.ndarray) -> Sums:
        first, *others = (sums(beta, x, y) for x, y in silos)
        for one in others:
            first = first + one
        return first

    return newton(ask, np.zeros(p), penalty, centre, _ROUNDS)


def fit_many(
    x: Float[np.ndarray, "models rows p"],
    y: Float[np.ndarray, " rows"],
    trains: Bool[np.ndarray, "models rows"],
    penalty: Float[np.ndarray, "_ fits p p"],
    centre: Float[np.ndarray, "models fits p"] | None = None,
) -> Float[np.ndarray, "models fits p"]:
    """β of penalised logistic models of some of the rows, several fits each, all at once.

    Newton's method as :func:`fit_glm` has it, whose models are the same up to rounding; many small models take as long
    as one.

    Args:
        x: Standardised rows behind a column of ones; each model may have its own standardisation.
        y: Labels, of which each model's rows have both where the intercept has no penalty.
        trains: Rows of each model.
        penalty: Λ of each fit, of all models alike or of each.
        centre: What coefficients are pulled to, which is where the method starts; None: 0.
    """
    centre = np.zeros((len(x), *penalty.shape[1:3])) if centre is None else centre
    beta, turned = centre.copy(), x.swapaxes(-1, -2)

    def pull(beta: np.ndarray) -> np.ndarray:
        return (penalty @ (beta - centre)[..., None])[..., 0]

    def loss(beta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        eta = beta @ turned
        each = (np.logaddexp(0.0, eta) - y * eta) * trains[:, None]
        return eta, each.sum(axis=-1) + 0.5 * ((beta - centre) * pull(beta)).sum(axis=-1)

    eta, value = loss(beta)
    for _ in range(_ROUNDS):
        mean = expit(eta)
        weight = mean * (1 - mean) * trains[:, None]
        gradient = ((y - mean) * trains[:, None]) @ x - pull(beta)
        curved = [(turned * weight[:, k, None]) @ x for k in range(beta.shape[1])]
        step = np.linalg.solve(np.stack(curved, axis=1) + penalty, gradient[..., None])[..., 0]
        gain, part = (gradient * step).sum(axis=-1), np.ones(value.shape)
        while True:
            eta, after = loss(beta + part[..., None] * step)
            lost = (after > value + 1e-12 * np.abs(value)) & (part > 1e-6)
            if not lost.any():
                break
            part = np.where(lost, part / 2, part)
        beta, value = beta + part[..., None] * step, after
        if (gain < _CLOSE * np.maximum(1.0, value)).all():
            break
    return beta


def fit_ridges(
    x: Float[np.ndarray, "models rows p"],
    y: Float[np.ndarray, " rows"],
    trains: Bool[np.ndarray, "models rows"],
    penalties: Sequence[float],
) -> Float[np.ndarray, "models penalties p"]:
    """:func:`fit_many` with several strengths of the L2 penalty, above 0."""
    return fit_many(x, y, trains, np.stack([ridge(x.shape[-1], penalty) for penalty in penalties])[None])


def log_loss(scores: Float[np.ndarray, " rows"], y: Float[np.ndarray, " rows"]) -> float:
    """Mean cross-entropy of log-odds."""
    return float(np.mean(np.logaddexp(0.0, scores) - y * scores))


def choose_penalty(own: Own, rng: np.random.Generator) -> float:
    """The penalty with the smallest cross-validated log-loss on a silo's own rows.

    Args:
        own: The rows.
        rng: Draws the folds.
    """
    if own.rarer < _FEWEST:
        return DEFAULT_PENALTY
    fold = folds(own, 5, rng)
    trains = fold != np.unique(fold)[:, None]
    x = np.stack([design(own.x, moments_of(own.x[rows])) for rows in trains])
    scores = fit_ridges(x, own.y, trains, PENALTIES) @ x.swapaxes(-1, -2)
    loss = (np.logaddexp(0.0, scores) - own.y * scores) * ~trains[:, None]
    return PENALTIES[int(np.argmin(loss.sum(axis=(0, 2))))]


def fit_alone(own: Own, penalty: float) -> Glm:
    """A silo's logistic model of the silo's rows, standardised by itself."""
    moments = moments_of(own.x)
    return Glm(fit_glm([(design(own.x, moments), own.y)], penalty).beta, moments)


def fit_trees(own: Own) -> Scorer:
    """Gradient-boosted trees of a silo's own rows (scikit-learn), which know missing values by themselves.

    Raises:
        MissingExtraError: scikit-learn is not installed.
    """
    require("sklearn", "Boosted trees", "sklearn")
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
