"""Scores of documents: by a kernel on the CPU where it knows the ranker, else by JAX.

A run's evaluation and a model that is loaded from a file score here, so that they agree to the last bit.
"""

from __future__ import annotations

import functools

import numpy as np
from jaxtyping import Float, Float32

from fedrank.core.arrays import AnyArray
from fedrank.core.arrays import JaxArray as Array
from fedrank.core.compiled import njit, prange
from fedrank.core.kernels import ONE_AT_A_TIME, check_shapes, freeze
from fedrank.core.lazy import on_cpu
from fedrank.engine.scoring import blocks, scores
from fedrank.ranking.rankers.base import Ranker


class Documents:
    """Documents that rankers score.

    Args:
        features: float32 [documents, f].
    """

    def __init__(self, features: Float[np.ndarray, "documents features"]):
        self._features = features

    @functools.cached_property
    def _blocks(self) -> list[Float[Array, "block_rows features"]]:
        return blocks(self._features)

    def scores(self, ranker: Ranker, weights: Float[AnyArray, "parameters"]) -> Float32[np.ndarray, "documents"]:
        """The scores by a model.

        Args:
            ranker: What ranks.
            weights: float32 [parameters].
        """
        shape = ranker.kernel_shape()
        if shape is not None and on_cpu():
            return row_scores(weights, self._features, shape[1])
        return scores(ranker, weights, self._blocks, len(self._features))


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
    """Scores of rows, each by itself, so that a score depends on its row only; those of a ranker but for rounding.

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
