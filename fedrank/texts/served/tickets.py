"""Tickets: names of found documents that mean something to their owner only, and are new in every answer.

A ticket is the document's id and a time, encrypted and authenticated (ChaCha20-Poly1305) under a key that the owner
alone has, for one asker. Two tickets for one document look unrelated, so that answers cannot be laid side by side.
"""

from __future__ import annotations

import base64
import binascii
import os
import struct
import time

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from fedrank.texts.served.documents import LONGEST_ID

#: Seconds for which a ticket is good.
LIFE = 24 * 3600
#: Characters of a ticket.
LONGEST_TICKET = 226
_NONCE = 12


class Tickets:
    """Makes and reads the tickets of one owner.

    Args:
        key: 32 random bytes that the owner keeps.
    """

    def __init__(self, key: bytes):
        self._cipher = ChaCha20Poly1305(key)

    def make(self, id: str, asker: str) -> str:
        """A new ticket for a document and the asker of this name; 226 characters."""
        raw = id.encode()
        plain = struct.pack("<QB", int(time.time()), len(raw)) + raw.ljust(LONGEST_ID, b"\0")
        nonce = os.urandom(_NONCE)
        return base64.urlsafe_b64encode(nonce + self._cipher.encrypt(nonce, plain, asker.encode())).decode().rstrip("=")

    def read(self, ticket: str, asker: str) -> str | None:
        """The id of the document; None if the ticket is none of this owner for this asker, or too old."""
        try:
            data = base64.b64decode(ticket + "=" * (-len(ticket) % 4), altchars=b"-_", validate=True)
            plain = self._cipher.decrypt(data[:_NONCE], data[_NONCE:], asker.encode())
        except (binascii.Error, InvalidTag, ValueError):
            return None
        made, length = struct.unpack_from("<QB", plain)
        return plain[9 : 9 + length].decode() if 0 <= time.time() - made <= LIFE else None
