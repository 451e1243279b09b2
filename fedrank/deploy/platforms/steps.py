"""Steps of a platform: the protocol's functions, compiled, and its requests decoded from bytes."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Float32

from fedrank.core.arrays import PyTree
from fedrank.core.errors import WireError
from fedrank.core.messages import WIRE_VERSION, Layout
from fedrank.core.protocol import Exchange, Party
from fedrank.slates.fedslate import FedSlate
from fedrank.slates.fedslate.platform import finish_round, next_view, remember, transition_of
from fedrank.slates.fedslate.settings import SlateSettings
from fedrank.slates.fedslate.state import PlatformState
from fedrank.slates.world.satisfaction import Turn


class RefusedError(Exception):
    """A platform refuses a request.

    Attributes:
        reason: Reason in the HTTP protocol.
        more: Further fields of the response's JSON.
    """

    def __init__(self, reason: str, **more: Any):
        super().__init__(reason)
        self.reason, self.more = reason, more


class NotYetError(RefusedError):
    """A platform refuses a request now, but will not once something else has happened."""


def blank_message(layout: Layout) -> bytes:
    """A message of this layout whose numbers are all 0."""
    return bytes([WIRE_VERSION << 5 | layout.kind]) + bytes(layout.nbytes - 1)


def decoded(exchange: Exchange, body: bytes) -> Any:
    """Decode the request of an exchange.

    Raises:
        RefusedError: It has another size or kind, or a number out of range.
    """
    return decoded_as(exchange.request, body)


def decoded_as(layout: Layout, body: bytes) -> Any:
    """Decode a message of a layout; errors as :func:`decoded`."""
    if len(body) != layout.nbytes or body[0] != WIRE_VERSION << 5 | layout.kind:
        raise RefusedError("malformed")
    try:
        return layout.decode(body)
    except WireError as error:
        raise RefusedError("out-of-range") from error


@partial(jax.jit, static_argnums=0)
def responded(exchange: Exchange, request: PyTree, own: PyTree, draws: PyTree) -> tuple[Any, Any]:
    """The state of a platform after an exchange, and its reply."""
    party, reply = exchange.respond(request, Party(None, own), draws)
    return party.own, reply


@partial(jax.jit, static_argnums=0)
def own_values(protocol: FedSlate, own: PlatformState) -> Float32[jax.Array, " candidates"]:
    """Q-values of the candidates by the platform's own network, float32 [N]."""
    return protocol.learner.values(own)


@partial(jax.jit, static_argnums=0)
def lived(s: SlateSettings, own: PlatformState, turn: Turn, number: Any) -> tuple[PlatformState, Any]:
    """End a round; whether the user has left is not known before the next visit. Returns state and transition."""
    return finish_round(s, own, turn, number, jnp.bool_(False))


@partial(jax.jit, static_argnums=0)
def left(
    s: SlateSettings, own: PlatformState, chose: Any, turn: Turn, observed: Any, documents: Any, over: Any
) -> tuple[PlatformState, Any]:
    """Start the next visit: update the platform's view, and complete the transition of the round before.

    The view of that round was computed with the choice model of that time, ``chose``. ``over`` says that the user of
    that round has left. Returns state and transition.
    """
    row = transition_of(s, own, turn, over)
    view = next_view(s, own._replace(choice=chose), turn, observed, documents, over)
    return remember(s, own, row, own.rounds - 1)._replace(view=view), row
