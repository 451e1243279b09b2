"""What items earned at each position, counted at platforms and added up: the model of the doubly robust estimate.

Counts are sums, so that platforms that show the same items learn one model together without a row of their logs
leaving them.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from jaxtyping import Float64

from fedrank.slates.logged.log import Log

#: Rows that the mean above a mean counts as much as: of an item's positions, and of all items.
PRIOR = 10.0


def counts(logs: Iterable[Log]) -> Float64[np.ndarray, "2 items positions"]:
    """How often each item was shown at each position, and the sum of what it earned there, over all logs."""
    total: Float64[np.ndarray, "2 items positions"] | None = None
    for log in logs:
        shape = len(log.item_ids), len(log.position_ids)
        cells = log.items * shape[1] + log.positions
        one = np.stack([np.bincount(cells, weights, shape[0] * shape[1]) for weights in (None, log.rewards)])
        total = one.reshape(2, *shape) if total is None else total + one.reshape(2, *shape)
    assert total is not None, "no log"
    return total


def mean_rewards(
    counted: Float64[np.ndarray, "2 items positions"], prior: float = PRIOR
) -> Float64[np.ndarray, "items positions"]:
    """The mean reward of each item at each position, drawn to the item's own mean, and that to the mean of all.

    Args:
        counted: :func:`counts`.
        prior: Rows that the mean above counts as much as; above 0.
    """
    shown, earned = counted
    mean = earned.sum() / max(shown.sum(), 1.0)
    of_item = (earned.sum(axis=1) + prior * mean) / (shown.sum(axis=1) + prior)
    return (earned + prior * of_item[:, None]) / (shown + prior)
