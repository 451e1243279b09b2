"""Users who drift, platforms that differ, and K of them: against the formulas, in float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedrank.core.errors import ConfigError
from fedrank.slates.world.optimum import solve
from fedrank.slates.world.policies import Myopic
from fedrank.slates.world.satisfaction import Draws, RoundDraws, Satisfaction, Scene, User

TAUS, DRIFT = (0.02, 0.3, 0.1), 1.5
WORLD = Satisfaction(
    candidates=3, slate=1, platforms=3, time_budget=30, sensitivities=TAUS, drift=DRIFT, innovation=0.0
)


def logistic(x):
    return 1 / (1 + np.exp(-x))


def one_round(world, left, exposure, kaleness, order):
    """The turns of a round in which every platform shows its first item, and the exposure after it."""
    k = world.platforms
    documents = np.tile(np.asarray(kaleness, np.float32)[:, None], (1, world.candidates))
    scene = Scene(User(jnp.float32(exposure), jnp.int32(left)), jnp.asarray(documents), jnp.zeros(k))
    zero = jnp.zeros(k)
    draws = RoundDraws(
        Draws(zero, zero, zero, zero), jnp.asarray(documents), zero, jnp.float32(0.5), jnp.asarray(order)
    )
    after, turns, _ = world.round(scene, jnp.zeros((k, 1), jnp.int32), draws)
    return after, turns


@pytest.mark.slow
@pytest.mark.parametrize(("turns", "order"), [("in-order", (0, 1, 2)), ("shuffled", (2, 0, 1))])
def test_each_platforms_users_react_as_its_own_and_as_late_as_it_is(turns, order):
    world = Satisfaction(**{**vars(WORLD), "turns": turns})
    kaleness, exposure, left = (0.9, 0.2, 0.6), 2.5, 12
    after, found = one_round(world, left, exposure, kaleness, order)
    for k in order:
        tau = TAUS[k] * np.exp(DRIFT * (1 - left / 30))
        mean = (5 * kaleness[k] + 4 * (1 - kaleness[k])) * logistic(tau * exposure)
        np.testing.assert_allclose(found.engagement[k], np.exp(mean), rtol=1e-5)
        exposure, left = 0.9 * exposure - 2 * (kaleness[k] - 0.5), left - 1
        seen = logistic(TAUS[k] * np.exp(DRIFT * (1 - left / 30)) * exposure)
        np.testing.assert_allclose(found.observed[k], seen, rtol=1e-5)
    np.testing.assert_allclose(after.user.exposure, exposure, rtol=1e-5)
    each = [logistic(tau * np.exp(DRIFT * (1 - left / 30)) * exposure) for tau in TAUS]
    np.testing.assert_allclose(after.observed, each, rtol=1e-5, err_msg="each observes the user as its own")


@pytest.mark.slow
@pytest.mark.parametrize("platforms", [1, 2, 5])
def test_platforms_add_up_on_one_user(platforms):
    """After a round of K clicks with c of chocolate the exposure is β^K x − 2 Σ β^(K−1−k) (c_k − ½)."""
    world = Satisfaction(candidates=2, slate=1, platforms=platforms, time_budget=10 * platforms, innovation=0.0)
    kaleness = np.linspace(0.1, 0.8, platforms)
    after, _ = one_round(world, 10 * platforms, 1.5, kaleness, range(platforms))
    steps = 0.9 ** np.arange(platforms)[::-1] * (kaleness - 0.5)
    np.testing.assert_allclose(after.user.exposure, 0.9**platforms * 1.5 - 2 * steps.sum(), rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("shared", [True, False])
def test_items_are_shared_or_own(shared):
    world = Satisfaction(platforms=4, time_budget=40, shared_candidates=shared)
    documents = np.asarray(world.draw(jax.random.key(0)).documents)
    assert documents.shape == (4, 10) and all((row == documents[0]).all() == shared for row in documents[1:])


def test_short_sight_serves_by_each_platforms_own_sensitivity():
    """Where kale varies more, its mean is above chocolate's until the satisfaction is."""
    world = Satisfaction(
        candidates=2, slate=1, time_budget=2, sensitivities=(0.0, 5.0), drift=1.0, choc_sd=0.5, kale_sd=1.3
    )
    documents = jnp.array([[0.2, 0.9], [0.2, 0.9]])
    scene = Scene(User(jnp.float32(2.0), jnp.int32(2)), documents, jnp.zeros(2))
    slates = np.asarray(Myopic(world).act((), scene, jax.random.key(0)))[:, 0]
    exposure, best = 2.0, []
    for k, left in ((0, 2), (1, 1)):
        seen = logistic((0.0, 5.0)[k] * np.exp(1 - left / 2) * exposure)
        means = [(5 * c + 4 * (1 - c)) * seen + (0.5 * c + 1.3 * (1 - c)) ** 2 / 2 for c in (0.2, 0.9)]
        best.append(int(np.argmax(means)))
        exposure = 0.9 * exposure - 2 * ((0.2, 0.9)[best[-1]] - 0.5)
    assert slates.tolist() == best == [0, 1]


def test_settings_that_make_no_sense():
    for change, said in [
        ({"sensitivities": (0.1, 0.2)}, "one a platform, 3"),
        ({"sensitivities": (0.1, -0.2, 0.3)}, "not negative"),
        ({"drift": 8.0}, "within ±7"),
        ({"drift": float("nan")}, "within ±7"),
    ]:
        with pytest.raises(ConfigError, match=said):
            Satisfaction(**{**vars(WORLD), **change})


def test_an_optimum_that_is_not_known_is_refused():
    with pytest.raises(ConfigError, match="turns in order"):
        solve(Satisfaction(**{**vars(WORLD), "turns": "shuffled"}))
