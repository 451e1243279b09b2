"""The page of a search for settings: its trials, and the best of them beside each other.

Settings are chosen by a part that is not the test part, so the test part of all trials stays off the page: whoever
looked at it would choose by it.
"""

from __future__ import annotations

import csv
import itertools
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from fedrank.core.errors import ConfigError, UnknownNameError
from fedrank.report import describe, wording
from fedrank.report.charts import MUTED, OKABE_ITO, Chart, Panel, compose, decimal_labels, nice_domain, ticks
from fedrank.report.claims import Comparison, Measured, Named, Number, Opening, say
from fedrank.report.compare import MOST_CURVES, load_runs, write_comparison
from fedrank.report.html import h, section
from fedrank.report.load import load
from fedrank.report.run import Run
from fedrank.report.statistics import Interval, final_values
from fedrank.report.tables import Column, Table
from fedrank_zoo.optuna_search.search import Trial, best

#: Name of the chart of all trials.
PROGRESS = "trials"
_WIDTH, _HEIGHT = 400, 230


def in_words(called: str) -> str:
    """A measure of a part as a sentence names it.

    >>> in_words("vali: nDCG(dcg='exp-log2')@10")
    "validation nDCG(dcg='exp-log2')@10"
    """
    split, _, measure = called.partition(": ")
    return f"{describe.SPLIT_NAMES.get(split, split)} {measure}".strip()


def trials_table(trials: Sequence[Trial], called: str) -> Table:
    """A row a trial: its settings, its value or why there is none.

    Args:
        trials: In their order.
        called: What the value is, such as ``"vali: nDCG(dcg='exp-log2')@10"``.
    """
    keys = list(dict.fromkeys(key for trial in trials for key in trial.settings))
    columns = [Column("number", "trial", numeric=True), *(Column(f"set {key}", key, numeric=True) for key in keys)]
    rows = [
        {
            "number": trial.number,
            **{f"set {key}": wording.number(value) for key, value in trial.settings.items()},
            "value": trial.value,
            "failed": trial.failed,
        }
        for trial in trials
    ]
    columns.append(Column("value", in_words(called), numeric=True))
    if any(trial.failed for trial in trials):
        columns.append(Column("failed", "why there is no value"))
    return Table("Trials", tuple(columns), tuple(rows))


def progress_figure(trials: Sequence[Trial], called: str, *, minimise: bool) -> Chart:
    """The value of each trial in their order, and the best so far as a line; arguments as :func:`search_opening`."""
    known = [(trial.number, trial.value) for trial in trials if trial.value is not None]
    reached = list(itertools.accumulate((value for _, value in known), min if minimise else max))
    last = max(number for number, _ in known)
    panel = Panel(_WIDTH, _HEIGHT, (0, max(1, last)), nice_domain(reached + [value for _, value in known]))
    levels = ticks(panel.y.low, panel.y.high, 6)
    panel.y_axis(levels, decimal_labels(levels), in_words(called))
    panel.x_axis(ticks(0, max(1, last), 6, whole=True), decimal_labels([0, 1]), "trial")
    panel.line(zip((number for number, _ in known), reached, strict=True), OKABE_ITO[0], steps=True)
    for number, value in known:
        panel.dot(panel.x(number), panel.y(value), MUTED)
    return compose([panel], "What each trial reached", ["Line: the best so far"])


def search_opening(trials: Sequence[Trial], called: str, *, minimise: bool = False) -> Opening:
    """Title, sentence, chart and numbers of a search.

    Args:
        trials: In their order; at least one has a value.
        called: What the value is.
        minimise: Whether less is better.
    """
    winner, called = best(list(trials), minimise=minimise), in_words(called)
    valued = [trial for trial in trials if trial.value is not None]
    failed = len(trials) - len(valued)
    settings = Named(wording.in_words([f"{key} = {wording.number(value)}" for key, value in winner.settings.items()]))
    reached, name = Measured(winner.value or 0.0, called.split()[-1], 4), Named(called)
    sentence = say(
        f"Of {len(trials)} trials the best is trial {winner.number} with ", settings, ": ", name, " ", reached
    )
    chosen = "low" if minimise else "high"
    sentence += say(f". It is the best of {len(valued)} by this very number, which is therefore too {chosen}; ")
    sentence += say("its own page has the test part.")
    over = Interval((winner.value or 0.0) - (valued[0].value or 0.0))
    numbers = [
        Number(f"Best {called}", reached, f"trial {winner.number}"),
        Number("Over the first trial", Comparison(over, "the first trial", digits=4), "of one number each"),
        Number("Trials", Named(f"{len(trials):,}"), f"{failed} failed" if failed else ""),
    ]
    varied = wording.in_words(list(winner.settings))
    shown = f"The value of {len(valued)} trials in their order; the best so far ends at {reached}."
    return Opening(f"A search for {varied}", sentence, tuple(numbers), PROGRESS, shown)


def write_search(trials: Sequence[Trial], called: str, out: str | os.PathLike[str], *, minimise: bool = False) -> Path:
    """Write ``compare.html`` of a search and its figures: all trials, and the best of them beside each other.

    Args:
        trials: In their order.
        called: What the value is.
        out: Directory that gets the page and ``figures/``.
        minimise: Whether less is better.

    Returns:
        The page's file.

    Raises:
        RunError: All trials failed, or a directory is not a run that can be read.
    """
    opening = search_opening(trials, called, minimise=minimise)
    ordered = sorted(
        (trial for trial in trials if trial.value is not None),
        key=lambda trial: (trial.value or 0.0) * (1 if minimise else -1),
    )
    charts: Mapping[str, Chart] = {PROGRESS: progress_figure(trials, called, minimise=minimise)}
    table = trials_table(trials, called)
    note = h(
        "p", f"The sections below show the best {min(len(ordered), MOST_CURVES)} trials, the best first.", class_="note"
    )
    runs = load_runs([trial.folder for trial in ordered[:MOST_CURVES]], least=1)
    shown = {label: _without_test(run) for label, run in runs.items()}
    return write_comparison(
        shown, out, opening=opening, charts=charts, before=(section("trials", "All trials", table, note),)
    )


def _without_test(run: Run) -> Run:
    marks = tuple(
        replace(mark, values={key: value for key, value in mark.values.items() if key[0] != "test"})
        for mark in run.baselines
    )
    return replace(run, metrics=run.metrics[run.metrics["split"] != "test"], baselines=marks)


def measures_of(path: Path, split: str) -> list[str]:
    """The measures that a run has of a part, the most telling first."""
    run = load(path)
    return [measure for measure in run.measures(split) if run.shown.summarised(run, measure)]


def value_of(path: Path, split: str, name: str) -> float:
    """The mean over seeds of a measure at the end of a run."""
    known = measures_of(path, split)
    if not known:
        raise ConfigError(
            f"the data has no part {split!r} to choose settings by; take data with one, or a --measure of another part "
            "and another folder with --out."
        )
    if name and name not in known:
        raise UnknownNameError(f"measure of the part {split!r}", name, known)
    values = final_values(load(path).metrics, split, name or known[0])
    return math.fsum(values.values()) / len(values)


def write_csv(file: Path, found: Sequence[Trial], called: str) -> None:
    """Write trials as a table of commas; ``called`` is the name of their measure."""
    with open(file, "w", encoding="utf-8", newline="") as out:
        writer = csv.writer(out)
        writer.writerow(["trial", *found[0].settings, called, "folder"])
        for trial in found:
            writer.writerow([trial.number, *trial.settings.values(), trial.value, trial.folder])
