"""A server's mathematics on messages as they came: ask, tell, and the model again from a log.

The hub and ``fedrank replay`` go through the same function with the same shapes, so that on one machine the log of
messages gives the very model, bit by bit. Messages are applied in the order of their devices' numbers, never in that of
their arrival.
"""

from __future__ import annotations

import functools
import hashlib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float32, Shaped

from fedrank.core.arrays import PyTree
from fedrank.core.errors import ConfigError, RunError
from fedrank.core.lazy import register_waiting
from fedrank.core.protocol import Exchange, Protocol
from fedrank.privacy.randomised_response import debiased
from fedrank.ranking.foltr_es import FoltrES

#: Messages that are applied together at least: rounds of few reports share one compiled program.
_SMALLEST = 64


class Reward(NamedTuple):
    """Estimate of a round's reward from its messages.

    Attributes:
        mean: Estimate of the true mean reward of all interactions, at θ ± σv; None where it cannot be estimated.
        error: Standard error over the messages; None for fewer than two.
    """

    mean: float | None
    error: float | None


class Learning:
    """The server's side of a protocol with one exchange, whose messages are bytes.

    Args:
        protocol: Protocol with one exchange and no further messages than request and reply.

    Raises:
        ConfigError: The protocol needs more than one message of a device.
    """

    def __init__(self, protocol: Protocol):
        if len(protocol.exchanges) != 1 or protocol.exchanges[0].extra_messages(2):
            raise ConfigError(
                f"a hub hears one message of a device in a round; {protocol.name} needs more. Run it on Flower."
            )
        register_waiting()  # messages may have been declared before JAX was imported
        self.protocol = protocol
        self.exchange: Exchange = protocol.exchanges[0]
        self._tell = jax.jit(self.exchange.tell)

    def init(self) -> PyTree:
        """The state before the first round."""
        return self.protocol.init(jax.random.key(0))

    def request(self, state: PyTree) -> bytes:
        """The request that devices get, as bytes."""
        return self.exchange.request.encode(jax.device_get(self.exchange.ask(state)))

    def weights(self, state: PyTree) -> Float32[np.ndarray, " parameters"]:
        """Weights of the model, float32 [parameters]."""
        return np.asarray(self.protocol.weights(state), np.float32)

    def digest(self, state: PyTree) -> bytes:
        """SHA-256 of the model's bytes, 32 bytes."""
        return hashlib.sha256(self.weights(state).astype("<f4").tobytes()).digest()

    def tell(self, state: PyTree, messages: Sequence[bytes]) -> PyTree:
        """The state after messages, each of which :meth:`~fedrank.core.messages.Layout.decode` accepts.

        Args:
            state: Before.
            messages: Messages in the order of the devices' numbers; without any the model stays as it is.
        """
        return self._told(state, messages, _room(len(messages)))

    def returned(self, state: PyTree, number: int) -> PyTree:
        """An earlier state, optimiser and all, as the one before round ``number``."""
        return state._replace(round=jnp.asarray(number, state.round.dtype))

    def warm(self, state: PyTree, reports: int) -> None:
        """Compile the update for ``reports`` messages, before the first round needs it."""
        self._told(state, [], _room(reports))

    def _told(self, state: PyTree, messages: Sequence[bytes], room: int) -> Any:
        replies = self.exchange.reply.decode_all(b"".join(messages))

        def padded(leaf: Shaped[np.ndarray, "messages ..."]) -> Shaped[np.ndarray, "room ..."]:
            return np.concatenate([leaf, np.zeros((room - len(leaf), *leaf.shape[1:]), leaf.dtype)])

        arrived = np.arange(room) < len(messages)
        return self._tell(state, jax.tree.map(padded, replies), jnp.asarray(arrived))


def reward_of(protocol: Protocol, messages: Sequence[bytes]) -> Reward:
    """Estimate the reward of a round from its messages; only FOLtR-ES sends rewards."""
    if not isinstance(protocol, FoltrES) or protocol.shown.halves == 1 or not messages:
        return Reward(None, None)
    if protocol.privacy.one_number:
        return Reward(None, None)  # messages speak of differences alone
    replies = protocol.exchanges[0].reply.decode_all(b"".join(messages))
    sums = np.asarray(replies.plus, np.float64) + np.asarray(replies.minus, np.float64)
    each = sums / (protocol.interactions * protocol.metric.scale)
    if (p := protocol.clicks_to_reply.p) < 1:
        if p == 1 / protocol.metric.n:
            return Reward(None, None)
        each = np.asarray(debiased(each, protocol.metric.values, p))
    error = float(each.std(ddof=1) / math.sqrt(len(each))) if len(each) > 1 else None
    return Reward(float(each.mean()), error)


def _room(messages: int) -> int:
    """Messages of a compiled program: a power of two, so that few programs serve all rounds."""
    return max(_SMALLEST, 1 << max(0, messages - 1).bit_length())


def learning_of(protocol: Protocol) -> Learning:
    """The :class:`Learning` of a protocol, cached so that its programs are compiled once."""
    return _cached(protocol)


_cached = functools.lru_cache(maxsize=8)(Learning)


def rebuild(
    learning: Learning,
    state: PyTree,
    rounds: Iterable[tuple[int, Sequence[tuple[int, bytes]]]],
    *,
    without: frozenset[int] = frozenset(),
    check: Callable[[int, Any], None] | None = None,
    returns: Mapping[int, int] | None = None,
) -> Any:
    """Rebuild the model from a log.

    Leaving devices out *removes their messages*. It is not training without them: the other devices were asked about
    models to which these messages contributed.

    Args:
        learning: The protocol.
        state: State before the first of the rounds.
        rounds: Of each round its number, and device and message of each report, by device.
        without: Numbers of devices that are left out.
        check: Called with each round's number and the state before it.
        returns: Rounds before which the model went back to that before an earlier round, one of those given; the state
            after the last of the rounds goes back as well.

    Returns:
        The state after the last round.

    Raises:
        RunError: The rounds do not follow each other.
    """
    back, kept, following = dict(returns or {}), {}, None
    wanted = set(back.values())
    for number, reports in rounds:
        if number in back:
            state = learning.returned(kept[back[number]], number)
        if number in wanted:
            kept[number] = state
        following = number + 1
        if check is not None:
            check(number, state)
        at = int(np.asarray(state.round)) if hasattr(state, "round") else number
        if at != number:
            raise RunError(f"the log goes on with round {number} where round {at} should be; rounds are missing.")
        state = learning.tell(state, [message for device, message in reports if device not in without])
    if following in back:
        state = learning.returned(kept[back[following]], following)
    return state
