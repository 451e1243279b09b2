"""Asynchronous merging against a loop over NumPy that follows its paper."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedrank.core.errors import ConfigError
from fedrank.ranking.clicks.cascade import cascade
from fedrank.ranking.mechanisms.weights import WeightsReply
from fedrank.ranking.rankers.linear import Linear
from fedrank_zoo.async_pdgd import AsyncPDGD, arrival_order

pytestmark = pytest.mark.slow

FEATURES, PARTIES = 3, 5
SETTINGS = {"ranker": Linear(FEATURES), "user": cascade("perfect"), "interactions": 4, "kernels": False}


def replies(seed):
    random = np.random.default_rng(seed)
    weights = random.normal(size=(PARTIES, FEATURES)).astype(np.float32)
    return WeightsReply(jnp.asarray(weights), jnp.asarray(random.integers(1, 5, PARTIES), jnp.uint16))


def test_answers_are_merged_one_by_one():
    protocol = AsyncPDGD(**SETTINGS, mixing=0.7, staleness=1.5)
    state, theta = protocol.init(jax.random.key(0)), np.zeros(FEATURES)
    for number in range(3):
        reply = replies(number)
        broken = np.asarray(reply.weights).copy()
        broken[3] = np.nan  # no answer
        arrived = np.array([True, number != 1, True, True, True])
        order = [int(i) for i in arrival_order(number, PARTIES) if arrived[i] and i != 3]
        for k, party in enumerate(order):
            alpha = int(reply.interactions[party]) / 4 * 0.7 * (1 + k) ** -1.5
            theta = (1 - alpha) * theta + alpha * broken[party].astype(float)
        state = protocol.exchanges[0].tell(
            state, WeightsReply(jnp.asarray(broken), reply.interactions), jnp.asarray(arrived)
        )
    np.testing.assert_allclose(state.weights, theta, rtol=2e-5)


def test_the_order_of_arrival_is_fair():
    firsts = [int(arrival_order(number, 4)[0]) for number in range(400)]
    assert min(np.bincount(firsts, minlength=4)) > 60  # of 100 expected
    assert sorted(arrival_order(7, 50).tolist()) == list(range(50))


def test_wrong_settings():
    with pytest.raises(ConfigError, match="mixing must be in"):
        AsyncPDGD(**SETTINGS, mixing=1.5)
    assert dataclasses.replace(AsyncPDGD(**SETTINGS), staleness=0.0).staleness == 0
