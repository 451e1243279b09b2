"""Scores of documents that do not depend on which other documents are scored with them.

A compiled product of matrices adds up in an order that depends on the shapes, so that the last bit of a document's
score would depend on how many others there are. Here every document is scored by one compiled program for a fixed
number of rows: a model that is loaded from a file gives what the run's own evaluation saw, to the last bit.
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Float32

from fedrank.core.arrays import AnyArray
from fedrank.ranking.rankers.base import Ranker

#: Documents that are scored at once; the last ones are filled up with zeros.
ROWS = 1024


@functools.partial(jax.jit, static_argnums=0)
def _block(ranker: Ranker, weights: Float[Array, "parameters"], features: Float[Array, "rows features"]) -> jax.Array:
    return ranker.scores(weights, features)


def blocks(features: Float[np.ndarray, "documents features"]) -> list[Float[Array, "rows features"]]:
    """The documents in blocks of :data:`ROWS`, the last one filled up with zeros, on the device that computes."""
    features = np.asarray(features, np.float32)
    filled = np.zeros((-(-max(1, len(features)) // ROWS) * ROWS, features.shape[1]), np.float32)
    filled[: len(features)] = features
    return [jnp.asarray(filled[at : at + ROWS]) for at in range(0, len(filled), ROWS)]


def scores(
    ranker: Ranker,
    weights: Float[AnyArray, "parameters"],
    documents: list[Float[Array, "rows features"]],
    n_documents: int,
) -> Float32[np.ndarray, "documents"]:
    """Scores of documents.

    Args:
        ranker: The ranker.
        weights: Its weights.
        documents: As :func:`blocks` makes them.
        n_documents: Number of documents in all blocks.

    Returns:
        float32 [n_documents].
    """
    vector = jnp.asarray(weights, jnp.float32)
    parts = [_block(ranker, vector, block) for block in documents]  # all are under way before one is waited for
    return np.concatenate([np.asarray(part, np.float32) for part in parts])[:n_documents]
