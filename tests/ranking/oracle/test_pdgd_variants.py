"""FedOpt and FedProx against loops over NumPy that follow their papers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedrank.aggregation.server_steps import FedAdagrad, FedAdam, FedYogi
from fedrank.core.errors import ConfigError
from fedrank.core.protocol import Party
from fedrank.ranking.clicks.cascade import cascade
from fedrank.ranking.data import partition
from fedrank.ranking.data.reader import generate_queries
from fedrank.ranking.foltr_pdgd import FedOptPDGD, FedProxPDGD, FoltrPDGD, Proximal
from fedrank.ranking.mechanisms.weights import WeightsReply
from fedrank.ranking.rankers.linear import Linear

FEATURES, PARTIES = 3, 5
STEPS = {"adam": FedAdam, "yogi": FedYogi, "adagrad": FedAdagrad}
SETTINGS = {"ranker": Linear(FEATURES), "user": cascade("perfect"), "interactions": 4, "kernels": False}


def replies(seed):
    random = np.random.default_rng(seed)
    weights = random.normal(size=(PARTIES, FEATURES)).astype(np.float32)
    return WeightsReply(jnp.asarray(weights), jnp.asarray(random.integers(1, 5, PARTIES), jnp.uint16))


def mean(reply, arrived):
    counts = np.asarray(reply.interactions, float) * arrived
    return counts @ np.asarray(reply.weights, float) / counts.sum()


def test_the_server_steps_as_in_the_paper():
    for optimiser in ["adam", "yogi", "adagrad"]:
        protocol = FedOptPDGD(**SETTINGS, server=STEPS[optimiser](learning_rate=0.3, beta_1=0.8, beta_2=0.95, tau=0.01))
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
        np.testing.assert_array_equal(silent.optimiser.first, state.optimiser.first)
        assert int(silent.round) == 5


@pytest.fixture(scope="module")
def world():
    queries = generate_queries(seed=1, n_queries=20, n_features=FEATURES).train
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
    prox = {mu: one_round(FedProxPDGD(**SETTINGS, objective=Proximal(mu)), world, start)[0] for mu in (0.0, 10.0)}
    np.testing.assert_allclose(prox[0.0], free, rtol=1e-6)  # μ = 0 is FPDGD
    np.testing.assert_allclose(prox[10.0], start, atol=1e-6)  # ημ = 1 undoes every step
    # With one interaction the pull is exact: half of the step with ημ = ½.
    one = {**SETTINGS, "interactions": 1}
    step = one_round(FoltrPDGD(**one), world, start)[0] - start
    np.testing.assert_allclose(
        one_round(FedProxPDGD(**one, objective=Proximal(5.0)), world, start)[0], start + step / 2, atol=1e-6
    )
    assert quality > 0


def test_wrong_settings():
    for settings, said in (
        (lambda: {"server": FedAdam(tau=0.0)}, "tau must be positive"),
        (lambda: {"server": FedAdam(beta_1=1.0)}, "beta_1 must be in"),
        (lambda: {"objective": Proximal(11.0)}, "mu must be in"),
    ):
        with pytest.raises(ConfigError, match=said):
            FoltrPDGD(**SETTINGS, **settings())
