"""All messages of platforms that send sums, for given users: what coordinator and platforms see of them.

A protocol's own exchanges are played, for what users added to the sums before each of them, with noise that is handed
in. So whatever their messages hold is seen, and an attacker of it needs no field's name.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, Key, Shaped

from fedrank.core.arrays import PyTree
from fedrank.core.protocol import Exchange, Party
from fedrank.slates.sums import CoordinatorState, SummedSlates
from fedrank.slates.sums.learner import PlatformState


class Parties(NamedTuple):
    """Coordinator and platforms between two messages.

    Attributes:
        state: What the coordinator has.
        own: What each platform has, leaves [K, ...].
    """

    state: CoordinatorState
    own: PlatformState


class Seen(NamedTuple):
    """What an exchange shows, leaves [K, ...]; zeros where a platform was not asked.

    Attributes:
        request: What each platform was sent.
        reply: What each answered.
    """

    request: PyTree
    reply: PyTree

    @property
    def coordinator(self) -> list[Shaped[Array, "..."]]:
        """What the coordinator reads, besides what it sent itself."""
        return jax.tree.leaves(self.reply)

    def platform(self, number: int) -> list[Shaped[Array, "..."]]:
        """What a platform is told, and what it said itself.

        Args:
            number: Number of the platform, from 0.
        """
        return [leaf[number] for leaf in jax.tree.leaves((self.request, self.reply))]


def first_parties(protocol: SummedSlates) -> Parties:
    """Everybody before the first user."""
    numbers = jnp.arange(protocol.world.platforms)
    return Parties(protocol.init(None), jax.vmap(lambda number: protocol.platform(None, number))(numbers))


def due(protocol: SummedSlates, number: int) -> list[Exchange]:
    """The exchanges of a round in which something crosses.

    Args:
        protocol: The protocol.
        number: Number of the round.
    """
    return [exchange for exchange in protocol.exchanges if not exchange.silent and exchange.due(number)]


def drawn(protocol: SummedSlates, number: int, key: Key[Array, ""]) -> list[PyTree]:
    """Simulated noise of a round's messages: for each exchange that is due, leaves [K, ...].

    Args:
        protocol: The protocol.
        number: Number of the round.
        key: Consumed.
    """
    k, exchanges = protocol.world.platforms, due(protocol, number)
    keys = [jax.random.split(one, k) for one in jax.random.split(key, max(1, len(exchanges)))]
    return [jax.vmap(exchange.draw)(keys[place]) for place, exchange in enumerate(exchanges)]


def played(
    protocol: SummedSlates,
    before: Parties,
    number: int,
    draws: list[PyTree],
    *,
    sums: Int[Array, "platforms statistics"] | int = 0,
    norms: Int[Array, "platforms bins"] | int = 0,
) -> tuple[Parties, list[Seen]]:
    """The messages of a round, after its users.

    Args:
        protocol: The protocol.
        before: Everybody before.
        number: Number of the round.
        draws: Noise, as :func:`drawn` returns it.
        sums: What the users of this release added to each platform's sums, in steps.
        norms: What those by whom the clip is found added to each platform's counts.

    Returns:
        Everybody afterwards, and what each exchange shows.
    """
    k = protocol.world.platforms
    # The round's users have been served, which coordinator and platforms have counted.
    state, own = before.state._replace(round=jnp.uint32(number + 1)), before.own
    own = own._replace(sums=own.sums + sums, norms=own.norms + norms)
    seen = []
    for exchange, noise in zip(due(protocol, number), draws, strict=True):
        request = exchange.ask(state)
        axis = 0 if exchange.personal else None
        party, reply = jax.vmap(exchange.respond, in_axes=(axis, 0, 0))(request, Party(None, own), noise)
        asked = exchange.asked(state, k)
        asked = jnp.ones(k, bool) if asked is None else jnp.asarray(asked)
        own = _where(asked, party.own, own)
        reply = _where(asked, reply, jax.tree.map(jnp.zeros_like, reply))
        state = exchange.tell(state, reply, asked)
        if not exchange.personal:
            request = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (k, *jnp.shape(leaf))), request)
        seen.append(Seen(_where(asked, request, jax.tree.map(jnp.zeros_like, request)), reply))
    return Parties(state, own), seen


def _where(asked: Array, yes: Any, no: Any) -> Any:
    return jax.tree.map(lambda a, b: jnp.where(asked.reshape(-1, *(1,) * (a.ndim - 1)), a, b), yes, no)
