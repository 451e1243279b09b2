"""Laws of noise on integers: samplers against probabilities written down here, and sums of shares against the whole.

Noise from the operating system cannot be seeded: tests of it fail a correct sampler once in 10⁹ runs. Simulated noise
has fixed keys.
"""

import functools
import math
from fractions import Fraction

import jax
import numpy as np
import pytest
from scipy import stats

from fedrank.core.errors import ConfigError
from fedrank.privacy.noise.discrete import (
    discrete_gaussian,
    discrete_laplace,
    enough_parties,
    laplace_shares,
    zero_share,
)
from fedrank.privacy.noise.simulated import (
    simulated_discrete_gaussian,
    simulated_discrete_laplace,
    simulated_laplace_shares,
)
from fedrank_zoo.foltr_pdgd_2021 import gamma_shares

CHANCE = 1e-9
DRAWS = 200_000


@functools.cache
def shares_of_parties(size, scale, enough):
    """Shares [parties, size] from keys [parties], compiled once for each setting."""
    return jax.jit(jax.vmap(lambda key: simulated_laplace_shares(key, (size,), scale, enough)))


def laplace(scale):
    """The closed form, as {x: probability}."""
    alpha = math.exp(-1 / scale)
    reach = math.ceil(40 * scale)
    return {x: (1 - alpha) / (1 + alpha) * alpha ** abs(x) for x in range(-reach, reach + 1)}


def gaussian(sigma):
    reach = math.ceil(12 * sigma) + 1
    weights = {x: math.exp(-(x**2) / (2 * sigma**2)) for x in range(-reach, reach + 1)}
    return {x: weight / sum(weights.values()) for x, weight in weights.items()}


def share(scale, enough):
    """The difference of two negative binomial variables, by convolution of SciPy's probabilities."""
    reach = math.ceil(40 * scale)
    one = stats.nbinom.pmf(np.arange(reach + 1), 1 / enough, -math.expm1(-1 / scale))
    return dict(zip(range(-reach, reach + 1), np.convolve(one, one[::-1]).tolist(), strict=True))


def fit(draws, pmf):
    """The p-value of chi-square: a cell for each value expected 20 times, but for one, and a cell for all others."""
    draws = np.asarray(draws).ravel()
    cells = [x for x, p in pmf.items() if p * draws.size >= 20][1:]
    observed = np.array([(draws == x).sum() for x in cells])
    expected = np.array([pmf[x] for x in cells]) * draws.size
    observed, expected = (np.append(n, draws.size - n.sum()) for n in (observed, expected))
    return stats.chisquare(observed, expected).pvalue


@pytest.mark.parametrize("scale", [0.4, Fraction(7, 3), 12.5])
def test_exact_laplace_has_its_probabilities(scale):
    draws = discrete_laplace(scale, 20_000)
    assert draws.dtype == np.int64
    assert fit(draws, laplace(float(scale))) > CHANCE


@pytest.mark.parametrize("sigma", [0.4, Fraction(3, 2), 6.25])
def test_exact_gaussian_has_its_probabilities(sigma):
    assert fit(discrete_gaussian(sigma, 6_000), gaussian(float(sigma))) > CHANCE


@pytest.mark.parametrize(("scale", "enough"), [(0.4, 1), (3.0, 1), (3.0, 2), (Fraction(9, 2), 7), (40.0, 60)])
def test_exact_shares_have_their_probabilities(scale, enough):
    draws = laplace_shares(scale, enough, 20_000 if enough > 2 else 5_000)
    assert fit(draws, share(float(scale), enough)) > CHANCE


@pytest.mark.parametrize("scale", [0.4, 2.5, 30.0])
def test_simulated_laplace_has_its_probabilities(scale):
    draws = simulated_discrete_laplace(jax.random.key(1), (2, DRAWS // 2), scale)
    assert draws.shape == (2, DRAWS // 2) and draws.dtype == np.int32
    assert fit(draws, laplace(scale)) > 1e-3


@pytest.mark.parametrize("sigma", [0.4, 1.5, 20.0, 63.9, 64.0])
def test_simulated_gaussian_has_its_probabilities(sigma):
    assert fit(simulated_discrete_gaussian(jax.random.key(2), (DRAWS,), sigma), gaussian(sigma)) > 1e-3


@pytest.mark.parametrize(("scale", "enough"), [(0.4, 1), (4.5, 2), (40.0, 60)])
def test_simulated_shares_have_their_probabilities(scale, enough):
    draws = shares_of_parties(DRAWS, scale, enough)(jax.random.key(3)[None])
    assert draws.shape == (1, DRAWS) and draws.dtype == np.int32
    assert fit(draws, share(scale, enough)) > 1e-3


def test_a_test_of_fit_finds_a_wrong_scale():
    """What the tests above can see: a scale that is a few per cent off, another shape."""
    draws = simulated_discrete_laplace(jax.random.key(1), (2, DRAWS // 2), 2.5)
    assert fit(draws, laplace(2.55)) < CHANCE
    draws = shares_of_parties(DRAWS, 4.5, 2)(jax.random.key(3)[None])
    assert fit(draws, share(4.75, 2)) < CHANCE and fit(draws, share(4.5, 3)) < CHANCE


def test_exact_and_simulated_shares_agree():
    """Two samples of a large scale, where no table is exact: quantiles of what is not zero, and how often it is."""
    exact = laplace_shares(20_000.5, 20, 5000)
    simulated = np.asarray(shares_of_parties(5000, 20_000.5, 20)(jax.random.key(4)[None]))[0]
    assert stats.ks_2samp(exact, simulated).pvalue > CHANCE
    zeros = zero_share(20_000.5, 20)
    for draws in (exact, simulated):
        assert abs((draws == 0).mean() - zeros) < 6 * math.sqrt(zeros * (1 - zeros) / 5000)


def test_exact_shares_add_up_to_laplace_noise():
    sums = laplace_shares(3.5, 8, 8 * 4000).reshape(8, -1).sum(axis=0)
    assert fit(sums, laplace(3.5)) > CHANCE


def test_simulated_shares_add_up_to_laplace_noise():
    """So do any 10 of 12 parties' shares if 10 are enough; all 12 have 12/10 of the variance 2α/(1 − α)²."""
    assert enough_parties(12, 0.2) == 10
    draws = np.asarray(shares_of_parties(20_000, 6.0, 10)(jax.random.split(jax.random.key(5), 12)))
    assert fit(draws[:10].sum(axis=0), laplace(6.0)) > 1e-3
    assert fit(draws[2:].sum(axis=0), laplace(6.0)) > 1e-3
    alpha = math.exp(-1 / 6)
    assert draws.sum(axis=0).var() == pytest.approx(12 / 10 * 2 * alpha / (1 - alpha) ** 2, rel=0.06)


def test_shares_of_a_thousand_parties_add_up_to_laplace_noise():
    draws = np.asarray(shares_of_parties(8_000, 25.0, 1000)(jax.random.split(jax.random.key(6), 1000)))
    assert fit(draws.sum(axis=0), laplace(25.0)) > 1e-3
    assert (draws == 0).mean() == pytest.approx(zero_share(25.0, 1000), abs=1e-4)


def test_coordinates_of_a_share_and_parties_are_independent():
    draws = np.asarray(shares_of_parties(12, 1000.0, 2)(jax.random.split(jax.random.key(8), 2000))).astype(float)
    correlations = np.corrcoef(draws.T)[np.triu_indices(12, 1)]
    assert np.abs(correlations).max() < 5 / math.sqrt(2000)
    assert len({tuple(row) for row in draws.tolist()}) == 2000


def test_a_single_published_share_is_practically_no_noise():
    """n = 1,000 clients, ε = 4.5, clip 5: 98.7 % of a client's coordinates get less than 0.001."""
    keys = jax.random.split(jax.random.key(9), 1000)
    draw = jax.jit(jax.vmap(lambda key: gamma_shares(key, (100,), 5 / 4.5, 1000)))
    noise = np.abs(np.asarray(draw(keys)))
    assert (noise < 0.001).mean() == pytest.approx(0.987, abs=0.001)
    # Both Gamma variables below 0.001 is nearly the same event, and has a closed form.
    assert (noise < 0.001).mean() == pytest.approx(stats.gamma.cdf(0.001, 1 / 1000, scale=5 / 4.5) ** 2, abs=0.001)
    # Small values are there as often as they should be, down to what single precision holds.
    for bound in (1e-10, 1e-20, 1e-30):
        expected = stats.gamma.cdf(bound, 1 / 1000, scale=5 / 4.5) ** 2
        assert (noise < bound).mean() == pytest.approx(expected, abs=0.004)
    assert np.isfinite(noise).all() and 0.8 < (noise == 0).mean() < 0.9


def test_published_shares_add_up_to_laplace_noise():
    keys = jax.random.split(jax.random.key(10), 200)
    draw = jax.jit(jax.vmap(lambda key: gamma_shares(key, (1000,), 2.0, 200)))
    sums = np.asarray(draw(keys)).sum(axis=0)
    assert stats.kstest(sums, stats.laplace(scale=2.0).cdf).pvalue > 1e-3


@pytest.mark.parametrize(("scale", "enough"), [(0.4, 1), (3.0, 1), (3.0, 2), (Fraction(9, 2), 7), (40.0, 60)])
def test_exact_shares_have_their_probabilities(scale, enough):
    draws = laplace_shares(scale, enough, 20_000 if enough > 2 else 5_000)
    assert fit(draws, share(float(scale), enough)) > CHANCE


@pytest.mark.parametrize("scale", [0.4, 2.5, 30.0])
def test_simulated_laplace_has_its_probabilities(scale):
    draws = simulated_discrete_laplace(jax.random.key(1), (2, DRAWS // 2), scale)
    assert draws.shape == (2, DRAWS // 2) and draws.dtype == np.int32
    assert fit(draws, laplace(scale)) > 1e-3


@pytest.mark.parametrize("sigma", [0.4, 1.5, 20.0, 63.9, 64.0])
def test_simulated_gaussian_has_its_probabilities(sigma):
    assert fit(simulated_discrete_gaussian(jax.random.key(2), (DRAWS,), sigma), gaussian(sigma)) > 1e-3


@pytest.mark.parametrize(("scale", "enough"), [(0.4, 1), (4.5, 2), (40.0, 60)])
def test_simulated_shares_have_their_probabilities(scale, enough):
    draws = shares_of_parties(DRAWS, scale, enough)(jax.random.key(3)[None])
    assert draws.shape == (1, DRAWS) and draws.dtype == np.int32
    assert fit(draws, share(scale, enough)) > 1e-3


def test_a_test_of_fit_finds_a_wrong_scale():
    """What the tests above can see: a scale that is a few per cent off, another shape."""
    draws = simulated_discrete_laplace(jax.random.key(1), (2, DRAWS // 2), 2.5)
    assert fit(draws, laplace(2.55)) < CHANCE
    draws = shares_of_parties(DRAWS, 4.5, 2)(jax.random.key(3)[None])
    assert fit(draws, share(4.75, 2)) < CHANCE and fit(draws, share(4.5, 3)) < CHANCE


def test_exact_and_simulated_shares_agree():
    """Two samples of a large scale, where no table is exact: quantiles of what is not zero, and how often it is."""
    exact = laplace_shares(20_000.5, 20, 5000)
    simulated = np.asarray(shares_of_parties(5000, 20_000.5, 20)(jax.random.key(4)[None]))[0]
    assert stats.ks_2samp(exact, simulated).pvalue > CHANCE
    zeros = zero_share(20_000.5, 20)
    for draws in (exact, simulated):
        assert abs((draws == 0).mean() - zeros) < 6 * math.sqrt(zeros * (1 - zeros) / 5000)


def test_exact_shares_add_up_to_laplace_noise():
    sums = laplace_shares(3.5, 8, 8 * 4000).reshape(8, -1).sum(axis=0)
    assert fit(sums, laplace(3.5)) > CHANCE


def test_simulated_shares_add_up_to_laplace_noise():
    """So do any 10 of 12 parties' shares if 10 are enough; all 12 have 12/10 of the variance 2α/(1 − α)²."""
    assert enough_parties(12, 0.2) == 10
    draws = np.asarray(shares_of_parties(20_000, 6.0, 10)(jax.random.split(jax.random.key(5), 12)))
    assert fit(draws[:10].sum(axis=0), laplace(6.0)) > 1e-3
    assert fit(draws[2:].sum(axis=0), laplace(6.0)) > 1e-3
    alpha = math.exp(-1 / 6)
    assert draws.sum(axis=0).var() == pytest.approx(12 / 10 * 2 * alpha / (1 - alpha) ** 2, rel=0.06)


def test_shares_of_a_thousand_parties_add_up_to_laplace_noise():
    draws = np.asarray(shares_of_parties(8_000, 25.0, 1000)(jax.random.split(jax.random.key(6), 1000)))
    assert fit(draws.sum(axis=0), laplace(25.0)) > 1e-3
    assert (draws == 0).mean() == pytest.approx(zero_share(25.0, 1000), abs=1e-4)


def test_coordinates_of_a_share_and_parties_are_independent():
    draws = np.asarray(shares_of_parties(12, 1000.0, 2)(jax.random.split(jax.random.key(8), 2000))).astype(float)
    correlations = np.corrcoef(draws.T)[np.triu_indices(12, 1)]
    assert np.abs(correlations).max() < 5 / math.sqrt(2000)
    assert len({tuple(row) for row in draws.tolist()}) == 2000


def test_a_single_published_share_is_practically_no_noise():
    """n = 1,000 clients, ε = 4.5, clip 5: 98.7 % of a client's coordinates get less than 0.001."""
    keys = jax.random.split(jax.random.key(9), 1000)
    draw = jax.jit(jax.vmap(lambda key: gamma_shares(key, (100,), 5 / 4.5, 1000)))
    noise = np.abs(np.asarray(draw(keys)))
    assert (noise < 0.001).mean() == pytest.approx(0.987, abs=0.001)
    # Both Gamma variables below 0.001 is nearly the same event, and has a closed form.
    assert (noise < 0.001).mean() == pytest.approx(stats.gamma.cdf(0.001, 1 / 1000, scale=5 / 4.5) ** 2, abs=0.001)
    # Small values are there as often as they should be, down to what single precision holds.
    for bound in (1e-10, 1e-20, 1e-30):
        expected = stats.gamma.cdf(bound, 1 / 1000, scale=5 / 4.5) ** 2
        assert (noise < bound).mean() == pytest.approx(expected, abs=0.004)
    assert np.isfinite(noise).all() and 0.8 < (noise == 0).mean() < 0.9


def test_published_shares_add_up_to_laplace_noise():
    keys = jax.random.split(jax.random.key(10), 200)
    draw = jax.jit(jax.vmap(lambda key: gamma_shares(key, (1000,), 2.0, 200)))
    sums = np.asarray(draw(keys)).sum(axis=0)
    assert stats.kstest(sums, stats.laplace(scale=2.0).cdf).pvalue > 1e-3


@pytest.mark.parametrize(("scale", "enough"), [(0.4, 1), (3.0, 2), (40.0, 60), (200.0, 1000)])
def test_how_often_a_share_is_zero(scale, enough):
    one = stats.nbinom.pmf(np.arange(math.ceil(60 * scale)), 1 / enough, -math.expm1(-1 / scale))
    assert zero_share(scale, enough) == pytest.approx((one**2).sum(), rel=1e-9)


def test_parties_that_are_enough():
    assert [enough_parties(n, a) for n, a in ((10, 0.0), (10, 0.1), (10, 0.25), (3, 0.99), (1000, 1 / 3))] == [
        10,
        9,
        8,  # a quarter of ten is at most two who are absent
        1,
        667,
    ]


def test_arguments_out_of_range():
    key = jax.random.key(0)
    for call in (
        lambda: discrete_laplace(0, 1),
        lambda: discrete_gaussian(-1.0, 1),
        lambda: laplace_shares(1.0, 0, 1),
        lambda: laplace_shares(2.0**31, 1, 1),
        lambda: simulated_discrete_laplace(key, (1,), 2.0**21),
        lambda: simulated_laplace_shares(key, (1,), 1.0, 0),
        lambda: gamma_shares(key, (1,), math.inf, 1),
        lambda: enough_parties(5, 1.0),
    ):
        with pytest.raises(ConfigError):
            call()
