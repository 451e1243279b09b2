"""Runs of silos or platforms at equal communication: what each had reached after the same number of bytes.

Methods differ in whom they ask, and in how much they send to whom. A round of one is not a round of the other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl

from fedrank.core.trees import Json
from fedrank.report import describe
from fedrank.report.run import Run
from fedrank.report.statistics import mean_interval
from fedrank.report.tables import Column, Table


def budget_table(runs: Mapping[str, Run], measures: Sequence[str]) -> Table | None:
    """Every run at the smallest number of bytes that all of them moved, in both directions; None if none moved any.

    Args:
        runs: By label.
        measures: Test measures, such as ``"AUC, best so far"``.
    """
    moved = {label: run.shown.bytes_moved(run) for label, run in runs.items()}
    ends = [float(by[-1]) for by in moved.values() if len(by) and by[-1] > 0]
    if not ends:
        return None
    budget, rows = min(ends), []
    for label, run in runs.items():
        by = moved[label]
        silent = not len(by) or by[-1] == 0
        # Rounds that the budget pays for; of what moves nothing, all.
        done = run.shown.done_rounds(run) if silent else int(np.searchsorted(by, budget, side="right"))
        if not run.shown.evaluated_every_round:  # the last evaluation that the budget pays for
            seen = run.metrics.filter(pl.col("round") <= done)["round"]
            done = int(seen.max()) if len(seen) else 0  # type: ignore[arg-type]
        each = "0" if silent else describe.size(float(by[-1] / len(by)))
        row: dict[str, Json] = {"run": label, "rounds": str(done), "round": each}
        for i, measure in enumerate(measures):
            values = run.metrics.filter(
                (pl.col("split") == "test") & (pl.col("measure") == measure) & (pl.col("round") == done)
            )
            row[f"m{i}"] = mean_interval(values["value"].to_list()) if len(values) else None
        rows.append(row)
    columns = (
        Column("run", "method"),
        Column("round", "bytes a round, both ways", numeric=True),
        Column("rounds", "rounds within the budget", numeric=True),
        *(Column(f"m{i}", f"{measure}, test", numeric=True) for i, measure in enumerate(measures)),
    )
    note = f"{describe.size(budget)} both ways in one run: what the method that moves least moves in all of its rounds"
    return Table("At equal communication", columns, tuple(rows), (f"{note}.",))
