"""The terms that platforms and their coordinator agree on before the first round, and the steps that follow from them.

The terms are one configuration file. A coordinator asks every platform for its :attr:`Terms.fingerprint`, and refuses
platforms with another one. A step is a function of the protocol, computed with NumPy where runs of the protocol are
(:mod:`fedrank.slates.sums.stays`), else compiled by JAX; requests are decoded from bytes.
"""

from __future__ import annotations

import functools
import hashlib
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
from jaxtyping import Float32

from fedrank.core.arrays import AnyArray, PyTree
from fedrank.core.errors import ConfigError, WireError
from fedrank.core.lazy import jit, jnp, require_jax
from fedrank.core.messages import WIRE_VERSION, Layout
from fedrank.core.protocol import Exchange, Party
from fedrank.core.rng import INIT, WORLD
from fedrank.core.streams import AnyKey, fold, run_words, wrap_keys
from fedrank.engine.config import RunConfig
from fedrank.slates.build import PLATFORMS, experiment_of
from fedrank.slates.config import SlatesRun
from fedrank.slates.fedslate import FedSlate
from fedrank.slates.fedslate.platform import finish_round, next_view, remember, transition_of
from fedrank.slates.fedslate.settings import Slates
from fedrank.slates.fedslate.state import PlatformState
from fedrank.slates.sums.stays import plays_stays
from fedrank.slates.world.satisfaction import Turn

#: Path of requests to a platform: ``/v1/exchange/<round>/<index of the exchange in the protocol>``.
EXCHANGE_PATH = "/v1/exchange/"
#: Path of requests of a secure sum: ``/v1/sum/<round>/<index of the exchange>/<step>``.
SUM_PATH = "/v1/sum/"


@dataclass(frozen=True, eq=False)
class Terms:
    """A configuration and its protocol.

    Attributes:
        config: The configuration, resolved.
        protocol: The protocol.

    Raises:
        ConfigError: The configuration has no platforms that exchange anything.
        MissingExtraError: The protocol needs JAX, which is not installed.
    """

    config: SlatesRun
    protocol: Any  # FedSlate or SummedSlates: what they have in common is what a platform's process needs

    @classmethod
    def of(cls, config: RunConfig) -> Terms:
        """The terms of a configuration, resolved or not; errors as the class."""
        if not isinstance(config, SlatesRun):
            raise ConfigError(f"protocol {config.protocol!r} has no platforms that share users. Take vertical-slate.")
        if config.played.silent:
            raise ConfigError(
                f"protocol {config.protocol!r}: its platforms tell each other nothing, so that there is nothing to "
                "coordinate. Take vertical-slate or planned-slates."
            )
        filled = config.resolved()
        terms = cls(filled, experiment_of(filled).protocol)
        if not terms.native:
            require_jax(f"Platforms of {config.protocol} with these settings")
        return terms

    @cached_property
    def fingerprint(self) -> str:
        """Hash of protocol and settings: 16 hexadecimal digits."""
        return hashlib.sha256(repr((self.protocol.name, self.protocol)).encode()).hexdigest()[:16]

    @cached_property
    def native(self) -> bool:
        """True if steps are computed with NumPy, else by JAX."""
        return plays_stays(self.protocol)

    def compute(self, step: Callable[..., Any], *arguments: Any) -> Any:
        """The value of a step, a function whose first argument is hashable and whose others are arrays."""
        if not self.native:
            return _compiled(step)(*arguments)
        with np.errstate(over="ignore", invalid="ignore"):  # numbers that are not finite are refused, not warned about
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
    def plans(self) -> bool:
        """True if platforms serve by themselves: nothing crosses but sums and models, a few times."""
        return self.protocol.plans

    @property
    def names(self) -> tuple[str, ...]:
        """Name of each exchange, with the number of the platform where it is with one only."""
        return tuple(
            f"{e.name}-{e.platform}" if hasattr(e, "platform") else e.name  # type: ignore[attr-defined]
            for e in self.exchanges
        )

    # -- randomness ------------------------------------------------------------------------------------------------

    def _key(self, seed: int) -> AnyKey:
        words = run_words([seed])[0]
        return words if self.native else wrap_keys(words)

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


#: A step compiled by JAX, once.
_compiled = functools.cache(partial(jit, static_argnums=0))


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


@partial(jit, static_argnums=0)
def own_values(protocol: FedSlate, own: PlatformState) -> Float32[AnyArray, " candidates"]:
    """Q-values of the candidates by the platform's own network, float32 [N]."""
    return protocol.learner.values(own)


@partial(jit, static_argnums=0)
def finish(s: Slates, own: PlatformState, turn: Turn, number: Any) -> tuple[PlatformState, Any]:
    """End a round; whether the user has left is not known before the next visit. Returns state and transition."""
    return finish_round(s, own, turn, number, jnp.bool_(False))


@partial(jit, static_argnums=0)
def left(
    s: Slates, own: PlatformState, chose: Any, turn: Turn, observed: Any, documents: Any, over: Any
) -> tuple[PlatformState, Any]:
    """Start the next visit: update the platform's view, and complete the transition of the round before.

    The view of that round was computed with the choice model of that time, ``chose``. ``over`` says that the user of
    that round has left. Returns state and transition.
    """
    row = transition_of(s, own, turn, over)
    view = next_view(s, own._replace(choice=chose), turn, observed, documents, over)
    return remember(s, own, row, own.rounds - 1)._replace(view=view), row
