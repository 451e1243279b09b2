"""Noise on Q-values: the mechanism against probabilities, the account against coordinators that are played."""

import json
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedrank.core.errors import ConfigError
from fedrank.core.privacy_report import BASIC, PrivacyReport, Unit
from fedrank.privacy.accounts.vectors import ALWAYS_ASKED, EVERYWHERE, vectors
from fedrank.privacy.noisy_values import ValueNoise


class Replay(NamedTuple):
    platforms: int = 2
    batch: int = 5
    learn_every: int = 3
    burn_in: int = 20
    memory: int = 40
    episode_rounds: int = 6


SMALL = Replay()


def whole(noise, values):
    """Values on the grid, in steps, without noise."""
    values = jnp.asarray(values, jnp.float32)
    left = noise.apply(values, jnp.zeros(values.shape, jnp.int32))
    return np.asarray(left - noise.centre, np.float64) / (noise.clip / noise.steps)


def test_values_are_cut_around_the_centre_rounded_and_get_their_noise():
    noise = ValueNoise(clip=2.0, epsilon=1.0, centre=10.0, steps=4)
    values = jnp.array([[10.3, 9.7, 99.0, -99.0], [jnp.nan, jnp.inf, -jnp.inf, 10.0]], jnp.float32)
    steps = jnp.array([[0, 0, 1, -3], [0, 0, 0, 7]], jnp.int32)
    expected = [[10.5, 9.5, 12.5, 6.5], [10.0, 12.0, 8.0, 13.5]]
    assert noise.apply(values, steps).tolist() == expected


def test_without_an_epsilon_values_are_cut_and_nothing_else():
    noise = ValueNoise(clip=2.0)
    values = jnp.array([1.2345, -7.0, 0.001], jnp.float32)
    assert np.array_equal(noise.draw(jax.random.key(0), (2, 3)), np.zeros((2, 3)))
    assert np.array_equal(noise.draw_from_os((3,)), np.zeros(3))
    np.testing.assert_allclose(noise.apply(values, noise.draw_from_os((3,))), [1.2345, -2.0, 0.001], rtol=1e-6)
    with pytest.raises(ConfigError, match="no noise"):
        noise.account(10, 1e-6, 3, SMALL)


@pytest.mark.parametrize(("mechanism", "order"), [("laplace", 1), ("gaussian", 2)])
def test_no_two_vectors_are_further_apart_than_the_sensitivity_and_two_corners_are_that_far(mechanism, order):
    noise = ValueNoise(clip=0.3, epsilon=1.0, mechanism=mechanism, centre=0.1, steps=8)
    rng = np.random.default_rng(0)
    grid = whole(noise, rng.normal(0, 1, (100, 5)))
    assert np.abs(grid - np.rint(grid)).max() < 1e-4
    apart = np.linalg.norm(np.rint(grid)[:, None] - np.rint(grid)[None], ord=order, axis=-1)
    assert apart.max() <= noise.sensitivity(5) * (1 + 1e-12)
    corners = np.rint(whole(noise, [[9.0] * 5, [-9.0] * 5]))
    assert np.linalg.norm(corners[0] - corners[1], ord=order) == pytest.approx(noise.sensitivity(5), rel=1e-12)


def test_the_likelihood_of_laplace_noise_changes_by_epsilon_exactly():
    noise = ValueNoise(clip=1.0, epsilon=0.7, mechanism="laplace", steps=16)
    t, x = noise.scale(1), np.arange(-200, 201)
    weight = np.exp(-np.abs(x) / t)
    shifted = np.exp(-np.abs(x - 32) / t)  # the same noise on the other end of the range, 2 · 16 steps away
    assert np.abs(np.log(weight / shifted)).max() == pytest.approx(0.7, rel=1e-12)


def test_gaussian_noise_keeps_its_delta_and_not_much_more_than_it_needs():
    noise = ValueNoise(clip=1.0, epsilon=0.7, delta=1e-5, steps=16)
    sigma = noise.scale(1)
    x = np.arange(-int(12 * sigma), int(12 * sigma) + 33)
    p = np.exp(-(x**2) / (2 * sigma**2)) / np.exp(-(x**2) / (2 * sigma**2)).sum()
    q = np.exp(-((x - 32) ** 2) / (2 * sigma**2)) / np.exp(-((x - 32) ** 2) / (2 * sigma**2)).sum()
    needed = np.maximum(p - math.exp(0.7) * q, 0).sum()  # the δ that this noise has at this ε
    assert 1e-7 < needed <= 1e-5


@pytest.mark.parametrize("mechanism", ["laplace", "gaussian"])
def test_simulated_and_real_noise_have_the_spread_that_is_promised(mechanism):
    noise = ValueNoise(clip=1.0, epsilon=30.0, mechanism=mechanism, steps=8)
    t = noise.scale(4)
    a = math.exp(-1 / t)
    deviation = math.sqrt(2 * a) / (1 - a) if mechanism == "laplace" else t
    for drawn in (noise.draw(jax.random.key(1), (2000, 4)), noise.draw_from_os((2000, 4))):
        assert drawn.dtype == jnp.int32 and drawn.shape == (2000, 4)
        assert np.std(np.asarray(drawn)) == pytest.approx(deviation, rel=0.05)  # 8,000 draws: 1 % is one sigma or so
    report = noise.account(60, 1e-6, 4, SMALL)
    assert report.details["noise_deviation"] == pytest.approx(deviation / 8, rel=1e-9)


def play(rounds, rng, choose):
    """One run's vectors at a platform that does not learn last: how many tell of each round's moment."""
    filled = np.ones(rounds)
    for t in range(rounds):
        if t >= SMALL.burn_in and (t + 1) % SMALL.learn_every == 0:
            kept = min(t + 1, SMALL.memory)
            then = t - 1 - choose(rng, kept - 1, t)
            filled[then] += 2  # values, and the new ones
            filled[then + 1] += 1  # the target network's, one round later
    return filled


def test_a_coordinator_that_keeps_to_the_protocol_fills_as_many_vectors_as_expected():
    rounds, rng = 90, np.random.default_rng(5)
    count = vectors(rounds, SMALL, 0.01)
    fair = lambda rng, n, t: rng.choice(n, SMALL.batch, replace=False)  # noqa: E731
    runs = np.array([play(rounds, rng, fair) for _ in range(600)])
    assert np.all(runs.sum(1) == count.run)
    stays = runs.reshape(600, -1, 6).sum(2)
    means, errors = stays.mean(0), stays.std(0) / math.sqrt(600)
    most = means.argmax()
    assert means[most] == pytest.approx(count.stay_expected, abs=4 * errors[most])
    assert (stays > count.stay).mean(0).max() <= 0.01
    assert count.stay < count.stay_worst


def test_no_coordinator_gets_more_than_the_worst_case_and_a_greedy_one_gets_close():
    rounds = 90
    count = vectors(rounds, SMALL, 0.01)
    user = np.arange(30, 36)

    def greedy(rng, n, t):
        ages = np.arange(n)  # of the moments that may be asked for: age 0 is round t − 1
        near = np.argsort(np.abs(t - 1 - ages - user.mean()), kind="stable")
        return near[: SMALL.batch]

    filled = play(rounds, None, greedy)[user].sum()
    assert 0.7 * count.stay_worst < filled <= count.stay_worst


def test_epsilons_add_up_over_a_stay_and_a_run():
    laplace = ValueNoise(clip=1.0, epsilon=0.01, mechanism="laplace").account(90, 1e-6, 4, SMALL)
    assert laplace.epsilon(Unit.VECTOR) == pytest.approx(0.01, rel=1e-9) and laplace.details["vector_delta"] == 0
    assert laplace.epsilon(Unit.USER, basis=BASIC) == pytest.approx(laplace.details["vectors_stay"] * 0.01, rel=1e-9)
    gaussian = ValueNoise(clip=1.0, epsilon=0.5).account(90, 1e-6, 4, SMALL)
    assert gaussian.epsilon(Unit.VECTOR) == pytest.approx(0.5, rel=1e-3)
    rho = gaussian.details["vectors_run"] * (gaussian.details["sensitivity"] / gaussian.details["scale"]) ** 2 / 2
    assert rho < gaussian.epsilon(Unit.RUN) <= rho + 2 * math.sqrt(rho * math.log(1e6))
    for report in (laplace, gaussian):
        assert (
            report.epsilon(Unit.VECTOR)
            <= report.epsilon(Unit.USER)
            <= report.epsilon(Unit.USER, scope=EVERYWHERE)
            <= 2 * report.epsilon(Unit.RUN)
        )
        assert report.epsilon(Unit.USER) <= report.epsilon(Unit.USER, scope=ALWAYS_ASKED) <= report.epsilon(Unit.RUN)
        assert report.epsilon(Unit.USER) <= report.epsilon(Unit.USER, basis=BASIC)


def test_the_report_promises_nothing_for_a_round_since_targets_cross_bare():
    report = ValueNoise(clip=1.0, epsilon=0.5).account(90, 1e-6, 4, SMALL)
    assert isinstance(report, PrivacyReport) and report.epsilon_round == math.inf
    content = json.loads(json.dumps(report.as_json(), allow_nan=False))
    assert content["epsilon_round"] is None and content["details"]["vectors_run"] == report.details["vectors_run"]
    assert any("Targets, gradients" in line for line in content["not_covered"])
    assert "Targets and gradients have no noise" in content["words"][-1]


def test_before_the_first_round_nothing_is_spent():
    report = ValueNoise(clip=1.0, epsilon=0.5).account(0, 1e-6, 4, SMALL)
    assert report.epsilon(Unit.USER) == report.epsilon(Unit.RUN) == 0 and report.details["vectors_run"] == 0


def test_numbers_out_of_range_are_refused():
    for wrong, says in [
        ({"clip": 0.0}, "clip of values"),
        ({"epsilon": -1.0}, "epsilon of a vector"),
        ({"mechanism": "uniform"}, "mechanism must be"),
        ({"delta": 1.0}, "delta of a vector"),
        ({"steps": 3}, "power of two"),
        ({"centre": math.nan}, "centre in"),
    ]:
        with pytest.raises(ConfigError, match=says):
            ValueNoise(**{"clip": 1.0, "epsilon": 1.0, **wrong})


def test_noise_that_the_grid_cannot_hold_is_refused():
    with pytest.raises(ConfigError, match="Use fewer steps"):
        ValueNoise(clip=1.0, epsilon=1e-3, mechanism="laplace").scale(500)
