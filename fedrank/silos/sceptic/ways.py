"""Ways for one silo to get a model, each with what it leaves to be chosen on the silo's own training rows.

Each but *trees of all rows* can be had from one message of the others or from sums. What is here computes them from
rows that are all in one place.
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
from fedrank.silos.sceptic.auc import difference
from fedrank.silos.sceptic.learners import (
    DEFAULT_PENALTY,
    PENALTIES,
    Glm,
    Own,
    Scorer,
    choose_penalty,
    design,
    fit_alone,
    fit_glm,
    fit_trees,
    folds,
    log_loss,
)


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
    "pair": Way("averaged with one", "One average of the silo's model with one other's, chosen on own rows.", "method"),
    "shrunk": Way("shrunk to the others", "Own rows, with a prior that the others' rows give.", "method"),
    "ditto": Way("Ditto", "Own rows, pulled to the model of all.", "method"),
    "stacked": Way("stacked", "A weighted sum of the models above, weights chosen on own rows.", "method"),
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


#: Penalties of models of many silos' rows.
_MANY = (1.0, 10.0, 100.0)
#: Variances of what tells a silo's coefficients from the others', for a prior.
_SPREADS = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0)
#: That of the intercept: silos have other shares of label 1.
_INTERCEPT = 4.0
#: How strongly Ditto pulls.
_PULLS = (3.0, 10.0, 30.0, 100.0, 300.0)
#: Rounds of federated averaging, and local steps in each, as in the thesis.
ROUNDS, STEPS = 15, 6


@dataclass(eq=False)
class Others:
    """Parts that do not depend on the target: the other silos' rows, and the penalty that each chose by itself.

    Attributes:
        silos: Rows of each other silo.
        penalties: Penalty of each one's own model.
    """

    silos: Sequence[Own]
    penalties: Sequence[float]

    @classmethod
    def of(cls, silos: Sequence[Own], rng: np.random.Generator) -> Others:
        """Let every other silo choose its penalty."""
        return cls(silos, [choose_penalty(own, rng) for own in silos])


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
    moments = moments_of([own.x, *(one.x for one in others.silos)])
    mine = design(own.x, moments), own.y
    theirs = [(design(one.x, moments), one.y) for one in others.silos]
    models = [fit_glm([one], penalty).beta for one, penalty in zip(theirs, others.penalties, strict=True)]
    sizes = np.array([one.rows for one in others.silos], float)
    p = mine[0].shape[1]
    if "alone" in ways:
        for penalty in PENALTIES:
            out["alone", penalty] = fit_alone(own, penalty)
    if "trees" in ways:
        out["trees", 0.0] = fit_trees(own)
    if "as-they-are" in ways:
        for number, beta in enumerate(models):
            out["as-they-are", float(number)] = Glm(beta, moments)
    if {"averaged", "pair"} & set(ways):
        start = None
        for penalty in (1.0, 10.0, 30.0):
            start = fit_glm([mine], penalty, start=start).beta
            if "averaged" in ways and len(models):
                total = own.rows * start + sizes @ np.array(models)
                out["averaged", penalty] = Glm(total / (own.rows + sizes.sum()), moments)
            if "pair" in ways and penalty == DEFAULT_PENALTY:
                for number, beta in enumerate(models):
                    both = (own.rows * start + sizes[number] * beta) / (own.rows + sizes[number])
                    out["pair", float(number)] = Glm(both, moments)
    all_silos = [mine, *theirs]
    together: dict[float, np.ndarray] = {}
    if {"federated", "ditto"} & set(ways):
        start = None
        for penalty in _MANY:
            start = fit_glm(all_silos, penalty, start=start).beta
            together[penalty] = start
    if "federated" in ways:
        out |= {("federated", penalty): Glm(beta, moments) for penalty, beta in together.items()}
    if "fedavg" in ways:
        for penalty in (1.0, 10.0):
            out["fedavg", penalty] = Glm(fedavg(all_silos, penalty), moments)
    if "ditto" in ways:
        for pull in _PULLS:
            out["ditto", pull] = Glm(fit_glm([mine], ridge(p, pull), together[1.0], together[1.0]).beta, moments)
    if "shrunk" in ways and theirs:
        prior = fit_glm(theirs, 1.0)
        sure = prior.covariance
        for spread in _SPREADS:
            variance = sure + np.diag([_INTERCEPT, *[spread] * (p - 1)])
            fitted = fit_glm([mine], np.linalg.inv(variance), prior.beta, prior.beta)
            out["shrunk", spread] = Glm(fitted.beta, moments)
    if "trees-pooled" in ways:
        x = np.concatenate([own.x, *(one.x for one in others.silos)])
        y = np.concatenate([own.y, *(one.y for one in others.silos)])
        out["trees-pooled", 0.0] = fit_trees(Own(x, y))
    return out


def fedavg(
    silos: Sequence[tuple[Float[np.ndarray, "_ p"], Float[np.ndarray, " _"]]], penalty: float
) -> Float[np.ndarray, " p"]:
    """Federated averaging of a logistic model: each round every silo takes steps down its own penalised mean loss.

    Steps have the length that the silo's own curvature allows: 1 over a bound of the second derivative.
    """
    p = silos[0][0].shape[1]
    silos = [(x, y) for x, y in silos if len(y)]
    rows = np.array([len(y) for _, y in silos], float)
    weights = rows / rows.sum()
    share = ridge(p, penalty / rows.sum()).diagonal()
    lengths = [1 / (np.linalg.eigvalsh(x.T @ x)[-1] / (4 * len(y)) + penalty / rows.sum()) for x, y in silos]
    beta = np.zeros(p)
    for _ in range(ROUNDS):
        after = []
        for (x, y), length in zip(silos, lengths, strict=True):
            local = beta.copy()
            for _ in range(STEPS):
                local -= length * (x.T @ (expit(x @ local) - y) / len(y) + share * local)
            after.append(local)
        beta = weights @ np.array(after)
    return beta


def stack(scores: Float[np.ndarray, "rows models"], y: Float[np.ndarray, " rows"]) -> Float[np.ndarray, " models+1"]:
    """Weights of models, none below 0, and an intercept: the smallest log-loss of the weighted sum of log-odds.

    A penalty pulls the weights to equal parts of 1, which is what they are where few rows say otherwise.
    """
    from scipy.optimize import minimize  # takes a third of a second to load, and a page does not need it

    models = scores.shape[1]
    equal = np.full(models, 1 / models)
    x = np.column_stack([np.clip(scores, -12, 12), np.ones(len(y))])

    def loss(w: np.ndarray) -> tuple[float, np.ndarray]:
        eta = x @ w
        mean = 1 / (1 + np.exp(-eta))
        pull = np.append(w[:-1] - equal, 0.0)
        return float(np.logaddexp(0, eta).sum() - y @ eta + 2 * pull @ pull), x.T @ (mean - y) + 4 * pull

    bounds = [*[(0.0, None)] * models, (None, None)]
    return minimize(loss, np.append(equal, 0.0), jac=True, bounds=bounds, method="L-BFGS-B").x


@dataclass(frozen=True, eq=False)
class Stacked:
    """A weighted sum of the log-odds of models.

    Attributes:
        parts: The models.
        weights: A weight each, and an intercept.
    """

    parts: tuple[Scorer, ...]
    weights: Float[np.ndarray, " weights"]

    def __call__(self, x: Float[np.ndarray, "rows columns"]) -> Float[np.ndarray, " rows"]:
        """Log-odds of rows."""
        return np.column_stack([part(x) for part in self.parts]) @ self.weights[:-1] + self.weights[-1]


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


#: What stacking weighs.
_STACKED = ("alone", "federated", "shrunk", "as-they-are")
#: Ways that are recommended by the smallest loss: few and different, so that the luck of the rows chooses little.
_CONTENDERS = ("alone", "federated", "shrunk", "ditto", "stacked")
#: Standard errors by which the AUC of another way must be above theirs before it is recommended.
_CLEARLY = 2.0


def choose(own: Own, others: Others, rng: np.random.Generator, ways: Sequence[str] | None = None) -> Chosen:
    """Fit every way on a silo's training rows, choosing inside them.

    Args:
        own: The training rows, of both labels.
        others: The other silos.
        rng: Draws the folds.
        ways: Names of :data:`WAYS`; None: all but those of simulations.
    """
    ways = tuple(name for name, way in WAYS.items() if way.kind != "simulation") if ways is None else tuple(ways)
    inside = tuple(name for name in ways if WAYS[name].kind != "simulation")  # nothing is chosen of the others
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
    stacked = [name for name in _STACKED if name in scores]
    if "stacked" in ways and len(stacked) > 1:
        level = np.column_stack([scores[name] for name in stacked])
        out = np.empty(own.rows)
        for number in np.unique(fold):
            test = fold == number
            w = stack(level[~test], own.y[~test])
            out[test] = level[test] @ w[:-1] + w[-1]
        w = stack(level, own.y)
        models["stacked"] = Stacked(tuple(models[name] for name in stacked), w)
        scores["stacked"], picked["stacked"] = out, 0.0
    return Chosen(models, picked, scores, fold, recommend(scores, own.y, fold))


def calibrated_log_loss(scores: Float[np.ndarray, " rows"], y: Float[np.ndarray, " rows"]) -> float:
    """Log-loss of scores after calibration of intercept and slope, as AUC asks for order only."""
    clipped = np.clip(scores, -12, 12)
    x = np.column_stack([np.ones(len(y)), (clipped - clipped.mean()) / max(float(clipped.std()), 1e-9)])
    beta = fit_glm([(x, y)], 0.1).beta
    if beta[1] < 0:  # a model that says the opposite is not made good by turning it round
        beta = np.array([beta[0], 0.0])
    return log_loss(x @ beta, y)


def recommend(
    scores: Mapping[str, Float[np.ndarray, " rows"]], y: Float[np.ndarray, " rows"], fold: Int[np.ndarray, " rows"]
) -> str:
    """The way that is recommended, by cross-validated scores of training rows.

    The smallest loss among a few ways that differ; another one only where its AUC is above that one's by two standard
    errors of the difference, since the best of many is often the luckiest.
    """
    among = [name for name in _CONTENDERS if name in scores] or list(scores)
    best = min(among, key=lambda name: calibrated_log_loss(scores[name], y))
    for name in scores:
        gain = difference(scores[name], scores[best], y, fold)
        if gain.value > _CLEARLY * gain.error:  # never of an error that does not exist
            best = name
    return best
