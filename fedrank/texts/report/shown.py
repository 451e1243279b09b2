"""Contents of the pages, tables and figures of runs of silos with texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float64
from typing_extensions import override

from fedrank.core.trees import Json
from fedrank.engine.study import Paper, Study
from fedrank.report import describe, wording
from fedrank.report.charts import Chart
from fedrank.report.opening import Opening
from fedrank.report.run import MESSAGE_AXES, SETTING_NAMES, Line, Page, Run, Shown
from fedrank.report.tables import Table, to_json
from fedrank.texts.report import page, privacy, tables
from fedrank.texts.report.files import METHODS, read_texts
from fedrank.texts.report.tables import READABLE_TO_SILOS, ledger_words, queries_table, unprotected
from fedrank.texts.report.verdicts import gate_table, verdicts


class TextsShown(Shown):
    """Pages, tables and figures about the federation's gains, silo by silo, and the cost of protection."""

    party = ("silo", "silos")
    counted = "messages"
    over = "round"
    spread_baselines = True
    every_message_folded = True
    axis_titles = MESSAGE_AXES
    setting_names: ClassVar[Mapping[str, str]] = {
        **SETTING_NAMES,
        "texts.silos": "silos that one collection is cut into",
        "texts.cut": "how it is cut",
        "sketch.mode": "how silos see each other's documents",
        "sketch.epsilon": "ε of an occurrence",
        "training.loss": "loss",
        "training.beta": "weight β of cross pairs",
    }

    @override
    def read(self, folder: Path, config: Mapping[str, Json], *, finished: bool) -> Any:
        evaluation = config.get("evaluation")
        measures = evaluation.get("measures") if isinstance(evaluation, Mapping) else None
        names = [str(name) for name in measures] if isinstance(measures, list) else []
        return read_texts(folder, finished=finished, expected=True, measures=names)

    @override
    def baseline_label(self, name: str) -> str:
        return name if name in METHODS else f"{name} (labels)"

    @override
    def subject(self, run: Run) -> str:
        return f"{len(run.details.silos)} silos"

    @override
    def headline(self, run: Run) -> str:
        epsilon, data = run.setting("sketch.epsilon"), run.setting("data.name", run.setting("data"))
        mode = run.details.mode if epsilon is None else f"{run.details.mode}, ε = {wording.number(epsilon)}"
        return " · ".join((str(run.setting("protocol")), str(data), self.subject(run), mode))

    @override
    def generated(self, run: Run) -> bool:
        return run.details.generated or super().generated(run)

    @override
    def generated_sentence(self) -> str:
        return "The texts are generated: the numbers say nothing about real ones."

    @override
    def caveats(self, run: Run) -> list[str]:
        part = run.setting("devices.dropout")
        return [f"{part:.0%} of the replies do not arrive".replace("%", " %", 1)] if part else []

    @override
    def more_caveats(self, run: Run) -> list[str]:
        out = [unprotected(run)] if not run.details.protects else []
        if not out and run.details.insider is not None and run.details.insider.readable:
            out.append(READABLE_TO_SILOS)
        if run.setting("sketch.as_published"):
            out.append("Features as printed")
        return [*out, *describe.few_seeds(run)]

    @override
    def done_rounds(self, run: Run) -> int:
        # A number that is undefined has no row, and not every round is evaluated.
        if run.finished:
            return int(run.setting("rounds", 0))
        return run.last_round

    @override
    def ledger_words(self, run: Run) -> list[str]:
        return ledger_words(run)

    @override
    def summarised(self, run: Run, measure: str) -> bool:
        ends = (*(f" ({name})" for name in run.details.names), *(f", {name}" for name in run.details.ordered_methods))
        return not measure.endswith(ends)

    @override
    def telling(self, run: Run, split: str, measure: str) -> bool:
        return split == "test" and self.summarised(run, measure) and run.details.is_headline(measure)

    @override
    def drawn_measures(self, run: Run, ordered: Sequence[str]) -> list[str]:
        telling = [m for m in ordered if self.summarised(run, m) and run.details.is_headline(m)]
        return telling or list(ordered[:1])

    @override
    def same_question(self, run: Run) -> str:
        return f"{run.setting('data')}, {self.subject(run)}"

    @override
    def lines(self, runs: Mapping[str, Run], split: str, measure: str) -> dict[str, float]:
        label, first = next(iter(runs.items()))
        return {f"{name} of {label}": value for name, value in first.details.baseline_values(split, measure).items()}

    @override
    def comparison_notes(self) -> list[str]:
        return ["Single silos and other methods are on the page of each run; MAP-JOS is a cost, 1 is best."]

    @override
    def privacy_table(self, runs: Mapping[str, Run], head: str) -> Table | None:
        return privacy.budgets_table(runs, head)

    @override
    def study_notes(self, paper: Paper, study: Study) -> list[str]:
        return ["All queries count unless a measure says (judged): those with a relevant document."]

    @override
    def data_settings(self, run: Run) -> list[str]:
        divided = ("silos", "cut", "train", "vali", "depth", "negatives", "foreign", "candidates")
        return ["data", "data_seed", *(f"texts.{name}" for name in divided)]

    @override
    def baselines_depend_on(self, run: Run) -> list[str]:
        return []

    @override
    def bytes_moved(self, run: Run) -> Float64[np.ndarray, " rounds"]:
        # Every silo takes part in every round; the setup is in the first.
        return np.zeros(0) if not list(run.ledger or ()) else super().bytes_moved(run)

    @override
    def opening(self, run: Run) -> Opening:
        return page.opening_of(run)

    @override
    def charts(self, run: Run) -> dict[str, Chart]:
        return page.charts(run)

    @override
    def page(self, run: Run, charts: Mapping[str, Chart]) -> Page:
        return page.page(run, charts)

    @override
    def final(self, run: Run) -> Table:
        return tables.methods_table(run)

    @override
    def terminal(self, run: Run) -> list[Any]:
        out: list[Any] = []
        warned = privacy.warning(run)
        if warned is not None:
            out += [Line(line, warning=True) for line in (warned[0], *warned[1])]
        elif (read := privacy.reading_words(run)) is not None:
            out.append(Line(read))
        shown = [(tables.methods_table(run), ("m0", "gain", "lead"))]
        shown += [(tables.search_table(run), ("everywhere", "gain", "lead"))]
        out += [(made, ("method", *keys)) for made, keys in shown if made is not None]
        return [*out, *map(Line, verdicts(run))]

    @override
    def for_machines(self, run: Run) -> dict[str, Json]:
        warned = privacy.warning(run)
        made = {
            "search": tables.search_table(run),
            "silos": tables.silos_table(run),
            "gate": gate_table(run),
            "by_query": queries_table(run),
            "count_errors": privacy.errors_table(run),
        }
        return {
            "warnings": [] if warned is None else [warned[0], *warned[1]],
            "verdicts": verdicts(run),
            **{name: None if table is None else to_json(table)["rows"] for name, table in made.items()},
            "decisions": [vars(one) for one in run.details.decisions],
        }


SHOWN = TextsShown()
