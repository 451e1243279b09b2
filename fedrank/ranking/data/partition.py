"""Shares: which queries each party of a simulation holds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedrank.core.errors import ConfigError
from fedrank.core.lazy import dataclass_of_arrays, jax


@dataclass_of_arrays
@dataclass(frozen=True)
class Shares:
    """The queries of each party; a JAX pytree.

    Party p holds ``queries[first[p] : first[p] + count[p]]``, at least one query. Shares may overlap, so a
    million parties that hold everything cost no more memory than one.

    Attributes:
        queries: int32 [m], indices into a query set.
        first: int32 [parties].
        count: int32 [parties], at least 1.
    """

    queries: np.ndarray | jax.Array
    first: np.ndarray | jax.Array
    count: np.ndarray | jax.Array

    @property
    def parties(self) -> int:
        """Number of parties that hold a share."""
        return self.first.shape[0]

    def of(self, party: int) -> np.ndarray | jax.Array:
        """The queries of one party: int32 [count[party]]."""
        return self.queries[self.first[party] : self.first[party] + self.count[party]]


def uniform(n_queries: int, parties: int) -> Shares:
    """Every party holds all queries: users ask what anybody may ask.

    The setting of Kharitonov 2019 and of Wang et al. 2021, where each user's query is drawn uniformly from
    the data set.

    Raises:
        ConfigError: No queries or no parties.

    >>> uniform(3, parties=2).of(1)
    array([0, 1, 2], dtype=int32)
    """
    _check(n_queries, parties)
    return Shares(
        np.arange(n_queries, dtype=np.int32),
        np.zeros(parties, np.int32),
        np.full(parties, n_queries, np.int32),
    )


def fixed_share(n_queries: int, parties: int, per_party: int | None = None, seed: int = 0) -> Shares:
    """Every party keeps a fixed share of the queries, all shares of one size.

    If there are enough queries (``parties * per_party <= n_queries``) the shares are disjoint: the queries
    are shuffled and dealt out, and those left over belong to no party. Otherwise each party draws its share by
    itself, without replacement, so a query may be held by several parties but by none twice.

    Args:
        n_queries: Queries of the data set.
        parties: Number of parties.
        per_party: Queries of each; by default ``n_queries // parties``, and at least 1.
        seed: Seed of the draw (PCG64).

    Raises:
        ConfigError: No queries, no parties, or a share that is empty or larger than the data set.
    """
    _check(n_queries, parties)
    size = max(1, n_queries // parties) if per_party is None else per_party
    if not 1 <= size <= n_queries:
        raise ConfigError(f"a share must hold 1..{n_queries} queries, as many as the data set has; got {size}.")
    if parties * size > np.iinfo(np.int32).max:
        raise ConfigError(f"{parties} parties with {size} queries each are more than 32 bits can index; take fewer.")
    rng = np.random.Generator(np.random.PCG64(seed))
    if parties * size <= n_queries:
        queries = rng.permutation(n_queries)[: parties * size]
    else:
        queries = np.concatenate([rng.choice(n_queries, size, replace=False) for _ in range(parties)])
    return Shares(
        queries.astype(np.int32),
        np.arange(parties, dtype=np.int32) * np.int32(size),
        np.full(parties, size, np.int32),
    )


def _check(n_queries: int, parties: int) -> None:
    if not 1 <= n_queries <= np.iinfo(np.int32).max:
        raise ConfigError(f"a partition needs at least one query (and at most 2³¹ − 1), got {n_queries}.")
    if not 1 <= parties <= np.iinfo(np.int32).max:
        raise ConfigError(f"parties must be at least 1 (and at most 2³¹ − 1), got {parties}.")
