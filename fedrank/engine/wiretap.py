"""A protocol with a wiretap: every reply is kept beside the request that it answers.

A recording simulator keeps replies. Who wants to know what a message *to* a party tells needs the requests as well.
Wrapped by a :class:`Wiretap`, a protocol runs as before, bit by bit: an exchange's reply becomes a pair of request and
reply, which the simulator carries like any other, and the server is told the second of the two.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from fedrank.core.messages import Layout
from fedrank.core.privacy_report import PrivacyReport
from fedrank.core.protocol import Environment, Exchange, Party, Protocol


class Overheard(NamedTuple):
    """Both halves of one exchange with one party.

    Attributes:
        request: What the party was asked.
        reply: What it answered.
    """

    request: Any
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
    def environment(self) -> Environment | None:  # type: ignore[override] - elsewhere an attribute of the class
        """As inside."""
        return self.inner.environment

    @property
    def request(self) -> Layout:
        """As inside: what crosses is the same."""
        return self.inner.request

    @property
    def reply(self) -> Layout:
        """As inside."""
        return self.inner.reply

    def ask(self, state: Any) -> Any:
        """As inside."""
        return self.inner.ask(state)

    def due(self, number: Any) -> Any:
        """As inside."""
        return self.inner.due(number)

    def asked(self, state: Any, parties: int) -> Any:
        """As inside."""
        return self.inner.asked(state, parties)

    def max_asked(self, parties: int) -> int:
        """As inside."""
        return self.inner.max_asked(parties)

    def draw(self, key: Any) -> Any:
        """As inside."""
        return self.inner.draw(key)

    def draw_from_os(self) -> Any:
        """As inside."""
        return self.inner.draw_from_os()

    def respond(self, request: Any, party: Party, draws: Any) -> tuple[Party, Overheard]:
        """The reply, and what it answers."""
        party, reply = self.inner.respond(request, party, draws)
        return party, Overheard(request, reply)

    def tell(self, state: Any, replies: Overheard, arrived: Any) -> Any:
        """The replies alone."""
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
    def exchanges(self) -> tuple[Exchange, ...]:
        """The same, tapped."""
        return tuple(Tapped(exchange) for exchange in self.inner.exchanges)

    def init(self, key: Any) -> Any:
        """As inside."""
        return self.inner.init(key)

    def weights(self, state: Any) -> Any:
        """As inside."""
        return self.inner.weights(state)

    def watch(self, state: Any) -> dict[str, Any]:
        """As inside."""
        return self.inner.watch(state)

    def account(self, rounds: int, delta: float) -> PrivacyReport:
        """As inside; a wiretap promises nothing more."""
        return self.inner.account(rounds, delta)

    def experience(self, party: Party) -> dict[str, Any]:
        """As inside."""
        return self.inner.experience(party)
