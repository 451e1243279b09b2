"""The enrolled devices of a hub, by the SHA-256 of their tokens."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable


def digest_of(token: str) -> bytes:
    """SHA-256 of a token, 32 bytes; any characters are allowed."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


class Devices:
    """Numbers and hashed tokens of the enrolled devices, in memory; about 250 bytes a device.

    Args:
        known: Number and digest of the token of each device.
        last: The highest number that any device was given.
    """

    def __init__(self, known: Iterable[tuple[int, bytes]], last: int):
        self._tokens = dict(known)
        self._numbers = {digest: number for number, digest in self._tokens.items()}
        self.next = last + 1

    @property
    def highest(self) -> int:
        """The highest number of a device that is known; 0 before the first."""
        return max(self._tokens, default=0)

    def __len__(self) -> int:
        return len(self._tokens)

    def __contains__(self, number: object) -> bool:
        return number in self._tokens

    def find(self, token: str) -> int | None:
        """The number of the device with this token; None if there is none."""
        digest = digest_of(token)
        # How long the look-up takes may tell about digests, never about tokens: nobody can make a token for a digest.
        number = self._numbers.get(digest)
        if number is None or not hmac.compare_digest(self._tokens.get(number, b""), digest):
            return None
        return number

    def key(self, number: int) -> bytes:
        """SHA-256 of the token of a device, with which it draws; empty if it is not enrolled."""
        return self._tokens.get(number, b"")

    def add(self, digests: Iterable[bytes]) -> None:
        """Add new devices, which get the next numbers."""
        for digest in digests:
            self._tokens[self.next] = digest
            self._numbers[digest] = self.next
            self.next += 1

    def know(self, number: int, digest: bytes) -> None:
        """Add a device that was enrolled elsewhere."""
        self._tokens[number] = digest
        self._numbers[digest] = number

    def reset(self, known: Iterable[tuple[int, bytes]]) -> None:
        """Know these devices, and no others."""
        tokens = dict(known)
        self._numbers = {digest: number for number, digest in tokens.items()}
        self._tokens = tokens

    def remove(self, number: int) -> None:
        """Remove a device, which must be enrolled; its number is not given again."""
        del self._numbers[self._tokens.pop(number)]
