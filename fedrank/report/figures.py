"""Figures: learning curves with bands over seeds, and the baseline beside them.

Each function returns an altair chart. ``save`` writes it as PNG or SVG for a paper; :mod:`fedrank.report.svg` puts it
on a page. What a reader must know (generated data, a run cut short, fewer seeds than asked for, the number of seeds)
stands on the figure, so that it goes wherever the figure goes.
"""

from __future__ import annotations

import functools
import math
import os
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from fedrank.core.errors import ConfigError
from fedrank.report import describe
from fedrank.report.charts import alt, vl_convert
from fedrank.report.run import Run
from fedrank.report.statistics import curve

#: Okabe and Ito's palette (Color Universal Design, jfly.uni-koeln.de/color), strongest on white first.
OKABE_ITO = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")

#: Colours of everything that is not data. Each is used for one purpose only, so that a page can exchange it.
INK, MUTED, RULE = "#1A1D21", "#5A616B", "#DDE1E6"

SPLIT_COLOURS = {"test": OKABE_ITO[0], "validation": OKABE_ITO[1], "train": OKABE_ITO[2]}

#: What a curve can be drawn over: column, axis title, divisor, format.
AXES = {
    "interactions": ("interactions (all {many}, one seed)", 1.0, "~s"),
    "bytes": ("MB sent by all {many} (one seed)", 1e6, ",.3~g"),
    "epsilon": ("ε spent per user so far (adding up)", 1.0, ",.4~g"),
    "round": ("round", 1.0, ",d"),
    "users": ("users served so far, one after the other (one seed)", 1.0, "~s"),
}

#: Width and height of what curves are drawn in; less wide where names stand at the right of it.
WIDTH, NAMED_WIDTH, HEIGHT = 340, 270, 210
#: Width of a figure of levels, and height of a row of it.
_LEVEL_WIDTH, _LEVEL_HEIGHT = 400, 46
#: Names at the ends of dashed lines: pixels from line to line, and characters of a line.
_LINE, _WRAPPED = 14, 17

#: Fewer seeds give no band where curves are not over interactions: its interval would be wider than the figure.
FEW_FOR_BANDS = 3

_COLUMNS = {
    "interactions": "interactions",
    "bytes": "bytes_up",
    "epsilon": "epsilon",
    "round": "round",
    "users": "round",
}
_HOVERS = 40  # places of a curve that answer to a pointer


def axes(run: Run) -> list[str]:
    """Horizontal axes of the run's curves; ε only where it is finite and grows after the first round."""
    values = run.metrics["epsilon"].drop_nulls()
    grows = values.is_finite().all() and values.filter(values > 0).n_unique() > 1
    return ["interactions", "bytes", *(["epsilon"] if grows else [])]


def online_figure(run: Run, over: str = "interactions") -> alt.LayerChart:
    """The reward of the rounds' own interactions, as learnt, over interactions, bytes or ε.

    Raises:
        ConfigError: ``over`` is not one of :func:`axes`.
    """
    if over not in axes(run):
        raise ConfigError(f"over must be one of {', '.join(axes(run))} for this run, got {over!r}.")
    measure = run.metrics.filter(run.metrics["split"] == "online")["measure"].unique().sort().to_list()
    frame, block = points(run, [("online", m, m) for m in measure], over)
    notes = [f"each point the mean of {block} rounds"] if block > 1 else []
    colours = dict(zip(measure, OKABE_ITO, strict=False))
    title = f"Online: {' and '.join(measure)} of the users' own sessions"
    return line_chart(run, frame, over, title, ", ".join(measure), colours, {}, notes)


def opening_figure(run: Run, split: str, measure: str, title: str, series: str) -> alt.LayerChart:
    """The curve at the top of a page: one split, with all baselines as dashed lines.

    Args:
        run: A run.
        split: Such as ``"test"``.
        measure: Such as ``"nDCG@10"``.
        title: Of the figure.
        series: How the curve is called.
    """
    frame, _ = points(run, [(split, measure, series)], "interactions")
    marks = {one.label: one.values[split, measure] for one in run.baselines if (split, measure) in one.values}
    return line_chart(run, frame, "interactions", title, measure, {series: OKABE_ITO[0]}, {}, [], marks=marks)


def offline_figure(run: Run, measure: str) -> alt.LayerChart:
    """A measure on train, validation and test over interactions, with the baseline as dashed lines."""
    names = describe.SPLIT_NAMES
    present = run.metrics.filter(pl.col("measure") == measure)["split"].unique().to_list()
    shown = [s for s in ("test", "vali", "train") if s in present]
    frame, _ = points(run, [(s, measure, names[s]) for s in shown], "interactions")
    marks = run.baseline.values if run.baseline else {}
    lines = {names[s]: marks[s, measure] for s in shown if (s, measure) in marks}
    colours = {names[s]: SPLIT_COLOURS[names[s]] for s in shown}
    return line_chart(run, frame, "interactions", _upper(measure), measure, colours, lines, [])


def comparison_figure(runs: Mapping[str, Run], split: str, measure: str, data: str = "") -> alt.LayerChart:
    """One measure of several runs over interactions, rounds or users; the first run's baseline dashed.

    Args:
        runs: By label.
        split: Such as ``"test"``.
        measure: Such as ``"nDCG@10"``.
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
    frame, band = pl.concat(parts), ""
    if over != "interactions" and seeds[-1] < FEW_FOR_BANDS:
        frame = frame.with_columns(pl.lit(None, pl.Float64).alias("low"), pl.lit(None, pl.Float64).alias("high"))
        band = f"Mean of {' or '.join(map(str, seeds))} seeds, too few for a band" if seeds != [1] else ""
    band = band or (
        f"Mean of {' or '.join(map(str, seeds))} seeds; band: 95 % interval"
        if seeds != [1]
        else "One seed each: no interval"
    )
    return line_chart(first, frame, over, title, measure, colours, lines, notes, band, marks)


def save(chart: alt.TopLevelMixin, path: str | os.PathLike[str], *, scale: float = 2.0) -> Path:
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
        path.write_bytes(vl_convert.svg_to_png(rendered(chart), scale=scale))
    elif path.suffix == ".svg":
        path.write_text(rendered(chart), encoding="utf-8")
    else:
        raise ConfigError(f"{path}: a figure is saved as .png or .svg, got {path.suffix or 'no suffix'}.")
    return path


def rendered(chart: alt.TopLevelMixin) -> str:
    """The figure as SVG; remembered, because a page and a PNG want the same."""
    return _svg(chart.to_json(validate=False))  # what is not valid is noticed by tests, and checking takes as long


@functools.lru_cache(maxsize=64)
def _svg(spec: str) -> str:
    return vl_convert.vegalite_to_svg(spec)


def _upper(measure: str) -> str:
    return measure if measure.startswith("nDCG") else measure[:1].upper() + measure[1:]


def points(run: Run, series: Sequence[tuple[str, str, str]], over: str) -> tuple[pl.DataFrame, int]:
    """Curves below each other with columns x, mean, low, high, series, note; and rounds in a point."""
    parts, block = [], 1
    for split, measure, label in series:
        part, block = curve(run.metrics, split, measure)
        whole = run.shown.rounds_in_unit(run) if over == "users" else AXES[over][1]
        x = pl.col(_COLUMNS[over]).cast(pl.Float64) / whole
        parts.append(part.with_columns(x.alias("x"), pl.lit(label).alias("series")))
    if not parts or all(p.is_empty() for p in parts):
        raise ConfigError(f"{run.path}: there are no values to draw; the run has no such split and measure.")
    return pl.concat(parts).filter(pl.col("mean").is_finite()), block


def _axis_title(run: Run, over: str) -> str:
    return run.shown.axis_titles.get(over, AXES[over][0]).format(many=describe.party(run)[1])


def _unit(run: Run, over: str) -> str:
    return {"interactions": run.shown.counted, "bytes": "MB", "epsilon": "ε", "users": "users"}[over]


def _hovers(run: Run, frame: pl.DataFrame, over: str) -> pl.DataFrame:
    """Evenly spaced points of each curve, with the words that a pointer shows there."""
    position = pl.int_range(pl.len()).over("series")
    count = pl.len().over("series")
    step = (count / _HOVERS).ceil().cast(pl.Int64)
    kept = frame.filter((position % step == 0) | (position == count - 1))
    digits = describe.digits(run)
    notes = [
        f"{r['series']}: {describe.measured(r['mean'], digits=digits)}"
        + ("" if r["low"] is None else f" ({r['low']:.{digits}f} to {r['high']:.{digits}f})")
        + (" at" if over == "round" else f" at {r['x']:,.6g} {_unit(run, over)},")
        + f" round {r['round']:,}"
        for r in kept.iter_rows(named=True)
    ]
    return kept.select("x", "mean", "series").with_columns(pl.Series("note", notes, dtype=pl.String))


def line_chart(
    run: Run,
    frame: pl.DataFrame,
    over: str,
    title: str,
    measure: str,
    colours: Mapping[str, str],
    lines: Mapping[str, float],
    notes: Sequence[str],
    band: str = "",
    marks: Mapping[str, float] | None = None,
) -> alt.LayerChart:
    """Curves with bands, in the style of all figures.

    Args:
        run: Whose; its caveats and seeds are said in the subtitle.
        frame: Columns x, mean, low, high, series and round, as :func:`points` returns them.
        over: Which of :data:`AXES` x is.
        title: Of the figure.
        measure: Title of the vertical axis.
        colours: By series.
        lines: Values of the run's baseline by series, dashed in the colour of the series.
        notes: Further words for the subtitle.
        band: How the spread is shown where several runs are compared; replaces the run's caveats.
        marks: Further dashed lines, by what is written on them.
    """
    comparing = bool(band)
    first = band or describe.seeds_in_words(len(run.seeds))
    if not comparing and len(run.seeds) > 1 and frame["low"].null_count() == len(frame):
        first = f"Mean of {len(run.seeds)} seeds" + (", too few for a band" if len(run.seeds) < FEW_FOR_BANDS else "")
    said = [first, *notes] if comparing else ["; ".join([first, *notes]), *describe.caveats(run)]
    subtitle = [line for text in said for line in textwrap.wrap(text, 62)]
    style = AXES[over][2]
    whole: Any = {"tickMinStep": 1} if over in ("round", "users") else {}
    dashed = [*lines.values(), *(marks or {}).values()]
    known = [v for column in ("mean", "low", "high") for v in frame[column].drop_nulls().to_list()]
    domain = nice_domain([*known, *dashed])
    width = NAMED_WIDTH if dashed else WIDTH
    ends = [frame["x"].min(), frame["x"].max()]
    across: Any = {} if ends[0] == ends[1] else {"domain": ends}
    x = alt.X("x:Q").title(_axis_title(run, over)).scale(nice=False, zero=False, **across)
    # Of a whole axis Vega takes one prefix, so that 0 were "0k": each label is written by itself.
    written: Any = {"labelExpr": "format(datum.value, '~s')"} if style == "~s" else {"format": style}
    x = x.axis(tickCount=5, **written, **whole)
    y, low = (
        alt.Y(f"{name}:Q").title(measure).scale(domain=list(domain), nice=False, zero=False).axis(tickCount=6)
        for name in ("mean", "low")
    )
    legend = None
    if len(colours) > 1:  # full opacity: the first layer is the pale band, and a legend takes after the first layer
        longest = max(map(len, colours))
        legend = alt.Legend(
            title=None,
            orient="top",
            direction="horizontal",
            columns=3 if longest < 16 else 2 if longest < 30 else 1,
            labelLimit=0,
            symbolOpacity=1,
            symbolStrokeWidth=2,
        )
    scale = alt.Scale(domain=list(colours), range=list(colours.values()))
    colour = alt.Color("series:N").scale(scale).legend(legend).sort(list(colours))
    layers: list[Any] = []
    if frame["low"].null_count() < len(frame):
        shade = alt.Chart(frame.select("x", "low", "high", "series")).mark_area(opacity=0.18)
        layers.append(shade.encode(x=x, y=low, y2=alt.Y2("high:Q"), color=colour))
    # Beyond the palette, colours repeat and dashes tell runs apart.
    dashes = [[1, 0], [6, 3], [2, 2]]
    dash_scale = alt.Scale(domain=list(colours), range=[dashes[i // len(OKABE_ITO) % 3] for i in range(len(colours))])
    dash = alt.StrokeDash("series:N").scale(dash_scale).legend(None) if len(colours) > len(OKABE_ITO) else alt.Undefined
    drawn = alt.Chart(frame.select("x", "mean", "series")).mark_line(strokeWidth=2, interpolate="linear")
    layers.append(drawn.encode(x=x, y=y, color=colour, strokeDash=dash))
    if lines:
        rows = [{"x": end, "mean": value, "series": name} for name, value in lines.items() for end in ends]
        rules = alt.Chart(pl.DataFrame(rows)).mark_line(strokeDash=[5, 4], strokeWidth=1.5, opacity=0.9)
        shown = alt.ColorValue(INK) if comparing else colour
        layers.append(rules.encode(x=x, y=y, color=shown, detail=alt.Detail("series:N")))
    for value in (marks or {}).values():
        rule = alt.Chart(pl.DataFrame({"x": ends, "mean": [value, value]}))
        layers.append(rule.mark_line(strokeDash=[5, 4], strokeWidth=1.5, color=MUTED).encode(x=x, y=y))
    names = dict(marks or {})
    if lines and run.baseline:  # one name for the lines of all series
        names[run.baseline.label] = max(lines.values())
    layers.extend(_names(names, domain, width))
    hovers = alt.Chart(_hovers(run, frame, over)).mark_point(opacity=0, size=160, strokeWidth=0, filled=True)
    layers.append(hovers.encode(x=x, y=y, color=colour, description=alt.Description("note:N")))
    heading = alt.Title(textwrap.wrap(title, 40), subtitle=subtitle, anchor="start", frame="group")
    return styled(alt.layer(*layers).properties(width=width, height=HEIGHT, title=heading))


def nice_domain(values: Sequence[float]) -> tuple[float, float]:
    """Round ends of an axis that holds all values.

    >>> nice_domain([0.352, 0.613]), nice_domain([-3.0, 41.0]), nice_domain([0.5])
    ((0.35, 0.65), (-10.0, 50.0), (0.49, 0.51))
    """
    known = [value for value in values if math.isfinite(value)] or [0.0]
    low, high = min(known), max(known)
    if high - low <= 1e-12 * max(abs(low), abs(high), 1.0):
        room = abs(high) * 0.02 or 0.01
        return low - room, high + room
    rough = (high - low) / 6
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * times for times in (1, 2, 5, 10) if power * times >= rough * 0.999)
    return round(math.floor(low / step + 1e-9) * step, 12), round(math.ceil(high / step - 1e-9) * step, 12)


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


def _names(names: Mapping[str, float], domain: tuple[float, float], width: int) -> list[Any]:
    """The names of dashed lines at the right of the figure, beside the lines and apart from each other."""
    if not names:
        return []
    low, high = domain
    ordered = sorted(names.items(), key=lambda one: -one[1])
    wrapped = [textwrap.wrap(name, _WRAPPED) or [""] for name, _ in ordered]
    places = [HEIGHT * (high - value) / (high - low) for _, value in ordered]
    middles = apart(places, [_LINE * len(lines) for lines in wrapped], HEIGHT)
    layers = []
    for lines, middle in zip(wrapped, middles, strict=True):
        text = alt.Chart(pl.DataFrame({"text": ["\n".join(lines)]})).mark_text(
            align="left", baseline="middle", fontSize=12, lineBreak="\n", lineHeight=_LINE
        )
        first = middle - _LINE * (len(lines) - 1) / 2  # the place of a text is that of its first line
        place = {"x": alt.XValue(width + 6), "y": alt.YValue(first)}
        layers.append(text.encode(**place, text=alt.Text("text:N"), color=alt.ColorValue(INK)))
    return layers


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


def levels_figure(
    levels: Sequence[Level], title: str, said: Sequence[str], digits: int = 3, *, signed: bool = False
) -> Any:
    """Figure of the values of several methods, a row each: a dot with its interval, its name and its number above.

    Args:
        levels: In order, at least one.
        title: Of the figure.
        said: What a reader must know, for the subtitle.
        digits: Decimals of the numbers.
        signed: Values are differences: they carry their sign, and a line stands at 0.
    """
    rows = [
        {
            "row": i,
            "name": level.name,
            "value": level.value,
            "low": level.value if level.low is None else level.low,
            "high": level.value if level.high is None else level.high,
            "number": f"{level.value:{'+' if signed else ''},.{digits}f}".replace("-", "−"),
            "ours": level.ours,
        }
        for i, level in enumerate(levels)
    ]
    zero = [0.0] if signed else []
    low, high = nice_domain([*(v for row in rows for v in (row["low"], row["high"], row["value"])), *zero])
    frame = pl.DataFrame(rows, schema_overrides={"value": pl.Float64, "low": pl.Float64, "high": pl.Float64})
    height = _LEVEL_HEIGHT * len(rows)
    base = alt.Chart(frame).transform_calculate(
        y=f"(datum.row + 0.68) * {_LEVEL_HEIGHT}", above=f"(datum.row + 0.24) * {_LEVEL_HEIGHT}"
    )
    x, start = (
        alt.X(f"{name}:Q")
        .title(None)
        .scale(domain=[low, high], nice=False, zero=False)
        .axis(tickCount=5, grid=False, format="+,.6~g" if signed else ",.6~g")
        for name in ("value", "low")
    )
    down = alt.Scale(domain=[height, 0], nice=False, zero=False)
    y, above = (alt.Y(f"{name}:Q").scale(down).axis(None).title(None) for name in ("y", "above"))
    colour = alt.condition("datum.ours", alt.value(OKABE_ITO[0]), alt.value(MUTED))
    layers = [
        base.mark_rule(strokeWidth=1, color=RULE).encode(x=alt.XValue(0), x2=alt.X2Value(_LEVEL_WIDTH), y=y),
        base.mark_rule(strokeWidth=6, opacity=0.3).encode(x=start, x2=alt.X2("high:Q"), y=y, color=colour),
        base.mark_point(filled=True, size=110, opacity=1).encode(x=x, y=y, color=colour),
        base.mark_text(align="left", baseline="middle", fontSize=13, color=INK).encode(
            x=alt.XValue(0), y=above, text=alt.Text("name:N")
        ),
        base.mark_text(align="right", baseline="middle", fontSize=13, fontWeight=600).encode(
            x=alt.XValue(_LEVEL_WIDTH), y=above, text=alt.Text("number:N"), color=colour
        ),
    ]
    if signed and low < 0 < high:
        rule = alt.Chart(pl.DataFrame({"value": [0.0]})).mark_rule(color=MUTED, strokeWidth=1.2)
        layers.insert(0, rule.encode(x=x))
    lines = [line for text in said for line in textwrap.wrap(text, 62)]
    heading = alt.Title(textwrap.wrap(title, 40), subtitle=lines, anchor="start", frame="group")
    return styled(alt.layer(*layers).properties(width=_LEVEL_WIDTH, height=height, title=heading))


def styled(chart: Any) -> Any:
    """The chart with the fonts and colours of all figures."""
    axis = alt.AxisConfig(
        labelColor=MUTED,
        titleColor=INK,
        titleFontWeight="normal",
        labelFontSize=12.5,
        titleFontSize=13,
        gridColor=RULE,
        domainColor=RULE,
        tickColor=RULE,
        titlePadding=8,
        labelSeparation=8,  # a reader's font may be wider than the one that is measured here
    )
    title = alt.TitleConfig(color=INK, subtitleColor=MUTED, fontSize=15, fontWeight=600, subtitleFontSize=12, offset=8)
    legend = alt.LegendConfig(
        labelColor=INK, titleColor=INK, labelFontSize=13, symbolStrokeWidth=3, symbolType="stroke", padding=0, offset=4
    )
    return chart.configure(  # at once: each call of a method copies the whole chart
        background="#FFFFFF",
        font="Helvetica Neue, Helvetica, Arial, DejaVu Sans, sans-serif",
        padding=6,
        view=alt.ViewConfig(stroke=None),
        title=title,
        axis=axis,
        axisX=alt.AxisConfig(grid=False),
        legend=legend,
    )
