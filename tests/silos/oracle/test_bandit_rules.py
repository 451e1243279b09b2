"""Decision rules against their definitions: exact probabilities, loops written out, and another library's choices."""

import numpy as np
import pytest
from scipy import integrate, stats
from silo_worlds import make_rule

from fedrank.core.errors import ConfigError
from fedrank.core.streams import run_words, split
from fedrank.silos.bandits import rules as bandits
from fedrank.silos.bandits.rules import KINDS, Estimates

ARMS, DRAWS = 4, 20_000
ALL = np.ones(ARMS, bool)


def keys(number, seed=0):
    return split(run_words([seed])[0], number)


def choose_one(rule, known, alive=ALL):
    return int(bandits.choose(rule, known, np.asarray(alive), run_words([0])[0]))


def estimates(value=(0.0,) * ARMS, pulls=(1.0,) * ARMS, wins=(0.0,) * ARMS, losses=(0.0,) * ARMS):
    arrays = [np.asarray(field, np.float32) for field in (pulls, value, wins, losses)]
    return Estimates(*arrays, np.sum(arrays[0]))


def frequencies(rule, known, alive=ALL, seed=0):
    chosen = bandits.choose(rule, known, np.asarray(alive), keys(DRAWS, seed))
    return np.bincount(chosen, minlength=ARMS)


def assert_drawn_from(counts, probabilities):
    """A goodness-of-fit test that a right sampler fails once in 10,000 seeds; the seed is fixed."""
    probabilities = np.asarray(probabilities, float)
    assert counts[probabilities == 0].sum() == 0
    inside = probabilities > 0
    if inside.sum() > 1:
        assert stats.chisquare(counts[inside], DRAWS * probabilities[inside]).pvalue > 1e-4


def updated(rule, rounds):
    """Estimates after rounds of (increments, observed)."""
    known = bandits.start(rule, ARMS)
    for increments, observed in rounds:
        known = bandits.update(rule, known, np.asarray(increments, np.float32), np.asarray(observed, bool))
    return known


def plays(seed, rounds=12):
    """Rounds of one random arm each."""
    random = np.random.default_rng(seed)
    return [
        (random.normal(0.02, 0.05, ARMS).astype(np.float32), np.arange(ARMS) == random.integers(3))
        for _ in range(rounds)
    ]


# choose


@pytest.mark.parametrize("epsilon", [0.0, 0.2, 1.0])
def test_epsilon_greedy_plays_the_greedy_arm_with_one_minus_epsilon_and_the_others_alike(epsilon):
    counts = frequencies(make_rule("epsilon-greedy", epsilon=epsilon), estimates(value=(0.1, 0.3, 0.2, 0.0)))
    assert_drawn_from(counts, [epsilon / 3, 1 - epsilon, epsilon / 3, epsilon / 3])


def test_epsilon_greedy_explores_only_among_arms_that_may_be_played():
    known, alive = estimates(value=(0.1, 0.3, 0.2, 0.0)), [True, False, True, True]
    counts = frequencies(make_rule("epsilon-greedy", epsilon=0.4), known, alive)
    assert_drawn_from(counts, [0.2, 0, 0.6, 0.2])
    alone = frequencies(make_rule("epsilon-greedy", epsilon=0.4), known, [False, False, False, True])
    assert alone[3] == DRAWS


@pytest.mark.parametrize("kind", ["epsilon-greedy", "ucb", "extreme-explore"])
def test_chance_decides_between_equally_good_arms(kind):
    known = estimates(value=(0.2, 0.2, 0.1, 0.2), pulls=(5, 5, 5, 5))
    assert_drawn_from(frequencies(make_rule(kind, epsilon=0.0), known), [1 / 3, 1 / 3, 0, 1 / 3])


def test_ucb_is_the_estimate_plus_its_bonus():
    for seed in range(5):
        random = np.random.default_rng(seed)
        value, pulls, c = random.normal(0, 0.1, ARMS), random.integers(1, 30, ARMS), random.choice([0.01, 0.1, 1.0])
        wanted = np.argmax(value + c * np.sqrt(2 * np.log(pulls.sum()) / pulls))
        assert choose_one(make_rule("ucb", c=c), estimates(value=value, pulls=pulls)) == wanted


def test_ucb_first_plays_every_arm_that_may_be_played_once():
    known = estimates(value=(9.0, 0.05, 0.05, 0.05), pulls=(4, 0, 0, 0))
    counts = frequencies(make_rule("ucb", c=0.1), known, [True, True, False, True])
    assert_drawn_from(counts, [0, 0.5, 0, 0.5])


# What river 0.26.1 (bandit.UCB, burn_in=1, stats.Mean) plays on the rewards of the test below.
RIVER = {
    0.05: "01232222330113221322132202233111221022331113021222222222213222222222222222222221",
    0.5: "01232301213021302130213021320132013213201321032321032103210321320132013201321032",
}


@pytest.mark.parametrize("c", RIVER)
def test_ucb_plays_what_river_plays(c):
    rule, known, played = make_rule("ucb", c=c), bandits.start(make_rule("ucb"), ARMS), ""
    for t in range(len(RIVER[c])):
        rewards = np.array([0.04 * a - 0.01 * a * a + 0.05 * np.sin(1.7 * t + 2.3 * a) for a in range(ARMS)])
        alive = np.arange(ARMS) == t if t < ARMS else ALL  # river goes through the arms in order first
        arm = choose_one(rule, known, alive)
        known = bandits.update(rule, known, np.asarray(rewards, np.float32), np.arange(ARMS) == arm)
        played += str(arm)
    assert played == RIVER[c]


@pytest.mark.parametrize("alive", [(1, 1, 1, 1), (1, 0, 1, 1)])
def test_thompson_plays_an_arm_as_often_as_it_is_the_best_of_its_posterior(alive):
    wins, losses, alive = np.array([3.0, 8.0, 0.0, 0.2]), np.array([4.0, 9.5, 0.0, 2.0]), np.array(alive, bool)
    rule = make_rule("thompson", threshold=0.02)._replace(wins0=np.float32(0.5), losses0=np.float32(1.5))
    posteriors = [stats.beta(0.5 + w, 1.5 + l) for w, l in zip(wins, losses, strict=True)]

    def best(arm):
        def density(x):
            others = [p.cdf(x) for j, p in enumerate(posteriors) if j != arm and alive[j]]
            return posteriors[arm].pdf(x) * np.prod(others)

        return integrate.quad(density, 0, 1, limit=200)[0] if alive[arm] else 0.0

    assert_drawn_from(frequencies(rule, estimates(wins=wins, losses=losses), alive), [best(a) for a in range(ARMS)])


def test_extreme_explore_asked_for_one_arm_plays_the_best_estimate():
    known = estimates(value=(0.3, 0.1, 0.2, 0.0), wins=(1, 9, 1, 1), losses=(5, 1, 5, 5))
    assert choose_one(make_rule("extreme-explore"), known) == 0
    assert choose_one(make_rule("bayesian-extreme-explore", threshold=0.0), known) == 1


def test_a_fixed_rule_plays_its_arm():
    assert frequencies(make_rule("fixed", fixed=2), estimates(value=(9, 0, 0, 0)))[2] == DRAWS


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "fixed"])
def test_no_rule_plays_an_arm_that_may_not_be_played(kind):
    counts = frequencies(make_rule(kind, threshold=0.0, epsilon=0.9), estimates(value=(9, 0, 0, 9)), [False, True] * 2)
    assert counts[[0, 2]].sum() == 0 and counts.sum() == DRAWS


# update


def test_a_reward_of_type_2_is_whether_the_increment_exceeds_the_threshold():
    increments = np.asarray([0.02, 0.03, -0.1], np.float32)
    np.testing.assert_array_equal(bandits.reward(make_rule("ucb", threshold=0.02), increments), [0, 1, 0])
    np.testing.assert_array_equal(bandits.reward(make_rule("ucb"), increments), increments)


@pytest.mark.parametrize("threshold", [None, 0.02])
def test_the_stationary_estimate_is_the_mean_of_the_rewards_and_forgets_its_start(threshold):
    rounds = plays(1)
    known = updated(make_rule("ucb", initial=7.0, threshold=threshold), rounds)
    for arm in range(ARMS):
        seen = [increments[arm] for increments, observed in rounds if observed[arm]]
        rewards = seen if threshold is None else [float(increment > threshold) for increment in seen]
        assert known.pulls[arm] == len(seen)
        np.testing.assert_allclose(known.value[arm], np.mean(rewards) if seen else 7.0, rtol=1e-5, atol=1e-6)
    assert known.time == len(rounds)


def test_the_recency_weighted_estimate_is_the_thesis_sum():
    """q = (1 − α)^N q₁ + Σ α (1 − α)^(N − i) Rᵢ, so a larger α, not a smaller one, favours recent rewards."""
    for alpha in [0.25, 0.75, 1.0]:
        rounds = plays(2)
        known = updated(make_rule("epsilon-greedy", initial=0.05, alpha=alpha), rounds)
        for arm in range(ARMS):
            seen = np.array([increments[arm] for increments, observed in rounds if observed[arm]])
            weights = alpha * (1 - alpha) ** np.arange(len(seen))[::-1]
            wanted = (1 - alpha) ** len(seen) * 0.05 + weights @ seen
            np.testing.assert_allclose(known.value[arm], wanted, rtol=1e-5, atol=1e-7)


def test_a_larger_alpha_is_nearer_to_the_last_reward():
    rounds = [(np.full(ARMS, r), ALL) for r in (0.0, 0.0, 0.0, 1.0)]
    values = [updated(make_rule("ucb", alpha=alpha), rounds).value[0] for alpha in (0.25, 0.5, 0.75)]
    assert values == sorted(values) and values[0] < 0.3 < 0.7 < values[-1]


@pytest.mark.parametrize("gamma", [1.0, 0.75])
def test_wins_and_losses_are_discounted_for_all_arms_and_counted_for_the_played_one(gamma):
    rounds, wins, losses = plays(3), np.zeros(ARMS), np.zeros(ARMS)
    for increments, observed in rounds:  # Algorithm 4, step 4, written out
        played = int(np.argmax(observed))
        for arm in range(ARMS):
            win = float(increments[arm] > 0.02)
            wins[arm] = gamma * wins[arm] + (win if arm == played else 0)
            losses[arm] = gamma * losses[arm] + (1 - win if arm == played else 0)
    rule = make_rule("thompson", threshold=0.02, gamma=gamma)._replace(wins0=np.float32(2), losses0=np.float32(3))
    known = updated(rule, rounds)
    np.testing.assert_allclose(known.wins, wins, rtol=1e-5)
    np.testing.assert_allclose(known.losses, losses, rtol=1e-5)
    np.testing.assert_allclose(bandits.estimate(rule, known), (2 + wins) / (5 + wins + losses), rtol=1e-5)
    if gamma == 1:
        np.testing.assert_array_equal(known.wins + known.losses, known.pulls)


def test_a_round_that_observes_many_arms_discounts_once():
    rule = make_rule("bayesian-extreme-explore", threshold=0.0, gamma=0.5)
    known = updated(rule, [([1, 1, -1, -1], ALL), ([1, -1, 1, 1], [True, True, True, False])])
    np.testing.assert_allclose(known.wins, [1.5, 0.5, 1.0, 0.0])
    np.testing.assert_allclose(known.losses, [0.0, 1.0, 0.5, 0.5])
    np.testing.assert_allclose(known.pulls, [2, 2, 2, 1])
    assert known.time == 7


def test_no_observation_changes_nothing_and_does_not_discount():
    for increment, observed in [(0.4, False), (np.nan, True), (np.inf, True)]:
        rule = make_rule("thompson", threshold=0.02, gamma=0.5, alpha=0.5)
        before = updated(rule, plays(4))
        after = bandits.update(rule, before, np.full(ARMS, increment, np.float32), np.full(ARMS, observed))
        assert float(before.wins.sum() + before.losses.sum()) > 0
        for left, right in zip(before, after, strict=True):
            np.testing.assert_array_equal(left, right)


def test_counts_of_wins_need_a_threshold():
    known = updated(make_rule("epsilon-greedy"), plays(5))
    assert not known.wins.any() and not known.losses.any() and known.time == 12


# Extreme-Explore rounds


def test_extreme_explore_rounds_are_all_those_that_are_due_or_none():
    for kind in KINDS:
        rounds, each = np.arange(8, dtype=np.int32), keys(8, 1)
        always = "extreme" in kind
        np.testing.assert_array_equal(bandits.explores(make_rule(kind, threshold=0.0), rounds, each), [always] * 8)
        due = np.asarray(bandits.explores(make_rule(kind, threshold=0.0, every=3), rounds, each))
        np.testing.assert_array_equal(due, [always or t in (0, 3, 6) for t in range(8)])


def test_a_round_explores_with_the_chance_asked_for():
    rounds, each = np.ones(DRAWS, np.int32), keys(DRAWS, 2)
    often = int(bandits.explores(make_rule("ucb", chance=0.3), rounds, each).sum())
    assert stats.binomtest(often, DRAWS, 0.3).pvalue > 1e-4


def test_the_best_arm_is_that_of_the_highest_reward_then_increment_then_estimate():
    for threshold, value, increments, observed, arm in [
        (None, (0, 0, 0, 0), (0.1, 0.3, 0.2, 0.9), (1, 1, 1, 0), 1),
        (0.0, (0, 9, 0, 0), (0.1, 0.2, 0.3, -0.1), (1, 1, 1, 1), 2),  # three rewards of 1: the increment decides
        (0.5, (0.1, 0.3, 0.2, 0), (0.1, 0.1, 0.1, 0.1), (1, 1, 1, 1), 1),  # equal increments: the estimate decides
        (None, (0, 0, 0, 0), (0.1, 0.1, 0.1, 0.1), (0, 1, 1, 1), 1),  # all equal: the first
        (None, (0, 0, 0, 0), (np.nan, -0.3, -0.2, np.nan), (1, 1, 1, 1), 2),  # undefined is not observed
        (None, (0.1, 0.2, 0.4, 0.3), (9, 9, 9, 9), (0, 0, 0, 0), 2),  # nothing observed: the estimate
    ]:
        rule = make_rule("extreme-explore", threshold=threshold)
        found = bandits.best(
            rule, estimates(value=value), np.asarray(increments, np.float32), np.asarray(observed, bool)
        )
        assert found == arm


# making rules


def test_every_arm_starts_optimistic_and_unseen():
    known = bandits.start(make_rule("ucb", initial=0.25), 3)
    np.testing.assert_array_equal(known.value, [0.25] * 3)
    assert not known.pulls.any() and not known.wins.any() and not known.losses.any() and known.time == 0


def test_a_setting_out_of_range_is_refused_by_name():
    for settings in [
        {"kind": "ucb", "c": -0.1},
        {"kind": "ucb", "alpha": 0.0},
        {"kind": "ucb", "alpha": 1.5},
        {"kind": "ucb", "initial": float("nan")},
        {"kind": "ucb", "threshold": float("inf")},
        {"kind": "thompson", "threshold": 0.1, "gamma": 0.0},
    ]:
        (wrong,) = (name for name in settings if name not in ("kind", "threshold" if len(settings) > 2 else "kind"))
        with pytest.raises(ConfigError, match=f"^{wrong} of the decision rule {settings['kind']} must be"):
            make_rule(**settings)


@pytest.mark.parametrize("kind", ["thompson", "bayesian-extreme-explore"])
def test_counting_rules_need_a_threshold(kind):
    with pytest.raises(ConfigError, match="needs a threshold"):
        make_rule(kind)
