"""Targets and least squares against loops in NumPy: n-step, double, Polyak, policy iteration in a finite process."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from slate_worlds import DISCOUNT, SLATE, K, N, choices, exchange, f64, greedy, omega, settings, slates, worth

from fedrank.slates.fedslate.equations import td_target
from fedrank.slates.fedslate.state import Transition
from fedrank.slates.learners.least_squares import LeastSquares
from fedrank.slates.sums.learner import item_feature
from fedrank.slates.world.satisfaction import Satisfaction, Turn

LEARNT, MEAN = np.array([-2.0, 0.5]), 0.25


def rows(rng, overs):
    """Moments with a reward and an end each; the last is the one that is looked ahead to."""
    for over in overs:
        yield Transition(
            user=jnp.asarray(rng.normal(size=4), jnp.float32),
            items=jnp.asarray(rng.normal(size=(N, 1)), jnp.float32),
            slate=jnp.asarray(rng.permutation(N)[:SLATE], jnp.int32),
            item=jnp.int32(0),
            slot=jnp.int32(0),
            engagement=jnp.float32(rng.normal()),
            over=jnp.float32(over),
        )


def target(s, moments, values, online=None):
    *these, after = moments
    values, learnt, mean = (jnp.asarray(one, jnp.float32) for one in (values, LEARNT, MEAN))
    online = None if online is None else jnp.asarray(online, jnp.float32)
    return float(td_target(s, values, tuple(these), after, learnt, mean, online))


@pytest.mark.parametrize("overs", list(itertools.product((0, 1), repeat=3)))
def test_n_step_targets_add_up_what_came_until_the_stay_was_over(overs):
    rng = np.random.default_rng(7)
    s, moments, values = settings(steps=3, choice="learned"), list(rows(rng, (*overs, 0))), rng.normal(size=N)
    total = 0.0
    for age, row in enumerate(moments[:-1]):
        total += DISCOUNT**age * (float(row.engagement) - MEAN)
        if row.over:
            break
    else:
        v = choices(LEARNT, f64(moments[-1].items))
        total += DISCOUNT**3 * worth(v, values, greedy(v, values))
    np.testing.assert_allclose(target(s, moments, values), total, rtol=1e-5)


def test_double_targets_choose_by_one_network_and_value_by_the_other():
    s, rng, differ = settings(double=True, choice="learned"), np.random.default_rng(8), 0
    for _ in range(10):
        moments, values, online = list(rows(rng, (0, 0))), rng.normal(size=N), rng.normal(size=N)
        v, reward = choices(LEARNT, f64(moments[1].items)), float(moments[0].engagement) - MEAN
        wanted = reward + DISCOUNT * worth(v, values, greedy(v, online))
        np.testing.assert_allclose(target(s, moments, values, online), wanted, rtol=1e-4, atol=1e-5)
        differ += abs(wanted - target(s, moments, values)) > 0.01
    assert differ > 5


def test_double_targets_are_asked_for_with_both_networks_values():
    protocol, rng = slates(double=True), np.random.default_rng(9)
    state = protocol.init(jax.random.key(0))
    other = state.weights + jnp.asarray(rng.normal(size=state.weights.shape), jnp.float32)
    following, online = (jnp.asarray(rng.normal(size=(K, *state.batch.shape[1:])), jnp.float32) for _ in range(2))
    asked = exchange("targets", protocol).ask(state._replace(target=other, following=following, online=online))
    for p in range(K):
        for found, weights, sent in ((asked.values, other, following), (asked.online, state.weights, online)):
            joint = omega(f64(weights), f64(sent)[p], f64(sent)[1 - p])
            # Who has no feedback makes no targets, and is told nothing.
            asked_for = joint if protocol.feedback[p] else np.zeros_like(joint)
            np.testing.assert_allclose(found[p], asked_for, rtol=1e-4, atol=1e-5)


def test_polyak_copies_close_a_part_of_the_distance_each():
    copy = exchange("copy", slates(polyak=0.25))
    weights, first = np.array([1.0, -2.0, 0.5]), np.array([0.0, 3.0, 0.5])
    moved = jnp.asarray(first)
    for copies in range(1, 9):
        moved = copy.moved(moved, jnp.asarray(weights))
        np.testing.assert_allclose(moved, weights + 0.75**copies * (first - weights), rtol=1e-5, atol=1e-6)


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
    solved = learner.solved(jnp.asarray(total, jnp.float32), jnp.float32(8.0), jnp.zeros(d), jnp.float32(0.0))
    for (left, trace), q in wanted.items():
        np.testing.assert_allclose(values(np.asarray(solved, np.float64), left, trace), q, rtol=0.02)
