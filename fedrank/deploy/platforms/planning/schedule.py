"""When platforms that learn from sums are asked for what, and when they are told: a few times in a run, in one order.

A run has one release or several, each followed by a model, and before them, where the clip is found by other users,
counts of norms, followed by the clip. What is asked for is made when the last round before it is over at a platform,
and kept, so that the users after it count in the next one, however late the coordinator asks.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from fedrank.deploy.platforms.terms import Terms
from fedrank.privacy.secure_sum.messages import Step, message_sizes
from fedrank.privacy.secure_sum.messages import Terms as SumTerms
from fedrank.slates.sums import AfterExplorers, IntegersOfUsers


class Due(NamedTuple):
    """An exchange of a run.

    Attributes:
        round: The last round before it.
        place: Index of the exchange in the protocol.
        collects: Whether platforms are asked for integers; else they are told something.
        parties: Numbers of the platforms that take part: those that send such integers, or all that are told.
    """

    round: int
    place: int
    collects: bool
    parties: tuple[int, ...]


def schedule(terms: Terms) -> tuple[Due, ...]:
    """All exchanges of a run in which something crosses, in order."""
    return tuple(
        sorted(
            Due(round_, place, isinstance(exchange, IntegersOfUsers), parties(terms, exchange))
            for place, exchange in enumerate(terms.exchanges)
            if isinstance(exchange, AfterExplorers)
            for round_ in exchange.rounds
        )
    )


def parties(terms: Terms, exchange: AfterExplorers) -> tuple[int, ...]:
    """Numbers of the platforms that take part in an exchange."""
    sends = exchange.senders if isinstance(exchange, IntegersOfUsers) else (True,) * terms.platforms
    return tuple(k for k, there in enumerate(sends) if there)


def sum_terms(terms: Terms, place: int) -> SumTerms:
    """What is agreed upon for a secure sum of an exchange: each platform masks with all others, and all must stay.

    A coordinator could otherwise have the total of all but one, and later that of all: the difference is one's own.
    """
    exchange: Any = terms.exchanges[place]
    neighbours = len(parties(terms, exchange)) - 1
    return SumTerms(exchange.numbers, neighbours, neighbours + 1)


def sum_steps(terms: Terms, place: int) -> tuple[Step, ...]:
    """The four steps of a secure sum of an exchange, with the layouts of their messages."""
    agreed = sum_terms(terms, place)
    return message_sizes(agreed.length, agreed.neighbours)
