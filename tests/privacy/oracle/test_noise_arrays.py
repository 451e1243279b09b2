"""Exact noise on arrays against probabilities written down here, thresholds against mpmath, and the scalar samplers.

Noise from the operating system cannot be seeded: each test of it fails a correct sampler once in 10⁹ runs.
"""

import math
import os
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from scipy import stats

from fedrank.core.errors import ConfigError
from fedrank.privacy.noise import arrays as noise_arrays
from fedrank.privacy.noise.arrays import drawn, exact_gaussian, exact_laplace
from fedrank.privacy.noise.discrete import discrete_gaussian, discrete_laplace

CHANCE = 1e-9
DRAWS = 150_000


def laplace(scale):
    alpha = math.exp(-1 / scale)
    reach = math.ceil(40 * scale)
    return {x: (1 - alpha) / (1 + alpha) * alpha ** abs(x) for x in range(-reach, reach + 1)}


def gaussian(sigma):
    reach = math.ceil(12 * sigma) + 1
    weights = {x: math.exp(-(x**2) / (2 * sigma**2)) for x in range(-reach, reach + 1)}
    return {x: weight / sum(weights.values()) for x, weight in weights.items()}


def fit(sample, chances):
    """p-value of a chi-square test; values expected fewer than 20 times are taken together."""
    expected = {x: p * sample.size for x, p in chances.items() if p * sample.size >= 20}
    seen = np.array([np.count_nonzero(sample == x) for x in expected])
    wanted = np.array(list(expected.values()))
    seen[-1] += sample.size - seen.sum()  # all others join the last
    wanted[-1] += sample.size - wanted.sum()
    return stats.chisquare(seen, wanted).pvalue


def test_laplace_noise_has_its_probabilities():
    for scale in [0.4, Fraction(15, 4), 37.5, 300.0]:
        assert fit(exact_laplace(scale, DRAWS), laplace(float(scale))) > CHANCE
        assert fit(drawn(np.random.default_rng(5), "laplace", scale, DRAWS), laplace(float(scale))) > 1e-4


def test_gaussian_noise_has_its_probabilities():
    for sigma in [0.3, Fraction(5, 2), 40.0]:
        assert fit(exact_gaussian(sigma, DRAWS), gaussian(float(sigma))) > CHANCE
        assert fit(drawn(np.random.default_rng(5), "gaussian", sigma, DRAWS), gaussian(float(sigma))) > 1e-4


def test_a_wrong_distribution_is_found_out():
    assert fit(np.rint(np.random.default_rng(0).laplace(0, 1.5, DRAWS)), laplace(1.5)) < CHANCE
    assert fit(exact_laplace(3.8, DRAWS * 4), laplace(3.75)) < 1e-4
    sample = exact_gaussian(2.5, DRAWS)
    assert fit(np.where(sample == 0, np.resize([0, 1], DRAWS), sample), gaussian(2.5)) < CHANCE


@pytest.mark.parametrize(("arrays", "scalar"), [(exact_laplace, discrete_laplace), (exact_gaussian, discrete_gaussian)])
def test_arrays_and_the_scalar_samplers_have_one_distribution(arrays, scalar):
    samples = [np.clip(arrays(3.0, 40_000), -9, 9), np.clip(scalar(3.0, 5_000), -9, 9)]
    table = [[np.count_nonzero(sample == x) for x in range(-9, 10)] for sample in samples]
    assert stats.chi2_contingency(table).pvalue > CHANCE


def test_the_largest_scale_is_drawn_from_its_parts_with_all_their_digits():
    scale = 2.0**30
    sample = exact_laplace(scale, DRAWS)
    assert stats.kstest(sample / scale, "laplace").pvalue > CHANCE
    # Digits far below the scale are all but uniform: over the 2²² numbers that the last one goes through, the
    # probability falls by 1/256, over 2²⁶ it would by a visible 1/16.
    for step in (2**0, 2**10, 2**13, 2**18):
        assert stats.chisquare(np.bincount(np.abs(sample) // step % 16)).pvalue > CHANCE
    assert np.unique(sample).size > 0.999 * DRAWS


@pytest.mark.parametrize("scale", [3000.0, 3_000_000.0])
def test_parts_make_up_the_whole_distribution(scale):
    edges = np.floor(np.linspace(-3 * scale, 3 * scale, 61))
    size = np.abs(edges)
    alpha = math.exp(-1 / scale)
    below = np.where(edges < 0, alpha**size / (1 + alpha), 1 - alpha ** (size + 1) / (1 + alpha))  # P(X ≤ edge)
    chances = np.diff(np.concatenate([[0.0], below, [1.0]]))
    seen = np.bincount(np.searchsorted(edges, exact_laplace(scale, DRAWS)), minlength=62)
    assert stats.chisquare(seen, DRAWS * chances).pvalue > CHANCE


def test_beyond_the_table_gaussian_noise_is_drawn_one_by_one():
    assert stats.kstest(exact_gaussian(1e5, (30, 10)).ravel() / 1e5, "norm").pvalue > CHANCE
    assert stats.kstest(drawn(np.random.default_rng(1), "gaussian", 1e5, 10_000) / 1e5, "norm").pvalue > 1e-4


@pytest.mark.parametrize("bits", [32, 128])
def test_thresholds_are_the_floors_of_the_exact_chances(bits):
    with mpmath.workdps(150):

        def floors(chances):
            return [int(mpmath.floor(chance * mpmath.mpf(2) ** bits)) for chance in chances]

        ratio = mpmath.exp(-mpmath.mpf(4) / 15)
        endless = noise_arrays._geometric_thresholds(Fraction(15, 4), 0, bits)
        assert list(endless) == floors(1 - ratio ** (k + 1) for k in range(len(endless)))
        assert endless[-1] == 2**bits - 1 > endless[-2]
        ratio = mpmath.exp(-mpmath.mpf(1) / 2**30)
        part = noise_arrays._geometric_thresholds(Fraction(2**30), 64, bits)
        assert list(part) == floors((1 - ratio ** (k + 1)) / (1 - ratio**64) for k in range(63))

        def weight(k):
            return mpmath.exp(-(mpmath.mpf(k) ** 2) / (2 * mpmath.mpf(7) ** 2 / 9))

        whole = weight(0) + 2 * sum(weight(k) for k in range(1, 120))
        size = noise_arrays._gaussian_thresholds(Fraction(7, 3), bits)
        below = [weight(0)]
        for k in range(1, len(size)):
            below.append(below[-1] + 2 * weight(k))
        assert list(size) == floors(chance / whole for chance in below)
        assert size[-1] == 2**bits - 1


def test_a_tie_is_resolved_with_further_bits_and_the_tail_is_not_cut():
    # Given that the first 32 bits of U are ones, a geometric variable is at least k with probability 2³² αᵏ.
    scale = Fraction(3, 2)
    thresholds = noise_arrays._laplace_parts(scale)[0].thresholds
    sample = np.array([noise_arrays._resolve_tie(thresholds, 2**32 - 1) for _ in range(4000)])
    beyond = {k: min(1.0, 2.0**32 * math.exp(-k / float(scale))) for k in range(20, 60)}
    assert beyond[33] == 1.0 > beyond[34]
    assert fit(sample, {k: beyond[k] - beyond[k + 1] for k in range(33, 59)}) > CHANCE
    # Between two values: as often the upper one as the threshold's further digits leave room for.
    first = int((1 - math.exp(-2 / 3)) * 2**32)
    sample = np.array([noise_arrays._resolve_tie(thresholds, first) for _ in range(4000)])
    with mpmath.workdps(60):
        rest = float((1 - mpmath.exp(-mpmath.mpf(2) / 3)) * 2**32 - first)
    assert stats.binomtest(int((sample == 0).sum()), 4000, rest).pvalue > CHANCE
    assert set(sample) == {0, 1}


def test_draws_resolve_their_ties(monkeypatch):
    real, asked = os.urandom, []

    def ones_first(count):
        asked.append(count)
        return b"\xff" * count if len(asked) == 1 else real(count)

    monkeypatch.setattr(noise_arrays.os, "urandom", ones_first)
    sample = noise_arrays._draw_by_inversion(noise_arrays._laplace_parts(Fraction(3, 2)), 200)
    assert asked[0] == 800 and len(asked) >= 201
    assert sample.min() >= 33 and np.unique(sample).size > 3


def test_blocks_do_not_repeat_each_other_and_shapes_are_kept():
    sample = exact_laplace(1000.0, (2, noise_arrays._BLOCK))
    assert sample.shape == (2, noise_arrays._BLOCK) and sample.dtype == np.int64
    assert abs(np.corrcoef(sample)[0, 1]) < 0.02
    assert exact_gaussian(2.0, (0, 3)).shape == (0, 3)
    assert not np.array_equal(exact_laplace(1000.0, 50), exact_laplace(1000.0, 50))
    again = [drawn(np.random.default_rng(3), "laplace", 9.0, (4, 5)) for _ in range(2)]
    assert np.array_equal(*again) and again[0].shape == (4, 5)


def test_scales_out_of_range_and_unknown_noise_are_refused():
    for draw in (exact_laplace, exact_gaussian):
        for scale in (0.0, -1.0, 2.0**31, math.nan):
            with pytest.raises(ConfigError, match="must be in"):
                draw(scale, 3)
    with pytest.raises(ConfigError, match="'laplace' or 'gaussian'"):
        drawn(np.random.default_rng(0), "cauchy", 1.0, 3)
