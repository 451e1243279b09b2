"""Measures of a policy's returns: mean and interval, time to a threshold, and the discounted sum over a run.

:func:`mean_interval` of returns on fresh episodes and :func:`time_to_threshold` on an independent evaluation curve are
what to report.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Shaped

from fedrank.core.arrays import AnyArray
from fedrank.core.errors import ConfigError

#: Coverage of an interval.
LEVEL = 0.95


#: Seeds without which a mean has no interval: Student's t of two is thirteen standard errors wide.
LEAST_SEEDS = 3


class MeanInterval(NamedTuple):
    """A mean and its two-sided interval.

    Attributes:
        mean: The mean.
        low: Lower end; NaN for fewer than :data:`LEAST_SEEDS` values.
        high: Upper end; NaN for fewer.
    """

    mean: float
    low: float
    high: float


def time_to_threshold(
    episodes: Sequence[float] | Shaped[AnyArray, "..."],
    values: Sequence[float] | Shaped[AnyArray, "..."],
    threshold: float,
    stay: int = 1,
) -> float:
    """The time at which an evaluation curve reaches a threshold and stays there for a number of evaluations.

    Args:
        episodes: float [points], ascending: episodes (or rounds) played at each evaluation.
        values: float [points], mean return of the policy on fresh episodes.
        threshold: The mean return that must be reached.
        stay: Evaluations in a row that must reach it; the time is that of the first of them.

    Returns:
        The time of the first such evaluation; infinity if there is none.

    Raises:
        ConfigError: The two differ in length, times do not ascend, or ``stay`` is below 1.

    >>> time_to_threshold([0, 10, 20, 30], [1.0, 3.0, 2.0, 4.0], 2.5)
    10.0
    >>> time_to_threshold([0, 10, 20, 30], [1.0, 3.0, 2.0, 4.0], 9)
    inf
    """
    episodes, values = np.asarray(episodes, np.float64), np.asarray(values, np.float64)
    if episodes.ndim != 1 or episodes.shape != values.shape or np.any(np.diff(episodes) <= 0):
        raise ConfigError(
            f"A curve is as many ascending times as values, got shapes {episodes.shape} and {values.shape}."
        )
    if stay < 1:
        raise ConfigError(f"stay counts evaluations and must be at least 1, got {stay}.")
    reached = np.concatenate([[0], np.cumsum(values >= threshold)])
    starts = np.flatnonzero(reached[stay:] - reached[:-stay] == stay)
    return float(episodes[starts[0]]) if len(starts) else math.inf


def mean_interval(values: Sequence[float] | Shaped[AnyArray, "..."], level: float = LEVEL) -> MeanInterval:
    """Mean of independent values, such as one a seed, with Student's t interval.

    Args:
        values: float [seeds]; finite.
        level: Coverage, in (0, 1).

    Raises:
        ConfigError: No values, or a level out of range.

    >>> [round(x, 4) for x in mean_interval([0.6, 0.7, 0.8])]
    [0.7, 0.4516, 0.9484]
    """
    values = np.asarray(values, np.float64)
    if values.ndim != 1 or not len(values):
        raise ConfigError(f"A mean needs a list of at least one value, got shape {values.shape}.")
    if not 0 < level < 1:
        raise ConfigError(f"level must be inside (0, 1), got {level}. Use 0.95 for a 95 % interval.")
    mean = float(values.mean())
    if len(values) < LEAST_SEEDS:
        return MeanInterval(mean, math.nan, math.nan)
    from scipy.special import stdtrit  # scipy.stats has it too, and takes a second to import

    half = float(stdtrit(len(values) - 1, 0.5 + level / 2) * values.std(ddof=1) / math.sqrt(len(values)))
    return MeanInterval(mean, mean - half, mean + half)


def discounted_cumulative(
    values: Sequence[float] | Shaped[AnyArray, "*shape"], gamma: float = 0.9995
) -> Float[np.ndarray, "*shape"]:
    """Online performance: Σ over rounds t ≤ r of γ^(t−1)·v_t, after each round r.

    The unit of t is a round, as in FPDGD (Wang et al., ICTIR 2021), where a round is the interactions of all devices
    between two models. Online learning to rank elsewhere (Hofmann et al., CIKM 2011; Oosterhuis & de Rijke, CIKM 2018)
    discounts by impression, with the same γ = 0.9995: an impression after 10,000 others counts 0.7 %, and a sum over a
    long run is at most 2,000. The two are different numbers and cannot be compared; for the latter, give the value of
    each impression.

    Args:
        values: float [rounds, ...], such as the mean nDCG(dcg='exp-log2')@10 of what users were shown in each round.
        gamma: γ, in (0, 1]; 1 adds up without discount.

    Returns:
        float64 of the same shape.

    Raises:
        ConfigError: γ is out of range, or there is no axis of rounds.

    >>> discounted_cumulative([1.0, 1.0, 1.0], gamma=0.5)
    array([1.  , 1.5 , 1.75])
    """
    values = np.asarray(values, np.float64)
    if not 0 < gamma <= 1:
        raise ConfigError(f"gamma of a discounted sum must be in (0, 1], got {gamma}.")
    if values.ndim < 1:
        raise ConfigError("a discounted sum needs the value of each round, got a single number.")
    discounts = np.exp(math.log(gamma) * np.arange(len(values)))
    return np.cumsum(values * discounts.reshape(-1, *[1] * (values.ndim - 1)), axis=0)
