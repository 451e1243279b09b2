"""Batches without replacement, of which every one is equally likely."""

import collections
import functools
import itertools

import jax
import numpy as np

from fedrank.slates.fedslate.exchanges import sample_without_replacement


@functools.cache
def batches():
    """8,000 batches of four from a buffer of so many rows."""
    keys = jax.random.split(jax.random.key(5), 8_000)
    return jax.jit(lambda size: jax.vmap(lambda key: sample_without_replacement(key, size, 4))(keys))


def test_every_subset_is_equally_likely():
    """Chi-squared over the 35 subsets of 4 in 7: the 99.99 % point with 34 degrees of freedom is 76.4."""
    chosen = np.sort(np.asarray(batches()(7)), axis=1)
    counts = collections.Counter(map(tuple, chosen.tolist()))
    assert set(counts) == set(itertools.combinations(range(7), 4))
    expected = len(chosen) / 35
    assert sum((count - expected) ** 2 / expected for count in counts.values()) < 76.4


def test_a_batch_has_no_index_twice_and_none_beyond_the_rows():
    for size in [4, 5, 50, 2000]:
        chosen = np.asarray(batches()(size))
        assert chosen.dtype == np.int32 and chosen.min() >= 0 and chosen.max() < size
        assert (np.diff(np.sort(chosen, axis=1), axis=1) > 0).all()
        often, expected = np.bincount(chosen.reshape(-1), minlength=size), len(chosen) * 4 / size
        assert np.abs(often - expected).max() <= 5.5 * np.sqrt(expected * (1 - 4 / size))


def test_of_too_few_rows_none_comes_more_than_once_oftener_than_another():
    for size in [1, 2, 3]:
        for batch in np.unique(np.asarray(batches()(size)), axis=0).tolist():
            often = np.bincount(batch, minlength=size)
            assert len(often) == size and np.ptp(often) <= 1


def test_an_empty_buffer_gives_its_first_place():
    np.testing.assert_array_equal(np.asarray(batches()(0)), 0)
