"""Key agreement: silos agree on the secret of their sketches through a server that must not learn it.

Every silo contributes 32 random bytes, and the secret is a hash of all contributions that arrived: it is unpredictable
as long as one silo drew honestly. Two exchanges, both relayed by the server::

    silo → server   its X25519 public key, fresh for this agreement
    server → silo   all public keys (a roster)
    silo → server   its contribution, sealed for each other silo
    server → silo   what the others sealed for it
    each silo       secret = keyed hash of (roster, who contributed, contributions in the silos' order)

**What the server sees**: public keys and sealed bytes. From them it learns nothing about the secret as long as it only
relays (X25519, HKDF-SHA256, ChaCha20-Poly1305; see :mod:`fedrank.privacy.secure_sum.crypto`).

**What a server that swaps keys can do**: there is no certificate here that says whose key a key is. A server that hands
out own keys in place of the silos' opens every contribution, seals it anew, and knows the secrets. It cannot do
so *unnoticed by people who compare*: every silo hashes the roster that it was shown, its own true key included, so two
silos that were shown different keys get different secrets, and with them different :func:`fingerprint` values. Silos
with different secrets also cannot read each other's sketches, but that shows too late.

So, before anything is published, compare by telephone: *every* silo of :attr:`Agreement.members` reads out its
fingerprint, and all are equal. Every one, because a server can also put an own key in the place of a silo that is
gone: then those that remain are shown one roster and agree with each other, and only that silo, asked by telephone,
knows of nothing. A silo that is itself on the server's side gives the secret away; nothing helps against it.

A deployed silo's process ends between messages, so that :class:`Agreement` can be written and read as arrays of bytes.
They hold the private key: they stay on the silo's machine, readable by it alone, and are deleted when the secret is
made.

Sealing between silos that share a secret: the server that passes bytes on reads none of them.

ChaCha20-Poly1305 from *cryptography*, under a key that is derived from the silos' common secret (HKDF-SHA256) for one
purpose, one sender and one reader. The nonce is random, from the operating system, also in a simulation, where nothing
depends on it.

**What a seal hides**: everything but its length, from the server and from whoever listens. **From whom it does not
hide**: silos. All of them have the secret, so that a silo that works with the server opens everything for it; what a
silo may know of another's documents is what the noise leaves (:mod:`fedrank.texts.sketch.noise`).
"""

from __future__ import annotations

import base64
import hashlib
import os
import secrets
from collections.abc import Callable, Mapping
from typing import NoReturn

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from jaxtyping import UInt8

from fedrank.core.errors import ConfigError, SecureSumError
from fedrank.privacy.secure_sum import crypto
from fedrank.privacy.secure_sum.messages import KEY
from fedrank.privacy.secure_sum.party import rows, to_array, to_bytes

#: Bytes of a sealed contribution: the contribution and a tag of 16.
SEALED = KEY + 16
#: Silos that an agreement may have.
LARGEST = 255

_PERSON = b"fedrank sketch k"
_NUMBER = 2  # bytes of a silo's number
#: Of scrypt (RFC 7914), 16 MiB and some hundredths of a second: whoever searches for two secrets of one fingerprint
#: pays this for each.
_SCRYPT = {"n": 2**14, "r": 8, "p": 1}
_LETTERS = 20  # five bits each
_GROUP = 4


class Agreement:
    """One silo's part in one agreement; used in order: :attr:`public`, :meth:`contribute`, :meth:`secret`.

    Asked again with the same messages, every step gives the same reply, so that a message may be repeated.

    Args:
        silos: Silos that may take part, 2 … 255.
        number: This silo's number, from 0.
        draw: Function from a number to that many random bytes. Anything but the operating system's is for simulations,
            whose secrets then follow from their seed and are no protection.

    Raises:
        ConfigError: A number is out of range.
    """

    def __init__(self, silos: int, number: int, draw: Callable[[int], bytes] = secrets.token_bytes):
        if not 2 <= silos <= LARGEST:
            raise ConfigError(f"silos that agree on a secret must be in 2..{LARGEST}, got {silos}.")
        if not 0 <= number < silos:
            raise ConfigError(f"number of a silo must be in 0..{silos - 1}, got {number}.")
        self.silos, self.number = silos, number
        self._private = draw(KEY)
        self._contribution = draw(KEY)
        self._keys = b""  # the roster, after it was shown

    @property
    def public(self) -> UInt8[np.ndarray, "32"]:
        """This silo's public key, which it sends first."""
        return to_array(crypto.public_key(self._private))

    @property
    def members(self) -> tuple[int, ...]:
        """Numbers of the silos on the roster that was shown, this one included; empty before."""
        return tuple(silo for silo, key in enumerate(rows(to_array(self._keys), KEY)) if any(key))

    def contribute(self, keys: UInt8[np.ndarray, " key_bytes"]) -> UInt8[np.ndarray, " sealed_bytes"]:
        """The contribution, sealed for each other silo on the roster.

        Args:
            keys: Public keys of 32 bytes in the silos' order; zeros where a silo is gone.

        Returns:
            A sealed contribution of 48 bytes for each silo; zeros for this one and those that are gone.

        Raises:
            SecureSumError: The roster is not of the form, does not hold this silo's own key at its place, lists a key
                twice or no other silo, or is another than the one shown before.
        """
        roster = to_bytes(keys)
        listed = rows(np.frombuffer(roster, np.uint8), KEY)
        if len(roster) != self.silos * KEY:
            self._refuse(f"a roster of {self.silos} keys has {self.silos * KEY} bytes, got {len(roster)}")
        if listed[self.number] != crypto.public_key(self._private):
            self._refuse("the roster holds another key in this silo's place: another party swaps keys")
        present = [key for key in listed if any(key)]
        if len(present) < 2:
            self._refuse("the roster lists no other silo; a secret of one silo serves no purpose")
        if len(set(present)) < len(present):
            self._refuse("a public key is listed twice: one party poses as two silos")
        if self._keys and self._keys != roster:
            self._refuse("it was shown two different rosters")
        self._keys = roster
        sealed = [
            bytes(SEALED)
            if other == self.number or not any(key)
            else crypto.seal(self._pair_key(other, self.number, other), self._contribution, self._session)
            for other, key in enumerate(listed)
        ]
        return to_array(b"".join(sealed))

    def secret(self, sealed: UInt8[np.ndarray, " sealed_bytes"]) -> bytes:
        """The common secret of all who contributed.

        Args:
            sealed: The contribution of 48 bytes that each silo sealed for this one; zeros where nothing arrived.

        Returns:
            32 bytes, the same in every silo that was shown the same roster and was handed contributions of the same
            silos. Where the server hands some silo fewer of them, secrets differ: :func:`fingerprint` tells.

        Raises:
            SecureSumError: No roster was shown yet, a contribution was changed on the way or sealed by a silo that
                was shown another roster, or no other silo contributed.
        """
        if not self._keys:
            self._refuse("asked for the secret before a roster was shown")
        parcels = rows(sealed, SEALED)
        if len(parcels) != self.silos or len(parcels[-1]) != SEALED:
            self._refuse(f"sealed contributions have {self.silos * SEALED} bytes, got {np.size(sealed)}")
        contributions = {self.number: self._contribution}
        for other, (parcel, key) in enumerate(zip(parcels, rows(to_array(self._keys), KEY), strict=True)):
            if other == self.number or not any(parcel):
                continue
            if not any(key):
                self._refuse(f"silo {other} contributes and is not on the roster")
            try:
                pair = self._pair_key(other, other, self.number)
                contributions[other] = crypto.unseal(pair, parcel, self._session)
            except SecureSumError as error:
                self._refuse(f"from silo {other}: {error}")
        if len(contributions) < 2:
            self._refuse("no other silo contributed; a secret of one silo serves no purpose")
        text = b"".join(_number(silo) + contributions[silo] for silo in sorted(contributions))
        # The roster is the key of the hash, through a hash as it is longer than a key may be; all parts have a fixed
        # length, so that no two lists of contributions make the same text.
        roster = hashlib.blake2b(self._keys, digest_size=KEY, person=_PERSON).digest()
        return hashlib.blake2b(text, digest_size=KEY, key=roster, person=_PERSON).digest()

    def state(self) -> dict[str, UInt8[np.ndarray, " _"]]:
        """All that this silo has to remember between messages, the private key included."""
        return {
            "place": to_array(_number(self.silos) + _number(self.number)),
            "private": to_array(self._private),
            "contribution": to_array(self._contribution),
            "keys": to_array(self._keys),
        }

    @classmethod
    def from_state(cls, state: Mapping[str, np.ndarray]) -> Agreement:
        """The agreement as it was written by :meth:`state`.

        Raises:
            SecureSumError: The arrays are not those of an agreement.
        """
        try:
            place, private, contribution, keys = (
                to_bytes(state[name]) for name in ("place", "private", "contribution", "keys")
            )
        except KeyError as error:
            raise SecureSumError(f"the state of a key agreement lacks {error}; start the agreement anew.") from error
        if len(place) != 2 * _NUMBER or len(private) != KEY or len(contribution) != KEY:
            raise SecureSumError("the state of a key agreement is damaged; start the agreement anew.")
        made = cls(int.from_bytes(place[:_NUMBER], "little"), int.from_bytes(place[_NUMBER:], "little"))
        if len(keys) not in (0, made.silos * KEY):
            raise SecureSumError("the state of a key agreement is damaged; start the agreement anew.")
        made._private, made._contribution, made._keys = private, contribution, keys
        return made

    @property
    def _session(self) -> bytes:
        """A name that only those share who were shown the same roster."""
        return hashlib.blake2b(self._keys, digest_size=16, person=_PERSON).digest()

    def _pair_key(self, other: int, sender: int, receiver: int) -> bytes:
        public = rows(to_array(self._keys), KEY)[other]
        shared = crypto.agree(self._private, public)
        return crypto.derive(shared, self._session, "sketch-key", _number(sender), _number(receiver))

    def _refuse(self, why: str) -> NoReturn:
        raise SecureSumError(f"silo {self.number} refuses to agree on a secret: {why}.")


def fingerprint(secret: bytes) -> str:
    """Twenty letters and digits that people can compare by telephone; they are equal only if the secrets are.

    100 bits, through a slow hash: a server that sits between two silos and looks for two secrets of one fingerprint
    while they wait would need about 2⁵⁰ trials of a few hundredths of a second each. The letters say nothing about the
    secret, which is 256 random bits.

    Args:
        secret: From :meth:`Agreement.secret`.

    Returns:
        Five groups of four, such as ``"k3vq-7ha2-…"``, without 0, 1, 8 and 9 (RFC 4648, base 32).
    """
    digest = hashlib.scrypt(secret, salt=_PERSON, dklen=_LETTERS * 5 // 8 + 1, **_SCRYPT)
    letters = base64.b32encode(digest).decode().lower()[:_LETTERS]
    return "-".join(letters[i : i + _GROUP] for i in range(0, _LETTERS, _GROUP))


def _number(silo: int) -> bytes:
    return silo.to_bytes(_NUMBER, "little")


#: Bytes that a seal adds: nonce and tag.
NONCE = 12
ADDED = NONCE + 16
#: Reader of what every silo may open; silos have numbers below.
ALL_SILOS = 2**16 - 1
_SALT = b"fedrank sketches"


def seal(secret: bytes, purpose: str, sender: int, reader: int, text: bytes) -> bytes:
    """Seal bytes for a silo, or for all silos.

    Args:
        secret: The silos' common secret, 32 bytes.
        purpose: One word.
        sender: Number of the silo that seals.
        reader: Number of the silo that opens, or :data:`ALL_SILOS`.
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
