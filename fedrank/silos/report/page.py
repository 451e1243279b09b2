"""The page of a run over silos, for whoever answers for a silo's data.

A reader gets, in this order: what averaging brought the target, beside training alone, what to be careful about, a
warning that names silos that do harm; then, folded, who helps whom with the evidence, how the model learnt, which arms
were played and why, final values, what left the silos, and everything needed to run it again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from typing_extensions import override

from fedrank.core.errors import RunError
from fedrank.core.frame import Frame
from fedrank.core.trees import Json
from fedrank.report import describe, sections, wording
from fedrank.report.charts import Chart
from fedrank.report.claims import Opening
from fedrank.report.html import Html, bullets, h, warn
from fedrank.report.run import MESSAGE_AXES, Line, Page, Run, Section, Shown
from fedrank.report.tables import Table, final_table, to_json
from fedrank.silos.report import figures as silo_figures
from fedrank.silos.report import tables as silo_tables
from fedrank.silos.report.files import read_silos, silos_of
from fedrank.silos.report.opening import CHART, opening_of
from fedrank.silos.report.opening import chart as opening_chart
from fedrank.silos.report.tables import UNDEFINED, helpers_table, ledger_words, look_table, sceptic_table

#: Decision rules that make no use of estimates, unless rewards come a round late.
_EXPECT_NOTHING = ("extreme-explore", "bayesian-extreme-explore", "fixed")

#: Most targets that have their own figures and tile; tables and the matrix have all of them.
MOST_TARGETS = 6

#: How a first look was made.
_LOOKED = h(
    "p",
    "Logistic models of all rows of the target, from one division: with the silo's rows minus without, cross-fitted; "
    "DeLong's error, p corrected for the number of silos. Made of one message of each silo before the first round.",
    class_="note",
)


def harmful(run: Run) -> list[str]:
    """The silos that harm a target."""
    return list(dict.fromkeys(helper.name for _, helper in silos_of(run).warnings))


def warnings(run: Run) -> list[str]:
    """A sentence for each silo that harms a target, or whose labels look inverted."""
    silos = silos_of(run)
    out = [f"{h.name} harms {t}: {silo_tables.warning(run, t, h)}" for t, h in silos.warnings]
    for target, found in silos.findings.items():
        for one in found.helpers:
            if one.looks_inverted and one.verdict != "harms":
                out.append(
                    f"{one.name} for {target}: its labels {silo_tables.labels(one)}; the rounds do not prove harm."
                )
    out += [f"First look for {t}: {said}" for t, look in silos.looks.items() for said in look["warnings"]]
    return out


def _warning(run: Run) -> Html | None:
    said = warnings(run)
    if not said:
        return None
    bad = harmful(run)
    title = f"Warning: {wording.in_words(bad)} {'harm' if len(bad) > 1 else 'harms'}" if bad else "Warning"
    items = bullets(said)
    advice = h(
        "p",
        "Ask that silo how its labels are coded, or leave it out (silos.exclude). The evidence is about this data and "
        "this network, and cannot tell wrong labels from patients or customers for whom the same features mean "
        "something else.",
    )
    return warn(title, items, advice, label="Warning")


def _of_targets(
    run: Run, name: str, title: str, make: Callable[[Run, str], Table | None], *more: Html
) -> Section | None:
    """A section with the table of each target that has one; None where none has."""
    found = [table for target in silos_of(run).targets if (table := make(run, target)) is not None]
    return Section(name, title, (*found, *more)) if found else None


def _helps(run: Run, drawn: Mapping[str, Chart]) -> Section:
    silos = silos_of(run)
    parts: list[object] = []
    if "who-helps-whom" in drawn:
        said = "Matrix of mean paired differences, a row for each target; the same numbers are in the tables below."
        parts.append(h("div", drawn["who-helps-whom"].figure("who-helps-whom", said), class_="matrix"))
    parts.extend(silo_tables.helpers_table(run, t) for t in silos.compared_targets)
    explained = [h("p", line, class_="note") for line in silo_tables.explain_columns(silos)]
    return Section("helps", "Who helps whom", (*parts, *explained))


def _curves(run: Run, drawn: Mapping[str, Chart]) -> Section:
    said = f"{silo_figures.measured_by(run)} of {{}}’s model by round"
    described = {f"auc-round-{i}": said.format(target) for i, target in enumerate(silos_of(run).targets)}
    return sections.curves(run, drawn, described, more=_rest(run))


def _arms(run: Run, drawn: Mapping[str, Chart]) -> Section | None:
    kinds = {
        "played": "Share of seeds in which each arm became {}’s model, by round",
        "increment": "Increment of each arm for {}, by round",
        "estimate": "Estimate of each arm for {}, by round",
    }
    described = {
        f"{kind}-{i}": describe.chart_words(run, said.format(target))
        for i, target in enumerate(silos_of(run).targets)
        for kind, said in kinds.items()
    }
    shown = sections.side_by_side(drawn, described)
    if shown is None:
        return None
    note = (
        "An arm is a set of silos whose models are averaged. Its increment is the AUC of the average minus that of the "
        "target's own model of the same round, on the target's validation rows."
    )
    if any(name.startswith("estimate") for name in drawn):
        note += " The estimate is what the decision rule makes of the rewards so far."
    return Section("arms", "Which arms were played", (shown, h("p", note, _rest(run), class_="note")))


def _rest(run: Run) -> str:
    count = len(silos_of(run).targets)
    return "" if count <= MOST_TARGETS else f" Figures are of the first {MOST_TARGETS} of {count} targets."


class SilosShown(Shown):
    """Figures and tables of a run: help between silos, curves of the target's model, arms."""

    party = ("silo", "silos")
    person = "person"
    counted = "messages"
    spread_baselines = True
    baseline_names: ClassVar[Mapping[str, str]] = {
        "alone": "target alone",
        "everyone": "everyone (federated averaging)",
    }
    axis_titles = MESSAGE_AXES

    @override
    def read(self, folder: Path, config: Mapping[str, Json], *, finished: bool) -> Any:
        return read_silos(folder, finished=finished)

    @override
    def defined(self, metrics: Frame, file: Path) -> Frame:
        # An AUC of rows of one class is no number: it is left out, and silos.json says why.
        out = metrics[np.isfinite(metrics["value"])]
        if not len(out):
            raise RunError(
                f"{file}: no AUC is defined: the target's rows to judge by have one label only. Choose another."
            )
        return out

    @override
    def baseline_notes(self, run: Run) -> list[str]:
        if not run.baselines:
            return []
        return ["Differences here are of means, without an interval; paired ones stand at the top of the page."]

    @override
    def recipients(self, run: Run) -> str:
        return "silos that are asked"

    @override
    def subject(self, run: Run) -> str:
        targets = run.details.targets
        return f"target {targets[0]}" if len(targets) == 1 else f"{len(targets)} targets"

    @override
    def headline(self, run: Run) -> str:
        data = run.setting("data.name", run.setting("data"))
        parts = (run.setting("protocol"), data, self.subject(run), run.details.rule)
        return " · ".join(str(part) for part in parts if part and not isinstance(part, Mapping))

    @override
    def more_caveats(self, run: Run) -> list[str]:
        out = []
        if turned := run.setting("silos.inverted"):
            out.append(f"The labels of {turned} are inverted on purpose")
        if one_class := run.details.one_class:
            are = "have" if len(one_class) > 1 else "has"
            out.append(f"{wording.in_words(one_class)} {are} rows of one label only")
        if run.details.undefined:
            out.append(UNDEFINED)
        return [*out, *describe.few_seeds(run)]

    @override
    def notes(self, run: Run) -> list[str]:
        return [note for note in super().notes(run) if note not in run.details.undefined]  # said once, by UNDEFINED

    @override
    def nothing_crossed(self, run: Run) -> list[str]:
        pooled = run.setting("protocol") == "pooled"
        return ["Nothing is federated: all rows lie in one place."] if pooled else []

    @override
    def ledger_words(self, run: Run) -> list[str]:
        return ledger_words(run)

    @override
    def qualified(self, run: Run, split: str, measure: str) -> str:
        targets = run.details.targets
        return f"{measure} ({targets[0]})" if len(targets) == 1 and not measure.endswith(")") else measure

    @override
    def drawn_measures(self, run: Run, ordered: Sequence[str]) -> list[str]:
        for name in ("refit", "best so far"):
            if found := [measure for measure in ordered if name in measure]:
                return found
        return list(ordered[:1])

    @override
    def same_question(self, run: Run) -> str:
        return f"{run.setting('data')}, {self.subject(run)}"

    @override
    def data_settings(self, run: Run) -> list[str]:
        drawn = ["data_seed", "silos.count", "silos.rows"] if self.generated(run) else []
        divided = ("target", "train", "vali", "measure", "stratified", "gaps", "silo", "label", "positive")
        return ["data", *drawn, *(f"silos.{name}" for name in divided)]

    @override
    def opening(self, run: Run) -> Opening:
        return opening_of(run, harmful(run))

    @override
    def charts(self, run: Run) -> dict[str, Chart]:
        silos, measure = silos_of(run), silo_figures.measured_by(run)
        first = opening_chart(run)
        out: dict[str, Chart] = {} if first is None else {CHART: first}
        if len(silos.targets) > 1 and silos.compared_targets:
            out["who-helps-whom"] = silo_figures.matrix_figure(run)
        for i, target in enumerate(silos.targets[:MOST_TARGETS]):
            if any(silo_figures.has(run, s, silo_figures.measure_name(run, measure, target)) for s in ("test", "vali")):
                out[f"auc-round-{i}"] = silo_figures.learning_figure(run, target)
            plays = silos.plays
            rows = None if plays is None else plays.where(target=target)
            if rows is None or not len(rows):
                continue
            if rows["played"].any():
                out[f"played-{i}"] = silo_figures.played_figure(run, target)
            # What decides by the round's own increments, or not at all, expects nothing.
            expects = silos.rule not in _EXPECT_NOTHING or bool(run.setting("bandit.delayed"))
            for column in ("increment", "estimate") if expects else ("increment",):
                if np.isfinite(rows[column]).any():
                    out[f"{column}-{i}"] = silo_figures.arm_figure(run, target, column)
        return out

    @override
    def page(self, run: Run, charts: Mapping[str, Chart]) -> Page:
        silos = silos_of(run)
        unsaid = [said for said in describe.other_caveats(run) if said != UNDEFINED]
        return Page(
            self.opening(run),
            (*unsaid, *silos.undefined),
            (
                _of_targets(run, "first-look", "Before the first round", look_table, _LOOKED),
                _of_targets(run, "sceptic", "Simple baselines", sceptic_table),
                _helps(run, charts) if silos.compared_targets else None,
                _curves(run, charts),
                _arms(run, charts),
                Section("final", "Final values", (final_table(run),)),
                Section("rows", "Rows in, out, and why", (silo_tables.rows_table(run),)),
                sections.left(run),
                sections.privacy(run),
                sections.repeat(run),
                sections.configuration(run, notes=False),
                sections.citation(run),
            ),
            _warning(run),
        )

    @override
    def final(self, run: Run) -> Table:
        return final_table(run)

    @override
    def terminal_after(self, run: Run) -> list[Any]:
        out: list[Any] = [Line(line) for line in run.details.undefined]
        out += [Line(f"Warning: {line}", warning=True) for line in warnings(run)]
        for target in run.details.targets:
            if (looked := look_table(run, target)) is not None:
                out.append((looked, ("silo", "gain", "verdict")))
            if (tried := sceptic_table(run, target)) is not None:
                out.append((tried, ("way", "mean", "difference")))
        for target in run.details.compared_targets:
            out.append((helpers_table(run, target), ("silo", "verdict", "difference", "evidence")))
        return out

    @override
    def for_machines(self, run: Run) -> dict[str, Json]:
        d = run.details
        told = {"silos": d.names, "targets": d.targets, "warnings": warnings(run)}
        told |= {"evidence": d.evidence, "sceptic": d.sceptic, "first_look": d.looks}
        return {name: to_json(value) for name, value in told.items()}


SHOWN = SilosShown()
