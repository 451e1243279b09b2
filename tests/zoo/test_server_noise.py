"""Noise that is taken back in later rounds, against the matrices it is defined by."""

import itertools
import math

import jax
import numpy as np
import pytest
from scipy.linalg import toeplitz
from scipy.special import binom

from fedrank_zoo.server_noise import coefficients, column_norm, next_noise


def matrix(band, rounds):
    """C: the series of (1 − x)^(−1/2), from binomial coefficients, cut off after ``band`` terms."""
    series = [abs(binom(-0.5, k)) if k < band else 0.0 for k in range(rounds)]
    return np.tril(toeplitz(series))


def test_coefficients_are_those_of_the_series():
    for band in [1, 2, 7]:
        np.testing.assert_allclose(coefficients(band), [abs(binom(-0.5, k)) for k in range(band)], rtol=1e-12)


def test_without_a_band_its_square_adds_up_all_rounds_before():
    c = matrix(9, 9)
    np.testing.assert_allclose(c @ c, np.tril(np.ones((9, 9))), atol=1e-12)


def test_nobody_moves_the_rounds_farther_than_the_norm():
    """All rounds that somebody can take part in, with every choice of one of two opposite vectors in each."""
    for band, rounds, times in [(1, 5, 3), (2, 5, 1), (3, 6, 2), (6, 6, 3), (4, 5, 9)]:
        c, farthest = matrix(band, rounds), 0.0
        for which in itertools.combinations(range(rounds), min(times, rounds)):
            for signs in itertools.product((-1, 1), repeat=len(which)):
                farthest = max(farthest, float(np.linalg.norm(c[:, which] @ np.array(signs))))
        assert column_norm(band, rounds, times) == pytest.approx(farthest, rel=1e-12)


def test_the_noise_is_the_inverse_of_the_matrix_times_independent_noise():
    for band in [1, 3, 8]:
        rounds, d = 8, 3
        key = jax.random.key_data(jax.random.key(5, impl="threefry2x32"))
        past, added = np.zeros((band - 1, d), np.float32), []
        host, of_host = np.zeros((1, band - 1, d), np.float32), []  # of one run, with NumPy
        for t in range(rounds):
            noise, past = next_noise(key, np.uint32(t), past)
            added.append(np.asarray(noise))
            noise, host = next_noise(np.asarray(key)[None], np.full(1, t, np.uint32), host)
            of_host.append(noise[0])
        np.testing.assert_allclose(of_host, added, atol=2e-6)
        fresh = [jax.random.normal(jax.random.fold_in(jax.random.wrap_key_data(key), t), (d,)) for t in range(rounds)]
        np.testing.assert_allclose(matrix(band, rounds) @ np.array(added), np.array(fresh), atol=2e-6)


def test_the_noise_of_a_total_grows_like_the_logarithm_of_the_rounds():
    rounds = 100
    totals = np.linalg.norm(np.tril(np.ones((rounds, rounds))) @ np.linalg.inv(matrix(rounds, rounds)), axis=1)
    sensitivity = column_norm(rounds, rounds, 1)
    assert totals[-1] * sensitivity < 0.4 * math.sqrt(rounds)  # independent noise: √rounds
