"""Tokens that anyone can verify and no one can link: type 0x0002 of RFC 9578, with the forms of RFC 9577.

A device draws a nonce and has a hub sign the token that holds it, blinded.
The challenge that a token answers is not sent: it follows from the hub's name, the epoch and the commitment to the
epoch's secret (:class:`fedrank.deploy.draws.Beacon`), alike for all devices. What a hub publishes of an epoch, its
*offer*, is the issuer's public key followed by that commitment, the SHA-256 of the secret.

=====================  =====  ==========================================
token, 354 bytes       bytes
=====================  =====  ==========================================
type                   2      0x0002
nonce                  32     from the operating system
challenge              32     SHA-256 of the challenge
key                    32     SHA-256 of the issuer's public key
signature              256    RSASSA-PSS over all of the above
=====================  =====  ==========================================

Signatures are blind ones, RSABSSA-SHA384-PSS-Deterministic of RFC 9474. An issuer signs a message without seeing it.
The client encodes the message as for an RSA-PSS signature (EMSA-PSS, RFC 8017, Section 9.1.1), multiplies it by r^e for
a random r, and has the product signed; divided by r, the signature is an ordinary RSA-PSS signature of the message.
Whoever signed saw a number that is uniform whatever the message is: that nothing links it to the signature holds
against unbounded computers, and does not rest on RSA being hard.

Signatures are verified by ``cryptography``. It has no RSA without padding, which blinding needs. That is done here, as
a power in integers: for the client by Python's own, whose exponent is public; for the signer by GMP's ``powm_sec``,
whose time does not depend on the numbers, on a base that is blinded once more, by the signer itself.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import math
import re
import secrets
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

from fedrank.core.errors import MissingExtraError, WireError
from fedrank.deploy.draws import Beacon

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


#: The token type Blind RSA (2048-bit), in two bytes.
TOKEN_TYPE = b"\x00\x02"
#: Bytes of an RSA modulus, of a nonce, and of a hash.
MODULUS, NONCE, HASH = 256, 32, 32
#: Bytes of a token request, and of a token.
REQUEST_BYTES, TOKEN_BYTES = len(TOKEN_TYPE) + 1 + MODULUS, len(TOKEN_TYPE) + NONCE + 2 * HASH + MODULUS
_HEADER = re.compile(rb'PrivateToken token="?([A-Za-z0-9_-]{472})"?', re.IGNORECASE)
# SubjectPublicKeyInfo with the OID of RSASSA-PSS and its parameters (SHA-384, MGF1 with SHA-384, salt of 48 bytes), as
# RFC 9578, Section 6.5 prescribes; `cryptography` writes another OID. All keys of 2048 bits begin and end alike.
_BEFORE = bytes.fromhex(
    "30820152303d06092a864886f70d01010a3030a00d300b0609608648016503040202a11a301806092a864886f70d010108300b0609608648"
    "016503040202a2030201300382010f003082010a0282010100"
)
_AFTER = bytes.fromhex("0203") + EXPONENT.to_bytes(3)


def encode_key(key: PublicKey) -> bytes:
    """A public key of 2048 bits as issuers publish it."""
    if key.n.bit_length() != 8 * MODULUS:
        raise WireError(f"an issuer's key has {8 * MODULUS} bits, got {key.n.bit_length()}.")
    return _BEFORE + key.n.to_bytes(MODULUS) + _AFTER


def decode_key(data: bytes) -> PublicKey:
    """The inverse of :func:`encode_key`.

    Raises:
        WireError: It is no RSASSA-PSS key of 2048 bits with the exponent 65,537.
    """
    n = int.from_bytes(data[len(_BEFORE) : -len(_AFTER)])
    if data != _BEFORE + data[len(_BEFORE) : -len(_AFTER)] + _AFTER or n.bit_length() != 8 * MODULUS or n % 2 == 0:
        raise WireError("an issuer's key is not one of RSASSA-PSS with 2048 bits (RFC 9578, Section 6.5).")
    return PublicKey(n)


def offer_of(key: bytes, commitment: bytes) -> bytes:
    """The offer of an epoch, as published: the issuer's key and the SHA-256 of the epoch's secret."""
    return key + commitment


def parts_of(offer: bytes) -> tuple[bytes, bytes]:
    """The inverse of :func:`offer_of`: key and commitment."""
    return offer[:-HASH], offer[-HASH:]


def challenge_of(issuer: str, context: bytes, origin: str = "") -> bytes:
    """A token challenge (RFC 9577, Section 2.1).

    Args:
        issuer: Name of the issuer, ASCII.
        context: Redemption context: 32 bytes, or none.
        origin: Names of origins, ASCII.
    """
    name, origins = issuer.encode("ascii"), origin.encode("ascii")
    parts = ((name, 2), (context, 1), (origins, 2))  # each behind its length, in bytes of this number
    return TOKEN_TYPE + b"".join(len(part).to_bytes(size) + part for part, size in parts)


def epoch_challenge(hub: str, epoch: int, commitment: bytes) -> bytes:
    """SHA-256 of the challenge that tokens of an epoch answer.

    Args:
        hub: Name of the hub, which is the issuer.
        epoch: Number of the epoch, below 2³².
        commitment: SHA-256 of the epoch's secret: a token is good under no other.
    """
    context = hashlib.sha256(b"fedrank-epoch" + epoch.to_bytes(4) + commitment).digest()
    return hashlib.sha256(challenge_of(hub, context)).digest()


def key_id(encoded: bytes) -> bytes:
    """The identifier of a published key: its SHA-256."""
    return hashlib.sha256(encoded).digest()


@dataclass(frozen=True)
class Asked:
    """A token that was asked for, and what makes it from the answer.

    Attributes:
        key: The issuer's key, as published.
        content: The token without its signature.
        inverse: Undoes the blinding. With it, whoever signed can tell the token: it never leaves the device.
        request: The token request, as sent.
    """

    key: bytes
    content: bytes
    inverse: bytes
    request: bytes

    def token(self, response: bytes) -> bytes:
        """The token, from the issuer's response.

        Raises:
            WireError: The response is no signature under the key.
        """
        return self.content + finalise(decode_key(self.key), self.content, response, self.inverse)


def ask_for(
    key: bytes,
    challenge: bytes,
    *,
    nonce: bytes | None = None,
    salt: bytes | None = None,
    inverse: int | None = None,
) -> Asked:
    """Begin to buy a token.

    Args:
        key: The issuer's key, as published.
        challenge: SHA-256 of the challenge.
        nonce: 32 bytes; from the operating system unless a test vector gives them, as the salt and the inverse are.
        salt: As of :func:`~fedrank.deploy.oblivious.tokens.blind`.
        inverse: As of :func:`~fedrank.deploy.oblivious.tokens.blind`.

    Raises:
        WireError: The key is none.
    """
    content = TOKEN_TYPE + (secrets.token_bytes(NONCE) if nonce is None else nonce) + challenge + key_id(key)
    blinded, back = blind(decode_key(key), content, salt=salt, inverse=inverse)
    return Asked(key, content, back, TOKEN_TYPE + key_id(key)[-1:] + blinded)


def blinded_in(request: bytes, key: bytes) -> bytes:
    """The blinded message in a token request for a key.

    Raises:
        WireError: It is no token request, or one for another key.
    """
    if len(request) != REQUEST_BYTES or request[:3] != TOKEN_TYPE + key_id(key)[-1:]:
        raise WireError("this is no token request for this key (RFC 9578, Section 6.1).")
    return request[3:]


def key_id_in(token: bytes) -> bytes:
    """The identifier of the key that a token says it was signed with."""
    return token[66:98]


def content_of(token: bytes) -> bytes:
    """Part of a token that its signature is about."""
    return token[:-MODULUS]


def spending_number(token: bytes) -> int:
    """Number of a token when it is spent: 63 bits of a hash of its content without the signature.

    A content may have several signatures; they are one token. Two tokens of honest devices have the same number by a
    chance of 2⁻⁶³. A buyer who looks for two that do finds them among nonces that they drew, and then has two tokens of
    which one is worth nothing.
    """
    return int.from_bytes(hashlib.sha256(content_of(token)).digest()[:8]) >> 1


def draw_key(number: int) -> bytes:
    """The key of the draws of a token (:mod:`fedrank.deploy.draws`): its spending number, 8 bytes, big-endian."""
    return number.to_bytes(8)


def header_of(token: bytes) -> str:
    """The value of the header ``Authorization`` that shows a token (RFC 9577, Section 2.2)."""
    return f'PrivateToken token="{base64.urlsafe_b64encode(token).decode()}"'


def token_in(header: bytes | None) -> bytes | None:
    """The token in such a header; None if there is none that has a token's length and type."""
    found = None if header is None else _HEADER.fullmatch(header)
    if found is None:
        return None
    try:
        token = base64.b64decode(found[1], altchars=b"-_", validate=True)
    except binascii.Error:
        return None
    return token if len(token) == TOKEN_BYTES and token[:2] == TOKEN_TYPE else None


_TABLES = (
    # Of versions before tokens drew; hubs of their kind are not spoken to any more.
    "DROP TABLE IF EXISTS token",
    "DROP TABLE IF EXISTS issuer",
    """CREATE TABLE IF NOT EXISTS epoch_token (
    hub TEXT NOT NULL, epoch INTEGER NOT NULL,
    offer BLOB NOT NULL, content BLOB NOT NULL, inverse BLOB, request BLOB,
    token BLOB,     -- NULL: not bought yet, or, without a request, never
    beacon BLOB,    -- of its draws; NULL: not known yet
    PRIMARY KEY (hub, epoch))""",
)


@runtime_checkable
class DeviceFile(Protocol):
    """The part of a device's SQLite file that a wallet uses; the file's own package imports this module."""

    def execute(self, statement: str, values: tuple = ()) -> list[tuple]:
        """Run one SQL statement with its values; returns the rows of its result, empty if it has none."""
        ...

    def transaction(self, *, durable: bool = False) -> AbstractContextManager[None]:
        """Context in which statements are committed together, or not at all; ``durable``: synced to disk at its end."""
        ...


class Held(NamedTuple):
    """A token of a device; columns as in the table above."""

    offer: bytes
    content: bytes
    inverse: bytes | None
    request: bytes | None
    token: bytes | None
    beacon: bytes | None

    @property
    def pending(self) -> Asked | None:
        """The request and its blinding; None: the token was bought, or never will be."""
        if self.token is not None or self.request is None or self.inverse is None:
            return None
        return Asked(parts_of(self.offer)[0], self.content, self.inverse, self.request)

    @property
    def key(self) -> bytes:
        """The key by which this token draws, 8 bytes: the hash of its content without the signature."""
        return draw_key(spending_number(self.content + bytes(MODULUS)))


class Wallet:
    """A device's tokens, in its file: drawn, bought, and shown with the one report that they draw.

    Each step is on the disk before anything leaves that follows from it, so that a device which ends at any point goes
    on with the same bytes:

    *drawn*    nonce and blinding of an epoch's token; the same request is sent until it is answered
    *bought*   the answer made a token of it; what undoes the blinding is deleted
    *drawing*  the beacon that decides in which round of its epoch it is shown: with another it would be shown twice

    Call the methods with the device's lock held.

    Args:
        outbox: The device's file. Methods raise what it raises.
    """

    def __init__(self, outbox: DeviceFile):
        self._outbox = outbox
        for table in _TABLES:
            outbox.execute(table)

    def find(self, hub: str, epoch: int) -> Held | None:
        """The token of an epoch; None if none was drawn, so that the hub knows of none."""
        select = "SELECT offer, content, inverse, request, token, beacon FROM epoch_token WHERE (hub, epoch) = (?, ?)"
        rows = self._outbox.execute(select, (hub, epoch))
        return Held(*rows[0]) if rows else None

    def draw(self, hub: str, epoch: int, offer: bytes) -> Asked | None:
        """Request to the hub for a token: the same as before, or drawn now and written down; None if it was bought.

        Raises:
            WireError: The offer is none.
        """
        with self._outbox.transaction(durable=True):
            if self.find(hub, epoch) is None:  # another process of the device may have been faster
                key, commitment = parts_of(offer)
                asked = ask_for(key, epoch_challenge(hub, epoch, commitment))
                self._outbox.execute(
                    "INSERT INTO epoch_token (hub, epoch, offer, content, inverse, request) VALUES (?, ?, ?, ?, ?, ?)",
                    (hub, epoch, offer, asked.content, asked.inverse, asked.request),
                )
        held = self.find(hub, epoch)
        return None if held is None else held.pending

    def keep_bought(self, hub: str, epoch: int, asked: Asked, response: bytes) -> bool:
        """Make the token from the hub's answer; False if the answer makes none.

        Args:
            hub: Name of the hub.
            epoch: Number of the epoch.
            asked: As :meth:`draw` returned it.
            response: The answer.
        """
        try:
            token = asked.token(response)
        except WireError:
            return False
        update = "UPDATE epoch_token SET token = ?, inverse = NULL, request = NULL WHERE (hub, epoch) = (?, ?)"
        self._outbox.execute(update, (token, hub, epoch))
        return True

    def give_up(self, hub: str, epoch: int) -> None:
        """There will be no token of this epoch: the hub sold this device another, or sells none any more."""
        update = "UPDATE epoch_token SET inverse = NULL, request = NULL WHERE (hub, epoch) = (?, ?)"
        self._outbox.execute(update, (hub, epoch))

    def take_beacon(self, hub: str, epoch: int, beacon: Beacon) -> str:
        """Have a token draw by this from now on; the reason why it does not, empty if it does."""
        held = self.find(hub, epoch)
        if held is None:
            return "there is no token of this epoch"
        committed = epoch_challenge(hub, epoch, hashlib.sha256(beacon.secret).digest())
        if held.content[2 + NONCE : 2 + NONCE + HASH] != committed:
            return f"the hub shows another secret of epoch {epoch} than the one whose hash it published before"
        if held.beacon not in (None, beacon.value):
            return f"the hub changed what the tokens of epoch {epoch} draw by"
        update = "UPDATE epoch_token SET beacon = ? WHERE (hub, epoch) = (?, ?)"
        self._outbox.execute(update, (beacon.value, hub, epoch))
        return ""

    def forget_key(self, hub: str, key: bytes) -> None:
        """Delete a hub's tokens that are signed with a key, given by its identifier: another took its place."""
        self._outbox.execute("DELETE FROM epoch_token WHERE hub = ? AND substr(content, 67, 32) = ?", (hub, key))

    def forget(self, hub: str, before: int) -> None:
        """Delete a hub's tokens of epochs before this one."""
        self._outbox.execute("DELETE FROM epoch_token WHERE hub = ? AND epoch < ?", (hub, before))
