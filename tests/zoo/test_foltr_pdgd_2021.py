"""FPDGD with the published noise: the noise of a sum, the account, the start, and a real device's chance."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from pdgd_rounds import PARTIES, everybody, parties
from worlds import FEATURES

from fedrank.core.errors import ConfigError
from fedrank.core.protocol import Party
from fedrank.core.rng import INIT
from fedrank.core.streams import fold_words, run_words
from fedrank.ranking.clicks.cascade import cascade
from fedrank.ranking.foltr_pdgd import ServerState
from fedrank.ranking.mechanisms import Bounds
from fedrank.ranking.rankers.linear import Linear
from fedrank_zoo.foltr_pdgd_2021 import FoltrPDGD2021, GammaShares

pytestmark = pytest.mark.slow


def published(**bounds):
    privacy, facts = GammaShares(epsilon=2.0, clip=0.5), Bounds(**{"clients": PARTIES, **bounds})
    return FoltrPDGD2021(Linear(FEATURES), cascade("informational"), privacy=privacy, bounds=facts)


def test_the_noise_of_a_sum_is_laplace_noise_of_the_scale():
    """Devices that have learnt nothing and made equally many interactions: the mean is the noise over n."""
    protocol = published()
    (exchange,) = protocol.exchanges
    keys = jax.random.split(jax.random.key(8), (1000, PARTIES))

    @jax.jit
    @jax.vmap
    def told(keys):
        def one(key):
            return exchange.report(jnp.zeros(FEATURES), jnp.int32(4), exchange.draw(key).noise)

        replies = jax.vmap(one)(keys)
        return exchange.tell(ServerState(jnp.uint32(0), jnp.zeros(FEATURES)), replies, everybody()).weights

    sums, scale = np.asarray(told(keys), np.float64).ravel() * PARTIES, 0.5 / 2.0
    assert protocol.privacy.scale == scale
    # 5,000 values of kurtosis 6: the variance's standard error is √(5/5,000) = 3.2 %; four of them.
    assert np.mean(sums**2) == pytest.approx(2 * scale**2, rel=0.13)
    assert abs(sums.mean()) < 4 * math.sqrt(2 * scale**2 / len(sums))
    # Half of Laplace's values are below t·log 2.
    assert np.mean(np.abs(sums) < scale * math.log(2)) == pytest.approx(0.5, abs=4 * 0.0071)


def test_the_account_says_what_its_epsilon_is():
    report = published().account(10, 1e-6)
    assert report.details["epsilon_published"] == 2.0 and not report.details["secure_sum"]
    assert report.epsilon_round == pytest.approx(2.0 * 2 * math.sqrt(FEATURES))


def test_a_linear_ranker_starts_at_a_short_random_direction():
    key = fold_words(run_words([1]), INIT)[0]
    found = [published().init(one).weights for one in (key, jax.random.wrap_key_data(key, impl="threefry2x32"))]
    np.testing.assert_array_equal(*found)
    assert np.linalg.norm(found[0]) == pytest.approx(0.01, rel=1e-5)


def test_a_real_devices_chance_is_the_operating_systems():
    protocol = published()
    (exchange,) = protocol.exchanges
    rounds = [exchange.draw_from_os() for _ in range(6)]
    assert len({np.asarray(r.noise).tobytes() for r in rounds}) == 6
    everyone = parties(protocol)
    me = Party(everyone.shared, jax.tree.map(lambda leaf: leaf[0], everyone.own))
    _, reply = exchange.respond(exchange.ask(protocol.init(jax.random.key(0))), me, rounds[0])
    assert len(exchange.reply.encode(reply)) == exchange.reply.nbytes


def test_runs_in_which_the_noise_falls_short_are_refused():
    for bounds in ({"dropout": 0.1}, {"equal": False}, {"clients": None}, {"population": 100}):
        with pytest.raises(ConfigError):
            published(**bounds)
