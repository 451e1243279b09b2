"""Figures of runs of platforms: what they bring in as they learn, beside fixed policies and the optimum."""

from __future__ import annotations

import polars as pl

from fedrank.core.errors import ConfigError
from fedrank.report import figures
from fedrank.report.charts import alt
from fedrank.report.run import Run
from fedrank.report.statistics import curve
from fedrank.slates.report.files import ENGAGEMENT, SlateRun

#: Points of the curve while learning, whose single users differ by a fifth of the mean and more.
_POINTS = 20


def learning_figure(run: Run, measure: str) -> alt.LayerChart:
    """What fresh users bring in without exploration, over the users that were served before; fixed policies dashed.

    Args:
        run: A run of platforms.
        measure: One of its measures.
    """
    slates = slates_of(run)
    platform = slates.names[slates.measures.index(measure) - 1] if measure != ENGAGEMENT else None
    frame, _ = figures.points(run, [("test", measure, _said(slates, platform))], "users")
    frame = _bands(run, frame)
    colour = figures.OKABE_ITO[0 if platform is None else 1 + slates.names.index(platform) % 6]
    title = "All platforms together" if platform is None else f"Platform {_said(slates, platform)}"
    notes = [f"{slates.judges:,} fresh users a seed, no exploration"]
    said, marks = _said(slates, platform), slates.lines(measure)
    return figures.line_chart(
        run, frame, "users", title, "engagement of a user", {said: colour}, {}, notes, marks=marks
    )


def online_figure(run: Run) -> alt.LayerChart | None:
    """What users brought in while platforms learnt, exploration included; None before a user has left."""
    slates = slates_of(run)
    parts, block = [], 1
    for name, measure in zip(slates.names, slates.measures[1:], strict=True):
        part, block = curve(run.metrics, "online", measure, points=_POINTS)
        x = (pl.col("round").cast(pl.Float64) / slates.stay).alias("x")
        parts.append(part.with_columns(x, pl.lit(_said(slates, name)).alias("series")))
    frame = _bands(run, pl.concat(parts))
    if frame.is_empty():
        return None
    colours = {
        _said(slates, name): figures.OKABE_ITO[1 + place % 6] for place, name in enumerate(slates.names)
    }  # a platform has the same colour in every figure
    notes = ["exploration included", *([f"each point the mean of {block} users"] if block > 1 else [])]
    return figures.line_chart(run, frame, "users", "While they learnt", "engagement of a user", colours, {}, notes)


def slates_of(run: Run) -> SlateRun:
    """What the run says of platforms.

    Raises:
        ConfigError: It is no run of platforms.
    """
    if not isinstance(run.details, SlateRun):
        raise ConfigError(f"{run.path}: this is no run of platforms that share users.")
    return run.details


def _said(slates: SlateRun, platform: str | None) -> str:
    """A platform, and whether it sees what users do."""
    if platform is None:
        return "all platforms"
    if slates.central:
        return platform
    return f"{platform}, {'with' if slates.feedback[slates.names.index(platform)] else 'without'} feedback"


def _bands(run: Run, frame: pl.DataFrame) -> pl.DataFrame:
    if len(run.seeds) >= figures.FEW_FOR_BANDS:
        return frame
    nothing = pl.lit(None, pl.Float64)
    return frame.with_columns(nothing.alias("low"), nothing.alias("high"))
