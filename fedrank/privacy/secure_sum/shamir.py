"""Secret sharing over GF(2¹²⁸) (Shamir, *How to share a secret*, CACM 1979).

A field element is a polynomial over GF(2) modulo x¹²⁸ + x⁷ + x² + x + 1; its 16 bytes are the coefficients, the
highest first. Holder i's share is the value at i of a polynomial whose constant is the secret and whose other
coefficients come from the operating system. *PyCryptodome* and *ssss* (without diffusion) read shares in this field.

Which steps are taken depends on holders' numbers and the threshold, which everyone knows, and not on a secret.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from functools import reduce
from operator import xor

from fedrank.core.errors import SecureSumError

_BITS = 128
_MODULUS = (1 << _BITS) | 0b10000111
_HALF = _BITS // 8


def split(secret: bytes, threshold: int, holders: int) -> list[bytes]:
    """Shares of a secret of 32 bytes, each of 32 bytes; fewer than ``threshold`` of them say nothing about it.

    Args:
        secret: 32 bytes, shared as two halves of 16.
        threshold: Shares that make the secret again.
        holders: Shares to make. The i-th belongs to holder i + 1 in :func:`combine`.
    """
    halves = []
    for low in (0, _HALF):
        coefficients = [secrets.randbits(_BITS) for _ in range(threshold - 1)]
        coefficients.append(int.from_bytes(secret[low : low + _HALF], "big"))
        halves.append([_value(coefficients, holder) for holder in range(1, holders + 1)])
    return [b"".join(value.to_bytes(_HALF, "big") for value in share) for share in zip(*halves, strict=True)]


def combine(shares: Mapping[int, bytes], threshold: int) -> bytes:
    """The secret again: Lagrange's interpolation at 0.

    Args:
        shares: Holder (from 1) → share; the first ``threshold`` of them are used.
        threshold: As in :func:`split`.

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
