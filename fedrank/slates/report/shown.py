"""Report of runs of platforms that share users."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float64
from typing_extensions import override

from fedrank.core.trees import Json, flat
from fedrank.engine.study import Paper, Study
from fedrank.report import describe
from fedrank.report.charts import Chart
from fedrank.report.claims import Opening
from fedrank.report.run import SETTING_NAMES, Line, Page, Run, Shown
from fedrank.report.tables import Table, to_json
from fedrank.slates.report import page, tables
from fedrank.slates.report.files import OPTIMUM, POLICIES, RANDOM, SlateRun, read_slates
from fedrank.slates.report.tables import ledger_words

#: Measures with a figure in a comparison: engagement in all, and of three platforms.
_DRAWN = 4


class SlatesShown(Shown):
    """Engagement of users at each platform, beside fixed policies and the optimum."""

    party = ("platform", "platforms")
    digits = 1
    over = "users"
    learnt = "learnt from clicks"
    every_message_folded = True
    reads_every_ledger_line = False  # a line of the ledger is of all rounds from one evaluation to the next
    setting_names: ClassVar[Mapping[str, str]] = {
        **SETTING_NAMES,
        "world.preset": "users",
        "world.platforms": "platforms K",
        "world.candidates": "candidates N of a platform",
        "world.slate": "items n of a slate",
        "slates.feedback": "who has clicks and engagement",
        "slates.discount": "discount γ",
    }

    @override
    def read(self, folder: Path, config: Mapping[str, Json], *, finished: bool) -> SlateRun | None:
        return read_slates(folder, config, finished=finished)

    @override
    def baseline_label(self, name: str) -> str:
        return name if name in POLICIES else f"{name} (labels)"

    @override
    def subject(self, run: Run) -> str:
        return run.details.users_in_words

    @override
    def headline(self, run: Run) -> str:
        return " · ".join((str(run.setting("protocol")), self.subject(run), run.details.feedback_in_words))

    @override
    def generated(self, run: Run) -> bool:
        return True  # the world makes users up

    @override
    def generated_words(self) -> str:
        return "Generated users: no real people"

    @override
    def generated_sentence(self) -> str:
        return "The users are simulated: the numbers say nothing about real people."

    @override
    def more_caveats(self, run: Run) -> list[str]:
        return [*run.details.caveats, *describe.few_seeds(run)]

    @override
    def nothing_crossed(self, run: Run) -> list[str]:
        return ["Nothing is federated: one learner sees what all platforms see."] if run.details.central else []

    @override
    def crossed_title(self, run: Run) -> str | None:
        return None if run.details.federates else "What crossed"

    @override
    def ledger_words(self, run: Run) -> list[str]:
        return ledger_words(run)

    @override
    def qualified(self, run: Run, split: str, measure: str) -> str:
        return f"{measure}, {self.subject(run)}"

    @override
    def drawn_measures(self, run: Run, ordered: Sequence[str]) -> list[str]:
        return [m for m in run.details.measures[:_DRAWN] if m in ordered] or list(ordered[:1])

    @override
    def same_question(self, run: Run) -> str:
        return self.subject(run)

    @override
    def trained_on(self, run: Run) -> str:
        return self.subject(run)

    @override
    def rounds_in_unit(self, run: Run) -> float:
        return run.details.stay

    @override
    def lines(self, runs: Mapping[str, Run], split: str, measure: str) -> dict[str, float]:
        label, first = next(iter(runs.items()))
        users = {run.details.users_in_words for run in runs.values()}
        of = "" if len(users) == 1 else f" of {label}"
        return {f"{name}{of}": value for name, value in first.details.lines(measure, (RANDOM, OPTIMUM)).items()}

    @override
    def comparison_notes(self) -> list[str]:
        return [
            "engagement: of a user's stay, without a discount; test: fresh users, without exploration.",
            "Fixed policies, the optimum and regret are on the page of each run.",
        ]

    @override
    def study_notes(self, paper: Paper, study: Study) -> list[str]:
        out = ["engagement: of a user's stay, without a discount; test: fresh users, without exploration."]
        if any((e["study"], e["split"]) == (study.name, "test") for e in paper.values):
            out.append(
                "The paper's number is another quantity: the largest mean of 100 users in a row while learning (of "
                "random slates, the mean of all users). It lies above the truth, and a policy that never changes has "
                "it, too."
            )
        return out

    @override
    def data_settings(self, run: Run) -> list[str]:
        return [key for key, _ in flat(run.config) if key.startswith("world.")]

    @override
    def baselines_depend_on(self, run: Run) -> list[str]:
        return [key for key, _ in flat(run.config) if key.startswith("world.")]

    @override
    def bytes_moved(self, run: Run) -> Float64[np.ndarray, " rounds"]:
        entries = list(run.ledger or ())
        if not entries:
            return np.zeros(0)
        starts = [*sorted({entry.round for entry in entries}), self.done_rounds(run)]
        moved = [sum(entry.bytes for entry in entries if entry.round == start) for start in starts[:-1]]
        return np.cumsum(np.repeat(np.divide(moved, np.diff(starts)), np.diff(starts)))

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
        return tables.platforms_table(run)

    @override
    def terminal(self, run: Run) -> list[Any]:
        return [(self.final(run), ("who", "value", "random", "regret")), *map(Line, tables.verdicts(run))]

    @override
    def for_machines(self, run: Run) -> dict[str, Json]:
        made = {
            "policies": tables.policies_table(run),
            "crossed": tables.crossed_table(run),
        }
        return {
            "platforms": [
                {"name": name, "feedback": sees}
                for name, sees in zip(run.details.names, run.details.feedback, strict=True)
            ],
            "faults": [one["key"] for one in run.details.faults],
            "verdicts": tables.verdicts(run),
            **{name: None if table is None else to_json(table)["rows"] for name, table in made.items()},
        }


SHOWN = SlatesShown()
