"""The result of an attack on texts, with its confidence interval."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass

import numpy as np
from jaxtyping import Float

from fedrank.core.trees import Json

#: Normal quantile of 99 % intervals.
QUANTILE = 2.5758


@dataclass(frozen=True)
class Finding:
    """Result of one attack.

    Attributes:
        attack: Name of the attack.
        mode: Name of the mode, and how it was asked where there are several ways.
        measure: Name of the quantity in ``measured`` and ``promised``.
        measured: Its mean over the trials.
        low: Lower end of its 99 % interval.
        high: Upper end.
        promised: The bound that the mode promises, or the error that its noise is meant to cause.
        broken: Whether the promise does not hold.
        trials: Number of trials.
        words: Explanation in a sentence.
        control: Whether the attacked mode is not offered, but leaves out a part of one that is.
    """

    attack: str
    mode: str
    measure: str
    measured: float
    low: float
    high: float
    promised: float
    broken: bool
    trials: int
    words: str
    control: bool = False

    def as_json(self) -> dict[str, Json]:
        """The finding as plain values."""
        return asdict(self)


def mean_interval(values: Float[np.ndarray, " trials"]) -> tuple[float, float]:
    """The normal 99 % interval of a mean; it may leave the range of the values."""
    mean, half = float(values.mean()), QUANTILE * float(values.std()) / math.sqrt(values.size)
    return mean - half, mean + half
