"""A figure of dots with intervals: rows under several circumstances, in panels below each other."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from fedrank.report.charts import alt
from fedrank.report.figures import INK, MUTED, OKABE_ITO, RULE, nice_domain, styled

#: Width of the figure beside the names, and height that each dot of a row takes.
_WIDTH, _STEP = 250, 14
#: Characters of a name at most.
_LONGEST = 26


@dataclass(frozen=True)
class Dot:
    """One value.

    Attributes:
        panel: Which of the panels below each other, such as a data set.
        row: Name of its row.
        series: What its colour stands for.
        value: The value.
        low: Lower end of its interval, or None.
        high: Upper end of its interval, or None.
        strong: Whether it is drawn filled: a difference that survives correction, say.
    """

    panel: str
    row: str
    series: str
    value: float
    low: float | None = None
    high: float | None = None
    strong: bool = True


def dots_figure(
    dots: Sequence[Dot], title: str, said: Sequence[str], measure: str, *, signed: bool = False, digits: int = 3
) -> Any:
    """Rows of dots with their intervals, a panel for each data set.

    Args:
        dots: At least one; panels, rows and series in the order in which they come.
        title: Of the figure.
        said: What a reader must know, for the subtitle.
        measure: Title of the axis.
        signed: Values are differences: they carry their sign, and a line stands at 0.
        digits: Decimals of the numbers that a pointer shows.
    """
    series = list(dict.fromkeys(dot.series for dot in dots))
    colours = {name: OKABE_ITO[i % len(OKABE_ITO)] for i, name in enumerate(series)}
    legend = alt.Legend(
        title=None, orient="top", direction="horizontal", columns=2, labelLimit=0, symbolOpacity=1, symbolType="circle"
    )
    scale = alt.Scale(domain=series, range=list(colours.values()))
    colour = alt.Color("series:N").scale(scale).legend(legend if len(series) > 1 else None).sort(series)
    panels = []
    for panel in dict.fromkeys(dot.panel for dot in dots):
        mine = [dot for dot in dots if dot.panel == panel]
        panels.append(_panel(panel, mine, series, colour, measure, signed, digits))
    lines = [line for text in said for line in textwrap.wrap(text, 62)]
    heading = alt.Title(textwrap.wrap(title, 44), subtitle=lines, anchor="start", frame="bounds")
    return styled(alt.vconcat(*panels, spacing=14).properties(title=heading))


def _panel(
    panel: str, dots: Sequence[Dot], series: Sequence[str], colour: Any, measure: str, signed: bool, digits: int
) -> Any:
    here = [name for name in series if any(dot.series == name for dot in dots)]
    rows = list(dict.fromkeys(dot.row for dot in dots))
    height = max(2, len(here)) * _STEP
    lanes = {row: [name for name in here if any((d.row, d.series) == (row, name) for d in dots)] for row in rows}
    frame = pl.DataFrame(
        [
            {
                "row": textwrap.shorten(dot.row, _LONGEST, placeholder="…"),
                "y": (rows.index(dot.row) + (lanes[dot.row].index(dot.series) + 0.5) / len(lanes[dot.row])) * height,
                "series": dot.series,
                "value": dot.value,
                "low": dot.value if dot.low is None else dot.low,
                "high": dot.value if dot.high is None else dot.high,
                "filled": 1.0 if dot.strong else 0.0,
                "note": _note(dot, signed, digits),
            }
            for dot in dots
        ],
        schema_overrides={"value": pl.Float64, "low": pl.Float64, "high": pl.Float64},
    )
    names = pl.DataFrame(
        [
            {"row": textwrap.shorten(row, _LONGEST, placeholder="…"), "y": (i + 0.5) * height}
            for i, row in enumerate(rows)
        ]
    )
    rules = pl.DataFrame([{"y": float(i * height)} for i in range(1, len(rows))] or [{"y": 0.0}])
    bounds = [*frame["low"].to_list(), *frame["high"].to_list(), *([0.0] if signed else [])]
    domain = list(nice_domain(bounds))
    whole = height * len(rows)
    x, start = (
        alt.X(f"{name}:Q")
        .title(measure)
        .scale(domain=domain, nice=False, zero=False)
        .axis(values=_ticks(domain[0], domain[1], signed), grid=True, format="+,.3~g" if signed else ",.3~g")
        for name in ("value", "low")
    )
    down = alt.Scale(domain=[whole, 0], nice=False, zero=False)
    y = alt.Y("y:Q").scale(down).axis(None).title(None)
    base = alt.Chart(frame)
    layers = [
        alt.Chart(rules).mark_rule(color=RULE, strokeWidth=1).encode(x=alt.XValue(0), x2=alt.X2Value(_WIDTH), y=y),
        base.mark_rule(strokeWidth=2, opacity=0.55).encode(x=start, x2=alt.X2("high:Q"), y=y, color=colour),
        base.transform_filter("datum.filled > 0")
        .mark_point(filled=True, size=70, opacity=1)
        .encode(x=x, y=y, color=colour, description=alt.Description("note:N")),
        base.transform_filter("datum.filled == 0")
        .mark_point(filled=False, size=55, strokeWidth=2, opacity=1)
        .encode(x=x, y=y, color=colour, description=alt.Description("note:N")),
        alt.Chart(names)
        .mark_text(align="right", baseline="middle", fontSize=12.5, color=INK)
        .encode(x=alt.XValue(-8), y=y, text=alt.Text("row:N")),
    ]
    if signed and domain[0] < 0 < domain[1]:
        zero = alt.Chart(pl.DataFrame({"value": [0.0]})).mark_rule(color=MUTED, strokeWidth=1.4)
        layers.insert(0, zero.encode(x=x))
    title = alt.Title(panel, anchor="start", frame="bounds", fontSize=13, offset=4)
    return alt.layer(*layers).properties(width=_WIDTH, height=whole, title=title)


def _ticks(low: float, high: float, signed: bool) -> list[float]:
    """Places of the axis that have a label: its ends and its middle, or zero; never so near that labels touch.

    >>> _ticks(0.3, 0.5, False), _ticks(-0.3, 0.02, True)
    ([0.3, 0.4, 0.5], [-0.3, 0.0])
    """
    between = 0.0 if signed else (low + high) / 2
    ends = [end for end in (low, high) if abs(end - between) > 0.3 * (high - low)]
    return sorted({*ends, between})


def _note(dot: Dot, signed: bool, digits: int) -> str:
    form = f"{'+' if signed else ''}.{digits}f"
    ends = "" if dot.low is None or dot.high is None else f" ({dot.low:{form}} to {dot.high:{form}})"
    return f"{dot.row}, {dot.series}: {dot.value:{form}}{ends}".replace("-", "−")
