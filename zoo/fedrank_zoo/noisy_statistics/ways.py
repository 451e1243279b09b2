"""Ways for one silo to use what others sent with noise: everything is chosen on its own rows and costs no ε.

The silo's own rows need no noise where they stay: its log-likelihood is added to the others' approximate one, with a
weight that its rows choose (a power prior: Ibrahim and Chen, *Statistical Science* 2000).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float, Int
from threadpoolctl import threadpool_limits

from fedrank.core.trees import Json
from fedrank.report.claims import Measured, Named, Sentence, say
from fedrank.silos.glm import Sums, newton, ridge, sums
from fedrank.silos.sceptic.auc import Estimate
from fedrank.silos.sceptic.compare import compare_aucs
from fedrank.silos.sceptic.learners import PENALTIES, Own, Scorer, fit_alone, folds
from fedrank.silos.sceptic.probes import FOLDS, Verdict, verdict_of
from fedrank.silos.sceptic.ways import calibrated_log_loss, recommend
from fedrank_zoo.noisy_statistics.ranges import Ranges
from fedrank_zoo.noisy_statistics.releases import Perturbed, Statistics

#: Ways by name, and what a table calls them.
WAYS = {
    "alone": "own logistic regression",
    "as-they-are": "another silo's model",
    "averaged": "averaged once",
    "federated": "own rows, and others' by noisy messages",
    "stacked": "stacked",
}
#: Ways that are recommended by the smallest loss: few and different, so that the luck of the rows chooses little.
_CONTENDERS = ("alone", "federated", "stacked")
#: Weights of the others' likelihood, and penalties beside it.
_SHARES, _PENALTIES = (0.03, 0.1, 0.3, 1.0), (0.3, 3.0, 30.0)


@dataclass(frozen=True, eq=False)
class Linear:
    """A linear predictor of rows in their ball.

    Attributes:
        beta: Coefficients, the intercept first.
        ranges: What brings rows into the ball.
    """

    beta: Float[np.ndarray, " p"]
    ranges: Ranges

    def __call__(self, x: Float[np.ndarray, "rows columns"]) -> Float[np.ndarray, " rows"]:
        """Log-odds of label 1 [rows], of rows in the columns' own units; NaN is a missing value."""
        return self.ranges.rows(x) @ self.beta


#: What a silo may have sent.
Sent = Statistics | Perturbed


def candidates(
    own: Own, sent: Sequence[Sent], ranges: Ranges, *, fully: bool = False
) -> dict[tuple[str, float], Scorer]:
    """Models of every way but stacking, one for each value of what is to be chosen.

    Args:
        own: The silo's training rows.
        sent: What the others sent.
        ranges: Public ranges of the columns.
        fully: Only the own rows with the others' at their full weight.
    """
    if fully:
        return _with_others(own, sent, ranges, (1.0,), (3.0,))
    out: dict[tuple[str, float], Scorer] = {("alone", penalty): fit_alone(own, penalty) for penalty in PENALTIES}
    u = ranges.rows(own.x)
    betas = [one.model(3.0) if isinstance(one, Statistics) else one.beta for one in sent]
    for number, beta in enumerate(betas):
        out["as-they-are", float(number)] = Linear(beta, ranges)
    sizes = np.array([one.rows for one in sent], float)
    p = u.shape[1]
    mine = _fit(u, own.y, ridge(p, 3.0), np.zeros(p))
    out["averaged", 0.0] = Linear((own.rows * mine + sizes @ np.array(betas)) / (own.rows + sizes.sum()), ranges)
    return out | _with_others(own, sent, ranges, _SHARES, _PENALTIES)


def _with_others(
    own: Own, sent: Sequence[Sent], ranges: Ranges, shares: Sequence[float], penalties: Sequence[float]
) -> dict[tuple[str, float], Scorer]:
    """The own likelihood with the others' message as a prior, for each weight of it and each penalty."""
    u = ranges.rows(own.x)
    slopes = u.shape[1] - 1
    out: dict[tuple[str, float], Scorer] = {}
    if isinstance(sent[0], Statistics):
        total = sent[0]
        for one in sent[1:]:
            total = total + one  # type: ignore[operator] - all are of one kind
        curvature = total.curvature() + total.pull()
        for share in shares:
            for penalty in penalties:
                # share·(t'β − ½β'Cβ) − ½β'Λβ, as a distance from where it is largest.
                weight = share * curvature + np.diag([1e-6, *[penalty] * slopes])
                centre = np.linalg.solve(weight, share * total.first)
                out["federated", float(len(out))] = Linear(_fit(u, own.y, weight, centre), ranges)
        return out
    sizes = np.array([one.rows for one in sent], float)
    centre = sizes @ np.array([one.beta for one in sent]) / sizes.sum()  # type: ignore[union-attr]
    for share in shares:
        weight = np.diag([1e-6, *[100 * share] * slopes])
        out["federated", float(len(out))] = Linear(_fit(u, own.y, weight, centre), ranges)
    return out


def _fit(
    u: Float[np.ndarray, "rows p"],
    y: Float[np.ndarray, " rows"],
    penalty: Float[np.ndarray, "p p"],
    centre: Float[np.ndarray, " p"],
) -> Float[np.ndarray, " p"]:
    def ask(beta: np.ndarray) -> Sums:
        return sums(beta, u, y)

    return newton(ask, centre, penalty, centre, 40).beta


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
        """Log-odds of label 1 [rows], of rows in the columns' own units; NaN is a missing value."""
        return np.column_stack([part(x) for part in self.parts]) @ self.weights[:-1] + self.weights[-1]


@dataclass(frozen=True, eq=False)
class ChosenPrivately:
    """Models of one silo, with what was chosen on its training rows.

    Attributes:
        models: The model of each way.
        best: The way that is recommended.
        fold: Fold of each training row.
    """

    models: Mapping[str, Scorer]
    best: str
    fold: Int[np.ndarray, " rows"] = field(repr=False)


def choose_privately(own: Own, sent: Sequence[Sent], ranges: Ranges, rng: np.random.Generator) -> ChosenPrivately:
    """Fit every way on a silo's training rows, choosing inside them.

    Args:
        own: The training rows, of both labels.
        sent: What the others sent.
        ranges: Public ranges of the columns.
        rng: Draws the folds.
    """
    fold = folds(own, 5, rng)
    found: dict[tuple[str, float], np.ndarray] = {}
    for number in np.unique(fold):
        test = fold == number
        for key, score in candidates(own[~test], sent, ranges).items():
            found.setdefault(key, np.empty(own.rows))[test] = score(own.x[test])
    models, scores = {}, {}
    made = candidates(own, sent, ranges)
    for way in WAYS:
        mine = {key: s for key, s in found.items() if key[0] == way}
        if mine:
            best = list(mine)[int(calibrated_log_loss(np.stack(list(mine.values())), own.y).argmin())]
            models[way], scores[way] = made[best], mine[best]
    parts = ("alone", "federated", "as-they-are")
    level = np.column_stack([scores[name] for name in parts])
    out = np.empty(own.rows)
    for number in np.unique(fold):
        test = fold == number
        w = stack(level[~test], own.y[~test])
        out[test] = level[test] @ w[:-1] + w[-1]
    models["stacked"], scores["stacked"] = Stacked(tuple(models[n] for n in parts), stack(level, own.y)), out
    usual = _CONTENDERS[int(calibrated_log_loss(np.stack([scores[name] for name in _CONTENDERS]), own.y).argmin())]
    return ChosenPrivately(models, recommend(scores, usual, own, fold), fold)


@dataclass(frozen=True, eq=False)
class PrivateAnswer:
    """Result of a comparison for one silo.

    Attributes:
        rows: Way -> AUC on all own rows by models that have not seen them, and the same minus that of the silo alone.
        nested: AUC of choosing anew in each fold.
        recommended: What is recommended by all rows; the silo's own model where that did no better on them.
        verdicts: Who helps and who harms; the number of a verdict's silo is that of its message.
        chosen: The models of all own rows.
    """

    rows: dict[str, tuple[Estimate, Estimate]]
    nested: Estimate
    recommended: str
    verdicts: tuple[Verdict, ...]
    chosen: ChosenPrivately = field(repr=False)

    @property
    def recommended_auc(self) -> Estimate:
        """AUC of what is recommended: the number of its row."""
        return self.rows[self.recommended][0]

    @property
    def gain(self) -> Estimate:
        """The same minus that of the silo alone."""
        return self.rows[self.recommended][1]

    def headline(self, name: str, rows: int) -> Sentence:
        """Sentence on the model to use, for the silo of a name with a number of rows."""
        of, reached = say(Named(name), f" ({rows:,} rows): use "), Measured(self.recommended_auc.value, "AUC")
        if self.recommended == "alone":
            return say(of, "your own model, AUC ", reached, ".")
        said = say(of, Named(f"the model “{WAYS[self.recommended]}”"), ", AUC ", reached)
        return say(said, "; it is ", compare_aucs(self.gain, "your own model"), ".")

    def as_json(self, names: Sequence[str]) -> dict[str, Json]:
        """As it stands in a file; ``names`` are those of the senders."""
        return {
            "recommended": self.recommended,
            "auc": self.recommended_auc.as_json(),
            "over_alone": self.gain.as_json(),
            "nested_auc": self.nested.as_json(),
            "ways": {
                way: {"title": WAYS[way], "auc": a.as_json(), "over_alone": b.as_json()}
                for way, (a, b) in self.rows.items()
            },
            "verdicts": {names[v.silo]: v.as_json() for v in self.verdicts},
        }


def private_answer(own: Own, sent: Sequence[Sent], ranges: Ranges, seed: int = 0) -> PrivateAnswer:
    """Compare every way for one silo.

    Args:
        own: Its rows, of both labels.
        sent: What the others sent.
        ranges: Public ranges of the columns.
        seed: Draws the folds.
    """
    rng = np.random.default_rng([seed, own.rows])
    fold = folds(own, FOLDS, rng)
    scores: dict[str, Float[np.ndarray, " rows"]] = {}
    reached = np.empty(own.rows)
    each = np.empty((len(sent), own.rows))
    with threadpool_limits(1):
        for number in np.unique(fold):
            test = fold == number
            train = own[~test]
            chosen = choose_privately(train, sent, ranges, rng)
            for way, model in chosen.models.items():
                scores.setdefault(way, np.empty(own.rows))[test] = model(own.x[test])
            reached[test] = chosen.models[chosen.best](own.x[test])
            for k, one in enumerate(sent):
                model = candidates(train, [one], ranges, fully=True)["federated", 0.0]
                each[k, test] = model(own.x[test])
        final = choose_privately(own, sent, ranges, rng)
    many, alone = len(sent), scores["alone"]
    verdicts = [verdict_of(k, own.difference(each[k], alone, fold), many) for k in range(many)]
    rows = {
        way: (own.auc(scores[way], fold), own.difference(scores[way], alone, fold)) for way in WAYS if way in scores
    }
    return PrivateAnswer(
        rows=rows,
        nested=own.auc(reached, fold),
        recommended=final.best if rows[final.best][1].value > 0 else "alone",
        verdicts=tuple(verdicts),
        chosen=final,
    )
