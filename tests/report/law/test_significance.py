"""Laws of the tests of significance: under the null hypothesis p is uniform, and corrections keep their promise."""

import math

import numpy as np
import pytest
from scipy import stats

from fedrank.report.significance import adjust, paired_randomisation, paired_t

REPEATS = 600


def kolmogorov_smirnov(p):
    """The distance to the uniform distribution, in units of its 99.9 % quantile (1.95 / √n)."""
    return stats.kstest(p, "uniform").statistic * math.sqrt(len(p)) / 1.95


def test_p_of_the_t_test_is_uniform_if_the_rankers_are_alike():
    random = np.random.default_rng(0)
    p = [paired_t(*random.standard_normal((2, 8))) for _ in range(REPEATS)]
    assert kolmogorov_smirnov(p) < 1


@pytest.mark.parametrize(("queries", "resamples"), [(10, 2**10), (25, 199)], ids=["all patterns", "random patterns"])
def test_p_of_the_randomisation_test_is_uniform_if_the_rankers_are_alike(queries, resamples):
    """Whatever the distribution of the differences: here most are near 0 and a few are large."""
    random = np.random.default_rng(1)
    p = []
    for seed in range(REPEATS):
        a, b = random.random((2, queries)) ** 6
        p.append(paired_randomisation(a, b, resamples, seed))
    assert kolmogorov_smirnov(p) < 1
    assert min(p) > 0


def test_a_real_difference_is_found_the_more_often_the_more_queries():
    random = np.random.default_rng(2)

    def found(queries):
        pairs = [(random.normal(0.3, 1, queries), random.normal(0, 1, queries)) for _ in range(80)]
        return np.mean([paired_randomisation(a, b, 500) < 0.05 for a, b in pairs])

    # Power of the t test, which the randomisation test is close to: 0.3/√2 standard deviations.
    for queries in (20, 150):
        shift = 0.3 / math.sqrt(2) * math.sqrt(queries)
        critical = stats.t.ppf(0.975, queries - 1)
        power = stats.nct.sf(critical, queries - 1, shift) + stats.nct.cdf(-critical, queries - 1, shift)
        assert abs(found(queries) - power) < 4.5 * math.sqrt(power * (1 - power) / 80) + 0.02


def test_the_correction_bounds_the_chance_of_any_false_discovery_if_all_are_false():
    """Of 20 independent comparisons of like rankers, at level 0.1; uncorrected, 88 % of the families have one."""
    p = np.random.default_rng(3).random((2000, 20))
    families = np.mean([adjust(row).min() <= 0.1 for row in p])
    assert families < 0.1 + 4.5 * math.sqrt(0.1 * 0.9 / 2000)
    assert families > 0.05  # and is not idle
    assert np.mean(p.min(axis=1) <= 0.1) > 0.8
