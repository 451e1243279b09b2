"""Ways for one silo to get a model, each with what it leaves to be chosen on the silo's own training rows.

*Another silo's model*, *averaged once* and *shrunk to the others* take one message of each other silo
(:class:`~fedrank.silos.sceptic.summary.Summary`). *FedAvg* and *all rows, by sums* take rounds, and *trees of all rows*
cannot be had in a federation: they are computed here where the others' rows are at one place.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy.special import expit

from fedrank.core.errors import FedrankWarning
from fedrank.core.optional import is_installed
from fedrank.silos.glm.newton import ridge
from fedrank.silos.glm.sums import moments_of
from fedrank.silos.sceptic.learners import (
    PENALTIES,
    Glm,
    Own,
    Scorer,
    design,
    fit_glm,
    fit_ridges,
    fit_trees,
    folds,
    log_loss,
)
from fedrank.silos.sceptic.shrinkage import shrink
from fedrank.silos.sceptic.summary import Summary, common_moments, summary_of


class Way(NamedTuple):
    """A way to a model.

    Attributes:
        title: What a table calls it.
        says: One sentence.
        kind: ``baseline``: what a sceptic tries; ``method``: what is offered; ``simulation``: what cannot be done in a
            federation.
    """

    title: str
    says: str
    kind: str


#: Ways by name, in the order of a table.
WAYS: dict[str, Way] = {
    "alone": Way("alone, logistic regression", "A penalised logistic model of the silo's own rows.", "baseline"),
    "trees": Way("alone, boosted trees", "Gradient-boosted trees of the silo's own rows.", "baseline"),
    "as-they-are": Way("another silo's model as it is", "The model of one other silo, chosen on own rows.", "baseline"),
    "averaged": Way("averaged once", "One average of all silos' coefficients, weighted by rows.", "baseline"),
    "fedavg": Way("FedAvg", "Rounds of local steps and averages of the same model.", "baseline"),
    "federated": Way("all rows, by sums", "The model that all rows at one place would give, from sums.", "method"),
    "shrunk": Way("shrunk to the others", "Own rows, with a prior from one message of each other silo.", "method"),
    "trees-pooled": Way("boosted trees of all rows", "Trees of all silos' rows at one place.", "simulation"),
}

#: Ways that take scikit-learn.
_TREES = ("trees", "trees-pooled")


def ways_here() -> tuple[str, ...]:
    """All ways that can be tried here; a warning where scikit-learn is missing, and trees with it."""
    if is_installed("sklearn"):
        import_module("sklearn.ensemble")  # a limit of threads holds for libraries that are loaded by then
        return tuple(WAYS)
    warnings.warn(
        "Boosted trees are not among what is tried first: scikit-learn is not installed. Install it: pip install "
        "'fedrank[sklearn]'.",
        FedrankWarning,
        stacklevel=2,
    )
    return tuple(way for way in WAYS if way not in _TREES)


#: Penalties of models of many silos' rows, of the own model in an average, and of federated averaging.
_MANY, _AVERAGED, _FEDAVG = (1.0, 10.0, 100.0), (1.0, 10.0, 30.0), (1.0, 10.0)
#: Rounds of federated averaging, and local steps in each, as in the thesis.
ROUNDS, STEPS = 15, 6


@dataclass(frozen=True, eq=False)
class Others:
    """Knowledge of the other silos.

    Attributes:
        told: The message of each.
        silos: Rows of each, where they are at one place; None: they are not, and ways that need them are not tried.
    """

    told: Sequence[Summary]
    silos: Sequence[Own] | None = None

    @classmethod
    def of(cls, silos: Mapping[int, Own], seed: int) -> Others:
        """The messages of silos whose rows are here, by number."""
        return cls([summary_of(own, seed, number) for number, own in silos.items()], list(silos.values()))


#: Models by way and by what is to be chosen.
Candidates = dict[tuple[str, float], Scorer]


def candidates(own: Own, others: Others, ways: Sequence[str]) -> Candidates:
    """Models of every way for the target, one for each value of what is to be chosen.

    Args:
        own: The target's training rows.
        others: The other silos.
        ways: Names of :data:`WAYS`; those without a model are not among the results.
    """
    out: Candidates = {}
    moments = common_moments(own.x, others.told)
    mine = design(own.x, moments), own.y
    if "alone" in ways:
        mine_alone = moments_of([own.x])
        for penalty, beta in zip(PENALTIES, ridges([(design(own.x, mine_alone), own.y)], PENALTIES), strict=True):
            out["alone", penalty] = Glm(beta, mine_alone)
    if "trees" in ways:
        out["trees", 0.0] = fit_trees(own)
    if "as-they-are" in ways:
        for number, one in enumerate(others.told):
            out["as-they-are", float(number)] = one.model
    if "averaged" in ways and others.told:
        theirs = np.sum([one.rows * one.coefficients(moments) for one in others.told], axis=0)
        rows = own.rows + sum(one.rows for one in others.told)
        for penalty, beta in zip(_AVERAGED, ridges([mine], _AVERAGED), strict=True):
            out["averaged", penalty] = Glm((own.rows * beta + theirs) / rows, moments)
    if "shrunk" in ways:
        beta, partners = shrink(*mine, [one.quadratic(moments) for one in others.told])
        out["shrunk", 0.0] = Glm(beta, moments, partners)
    if others.silos is None:
        return out
    all_silos = [mine, *((design(one.x, moments), one.y) for one in others.silos)]
    if "federated" in ways:
        out |= {
            ("federated", penalty): Glm(beta, moments)
            for penalty, beta in zip(_MANY, ridges(all_silos, _MANY), strict=True)
        }
    if "fedavg" in ways:
        made = fedavg(all_silos, _FEDAVG)
        out |= {("fedavg", penalty): Glm(beta, moments) for penalty, beta in zip(_FEDAVG, made, strict=True)}
    if "trees-pooled" in ways:
        x = np.concatenate([own.x, *(one.x for one in others.silos)])
        y = np.concatenate([own.y, *(one.y for one in others.silos)])
        out["trees-pooled", 0.0] = fit_trees(Own(x, y))
    return out


#: Standardised rows behind a column of ones, and their labels.
Rows = tuple[Float[np.ndarray, "_ p"], Float[np.ndarray, " _"]]


def ridges(silos: Sequence[Rows], penalties: Sequence[float]) -> Float[np.ndarray, "penalties p"]:
    """Penalised logistic models of all rows of some silos, one for each penalty."""
    x, y = (np.concatenate(parts) for parts in zip(*silos, strict=True))
    return fit_ridges(x[None], y, np.ones((1, len(y)), bool), penalties)[0]


def fedavg(silos: Sequence[Rows], penalties: Sequence[float]) -> Float[np.ndarray, "penalties p"]:
    """Federated averaging of logistic models: each round every silo takes steps down its own penalised mean loss.

    Steps have the length that the silo's own curvature allows: 1 over a bound of the second derivative. A row of zeros
    with a label of one half, which fills up a silo, has no part in any sum.

    Args:
        silos: Rows of each silo.
        penalties: Strengths of the L2 penalty on the sum over all rows.
    """
    p = silos[0][0].shape[1]
    silos = [(x, y) for x, y in silos if len(y)]
    rows = np.array([len(y) for _, y in silos], float)
    x = np.stack([np.pad(x, ((0, int(rows.max()) - len(y)), (0, 0))) for x, y in silos])
    y = np.stack([np.pad(y, (0, int(rows.max()) - len(y)), constant_values=0.5) for _, y in silos])
    share = np.array([ridge(p, penalty / rows.sum()).diagonal() for penalty in penalties])
    bound = np.linalg.eigvalsh(x.swapaxes(-1, -2) @ x)[:, -1] / (4 * rows)
    length = 1 / (bound[:, None, None] + share.max(axis=-1)[:, None])
    beta = np.zeros_like(share)
    for _ in range(ROUNDS):
        local = np.repeat(beta[None], len(silos), axis=0)
        for _ in range(STEPS):
            apart = expit(local @ x.swapaxes(-1, -2)) - y[:, None]
            local -= length * (apart @ x / rows[:, None, None] + share * local)
        beta = np.tensordot(rows / rows.sum(), local, 1)
    return beta


@dataclass(frozen=True, eq=False)
class Chosen:
    """Models of one silo, with what was chosen on its training rows.

    Attributes:
        models: The model of each way.
        picked: What was chosen in each way.
        scores: Cross-validated log-odds of the training rows, by way.
        fold: Fold of each training row.
        best: The way that is recommended.
    """

    models: Mapping[str, Scorer]
    picked: Mapping[str, float]
    scores: Mapping[str, Float[np.ndarray, " rows"]] = field(repr=False)
    fold: Int[np.ndarray, " rows"] = field(repr=False)
    best: str


#: Fewest rows by which another way than the shrunk model is chosen: below, choosing costs more than it brings.
_ENOUGH = 100
#: Probability with which chance alone puts another way above it.
_CHANCE = 0.05


def choose(own: Own, others: Others, rng: np.random.Generator, ways: Sequence[str] | None = None) -> Chosen:
    """Fit every way on a silo's training rows, choosing inside them.

    Args:
        own: The training rows, of both labels.
        others: The other silos.
        rng: Draws the folds.
        ways: Names of :data:`WAYS`; None: all but those of simulations.
    """
    ways = tuple(name for name, way in WAYS.items() if way.kind != "simulation") if ways is None else tuple(ways)
    # Nothing is chosen of simulations, and nothing by trees of few rows.
    inside = tuple(
        name for name in ways if WAYS[name].kind != "simulation" and (name != "trees" or own.rows >= _ENOUGH)
    )
    fold = folds(own, 5, rng)
    found: dict[tuple[str, float], np.ndarray] = {}
    for number in np.unique(fold):
        test = fold == number
        for key, score in candidates(own[~test], others, inside).items():
            found.setdefault(key, np.empty(own.rows))[test] = score(own.x[test])
    picked: dict[str, float] = {}
    scores: dict[str, np.ndarray] = {}
    for name in ways:
        mine = {value: s for (way, value), s in found.items() if way == name}
        if mine:
            picked[name] = min(mine, key=lambda value: calibrated_log_loss(mine[value], own.y))
            scores[name] = mine[picked[name]]
    made = candidates(own, others, ways)
    models = {way: score for (way, value), score in made.items() if picked.get(way, value) == value}
    usual = "shrunk" if "shrunk" in scores else "alone"
    return Chosen(models, picked, scores, fold, recommend(scores, usual, own, fold))


def calibrated_log_loss(scores: Float[np.ndarray, " rows"], y: Float[np.ndarray, " rows"]) -> float:
    """Log-loss of scores after calibration of intercept and slope, as AUC asks for order only."""
    clipped = np.clip(scores, -12, 12)
    x = np.column_stack([np.ones(len(y)), (clipped - clipped.mean()) / max(float(clipped.std()), 1e-9)])
    beta = fit_glm([(x, y)], 0.1).beta
    if beta[1] < 0:  # a model that says the opposite is not made good by turning it round
        beta = np.array([beta[0], 0.0])
    return log_loss(x @ beta, y)


def recommend(
    scores: Mapping[str, Float[np.ndarray, " rows"]],
    usual: str,
    own: Own,
    fold: Int[np.ndarray, " rows"],
) -> str:
    """The way that is recommended, by cross-validated scores of training rows.

    The usual one; another way only of :data:`_ENOUGH` rows, where its AUC is above that one's with a p-value that is
    small for the best of so many.
    """
    if own.rows < _ENOUGH:
        return usual
    gains = {name: own.difference(scores[name], scores[usual], fold) for name in scores if name != usual}
    better = [name for name, gain in gains.items() if gain.value > 0 and gain.p * len(gains) < _CHANCE]
    return max(better, key=lambda name: gains[name].value, default=usual)
