"""Online metrics: the quality of a session, computed from its clicks alone.

An online metric here takes finitely many values, as the privatisation needs (Kharitonov 2019, Section 3.3: "We assume
that the metric used takes a finite number of values"). Each value is an integer over a common denominator, so that sums
of rewards are exact and a message can carry them without rounding.

A *click pattern* is an integer whose bit i is set when the document at rank i + 1 was clicked.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from fedrank.core.errors import ConfigError
from fedrank.core.registry import Registry

if TYPE_CHECKING:  # a device, which runs this, has NumPy only
    from jaxtyping import Float64, Int32, Integer


@dataclass(frozen=True)
class OnlineMetric:
    """A reward with finitely many values.

    Attributes:
        name: Such as ``"MaxRR"``.
        depth: Number of top ranks whose clicks it uses.
        numerators: Integers, ascending, one for each value; value i is ``numerators[i] / scale``.
        scale: The common denominator.
        index: int32 [2**depth]: the number of the value that a click pattern has.
    """

    name: str
    depth: int
    numerators: tuple[int, ...]
    scale: int
    index: Int32[np.ndarray, " patterns"] = field(compare=False, repr=False)

    @property
    def n(self) -> int:
        """Number of values; n in the paper's equations (7) and (10)."""
        return len(self.numerators)

    @property
    def values(self) -> Float64[np.ndarray, " n"]:
        """The values, float64 [n], ascending."""
        return np.asarray(self.numerators, np.float64) / self.scale

    @property
    def largest(self) -> int:
        """The numerator of the largest value."""
        return self.numerators[-1]


#: Online metrics by name; each makes the metric for a depth.
REWARDS: Registry[Callable[[int], OnlineMetric]] = Registry("online metric")


#: Most ranks whose clicks a metric may use: 2**16 patterns.
MAX_DEPTH = 16


def _check_depth(name: str, depth: int) -> None:
    if not 1 <= depth <= MAX_DEPTH:
        raise ConfigError(f"depth of {name} must be in 1..{MAX_DEPTH}, got {depth}.")


@REWARDS.register(
    "MaxRR",
    summary="Reciprocal rank of the highest clicked result, 0 without a click.",
    citation="kharitonov2019foltr",
)
def max_rr(depth: int = 10) -> OnlineMetric:
    """Reciprocal rank of the highest click in the top ``depth``: n = depth + 1 values (Section 5 of the paper: n = 11).

    >>> max_rr(10).values[[0, 1, 10]]
    array([0. , 0.1, 1. ])
    """
    _check_depth("MaxRR", depth)
    scale = math.lcm(*range(1, depth + 1))
    patterns = np.arange(1 << depth)
    lowest_bit = np.where(patterns == 0, 0, np.log2(np.maximum(patterns & -patterns, 1)).astype(int))
    # Ascending values: 0, 1/depth, ..., 1/2, 1: a click at rank r is value number depth + 1 − r.
    index = np.where(patterns == 0, 0, depth - lowest_bit).astype(np.int32)
    return OnlineMetric("MaxRR", depth, (0, *(scale // rank for rank in range(depth, 0, -1))), scale, index)


#: Steps that rewards without a small common denominator are rounded to: 1/10,000.
_STEPS = 10_000


def _click_patterns(depth: int) -> Integer[np.ndarray, "patterns {depth}"]:
    """1 where a click pattern has a click at a rank, else 0: int [2**depth, depth]."""
    return (np.arange(1 << depth)[:, None] >> np.arange(depth)) & 1


def _in_steps(name: str, depth: int, steps: Float64[np.ndarray, " patterns"]) -> OnlineMetric:
    """The metric whose value of each pattern is given in steps of 1/10,000, rounded; halves to even."""
    numerators, index = np.unique(np.rint(steps).astype(int), return_inverse=True)
    return OnlineMetric(name, depth, tuple(int(v) for v in numerators), _STEPS, index.astype(np.int32))


def _gains(depth: int) -> Float64[np.ndarray, "{depth}"]:
    """The discount of each rank, 1 / log2(1 + rank)."""
    return np.array([1 / math.log2(1 + rank) for rank in range(1, depth + 1)])


@REWARDS.register("DCG", summary="Discounted count of the clicks.", citation="wang2021foltrstudy")
def click_dcg(depth: int = 10) -> OnlineMetric:
    """Σ over clicked ranks of 1 / log2(1 + rank), in steps of 1/10,000.

    Every pattern has a distinct value unless two round to the same step. The session without a click is one of the
    values, so privatisation covers it like any other. More clicks are not always better: an informational user stops at
    relevant results, so that this reward can fall while the ranking improves.
    """
    _check_depth("DCG", depth)
    return _in_steps("DCG", depth, _click_patterns(depth) @ _gains(depth) * _STEPS)


@REWARDS.register(
    "nDCG",
    summary="Discounted count of the clicks, over that of as many clicks at the top.",
    citation="wang2021foltrstudy",
)
def click_ndcg(depth: int = 10) -> OnlineMetric:
    """DCG of the clicks over the DCG of as many clicks at the first ranks, in steps of 1/10,000; 0 without a click.

    It rewards clicks at high ranks rather than many clicks, so that a user who stops early does not count against a
    ranking.
    """
    _check_depth("nDCG", depth)
    clicked, gains = _click_patterns(depth), _gains(depth)
    ideal = np.concatenate([[1.0], np.cumsum(gains)])[clicked.sum(axis=1)]
    return _in_steps("nDCG", depth, clicked @ gains / ideal * _STEPS)


@REWARDS.register(
    "MeanRR", summary="Mean reciprocal rank of the clicks, 0 without a click.", citation="wang2021foltrstudy"
)
def mean_rr(depth: int = 10) -> OnlineMetric:
    """Mean over the clicked results of 1/rank, in steps of 1/10,000; 0 without a click."""
    _check_depth("MeanRR", depth)
    clicked, scale = _click_patterns(depth), math.lcm(*range(1, depth + 1))
    # In whole numbers: ranks 4, 5, 8, 10 make half a step, and no machine's sums may decide which way that goes.
    whole = clicked @ (scale // np.arange(1, depth + 1))
    return _in_steps("MeanRR", depth, whole * _STEPS / (scale * np.maximum(clicked.sum(axis=1), 1)))


def discretise(metric: OnlineMetric, n: int) -> OnlineMetric:
    """The metric rounded to the nearest of ``n`` evenly spaced values from 0 to its largest.

    Fewer values need less noise for the same privacy: at equal p, ε of randomised response grows with log(n − 1). What
    is lost is resolution. (Kharitonov 2019, Section 3.3, assumes a metric that is or can be discretised.)

    Args:
        metric: An online metric.
        n: Number of values, at least 2.

    >>> discretise(max_rr(10), 3).values
    array([0. , 0.5, 1. ])
    """
    if n < 2:
        raise ConfigError(f"a reward needs at least 2 values, got {n}.")
    steps = n - 1
    nearest = np.floor(metric.values / metric.values[-1] * steps + 0.5).astype(int)  # halves go up
    common = math.gcd(metric.largest, steps * metric.scale)
    numerators = tuple(i * metric.largest // common for i in range(n))
    name = f"{metric.name} in {n} values"
    return OnlineMetric(
        name, metric.depth, numerators, steps * metric.scale // common, nearest[metric.index].astype(np.int32)
    )
