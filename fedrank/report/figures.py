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
    "interactions": ("interactions (all {many}, one seed)", 1.0, ",d"),
    "bytes": ("MB sent by all {many} (one seed)", 1e6, ",.3~g"),
    "epsilon": ("ε spent per user so far (adding up)", 1.0, ",.4~g"),
    "round": ("round", 1.0, ",d"),
    "users": ("users served so far, one after the other (one seed)", 1.0, ",d"),
}

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
    """What this run's curves can be drawn over; ε only where it is finite and grows."""
    values = run.metrics["epsilon"].drop_nulls()
    finite = len(values) > 0 and values.is_finite().all() and (values.max() or 0) > 0  # type: ignore[operator]
    return ["interactions", "bytes", *(["epsilon"] if finite else [])]


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
    return _svg(chart.to_json())


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
        first = f"Mean of {len(run.seeds)} seeds, too few for a band"
    said = [first, *notes] if comparing else ["; ".join([first, *notes]), *describe.caveats(run)]
    subtitle = [line for text in said for line in textwrap.wrap(text, 62)]
    style = AXES[over][2]
    whole: Any = {"tickMinStep": 1} if over in ("round", "users") else {}
    x = alt.X("x:Q").title(_axis_title(run, over)).axis(format=style, tickCount=5, **whole)
    y = alt.Y("mean:Q").title(measure).scale(zero=False, nice=True)
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
        layers.append(shade.encode(x=x, y=alt.Y("low:Q").title(measure).scale(zero=False), y2="high:Q", color=colour))
    # Beyond the palette, colours repeat and dashes tell runs apart.
    dashes = [[1, 0], [6, 3], [2, 2]]
    dash_scale = alt.Scale(domain=list(colours), range=[dashes[i // len(OKABE_ITO) % 3] for i in range(len(colours))])
    dash = alt.StrokeDash("series:N").scale(dash_scale).legend(None) if len(colours) > len(OKABE_ITO) else alt.Undefined
    drawn = alt.Chart(frame.select("x", "mean", "series")).mark_line(strokeWidth=2, interpolate="linear")
    layers.append(drawn.encode(x=x, y=y, color=colour, strokeDash=dash))
    if lines:
        layers.extend(_baseline(run, frame, lines, comparing, x, y, colour))
    layers.extend(_marks(frame, marks or {}, x, y))
    dots = alt.Chart(_hovers(run, frame, over)).mark_point(opacity=0, size=160, strokeWidth=0, filled=True)
    layers.append(dots.encode(x=x, y=y, description="note:N"))
    heading = alt.Title(title, subtitle=subtitle, anchor="start", frame="group")
    return styled(alt.layer(*layers).properties(width=380, height=230, title=heading))


def _baseline(
    run: Run, frame: pl.DataFrame, lines: Mapping[str, float], plain: bool, x: Any, y: Any, colour: Any
) -> list[Any]:
    """Dashed lines from the first to the last point, and one label at their right end."""
    ends = [frame["x"].min(), frame["x"].max()]
    rows = [{"x": e, "mean": v, "series": s} for s, v in lines.items() for e in ends]
    rules = alt.Chart(pl.DataFrame(rows)).mark_line(strokeDash=[5, 4], strokeWidth=1.5, opacity=0.9)
    shown = alt.value(INK) if plain else colour
    rules = rules.encode(x=x, y=y, color=shown, detail="series:N")
    assert run.baseline is not None  # lines come from it
    # On the side of the lines where no curve ends.
    final = frame.filter(pl.col("x") == ends[1])["mean"]
    below = final.len() > 0 and final.max() >= max(lines.values())  # type: ignore[operator]
    label = pl.DataFrame(
        {
            "x": [ends[1]],
            "mean": [min(lines.values()) if below else max(lines.values())],
            "text": [run.baseline.label],
        }
    )
    side: Any = {"baseline": "top", "dy": 5} if below else {"baseline": "bottom", "dy": -4}
    text = alt.Chart(label).mark_text(align="right", fontSize=11, **side)
    return [rules, text.encode(x=x, y=y, text="text:N", color=alt.value(MUTED))]


def _marks(frame: pl.DataFrame, marks: Mapping[str, float], x: Any, y: Any) -> list[Any]:
    """A dashed line for each, and its name at the right end, on the side where the next line is farther away."""
    layers: list[Any] = []
    ends = [frame["x"].min(), frame["x"].max()]
    ordered = sorted(marks.items(), key=lambda mark: -mark[1])
    bounds = [math.inf, *(value for _, value in ordered), -math.inf]
    for i, (name, value) in enumerate(ordered):
        below = bounds[i] - value < value - bounds[i + 2]
        data = pl.DataFrame({"x": ends, "mean": [value, value]})
        rule = alt.Chart(data).mark_line(strokeDash=[5, 4], strokeWidth=1.5, color=MUTED)
        side: Any = {"baseline": "top", "dy": 4} if below else {"baseline": "bottom", "dy": -4}
        label = data.tail(1).with_columns(pl.lit(name).alias("text"))
        text = alt.Chart(label).mark_text(align="right", fontSize=11, **side)
        layers += [rule.encode(x=x, y=y), text.encode(x=x, y=y, text="text:N", color=alt.value(INK))]
    return layers


def styled(chart: Any) -> Any:
    """The chart with the fonts and colours of all figures."""
    return (
        chart.configure(
            background="#FFFFFF", font="Helvetica Neue, Helvetica, Arial, DejaVu Sans, sans-serif", padding=6
        )
        .configure_view(stroke=None)
        .configure_title(color=INK, subtitleColor=MUTED, fontSize=14, fontWeight=600, subtitleFontSize=11.5, offset=8)
        .configure_axis(
            labelColor=MUTED,
            titleColor=INK,
            titleFontWeight="normal",
            labelFontSize=11.5,
            titleFontSize=12,
            gridColor=RULE,
            domainColor=RULE,
            tickColor=RULE,
            titlePadding=8,
        )
        .configure_axisX(grid=False)
        .configure_legend(
            labelColor=INK, labelFontSize=12, symbolStrokeWidth=3, symbolType="stroke", padding=0, offset=4
        )
    )
