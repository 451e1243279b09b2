"""The replay: a ring that forgets the oldest, and batches without replacement of which every one is equally likely."""

import collections
import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedrank.slates.learners.replay import add, empty, indices, take

EXAMPLE = {"seen": jnp.zeros(2), "slot": jnp.int32(0), "done": jnp.bool_(False)}
CAPACITY = 5


def row(number):
    """A row that shows which it is in each of its leaves."""
    number = jnp.asarray(number, jnp.int32)
    seen = jnp.stack([number, -number]).astype(jnp.float32)
    return {"seen": seen, "slot": number, "done": number % 2 == 0}


@functools.cache
def grown():
    """Two platforms' replays after each of thirteen rounds of a scan: leaves [13, ...]. One keeps 100 + the row."""

    def step(both, number):
        both = add(both[0], row(number)), add(both[1], row(100 + number))
        return both, both

    start = empty(CAPACITY, EXAMPLE), empty(CAPACITY, EXAMPLE)
    seen = jax.jit(lambda: jax.lax.scan(step, start, jnp.arange(1, 14))[1])()
    return jax.tree.map(np.asarray, seen)


quick_take = jax.jit(take)


@pytest.mark.parametrize("rows", [1, 3, 5, 6, 13])
def test_the_last_rows_are_kept_and_the_oldest_goes_first(rows):
    replay = jax.tree.map(lambda leaf: leaf[rows - 1], grown()[0])
    wanted = collections.deque(maxlen=CAPACITY)
    for number in range(1, rows + 1):
        wanted.append(number)
    assert replay.filled == len(wanted) and replay.position == rows % CAPACITY
    assert sorted(replay.rows["slot"][: len(wanted)].tolist()) == list(wanted)
    assert replay.rows["slot"][(replay.position - 1) % CAPACITY] == rows
    kept = quick_take(replay, np.int32([2, 0, 2, 1]))
    np.testing.assert_array_equal(kept["slot"], replay.rows["slot"][[2, 0, 2, 1]])
    np.testing.assert_array_equal(kept["seen"], np.stack([kept["slot"], -kept["slot"]], axis=1))
    np.testing.assert_array_equal(kept["done"][0], rows >= 3 and kept["slot"][0] % 2 == 0)


def test_an_empty_replay_has_no_rows_and_the_types_of_its_example():
    replay = empty(CAPACITY, EXAMPLE)
    assert replay.filled == replay.position == 0
    for kept, example in zip(jax.tree.leaves(replay.rows), jax.tree.leaves(EXAMPLE), strict=True):
        assert kept.dtype == example.dtype and kept.shape == (CAPACITY, *example.shape)


def test_adding_in_a_scan_copies_no_buffer():
    capacity, rounds = 50_000, 7
    start = empty(capacity, EXAMPLE)

    def run(replay):
        def step(kept, n):
            kept = add(kept, row(n))
            return kept, take(kept, jnp.int32([0, 1]))["slot"]

        return jax.lax.scan(step, replay, jnp.arange(rounds))

    memory = jax.jit(run, donate_argnums=0).lower(start).compile().memory_analysis()
    smallest = capacity * 1  # of the three buffers: a byte a row
    assert memory.temp_size_in_bytes < smallest
    assert memory.alias_size_in_bytes >= capacity * (8 + 4 + 1)


@functools.cache
def batches():
    """8,000 batches of four from a buffer of so many rows."""
    return jax.jit(lambda size: jax.vmap(lambda key: indices(key, size, 4))(jax.random.split(jax.random.key(5), 8_000)))


def test_every_subset_is_equally_likely():
    """Chi-squared over the 35 subsets of 4 in 7: the 99.99 % point with 34 degrees of freedom is 76.4."""
    chosen = np.sort(np.asarray(batches()(7)), axis=1)
    counts = collections.Counter(map(tuple, chosen.tolist()))
    assert set(counts) == set(itertools.combinations(range(7), 4))
    expected = len(chosen) / 35
    assert sum((count - expected) ** 2 / expected for count in counts.values()) < 76.4


@pytest.mark.parametrize("size", [4, 5, 50, 2000])
def test_a_batch_has_no_index_twice_and_none_beyond_the_rows(size):
    chosen = np.asarray(batches()(size))
    assert chosen.dtype == np.int32 and chosen.min() >= 0 and chosen.max() < size
    assert (np.diff(np.sort(chosen, axis=1), axis=1) > 0).all()
    often, expected = np.bincount(chosen.reshape(-1), minlength=size), len(chosen) * 4 / size
    assert np.abs(often - expected).max() <= 5.5 * np.sqrt(expected * (1 - 4 / size))


@pytest.mark.parametrize("size", [1, 2, 3])
def test_of_too_few_rows_none_comes_more_than_once_oftener_than_another(size):
    for batch in np.unique(np.asarray(batches()(size)), axis=0).tolist():
        often = np.bincount(batch, minlength=size)
        assert len(often) == size and np.ptp(often) <= 1


def test_an_empty_buffer_gives_its_first_place():
    np.testing.assert_array_equal(np.asarray(batches()(0)), 0)


def test_the_same_indices_give_two_platforms_the_same_moments():
    mine, other = jax.tree.map(lambda leaf: leaf[-1], grown())
    assert mine.filled == other.filled == CAPACITY
    chosen = batches()(CAPACITY)[0]
    first, second = quick_take(mine, chosen)["slot"], quick_take(other, chosen)["slot"]
    np.testing.assert_array_equal(second, first + 100)
    assert set(first.tolist()) <= set(range(9, 14)) and len(set(first.tolist())) == 4
