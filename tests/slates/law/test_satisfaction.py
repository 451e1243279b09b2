"""Laws of the satisfaction world: published returns, rounds as ticks in order, what a tick may and may not change."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from fedrank.core.errors import ConfigError, UnknownNameError
from fedrank.slates.world.choice import Multinomial
from fedrank.slates.world.policies import TopFeature
from fedrank.slates.world.satisfaction import PRESETS, Draws, Satisfaction, User, preset

#: Deng et al. 2024, Tables I and II, row Rand: mean return of platforms A and B by candidates.
RAND = {10: (947.1, 948.3), 100: (942.8, 945.0), 500: (938.7, 940.0)}
PUBLISHED_ERROR = 161 / 5000**0.5  # of a mean over their 5,000 episodes; 161 is an episode's standard deviation
#: What runs once and briefly is compiled without LLVM's optimisations, in a third of the time.
#: Three platforms with candidates of their own, in a new order every round, and a user who may leave a slate alone.
MIXED = Satisfaction(
    candidates=6, slate=2, platforms=3, time_budget=6, sensitivity=0.3, choice=Multinomial(no_click=0.5),
    shared_candidates=False, turns="shuffled", fresh=False,
)  # fmt: skip


def at_random(world, scene, key):
    """A slate at random for every platform."""
    return TopFeature(world, (0.0,) * world.platforms).act((), scene, key)


def random_returns(world, key, episodes):
    """Under random slates: returns [E, K]; the same with each engagement's mean in its place; who left when [E, T].

    Given what is clicked, an engagement is log-normal and its mean is known: most of a return's spread is gone.
    """

    def one(scene, key):
        draws, slates = world.draw(key[0]), at_random(world, scene, key[1])
        after, turns, done = world.round(scene, slates, draws)
        middle, _ = world.step(scene.user, scene.documents[0], slates[0], jax.tree.map(lambda row: row[0], draws.ticks))
        exposures = jnp.stack([scene.user.exposure, middle.exposure])
        mean = world.mean_engagement(scene.documents[jnp.arange(2), turns.item], exposures)
        return after, (turns.engagement, mean, done)

    def episode(key):
        keys = jax.random.split(key, (world.rounds_per_episode + 1, 2))
        _, (engagement, mean, done) = jax.lax.scan(one, world.first(world.draw(keys[0, 0])), keys[1:])
        return engagement.sum(0), mean.sum(0), done

    return jax.vmap(episode)(jax.random.split(key, episodes))


def many_returns(world, batches, episodes):
    run = jax.jit(random_returns, static_argnums=(0, 2))
    rows = [jax.device_get(run(world, jax.random.key(batch), episodes)) for batch in range(batches)]
    returns, means, done = (np.concatenate(row) for row in zip(*rows, strict=True))
    assert done[:, -1].all() and not done[:, :-1].any()
    return returns, means


def test_random_slates_return_what_the_paper_reports_at_ten_candidates():
    world = preset("recsim")
    assert world.rounds_per_episode == 61
    returns, means = many_returns(world, 1, 2048)
    np.testing.assert_allclose(means.mean(0), RAND[10], atol=2 * PUBLISHED_ERROR)
    np.testing.assert_allclose(returns.mean(0), means.mean(0), atol=4 * 161 / 2048**0.5)
    np.testing.assert_allclose(returns.std(0), 161, rtol=0.1)


@pytest.fixture(scope="module")
def of_ten():
    """Mean return of random slates of ten, to 0.05, from few candidates: they are independent, n are as good as N."""
    means = many_returns(preset("recsim", candidates=10, slate=10), 32, 4096)[1]
    assert np.all(means.std(0) / len(means) ** 0.5 < 0.05)
    return means.mean(0)


@pytest.mark.slow
@pytest.mark.parametrize("candidates", [100, 500])
def test_random_slates_return_what_the_paper_reports_at_many_candidates(candidates, of_ten):
    """The row for 500 is 1.99 and 1.4 standard errors below the truth, which is that for 100 candidates."""
    _, means = many_returns(preset("recsim", candidates=candidates, slate=10), 1, 4096)
    np.testing.assert_allclose(means.mean(0), of_ten, atol=4 * means.std() / 4096**0.5)
    np.testing.assert_allclose(of_ten, RAND[candidates], atol=2 * PUBLISHED_ERROR)


#: Two platforms as usual, but strong and hidden moods.
PLAIN = preset("recsim", sensitivity=0.5, observation_noise=0.8, time_budget=4)


@functools.partial(jax.jit, static_argnums=0)
def two_rounds(world, keys):
    """Per key, and for each of two rounds on end: the scene, the slates, the draws, and what the round returns."""

    def one(scene, key):
        slates, draws = at_random(world, scene, key[0]), world.draw(key[1])
        result = world.round(scene, slates, draws)
        return result[0], (scene, slates, draws, result)

    def two(key):
        keys = jax.random.split(key, (3, 2))
        return jax.lax.scan(one, world.first(world.draw(keys[0, 0])), keys[1:])[1]

    return jax.vmap(two, out_axes=1)(keys)


@pytest.fixture(scope="module")
def mixed():
    return jax.device_get(two_rounds(MIXED, jax.random.split(jax.random.key(3), 600)))


@pytest.fixture(scope="module")
def plain():
    """Draws, and the one round that they make with the same slates for all."""

    def one(key):
        draws = PLAIN.draw(key)
        return draws, PLAIN.round(PLAIN.first(draws), jnp.asarray([[0, 1, 2]] * 2, jnp.int32), draws)

    run = jax.jit(jax.vmap(one))
    return jax.device_get(run(jax.random.split(jax.random.key(4), 600)))


def of_round(number, *rows):
    return jax.tree.map(lambda row: row[number], rows)


def logistic(x):
    return 1 / (1 + np.exp(-x))


def test_a_round_is_its_ticks_one_after_another_in_the_drawn_order(mixed):
    """Against the same ticks written out in float64 from the formulas, user by user."""
    world, nothing = MIXED, 0
    for number in range(2):
        scene, slate, draw, (after, turns, done) = of_round(number, *mixed)
        for who in range(40):
            exposure = float(scene.user.exposure[who])
            for platform in draw.order[who]:
                shown = scene.documents[who, platform, slate[who, platform]].astype(float)
                weights = np.exp([*(1 - shown), 0.5])
                slot = int(np.searchsorted(np.cumsum(weights / weights.sum()), draw.ticks.choice[who, platform]))
                assert turns.slot[who, platform] == slot
                kaleness, engagement = 0.5, 0.0
                if slot < 2:
                    kaleness = shown[slot]
                    mean = (5 * kaleness + 4 * (1 - kaleness)) * logistic(world.sensitivity * exposure)
                    engagement = np.exp(mean + draw.ticks.engagement[who, platform])
                    assert turns.item[who, platform] == slate[who, platform, slot]
                else:
                    nothing += 1
                    assert turns.item[who, platform] == -1
                np.testing.assert_allclose(turns.engagement[who, platform], engagement, rtol=1e-5)
                exposure = 0.9 * exposure - 2 * (kaleness - 0.5) + 0.05 * draw.ticks.innovation[who, platform]
                seen = logistic(world.sensitivity * exposure) + draw.ticks.observation[who, platform]
                np.testing.assert_allclose(turns.observed[who, platform], seen, atol=1e-5)
            assert bool(done[who]) == (number == 1)
            if number == 0:
                np.testing.assert_allclose(after.user.exposure[who], exposure, atol=1e-5)
                np.testing.assert_array_equal(after.observed[who], turns.observed[who])  # not fresh
    assert 10 < nothing < 100


def test_behind_the_last_round_stands_a_new_user_with_all_the_time(mixed):
    draws, (after, _, done) = of_round(1, *mixed[2:])
    newcomer, noise = draws.newcomer, draws.observation
    assert done.all()
    assert (after.user.left == MIXED.time_budget).all()
    np.testing.assert_allclose(after.user.exposure, (newcomer - 0.5) * 10, atol=2e-6)
    np.testing.assert_allclose(after.observed, logistic(0.3 * (newcomer - 0.5) * 10)[:, None] + noise, atol=2e-6)
    np.testing.assert_array_equal(after.documents, draws.documents)


def test_draws_are_distributed_as_they_say(mixed):
    (draws,) = of_round(0, mixed[2])
    for uniform in (draws.ticks.choice, draws.documents, draws.newcomer):
        assert stats.kstest(uniform.ravel(), "uniform").pvalue > 1e-3
    for normal in (draws.ticks.engagement, draws.ticks.innovation):
        assert stats.kstest(normal.ravel(), "norm").pvalue > 1e-3
    for noise in (draws.ticks.observation, draws.observation):
        assert stats.kstest(noise.ravel() / 0.1, "norm").pvalue > 1e-3
    orders = np.unique(draws.order, axis=0, return_counts=True)
    assert len(orders[0]) == 6 and stats.chisquare(orders[1]).pvalue > 1e-3
    together = np.stack([draws.ticks.choice, draws.ticks.engagement, draws.ticks.innovation, draws.ticks.observation])
    correlations = np.corrcoef(together.transpose(0, 2, 1).reshape(12, -1))  # 4 kinds × 3 platforms
    assert np.abs(correlations - np.eye(12)).max() < 5 / len(draws.newcomer) ** 0.5


def test_platforms_share_candidates_or_have_their_own(mixed, plain):
    assert len(np.unique(mixed[2].documents)) > 0.99 * mixed[2].documents.size
    shared = plain[0].documents
    np.testing.assert_array_equal(shared[:, 0], shared[:, 1])
    assert len(np.unique(shared)) > 0.49 * shared.size
    assert (plain[0].order == [0, 1]).all()


def test_fresh_platforms_see_the_satisfaction_at_the_rounds_beginning_each_with_its_own_noise(plain):
    draws, (after, turns, done) = plain
    assert not done.any()
    expected = logistic(0.5 * after.user.exposure)[:, None] + draws.observation
    np.testing.assert_allclose(after.observed, expected, atol=1e-6)
    assert not np.isclose(after.observed, turns.observed, atol=1e-4).all(axis=1).any()


def test_wide_noise_is_truncated_at_one_and_none_is_none(plain):
    noise = np.stack([plain[0].observation, plain[0].ticks.observation])
    assert stats.kstest(noise.ravel(), stats.truncnorm(-1.25, 1.25, scale=0.8).cdf).pvalue > 1e-3
    assert not jax.jit(Satisfaction(candidates=3, observation_noise=0.0).draw)(jax.random.key(0)).observation.any()


def test_mean_engagement_is_the_integral_over_the_engagement_of_a_step():
    """Gauss–Hermite over the step's normal draw; spreads that differ between chocolate and kale."""
    world = preset("recsim", candidates=1, slate=1, choc_sd=1.3, kale_sd=0.4, sensitivity=0.2)
    nodes, weights = np.polynomial.hermite_e.hermegauss(40)
    kaleness, user = jnp.asarray([0.3], jnp.float32), User(jnp.float32(2.0), jnp.int32(5))
    zero = jnp.float32(0)

    @jax.jit
    def steps_and_mean(nodes):
        slate = jnp.zeros(1, jnp.int32)
        step = jax.vmap(lambda z: world.step(user, kaleness, slate, Draws(zero, z, zero, zero))[1].engagement)
        return step(nodes), world.mean_engagement(kaleness[0], user.exposure)

    steps, mean = steps_and_mean(nodes.astype(np.float32))
    assert float(mean) == pytest.approx(np.sum(np.asarray(steps, float) * weights) / np.sum(weights), rel=1e-4)


def test_both_semantics_are_one_world_in_terms_of_chocolate():
    """One item, so that the choice says nothing: kaleness k as published code has it is 1 − k in the paper's words."""
    code, paper = (preset(name, candidates=1, slate=1) for name in ("recsim", "paper"))
    user, slate = User(jnp.float32(-1.0), jnp.int32(9)), jnp.zeros(1, jnp.int32)
    draws = Draws(*(jnp.float32(x) for x in (0.2, 0.7, -0.3, 0.05)))

    @jax.jit
    def both(k):
        return code.step(user, k[None], slate, draws), paper.step(user, 1.0 - k[None], slate, draws)

    sweet, same = both(jnp.float32(0.75))
    for ours, theirs in zip(jax.tree.leaves(sweet), jax.tree.leaves(same), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)
    assert float(sweet[0].exposure) == pytest.approx(-0.9 - 0.5 - 0.015, rel=1e-5)
    # What pulls users: under the code's semantics away from chocolate, under the paper's towards it.
    for world, slope in ((code, -1.0), (paper, 1.0)):
        lean, sweet = (world.chocolate(jnp.float32(k)) for k in (0.2, 0.8))
        pull = world.appeal(jnp.float32(0.8)) - world.appeal(jnp.float32(0.2))
        assert float(pull / (sweet - lean)) == pytest.approx(slope)


def test_worlds_that_cannot_be_are_refused():
    for settings, message in [
        ({"slate": 11}, "slate of 11 items cannot be filled from 10"),
        ({"slate": 0}, "slate of at least 1"),
        ({"platforms": 0}, "platforms of at least 1"),
        ({"platforms": 3}, "multiple of platforms=3"),
        ({"time_budget": 0}, "positive multiple"),
        ({"memory_discount": 1.0}, "memory_discount"),
        ({"sensitivity": -0.1}, "sensitivity"),
        ({"innovation": float("nan")}, "innovation"),
        ({"choc_mean": float("inf")}, "choc_mean"),
        ({"semantics": "code"}, "recsim-code, paper"),
        ({"turns": "random"}, "in-order, shuffled"),
        ({"candidate": 5}, "no setting candidate"),
    ]:
        with pytest.raises(ConfigError, match=message):
            preset("recsim", **settings)


def test_presets_differ_where_they_say():
    assert PRESETS.names() == ["recsim", "paper", "tension", "stock"]
    assert preset("recsim") == Satisfaction()
    assert preset("paper") == Satisfaction(semantics="paper")
    assert preset("tension") == Satisfaction(sensitivity=0.03)
    with pytest.raises(UnknownNameError, match="tension"):
        preset("tensions")
