"""Tokens that anybody can verify and nobody can link: type 0x0002 of RFC 9578, with the forms of RFC 9577.

A device draws a nonce and has a hub sign the token that holds it, blinded (:mod:`fedrank.deploy.oblivious.blind_rsa`).
The challenge that a token answers is not sent: it follows from the hub's name and the epoch, alike for everybody.

=====================  =====  ==========================================
token, 354 bytes       bytes
=====================  =====  ==========================================
type                   2      0x0002
nonce                  32     from the operating system
challenge              32     SHA-256 of the challenge
key                    32     SHA-256 of the issuer's public key
signature              256    RSASSA-PSS over all of the above
=====================  =====  ==========================================
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
import secrets
from dataclasses import dataclass

from fedrank.core.errors import WireError
from fedrank.deploy.oblivious.blind_rsa import EXPONENT, PublicKey, blind, finalise

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


def challenge_of(issuer: str, context: bytes, origin: str = "") -> bytes:
    """A token challenge (RFC 9577, Section 2.1).

    Args:
        issuer: Name of the issuer, ASCII.
        context: Redemption context: 32 bytes, or none.
        origin: Names of origins, ASCII.
    """
    name, origins = issuer.encode("ascii"), origin.encode("ascii")
    return (
        TOKEN_TYPE
        + len(name).to_bytes(2)
        + name
        + len(context).to_bytes(1)
        + context
        + len(origins).to_bytes(2)
        + origins
    )


def epoch_challenge(hub: str, epoch: int) -> bytes:
    """SHA-256 of the challenge that tokens of an epoch answer.

    Args:
        hub: Name of the hub, which is the issuer.
        epoch: Number of the epoch, below 2³².
    """
    context = hashlib.sha256(b"fedrank-epoch" + epoch.to_bytes(4)).digest()
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
        salt: As of :func:`~fedrank.deploy.oblivious.blind_rsa.blind`.
        inverse: As of :func:`~fedrank.deploy.oblivious.blind_rsa.blind`.

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
    """What the signature of a token is about."""
    return token[:-MODULUS]


def spending_number(token: bytes) -> int:
    """What a token is known by when it is spent: 63 bits of a hash of its nonce and key.

    Two tokens of honest devices have the same by a chance of 2⁻⁶³. Whoever looks for two that do can make both out of
    nonces of their own only, and then has two tokens of which one is worth nothing.
    """
    return int.from_bytes(hashlib.sha256(content_of(token)).digest()[:8]) >> 1


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
