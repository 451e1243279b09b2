"""Means, intervals and differences over seeds.

The unit is the seed: one run of one seed is one independent draw, whatever happens inside it. Intervals are Student's
t, two-sided, 95 % unless said. Fewer than three seeds have no interval: an :class:`Estimate` then has ``half`` None
and the single values.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedrank.core.errors import ConfigError
from fedrank.core.frame import Frame
from fedrank.metrics.returns import LEAST_SEEDS

#: Coverage of every interval in reports.
LEVEL = 0.95

#: Share of the rounds, at the end, over which the online reward is averaged: one round alone is noisy.
ONLINE_TAIL = 0.1

#: Points of a curve at most; more cannot be told apart at the width of a page.
POINTS = 400


@dataclass(frozen=True)
class Estimate:
    """A mean over seeds.

    Attributes:
        mean: The mean, or the difference of two means.
        half: Half the width of the interval; None where there are too few seeds for one.
        n: Seeds.
        method: How it was computed, for notes under a table.
        values: The single values where they are too few for an interval, but more than one.
    """

    mean: float
    half: float | None
    n: int
    method: str = "Student t"
    values: tuple[float, ...] = ()

    @property
    def low(self) -> float | None:
        """Lower end of the interval."""
        return None if self.half is None else self.mean - self.half

    @property
    def high(self) -> float | None:
        """Upper end of the interval."""
        return None if self.half is None else self.mean + self.half

    def minus(self, constant: float) -> Estimate:
        """The same estimate, less a constant: the interval keeps its width."""
        return Estimate(
            self.mean - constant, self.half, self.n, self.method, tuple(value - constant for value in self.values)
        )


@dataclass(frozen=True)
class Interval:
    """A mean with an interval that was computed elsewhere and need not be symmetric.

    Attributes:
        mean: The mean.
        low: Lower end, or None.
        high: Upper end, or None.
    """

    mean: float
    low: float | None = None
    high: float | None = None


def t_quantile(freedom: float, level: float = LEVEL) -> float:
    """The half-width of a two-sided interval in standard errors: Student's t with ``freedom`` degrees of freedom.

    Raises:
        ConfigError: ``level`` is not inside (0, 1).
    """
    if not 0 < level < 1:
        raise ConfigError(f"level must be inside (0, 1), got {level}. Use 0.95 for a 95 % interval.")
    from scipy.special import stdtrit  # scipy.stats has it too, and takes a second to import

    return float(stdtrit(freedom, 0.5 + level / 2))


def mean_interval(values: Sequence[float], level: float = LEVEL) -> Estimate:
    """Mean and Student t interval of independent values.

    >>> estimate = mean_interval([0.6, 0.7, 0.8])
    >>> round(estimate.mean, 4), round(estimate.half, 4)
    (0.7, 0.2484)

    Raises:
        ConfigError: No values.
    """
    n = len(values)
    if n == 0:
        raise ConfigError("a mean needs at least one value, got none.")
    mean = math.fsum(values) / n
    if n == 1:
        return Estimate(mean, None, 1, "one seed, no interval")
    if n < LEAST_SEEDS:
        return Estimate(mean, None, n, f"{n} seeds, no interval", tuple(map(float, values)))
    return Estimate(mean, t_quantile(n - 1, level) * math.sqrt(_variance(values, mean) / n), n)


def difference(of: Mapping[int, float], against: Mapping[int, float], level: float = LEVEL) -> Estimate:
    """Mean of ``of`` minus mean of ``against``, both by seed.

    Runs of the same seed share their draws, so with two or more common seeds the difference is the paired one over
    those. With fewer, they are treated as independent: Welch's interval (Welch 1947, Biometrika 34), with the degrees
    of freedom of Satterthwaite.

    Raises:
        ConfigError: A side has no values.
    """
    if not of or not against:
        raise ConfigError("a difference needs at least one seed on each side.")
    common = sorted(of.keys() & against.keys())
    if len(common) >= 2:
        paired = mean_interval([of[s] - against[s] for s in common], level)
        return Estimate(paired.mean, paired.half, paired.n, f"paired over {paired.n} common seeds", paired.values)
    if common and len(of) == len(against) == 1:
        return Estimate(of[common[0]] - against[common[0]], None, 1, "one seed, no interval")
    a, b = list(of.values()), list(against.values())
    mean_a, mean_b = math.fsum(a) / len(a), math.fsum(b) / len(b)
    if min(len(a), len(b)) < LEAST_SEEDS:
        method = f"{len(a)} and {len(b)} seeds, no interval"
        return Estimate(mean_a - mean_b, None, min(len(a), len(b)), method)
    part_a, part_b = _variance(a, mean_a) / len(a), _variance(b, mean_b) / len(b)
    error = part_a + part_b
    # Equal values on both sides leave no variance, and 0 / 0 degrees of freedom.
    half = 0.0
    if error > 0:
        freedom = error**2 / (part_a**2 / (len(a) - 1) + part_b**2 / (len(b) - 1))
        half = t_quantile(freedom, level) * math.sqrt(error)
    return Estimate(mean_a - mean_b, half, min(len(a), len(b)), f"Welch, {len(a)} and {len(b)} seeds")


def _variance(values: Sequence[float], mean: float) -> float:
    return math.fsum((v - mean) ** 2 for v in values) / (len(values) - 1)


def final_values(metrics: Frame, split: str, measure: str) -> dict[int, float]:
    """Each seed's value at the end.

    Offline splits: the last evaluation that every seed has reached. ``"online"``: the mean over the last tenth of the
    rounds that every seed has reached.

    Args:
        metrics: Long form, as in :class:`fedrank.report.load.Run`.
        split: ``"online"``, ``"train"``, ``"vali"`` or ``"test"``.
        measure: Name of the measure.

    Returns:
        By seed, ascending; empty if there are no such rows.
    """
    rows = metrics.where(split=split, measure=measure)
    if not len(rows):
        return {}
    rounds = np.unique(rows["round"])
    rounds = rounds[rounds <= min(part["round"].max() for _, part in rows.groups("seed"))]
    count = max(1, math.ceil(len(rounds) * ONLINE_TAIL)) if split == "online" else 1
    return rows[np.isin(rows["round"], rounds[-count:])].means("seed")


def first_values(metrics: Frame, split: str, measure: str) -> dict[int, float]:
    """Each seed's value at its first evaluation, before anything was learnt; by seed, ascending."""
    rows = metrics.where(split=split, measure=measure).sort("round")
    return {seed: float(part["value"][0]) for (seed,), part in rows.groups("seed")}


def curve(metrics: Frame, split: str, measure: str, *, points: int = POINTS) -> tuple[Frame, int]:
    """A learning curve over seeds.

    Curves longer than ``points`` are thinned: the online reward by averaging blocks of neighbouring rounds within each
    seed (it is a sample, so averaging loses nothing but detail), other measures by keeping evenly spaced evaluations,
    the first and the last among them.

    Returns:
        A frame with columns ``round, interactions, bytes_up, epsilon, mean, low, high, n``, one row a point, and the
        number of rounds in a point. ``low`` and ``high`` are NaN with fewer than three seeds.
    """
    rows = metrics.where(split=split, measure=measure)
    rounds = np.unique(rows["round"])
    block, place = 1, np.searchsorted(rounds, rows["round"])
    if len(rounds) > points and split == "online":
        block = math.ceil(len(rounds) / points)
        place //= block
        blocks = rows.with_columns({"point": place}).groups("seed", "point")
        last = {name: [part[name].max() for _, part in blocks] for name in _POSITIONS}
        rows = Frame({"value": [part["value"].mean() for _, part in blocks], **last})
        place = np.array([point for (_, point), _ in blocks])
    elif len(rounds) > points:
        kept = sorted({round(i * (len(rounds) - 1) / (points - 1)) for i in range(points)})
        mask = np.isin(place, kept)
        rows, place = rows[mask], place[mask]
    return Frame.of_rows(
        (_point(part) for _, part in rows.with_columns({"point": place}).groups("point")), _CURVE
    ), block


#: What one curve holds of each point.
_POSITIONS = ("round", "interactions", "bytes_up", "epsilon")
_CURVE = {
    "round": int, "interactions": float, "bytes_up": float, "epsilon": float,
    "mean": float, "low": float, "high": float, "n": int,
}  # fmt: skip


def _point(rows: Frame) -> tuple[Any, ...]:
    """The rows of one point of a curve, one a seed, as one row of it."""
    n, mean, half = len(rows), rows["value"].mean(), math.nan
    if n >= LEAST_SEEDS:
        with np.errstate(invalid="ignore"):  # infinite values have no interval
            half = t_quantile(n - 1) * rows["value"].std(ddof=1) / math.sqrt(n)
    # Seeds may differ in what crossed: a bandit asks whom it chooses. ε is what the worst of them spent.
    crossed = (rows["interactions"].mean(), rows["bytes_up"].mean(), np.fmax.reduce(rows["epsilon"]))
    return rows["round"].max(), *crossed, mean, mean - half, mean + half, n


def direction(estimate: Estimate | None) -> str:
    """The direction of an interval: ``"gain"``, ``"loss"``, ``"neither"``; ``"unknown"`` if there is no interval."""
    if estimate is None or estimate.low is None or estimate.high is None:
        return "unknown"
    return "gain" if estimate.low > 0 else "loss" if estimate.high < 0 else "neither"


def p_value(p: float | None) -> str:
    """A p-value with two significant digits, ``< 0.0001`` or ``> 0.99``; a dash for none.

    >>> [p_value(p) for p in (0.00003, 0.0213, 0.9951, None)]
    ['< 0.0001', '0.021', '> 0.99', '–']
    """
    if p is None or p != p:
        return "–"
    return "< 0.0001" if p < 1e-4 else "> 0.99" if p > 0.99 else f"{p:.2g}"


def p_is(p: float | None) -> str:
    """The same after the letter, for a sentence: ``p = 0.021``, ``p < 0.0001``."""
    said = p_value(p)
    return f"p {said}" if said[0] in "<>" else f"p = {said}"
