"""Online metrics against their definitions, for every click pattern."""

import itertools
import math

import numpy as np
import pytest

from fedrank.core.errors import ConfigError, UnknownNameError
from fedrank.metrics.online import REWARDS, click_dcg, click_ndcg, discretise, max_rr, mean_rr
from fedrank.metrics.returns import discounted_cumulative
from fedrank.ranking.clicks.cascade import cascade, pattern_probabilities

DEPTH = 10


def pattern_chances(user, labels):
    """P(pattern) for labels [3, 10] with every rank shown."""
    return pattern_probabilities(user, labels, np.ones(labels.shape, bool))


def clicked_ranks(pattern):
    return [rank for rank in range(1, DEPTH + 1) if pattern >> (rank - 1) & 1]


def test_max_rr_of_every_pattern():
    metric = max_rr()
    expected = [1 / min(clicked_ranks(p)) if clicked_ranks(p) else 0.0 for p in range(2**DEPTH)]
    np.testing.assert_allclose(metric.values[metric.index], expected, rtol=1e-15)
    # Section 5 of the paper: n = 11, with the session without a click.
    assert metric.n == 11
    assert sorted(metric.values.round(12)) == [0.0] + [round(1 / r, 12) for r in range(10, 0, -1)]


def test_click_dcg_of_every_pattern():
    metric = click_dcg()
    expected = np.array([sum(1 / math.log2(1 + r) for r in clicked_ranks(p)) for p in range(2**DEPTH)])
    assert abs(metric.values[metric.index] - expected).max() <= 0.5 / metric.scale + 1e-12
    assert metric.values[metric.index[0]] == 0.0  # no click is a value like any other
    steps = {math.floor(value * 10_000 + 0.5) for value in expected}
    assert metric.numerators == tuple(sorted(steps))


def test_click_ndcg_and_mean_rr_of_every_pattern():
    ndcg, rr = [], []
    for pattern in range(2**DEPTH):
        ranks = clicked_ranks(pattern)
        best = sum(1 / math.log2(1 + r) for r in range(1, len(ranks) + 1))
        ndcg.append(sum(1 / math.log2(1 + r) for r in ranks) / best if ranks else 0.0)
        rr.append(sum(1 / r for r in ranks) / len(ranks) if ranks else 0.0)
    for metric, expected in ((click_ndcg(), ndcg), (mean_rr(), rr)):
        assert abs(metric.values[metric.index] - expected).max() <= 0.5 / metric.scale + 1e-12


def test_discretised_is_the_nearest_of_evenly_spaced_values():
    for name in ["MaxRR", "DCG", "nDCG"]:
        for n in [2, 3, 7]:
            metric = REWARDS.get(name)(DEPTH)
            coarse = discretise(metric, n)
            values = metric.values[metric.index]
            grid = np.linspace(0, metric.values[-1], n)
            np.testing.assert_allclose(coarse.values, grid, rtol=1e-12)
            nearest = np.abs(values[:, None] - grid).min(axis=1)
            np.testing.assert_allclose(np.abs(coarse.values[coarse.index] - values), nearest, atol=1e-12)


def test_values_are_ascending_and_all_in_use():
    for name in ["MaxRR", "DCG", "nDCG", "MeanRR"]:
        for depth in [1, 4]:
            metric = REWARDS.get(name)(depth)
            assert metric.index.shape == (2**depth,) and metric.index.dtype == np.int32
            assert (np.diff(metric.numerators) > 0).all()
            assert set(metric.index.tolist()) == set(range(metric.n))
            assert metric.largest == metric.numerators[-1]


def test_expectation_of_max_rr():
    # Without anybody stopping early, MaxRR is decided by the first click: a sum over its rank.
    for name, grades in itertools.product(("perfect", "navigational", "informational"), (3, 5)):
        user, metric = cascade(name, grades), max_rr()
        labels = np.random.default_rng(grades).integers(0, grades, (3, DEPTH)).astype(np.int32)
        probabilities = pattern_chances(user, labels)
        for row, chances in zip(labels, probabilities, strict=True):
            going, expected = 1.0, 0.0
            for rank, label in enumerate(row, start=1):
                expected += going * user.click[label] / rank
                going *= 1 - user.click[label]
            assert chances @ metric.values[metric.index] == pytest.approx(expected, abs=2e-6)


def test_expectation_of_click_dcg_of_the_perfect_user():
    # The perfect user never stops, so clicks are independent.
    metric, user = click_dcg(), cascade("perfect")
    labels = np.random.default_rng(4).integers(0, 3, (3, DEPTH)).astype(np.int32)
    expected = [
        sum(user.click[label] / math.log2(1 + rank) for rank, label in enumerate(row, start=1)) for row in labels
    ]
    got = pattern_chances(user, labels) @ metric.values[metric.index]
    np.testing.assert_allclose(got, expected, rtol=0, atol=0.5 / metric.scale + 2e-6)


def test_wrong_metrics():
    with pytest.raises(ConfigError, match=r"1\.\.16, got 17"):
        max_rr(17)
    with pytest.raises(ConfigError, match=r"1\.\.16, got 0"):
        click_dcg(0)
    with pytest.raises(UnknownNameError, match="Did you mean 'MaxRR'"):
        REWARDS.get("maxrr")


def test_a_discounted_sum_is_the_sum_over_the_rounds_so_far():
    for gamma in [1.0, 0.9995, 0.5]:
        values = np.random.default_rng(0).random((7, 2))
        found = discounted_cumulative(values, gamma)
        for r in range(7):
            for column in range(2):
                expected = math.fsum(gamma**t * values[t, column] for t in range(r + 1))
                assert found[r, column] == pytest.approx(expected, rel=1e-12)
