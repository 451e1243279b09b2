"""What a platform computes: the protocol's own functions, compiled, and its questions read from bytes."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from fedrank.core.errors import WireError
from fedrank.core.messages import WIRE_VERSION, Layout
from fedrank.core.protocol import Exchange, Party
from fedrank.slates.vertical_slate import VerticalSlate
from fedrank.slates.vertical_slate.settings import SlateSettings
from fedrank.slates.vertical_slate.state import (
    PlatformOwn,
    items_of,
    mean_after,
    moment_of,
    seen_next,
    user_of,
)
from fedrank.slates.world.satisfaction import Turn


class RefusedError(Exception):
    """A platform does not do what it was asked.

    Attributes:
        reason: As in the protocol.
        more: What else the answer says.
    """

    def __init__(self, reason: str, **more: Any):
        super().__init__(reason)
        self.reason, self.more = reason, more


class NotYetError(RefusedError):
    """It will, once something else has happened."""


def blank_message(layout: Layout) -> bytes:
    """A message of zeros."""
    return bytes([WIRE_VERSION << 5 | layout.kind]) + bytes(layout.nbytes - 1)


def decoded(exchange: Exchange, body: bytes) -> Any:
    """The question of an exchange from its bytes.

    Raises:
        RefusedError: Another size or kind, or a number that is none.
    """
    layout = exchange.request
    if len(body) != layout.nbytes or body[0] != WIRE_VERSION << 5 | layout.kind:
        raise RefusedError("malformed")
    try:
        return layout.decode(body)
    except WireError as error:
        raise RefusedError("out-of-range") from error


@partial(jax.jit, static_argnums=0)
def responded(exchange: Exchange, request: Any, own: PlatformOwn, draws: Any) -> tuple[PlatformOwn, Any]:
    """What a platform has after an exchange, and its reply."""
    party, reply = exchange.respond(request, Party(None, own), draws)
    return party.own, reply


@partial(jax.jit, static_argnums=0)
def own_values(protocol: VerticalSlate, own: PlatformOwn) -> jax.Array:
    """Q-values of the candidates by the platform's own network, float32 [N]."""
    s = protocol.settings
    return protocol.local(own.weights, user_of(s, own.view), items_of(s, own.view))


@partial(jax.jit, static_argnums=0)
def lived(s: SlateSettings, own: PlatformOwn, turn: Turn, number: Any) -> tuple[PlatformOwn, Any]:
    """A round is over; whether the user has left is not known before the next one comes."""
    row = moment_of(s, own, turn, jnp.bool_(False))
    memory = jax.tree.map(lambda kept, new: kept.at[number % s.memory].set(new), own.memory, row)
    return own._replace(memory=memory, rounds=number + 1, mean=mean_after(s, own, turn)), row


@partial(jax.jit, static_argnums=0)
def left(
    s: SlateSettings, own: PlatformOwn, chose: Any, turn: Turn, observed: Any, documents: Any, over: Any
) -> tuple[PlatformOwn, Any]:
    """The next user, or the same one again: what the platform sees now, and the moment before with its end.

    What it saw of the round before it saw with the choice model of then, whatever it has learnt since.
    """
    row = moment_of(s, own, turn, over)
    place = (own.rounds - 1) % s.memory
    memory = jax.tree.map(lambda kept, new: kept.at[place].set(new), own.memory, row)
    view = seen_next(s, own._replace(choice=chose), turn, observed, documents, over)
    return own._replace(memory=memory, view=view), row
