"""A server's model again, from the log of what it was told.

What a server does is a function of its first state and of the replies, so that the log gives the very model, and
another one for any choice of parties. Leaving a party out *removes its replies*. It is not training without it: the
others answered questions that its replies had a part in.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from fedrank.core.protocol import Protocol


def replay(protocol: Protocol, states: Any, replies: tuple[Any, ...], arrived: Any) -> Any:
    """States after all rounds of a log.

    Args:
        protocol: The protocol.
        states: States before the first round, with leading axis [runs].
        replies: Of each exchange, with leading axes [rounds, runs, parties], as a
            :class:`~fedrank.simulate.rounds.Simulator` records them.
        arrived: bool [parties]: whose replies count.

    Returns:
        States with leading axis [runs].
    """
    return _replay(protocol, states, replies, jnp.asarray(arrived))


def _replay_(protocol, states, replies, arrived):
    def tell(state, told):
        for exchange, of_exchange in zip(protocol.exchanges, told, strict=True):
            state = exchange.tell(state, of_exchange, arrived)
        return state

    def step(states, told):
        return jax.vmap(tell)(states, told), None

    return jax.lax.scan(step, states, replies)[0]


_replay = jax.jit(_replay_, static_argnums=0)
