"""Randomised response and its accountant against the paper's numbers, closed forms and enumeration."""

import itertools
import json
import math
from pathlib import Path

import jax
import numpy as np
import pytest

from fedrank.core.errors import ConfigError
from fedrank.core.privacy_report import BASIC, PrivacyReport, Unit
from fedrank.metrics.online import REWARDS, max_rr
from fedrank.privacy.accounts.randomised_response import account, composed_epsilon
from fedrank.privacy.randomised_response import (
    debias,
    epsilon,
    os_words,
    privatise,
    probability,
    threshold,
    worst_case_epsilon,
)
from fedrank_zoo.reproduce.study import load_file

TABLE = load_file(Path(__file__).parents[3] / "reproductions" / "foltr_es_2019" / "privacy.py")

# Kharitonov 2019, Table 2, as printed, at p = .25 .5 .75 .9 .95 .99.
TABLE_2 = {
    "perfect": "0.51 1.61 2.71 3.81 4.55 6.20",
    "navigational": "0.47 1.52 2.58 3.65 4.39 6.00",
    "informational": "0.28 1.00 1.70 2.56 3.13 4.39",
}


def report_distribution(truth, p, n):
    return [p if value == truth else (1 - p) / (n - 1) for value in range(n)]


def test_epsilon_is_the_largest_log_ratio():
    for p, n in [(0.25, 11), (0.5, 11), (0.9, 11), (0.99, 6), (0.9, 2), (0.05, 11), (0.1, 3)]:
        rows = [report_distribution(truth, p, n) for truth in range(n)]
        largest = max(math.log(a[o] / b[o]) for a, b in itertools.product(rows, rows) for o in range(n))
        assert epsilon(p, n) == pytest.approx(largest, rel=1e-12)
        # Without chance in the metric, equation (9) is equation (10).
        assert worst_case_epsilon(np.eye(n), p) == pytest.approx(largest, rel=1e-12)


def test_epsilon_at_its_ends():
    assert epsilon(1.0, 11) == math.inf
    assert all(epsilon(1 / n, n) == 0.0 for n in range(2, 300))
    # The budgets of the reproducibility literature: p = .25, .5, .9 at n = 11 are 1.2, 2.3, 4.5.
    assert [round(epsilon(p, 11), 1) for p in (0.25, 0.5, 0.9)] == [1.2, 2.3, 4.5]


def test_probability_inverts_epsilon():
    for n in [2, 11, 1014]:
        for value in [0.0, 0.3, 2.0, 9.0]:
            assert epsilon(probability(value, n), n) == pytest.approx(value, abs=1e-12)
            assert probability(value, n) == pytest.approx(math.e**value / (math.e**value + n - 1))
            assert probability(math.inf, n) == 1.0


def test_table_2():
    chances = (0.25, 0.5, 0.75, 0.9, 0.95, 0.99)
    printed = {
        (user, p): float(number)
        for user, numbers in TABLE_2.items()
        for p, number in zip(chances, numbers.split(), strict=True)
    }
    rows = {(row.user, row.p): row for row in TABLE.table2()}
    assert {cell: round(row.epsilon, 2) for cell, row in rows.items()} == printed  # all 18 cells
    assert {cell: row.paper for cell, row in rows.items()} == printed
    # Equation (10) with n = 6, which the perfect user meets and chance undercuts.
    for (user, p), row in rows.items():
        assert row.bound == pytest.approx(math.log(p * 5 / (1 - p)))
        assert row.epsilon == pytest.approx(row.bound, rel=1e-5) if user == "perfect" else row.epsilon < row.bound


def click_model_epsilon(user, grades, depth, metric, p):
    """ε of one interaction for people who click by this model, over all pairs of label lists."""
    return worst_case_epsilon(TABLE.value_distributions(user, grades, REWARDS.get(metric)(depth)), p)


def test_click_model_epsilon_by_hand():
    # One result, two labels: MaxRR is 1 with P(click), else 0. Report 1 then has probability c p + (1 − c)(1 − p).
    for p in (0.6, 0.9):
        lists = [(c * p + (1 - c) * (1 - p)) for c in (0.05, 0.95)]
        expected = math.log(max(lists[1] / lists[0], (1 - lists[0]) / (1 - lists[1])))
        assert click_model_epsilon("navigational", 2, 1, "MaxRR", p) == pytest.approx(expected, rel=1e-5)
    # Nobody is certain to click here, so even the bare metric has a finite epsilon.
    assert click_model_epsilon("navigational", 2, 1, "MaxRR", 1.0) == pytest.approx(math.log(19), rel=1e-5)
    assert click_model_epsilon("perfect", 2, 1, "MaxRR", 1.0) == math.inf


def test_too_many_lists():
    with pytest.raises(ConfigError, match="59,049 lists"):
        click_model_epsilon("perfect", 3, 10, "MaxRR", 0.5)


def test_distributions_are_distributions():
    rows = TABLE.value_distributions("informational", 3, max_rr(5))
    assert rows.shape == (243, 6)
    np.testing.assert_allclose(rows.sum(axis=1), 1.0, atol=1e-6)


def test_threshold_cases():
    words = np.array([[w, 0] for w in (0, 2**31 - 1, 2**31, 2**32 - 1)], np.uint32)
    index = np.full(4, 5, np.int32)
    # p = 1/2 is exactly the lower half of the words.
    assert privatise(index, words, 0.5, 11).tolist() == [5, 5, 0, 0]
    assert privatise(index, words, 1.0, 11).tolist() == [5, 5, 5, 5]
    assert (threshold(0.5, 11), threshold(1.0, 11), threshold(0.25, 11)) == (2**31, 2**32, 2**30)
    # Rounded so that a report reveals less than ε says, never more: towards 1/n from both sides.
    assert threshold(0.9, 11) == math.floor(0.9 * 2**32) and threshold(0.01, 11) == math.ceil(0.01 * 2**32)
    assert threshold(1 - 1e-9, 11) == 2**32 - 5
    # However close to 1, a p below 1 leaves room for a lie, and however close to 0, for the truth.
    near = math.nextafter(1.0, 0.0)
    assert privatise(index, words, near, 11).tolist() == [5, 5, 5, 0]
    assert privatise(index, words, 1e-300, 11).tolist() == [5, 0, 0, 0]


def test_the_other_values_share_the_words_evenly():
    # n − 1 = 10 slices of the second word; the slice boundaries, computed in Python's integers.
    cuts = [-(-j * 2**32 // 10) for j in range(11)]
    for j in range(10):
        for word in (cuts[j], cuts[j + 1] - 1):
            for truth in (0, 4, 10):
                lie = int(privatise(np.array([truth], np.int32), np.array([[2**32 - 1, word]], np.uint32), 0.5, 11)[0])
                assert lie == [value for value in range(11) if value != truth][j]


def test_numpy_and_jax_agree():
    words = np.random.default_rng(0).integers(0, 2**32, (3, 500, 2), dtype=np.uint32)
    index = np.random.default_rng(1).integers(0, 1014, (3, 500)).astype(np.int32)
    ours = privatise(index, words, 0.3, 1014)
    assert ours.dtype == np.int32 and (ours != index).any() and (ours == index).any()
    theirs = jax.jit(lambda i, w: privatise(i, w, 0.3, 1014))(index, words)
    np.testing.assert_array_equal(ours, theirs)
    assert theirs.dtype == np.int32


def test_debiasing_inverts_the_sum_over_reports():
    values = [0.0, 0.25, 0.5, 1.0]
    for truth in range(4):
        expected = sum(v * chance for v, chance in zip(values, report_distribution(truth, 0.7, 4), strict=True))
        assert debias(expected, values, 0.7) == pytest.approx(values[truth])


def test_words_of_the_operating_system():
    words = os_words((20_000, 2))
    assert words.shape == (20_000, 2) and words.dtype == np.uint32
    # Each bit is set in half of the words: six standard errors of 1/2 over 40,000 words.
    bits = np.unpackbits(words.view(np.uint8)).reshape(-1, 32).mean(axis=0)
    assert abs(bits - 0.5).max() < 6 * 0.5 / math.sqrt(40_000)
    assert (words != os_words((20_000, 2))).any()


def enumerated_delta(eps, p, n, times):
    """δ(ε) of ``times`` responses by its definition, over the three kinds of report of each: 3^times outcomes."""
    q = (1 - p) / (n - 1)
    delta = 0.0
    # Under input a a report is "a" with probability p, "b" with q, another with (n − 2) q; under b the first two swap.
    for outcome in itertools.product(((p, q), (q, p), ((n - 2) * q, (n - 2) * q)), repeat=times):
        one, other = (math.prod(side) for side in zip(*outcome, strict=True))
        delta += max(0.0, one - math.exp(eps) * other)
    return delta


def test_composition_against_enumeration():
    for times in [1, 2, 5]:
        for delta in [1e-2, 1e-5]:
            for p, n in [(0.5, 11), (0.9, 6), (0.25, 4), (0.05, 11), (0.7, 2)]:
                got = composed_epsilon(p, n, times, delta)
                assert 0.0 <= got <= times * epsilon(p, n)
                assert enumerated_delta(got, p, n, times) <= delta * (1 + 1e-6)
                if got > 0:  # and no smaller ε would do
                    assert enumerated_delta(got - 1e-6, p, n, times) > delta * (1 - 1e-6)


def test_composition_of_many_against_a_convolution():
    p, n, times, delta = 0.25, 11, 300, 1e-5
    q = (1 - p) / (n - 1)
    chances = np.array([1.0])
    for _ in range(times):
        chances = np.convolve(chances, [q, (n - 2) * q, p])
    losses = np.arange(-times, times + 1) * math.log(p / q)

    def delta_at(eps):
        above = losses > eps
        return float((chances[above] * -np.expm1(eps - losses[above])).sum())

    got = composed_epsilon(p, n, times, delta)
    assert delta_at(got) == pytest.approx(delta, rel=1e-4)
    assert got < 0.6 * times * epsilon(p, n)  # composing exactly pays at this p


def test_report_by_hand():
    report = account(p=0.9, n=11, interactions_per_message=4, rounds=250)
    one = math.log(0.9 * 10 / 0.1)
    assert report.epsilon(Unit.INTERACTION) == pytest.approx(one)
    assert report.epsilon(Unit.HALF) == pytest.approx(2 * one)
    assert report.epsilon(Unit.MESSAGE) == pytest.approx(4 * one)
    assert report.epsilon(Unit.USER, basis=BASIC) == pytest.approx(250 * 4 * one)
    assert one < report.epsilon(Unit.USER) < report.epsilon(Unit.USER, basis=BASIC)
    assert account(p=0.9, n=11, interactions_per_message=3, rounds=2, antithetic=False).epsilon(Unit.HALF) == math.inf


def test_report_without_privatisation():
    report = account(p=1.0, n=11, interactions_per_message=4, rounds=250)
    assert report.epsilon(Unit.INTERACTION) == report.epsilon(Unit.MESSAGE) == report.epsilon(Unit.USER) == math.inf
    content = json.loads(json.dumps(report.as_json(), allow_nan=False))
    assert {promise["epsilon"] for promise in content["promises"]} == {content["epsilon_round"]} == {None}
    assert content["mechanism"] == "none" and content["covers"] == []
    assert "no differential privacy" in report.words[-1]
    assert "sent as they are" in report.not_covered[0]


def test_report_before_the_first_round():
    for p in (0.5, 1.0):
        report = account(p=p, n=11, interactions_per_message=4, rounds=0)
        assert report.epsilon(Unit.USER, basis=BASIC) == report.epsilon(Unit.USER) == 0.0


def test_report_as_json_has_every_promise_and_is_read_back():
    report = account(p=0.5, n=11, interactions_per_message=2, rounds=3, delta=1e-6)
    content = json.loads(json.dumps(report.as_json(), allow_nan=False))
    assert content["details"] == {"p": 0.5, "values": 11, "delta": 1e-6, "rounds": 3, "interactions_per_round": 2}
    units = [promise["unit"] for promise in content["promises"]]
    assert units == ["interaction", "half of a message", "message", "user", "user"]
    assert [promise["delta"] for promise in content["promises"]] == [0.0, 0.0, 0.0, 1e-6, 0.0]
    assert content["epsilon_round"] == report.epsilon(Unit.MESSAGE)
    assert PrivacyReport.from_json(content) == report


def test_words_quote_the_numbers():
    report = account(p=0.5, n=11, interactions_per_message=4, rounds=2)
    words = report.words[-1]
    for number in (
        "ε = 2.3,",
        "10 times as likely",
        "4 interactions",
        "2 messages",
        f"{report.epsilon(Unit.USER):.4g}",
    ):
        assert number in words
    assert ("little meaning" in words) == (report.epsilon(Unit.USER) > 20)
    assert "little meaning" in account(p=0.9, n=11, interactions_per_message=4, rounds=250).words[0]


def test_wrong_settings():
    for call, message in [
        (lambda: epsilon(0.0, 11), r"\(0, 1\], got 0.0"),
        (lambda: epsilon(0.5, 1), r"got 1"),
        (lambda: epsilon(math.nan, 11), r"got nan"),
        (lambda: probability(-1.0, 11), r"≥ 0, got -1.0"),
        (lambda: probability(math.nan, 11), r"got nan"),
        (lambda: worst_case_epsilon(np.ones(3), 0.5), r"shape \(3,\)"),
        (lambda: account(p=0.5, n=11, interactions_per_message=3, rounds=1), "even number"),
        (lambda: account(p=0.5, n=11, interactions_per_message=0, rounds=1, antithetic=False), "at least 1, got 0"),
        (lambda: account(p=0.5, n=11, interactions_per_message=2, rounds=-1), "rounds"),
        (lambda: account(p=0.5, n=11, interactions_per_message=2, rounds=1, delta=0.0), "delta"),
    ]:
        with pytest.raises(ConfigError, match=message):
            call()


def test_epsilons_that_no_words_can_draw_are_refused():
    assert probability(math.inf, 11) == 1.0
    assert epsilon(probability(24.0, 11), 11) == pytest.approx(24.0, rel=1e-6)
    with pytest.raises(ConfigError, match=r"at most 24\.48"):  # log(10 (2**32 - 1))
        probability(40.0, 11)


def test_huge_compositions_have_a_bound_in_closed_form(monkeypatch):
    for p in [0.15, 0.25, 0.9]:
        n, delta, times = 11, 1e-6, 20_000
        one, q = math.log(p * 10 / (1 - p)), (1 - p) / 10
        hoeffding = times * (p - q) * one + one * math.sqrt(2 * times * math.log(1e6))
        exact = composed_epsilon(p, n, times, delta)
        monkeypatch.setattr("fedrank.privacy.accounts.randomised_response._EXACT", times - 1)
        bound = composed_epsilon(p, n, times, delta)
        assert bound == pytest.approx(min(hoeffding, times * one))
        assert exact <= bound <= 1.4 * exact  # a bound, and not a loose one
        assert composed_epsilon(p, n, 10**13, delta) < 10**13 * one  # at once
