"""Figures of runs of silos with texts: learning curves with baselines, and the gate's decisions."""

from __future__ import annotations

import math
import textwrap
from typing import Any

import polars as pl

from fedrank.report import describe, figures
from fedrank.report.charts import alt
from fedrank.report.run import Run
from fedrank.texts.report.files import EXACT, FEDERATED, GLOBAL, SCOPES
from fedrank.texts.report.tables import DIGITS, details_of

#: Colours of methods, the same in every figure.
COLOURS = {FEDERATED: figures.OKABE_ITO[0], EXACT: figures.OKABE_ITO[2], GLOBAL: figures.OKABE_ITO[1]}


def learning_figure(run: Run, scope: str = "own") -> alt.LayerChart | None:
    """The headline's measure over rounds on test queries, with baselines as dashed lines (as the paper's Figure 6).

    Args:
        run: A run of silos with texts.
        scope: ``"own"``: own documents, beside BM25, Local and Local+. ``"federation"``: a search of all documents,
            beside BM25 in the same search, and what BM25 and Local find at home.

    Returns:
        None if the run has no such measure.
    """
    texts = details_of(run)
    measure = texts.measure if scope == "own" else texts.searched
    if measure is None:
        return None
    named = measure + SCOPES[scope]
    series = [
        ("test", named if method == FEDERATED else f"{named}, {method}", method)
        for method in COLOURS
        if texts.values(method, measure, scope=scope)
    ]
    frame, _ = figures.points(run, series, "round")
    ends = pl.when(pl.col("n") >= figures.FEW_FOR_BANDS).then(pl.col("low", "high")).otherwise(None)
    frame = frame.with_columns(ends).with_columns(pl.col("low", "high").clip(0.0, 1.0))
    marks = texts.baseline_values("test", named)
    what = "own documents" if scope == "own" else "search of all silos’ documents"
    colours = {label: COLOURS[label] for _, _, label in series}
    return figures.line_chart(run, frame, "round", f"{measure} by round, {what}", measure, colours, {}, [], marks=marks)


def gate_figure(run: Run) -> Any | None:
    """Gain of adopting the federation's ranker for each silo and seed, by the gate's decision; None without a gate."""
    texts = details_of(run)
    rows = [
        {
            "silo": one.silo,
            "value": one.test,
            "decision": "adopted" if one.adopted else "refused",
            "note": f"{one.silo}, seed {one.seed}: {'adopted' if one.adopted else 'refused'}, against {one.against}: "
            f"test {describe.measured(one.test, signed=True, digits=DIGITS)}, held out "
            f"{describe.measured(one.vali, signed=True, digits=DIGITS)}",
        }
        for one in texts.decisions
        if math.isfinite(one.test)
    ]
    if not rows:
        return None
    frame = pl.DataFrame(rows)
    x = (
        alt.X("value:Q")
        .title(f"{FEDERATED} − what the silo has, {texts.measure} on test queries")
        .axis(format="+.2f", tickCount=4)
    )
    y = alt.Y("silo:N").sort(list(texts.names)).title(None).axis(ticks=False, domain=False, grid=True)
    zero = alt.Chart(pl.DataFrame({"value": [0.0]})).mark_rule(color=figures.MUTED, strokeWidth=1.5).encode(x=x)
    domain = ["adopted", "refused"]
    legend = alt.Legend(title=None, orient="top", direction="horizontal", symbolStrokeWidth=2)
    points = (
        alt.Chart(frame)
        .mark_point(size=90, strokeWidth=2)
        .encode(
            x=x,
            y=y,
            color=alt.Color("decision:N")
            .scale(domain=domain, range=[figures.OKABE_ITO[0], figures.OKABE_ITO[1]])
            .legend(legend),
            shape=alt.Shape("decision:N").scale(domain=domain, range=["circle", "cross"]).legend(legend),
            description="note:N",
        )
    )
    said = [
        "A point a seed; right of 0 the federation’s ranker beats the better of BM25 and Local on test queries",
        *describe.caveats(run),
    ]
    lines = [line for one in said for line in textwrap.wrap(one, 62)]
    title = alt.Title("What adopting is worth, and what was decided", subtitle=lines, anchor="start", frame="group")
    height = max(120, 42 * len(texts.names))
    return figures.styled(alt.layer(zero, points).properties(width=380, height=height, title=title))
