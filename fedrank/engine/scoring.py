"""Scores of rows that do not depend on which other rows are scored with them.

A compiled product of matrices adds up in an order that depends on the shapes, so that the last bit of a row's score
would depend on how many others there are. Here every row is scored by one compiled program for a fixed number of rows:
a model that is loaded from a file gives what the run's own evaluation saw, to the last bit.
"""

from __future__ import annotations

import functools
import itertools
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float, Float32, Int

from fedrank.core.arrays import AnyArray
from fedrank.core.arrays import JaxArray as Array
from fedrank.core.lazy import jax, jit, jnp

#: Rows that are scored at once, unless told otherwise; the last ones are filled up with zeros.
ROWS = 1024


@runtime_checkable
class Scorer(Protocol):
    """A scorer of rows by a flat vector of weights; hashable, since programs are compiled for it."""

    def scores(self, weights: Float[Array, "parameters"], features: Float[Array, "rows features"], /) -> jax.Array:
        """Scores of rows; a higher one ranks first.

        Args:
            weights: float32 [parameters], all weights of the model as one vector.
            features: float32 [rows, features].

        Returns:
            float32 [rows].
        """
        ...


@functools.partial(jit, static_argnums=0)
def _block(scorer: Scorer, weights: Float[Array, "parameters"], features: Float[Array, "rows features"]) -> jax.Array:
    return scorer.scores(weights, features)


def blocks(features: Float[np.ndarray, "rows features"], rows: int = ROWS) -> list[Float[Array, "block_rows features"]]:
    """The rows in blocks of one size, the last one filled up with zeros, on the device that computes.

    Args:
        features: All rows.
        rows: Rows of a block.
    """
    features = np.asarray(features, np.float32)
    filled = np.zeros((-(-max(1, len(features)) // rows) * rows, features.shape[1]), np.float32)
    filled[: len(features)] = features
    return [jnp.asarray(filled[at : at + rows]) for at in range(0, len(filled), rows)]


def scores(
    scorer: Scorer,
    weights: Float[AnyArray, "parameters"],
    parts: list[Float[Array, "block_rows features"]],
    n_rows: int,
) -> Float32[np.ndarray, "rows"]:
    """Scores of rows.

    Args:
        scorer: The ranker or the network.
        weights: Its weights.
        parts: The rows as :func:`blocks` makes them.
        n_rows: Number of rows in all blocks, without what fills up the last one.

    Returns:
        float32 [n_rows].
    """
    vector = jnp.asarray(weights, jnp.float32)
    found = [_block(scorer, vector, part) for part in parts]  # all are under way before one is waited for
    return np.concatenate([np.asarray(part, np.float32) for part in found])[:n_rows]


def best_first(found: Float[np.ndarray, "rows"], qid: Any = None) -> Int[np.ndarray, "rows"]:
    """Numbers of the rows, best first; with ``qid`` query after query in their order, best first in each.

    Args:
        found: A score a row; rows of equal scores stay in their order.
        qid: The query of each row, where rows of a query stand together; None: all are of one.
    """
    if qid is None:
        return np.argsort(-found, kind="stable")
    ids = np.asarray(qid)
    starts = [0, *(np.flatnonzero(ids[1:] != ids[:-1]) + 1).tolist(), len(ids)] if len(ids) else [0]
    parts = [a + np.argsort(-found[a:b], kind="stable") for a, b in itertools.pairwise(starts)]
    return np.concatenate([np.zeros(0, np.int64), *parts])
