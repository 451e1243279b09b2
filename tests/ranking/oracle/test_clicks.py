"""Cascade users against the printed tables and against a recursion over all sessions."""

import itertools
import math

import jax.numpy as jnp
import numpy as np
import pytest
from click_patterns import sample_pattern

from fedrank.core.errors import ConfigError, UnknownNameError
from fedrank.ranking.clicks.cascade import USERS, CascadeUser, cascade, pattern_probabilities

NAMES = ("perfect", "navigational", "informational")

# Kharitonov 2019, Table 1: P(click | label), P(stop | label).
TABLE_1 = {
    "perfect": ((0.0, 0.5, 1.0), (0.0, 0.0, 0.0)),
    "navigational": ((0.05, 0.5, 0.95), (0.2, 0.5, 0.9)),
    "informational": ((0.4, 0.7, 0.9), (0.1, 0.3, 0.5)),
}
# The same for five grades, as Wang et al. (ECIR 2021) use it on MSLR and Yahoo.
FIVE_GRADES = {
    "perfect": ((0.0, 0.2, 0.4, 0.8, 1.0), (0.0,) * 5),
    "navigational": ((0.05, 0.3, 0.5, 0.7, 0.95), (0.2, 0.3, 0.5, 0.7, 0.9)),
    "informational": ((0.4, 0.6, 0.7, 0.8, 0.9), (0.1, 0.2, 0.3, 0.4, 0.5)),
}


def sessions(user, labels, where, rank=0):
    """Every way a session can go on from a rank, as (clicked ranks, probability): the model told as a story."""
    if rank == len(labels) or not where[rank]:
        # Padding stands at the end of a list; a gap would be passed over.
        if rank < len(labels):
            yield from sessions(user, labels, where, rank + 1)
        else:
            yield (), 1.0
        return
    click, stop = user.click[labels[rank]], user.stop[labels[rank]]
    yield (rank,), click * stop
    for clicked, probability in sessions(user, labels, where, rank + 1):
        yield (rank, *clicked), click * (1 - stop) * probability
        yield clicked, (1 - click) * probability


def told(user, labels, where):
    probabilities = np.zeros(2 ** len(labels))
    for clicked, probability in sessions(user, labels, where):
        probabilities[sum(2**rank for rank in clicked)] += probability
    return probabilities


def test_tables():
    for name in NAMES:
        user = cascade(name, 3)
        assert (user.click, user.stop) == TABLE_1[name]
        user = cascade(name, 5)
        assert (user.click, user.stop) == FIVE_GRADES[name]
        # Fewer grades than the table has: the ends of the scale, or its beginning.
        assert cascade(name, 2).click == (TABLE_1[name][0][0], TABLE_1[name][0][2])
        assert cascade(name, 4).stop[:4] == FIVE_GRADES[name][1][:4]
        assert cascade(name).depth == 10
        # More: the five stand at equal distances, and halfway between two of them is their mean.
        for table, more in zip(FIVE_GRADES[name], (cascade(name, 9).click, cascade(name, 9).stop), strict=True):
            np.testing.assert_allclose(more[::2], table)
            np.testing.assert_allclose(more[1::2], np.add(table[:-1], table[1:]) / 2)
        assert len(cascade(name, 31).click) == 31
        with pytest.raises(ConfigError, match="labels up to 30, got labels up to 31"):
            cascade(name, 32)


@pytest.mark.parametrize("grades", [3, 5])
@pytest.mark.parametrize("name", NAMES)
def test_patterns_against_the_story(name, grades):
    user = cascade(name, grades)
    rng = np.random.default_rng(grades)
    labels = np.concatenate([np.arange(6)[None] % grades, rng.integers(0, grades, (11, 6))]).astype(np.int32)
    where = np.arange(6) < rng.integers(0, 7, (12, 1))
    where[:2] = [True] * 6, [False] * 6
    got = pattern_probabilities(user, labels, where)
    np.testing.assert_allclose(got, [told(user, y, w) for y, w in zip(labels, where, strict=True)], atol=2e-7)
    np.testing.assert_allclose(got.sum(axis=-1), 1.0, atol=1e-6)
    assert got[1].tolist() == [1.0] + [0.0] * 63  # nothing shown, nothing clicked


def test_two_ranks_by_hand():
    user = cascade("navigational")
    got = pattern_probabilities(user, np.array([2, 1], np.int32), np.ones(2, bool))
    none, first, second = 0.05 * 0.5, 0.95 * (0.9 + 0.1 * 0.5), 0.05 * 0.5
    np.testing.assert_allclose(got, [none, first, second, 0.95 * 0.1 * 0.5], rtol=1e-6)


def test_labels_of_padding_do_not_count():
    where = np.array([True, True, False])
    got, expected = (pattern_probabilities(cascade("navigational"), np.array([1, 2, last]), where) for last in (99, 0))
    np.testing.assert_array_equal(got, expected)


def test_ten_ranks_sum_to_one():
    user = cascade("informational", 5)
    labels = np.random.default_rng(2).integers(0, 5, (4, 10)).astype(np.int32)
    where = np.ones_like(labels, bool)
    got = pattern_probabilities(user, labels, where)
    assert got.shape == (4, 1024)
    np.testing.assert_allclose(got.sum(axis=-1), 1.0, atol=1e-5)
    np.testing.assert_allclose(got[0], told(user, labels[0], where[0]), atol=2e-7)


@pytest.mark.parametrize(("name", "grades"), list(itertools.product(NAMES, (3, 5))))
def test_sampled_frequencies(name, grades):
    user, draws = cascade(name, grades), 60_000
    labels = np.array([1, grades - 1, 0, grades // 2], np.int32)
    where = np.array([True, True, True, False])
    words = np.random.default_rng(7).integers(0, 2**32, (draws, 4), dtype=np.uint32)
    shown = jnp.tile(labels, (draws, 1)), jnp.tile(where, (draws, 1))
    patterns = sample_pattern(user, *shown, jnp.asarray(words))
    expected = told(user, labels, where) * draws
    observed = np.bincount(np.asarray(patterns), minlength=16)
    assert observed[expected == 0].sum() == 0
    possible = expected > 0
    chi_square = ((observed - expected)[possible] ** 2 / expected[possible]).sum()
    # Mean df, variance 2 df: five standard deviations above the mean. The words are fixed.
    degrees = possible.sum() - 1
    assert chi_square < degrees + 5 * math.sqrt(2 * degrees)


def test_draws_decide_as_specified():
    user = CascadeUser("half", click=(0.5,), stop=(0.5,), depth=3)
    labels, where = jnp.zeros(3, jnp.int32), jnp.ones(3, bool)

    def pattern(*chances):
        return int(sample_pattern(user, labels, where, jnp.array([int(c * 2**32) for c in chances], jnp.uint32)))

    assert pattern(0.5, 0.5, 0.5) == 0b000  # u = P(click) is no click
    assert pattern(0.49, 0.49, 0.49) == 0b111  # clicks, and reads on
    assert pattern(0.24, 0.0, 0.0) == 0b001  # clicks, and leaves
    assert pattern(0.9, 0.24, 0.0) == 0b010


def test_short_lists_never_click_where_nothing_is_shown():
    user = cascade("informational")
    words = jnp.full((1, 10), int(0.3 * 2**32), jnp.uint32)  # would click anything, and stop nowhere
    where = jnp.arange(10)[None] < 4
    labels = jnp.zeros((1, 10), jnp.int32)
    assert int(sample_pattern(user, labels, where, words)[0]) == 0b1111


def test_wrong_users():
    with pytest.raises(UnknownNameError, match="Did you mean 'navigational'"):
        cascade("navigatonal")
    with pytest.raises(ConfigError, match="labels up to 31"):
        cascade("perfect", 32)
    with pytest.raises(ConfigError, match=r"must be in \[0, 1\]"):
        CascadeUser("odd", click=(1.2,), stop=(0.0,))
    with pytest.raises(ConfigError, match="one click and one stop"):
        CascadeUser("odd", click=(1.0,), stop=())
    with pytest.raises(ConfigError, match="depth"):
        cascade("perfect", 3, 17)
    assert set(USERS.names()) > set(NAMES)
