"""The tables, figures and sentences of runs over silos."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float64
from typing_extensions import override

from fedrank.core.errors import RunError
from fedrank.core.frame import Frame
from fedrank.core.trees import Json
from fedrank.report import describe, wording
from fedrank.report.charts import Chart
from fedrank.report.files import parquet
from fedrank.report.opening import Opening
from fedrank.report.run import MESSAGE_AXES, SETTING_NAMES, Line, Page, Run, Shown
from fedrank.report.tables import Table, final_table, to_json
from fedrank.silos.report import page
from fedrank.silos.report.files import read_silos
from fedrank.silos.report.opening import opening_of
from fedrank.silos.report.tables import UNDEFINED, helpers_table, ledger_words, look_table, sceptic_table

#: Rows of ``crossed.parquet``.
_CROSSED = {"seed": "integer", "round": "integer", "exchange": "text", "requests": "integer", "replies": "integer"}

#: Baselines, and how figures and tables call them.
_BASELINES = {"alone": "target alone", "everyone": "everyone (federated averaging)"}


class SilosShown(Shown):
    """Figures and tables of a run: help between silos, curves of the target's model, arms."""

    party = ("silo", "silos")
    person = "person"
    counted = "messages"
    spread_baselines = True
    evaluated_every_round = True
    axis_titles = MESSAGE_AXES
    setting_names: ClassVar[Mapping[str, str]] = {
        **SETTING_NAMES,
        "silos.target": "target",
        "silos.train": "training rows of a silo, or their share",
        "silos.inverted": "silo with inverted labels",
        "silos.exclude": "silos left out",
        "bandit.rule": "decision rule",
        "bandit.arms": "arms",
        "network.widths": "hidden layers of the network",
        "network.norm": "normalisation",
        "network.crossing": "what of a model crosses",
        "network.epochs": "epochs of a round",
    }

    @override
    def read(self, folder: Path, config: Mapping[str, Json], *, finished: bool) -> Any:
        return read_silos(folder, finished=finished, expected=config.get("protocol") == "bandit-fedavg")

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
    def baseline_label(self, name: str) -> str:
        return _BASELINES.get(name, f"{name} (labels)")

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
    def generated(self, run: Run) -> bool:
        return run.details.generated or super().generated(run)

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
    def caveats(self, run: Run) -> list[str]:
        part = run.setting("devices.dropout")
        return [f"{part:.0%} of the replies do not arrive".replace("%", " %", 1)] if part else []

    @override
    def notes(self, run: Run) -> list[str]:
        return [note for note in super().notes(run) if note not in run.details.undefined]  # said once, by UNDEFINED

    @override
    def done_rounds(self, run: Run) -> int:
        # A number that is undefined has no row, but its round was done.
        if run.finished:
            return int(run.setting("rounds", 0))
        return run.last_round

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
    def baselines_depend_on(self, run: Run) -> list[str]:
        return ["data", "data_seed"]

    @override
    def bytes_moved(self, run: Run) -> Float64[np.ndarray, " rounds"]:
        sizes = {(e.exchange, e.sender): e.bytes_each for e in run.ledger or ()}
        if not sizes:
            return np.zeros(0)
        frame = parquet(run.path / "crossed.parquet", _CROSSED)
        down, up = (
            np.array([sizes.get((exchange, sender), 0) for exchange in frame["exchange"].tolist()], float)
            for sender in ("server", "parties")
        )
        moved = frame["requests"] * down + frame["replies"] * up
        _, rounds = np.unique(frame["round"], return_inverse=True)
        return np.cumsum(np.bincount(rounds, moved)) / len(run.seeds)

    @override
    def opening(self, run: Run) -> Opening:
        return opening_of(run, page.harmful(run))

    @override
    def charts(self, run: Run) -> dict[str, Chart]:
        return page.charts(run)

    @override
    def page(self, run: Run, charts: Mapping[str, Chart]) -> Page:
        return page.page(run, charts)

    @override
    def final(self, run: Run) -> Table:
        return final_table(run)

    @override
    def terminal_after(self, run: Run) -> list[Any]:
        out: list[Any] = [Line(line) for line in run.details.undefined]
        out += [Line(f"Warning: {line}", warning=True) for line in page.warnings(run)]
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
        told = {"silos": d.names, "targets": d.targets, "warnings": page.warnings(run)}
        told |= {"evidence": d.evidence, "sceptic": d.sceptic, "first_look": d.looks}
        return {name: to_json(value) for name, value in told.items()}


SHOWN = SilosShown()
