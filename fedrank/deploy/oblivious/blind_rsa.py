"""Blind RSA signatures, RSABSSA-SHA384-PSS-Deterministic of RFC 9474.

An issuer signs a message without seeing it. The client encodes the message as for an RSA-PSS signature (EMSA-PSS,
RFC 8017, Section 9.1.1), multiplies it by r^e for a random r, and has the product signed; divided by r, the signature
is an ordinary RSA-PSS signature of the message. Whoever signed saw a number that is uniform whatever the message is:
that nothing links it to the signature holds against unbounded computers, and does not rest on RSA being hard.

Signatures are verified by ``cryptography``. It has no RSA without padding, which blinding needs. That is done here, as
a power in integers: for the client by Python's own, whose exponent is public; for the signer by GMP's ``powm_sec``,
whose time does not depend on the numbers, on a base that is blinded once more, by the signer itself.
"""

from __future__ import annotations

import hashlib
import math
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fedrank.core.errors import MissingExtraError, WireError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey

#: The public exponent of all keys.
EXPONENT = 65_537
#: Bytes of SHA-384, which is the length of the salt as well.
_HASH = 48


@dataclass(frozen=True)
class PublicKey:
    """An RSA public key with the exponent 65,537.

    Attributes:
        n: The modulus.
    """

    n: int

    @property
    def nbytes(self) -> int:
        """Bytes of the modulus, and of a signature."""
        return (self.n.bit_length() + 7) // 8


def blind(
    key: PublicKey, message: bytes, *, salt: bytes | None = None, inverse: int | None = None
) -> tuple[bytes, bytes]:
    """A message that hides another one, to be signed (RFC 9474, Section 4.2).

    Args:
        key: Of the signer.
        message: What the signature will be about.
        salt: 48 bytes; from the operating system unless a test vector gives them.
        inverse: r⁻¹ modulo n; drawn from the operating system unless a test vector gives it.

    Returns:
        The blinded message, and r⁻¹, which :func:`finalise` needs and no one else may see; as long as the modulus.

    Raises:
        WireError: The key is none: the message and the modulus have a common factor.
    """
    encoded = int.from_bytes(
        _pss(message, key.n.bit_length() - 1, secrets.token_bytes(_HASH) if salt is None else salt)
    )
    if math.gcd(encoded, key.n) != 1:
        raise WireError("the modulus of a signer's key has a factor that anybody can find.")
    while inverse is None:  # all but 2⁻¹⁰⁰⁰ of the numbers have an inverse
        drawn = 1 + secrets.randbelow(key.n - 1)
        inverse = drawn if math.gcd(drawn, key.n) == 1 else None
    blinded = encoded * pow(pow(inverse, -1, key.n), EXPONENT, key.n) % key.n
    return blinded.to_bytes(key.nbytes), inverse.to_bytes(key.nbytes)


def finalise(key: PublicKey, message: bytes, signed: bytes, inverse: bytes) -> bytes:
    """The signature of a message, from what came back for its blinded form (RFC 9474, Section 4.4).

    Args:
        key: Of the signer.
        message: As given to :func:`blind`.
        signed: The signer's answer.
        inverse: As :func:`blind` returned it.

    Raises:
        WireError: The answer is no signature of this message.
    """
    if len(signed) != key.nbytes:
        raise WireError(f"a blind signature has {key.nbytes} bytes, got {len(signed)}.")
    made = int.from_bytes(signed) * int.from_bytes(inverse) % key.n
    signature = made.to_bytes(key.nbytes)
    if not Verifier(key).accepts(message, signature):
        raise WireError("the signer's answer is no signature of what was asked for.")
    return signature


class Verifier:
    """Verifies the signatures of one key: RSASSA-PSS with SHA-384 and a salt of 48 bytes.

    Args:
        key: Of the signer.
    """

    def __init__(self, key: PublicKey):
        from cryptography.hazmat.primitives import hashes
        from cryptography.hazmat.primitives.asymmetric import padding, rsa

        self._n, self._key = key.n, rsa.RSAPublicNumbers(EXPONENT, key.n).public_key()
        self._hash = hashes.SHA384()
        self._padding = padding.PSS(padding.MGF1(self._hash), _HASH)

    def accepts(self, message: bytes, signature: bytes) -> bool:
        """True if a signature is one of this message: as long as the modulus, and as a number below it."""
        from cryptography.exceptions import InvalidSignature

        if int.from_bytes(signature) >= self._n:  # a library that takes it modulo n would take it twice
            return False
        try:
            self._key.verify(signature, message, self._padding, self._hash)
        except InvalidSignature:
            return False
        return True


class Signer:
    """Signs blinded messages (RFC 9474, Section 4.3).

    Args:
        key: RSA private key with the exponent 65,537.

    Attributes:
        public: The public key.

    Raises:
        MissingExtraError: gmpy2 is not installed.
    """

    def __init__(self, key: RSAPrivateKey):
        try:
            import gmpy2
        except ImportError as error:
            raise MissingExtraError("gmpy2", "serve", "a hub that sells tokens") from error
        numbers = key.private_numbers()
        if numbers.public_numbers.e != EXPONENT:
            raise WireError(f"a signer's key has the exponent {EXPONENT}.")
        self._gmp: Any = gmpy2
        self._power: Any = gmpy2.powmod_sec  # type: ignore[attr-defined] - not in its stubs
        self.public = PublicKey(numbers.public_numbers.n)
        self._p, self._q, self._by_q = numbers.p, numbers.q, numbers.iqmp  # q⁻¹ modulo p
        self._dp, self._dq = numbers.dmp1, numbers.dmq1

    def usable(self, blinded: bytes) -> bool:
        """True if this can be a blinded message: a number below the modulus, and as long."""
        number = int.from_bytes(blinded)
        return (
            len(blinded) == self.public.nbytes and 0 < number < self.public.n and math.gcd(number, self.public.n) == 1
        )

    def sign(self, blinded: bytes) -> bytes:
        """The answer to a blinded message; the same for the same.

        Raises:
            WireError: It is not as long as the modulus, or not below it.
        """
        if not self.usable(blinded):
            raise WireError("a blinded message is a number below the modulus, and as long.")
        n, number = self.public.n, int.from_bytes(blinded)
        # Base blinding: how long the powers take tells nothing about a number that the client did not choose.
        r = 0
        while math.gcd(r, n) != 1:
            r = 1 + secrets.randbelow(n - 1)
        base = number * int(self._gmp.powmod(r, EXPONENT, n)) % n
        below_p = int(self._power(base % self._p, self._dp, self._p))
        below_q = int(self._power(base % self._q, self._dq, self._q))
        power = below_q + self._q * ((below_p - below_q) * self._by_q % self._p)
        signed = power * int(self._gmp.invert(r, n)) % n
        if int(self._gmp.powmod(signed, EXPONENT, n)) != number:  # a fault in one of the halves would give the key away
            raise ArithmeticError("an RSA signature came out wrong; nothing of it leaves.")
        return signed.to_bytes(self.public.nbytes)


def _pss(message: bytes, bits: int, salt: bytes) -> bytes:
    """EMSA-PSS-ENCODE with SHA-384 and MGF1-SHA-384 (RFC 8017, Section 9.1.1): a number of at most ``bits`` bits."""
    length = (bits + 7) // 8
    digest = hashlib.sha384(bytes(8) + hashlib.sha384(message).digest() + salt).digest()
    block = bytes(length - len(salt) - _HASH - 2) + b"\x01" + salt
    mask = b"".join(hashlib.sha384(digest + i.to_bytes(4)).digest() for i in range(-(-len(block) // _HASH)))
    masked = bytearray(x ^ y for x, y in zip(block, mask, strict=False))
    masked[0] &= 0xFF >> (8 * length - bits)
    return bytes(masked) + digest + b"\xbc"
