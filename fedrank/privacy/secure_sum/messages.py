"""What crosses in a secure sum: four exchanges, eight messages, each of a fixed size.

==========  =======================  =======================
exchange    server → party           party → server
==========  =======================  =======================
keys        :class:`Invitation`      :class:`Advertisement`
shares      :class:`Roster`          :class:`SealedShares`
vectors     :class:`Delivery`        :class:`MaskedVector`
unmasking   :class:`UnmaskRequest`   :class:`UnmaskReply`
==========  =======================  =======================

Every message names its session, sixteen random bytes that the server draws for one sum, so that nothing of one round
can be used in another. Arrays of bytes are uint8; a party's neighbours stand in the order of their numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from fedrank.core.errors import ConfigError
from fedrank.core.messages import Field, Layout

#: Bytes of a session's name, of a key or a share, and of two shares after sealing (64 bytes and a tag of 16).
SESSION, KEY, SEALED = 16, 32, 80

#: Message kinds from here on, so that a protocol's own messages (1, 2, …) keep theirs.
FIRST_KIND = 16


@dataclass(frozen=True)
class Terms:
    """What server and parties agree upon before a sum; a party takes them from its own settings, not from the server.

    Attributes:
        length: Numbers in a vector, at least 1.
        neighbours: Parties that each party masks with: an even number, or the whole cohort but the party itself.
        threshold: Of a party and its neighbours, how many must stay until the end: more than half of them. With fewer
            shares nobody can unmask anything. A server that tells one half of the holders that somebody dropped out,
            and the other half that he survived, would need twice as many shares for both of his secrets. Where c of
            the holders may be on the server's side, take more than half of the holders and c together.
    """

    length: int
    neighbours: int
    threshold: int

    def __post_init__(self):
        if self.length < 1:
            raise ConfigError(f"length of a secure sum must be at least 1, got {self.length}.")
        if self.neighbours < 1:
            raise ConfigError(
                f"neighbours of a secure sum must be at least 1, got {self.neighbours}: the sum over one party is that "
                "party's vector, which no mask can hide. Use a cohort of two or more."
            )
        if not self.holders < 2 * self.threshold <= 2 * self.holders:
            raise ConfigError(
                f"threshold of a secure sum with {self.neighbours} neighbours must be in "
                f"{self.holders // 2 + 1}..{self.holders}, more than half of a party and its neighbours, "
                f"got {self.threshold}."
            )

    @property
    def holders(self) -> int:
        """Parties that hold shares of one party's secrets: the party and its neighbours."""
        return self.neighbours + 1


@dataclass(frozen=True, eq=False)
class Invitation:
    """Server to party: a sum begins.

    Attributes:
        session: uint8 [16].
    """

    session: Any


@dataclass(frozen=True, eq=False)
class Advertisement:
    """Party to server: two public keys, fresh for this sum.

    Attributes:
        session: uint8 [16].
        party: uint32: the sender's number.
        seal_key: uint8 [32]: X25519; others seal shares for the sender with it.
        mask_key: uint8 [32]: X25519; pairwise masks come from it.
    """

    session: Any
    party: Any
    seal_key: Any
    mask_key: Any


@dataclass(frozen=True, eq=False)
class Roster:
    """Server to party: its neighbours and their keys.

    Attributes:
        session: uint8 [16].
        parties: uint32 [neighbours], ascending.
        seal_keys: uint8 [neighbours · 32].
        mask_keys: uint8 [neighbours · 32].
    """

    session: Any
    parties: Any
    seal_keys: Any
    mask_keys: Any


@dataclass(frozen=True, eq=False)
class SealedShares:
    """Party to server: for each neighbour, and readable by it alone, a share of the mask key and one of the seed.

    Attributes:
        session: uint8 [16].
        party: uint32: the sender's number.
        commitment: uint8 [32]: derived from the seed, so that a false share is found out.
        sealed: uint8 [neighbours · 80].
    """

    session: Any
    party: Any
    commitment: Any
    sealed: Any


@dataclass(frozen=True, eq=False)
class Delivery:
    """Server to party: what its neighbours sealed for it.

    Attributes:
        session: uint8 [16].
        present: uint8 [neighbours]: 1 if the neighbour sent its shares, 0 if it is gone.
        sealed: uint8 [neighbours · 80]; zeros where a neighbour is gone.
    """

    session: Any
    present: Any
    sealed: Any


@dataclass(frozen=True, eq=False)
class MaskedVector:
    """Party to server: the vector under all its masks, modulo 2³².

    Attributes:
        session: uint8 [16].
        party: uint32: the sender's number.
        vector: uint32 [length].
    """

    session: Any
    party: Any
    vector: Any


@dataclass(frozen=True, eq=False)
class UnmaskRequest:
    """Server to party: who sent a vector. One mark a neighbour, so that no request can ask for both of its secrets.

    Attributes:
        session: uint8 [16].
        survived: uint8 [neighbours]: 1 if the neighbour's vector came, 0 if not.
    """

    session: Any
    survived: Any


@dataclass(frozen=True, eq=False)
class UnmaskReply:
    """Party to server: of each neighbour one share, of the seed if it survived, of the mask key if it dropped out.

    Attributes:
        session: uint8 [16].
        party: uint32: the sender's number.
        own: uint8 [32]: the sender's share of its own seed.
        shares: uint8 [neighbours · 32]; zeros for neighbours that never shared.
    """

    session: Any
    party: Any
    own: Any
    shares: Any


class Step(NamedTuple):
    """One exchange of a secure sum.

    Attributes:
        name: As ledgers name it.
        request: Layout of what the server sends to each party.
        reply: Layout of what a party sends back.
    """

    name: str
    request: Layout
    reply: Layout


def message_sizes(length: int, neighbours: int) -> tuple[Step, ...]:
    """The four exchanges of a secure sum with the layouts of their messages, for a ledger and for the wire.

    For k neighbours and d numbers a party sends 212 + 112 k + 4 d bytes in all, and is sent 68 + 150 k.

    Args:
        length: Numbers d in a vector.
        neighbours: Parties k that each party masks with.

    >>> [(step.name, step.request.nbytes, step.reply.nbytes) for step in message_sizes(length=46, neighbours=20)]
    [('keys', 17, 85), ('shares', 1377, 1653), ('vectors', 1637, 205), ('unmasking', 37, 693)]
    """
    if length < 1 or neighbours < 1:
        raise ConfigError(f"length and neighbours of a secure sum must be at least 1, got {length} and {neighbours}.")
    session = _octets("session", SESSION, "random name of this sum")
    party = Field("party", "u4", "number of the sender")
    layouts = (
        (Invitation, session),
        (
            Advertisement,
            session,
            party,
            _octets("seal_key", KEY, "public key, for sealing shares"),
            _octets("mask_key", KEY, "public key, for pairwise masks"),
        ),
        (
            Roster,
            session,
            Field("parties", "u4", "numbers of the neighbours", (("parameters", neighbours),)),
            _octets("seal_keys", neighbours * KEY, "the neighbours' public keys, for sealing shares"),
            _octets("mask_keys", neighbours * KEY, "the neighbours' public keys, for pairwise masks"),
        ),
        (
            SealedShares,
            session,
            party,
            _octets("commitment", KEY, "says nothing about the seed and belongs to no other"),
            _octets("sealed", neighbours * SEALED, "two shares for each neighbour, encrypted to it"),
        ),
        (
            Delivery,
            session,
            _flags("present", neighbours, "whether a neighbour sent its shares"),
            _octets("sealed", neighbours * SEALED, "two shares from each neighbour, encrypted to the receiver"),
        ),
        (
            MaskedVector,
            session,
            party,
            Field("vector", "u4", "the vector under its masks: uniformly random", (("parameters", length),)),
        ),
        (UnmaskRequest, session, _flags("survived", neighbours, "whether a neighbour's vector came")),
        (
            UnmaskReply,
            session,
            party,
            _octets("own", KEY, "share of the sender's self mask"),
            _octets("shares", neighbours * KEY, "one share of each neighbour's self mask or mask key"),
        ),
    )
    made = [Layout(message, FIRST_KIND + i, tuple(fields)) for i, (message, *fields) in enumerate(layouts)]
    names = ("keys", "shares", "vectors", "unmasking")
    return tuple(Step(name, made[2 * i], made[2 * i + 1]) for i, name in enumerate(names))


def _octets(name: str, count: int, meaning: str) -> Field:
    return Field(name, "u1", meaning, (("parameters", count),))


def _flags(name: str, count: int, meaning: str) -> Field:
    return Field(name, "u1", meaning, (("bytes", count),), largest=1)
