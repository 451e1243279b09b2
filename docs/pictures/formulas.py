"""Curves of formulas that a page explains: nothing here is measured."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from fedrank.report.charts import alt
from fedrank.report.figures import INK, MUTED, OKABE_ITO, styled

WIDTH, HEIGHT = 460, 250


def curves(
    series: Mapping[str, tuple[Iterable[float], Iterable[float]]],
    x: str,
    y: str,
    *,
    log: bool = False,
    steps: Sequence[str] = (),
    names_at: Mapping[str, tuple[float, float]] | None = None,
    ticks: Sequence[float] | None = None,
    x_log: bool = False,
    width: int = WIDTH,
) -> Any:
    """Curves with their names beside them.

    Args:
        series: By name, places and values.
        x: Title of the horizontal axis.
        y: Title of the vertical axis.
        log: The vertical axis is logarithmic.
        steps: Names of curves that are drawn as steps.
        names_at: Where the names stand, in data; at the end of the curve for those that are left out.
        ticks: Marks of the vertical axis.
        x_log: The horizontal axis is logarithmic.
        width: Of the plot in units.
    """
    layers = []
    scale = alt.Scale(type="log") if log else alt.Scale(zero=False)
    axis: Any = {"values": list(ticks)} if ticks is not None else {"tickCount": 6}
    for i, (name, (at, values)) in enumerate(series.items()):
        frame = pl.DataFrame({"x": list(map(float, at)), "y": list(map(float, values))})
        across = alt.Scale(type="log", nice=False) if x_log else alt.Scale(nice=False, zero=False)
        base = alt.Chart(frame).encode(
            x=alt.X("x:Q").title(x).scale(across).axis(tickCount=6, format="~s" if x_log else ",.4~g"),
            y=alt.Y("y:Q").title(y).scale(scale).axis(format=",.4~g", **axis),
        )
        kind = "step-after" if name in steps else "linear"
        layers.append(base.mark_line(color=OKABE_ITO[i], strokeWidth=2.2, interpolate=kind))
        place = (names_at or {}).get(name)
        spot = pl.DataFrame(
            {"x": [place[0] if place else frame["x"][-1]], "y": [place[1] if place else frame["y"][-1]]}
        )
        label = alt.Chart(spot).mark_text(
            align="left", dx=0 if place else 6, fontSize=13, color=OKABE_ITO[i], fontWeight=600
        )
        layers.append(label.encode(x="x:Q", y="y:Q", text=alt.value(name)))
    return styled(alt.layer(*layers).properties(width=width, height=HEIGHT))


def smoothing() -> Any:
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
    return curves(drawn, "one weight θ of the ranker", title, names_at=places, steps=[steps])


def epsilon_by_p() -> Any:
    """ε of an interaction, a message and a user, by the probability of truth."""
    n, batch, rounds = 11, 4, 250
    p = np.linspace(0.12, 0.99, 120)
    one = np.log(p * (n - 1) / (1 - p))
    series = {
        "one interaction": (p, one),
        "one message": (p, batch * one),
        "a user, 250 rounds": (p, batch * rounds * one),
    }
    chart = curves(
        series,
        "p, the probability that a value is sent as it is",
        "ε (adding up)",
        log=True,
        ticks=(0.1, 1, 10, 100, 1000),
    )
    rule = alt.Chart(pl.DataFrame({"x": [0.9]})).mark_rule(color=MUTED, strokeDash=[5, 4]).encode(x="x:Q")
    said = alt.Chart(pl.DataFrame({"x": [0.9], "y": [0.3]})).mark_text(align="right", dx=-6, fontSize=13, color=INK)
    layers = [*chart.layer, rule, said.encode(x="x:Q", y="y:Q", text=alt.value("the paper’s p = 0.9"))]
    return styled(alt.layer(*layers).properties(width=WIDTH, height=HEIGHT))


def search_of_seeds() -> Any:
    """How much of a wanted direction an attacker finds by trying seeds, by the number of weights."""
    tries = np.logspace(0.4, 9, 80)
    series = {f"{n:,} weights": (tries, np.minimum(1.0, np.sqrt(2 * np.log(tries) / n))) for n in (46, 481, 4_801)}
    return curves(
        series,
        "seeds S that the attacker tries",
        "part along the wanted direction",
        x_log=True,
        ticks=(0, 0.25, 0.5, 0.75, 1),
    )


def greed() -> Any:
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
    return curves(series, "round of a user’s stay", "engagement of a round, both platforms")
