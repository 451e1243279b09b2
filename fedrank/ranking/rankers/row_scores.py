"""Scores of rows on the CPU by a kernel that treats each row by itself, so that a score depends on its row only."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Float32

from fedrank.core.arrays import AnyArray
from fedrank.core.compiled import njit, prange
from fedrank.core.kernels import ONE_AT_A_TIME, check_shapes, freeze


@njit(cache=True, nogil=True, parallel=True, fastmath={"contract", "reassoc"})
def _fill(features, weights, hidden, out):
    rows, f = features.shape
    into = hidden * f
    for i in prange(rows):
        row = features[i]
        total = np.float32(0)
        if hidden == 0:
            for j in range(f):
                total += weights[j] * row[j]
        for h in range(hidden):
            of_unit = weights[h * f : (h + 1) * f]
            z = np.float32(0)
            for j in range(f):
                z += of_unit[j] * row[j]
            z += weights[into + h]
            total += weights[into + hidden + h] * max(z, np.float32(0))
        out[i] = total


def row_scores(
    weights: Float[AnyArray, "parameters"], features: Float[AnyArray, "rows features"], hidden: int
) -> Float32[np.ndarray, "rows"]:
    """Scores of rows, those of :class:`~fedrank.ranking.rankers.base.Ranker` but for rounding.

    Args:
        weights: float32 [size], in the order of the linear ranker, or with hidden units of the two-layer one.
        features: float32 [rows, f].
        hidden: Hidden units; 0 for the linear ranker.
    """
    features = freeze(features, np.float32)
    out = np.empty(len(features), np.float32)
    check_shapes(weights=(weights, (hidden * (features.shape[1] + 2) if hidden else features.shape[1],)))
    with ONE_AT_A_TIME:
        _fill(features, freeze(weights, np.float32), hidden, out)
    return out
