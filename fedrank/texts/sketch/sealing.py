"""Sealing between silos that share a secret: the server that passes bytes on reads none of them.

ChaCha20-Poly1305 from *cryptography*, under a key that is derived from the silos' common secret (HKDF-SHA256) for one
purpose, one sender and one reader. The nonce is random, from the operating system, also in a simulation, where nothing
depends on it.

**What a seal hides**: everything but its length, from the server and from whoever listens. **From whom it does not
hide**: silos. All of them have the secret, so that a silo that works with the server opens everything for it; what a
silo may know of another's documents is what the noise leaves (:mod:`fedrank.texts.sketch.noise`).
"""

from __future__ import annotations

import os

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from fedrank.core.errors import SecureSumError
from fedrank.privacy.secure_sum import crypto

#: Bytes that a seal adds: nonce and tag.
NONCE = 12
ADDED = NONCE + 16
#: Reader of what every silo may open; silos have numbers below.
EVERYBODY = 2**16 - 1
_SALT = b"fedrank sketches"


def seal(secret: bytes, purpose: str, sender: int, reader: int, text: bytes) -> bytes:
    """Seal bytes for a silo, or for all silos.

    Args:
        secret: The silos' common secret, 32 bytes.
        purpose: One word.
        sender: Number of the silo that seals.
        reader: Number of the silo that opens, or :data:`EVERYBODY`.
        text: What is sealed.
    """
    nonce = os.urandom(NONCE)
    return nonce + ChaCha20Poly1305(_key(secret, purpose, sender, reader)).encrypt(nonce, text, None)


def unseal(secret: bytes, purpose: str, sender: int, reader: int, sealed: bytes) -> bytes:
    """The inverse of :func:`seal`.

    Raises:
        SecureSumError: The bytes were changed on their way, or are not from this sender for this reader.
    """
    try:
        return ChaCha20Poly1305(_key(secret, purpose, sender, reader)).decrypt(sealed[:NONCE], sealed[NONCE:], None)
    except (InvalidTag, ValueError) as error:
        raise SecureSumError(
            f"what came as sealed by silo {sender} was changed on its way, or is of another run; refused."
        ) from error


def _key(secret: bytes, purpose: str, sender: int, reader: int) -> bytes:
    return crypto.derive(secret, _SALT, f"seal-{purpose}", sender.to_bytes(2, "little"), reader.to_bytes(2, "little"))
