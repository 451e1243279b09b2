"""The two layouts that queries are computed on: padded for JAX, feature-major for CPU kernels.

Both are made by :class:`~fedrank.ranking.data.queries.QuerySet`. Axes: ``q`` queries, ``d`` documents of a query,
``f`` features.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float, Int

from fedrank.core.lazy import dataclass_of_arrays, jax, jnp, static

#: Blocks are padded to a multiple of this many documents: eight float32 are one 256-bit register.
LANES = 8


@dataclass_of_arrays
@dataclass(frozen=True)
class PaddedQueries:
    """Queries of different lengths in rectangular arrays.

    Attributes:
        features: float32 [q, d, f]; 0 where there is no document.
        labels: int32 [q, d]; 0 where there is no document.
        length: int32 [q]: documents of each query; the first ``length`` places are taken.
    """

    features: jax.Array | np.ndarray
    labels: jax.Array | np.ndarray
    length: jax.Array | np.ndarray

    @property
    def where(self) -> jax.Array:
        """True where there is a document: bool [q, d]."""
        place = jax.lax.broadcasted_iota(jnp.int32, self.labels.shape, self.labels.ndim - 1)
        return place < self.length[..., None]


@static
@dataclass(frozen=True, eq=False)
class FeatureBlocks:
    """One feature-major block a query, for CPU kernels; a static pytree node, equal only to itself.

    Attributes:
        values: float32, 1-D. The block of query i is ``values[start[i] : start[i] + f * stride[i]]`` read as
            ``[f, stride[i]]`` in C order; places beyond ``length[i]`` hold 0.
        start: int64 [q].
        stride: int32 [q]: documents of the query, rounded up to a multiple of 8.
        labels: int32 [documents], query after query without padding.
        label_start: int64 [q]: where a query's labels begin.
        length: int32 [q]: documents of the query.
        n_features: f.
    """

    values: np.ndarray = field(repr=False)
    start: np.ndarray = field(repr=False)
    stride: np.ndarray = field(repr=False)
    labels: np.ndarray = field(repr=False)
    label_start: np.ndarray = field(repr=False)
    length: np.ndarray = field(repr=False)
    n_features: int

    def block(self, query: int) -> Float[np.ndarray, "features stride"]:
        """The block of one query: float32 [f, stride], a view."""
        start, stride = int(self.start[query]), int(self.stride[query])
        return self.values[start : start + self.n_features * stride].reshape(self.n_features, stride)


def pad(
    features: Float[np.ndarray, "documents features"],
    labels: Int[np.ndarray, "documents"],
    lengths: Int[np.ndarray, "queries"],
) -> PaddedQueries:
    """Rectangular arrays from rows that lie below one another.

    Args:
        features: float32 [documents, f].
        labels: int32 [documents].
        lengths: int64 [q], documents of each query; they add up to ``documents``.
    """
    where = np.arange(lengths.max()) < lengths[:, None]
    padded = np.zeros((*where.shape, features.shape[1]), np.float32)
    grades = np.zeros(where.shape, np.int32)
    padded[where], grades[where] = features, labels
    return PaddedQueries(jnp.asarray(padded), jnp.asarray(grades), jnp.asarray(lengths, jnp.int32))


def feature_blocks(
    features: Float[np.ndarray, "documents features"],
    labels: Int[np.ndarray, "documents"],
    offsets: Int[np.ndarray, "boundaries"],
) -> FeatureBlocks:
    """Feature-major blocks from rows that lie below one another.

    Args:
        features: float32 [documents, f].
        labels: int32 [documents].
        offsets: int64 [q + 1], query i owns the rows ``offsets[i]:offsets[i + 1]``.
    """
    lengths, n_features = np.diff(offsets), features.shape[1]
    stride = -(-lengths // LANES) * LANES
    ends = np.cumsum(stride * n_features)
    blocks = FeatureBlocks(
        values=np.zeros(ends[-1], np.float32),
        start=np.concatenate([[0], ends[:-1]]).astype(np.int64),
        stride=stride.astype(np.int32),
        labels=labels,
        label_start=offsets[:-1].copy(),
        length=lengths.astype(np.int32),
        n_features=n_features,
    )
    for query, (first, last) in enumerate(itertools.pairwise(offsets)):
        blocks.block(query)[:, : last - first] = features[first:last].T
    return blocks
