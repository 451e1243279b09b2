"""Figures: learning curves with bands over seeds, and the baseline beside them.

Each function returns a :class:`~fedrank.report.charts.Chart`. ``save`` writes it as PNG or SVG for a paper;
:meth:`~fedrank.report.charts.Chart.figure` puts it on a page. What a reader must know (generated data, a run cut short,
fewer seeds than asked for, the number of seeds) stands on the figure, so that it goes wherever the figure goes.
"""

from __future__ import annotations

import math
import os
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import numpy as np

from fedrank.core.errors import ConfigError
from fedrank.core.frame import Frame
from fedrank.core.lazy import OptionalModule
from fedrank.report import describe, wording
from fedrank.report.charts import (
    INK,
    MUTED,
    OKABE_ITO,
    RULE,
    Chart,
    Entry,
    Label,
    Panel,
    compose,
    decimal_labels,
    element,
    nice_domain,
    si_label,
    text,
    text_width,
    ticks,
)
from fedrank.report.run import Run
from fedrank.report.statistics import curve

resvg = OptionalModule("resvg_py", "png", "A PNG file")

NO_LINES: Mapping[str, float] = MappingProxyType({})
SPLIT_COLOURS = {"test": OKABE_ITO[0], "validation": OKABE_ITO[1], "train": OKABE_ITO[2]}

#: What a curve can be drawn over: column of the metrics and divisor, title of the axis, unit (empty: what runs count).
AXES = {
    "interactions": ("interactions", 1.0, "interactions (all {many}, one seed)", ""),
    "bytes": ("bytes_up", 1e6, "MB sent by all {many} (one seed)", "MB"),
    "epsilon": ("epsilon", 1.0, "ε spent per user so far (adding up)", "ε"),
    "round": ("round", 1.0, "round", "rounds"),
    "users": ("round", 1.0, "users served so far, one after the other (one seed)", "users"),
}

#: Width and height of what curves are drawn in; less wide where names stand at the right of it.
WIDTH, NAMED_WIDTH, HEIGHT = 340, 270, 210
#: Width of a figure of levels, and height of a row of it.
_LEVEL_WIDTH, _LEVEL_HEIGHT = 400, 46
#: Names at the ends of dashed lines: pixels from line to line, and characters of a line.
_LINE, _WRAPPED = 14, 17

_HOVERS = 40  # places of a curve that answer to a pointer


def axes(run: Run) -> list[str]:
    """Horizontal axes of the run's curves; ε only where it is finite and grows after the first round."""
    values = run.metrics["epsilon"]
    values = values[~np.isnan(values)]
    grows = np.isfinite(values).all() and len(np.unique(values[values > 0])) > 1
    return ["interactions", "bytes", *(["epsilon"] if grows else [])]


def online_figure(run: Run, over: str = "interactions") -> Chart:
    """The reward of the rounds' own interactions, as learnt, over one of :func:`axes`."""
    measure = sorted(set(run.metrics.where(split="online")["measure"]))
    frame, block = points(run, [("online", m, m) for m in measure], over)
    notes = [f"each point the mean of {block} rounds"] if block > 1 else []
    colours = dict(zip(measure, OKABE_ITO, strict=False))
    title = f"Online: {' and '.join(measure)} of the users' own sessions"
    return line_chart(run, frame, over, title, ", ".join(measure), colours, notes)


def opening_figure(run: Run, split: str, measure: str, title: str, series: str) -> Chart:
    """The curve at the top of a page: one split, with all baselines as dashed lines.

    Args:
        run: A run.
        split: Such as ``"test"``.
        measure: Such as ``"nDCG(dcg='exp-log2')@10"``.
        title: Of the figure.
        series: How the curve is called.
    """
    frame, _ = points(run, [(split, measure, series)], "interactions")
    marks = {one.label: one.values[split, measure] for one in run.baselines if (split, measure) in one.values}
    return line_chart(run, frame, "interactions", title, measure, {series: OKABE_ITO[0]}, marks=marks)


def offline_figure(run: Run, measure: str) -> Chart:
    """A measure on train, validation and test over interactions, with the baseline as dashed lines."""
    names = describe.SPLIT_NAMES
    present = set(run.metrics.where(measure=measure)["split"])
    shown = [s for s in ("test", "vali", "train") if s in present]
    frame, _ = points(run, [(s, measure, names[s]) for s in shown], "interactions")
    marks = run.baseline.values if run.baseline else {}
    lines = {names[s]: marks[s, measure] for s in shown if (s, measure) in marks}
    colours = {names[s]: SPLIT_COLOURS[names[s]] for s in shown}
    return line_chart(run, frame, "interactions", _upper(measure), measure, colours, lines=lines)


def comparison_figure(runs: Mapping[str, Run], split: str, measure: str, data: str = "") -> Chart:
    """One measure of several runs over interactions, rounds or users; the first run's baseline dashed.

    Args:
        runs: By label.
        split: Such as ``"test"``.
        measure: Such as ``"nDCG(dcg='exp-log2')@10"``.
        data: What the runs have in common, for the title.
    """
    first = next(iter(runs.values()))
    parts = []
    said: dict[str, list[str]] = {}
    over = first.shown.over
    for label, run in runs.items():
        part, block = points(run, [(split, measure, label)], over)
        parts.append(part)
        thinned = [f"each point the mean of {block} rounds"] if block > 1 else []
        for caveat in (*describe.caveats(run), *thinned):
            said.setdefault(caveat, []).append(label)
    notes = [c if len(of) == len(runs) else f"{c} ({', '.join(of)})" for c, of in said.items()]
    colours = {label: OKABE_ITO[i % len(OKABE_ITO)] for i, label in enumerate(runs)}
    mark = first.baseline.values.get((split, measure)) if first.baseline and over == "interactions" else None
    lines = {} if mark is None else {"": mark}
    marks = first.shown.lines(runs, split, measure)
    title = ", ".join(filter(None, (_upper(measure), data, describe.SPLIT_NAMES[split])))
    seeds = sorted({len(run.seeds) for run in runs.values()})
    band = "One seed each: no interval" if seeds == [1] else wording.seeds_in_words(*seeds)
    frame = Frame.concat(parts)
    return line_chart(first, frame, over, title, measure, colours, notes, lines=lines, marks=marks, band=band)


def save(chart: Chart, path: str | os.PathLike[str], *, scale: float = 2.0) -> Path:
    """Write a figure, without a browser.

    Args:
        chart: From a function of this module.
        path: ``.png`` or ``.svg``; the folder is made if it is missing.
        scale: Pixels of a PNG per unit of the figure.

    Raises:
        ConfigError: Another suffix.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".png":
        path.write_bytes(resvg.svg_to_bytes(svg_string=chart.svg, zoom=scale))
    elif path.suffix == ".svg":
        path.write_text(chart.svg, encoding="utf-8")
    else:
        raise ConfigError(f"{path}: a figure is saved as .png or .svg, got {path.suffix or 'no suffix'}.")
    return path


def save_all(charts: Mapping[str, Chart], folder: Path, *, png: bool = False) -> None:
    """Write figures by their names as SVG files, with ``png`` as PNG files too (the extra ``png``)."""
    for name, chart in charts.items():
        (folder / f"{name}.png").unlink(missing_ok=True)
        for suffix in (".svg", ".png") if png else (".svg",):
            save(chart, folder / f"{name}{suffix}")


def _upper(measure: str) -> str:
    return measure if measure.startswith("nDCG") else wording.capital(measure)


def points(run: Run, series: Sequence[tuple[str, str, str]], over: str) -> tuple[Frame, int]:
    """Curves below each other with columns x, mean, low, high, series, note; and rounds in a point."""
    parts, block = [], 1
    for split, measure, label in series:
        part, block = curve(run.metrics, split, measure)
        column, divisor, *_ = AXES[over]
        whole = run.shown.rounds_in_unit(run) if over == "users" else divisor
        parts.append(part.with_columns({"x": part[column] / whole, "series": label}))
    if not any(map(len, parts)):
        raise ConfigError(f"{run.path}: there are no values to draw; the run has no such split and measure.")
    frame = Frame.concat(parts)
    return frame[np.isfinite(frame["mean"])], block


def _hovers(run: Run, part: Frame, over: str) -> Iterator[tuple[float, float, str]]:
    """Evenly spaced points of one curve (x, mean), with the words that a pointer shows there."""
    digits, last, unit = describe.digits(run), len(part) - 1, AXES[over][3] or run.shown.counted
    step = max(1, math.ceil(len(part) / _HOVERS))
    for place, row in enumerate(part.dicts()):
        if place % step == 0 or place == last:
            note = (
                f"{row['series']}: {wording.format_value(row['mean'], digits=digits)}"
                + ("" if row["low"] is None else f" ({row['low']:.{digits}f} to {row['high']:.{digits}f})")
                + (" at" if over == "round" else f" at {row['x']:,.6g} {unit},")
                + f" round {row['round']:,}"
            )
            yield row["x"], row["mean"], note


def line_chart(
    run: Run,
    frame: Frame,
    over: str,
    title: str,
    measure: str,
    colours: Mapping[str, str],
    notes: Sequence[str] = (),
    *,
    lines: Mapping[str, float] = NO_LINES,
    marks: Mapping[str, float] = NO_LINES,
    band: str = "",
) -> Chart:
    """Curves with bands, in the style of all figures.

    Args:
        run: Whose; its caveats and seeds are said in the subtitle.
        frame: Columns x, mean, low, high, series and round, as :func:`points` returns them.
        over: Which of :data:`AXES` x is.
        title: Of the figure.
        measure: Title of the vertical axis.
        colours: By series.
        notes: Further words for the subtitle.
        lines: Values of the run's baseline by series, dashed in the colour of the series.
        marks: Further dashed lines, by what is written on them.
        band: How the spread is shown where several runs are compared; replaces the run's caveats.
    """
    comparing = bool(band)
    first = band or wording.seeds_in_words(len(run.seeds))
    said = [first, *notes] if comparing else ["; ".join([first, *notes]), *describe.caveats(run)]
    dashed = [*lines.values(), *marks.values()]
    domain = nice_domain([*np.concatenate([frame["mean"], frame["low"], frame["high"]]).tolist(), *dashed])
    xs = frame["x"].tolist() or [0.0, 1.0]  # a run whose values are not finite has a chart without a curve
    panel = Panel(NAMED_WIDTH if dashed else WIDTH, HEIGHT, (min(xs), max(xs)), domain)
    levels = ticks(*domain, 6)
    panel.y_axis(levels, decimal_labels(levels), measure)
    places = ticks(panel.x.low, panel.x.high, 5, whole=over in ("round", "users"))
    label: Label = si_label if over in ("interactions", "users") else decimal_labels(places)
    title_of_axis = run.shown.axis_titles.get(over, AXES[over][2]).format(many=describe.party(run)[1])
    panel.x_axis(places, label, title_of_axis)
    curves = {name: frame.where(series=name) for name in colours}
    # Beyond the palette, colours repeat and dashes tell runs apart.
    dashes = [(None, "6 3", "2 2")[i // len(OKABE_ITO) % 3] for i in range(len(colours))]
    for name, part in curves.items():
        panel.band(part.select(("x", "low", "high")).tuples(), colours[name])
    for (name, part), dash in zip(curves.items(), dashes, strict=True):
        panel.line(part.select(("x", "mean")).tuples(), colours[name], dash=dash)
    for name, value in lines.items():
        panel.line(_across(panel, value), INK if comparing else colours[name], width=1.5, dash="5 4", opacity=0.9)
    for value in marks.values():
        panel.line(_across(panel, value), MUTED, width=1.5, dash="5 4")
    names = dict(marks)
    if lines and run.baseline:  # one name for the lines of all series
        names[run.baseline.label] = max(lines.values())
    _write_names(panel, names)
    for name, part in curves.items():
        for x, mean, note in _hovers(run, part, over):
            panel.dot(panel.x(x), panel.y(mean), colours[name], radius=7.0, note=note, opacity=0.0)
    legend = [Entry(name, colour, dash=dash) for (name, colour), dash in zip(colours.items(), dashes, strict=True)]
    return compose([panel], title, said, legend if len(colours) > 1 else [])


def _across(panel: Panel, value: float) -> list[tuple[float, float]]:
    return [(panel.x.low, value), (panel.x.high, value)]


def apart(places: Sequence[float], sizes: Sequence[float], end: float) -> list[float]:
    """Middles of labels that do not overlap, each as near to its place as the others allow.

    Args:
        places: Where each label belongs, ascending.
        sizes: Height of each.
        end: Labels lie between 0 and this, if they fit.

    >>> apart([50, 52, 100], [14, 14, 14], 200)
    [44.0, 58.0, 100.0]
    >>> apart([195, 199], [14, 14], 200)
    [179.0, 193.0]
    """
    groups: list[list[float]] = []  # wanted top, height, labels
    for place, size in zip(places, sizes, strict=True):
        groups.append([place - size / 2, size, 1])
        while True:
            top, height, count = groups[-1]
            groups[-1][0] = top = max(0.0, min(top, end - height))
            if len(groups) < 2 or groups[-2][0] + groups[-2][1] <= top:
                break
            before_top, before_height, before = groups.pop(-2)
            # Both move by as much, so that each label moves as little as it can.
            middle = (before_top * before + (top - before_height) * count) / (before + count)
            groups[-1] = [middle, before_height + height, before + count]
    out: list[float] = []
    for top, _, count in groups:
        for size in sizes[len(out) : len(out) + int(count)]:
            out.append(top + size / 2)
            top += size
    return out


def _write_names(panel: Panel, names: Mapping[str, float]) -> None:
    """Write the names of dashed lines at the right of a panel, beside the lines and apart from each other."""
    ordered = sorted(names.items(), key=lambda one: -one[1])
    wrapped = [textwrap.wrap(name, _WRAPPED) or [""] for name, _ in ordered]
    places = [panel.y(value) for _, value in ordered]
    for lines, middle in zip(wrapped, apart(places, [_LINE * len(lines) for lines in wrapped], HEIGHT), strict=True):
        for number, line in enumerate(lines):
            y = middle - _LINE * (len(lines) - 1) / 2 + _LINE * number + 4
            panel.add(text(panel.width + 6, y, line, size=12.0))
            panel.right = max(panel.right, 6 + text_width(line, 12.0))


@dataclass(frozen=True)
class Level:
    """A row of a figure of levels.

    Attributes:
        name: Whose value it is.
        value: The value.
        low: Lower end of its interval, or None.
        high: Upper end of its interval, or None.
        ours: Whether it is what the run is about, as opposed to what it is compared with.
    """

    name: str
    value: float
    low: float | None = None
    high: float | None = None
    ours: bool = False


def _ratio(logarithm: float) -> float:
    """The ratio of a logarithm, within what a float holds: separated labels have coefficients of hundreds."""
    return math.exp(min(max(logarithm, -700.0), 700.0))


def ratio_ticks(low: float, high: float) -> list[float]:
    """Logarithms of round ratios, for an axis of logarithms.

    >>> [round(math.exp(place), 3) for place in ratio_ticks(math.log(0.3), math.log(40))]
    [0.5, 1.0, 2.0, 5.0, 10.0, 20.0]
    """
    if high - low < math.log(4):
        return [math.log(value) for value in ticks(math.exp(low), math.exp(high), 5)]
    times = (1, 2, 5) if high - low < math.log(1000) else (1,)
    first, last = math.floor(low / math.log(10)), math.ceil(high / math.log(10))
    each = max(1, (last - first) // 10)  # powers of ten between two ticks
    logs = [math.log(m) + k * math.log(10) for k in range(first - first % each, last + 1, each) for m in times]
    return [one for one in logs if low <= one <= high]


def levels_figure(
    levels: Sequence[Level],
    title: str,
    said: Sequence[str],
    digits: int = 3,
    *,
    signed: bool = False,
    ratio: bool = False,
) -> Chart:
    """Figure of the values of several methods, a row each: a dot with its interval, its name and its number above.

    Args:
        levels: In order, at least one.
        title: Of the figure.
        said: What a reader must know, for the subtitle.
        digits: Decimals of the numbers.
        signed: Values are differences: they carry their sign, and a line stands at 0.
        ratio: Values are logarithms of ratios, which stand in their place; a line stands at 1.
    """
    ends = [end for one in levels for end in (one.value, one.low, one.high) if end is not None]
    domain = nice_domain([*ends, *([0.0] if signed or ratio else [])])
    panel = Panel(_LEVEL_WIDTH, _LEVEL_HEIGHT * len(levels), domain)
    places = ratio_ticks(*domain) if ratio else ticks(*domain, 5)
    panel.x_axis(places, (lambda v: f"{_ratio(v):.3g}") if ratio else decimal_labels(places, signed=signed))
    if (signed or ratio) and domain[0] < 0 < domain[1]:
        panel.vertical(0.0, width=1.2)
    for row, level in enumerate(levels):
        above, y = (row + 0.24) * _LEVEL_HEIGHT + 4, (row + 0.68) * _LEVEL_HEIGHT
        colour = OKABE_ITO[0] if level.ours else MUTED
        panel.add(element("line", x1=0.0, x2=panel.width, y1=y, y2=y, stroke=RULE))
        if level.low is not None and level.high is not None:
            panel.interval(level.low, level.high, y, colour, width=6.0, opacity=0.3)
        panel.dot(panel.x(level.value), y, colour, radius=5.9)
        number = f"{level.value:{'+' if signed else ''},.{digits}f}".replace("-", "−")
        number = f"{_ratio(level.value):.{digits}g}" if ratio else number
        panel.add(text(0, above, level.name, size=13.0))
        panel.add(text(panel.width, above, number, size=13.0, fill=colour, anchor="end", weight="600"))
    return compose([panel], title, said)
