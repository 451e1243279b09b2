"""Means, intervals and differences against SciPy and formulas."""

import numpy as np
import pytest
from scipy import stats

from fedrank.core.errors import ConfigError
from fedrank.core.frame import Frame
from fedrank.report.statistics import curve, difference, final_values, mean_interval

A = {0: 0.61, 1: 0.64, 2: 0.60, 3: 0.66, 4: 0.62}
B = {0: 0.58, 1: 0.63, 2: 0.55, 3: 0.65, 4: 0.60}


def test_mean_and_student_interval():
    values = list(A.values())
    found = mean_interval(values)
    low, high = stats.t.interval(0.95, 4, loc=np.mean(values), scale=stats.sem(values))
    assert (found.mean, found.low, found.high, found.n) == pytest.approx((np.mean(values), low, high, 5))


def test_one_value_has_no_interval():
    found = mean_interval([0.5])
    assert (found.mean, found.half, found.low, found.high) == (0.5, None, None, None)
    with pytest.raises(ConfigError, match="at least one"):
        mean_interval([])


def test_a_difference_over_common_seeds_is_paired():
    found = difference(A, B)
    interval = stats.ttest_rel(list(A.values()), list(B.values())).confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high))
    assert "paired over 5" in found.method
    # Order of the seeds does not matter, nor do seeds that only one side has.
    assert difference(dict(reversed(A.items())), {**B, 9: 0.0}).half == pytest.approx(found.half)


def test_a_difference_without_common_seeds_is_welchs():
    other = {seed + 100: value for seed, value in list(B.items())[:3]}
    found = difference(A, other)
    test = stats.ttest_ind(list(A.values()), list(other.values()), equal_var=False).confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((test.low, test.high))
    assert "Welch" in found.method


def test_a_difference_of_single_seeds_has_no_interval():
    assert difference({1: 0.5}, {1: 0.25}).half is None
    assert difference({1: 0.5}, {2: 0.25}).half is None
    assert difference({1: 0.5}, {2: 0.25}).mean == 0.25


def frame(seed, split, rounds, values):
    return Frame(
        {
            "seed": [seed] * len(values), "round": list(rounds), "interactions": [10 * r for r in rounds],
            "bytes_up": [9 * r for r in rounds], "epsilon": [float(r) for r in rounds], "split": [split] * len(values),
            "measure": ["m"] * len(values), "value": [float(v) for v in values],
        }
    )  # fmt: skip


def test_final_values_are_those_that_every_seed_has_reached():
    offline = Frame.concat([frame(0, "test", (0, 5, 10), (1, 2, 3)), frame(1, "test", (0, 5), (4, 6))])
    assert final_values(offline, "test", "m") == {0: 2.0, 1: 6.0}
    assert final_values(offline, "train", "m") == {}


def test_the_final_online_value_is_the_mean_of_the_last_tenth():
    values = np.arange(1, 41) ** 2
    online = frame(3, "online", range(1, 41), values)
    assert final_values(online, "online", "m") == {3: np.mean(values[-4:])}


def test_a_long_curve_is_thinned_to_means_of_neighbours():
    n = 1000
    long = Frame.concat([frame(s, "online", range(1, n + 1), np.arange(n) + s) for s in (0, 1, 2)])
    thin, block = curve(long, "online", "m", points=100)
    assert block == 10 and len(thin) == 100
    means = (np.arange(n) + 1).reshape(100, 10).mean(axis=1)  # over the seeds, then over ten rounds
    np.testing.assert_allclose(thin["mean"], means)
    # Three seeds one apart everywhere: the interval is that of three values, in each block.
    low, high = stats.t.interval(0.95, 2, loc=1, scale=stats.sem([0, 1, 2]))
    np.testing.assert_allclose(thin["high"] - thin["low"], high - low)
    short, block = curve(frame(0, "online", (1, 2, 3), (1, 5, 3)), "online", "m", points=100)
    assert block == 1 and short["mean"].tolist() == [1, 5, 3]
