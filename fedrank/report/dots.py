"""A figure of dots with intervals: rows under several circumstances, in panels below each other."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fedrank.report.charts import OKABE_ITO, RULE, Chart, Entry, Panel, compose, decimal_labels, element
from fedrank.report.figures import nice_domain

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
) -> Chart:
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
    panels = []
    for name in dict.fromkeys(dot.panel for dot in dots):
        mine = [dot for dot in dots if dot.panel == name]
        panels.append(_panel(name, mine, series, colours, measure, signed, digits))
    legend = [Entry(name, colour, "circle") for name, colour in colours.items()] if len(series) > 1 else []
    return compose(panels, title, said, legend)


def _panel(
    title: str,
    dots: Sequence[Dot],
    series: Sequence[str],
    colours: Mapping[str, str],
    measure: str,
    signed: bool,
    digits: int,
) -> Panel:
    here = [name for name in series if any(dot.series == name for dot in dots)]
    rows = list(dict.fromkeys(dot.row for dot in dots))
    height = max(2, len(here)) * _STEP
    bounds = [end for dot in dots for end in (dot.value, dot.low, dot.high) if end is not None]
    domain = nice_domain([*bounds, *([0.0] if signed else [])])
    panel = Panel(_WIDTH, height * len(rows), domain, title=title)
    places = _ticks(*domain, signed)
    panel.x_axis(places, decimal_labels(places, signed=signed), measure, grid=True)
    panel.rows([textwrap.shorten(row, _LONGEST, placeholder="…") for row in rows])
    for row in range(1, len(rows)):
        at = float(row * height)
        panel.add(element("line", x1=0.0, x2=panel.width, y1=at, y2=at, stroke=RULE))
    if signed and domain[0] < 0 < domain[1]:
        panel.vertical(0.0)
    lanes = {row: [name for name in here if any((d.row, d.series) == (row, name) for d in dots)] for row in rows}
    for dot in dots:
        lane = lanes[dot.row]
        y = (rows.index(dot.row) + (lane.index(dot.series) + 0.5) / len(lane)) * height
        if dot.low is not None and dot.high is not None:
            panel.interval(dot.low, dot.high, y, colours[dot.series])
        note = _note(dot, signed, digits)
        panel.dot(panel.x(dot.value), y, colours[dot.series], filled=dot.strong, note=note)
    return panel


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
