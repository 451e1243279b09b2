"""Who contributed how much: exact Shapley values of the silos that help a target.

An Extreme-Explore round over all combinations gives the value v(S) of every set S of helpers: what the target reaches
together with S, or its increment. From these 2^(k−1) values follows a share for every helper: its marginal
v(S + j) − v(S), averaged over all orders in which helpers may join (Shapley 1953). The shares add up to
v(all) − v(nobody), a helper that never changes anything gets 0, equal helpers get equal shares.

Values are noisy: give :func:`fedrank.silos.bandits.statistics.intervals` those of many rounds or seeds. A missing value
(NaN) makes its round NaN.
"""

from __future__ import annotations

import functools
import math

import numpy as np
from jaxtyping import Float

from fedrank.core.errors import DataError
from fedrank.silos.bandits.arms import MOST_COMBINED


def shapley(values: Float[np.ndarray, "*games sets"]) -> Float[np.ndarray, "*games helpers"]:
    """Shapley values of helpers.

    Args:
        values: The value of each of the 2^(k−1) combinations in the order of
            :func:`fedrank.silos.bandits.arms.combinations`: entry 0 is the target alone, bit i is the i-th helper.

    Returns:
        Shares of the k − 1 helpers in the units of the values. Their sum is the value of everyone minus that of the
        target alone.

    Raises:
        DataError: The number of values is not 2^1 … 2^11.

    Source:
        Shapley: *A value for n-person games*, 1953. φⱼ is the mean of v(S + j) − v(S) over all orders of joining,
        with S those who joined before j.

    >>> shapley(np.array([0.0, 1.0, 2.0, 4.0]))
    array([1.5, 2.5])
    """
    return values @ _weights(_helpers(values)).astype(values.dtype)


def _helpers(values: Float[np.ndarray, "..."]) -> int:
    """Number of helpers whose combinations there are values of."""
    arms = values.shape[-1] if values.ndim else 0
    helpers = int(arms).bit_length() - 1
    if not 1 <= helpers < MOST_COMBINED or arms != 2**helpers:
        raise DataError(
            f"Contributions need the values of all combinations of 1 to {MOST_COMBINED - 1} helpers, a power of two of "
            f"them, got {arms}."
        )
    return helpers


@functools.cache
def _weights(helpers: int) -> Float[np.ndarray, "sets helpers"]:
    """The weight of every set's value in every helper's share; negative where the helper is not in the set."""
    inside = (np.arange(2**helpers)[:, None] >> np.arange(helpers)) % 2 == 1
    before = inside.sum(axis=1)[:, None] - inside  # the size of S, without the helper itself
    sizes = [1 / (helpers * math.comb(helpers - 1, size)) for size in range(helpers)]
    weight = np.array(sizes)[before]
    return np.where(inside, weight, -weight)
