"""Messages of a secure sum: four exchanges, eight messages, each of a fixed size.

==========  =======================  =======================
exchange    server → party           party → server
==========  =======================  =======================
keys        :class:`Invitation`      :class:`Advertisement`
shares      :class:`Roster`          :class:`SealedShares`
vectors     :class:`Delivery`        :class:`MaskedVector`
unmasking   :class:`UnmaskRequest`   :class:`UnmaskReply`
==========  =======================  =======================

Every message names its session, sixteen random bytes that the server draws for one sum, so that nothing of one round
can be used in another. A party's neighbours stand in the order of their numbers. Message kinds are 16 to 23, so that a
protocol's own messages can have the numbers below.

Ledgers of a round have all of them but the masked vector itself as extra messages.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from fedrank.core.errors import ConfigError
from fedrank.core.messages import Array, Layout, field, message, u1, u4

#: Bytes of a session's name, of a key or a share, and of two shares after sealing (64 bytes and a tag of 16).
SESSION, KEY, SEALED = 16, 32, 80

_SESSION = "random name of this sum"
_SENDER = "number of the sender"


@dataclass(frozen=True)
class Terms:
    """Settings that server and parties agree upon before a sum; a party takes them from its settings, not the server's.

    Attributes:
        length: Numbers in a vector, at least 1.
        neighbours: Parties that each party masks with: an even number, or the whole cohort but the party itself.
        threshold: Of a party and its neighbours, how many must stay until the end: more than half of them. With fewer
            shares no holders can unmask anything. A server that tells one half of the holders that a party dropped out,
            and the other half that it survived, would need twice as many shares for both of its secrets. Where c of
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


@message(kind=16)
class Invitation:
    """Server to party: a sum begins."""

    session: Array = field(u1["bytes":SESSION], _SESSION)


@message(kind=17)
class Advertisement:
    """Party to server: two public keys, fresh for this sum."""

    session: Array = field(u1["bytes":SESSION], _SESSION)
    party: Array = field(u4, _SENDER)
    seal_key: Array = field(u1["bytes":KEY], "public key (X25519), for sealing shares")
    mask_key: Array = field(u1["bytes":KEY], "public key (X25519), for pairwise masks")


@message(kind=18)
class Roster:
    """Server to party: its neighbours, ascending, and their keys."""

    session: Array = field(u1["bytes":SESSION], _SESSION)
    parties: Array = field(u4["neighbours"], "numbers of the neighbours")
    seal_keys: Array = field(u1["neighbours", "bytes":KEY], "the neighbours' public keys, for sealing shares")
    mask_keys: Array = field(u1["neighbours", "bytes":KEY], "the neighbours' public keys, for pairwise masks")


@message(kind=19)
class SealedShares:
    """Party to server: for each neighbour, and readable by it alone, a share of the mask key and one of the seed."""

    session: Array = field(u1["bytes":SESSION], _SESSION)
    party: Array = field(u4, _SENDER)
    commitment: Array = field(u1["bytes":KEY], "derived from the seed, so that a false share is found out")
    sealed: Array = field(u1["neighbours", "bytes":SEALED], "two shares for each neighbour, encrypted to it")


@message(kind=20)
class Delivery:
    """Server to party: what its neighbours sealed for it; zeros where a neighbour is gone."""

    session: Array = field(u1["bytes":SESSION], _SESSION)
    present: Array = field(u1["neighbours"], "whether a neighbour sent its shares", largest=1)
    sealed: Array = field(u1["neighbours", "bytes":SEALED], "two shares from each neighbour, encrypted to the receiver")


@message(kind=21)
class MaskedVector:
    """Party to server: the vector under all its masks, modulo 2³²."""

    session: Array = field(u1["bytes":SESSION], _SESSION)
    party: Array = field(u4, _SENDER)
    vector: Array = field(u4["parameters"], "the vector under its masks: uniformly random")


@message(kind=22)
class UnmaskRequest:
    """Server to party: who sent a vector. One mark a neighbour, so that no request can ask for both of its secrets."""

    session: Array = field(u1["bytes":SESSION], _SESSION)
    survived: Array = field(u1["neighbours"], "whether a neighbour's vector came", largest=1)


@message(kind=23)
class UnmaskReply:
    """Party to server: of each neighbour one share, of the seed if it survived, of the mask key if it dropped out.

    The shares of neighbours that never shared are zeros.
    """

    session: Array = field(u1["bytes":SESSION], _SESSION)
    party: Array = field(u4, _SENDER)
    own: Array = field(u1["bytes":KEY], "the sender's share of the sender's seed")
    shares: Array = field(u1["neighbours", "bytes":KEY], "one share of each neighbour's seed or mask key")


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
    k, d = {"neighbours": neighbours}, {"parameters": length}
    return (
        Step("keys", Layout(Invitation), Layout(Advertisement)),
        Step("shares", Layout(Roster, **k), Layout(SealedShares, **k)),
        Step("vectors", Layout(Delivery, **k), Layout(MaskedVector, **d)),
        Step("unmasking", Layout(UnmaskRequest, **k), Layout(UnmaskReply, **k)),
    )


#: Parties that each party of a secure sum masks with, at most: all of a small cohort, a sparse graph of a large one.
NEIGHBOURS = 20


def extra_messages(parameters: int, parties: int, neighbours: int = NEIGHBOURS) -> tuple[tuple[str, str, Layout], ...]:
    """The additional messages of a secure sum: keys, sealed shares, and what the server needs to remove the masks.

    Args:
        parameters: Number of weights.
        parties: Parties of the round; one by itself has no other to sum with.
        neighbours: Parties that each masks with, at most.

    Returns:
        Name of the step, sender and layout.
    """
    if parties < 2:
        return ()
    keys, shares, vectors, unmasking = message_sizes(parameters, min(parties - 1, neighbours))
    out: list[tuple[str, str, Layout]] = []
    for step in (keys, shares, unmasking):
        name = f"secure sum: {step.name}"
        out += [(name, "server", step.request), (name, "parties", step.reply)]
    # The masked vector itself is the reply.
    return (*out, (f"secure sum: {vectors.name}", "server", vectors.request))
