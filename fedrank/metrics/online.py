"""Online metrics: how good a session was, from its clicks alone.

An online metric here takes finitely many values, as the privatisation needs (Kharitonov 2019, Section 3.3: "We assume
that the metric used takes a finite number of values"). Each value is an integer over a common denominator, so that sums
of rewards are exact and a message can carry them without rounding.

A *click pattern* is an integer whose bit i is set when the document at rank i + 1 was clicked.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from fedrank.core.errors import ConfigError
from fedrank.core.registry import Registry


@dataclass(frozen=True)
class OnlineMetric:
    """A reward with finitely many values.

    Attributes:
        name: Such as ``"MaxRR"``.
        depth: Ranks it looks at.
        numerators: Ascending integers, one a value; value i is ``numerators[i] / scale``.
        scale: The common denominator.
        index: int32 [2**depth]: the number of the value that a click pattern has.
    """

    name: str
    depth: int
    numerators: tuple[int, ...]
    scale: int
    index: np.ndarray = field(compare=False, repr=False)

    @property
    def n(self) -> int:
        """Number of values; n in the paper's equations (7) and (10)."""
        return len(self.numerators)

    @property
    def values(self) -> np.ndarray:
        """The values, float64 [n], ascending."""
        return np.asarray(self.numerators, np.float64) / self.scale

    @property
    def largest(self) -> int:
        """The largest numerator."""
        return self.numerators[-1]


#: Online metrics by name; each makes the metric for a depth.
REWARDS: Registry[Callable[[int], OnlineMetric]] = Registry("online metric")


def _check_depth(name: str, depth: int) -> None:
    if not 1 <= depth <= 10:
        raise ConfigError(f"depth of {name} must be in 1..10, got {depth}.")


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


@REWARDS.register("DCG", summary="Discounted count of the clicks.", citation="wang2021foltrstudy")
def click_dcg(depth: int = 10) -> OnlineMetric:
    """Σ over clicked ranks of 1 / log2(1 + rank), in steps of 1/10,000.

    Every pattern has a value of its own unless two round to the same step. The session without a click is one of the
    values, so privatisation covers it like any other. More clicks are not always better: an informational user stops at
    relevant results, so that this reward can fall while the ranking improves.
    """
    _check_depth("DCG", depth)
    scale = 10_000
    gains = np.array([1 / math.log2(1 + rank) for rank in range(1, depth + 1)])
    clicked = (np.arange(1 << depth)[:, None] >> np.arange(depth)) & 1
    steps = np.rint(clicked @ gains * scale).astype(int)
    numerators, index = np.unique(steps, return_inverse=True)
    return OnlineMetric("DCG", depth, tuple(int(v) for v in numerators), scale, index.astype(np.int32))
