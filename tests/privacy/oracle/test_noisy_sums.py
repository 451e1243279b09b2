"""Noise on sums of rewards: a message's promise against all its outcomes, real noise against its distribution."""

import numpy as np
import pytest
from scipy import stats

from fedrank.core.privacy_report import Unit
from fedrank.privacy.noisy_values import NoisyValues

LARGEST, EACH, DELTA = 3, 2, 1e-6


def outcomes(mechanism, scale, reach):
    """Probabilities of noise at the integers -reach…reach, by their definition."""
    x = np.arange(-reach, reach + 1)
    weight = np.exp(-np.abs(x) / scale) if mechanism == "laplace" else np.exp(-(x**2) / (2 * scale**2))
    return weight / weight.sum()


def delta_of(epsilon, mechanism, scale, apart, sums):
    """δ at ε for two messages whose sums all lie ``apart``, from the probability of every pair of sums."""
    reach = int(40 * scale) + 2 * apart
    noise = outcomes(mechanism, scale, reach)
    one, other = noise[apart:], noise[:-apart]
    if sums == 2:
        one, other = np.outer(one, one), np.outer(other, other)
    return np.clip(one - np.exp(epsilon) * other, 0, None).sum()


@pytest.mark.parametrize("sums", [1, 2])
def test_laplace_noise_costs_each_sum_of_a_message(sums):
    noise = NoisyValues("laplace", 0.4, DELTA, LARGEST)
    message = next(p for p in noise.account(EACH, sums, 1, DELTA).promises if p.unit == Unit.MESSAGE)
    at = outcomes("laplace", noise.scale, 200)
    ratio = np.log(at[LARGEST * EACH :] / at[: -LARGEST * EACH]).max() * sums  # in the furthest corner of all sums
    assert message.epsilon == pytest.approx(ratio, rel=1e-9)
    assert message.delta == 0


@pytest.mark.parametrize("sums", [1, 2])
def test_gaussian_noise_costs_each_sum_of_a_message(sums):
    noise = NoisyValues("gaussian", 2.0, 1e-4, LARGEST)
    message = next(p for p in noise.account(EACH, sums, 1, 1e-4).promises if p.unit == Unit.MESSAGE)
    exact = delta_of(message.epsilon, "gaussian", noise.scale, LARGEST * EACH, sums)
    assert exact <= message.delta * (1 + 1e-9)
    assert delta_of(0.9 * message.epsilon, "gaussian", noise.scale, LARGEST * EACH, sums) > message.delta  # and tight


@pytest.mark.parametrize("mechanism", ["laplace", "gaussian"])
def test_a_real_device_draws_noise_of_the_mechanism(mechanism):
    noise = NoisyValues(mechanism, 2.0, 1e-4, LARGEST)
    drawn = np.asarray(noise.draw_from_os((4000, 5)))
    assert drawn.shape == (4000, 5)
    reach = int(40 * noise.scale)
    expected = outcomes(mechanism, noise.scale, reach) * drawn.size
    counted = np.bincount(np.clip(drawn.ravel(), -reach, reach) + reach, minlength=2 * reach + 1)
    often = expected >= 20
    counted = np.append(counted[often], counted[~often].sum())
    expected = np.append(expected[often], expected[~often].sum())
    # Randomness of the operating system has no seed: noise that is right fails once in 10⁹ runs.
    assert stats.chisquare(counted, expected).pvalue > 1e-9
