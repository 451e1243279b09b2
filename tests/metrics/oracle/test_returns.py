"""Returns: times by hand, intervals against SciPy."""

import math

import numpy as np
import pytest
from scipy import stats

from fedrank.core.errors import ConfigError
from fedrank.metrics.returns import mean_interval, time_to_threshold


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
        (lambda: time_to_threshold([0, 0], [1, 1], 1), "ascending"),
        (lambda: time_to_threshold([0, 1], [1], 1), "ascending"),
        (lambda: time_to_threshold([0, 1], [1, 1], 1, 0), "at least 1"),
        (lambda: mean_interval([]), "at least one"),
        (lambda: mean_interval([1.0, 2.0], 1.0), "0.95"),
    ]:
        with pytest.raises(ConfigError, match=says):
            call()
