"""Several runs beside each other: what differs, final values, differences with intervals, curves.

What differs comes first: settings, seeds, rounds that are done. A difference is taken to the first run with the same
data that has the measure, and seed by seed, because runs of the same seed share their draws. Where that makes no sense
there is no difference and no interval, and a sentence says why: other data, an unfinished run, no seed in common.

Runs that differ in nothing but the fold, or another division of the same data, can be pooled: their values are
averaged, seed by seed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedrank.core.errors import ConfigError
from fedrank.core.trees import Json, flat
from fedrank.report import describe, figures, wording
from fedrank.report.charts import Chart
from fedrank.report.claims import (
    MOST_NUMBERS,
    Comparison,
    Ends,
    Measured,
    Named,
    Number,
    Opening,
    Sentence,
    Verdict,
    head,
    say,
)
from fedrank.report.html import Html, bullets, document, h, join, section
from fedrank.report.load import load
from fedrank.report.run import Run
from fedrank.report.sections import side_by_side
from fedrank.report.statistics import Estimate, difference, final_values, mean_interval
from fedrank.report.tables import Column, Table

#: More runs than this in one figure cannot be told apart; the table still has all of them.
MOST_CURVES = 7
#: Settings that the opening sentence of a page names; the table has all of them.
MOST_SETTINGS = 4
#: Beginnings of measures of which less is better: a page does not open with them.
_LESS_IS_BETTER = ("log-loss", "MAP-JOS")


def load_runs(folders: Sequence[str | os.PathLike[str]], least: int = 2) -> dict[str, Run]:
    """The runs by a short name that tells them apart: the directory's, or as much of its path as is needed.

    Args:
        folders: Directories of runs.
        least: How many there must be.

    Raises:
        ConfigError: Fewer than ``least`` runs, or one twice.
        RunError: A directory is not a run that can be read.
    """
    paths = [Path(folder).resolve() for folder in folders]
    if len(paths) < least:
        raise ConfigError(f"compare needs two or more runs, got {len(paths)}.")
    if len(set(paths)) < len(paths):
        raise ConfigError("compare was given the same run twice.")
    depth = 1
    while len({path.parts[-depth:] for path in paths}) < len(paths):
        depth += 1
    return {"/".join(path.parts[-depth:]): load(path) for path in paths}


@dataclass(frozen=True, eq=False)
class Pool:
    """A run, or runs that differ in their data only, as one column of a comparison.

    Attributes:
        label: What it is called.
        runs: The runs by their own labels.
    """

    label: str
    runs: Mapping[str, Run]

    @property
    def data(self) -> tuple[tuple[str, ...], ...]:
        """The data that its values were measured on: equal for pools whose values may be subtracted."""
        return tuple(sorted(_data(run) for run in self.runs.values()))

    def having(self, split: str, measure: Callable[[Run], str]) -> Pool:
        """The same with those of its runs that have a measure; ``measure`` names it in each run."""
        runs = {label: run for label, run in self.runs.items() if _has(run, split, measure(run))}
        return Pool(self.label, runs)

    def values(self, split: str, measure: Callable[[Run], str]) -> dict[int, float]:
        """By seed, the mean of the final values over its runs."""
        found = [final_values(run.metrics, split, measure(run)) for run in self.runs.values()]
        seeds = set.intersection(*map(set, found)) if found else set()
        return {seed: sum(values[seed] for values in found) / len(found) for seed in sorted(seeds)}


def pools(runs: Mapping[str, Run]) -> list[Pool]:
    """Runs that differ in nothing but folds, or another division of the same data, together; in their order."""
    groups: dict[str, dict[str, Run]] = {}
    for label, run in runs.items():
        same = {key: value for key, value in flat(run.config) if key not in run.shown.replicates}
        groups.setdefault(repr(sorted(same.items())), {})[label] = run
    return [Pool(_shared_label(list(members)), members) for members in groups.values()]


def _shared_label(labels: Sequence[str]) -> str:
    """The parts that labels of pooled runs share: of ``fold=1,clients=5`` and ``fold=2,clients=5``, the clients."""
    if len(labels) == 1:
        return labels[0]
    parts = [label.rpartition("/")[2].split(",") for label in labels]
    shared = [part for part in parts[0] if all(part in others for others in parts)]
    return ",".join(shared) or f"mean of {len(labels)} runs"


def _data(run: Run) -> tuple[str, ...]:
    """The data that a run's values were measured on, as text for each of its settings of data."""
    return tuple(f"{key} {wording.number(run.setting(key))}" for key in run.shown.data_settings(run))


def changed_settings(runs: Mapping[str, Run]) -> Table:
    """Table of the differences between runs, one column a run: settings, data first; seeds and rounds done."""
    facts = {label: _facts(run) for label, run in runs.items()}
    keys = dict.fromkeys(key for about in facts.values() for key in about)
    rows = []
    for key in keys:
        values = [about.get(key) for about in facts.values()]
        if len(set(map(str, values))) > 1:
            rows.append({"key": key, **{f"run{i}": value for i, value in enumerate(values)}})
    columns = [Column("key", "setting", code=True), *(Column(f"run{i}", label) for i, label in enumerate(runs))]
    notes = () if rows else ("The runs have the same configuration, seeds and rounds.",)
    return Table("What differs", tuple(columns), tuple(rows), notes)


def _facts(run: Run) -> dict[str, Json]:
    """The facts that may differ between runs: first those that decide on whether they can be compared."""
    settings = dict(flat(run.config))
    first = ["protocol", *run.shown.data_settings(run), "rounds", "seeds", "seed"]
    return {
        **{key: settings.get(key) for key in first},
        "rounds done": run.shown.done_rounds(run),
        "seeds done": _span(run.seeds),
        **settings,
        "fedrank": run.environment.get("fedrank"),
    }


def _span(seeds: list[int]) -> str:
    """Seeds in words: ``0 to 4``, or one after the other where some are missing."""
    whole = len(seeds) > 2 and seeds == list(range(seeds[0], seeds[-1] + 1))
    return f"{seeds[0]} to {seeds[-1]}" if whole else ", ".join(map(str, seeds))


def refusals(runs: Mapping[str, Run], *, pool: bool = False) -> dict[str, list[str]]:
    """The reasons why a run, or a pool of runs, cannot be compared with the first one, by label; empty where all can.

    Args:
        runs: By label.
        pool: Take runs that differ in nothing but the fold together.
    """
    first, *others = _columns(runs, pool)
    found = {one.label: _find_obstacles(one, first) for one in others}
    return {label: why for label, why in found.items() if why}


def _columns(runs: Mapping[str, Run], pool: bool) -> list[Pool]:
    return pools(runs) if pool else [Pool(label, {label: run}) for label, run in runs.items()]


def _find_obstacles(one: Pool, first: Pool) -> list[str]:
    """The reasons why no difference of two pools makes sense, one clause each."""
    out = []
    if one.data != first.data:
        out.append(f"other data ({_other_data(one, first)})")
    for pool in (one, first):
        out += [f"{label} is unfinished" for label, run in pool.runs.items() if not run.finished]
    if not set.intersection(*(set(run.seeds) for pool in (one, first) for run in pool.runs.values())):
        out.append("no seed in common")
    if not set.intersection(*(set(run.metrics["measure"]) for p in (one, first) for run in p.runs.values())):
        out.append("no measure in common")
    return out


def _other_data(one: Pool, first: Pool) -> str:
    mine, theirs = ({part for data in pool.data for part in data} for pool in (one, first))
    return f"{', '.join(sorted(mine - theirs)) or 'less of it'}, not {', '.join(sorted(theirs - mine)) or 'less of it'}"


def comparison_table(runs: Mapping[str, Run], *, most_telling: bool = False, pool: bool = False) -> Table:
    """Final values of all runs, and each run's difference to the first run with the same data that has the measure.

    Args:
        runs: By label.
        most_telling: Only the measures that tell most, for a terminal.
        pool: Average over runs that differ in nothing but the fold.
    """
    several = len({run.shown.subject(run) for run in runs.values()}) > 1
    columns = _columns(runs, pool)

    def name_in_table(run: Run, split: str, measure: str) -> str:
        # The reward of other users, or the AUC of another target, is another question of the same name.
        return run.shown.qualified(run, split, measure) if several else measure

    rows = []
    for split in describe.SPLITS:
        # By the name in the table: its name in each run.
        measures: dict[str, dict[int, str]] = {}
        for run in runs.values():
            for measure in run.measures(split):
                if run.shown.summarised(run, measure) and (not most_telling or run.shown.telling(run, split, measure)):
                    measures.setdefault(name_in_table(run, split, measure), {})[id(run)] = measure
        for measure in wording.order_measures(measures):
            names = measures[measure]
            having = (one.having(split, lambda run, names=names: names.get(id(run), "")) for one in columns)
            rows += _rows(split, measure, [one for one in having if one.runs], lambda run, names=names: names[id(run)])
    digits = describe.digits(*runs.values())
    titles = (
        Column("split", "split"),
        Column("measure", "measure"),
        Column("run", "run"),
        Column("value", "value", numeric=True, digits=digits),
        Column("difference", "difference to the first", numeric=True, signed=True, digits=digits),
        Column("method", "interval of the difference"),
    )
    notes = [
        "online: mean over the last tenth of the rounds. Other splits: the last evaluation.",
        wording.spread_note(*(len(run.seeds) for run in runs.values())),
        *(pooled_words(runs) if pool else ()),
    ]
    notes.extend(dict.fromkeys(note for run in runs.values() for note in run.shown.comparison_notes))
    for label, run in runs.items():
        notes.extend(f"{label}: {caveat}." for caveat in describe.caveats(run))
    return Table("Final values", titles, tuple(rows), tuple(notes))


def _rows(split: str, measure: str, columns: list[Pool], name: Callable[[Run], str]) -> list[dict[str, Json]]:
    """The rows of one measure: each column's value, and its difference or why there is none."""
    rows: list[dict[str, Json]] = []
    references: dict[Any, Pool] = {}
    for one in columns:
        values = one.values(split, name)
        if not values:
            continue
        reference = references.setdefault(one.data, one)
        row: dict[str, Json] = {"split": describe.SPLIT_NAMES[split], "measure": measure, "run": one.label}
        row |= {"value": mean_interval(list(values.values())), "difference": None, "method": ""}
        # The first run with other data is compared with nothing, and says so.
        against = columns[0] if reference is one else reference
        if against is not one:
            theirs = against.values(split, name)
            refused = _find_obstacles(one, against) or ([] if values.keys() & theirs.keys() else ["no seed in common"])
            if refused:
                row["method"] = f"none: {'; '.join(refused)}"
            else:
                row["difference"] = _estimate_difference(values, theirs)
                beside = "" if against is columns[0] else f", to {against.label}"
                row["method"] = row["difference"].method + beside
        rows.append(row)
    return rows


def _estimate_difference(values: Mapping[int, float], reference: Mapping[int, float]) -> Estimate:
    """The difference over the seeds that both have; without an interval where that is one."""
    common = values.keys() & reference.keys()
    return difference({seed: values[seed] for seed in common}, {seed: reference[seed] for seed in common})


def pooled_words(runs: Mapping[str, Run]) -> list[str]:
    """The runs that the values of each pool of several are the mean over, a sentence for each pool."""
    out = []
    for one in pools(runs):
        if len(one.runs) > 1:
            first = next(iter(one.runs.values()))
            over = [key for key in first.shown.replicates if len({run.setting(key) for run in one.runs.values()}) > 1]
            members = [
                " ".join(f"{key} {wording.number(run.setting(key))}" for key in over) for run in one.runs.values()
            ]
            out.append(f"{one.label}: mean over {wording.in_words(members)}, where the part exists.")
    return out


def write_comparison(
    runs: Mapping[str, Run],
    out: str | os.PathLike[str],
    *,
    opening: Opening | None = None,
    charts: Mapping[str, Chart] | None = None,
    before: Sequence[Html] = (),
) -> Path:
    """Write ``compare.html`` and its figures.

    Args:
        runs: By label, two or more; one, if ``opening`` is given.
        out: Directory that gets the page and ``figures/``.
        opening: What stands at the top; by default what the comparison comes to.
        charts: Charts of the opening, by name.
        before: Sections in front of the comparison's own.

    Returns:
        The page's file.
    """
    folder = Path(out)
    pooled = len(pools(runs)) < len(runs)
    own, spent = _charts(runs), privacy_table(runs)
    drawn = {**(charts or {}), **own}
    figures.save_all(drawn, folder / "figures")
    final, differs = comparison_table(runs), changed_settings(runs)
    together = comparison_table(runs, pool=True) if pooled else None
    opening = opening or comparison_opening(runs, list(own))
    top = drawn.get(opening.chart)
    first = None if top is None else top.figure(opening.chart, opening.description)
    rest = {name: chart for name, chart in own.items() if name != opening.chart}
    caveats = dict.fromkeys(caveat for run in runs.values() for caveat in describe.other_caveats(run))
    page = document(
        f"{opening.title} – fedrank",
        head(opening, _names(runs), caveats, first, _refusals(runs)),
        *before,
        section("settings", "What differs", differs),
        section("curves", "How they learnt", _curves(rest, runs)) if rest or not own else None,
        section("pooled", "Final values, pooled", together) if together is not None else None,
        section("final", "Final values", final),
        section("privacy", "Privacy", spent) if spent is not None else None,
        h("footer", "Made by fedrank from the files of the run directories alone."),
    )
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "compare.html"
    file.write_text(page, encoding="utf-8")
    return file


def _refusals(runs: Mapping[str, Run]) -> Html | None:
    """The reasons why runs cannot be compared with the first, as a list; None if all can."""
    lines = refused_words(runs)
    items = bullets(lines)
    return h("div", items, class_="warning", role="note", aria_label="Not compared") if lines else None


def refused_words(runs: Mapping[str, Run], *, pool: bool = False) -> list[str]:
    """A sentence for each run or pool that cannot be compared with the first; arguments as :func:`refusals`."""
    first = _columns(runs, pool)[0].label
    found = refusals(runs, pool=pool)
    return [f"{label} cannot be compared with {first}: {'; '.join(why)}." for label, why in found.items()]


def privacy_table(runs: Mapping[str, Run]) -> Table | None:
    """Table of what the runs, by label, spend of privacy, from their task; None if none has one."""
    made = (first.shown.privacy_table(runs) for first in runs.values())
    return next((table for table in made if table is not None), None)


def _names(runs: Mapping[str, Run]) -> str:
    names = list(runs)
    return ", ".join(names) if len(names) <= 6 else f"{names[0]}, {names[1]} and {len(names) - 2} more; all are below"


def _charts(runs: Mapping[str, Run]) -> dict[str, Chart]:
    """Expected reward of the runs on the same data with the same users: other users are another question."""
    groups: dict[tuple[str, str], dict[str, Run]] = {}
    for label, run in runs.items():
        data = run.shown.same_question(run)
        for measure in run.shown.drawn_measures(run, run.measures(*describe.OFFLINE)):
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
                name = wording.slug(f"{measure} {data if several else ''} {split}")
                chart = figures.comparison_figure(_short_labels(shown), split, measure, data if several else "")
                charts[name] = chart
    return charts


def _has(run: Run, split: str, measure: str) -> bool:
    return measure in run.measures(split)


def _short_labels(runs: dict[str, Run]) -> dict[str, Run]:
    """Labels without the parts that all of them share, as those of a sweep do."""
    parts = {label: label.split(",") for label in runs}
    shared = set.intersection(*map(set, parts.values()))
    short = {label: ",".join(p for p in pieces if p not in shared) or label for label, pieces in parts.items()}
    if len(set(short.values())) < len(short):
        return runs
    return {short[label]: run for label, run in runs.items()}


def _curves(charts: Mapping[str, Chart], runs: Mapping[str, Run]) -> Html:
    said = f"Learning curves of {len(runs)} runs: {{}}. The final values are in the table below."
    shown = side_by_side(charts, {name: said.format(name) for name in charts})
    if shown is None:
        return h("p", "The runs have no measure in common that can be drawn.", class_="note")
    note = f" A figure shows the first {MOST_CURVES} runs of a kind." if len(runs) > MOST_CURVES else ""
    return join(shown, h("p", f"Files of the figures: folder figures.{note}", class_="note"))


def comparison_opening(runs: Mapping[str, Run], charts: Sequence[str] = ()) -> Opening:
    """Title, sentence, chart and numbers of a comparison; of runs that differ in the fold only, pooled.

    Args:
        runs: By label.
        charts: Names of the page's charts.
    """
    table = comparison_table(runs, pool=1 < len(pools(runs)) < len(runs))
    first, *others = runs
    title = f"{others[0]} against {first}" if len(others) == 1 else f"{len(others)} runs against {first}"
    words = f"Learning curves of {len(runs)} runs. The final values are in the table below."
    chart = (charts[0], words) if charts else ("", "")
    rows = _leading(table)
    closing = _differing(changed_settings(runs))
    for said in dict.fromkeys(describe.closing(run) for run in runs.values()):
        closing += said
    if not rows:
        return Opening(title, say("The runs have no measure in common.") + closing, (), *chart)
    digits = next(column.digits for column in table.columns if column.key == "value")
    measure, other = str(rows[0]["measure"]), str(rows[0]["run"])
    less = measure.startswith(_LESS_IS_BETTER)
    compared = {
        str(row["run"]): Comparison(row["difference"], other, ways=("above", "below"), than="", digits=digits)
        for row in rows
        if row["difference"] is not None
    }
    numbers = []
    for row in rows[:MOST_NUMBERS]:
        value, found = Measured(row["value"], measure, digits), compared.get(str(row["run"]))
        numbers.append(Number(str(row["run"]), value, value.note if found is None else f"{found.signed}: {found.note}"))
    if not compared:
        sentence = say(
            "No difference is given in ", Named(f"{measure} ({rows[0]['split']})"), ": see below what differs."
        )
    else:
        name, best = max(compared.items(), key=lambda one: one[1].difference.mean * (-1 if less else 1))
        reached = Measured(next(row["value"] for row in rows if row["run"] == name), measure, digits)
        split = str(rows[0]["split"])
        where = {"online": "In the users’ own sessions", "sum": "In the sum"}.get(split, f"On {split} data")
        who = say("the best of the others, ", Named(name), ",") if len(compared) > 1 else say(Named(name))
        ends = Ends(best) if best.verdict in (Verdict.BETTER, Verdict.WORSE) else ""
        sentence = say(f"{where}, ", who, " reaches ", Named(measure), " ", reached, ": ", best, ends, ".")
        for label, one in compared.items() if len(compared) < MOST_NUMBERS else ():
            if label != name:
                sentence += say(" ", Named(label), " is ", one, ".")
    return Opening(title, sentence + closing, tuple(numbers), *chart)


def _differing(differs: Table) -> Sentence:
    """In which settings the runs differ, as a sentence."""
    keys = [str(row["key"]) for row in differs.rows]
    if not keys:
        return say(" Their settings are the same.")
    some = keys if len(keys) <= MOST_SETTINGS else [*keys[: MOST_SETTINGS - 1], f"{len(keys) - MOST_SETTINGS + 1} more"]
    return say(" They differ in ", Named(wording.in_words(some)), ".")


def _leading(table: Table) -> list[Mapping[str, Json]]:
    """The rows of the most telling measure that two runs or more have, the first run's first; empty if none has."""
    order = [describe.SPLIT_NAMES[split] for split in ("test", "vali", "train", "online", "total")]
    groups: dict[tuple[str, str], list[Mapping[str, Json]]] = {}
    for row in table.rows:
        groups.setdefault((str(row["split"]), str(row["measure"])), []).append(row)
    for split in order:
        for (of, measure), rows in groups.items():
            if of == split and len(rows) > 1 and not measure.startswith(_LESS_IS_BETTER):
                return rows
    return []
