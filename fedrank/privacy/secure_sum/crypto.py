"""The cryptography of a secure sum: which library function does what, with which parameters.

No algorithm here is new. Keys, key agreement (X25519), key derivation (HKDF-SHA256), the stream of masks
(ChaCha20) and sealing (ChaCha20-Poly1305) are the library *cryptography*'s, which takes its randomness from the
operating system and cannot be seeded from here. Secret sharing is in :mod:`fedrank.privacy.secure_sum.shamir`.
"""

from __future__ import annotations

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from jaxtyping import UInt32

from fedrank.core.errors import SecureSumError
from fedrank.privacy.secure_sum.messages import KEY


def public_key(private: X25519PrivateKey | bytes) -> bytes:
    """The 32 bytes of the public key that belongs to a private one."""
    return _private(private).public_key().public_bytes_raw()


def agree(private: X25519PrivateKey | bytes, public: bytes) -> bytes:
    """X25519: 32 bytes that only the owners of the two keys can compute.

    Raises:
        SecureSumError: The public key is one that makes every secret the same.
    """
    try:
        return _private(private).exchange(X25519PublicKey.from_public_bytes(public))
    except ValueError as error:
        raise SecureSumError(f"a public key is not one that X25519 can agree with ({error}); refused.") from error


def derive(secret: bytes, session: bytes, purpose: str, *context: bytes) -> bytes:
    """HKDF-SHA256: 32 bytes for one purpose in one session; other purposes' bytes say nothing about them.

    Args:
        secret: What an outsider does not know.
        session: Name of the sum; the salt.
        purpose: One word.
        context: Numbers or keys of a fixed length that belong to the purpose.
    """
    info = b"fedrank secure sum 1 " + purpose.encode() + b"\0" + b"".join(context)
    return HKDF(hashes.SHA256(), 32, session, info).derive(secret)


def mask(key: bytes, length: int) -> UInt32[np.ndarray, "{length}"]:
    """The mask that belongs to a key: the stream of ChaCha20.

    The nonce is zero: a key makes one mask and encrypts nothing else.

    Args:
        key: 32 bytes.
        length: Numbers wanted.

    Returns:
        uint32 [length], indistinguishable from uniformly random numbers without the key.
    """
    stream = Cipher(algorithms.ChaCha20(key, bytes(16)), mode=None).encryptor().update(bytes(4 * length))
    return np.frombuffer(stream, "<u4").astype(np.uint32)


def seal(key: bytes, text: bytes, context: bytes) -> bytes:
    """ChaCha20-Poly1305: encrypt, and bind to a context that both sides know.

    The nonce is zero: a key belongs to one sender, one receiver and one session, and seals one text.
    """
    return ChaCha20Poly1305(key).encrypt(bytes(12), text, context)


def unseal(key: bytes, sealed: bytes, context: bytes) -> bytes:
    """The inverse of :func:`seal`.

    Raises:
        SecureSumError: The bytes were changed, or were sealed by another, for another, or in another session.
    """
    try:
        return ChaCha20Poly1305(key).decrypt(bytes(12), sealed, context)
    except InvalidTag as error:
        raise SecureSumError("sealed shares were changed, or are not from whom they should be; refused.") from error


def _private(key: X25519PrivateKey | bytes) -> X25519PrivateKey:
    if isinstance(key, X25519PrivateKey):
        return key
    if len(key) != KEY:
        raise SecureSumError(f"a private key has {KEY} bytes, got {len(key)}.")
    return X25519PrivateKey.from_private_bytes(key)
