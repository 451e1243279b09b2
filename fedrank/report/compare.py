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
from fedrank.report.load import Run, load
from fedrank.report.statistics import difference, final_values, mean_interval
from fedrank.report.tables import Column, Table
from fedrank.texts.report.privacy import budgets_table

#: More runs than this in one figure cannot be told apart; the table still has all of them.
MOST_CURVES = 7
#: Measures of platforms with a figure: engagement in all, and of three platforms.
MOST_PLATFORMS = 4


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
        most_telling: Only the online reward and the expected reward, of silos only the test, for a terminal.
    """
    rows = []
    several = len({describe.whose(run) for run in runs.values()}) > 1
    for split in describe.SPLITS:
        found: dict[str, dict[str, dict[int, float]]] = {}
        for label, run in runs.items():
            for measure in run.metrics.filter(run.metrics["split"] == split)["measure"].unique():
                if not describe.of_all_silos(run, measure) or (most_telling and not _telling(run, split, measure)):
                    continue
                # The reward of other users, or the AUC of another target, is another question of the same name.
                named = describe.qualified(run, split, measure) if several else measure
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
    if any(run.texts is not None for run in runs.values()):
        notes.append("Single silos and other methods are on the page of each run; MAP-JOS is a cost, 1 is best.")
    if any(run.slates is not None for run in runs.values()):
        notes.append("engagement: of a user's stay, without a discount; test: fresh users, without exploration.")
        notes.append("Fixed policies, the optimum and regret are on the page of each run.")
    for label, run in runs.items():
        notes.extend(f"{label}: {caveat}." for caveat in describe.caveats(run))
    return Table("Final values", columns, tuple(rows), tuple(notes))


def _telling(run: Run, split: str, measure: str) -> bool:
    if run.texts is not None:
        return split == "test" and describe.of_all_silos(run, measure) and run.texts.telling(measure)
    if run.silos is not None or run.slates is not None:
        return split == "test"
    return split == "online" or measure.startswith("expected")


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
    charts, spent = _charts(runs), budgets_table(runs, "run")
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
        fold = run.setting("fold")
        data = f"{run.setting('data')}" + ("" if fold is None or run.between_silos else f", fold {fold}")
        data += f", {describe.whose(run)}" if run.between_silos else ""
        data = data if run.slates is None else describe.whose(run)
        ordered = describe.order_measures(offline)
        telling = [m for m in ordered if m.startswith("expected")] or [m for m in ordered if "best so far" in m]
        if run.texts is not None:
            telling = [m for m in offline if describe.of_all_silos(run, m) and run.texts.telling(m)]
        if run.slates is not None:
            telling = [m for m in run.slates.measures[:MOST_PLATFORMS] if m in offline]
        for measure in telling or ordered[:1]:
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
