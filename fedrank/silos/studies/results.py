"""Results of a study: effects with corrected p-values, in files and in words.

The tests of a plan are corrected together, whatever question they belong to: Holm's or Bonferroni's method over all
tests of all questions that were answered.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
from scipy.special import fdtrc

from fedrank import __version__
from fedrank.core.frame import Frame
from fedrank.core.trees import Json
from fedrank.report.claims import Named, Sentence, say
from fedrank.report.significance import adjust
from fedrank.report.statistics import p_is
from fedrank.silos.studies.codebook import Codebook, Question
from fedrank.silos.studies.comparison import Comparison
from fedrank.silos.studies.coordinator import Coordinator, Progress
from fedrank.silos.studies.formula import INTERCEPT, Design
from fedrank.silos.studies.meta import Estimates, MetaFit, chi2_tail
from fedrank.silos.studies.questions import prepare
from fedrank.silos.studies.regression import RegressionFit
from fedrank.silos.studies.survival import CoxFit, Survival
from fedrank.silos.studies.table_one import TableOne, finite

#: Effects that a headline lists.
_LISTED = 3
#: What was done with p-values, by the plan's correction.
CORRECTED = {
    "holm": "corrected by Holm’s method", "bonferroni": "corrected by Bonferroni’s method", "none": "not corrected",
}  # fmt: skip
#: Models whose effects are ratios: what exp of a coefficient is.
RATIOS = {
    "logistic": "odds ratio",
    "multinomial": "relative risk ratio",
    "ordinal": "odds ratio",
    "poisson": "rate ratio",
    "negative-binomial": "rate ratio",
    "cox": "hazard ratio",
}


@dataclass(frozen=True)
class Effect:
    """One coefficient.

    Attributes:
        name: Its name; of a multinomial outcome with the level.
        estimate: The coefficient, in the columns' own units; NaN where there is none, as of the following.
        error: Standard error.
        low: Lower end of its interval, at the plan's level.
        high: Upper end.
        p: Two-sided p-value that it is 0.
        corrected: The same, corrected for the plan's tests; NaN where it is not among them.
        tested: Whether it is among them.
        i2: Of a meta-analysis, the share of the variance that is between silos; NaN of others, as the following.
        tau2: The variance between silos.
        prediction: Ends of the interval in which another silo's coefficient lies.
        own: Estimate and standard error of each silo.
    """

    name: str
    estimate: float
    error: float
    low: float
    high: float
    p: float
    corrected: float = np.nan
    tested: bool = False
    i2: float = np.nan
    tau2: float = np.nan
    prediction: tuple[float, float] = (np.nan, np.nan)
    own: Mapping[str, tuple[float, float]] = field(default_factory=dict)


@dataclass(frozen=True)
class JointTest:
    """Wald's test that all coefficients of a term are 0: of a spline, of levels, of an interaction.

    Attributes:
        term: The term of the formula.
        statistic: b'V⁻¹b, a χ²; of a linear model by its degrees of freedom, an F.
        degrees: Number of coefficients.
        p: p-value.
        corrected: The same, corrected for the plan's tests; NaN where it is not among them.
    """

    term: str
    statistic: float
    degrees: int
    p: float
    corrected: float = np.nan


@dataclass(frozen=True)
class Answered:
    """One question with its result.

    Attributes:
        question: The question.
        progress: Rows, rounds and refusals.
        effects: Coefficients; empty of a table and of curves.
        notes: Sentences that a reader must know.
        more: What else the result says, by name: numbers.
        log_rank: p-value of a log-rank test, corrected with the plan's other tests; NaN without one.
        joint: Tests of terms with several coefficients.
    """

    question: Question
    progress: Progress
    effects: tuple[Effect, ...] = ()
    notes: tuple[str, ...] = ()
    more: Mapping[str, float] = field(default_factory=dict)
    log_rank: float = np.nan
    joint: tuple[JointTest, ...] = ()

    @property
    def ratio(self) -> str:
        """Name of exp of a coefficient; empty where it means nothing."""
        return RATIOS.get(self.question.model, "")

    @property
    def p_values(self) -> list[float]:
        """p-values of its tests; NaN where there is none."""
        joint = [] if self.question.tests else [test.p for test in self.joint]
        return [*(one.p for one in self.effects if one.tested), *joint, self.log_rank]

    @property
    def n_tests(self) -> int:
        """Number of tests with a p-value."""
        return sum(p == p for p in self.p_values)

    def with_corrected(self, p: Iterator[float]) -> Answered:
        """The same with corrected p-values, which come in the order of :attr:`p_values`."""
        effects = tuple(replace(one, corrected=next(p)) if one.tested else one for one in self.effects)
        joint = self.joint if self.question.tests else tuple(replace(one, corrected=next(p)) for one in self.joint)
        log_rank = next(p)
        more = self.more if log_rank != log_rank else {**self.more, "p, corrected": log_rank}
        return replace(self, effects=effects, joint=joint, log_rank=log_rank, more=more)

    def frame(self, level: float = 0.95) -> Frame:
        """The result as a table, for CSV, with intervals of a level."""
        result = self.progress.result
        if isinstance(result, TableOne | Comparison):
            return result.frame()
        if isinstance(result, Survival):
            return _frame_of_curves(result, level)
        rows: list[dict[str, Any]] = []
        for one in self.effects:
            row = {
                "coefficient": one.name,
                "estimate": one.estimate,
                "error": one.error,
                "low": one.low,
                "high": one.high,
            }
            if self.ratio:
                ends = np.exp([one.estimate, one.low, one.high])
                row |= dict(
                    zip((self.ratio.replace(" ", "_"), "ratio_low", "ratio_high"), map(float, ends), strict=True)
                )
            row |= {"p": one.p, "p_corrected": one.corrected}
            if one.own:
                row |= {"i2": one.i2, "tau2": one.tau2}
                row |= dict(zip(("prediction_low", "prediction_high"), one.prediction, strict=True))
                row |= {
                    f"{what}_{silo}": v
                    for silo, pair in one.own.items()
                    for what, v in zip(("estimate", "error"), pair, strict=True)
                }
            rows.append(row)
        return Frame.of_dicts(rows)

    def as_json(self, book: Codebook) -> dict[str, Json]:
        """As JSON can hold it."""
        sentence = headline(self, book)
        one, result = self.progress, self.progress.result
        out: dict[str, Json] = {
            "question": self.question.name,
            "sentence": str(sentence),
            "model": self.question.model,
            "formula": self.question.formula,
            "failed": one.failed or None,
            "rows": one.rows,
            "left_out": one.left_out,
            "silos_without_an_answer": one.left,
            "rounds": one.rounds,
            "numbers": one.numbers,
            "notes": list(self.notes),
            **{name: finite(value) for name, value in self.more.items()},
        }
        if isinstance(result, TableOne | Comparison):
            return {**out, **result.as_json()}
        if isinstance(result, Survival):
            return {**out, "curves": self.frame(book.level).dicts()}
        keys = ("name", "estimate", "error", "low", "high", "p", "corrected", "tested")
        told = [{key: finite(getattr(effect, key)) for key in keys} for effect in self.effects]
        for row, effect in zip(told, self.effects, strict=True):
            if effect.own:
                row |= {"i2": effect.i2, "tau2": effect.tau2, "prediction": [finite(end) for end in effect.prediction]}
                row["silos"] = {silo: {"estimate": b, "error": e} for silo, (b, e) in effect.own.items()}
        joint = [{**asdict(one), "corrected": finite(one.corrected)} for one in self.joint]
        return {**out, "coefficients": told, "terms": joint}


def results_of(made: Coordinator) -> list[Answered]:
    """The questions of a study with their results, p-values corrected."""
    book = made.codebook
    found = [_result_of(book, book.question(name), one) for name, one in made.progress.items()]
    found = [replace(one, notes=(*one.notes, *made.notes)) for one in found]
    corrected = correct(np.array([p for one in found for p in one.p_values]), book.correction)
    p = iter(corrected.tolist())
    return [one.with_corrected(p) for one in found]


def correct(p: np.ndarray, method: str) -> np.ndarray:
    """p-values corrected for their number; NaN stays and does not count.

    Args:
        p: p-values.
        method: ``holm``, ``bonferroni`` or ``none``.
    """
    out, known = np.array(p, float), np.flatnonzero(~np.isnan(p))
    if method != "none":
        out[known] = adjust(p[known]) if method == "holm" else np.minimum(p[known] * len(known), 1.0)
    return out


def _result_of(book: Codebook, question: Question, one: Progress) -> Answered:
    result = one.result
    notes = [f"{silo} is not in the result: {reason}." for silo, reason in one.left.items()]
    gone = {silo: count for silo, count in one.left_out.items() if count}
    if gone and not isinstance(result, TableOne):
        of = ", ".join(f"{silo} {count:,}" for silo, count in gone.items())
        notes.append(f"Rows that lack a value and were left out: {of}.")
        coded: dict[str, list[str]] = {}
        for name, column in book.columns.items():
            if column.missing and question.mentions(name):
                coded.setdefault(", ".join(column.missing), []).append(name)
        also = "; ".join(f"{codes} in {', '.join(names)}" for codes, names in coded.items())
        notes += [f"Missing by the codebook, beside empty cells: {also}."] if also else []
    if isinstance(result, Survival):
        more = {"log-rank χ²": result.statistic, "degrees of freedom": result.degrees, "p": result.p}
        several = len(result.curves) > 1
        return Answered(
            question, one, notes=tuple(notes), more=more if several else {}, log_rank=result.p if several else np.nan
        )
    if isinstance(result, MetaFit):
        without = sorted({silo for of in result.pooled for silo in of.without})
        notes += [f"Without an estimate of some coefficient by its own rows: {', '.join(without)}."] if without else []
        return Answered(question, one, _effects_of(book, question, result), tuple(notes))
    if not isinstance(result, Estimates):
        return Answered(question, one, notes=tuple(notes))
    joint = _joint_tests(result, prepare(question, book).design)
    # A coefficient of a spline has no meaning by itself: all of them are tested together.
    splines = tuple(test.term for test in joint if test.term.startswith("ns(") and not question.tests)
    low, high = result.interval(book.level)
    effects = tuple(
        Effect(name, *map(float, values), tested=_is_tested(question, name) and not name.startswith(splines))
        for name, *values in zip(result.names, result.estimate, result.error, low, high, result.p, strict=True)
    )
    return Answered(question, one, effects, (*notes, *result.notes()), _numbers(result), joint=joint)


def _joint_tests(result: Estimates, design: Design) -> tuple[JointTest, ...]:
    """Wald's tests of the terms with several coefficients that have an estimate."""
    term_of = dict(zip((one.name for one in design.fields), design.terms, strict=True))
    terms = [term_of.get(name, term_of.get(name.partition(": ")[2], "")) for name in result.names]
    out = []
    for term in dict.fromkeys(filter(None, terms)):
        of = [k for k, one in enumerate(terms) if one == term and np.isfinite(result.estimate[k])]
        if len(of) < 2 or term == design.codebook.site:
            continue
        b, v = result.estimate[of], result.covariance[np.ix_(of, of)]
        if not np.isfinite(v).all() or np.linalg.matrix_rank(v) < len(of):  # fewer clusters than coefficients
            continue
        statistic = float(b @ np.linalg.solve(v, b))
        if np.isfinite(result.degrees):
            statistic /= len(of)
            p = float(fdtrc(len(of), result.degrees, statistic))
        else:
            p = float(chi2_tail(statistic, len(of)))
        out.append(JointTest(term, statistic, len(of), p))
    return tuple(out)


def _effects_of(book: Codebook, question: Question, result: MetaFit) -> tuple[Effect, ...]:
    return tuple(
        Effect(
            of.name, of.estimate, of.error, *of.interval(book.level), of.p, tested=_is_tested(question, of.name),
            i2=of.i2, tau2=of.tau2, prediction=of.prediction(book.level),
            own={silo: pair for silo, pair in zip(of.silos, of.own, strict=True)},
        )
        for of in result.pooled
    )  # fmt: skip


def _numbers(result: Estimates) -> dict[str, float]:
    """Numbers of a result beside its coefficients."""
    out = {"log-likelihood": result.log_likelihood, "AIC": result.aic}
    if isinstance(result, CoxFit):
        out["events"] = float(sum(result.events.values()))
        if len(result.proportional) and np.isfinite(result.proportional[-1, 2]):
            out["proportional hazards: p of all together"] = float(result.proportional[-1, 2])
    if isinstance(result, RegressionFit):
        if result.family == "linear":
            out["residual standard deviation"] = float(np.sqrt(result.dispersion))
        if result.theta[0] == result.theta[0]:
            out |= {"θ": result.theta[0], "its error": result.theta[1]}
    return out


def _frame_of_curves(result: Survival, level: float) -> Frame:
    rows: list[tuple[Any, ...]] = []
    for one in result.curves:
        low, high = one.interval(level)
        columns = (one.time, one.at_risk, one.events, one.survival, one.error, low, high)
        rows += [(one.group, *map(float, values)) for values in zip(*columns, strict=True)]
    names = ("time", "at_risk", "events", "survival", "error", "low", "high")
    return Frame.of_rows(rows, {"group": str, **dict.fromkeys(names, float)})


def _is_tested(question: Question, name: str) -> bool:
    if question.tests:
        return name in question.tests
    name = name.partition(": ")[2] or name if question.model == "multinomial" else name
    return name != INTERCEPT and not name.startswith("site=") and "|" not in name and not name.startswith("log(theta)")


def headline(one: Answered, book: Codebook) -> Sentence:
    """The result of a question in a sentence."""
    name, rows = say(Named(one.question.name), ": "), sum(count or 0 for count in one.progress.rows.values())
    where = say(" (", Named(f"{rows:,} rows of {len(one.progress.rows)} silos"), ").")
    if one.progress.failed:
        return name + say("no result: ", Named(one.progress.failed.rstrip(".")), ".")
    result = one.progress.result
    if isinstance(result, TableOne):
        columns = len({cell.column for cell in result.cells})
        return name + say(Named(f"{columns} column{'s' * (columns > 1)} described"), where)
    if isinstance(result, Comparison):
        return name + say("each silo can now compare by messages of ", Named(f"{len(result.told)} silos"), where)
    if isinstance(result, Survival):
        many = len(result.curves)
        if many == 1:
            return name + say("the survival of all rows", where)
        apart = "tells them apart" if one.log_rank < 1 - book.level else "does not tell them apart"
        return name + say(
            Named(f"curves of {many} groups"), f"; the log-rank test {apart}, ", Named(p_is(one.log_rank)), where
        )
    if isinstance(result, Estimates) and not result.converged and not result.separated:
        return name + say("the search for an estimate did not come to an end; its numbers must not be used", where)
    tested = [effect for effect in one.effects if effect.tested and effect.corrected == effect.corrected]
    joint = [test for test in one.joint if test.corrected == test.corrected]
    told = [effect for effect in tested if effect.corrected < 1 - book.level]
    jointly = [test for test in joint if test.corrected < 1 - book.level]
    if not tested and not joint:
        return name + say(Named(f"{len(one.effects)} coefficients"), ", none of them tested", where)
    if not told and not jointly:
        return name + say("none of ", Named(f"{len(tested) + len(joint)} tests"), " shows an effect", where)
    which = "" if book.correction == "none" else "corrected "
    parts = [f"{effect.name} {_size(one, effect, which)}" for effect in told]
    parts += [f"all of {test.term} ({which}{p_is(test.corrected)})" for test in jointly]
    many, rest = len(told) + len(jointly), len(parts) - _LISTED
    listed, more = Named("; ".join(parts[:_LISTED])), Named(f"; and {rest} more" if rest > 0 else "")
    others = len(tested) + len(joint) - many
    none = Named(f"; {others} other test{'s show' if others > 1 else ' shows'} none" if others else "")
    return name + say("an effect is shown of ", listed, more, none, where)


def _size(one: Answered, effect: Effect, which: str) -> str:
    values = (effect.estimate, effect.low, effect.high)
    value, low, high = np.exp(values) if one.ratio else values
    said = f"({one.ratio} {value:.4g}, {low:.4g} to {high:.4g}, {which}{p_is(effect.corrected)})"
    return said.replace("( ", "(").replace("-", "−")


def methods(made: Coordinator) -> str:
    """A paragraph on methods that says what was run, and nothing else."""
    book, found = made.codebook, results_of(made)
    silos, sha = f"{len(book.silos)} silos ({', '.join(book.silos)})", f"codebook SHA-256 {book.sha[:16]}…"
    how = ", by secure sums." if book.rules.secure_sum else "."
    if made.simulated:
        said = [
            f"The rows of {silos} lay in one file, and a study of them was simulated in one place ({sha}): its rounds, "
            f"and sums over the rows of each silo, in double precision{how}"
        ]
    else:
        said = [
            f"Rows stayed at the {silos}, which answered questions of a plan agreed on before ({sha}) with sums over "
            f"their rows, in double precision{how}"
        ]
    for one in found:
        if one.progress.result is not None:
            said.append(_method(one, book))
            missing = [silo for silo in book.silos if silo not in one.progress.rows]
            said += [f"Not in it: {', '.join(missing)}."] if missing else []
    tests = sum(one.n_tests for one in found)
    if tests:
        said.append(f"p-values of the plan’s {tests} tests were {CORRECTED[book.correction]}.")
    least = book.rules.smallest_cell
    if made.simulated:
        said.append(f"Counts below {least} were not told." if least > 1 else "No count was too small to be told.")
    elif least > 1:
        said.append(f"Counts below {least} did not leave a silo.")
    said.append(f"Computed with fedrank {__version__}.")
    return " ".join(filter(None, said))


def _method(one: Answered, book: Codebook) -> str:
    question, result = one.question, one.progress.result
    rows = sum(count or 0 for count in one.progress.rows.values())
    what = f"“{question.formula}” ({rows:,} rows, {rounds_of(one)})"
    if isinstance(result, TableOne):
        return f"Columns were described by {what}; quantiles are interpolated in bins."
    if isinstance(result, Comparison):
        return f"Each silo sent one summary of its rows, for comparisons at the others: {what}."
    exact = book.rules.exact_times or f"strata({book.site})" in question.formula.replace(" ", "")
    bins = "" if exact else " over bins of time"
    if isinstance(result, Survival):
        compared = " and compared by the log-rank test" if len(result.curves) > 1 else ""
        return f"Survival was estimated by Kaplan and Meier’s method{bins}{compared}: {what}."
    if isinstance(result, MetaFit):
        return (
            f"Each silo’s own {question.model} model was pooled by random effects (restricted maximum likelihood; "
            f"prediction intervals of Higgins, Thompson and Spiegelhalter): {what}."
        )
    errors = {"": "errors of the model", "HC0": "robust errors (HC0)", "HC1": "robust errors (HC1)"}
    errors |= dict.fromkeys(("CR0", "CR1"), f"errors robust to {result.clusters:,} clusters ({result.robust})")
    if isinstance(result, CoxFit):
        ties = {"efron": "Efron’s", "breslow": "Breslow’s"}[result.ties]
        return f"Cox’s model{bins} with {ties} treatment of ties, {errors[result.robust]}: {what}."
    if result.profile is not None:
        return f"A logistic model with Firth’s penalty, intervals and tests by profile likelihood: {what}."
    if question.penalty:
        return f"A {question.model} model with an L2 penalty of {question.penalty:g} on columns of deviation 1: {what}."
    return f"A {question.model} model by maximum likelihood, {errors[result.robust]}: {what}."


def rounds_of(one: Answered) -> str:
    """The number of rounds that a question took, in words."""
    return "one round" if one.progress.rounds == 1 else f"{one.progress.rounds} rounds"


def as_jsons(made: Coordinator) -> list[dict[str, Json]]:
    """The questions with their results, as JSON can hold them."""
    return [one.as_json(made.codebook) for one in results_of(made)]
