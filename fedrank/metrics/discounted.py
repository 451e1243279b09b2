"""Performance over a whole run as a discounted sum: later rounds count less."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Shaped

from fedrank.core.arrays import AnyArray
from fedrank.core.errors import ConfigError


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
        values: float [rounds, ...], such as the mean nDCG@10 of what users were shown in each round.
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
