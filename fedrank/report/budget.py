"""Runs of silos or platforms at equal communication: what each had reached when so many bytes had moved.

Methods differ in whom they ask, and in how much they send to whom. A round of one is not a round of the other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from fedrank.report import describe
from fedrank.report.files import parquet
from fedrank.report.load import Run
from fedrank.report.statistics import mean_interval
from fedrank.report.tables import Column, Table

#: What was crossed, as a run of silos writes it.
_CROSSED = {"seed": "integer", "round": "integer", "exchange": "text", "requests": "integer", "replies": "integer"}


def budget_table(runs: Mapping[str, Run], measures: Sequence[str]) -> Table | None:
    """Every run at the smallest number of bytes that all of them moved, in both directions; None if none moved any.

    Args:
        runs: By label.
        measures: Test measures, such as ``"AUC, best so far"``.
    """
    moved = {label: _bytes(run) for label, run in runs.items()}
    ends = [float(by[-1]) for by in moved.values() if len(by) and by[-1] > 0]
    if not ends:
        return None
    budget, rows = min(ends), []
    for label, run in runs.items():
        by = moved[label]
        silent = not len(by) or by[-1] == 0
        # Rounds that the budget pays for; of what moves nothing, all.
        done = describe.done_rounds(run) if silent else int(np.searchsorted(by, budget, side="right"))
        if run.texts is not None or run.slates is not None:  # the last evaluation that the budget pays for
            seen = run.metrics.filter(pl.col("round") <= done)["round"]
            done = int(seen.max()) if len(seen) else 0  # type: ignore[arg-type]
        each = "0" if silent else describe.size(float(by[-1] / len(by)))
        row: dict[str, Any] = {"run": label, "rounds": str(done), "round": each}
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


def _bytes(run: Run) -> np.ndarray:
    """Bytes that have moved after each round, in both directions, mean over seeds: float64 [rounds]."""
    sizes = {(e.exchange, e.sender): e.bytes_each for e in run.ledger or ()}
    if not sizes:
        return np.zeros(0)
    if run.texts is not None:  # every silo takes part in every round; the opening is in the first
        by_round = np.zeros(1 + max(e.round for e in run.ledger or ()))
        for entry in run.ledger or ():
            by_round[entry.round] += entry.bytes
        return np.cumsum(by_round)
    if run.slates is not None:  # a line of the ledger is of all rounds from one evaluation to the next
        starts = [*sorted({entry.round for entry in run.ledger or ()}), describe.done_rounds(run)]
        moved = [sum(e.bytes for e in run.ledger or () if e.round == start) for start in starts[:-1]]
        return np.cumsum(np.repeat(np.divide(moved, np.diff(starts)), np.diff(starts)))
    frame = parquet(run.path / "crossed.parquet", _CROSSED)
    each = frame.with_columns(
        bytes=pl.struct("exchange", "requests", "replies").map_elements(
            lambda row: (
                row["requests"] * sizes.get((row["exchange"], "server"), 0)
                + row["replies"] * sizes.get((row["exchange"], "parties"), 0)
            ),
            return_dtype=pl.Int64,
        )
    )
    rounds = each.group_by("round").agg(pl.col("bytes").sum()).sort("round")
    return np.cumsum(rounds["bytes"].to_numpy()) / len(run.seeds)
