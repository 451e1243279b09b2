"""Returns: the legacy metrics against a loop, times by hand, intervals against SciPy."""

import math
from collections import deque

import numpy as np
import pytest
from scipy import stats

from fedrank.core.errors import ConfigError
from fedrank.metrics.returns import max_of_moving_mean, mean_interval, time_to_threshold


def logged(returns, window, every):
    """As a training script logs it: a queue of the last returns, a record each so many episodes."""
    last, records = deque(maxlen=window), []
    for episode, value in enumerate(returns, start=1):
        last.append(value)
        if episode % every == 0 and len(last) == window:
            records.append((sum(last) / window, episode))
    best = max(value for value, _ in records)
    return best, next(episode for value, episode in records if value == best)


def test_the_moving_maximum_is_what_a_training_log_shows():
    for episodes, window, every in [(500, 100, 20), (130, 7, 3), (40, 5, 5), (9, 1, 1), (25, 10, 4)]:
        returns = np.random.default_rng(episodes).integers(0, 50, size=(3, episodes)).astype(float)
        ours = max_of_moving_mean(returns, window, every)
        for row, value, episode in zip(returns, ours.optimal_reward, ours.etror, strict=True):
            assert (value, episode) == (pytest.approx(logged(row, window, every)[0]), logged(row, window, every)[1])


def test_the_legacy_metrics_rise_above_the_truth_although_nothing_is_learnt():
    returns = np.random.default_rng(1).normal(1000, 178, size=(200, 5000))
    found = max_of_moving_mean(returns)
    # 49 non-overlapping means of sd 17.8 alone would have an expected maximum of 2.24 sd = 40.
    assert 1000 + 40 < np.median(found.optimal_reward) < 1000 + 3.5 * 17.8
    # Wherever it falls, it falls by chance: as often in each half.
    assert stats.binomtest(int((found.etror <= 2550).sum()), 200).pvalue > 1e-4


def test_the_first_of_equal_records_counts():
    assert max_of_moving_mean(np.ones(60), window=20, every=20).etror == 20


def test_the_time_to_a_threshold_is_that_of_the_first_evaluation_that_keeps_it():
    for values, threshold, stay, time in [
        ([0, 5, 1, 5, 6], 5, 1, 10),
        ([0, 5, 1, 5, 6], 5, 2, 30),
        ([0, 5, 1, 5, 6], 5, 3, math.inf),
        ([0, 5, 1, 5, 6], -1, 5, 0),
        ([0, 5, 1, 5, 6], 0, 6, math.inf),
        ([], 0, 1, math.inf),
    ]:
        assert time_to_threshold(10 * np.arange(len(values)), values, threshold, stay) == time


def test_the_interval_is_students():
    values = np.random.default_rng(2).normal(size=8)
    expected = stats.t.interval(0.9, 7, values.mean(), stats.sem(values))
    found = mean_interval(values, level=0.9)
    np.testing.assert_allclose([found.low, found.high, found.mean], [*expected, values.mean()])
    assert math.isnan(mean_interval([1.0]).low)
    assert mean_interval([1.0]).mean == 1.0


def test_what_makes_no_sense_is_refused():
    for call, says in [
        (lambda: max_of_moving_mean(np.ones(99)), "needs 100 episodes"),
        (lambda: max_of_moving_mean(np.ones(9), 0), "at least 1"),
        (lambda: time_to_threshold([0, 0], [1, 1], 1), "ascending"),
        (lambda: time_to_threshold([0, 1], [1], 1), "ascending"),
        (lambda: time_to_threshold([0, 1], [1, 1], 1, 0), "at least 1"),
        (lambda: mean_interval([]), "at least one"),
        (lambda: mean_interval([1.0, 2.0], 1.0), "0.95"),
    ]:
        with pytest.raises(ConfigError, match=says):
            call()
