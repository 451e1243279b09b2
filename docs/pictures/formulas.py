"""Curves of formulas that a page explains: nothing here is measured."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from fedrank.report.charts import (
    MUTED,
    OKABE_ITO,
    Chart,
    Panel,
    compose,
    decimal_labels,
    element,
    si_label,
    text,
    text_width,
    ticks,
)
from fedrank.report.figures import nice_domain

WIDTH, HEIGHT = 460, 250


def curves(
    series: Mapping[str, tuple[Iterable[float], Iterable[float]]],
    x: str,
    y: str,
    *,
    log: bool = False,
    steps: Sequence[str] = (),
    names_at: Mapping[str, tuple[float, float]] | None = None,
    marks: Sequence[float] | None = None,
    x_log: bool = False,
    width: int = WIDTH,
) -> Panel:
    """Curves with their names beside them.

    Args:
        series: By name, places and values.
        x: Title of the horizontal axis.
        y: Title of the vertical axis.
        log: The vertical axis is logarithmic.
        steps: Names of curves that are drawn as steps.
        names_at: Where the names stand, in data; at the end of the curve for those that are left out.
        marks: Marks of the vertical axis.
        x_log: The horizontal axis is logarithmic.
        width: Of the plot in units.
    """
    drawn = {name: [(float(a), float(b)) for a, b in zip(*of, strict=True)] for name, of in series.items()}
    xs, ys = ([point[i] for of in drawn.values() for point in of] for i in (0, 1))
    high = (min(*ys, *(marks or ())), max(*ys, *(marks or ()))) if log or marks else nice_domain(ys)
    panel = Panel(width, HEIGHT, (min(xs), max(xs)), high, log_x=x_log, log_y=log)
    up = list(marks) if marks else ticks(*high, 6)
    panel.y_axis(up, "{:g}".format if log else decimal_labels(up), y)
    tens = [10.0**k for k in range(math.ceil(math.log10(min(xs))), int(math.log10(max(xs))) + 1)] if x_log else []
    along = tens[::2] or ticks(min(xs), max(xs), 6)
    panel.x_axis(along, si_label if x_log else decimal_labels(along), x)
    for i, (name, points) in enumerate(drawn.items()):
        panel.line(points, OKABE_ITO[i], width=2.2, steps=name in steps)
        place = (names_at or {}).get(name)
        at, level = place or points[-1]
        left = panel.x(at) + (0 if place else 6)
        panel.add(text(left, panel.y(level) + 4, name, size=13.0, fill=OKABE_ITO[i], weight="600"))
        panel.right = max(panel.right, left + text_width(name, 13.5) - width)
    return panel


def smoothing() -> Chart:
    """A metric as steps of one weight, and its mean over a cloud of rankers."""
    sigma, edges = 0.25, (-1.1, -0.55, -0.2, 0.3, 0.62, 1.2)
    levels = (1 / 3, 1 / 4, 1 / 2, 1.0, 1 / 2, 1 / 5, 1 / 6)  # 1 / rank of the first click
    grid = np.linspace(-1.6, 1.6, 321)
    stairs = np.array(levels)[np.searchsorted(edges, grid, side="right")]

    def below(x: float) -> float:
        return 0.5 * (1 + math.erf(x / math.sqrt(2)))

    cloud = [
        levels[0]
        + sum((b - a) * below((x - edge) / sigma) for a, b, edge in zip(levels, levels[1:], edges, strict=False))
        for x in grid
    ]
    steps, mean = "f of one ranker: steps", "mean over θ + σv"
    drawn, places = {steps: (grid, stairs), mean: (grid, cloud)}, {steps: (-1.57, 0.92), mean: (-1.57, 0.8)}
    title = "metric (1 / rank of the first click)"
    return compose([curves(drawn, "one weight θ of the ranker", title, names_at=places, steps=[steps])], "")


def epsilon_by_p() -> Chart:
    """ε of an interaction, a message and a user, by the probability of truth."""
    n, batch, rounds = 11, 4, 250
    p = np.linspace(0.12, 0.99, 120)
    one = np.log(p * (n - 1) / (1 - p))
    series = {
        "one interaction": (p, one),
        "one message": (p, batch * one),
        "a user, 250 rounds": (p, batch * rounds * one),
    }
    title = "p, the probability that a value is sent as it is"
    panel = curves(series, title, "ε (adding up)", log=True, marks=(0.1, 1, 10, 100, 1000))
    at = panel.x(0.9)
    panel.add(element("line", x1=at, x2=at, y1=0.0, y2=panel.height, stroke=MUTED, stroke_dasharray="5 4"))
    panel.add(text(at - 6, panel.y(0.3) + 4, "the paper’s p = 0.9", size=13.0, anchor="end"))
    return compose([panel], "")


def search_of_seeds() -> Chart:
    """How much of a wanted direction an attacker finds by trying seeds, by the number of weights."""
    tries = np.logspace(0.4, 9, 80)
    series = {f"{n:,} weights": (tries, np.minimum(1.0, np.sqrt(2 * np.log(tries) / n))) for n in (46, 481, 4_801)}
    titles = "seeds S that the attacker tries", "part along the wanted direction"
    return compose([curves(series, *titles, x_log=True, marks=(0, 0.25, 0.5, 0.75, 1))], "")


def greed() -> Chart:
    """What a round brings over a user's stay, by the part of chocolate, in the world ``tension``, without noise."""
    from fedrank.slates.world.satisfaction import preset

    world = preset("tension")
    rounds = np.arange(1, world.rounds_per_episode + 1)
    series = {}
    for name, chocolate in {"all chocolate": 0.9, "half and half": 0.5, "all kale": 0.1}.items():
        exposure, got = 0.0, []
        for _ in rounds:
            turns = []
            for _ in range(world.platforms):
                turns.append(float(world.mean_engagement(chocolate, exposure)))
                exposure = world.memory_discount * exposure - 2 * (chocolate - 0.5)
            got.append(sum(turns))
        series[name] = (rounds, got)
    return compose([curves(series, "round of a user’s stay", "engagement of a round, both platforms")], "")
