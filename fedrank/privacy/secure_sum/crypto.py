"""The cryptography of a secure sum: which library function does what, with which parameters.

No algorithm here is new. Keys, key agreement (X25519), key derivation (HKDF-SHA256), the stream of masks
(ChaCha20) and sealing (ChaCha20-Poly1305) are the library *cryptography*'s, which takes its randomness from the
operating system and cannot be seeded from here.

Secret sharing (Shamir, *How to share a secret*, CACM 1979) is here, since that library has none. It is over GF(2¹²⁸): a
field element is a polynomial over GF(2) modulo x¹²⁸ + x⁷ + x² + x + 1; its 16 bytes are the coefficients, the highest
first. Holder i's share is the value at i of a polynomial whose constant is the secret and whose other coefficients come
from the operating system. *PyCryptodome* and *ssss* (without diffusion) read shares in this field. Which steps are
taken depends on holders' numbers and the threshold, which everyone knows, and not on a secret.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from functools import reduce
from operator import xor

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

#: The field of secret sharing: bits of an element, and what elements are taken modulo.
_BITS = 128
_MODULUS = (1 << _BITS) | 0b10000111
_HALF = _BITS // 8


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


def split_secret(secret: bytes, threshold: int, holders: int) -> list[bytes]:
    """Shares of a secret of 32 bytes, each of 32 bytes; fewer than ``threshold`` of them say nothing about it.

    Args:
        secret: 32 bytes, shared as two halves of 16.
        threshold: Shares that make the secret again.
        holders: Shares to make. The i-th belongs to holder i + 1 in :func:`combine_shares`.
    """
    halves = []
    for low in (0, _HALF):
        coefficients = [secrets.randbits(_BITS) for _ in range(threshold - 1)]
        coefficients.append(int.from_bytes(secret[low : low + _HALF], "big"))
        halves.append([_value(coefficients, holder) for holder in range(1, holders + 1)])
    return [b"".join(value.to_bytes(_HALF, "big") for value in share) for share in zip(*halves, strict=True)]


def combine_shares(shares: Mapping[int, bytes], threshold: int) -> bytes:
    """The secret again: Lagrange's interpolation at 0.

    Args:
        shares: Holder (from 1) → share; the first ``threshold`` of them are used.
        threshold: As in :func:`split_secret`.

    Returns:
        32 bytes. They are the secret if all shares used were true; the caller has to check.

    Raises:
        SecureSumError: There are fewer than ``threshold`` shares.
    """
    if len(shares) < threshold:
        raise SecureSumError(f"{len(shares)} shares of a secret are there, {threshold} are needed.")
    used = list(shares)[:threshold]
    weights = {holder: _weight(holder, used) for holder in used}
    halves = (
        reduce(xor, (_times(int.from_bytes(shares[i][low : low + _HALF], "big"), weights[i]) for i in used))
        for low in (0, _HALF)
    )
    return b"".join(half.to_bytes(_HALF, "big") for half in halves)


def _value(coefficients: list[int], point: int) -> int:
    """A polynomial's value at a point (Horner); the coefficient of the highest power comes first."""
    return reduce(lambda value, coefficient: _times(value, point) ^ coefficient, coefficients)


def _weight(holder: int, used: list[int]) -> int:
    """Factor of a holder's share at 0: the product of m / (m − holder) over the others' numbers m."""
    others = [other for other in used if other != holder]
    return _times(reduce(_times, others, 1), _inverse(reduce(_times, (other ^ holder for other in others), 1)))


def _times(element: int, public: int) -> int:
    """Product of two field elements; only the second decides which steps are taken."""
    product = 0
    while public:
        if public & 1:
            product ^= element
        element <<= 1
        element ^= _MODULUS & -(element >> _BITS)
        public >>= 1
    return product


def _inverse(public: int) -> int:
    """Inverse of a field element that is not 0, by Euclid's algorithm for polynomials."""
    (high, of_high), (low, of_low) = (_MODULUS, 0), (public, 1)
    while low != 1:
        shift = high.bit_length() - low.bit_length()
        if shift < 0:
            (high, of_high), (low, of_low) = (low, of_low), (high, of_high)
            continue
        high ^= low << shift
        of_high ^= of_low << shift
    return of_low
