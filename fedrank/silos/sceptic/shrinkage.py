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
from jaxtyping import Float

from fedrank.silos.glm.newton import Fit, Sums
from fedrank.silos.sceptic.learners import fit_glm

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


class _Priors(NamedTuple):
    """Priors of β given a set of others, one for each τ and λ.

    Attributes:
        mean: Means.
        covariance: Covariances.
        log_weight: Log-probability of τ and λ, given what the others sent.
    """

    mean: Float[np.ndarray, "grid p"]
    covariance: Float[np.ndarray, "grid p p"]
    log_weight: Float[np.ndarray, " grid"]

    def posterior(self, own: Quadratic) -> tuple[Float[np.ndarray, " grid"], Float[np.ndarray, "grid p"]]:
        """Log-evidence of the silo's rows times the prior of τ and λ, and the posterior means of β."""
        stretch = np.eye(len(own.linear)) + self.covariance @ own.precision
        rest = own.linear - self.mean @ own.precision
        moved = np.einsum("gij,gj->gi", self.covariance, rest)
        step = np.linalg.solve(stretch, moved[..., None])[..., 0]
        at_mean = own.constant + self.mean @ own.linear
        at_mean -= 0.5 * np.einsum("gi,ij,gj->g", self.mean, own.precision, self.mean)
        evidence = at_mean - 0.5 * np.linalg.slogdet(stretch)[1] + 0.5 * (rest * step).sum(axis=1)
        return evidence + self.log_weight, self.mean + step


class _Grid:
    """The others' messages about the common mean, for every τ and λ."""

    def __init__(self, others: Sequence[Quadratic], p: int):
        identity = np.eye(p)
        self.within = [np.diag([_INTERCEPTS, *[spread] * (p - 1)]) for spread in SPREADS]
        # ∫ exp(η'β − ½ β'Hβ) N(β; m, T) dβ = exp(constant + a'm − ½ m'Am), A = (I + HT)⁻¹H, a = (I + HT)⁻¹η.
        self.precision, self.linear = (
            np.zeros((len(SPREADS), len(others), p, p)),
            np.zeros((len(SPREADS), len(others), p)),
        )
        self.constant = np.zeros((len(SPREADS), len(others)))
        for k, variance in enumerate(self.within):
            for j, one in enumerate(others):
                stretch = identity + one.precision @ variance
                found = np.linalg.solve(stretch, np.column_stack([one.precision, one.linear]))
                self.precision[k, j] = (found[:, :p] + found[:, :p].T) / 2
                self.linear[k, j] = found[:, p]
                self.constant[k, j] = (
                    0.5 * float(one.linear @ variance @ found[:, p]) - 0.5 * np.linalg.slogdet(stretch)[1]
                )

    def priors(self, some: Sequence[int]) -> _Priors:
        """Priors of β given a set of others."""
        which = list(some)
        p = self.linear.shape[-1]
        across = np.array([np.diag([_VAGUE, *[penalty] * (p - 1)]) for penalty in PENALTIES])
        precision = across + self.precision[:, which].sum(axis=1)[:, None]  # by τ and λ
        linear = np.repeat(self.linear[:, which].sum(axis=1)[:, None], len(PENALTIES), axis=1)
        covariance = np.linalg.inv(precision)
        mean = (covariance @ linear[..., None])[..., 0]
        told = np.zeros(mean.shape[:2])
        if which:  # of no other there is nothing to learn τ and λ from
            told += self.constant[:, which].sum(axis=1)[:, None] + 0.5 * (linear * mean).sum(axis=-1)
            told += 0.5 * (np.linalg.slogdet(across)[1] - np.linalg.slogdet(precision)[1])
            told -= 0.5 * np.log(SPREADS)[:, None]
        covariance = covariance + np.array(self.within)[:, None]
        log_weight = told.ravel() - np.logaddexp.reduce(told, axis=None)
        return _Priors(mean.reshape(-1, p), covariance.reshape(-1, p, p), log_weight)


def shrink(x: Float[np.ndarray, "rows p"], y: Float[np.ndarray, " rows"], others: Sequence[Quadratic]) -> Shrunk:
    """Shrink a silo's model to those of others.

    Args:
        x: The silo's standardised rows behind a column of ones.
        y: Its labels, 0 or 1.
        others: What each other silo sent, on columns that are standardised alike.
    """
    grid = _Grid(others, x.shape[1])
    some = list(range(len(others)))
    sets, scores, betas = [], [], []
    own: Quadratic | None = None
    while True:
        own, score, beta = _expand(x, y, grid.priors(some), own)
        sets.append(tuple(some))
        scores.append(score)
        betas.append(beta)
        if not some:
            break
        without = [[j for j in some if j != one] for one in some]
        evidence = np.array([np.logaddexp.reduce(grid.priors(rest).posterior(own)[0]) for rest in without])
        some = without[int(evidence.argmax())]
    between = (1 - _ALL - _NONE) / max(1, len(sets) - 2)
    prior_of = [_ALL, *[between] * (len(sets) - 2), _NONE][-len(sets) :]
    total = np.array(scores) + np.log(prior_of)[:, None]
    weight = np.exp(total - np.logaddexp.reduce(total, axis=None))
    like = np.array([[j in one for j in range(len(others))] for one in sets], float)
    return Shrunk(np.einsum("sg,sgp->p", weight, np.array(betas)), weight.sum(axis=1) @ like)


def _expand(
    x: Float[np.ndarray, "rows p"], y: Float[np.ndarray, " rows"], prior: _Priors, near: Quadratic | None
) -> tuple[Quadratic, Float[np.ndarray, " grid"], Float[np.ndarray, "grid p"]]:
    """The silo's log-likelihood to second order where its posterior is largest, and what follows for each τ and λ.

    Args:
        x: The silo's rows.
        y: Their labels.
        prior: Priors of β.
        near: An expansion by which the first τ and λ are chosen; None: by their prior.
    """
    best = int(np.argmax(prior.log_weight if near is None else prior.posterior(near)[0]))
    for _ in range(_MOVES):
        mean = prior.mean[best]
        near = Quadratic.of(fit_glm([(x, y)], np.linalg.inv(prior.covariance[best]), mean, mean))
        if (now := int(np.argmax(prior.posterior(near)[0]))) == best:
            break
        best = now
    assert near is not None
    return near, *prior.posterior(near)
