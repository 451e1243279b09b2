"""Results of a study: effects with corrected p-values, in files and in words.

The tests of a plan are corrected together, whatever question they belong to: Holm's or Bonferroni's method over all
tests of all questions that were answered.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fedrank import __version__
from fedrank.core.frame import Frame
from fedrank.core.trees import Json
from fedrank.engine.checkpoint import write_atomically
from fedrank.report.statistics import p_is
from fedrank.silos.studies.codebook import Codebook, Question
from fedrank.silos.studies.coordinator import Coordinator, Progress
from fedrank.silos.studies.formula import INTERCEPT
from fedrank.silos.studies.survival import CurvesFit
from fedrank.silos.studies.table_one import TableOne

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
    """

    name: str
    estimate: float
    error: float
    low: float
    high: float
    p: float
    corrected: float = np.nan
    tested: bool = False


@dataclass(frozen=True)
class Answered:
    """One question with its result.

    Attributes:
        question: The question.
        progress: Rows, rounds and refusals.
        effects: Coefficients; empty of a table and of curves.
        notes: Sentences that a reader must know.
        more: What else the result says, by name: numbers.
    """

    question: Question
    progress: Progress
    effects: tuple[Effect, ...] = ()
    notes: tuple[str, ...] = ()
    more: Mapping[str, float] = field(default_factory=dict)

    @property
    def ratio(self) -> str:
        """Name of exp of a coefficient; empty where it means nothing."""
        return RATIOS.get(self.question.model, "")

    def frame(self) -> Frame:
        """The result as a table, for CSV."""
        result = self.progress.result
        if isinstance(result, TableOne):
            return result.frame()
        if isinstance(result, CurvesFit):
            return result.frame()
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
            rows.append({**row, "p": one.p, "p_corrected": one.corrected})
        return Frame.of_dicts(rows)

    def as_json(self) -> dict[str, Json]:
        """As JSON can hold it."""
        one, result = self.progress, self.progress.result
        out: dict[str, Json] = {
            "question": self.question.name,
            "model": self.question.model,
            "formula": self.question.formula,
            "failed": one.failed or None,
            "rows": one.rows,
            "left_out": one.left_out,
            "silos_without_an_answer": one.left,
            "rounds": one.rounds,
            "numbers": one.numbers,
            "notes": list(self.notes),
            **{name: _told(value) for name, value in self.more.items()},
        }
        if isinstance(result, TableOne | CurvesFit):
            return {**out, **result.as_json()}
        keys = ("name", "estimate", "error", "low", "high", "p", "corrected", "tested")
        told = [{key: _told(getattr(effect, key)) for key in keys} for effect in self.effects]
        return {**out, "coefficients": told}


def answered(made: Coordinator) -> list[Answered]:
    """The questions of a study with their results, p-values corrected."""
    book = made.codebook
    found = [_answered(book, book.question(name), one) for name, one in made.progress.items()]
    tested = [(k, j) for k, one in enumerate(found) for j, effect in enumerate(one.effects) if effect.tested]
    p = np.array([found[k].effects[j].p for k, j in tested])
    corrected = correct(p, book.correction)
    for (k, j), value in zip(tested, corrected, strict=True):
        effects = list(found[k].effects)
        effects[j] = _replace(effects[j], corrected=float(value))
        found[k] = _replace(found[k], effects=tuple(effects))
    return found


def correct(p: np.ndarray, method: str) -> np.ndarray:
    """p-values corrected for their number; NaN stays and does not count.

    Args:
        p: p-values.
        method: ``holm``, ``bonferroni`` or ``none``.
    """
    out, known = np.array(p, float), np.flatnonzero(~np.isnan(p))
    m = len(known)
    if method == "bonferroni":
        out[known] = np.minimum(1.0, p[known] * m)
    elif method == "holm":
        order = known[np.argsort(p[known], kind="stable")]
        out[order] = np.minimum(1.0, np.maximum.accumulate(p[order] * (m - np.arange(m))))
    return out


def _replace(value: Any, **changes: Any) -> Any:
    from dataclasses import replace

    return replace(value, **changes)


def _answered(book: Codebook, question: Question, one: Progress) -> Answered:
    result = one.result
    notes = [f"{silo} is not in the result: {reason}." for silo, reason in one.left.items()]
    gone = {silo: count for silo, count in one.left_out.items() if count}
    if gone and not isinstance(result, TableOne):
        of = ", ".join(f"{silo} {count:,}" for silo, count in gone.items())
        notes.append(f"Rows that lack a value and were left out: {of}.")
    if result is None or isinstance(result, TableOne):
        return Answered(question, one, notes=tuple(notes))
    notes += result.notes()
    if isinstance(result, CurvesFit):
        return Answered(question, one, notes=tuple(notes), more=result.numbers())
    low, high = result.interval(book.level)
    effects = tuple(
        Effect(name, *map(float, values), tested=_is_tested(question, name))
        for name, *values in zip(result.names, result.estimate, result.error, low, high, result.p, strict=True)
    )
    return Answered(question, one, effects, tuple(notes), result.numbers())


def _is_tested(question: Question, name: str) -> bool:
    if question.tests:
        return name in question.tests
    return name != INTERCEPT and not name.startswith("site=") and "|" not in name and not name.startswith("log(theta)")


def headlines(made: Coordinator) -> list[str]:
    """A sentence for each question."""
    return [headline(one, made.codebook) for one in answered(made)]


def headline(one: Answered, book: Codebook) -> str:
    """The result of a question in a sentence."""
    name, rows = one.question.name, sum(count or 0 for count in one.progress.rows.values())
    where = f"{rows:,} rows of {len(one.progress.rows)} silos"
    if one.progress.failed:
        return f"{name}: no result, as {one.progress.failed}."
    result = one.progress.result
    if isinstance(result, TableOne):
        return f"{name}: {len({cell.column for cell in result.cells})} columns of {where}."
    if isinstance(result, CurvesFit):
        return f"{name}: {result.sentence()} ({where})."
    tested = [effect for effect in one.effects if effect.tested and effect.corrected == effect.corrected]
    told = [effect for effect in tested if effect.corrected < 1 - book.level]
    if not tested:
        return f"{name}: {len(one.effects)} coefficients from {where}, none of them tested."
    if not told:
        return f"{name}: none of {len(tested)} tests tells an effect from none ({where})."
    listed = "; ".join(f"{effect.name} {_size(one, effect)}" for effect in told[:3])
    more = f" and {len(told) - 3} more" if len(told) > 3 else ""
    return f"{name}: {len(told)} of {len(tested)} tests tell an effect from none: {listed}{more} ({where})."


def _size(one: Answered, effect: Effect) -> str:
    values = (effect.estimate, effect.low, effect.high)
    value, low, high = np.exp(values) if one.ratio else values
    return f"{one.ratio} {value:.3g} ({low:.3g} to {high:.3g}; {p_is(effect.corrected)})".strip().replace("-", "−")


def methods(made: Coordinator) -> str:
    """A paragraph on methods that says what was run, and nothing else."""
    book, found = made.codebook, answered(made)
    said = [
        f"Rows stayed at the {len(book.silos)} silos ({', '.join(book.silos)}). Each answered questions of a plan that "
        f"all had agreed on before (codebook SHA-256 {book.sha[:16]}…) with sums over its rows, in double precision."
    ]
    for one in found:
        if one.progress.result is not None:
            said.append(_method(one))
    tests = sum(effect.tested for one in found for effect in one.effects)
    if tests:
        how = {"holm": "Holm’s method", "bonferroni": "Bonferroni’s method"}.get(book.correction)
        said.append(
            f"p-values of the plan’s {tests} tests were corrected by {how}."
            if how
            else f"p-values of the plan’s {tests} tests were not corrected."
        )
    rules = book.rules
    said.append(f"Counts below {rules.smallest_cell} did not leave a silo." if rules.smallest_cell > 1 else "")
    said.append(f"Computed with fedrank {__version__}.")
    return " ".join(filter(None, said))


def _method(one: Answered) -> str:
    question, result = one.question, one.progress.result
    rows = sum(count or 0 for count in one.progress.rows.values())
    what = f"“{question.formula}” ({rows:,} rows, {one.progress.rounds} rounds)"
    if isinstance(result, TableOne):
        return f"Columns were described by {what}; quantiles are interpolated in bins."
    if isinstance(result, CurvesFit):
        return f"Survival was estimated by Kaplan and Meier’s method and compared by the log-rank test, {what}."
    return f"{result.method()}: {what}."


def as_jsons(made: Coordinator) -> list[dict[str, Json]]:
    """The questions with their results, as JSON can hold them."""
    return [one.as_json() for one in answered(made)]


def write_results(made: Coordinator, folder: Path) -> list[Path]:
    """Write the results of a study: a CSV file for each question, all as JSON, the methods, and the page.

    Returns:
        The files.
    """
    from fedrank.silos.report.study import write_study

    folder.mkdir(parents=True, exist_ok=True)
    files: list[Path] = []
    for one in answered(made):
        if one.progress.result is not None:
            files.append(folder / f"{file_name(one.question.name)}.csv")
            write_atomically(files[-1], one.frame().to_csv().encode())
    about = {"study": made.codebook.study, "codebook_sha256": made.codebook.sha, "methods": methods(made)}
    files.append(folder / "results.json")
    write_atomically(files[-1], (json.dumps({**about, "questions": as_jsons(made)}, indent=1) + "\n").encode())
    files.append(write_study(made, folder / "report.html"))
    return files


def file_name(name: str) -> str:
    """A question's name as that of a file."""
    return "".join(c if c.isalnum() or c in "-_." else "-" for c in name).strip(".") or "question"


def _told(value: Any) -> Json:
    return None if isinstance(value, float) and not np.isfinite(value) else value
