"""Who contributed how much: exact Shapley and Banzhaf values of the silos that help a target.

An Extreme-Explore round over all combinations gives the value v(S) of every set S of helpers: what the target reaches
together with S, or its increment. From these 2^(k−1) values follows a share for every helper.

* **Shapley** (1953): a helper's marginal v(S + j) − v(S), averaged over all orders in which helpers may join. The
  shares add up to v(all) − v(nobody), a helper that never changes anything gets 0, equal helpers get equal shares.
* **Banzhaf** (1965): the marginal averaged over all S alike. It does not add up. With equally noisy values it is the
  less noisy of the two, for equal weights have the least sum of squares (Wang and Jia, *Data Banzhaf*, AISTATS 2023).

Values are noisy: give :func:`intervals` those of many rounds or seeds. A missing value (NaN) makes its round NaN.
"""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import numpy as np

from fedrank.core.errors import DataError
from fedrank.silos.bandits.arms import MOST_COMBINED


class Intervals(NamedTuple):
    """Means with confidence intervals.

    Attributes:
        mean: float64 [k − 1].
        lower: float64 [k − 1], NaN with fewer than two samples.
        upper: float64 [k − 1], likewise.
        n: int [k − 1], samples that were not NaN.
    """

    mean: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    n: np.ndarray


def shapley(values: Any) -> Any:
    """Shapley values of helpers.

    Args:
        values: [..., 2^(k−1)], NumPy or JAX, the value of every combination in the order of
            :func:`fedrank.silos.bandits.arms.combinations`: entry 0 is the target alone, bit i is the i-th helper.

    Returns:
        [..., k − 1], shares of the helpers in the units of the values. Their sum is that of everyone minus that of the
        target alone.

    Raises:
        DataError: The number of values is not 2^1 … 2^11.

    Source:
        Shapley: *A value for n-person games*, 1953. φⱼ is the mean of v(S + j) − v(S) over all orders of joining,
        with S those who joined before j.

    >>> shapley(np.array([0.0, 1.0, 2.0, 4.0]))
    array([1.5, 2.5])
    """
    return values @ _weights(_helpers(values), True).astype(values.dtype)


def marginals(values: Any) -> Any:
    """Banzhaf values of helpers: v(S + j) − v(S), averaged over all sets S of the other helpers.

    Args:
        values: As for :func:`shapley`.

    Returns:
        [..., k − 1]. Their sum is in general not the value of everyone.

    Raises:
        DataError: The number of values is not 2^1 … 2^11.
    """
    return values @ _weights(_helpers(values), False).astype(values.dtype)


def intervals(samples: Any, level: float = 0.95) -> Intervals:
    """Mean and Student's t-interval of every helper over rounds or seeds.

    Rounds of one run depend on each other, for each starts from the model of the one before: an interval over rounds is
    too short. Average over a run's rounds first and give one sample a seed.

    Args:
        samples: [samples, k − 1]; NaN is no sample.
        level: Confidence.

    Returns:
        Intervals for every helper.
    """
    from scipy import stats

    samples = np.asarray(samples, float)
    there = np.isfinite(samples)
    n = there.sum(axis=0)
    mean = np.where(there, samples, 0.0).sum(axis=0) / np.where(n > 0, n, np.nan)
    squares = np.where(there, samples - mean[None, :], 0.0) ** 2
    freedom = np.where(n > 1, n - 1, np.nan)
    error = np.sqrt(squares.sum(axis=0) / freedom / np.where(n > 0, n, np.nan))
    half = stats.t.ppf((1 + level) / 2, freedom) * error
    return Intervals(mean, mean - half, mean + half, n)


def _helpers(values: Any) -> int:
    arms = values.shape[-1] if values.ndim else 0
    helpers = int(arms).bit_length() - 1
    if not 1 <= helpers < MOST_COMBINED or arms != 2**helpers:
        raise DataError(
            f"Contributions need the values of all combinations of 1 to {MOST_COMBINED - 1} helpers, a power of two of "
            f"them, got {arms}."
        )
    return helpers


@functools.cache
def _weights(helpers: int, by_size: bool) -> np.ndarray:
    """float64 [2^helpers, helpers]: the weight of every value in every helper's share; minus where it is not in."""
    inside = (np.arange(2**helpers)[:, None] >> np.arange(helpers)) % 2 == 1
    before = inside.sum(axis=1)[:, None] - inside  # the size of S, without the helper itself
    if by_size:
        sizes = [1 / (helpers * math.comb(helpers - 1, size)) for size in range(helpers)]
        weight = np.array(sizes)[before]
    else:
        weight = np.full(before.shape, 0.5 ** (helpers - 1))
    return np.where(inside, weight, -weight)
