"""Scores of documents: by a kernel on the CPU where it knows the ranker, else by JAX.

A run's evaluation and a model that is loaded from a file score here, so that they agree to the last bit.
"""

from __future__ import annotations

import functools

import numpy as np
from jaxtyping import Float, Float32

from fedrank.core.arrays import AnyArray
from fedrank.core.arrays import JaxArray as Array
from fedrank.core.backends import on_cpu
from fedrank.core.compiled import COMPILES
from fedrank.engine.scoring import blocks, scores
from fedrank.ranking.rankers.base import Ranker
from fedrank.ranking.rankers.row_scores import row_scores


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
        if shape is not None and COMPILES and on_cpu():
            return row_scores(weights, self._features, shape[1])
        return scores(ranker, weights, self._blocks, len(self._features))
