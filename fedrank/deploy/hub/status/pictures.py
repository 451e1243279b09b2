"""The charts of the hub's status page: the reward of the rounds, and how long they were open."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fedrank.deploy.hub.status.text import clock, finite, value_text
from fedrank.report.html import Html, h, join

#: Most points of a chart; neighbouring points of longer histories are averaged.
_DRAWN = 80
#: Fewest rounds on the horizontal axis.
_WIDE = 10


@dataclass(frozen=True)
class Point:
    """A round, or the mean of the rounds ``first`` to ``last``."""

    first: int
    last: int
    reports: int
    reward: float | None
    low: float | None
    high: float | None
    seconds: float | None

    @property
    def numbers(self) -> str:
        """Number of the round, or range of the rounds, as text."""
        return f"{self.last:,}" if self.first == self.last else f"{self.first:,}–{self.last:,}"

    @property
    def where(self) -> str:
        """The round or rounds, as a phrase."""
        return f"round {self.numbers}" if self.first == self.last else f"mean of rounds {self.numbers}"

    @property
    def rounds(self) -> str:
        """The round or rounds, as a sentence names them."""
        return f"round {self.numbers}" if self.first == self.last else f"rounds {self.numbers}"

    @property
    def interval(self) -> str:
        """The 95 % interval as text; empty if there is none."""
        return "" if self.low is None or self.high is None else f"{value_text(self.low)} to {value_text(self.high)}"

    @property
    def cells(self) -> tuple[str, str, str, str]:
        """Cells of a table: reports, reward, interval, time."""
        reward = "–" if self.reward is None else value_text(self.reward)
        return f"{self.reports:,}", reward, self.interval or "–", "–" if self.seconds is None else clock(self.seconds)

    @property
    def words(self) -> str:
        """The whole point as a sentence, for a tooltip."""
        reports, reward, interval, took = self.cells
        each = "open for" if self.first == self.last else "each open for"
        said = "no reward" if reward == "–" else f"{reward} ({interval})" if self.interval else reward
        return f"{self.where}: {said}; {reports} report{'' if reports == '1' else 's'}, {each} {took}"


def points_of(history: Sequence[dict]) -> list[Point]:
    """Points of a status's history; each is a round, or the mean of neighbouring rounds up to the one it names."""
    stride = history[1]["round"] - history[0]["round"] if len(history) > 1 else 1
    out: list[Point] = []
    for p in history:
        first = out[-1].last + 1 if out else max(0, p["round"] - stride + 1)
        numbers = (finite(p[name]) for name in ("reward", "low", "high", "seconds"))
        out.append(Point(first, p["round"], p["reports"], *numbers))
    return out


def pooled(points: Sequence[Point]) -> list[Point]:
    """At most :data:`_DRAWN` points: neighbours are averaged, with the interval of their mean."""
    stride = -(-len(points) // _DRAWN)
    return [mean_of(points[i : i + stride]) for i in range(0, len(points), stride)] if stride > 1 else list(points)


def mean_of(block: Sequence[Point]) -> Point:
    """Neighbouring points as one: their mean, with the interval that it has if rounds err independently."""
    rewards = [p.reward for p in block if p.reward is not None]
    halves = [(p.high - p.low) / 2 for p in block if p.high is not None and p.low is not None]
    times = [p.seconds for p in block if p.seconds is not None]
    reward = statistics.fmean(rewards) if rewards else None
    seconds = statistics.fmean(times) if times else None
    low = high = None
    if reward is not None and len(halves) == len(rewards):
        half = math.hypot(*halves) / len(halves)  # rounds err independently
        low, high = reward - half, reward + half
    return Point(block[0].first, block[-1].last, sum(p.reports for p in block), reward, low, high, seconds)


@dataclass(frozen=True)
class _Axis:
    """A vertical axis from ``low`` to ``high``, both multiples of ``step``."""

    low: float
    high: float
    step: float

    @classmethod
    def over(cls, low: float, high: float) -> _Axis:
        """The smallest axis that contains both values, with about five steps."""
        step = _step((high - low) / 5)
        return cls(math.floor(low / step + 1e-9) * step, math.ceil(high / step - 1e-9) * step, step)

    def at(self, value: float) -> float:
        """Vertical position of a value: 0 at ``high`` (top), 1 at ``low`` (bottom)."""
        return (self.high - value) / (self.high - self.low)

    def ticks(self) -> list[tuple[float, str]]:
        """Position and label of each tick."""
        values = [self.low + i * self.step for i in range(round((self.high - self.low) / self.step) + 1)]
        digits = max(0, -math.floor(math.log10(self.step) + 1e-9))
        large = max(abs(self.low), abs(self.high)) >= 1e5
        return [(self.at(v), f"{v:.3g}" if large else f"{v:,.{digits}f}") for v in values]


def _step(rough: float, factors: Sequence[float] = (1, 2, 5, 10)) -> float:
    """The smallest of these multiples of a power of ten that is at least ``rough``."""
    power = 10.0 ** math.floor(math.log10(rough))
    return next(m * power for m in factors if m * power >= rough * 0.999)


def _width(points: Sequence[Point]) -> tuple[int, int]:
    """First round of a chart, and number of rounds on its horizontal axis."""
    return points[0].first, max(_WIDE, points[-1].last - points[0].first + 1)


def _columns(points: Sequence[Point]) -> list[tuple[float, float, float]]:
    """Left, middle and right of each point as fractions of the chart's width, in proportion to its rounds."""
    start, rounds = _width(points)
    edges = [((p.first - start) / rounds, (p.last + 1 - start) / rounds) for p in points]
    return [(left, (left + right) / 2, right) for left, right in edges]


def reward_picture(name: str, points: Sequence[Point]) -> Html:
    """Chart of the reward with its 95 % band, or a sentence where there is none."""
    known = [(p, p.reward) for p in points if p.reward is not None]
    if not known:
        why = "These reports say nothing about the reward." if points else "The curve begins with the first round."
        return h("p", why, class_="empty")
    rewards = [reward for _, reward in known]
    # A few intervals of rounds with next to no reports may leave the picture; the curve never does.
    lows = sorted(p.low for p in points if p.low is not None)
    highs = sorted((p.high for p in points if p.high is not None), reverse=True)
    low, high = min(rewards + lows[len(lows) // 20 :][:1]), max(rewards + highs[len(highs) // 20 :][:1])
    spare = max(0.0, 0.02 - (high - low)) / 2
    axis = _Axis.over(low - spare, high + spare)
    curve, band, marks = [], [], []
    for p, (_, x, _) in zip(points, _columns(points), strict=True):
        curve.append(None if p.reward is None else (x, axis.at(p.reward)))
        band.append(None if p.low is None or p.high is None else (x, axis.at(p.high), axis.at(p.low)))
        upright = h("line", x1=_part(x), x2=_part(x), y1="0", y2="100%")
        marks.append(None if p.reward is None else join(upright, _dot(x, axis.at(p.reward))))
    paths = []
    for run in _runs(band):
        outline = [(x, top) for x, top, _ in run] + [(x, bottom) for x, _, bottom in reversed(run)]
        paths.append(h("path", d=_path(outline), class_="band" if len(run) > 1 else "error"))
    lines = _runs(curve)
    paths += [h("path", d=_path(run), class_="line") for run in lines if len(run) > 1]
    inner = h("svg", *paths, viewBox="0 0 1000 1000", preserveAspectRatio="none", width="100%", height="100%")
    ends = [_dot(*run[-1]) for run in lines if len(run) == 1 or run is lines[-1]]
    label = f"Mean {name}: " + ", ".join(
        f"{value_text(reward)} in {p.where}" for p, reward in known[:: max(1, len(known) - 1)]
    )
    return _picture("tall reward", label, points, axis.ticks(), [inner, *ends], marks)


def checks_picture(rounds: Sequence[dict]) -> Html:
    """Chart of what checks said round by round, with 95 % intervals, or a sentence before the first."""
    if not rounds:
        return h("p", "The curve begins with the first checks.", class_="empty")
    points, before = [], -1
    for one in rounds:
        points.append(Point(before + 1, one["round"], one["checks"], one["mean"], one["low"], one["high"], None))
        before = one["round"]
    return reward_picture("difference of the newest model and the best one", pooled(points))


def top_of(points: Sequence[Point]) -> float:
    """Largest time of the chart in seconds: outliers are cut, because one night would flatten all else."""
    times = sorted(p.seconds for p in points if p.seconds is not None)
    most = times[len(times) * 19 // 20]
    return times[-1] if times[-1] < 5 * most else 2 * most


def seconds_picture(points: Sequence[Point]) -> Html | None:
    """Bar chart of the time for which each round was open; None before the first."""
    times = [p.seconds for p in points if p.seconds is not None]
    if not times:
        return None
    top = top_of(points)
    unit, length = next((u, n) for u, n in (("h", 3600), ("min", 60), ("s", 1)) if top >= 2 * n or n == 1)
    axis = _Axis.over(0.0, max(top / length, 1e-3))
    marks = []
    for p, (left, _, right) in zip(points, _columns(points), strict=True):
        y, gap = axis.at(min((p.seconds or 0.0) / length, axis.high)), (right - left) / 8
        place = {"x": left + gap, "width": right - left - 2 * gap, "y": y, "height": 1 - y}
        marks.append(h("rect", class_="bar", **{k: _part(v) for k, v in place.items()}))
    label = f"How long rounds were open: {clock(min(times))} to {clock(max(times))}"
    return _picture("low time", label, points, [(1.0, "0"), (0.0, f"{axis.ticks()[-1][1]} {unit}")], [], marks)


def _picture(
    kind: str,
    label: str,
    points: Sequence[Point],
    ticks: Sequence[tuple[float, str]],
    drawn: Sequence[Html],
    marks: Sequence[Html | None],
) -> Html:
    """A chart: axes, drawing, and over each point a column with its mark and its tooltip.

    All positions are fractions of the chart's size, so that it fits any width while its text keeps its size.
    """
    axes = []
    for y, text in ticks:
        axes.append(h("line", x1="0", x2="100%", y1=_part(y), y2=_part(y), class_="base" if y > 0.999 else "grid"))
        axes.append(h("text", text, x="0", y=_part(y), dx="-8", dy=".35em", text_anchor="end"))
    start, rounds = _width(points)
    step = round(_step(rounds / 4, (1, 2, 2.5, 5, 10) if rounds > 40 else (1, 2, 5, 10)))
    for n in range(-(-start // step) * step, start + rounds, step):
        text, x = f"{n:,}" if n >= start + step else f"round {n:,}", _part((n - start + 0.5) / rounds)
        axes.append(h("text", text, x=x, y="100%", dy="1.7em", text_anchor="middle"))
    columns = []
    for p, mark, (left, _, right) in zip(points, marks, _columns(points), strict=True):
        area = h("rect", x=_part(left), y="0", width=_part(right - left), height="100%")
        columns.append(h("g", h("title", p.words), area, mark, class_="hover"))
    return h("div", h("svg", *axes, *drawn, *columns, role="img", aria_label=label), class_=f"frame {kind}")


def _dot(x: float, y: float) -> Html:
    return h("circle", cx=_part(x), cy=_part(y), r="4.5", class_="point")


def _runs(values: Sequence[Any]) -> list[list[Any]]:
    """Runs of consecutive values that are not None."""
    out: list[list[Any]] = [[]]
    for value in values:
        if value is not None:
            out[-1].append(value)
        elif out[-1]:
            out.append([])
    return [run for run in out if run]


def _part(share: float) -> str:
    return f"{100 * share:.2f}%"


def _path(points: Sequence[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{1000 * x:.1f} {1000 * y:.1f}" for x, y in points)
