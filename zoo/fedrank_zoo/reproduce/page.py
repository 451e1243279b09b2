"""A paper's numbers beside ours: tables, figures and a page from the run directories of a reproduction."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from fedrank.core.trees import Json
from fedrank.engine.config import RunConfig
from fedrank.engine.variations import Variation
from fedrank.report import describe, figures, tables, wording
from fedrank.report.charts import Chart
from fedrank.report.claims import Comparison, Named, Number, Opening, Share, head, say, spread_words
from fedrank.report.compare import privacy_table
from fedrank.report.html import Html, document, h, section
from fedrank.report.run import Run
from fedrank.report.sections import side_by_side
from fedrank.report.statistics import Estimate, difference, final_values, mean_interval
from fedrank.report.tables import Column, Table
from fedrank_zoo.reproduce.queries import say_settings, significance_table
from fedrank_zoo.reproduce.study import Paper, Study, expected_value, named_measure
from fedrank_zoo.reproduce.tasks import studied_task


@dataclass(frozen=True, eq=False)
class StudyRuns:
    """A study's runs.

    Attributes:
        study: What it is.
        runs: Each variation and its run.
        fraction: Part of the rounds that were run.
        tables: Tables that no runs stand behind, of studies that are no sweeps.
        charts: Figures of such studies.
        missing: Why there are no runs: what data is not here and how to get it.
    """

    study: Study
    runs: tuple[tuple[Variation, Run], ...]
    fraction: float = 1.0
    tables: tuple[Table, ...] = ()
    missing: str = ""
    charts: Mapping[str, Chart] = field(default_factory=dict)


def table(paper: Paper, shown: StudyRuns) -> Table:
    """Every group of runs and measure: ours, the paper's, differences.

    Ours is the mean over seeds, of means over what the study pools (folds); ± over seeds.
    """
    study = shown.study
    groups = _groups(shown)
    varied = [key for key in dict.fromkeys(k for v, _ in shown.runs for k in v.where) if key not in study.pool]
    rows, has_paper, has_reference = [], False, False
    for split, pattern in study.measures:
        for where, members in groups:
            found = _values(members, split, pattern)
            if not found:
                continue
            estimate = mean_interval(list(found.values()))
            printed = expected_value(paper, study, where, split, pattern)
            reference = _reference(study, groups, where)
            against = None
            if reference is not None:
                other = _values(reference, split, pattern)
                against = difference(found, other) if other else None
            has_paper |= printed is not None
            has_reference |= against is not None
            rows.append(
                {
                    **{key: where.get(key) for key in varied},
                    "split": describe.SPLIT_NAMES[split],
                    "measure": _short(pattern, members[0][0].config, varied),
                    "ours": estimate,
                    "paper": None if printed is None else printed["value"],
                    "gap": None if printed is None else estimate.minus(printed["value"]),
                    "against": against,
                    "pooled": ", ".join(_describe_members(study, members, split, pattern)),
                }
            )
        rows.extend(_baseline_rows(paper, shown, varied, split, pattern))
    has_paper |= any(row["paper"] is not None for row in rows)
    digits = describe.digits(*(run for _, run in shown.runs))
    columns = [
        *(
            Column(key, {"case": "learner", "privacy.p": "p", "presentation.name": "lists"}.get(key, key))
            for key in varied
        ),
        Column("split", "split"),
        Column("measure", "measure"),
        Column("ours", "ours", numeric=True, digits=digits),
    ]
    if has_paper:
        columns.append(Column("paper", "paper", numeric=True, digits=digits))
        columns.append(Column("gap", "ours − paper", numeric=True, signed=True, digits=digits))
    if has_reference:
        title = f"difference to {say_settings(study.against)}"
        columns.append(Column("against", title, numeric=True, signed=True, digits=digits))
    return Table(study.title, tuple(columns), tuple(rows), tuple(_notes(paper, shown)))


def charts(shown: StudyRuns) -> dict[str, Chart]:
    """The study's curves by name: a figure for each value of its panels and each pooled value."""
    study = shown.study
    split_by = (*study.panels, *study.pool)
    out = dict(shown.charts)
    for split, pattern in study.curves:
        panels: dict[tuple, dict[str, Run]] = {}
        for variation, run in shown.runs:
            panel = tuple(str(variation.where.get(key)) for key in split_by if key in variation.where)
            label = say_settings({k: v for k, v in variation.where.items() if k not in split_by}) or study.title
            measure = named_measure(pattern, variation.config)
            if final_values(run.metrics, split, measure):
                panels.setdefault((*panel, measure), {})[label] = run
        for (*panel, measure), runs in panels.items():
            name = wording.slug(" ".join([study.name, split, measure, *panel]))
            about = say_settings(dict(zip(split_by, panel, strict=False)))
            out[name] = figures.comparison_figure(runs, split, measure, about)
    return out


def results(paper: Paper, shown: Sequence[StudyRuns]) -> dict[str, Json]:
    """Everything as JSON: what a reproduction keeps of its runs."""
    return {
        "paper": paper.name,
        "studies": {
            s.study.name: {
                "title": s.study.title,
                "fraction": s.fraction,
                "seeds": sorted({seed for _, run in s.runs for seed in run.seeds}),
                "seconds": round(_seconds(s), 1),
                "machine": _machine(s),
                "missing": s.missing.partition("\n")[0],  # the rest is about this machine
                "tables": [tables.to_json(t) for t in study_tables(paper, s)],
            }
            for s in shown
        },
    }


def write_study_page(paper: Paper, shown: Sequence[StudyRuns], folder: Path) -> Path:
    """Write ``report.html``, ``results.json`` and ``figures/*.svg``.

    Args:
        paper: The paper.
        shown: Its studies with their runs.
        folder: Gets the files.

    Returns:
        The page's file.
    """
    folder.mkdir(parents=True, exist_ok=True)
    parts, first = [], None
    for one in shown:
        drawn = charts(one)
        figures.save_all(drawn, folder / "figures")
        if first is None and drawn:
            name, chart = next(iter(drawn.items()))
            first = chart.figure(f"first-{name}", _describe_chart(name))
        parts.append(_section(paper, one, drawn))
    text = json.dumps(results(paper, shown), indent=1, ensure_ascii=False)
    (folder / "results.json").write_text(text + "\n", encoding="utf-8")
    quick = [s.fraction for s in shown if s.fraction < 1]
    opening = study_opening(paper, shown)
    caveats = [f"A quick look: {wording.number(quick[0] * 100)} % of the rounds"] if quick else []
    page = document(
        f"{opening.title} – fedrank",
        head(opening, f"Reproduction: {paper.name}", caveats, first),
        *parts,
        h("footer", "Made by fedrank from the files of the run directories alone."),
    )
    file = folder / "report.html"
    file.write_text(page, encoding="utf-8")
    return file


def study_opening(paper: Paper, shown: Sequence[StudyRuns]) -> Opening:
    """Title, sentence and numbers of a reproduction: how many printed numbers its intervals hold."""
    gaps = [
        row["gap"]
        for one in shown
        if one.runs
        for row in table(paper, one).rows
        if isinstance(row.get("gap"), Estimate)
    ]
    judged = [gap for gap in gaps if gap.half is not None]
    met = sum(abs(gap.mean) <= gap.half for gap in judged)
    seeds = sorted({len(run.seeds) for one in shown for _, run in one.runs})
    missing = sum(bool(one.missing) for one in shown)
    computed = [one_table.met for one in shown for one_table in one.tables if one_table.met is not None]
    beside_ours = {
        one.study.name for one in shown if one.runs or (one.tables and all(t.met is None for t in one.tables))
    }
    if judged:
        sentence = say("Of the numbers that the paper prints and we measured, ", Share(met, len(judged)))
        sentence += say(" lie within our intervals.")
    elif gaps:
        sentence = say(f"We measured {len(gaps)} numbers that the paper prints, of too few seeds for intervals.")
    elif beside := sum(e["study"] in beside_ours for e in paper.values):
        sentence = say(f"The paper prints other quantities. Numbers of it in separate tables, beside ours: {beside}.")
    else:
        sentence = say("" if computed else "None of what is shown here has a printed number to be compared with.")
    if computed:
        ours, of = (sum(part) for part in zip(*computed, strict=True))
        gap = " " if sentence else ""
        sentence += say(f"{gap}Of the printed numbers that are computed without runs, ", Share(ours, of), " are met.")
    if missing:
        sentence += say(" ", Share(missing, len(shown)), " studies did not run: their data, or a plug-in, is not here.")
    numbers = []
    if judged:
        far = max(judged, key=lambda gap: abs(gap.mean))
        numbers.append(Number("Printed numbers within our intervals", Share(met, len(judged))))
        spread = spread_words(far, (far.mean - far.half, far.mean + far.half), 4, signed=True)
        numbers.append(Number("Largest distance, ours − paper", Comparison(far, "the paper", digits=4), spread))
    if seeds:
        runs = sum(len(one.runs) for one in shown)
        each = f"{' or '.join(map(str, seeds))} seed{'' if seeds == [1] else 's'} each"
        numbers.append(Number("Runs", Named(f"{runs:,}"), each))
        numbers.append(Number("Time of all runs", Named(f"{sum(map(_seconds, shown)) / 60:,.1f} min")))
    return Opening(f"{paper.title}: the paper’s numbers beside ours", sentence, tuple(numbers))


def _describe_chart(name: str) -> str:
    return f"Learning curves: {name}. The final values are in the table below."


def _label(variation: Variation) -> str:
    return str(variation.where.get("case") or variation.name)


def _section(paper: Paper, shown: StudyRuns, drawn: Mapping[str, Chart]) -> Html:
    study = shown.study
    return section(
        study.name,
        study.title,
        h("p", study.text) if study.text else None,
        h("p", f"Not run: {shown.missing}", class_="caveat") if shown.missing else None,
        side_by_side(drawn, {name: _describe_chart(name) for name in drawn}),
        *(t for t in study_tables(paper, shown)),
        h("p", h("b", "Where we differ. "), study.found) if study.found else None,
        h("p", f"{_machine(shown)}; {_seconds(shown):,.0f} s in all.", class_="note") if shown.runs else None,
    )


def study_tables(paper: Paper, shown: StudyRuns) -> list[Table]:
    """All tables of a study: values, privacy spent, comparisons query by query, those that no runs stand behind."""
    out = [table(paper, shown)] if shown.runs else []
    spent = spending(shown)
    out += [spent] if spent is not None else []
    if shown.runs and shown.study.settings.get("budget"):
        measures = [measure for split, measure in shown.study.measures if split == "test"]
        equal = budget_table({_label(v): run for v, run in shown.runs}, measures)
        out += [equal] if equal is not None else []
    if shown.runs and shown.study.against:
        compared = significance_table(shown.study, [(v, run) for v, run in shown.runs])
        if compared is not None:
            out.append(compared)
    if shown.runs and (more := shown.study.more_tables) is not None:
        out += more(paper, shown.study, [(_label(v), v, run) for v, run in shown.runs])
    return [*out, *shown.tables]


def spending(shown: StudyRuns) -> Table | None:
    """Table of the ε that each run spends; None if a run's page says it."""
    return privacy_table({_label(variation): run for variation, run in shown.runs})


def _groups(shown: StudyRuns) -> list[tuple[dict[str, Json], list[tuple[Variation, Run]]]]:
    """Runs that differ in what is pooled only, with what they have in common."""
    groups: dict[str, tuple[dict[str, Json], list[tuple[Variation, Run]]]] = {}
    for variation, run in shown.runs:
        where = {key: value for key, value in variation.where.items() if key not in shown.study.pool}
        groups.setdefault(repr(where), (where, []))[1].append((variation, run))
    return list(groups.values())


def _values(members: Sequence[tuple[Variation, Run]], split: str, pattern: str) -> dict[int, float]:
    """By seed, the mean over the members that have the split and measure."""
    found = [final_values(run.metrics, split, named_measure(pattern, v.config)) for v, run in members]
    found = [values for values in found if values]
    seeds = set.intersection(*(set(values) for values in found)) if found else set()
    return {seed: sum(values[seed] for values in found) / len(found) for seed in sorted(seeds)}


def _short(pattern: str, config: RunConfig, varied: Sequence[str]) -> str:
    """A measure's name, without what a column beside it says."""
    for key in varied:
        pattern = pattern.replace(f" ({{{key}}})", "")
    return named_measure(pattern, config)


def _describe_members(study: Study, members: Sequence[tuple[Variation, Run]], split: str, pattern: str) -> list[str]:
    return [
        " ".join(f"{key} {v.where[key]}" for key in study.pool if key in v.where)
        for v, run in members
        if final_values(run.metrics, split, named_measure(pattern, v.config))
    ]


def _reference(study: Study, groups: list, where: dict[str, Json]) -> list | None:
    """The group that differs from this one in the reference's settings only; None for the reference itself."""
    if not study.against or all(where.get(k) == v for k, v in study.against.items()):
        return None
    wanted = {**where, **study.against}
    return next((members for other, members in groups if other == wanted), None)


def _baseline_rows(
    paper: Paper, shown: StudyRuns, varied: list[str], split: str, pattern: str
) -> list[dict[str, Json]]:
    """A row for each baseline and each data that it was trained on, with the mean over what is pooled."""
    shared_by = tuple(dict.fromkeys(key for _, run in shown.runs for key in studied_task(run).baselines_depend_on(run)))
    free = [key for key in varied if key not in shared_by]
    named = "ranker" if "ranker" in varied else free[0] if free else varied[0] if varied else "split"
    about = [studied_task(run).trained_on(run) for _, run in shown.runs]
    several = len(set(about)) > 1
    values: dict[tuple, dict[tuple, float]] = {}
    rows: dict[tuple, dict[str, Json]] = {}
    for (variation, run), whose in zip(shown.runs, about, strict=True):
        measure = named_measure(pattern, variation.config)
        if not studied_task(run).baselines_depend_on(run):
            continue  # they depend on all settings, and are measures with their own seeds
        trained_on = {key: run.setting(key) for key in shared_by}
        apart = {key: value for key, value in trained_on.items() if key not in shown.study.pool}
        for mark in run.baselines:
            if (split, measure) in mark.values:
                key = (mark.name, *map(str, apart.values()))
                values.setdefault(key, {})[tuple(map(str, trained_on.values()))] = mark.values[split, measure]
                where = {k: v for k, v in variation.where.items() if k in apart}
                label = f"{whose}, {mark.label}" if several else mark.label
                printed = expected_value(paper, shown.study, {**where, named: mark.name}, split, pattern)
                rows[key] = {
                    **{k: where.get(k, "") for k in varied},
                    named: label,
                    "split": describe.SPLIT_NAMES[split],
                    "measure": _short(pattern, variation.config, varied),
                    "paper": None if printed is None else printed["value"],
                    "against": None,
                }
    for key, row in rows.items():
        mean = sum(values[key].values()) / len(values[key])
        row["ours"] = Estimate(mean, None, 1, "no seeds")
        row["gap"] = None if row["paper"] is None else Estimate(mean - row["paper"], None, 1, "no seeds")
    return list(rows.values())


def _notes(paper: Paper, shown: StudyRuns) -> list[str]:
    out = [wording.spread_note(*(len(run.seeds) for _, run in shown.runs))]
    if shown.study.pool:
        pooled = {key: sorted({str(v.where[key]) for v, _ in shown.runs if key in v.where}) for key in shown.study.pool}
        said = "; ".join(f"{key} {' and '.join(values)}" for key, values in pooled.items() if values)
        if said:
            out.append(f"Ours: mean over {said}, where the part exists.")
    for key in shown.study.all_of:
        there = sorted({str(v.where[key]) for v, _ in shown.runs if key in v.where})
        out.append(f"All values of {key} that the data here allows: {', '.join(there)}.")
    printed = (e for e in paper.values if e["study"] == shown.study.name)
    sources = dict.fromkeys(str(e["source"]) for e in printed if (e["split"], e["measure"]) in shown.study.measures)
    out.extend(f"Paper: {source}." for source in sources)
    if shown.fraction < 1:
        out.append(f"A quick look: {wording.number(shown.fraction * 100)} % of the rounds.")
    for task in dict.fromkeys(studied_task(run) for _, run in shown.runs):
        out.extend(task.notes(paper, shown.study))
    caveats = dict.fromkeys(
        c for _, run in shown.runs for c in describe.caveats(run) if not c.startswith("As published")
    )
    return [*out, *(f"{c}." for c in caveats)]


def _seconds(shown: StudyRuns) -> float:
    return sum(float(run.environment.get("seconds") or 0) for _, run in shown.runs)


def _machine(shown: StudyRuns) -> str:
    seen = dict.fromkeys(
        f"{run.environment.get('cpus')} CPUs ({run.environment.get('machine')}), {run.environment.get('device')}, "
        f"fedrank {run.environment.get('fedrank')}, JAX {run.environment.get('jax')}"
        for _, run in shown.runs
    )
    return "; ".join(seen)


def budget_table(runs: Mapping[str, Run], measures: Sequence[str]) -> Table | None:
    """Every run at the smallest number of bytes that all of them moved, in both directions; None if none moved any.

    Args:
        runs: By label.
        measures: Test measures, such as ``"AUC, best so far"``.
    """
    moved = {label: studied_task(run).bytes_moved(run) for label, run in runs.items()}
    ends = [float(by[-1]) for by in moved.values() if len(by) and by[-1] > 0]
    if not ends:
        return None
    budget, rows = min(ends), []
    for label, run in runs.items():
        by = moved[label]
        silent = not len(by) or by[-1] == 0
        # Rounds that the budget pays for; of what moves nothing, all.
        done = run.shown.done_rounds(run) if silent else int(np.searchsorted(by, budget, side="right"))
        if not studied_task(run).evaluated_every_round:  # the last evaluation that the budget pays for
            seen = run.metrics["round"]
            done = max((int(number) for number in seen[seen <= done]), default=0)
        each = "0" if silent else wording.size(float(by[-1] / len(by)))
        row: dict[str, Json] = {"run": label, "rounds": str(done), "round": each}
        for i, measure in enumerate(measures):
            values = run.metrics.where(split="test", measure=measure, round=done)["value"].tolist()
            row[f"m{i}"] = mean_interval(values) if values else None

        rows.append(row)
    columns = (
        Column("run", "method"),
        Column("round", "bytes a round, both ways", numeric=True),
        Column("rounds", "rounds within the budget", numeric=True),
        *(Column(f"m{i}", f"{measure}, test", numeric=True) for i, measure in enumerate(measures)),
    )
    note = f"{wording.size(budget)} both ways in one run: what the method that moves least moves in all of its rounds"
    return Table("At equal communication", columns, tuple(rows), (f"{note}.",))
