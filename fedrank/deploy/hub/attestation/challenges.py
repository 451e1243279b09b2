"""Challenges of a hub: each good once, for a few minutes, and only with the token that asked for it."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import struct
import threading

from fedrank.deploy.hub.attestation.attestor import NotAttestedError

#: Seconds for which a challenge is good.
GOOD_FOR = 300.0
#: Bytes of a challenge: 8 of its end in seconds since 1970, 8 of chance, 32 that only this process can make.
LENGTH = 48


class Challenges:
    """Makes challenges and takes each back once. A restart voids them: a device asks for another.

    Nothing is kept of a challenge until it comes back, so that asking for many fills no memory.
    """

    def __init__(self):
        self._key = secrets.token_bytes(32)
        self._used: dict[bytes, float] = {}  # challenge → when it ends
        self._lock = threading.Lock()

    def new(self, token: str, now: float) -> tuple[bytes, float]:
        """A challenge for whoever has a token, and until when it is good, in seconds since 1970."""
        until = now + GOOD_FOR
        head = struct.pack("<d", until) + secrets.token_bytes(8)
        return head + self._proof(head, token), until

    def take(self, challenge: bytes, token: str, now: float) -> None:
        """Use a challenge up.

        Raises:
            NotAttestedError: It is not one for this token, it is too old, or it was used before.
        """
        head, proof = challenge[:16], challenge[16:]
        if len(challenge) != LENGTH or not hmac.compare_digest(proof, self._proof(head, token)):
            raise NotAttestedError("challenge-unknown")
        (until,) = struct.unpack("<d", head[:8])
        if now >= until:
            raise NotAttestedError("challenge-expired")
        with self._lock:
            if challenge in self._used:
                raise NotAttestedError("challenge-used")
            for old in [old for old, end in self._used.items() if end <= now]:
                del self._used[old]
            self._used[challenge] = until

    def _proof(self, head: bytes, token: str) -> bytes:
        digest = hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()
        return hmac.new(self._key, head + digest, hashlib.sha256).digest()
