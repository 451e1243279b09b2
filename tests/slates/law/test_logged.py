"""Estimates from logs: closed forms, sums over platforms, what intervals cover, and logs that are none."""

import lzma

import numpy as np
import pytest

from fedrank.core.errors import ConfigError, DataError, FormatError, MissingDataError
from fedrank.slates.logged import (
    Log,
    best,
    counts,
    judge,
    judgement,
    mean_rewards,
    read_logs,
    read_policy,
    summary,
    thompson,
    uniform,
    write_logs,
)

ITEMS, POSITIONS = np.arange(4), np.arange(2)


def drawn(rng, rows, logging, rates, name="a"):
    """A log of a platform that shows items by ``logging``; of a row a click with the rate of its cell."""
    positions = rng.integers(2, size=rows)
    items = (rng.random((rows, 1)) > np.cumsum(logging, axis=0).T[positions][:, :-1]).sum(axis=1)
    clicks = (rng.random(rows) < rates[items, positions]).astype(float)
    return Log(name, items, positions, clicks, logging[items, positions], ITEMS, POSITIONS)


@pytest.fixture(scope="module")
def world():
    rng = np.random.default_rng(3)
    logging, policy = (table / table.sum(axis=0) for table in rng.random((2, 4, 2)) + 0.2)
    return logging, policy, 0.1 + 0.3 * rng.random((4, 2))


def test_three_rows_by_hand():
    rewards, propensity = np.array([1.0, 0.0, 2.0]), np.array([0.5, 0.25, 0.5])
    log = Log("a", np.array([0, 1, 1]), np.zeros(3, int), rewards, propensity, ITEMS[:2], POSITIONS[:1])
    table, model = np.array([[0.2], [0.8]]), np.array([[0.5], [1.0]])
    found = judgement(summary(log, table, model))
    w, r, q = np.array([0.4, 3.2, 1.6]), np.array([1.0, 0.0, 2.0]), np.array([0.5, 1.0, 1.0])
    robust = 0.9 + w * (r - q)
    half = 4.302652729911275  # of Student's t with 2 degrees of freedom
    assert found.estimates["dm"].value == pytest.approx(0.9)
    for name, rows in (("ips", w * r), ("dr", robust)):
        one = found.estimates[name]
        assert one.value == pytest.approx(rows.mean())
        assert one.high - one.value == pytest.approx(half * rows.std(ddof=1) / 3**0.5)
    ratio = (w * r).sum() / w.sum()
    assert found.estimates["snips"].value == pytest.approx(ratio)
    linear = w * (r - ratio) / w.mean()
    assert found.estimates["snips"].high - ratio == pytest.approx(half * linear.std(ddof=1) / 3**0.5)
    assert found.gain.value == pytest.approx(robust.mean() - 1.0)
    assert found.gain.high - found.gain.value == pytest.approx(half * (robust - r).std(ddof=1) / 3**0.5)
    assert found.effective_rows == pytest.approx(w.sum() ** 2 / (w**2).sum())
    assert found.effective_clicks == pytest.approx((w * r).sum() ** 2 / ((w * r) ** 2).sum())


def test_the_policy_that_logged_is_worth_what_it_earned(world):
    logging, _, rates = world
    (found,), _ = judge([drawn(np.random.default_rng(0), 900, logging, rates)], logging)
    assert found.weight.value == pytest.approx(1.0) and found.effective_rows == pytest.approx(900)
    assert found.estimates["ips"].value == pytest.approx(found.logged.value)
    assert found.estimates["snips"].value == pytest.approx(found.logged.value)
    assert abs(found.gain.value) < 0.01


def test_platforms_sums_are_those_of_one_log(world):
    logging, policy, rates = world
    rng = np.random.default_rng(1)
    logs = [drawn(rng, 300, one, rates, name) for one, name in ((logging, "a"), (policy, "b"))]
    columns = ("items", "positions", "rewards", "propensity")
    one = Log("both", *(np.concatenate([getattr(log, name) for log in logs]) for name in columns), ITEMS, POSITIONS)
    model = mean_rewards(counts(logs))
    np.testing.assert_array_equal(counts(logs), counts([one]))
    np.testing.assert_allclose(sum(summary(log, policy, model) for log in logs), summary(one, policy, model))


@pytest.mark.slow
def test_intervals_cover_and_estimates_are_unbiased(world):
    """Of 600 logs, 95 % intervals hold the truth within what chance does: 95 % ± 3.4 standard errors."""
    logging, policy, rates = world
    truth, rng = float((policy * rates).sum(axis=0).mean()), np.random.default_rng(7)
    found = [judge([drawn(rng, 300, logging, rates)], policy)[1].estimates for _ in range(600)]
    for name in ("ips", "snips", "dr"):
        covered = np.mean([one[name].low <= truth <= one[name].high for one in found])
        assert 0.92 < covered < 0.98, name
        values = np.array([one[name].value for one in found])
        assert abs(values.mean() - truth) < 4 * values.std() / 600**0.5, name


@pytest.mark.slow
def test_a_wrong_model_costs_no_bias_and_a_right_one_narrows(world):
    logging, policy, rates = world
    truth, rng = float((policy * rates).sum(axis=0).mean()), np.random.default_rng(8)
    widths = {}
    for what, model in (("right", rates), ("none", np.zeros((4, 2))), ("wrong", rates[::-1] + 1.0)):
        found = [judgement(summary(drawn(rng, 300, logging, rates), policy, model)).estimates["dr"] for _ in range(300)]
        values = np.array([one.value for one in found])
        assert abs(values.mean() - truth) < 4 * values.std() / 300**0.5, what
        widths[what] = values.std()
    assert widths["right"] < widths["none"] < widths["wrong"]


def test_no_row_is_judged_with_a_model_that_has_seen_it():
    """Each part earns 1 for its own item and 0 for others': seen, the model would expect 1, unseen it expects 0."""
    rewards, items = np.ones(6), np.repeat([0, 1, 2], 2)
    log = Log("a", items, np.zeros(6, int), rewards, np.full(6, 1.0), ITEMS[:3], POSITIONS[:1])
    twin = Log("a", items[::-1], np.zeros(6, int), 0 * rewards, np.full(6, 1.0), ITEMS[:3], POSITIONS[:1])
    table = np.full((3, 1), 1 / 3)
    apart = judge([log], table, prior=1e-9)[0][0].estimates["dm"].value
    assert apart == pytest.approx(1.0), "of items that the other parts do not have, their mean is expected"
    assert judge([log, twin], table, prior=1e-9)[1].estimates["dm"].value == pytest.approx(0.5)


def test_choices_that_the_log_never_made_are_said(world):
    log = Log("a", np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1]), np.ones(4), np.full(4, 0.5), ITEMS, POSITIONS)
    assert judge([log], uniform(4, 2), folds=2)[0][0].unseen == pytest.approx(0.5)


def test_best_and_thompson():
    counted = np.array([[[200.0, 200], [200, 200], [200, 200]], [[60.0, 2], [20, 30], [1, 60]]])
    table = best(mean_rewards(counted), 1)
    np.testing.assert_array_equal(table, [[1, 0], [0, 0], [0, 1]])
    # Of two items never shown each is first half of the time, whatever the draws; the other is second.
    even = thompson(np.zeros((2, 2, 2)), draws=40_000)
    np.testing.assert_allclose(even, 0.5, atol=0.01)
    # Beta(2, 1) beats Beta(1, 1) with probability 2/3.
    two = np.array([[[1.0], [0.0]], [[1.0], [0.0]]])
    np.testing.assert_allclose(thompson(two, draws=40_000)[:, 0], [2 / 3, 1 / 3], atol=0.01)
    with pytest.raises(ConfigError, match="3 items"):
        best(mean_rewards(counted), 4)
    with pytest.raises(ConfigError, match="not between 0 and 1"):
        thompson(np.array([[[1.0]], [[2.0]]]))
    with pytest.raises(ConfigError, match="different items"):
        thompson(np.zeros((2, 1, 2)))


def test_logs_are_read_plain_packed_and_from_folders(tmp_path):
    write_logs(tmp_path)
    (tmp_path / "item_context.csv").write_text("item_id,feature\n1,2\n")
    even, choosy = sorted(read_logs([tmp_path]), key=lambda log: log.name != "even")
    assert (even.name, choosy.name, len(even)) == ("even", "choosy", 6000)
    assert np.allclose(even.propensity, 1 / 20) and even.position_ids.tolist() == [1, 2, 3]
    packed = tmp_path / "even.csv.xz"
    packed.write_bytes(lzma.compress((tmp_path / "even.csv").read_bytes()))
    (again,) = read_logs([packed])
    np.testing.assert_array_equal(again.items, even.items)
    text = tmp_path / "text.csv"
    text.write_text("timestamp,item_id,click,propensity_score\n2,b,1,0.5\n1,a,0,0.25\n")
    (read,) = read_logs([text])
    assert read.items.tolist() == [0, 1] and read.propensity.tolist() == [0.25, 0.5], "in the order of time"
    (mixed, _) = read_logs([text, tmp_path / "even.csv"])
    assert mixed.item_ids[mixed.items].tolist() == ["a", "b"]


def test_logs_that_are_none(tmp_path):
    for text, error, said in [
        ("", FormatError, "empty"),
        ("item_id,click\n1,0\n", FormatError, "no propensity_score"),
        ("item_id,click,propensity_score\n", FormatError, "no row"),
        ("item_id,click,propensity_score\n1,0,0\n", DataError, "above 0 and at most 1, got 0.0 in row 1"),
        ("item_id,click,propensity_score\n1,0,1.5\n", DataError, "at most 1"),
        ("item_id,click,propensity_score\n1,0,0.5\n2,,0.5\n", FormatError, "click must have a value"),
        ("item_id,click,propensity_score\n1,yes,0.5\n", FormatError, "click must have numbers"),
        ("item_id,click,propensity_score\n1,inf,0.5\n", DataError, "click must be finite"),
        ("item_id,click,propensity_score\n1,0,0.5,7,8\n", FormatError, "no table"),
    ]:
        (tmp_path / "log.csv").write_text(text)
        with pytest.raises(error, match=said):
            read_logs([tmp_path / "log.csv"])


def test_no_logs(tmp_path):
    with pytest.raises(MissingDataError, match="no file"):
        read_logs([tmp_path])
    with pytest.raises(MissingDataError, match="at least one"):
        read_logs([])


def test_policies_that_are_none(tmp_path):
    for text, said in [
        ("item_id,chance\n1,1\n", "no probability"),
        ("item_id,probability\n7,1\n", "7 is not in the logs"),
        ("item_id,probability\nx,1\n", "whole numbers"),
        ("item_id,probability\n0,0.5\n", "sum to 1, got sums 0.5, 0.5"),
        ("item_id,probability\n0,0.5\n0,0.5\n", "two probabilities"),
        ("item_id,probability\n0,1.5\n1,-0.5\n", "at least 0"),
        ("item_id,position,probability\n0,0,1\n", "sums 1, 0"),
        ("item_id,probability\n0,\n", "no cell may be empty"),
    ]:
        (tmp_path / "mine.csv").write_text(text)
        with pytest.raises(FormatError, match=said):
            read_policy(tmp_path / "mine.csv", ITEMS, POSITIONS)


def test_a_policy_from_a_file(tmp_path):
    (tmp_path / "mine.csv").write_text("item_id,position,probability\n1,0,1\n2,1,0.25\n3,1,0.75\n")
    table = read_policy(tmp_path / "mine.csv", ITEMS, POSITIONS)
    np.testing.assert_array_equal(table, [[0, 0], [1, 0], [0, 0.25], [0, 0.75]])
    with pytest.raises(MissingDataError, match="no such policy"):
        read_policy(tmp_path / "absent", ITEMS, POSITIONS)


def test_what_cannot_be_judged(world):
    logging, policy, rates = world
    log = drawn(np.random.default_rng(0), 2, logging, rates)
    with pytest.raises(DataError, match="at least 3 rows"):
        judge([log], policy)
    with pytest.raises(DataError, match="items and positions"):
        judge([log], policy[:2], folds=2)
    with pytest.raises(ConfigError, match="2 folds"):
        judge([log], policy, folds=1)
