"""Draws that a device makes by itself and a hub can make again: is it due, does it check, what does it try.

A draw is HMAC-SHA256 (RFC 2104, FIPS 180-4) with a key that belongs to the token which the device shows and a message
that was not known when the device got the token: the *beacon*.

=================  ==================================  ==========================================================
                   the device's own token              a blind token (``tokens``)
=================  ==================================  ==========================================================
key                SHA-256 of the token                SHA-256 of the token's content without its signature, 8 bytes
beacon             of a round: SHA-256 of its model    of an epoch: :class:`Beacon`
                   message
known too late     a device that enrolled after a      tokens of an epoch are sold before the last round of the epoch
                   round was opened is not due in it   before it closes, and what the beacon is made of is fixed then
=================  ==================================  ==========================================================

Needs the standard library only.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from typing import Any, NamedTuple

#: Purposes of draws; those of one purpose say nothing about those of another. The word of SEED is a device's seed, that
#: of ROUND says in which round of its epoch a token counts.
DUE, CHECK, SEED, ROUND = b"fedrank/due", b"fedrank/check", b"fedrank/seed", b"fedrank/round"


def key_of(token: str) -> bytes:
    """The key of a device: SHA-256 of its token, 32 bytes."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


def beacon_of(model: bytes) -> bytes:
    """The beacon of a round: SHA-256 of its model message as it is handed out, 32 bytes."""
    return hashlib.sha256(model).digest()


class Beacon(NamedTuple):
    """Secret and reports that make the beacon of an epoch.

    Attributes:
        secret: The hub's secret of the epoch, 32 bytes: its SHA-256 is published with the key of the epoch's tokens,
            before the first is sold, and the secret itself after the last was.
        reports: Hash of the set of reports of the round before the epoch, 32 bytes, which is in the public log before
            a model is made of them.
        sales: Number of tokens that were sold for the epoch.
    """

    secret: bytes
    reports: bytes
    sales: int

    @property
    def value(self) -> bytes:
        """The beacon, 32 bytes: SHA-256 of a prefix, the secret and the hash of the reports."""
        return hashlib.sha256(b"fedrank/beacon" + self.secret + self.reports).digest()

    def as_json(self) -> dict[str, Any]:
        """The beacon as hubs publish it, JSON-able."""
        secret, reports = (base64.urlsafe_b64encode(one).decode() for one in self[:2])
        return {"secret": secret, "reports": reports, "sales": self.sales}

    @classmethod
    def from_json(cls, given: dict[str, Any]) -> Beacon:
        """The inverse; raises KeyError, TypeError or ValueError where it is none."""
        secret, reports = (base64.urlsafe_b64decode(given[name]) for name in ("secret", "reports"))
        if len(secret) != 32 or len(reports) != 32 or not 0 <= int(given["sales"]) < 2**32:
            raise ValueError("no beacon of an epoch")
        return cls(secret, reports, int(given["sales"]))


def threshold(share: float) -> int:
    """Number of the 2³² words that are drawn: ⌊share · 2³²⌋, at least 1; the product is exact in doubles.

    >>> threshold(1.0) == 2**32, threshold(0.25) == 2**30
    (True, True)
    """
    return max(1, int(share * 2.0**32))


def word(key: bytes, purpose: bytes, beacon: bytes) -> int:
    """The word of a draw, 0 .. 2³² − 1: the first four bytes of the HMAC of purpose and beacon, little-endian."""
    return int.from_bytes(hmac.digest(key, purpose + beacon, "sha256")[:4], "little")


def drawn(key: bytes, purpose: bytes, beacon: bytes, share: float) -> bool:
    """True if a device is drawn.

    Args:
        key: As of the table above.
        purpose: :data:`DUE` or :data:`CHECK`.
        beacon: As of the table above.
        share: Part of the devices that are drawn, in [0, 1]; with 1 all are, with 0 none.
    """
    return share >= 1 or (share > 0 and word(key, purpose, beacon) < threshold(share))


def turn(key: bytes, beacon: bytes, rounds: int) -> int:
    """The round of its epoch in which a blind token counts, 0 .. ``rounds`` − 1: ⌊word · rounds / 2³²⌋."""
    return word(key, ROUND, beacon) * rounds >> 32
