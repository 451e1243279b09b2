"""Where a device's random numbers come from: words and noise from different keys, and on a real device from the OS."""

import jax
import numpy as np
import pytest
from short_settings import pdgd_settings
from worlds import FEATURES, tiny_protocol

from fedrank.privacy.noise.simulated import simulated_laplace_shares
from fedrank.ranking.clicks.cascade import cascade
from fedrank.ranking.foltr_pdgd import FoltrPDGD
from fedrank.ranking.rankers.linear import Linear


def pdgd():
    settings = pdgd_settings(noise="polya", clip=0.5, parties=8, epsilon=2.0)
    return FoltrPDGD(Linear(FEATURES), cascade("informational"), **settings).exchanges[0]


def test_two_rounds_of_a_real_device_have_different_words_and_noise():
    """Pólya shares are mostly zero, so one of many coordinates suffices; a fixed key would repeat all of them."""
    exchange = pdgd()
    rounds = [exchange.draw_from_os() for _ in range(6)]
    assert len({np.asarray(r.noise).tobytes() for r in rounds}) > 1
    assert len({np.asarray(r.queries).tobytes() for r in rounds}) == 6


def test_words_and_noise_of_a_simulated_device_come_from_different_keys():
    exchange, key = pdgd(), jax.random.key(5)
    words_key, noise_key = jax.random.split(key)
    drawn = exchange.draw(key)
    words = jax.random.bits(words_key, (exchange.n_bits,), "uint32")
    np.testing.assert_array_equal(drawn.queries, words[: len(drawn.queries)])
    privacy = exchange.settings.privacy
    expected = simulated_laplace_shares(noise_key, (FEATURES,), privacy.scale, privacy.enough)
    np.testing.assert_array_equal(drawn.noise, expected)


@pytest.mark.parametrize("mechanism", ["laplace", "gaussian"])
def test_words_and_noise_of_evolution_strategies_come_from_different_keys(mechanism):
    protocol = tiny_protocol(mechanism=mechanism, epsilon=1.0)
    (exchange,), key = protocol.exchanges, jax.random.key(5)
    drawn = exchange.draw(key)
    assert drawn.seed == jax.random.bits(key, (exchange.n_bits,), "uint32")[0]
    np.testing.assert_array_equal(drawn.noise, protocol.privacy.noise.draw(jax.random.fold_in(key, 1), (2,)))
