"""Interest evolution against closed forms; RecSim's own steps are in the oracle's test."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedrank.core.errors import ConfigError
from fedrank.slates.world.interest_evolution import (
    QUALITY,
    TOPICS,
    InterestEvolution,
    Videos,
    Viewer,
    price_of_time,
    sessions,
)

WORLD = InterestEvolution(candidates=4, slate=2, most_rounds=400)
ZERO = jnp.float32(0.0)


@pytest.mark.slow
def test_interests_move_by_the_mean_of_the_closed_form():
    """Up with probability (x + 1) / 2, else down, by s = 0.3 (1 − |x|)(1 − x): on the mean s x."""
    interests = np.linspace(-0.95, 0.95, TOPICS).astype(np.float32)
    taste = ((np.arange(2000) + 0.5) / 2000).astype(np.float32)
    videos = Videos(jnp.arange(4, dtype=jnp.int32) * 6, jnp.zeros(4))

    def moved(item, taste):
        viewer = Viewer(jnp.asarray(interests), jnp.float32(100.0))
        after, seen = WORLD.step(viewer, videos, jnp.array([item, item]), ZERO, taste)
        return after.interests - interests, seen.minutes, after.left

    for item in range(4):
        change, minutes, left = jax.vmap(moved, (None, 0))(item, taste)
        x = interests[6 * item]
        expected = np.zeros(TOPICS)
        expected[6 * item] = 0.3 * (1 - abs(x)) * (1 - x) * x
        np.testing.assert_allclose(change.mean(axis=0), expected, atol=1e-3)
        np.testing.assert_allclose(minutes, 4.0)
        np.testing.assert_allclose(left, 96.0)


def test_time_left_falls_by_what_is_watched_and_quality_gives_some_back():
    viewer, slate = Viewer(jnp.zeros(TOPICS), jnp.float32(3.0)), jnp.array([1, 0])
    videos = Videos(jnp.array([0, 19, 3, 4]), jnp.array([-3.0, 3.0, 0.0, 0.0]))
    after, seen = WORLD.step(viewer, videos, slate, ZERO, ZERO)
    assert (int(seen.slot), int(seen.item), float(seen.minutes)) == (0, 1, 3.0), "no longer than there is time"
    assert float(after.left) == pytest.approx(3 * 0.9 / 3.4 * 3)
    after, seen = WORLD.step(viewer, videos, slate, jnp.float32(0.99), ZERO)
    assert (int(seen.slot), int(seen.item), float(seen.minutes)) == (2, -1, 0.0)
    assert float(after.left) == 2.5 and not np.any(after.interests)


@pytest.mark.slow
def test_one_slate_earns_what_the_choice_says():
    """Interests are uniform: a slate of n earns 4 E[Σ w / (Σ w + 2)] with w uniform in (0, 2)."""
    world = InterestEvolution(candidates=3, slate=3, time_budget=0.5, length=0.5, most_rounds=1)
    found = sessions(world, False, ZERO, jax.random.split(jax.random.key(0), 20_000)).minutes
    # Topics coincide now and then, so simulate the closed form's integrand by itself.
    rng = np.random.default_rng(0)
    interests, topics = rng.uniform(-1, 1, (200_000, TOPICS)), rng.integers(0, TOPICS, (200_000, 3))
    weights = 1 + np.take_along_axis(interests, topics, axis=1)
    share = (weights.sum(axis=1) / (weights.sum(axis=1) + 2)).mean()
    assert float(found.mean()) == pytest.approx(0.5 * share, abs=4 * 0.25 / 20_000**0.5)


@pytest.mark.slow
def test_looking_ahead_pays_and_platforms_share_the_viewer():
    keys = jax.random.split(jax.random.key(1), 300)
    random = sessions(WORLD, False, ZERO, keys)
    myopic = sessions(WORLD, True, ZERO, keys)
    price = price_of_time(WORLD, keys)
    ahead = sessions(WORLD, True, jnp.float32(price), keys)
    means = [float(one.minutes.mean()) for one in (random, myopic, ahead)]
    assert means[2] > 1.1 * means[0] and means[2] > 1.1 * means[1]
    two = InterestEvolution(candidates=4, slate=2, platforms=2, shared_candidates=False, most_rounds=200)
    both = sessions(two, False, ZERO, keys)
    whole, alone = both.minutes.sum(axis=1), random.minutes.sum(axis=1)
    assert abs(float(whole.mean() - alone.mean())) < 4 * float(np.hypot(whole.std(), alone.std())) / 300**0.5
    assert not both.stayed.any() and float(np.abs(both.minutes.mean(axis=0) / whole.mean() - 0.5).max()) < 0.05


def test_topics():
    assert QUALITY.shape == (TOPICS,) and (QUALITY[:14] <= 0).all() and (QUALITY[14:] >= 0).all()


@pytest.mark.parametrize(
    ("change", "said"),
    [({"slate": 5}, "cannot be filled"), ({"platforms": 0}, "at least 1"), ({"penalty": 0.0}, "above 0")],
)
def test_settings_that_make_no_sense(change, said):
    with pytest.raises(ConfigError, match=said):
        InterestEvolution(**{"candidates": 4, "slate": 2, **change})
