"""The answer for one silo: every way side by side, what to use, and who helps or harms, from one division of rows.

**Calibration**: Brier score, intercept and slope, curve, net benefit, prediction sets, all from cross-fitted log-odds
of a silo's own rows. Conformal sets hold the true label with a probability of 1 − α for rows like the silo's own, of
each label (Mondrian; Vovk, Gammerman, Shafer 2005): a label is in a row's set unless fewer than α of the other rows
with that label are as unlike it. A threshold that all silos share does not give this to each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.special import expit
from threadpoolctl import threadpool_limits

from fedrank import __version__
from fedrank.core.errors import ConfigError, DataError, ModelError
from fedrank.core.trees import Json
from fedrank.report.claims import Comparison, Measured, Named, Sentence, say
from fedrank.report.claims import Verdict as Reading
from fedrank.report.statistics import Interval
from fedrank.report.wording import in_words
from fedrank.silos.data.tables import SiloTable
from fedrank.silos.glm import Sums, newton, sums
from fedrank.silos.sceptic.auc import Estimate
from fedrank.silos.sceptic.learners import Glm, Own, folds, rows_of
from fedrank.silos.sceptic.probes import FOLDS, Probes, Verdict, probe, score_models, verdicts
from fedrank.silos.sceptic.summary import Summary, draw_of, summary_of
from fedrank.silos.sceptic.ways import WAYS, Chosen, Others, Way, choose, ways_here

#: Log-odds beyond these mean certainty.
_SURE = 12.0
#: Thresholds of the decision curve.
_THRESHOLDS = tuple(round(0.05 * k, 2) for k in range(1, 15))


class Bin(NamedTuple):
    """Rows of about one probability.

    Attributes:
        predicted: Their mean probability.
        observed: Share of label 1.
        rows: Number of rows.
    """

    predicted: float
    observed: float
    rows: int


class Threshold(NamedTuple):
    """Consequences of acting from a probability on.

    Attributes:
        probability: The threshold.
        benefit: Net benefit: true positives less false positives, each weighed as the threshold weighs them, by row
            (Vickers and Elkin 2006).
        benefit_all: That of acting on every row; acting on none has 0.
        sensitivity: Share of the rows with label 1 that are acted on.
        specificity: Share of the others that are not.
    """

    probability: float
    benefit: float
    benefit_all: float
    sensitivity: float
    specificity: float


class Calibration(NamedTuple):
    """Agreement of probabilities with labels.

    Attributes:
        brier: Mean squared difference.
        brier_without: That of the share of label 1 as every row's probability.
        intercept: In log-odds, of the labels given the model's: 0 is right; above, probabilities are too low.
        slope: 1 is right; below, they are too extreme.
        bins: Of about as many rows each.
        thresholds: The decision curve.
    """

    brier: float
    brier_without: float
    intercept: Estimate
    slope: Estimate
    bins: tuple[Bin, ...]
    thresholds: tuple[Threshold, ...]

    def as_json(self) -> dict[str, Json]:
        """Plain values for ``--json`` and the file of results, by name; AUCs in [0, 1]."""
        ends = {name: getattr(self, name) for name in ("intercept", "slope")}
        return {
            "brier": self.brier,
            "brier_without_a_model": self.brier_without,
            **{
                name: {"value": one.value, "low": one.interval()[0], "high": one.interval()[1]}
                for name, one in ends.items()
            },
            "curve": [one._asdict() for one in self.bins],
            "decision_curve": [one._asdict() for one in self.thresholds],
        }


def calibration(scores: Float[np.ndarray, " rows"], y: Float[np.ndarray, " rows"]) -> Calibration:
    """Calibration of log-odds; its curve has ten bins, fewer where there are fewer than ten rows for each.

    Args:
        scores: Cross-fitted log-odds.
        y: Labels, of both kinds.
    """
    scores = np.clip(scores, -_SURE, _SURE)
    probability = expit(scores)
    share = float(y.mean())
    # The intercept with the slope held at 1, the slope with its own intercept (Cox 1958; Van Calster et al. 2019).
    held = _fit(np.ones((len(y), 1)), y, scores)
    free = _fit(np.column_stack([np.ones(len(y)), scores]), y, np.zeros(len(y)))
    order = np.argsort(probability, kind="stable")
    parts = [part for part in np.array_split(order, max(1, min(10, len(y) // 10))) if len(part)]
    curve = tuple(Bin(float(probability[p].mean()), float(y[p].mean()), len(p)) for p in parts)
    return Calibration(
        brier=float(np.mean((probability - y) ** 2)),
        brier_without=share * (1 - share),
        intercept=held[0],
        slope=free[-1],
        bins=curve,
        thresholds=tuple(threshold(scores, y, t) for t in _THRESHOLDS),
    )


def threshold(scores: Float[np.ndarray, " rows"], y: Float[np.ndarray, " rows"], probability: float) -> Threshold:
    """Consequences of acting on every row of at least this probability, in (0, 1)."""
    acted, odds = expit(scores) >= probability, probability / (1 - probability)
    share, right = float(y.mean()), float((acted * y).mean())
    return Threshold(
        probability,
        right - float((acted * (1 - y)).mean()) * odds,
        share - (1 - share) * odds,
        right / share,
        1 - float((acted * (1 - y)).mean()) / (1 - share),
    )


class Sets(NamedTuple):
    """Conformal sets of labels.

    Attributes:
        level: 1 − α.
        zero: Whether 0 is in each row's set.
        one: Whether 1 is.
        coverage: Share of rows whose label is in their set.
        coverage_of: The same by label, 0 and 1.
        single: Share of rows with one label in their set: those that are told.
    """

    level: float
    zero: Bool[np.ndarray, " rows"]
    one: Bool[np.ndarray, " rows"]
    coverage: float
    coverage_of: tuple[float, float]
    single: float

    def as_json(self) -> dict[str, Json]:
        """Plain values for ``--json`` and the file of results, by name; AUCs in [0, 1]."""
        return {
            "level": self.level,
            "coverage": self.coverage,
            "coverage_of_0": self.coverage_of[0],
            "coverage_of_1": self.coverage_of[1],
            "one_label": self.single,
        }


def conformal(scores: Float[np.ndarray, " rows"], y: Float[np.ndarray, " rows"], level: float = 0.9) -> Sets:
    """A set of labels for each row, each from the other rows.

    Args:
        scores: Cross-fitted log-odds.
        y: Labels.
        level: Probability that a set holds the true label, of each label, in (0, 1).
    """
    inside = []
    for label in (0.0, 1.0):
        # The more a row looks like the other label, the less it conforms with this one.
        strange = scores if label == 0 else -scores
        own = np.sort(strange[y == label])
        at_least = len(own) - np.searchsorted(own, strange, side="left")
        among = np.where(y == label, len(own), len(own) + 1)  # a row of the label is among these rows itself
        count = np.where(y == label, at_least, at_least + 1)
        inside.append(count / among > 1 - level)
    zero, one = inside
    holds = np.where(y > 0, one, zero)
    by_label = tuple(float(holds[y == label].mean()) if (y == label).any() else float("nan") for label in (0, 1))
    return Sets(level, zero, one, float(holds.mean()), (by_label[0], by_label[1]), float((zero ^ one).mean()))


def _fit(
    x: Float[np.ndarray, "rows p"], y: Float[np.ndarray, " rows"], offset: Float[np.ndarray, " rows"]
) -> list[Estimate]:
    """Coefficients of a logistic model with an offset, and their errors."""
    beside = np.column_stack([offset, x])

    def ask(beta: np.ndarray) -> Sums:
        got = sums(np.append(1.0, beta), beside, y)
        return Sums(got.value, got.gradient[1:], got.information[1:, 1:])

    made = newton(ask, np.zeros(x.shape[1]))
    error = np.sqrt(np.diag(made.covariance))
    return [Estimate(float(b), float(e)) for b, e in zip(made.beta, error, strict=True)]


#: Fewest rows of the rarer label that a target needs: two in each of two folds.
FEWEST = 4


def compare_aucs(gain: Estimate, other: str, base: float = 0.0) -> Comparison:
    """A difference of AUCs, or an AUC and a ``base``, with its interval over rows, as a comparison with ``other``."""
    ends = [end - base for end in gain.interval()] if np.isfinite(gain.error) else (None, None)
    return Comparison(Interval(gain.value - base, *ends), other, ways=("AUC above", "AUC below"), than="", unit="rows")


#: Name of the row of what is recommended: the way is chosen anew in each fold.
RECOMMENDED = "recommended"
#: A way that the table has beside those of :data:`~fedrank.silos.sceptic.ways.WAYS`.
_NESTED = Way(
    "recommended", "What is recommended inside the training rows of each fold: an estimate without choice.", "method"
)
#: Weight from which a silo is named as one that the model is shrunk to; slope of calibration below which is a warning.
_PARTNER, _SLOPE = 0.5, 0.8
#: Rows of the rarer label below which a warning says so.
_FEW = 10
#: Probability with which the best simple baseline is above what is recommended by luck alone.
_CHANCE = 0.05


@dataclass(frozen=True, eq=False)
class Row:
    """One way to a model for the target.

    Attributes:
        way: Its name in :data:`~fedrank.silos.sceptic.ways.WAYS`, or :data:`RECOMMENDED`.
        auc: On all of the target's rows, by models that have not seen them.
        over_alone: The same minus that of the silo alone.
    """

    way: str
    auc: Estimate
    over_alone: Estimate

    @property
    def about(self) -> Way:
        """Title, description and kind of the way, as tables show them."""
        return WAYS.get(self.way, _NESTED)

    def as_json(self) -> dict[str, Json]:
        """Plain values for ``--json`` and the file of results, by name; AUCs in [0, 1]."""
        return {
            "way": self.way,
            "title": self.about.title,
            "says": self.about.says,
            "kind": self.about.kind,
            "auc": self.auc.as_json(),
            "over_alone": self.over_alone.as_json(),
        }


@dataclass(frozen=True, eq=False)
class Answer:
    """Result of a comparison for one silo.

    Attributes:
        table: The target's rows, and those of the others where they are at one place.
        names: Names of all silos.
        target: The target's number among them.
        own: The target's rows.
        told: The message of each silo, the target's among them.
        rows: What is recommended, chosen anew inside the training rows of each fold; then every way.
        recommended: The way to use: what is recommended by all rows.
        rival: The best simple baseline by these same rows: an estimate that flatters it.
        verdicts: Who helps and who harms.
        probes: What probes say.
        chosen: The models, of all of the target's rows.
        scores: Cross-fitted log-odds of each row of the target, by way; what is recommended among them.
        fold: Fold of each row of the target.
    """

    table: SiloTable
    names: tuple[str, ...]
    target: int
    own: Own = field(repr=False)
    told: tuple[Summary, ...] = field(repr=False)
    rows: tuple[Row, ...]
    recommended: str
    rival: str
    verdicts: tuple[Verdict, ...]
    probes: Probes
    chosen: Chosen = field(repr=False)
    scores: Mapping[str, Float[np.ndarray, " rows"]] = field(repr=False)
    fold: Int[np.ndarray, " rows"] = field(repr=False)

    @cached_property
    def calibration(self) -> Calibration:
        """Calibration of the probabilities of what is recommended."""
        return calibration(self.scores[RECOMMENDED][self.own.first], self.own.y[self.own.first])

    @cached_property
    def sets(self) -> Sets:
        """Conformal sets of what is recommended."""
        return conformal(self.scores[RECOMMENDED][self.own.first], self.own.y[self.own.first])

    @property
    def auc(self) -> Estimate:
        """AUC of what is recommended, chosen anew in each fold: its row in the table."""
        return self.row(RECOMMENDED).auc

    @property
    def over_alone(self) -> Estimate:
        """The same minus that of the silo alone."""
        return self.row(RECOMMENDED).over_alone

    @cached_property
    def gain(self) -> Estimate:
        """The same minus that of the rival."""
        return self.own.difference(self.scores[RECOMMENDED], self.scores[self.rival], self.fold)

    def row(self, way: str) -> Row:
        """The row of the table about one way, such as ``"alone"``."""
        return next(row for row in self.rows if row.way == way)

    @property
    def name(self) -> str:
        """The target's name."""
        return self.names[self.target]

    @property
    def partners(self) -> dict[str, float]:
        """Name of each other silo -> posterior weight, 0 to 1, of the sets with it that the model is shrunk to."""
        model = self.chosen.models.get("shrunk")
        if not isinstance(model, Glm) or model.partners is None:
            return {}
        others = [name for name in self.names if name != self.name]
        return dict(zip(others, model.partners.tolist(), strict=True))

    @property
    def uses_others(self) -> bool:
        """True if the model to use takes something from at least one other silo."""
        if self.recommended == "shrunk":
            return any(probability >= _PARTNER for probability in self.partners.values())
        return self.recommended not in ("alone", "trees")

    def headline(self) -> Sentence:
        """Sentence on the model to use, beside the best simple baseline."""
        first = f"the best simple baseline, {WAYS[self.rival].title}"
        sure = say("it is ", compare_aucs(self.gain, first))
        if not np.isfinite(self.gain.error):
            sure = say("no interval can be given: there are too few rows of one label")
        near = [name for name, probability in self.partners.items() if probability >= _PARTNER]
        use = f"the model “{WAYS[self.recommended].title}”"
        if self.recommended == "shrunk":
            use = (
                f"a model of its rows, shrunk to {in_words(near)}"
                if near
                else "a model of its rows alone, as none is like it"
            )
        of = say(Named(self.name), f" ({self.own.rows:,} rows): use ", Named(use))
        said = say(of, ", AUC ", Measured(self.auc.value, "AUC"), "; ", sure, ".")
        tried = sum(row.about.kind == "baseline" for row in self.rows)
        if self.gain.value < 0 and self.gain.p * tried < _CHANCE:
            said += say(" That is more than the luck of the best of ", Named(f"{tried}"), " explains: use that one.")
        guessed = compare_aucs(self.auc, "guessing", 0.5)
        if guessed.verdict is not Reading.BETTER:
            said += say(" Its AUC is ", guessed, ": do not use any of them yet.")
        return said

    def warnings(self) -> list[str]:
        """Alarms and harms, and probabilities that are too extreme, a sentence each."""
        names, slope = self.names, self.calibration.slope
        out = [f"{names[alarm.silo]}: {alarm.text}." for alarm in self.probes.alarms]
        out += [f"{names[v.silo]} {v.text}." for v in self.verdicts if v.word == "harms"]
        if self.own.rarer < _FEW:
            out.append(
                f"Only {self.own.rarer} of its {self.own.rows} rows have the rarer label: of so few an interval of 95% "
                "holds less often than it says."
            )
        low, high = slope.interval()
        if slope.value < _SLOPE and (high < 1 or not np.isfinite(slope.error)):
            out.append(
                f"Its probabilities are too extreme: calibration slope {slope.value:.2f} ({low:.2f} to {high:.2f}), "
                "where 1 is right. Use the order of rows, not the probabilities."
            )
        return out

    def as_json(self) -> dict[str, Json]:
        """Plain values for ``--json`` and the file of results, by name; AUCs in [0, 1]."""
        names = self.names
        return {
            "target": self.name,
            "headline": str(self.headline()),
            "recommended": self.recommended,
            "partners": self.partners,
            "auc": self.auc.as_json(),
            "over_alone": self.over_alone.as_json(),
            "rival": self.rival,
            "gain": self.gain.as_json(),
            "warnings": list(self.warnings()),
            "rows": {name: round(one.rows) for name, one in zip(names, self.told, strict=True)},
            "positive": {name: round(one.positive) for name, one in zip(names, self.told, strict=True)},
            "ways": [row.as_json() for row in self.rows],
            "calibration": self.calibration.as_json(),
            "conformal": self.sets.as_json(),
            "verdicts": {names[v.silo]: v.as_json() for v in self.verdicts},
            "probes": self.probes.as_json(names),
        }


def answer(table: SiloTable, target: int | str, *, seed: int = 0, ways: Sequence[str] | None = None) -> Answer:
    """Compare every way for one silo, on all of its rows, where all silos' rows are at one place.

    Args:
        table: The silos.
        target: The silo's number or name.
        seed: Draws the folds.
        ways: Names of :data:`~fedrank.silos.sceptic.ways.WAYS`, by default all that can be tried here; the silo
            alone is always among them.

    Raises:
        UnknownNameError: There is no such silo.
        ConfigError: There is one silo only, or the seed is negative.
        DataError: The target has too few rows of one label.
    """
    number = table.index(target)
    silos = rows_of(table)
    if seed < 0:
        raise ConfigError(f"a seed is at least 0, got {seed}.")
    with threadpool_limits(1):
        others = Others.of({k: own for k, own in enumerate(silos) if k != number}, seed)
    return _answer(table, table.names, number, silos[number], others, seed, ways)


def answer_by_messages(
    table: SiloTable,
    names: Sequence[str],
    target: str,
    told: Mapping[str, Summary],
    *,
    seed: int = 0,
    ways: Sequence[str] | None = None,
) -> Answer:
    """Compare the ways that need one message of each other silo, at the silo that asks.

    Args:
        table: The target's rows alone.
        names: Names of the silos whose messages came, and the target's.
        target: The target's name.
        told: The messages of the other silos, by name.
        seed: Draws the folds.
        ways: As of :func:`answer`; those that need rows of others are left out.

    Raises:
        ConfigError: There is no message.
        DataError: The target has too few rows of one label.
    """
    others = Others([told[name] for name in names if name != target])
    (mine,) = rows_of(table)
    return _answer(table, tuple(names), list(names).index(target), mine, others, seed, ways)


def _answer(
    table: SiloTable,
    names: tuple[str, ...],
    number: int,
    mine: Own,
    others: Others,
    seed: int,
    ways: Sequence[str] | None,
) -> Answer:
    if len(names) < 2:
        raise ConfigError(f"comparing needs two silos, got {', '.join(names)} alone.")
    if mine.rarer < FEWEST:
        raise DataError(
            f"silo {names[number]} has {mine.rarer} rows of the rarer label, where {FEWEST} are needed to judge "
            "models on its own rows; take another target."
        )
    ways = tuple(name for name in WAYS if name in {"alone", *(ways_here() if ways is None else ways)})
    with threadpool_limits(1):  # arrays are small: threads cost more than they bring
        rng = np.random.Generator(np.random.PCG64([seed, number]))
        fold = folds(mine, FOLDS, rng)
        scores: dict[str, np.ndarray] = {}
        for one in np.unique(fold):
            test = fold == one
            chosen = choose(mine[~test], others, rng, ways)
            for way, model in chosen.models.items():
                scores.setdefault(way, np.full(mine.rows, np.nan))[test] = model(mine.x[test])
            scores.setdefault(RECOMMENDED, np.empty(mine.rows))[test] = chosen.models[chosen.best](mine.x[test])
        rows = tuple(
            Row(way, mine.auc(scores[way], fold), mine.difference(scores[way], scores["alone"], fold))
            for way in (RECOMMENDED, *ways)
            if way in scores
        )
        baselines = [row for row in rows if row.about.kind == "baseline"]
        rival = max(baselines, key=lambda row: row.auc.value).way
        final = choose(mine, others, rng, ways)
        told = list(others.told)
        told.insert(number, summary_of(mine, seed, number))
        rest = {k: one for k, one in enumerate(told) if k != number}
        return Answer(
            table=table,
            names=names,
            target=number,
            own=mine,
            told=tuple(told),
            rows=rows,
            recommended=final.best,
            rival=rival,
            verdicts=tuple(verdicts(mine, rest, draw_of(seed, number))),
            probes=probe(told, score_models(mine, rest), number, table.feature_names, names),
            chosen=final,
            scores=scores,
            fold=fold,
        )


def targets_of(table: SiloTable, asked: Sequence[str]) -> tuple[list[int], list[str]]:
    """Numbers of the silos that can be judged among those that are asked for, and a sentence about each other one.

    Args:
        table: The silos.
        asked: Names or numbers; none: all.

    Raises:
        UnknownNameError: There is no such silo.
        DataError: None can be judged.
    """
    wanted = [table.index(name) for name in asked] if asked else list(range(table.n_silos))
    good, notes = [], []
    for number in wanted:
        silo = table.silos[number]
        rarer = rows_of(table)[number].rarer
        if rarer >= FEWEST:
            good.append(number)
        else:
            notes.append(
                f"{silo.name} is not judged: {rarer} of its {silo.n_rows} rows have the rarer label, {FEWEST} are "
                "needed. Its rows help others."
            )
    if not good:
        raise DataError(" ".join(notes))
    return good, notes


def model_of(answer: Answer) -> Any:
    """The model to use, a :class:`fedrank.silos.model.SiloModel` trained on all of the target's rows.

    Args:
        answer: What was found.

    Raises:
        ModelError: Trees are recommended, which have no coefficients.
    """
    from fedrank.silos.model import SiloModel
    from fedrank.silos.network import TabularNetwork

    made = answer.chosen.models[answer.recommended]
    if not isinstance(made, Glm):
        raise ModelError(
            "boosted trees are recommended; they have no coefficients to write. Fit them with scikit-learn."
        )
    weights = np.concatenate(
        [np.stack([np.zeros(len(made.beta) - 1), made.beta[1:]], axis=1).ravel(), [0, made.beta[0]]]
    )
    return SiloModel(
        network=TabularNetwork(len(made.beta) - 1, (), "none"),
        weights=weights.astype(np.float32),
        mean=made.moments.mean,
        deviation=made.moments.deviation,
        names=answer.table.feature_names,
        coding=answer.table.coding,
        label=answer.table.label,
        about={
            "made_by": f"fedrank silos compare {__version__}",
            "data": answer.table.name,
            "generated": answer.table.generated,
            "party": answer.name,
            "way": answer.recommended,
        },
    )
