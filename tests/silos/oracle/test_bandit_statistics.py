"""Statistics of a bandit's run: pairs by hand, Student's interval and Mann-Whitney's test by SciPy."""

import numpy as np
import pytest
from scipy import stats

from fedrank.silos.bandits import rules
from fedrank.silos.evidence import EXACT_PAIRS, differences, interval, inversion_p

# paired differences


def test_a_silo_is_compared_with_the_same_arm_without_it():
    """All combinations of target 1 and silos 0, 2: arms are {1}, {0, 1}, {1, 2}, {0, 1, 2}."""
    increments = np.array([[0.0, 0.1, 0.2, 0.6], [0.0, 0.3, -0.1, 0.0], [0.0, 0.3, 0.1, 0.2], [0, 0, 0, np.nan]])
    observed = np.array([[1, 1, 1, 1], [1, 1, 0, 1], [0, 0, 0, 1], [0, 0, 1, 1]], bool)
    members = rules.members_of(rules.combination_table(3), 1, 3)
    # Round 0: means of (.1 − 0, .6 − .2) and (.2 − 0, .6 − .1). Round 1 lacks {1, 2}. Rounds 2 and 3 have no pair.
    np.testing.assert_allclose(differences(increments, observed, members, 0), [0.25, 0.3, np.nan, np.nan])
    np.testing.assert_allclose(differences(increments, observed, members, 2), [0.35, -0.3, np.nan, np.nan])


def test_a_pair_without_the_arm_alone_is_compared_with_the_targets_own_model():
    increments, observed = np.array([[0.1, -0.2], [0.3, 0.4]]), np.array([[1, 1], [0, 1]], bool)
    members = rules.members_of(rules.pair_table(3, alone=False), 0, 3)
    np.testing.assert_allclose(differences(increments, observed, members, 1), [0.1, np.nan])
    np.testing.assert_allclose(differences(increments, observed, members, 2), [-0.2, 0.4])


def test_a_pair_with_the_arm_alone_needs_it_observed():
    increments, observed = np.array([[0.01, 0.1, 0.2], [0.01, 0.1, 0.2]]), np.array([[1, 1, 0], [0, 1, 0]], bool)
    np.testing.assert_allclose(
        differences(increments, observed, rules.members_of(rules.pair_table(3), 0, 3), 1), [0.09, np.nan]
    )


def test_leaving_one_out_pairs_with_everyone():
    increments = np.array([[0.5, 0.4, 0.7, 0.5]])
    observed, members = np.ones((1, 4), bool), np.concatenate([np.ones((1, 3), bool), ~np.eye(3, dtype=bool)])
    found = [float(differences(increments, observed, members, silo)[0]) for silo in range(3)]
    np.testing.assert_allclose(found, [0.1, -0.2, 0.0], atol=1e-12)


def test_the_target_has_nothing_to_be_compared_with():
    assert np.isnan(
        differences(np.ones((2, 8)), np.ones((2, 8), bool), rules.members_of(rules.combination_table(4), 2, 4), 2)
    ).all()


# intervals


def test_an_interval_is_that_of_student_and_none_of_two():
    samples = np.random.default_rng(10).normal(size=9)
    for there in (samples, samples[:3]):
        wanted = stats.t.interval(0.95, len(there) - 1, there.mean(), stats.sem(there))
        np.testing.assert_allclose(interval(there), [there.mean(), *wanted], rtol=1e-10)
    np.testing.assert_allclose(interval(samples[:2]), [samples[:2].mean(), np.nan, np.nan])


# inverted labels


def test_the_p_value_is_scipys():
    for shift in [-0.8, 0.0, 0.8]:
        for positives, negatives in [(3, 4), (1, 30), (12, 9), (40, 45), (70, 90)]:
            random = np.random.default_rng(positives)
            ones, zeros = random.normal(shift, 1, positives), random.normal(0, 1, negatives)
            auc = np.mean(ones[:, None] > zeros[None, :])
            method = "exact" if positives * negatives <= EXACT_PAIRS else "asymptotic"
            wanted = stats.mannwhitneyu(ones, zeros, alternative="less", method=method).pvalue
            found = inversion_p(float(np.float32(auc)), positives, negatives)
            assert found == pytest.approx(wanted, rel=1e-6, abs=1e-12)


def test_an_auc_that_does_not_exist_has_no_p_value():
    none = ((float("nan"), 10, 10), (0.1, 0, 10), (-0.3, 20, 20), (-1e9, 300, 300), (1.5, 20, 20))
    assert np.isnan([inversion_p(*one) for one in none]).all()
