"""Tests of two rankers query by query, against SciPy, enumeration, and numbers worked out by hand."""

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from fedrank.core.errors import ConfigError, DataError
from fedrank.report import significance
from fedrank.report.significance import adjust, compare_queries, compared_cells, paired_randomisation, paired_t


def two(seed, n, gain=0.1):
    """Values in [0, 1] that are often equal, as those of two rankers on the same queries."""
    random = np.random.default_rng(seed)
    a, b = random.integers(0, 6, (2, n)) / 5
    better = random.random(n) < gain
    return np.where(better, np.maximum(a, b), a), b


def test_t_test_by_hand():
    # Differences 1, 2, 3: t = 2 / (1/√3) with two degrees of freedom, whose distribution has a closed form.
    t = 2 * math.sqrt(3)
    expected = 1 - t / math.sqrt(2 + t * t)
    assert paired_t(np.array([2.0, 4, 6]), np.array([1.0, 2, 3])) == pytest.approx(expected, rel=1e-12)


def test_t_test_and_interval_against_scipy():
    for n in [2, 7, 157]:
        a, b = two(n, n)
        expected = stats.ttest_rel(a, b)
        interval = expected.confidence_interval(0.95)
        found = compare_queries(a, b)
        assert paired_t(a, b) == pytest.approx(expected.pvalue, rel=1e-9)
        assert (found.low, found.high) == pytest.approx((interval.low, interval.high))
        assert found.difference == pytest.approx(np.mean(a) - np.mean(b))
        assert found.dz == pytest.approx(expected.statistic / math.sqrt(n))
        assert (found.wins, found.ties, found.losses) == ((a > b).sum(), (a == b).sum(), (a < b).sum())


def enumerated(a, b):
    """All 2ⁿ sign patterns, one after another, in exact integers (values are fifths)."""
    differences = np.rint(5 * (a - b)).astype(int).tolist()
    seen = abs(sum(differences))
    sums = [
        sum(s * d for s, d in zip(signs, differences, strict=True))
        for signs in itertools.product((1, -1), repeat=len(a))
    ]
    return sum(abs(total) >= seen for total in sums) / len(sums)


def test_randomisation_test_of_few_queries_is_exact():
    for n in [2, 5, 11]:
        for seed in range(5):
            a, b = two(seed, n, gain=0.5)
            assert paired_randomisation(a, b) == pytest.approx(enumerated(a, b), rel=1e-12)


def test_exact_randomisation_test_in_pieces(monkeypatch):
    a, b = two(1, 10)
    whole = paired_randomisation(a, b)
    monkeypatch.setattr(significance, "_CHUNK", 70)
    assert paired_randomisation(a, b) == whole == enumerated(a, b)


def test_randomisation_test_against_scipy():
    a, b = two(2, 60, gain=0.35)
    resamples = 20_000
    other = stats.permutation_test(
        (a, b), lambda x, y, axis: np.mean(x - y, axis=axis), permutation_type="samples", vectorized=True,
        n_resamples=resamples, rng=np.random.default_rng(0),
    ).pvalue  # fmt: skip
    found = paired_randomisation(a, b, resamples, seed=1)
    assert 0.005 < other < 0.2
    assert abs(found - other) < 4.5 * math.sqrt(2 * other * (1 - other) / resamples)


def test_random_patterns_agree_with_all_patterns():
    a, b = two(4, 14, gain=0.6)
    different = int(np.count_nonzero(a != b))
    exact = paired_randomisation(a, b, resamples=2**different)
    resamples = 2**different - 1  # one too few for all
    drawn = paired_randomisation(a, b, resamples, seed=3)
    assert exact == pytest.approx(enumerated(a, b)) and 0.01 < exact < 0.5 and different > 10
    assert exact != drawn and abs(exact - drawn) < 4.5 * math.sqrt(exact * (1 - exact) / resamples)


def test_random_patterns_never_give_zero():
    b = np.arange(200.0)
    a = b + np.linspace(1, 2, 200)  # every other pattern is further down: no hit in any number of draws
    assert paired_randomisation(a, b, resamples=999) == 1 / 1000


def test_pieces_change_nothing_but_memory(monkeypatch):
    a, b = two(7, 203)
    whole = paired_randomisation(a, b, 3000)
    assert whole == paired_randomisation(a, b, 3000) != paired_randomisation(a, b, 3000, seed=4)
    monkeypatch.setattr(significance, "_CHUNK", 26 * 100)
    pieces = [len(piece) for piece in significance._random_patterns(203, 3000, 0)]
    assert sum(pieces) == 3000 and max(pieces) == 100
    # Other pieces may be other draws; the estimate is the same within its chance.
    assert abs(paired_randomisation(a, b, 3000) - whole) < 4.5 * math.sqrt(2 * 0.25 / 3000)


def test_every_sign_is_flipped_half_of_the_time():
    patterns = np.concatenate(list(significance._random_patterns(19, 20_000, 0)))
    # One value alone is 1 and the others 0: its sum is whether its sign is flipped.
    flips = np.stack([significance._flipped_sums(one, patterns) for one in np.eye(19)], axis=1)
    assert flips.shape == (20_000, 19) and set(np.unique(flips)) == {0, 1}
    assert np.abs(flips.mean(axis=0) - 0.5).max() < 4.5 * 0.5 / math.sqrt(20_000)
    correlation = np.corrcoef(flips.T) - np.eye(19)
    assert np.abs(correlation).max() < 4.5 / math.sqrt(20_000)


@pytest.mark.parametrize("n", [9, 40])
def test_swapping_the_rankers_changes_the_signs_only(n):
    a, b = two(n, n)
    assert paired_t(a, b) == pytest.approx(paired_t(b, a), rel=1e-12)
    assert paired_randomisation(a, b, 2000) == paired_randomisation(b, a, 2000)
    one, other = compare_queries(a, b), compare_queries(b, a)
    assert (one.difference, one.dz, one.low, one.high) == pytest.approx(
        (-other.difference, -other.dz, -other.high, -other.low)
    )
    assert (one.wins, one.ties, one.losses) == (other.losses, other.ties, other.wins)


def test_equal_rankers():
    a, _ = two(0, 30)
    assert paired_t(a, a) == paired_randomisation(a, a) == 1
    found = compare_queries(a, a.copy())
    assert (found.difference, found.low, found.high, found.dz) == (0, 0, 0, 0)
    assert (found.wins, found.ties, found.losses) == (0, 30, 0)
    # What only rounding tells apart is equal.
    third = np.full(30, 0.1) + 0.2
    assert (third != 0.3).all() and paired_t(third, np.full(30, 0.3)) == 1


def test_a_constant_difference():
    _, b = two(0, 8)
    a = b + 0.1
    assert np.ptp(a - b) > 0  # by rounding
    assert paired_t(a, b) == 0 and paired_randomisation(a, b) == 2 / 2**8
    found = compare_queries(a, b)
    assert found.dz == math.inf and compare_queries(b, a).dz == -math.inf and found.wins == 8
    assert (found.difference, found.low, found.high) == pytest.approx((0.1, 0.1, 0.1))


def test_one_query_allows_no_test():
    a, b = np.array([0.75]), np.array([0.5])
    assert paired_t(a, b) is None and paired_randomisation(a, b) is None
    found = compare_queries(a, b)
    assert (found.difference, found.low, found.high, found.dz, found.wins) == (0.25, None, None, None, 1)


def test_what_cannot_be_compared_is_refused():
    for test in [paired_t, paired_randomisation, compare_queries]:
        good = np.array([0.1, 0.2])
        for a, b, message in (
            (good, np.array([0.1]), "shapes"),
            (good, np.array([0.1, math.nan]), "got nan for query number 1"),
            (np.array([math.inf, 0]), good, "got inf for query number 0"),
            (np.zeros(0), np.zeros(0), "one or more"),
            (np.zeros((2, 2)), np.zeros((2, 2)), "shapes"),
        ):
            with pytest.raises(DataError, match=message):
                test(a, b)


def test_resamples_are_checked():
    with pytest.raises(ConfigError, match="at least 1"):
        paired_randomisation(np.array([0.1, 0.2]), np.array([0.0, 0.3]), resamples=0)


# Corrections


P = [0.020, 0.001, 0.300, 0.021, 0.012]


def test_the_correction_by_hand():
    # 5 · 0.001; 4 · 0.012 = 0.048; 3 · 0.020 = 0.060; 2 · 0.021 = 0.042, but never below the last; 0.3.
    np.testing.assert_allclose(adjust(P), [0.060, 0.005, 0.300, 0.060, 0.048], rtol=1e-12)
    assert adjust([0.04]).tolist() == [0.04] and adjust([]).tolist() == []
    np.testing.assert_allclose(adjust([0.7, 0.9, 0.0])[2], 0)
    assert adjust([0.7, 0.9, 0.0]).max() <= 1


def test_holm_rejects_what_the_step_down_procedure_rejects():
    """Holm 1979: go up from the smallest p while p(i) ≤ level/(m − i + 1), stop at the first that is not."""
    random = np.random.default_rng(0)
    for _ in range(200):
        p, level = random.random(6) ** 3, 0.1
        rejected = set()
        for step, i in enumerate(np.argsort(p)):
            if p[i] > level / (6 - step):
                break
            rejected.add(int(i))
        assert set(np.flatnonzero(adjust(p) <= level).tolist()) == rejected


def test_corrections_check_their_values():
    for bad in ([0.5, 1.5], [-0.1], [math.nan]):
        with pytest.raises(ConfigError, match="numbers in"):
            adjust(bad)


# Many comparisons


def test_a_comparison_has_both_tests_and_counts_every_query():
    random = np.random.default_rng(2)
    b = random.random(40)
    for a in (np.clip(b + 0.05 * random.standard_normal(40), 0, 1), b**2):
        found = compare_queries(a, b, resamples=2000)
        assert found.queries == 40
        assert found.p_t == pytest.approx(stats.ttest_rel(a, b).pvalue)
        assert found.difference == pytest.approx(a.mean() - b.mean())
        assert found.p_randomisation == paired_randomisation(a, b, 2000)


def test_cells_of_a_table_are_corrected_for_its_tests():
    a, b = np.array([1.0, 0.5, 0.0, 0.9]), np.array([0.0, 0.5, 0.1, 0.2])
    tested, lone = compare_queries(a, b), compare_queries(a[:1], b[:1])
    assert (lone.p_t, lone.p_randomisation) == (None, None)
    first, second, third = compared_cells([tested, lone, tested])
    assert first == third and first["wins"] == "2/1/1" and (second["p_t"], second["p_r"]) == ("–", "–")
    assert first["p_t"] == f"{min(1.0, 2 * stats.ttest_rel(a, b).pvalue):.3f}"  # two tests are known
    assert first["difference"].high == pytest.approx(tested.high) and second["difference"].high is None
