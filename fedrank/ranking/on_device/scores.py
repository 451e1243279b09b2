"""Scores with NumPy alone, for devices: the same rankers, by their shape.

A ranker's :meth:`~fedrank.ranking.rankers.base.Ranker.kernel_shape` is all that a device needs to know about it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fedrank.core.errors import ConfigError

if TYPE_CHECKING:  # a device, which runs this, has NumPy only
    from jaxtyping import Float32


def weights_of(n_features: int, hidden: int) -> int:
    """Number of weights of the ranker of this shape: f, or hidden·(f + 2)."""
    if n_features < 1 or hidden < 0:
        raise ConfigError(f"a ranker needs features ≥ 1 and hidden units ≥ 0, got {n_features} and {hidden}.")
    return hidden * (n_features + 2) if hidden else n_features


def portable_scores(
    weights: Float32[np.ndarray, " parameters"], features: Float32[np.ndarray, "documents features"], hidden: int
) -> Float32[np.ndarray, " documents"]:
    """Scores of documents; a higher score ranks first.

    Args:
        weights: float32 [size], in the order of :class:`~fedrank.ranking.rankers.linear.Linear` without hidden units
        and of
            :class:`~fedrank.ranking.rankers.mlp.TwoLayer` with some.
        features: float32 [documents, f].
        hidden: Hidden units; 0 for the linear ranker.

    Returns:
        float32 [documents].

    >>> portable_scores(np.float32([1, 2]), np.float32([[3, 4], [5, 6]]), hidden=0)
    array([11., 17.], dtype=float32)
    """
    if not hidden:
        return features @ weights
    f = features.shape[1]
    into, bias = weights[: hidden * f].reshape(hidden, f), weights[hidden * f : hidden * (f + 1)]
    return np.maximum(features @ into.T + bias, np.float32(0)) @ weights[hidden * (f + 1) :]
