"""Page of a ranker learnt from a click log: its worth beside simple rankings, and how far down people look."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

from fedrank.ranking.logs.learn import LOGGED, LearntFromLog, Row
from fedrank.report.claims import Comparison, Measured, Named, say
from fedrank.report.figures import Level, levels_figure
from fedrank.report.opening import Number, Opening
from fedrank.report.page import write_findings_page
from fedrank.report.statistics import Interval
from fedrank.report.tables import Column, Table

_CHART = "worth"


def log_opening(found: LearntFromLog) -> Opening:
    """Title, sentence and numbers of the page."""
    mine, logged, rest = found.row(found.chosen), found.row(LOGGED), _best_other(found)
    who = f"The ranker learnt ({found.chosen})"
    base = logged.worth.estimates["dr"].value
    gain = Comparison(_interval(mine.gain), "the logged ranking", base, digits=4, unit="clicks")
    if mine.verdict == "cannot be said":
        sentence = say(f"{who} cannot be judged: too few clicks of this log tell about it.")
    else:
        sentence = say(f"{who} is ", gain, f" ({found.measure}, estimated from past clicks).")
    numbers = [
        Number("The ranker", _worth_of(mine, found.measure)),
        Number("Logged ranking", _worth_of(logged, found.measure)),
        Number("Effective clicks", Named(f"{mine.worth.effective_clicks:,.0f}"), "behind the ranker's estimate"),
    ]
    if rest is not None:
        numbers.insert(2, Number(f"Best of the others: {rest.name}", _worth_of(rest, found.measure)))
    said = "; ".join(f"{row.name}: {row.gain.value:+.4f}" for row in found.rows if row.name != LOGGED)
    unknown = mine.verdict == "cannot be said"
    advice = (
        ("log more searches, some with two neighbours swapped, and learn again:", "fedrank learn-from-log LOG")
        if unknown
        else ("put it into your engine:", "fedrank export ranker.safetensors my_ranker.json --to elasticsearch-ltr")
    )
    return Opening("A ranker from a click log", sentence, tuple(numbers), _CHART, said, advice)


def rankings(found: LearntFromLog) -> Table:
    """Table of the rankings, judged on the held-out searches."""
    columns = (
        Column("name", "ranking"),
        Column("worth", found.measure, numeric=True, digits=4),
        Column("low", "low", numeric=True, digits=4),
        Column("high", "high", numeric=True, digits=4),
        Column("gain", "against logged", numeric=True, digits=4),
        Column("verdict", ""),
        Column("clicks", "clicks", numeric=True, digits=0),
    )
    rows = []
    for row in found.rows:
        worth = row.worth.estimates["dr"]
        rows.append({
            "name": row.name, "worth": worth.value, "low": worth.low, "high": worth.high,
            "gain": row.gain.value if row.verdict else None, "verdict": row.verdict,
            "clicks": row.worth.effective_clicks,
        })  # fmt: skip
    notes = (
        f"Doubly robust estimates with 95 % intervals from {found.held_out:,} searches for queries that were not "
        f"learnt from ({found.learnt:,} were); clicks: effective number behind an estimate.",
    )
    return Table("Rankings", columns, tuple(rows), notes)


def write_page(found: LearntFromLog, file: str | os.PathLike[str], log: str) -> Path:
    """Write the page.

    Args:
        found: What was learnt.
        file: Where.
        log: Name of the log.

    Returns:
        The file.

    Raises:
        RunError: The page cannot be written.
    """
    levels = [
        Level(row.name, one.mean, one.low, one.high, row.name == found.chosen)
        for row in found.rows
        if row.name != LOGGED
        for one in [_interval(row.gain)]
    ]
    said = [f"Difference of {found.measure} on held-out searches", "95 % intervals"]
    chart: Any = levels_figure(levels, "Gain over the logged ranking", said, signed=True)
    usable = [k for k in range(1, len(found.bias.theta)) if found.bias.usable[k]]
    looked = ", ".join(f"{k}: {found.bias.theta[k]:.2f}" for k in usable)
    words = [
        f"Position bias (how often a result at a position is looked at, the first being 1): {looked}.",
        *(f"Left out: {count:,} {why}." for why, count in found.left_out.items()),
        *found.warnings,
        "Results that the logged ranking never showed cannot be judged: test old against new before a rollout.",
    ]
    caveats = ("Estimated from past clicks, not tested on people",)
    about = f"fedrank learn-from-log · {log}"
    return write_findings_page(
        file, log_opening(found), about, caveats, chart, rankings(found), words, "fedrank learn-from-log"
    )


def _best_other(found: LearntFromLog) -> Row | None:
    others = [row for row in found.rows if row.name not in (LOGGED, found.chosen)]
    return max(others, key=lambda row: row.worth.estimates["dr"].value, default=None)


def _interval(estimate: Any) -> Interval:
    ends = (end if math.isfinite(end) else None for end in (estimate.low, estimate.high))
    return Interval(estimate.value, *ends)


def _worth_of(row: Row, measure: str) -> Measured:
    return Measured(_interval(row.worth.estimates["dr"]), "" if measure == "clicks" else measure, 4)
