"""A silo's logistic model shrunk to those of other silos, by empirical Bayes: one message of each other, no choosing.

Coefficients of standardised columns are β for the silo and β_j for the others. Those of a set S of others and the
silo's own are taken as draws around a common mean::

    β, β_j ~ N(m, T),  T = diag(1, τ², …, τ²),     m ~ N(0, L⁻¹),  L = diag(1/20, λ, …, λ)

with the intercept first. A silo j tells its log-likelihood to second order, −½ β'H_j β + η_j'β, as
:class:`Quadratic`. Integrals over β_j and m have closed forms, the one over β is Laplace's (Tierney and Kadane, JASA
1986). The model is the mean of β over S, τ and λ, each weighed by its posterior probability (Bayesian model averaging:
Hoeting et al., Statistical Science 1999). How far silos differ, τ, is learnt from the others of S as well; which of
them are like the silo, S, from its own rows alone. S = ∅ is a ridge regression of those.

The sets that are tried are all others, and each that is left when the one whose absence the silo's rows favour most
is taken away, down to none: one more than there are others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.special import expit

from fedrank.silos.glm import Fit, Sums
from fedrank.silos.sceptic.learners import fit_many

#: τ² and λ that are averaged over; finer grids change no AUC by more than 0.0003 on the tables of the benchmark.
SPREADS, PENALTIES = (0.001, 0.01, 0.1, 1.0), (1.0, 10.0, 100.0)
#: Variance of intercepts between silos, and precision of their mean: shares of label 1 differ widely.
_INTERCEPTS, _VAGUE = 1.0, 0.05
#: Prior probability of all others, and of none; the rest is shared by the sets between.
_ALL, _NONE = 0.8, 0.1
#: Times that the point of the expansion is moved to where the posterior is largest.
_MOVES = 2


class Quadratic(NamedTuple):
    """A log-likelihood to second order: constant + linear'β − ½ β'precision β.

    Attributes:
        precision: The information H.
        linear: η = Hβ̂ + gradient at β̂.
        constant: Its value at β = 0.
    """

    precision: Float[np.ndarray, "p p"]
    linear: Float[np.ndarray, " p"]
    constant: float

    @classmethod
    def of(cls, fit: Fit) -> Quadratic:
        """Expansion of the rows' log-likelihood, without the penalty, at the coefficients of a fit."""
        return cls.at(fit.beta, fit.at)

    @classmethod
    def at(cls, beta: Float[np.ndarray, " p"], sums: Sums) -> Quadratic:
        """Expansion at β of a log-likelihood with these derivatives there."""
        value, gradient, information = sums
        linear = information @ beta + gradient
        return cls(information, linear, value - float(gradient @ beta) - 0.5 * float(beta @ information @ beta))


class Shrunk(NamedTuple):
    """A shrunk model.

    Attributes:
        beta: Coefficients of standardised columns, the intercept first.
        partners: Posterior weight of the sets that each other silo is in, 0 to 1. A low one does not say that the silo
            is unlike: of two that tell the same, one may do.
    """

    beta: Float[np.ndarray, " p"]
    partners: Float[np.ndarray, " others"]


class _Own(NamedTuple):
    """Expansions of the log-likelihoods of several sets of the silo's rows: :class:`Quadratic`, one for each model."""

    precision: Float[np.ndarray, "models p p"]
    linear: Float[np.ndarray, "models p"]
    constant: Float[np.ndarray, " models"]

    @classmethod
    def at(
        cls,
        beta: Float[np.ndarray, "models p"],
        x: Float[np.ndarray, "models rows p"],
        y: Float[np.ndarray, " rows"],
        trains: Bool[np.ndarray, "models rows"],
    ) -> _Own:
        """Those of each model's rows at its β."""
        eta = (x @ beta[..., None])[..., 0]
        mean = expit(eta)
        precision = (x.swapaxes(-1, -2) * (mean * (1 - mean) * trains)[:, None]) @ x
        gradient = (((y - mean) * trains)[:, None] @ x)[:, 0]
        curved = (precision @ beta[..., None])[..., 0]
        value = ((y * eta - np.logaddexp(0.0, eta)) * trains).sum(axis=-1)
        constant = value - (gradient * beta).sum(axis=-1) - 0.5 * (beta * curved).sum(axis=-1)
        return cls(precision, curved + gradient, constant)

    def __getitem__(self, which) -> _Own:  # type: ignore[override]
        return _Own(self.precision[which], self.linear[which], self.constant[which])


class _Priors(NamedTuple):
    """Priors of β, each given a set of others, one for each τ and λ.

    Attributes:
        mean: Means.
        covariance: Covariances.
        log_weight: Log-probability of τ and λ, given what the others sent.
    """

    mean: Float[np.ndarray, "sets grid p"]
    covariance: Float[np.ndarray, "sets grid p p"]
    log_weight: Float[np.ndarray, "sets grid"]

    def posterior(self, own: _Own) -> tuple[Float[np.ndarray, "sets grid"], Float[np.ndarray, "sets grid p"]]:
        """Log-evidence of rows, one expansion for each set, times the prior of τ and λ; and posterior means of β."""
        curved = (own.precision[:, None] @ self.mean[..., None])[..., 0]
        rest = own.linear[:, None] - curved
        stretch = np.eye(self.mean.shape[-1]) + self.covariance @ own.precision[:, None]
        step = np.linalg.solve(stretch, self.covariance @ rest[..., None])[..., 0]
        at_mean = own.constant[:, None] + (self.mean * (own.linear[:, None] - 0.5 * curved)).sum(axis=-1)
        evidence = at_mean - 0.5 * np.linalg.slogdet(stretch)[1] + 0.5 * (rest * step).sum(axis=-1)
        return evidence + self.log_weight, self.mean + step


class _Grid:
    """Messages of others about the common mean, for every τ and λ; each model has the same others in other units."""

    def __init__(self, others: Sequence[Sequence[Quadratic]], p: int):
        spreads = np.array([[_INTERCEPTS, *[spread] * (p - 1)] for spread in SPREADS])
        penalties = np.array([[_VAGUE, *[penalty] * (p - 1)] for penalty in PENALTIES])
        self.within, self.across = (table[..., None] * np.eye(p) for table in (spreads, penalties))
        shape = (len(others), 1, len(others[0]))
        precision = np.array([[one.precision for one in told] for told in others]).reshape(*shape, p, p)
        linear = np.array([[one.linear for one in told] for told in others]).reshape(*shape, p, 1)
        # ∫ exp(η'β − ½ β'Hβ) N(β; m, T) dβ = exp(constant + a'm − ½ m'Am), A = (I + HT)⁻¹H, a = (I + HT)⁻¹η.
        stretch = np.eye(p) + precision * spreads[:, None, None]
        both = np.broadcast_to(np.concatenate([precision, linear], axis=-1), (*stretch.shape[:-1], p + 1))
        found = np.linalg.solve(stretch, both)
        self.precision = (found[..., :p] + found[..., :p].swapaxes(-1, -2)) / 2
        self.linear = found[..., p]
        self.constant = 0.5 * (linear[..., 0] * spreads[:, None] * self.linear).sum(axis=-1)
        self.constant -= 0.5 * np.linalg.slogdet(stretch)[1]

    def priors(self, model: Int[np.ndarray, " sets"], like: Bool[np.ndarray, "sets others"]) -> _Priors:
        """Priors of β, each of a model and given a set of others."""
        sets, p = len(like), self.linear.shape[-1]
        told = like[:, None].astype(float)  # by set, τ and other
        precision = np.einsum("sko,skopq->skpq", told.repeat(len(SPREADS), 1), self.precision[model])
        precision = self.across + precision[:, :, None]  # by set, τ and λ
        linear = (told[..., None] * self.linear[model]).sum(axis=2)[:, :, None]
        covariance = np.linalg.inv(precision)
        mean = (covariance @ linear[..., None])[..., 0]
        weight = (told * self.constant[model]).sum(axis=-1)[..., None] + 0.5 * (linear * mean).sum(axis=-1)
        weight += 0.5 * (np.linalg.slogdet(self.across)[1] - np.linalg.slogdet(precision)[1])
        weight -= 0.5 * np.log(SPREADS)[:, None]
        weight[~like.any(axis=1)] = 0.0  # of no other there is nothing to learn τ and λ from
        weight = weight.reshape(sets, -1)
        covariance = (covariance + self.within[:, None]).reshape(sets, -1, p, p)
        return _Priors(mean.reshape(sets, -1, p), covariance, weight - np.logaddexp.reduce(weight, axis=1)[:, None])


def shrink(x: Float[np.ndarray, "rows p"], y: Float[np.ndarray, " rows"], others: Sequence[Quadratic]) -> Shrunk:
    """Shrink a silo's model to those of others.

    Args:
        x: The silo's standardised rows behind a column of ones.
        y: Its labels, 0 or 1.
        others: What each other silo sent, on columns that are standardised alike.
    """
    return shrink_many(x[None], y, np.ones((1, len(y)), bool), [others])[0]


def shrink_many(
    x: Float[np.ndarray, "models rows p"],
    y: Float[np.ndarray, " rows"],
    trains: Bool[np.ndarray, "models rows"],
    others: Sequence[Sequence[Quadratic]],
) -> list[Shrunk]:
    """:func:`shrink` of some of a silo's rows, for several choices of rows at once.

    Args:
        x: The silo's rows behind a column of ones, standardised for each model.
        y: Labels.
        trains: Rows of each model.
        others: What each other silo sent, on columns that are standardised as each model's.
    """
    grid, count = _Grid(others, x.shape[-1]), len(others[0])
    models = np.arange(len(x))
    like = np.ones((len(x), count), bool)
    sets, scores, betas = [], [], []
    own: _Own | None = None
    while True:
        own, score, beta = _expand(x, y, trains, grid.priors(models, like), own)
        sets.append(like)
        scores.append(score)
        betas.append(beta)
        if not (left := int(like[0].sum())):
            break
        of, one = np.nonzero(like)  # each model has as many left
        without = like[of]
        without[np.arange(len(of)), one] = False
        evidence = np.logaddexp.reduce(grid.priors(of, without).posterior(own[of])[0], axis=1)
        like = without.reshape(len(x), left, count)[models, evidence.reshape(-1, left).argmax(axis=1)]
    between = (1 - _ALL - _NONE) / max(1, len(sets) - 2)
    prior_of = np.array([_ALL, *[between] * (len(sets) - 2), _NONE][-len(sets) :])
    total = np.stack(scores, axis=1) + np.log(prior_of)[:, None]  # by model, set and (τ, λ)
    weight = np.exp(total - np.logaddexp.reduce(total.reshape(len(x), -1), axis=1)[:, None, None])
    mean = np.einsum("msg,msgp->mp", weight, np.stack(betas, axis=1))
    partners = np.einsum("msg,mso->mo", weight, np.stack(sets, axis=1).astype(float))
    return [Shrunk(*one) for one in zip(mean, partners, strict=True)]


def _expand(
    x: Float[np.ndarray, "models rows p"],
    y: Float[np.ndarray, " rows"],
    trains: Bool[np.ndarray, "models rows"],
    prior: _Priors,
    near: _Own | None,
) -> tuple[_Own, Float[np.ndarray, "models grid"], Float[np.ndarray, "models grid p"]]:
    """Log-likelihoods to second order where each model's posterior is largest, and what follows for each τ and λ.

    Args:
        x: The silo's rows, by model.
        y: Their labels.
        trains: Rows of each model.
        prior: Priors of β, one set for each model.
        near: Expansions by which the first τ and λ are chosen; None: by their prior.
    """
    models = np.arange(len(x))
    best = (prior.log_weight if near is None else prior.posterior(near)[0]).argmax(axis=1)
    score = beta = np.empty(0)
    for _ in range(_MOVES):
        precision = np.linalg.inv(prior.covariance[models, best])
        point = fit_many(x, y, trains, precision[:, None], prior.mean[models, best][:, None])[:, 0]
        near = _Own.at(point, x, y, trains)
        score, beta = prior.posterior(near)
        best, before = score.argmax(axis=1), best
        if (best == before).all():
            break
    assert near is not None
    return near, score, beta
