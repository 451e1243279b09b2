"""Newton's method on sums over silos: what a silo computes of its rows, and the server's half.

Axes of arrays: ``rows`` of one silo, ``p`` columns, the intercept among them if the model has one.

Moments of columns over silos are made of sums of each silo's own.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.special import expit


def symmetric(flat: Float[np.ndarray, " numbers"], p: int) -> Float[np.ndarray, "p p"]:
    """A matrix from its upper triangle, row by row; a ValueError if that of p columns has another length."""
    if len(flat) != p * (p + 1) // 2:
        raise ValueError(f"{len(flat)} numbers are no upper triangle of {p} columns")
    out = np.zeros((p, p))
    out[np.triu_indices(p)] = flat
    return out + np.triu(out, 1).T


class Sums(NamedTuple):
    """Terms of one silo, or their sum over silos.

    Attributes:
        value: Log-likelihood; of a linear model −½ Σ (y − xβ)², its residual deviation being unknown.
        gradient: Its derivatives by β.
        information: Its negative second derivatives by β: positive semi-definite.
    """

    value: float
    gradient: Float[np.ndarray, " p"]
    information: Float[np.ndarray, "p p"]

    def __add__(self, other: Sums) -> Sums:  # type: ignore[override]
        return Sums(self.value + other.value, self.gradient + other.gradient, self.information + other.information)

    def flat(self) -> Float[np.ndarray, " numbers"]:
        """All numbers in one vector: the value, the gradient, the upper triangle of the information."""
        upper = np.triu_indices(len(self.gradient))
        return np.concatenate([[self.value], self.gradient, self.information[upper]])

    def is_concave(self, rounding: float = 1e-9) -> bool:
        """True if the numbers are finite and the information has no negative eigenvalue, as those of rows have.

        Args:
            rounding: Share of the largest eigenvalue by which rounding may make one negative.
        """
        if not (np.isfinite(self.value) and np.isfinite(self.gradient).all() and np.isfinite(self.information).all()):
            return False
        values = np.linalg.eigvalsh(self.information)
        return bool(values.min(initial=0.0) >= -rounding * values.max(initial=0.0))

    @classmethod
    def of(cls, flat: Float[np.ndarray, " numbers"], p: int) -> Sums:
        """The inverse of :meth:`flat`."""
        return cls(float(flat[0]), flat[1 : 1 + p], symmetric(flat[1 + p :], p))


def sums(beta: Float[np.ndarray, " p"], x: Float[np.ndarray, "rows p"], y: Float[np.ndarray, " rows"]) -> Sums:
    """Terms of one silo: the logistic log-likelihood of its rows at β, and its derivatives.

    Args:
        beta: β.
        x: The silo's rows, a column of ones for the intercept.
        y: Its labels.
    """
    eta = x @ beta
    mean = expit(eta)
    # log(1 + e^η) without overflow.
    value = float(y @ eta - np.logaddexp(0.0, eta).sum())
    return Sums(value, x.T @ (y - mean), (x * (mean * (1 - mean))[:, None]).T @ x)


#: What asks all silos for their sums at β.
Asker = Callable[[Float[np.ndarray, " p"]], Sums]

#: Newton's decrement, which is twice what the value can still grow by, below which it is over.
_CLOSE = 1e-20
#: Smallest of the pivots of Cholesky's method to the largest, below which a matrix may be singular.
_SINGULAR = 1e-5


@dataclass(frozen=True, eq=False)
class Fit:
    """The largest penalised likelihood.

    Attributes:
        beta: Coefficients.
        at: Sums at them, without the penalty.
        penalty: Λ, by coefficient.
        rounds: Rounds of Newton's method, halvings included.
        converged: Whether nothing is left to gain.
    """

    beta: Float[np.ndarray, " p"]
    at: Sums
    penalty: Float[np.ndarray, "p p"]
    rounds: int
    converged: bool

    @property
    def covariance(self) -> Float[np.ndarray, "p p"]:
        """(Σ H + Λ)⁻¹; of a Bayesian with the penalty as prior, the covariance of β at a normal approximation."""
        return np.linalg.pinv(self.at.information + self.penalty, hermitian=True)

    @property
    def step(self) -> Float[np.ndarray, " p"]:
        """The next step of Newton's method, of a penalty that pulls to 0."""
        return _solve(self.at.information + self.penalty, self.at.gradient - self.penalty @ self.beta)


def ridge(p: int, strength: float) -> Float[np.ndarray, "p p"]:
    """Λ of an L2 penalty ½·strength·‖β‖² that leaves the intercept, which is the first coefficient, alone."""
    return np.diag([0.0, *[float(strength)] * (p - 1)])


def _solve(matrix: Float[np.ndarray, "p p"], gradient: Float[np.ndarray, " p"]) -> Float[np.ndarray, " p"]:
    """The Newton step; the shortest one where the matrix is singular or nearly so, as columns explain each other."""
    try:
        pivots = np.linalg.cholesky(matrix).diagonal()
        if pivots.min() > _SINGULAR * pivots.max():
            return np.linalg.solve(matrix, gradient)  # a tenth of the time of least squares
    except np.linalg.LinAlgError:
        pass
    return np.linalg.lstsq(matrix, gradient, rcond=1e-14)[0]


def maximise(
    starts: Float[np.ndarray, "points p"],
    penalty: Float[np.ndarray, "p p"],
    centre: Float[np.ndarray, " p"],
    most: int,
    *,
    close: float = _CLOSE,
    halvings: int = 1,
    stretches: Sequence[float] = (),
    ask_last: bool = True,
    enough: Callable[[Fit, float], bool] = lambda at, gain: False,
) -> Generator[Float[np.ndarray, "points p"], list[Sums], Fit]:
    """Maximise l(β) − ½ (β − β₀)' Λ (β − β₀) by Newton's method, with steps halved where they lose.

    Yields points, is sent the sums of each, and returns the fit.

    Args:
        starts: Points of the first round; the best of them is the start.
        penalty: Λ.
        centre: β₀.
        most: Rounds after which it gives up.
        close: Newton's decrement, as a share of the value, below which nothing is left to gain.
        halvings: Halved steps that one round tries together, after a whole step lost.
        stretches: Multiples of a step that are tried beside it after a step that left more than a tenth to gain, as
            happens where there is no finite optimum.
        ask_last: Ask for the sums after the last step too; without it, sums are those before it.
        enough: Whether a step from a fit, given the decrement there, is to be the last.
    """

    def objective(beta: np.ndarray, at: Sums) -> float:
        return at.value - 0.5 * float((beta - centre) @ penalty @ (beta - centre))

    def best(points: np.ndarray, sums: list[Sums]) -> tuple[np.ndarray, Sums]:
        return max(zip(points, sums, strict=True), key=lambda pair: objective(*pair))

    beta, at = best(starts, (yield starts))
    rounds, converged, gain = 1, False, np.inf
    while rounds < most and not converged:
        before, gradient = gain, at.gradient - penalty @ (beta - centre)
        step = _solve(at.information + penalty, gradient)
        gain = float(gradient @ step)
        converged = gain < close * max(1.0, abs(at.value))
        if (converged and not ask_last) or enough(Fit(beta, at, penalty, rounds, False), gain):
            beta = beta + step
            break
        now, parts = objective(beta, at), np.array([1.0, *(stretches if gain > 0.1 * before else ())])
        while True:
            points = beta + parts[:, None] * step
            there, new = best(points, (yield points))
            rounds += 1
            if objective(there, new) >= now - 1e-12 * abs(now) or converged or rounds >= most:
                break
            parts = min(parts[0], parts[-1]) / 2.0 ** np.arange(1, halvings + 1)
        beta, at = there, new
    return Fit(beta, at, penalty, rounds, converged)


def newton(
    ask: Asker,
    start: Float[np.ndarray, " p"],
    penalty: Float[np.ndarray, "p p"] | None = None,
    centre: Float[np.ndarray, " p"] | None = None,
    most: int = 60,
) -> Fit:
    """Maximise l(β) − ½ (β − β₀)' Λ (β − β₀) by :func:`maximise`, asking a function at once.

    Args:
        ask: Sums of all silos at β.
        start: β of the first round.
        penalty: Λ; None: 0.
        centre: β₀; None: 0.
        most: Rounds after which it gives up.
    """
    p = len(start)
    penalty = np.zeros((p, p)) if penalty is None else penalty
    search = maximise(np.asarray(start, float)[None], penalty, np.zeros(p) if centre is None else centre, most)
    points = next(search)
    while True:
        try:
            points = search.send([ask(beta) for beta in points])
        except StopIteration as end:
            return end.value


#: A column is constant where its deviation is below this share of its largest value, which may be rounding.
_CONSTANT = 1e-12


class Moments(NamedTuple):
    """Moments of columns; what is missing (NaN) does not count.

    Attributes:
        count: Number of values.
        mean: Mean; 0 of a column without a value.
        deviation: Standard deviation (divisor: count); 0 where a column never varies.
    """

    count: Float[np.ndarray, " columns"]
    mean: Float[np.ndarray, " columns"]
    deviation: Float[np.ndarray, " columns"]

    def standardise(self, x: Float[np.ndarray, "rows columns"]) -> Float[np.ndarray, "rows columns"]:
        """(x − mean)/deviation; 0 for what is missing and for columns that never vary."""
        varies = self.deviation > 0
        made = np.where(varies, (x - self.mean) / np.where(varies, self.deviation, 1.0), 0.0)
        return np.where(np.isnan(made), 0.0, made)


def moments_of(x: Float[np.ndarray, "rows columns"]) -> Moments:
    """Moments of the columns of rows."""
    x = x.astype(float)
    known = ~np.isnan(x)
    count = known.sum(axis=0).astype(float)
    mean = np.where(known, x, 0.0).sum(axis=0) / np.maximum(count, 1)
    deviation = np.sqrt(np.where(known, (x - mean) ** 2, 0.0).sum(axis=0) / np.maximum(count, 1))
    largest = np.abs(np.where(known, x, 0.0)).max(axis=0, initial=0.0)
    return Moments(count, mean, np.where(deviation > _CONSTANT * largest, deviation, 0.0))


def combine_moments(silos: Sequence[Moments]) -> Moments:
    """Moments of all rows, from those of each silo's own (Chan, Golub and LeVeque, The American Statistician 1983)."""
    count, mean, deviation = (np.array(one) for one in zip(*silos, strict=True))
    total = count.sum(axis=0)
    middle = (count * mean).sum(axis=0) / np.maximum(total, 1)
    squares = (count * (deviation**2 + (mean - middle) ** 2)).sum(axis=0)
    spread = np.sqrt(squares / np.maximum(total, 1))
    return Moments(total, middle, np.where(spread > _CONSTANT * np.abs(middle), spread, 0.0))
