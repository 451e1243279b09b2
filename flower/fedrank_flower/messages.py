"""Messages between a Flower server and its nodes: one record of a few values each way.

A question to a node holds the request's bytes, the same for all its parties. An answer holds the replies of many
parties one after another, as :meth:`~fedrank.core.messages.Layout.encode_all` puts them, and one bit a party that says
who they are from. A question without a request asks which parties a node hosts: its answer has the bits, and instead
of replies a short hash of what the columns of the parties' tables are called, or of how they cut texts into words, if
they have their own tables or texts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace

import numpy as np
from jaxtyping import Bool, Int64, UInt8

from fedrank.core.errors import WireError
from fedrank.core.messages import Layout
from fedrank.core.trees import Json

#: Name of the record in a Flower message.
RECORD = "fedrank"
# Values of a question that stand in its record only where they say something.
_OPTIONAL: dict[str, type] = {"asked": bytes, "setup": bool}


@dataclass(frozen=True)
class Question:
    """Server to node.

    Attributes:
        round: Number of the round, from 0.
        exchange: Which of the protocol's exchanges, from 0.
        request: The request's bytes; empty to ask which parties there are.
        asked: One bit a party of the node, the lowest bit of the first byte first: who is asked. Empty: all of them. A
            node is told nothing about the parties of others.
        setup: Whether it belongs to the run's setup: the exchange is one of those.
    """

    round: int
    exchange: int
    request: bytes
    asked: bytes = b""
    setup: bool = False

    def hello(self) -> Question:
        """The question which parties there are, before this one is asked."""
        return Question(self.round, self.exchange, b"", setup=self.setup)

    def to(self, asked: Bool[np.ndarray, " parties"]) -> Question:
        """The same question to some of a node's parties, bool [parties of the node]."""
        return self if asked.all() else replace(self, asked=np.packbits(asked, bitorder="little").tobytes())

    def whom(self, parties: int) -> Bool[np.ndarray, " parties"]:
        """Mask of a node's parties that are asked, bool [parties].

        Raises:
            WireError: The question is for another number of parties, or for none.
        """
        if not self.asked:
            return np.ones(parties, bool)
        bits = np.unpackbits(np.frombuffer(self.asked, np.uint8), bitorder="little").astype(bool)
        if len(self.asked) != -(-parties // 8) or not bits[:parties].any() or bits[parties:].any():
            raise WireError(f"a question to some of {8 * len(self.asked)} parties; this node has {parties}.")
        return bits[:parties]

    def as_record(self) -> dict[str, Json]:
        """The question as values of a record; ``asked`` and ``setup`` only where they say something."""
        return {name: value for name, value in asdict(self).items() if name not in _OPTIONAL or value}

    @classmethod
    def from_record(cls, record: Mapping[str, Json] | None) -> Question:
        """The inverse of :meth:`as_record`; raises WireError."""
        kinds: dict[str, type] = {"round": int, "exchange": int, "request": bytes}
        told = {name: kind for name, kind in _OPTIONAL.items() if record and name in record}
        return cls(**_check_record(record, {**kinds, **told}))


@dataclass(frozen=True)
class Answer:
    """Node to server.

    Attributes:
        first: Number of the party that the first bit stands for.
        heard: One bit a party, the lowest bit of the first byte first: whether its reply is here.
        replies: The replies' bytes, in the order of the parties.
    """

    first: int
    heard: bytes
    replies: bytes

    @classmethod
    def of(cls, first: int, heard: Bool[np.ndarray, " parties"], replies: bytes) -> Answer:
        """An answer for the parties from ``first`` on; ``heard`` is bool [parties]."""
        return cls(first, np.packbits(heard, bitorder="little").tobytes(), replies)

    def as_record(self) -> dict[str, Json]:
        """The answer as values of a record."""
        return asdict(self)

    @classmethod
    def from_record(cls, record: Mapping[str, Json] | None) -> Answer:
        """The inverse of :meth:`as_record`; raises WireError."""
        return cls(**_check_record(record, {"first": int, "heard": bytes, "replies": bytes}))

    def numbers(self, parties: int) -> Int64[np.ndarray, " heard"]:
        """Numbers of the parties that were heard, int64 [heard], ascending; ``parties`` and errors as :meth:`rows`."""
        if not 0 <= self.first < parties or len(self.heard) > -(-parties // 8):
            raise WireError(f"an answer for {8 * len(self.heard)} parties from {self.first} on; there are {parties}.")
        numbers = self.first + np.flatnonzero(np.unpackbits(np.frombuffer(self.heard, np.uint8), bitorder="little"))
        if not numbers.size or numbers[-1] >= parties:
            raise WireError(f"an answer is for parties 0..{parties - 1}, at least one of them.")
        return numbers

    def rows(
        self, layout: Layout, parties: int
    ) -> tuple[Int64[np.ndarray, " heard"], UInt8[np.ndarray, "heard bytes"]]:
        """The parties that were heard, and their replies.

        Args:
            layout: Of one reply.
            parties: Parties of the run.

        Returns:
            Numbers int64 [heard], ascending, and bytes uint8 [heard, layout.nbytes], each row a reply that decodes.

        Raises:
            WireError: No party or none of this run is heard, there are not as many replies as parties, or one of them
                is wrong.
        """
        numbers = self.numbers(parties)
        if len(self.replies) != len(numbers) * layout.nbytes:
            raise WireError(
                f"{len(numbers)} replies {layout.name} have {len(numbers) * layout.nbytes} bytes, got "
                f"{len(self.replies)}."
            )
        layout.decode_all(self.replies)
        return numbers, np.frombuffer(self.replies, np.uint8).reshape(len(numbers), layout.nbytes)


def _check_record(record: Mapping[str, Json] | None, kinds: dict[str, type]) -> dict[str, Json]:
    if record is None or set(record) != set(kinds):
        found = "none" if record is None else ", ".join(sorted(map(str, record))) or "an empty one"
        raise WireError(f"a record with {', '.join(kinds)} is needed, got {found[:200]}.")
    for name, kind in kinds.items():
        if type(record[name]) is not kind:
            raise WireError(f"{name} must be of type {kind.__name__}, got {type(record[name]).__name__}.")
    return dict(record)
