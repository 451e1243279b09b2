"""The page of a study: for each question its result in a sentence, a figure and a table, then rows, rounds, methods."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from fedrank import __version__
from fedrank.engine.checkpoint import write_atomically
from fedrank.report.claims import Named, Number, Opening, head
from fedrank.report.figures import Level, levels_figure
from fedrank.report.html import Html, bullets, document, h, section, warn, write_document
from fedrank.report.statistics import p_value
from fedrank.report.tables import Column, Table, table_of
from fedrank.silos.studies.codebook import Codebook
from fedrank.silos.studies.comparison import Comparison
from fedrank.silos.studies.coordinator import Coordinator
from fedrank.silos.studies.results import (
    CORRECTED,
    Answered,
    Effect,
    as_jsons,
    headline,
    methods,
    results_of,
    rounds_of,
)  # fmt: skip
from fedrank.silos.studies.survival import Survival
from fedrank.silos.studies.table_one import QUANTILES, TableOne

#: Most effects that a figure shows.
_SHOWN = 20


def write_results(made: Coordinator, folder: Path) -> list[Path]:
    """Write the results of a study: a CSV file for each question, all as JSON, the methods, and the page.

    Returns:
        The files.
    """
    folder.mkdir(parents=True, exist_ok=True)
    files: list[Path] = []
    for one in results_of(made):
        if one.progress.result is not None:
            name, number = file_name(one.question.name), 2
            while folder / f"{name}.csv" in files:
                name, number = f"{file_name(one.question.name)}-{number}", number + 1
            files.append(folder / f"{name}.csv")
            write_atomically(files[-1], one.frame(made.codebook.level).to_csv().encode())
    about = {"study": made.codebook.study, "codebook_sha256": made.codebook.sha, "simulated": made.simulated}
    about["methods"] = methods(made)
    files.append(folder / "results.json")
    write_atomically(files[-1], (json.dumps({**about, "questions": as_jsons(made)}, indent=1) + "\n").encode())
    files.append(write_study(made, folder / "report.html"))
    return files


def file_name(name: str) -> str:
    """A question's name as that of a file."""
    return "".join(c if c.isalnum() or c in "-_." else "-" for c in name).strip(".") or "question"


def write_study(made: Coordinator, path: Path) -> Path:
    """Write the page of a study.

    Raises:
        RunError: The page cannot be written.
    """
    book, found = made.codebook, results_of(made)
    first = next((one for one in found if one.progress.result is not None and one.effects), found[0])
    chart = _chart(first, book)
    rows = sum(count or 0 for count in first.progress.rows.values())
    tests = sum(one.n_tests for one in found)
    opening = Opening(
        book.study,
        headline(first, book),
        (
            Number("Silos", Named(f"{len(first.progress.rows)}"), f"of {len(book.silos)} in the codebook"),
            Number("Rows", Named(f"{rows:,}"), f"that answer {first.question.name}"),
            Number("Rounds", Named(f"{made.number}"), "messages to each silo, and back"),
            Number("Tests", Named(f"{tests}"), CORRECTED[book.correction]),
        ),
        "effects" if chart is not None else "",
        "Effects with their intervals. The same numbers are in the table below.",
    )
    warnings = [f"{one.question.name}: {note}" for one in found for note in one.notes if "do not use" in note]
    warnings += [f"{one.question.name} has no result: {one.progress.failed}." for one in found if one.progress.failed]
    warnings += made.notes
    kind = "A study, simulated on one file," if made.simulated else "A study"
    box = warn("Look at this first", bullets(warnings), label="Warning") if warnings else None
    page = document(
        f"{book.study} – fedrank",
        head(
            opening, f"{kind} of {len(book.silos)} silos · codebook {book.sha[:12]}", (),
            chart.figure("effects", opening.description) if chart is not None else None, box,
        ),
        *(_section(one, made) for one in found),
        section("rows", "Rows, silos and rounds", _flow(found, made)),
        section("methods", "For a paper", h("p", methods(made))),
        h("footer", f"Made by fedrank silos, fedrank {__version__}."),
    )  # fmt: skip
    return write_document(page, path)


def result_table(one: Answered, made: Coordinator) -> Table:
    """The table of a question's result."""
    result = one.progress.result
    if isinstance(result, TableOne):
        return _table_one(result)
    if isinstance(result, Survival):
        return _curves(result, made.codebook.level)
    if isinstance(result, Comparison):
        return _comparison(result)
    level = f"{made.codebook.level:.0%} interval"
    columns = [
        Column("name", "coefficient"),
        Column("estimate", "estimate", numeric=True),
        Column("error", "error", numeric=True),
    ]
    if one.ratio:
        columns.append(Column("ratio", one.ratio, numeric=True))
    columns += [Column("interval", level, numeric=True), Column("p", "p", numeric=True)]
    if any(effect.tested for effect in one.effects):
        columns.append(Column("corrected", "corrected", numeric=True))
    if any(effect.own for effect in one.effects):
        columns += [Column("i2", "I²", numeric=True), Column("prediction", "another silo", numeric=True)]
    rows = []
    for effect in one.effects:
        ends = np.array([effect.estimate, effect.low, effect.high])
        value, low, high = np.exp(ends) if one.ratio else ends
        rows.append({
            "name": effect.name, "estimate": _number(effect.estimate), "error": _number(effect.error),
            "ratio": _number(value), "interval": "–" if low != low else f"{_number(low)} to {_number(high)}",
            "p": p_value(effect.p) if effect.p == effect.p else "–",
            "corrected": p_value(effect.corrected) if effect.corrected == effect.corrected else "",
            "i2": "–" if effect.i2 != effect.i2 else f"{effect.i2:.0%}", "prediction": _ends(effect, one.ratio),
        })  # fmt: skip
    title = f"{one.question.name}: {one.question.formula}"
    notes = [f"Intervals are those of the {one.ratio}."] if one.ratio else []
    if any(effect.tested for effect in one.effects) and made.codebook.correction != "none":
        notes.append("Intervals are not corrected for the number of tests; p-values in the column “corrected” are.")
    return Table(title, tuple(columns), tuple(rows), tuple(notes))


def _comparison(result: Comparison) -> Table:
    columns = (
        Column("silo", "silo"), Column("rows", "rows", numeric=True), Column("positive", "label 1", numeric=True)
    )  # fmt: skip
    rows = [(silo, round(one.rows), round(one.positive)) for silo, one in result.told.items()]
    note = "Each silo compares ways to a model by these messages and its own rows: silos compare with --messages."
    return table_of("Messages", columns, rows, (note,))


def _joint_table(one: Answered) -> Table:
    linear = one.question.model == "linear"
    columns = (
        Column("term", "term"), Column("statistic", "F" if linear else "χ²", numeric=True),
        Column("degrees", "coefficients", numeric=True), Column("p", "p", numeric=True),
        Column("corrected", "corrected", numeric=True),
    )  # fmt: skip
    corrected = [p_value(test.corrected) if test.corrected == test.corrected else "" for test in one.joint]
    rows = [
        (test.term, _number(test.statistic), test.degrees, p_value(test.p), p)
        for test, p in zip(one.joint, corrected, strict=True)
    ]
    return table_of("All coefficients of a term together", columns, rows, ("Wald’s tests that all of them are 0.",))


def _ends(effect: Effect, ratio: str) -> str:
    low, high = np.exp(effect.prediction) if ratio else effect.prediction
    return "–" if low != low else f"{_number(low)} to {_number(high)}"


def _section(one: Answered, made: Coordinator) -> Html:
    name = file_name(one.question.name)
    parts: list[Any] = [h("p", str(headline(one, made.codebook)))]
    if one.progress.result is not None:
        parts.append(result_table(one, made))
    if one.joint:
        parts.append(_joint_table(one))
    if one.more:
        parts.append(h("p", "; ".join(f"{key} {_number(value)}" for key, value in one.more.items()) + "."))
    if one.notes:
        parts.append(bullets(one.notes))
    return section(f"q-{name}", f"{one.question.name}: {one.question.model}", *parts)


def _chart(one: Answered, book: Codebook) -> Any:
    effects = [e for e in one.effects if e.tested and np.isfinite([e.estimate, e.low, e.high]).all()]
    if not effects:
        return None
    level = book.level
    levels = [
        Level(_with_reference(e.name, book), e.estimate, e.low, e.high, ours=e.corrected < 1 - level)
        for e in effects[:_SHOWN]
    ]
    said = [f"Intervals of {level:.0%}; in colour: corrected p < {1 - level:.2g}"]
    title = f"{one.question.name}: {one.ratio or 'coefficient'}"
    return levels_figure(levels, title, said, 3, signed=not one.ratio, ratio=bool(one.ratio))


def _with_reference(name: str, book: Codebook) -> str:
    """The name of a coefficient; of a level with the one that it is compared with."""
    column, _, level = name.partition("=")
    about = book.columns.get(column)
    return name if about is None or level not in about.levels else f"{name} (against {about.levels[0]})"


def _table_one(result: TableOne) -> Table:
    names = tuple(dict.fromkeys((one.group, one.silo) for one in result.cells))
    columns = [Column("what", "")]
    columns += [Column(f"{g}|{s}", " · ".join(filter(None, [g, s or "all"])), numeric=True) for g, s in names]
    rows: dict[str, dict[str, str]] = {}
    for one in result.cells:
        key = f"{one.group}|{one.silo}"
        told: dict[str, str] = {}
        if one.counts is None:
            q = one.quantiles
            told[f"{one.column}, mean (deviation)"] = f"{_number(one.mean)} ({_number(one.deviation)})"
            told[f"{one.column}, median ({QUANTILES[0]:.0%} to {QUANTILES[-1]:.0%})"] = (
                f"{_number(q[1])} ({_number(q[0])} to {_number(q[2])})"
            )
        else:
            for level, count in one.counts.items():
                share = f" ({count / one.known:.0%})" if count == count and one.known > 0 else ""
                told[f"{one.column} = {level}"] = ("–" if count != count else f"{count:,.0f}") + share
        told[f"{one.column}, missing"] = "–" if one.missing != one.missing else f"{one.missing:,.0f}"
        for what, value in told.items():
            rows.setdefault(what, {"what": what})[key] = value
    least = result.smallest_cell
    notes = (f"–: a count below {least}, or one from which it would follow.",) if least > 1 else ()
    return Table("Table 1", tuple(columns), tuple(rows.values()), notes)


def _curves(result: Survival, level: float) -> Table:
    columns = (
        Column("group", "group"), Column("rows", "rows", numeric=True), Column("events", "events", numeric=True),
        Column("median", "median time", numeric=True), Column("interval", f"{level:.0%} interval", numeric=True),
    )  # fmt: skip
    rows = []
    for one in result.curves:
        median, low, high = one.median(level)
        counts = float(one.at_risk[0]) if len(one.at_risk) else 0.0, float(one.events.sum()), median
        rows.append((one.group, *map(_number, counts), f"{_number(low)} to {_number(high)}"))
    return table_of("Kaplan-Meier curves", columns, rows, ("–: the curve does not fall to one half.",))


def _flow(found: list[Answered], made: Coordinator) -> Table:
    columns = (
        Column("question", "question"), Column("silo", "silo"), Column("rows", "rows used", numeric=True),
        Column("left_out", "without a value", numeric=True), Column("why", "why not in the result"),
    )  # fmt: skip
    asked = [(one.question.name, one.progress) for one in found]
    rows = [
        (name, silo, of.rows.get(silo), of.left_out.get(silo), of.left.get(silo, ""))
        for name, of in asked
        for silo in made.codebook.silos
    ]
    notes = tuple(
        f"{one.question.name}: {rounds_of(one)}, {one.progress.numbers:,} numbers from all silos." for one in found
    )
    return table_of("Rows", columns, rows, notes)


def _number(value: float) -> str:
    if value != value:
        return "–"
    if np.isinf(value):
        return "∞" if value > 0 else "−∞"
    return f"{value:.4g}".replace("-", "−")
