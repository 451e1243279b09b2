"""An anonymous channel's bound: against brute force over all that others may say, and against sums written out."""

import itertools
import math
from collections import Counter

import numpy as np
import pytest
from scipy import stats

from fedrank.core.errors import ConfigError
from fedrank.privacy.accounts.shuffle import any_shuffled_epsilon, clones_delta, shuffled_delta, shuffled_epsilon
from fedrank.privacy.calibration import gaussian_epsilon
from fedrank.privacy.piecewise import Piecewise, best, local_epsilon


def hockey_stick(p, q, epsilon):
    return sum(max(p[key] - math.exp(epsilon) * q[key], 0.0) for key in p)


def test_the_sum_is_the_one_that_the_paper_writes():
    """Theorem 3.1 of Feldman et al. 2021, every (C, A, D) written out."""
    for epsilon in [0.0, 0.2, 0.9]:
        for epsilon0, clone, reports in [(1.0, 0.3, 1), (1.0, 0.5, 4), (3.0, 0.09, 7), (2.0, 1.0, 5)]:
            p, q = Counter(), Counter()
            likely = math.exp(epsilon0) / (math.exp(epsilon0) + 1)
            for c in range(reports):
                for a in range(c + 1):
                    chance = stats.binom.pmf(c, reports - 1, clone) * stats.binom.pmf(a, c, 0.5)
                    p[a + 1, c - a] += chance * likely
                    p[a, c - a + 1] += chance * (1 - likely)
                    q[a, c - a + 1] += chance * likely
                    q[a + 1, c - a] += chance * (1 - likely)
            assert clones_delta(epsilon, epsilon0, clone, reports) == pytest.approx(
                hockey_stick(p, q, epsilon), abs=1e-12
            )


def histogram(rows):
    """Distribution of how often each report comes, for devices whose reports have these probabilities."""
    counts = {(0,) * len(rows[0]): 1.0}
    for row in rows:
        following = Counter()
        for seen, chance in counts.items():
            for report, more in enumerate(row):
                following[*seen[:report], seen[report] + 1, *seen[report + 1 :]] += chance * more
        counts = following
    return Counter(counts)


def test_no_round_of_devices_reveals_more_than_the_bound():
    """Whatever the others' truths and the device's own two are: what the reports of all show, counted out."""
    for reports in [1, 2, 4]:
        for mechanism in [Piecewise(1.5), Piecewise(1.0, 1, 2), Piecewise(2.0, 2, 2), Piecewise(2.5, 2, 4)]:
            table = mechanism.probabilities()
            for epsilon in (0.1, 0.5, 1.0):
                bound = shuffled_delta(mechanism, reports, epsilon)
                for others in itertools.combinations_with_replacement(range(len(table)), reports - 1):
                    rows = [table[i] for i in others]
                    seen = [histogram([*rows, own]) for own in table]
                    worst = max(hockey_stick(p, q, epsilon) for p, q in itertools.permutations(seen, 2))
                    assert worst <= bound + 1e-12


def test_one_bit_of_one_device_is_as_local_as_it_is():
    one_bit = Piecewise(2.0)
    for epsilon in (0.0, 0.5, 1.5):
        high, low = one_bit.probabilities()[0]
        assert shuffled_delta(one_bit, 1, epsilon) == pytest.approx(high - math.exp(epsilon) * low, abs=1e-9)
    assert shuffled_delta(one_bit, 1, 2.0) == 0.0


def test_more_devices_hide_better_and_the_general_bound_is_weaker():
    for n in (100, 1000):
        mine = shuffled_epsilon(Piecewise(3.0), n, 1e-6)
        assert shuffled_epsilon(Piecewise(3.0), 10 * n, 1e-6) < mine <= any_shuffled_epsilon(3.0, n, 1e-6) <= 3.0


def test_many_devices_hide_one_as_normal_noise_would():
    """Among many a bit shifts a normal count of variance n·clone/4 by 2q − 1: Gaussian differential privacy."""
    epsilon0, n, delta = 1.0, 20_000, 1e-6
    likely = math.exp(epsilon0) / (math.exp(epsilon0) + 1)
    distance = 2 * (2 * likely - 1) / math.sqrt(n * 2 / (math.exp(epsilon0) + 1))
    exact = gaussian_epsilon(1 / distance, delta, 1.0)
    assert shuffled_epsilon(Piecewise(epsilon0), n, delta) == pytest.approx(exact, rel=0.02)


@pytest.mark.parametrize("reports", [500, 8000])
def test_a_local_epsilon_is_the_largest_that_is_allowed(reports):
    local = local_epsilon(1.0, reports, 1e-6)
    assert local > 1.0 and shuffled_epsilon(best(local), reports, 1e-6) <= 1.0 + 1e-9
    assert shuffled_epsilon(best(1.02 * local), reports, 1e-6) > 1.0
    assert local_epsilon(1.0, 1, 1e-9) == pytest.approx(1.0, abs=1e-4)


def test_numbers_out_of_range_are_refused():
    with pytest.raises(ConfigError, match="one report"):
        clones_delta(1.0, 2.0, 0.5, 0)
    with pytest.raises(ConfigError, match="probability"):
        clones_delta(1.0, 2.0, np.nan, 3)
    with pytest.raises(ConfigError, match="delta"):
        any_shuffled_epsilon(1.0, 10, 0.0)
    with pytest.raises(ConfigError, match="epsilon"):
        local_epsilon(0.0, 10, 1e-6)
