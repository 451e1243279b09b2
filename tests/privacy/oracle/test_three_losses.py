"""Composition of three losses against exact sums in 40 digits, and against another library's distributions."""

import math

import mpmath
import pytest
from dp_accounting.pld import pld_pmf, privacy_loss_distribution

from fedrank.privacy.accounts.randomised_response import three_losses_epsilon

#: ε of one release, the probability that a release says nothing, releases.
CASES = [(0.1, 0.0, 10_000), (0.1, 0.3, 120), (1.0, 0.9, 60), (1.0, 0.0, 7), (4.0, 0.3, 10), (0.7, 0.0, 1)]


def losses(epsilon, nothing):
    unlikely = (1 - nothing) / (1 + math.exp(epsilon))
    return 1 - nothing - unlikely, unlikely


def exact_delta(epsilon, nothing, times, total):
    """Σ P(k) (1 − exp(total − k ε)) over sums k of ``times`` losses with k ε > total."""
    with mpmath.workdps(40):
        up, down = map(mpmath.mpf, losses(epsilon, nothing))
        none, e, delta = (1 - up - down if nothing else mpmath.mpf(0)), mpmath.mpf(epsilon), mpmath.mpf(0)
        for k in range(max(0, math.floor(total / epsilon)), times + 1):
            if k * e <= total:
                continue
            likely = mpmath.fsum(
                mpmath.binomial(times, j) * mpmath.binomial(times - j, j - k) * up**j * down ** (j - k) * none**rest
                for j in range(k, (times + k) // 2 + 1)
                if (rest := times - 2 * j + k) == 0 or nothing
            )
            delta += likely * (1 - mpmath.exp(total - k * e))
            if k * e > total and likely and likely < mpmath.mpf(10) ** -22:
                break
        return float(delta)


@pytest.mark.parametrize(("epsilon", "nothing", "times"), CASES)
def test_delta_is_spent_to_the_last_digits_and_not_more(epsilon, nothing, times):
    for delta in (1e-9, 1e-6, 0.01):
        total = three_losses_epsilon(epsilon, *losses(epsilon, nothing), times, delta)
        assert 0 < total < times * epsilon
        # What is left out of the distribution, 1e-15, counts as given away.
        spent = exact_delta(epsilon, nothing, times, total)
        assert spent == pytest.approx(delta, rel=3e-6) and spent <= delta + 2e-15


@pytest.mark.parametrize(("epsilon", "nothing", "times"), [*CASES, (0.01, 0.5, 100_000)])
def test_another_library_finds_the_same(epsilon, nothing, times):
    up, down = losses(epsilon, nothing)
    kinds = {1: up, 0: max(0.0, 1 - up - down), -1: down}
    pmf = pld_pmf.create_pmf(kinds, discretization=epsilon, infinity_mass=0.0, pessimistic_estimate=True)
    composed = privacy_loss_distribution.PrivacyLossDistribution(pmf).self_compose(times)
    for delta in (1e-6, 0.01):
        found = three_losses_epsilon(epsilon, up, down, times, delta)
        assert found == pytest.approx(composed.get_epsilon_for_delta(delta), rel=1e-6)


def test_the_ends():
    assert three_losses_epsilon(1.0, 0.7, 0.3, 0, 1e-6) == 0.0 == three_losses_epsilon(0.0, 0.5, 0.5, 9, 1e-6)
    assert three_losses_epsilon(math.inf, 1.0, 0.0, 1, 1e-6) == math.inf
    # Losses that give everything away cost what they cost one by one.
    assert three_losses_epsilon(500.0, 1 - 1e-200, 1e-200, 3, 1e-6) == pytest.approx(1500.0)
    assert three_losses_epsilon(0.5, *losses(0.5, 0.0), 1, 0.3) == 0.0  # δ alone allows as much
    # Beyond a million: Hoeffding's bound, which is larger than the distribution just below.
    few, many = (three_losses_epsilon(0.001, *losses(0.001, 0.0), n, 1e-6) for n in (1_000_000, 1_000_001))
    assert few < many < 1.5 * few
