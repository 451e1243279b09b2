"""Scores of rows of a table by a silo's network, which do not depend on which other rows are scored with them.

A product of matrices adds up in an order that depends on the shapes, so that the last bit of a row's score would depend
on how many others there are. Rows are therefore scored in blocks of one size: a model that is loaded from a file gives
what the run's own evaluation saw, to the last bit on the same machine.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Float32

from fedrank.silos.network import TabularNetwork

#: Rows of a block: a silo's validation rows are few.
ROWS = 128


def blocks(x: Float[np.ndarray, "rows features"]) -> Float32[np.ndarray, "blocks block_rows features"]:
    """Rows in blocks of :data:`ROWS`, the last one filled up with zeros."""
    x = np.asarray(x, np.float32)
    filled = np.zeros((-(-max(1, len(x)) // ROWS) * ROWS, x.shape[1]), np.float32)
    filled[: len(x)] = x
    return filled.reshape(-1, ROWS, x.shape[1])


def scores(
    network: TabularNetwork,
    weights: Float[np.ndarray, " size"],
    parts: Float[np.ndarray, "blocks block_rows features"],
    n_rows: int,
) -> Float32[np.ndarray, " rows"]:
    """Log-odds of label 1.

    Args:
        network: The network.
        weights: All of its numbers.
        parts: The rows as :func:`blocks` makes them.
        n_rows: Number of rows in all blocks, without what fills up the last one.

    Returns:
        float32 [n_rows].
    """
    model = np.ascontiguousarray(weights, np.float32)
    with np.errstate(all="ignore"):  # a model that diverged scores no numbers
        return np.concatenate([network.scores(model, part) for part in parts])[:n_rows]
