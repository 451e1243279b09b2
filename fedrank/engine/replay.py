"""Replay: recompute a server's model from the log of the replies that it was told.

What a server does is a function of its first state and of the replies, so that the log gives the very model, and
another one for any choice of parties. Leaving a party out *removes its replies*. It is not training without it: the
others answered questions that its replies had a part in.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Bool

from fedrank.core.arrays import AnyArray, PyTree
from fedrank.core.errors import ConfigError
from fedrank.core.protocol import Protocol
from fedrank.engine.simulator import selective


def replay(protocol: Protocol, states: PyTree, replies: tuple[PyTree, ...], arrived: Bool[AnyArray, "..."]) -> PyTree:
    """States after all rounds of a log.

    Args:
        protocol: The protocol.
        states: States before the first round, with leading axis [runs].
        replies: Of each exchange, with leading axes [rounds, runs, parties], as a
            :class:`~fedrank.engine.simulator.Simulator` records them.
        arrived: bool, broadcasts against [rounds, runs, parties]: which replies count, of those that arrived.

    Returns:
        States with leading axis [runs].

    Raises:
        ConfigError: Whom the server asks depends on what it was told: without some replies it would have asked others,
            whose answers no log holds.
    """
    if selective(protocol):
        raise ConfigError(f"runs of {protocol.name} cannot be replayed: whom its server asks depends on the replies.")
    shape = jax.tree.leaves(replies)[0].shape[:3]
    return _replay(protocol, states, replies, jnp.broadcast_to(jnp.asarray(arrived), shape))


def _replay_(protocol, states, replies, arrived):
    def tell(state, told, heard):
        for exchange, of_exchange in zip(protocol.exchanges, told, strict=True):
            state = exchange.tell(state, of_exchange, heard)
        return state

    def step(states, log):
        return jax.vmap(tell)(states, *log), None

    return jax.lax.scan(step, states, (replies, arrived))[0]


_replay = jax.jit(_replay_, static_argnums=0)
