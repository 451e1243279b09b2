"""Laws of randomised response: frequencies, unbiasedness, and how ε behaves."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedrank.core.errors import ConfigError
from fedrank.core.privacy_report import BASIC, Unit
from fedrank.metrics.online import click_dcg, max_rr
from fedrank.privacy.accounts.randomised_response import account, composed_epsilon
from fedrank.privacy.randomised_response import debias, epsilon, privatise, worst_case_epsilon

DRAWS = 200_000


def draws(seed):
    return np.random.default_rng(seed).integers(0, 2**32, (DRAWS, 2), dtype=np.uint32)


def test_frequencies():
    for truth in [0, 7, 10]:
        for p in [0.15, 0.25, 0.5, 0.9]:
            n = 11
            reports = privatise(np.full(DRAWS, truth, np.int32), draws(truth), p, n)
            observed = np.bincount(reports, minlength=n)
            expected = np.full(n, (1 - p) / (n - 1)) * DRAWS
            expected[truth] = p * DRAWS
            chi_square = ((observed - expected) ** 2 / expected).sum()
            assert observed.size == n
            # the 99.9th percentile of chi-square with 10 degrees of freedom; the words are fixed
            assert chi_square < 29.59


@pytest.mark.parametrize("metric", [max_rr(10), click_dcg(4)], ids=lambda metric: metric.name)
def test_debiased_reports_are_unbiased(metric):
    p = 0.3
    # High values are rare, as good sessions are; with all values equally likely a report would be unbiased anyway.
    truth = (metric.n * np.random.default_rng(0).random(DRAWS) ** 3).astype(np.int32)
    reports = metric.values[privatise(truth, draws(1), p, metric.n)]
    true_mean = metric.values[truth].mean()
    error = 4 * reports.std() / math.sqrt(DRAWS)
    slope = (p * metric.n - 1) / (metric.n - 1)  # equation (7)
    expected = true_mean * slope + (1 - p) / (metric.n - 1) * metric.values.sum()
    assert abs(reports.mean() - expected) < error
    assert abs(debias(reports.mean(), metric.values, p) - true_mean) < error / slope
    assert abs(reports.mean() - true_mean) > error  # which the reports themselves are not


def test_reports_of_pure_noise_cannot_be_debiased():
    with pytest.raises(ConfigError, match="no information"):
        debias(0.5, [0.0, 1.0], 0.5)


@settings(max_examples=60, deadline=None)
@given(p=st.floats(0.01, 1.0), n=st.integers(2, 200), truth=st.floats(0, 1))
def test_debiased_inverts_the_expectation(p, n, truth):
    if abs(p * n - 1) < 1e-3:
        return
    values, lie = np.linspace(0, 1, n), (1 - p) / (n - 1)
    expected = p * truth + lie * (values.sum() - truth)
    assert debias(expected, values, p) == pytest.approx(truth, abs=1e-9)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**31), p=st.floats(0.01, 0.999), n=st.integers(2, 12))
def test_chance_in_the_metric_never_costs_privacy(seed, p, n):
    distributions = np.random.default_rng(seed).dirichlet(np.full(n, 0.3), size=5)
    measured = worst_case_epsilon(distributions, p)
    assert 0.0 <= measured <= epsilon(p, n) + 1e-9
    # More lists can only make it worse.
    assert worst_case_epsilon(distributions[:3], p) <= measured


@settings(max_examples=40, deadline=None)
@given(index=st.integers(0, 10), words=st.tuples(st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1)))
def test_certainty_is_certain_and_reports_stay_in_range(index, words):
    truth, words = np.array([index], np.int32), np.array([words], np.uint32)
    assert privatise(truth, words, 1.0, 11)[0] == index
    assert 0 <= privatise(truth, words, 1e-12, 11)[0] <= 10


def test_composition_grows_and_stays_below_the_sum():
    for p in [0.12, 0.5, 0.9, 0.99]:
        composed = [composed_epsilon(p, 11, times, 1e-5) for times in (0, 1, 2, 10, 100, 1000)]
        assert composed[0] == 0.0
        assert all(a <= b + 1e-9 for a, b in itertools.pairwise(composed))
        assert all(c <= t * epsilon(p, 11) for c, t in zip(composed, (0, 1, 2, 10, 100, 1000), strict=True))
        # A smaller δ promises more and costs more.
        assert composed_epsilon(p, 11, 100, 1e-9) >= composed_epsilon(p, 11, 100, 1e-3)


def test_units_are_ordered():
    for p in (0.2, 0.6, 0.95):
        report = account(p=p, n=11, interactions_per_message=8, rounds=5)
        units = (Unit.INTERACTION, Unit.HALF, Unit.MESSAGE)
        found = [*(report.epsilon(unit) for unit in units), report.epsilon(Unit.USER, basis=BASIC)]
        assert all(a < b for a, b in itertools.pairwise(found)) and math.isfinite(found[-1])
        assert report.epsilon(Unit.USER) <= report.epsilon(Unit.USER, basis=BASIC)
