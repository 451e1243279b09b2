"""One round of FPDGD with eight devices and forty queries, for tests."""

import functools

import jax
import jax.numpy as jnp
from short_settings import pdgd_settings
from worlds import FEATURES, tiny_queries

from fedrank.core.protocol import Party
from fedrank.core.rng import party_key
from fedrank.ranking.clicks.cascade import cascade
from fedrank.ranking.data.partition import uniform
from fedrank.ranking.foltr_pdgd import FoltrPDGD
from fedrank.ranking.rankers.linear import Linear
from fedrank.ranking.rankers.mlp import TwoLayer

PARTIES = 8


def tiny(ranker="linear", **settings):
    shape = TwoLayer(FEATURES, 3) if ranker == "mlp" else Linear(FEATURES)
    return FoltrPDGD(shape, cascade("informational"), **pdgd_settings(**settings))


@functools.cache
def queries():
    return tiny_queries(queries=40)


def parties(protocol, count=PARTIES, amounts=None):
    data = queries().blocks() if protocol.kernels else queries().padded()
    return protocol.devices(data, uniform(queries().n_queries, count), amounts=amounts)


@functools.cache
def _asked(protocol):
    (exchange,) = protocol.exchanges
    everyone = parties(protocol)

    @jax.jit
    def ask(state, amounts):
        def one(own, number):
            mine = party_key(jax.random.key(3), 0, number)
            return exchange.answer(exchange.ask(state), Party(everyone.shared, own), mine)[1]

        return jax.vmap(one)(everyone.own._replace(amount=amounts), jnp.arange(PARTIES, dtype=jnp.uint32))

    return ask


def answers(protocol, amounts=(4,) * PARTIES, start=None):
    """One round: the exchange, the state asked from, the replies."""
    state = protocol.init(jax.random.key(0))
    if start is not None:
        state = state._replace(weights=jnp.asarray(start, jnp.float32))
    return protocol.exchanges[0], state, _asked(protocol)(state, jnp.asarray(amounts, jnp.int32))


def everybody(count=PARTIES):
    return jnp.ones(count, bool)
