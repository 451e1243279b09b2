"""Ways for one silo to get a model, each with what it leaves to be chosen on the silo's own training rows.

*Another silo's model*, *averaged once* and *shrunk to the others* take one message of each other silo
(:class:`~fedrank.silos.sceptic.summary.Summary`). *FedAvg* and *all rows, by sums* take rounds, and *trees of all rows*
cannot be had in a federation: they are computed here where the others' rows are at one place.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.special import expit

from fedrank.core.errors import FedrankWarning
from fedrank.core.lazy import is_installed
from fedrank.silos.glm import Moments, moments_of, ridge
from fedrank.silos.sceptic.learners import (
    PENALTIES,
    Glm,
    Own,
    Scorer,
    design,
    fit_ridges,
    fit_trees,
    folds,
    log_loss,
)
from fedrank.silos.sceptic.shrinkage import shrink_many
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
    "alone": Way("own logistic regression", "A penalised logistic model of the silo's own rows.", "baseline"),
    "trees": Way("own boosted trees", "Gradient-boosted trees of the silo's own rows.", "baseline"),
    "as-they-are": Way("another silo's model", "The model of one other silo, chosen on own rows.", "baseline"),
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


#: Numbers in the rows of all silos, for all models of a batch, above which models are fitted one after the other.
_BATCH = 2_000_000


def candidates(
    own: Own, others: Others, ways: Sequence[str], trains: Bool[np.ndarray, "models rows"]
) -> list[Candidates]:
    """Models of every way for the target, one for each value of what is to be chosen, for several sets of its rows.

    Args:
        own: The target's rows.
        others: The other silos.
        ways: Names of :data:`WAYS`; those without a model are not among the results.
        trains: Rows that each result is fitted to, of both labels.
    """
    rows = own.rows + sum(one.rows for one in others.silos or ())
    size = max(1, _BATCH // max(1, rows * (own.x.shape[1] + 1)))
    batches = [trains[start : start + size] for start in range(0, len(trains), size)]
    return [made for batch in batches for made in _candidates(own, others, ways, batch)]


def _candidates(
    own: Own, others: Others, ways: Sequence[str], trains: Bool[np.ndarray, "models rows"]
) -> list[Candidates]:
    out: list[Candidates] = [{} for _ in trains]

    def add(way: str, values: Sequence[float], betas: Iterable[np.ndarray], moments: Sequence[Moments]) -> None:
        for made, found, by in zip(out, betas, moments, strict=True):
            made |= {(way, value): Glm(beta, by) for value, beta in zip(values, found, strict=True)}

    parts = [own[some] for some in trains]
    moments = [common_moments(part.x, others.told) for part in parts]
    x = np.stack([design(own.x, by) for by in moments])
    if "alone" in ways:
        alone = [moments_of(part.x) for part in parts]
        x_alone = np.stack([design(own.x, by) for by in alone])
        add("alone", PENALTIES, fit_ridges(x_alone, own.y, trains, PENALTIES), alone)
    if "trees" in ways:
        for made, part in zip(out, parts, strict=True):
            made["trees", 0.0] = fit_trees(part)
    if "as-they-are" in ways:
        for made in out:
            made |= {("as-they-are", float(number)): one.model for number, one in enumerate(others.told)}
    if "averaged" in ways and others.told:
        told = np.array([one.rows for one in others.told])
        theirs = [told @ np.stack([one.coefficients(by) for one in others.told]) for by in moments]
        fits = zip(parts, fit_ridges(x, own.y, trains, _AVERAGED), theirs, strict=True)
        means = [(part.rows * betas + rest) / (part.rows + told.sum()) for part, betas, rest in fits]
        add("averaged", _AVERAGED, means, moments)
    if "shrunk" in ways:
        fits = shrink_many(x, own.y, trains, [[one.quadratic(by) for one in others.told] for by in moments])
        for made, by, fit in zip(out, moments, fits, strict=True):
            made["shrunk", 0.0] = Glm(fit.beta, by, fit.partners)
    if others.silos is None:
        return out
    theirs_x = [np.stack([design(one.x, by) for by in moments]) for one in others.silos]
    theirs_y = [one.y for one in others.silos]
    if "federated" in ways:
        all_x, all_y = np.concatenate([x, *theirs_x], axis=1), np.concatenate([own.y, *theirs_y])
        used = np.pad(trains, ((0, 0), (0, len(all_y) - own.rows)), constant_values=True)
        add("federated", _MANY, fit_ridges(all_x, all_y, used, _MANY), moments)
    if "fedavg" in ways:
        add("fedavg", _FEDAVG, fedavg([x, *theirs_x], [own.y, *theirs_y], trains, _FEDAVG), moments)
    if "trees-pooled" in ways:
        for made, part in zip(out, parts, strict=True):
            y = np.concatenate([part.y, *theirs_y])
            made["trees-pooled", 0.0] = fit_trees(Own(np.concatenate([part.x, *(one.x for one in others.silos)]), y))
    return out


def fedavg(
    x: Sequence[Float[np.ndarray, "models _ p"]],
    y: Sequence[Float[np.ndarray, " _"]],
    trains: Bool[np.ndarray, "models own"],
    penalties: Sequence[float],
) -> Float[np.ndarray, "models penalties p"]:
    """Federated averaging of logistic models: each round every silo takes steps down its own penalised mean loss.

    Steps have the length that the silo's own curvature allows: 1 over a bound of the second derivative. A row of zeros
    with a label of one half, which fills up a silo, has no part in any sum.

    Args:
        x: Rows of each silo, standardised for each model; the first is the one whose rows are chosen from.
        y: Labels of each silo.
        trains: Rows of the first silo that each model takes.
        penalties: Strengths of the L2 penalty on the sum over all rows.
    """
    models, _, p = x[0].shape
    most = max(len(labels) for labels in y)
    first = (x[0] * trains[..., None], np.where(trains, y[0], 0.5))
    rest = [(rows, np.broadcast_to(labels, (models, len(labels)))) for rows, labels in zip(x[1:], y[1:], strict=True)]
    silos = [pair for pair in (first, *rest) if pair[0].shape[1]]
    all_x = np.stack([np.pad(a, ((0, 0), (0, most - a.shape[1]), (0, 0))) for a, _ in silos], axis=1)
    all_y = np.stack([np.pad(b, ((0, 0), (0, most - b.shape[1])), constant_values=0.5) for _, b in silos], axis=1)
    rows = np.array([trains.sum(axis=1), *(np.full(models, b.shape[1]) for _, b in silos[1:])], float).T
    total = rows.sum(axis=1)
    share = np.array([[ridge(p, penalty / n).diagonal() for penalty in penalties] for n in total])[:, None]
    turned = all_x.swapaxes(-1, -2)
    bound = np.linalg.eigvalsh(turned @ all_x)[..., -1] / (4 * rows)
    length = 1 / (bound[..., None, None] + share.max(axis=-1)[..., None])
    beta = np.zeros((models, len(penalties), p))
    for _ in range(ROUNDS):
        local = np.repeat(beta[:, None], len(silos), axis=1)
        for _ in range(STEPS):
            apart = expit(local @ turned) - all_y[:, :, None]
            local -= length * (apart @ all_x / rows[..., None, None] + share * local)
        beta = np.einsum("ms,mskp->mkp", rows / total[:, None], local)
    return beta


@dataclass(frozen=True, eq=False)
class Chosen:
    """Models of one silo, with what was chosen on its training rows.

    Attributes:
        models: The model of each way.
        scores: Cross-validated log-odds of the training rows, by way.
        best: The way that is recommended.
    """

    models: Mapping[str, Scorer]
    scores: Mapping[str, Float[np.ndarray, " rows"]] = field(repr=False)
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
    trains = fold != np.append(np.unique(fold), -1)[:, None]  # all but one fold, and all rows
    *inner, made = candidates(own, others, inside, trains)
    found: dict[tuple[str, float], np.ndarray] = {}
    for some, models in zip(trains, inner, strict=False):
        for key, score in models.items():
            found.setdefault(key, np.empty(own.rows))[~some] = score(own.x[~some])
    made |= candidates(own, others, [way for way in ways if way not in inside], trains[-1:])[0]
    picked: dict[str, float] = {}
    scores: dict[str, np.ndarray] = {}
    for name in ways:
        mine = {value: s for (way, value), s in found.items() if way == name}
        if mine:
            losses = calibrated_log_loss(np.stack(list(mine.values())), own.y)
            picked[name] = list(mine)[int(losses.argmin())]
            scores[name] = mine[picked[name]]
    models = {way: score for (way, value), score in made.items() if picked.get(way, value) == value}
    usual = "shrunk" if "shrunk" in scores else "alone"
    return Chosen(models, scores, recommend(scores, usual, own, fold))


def calibrated_log_loss(
    scores: Float[np.ndarray, "models rows"], y: Float[np.ndarray, " rows"]
) -> Float[np.ndarray, " models"]:
    """Log-loss of scores after calibration of intercept and slope, as AUC asks for order only."""
    clipped = np.clip(scores, -12, 12)
    clipped = clipped - clipped.mean(axis=1, keepdims=True)
    x = np.stack([np.ones(scores.shape), clipped / np.maximum(clipped.std(axis=1, keepdims=True), 1e-9)], axis=-1)
    beta = fit_ridges(x, y, np.ones(scores.shape, bool), [0.1])[:, 0]
    beta[:, 1] = np.maximum(beta[:, 1], 0.0)  # a model that says the opposite is not made good by turning it round
    return np.array([log_loss(one, y) for one in (x @ beta[..., None])[..., 0]])


def recommend(
    scores: Mapping[str, Float[np.ndarray, " rows"]],
    usual: str,
    own: Own,
    fold: Int[np.ndarray, " rows"],
) -> str:
    """The way that is recommended, by cross-validated scores of training rows.

    The usual one; another way only of :data:`_ENOUGH` rows, where its AUC is above that one's with a p-value that is
    small for the best of several.
    """
    if own.rows < _ENOUGH:
        return usual
    gains = {name: own.difference(scores[name], scores[usual], fold) for name in scores if name != usual}
    better = [name for name, gain in gains.items() if gain.value > 0 and gain.p * len(gains) < _CHANCE]
    return max(better, key=lambda name: gains[name].value, default=usual)
