"""What decision rules cost on bandits with known gaps: order of regret, growth, closed forms, a change half-way."""

import functools

import numpy as np
import pytest
from scipy import integrate, stats
from silo_worlds import make_rule

from fedrank.core.streams import fold_words, normals, run_words, split, stream
from fedrank.silos.bandits.rules import best, choose, explores, start, update

ROUNDS, KEYS, NOISE = 300, 120, 0.03
MEANS = np.array([0.0, 0.02, 0.04, -0.05], np.float32)
GAPS = MEANS.max() - MEANS
BEST = int(MEANS.argmax())
RULES = {
    "uniform": make_rule("epsilon-greedy", epsilon=0.75),  # of four arms the greedy one gets what the others get
    "epsilon-greedy 0.5": make_rule("epsilon-greedy", epsilon=0.5),
    "epsilon-greedy 0.1": make_rule("epsilon-greedy", epsilon=0.1),
    "epsilon-greedy 0.1, recency": make_rule("epsilon-greedy", epsilon=0.1, alpha=0.25),
    "ucb": make_rule("ucb", c=0.05),
    "ucb, exploring": make_rule("ucb", c=0.05, every=10),
    "thompson": make_rule("thompson", threshold=0.02),
    "thompson, discounted": make_rule("thompson", threshold=0.02, gamma=0.98),
    "extreme-explore": make_rule("extreme-explore"),
    "fixed": make_rule("fixed", fixed=BEST),
}
KEY = split(run_words([1])[0], KEYS)


@functools.cache
def drawn(round, arms):
    """What all rules draw in a round."""
    explore_key, world, own = (split(fold_words(KEY, round), 3)[:, i] for i in range(3))
    return explore_key, normals(stream(world, arms)), own


def play(rule, table, binary):
    """Arms and regrets [keys, rounds] of one rule; in an Extreme-Explore round all arms are observed."""
    arms, known, found = table.shape[1], start(rule, table.shape[1]), []
    known = known._replace(**{name: np.tile(getattr(known, name), (KEYS, 1)) for name in known._fields[:-1]})
    known = known._replace(time=np.zeros(KEYS, np.float32))
    for round, mean in enumerate(table):
        explore_key, normal, own = drawn(round, arms)
        wins = stats.norm.cdf(normal) < mean  # Φ of a normal number is uniform
        increments = (wins if binary else mean + NOISE * normal).astype(np.float32)
        everything = np.broadcast_to(explores(rule, round, explore_key), KEYS)
        playable = np.ones((KEYS, arms), bool)
        arm = np.where(everything, best(rule, known, increments, playable), choose(rule, known, playable, own))
        observed = everything[:, None] | (np.arange(arms) == arm[:, None])
        known = update(rule, known, increments, observed)
        found.append((arm, mean.max() - mean[arm]))
    return [np.stack(one, axis=1) for one in zip(*found, strict=True)]


def played(rules, means, binary=False):
    each = [play(rule, means, binary) for rule in rules]
    return [np.stack(one) for one in zip(*each, strict=True)]


@pytest.fixture(scope="module")
def steady():
    """Arms and regrets [keys, rounds] of every rule; all share the keys, so they can be compared in pairs."""
    arms, regret = played(list(RULES.values()), np.tile(MEANS, (ROUNDS, 1)))
    return {name: (arms[i], regret[i]) for i, name in enumerate(RULES)}


@pytest.fixture(scope="module")
def swapped():
    """The same, but half-way the best and the worst arms change places."""
    means = np.concatenate([np.tile(MEANS, (ROUNDS // 2, 1)), np.tile(MEANS[::-1], (ROUNDS // 2, 1))])
    arms, regret = played(list(RULES.values()), means)
    return {name: (arms[i], regret[i]) for i, name in enumerate(RULES)}


def assert_less(left, right):
    """The first costs less than the second, by more than four standard errors of the paired difference."""
    difference = right.sum(axis=1) - left.sum(axis=1)
    assert difference.mean() > 4 * stats.sem(difference)


@pytest.mark.parametrize(
    "less, more",
    [
        ("thompson", "epsilon-greedy 0.1"),
        ("ucb", "epsilon-greedy 0.1"),
        ("epsilon-greedy 0.1", "epsilon-greedy 0.5"),
        ("epsilon-greedy 0.5", "uniform"),
        ("extreme-explore", "epsilon-greedy 0.5"),
        ("ucb, exploring", "ucb"),
        ("thompson", "thompson, discounted"),  # nothing changes, so forgetting only costs
    ],
)
def test_regrets_are_in_the_expected_order(steady, less, more):
    assert_less(steady[less][1], steady[more][1])


def test_the_best_arm_costs_nothing_and_every_other_its_gap(steady):
    for arms, regret in steady.values():
        np.testing.assert_allclose(regret, GAPS[arms], atol=1e-6)
    assert not steady["fixed"][1].any()


def test_playing_at_random_costs_the_mean_gap(steady):
    total = steady["uniform"][1].sum(axis=1)
    assert abs(total.mean() - ROUNDS * GAPS.mean()) < 4 * stats.sem(total)


def test_epsilon_greedy_keeps_paying_for_its_exploration(steady):
    """Once the estimates are right a round costs ε times the mean gap of the other arms, for ever."""
    late = steady["epsilon-greedy 0.5"][1][:, ROUNDS // 2 :].mean(axis=1)
    wanted = 0.5 * np.delete(GAPS, BEST).mean()
    assert abs(late.mean() - wanted) < 4 * stats.sem(late) + 0.02 * wanted


@pytest.mark.parametrize("name, sublinear", [("ucb", True), ("thompson", True), ("epsilon-greedy 0.5", False)])
def test_regret_of_rules_that_learn_when_to_stop_exploring_flattens(steady, name, sublinear):
    regret = steady[name][1].mean(axis=0)
    halves = regret[: ROUNDS // 2].sum(), regret[ROUNDS // 2 :].sum()
    assert (halves[1] < 0.5 * halves[0]) == sublinear


def test_ucb_plays_every_arm_once_before_any_twice(steady):
    first = np.sort(steady["ucb"][0][:, : len(MEANS)], axis=1)
    np.testing.assert_array_equal(first, np.tile(np.arange(len(MEANS)), (KEYS, 1)))


@pytest.mark.parametrize("name", ["ucb", "thompson", "ucb, exploring"])
def test_in_the_end_the_best_arm_is_the_one_played(steady, name):
    assert np.mean(steady[name][0][:, -50:] == BEST) > 0.85


def test_extreme_explore_takes_the_best_of_each_round_and_does_not_learn(steady):
    """It plays an arm as often as that arm has the largest of four normal increments, in every round alike."""

    def largest(arm):
        def density(x):
            others = np.prod(stats.norm.cdf(x, np.delete(MEANS, arm), NOISE))
            return stats.norm.pdf(x, MEANS[arm], NOISE) * others

        return integrate.quad(density, -0.3, 0.3, points=[float(MEANS[arm])])[0]

    wanted = KEYS * ROUNDS * np.array([largest(arm) for arm in range(4)])
    counts = np.bincount(steady["extreme-explore"][0].ravel(), minlength=4)
    assert stats.chisquare(counts, wanted * counts.sum() / wanted.sum()).pvalue > 1e-4


@pytest.mark.parametrize(
    "forgets, remembers",
    [("epsilon-greedy 0.1, recency", "epsilon-greedy 0.1"), ("thompson, discounted", "thompson")],
)
def test_who_forgets_notices_a_change(swapped, forgets, remembers):
    after = slice(ROUNDS // 2, None)
    assert_less(swapped[forgets][1][:, after], swapped[remembers][1][:, after])


def test_binary_increments_are_wins_with_the_probability_of_the_arm():
    """Arm 1 always wins, arm 0 sometimes; the rule learns too little to tell, so in a tie the lower number is best."""
    rule = make_rule("extreme-explore", threshold=0.5, initial=1.0, alpha=1e-9)
    means = np.array([0.3, 1.0, 0.0, 0.0], np.float32)
    arms, regret = played([rule], np.tile(means, (ROUNDS, 1)), binary=True)
    wins = int(np.sum(arms[0] == 0))
    assert np.all(arms < 2) and stats.binomtest(wins, arms[0].size, 0.3).pvalue > 1e-4
    np.testing.assert_allclose(regret, np.where(arms == 0, 0.7, 0.0), atol=1e-6)
