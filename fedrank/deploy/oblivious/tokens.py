"""Tokens that anyone can verify and no one can link: type 0x0002 of RFC 9578, with the forms of RFC 9577.

A device draws a nonce and has a hub sign the token that holds it, blinded (:mod:`fedrank.deploy.oblivious.blind_rsa`).
The challenge that a token answers is not sent: it follows from the hub's name and the epoch, alike for all devices.

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
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

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
    """Part of a token that its signature is about."""
    return token[:-MODULUS]


def spending_number(token: bytes) -> int:
    """Number of a token when it is spent: 63 bits of a hash of its nonce and key.

    Two tokens of honest devices have the same by a chance of 2⁻⁶³. Whoever looks for two that do can make both out of
    their own nonces only, and then has two tokens of which one is worth nothing.
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


_TABLES = (
    """CREATE TABLE IF NOT EXISTS token (
    hub TEXT NOT NULL, epoch INTEGER NOT NULL,
    key BLOB NOT NULL, content BLOB NOT NULL, inverse BLOB, request BLOB,
    token BLOB,     -- NULL: not bought yet, or, without a request, never
    ripe REAL,      -- seconds since 1970 before which it is not shown
    round INTEGER,  -- whose message it is shown with; NULL: none yet
    PRIMARY KEY (hub, epoch))""",
    "CREATE TABLE IF NOT EXISTS issuer (hub TEXT NOT NULL, epoch INTEGER NOT NULL, key BLOB, PRIMARY KEY (hub, epoch))",
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


class Wallet:
    """A device's tokens, in its file: drawn, bought, and bound to a message before they are shown.

    Each step is on the disk before anything leaves that follows from it, so that a device which ends at any point goes
    on with the same bytes:

    *drawn*    nonce and blinding of an epoch's token; the same request is sent until it is answered
    *bought*   the answer made a token of it; what undoes the blinding is deleted
    *bound*    the token belongs to the message of one round, and is shown with no other

    Call the methods with the device's lock held.

    Args:
        outbox: The device's file. Methods raise what it raises.
    """

    def __init__(self, outbox: DeviceFile):
        self._outbox = outbox
        for table in _TABLES:
            outbox.execute(table)

    def objection(self, hub: str, keys: dict[int, bytes]) -> str:
        """Reason why published keys are not used; empty if they are those that were published before.

        Args:
            hub: Name of the hub.
            keys: Keys by epoch, as the hub publishes them now.
        """
        with self._outbox.transaction():
            for epoch, key in keys.items():
                self._outbox.execute("INSERT OR IGNORE INTO issuer VALUES (?, ?, ?)", (hub, epoch, key))
                ((known,),) = self._outbox.execute("SELECT key FROM issuer WHERE (hub, epoch) = (?, ?)", (hub, epoch))
                if known != key:
                    return f"the hub changed the key of the tokens of epoch {epoch}; none is bought or shown"
        return ""

    def wants(self, hub: str, epoch: int) -> bool:
        """True if the token of an epoch is still to be bought."""
        rows = self._rows("token IS NULL AND request IS NOT NULL", hub, epoch)
        return bool(rows) or not self._rows("1", hub, epoch)

    def begun(self, hub: str, epoch: int) -> bool:
        """True if the token of an epoch was drawn, so that the hub may know of it."""
        return bool(self._rows("1", hub, epoch))

    def draw(self, hub: str, epoch: int, key: bytes) -> Asked:
        """Request to the hub for a token: the same as before, or drawn now and written down.

        Raises:
            WireError: The key is none.
        """
        with self._outbox.transaction(durable=True):
            if not self._rows("1", hub, epoch):
                asked = ask_for(key, epoch_challenge(hub, epoch))
                self._outbox.execute(
                    "INSERT INTO token (hub, epoch, key, content, inverse, request) VALUES (?, ?, ?, ?, ?, ?)",
                    (hub, epoch, key, asked.content, asked.inverse, asked.request),
                )
        ((key, content, inverse, request),) = self._rows("1", hub, epoch, "key, content, inverse, request")
        return Asked(key, content, inverse, request)

    def bought(self, hub: str, epoch: int, asked: Asked, response: bytes, ripe: float) -> bool:
        """Make the token from the hub's answer; False if the answer makes none.

        Args:
            hub: Name of the hub.
            epoch: Number of the epoch.
            asked: As :meth:`draw` returned it.
            response: The answer.
            ripe: Seconds since 1970 before which the token is not shown.
        """
        try:
            token = asked.token(response)
        except WireError:
            return False
        self._outbox.execute(
            "UPDATE token SET token = ?, ripe = ?, inverse = NULL, request = NULL WHERE (hub, epoch) = (?, ?)",
            (token, ripe, hub, epoch),
        )
        return True

    def give_up(self, hub: str, epoch: int) -> None:
        """There will be no token of this epoch: the hub sold this device another."""
        self._outbox.execute(
            "UPDATE token SET inverse = NULL, request = NULL WHERE (hub, epoch) = (?, ?)", (hub, epoch)
        )

    def spendable(self, hub: str, epoch: int, round_: int, now: float, longest: float) -> bytes | None:
        """The token that may be shown with the message of a round; None if there is none.

        Args:
            hub: Name of the hub.
            epoch: Epoch of the round.
            round_: Number of the round.
            now: Seconds since 1970.
            longest: Longest time from buying a token to showing it that is ever drawn, in seconds.
        """
        rows = self._rows("token IS NOT NULL", hub, epoch, "token, ripe, round")
        if not rows:
            return None
        token, ripe, bound = rows[0]
        # One that seems to ripen later than any does was bought while the clock was ahead.
        ripens = now < ripe <= now + longest
        return None if ripens or bound not in (None, round_) else token

    def bind(self, hub: str, epoch: int, round_: int) -> bool:
        """Bind the epoch's token to the message of a round, in the caller's transaction; False if it cannot be."""
        query = (
            "UPDATE token SET round = ? WHERE (hub, epoch) = (?, ?) AND token IS NOT NULL AND coalesce(round, ?) = ?"
        )
        self._outbox.execute(query, (round_, hub, epoch, round_, round_))
        return bool(self._rows("round = " + str(int(round_)), hub, epoch))

    def forget(self, hub: str, before: int) -> None:
        """Delete a hub's tokens and keys of epochs before this one."""
        for table in ("token", "issuer"):
            self._outbox.execute(f"DELETE FROM {table} WHERE hub = ? AND epoch < ?", (hub, before))

    def _rows(self, where: str, hub: str, epoch: int, columns: str = "1") -> list[tuple]:
        return self._outbox.execute(
            f"SELECT {columns} FROM token WHERE (hub, epoch) = (?, ?) AND {where}", (hub, epoch)
        )
