"""Draws that a device makes by itself and a hub can make again: is it due, does it check, what does it try.

A draw is HMAC-SHA256 (RFC 2104, FIPS 180-4) with a key that belongs to the device and a message that is not known
before the round is there: its *beacon*, the SHA-256 of the model message that the round asks about. The key is the
SHA-256 of the device's token, which the hub drew when the device enrolled and has in its log: the device could not
choose it, and cannot choose another for this round, since a device that enrolled after a round was opened is not due in
it. Where a report comes with a single-use token in place of a device's, the key is the SHA-256 of that token.

Needs the standard library only.
"""

from __future__ import annotations

import hashlib
import hmac

#: Purposes of draws; those of one purpose say nothing about those of another. The word of SEED is a device's seed.
DUE, CHECK, SEED = b"fedrank/due", b"fedrank/check", b"fedrank/seed"


def key_of(token: str) -> bytes:
    """The key of a device: SHA-256 of its token, 32 bytes."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


def beacon_of(model: bytes) -> bytes:
    """The beacon of a round: SHA-256 of its model message as it is handed out, 32 bytes."""
    return hashlib.sha256(model).digest()


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
        key: :func:`key_of` its token.
        purpose: :data:`DUE` or :data:`CHECK`.
        beacon: :func:`beacon_of` the round's model.
        share: Part of the devices that are drawn, in [0, 1]; with 1 all are, with 0 none.
    """
    return share >= 1 or (share > 0 and word(key, purpose, beacon) < threshold(share))
