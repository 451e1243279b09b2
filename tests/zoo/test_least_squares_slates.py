"""Least-squares policy iteration over sums of platforms: a finite process, a stay, and its name."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedrank.core.errors import UnknownNameError
from fedrank.engine.settings import from_dict
from fedrank.slates.build import experiment_of
from fedrank.slates.sums.learner import item_feature
from fedrank.slates.world.satisfaction import Satisfaction, Turn
from fedrank_zoo.least_squares_slates import LeastSquares

pytestmark = pytest.mark.slow


def _protocol(**slates):
    world = {"candidates": 4, "slate": 2, "time_budget": 6}
    given = {"protocol": "planned-slates", "world": world, "rounds": 60, "slates": slates}
    return experiment_of(from_dict(given).resolved()).protocol


def test_planned_slates_take_it_by_name():
    learner = _protocol(learner="least-squares", releases=2, explorers=5).learner
    assert learner == LeastSquares(learner.world, (True, False), explorers=(3, 2))
    with pytest.raises(UnknownNameError, match="least-squares"):
        _protocol(learner="least-square")


def test_least_squares_policy_iteration_finds_the_best_policy_of_a_finite_process():
    """Two rounds with the same two items: six pairs of state and click, which the features can all tell apart."""
    world = Satisfaction(candidates=2, slate=1, platforms=1, time_budget=2)
    learner = LeastSquares(world, (True,), explorers=(1,), fade=0.5, ridge=1e-6, clip=1e5, scale=1.0)
    documents = jnp.asarray([0.2, 0.8])
    z = np.asarray(item_feature(documents), np.float64)

    # The item that brings less at first opens the larger reward.
    first, second = np.array([3.0, 1.0]), np.array([[1.0, 2.0], [2.0, 6.0]])
    best_second = second.max(axis=1)
    wanted = {(2, 0.0): first + best_second, **{(1, -z[a]): second[a] for a in range(2)}}
    assert np.argmax(first) != np.argmax(wanted[2, 0.0])

    @jax.jit
    def sums_of(model, clicks, rewards):
        own = learner.first_state(None, 0)._replace(model=model)
        total = jnp.zeros(learner.numbers)
        for round_ in range(2):
            own = own._replace(view=own.view._replace(documents=documents), slate=clicks[round_][None])
            turn = Turn(jnp.int32(0), clicks[round_], rewards[round_], jnp.float32(0.5))
            total += learner.contribution(own, item_feature(documents[clicks[round_]]), rewards[round_])
            view = own.view._replace(left=own.view.left - 1, known=learner.known_after(own, turn))
            own = own._replace(view=view)
        return total

    def values(model, left, trace):
        phi = np.asarray(learner.features(jnp.float32(trace), jnp.float32(left), item_feature(documents)), np.float64)
        return phi @ model

    d = learner.parameters
    model, total = np.zeros(d), np.zeros(learner.numbers)
    for _ in range(4):
        total = np.zeros(learner.numbers)
        for clicks in itertools.product(range(2), repeat=2):
            rewards = jnp.asarray([first[clicks[0]], second[clicks]], jnp.float32)
            total += np.asarray(sums_of(jnp.asarray(model, jnp.float32), jnp.asarray(clicks), rewards), np.float64)
        # By double precision: the features are more than the values that there are.
        model = np.linalg.lstsq(total[: d * d].reshape(d, d), total[d * d :], rcond=1e-6)[0]
    for (left, trace), q in wanted.items():
        np.testing.assert_allclose(values(model, left, trace), q, rtol=1e-4)
    solved = learner.solve(jnp.asarray(total, jnp.float32), jnp.float32(8.0), jnp.zeros(d), jnp.float32(0.0))
    for (left, trace), q in wanted.items():
        np.testing.assert_allclose(values(np.asarray(solved, np.float64), left, trace), q, rtol=0.02)


def test_least_squares_of_a_stay_are_what_is_still_to_come():
    """With one candidate there is one policy, and with γ = 1 what a click is worth is all that follows."""
    world = Satisfaction(candidates=1, slate=1, platforms=1, time_budget=3)
    learner = LeastSquares(world, (True,), explorers=(1,), fade=0.0, ridge=1e-6, clip=1e5, scale=1.0)
    own = learner.first_state(None, 0)
    rewards, sums = [2.0, 3.0, 7.0], np.zeros(learner.numbers)
    for round_, reward in enumerate(rewards):
        own = own._replace(view=own.view._replace(documents=jnp.asarray([0.25 * (1 + round_)])))
        turn = Turn(jnp.int32(0), jnp.int32(0), jnp.float32(reward), jnp.float32(0.5))
        item = item_feature(own.view.documents[0])
        sums += np.asarray(learner.contribution(own, item, jnp.float32(reward)), np.float64)
        own = own._replace(view=own.view._replace(left=own.view.left - 1, known=learner.known_after(own, turn)))
    model = np.asarray(learner.solve(jnp.asarray(sums, jnp.float32), jnp.float32(1.0), None, None), np.float64)
    # Features of the three clicks are independent, so that their values are met: 2 + 3 + 7, 3 + 7, 7.
    trace = [0.0, 0.5, -0.0]
    phi = [
        np.asarray(learner.features(jnp.float32(x), jnp.float32(3 - k), jnp.asarray([0.5 * (1 + k) - 1.0])))[0]
        for k, x in enumerate(trace)
    ]
    np.testing.assert_allclose(np.stack(phi) @ model, [12.0, 10.0, 7.0], rtol=0.02)
