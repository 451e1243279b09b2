"""Families of regression models: log-likelihood, derivatives and scores of rows, and a start from moments.

Parameters of a family form one vector θ: p coefficients of the columns; one such block a level of a multinomial
outcome; cut points and then coefficients of an ordinal one; coefficients and then log θ of a negative binomial one.
"""

from __future__ import annotations

import abc
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar, NamedTuple

import numpy as np
from jaxtyping import Bool, Float
from scipy.special import betaln, digamma, expit, gammaln, logsumexp, polygamma

from fedrank.silos.glm import Sums, symmetric
from fedrank.silos.studies.protocol import Rows

#: Linear predictor above which exp would leave the range of floating point in sums.
_LARGEST = 300.0


class Moments(NamedTuple):
    """Sums of rows from which a fit starts; of a linear model they are all that it needs.

    Attributes:
        weight: Σw.
        exposure: Σv, where v is w, or w·exp(offset) with a log link.
        x: Σ v x.
        gram: Σ v xx'.
        y: Σ w y, or Σw of each level.
        xy: Σ w xy, one column a level where the outcome has levels.
        yy: Σ w y².
    """

    weight: Float[np.ndarray, ""]
    exposure: Float[np.ndarray, ""]
    x: Float[np.ndarray, " p"]
    gram: Float[np.ndarray, "p p"]
    y: Float[np.ndarray, " outcomes"]
    xy: Float[np.ndarray, "p outcomes"]
    yy: Float[np.ndarray, ""]

    def flat(self) -> Float[np.ndarray, " numbers"]:
        """All numbers in one vector, the upper triangle of the symmetric matrix."""
        parts = self._replace(gram=self.gram[np.triu_indices(len(self.x))])
        return np.concatenate([np.ravel(part) for part in parts])

    @classmethod
    def of(cls, flat: Float[np.ndarray, " numbers"], p: int, outcomes: int) -> Moments:
        """The inverse of :meth:`flat`."""
        ends = np.cumsum([1, 1, p, p * (p + 1) // 2, outcomes, p * outcomes])
        weight, exposure, x, above, y, xy, yy = np.split(flat, ends)
        return cls(weight[0], exposure[0], x, symmetric(above, p), y, xy.reshape(p, outcomes), yy[0])


@dataclass(frozen=True)
class Family(abc.ABC):
    """A distribution of the outcome given the columns: its likelihood, its parameters θ [m], and where a fit starts.

    Attributes:
        levels: Number of the outcome's levels; 0: it is a number.
    """

    levels: int = 0
    name: ClassVar[str]
    #: Whether θ has a constant beside the coefficients of the columns.
    has_cuts: ClassVar[bool] = False

    def parameters(self, p: int) -> int:
        """Length of θ for p columns."""
        return p

    def mask(self, columns: Bool[np.ndarray, " p"]) -> Bool[np.ndarray, " m"]:
        """The parameters that are left where only some columns are."""
        return columns

    def labels(self, names: Sequence[str], levels: Sequence[str]) -> list[str]:
        """Names of the parameters, in the order of θ, from those of the columns and of the outcome's levels."""
        return list(names)

    def in_own_units(self, own: Float[np.ndarray, "q q"], intercept: bool) -> Float[np.ndarray, "m m"]:
        """Map of the parameters, given that of (constant, coefficients) from the design to the columns' own units."""
        return own if intercept else own[1:, 1:]

    def exposure(self, rows: Rows) -> Float[np.ndarray, " rows"]:
        """Weights of a row in the moments of the columns."""
        return rows.weight

    def moments(self, rows: Rows) -> Moments:
        """Sums from which a fit starts."""
        w, v = rows.weight, self.exposure(rows)
        y = (rows.y[:, None] == np.arange(self.levels)).astype(float) if self.levels else (rows.y)[:, None]
        wy = w[:, None] * y
        yy = np.asarray(wy[:, 0] @ y[:, 0])
        return Moments(w.sum(), v.sum(), v @ rows.x, _gram(rows.x, v), wy.sum(axis=0), rows.x.T @ wy, yy)

    def expected_information(self, theta: Float[np.ndarray, " m"], rows: Rows) -> Float[np.ndarray, "m m"] | None:
        """Information that R's standard errors come from, where it is not the observed one."""
        return None

    @abc.abstractmethod
    def starts(self, at: Moments, columns: Bool[np.ndarray, " p"], intercept: bool) -> Float[np.ndarray, "points m"]:
        """Points θ at which a search begins; the best of them is its start."""

    @abc.abstractmethod
    def sums(self, theta: Float[np.ndarray, " m"], rows: Rows) -> Sums:
        """Log-likelihood of the rows at θ and its derivatives; the information is the observed one."""

    @abc.abstractmethod
    def scores(self, theta: Float[np.ndarray, " m"], rows: Rows) -> Float[np.ndarray, "rows m"]:
        """Gradient of each row's log-likelihood at θ, times its weight."""

    @abc.abstractmethod
    def weigh(self, theta: Float[np.ndarray, " m"], rows: Rows) -> Float[np.ndarray, "kinds rows"]:
        """Weights of the rows in the gradient and the information at θ, at least 0.

        NaN of a linear predictor that no search comes to, at whose end rows would be cut to one value: sums there
        count the rows beyond a threshold.
        """


@dataclass(frozen=True)
class OnePredictor(Family):
    """A family whose rows depend on θ by one linear predictor xθ + offset."""

    @abc.abstractmethod
    def terms(
        self, eta: Float[np.ndarray, " rows"], y: Float[np.ndarray, " rows"]
    ) -> tuple[Float[np.ndarray, " rows"], Float[np.ndarray, " rows"], Float[np.ndarray, " rows"]]:
        """Log-likelihood of each row, its derivative by the linear predictor, and the negative second one."""

    def starts(self, at: Moments, columns: Bool[np.ndarray, " p"], intercept: bool) -> Float[np.ndarray, "points m"]:
        """Points to begin at: one step of Newton's method, or parts of it, from a model without columns."""
        constant, mean, curvature = self._null(float(at.y[0] / at.exposure) if intercept else None)
        step = _solve_within(curvature * at.gram, at.xy[:, 0] - mean * at.x, columns)
        base = np.zeros(len(columns))
        base[0] = constant
        return base + np.array(self._parts)[:, None] * step

    _parts: ClassVar[tuple[float, ...]] = (1.0,)

    @abc.abstractmethod
    def _null(self, mean: float | None) -> tuple[float, float, float]:
        """Linear predictor, mean and curvature of a row in a model of the intercept alone, or of nothing."""

    def sums(self, theta: Float[np.ndarray, " m"], rows: Rows) -> Sums:
        """Log-likelihood of the rows and its derivatives; the information is the observed one."""
        value, slope, curvature = self.terms(rows.x @ theta + rows.offset, rows.y)
        w = rows.weight
        return Sums(float(w @ value), (w * slope) @ rows.x, _gram(rows.x, w * curvature))

    def scores(self, theta: Float[np.ndarray, " m"], rows: Rows) -> Float[np.ndarray, "rows m"]:
        """Gradient of each row's log-likelihood, times its weight."""
        return rows.x * (rows.weight * self.terms(rows.x @ theta + rows.offset, rows.y)[1])[:, None]

    def weigh(self, theta: Float[np.ndarray, " m"], rows: Rows) -> Float[np.ndarray, "kinds rows"]:
        """Curvatures, and slopes without their sign."""
        eta = rows.x @ theta + rows.offset
        _, slope, curvature = self.terms(eta, rows.y)
        return _within(eta, rows.weight * np.array([curvature, np.abs(slope)]))


def _within(
    eta: Float[np.ndarray, " rows"], weights: Float[np.ndarray, "kinds rows"]
) -> Float[np.ndarray, "kinds rows"]:
    """Weights, NaN where a linear predictor is outside the range in which it is computed."""
    return np.where(np.abs(eta) < _LARGEST, weights, np.nan)


def _gram(x: Float[np.ndarray, "rows p"], w: Float[np.ndarray, " rows"]) -> Float[np.ndarray, "p p"]:
    """Σ w xx', w ≥ 0, by one product of a matrix with itself, which takes half the time."""
    scaled = x * np.sqrt(w)[:, None]
    return scaled.T @ scaled


def _solve_within(
    matrix: Float[np.ndarray, "p p"], right: Float[np.ndarray, " p"], columns: Bool[np.ndarray, " p"]
) -> Float[np.ndarray, " p"]:
    """Solution in some of the columns, 0 in the others."""
    out = np.zeros(len(columns))
    if columns.any():
        out[columns] = np.linalg.lstsq(matrix[np.ix_(columns, columns)], right[columns], rcond=1e-14)[0]
    return out


@dataclass(frozen=True)
class Linear(OnePredictor):
    """A number with errors of one normal distribution; the value is −½ Σ w (y − η)², the deviation being unknown."""

    name: ClassVar[str] = "linear"

    def moments(self, rows: Rows) -> Moments:
        """Sums that give the whole fit; what is offset is taken from the outcome."""
        return super().moments(rows._replace(y=rows.y - rows.offset))

    def terms(self, eta, y):
        """See :meth:`Family.terms`."""
        rest = y - eta
        return -0.5 * rest**2, rest, np.ones(len(y))

    def weigh(self, theta, rows):
        """None: all weigh alike in the moments, and no sums at a θ are asked for."""
        return np.zeros((0, len(rows.y)))

    def _null(self, mean):
        return 0.0, 0.0, 1.0


@dataclass(frozen=True)
class Logistic(OnePredictor):
    """An outcome of 0 or 1, whose log-odds are the linear predictor."""

    name: ClassVar[str] = "logistic"

    def terms(self, eta, y):
        """See :meth:`Family.terms`."""
        mean = expit(eta)
        return y * eta - np.logaddexp(0.0, eta), y - mean, mean * expit(-eta)

    def _null(self, mean):
        mean = 0.5 if mean is None else min(max(mean, 1e-6), 1 - 1e-6)
        return float(np.log(mean / (1 - mean))), mean, mean * (1 - mean)


@dataclass(frozen=True)
class Poisson(OnePredictor):
    """A count whose logarithm of the mean is linear."""

    name: ClassVar[str] = "poisson"
    _parts: ClassVar[tuple[float, ...]] = (1.0, 0.5, 0.25)

    def exposure(self, rows: Rows) -> Float[np.ndarray, " rows"]:
        """Weights times exp(offset), so that the step from the model without columns is exact."""
        return rows.weight * np.exp(np.minimum(rows.offset, _LARGEST))

    def terms(self, eta, y):
        """See :meth:`Family.terms`."""
        mean = np.exp(np.minimum(eta, _LARGEST))
        return y * eta - mean - gammaln(y + 1), y - mean, mean

    def _null(self, mean):
        mean = 1.0 if mean is None else max(mean, 1e-9)
        return float(np.log(mean)), mean, mean


@dataclass(frozen=True)
class NegativeBinomial(Poisson):
    """A count with variance μ + μ²/θ; θ is estimated with the coefficients, as log θ, the last parameter."""

    name: ClassVar[str] = "negative-binomial"

    def parameters(self, p):
        """Coefficients and log θ."""
        return p + 1

    def mask(self, columns):
        """See :meth:`Family.mask`."""
        return np.append(columns, True)

    def labels(self, names, levels):
        """See :meth:`Family.labels`."""
        return [*names, "log(theta)"]

    def in_own_units(self, own, intercept):
        """See :meth:`Family.in_own_units`."""
        return _beside(super().in_own_units(own, intercept), np.eye(1))

    def starts(self, at, columns, intercept):
        """Points of a Poisson model, with θ from the variance of all rows and three and nine times as large."""
        mean = max(float(at.y[0] / at.weight), 1e-9)
        extra = float(at.yy / at.weight) - mean**2 - mean
        theta = np.log(np.clip(mean**2 / max(extra, 1e-2 * mean), 0.05, 100.0))
        points = super().starts(at, columns, intercept)
        return np.vstack([np.append(point, theta + more) for point in points for more in np.log([1.0, 3.0, 9.0])])

    def sums(self, theta, rows):
        """See :meth:`Family.sums`."""
        value, slopes, curvatures = self._terms(theta, rows)
        w, x = rows.weight, rows.x
        gradient = np.append((w * slopes[0]) @ x, w @ slopes[1])
        cross = (w * curvatures[1]) @ x
        return Sums(float(w @ value), gradient, _add_border(_gram(x, w * curvatures[0]), cross, w @ curvatures[2]))

    def expected_information(self, theta, rows):
        """Expected information of β, observed one of log θ, nothing between them: as MASS::glm.nb."""
        curvatures = self._terms(theta, rows)[2]
        w = rows.weight
        return _add_border(_gram(rows.x, w * curvatures[3]), np.zeros(rows.x.shape[1]), w @ curvatures[2])

    def scores(self, theta, rows):
        """See :meth:`Family.scores`."""
        slopes = self._terms(theta, rows)[1]
        w = rows.weight
        return np.column_stack([rows.x * (w * slopes[0])[:, None], w * slopes[1]])

    def weigh(self, theta, rows):
        """Of the linear predictor: curvatures, observed and expected, and slopes; without those by log θ."""
        _, slopes, curvatures = self._terms(theta, rows)
        eta = rows.x @ theta[:-1] + rows.offset
        return _within(eta, rows.weight * np.abs([curvatures[0], curvatures[3], slopes[0]]))

    def _terms(self, theta, rows):
        """Log-likelihoods; derivatives by η and τ = log θ; negative second ones by ηη, ητ, ττ, and expected by ηη."""
        y, eta, size = rows.y, np.minimum(rows.x @ theta[:-1] + rows.offset, _LARGEST), np.exp(theta[-1])
        mean, apart = np.exp(eta), eta - theta[-1]
        share, log_share = expit(-apart), np.logaddexp(0.0, apart)  # θ/(θ + μ), and the negative of its logarithm
        some = np.maximum(y, 1.0)
        # log Γ(y + θ)/Γ(θ)/y!, which loses no digits where θ is large.
        choose = np.where(y > 0, -np.log(some) - betaln(size, some), 0.0)
        value = choose - size * log_share - y * np.logaddexp(0.0, -apart)
        rest = y - mean
        by_size = digamma(y + size) - digamma(size) - log_share - rest / (size + mean)
        by_size_twice = (
            polygamma(1, y + size) - polygamma(1, size) + 1 / size - 2 / (size + mean) + (y + size) / (size + mean) ** 2
        )
        spread = share * expit(apart)
        slopes = rest * share, size * by_size
        negative = mean * share + rest * spread, -rest * spread, -size * by_size - size**2 * by_size_twice
        return value, slopes, (*negative, mean * share)


@dataclass(frozen=True)
class Multinomial(Family):
    """An outcome of several levels without order; log-odds of each level against the first are linear."""

    name: ClassVar[str] = "multinomial"

    def parameters(self, p):
        """One block of coefficients for each level after the first."""
        return p * (self.levels - 1)

    def mask(self, columns):
        """See :meth:`Family.mask`."""
        return np.tile(columns, self.levels - 1)

    def labels(self, names, levels):
        """See :meth:`Family.labels`."""
        return [f"{level}: {name}" for level in levels[1:] for name in names]

    def in_own_units(self, own, intercept):
        """See :meth:`Family.in_own_units`."""
        return np.kron(np.eye(self.levels - 1), super().in_own_units(own, intercept))

    def starts(self, at, columns, intercept):
        """See :meth:`Family.starts`."""
        share = np.full(self.levels, 1 / self.levels)
        if intercept:
            share = np.maximum(at.y / at.weight, 1e-6)
        base = np.zeros((self.levels - 1, len(columns)))
        base[:, 0] = np.log(share[1:] / share[0]) if intercept else 0.0
        gradient = at.xy[:, 1:] - np.outer(at.x, share[1:])
        # (diag(s) − ss')⁻¹ = diag(1/s) + 1/s₀ of the levels after the first: the step has one solution a column.
        steps = np.column_stack([_solve_within(at.gram, one, columns) for one in gradient.T])
        return (base + steps.T / share[1:, None] + steps.sum(axis=1) / share[0]).reshape(1, -1)

    def sums(self, theta, rows):
        """See :meth:`Family.sums`."""
        value, rest, share = self._terms(theta, rows)
        w, x, m = rows.weight, rows.x, self.levels - 1
        p = x.shape[1]
        blocks = np.empty((m, p, m, p))
        for j in range(m):
            blocks[j, :, j, :] = _gram(x, w * share[:, j] * (1 - share[:, j]))
            for k in range(j):
                blocks[j, :, k, :] = blocks[k, :, j, :] = -_gram(x, w * share[:, j] * share[:, k])
        return Sums(float(w @ value), ((w[:, None] * rest).T @ x).ravel(), blocks.reshape(m * p, m * p))

    def scores(self, theta, rows):
        """See :meth:`Family.scores`."""
        rest = self._terms(theta, rows)[1] * rows.weight[:, None]
        return (rest[:, :, None] * rows.x[:, None, :]).reshape(len(rows.y), len(theta))

    def weigh(self, theta, rows):
        """Products of the probabilities of two levels, of which the curvatures are sums, and slopes by level."""
        _, rest, share = self._terms(theta, rows)
        share = np.column_stack([1 - share.sum(axis=1), share])
        j, k = np.triu_indices(self.levels, 1)
        return rows.weight * np.abs(np.column_stack([share[:, j] * share[:, k], rest])).T

    def _terms(self, theta, rows):
        """Log-likelihoods, and level less probability and probability of the levels after the first."""
        eta = rows.x @ theta.reshape(self.levels - 1, -1).T + rows.offset[:, None]
        eta = np.column_stack([np.zeros(len(eta)), eta])
        total = np.asarray(logsumexp(eta, axis=1))
        share = np.exp(eta - total[:, None])
        level = rows.y.astype(int)
        value = eta[np.arange(len(level)), level] - total
        return value, ((level[:, None] == np.arange(self.levels)) - share)[:, 1:], share[:, 1:]


@dataclass(frozen=True)
class Ordinal(Family):
    """An outcome of ordered levels with proportional odds: logit P(y ≤ j) = ζ_j − η, as MASS::polr.

    The design has no column of ones: ζ are its intercepts. With a = ζ_j − η and b = ζ_{j−1} − η,
    log P(y = j) = log F(a) + log F(−b) + log(1 − e^{b−a}), so that no digits are lost in F(a) − F(b).
    """

    name: ClassVar[str] = "ordinal"
    has_cuts: ClassVar[bool] = True

    def parameters(self, p):
        """Cut points, then coefficients."""
        return self.levels - 1 + p

    def mask(self, columns):
        """See :meth:`Family.mask`."""
        return np.append(np.ones(self.levels - 1, bool), columns)

    def labels(self, names, levels):
        """See :meth:`Family.labels`."""
        return [f"{low}|{high}" for low, high in pairwise(levels)] + list(names)

    def in_own_units(self, own, intercept):
        """See :meth:`Family.in_own_units`."""
        out = _beside(np.eye(self.levels - 1), own[1:, 1:])
        out[: self.levels - 1, self.levels - 1 :] = -own[0, 1:]
        return out

    def starts(self, at, columns, intercept):
        """See :meth:`Family.starts`."""
        share = np.maximum(at.y / at.weight, 1e-6)
        below = np.cumsum(share / share.sum())[:-1]
        low, high = np.append(0.0, below), np.append(below, 1.0)
        gradient = at.xy @ (low + high - 1)  # of a row: F(b) − F(−a)
        # Expected curvature of a row, and its part of each cut point: all rows alike, so that the columns' means go.
        curvature = share @ (low * (1 - low) + high * (1 - high))
        mean = at.x / at.weight
        step = _solve_within(curvature * (at.gram - at.weight * np.outer(mean, mean)), gradient, columns)
        cuts = np.log(below / (1 - below))
        return np.concatenate([cuts + mean @ step, step])[None]

    def sums(self, theta, rows):
        """See :meth:`Family.sums`; the value is −∞ where the cut points do not rise."""
        value, (cuts, eta), (top, bottom, between) = self._terms(theta, rows)
        w, x = rows.weight, rows.x
        gradient = np.concatenate([w @ cuts, (w * eta) @ x])
        curvature = w[:, None] * (top + bottom)
        # Of level j, which lies between the cut points j − 1 and j.
        between = between * np.bincount(rows.y.astype(int), w, self.levels)
        own = np.diag(curvature.sum(axis=0) + between[:-1] + between[1:])
        own -= np.diag(between[1:-1], 1) + np.diag(between[1:-1], -1)
        cross = -curvature.T @ x
        information = np.block([[own, cross], [cross.T, _gram(x, curvature.sum(axis=1))]])
        return Sums(float(w @ value) if len(w) else 0.0, gradient, information)

    def scores(self, theta, rows):
        """See :meth:`Family.scores`."""
        cuts, eta = self._terms(theta, rows)[1]
        return rows.weight[:, None] * np.column_stack([cuts, rows.x * eta[:, None]])

    def weigh(self, theta, rows):
        """Curvatures and slopes by each cut point, and of the linear predictor."""
        _, (cuts, eta), (top, bottom, _) = self._terms(theta, rows)
        curvature = top + bottom
        return rows.weight * np.abs(np.column_stack([curvature, cuts, curvature.sum(axis=1), eta])).T

    def _terms(self, theta, rows):
        """Log-likelihoods; derivatives by cut points [rows, cuts] and by η; negative second ones.

        The last are those by the cut point above a row's level and by the one below, each [rows, cuts], and what every
        row of a level adds between its two cut points.
        """
        cuts = self.levels - 1
        zeta, level = np.concatenate([[-np.inf], theta[:cuts], [np.inf]]), rows.y.astype(int)
        gap = np.diff(theta[:cuts])
        rising = bool((gap > 0).all())
        gap = np.where(gap > 0, gap, 1.0)
        ends = np.zeros(1)
        inside = np.concatenate([ends, np.log(-np.expm1(-gap)), ends])[: self.levels]
        ratio = np.concatenate([ends, -np.exp(-gap) / np.expm1(-gap), ends])[: self.levels]
        between = np.concatenate([ends, np.exp(-gap) / np.expm1(-gap) ** 2, ends])[: self.levels]
        eta = rows.x @ theta[cuts:] + rows.offset
        above, below = zeta[level + 1] - eta, zeta[level] - eta
        value = inside[level] - np.logaddexp(0.0, -above) - np.logaddexp(0.0, below)
        top, bottom = (level[:, None] - shift == np.arange(cuts) for shift in (0, 1))
        slopes = top * (expit(-above) + ratio[level])[:, None] - bottom * (expit(below) + ratio[level])[:, None]
        curves = (
            top * (expit(above) * expit(-above))[:, None],
            bottom * (expit(below) * expit(-below))[:, None],
            between,
        )
        return value if rising else np.full(len(value), -np.inf), (slopes, expit(below) - expit(-above)), curves


def _add_border(
    inner: Float[np.ndarray, "p p"], cross: Float[np.ndarray, " p"], corner: float
) -> Float[np.ndarray, "m m"]:
    """A symmetric matrix with one row and column more."""
    return np.block([[inner, cross[:, None]], [cross[None], np.full((1, 1), corner)]])


def _beside(first: Float[np.ndarray, "a a"], second: Float[np.ndarray, "b b"]) -> Float[np.ndarray, "m m"]:
    """A matrix of two blocks."""
    return np.block([[first, np.zeros((len(first), len(second)))], [np.zeros((len(second), len(first))), second]])


#: Families by name.
FAMILIES: dict[str, type[Family]] = {
    one.name: one for one in (Linear, Logistic, Poisson, NegativeBinomial, Multinomial, Ordinal)
}


def family_of(name: str, levels: int = 0) -> Family:
    """A family by its name, one of :data:`FAMILIES`.

    Args:
        name: The name.
        levels: Number of the outcome's levels, of a multinomial or an ordinal one.
    """
    return FAMILIES[name](levels if FAMILIES[name] in (Multinomial, Ordinal) else 0)
