"""What a platform computes: the protocol's own functions, compiled, and its questions read from bytes."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from fedrank.core.errors import WireError
from fedrank.core.messages import WIRE_VERSION, Layout
from fedrank.core.protocol import Exchange, Party
from fedrank.slates.fedslate import FedSlate
from fedrank.slates.fedslate.equations import values_now
from fedrank.slates.fedslate.platform import finish_round, next_view, remember, transition_of
from fedrank.slates.fedslate.settings import SlateSettings
from fedrank.slates.fedslate.state import PlatformState
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
def responded(exchange: Exchange, request: Any, own: PlatformState, draws: Any) -> tuple[PlatformState, Any]:
    """What a platform has after an exchange, and its reply."""
    party, reply = exchange.respond(request, Party(None, own), draws)
    return party.own, reply


@partial(jax.jit, static_argnums=0)
def own_values(protocol: FedSlate, own: PlatformState) -> jax.Array:
    """Q-values of the candidates by the platform's own network, float32 [N]."""
    return values_now(protocol.settings, own)


@partial(jax.jit, static_argnums=0)
def lived(s: SlateSettings, own: PlatformState, turn: Turn, number: Any) -> tuple[PlatformState, Any]:
    """A round is over; whether the user has left is not known before the next one comes."""
    return finish_round(s, own, turn, number, jnp.bool_(False))


@partial(jax.jit, static_argnums=0)
def left(
    s: SlateSettings, own: PlatformState, chose: Any, turn: Turn, observed: Any, documents: Any, over: Any
) -> tuple[PlatformState, Any]:
    """The next user, or the same one again: what the platform sees now, and the moment before with its end.

    What it saw of the round before it saw with the choice model of then, whatever it has learnt since.
    """
    row = transition_of(s, own, turn, over)
    view = next_view(s, own._replace(choice=chose), turn, observed, documents, over)
    return remember(s, own, row, own.rounds - 1)._replace(view=view), row
