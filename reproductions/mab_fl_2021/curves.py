"""Charts of the thesis's figures: curves by round with fitted splines, residuals, quantiles.

The thesis draws cubic splines through ten experiments and does not say how smooth. Here a spline is the cubic smoothing
spline through the means over experiments whose smoothness generalised cross-validation chooses.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Float, Int

from fedrank.report.charts import INK, OKABE_ITO, Chart, Entry, Panel, compose, decimal_labels, nice_domain, ticks
from fedrank.report.statistics import t_quantile

#: Rounds from which on a smoothing spline can be fitted.
_LEAST_ROUNDS = 5
#: Width and height of a panel that stands among several.
_WIDTH, _HEIGHT = 380.0, 96.0


def fitted_spline(values: Float[np.ndarray, " rounds"], points: int = 60) -> list[tuple[float, float]]:
    """Points of the smoothing spline through values of the rounds 1, 2, …; of few rounds the values themselves."""
    rounds = np.arange(1.0, len(values) + 1)
    if len(values) < _LEAST_ROUNDS or not np.isfinite(values).all():
        return list(zip(rounds.tolist(), values.tolist(), strict=True))
    from scipy.interpolate import make_smoothing_spline  # takes a while to import

    at = np.linspace(1, len(values), points)
    return list(zip(at.tolist(), make_smoothing_spline(rounds, values)(at).tolist(), strict=True))


def learning_curves(title: str, panels: Mapping[str, Float[np.ndarray, "experiments rounds"]], measure: str) -> Chart:
    """A thin line an experiment and the spline through their means, a panel for each setting."""
    drawn = _panels(panels, measure)
    for panel, values in zip(drawn, panels.values(), strict=True):
        for curve in values:
            panel.line(enumerate(curve.tolist(), 1), OKABE_ITO[0], width=1.0, opacity=0.35)
        panel.line(fitted_spline(values.mean(axis=0)), INK)
    return compose(drawn, title, ["A thin line an experiment; black: spline through their means"])


def estimate_curves(
    title: str, panels: Mapping[str, Float[np.ndarray, "experiments rounds arms"]], arms: Sequence[str]
) -> Chart:
    """Estimated expected rewards by round: a thin line an experiment and arm, a spline an arm."""
    drawn = _panels(panels, "estimate")
    for panel, values in zip(drawn, panels.values(), strict=True):
        for arm, colour in enumerate(OKABE_ITO[: len(arms)]):
            for curve in values[..., arm]:
                panel.line(enumerate(curve.tolist(), 1), colour, width=1.0, opacity=0.18)
            panel.line(fitted_spline(values[..., arm].mean(axis=0)), colour)
    legend = [Entry(arm, colour) for arm, colour in zip(arms, OKABE_ITO, strict=False)]
    return compose(drawn, title, ["A thin line an experiment; thick: spline through their means"], legend)


def spline_chart(title: str, curves: Mapping[str, Float[np.ndarray, "experiments rounds"]], measure: str) -> Chart:
    """Splines through the means of several settings in one panel."""
    fitted = {name: fitted_spline(values.mean(axis=0)) for name, values in curves.items()}
    low, high = nice_domain([y for points in fitted.values() for _, y in points])
    longest = max(values.shape[1] for values in curves.values())
    panel = Panel(460, 260, (0.5, longest + 0.5), (low, high))
    _axes(panel, longest, measure)
    dashes = [None, "6 3"]
    entries = []
    for number, (name, points) in enumerate(fitted.items()):
        colour, dash = OKABE_ITO[number % len(OKABE_ITO)], dashes[number // len(OKABE_ITO)]
        panel.line(points, colour, dash=dash)
        entries.append(Entry(name, colour, "line", dash))
    return compose([panel], title, ["Cubic splines through means over experiments"], entries)


def played_curves(
    title: str,
    values: Float[np.ndarray, "experiments rounds"],
    played: Int[np.ndarray, "experiments rounds"],
    arms: Sequence[str],
    measure: str,
) -> Panel:
    """The performance of every experiment, a point a round in the colour of the arm that was played."""
    (panel,) = _panels({title: values}, measure, width=460.0, height=220.0)
    panel.line(fitted_spline(values.mean(axis=0)), INK)
    for place in np.ndindex(values.shape):
        x, y = panel.x(place[1] + 1.0), panel.y(float(values[place]))
        panel.dot(x, y, OKABE_ITO[int(played[place])], radius=3.0, opacity=0.7, note=arms[int(played[place])])
    return panel


def residual_scatter(title: str, panels: Mapping[str, Float[np.ndarray, "experiments rounds"]]) -> Chart:
    """Residuals by round, the line of their mean, 0, and the 95 % interval of normal residuals round by round."""
    reaches = [t_quantile(len(values) - 1) * values.std(axis=0, ddof=1) for values in panels.values()]
    widest = max(float(reach.max()) for reach in reaches)
    drawn = _panels(panels, "residual", also=(-widest, widest))
    for panel, values, reach in zip(drawn, panels.values(), reaches, strict=True):
        panel.band([(n, -r, r) for n, r in enumerate(reach.tolist(), 1)], OKABE_ITO[0])
        panel.line([(0.5, 0.0), (values.shape[1] + 0.5, 0.0)], OKABE_ITO[1])
        for number, curve in enumerate(values):
            panel.line(enumerate(curve.tolist(), 1), INK, width=0.7, opacity=0.15)
            for at, value in enumerate(curve.tolist(), 1):
                panel.dot(panel.x(at), panel.y(value), INK, radius=2.0, opacity=0.6, note=f"experiment {number}")
    return compose(drawn, title, ["A point an experiment, joined by thin lines; shaded: 95 % of normal residuals"])


def normal_quantiles(n: int) -> Float[np.ndarray, " n"]:
    """Expected order statistics of n standard normal draws, by Blom's approximation."""
    from scipy.special import ndtri

    return ndtri((np.arange(1, n + 1) - 0.375) / (n + 0.25))


def quantile_plot(title: str, panels: Mapping[str, Float[np.ndarray, "experiments rounds"]]) -> Chart:
    """Quantiles of residuals against those of a normal distribution; the line has their deviation as its slope."""
    ordered = {name: np.sort(values, axis=None) for name, values in panels.items()}
    domain = nice_domain([float(v) for values in ordered.values() for v in (values[0], values[-1])])
    drawn = []
    for name, values in ordered.items():
        expected, slope = normal_quantiles(len(values)), float(values.std())
        panel = Panel(_WIDTH, _HEIGHT, (-3.0, 3.0), domain, title=name)
        levels = ticks(*domain, 4)
        panel.y_axis(levels, decimal_labels(levels), "residual")
        panel.x_axis([-2, -1, 0, 1, 2], decimal_labels([0, 1]), "normal quantile")
        panel.line([(-3.0, -3 * slope), (3.0, 3 * slope)], OKABE_ITO[1])
        for x, y in zip(expected.tolist(), values.tolist(), strict=True):
            panel.dot(panel.x(x), panel.y(y), INK, radius=2.0, opacity=0.6)
        drawn.append(panel)
    return compose(drawn, title, ["All residuals of an arm; line: a normal distribution of their deviation"])


def _panels(
    panels: Mapping[str, np.ndarray],
    measure: str,
    width: float = _WIDTH,
    height: float = _HEIGHT,
    also: Sequence[float] = (),
) -> list[Panel]:
    """Empty panels over the rounds with one vertical axis for all, which holds the values and those of ``also``."""
    ends = [*also, *(float(end) for values in panels.values() for end in (np.nanmin(values), np.nanmax(values)))]
    longest = max(values.shape[1] for values in panels.values())
    drawn = [Panel(width, height, (0.5, longest + 0.5), nice_domain(ends), title=name) for name in panels]
    for panel in drawn:
        _axes(panel, longest, measure)
    return drawn


def _axes(panel: Panel, rounds: int, measure: str) -> None:
    levels = ticks(panel.y.low, panel.y.high, 4)
    panel.y_axis(levels, decimal_labels(levels), measure)
    panel.x_axis(ticks(1, rounds, 6, whole=True), decimal_labels([0, 1]), "round")
