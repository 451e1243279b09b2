"""Evidence about silos: pairs by hand, capital in closed form, false alarms counted, Mann-Whitney by SciPy."""

import numpy as np
import pytest
from scipy import stats

from fedrank.core.errors import ConfigError, DataError
from fedrank.silos.bandits import arms
from fedrank.silos.bandits import evidence as tests
from fedrank.silos.bandits.evidence import differences, evidence, inverted

RUNS, ROUNDS = 2000, 200


def crossings(x):
    """Which of many runs [runs, rounds] ever reach 20 against "the mean is not above zero"."""
    return tests._capital(x, np.ones(x.shape, bool), 0.0).max(axis=1) >= 20


# paired differences


def test_a_silo_is_compared_with_the_same_arm_without_it():
    """All combinations of target 1 and silos 0, 2: arms are {1}, {0, 1}, {1, 2}, {0, 1, 2}."""
    increments = np.array([[0.0, 0.1, 0.2, 0.6], [0.0, 0.3, -0.1, 0.0], [0.0, 0.3, 0.1, 0.2], [0, 0, 0, np.nan]])
    observed = np.array([[1, 1, 1, 1], [1, 1, 0, 1], [0, 0, 0, 1], [0, 0, 1, 1]], bool)
    members = arms.combinations(1, 3)
    # Round 0: means of (.1 − 0, .6 − .2) and (.2 − 0, .6 − .1). Round 1 lacks {1, 2}. Rounds 2 and 3 have no pair.
    np.testing.assert_allclose(differences(increments, observed, members, 0), [0.25, 0.3, np.nan, np.nan])
    np.testing.assert_allclose(differences(increments, observed, members, 2), [0.35, -0.3, np.nan, np.nan])


def test_a_pair_without_the_arm_alone_is_compared_with_the_targets_own_model():
    increments, observed = np.array([[0.1, -0.2], [0.3, 0.4]]), np.array([[1, 1], [0, 1]], bool)
    members = arms.pairs(0, 3, alone=False)
    np.testing.assert_allclose(differences(increments, observed, members, 1), [0.1, np.nan])
    np.testing.assert_allclose(differences(increments, observed, members, 2), [-0.2, 0.4])


def test_a_pair_with_the_arm_alone_needs_it_observed():
    increments, observed = np.array([[0.01, 0.1, 0.2], [0.01, 0.1, 0.2]]), np.array([[1, 1, 0], [0, 1, 0]], bool)
    np.testing.assert_allclose(differences(increments, observed, arms.pairs(0, 3), 1), [0.09, np.nan])


def test_leaving_one_out_pairs_with_everyone():
    increments = np.array([[0.5, 0.4, 0.7, 0.5]])
    observed, members = np.ones((1, 4), bool), arms.leave_one_out(3)
    found = [float(differences(increments, observed, members, silo)[0]) for silo in range(3)]
    np.testing.assert_allclose(found, [0.1, -0.2, 0.0], atol=1e-12)


def test_the_target_has_nothing_to_be_compared_with():
    assert np.isnan(differences(np.ones((2, 8)), np.ones((2, 8), bool), arms.combinations(2, 4), 2)).all()


# the test


def test_capital_of_a_single_share_is_a_product(monkeypatch):
    monkeypatch.setattr(tests, "BETS", np.array([0.5]))
    found = evidence(np.array([0.2, np.nan, -0.4, 0.0]))
    np.testing.assert_allclose(found.help, [1.1, 1.1, 1.1 * 0.8, 1.1 * 0.8])
    np.testing.assert_allclose(found.harm, [0.9, 0.9, 0.9 * 1.2, 0.9 * 1.2])
    assert (found.n, found.verdict) == (3, "no evidence")
    assert found.mean == pytest.approx(-0.2 / 3)


def test_capital_is_spread_over_the_shares():
    x = np.array([0.3, -0.1, 0.25])
    wanted = np.mean([[np.prod(1 + bet * x[: t + 1]) for t in range(3)] for bet in tests.BETS], axis=0)
    np.testing.assert_allclose(evidence(x).help, wanted)


def test_a_silo_that_always_harms_is_named_in_the_round_of_the_closed_form():
    """By sign, n rounds of harm give the mean of (1 + λ)ⁿ; nearly ∫₀¹ (1 + λ)ⁿ dλ = (2ⁿ⁺¹ − 1) / (n + 1)."""
    found = evidence(np.full(15, -0.01), by="sign")
    n = np.arange(1, 16)
    np.testing.assert_allclose(found.harm, (2.0 ** (n + 1) - 1) / (n + 1), rtol=0.02)
    assert (2**7 - 1) / 7 < 20 < (2**8 - 1) / 8  # so the seventh round, number 6
    assert (found.verdict, found.harmed_at, found.helped_at, found.mean) == ("harms", 6, None, -1.0)
    mirrored = evidence(np.full(15, 0.01), by="sign")
    assert (mirrored.verdict, mirrored.helped_at, mirrored.harmed_at) == ("helps", 6, None)


NULLS = {
    "coin of ±1": lambda r: r.choice([-1.0, 1.0], (RUNS, ROUNDS)),
    "coin of ±0.3": lambda r: r.choice([-0.3, 0.3], (RUNS, ROUNDS)),
    "rare large losses": lambda r: np.where(r.random((RUNS, ROUNDS)) < 0.1, -0.9, 0.1),
    "rare large gains": lambda r: np.where(r.random((RUNS, ROUNDS)) < 0.1, 0.9, -0.1),
    "a mean that drifts below zero": lambda r: np.clip(
        r.choice([-0.8, 0.8], (RUNS, ROUNDS)) - 0.2 * np.abs(np.sin(np.arange(ROUNDS) / 9))[None, :], -1, 1
    ),
}


@pytest.mark.parametrize("null", NULLS)
def test_under_the_null_at_most_one_run_in_twenty_ever_crosses(null):
    crossed = crossings(NULLS[null](np.random.default_rng(1))).sum()
    assert stats.binomtest(int(crossed), RUNS, 0.05, alternative="greater").pvalue > 1e-3


def test_under_the_null_an_adversary_who_watches_the_capital_gains_nothing():
    """The size of a round's fair coin depends on the past: all or nothing near the line, small elsewhere."""
    random, x = np.random.default_rng(2), np.zeros((RUNS, 60))
    for t in range(60):
        capital = np.ones(RUNS) if t == 0 else tests._capital(x[:, :t], np.ones((RUNS, t), bool), 0.0)[:, -1]
        x[:, t] = np.where(capital > 8, 1.0, 0.4) * random.choice([-1.0, 1.0], RUNS)
    crossed = crossings(x).sum()
    assert crossed > 0
    assert stats.binomtest(int(crossed), RUNS, 0.05, alternative="greater").pvalue > 1e-3


def test_a_known_gap_is_found_by_sign_in_a_run_and_by_mean_in_pooled_runs():
    """A silo that costs 0.15 ± 0.05 AUC a round: what inverted labels do. 15 rounds a run, 20 runs."""
    random = np.random.default_rng(3)
    runs = random.normal(-0.15, 0.05, (200, 15)).clip(-1, 1)
    assert crossings(-np.sign(runs)).mean() > 0.95
    assert crossings(-runs).mean() < 0.05  # the price of a bound that holds for all differences of AUC
    pooled = evidence(runs[:20].reshape(-1))
    assert pooled.verdict == "harms" and pooled.upper[-1] < 0 and pooled.n == 300
    small = random.normal(-0.03, 0.03, (200, 30)).clip(-1, 1)
    assert crossings(-np.sign(small)).mean() > 0.8 and crossings(np.sign(small)).mean() < 0.05


def test_the_confidence_sequence_covers_and_narrows():
    random, missed = np.random.default_rng(4), []
    for _ in range(60):
        x = np.where(random.random(60) < 0.7, 0.2, -0.4)  # mean 0.02
        found = evidence(x)
        assert np.all(np.diff(found.lower) >= 0) and np.all(np.diff(found.upper) <= 0)
        missed.append([np.any(found.lower > 0.02), np.any(found.upper < 0.02)])
    assert np.all(np.sum(missed, axis=0) <= 9)  # 3 expected at most; P(> 9) < 0.001
    assert found.lower[-1] < found.mean < found.upper[-1]
    assert found.upper[-1] - found.lower[-1] < found.upper[9] - found.lower[9]


def test_verdict_and_confidence_sequence_agree():
    random, verdicts = np.random.default_rng(5), []
    for mean in np.linspace(-0.3, 0.3, 25):
        found = evidence(random.normal(mean, 0.2, 40).clip(-1, 1))
        assert (found.harmed_at is not None) == bool(found.upper[-1] <= 0)
        assert (found.helped_at is not None) == bool(found.lower[-1] >= 0)
        verdicts.append(found.verdict)
    assert (verdicts[0], verdicts[12], verdicts[-1]) == ("harms", "no evidence", "helps")


def test_a_silo_that_changes_sides_is_judged_by_what_it_is_now():
    found = evidence(np.concatenate([np.full(10, -0.5), np.full(40, 0.5)]), by="sign")
    assert found.harmed_at is not None and found.helped_at is not None and found.verdict == "helps"


def test_rounds_without_an_observation_are_no_evidence():
    found = evidence(np.full(5, np.nan))
    assert (found.n, found.verdict) == (0, "no evidence") and np.isnan(found.mean)
    np.testing.assert_array_equal(found.harm, np.ones(5))
    np.testing.assert_array_equal([found.lower, found.upper], [[-1.0] * 5, [1.0] * 5])
    assert evidence(np.zeros(0)).verdict == "no evidence"


# inverted labels


@pytest.mark.parametrize("positives, negatives", [(3, 4), (1, 30), (12, 9), (40, 45), (70, 90)])
@pytest.mark.parametrize("shift", [-0.8, 0.0, 0.8])
def test_the_p_value_is_scipys(positives, negatives, shift):
    random = np.random.default_rng(positives)
    ones, zeros = random.normal(shift, 1, positives), random.normal(0, 1, negatives)
    auc = np.mean(ones[:, None] > zeros[None, :])
    method = "exact" if positives * negatives <= tests.EXACT_PAIRS else "asymptotic"
    wanted = stats.mannwhitneyu(ones, zeros, alternative="less", method=method).pvalue
    found = inverted(float(np.float32(auc)), positives, negatives)
    assert found.p == pytest.approx(wanted, rel=1e-6, abs=1e-12)
    assert found.verdict == ("labels look inverted" if wanted <= 0.05 else "no sign of inverted labels")


def test_an_auc_that_does_not_exist_is_no_verdict():
    assert inverted(float("nan"), 10, 10).verdict == "undefined"
    assert inverted(0.1, 0, 10).verdict == "undefined"


@pytest.mark.parametrize(
    "call, error, words",
    [
        (lambda: evidence(np.zeros(2), level=1.0), ConfigError, "level must be"),
        (lambda: evidence(np.array([0.0, -1.2])), DataError, r"must lie in \[-1, 1\], got -1.2"),
        (lambda: differences(np.zeros((2, 3)), np.ones((2, 4), bool), np.ones((3, 2), bool), 0), DataError, "like"),
        (lambda: differences(np.zeros((2, 4)), np.ones((2, 4), bool), np.ones((3, 2), bool), 0), DataError, "arms"),
        (
            lambda: differences(np.zeros((2, 3)), np.ones((2, 3), bool), np.ones((3, 2), bool), 2),
            DataError,
            "silo must",
        ),
        (lambda: inverted(1.2, 3, 3), DataError, r"AUC in \[0, 1\]"),
        (lambda: inverted(0.2, 3, 3, level=0.0), ConfigError, "level must be"),
    ],
)
def test_what_cannot_be_tested_is_refused(call, error, words):
    with pytest.raises(error, match=words):
        call()
