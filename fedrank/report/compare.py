"""Several runs beside each other: final values, differences with intervals, curves.

Runs are compared measure by measure with the first run that has the measure. Runs of the same seed share their draws,
so a difference is taken seed by seed wherever two or more seeds are common.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedrank.core.errors import ConfigError
from fedrank.report import describe, figures, svg, tables
from fedrank.report.html import Html, document, h, join, section
from fedrank.report.load import load
from fedrank.report.run import Run
from fedrank.report.statistics import difference, final_values, mean_interval
from fedrank.report.tables import Column, Table

#: More runs than this in one figure cannot be told apart; the table still has all of them.
MOST_CURVES = 7


def labelled(folders: Sequence[str | os.PathLike[str]]) -> dict[str, Run]:
    """The runs by a short name that tells them apart: the directory's, or as much of its path as is needed.

    Raises:
        ConfigError: Fewer than two runs, or one twice.
        RunError: A directory is not a run that can be read.
    """
    paths = [Path(folder).resolve() for folder in folders]
    if len(paths) < 2:
        raise ConfigError(f"compare needs two or more runs, got {len(paths)}.")
    if len(set(paths)) < len(paths):
        raise ConfigError("compare was given the same run twice.")
    depth = 1
    while len({path.parts[-depth:] for path in paths}) < len(paths):
        depth += 1
    return {"/".join(path.parts[-depth:]): load(path) for path in paths}


def changed_settings(runs: dict[str, Run]) -> Table:
    """The settings in which the runs differ, one column a run; rows of equal settings are left out."""
    flat = {label: dict(describe.flat(run.config)) for label, run in runs.items()}
    keys = dict.fromkeys(key for settings in flat.values() for key in settings)
    rows = []
    for key in keys:
        values = {label: settings.get(key) for label, settings in flat.items()}
        if len(set(map(str, values.values()))) > 1:
            rows.append({"key": key, **{f"run{i}": value for i, value in enumerate(values.values())}})
    columns = [Column("key", "setting"), *(Column(f"run{i}", label) for i, label in enumerate(runs))]
    notes = () if rows else ("The runs have the same configuration.",)
    return Table("What differs", tuple(columns), tuple(rows), notes)


def comparison_table(runs: dict[str, Run], *, most_telling: bool = False) -> Table:
    """Final values of all runs, and each run's difference to the first run that has the measure.

    Args:
        runs: By label.
        most_telling: Only the measures that tell most, for a terminal.
    """
    rows = []
    several = len({run.shown.subject(run) for run in runs.values()}) > 1
    for split in describe.SPLITS:
        found: dict[str, dict[str, dict[int, float]]] = {}
        for label, run in runs.items():
            for measure in run.metrics.filter(run.metrics["split"] == split)["measure"].unique():
                if not run.shown.summarised(run, measure) or (
                    most_telling and not run.shown.telling(run, split, measure)
                ):
                    continue
                # The reward of other users, or the AUC of another target, is another question of the same name.
                named = run.shown.qualified(run, split, measure) if several else measure
                found.setdefault(named, {})[label] = final_values(run.metrics, split, measure)
        for measure in describe.order_measures(found):
            reference: dict[int, float] | None = None
            for label, values in found[measure].items():
                row: dict[str, Any] = {"split": describe.SPLIT_NAMES[split], "measure": measure, "run": label}
                row["value"] = mean_interval(list(values.values()))
                row["difference"] = None if reference is None else difference(values, reference)
                row["method"] = "" if row["difference"] is None else row["difference"].method
                reference = values if reference is None else reference
                rows.append(row)
    digits = describe.digits(*runs.values())
    columns = (
        Column("split", "split"),
        Column("measure", "measure"),
        Column("run", "run"),
        Column("value", "value", numeric=True, digits=digits),
        Column("difference", "difference to the first", numeric=True, signed=True, digits=digits),
        Column("method", "interval of the difference"),
    )
    notes = [
        "online: mean over the last tenth of the rounds. Other splits: the last evaluation.",
        "± is half of a 95 % Student t interval over seeds.",
    ]
    notes.extend(dict.fromkeys(note for run in runs.values() for note in run.shown.comparison_notes()))
    for label, run in runs.items():
        notes.extend(f"{label}: {caveat}." for caveat in describe.caveats(run))
    return Table("Final values", columns, tuple(rows), tuple(notes))


def write_comparison(folders: Sequence[str | os.PathLike[str]], out: str | os.PathLike[str]) -> Path:
    """Write ``compare.html`` and its figures.

    Args:
        folders: Directories of two or more runs.
        out: Directory that gets the page and ``figures/``.

    Returns:
        The page's file.

    Raises:
        ConfigError: Fewer than two runs, or one twice.
        RunError: A directory is not a run that can be read.
    """
    runs = labelled(folders)
    folder = Path(out)
    charts, spent = _charts(runs), privacy_table(runs, "run")
    for name, chart in charts.items():
        figures.save(chart, folder / "figures" / f"{name}.png")
    page = document(
        f"{len(runs)} runs – fedrank comparison",
        h("header", h("h1", f"{len(runs)} runs compared"), h("p", _names(runs), class_="lead")),
        section("curves", "How they learnt", _curves(charts, runs)),
        section("final", "Final values", tables.to_html(comparison_table(runs))),
        section("privacy", "Privacy", tables.to_html(spent)) if spent is not None else None,
        section("settings", "What differs", tables.to_html(changed_settings(runs), code=("key",))),
        h("footer", "Made by fedrank from the files of the run directories alone."),
    )
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "compare.html"
    file.write_text(page, encoding="utf-8")
    return file


def privacy_table(runs: dict[str, Run], head: str) -> Table | None:
    """What the runs spend of privacy, where their task has a table of it; None if none has.

    Args:
        runs: By label.
        head: Title of the column of labels.
    """
    made = (first.shown.privacy_table(runs, head) for first in runs.values())
    return next((table for table in made if table is not None), None)


def _names(runs: dict[str, Run]) -> str:
    names = list(runs)
    return ", ".join(names) if len(names) <= 6 else f"{names[0]}, {names[1]} and {len(names) - 2} more; all are below"


def _charts(runs: dict[str, Run]) -> dict[str, Any]:
    """Expected reward of the runs on the same data with the same users: other users are another question."""
    groups: dict[tuple[str, str], dict[str, Run]] = {}
    for label, run in runs.items():
        offline = (
            run.metrics.filter(run.metrics["split"].is_in(["train", "vali", "test"]))["measure"].unique().to_list()
        )
        data = run.shown.same_question(run)
        for measure in run.shown.drawn_measures(run, describe.order_measures(offline)):
            groups.setdefault((measure, data), {})[label] = run
    several = len({data for _, data in groups}) > 1
    charts = {}
    for (measure, data), members in sorted(groups.items()):
        # Parts may be missing, as some folds have no test part: a figure has the runs that have its part.
        having = {
            split: {label: run for label, run in members.items() if _has(run, split, measure)}
            for split in ("test", "vali", "train")
        }
        unseen = max(("test", "vali"), key=lambda split: len(having[split]))
        for split in (unseen, "train"):
            shown = dict(list(having[split].items())[:MOST_CURVES])
            if len(shown) > 1:
                name = _slug(f"{measure} {data if several else ''} {split}")
                chart = figures.comparison_figure(_short_labels(shown), split, measure, data if several else "")
                charts[name] = chart
    return charts


def _has(run: Run, split: str, measure: str) -> bool:
    return not run.metrics.filter((run.metrics["split"] == split) & (run.metrics["measure"] == measure)).is_empty()


def _short_labels(runs: dict[str, Run]) -> dict[str, Run]:
    """Labels without the parts that all of them share, as those of a sweep do."""
    parts = {label: label.split(",") for label in runs}
    shared = set.intersection(*map(set, parts.values()))
    short = {label: ",".join(p for p in pieces if p not in shared) or label for label, pieces in parts.items()}
    if len(set(short.values())) < len(short):
        return runs
    return {short[label]: run for label, run in runs.items()}


def _curves(charts: dict[str, Any], runs: dict[str, Run]) -> Html:
    if not charts:
        return h("p", "The runs have no measure in common that can be drawn.", class_="note")
    drawn = [
        svg.figure(
            chart, name, f"Learning curves of {len(runs)} runs: {name}. The final values are in the table below."
        )
        for name, chart in charts.items()
    ]
    note = f" A figure shows the first {MOST_CURVES} runs of a kind." if len(runs) > MOST_CURVES else ""
    return join(h("div", *drawn, class_="charts"), h("p", f"Figures as PNG: folder figures.{note}", class_="note"))


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
