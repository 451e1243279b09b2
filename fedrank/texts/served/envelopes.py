"""Questions sealed for an owner and answers sealed for who asked: who carries them learns sizes and times.

HPKE (RFC 9180, base mode, X25519, HKDF-SHA256, ChaCha20-Poly1305) from ``cryptography``. A question carries a public
key made for it alone, for which the answer is sealed; the answer is bound to its question. Both are JSON, padded to a
multiple of :data:`STEP` bytes.

Tickets: names of found documents that mean something to their owner only, and are new in every answer.

A ticket is the document's id and a time, encrypted and authenticated (ChaCha20-Poly1305) under a key that the owner
alone has, for one asker. Two tickets for one document look unrelated, so that answers cannot be laid side by side.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import os
import struct
import time
from collections.abc import Mapping, Sequence
from typing import Any

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from fedrank.core.errors import ConfigError, WireError
from fedrank.core.trees import Json
from fedrank.texts.served.documents import LONGEST_ID

#: Questions and answers are padded to a multiple of this number of bytes.
STEP = 512
#: Largest sealed question and answer, in bytes.
LARGEST_QUESTION, LARGEST_ANSWER = 16 << 10, 4 << 20
_QUESTION, _ANSWER = b"fedrank search question 1", b"fedrank search answer 1"
#: Any private key: all of them agree on zero with a point of low order, which is no owner's key.
_PROBE = X25519PrivateKey.from_private_bytes(bytes(31) + b"\x40")


def key_text(key: X25519PublicKey | bytes) -> str:
    """A public key as 43 characters for files and command lines."""
    raw = key if isinstance(key, bytes) else key.public_bytes_raw()
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def key_of(text: str) -> X25519PublicKey:
    """The public key of :func:`key_text`.

    Raises:
        ConfigError: It is none, or a point of low order, with which every secret is zero.
    """
    try:
        key = X25519PublicKey.from_public_bytes(base64.b64decode(text + "=", altchars=b"-_", validate=True))
        _PROBE.exchange(key)
        return key
    except (binascii.Error, ValueError, TypeError) as error:
        raise ConfigError(f"an owner's key must be 43 letters, digits, - and _, got {text!r:.60}.") from error


class Question:
    """A question that was sealed, and what opens its answer.

    Args:
        owner: Public key of the owner.
        body: What is asked; JSON-able.

    Attributes:
        sealed: The bytes to send.

    Raises:
        ConfigError: The question is too large.
    """

    def __init__(self, owner: X25519PublicKey, body: Mapping[str, Json]):
        self._key = X25519PrivateKey.generate()
        full = {**body, "answer_to": key_text(self._key.public_key())}
        self.sealed = _suite().encrypt(_pad(full), owner, _QUESTION)
        if len(self.sealed) > LARGEST_QUESTION:
            raise ConfigError(f"the question is too large, {len(self.sealed)} bytes; ask with fewer words.")

    def open_answer(self, answer: bytes) -> dict[str, Any]:
        """The content of the answer.

        Raises:
            WireError: It is not the answer of this owner to this question.
        """
        return _open(answer, self._key, _ANSWER + hashlib.sha256(self.sealed).digest())


def open_question(sealed: bytes, key: X25519PrivateKey) -> tuple[dict[str, Any], X25519PublicKey]:
    """The question, and the key to seal the answer for.

    Raises:
        WireError: It is not sealed for this key, or is no question.
    """
    body = _open(sealed, key, _QUESTION)
    try:
        return body, key_of(body.pop("answer_to"))
    except (KeyError, ConfigError) as error:
        raise WireError("the question does not say for whom to seal the answer.") from error


def seal_answer(body: Mapping[str, Json], asker: X25519PublicKey, question: bytes) -> bytes:
    """An answer, sealed for who asked ``question`` (its sealed bytes)."""
    return _suite().encrypt(_pad(body), asker, _ANSWER + hashlib.sha256(question).digest())


def _suite() -> Any:
    from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite

    return Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.CHACHA20_POLY1305)


def _pad(body: Mapping[str, Json]) -> bytes:
    """JSON with spaces behind it, which JSON allows."""
    plain = json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()
    return plain.ljust(-(-len(plain) // STEP) * STEP)


def _open(sealed: bytes, key: X25519PrivateKey, info: bytes) -> dict[str, Any]:
    try:
        body = json.loads(_suite().decrypt(sealed, key, info))
    except (InvalidTag, ValueError, RecursionError) as error:
        raise WireError("this is not sealed for here, or was changed on its way.") from error
    if not isinstance(body, dict):
        raise WireError("this is not a JSON object.")
    return body


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

    def make(self, ids: Sequence[str], asker: str) -> list[str]:
        """New tickets for documents and the asker of this name, 226 characters each."""
        made, now, whose = list[str](), int(time.time()), asker.encode()
        nonces = os.urandom(_NONCE * len(ids))  # one call of the system for all
        for place, raw in enumerate(id.encode() for id in ids):
            plain = struct.pack("<QB", now, len(raw)) + raw.ljust(LONGEST_ID, b"\0")
            nonce = nonces[_NONCE * place : _NONCE * (place + 1)]
            made.append(
                base64.urlsafe_b64encode(nonce + self._cipher.encrypt(nonce, plain, whose)).decode().rstrip("=")
            )
        return made

    def read(self, ticket: str, asker: str) -> str | None:
        """The id of the document; None if the ticket is none of this owner for this asker, or too old."""
        try:
            data = base64.b64decode(ticket + "=" * (-len(ticket) % 4), altchars=b"-_", validate=True)
            plain = self._cipher.decrypt(data[:_NONCE], data[_NONCE:], asker.encode())
        except (binascii.Error, InvalidTag, ValueError):
            return None
        made, length = struct.unpack_from("<QB", plain)
        return plain[9 : 9 + length].decode() if 0 <= time.time() - made <= LIFE else None
