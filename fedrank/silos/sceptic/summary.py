"""One silo's message to others: moments of its columns, its own model, and its log-likelihood to second order there.

Of it follows what others need of the silo's rows: its model as it is, its share in an average, a prior for a model of
theirs, and whether its units, labels or coefficients are unlike theirs. Numbers are of the silo's columns standardised
by their own moments; another silo brings them to its own scale (:meth:`Summary.quadratic`), which is exact but for
missing values: the silo puts its own mean in their place.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float

from fedrank.core.errors import DataError
from fedrank.silos.data.looks import copies
from fedrank.silos.glm import Moments, Sums, combine_moments, moments_of, ridge, symmetric
from fedrank.silos.sceptic.learners import Glm, Own, choose_penalty, design, fit_glm
from fedrank.silos.sceptic.shrinkage import Quadratic


@dataclass(frozen=True, eq=False)
class Summary:
    """A silo's message. Of equal rows it counts one, as copies are no further evidence.

    Attributes:
        rows: Number of rows.
        positive: Rows with label 1.
        twice: Share of all rows that stand more than once, where there are more of them than by chance; else 0.
        by_chance: The share that chance would give.
        model: The silo's own penalised logistic model, by its own moments.
        sums: Log-likelihood at the model, its gradient and information, without the penalty.
        score: Gradient of the log-likelihood by the slopes at the model of the intercept alone.
        information: The information there once the intercept is fitted.
    """

    rows: float
    positive: float
    twice: float
    by_chance: float
    model: Glm
    sums: Sums
    score: Float[np.ndarray, " columns"]
    information: Float[np.ndarray, "columns columns"]

    @classmethod
    def of(cls, own: Own, penalty: float) -> Summary:
        """The message of a silo's rows.

        Args:
            own: The rows.
            penalty: Strength of the L2 penalty of the silo's own model, on standardised columns.
        """
        found = copies(own.x)
        if found is not None:
            own = own[found.first]
        moments = moments_of(own.x)
        x = design(own.x, moments)
        fit = fit_glm([(x, own.y)], penalty)
        centred = x[:, 1:] - x[:, 1:].mean(axis=0) if own.rows else x[:, 1:]
        share = own.y.mean() if own.rows else 0.0
        return cls(
            rows=float(own.rows),
            positive=float(own.y.sum()),
            twice=0.0 if found is None else found.share,
            by_chance=0.0 if found is None else found.chance,
            model=Glm(fit.beta, moments),
            sums=fit.at,
            score=centred.T @ (own.y - share),
            information=share * (1 - share) * centred.T @ centred,
        )

    @property
    def rarer(self) -> float:
        """Number of rows of the label that fewer rows have; 0 of a silo with one label."""
        return min(self.positive, self.rows - self.positive)

    @property
    def moments(self) -> Moments:
        """Moments of the silo's columns."""
        return self.model.moments

    def flat(self) -> Float[np.ndarray, " numbers"]:
        """All numbers in one vector, :func:`length` of them."""
        upper = np.triu_indices(len(self.score))
        return np.concatenate([
            [self.rows, self.positive, self.twice, self.by_chance], *self.moments, self.model.beta, self.sums.flat(),
            self.score, self.information[upper],
        ])  # fmt: skip

    @classmethod
    def from_flat(cls, numbers: Float[np.ndarray, " numbers"], columns: int) -> Summary:
        """The inverse of :meth:`flat`.

        Raises:
            DataError: It is no message of a silo with that number of columns, or no rows have such sums.
        """
        numbers = np.asarray(numbers, float)
        if numbers.shape != (length(columns),) or not np.isfinite(numbers).all() or (numbers[:4] < 0).any():
            raise DataError(f"this is no message of a silo with {columns} columns.")
        c, p = columns, columns + 1
        ends = np.cumsum([4, c, c, c, p, 1 + p + p * (p + 1) // 2, c])
        facts, count, mean, deviation, beta, sums, score, upper = np.split(numbers, ends)
        information = symmetric(upper, c)
        rows, positive, twice, by_chance = facts.tolist()
        terms = Sums.of(sums, p)
        # A silo could else have others fit to a likelihood without a maximum.
        proper = terms.is_concave() and Sums(0.0, score, information).is_concave()
        if not proper or positive > rows or min(count.min(initial=0), deviation.min(initial=0)) < 0:
            raise DataError("this is no message of a silo: no rows have these sums.")
        model = Glm(beta, Moments(count, mean, deviation))
        return cls(rows, positive, twice, by_chance, model, terms, score, information)

    @cached_property
    def _own(self) -> Quadratic:
        return Quadratic.at(self.model.beta, self.sums)

    def _map(self, moments: Moments) -> Float[np.ndarray, "p p"]:
        """B, by which rows of this silo's standardised columns become rows of columns standardised by ``moments``."""
        mine, varies = self.moments, moments.deviation > 0
        by = np.where(varies, moments.deviation, 1.0)
        out = np.diag(np.append(1.0, np.where(varies, mine.deviation / by, 0.0)))
        out[0, 1:] = np.where(varies & (mine.count > 0), (mine.mean - moments.mean) / by, 0.0)
        return out

    def quadratic(self, moments: Moments) -> Quadratic:
        """The log-likelihood to second order, of columns standardised by ``moments``."""
        by = self._map(moments)
        return Quadratic(by.T @ self._own.precision @ by, by.T @ self._own.linear, self._own.constant)

    def coefficients(self, moments: Moments) -> Float[np.ndarray, " p"]:
        """Those of the silo's model, of columns standardised by ``moments``."""
        mine, varies = self.moments, self.moments.deviation > 0
        slopes = np.where(varies, self.model.beta[1:] / np.where(varies, mine.deviation, 1.0), 0.0)
        intercept = self.model.beta[0] + slopes @ (moments.mean - mine.mean)
        return np.append(intercept, slopes * moments.deviation)


def summary_of(own: Own, seed: int, number: int) -> Summary:
    """The message of a silo that chooses the penalty of its model by itself.

    Args:
        own: The silo's rows.
        seed: Draws the folds by which it is chosen.
        number: The silo's number.
    """
    return Summary.of(own, choose_penalty(own, draw_of(seed, number, "own model")))


def draw_of(seed: int, silo: int, what: str = "verdicts") -> np.random.Generator:
    """The generator of one silo's folds, the same wherever its rows are."""
    return np.random.default_rng([seed, silo, *what.encode()])


def length(columns: int) -> int:
    """Length of the message of a silo with a number of columns."""
    p = columns + 1
    return 4 + 3 * columns + p + (1 + p + p * (p + 1) // 2) + columns + columns * p // 2


def common_moments(x: Float[np.ndarray, "rows columns"], others: Iterable[Summary]) -> Moments:
    """Moments of a silo's rows and those that others told of together."""
    return combine_moments([moments_of(x), *(one.moments for one in others)])


def fit_with(own: Own, others: Sequence[Summary], penalty: float) -> Glm:
    """The logistic model of a silo's rows and those that others told of, with an L2 penalty on standardised columns."""
    moments = common_moments(own.x, others)
    told = [one.quadratic(moments) for one in others]
    pull = ridge(own.x.shape[1] + 1, penalty)
    prior = np.sum([one.precision for one in told], axis=0) + pull
    centre = np.linalg.lstsq(prior, np.sum([one.linear for one in told], axis=0), rcond=1e-14)[0]
    return Glm(fit_glm([(design(own.x, moments), own.y)], prior, centre).beta, moments)
