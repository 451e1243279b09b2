"""FedOpt, FedProx and asynchronous merging against loops over NumPy that follow their papers."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedrank.core.errors import ConfigError
from fedrank.core.protocol import Party
from fedrank.ranking.clicks.cascade import cascade
from fedrank.ranking.data import partition
from fedrank.ranking.data.generate import generated
from fedrank.ranking.foltr_pdgd import FoltrPDGD
from fedrank.ranking.foltr_pdgd.asynchronous import AsyncPDGD, arrival_order
from fedrank.ranking.foltr_pdgd.fedopt import OPTIMISERS, FedOptPDGD
from fedrank.ranking.foltr_pdgd.fedprox import FedProxPDGD
from fedrank.ranking.mechanisms.messages import WeightsReply
from fedrank.ranking.rankers.linear import Linear

FEATURES, PARTIES = 3, 5
SETTINGS = {"ranker": Linear(FEATURES), "user": cascade("perfect"), "interactions": 4, "kernels": False}


def replies(seed):
    random = np.random.default_rng(seed)
    weights = random.normal(size=(PARTIES, FEATURES)).astype(np.float32)
    return WeightsReply(jnp.asarray(weights), jnp.asarray(random.integers(1, 5, PARTIES), jnp.uint16))


def mean(reply, arrived):
    counts = np.asarray(reply.interactions, float) * arrived
    return counts @ np.asarray(reply.weights, float) / counts.sum()


@pytest.mark.parametrize("optimiser", OPTIMISERS)
def test_the_server_steps_as_in_the_paper(optimiser):
    protocol = FedOptPDGD(**SETTINGS, optimiser=optimiser, server_rate=0.3, betas=(0.8, 0.95), tau=0.01)
    state = protocol.init(jax.random.key(0))
    theta, m, v = np.zeros(FEATURES), np.zeros(FEATURES), np.full(FEATURES, 1e-4)
    for number in range(4):
        arrived = np.array([True, True, number != 2, True, number % 2 == 0])
        reply = replies(number)
        change = mean(reply, arrived) - theta
        m = 0.8 * m + 0.2 * change
        if optimiser == "adam":
            v = 0.95 * v + 0.05 * change**2
        elif optimiser == "yogi":
            v = v - 0.05 * change**2 * np.sign(v - change**2)
        else:
            v = v + change**2
        theta = theta + 0.3 * m / (np.sqrt(v) + 0.01)
        state = protocol.exchanges[0].tell(state, reply, jnp.asarray(arrived))
    np.testing.assert_allclose(state.weights, theta, rtol=2e-5)
    silent = protocol.exchanges[0].tell(state, replies(9), jnp.zeros(PARTIES, bool))
    np.testing.assert_array_equal(silent.weights, state.weights)
    np.testing.assert_array_equal(silent.moment, state.moment)
    assert int(silent.round) == 5


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


@pytest.fixture(scope="module")
def world():
    queries = generated(seed=1, n_queries=20, n_features=FEATURES).train
    return queries.padded(), partition.uniform(queries.n_queries, 2)


def one_round(protocol, world, weights):
    """What the first device sends and its experience, from given weights and draws."""
    (exchange,) = protocol.exchanges
    parties = protocol.devices(*world)
    party = Party(parties.shared, jax.tree.map(lambda leaf: leaf[0], parties.own))
    state = protocol.init(jax.random.key(0))._replace(weights=jnp.asarray(weights))
    after, reply = exchange.respond(exchange.ask(state), party, exchange.draw(jax.random.key(5)))
    return np.asarray(reply.weights), float(after.own.ndcg)


@pytest.mark.slow
def test_local_steps_are_pulled_back(world):
    start = np.array([0.3, -0.2, 0.1], np.float32)
    plain = FoltrPDGD(**SETTINGS)
    free, quality = one_round(plain, world, start)
    prox = {mu: one_round(FedProxPDGD(**SETTINGS, mu=mu), world, start)[0] for mu in (0.0, 10.0)}
    np.testing.assert_allclose(prox[0.0], free, rtol=1e-6)  # μ = 0 is FPDGD
    np.testing.assert_allclose(prox[10.0], start, atol=1e-6)  # ημ = 1 undoes every step
    # With one interaction the pull is exact: half of the step with ημ = ½.
    one = {**SETTINGS, "interactions": 1}
    step = one_round(FoltrPDGD(**one), world, start)[0] - start
    np.testing.assert_allclose(one_round(FedProxPDGD(**one, mu=5.0), world, start)[0], start + step / 2, atol=1e-6)
    assert quality > 0


def test_wrong_settings():
    for kind, settings, said in (
        (FedOptPDGD, {"optimiser": "sgd"}, "optimiser must be one of"),
        (FedOptPDGD, {"tau": 0.0}, "tau must be positive"),
        (FedOptPDGD, {"betas": (1.0, 0.9)}, "betas must be in"),
        (FedProxPDGD, {"mu": 11.0}, "mu must be in"),
        (AsyncPDGD, {"mixing": 1.5}, "mixing must be in"),
        (AsyncPDGD, {"aggregate": "median"}, "merged one by one"),
    ):
        with pytest.raises(ConfigError, match=said):
            kind(**SETTINGS, **settings)
    assert dataclasses.replace(AsyncPDGD(**SETTINGS), staleness=0.0).staleness == 0
