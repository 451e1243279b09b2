"""What policies bring in: known returns, the optimum above them all, and what "optimal reward" makes of no learning."""

import itertools
from dataclasses import replace
from pathlib import Path
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from fedrank.core.errors import ConfigError
from fedrank.slates import results
from fedrank.slates.world.optimum import OptimalPolicy, solve
from fedrank.slates.world.policies import (
    BASELINES,
    Copying,
    Myopic,
    TopFeature,
    play_compiled,
    rollout,
    stay_keys,
)
from fedrank.slates.world.satisfaction import Satisfaction, Scene, User
from fedrank_zoo.reproduce.study import load_file

EPISODES = 1500
LEGACY = load_file(Path(__file__).parents[3] / "reproductions" / "fedslate_2024" / "legacy.py")
#: FedSlate's learners leave the first of 61 rounds out.
SIXTY = Satisfaction(time_budget=120)
#: Tension, but little chance in the engagement, so that few episodes tell policies apart.
QUIET = Satisfaction(sensitivity=0.03, choc_mean=6.0, kale_mean=5.0, choc_sd=0.01, kale_sd=0.01)
NAMED = {"choc": 1.0, "kale": -1.0, "random": 0.0}


def returns(world, policy, keys):
    return np.asarray(play_compiled(world, policy, keys).engagement, np.float64)


def mean_returns(world, policy, seed=0, episodes=EPISODES):
    found = np.asarray(
        play_compiled(world, policy, jax.random.split(jax.random.key(seed), episodes)).engagement, np.float64
    )
    return found.mean(axis=0), stats.sem(found)


def sided(world, *names):
    return TopFeature(world, tuple(NAMED[name] for name in names))


# Means of 60 rounds at N = 10, n = 3, from an independent program in NumPy; standard errors about 1.5.
@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (("random", "random"), (934, 935)),
        (("choc", "choc"), (1025, 1026)),
        (("kale", "kale"), (852, 853)),
        (("choc", "kale"), (1105, 799)),
        (("choc", "random"), (1070, 898)),
    ],
    ids=str,
)
def test_returns_are_those_of_another_program(names, expected):
    mean, error = mean_returns(SIXTY, sided(SIXTY, *names))
    assert np.all(np.abs(mean - expected) < 4 * np.hypot(error, 1.5))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (("random", "random"), (927, 929)),
        (("choc", "choc"), (1058, 1059)),
        (("kale", "kale"), (816, 818)),
        (("choc", "kale"), (1178, 748)),
        (("choc", "random"), (1126, 877)),
    ],
    ids=str,
)
def test_so_they_are_with_a_hundred_candidates(names, expected):
    world = replace(SIXTY, candidates=100, slate=10)
    mean, error = mean_returns(world, sided(world, *names))
    assert np.all(np.abs(mean - expected) < 4 * np.hypot(error, 1.5))


class Published(NamedTuple):
    """What published tables would say of a policy that never changes, and its true mean return."""

    mean: np.ndarray
    optimal_reward: np.ndarray
    etror: np.ndarray


def constant_policy_demonstration(world, policy, episodes=5000, replicates=1000, pool=10_000):
    """Episodes of a policy without memory are independent: simulated once, every run draws its own from them."""
    simulated = np.asarray(
        play_compiled(world, policy, jax.random.split(jax.random.key(0), pool)).engagement, np.float64
    )
    draws = np.random.default_rng(0)
    runs = [LEGACY.max_of_moving_mean(simulated[draws.integers(pool, size=episodes)].T) for _ in range(replicates)]
    optimal, etror = (np.stack([getattr(run, field) for run in runs], axis=-1) for field in ("optimal_reward", "etror"))
    return Published(simulated.mean(axis=0), optimal, etror)


def test_the_legacy_metrics_flatter_a_policy_that_learns_nothing():
    report = constant_policy_demonstration(SIXTY, sided(SIXTY, "choc", "choc"), replicates=200, pool=EPISODES)
    # The largest of about 250 overlapping means of 100 episodes, sd of an episode about 178.
    above = np.median(report.optimal_reward, axis=1) - report.mean
    assert np.all((above > 35) & (above < 65))
    assert report.optimal_reward.min() > report.mean.min()
    # The episode of the maximum is anywhere: the middle 80 % of runs span most of the 5,000 episodes.
    early, late = np.quantile(report.etror, [0.1, 0.9])
    assert early < 1000 and late > 4000


@pytest.mark.slow
def test_a_policy_that_never_changes_reaches_the_papers_table():
    world = Satisfaction(candidates=100, slate=10, time_budget=120)
    report = constant_policy_demonstration(world, sided(world, "choc", "choc"), episodes=4200)
    low, high = np.quantile(report.optimal_reward, [0.01, 0.99], axis=1)
    # Deng et al. 2024, Table I, (N, n) = (100, 10): FedSlate's platforms A and B, and SlateQ on its own.
    for platform, published in ((0, 1106.6), (1, 1102.3), (0, 1115.1)):
        assert low[platform] < published < high[platform]
        assert report.mean[platform] < published - 30


@pytest.fixture(scope="module")
def optimum():
    solution = solve(QUIET, grid=17, samples=1024)
    return solution, *(float(x[0]) for x in total_returns(QUIET, OptimalPolicy(QUIET, solution)))


def total_returns(world, policy, episodes=600):
    found = np.asarray(
        play_compiled(world, policy, jax.random.split(jax.random.key(4), episodes)).engagement, np.float64
    ).sum(axis=1)
    return found.mean(keepdims=True), stats.sem(found, keepdims=True)


@pytest.mark.slow
def test_the_optimal_policy_earns_what_the_table_promises(optimum):
    solution, mean, error = optimum
    assert float(solution.error) < 0.5
    assert abs(mean - float(solution.total)) < 4 * np.hypot(error, float(solution.error))
    assert error < 1e-3 * mean


@pytest.mark.slow
@pytest.mark.parametrize(
    "names", [("choc", "choc"), ("kale", "kale"), ("choc", "kale"), ("random", "kale")], ids="/".join
)
def test_nobody_earns_more_than_the_optimal_policy(optimum, names):
    _, best, error = optimum
    mean, its_error = total_returns(QUIET, sided(QUIET, *names))
    assert mean[0] + 4 * np.hypot(error, its_error[0]) < best


@pytest.mark.slow
def test_with_tension_the_short_sighted_earn_less_and_without_they_earn_as_much():
    for world, share in ((QUIET, 0.98), (replace(QUIET, sensitivity=0.0), 1.0)):
        solution = solve(world, grid=33, samples=1024)
        best, error = total_returns(world, OptimalPolicy(world, solution))
        myopic, its_error = total_returns(world, Myopic(world))
        if share < 1.0:
            assert myopic[0] < share * best[0]
        else:
            assert abs(myopic[0] - best[0]) < 4 * np.hypot(error, its_error)[0]


@pytest.mark.slow
def test_it_makes_no_difference_to_the_optimum_whether_platforms_share_their_candidates():
    for world in (QUIET, replace(QUIET, sensitivity=0.01)):
        together, apart = (solve(replace(world, shared_candidates=shared), samples=4096) for shared in (True, False))
        assert abs(float(together.total - apart.total)) < 1e-3 * float(apart.total)


KEY = jax.random.key(1)


def scene(world, seed=0, exposure=0.0):
    documents = np.random.default_rng(seed).random((world.platforms, world.candidates), np.float32)
    user = User(jnp.float32(exposure), jnp.int32(world.time_budget))
    return Scene(user, jnp.asarray(documents), jnp.zeros(world.platforms))


@pytest.mark.parametrize("semantics", ["recsim-code", "paper"])
def test_platforms_show_most_or_least_chocolate(semantics):
    world = Satisfaction(semantics=semantics, shared_candidates=False)
    now = scene(world)
    slates = np.asarray(jax.jit(lambda: sided(world, "choc", "kale").act((), now, KEY))())
    kaleness = np.asarray(now.documents)
    chocolate = kaleness if semantics == "recsim-code" else 1 - kaleness
    np.testing.assert_array_equal(slates[0], np.argsort(-chocolate[0])[:3])
    np.testing.assert_array_equal(slates[1], np.argsort(chocolate[1])[:3])


@pytest.mark.slow
def test_random_slates_are_uniform_and_independent_between_platforms():
    world = Satisfaction(candidates=5, slate=2)
    now, policy = scene(world), BASELINES.get("random")(world)
    act = jax.jit(jax.vmap(lambda key: policy.act((), now, key)))
    slates = np.asarray(act(jax.random.split(KEY, 3000)))
    assert (slates[..., 0] != slates[..., 1]).all()
    pairs = np.sort(slates, axis=2) @ [5, 1]  # one number a set
    table = stats.contingency.crosstab(pairs[:, 0], pairs[:, 1]).count
    assert table.shape == (10, 10)
    assert stats.chisquare(table.sum(axis=0)).pvalue > 1e-4
    assert stats.chi2_contingency(table).pvalue > 1e-4


@pytest.mark.slow
def test_the_optimal_policy_spares_the_user_until_the_end(optimum):
    now = scene(QUIET)
    act = jax.jit(
        lambda left: OptimalPolicy(QUIET, optimum[0]).act((), now._replace(user=User(jnp.float32(-3), left)), KEY)
    )
    chocolate = np.asarray(now.documents)
    least, most = np.sort(chocolate)[:, :3], np.sort(chocolate)[:, -3:]
    early, late = (np.take_along_axis(chocolate, np.asarray(act(jnp.int32(left))), axis=1) for left in (122, 2))
    np.testing.assert_array_equal(np.sort(early), least)
    np.testing.assert_array_equal(np.sort(late[1]), most[1])  # the very last tick


def test_the_myopic_policy_takes_the_best_slate_for_now():
    now = scene(QUIET, exposure=-3.0)
    shown = np.asarray(jax.jit(lambda: Myopic(QUIET).act((), now, KEY))())
    kaleness = np.asarray(now.documents[0], np.float64)
    satisfaction = 1 / (1 + np.exp(0.03 * 3))

    def value(slate):
        k = kaleness[list(slate)]
        v = np.exp(1 - k)
        return v @ np.exp((5 + k) * satisfaction) / v.sum()

    best = max(itertools.combinations(range(10), 3), key=value)
    assert set(shown[0].tolist()) == set(best)


@pytest.mark.slow
def test_an_episode_tells_what_was_clicked():
    world = Satisfaction(time_budget=8, candidates=4, slate=2)
    episode = jax.jit(lambda: rollout(world, TopFeature(world, (1.0, -1.0)), KEY))()
    items = np.asarray(episode.items)
    assert items.shape == (4, 2) and np.isin(items, range(4)).all()
    assert (np.asarray(episode.engagement) > 0).all()
    assert ((np.asarray(episode.kaleness) >= 0) & (np.asarray(episode.kaleness) < 1)).all()


def test_policies_have_names_and_mind_their_number_of_platforms():
    world = Satisfaction()
    assert [BASELINES.get(name)(world).name for name in ("random", "choc", "kale", "myopic")] == [
        "random",
        "choc",
        "kale",
        "myopic",
    ]
    assert sided(world, "choc", "kale").name == "choc/kale"
    with pytest.raises(ConfigError, match="each of 2 platforms"):
        TopFeature(world, (1.0,))


@pytest.mark.parametrize("shared", [True, False])
def test_copying_shows_what_one_platform_would_show_of_each_ones_candidates(shared):
    world = Satisfaction(candidates=5, slate=2, shared_candidates=shared, platforms=3, time_budget=6)
    now, policy = scene(world), sided(world, "kale", "choc", "kale")
    if shared:
        now = now._replace(documents=jnp.broadcast_to(now.documents[0], now.documents.shape))
    on, off = (Copying(world, policy, 1, jnp.bool_(on)).act((), now, KEY) for on in (True, False))
    np.testing.assert_array_equal(off, policy.act((), now, KEY))
    expected = np.argsort(-np.asarray(now.documents), axis=1)[:, :2]
    np.testing.assert_array_equal(np.sort(on), np.sort(expected))


def test_keys_of_stays_are_those_that_jax_splits_a_users_key_into():
    users = jax.random.split(KEY, 2)

    def by_jax(key):
        first, rest = jax.random.split(key)
        world, policy = jax.vmap(jax.random.split, out_axes=1)(jax.random.split(rest, 3))
        return first, world, policy

    found = stay_keys(np.asarray(jax.random.key_data(users)), 3)
    for mine, theirs in zip(found, jax.jit(jax.vmap(by_jax))(users), strict=True):
        np.testing.assert_array_equal(mine, jax.random.key_data(theirs))


@pytest.mark.slow
def test_what_was_served_when_is_of_what_was_clicked():
    """Single candidates: everybody clicks the one that there is, so that the share of kale is that of the candidate."""
    world = Satisfaction(candidates=1, slate=1, time_budget=4, innovation=0.0, semantics="paper")
    keys = jax.random.split(KEY, 3)
    policy = BASELINES.get("random")(world)
    seen, single = play_compiled(world, policy, keys), jax.vmap(lambda key: rollout(world, policy, key))(keys)
    np.testing.assert_allclose(seen.kale, np.asarray(single.kaleness).mean(axis=0), rtol=1e-5)
    np.testing.assert_allclose(seen.engagement, np.asarray(single.engagement).sum(axis=1), rtol=1e-5)
    assert seen.satisfaction.shape == (2,) and 0.4 < seen.satisfaction[0] < 0.6


class Noted(TopFeature):
    """A rule that notes how many users each of its rounds has."""

    users: ClassVar[list[int]] = []

    def act(self, memory, scene, key):
        self.users.append(scene.documents.shape[1])
        return super().act(memory, scene, key)


def test_an_ab_test_has_its_users_in_all_and_finds_the_rule_of_the_highest_mean(monkeypatch):
    """Engagement of rules is known of another program: chocolate in RecSim's world, kale before it in tension."""
    rules = [Noted(QUIET, (sign, sign)) for sign in (0.0, 1.0, -1.0, 1.0)]
    with monkeypatch.context() as patch:
        patch.setattr(results, "_AT_ONCE", 2 * 2 * 10 * 61 * 9)  # nine users of both seeds at once
        results.find_winners(QUIET, rules, (3, 4), (True, False), 38)
    assert max(Noted.users) == 9 and sum(Noted.users) == 61 * 38
    for world, won in ((Satisfaction(), "choc"), (QUIET, "kale-then-choc")):
        rules = results.list_rules(world, (True, False))
        assert [rules[k].name for k in results.find_winners(world, rules, (0, 1), (True, False), 160)] == [won] * 2


def test_rules_by_which_platforms_differ_are_tested_where_all_see_engagement():
    alike = {"random", "choc", "kale", "kale-then-choc"}
    assert {rule.name for rule in results.list_rules(QUIET, (True, False))} == alike
    assert {rule.name for rule in results.list_rules(QUIET, (True, True))} == alike | {"choc/kale", "kale/choc"}
