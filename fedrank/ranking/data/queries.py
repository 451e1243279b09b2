"""Queries with their judged documents, and the layouts the package computes on.

:class:`QuerySet` is the truth: all documents of all queries below one another, on the host. Two layouts are
made from it:

* :class:`PaddedQueries`, a JAX pytree [queries, documents, features] padded with zeros, for everything that
  is written in JAX. :meth:`QuerySet.buckets` cuts a set into groups of similar length, so that one long query
  does not pad all others;
* :class:`FeatureBlocks`, one feature-major block a query on the host, for the CPU kernels: they score a query
  by adding up contiguous columns, eight documents at a time.

Axes: ``q`` queries, ``d`` documents of a query, ``f`` features. Labels are grades, 0 = not relevant.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float, Int

from fedrank.core.errors import DataError
from fedrank.core.lazy import dataclass_of_arrays, jax, jnp, static

#: Blocks are padded to a multiple of this many documents: eight float32 are one 256-bit register.
LANES = 8


@dataclass(frozen=True, eq=False)
class QuerySet:
    """Queries, their documents' features and labels; checked on construction.

    Attributes:
        features: float32 [documents, f], finite.
        labels: int32 [documents], at least 0; 0 = not relevant.
        offsets: int64 [q + 1], from 0 to ``documents``, strictly ascending; query i owns the rows
            ``offsets[i]:offsets[i + 1]``, of which there is at least one.
        qids: str [q], the queries' names in their source.
        documents: str [documents], the documents' names in their source; None where it has none.
        name: Such as ``"mq2008/fold1/train"``.
        generated: True if the data was made up by a program.

    Raises:
        DataError: The arrays do not fit together, or hold values that no ranker can use.

    >>> two = QuerySet(np.eye(3), np.array([0, 2, 1]), np.array([0, 1, 3]), np.array(["a", "b"]))
    >>> two.n_queries, two.longest, two.max_label, two.lengths.tolist()
    (2, 2, 2, [1, 2])
    """

    features: np.ndarray = field(repr=False)
    labels: np.ndarray = field(repr=False)
    offsets: np.ndarray = field(repr=False)
    qids: np.ndarray = field(repr=False)
    name: str = ""
    generated: bool = False
    documents: np.ndarray | None = field(default=None, repr=False)

    def __post_init__(self):
        called = f"query set {self.name!r}" if self.name else "query set"
        for what, array in (
            ("features", _features(self.features, called)),
            ("labels", _labels(self.labels, called)),
            ("offsets", np.ascontiguousarray(_integers(self.offsets, f"offsets of {called}"), np.int64)),
            ("qids", np.asarray(self.qids, dtype=np.str_)),
        ):
            object.__setattr__(self, what, array)  # frozen: set once, here
        if len(self.labels) != len(self.features):
            raise DataError(
                f"labels of {called} must have one entry a document: got {len(self.labels)} labels for "
                f"{len(self.features)} rows of features."
            )
        if self.documents is not None and np.shape(self.documents) != self.labels.shape:
            raise DataError(
                f"documents of {called} must have one name a document: got shape {np.shape(self.documents)} for "
                f"{len(self.labels)} documents."
            )
        offsets = self.offsets
        if offsets.ndim != 1 or len(offsets) < 2:
            raise DataError(f"{called} must hold at least one query, got offsets of shape {offsets.shape}.")
        if offsets[0] != 0 or offsets[-1] != len(self.labels):
            raise DataError(
                f"offsets of {called} must run from 0 to the number of documents, {len(self.labels)}; "
                f"got {offsets[0]} to {offsets[-1]}."
            )
        steps = np.diff(offsets)
        if steps.min() < 1:
            query = int(np.argmin(steps >= 1))
            raise DataError(
                f"offsets of {called} must ascend, every query has at least one document; "
                f"query number {query} goes from {offsets[query]} to {offsets[query + 1]}."
            )
        if self.qids.shape != (len(offsets) - 1,):
            raise DataError(f"{called} has {len(offsets) - 1} queries but qids of shape {self.qids.shape}.")

    @property
    def n_queries(self) -> int:
        """Number of queries in the set."""
        return len(self.qids)

    @property
    def n_documents(self) -> int:
        """Number of documents of all queries together."""
        return len(self.labels)

    @property
    def n_features(self) -> int:
        """Number of features of each document, f."""
        return self.features.shape[1]

    @functools.cached_property
    def lengths(self) -> np.ndarray:
        """Documents of each query: int64 [q]."""
        return np.diff(self.offsets)

    @functools.cached_property
    def longest(self) -> int:
        """Number of documents of the longest query."""
        return int(self.lengths.max())

    @functools.cached_property
    def max_label(self) -> int:
        """The highest label that any document of the set has."""
        return int(self.labels.max())

    @functools.cached_property
    def has_relevant(self) -> np.ndarray:
        """Mask of the queries that have a relevant document (a label above 0): bool [q]."""
        return np.maximum.reduceat(self.labels, self.offsets[:-1]) > 0

    def select(self, indices: Sequence[int] | np.ndarray) -> QuerySet:
        """These queries, in the order given; a query may be taken more than once.

        Args:
            indices: Integers [n] in 0 .. n_queries − 1, or a bool mask [q].

        Raises:
            DataError: No such query, or none chosen.
        """
        chosen = np.asarray(indices)
        if chosen.dtype == bool:
            if chosen.shape != (self.n_queries,):
                raise DataError(f"a mask of queries must have shape ({self.n_queries},), got {chosen.shape}.")
            chosen = np.flatnonzero(chosen)
        if chosen.ndim != 1 or chosen.size == 0:
            raise DataError(f"select needs a list of at least one query, got an array of shape {chosen.shape}.")
        chosen = _integers(chosen, "indices of queries")
        if chosen.min() < 0 or chosen.max() >= self.n_queries:
            raise DataError(
                f"indices of queries must be in 0..{self.n_queries - 1}, got {chosen.min()}..{chosen.max()}."
            )
        offsets = np.concatenate([[0], np.cumsum(self.lengths[chosen])])
        # Row r of the result is the (r − offsets[i])-th row of the i-th chosen query.
        rows = np.arange(offsets[-1]) + np.repeat(self.offsets[chosen] - offsets[:-1], self.lengths[chosen])
        documents = None if self.documents is None else self.documents[rows]
        kept = (self.features[rows], self.labels[rows], offsets, self.qids[chosen])
        return QuerySet(*kept, self.name, self.generated, documents)

    def document_names(self, query: int) -> list[str]:
        """Names of a query's documents: those of the source, or the query's with their place in it, as in ``q7-3``."""
        first, last = self.offsets[query : query + 2].tolist()
        if self.documents is not None:
            return self.documents[first:last].tolist()
        return [f"{self.qids[query]}-{place}" for place in range(1, last - first + 1)]

    @functools.cached_property
    def comparable(self) -> bool:
        """True if any query has two documents of different labels; otherwise all orders are equally good."""
        return bool(
            (
                np.maximum.reduceat(self.labels, self.offsets[:-1])
                > np.minimum.reduceat(self.labels, self.offsets[:-1])
            ).any()
        )

    def padded(self) -> PaddedQueries:
        """All queries in rectangular arrays [q, longest, f]; large sets are better taken in :meth:`buckets`."""
        return pad(self.features, self.labels, self.lengths)

    def buckets(self, smallest: int = 16) -> list[tuple[np.ndarray, PaddedQueries]]:
        """The queries in groups of similar length, shortest first.

        A group takes the lengths up to ``smallest``, the next those up to twice as many, and so on, and is
        padded to its own longest query. So less than half of a group is padding, but for queries shorter than
        ``smallest / 2``.

        Returns:
            (int64 [n] indices of the queries, the queries padded) for each group that is not empty; every
            query is in one.

        Raises:
            DataError: ``smallest`` is below 1.
        """
        return [(chosen, self.select(chosen).padded()) for chosen in self.groups(smallest)]

    def groups(self, smallest: int = 16) -> list[np.ndarray]:
        """The groups of :meth:`buckets`: int64 [n], indices of the queries of each.

        Raises:
            DataError: ``smallest`` is below 1.
        """
        if smallest < 1:
            raise DataError(f"smallest bucket must hold at least 1 document, got {smallest}.")
        groups, low, high = [], 0, smallest
        while low < self.longest:
            chosen = np.flatnonzero((self.lengths > low) & (self.lengths <= high))
            if chosen.size:
                groups.append(chosen)
            low, high = high, 2 * high
        return groups

    def blocks(self) -> FeatureBlocks:
        """Feature-major host arrays for the CPU kernels; made once, then kept with this object."""
        return self._blocks

    @functools.cached_property
    def _blocks(self) -> FeatureBlocks:
        return feature_blocks(self.features, self.labels, self.offsets)


def concatenate(parts: Sequence[QuerySet], name: str = "", *, repeats: bool = False) -> QuerySet:
    """Several sets as one, in the order given.

    Args:
        parts: One or more sets.
        name: Of the whole.
        repeats: Whether a query may lie in two parts.

    Raises:
        DataError: Different numbers of features, or one query in two parts.
    """
    if not parts:
        raise DataError("concatenate needs at least one query set, got none.")
    seen: dict[str, int] = {}
    for number, part in enumerate(parts):
        if part.n_features != parts[0].n_features:
            raise DataError(
                f"parts must have the same number of features: {parts[0].name!r} has {parts[0].n_features}, "
                f"{part.name!r} has {part.n_features}."
            )
        for qid in () if repeats else part.qids.tolist():
            if seen.setdefault(qid, number) != number:
                raise DataError(
                    f"query {qid} occurs in two parts, {parts[seen[qid]].name!r} and {part.name!r}; "
                    "a query must lie in one."
                )
    starts = np.cumsum([0, *(part.n_documents for part in parts[:-1])])
    return QuerySet(
        np.concatenate([part.features for part in parts]),
        np.concatenate([part.labels for part in parts]),
        np.concatenate([[0], *(part.offsets[1:] + start for part, start in zip(parts, starts, strict=True))]),
        np.concatenate([part.qids for part in parts]),
        name,
        any(part.generated for part in parts),
        np.concatenate([part.documents for part in parts if part.documents is not None])
        if all(part.documents is not None for part in parts)
        else None,
    )


def _integers(values: np.ndarray, what: str) -> np.ndarray:
    """The values as they are if they are of an integer type, as int64 if they are whole numbers."""
    values = np.asarray(values)
    if values.dtype.kind in "iub":
        return values.astype(np.int64) if values.dtype.kind == "b" else values
    if values.dtype.kind != "f" or not np.all(np.isfinite(values) & (values == np.floor(values))):
        raise DataError(f"{what} must be whole numbers, got an array of {values.dtype}.")
    return values.astype(np.int64)


def _features(values: np.ndarray, called: str) -> np.ndarray:
    values = np.asarray(values)
    if values.ndim != 2 or values.shape[1] < 1 or values.dtype.kind not in "fiub":
        raise DataError(
            f"features of {called} must be numbers of shape [documents, features], "
            f"got {values.dtype} of shape {values.shape}."
        )
    with np.errstate(over="ignore"):
        values = np.ascontiguousarray(values, np.float32)
    if not np.isfinite(values).all():
        row, column = np.argwhere(~np.isfinite(values))[0]
        raise DataError(
            f"features of {called} must be finite in 32 bits: row {row}, feature {column + 1} is "
            f"{values[row, column]}. Replace missing values, or leave them out of the file, which makes them 0."
        )
    return values


#: What to do with labels that are no whole numbers.
TO_GRADES = "Multiply grades with halves by 2; write 1 and 0 for true and false."


def _labels(values: np.ndarray, called: str) -> np.ndarray:
    try:
        values = _integers(values, f"labels of {called}")
    except DataError as cause:
        raise DataError(f"{cause} {TO_GRADES}") from None
    if values.ndim != 1:
        raise DataError(f"labels of {called} must have shape [documents], got {values.shape}.")
    if values.size and (values.min() < 0 or values.max() > np.iinfo(np.int32).max):
        row = int(np.argmax((values < 0) | (values > np.iinfo(np.int32).max)))
        raise DataError(f"labels of {called} must be grades of at least 0, got {values[row]} in row {row}.")
    return np.ascontiguousarray(values, np.int32)


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
