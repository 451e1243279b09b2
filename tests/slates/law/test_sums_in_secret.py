"""Sums over users under a secure sum: the total and nothing else, the noise and its account as without."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from secure_sums import secure_sum

from fedrank.core.errors import ConfigError
from fedrank.engine.settings import from_dict
from fedrank.privacy.calibration import gaussian_rho
from fedrank.slates.build import experiment_of
from fedrank.slates.config import Privacy
from fedrank.slates.planning.engagement import (
    fit_weights,
    inverse_design,
    inverse_of_past,
    of_satisfaction,
    past_whitening,
    visible_share,
)
from fedrank.slates.planning.learner import PlanLearner
from fedrank.slates.sums import CoordinatorState, SummedSlates, SumSharing
from fedrank.slates.sums.learner import STEPS
from fedrank.slates.sums.messages import NormSummand, Statistics, StatisticsSummand
from fedrank.slates.sums.secure_sum import total
from fedrank.slates.world.satisfaction import Satisfaction

K = 4
SENDERS = np.array([True, True, False, True])
ALL = jnp.ones(K, bool)


def settings(secret=True, feedback=SENDERS, **given):
    more = {name: given.pop(name) for name in ("epsilon",) if name in given}
    world = Satisfaction(candidates=3, slate=2, platforms=len(feedback), time_budget=3 * len(feedback))
    learner = PlanLearner(world, tuple(map(bool, feedback)), **{"explorers": (40,), "differ": False, **given})
    return SummedSlates(learner, SumSharing(secure_sum=secret, **more), Privacy(delta=1e-5))


def exchange(name, of):
    return next(one for one in of.exchanges if one.name == name)


def vectors(seed=0):
    return np.random.default_rng(seed).integers(-40 * STEPS, 40 * STEPS, (K, 5))


def test_the_total_is_the_sum_of_integers_with_a_sign_and_of_all_or_none():
    sent = vectors()
    modulo = jnp.asarray(sent.astype(np.uint32))
    for arrived in (np.ones(K, bool), SENDERS):
        found, count = total(modulo, jnp.asarray(arrived), jnp.asarray(SENDERS))
        np.testing.assert_array_equal(found, sent[SENDERS].sum(axis=0))
        assert int(count) == 3
    found, count = total(modulo, jnp.asarray([True, True, True, False]), jnp.asarray(SENDERS))
    assert not np.any(found) and int(count) == 0


@pytest.mark.slow
@pytest.mark.parametrize("secret", [False, True])
def test_a_coordinator_makes_of_vectors_what_it_makes_of_their_plain_sum(secret):
    """The weights of least squares of the sums of all; without a secure sum if all have sent the same."""
    of = settings(secret)
    release, sent = exchange("release", of), vectors(1) if secret else np.tile(vectors(1)[:1], (K, 1))
    message = StatisticsSummand(sent.astype(np.uint32)) if secret else Statistics(sent.astype(np.int32))
    state = CoordinatorState(
        jnp.uint32(of.learner.release_rounds[-1] + 1), jnp.zeros(2 + K), jnp.float32(20.0), jnp.zeros(0)
    )
    told = release.tell(state, jax.tree.map(jnp.asarray, message), ALL)
    summed = jnp.asarray(sent[SENDERS].sum(axis=0) * 20.0 / STEPS, jnp.float32)
    expected = of.learner.solve(summed, jnp.float32(3 * 40 * 3), state.model, jnp.float32(0.0))
    np.testing.assert_allclose(told.model, expected, rtol=1e-5)
    if secret:  # masks that cancel change no bit, whoever bears them
        masks = np.random.default_rng(2).integers(0, 2**32, (K, 5), dtype=np.uint32)
        masks[3] -= masks[SENDERS].sum(axis=0, dtype=np.uint32)
        masked = StatisticsSummand(jnp.asarray(sent.astype(np.uint32) + masks))
        np.testing.assert_array_equal(release.tell(state, masked, ALL).model, told.model)
        lost = release.tell(state, masked, jnp.asarray([True, False, True, True]))
        np.testing.assert_array_equal(lost.model, state.model)


def test_a_real_secure_sum_gives_the_same_and_crosses_what_is_counted():
    release, sent = exchange("release", settings()), vectors(3)[SENDERS].astype(np.uint32)
    whole = secure_sum(sent, threshold=3)
    np.testing.assert_array_equal(whole.total.astype(np.int32), vectors(3)[SENDERS].sum(axis=0))
    carried = {"server": 0, "parties": release.reply.nbytes}
    for _, sender, layout in release.extra_messages(K):
        carried[sender] += layout.nbytes
    # The reply stands for the masked vector, which names its session and its sender in 20 bytes more.
    assert set(whole.bytes_up.tolist()) == {carried["parties"] + 20} == {212 + 112 * 2 + 4 * 5}
    assert set(whole.bytes_down.tolist()) == {carried["server"]} == {68 + 150 * 2}


def test_the_clip_is_found_from_totals_too():
    of = settings(bounders=20)
    bound = exchange("bound", of)
    counts = np.zeros((K, 8), np.int64)
    counts[SENDERS] = [[20, 0, 0, 0, 0, 0, 0, 0], [0, 0, 0, 0, 0, 20, 0, 0], [0, 0, 0, 0, -3, 0, 20, 3]]
    state = CoordinatorState(jnp.uint32(1), jnp.zeros(2 + K), jnp.float32(20.0), jnp.zeros(0))
    told = bound.tell(state, NormSummand(jnp.asarray(counts.astype(np.uint32))), ALL)
    assert float(told.clip) == 20.0 * 2**2, "half of the users are reached in the sixth bin, which ends at four clips"


@pytest.mark.slow
def test_the_account_is_that_of_the_plain_mechanism_and_says_who_sees_what():
    feedback = [True] * 3
    plain, secret = (settings(way, feedback, epsilon=2.0) for way in (False, True))
    assert plain.sigma == secret.sigma
    mine, theirs = (one.account(1, 1e-5) for one in (secret, plain))
    assert mine.promises == theirs.promises and mine.trust == "nobody" and mine.details["secure_sum"] is True
    said = json.dumps(mine.as_json())
    assert "sees the total and who took part" in said and "takes no noise away" in said and "keys of its own" in said
    none = settings(True, feedback).account(1, 1e-5)
    assert not none.promises and "total of 5 numbers over all explorers of 3 platforms" in none.not_covered[0]


def test_noise_of_the_others_is_enough_for_what_they_put_into_a_total():
    """A platform takes its own sums and noise off the total: n − 1 clips and n − 1 shares are left."""
    for platforms in [3, 5, 26]:
        s = settings(True, [True] * platforms, epsilon=1.0)
        promised = platforms * gaussian_rho(s.sigma, s.sensitivity)
        seen = gaussian_rho(s.sigma * (platforms - 1) ** 0.5, s.sensitivity * (platforms - 1), platforms - 1, 5)
        everybody = gaussian_rho(s.sigma * platforms**0.5, s.sensitivity * platforms, platforms, 5)
        assert seen < everybody == pytest.approx(promised)
        assert seen == pytest.approx(promised * (platforms - 1) / platforms)


def test_what_cannot_be_summed_in_secret_is_refused():
    for given, says in [
        ({"differ": True}, "shows no platform's own sums"),
        ({"feedback": [True, True]}, "3 platforms with feedback or more, got 2"),
        ({"feedback": [True, False, False]}, "3 platforms with feedback or more, got 1"),
        ({"feedback": [True] * 3, "explorers": (50_000,)}, "at most 43,690 users"),
        ({"feedback": [True] * 3, "epsilon": 1e-5}, "larger epsilon"),
    ]:
        with pytest.raises(ConfigError, match=says):
            settings(**given)


def test_the_setting_is_the_protocols():
    given = {"protocol": "planned-slates", "world": {"platforms": 3}, "slates": {"feedback": "all"}}
    made = experiment_of(from_dict({**given, "sharing": {"secure_sum": True}}).resolved())
    assert made.protocol.secure_sum and "bonawitz2017secagg" in made.citations


@pytest.mark.slow
def test_a_total_gives_the_weight_that_all_platforms_would_give_alone():
    """Of satisfaction those who act later in a round see more: slopes w / passed_k, which all mean the weight w."""
    learner = settings(False).learner
    world, fade, rounds, nothing = learner.world, learner.fade, jnp.float32(120.0), jnp.float32(0.0)
    whiten = past_whitening(learner.whiten)
    inverse = inverse_of_past(inverse_design(jnp.zeros(0), rounds, learner.whiten))
    # Least squares is linear: its matrix, column by column, and the sums that give a constant of 0.02 and the slope.
    matrix = np.stack(
        [fit_weights(jnp.asarray(one), rounds, inverse, whiten) for one in np.eye(2, dtype=np.float32)], axis=1
    )
    slopes = [[0.02, 0.05 / visible_share(world, fade, k)] for k in range(K)]
    seen = np.stack([np.linalg.solve(matrix, slope) for slope in slopes]) * of_satisfaction(world.observation_noise)
    engagement = np.tile([30.0, 2.0, 3.0], (K, 1))
    sums = np.where(SENDERS[:, None], np.concatenate([engagement, seen], axis=1), 0.0).astype(np.float32)
    heard, model = jnp.asarray(SENDERS), jnp.zeros(2 + K)
    each = learner.solve_platforms(jnp.asarray(sums), heard, rounds, model, nothing)
    total = learner.solve(jnp.asarray(sums.sum(axis=0)), 3 * rounds, model, nothing)
    assert len({round(visible_share(world, fade, k), 3) for k in range(K)}) == K
    np.testing.assert_allclose(total, each, rtol=0.01)  # engagement's part is weighted a little otherwise
