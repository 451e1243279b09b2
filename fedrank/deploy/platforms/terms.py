"""The terms that platforms and their coordinator agree on before the first round, and the steps that follow from them.

The terms are one configuration file. A coordinator asks every platform for its :attr:`Terms.fingerprint`, and refuses
platforms with another one. Steps are those of :mod:`fedrank.slates.sums`, computed with NumPy; requests are decoded
from bytes.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from fedrank.core.arrays import PyTree
from fedrank.core.errors import ConfigError, WireError
from fedrank.core.messages import WIRE_VERSION, Layout
from fedrank.core.protocol import Exchange, Party
from fedrank.core.rng import INIT, WORLD
from fedrank.core.streams import AnyKey, fold, run_words
from fedrank.engine.config import RunConfig
from fedrank.slates.build import PLATFORMS, experiment_of
from fedrank.slates.config import SlatesRun
from fedrank.slates.sums.stays import plays_stays

#: Path of requests to a platform: ``/v1/exchange/<round>/<index of the exchange in the protocol>``.
EXCHANGE_PATH = "/v1/exchange/"
#: Path of requests of a secure sum: ``/v1/sum/<round>/<index of the exchange>/<step>``.
SUM_PATH = "/v1/sum/"
#: Most bytes of a request of a platform's own application, and most calls of a batch.
LARGEST_REQUEST, MOST_CALLS = 1 << 25, 1000


@dataclass(frozen=True, eq=False)
class Terms:
    """A configuration and its protocol.

    Attributes:
        config: The configuration, resolved.
        protocol: The protocol.

    Raises:
        ConfigError: The configuration has no platforms that serve by themselves, or they take JAX.
    """

    config: SlatesRun
    protocol: Any  # SummedSlates of a learner that plays with NumPy

    @classmethod
    def of(cls, config: RunConfig) -> Terms:
        """The terms of a configuration, resolved or not; errors as the class."""
        filled = config.resolved() if isinstance(config, SlatesRun) and config.played.plans else None
        protocol = None if filled is None else experiment_of(filled).protocol
        if filled is None or not plays_stays(protocol):
            raise ConfigError(
                f"protocol {config.protocol!r} with these settings has no platforms to serve: they would ask each "
                "other in every round, or take JAX. Take planned-slates, and users who choose by a multinomial."
            )
        return cls(filled, protocol)

    @cached_property
    def fingerprint(self) -> str:
        """Hash of protocol and settings: 16 hexadecimal digits."""
        return hashlib.sha256(repr((self.protocol.name, self.protocol)).encode()).hexdigest()[:16]

    def compute(self, step: Callable[..., Any], *arguments: Any) -> Any:
        """The value of a step; numbers that are not finite are refused elsewhere, and not warned about."""
        with np.errstate(over="ignore", invalid="ignore"):
            return step(*arguments)

    @cached_property
    def exchanges(self) -> tuple[Exchange, ...]:
        """The protocol's exchanges; the index of an exchange is its number on the wire."""
        return self.protocol.exchanges

    @cached_property
    def meeting(self) -> int:
        """Index of the exchange after which users act; those after it learn."""
        return next(place for place, exchange in enumerate(self.exchanges) if exchange.environment is not None)

    @property
    def platforms(self) -> int:
        """Number of platforms, K."""
        return self.protocol.world.platforms

    @property
    def names(self) -> tuple[str, ...]:
        """Name of each exchange, with the number of the platform where it is with one only."""
        return tuple(
            f"{e.name}-{e.platform}" if hasattr(e, "platform") else e.name  # type: ignore[attr-defined]
            for e in self.exchanges
        )

    # -- randomness ------------------------------------------------------------------------------------------------

    def _key(self, seed: int) -> AnyKey:
        return run_words([seed])[0]

    @cached_property
    def run_key(self) -> AnyKey:
        """Random key of a run that draws everything from its seed, as a simulator does."""
        return self._key(self.config.seed)

    def _key_from_os(self) -> AnyKey:
        """A random key with 32 bits of entropy, for draws that protect no user, such as initial weights."""
        return self._key(secrets.randbits(32))

    def coordinator_state(self, seeded: bool) -> Any:
        """The coordinator's state before the first round.

        Args:
            seeded: Draw it from the run's seed, as a simulator does.
        """
        key = fold(self.run_key, INIT) if seeded else self._key_from_os()
        return self.compute(_first_state, self.protocol, key)

    def platform_own(self, platform: int, seeded: bool) -> Any:
        """A platform's state before its first user.

        Args:
            platform: Number of the platform, from 0.
            seeded: Draw from the run's seed, as a simulator does.
        """
        key = fold(fold(self.run_key, PLATFORMS), platform) if seeded else self._key_from_os()
        return self.compute(_first_own, self.protocol, key, np.asarray(platform, np.int32))

    def draws(self, place: int, platform: int, number: int, seeded: bool) -> PyTree:
        """A platform's random draws in an exchange: from the operating system, unless it is seeded.

        Args:
            place: Index of the exchange.
            platform: Number of the platform.
            number: Number of the round.
            seeded: Draw from the run's seed, as a simulator does.
        """
        exchange = self.exchanges[place]
        if not seeded:
            return exchange.draw_from_os()
        return exchange.draw(fold(self._party_key(number, platform), place))

    def _party_key(self, number: int, party: int) -> AnyKey:
        return fold(fold(self.run_key, number), party)

    def world_key(self, number: int | None, seeded: bool) -> AnyKey:
        """Random key of the users' behaviour in a round: a new one at every call, unless it is seeded.

        Args:
            number: Number of the round; None: before the first.
            seeded: Draw from the run's seed, as a simulator does.
        """
        if not seeded:
            return self._key_from_os()
        return fold(self.run_key, WORLD) if number is None else self._party_key(number, WORLD)


def _first_state(protocol: Any, key: Any) -> Any:
    return protocol.init(key)


def _first_own(protocol: Any, key: Any, platform: Any) -> Any:
    return protocol.platform(key, platform)


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


def decode_request(exchange: Exchange, body: bytes) -> Any:
    """Decode the request of an exchange.

    Raises:
        RefusedError: It has another size or kind, or a number out of range.
    """
    return decode_as(exchange.request, body)


def decode_as(layout: Layout, body: bytes) -> Any:
    """Decode a message of a layout; errors as :func:`decode_request`."""
    if len(body) != layout.nbytes or body[0] != WIRE_VERSION << 5 | layout.kind:
        raise RefusedError("malformed")
    try:
        return layout.decode(body)
    except WireError as error:
        raise RefusedError("out-of-range") from error


def respond(exchange: Exchange, request: PyTree, own: PyTree, draws: PyTree) -> tuple[Any, Any]:
    """The state of a platform after an exchange, and its reply."""
    party, reply = exchange.respond(request, Party(None, own), draws)
    return party.own, reply
