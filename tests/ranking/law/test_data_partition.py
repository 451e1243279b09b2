"""Shares: sizes, disjointness, repetition, and a pytree."""

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedrank.core.errors import ConfigError
from fedrank.ranking.data.partition import fixed_share, uniform


def test_uniform_holds_everything():
    shares = uniform(5, parties=3)
    assert shares.parties == 3
    assert [shares.of(party).tolist() for party in range(3)] == [[0, 1, 2, 3, 4]] * 3
    assert {a.dtype.name for a in (shares.queries, shares.first, shares.count)} == {"int32"}
    assert len(shares.queries) == 5


@given(st.integers(1, 40), st.integers(1, 30), st.data())
@settings(max_examples=60, deadline=None)
def test_fixed_share(n_queries, parties, data):
    per_party = data.draw(st.one_of(st.none(), st.integers(1, n_queries)))
    shares = fixed_share(n_queries, parties, per_party, seed=data.draw(st.integers(0, 5)))
    size = per_party or max(1, n_queries // parties)
    held = [shares.of(party).tolist() for party in range(parties)]
    for queries in held:
        assert len(queries) == len(set(queries)) == size
        assert all(0 <= query < n_queries for query in queries)
    if parties * size <= n_queries:
        everything = [query for queries in held for query in queries]
        assert len(everything) == len(set(everything))


def test_fixed_share_repeats_with_its_seed():
    first, again, other = (fixed_share(100, 10, 7, seed=s).queries for s in (1, 1, 2))
    assert np.array_equal(first, again) and not np.array_equal(first, other)


def test_overlapping_shares_hold_each_query_alike():
    """20,000 shares of 3 out of 10: each query is held by 6,000 ± 5 standard deviations of 65."""
    held = np.bincount(fixed_share(10, 20_000, 3).queries, minlength=10)
    assert abs(held - 6000).max() < 5 * np.sqrt(20_000 * 0.3 * 0.7)


def test_shares_are_a_pytree():
    shares = fixed_share(12, 4)
    assert len(jax.tree.leaves(shares)) == 3
    assert jax.jit(lambda s: s.queries[s.first[1]] + s.count[0])(shares) == shares.of(1)[0] + 3


def test_refused():
    for make in [
        lambda: uniform(0, 1),
        lambda: uniform(1, 0),
        lambda: fixed_share(5, 0),
        lambda: fixed_share(0, 5),
        lambda: fixed_share(5, 2, per_party=6),
        lambda: fixed_share(5, 2, per_party=0),
        lambda: fixed_share(5, -1),
    ]:
        with pytest.raises(ConfigError, match="got"):
            make()
