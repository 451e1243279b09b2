"""Contributions against brute force over the orders in which helpers may join, and against the axioms."""

import itertools

import numpy as np

from fedrank.silos.evidence import shapley


def by_orders(values):
    """A helper's mean gain on joining, over all orders; bit i of an index of ``values`` is helper i."""
    helpers = len(values).bit_length() - 1
    shares, orders = np.zeros(helpers), list(itertools.permutations(range(helpers)))
    for order in orders:
        inside = 0
        for helper in order:
            shares[helper] += values[inside | 1 << helper] - values[inside]
            inside |= 1 << helper
    return shares / len(orders)


def test_shares_are_those_of_brute_force():
    for helpers in [1, 2, 3, 5]:
        values = np.random.default_rng(helpers).normal(size=2**helpers)
        np.testing.assert_allclose(shapley(values), by_orders(values), atol=1e-12)


def test_many_games_at_once():
    values = np.random.default_rng(7).normal(size=(2, 3, 8)).astype(np.float32)
    np.testing.assert_allclose(shapley(values), np.apply_along_axis(by_orders, -1, values), atol=1e-6)


def test_shapley_shares_add_up_to_what_all_gain():
    for helpers in [2, 6, 11]:
        values = np.random.default_rng(helpers).normal(size=(4, 2**helpers))
        np.testing.assert_allclose(shapley(values).sum(-1), values[:, -1] - values[:, 0], atol=1e-10)


def test_a_null_helper_gets_nothing_and_equal_helpers_get_the_same():
    """v depends on how many of helpers 0 and 2 are in; helper 1 never matters, helper 3 always adds 0.5."""
    inside = np.arange(16)[:, None] >> np.arange(4) & 1
    values = np.array([0.0, 3.0, 4.0])[inside[:, 0] + inside[:, 2]] + 0.5 * inside[:, 3]
    np.testing.assert_allclose(shapley(values), [2.0, 0.0, 2.0, 0.5], atol=1e-12)


def test_shares_are_linear_in_the_values():
    first, second = np.random.default_rng(8).normal(size=(2, 16))
    np.testing.assert_allclose(shapley(2 * first - second), 2 * shapley(first) - shapley(second), atol=1e-12)


def test_a_missing_value_makes_its_own_game_undefined():
    values = np.random.default_rng(11).normal(size=(2, 4))
    values[1, 2] = np.nan
    shares = shapley(values)
    assert np.isfinite(shares[0]).all() and np.isnan(shares[1]).all()
