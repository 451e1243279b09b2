"""Estimates from logs: closed forms, sums over platforms, what intervals cover, and logs that are none."""

import itertools
import lzma

import numpy as np
import pytest

from fedrank.core.errors import ConfigError, DataError, FormatError, MissingDataError
from fedrank_zoo.slate_logs.estimates import (
    Log,
    Policy,
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
    found = judgement(summary(log, Policy(table), model))
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
    assert found.effective_slates == pytest.approx(w.sum() ** 2 / (w**2).sum())
    assert found.effective_clicks == pytest.approx((w * r).sum() ** 2 / ((w * r) ** 2).sum())


def test_the_policy_that_logged_is_worth_what_it_earned(world):
    logging, _, rates = world
    (found,), _ = judge([drawn(np.random.default_rng(0), 900, logging, rates)], logging)
    assert found.weight.value == pytest.approx(1.0) and found.effective_slates == pytest.approx(900)
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
    sums = [summary(log, Policy(policy), model) for log in (*logs, one)]
    np.testing.assert_allclose(sums[0] + sums[1], sums[2])


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
        found = [
            judgement(summary(drawn(rng, 300, logging, rates), Policy(policy), model)).estimates["dr"]
            for _ in range(300)
        ]
        values = np.array([one.value for one in found])
        assert abs(values.mean() - truth) < 4 * values.std() / 300**0.5, what
        widths[what] = values.std()
    assert widths["right"] < widths["none"] < widths["wrong"]


def test_platforms_sums_of_slates_are_those_of_one_log(tmp_path):
    write_logs(tmp_path)
    logs = [log.part(0, 400) for log in read_logs([tmp_path])]
    columns = ("items", "positions", "rewards", "propensity", "cascade")
    joined = {name: np.concatenate([getattr(log, name) for log in logs]) for name in columns}
    slates = np.concatenate([logs[0].slates, logs[1].slates + 400])
    one = Log("both", **joined, slates=slates, item_ids=logs[0].item_ids, position_ids=logs[0].position_ids)
    model, policy = mean_rewards(counts(logs)), Policy(best(mean_rewards(counts(logs)), 5), distinct=True)
    apart = sum(summary(log, policy, model) for log in logs)
    np.testing.assert_allclose(apart, summary(one, policy, model))
    found = judgement(apart)
    assert (found.slates, found.rows) == (800, 2400) and found.estimates["sips"].value > 0


#: Slates of two out of three items, as one of different items and as one that may repeat them.
PAIRS = {
    distinct: [s for s in itertools.product(range(3), repeat=2) if not distinct or s[0] != s[1]]
    for distinct in (True, False)
}
#: Reward of each place of a slate, under what users may do.
USERS = {
    "each item by itself": lambda a, b: (0.1 + 0.3 * a, 0.2 * b + 0.4),
    "from the top": lambda a, b: (0.1 + 0.3 * a, 0.2 * b + 0.6 * (a == 2) * (b + 1)),
    "anything": lambda a, b: (0.1 + 0.3 * a + 0.7 * b, 0.2 * b + 0.6 * (a == 2) * (b + 1)),
}
#: Estimates that are unbiased then.
UNBIASED = {
    "each item by itself": {"ips", "dr", "rips", "cdr", "sips"},
    "from the top": {"rips", "cdr", "sips"},
    "anything": {"sips"},
}


def chance_of(table, slate, distinct):
    """Of a pair, and of its first item; what is left of a column is divided by its sum."""
    first, below = table[slate[0], 0], table[:, 1].copy()
    if distinct:
        below[slate[0]] = 0.0
    return first, first * below[slate[1]] / below.sum()


@pytest.mark.parametrize("distinct", [True, False])
@pytest.mark.parametrize("users", USERS)
def test_estimates_of_slates_are_unbiased_just_where_users_do_as_they_assume(users, distinct):
    """The expectation over all slates that the platform may show, with a model of rewards that is wrong."""
    rng = np.random.default_rng(4)
    logging, policy = (table / table.sum(axis=0) for table in rng.random((2, 3, 2)) + 0.2)
    model, slates = rng.random((3, 2)), PAIRS[distinct]
    chances = np.array([chance_of(logging, slate, distinct)[1] for slate in slates])
    at_place = np.zeros((3, 2))
    for slate, chance in zip(slates, chances, strict=True):
        at_place[slate, (0, 1)] += chance
    truth = sum(chance_of(policy, slate, distinct)[1] * sum(USERS[users](*slate)) for slate in slates) / 2
    expected = dict.fromkeys(("ips", "dr", "rips", "sips", "cdr"), 0.0)
    for slate, chance in zip(slates, chances, strict=True):
        items, cascade = np.array(slate), np.array(chance_of(logging, slate, distinct))
        log = Log(
            "a", items, np.arange(2), np.array(USERS[users](*slate)), at_place[items, [0, 1]],
            np.arange(3), np.arange(2), np.zeros(2, int), cascade,
        )  # fmt: skip
        found = judgement(summary(log, Policy(policy, distinct), model)).estimates
        for name in expected:
            expected[name] += chance * found[name].value
    assert chances.sum() == pytest.approx(1.0)
    for name, value in expected.items():
        if name in UNBIASED[users]:
            assert value == pytest.approx(truth, abs=1e-12), name
        else:
            assert abs(value - truth) > 0.01, name


@pytest.mark.slow
@pytest.mark.parametrize("distinct", [True, False])
def test_slates_are_the_units_of_intervals(distinct):
    """Items of a slate are clicked together or not at all: intervals of slates hold the truth, those of rows do not."""
    rng = np.random.default_rng(9)
    logging, policy = (table / table.sum(axis=0) for table in rng.random((2, 3, 2)) + 0.5)
    slates, pairs = np.array(PAIRS[distinct]), PAIRS[distinct]
    chances, wanted = ([chance_of(table, slate, distinct)[1] for slate in pairs] for table in (logging, policy))
    at_place = np.zeros((3, 2))
    np.add.at(at_place, (slates, np.arange(2)), np.array(chances)[:, None])
    covered = np.zeros((500, 5))
    truth = float(np.array(wanted) @ (0.2 + 0.2 * slates[:, 0]))
    for row in covered:
        drawn = rng.choice(len(pairs), 150, p=chances)
        clicks = np.repeat((rng.random(150) < 0.2 + 0.2 * slates[drawn, 0]).astype(float), 2)
        items, places = slates[drawn].ravel(), np.tile([0, 1], 150)
        cascade = np.array([chance_of(logging, pairs[one], distinct) for one in drawn]).ravel()
        columns = "a", items, places, clicks, at_place[items, places], np.arange(3), np.arange(2)
        whole = Log(*columns, np.repeat(np.arange(150), 2), cascade)
        found = judgement(summary(whole, Policy(policy, distinct), np.full((3, 2), 0.4))).estimates
        by_rows = judgement(summary(Log(*columns), Policy(policy), np.full((3, 2), 0.4))).logged
        mean = float(np.array(chances) @ (0.2 + 0.2 * slates[:, 0]))
        held = [one.low <= truth <= one.high for one in (found["rips"], found["sips"], found["cdr"])]
        by_slates = judgement(summary(whole, Policy(policy, distinct), np.zeros((3, 2)))).logged
        row[:] = [*held, by_slates.low <= mean <= by_slates.high, by_rows.low <= mean <= by_rows.high]
    assert (np.abs(covered[:, :4].mean(axis=0) - 0.95) < 0.033).all() and covered[:, 4].mean() < 0.88


def test_chances_of_items_in_slates_of_different_ones():
    """By going through all orders, exact and by draws; a policy that has too few items says so."""
    rng = np.random.default_rng(2)
    table = (lambda one: one / one.sum(axis=0))(rng.random((4, 3)))
    by_hand = np.zeros((4, 3))
    for slate in itertools.permutations(range(4), 3):
        chance = 1.0
        for place, item in enumerate(slate):
            chance *= table[item, place] / (1.0 - table[list(slate[:place]), place].sum())
        by_hand[slate, (0, 1, 2)] += chance
    np.testing.assert_allclose(Policy(table, distinct=True).marginal, by_hand, rtol=1e-12)
    np.testing.assert_allclose(Policy(uniform(300, 3), distinct=True).marginal, 1 / 300, rtol=0.02)
    with pytest.raises(ConfigError, match="too few items for slates of 3"):
        _ = Policy(best(rng.random((4, 1)).repeat(3, axis=1), 2), distinct=True).marginal


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
    assert (even.name, choosy.name, len(even), len(even.items)) == ("even", "choosy", 2000, 6000)
    assert np.allclose(even.propensity, 1 / 20) and np.allclose(even.cascade[2::3], 1 / (20 * 19 * 18))
    assert even.position_ids.tolist() == [1, 2, 3]
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


def test_slates_are_read_by_their_names_in_the_order_of_time(tmp_path):
    file, head = tmp_path / "log.csv", "timestamp,slate_id,item_id,position,click,propensity_score,pscore_cascade\n"
    file.write_text(head + "2,x,7,2,1,0.5,0.125\n1,y,5,1,0,0.25,0.25\n1,y,7,2,0,0.5,0.2\n2,x,5,1,1,0.25,0.25\n")
    (log,) = read_logs([file])
    assert (len(log), log.slates.tolist(), log.items.tolist()) == (2, [0, 0, 1, 1], [0, 1, 0, 1])
    assert log.cascade.tolist() == [0.25, 0.2, 0.25, 0.125]
    part = log.part(1, 2)
    assert (len(part), part.slates.tolist(), part.rewards.tolist()) == (1, [0, 0], [1.0, 1.0])
    for text, error, said in [
        (head.replace(",pscore_cascade", "") + "1,x,5,1,0,0.5\n", FormatError, "needs pscore_cascade"),
        (head + "1,x,5,1,0,0.5,0.5\n1,x,6,1,0,0.5,0.5\n", DataError, "each once from the first on"),
        (head + "1,x,5,1,0,0.5,0.5\n1,y,6,2,0,0.5,0.5\n", DataError, "each once from the first on, in a slate, got 2"),
        (head + "1,x,5,1,0,0.5,0\n", DataError, "pscore_cascade must be above 0"),
        (head + "1,,5,1,0,0.5,0.5\n", FormatError, "slate_id must have a value"),
    ]:
        file.write_text(text)
        with pytest.raises(error, match=said):
            read_logs([file])


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
    with pytest.raises(DataError, match="at least 3 slates"):
        judge([log], policy)
    with pytest.raises(DataError, match="items and positions"):
        judge([log], policy[:2], folds=2)
    with pytest.raises(ConfigError, match="2 folds"):
        judge([log], policy, folds=1)
