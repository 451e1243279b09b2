"""A protocol with a wiretap: every reply is kept beside the request that it answers.

A recording simulator keeps replies. Who wants to know what a message *to* a party tells needs the requests as well.
Wrapped by a :class:`Wiretap`, a protocol runs as before, bit by bit: an exchange's reply becomes a pair of request and
reply, which the simulator carries like any other, and the server is told the second of the two.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from jaxtyping import Bool, Key, Shaped
from typing_extensions import override

from fedrank.core.arrays import AnyArray, AnyInt, JaxArray, PyTree
from fedrank.core.messages import Layout
from fedrank.core.privacy_report import PrivacyReport
from fedrank.core.protocol import Environment, Exchange, Party, Protocol, Randomness


class Overheard(NamedTuple):
    """Both halves of one exchange with one party.

    Attributes:
        request: What the party was asked.
        reply: What it answered.
    """

    request: PyTree
    reply: Any


@dataclass(frozen=True)
class Tapped(Exchange):
    """An exchange whose replies carry their requests.

    Attributes:
        inner: The exchange.
    """

    inner: Exchange

    name = property(lambda self: self.inner.name)  # type: ignore[assignment]
    silent = property(lambda self: self.inner.silent)  # type: ignore[assignment]
    host = property(lambda self: self.inner.host)  # type: ignore[assignment]
    personal = property(lambda self: self.inner.personal)  # type: ignore[assignment]

    @property
    @override
    def environment(self) -> Environment | None:  # type: ignore[override] - elsewhere an attribute of the class
        return self.inner.environment

    @property
    @override
    def request(self) -> Layout:
        return self.inner.request

    @property
    @override
    def reply(self) -> Layout:
        return self.inner.reply

    @override
    def ask(self, state: PyTree) -> PyTree:
        return self.inner.ask(state)

    @override
    def due(self, number: AnyInt) -> bool | Bool[AnyArray, ""]:
        return self.inner.due(number)

    @override
    def asked(self, state: PyTree, parties: int) -> Bool[AnyArray, "{parties}"] | None:
        return self.inner.asked(state, parties)

    @override
    def max_asked(self, parties: int) -> int:
        return self.inner.max_asked(parties)

    @override
    def draw(self, key: Randomness) -> PyTree:
        return self.inner.draw(key)

    @override
    def draw_from_os(self) -> PyTree:
        return self.inner.draw_from_os()

    @override
    def respond(self, request: PyTree, party: Party, draws: PyTree) -> tuple[Party, Overheard]:
        party, reply = self.inner.respond(request, party, draws)
        return party, Overheard(request, reply)

    @override
    def tell(self, state: PyTree, replies: Overheard, arrived: Bool[AnyArray, " parties"]) -> PyTree:
        return self.inner.tell(state, replies.reply, arrived)


@dataclass(frozen=True)
class Wiretap(Protocol):
    """A protocol whose exchanges are all :class:`Tapped`.

    Attributes:
        inner: The protocol.
    """

    inner: Protocol

    name = property(lambda self: self.inner.name)  # type: ignore[assignment]

    @property
    @override
    def exchanges(self) -> tuple[Exchange, ...]:
        return tuple(Tapped(exchange) for exchange in self.inner.exchanges)

    @override
    def init(self, key: Key[JaxArray, ""] | None) -> PyTree:
        return self.inner.init(key)

    @override
    def weights(self, state: PyTree) -> PyTree:
        return self.inner.weights(state)

    @override
    def watch(self, state: PyTree) -> dict[str, Shaped[AnyArray, "..."]]:
        return self.inner.watch(state)

    @override
    def account(self, rounds: int, delta: float) -> PrivacyReport:
        return self.inner.account(rounds, delta)

    @override
    def experience(self, party: Party) -> dict[str, Shaped[AnyArray, ""]]:
        return self.inner.experience(party)
