"""Oblivious HTTP (RFC 9458): a request encrypted to a gateway, so that whoever passes it on cannot read it.

One suite is spoken: DHKEM(X25519, HKDF-SHA256), HKDF-SHA256, AES-128-GCM; HPKE (RFC 9180) is that of ``pyhpke``.
``cryptography`` has HPKE as well, but exports no secret, from which the response's key follows.
"""

from __future__ import annotations

import contextlib
import functools
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fedrank.core.errors import MissingExtraError, WireError

#: Media types of encapsulated requests and responses, and of key configurations.
REQUEST_TYPE, RESPONSE_TYPE, KEYS_TYPE = "message/ohttp-req", "message/ohttp-res", "application/ohttp-keys"
#: Bytes of an X25519 key, and of an encapsulated key.
KEY_BYTES = 32
#: Identifier of the one key of a gateway.
KEY_ID = 1
# Key identifier, KEM, KDF, AEAD: the header of an encapsulated request.
_HEADER = bytes([KEY_ID]) + bytes.fromhex("002000010001")
_REQUEST_INFO, _RESPONSE_LABEL = b"message/bhttp request\x00" + _HEADER, b"message/bhttp response"
#: Length of the AEAD's key, and of the response's nonce: the larger of the key's length and the AEAD nonce's.
_SECRET, _NONCE, _TAG = 16, 12, 16
#: Seconds for which a gateway remembers what it opened, and most that it remembers twice over (about 10 MB each).
_REMEMBERED, _MOST_REMEMBERED = 600.0, 100_000
#: Bytes that encapsulation adds to a request, and to a response.
REQUEST_OVERHEAD, RESPONSE_OVERHEAD = len(_HEADER) + KEY_BYTES + _TAG, _SECRET + _TAG


def key_configuration(public: bytes) -> bytes:
    """A gateway's key configuration as it is published: one configuration after its length (RFC 9458, Section 3)."""
    one = _HEADER[:3] + public + (4).to_bytes(2) + _HEADER[3:]
    return len(one).to_bytes(2) + one


def public_key_in(configuration: bytes) -> bytes:
    """The key in such a configuration.

    Raises:
        WireError: It is not one key of the suite that is spoken here.
    """
    public = configuration[5 : 5 + KEY_BYTES]
    if len(public) != KEY_BYTES or configuration != key_configuration(public):
        raise WireError("a gateway's key configuration is not one key of X25519 with HKDF-SHA256 and AES-128-GCM.")
    return public


@dataclass(frozen=True)
class Encapsulated:
    """A request that was encapsulated, and what opens its response.

    Attributes:
        request: As it is sent.
        context: HPKE context of the request.
    """

    request: bytes
    context: Any

    def open(self, response: bytes) -> bytes:
        """The response in an encapsulated one.

        Raises:
            WireError: It was not made for this request.
        """
        aead, nonce = _response_cipher(self.context, self.request[len(_HEADER) :][:KEY_BYTES], response[:_SECRET])
        return _open(aead, nonce, response)


@dataclass(frozen=True)
class Decapsulated:
    """A request that was opened, and what seals its response.

    Attributes:
        request: The request inside.
        sender: The sender's encapsulated key.
        context: HPKE context of the request.
    """

    request: bytes
    sender: bytes
    context: Any

    def seal(self, response: bytes, nonce: bytes | None = None) -> bytes:
        """A response as it is sent; ``nonce``, 16 bytes, is the operating system's unless a test vector has it."""
        nonce = os.urandom(_SECRET) if nonce is None else nonce
        aead, inner = _response_cipher(self.context, self.sender, nonce)
        return nonce + aead.encrypt(inner, response, None)


def encapsulate(public: bytes, request: bytes, ephemeral: Any = None) -> Encapsulated:
    """Encrypt a request to a gateway.

    Args:
        public: The gateway's key, 32 bytes.
        request: The request, as Binary HTTP.
        ephemeral: Key pair of ``pyhpke`` in place of a fresh one, for test vectors.

    Raises:
        WireError: The key is none.
    """
    try:
        receiver = _suite().kem.deserialize_public_key(public)
        sender, context = _suite().create_sender_context(receiver, _REQUEST_INFO, eks=ephemeral)
    except (ValueError, _failures()) as error:
        raise WireError("a gateway's key cannot be used.") from error
    return Encapsulated(_HEADER + sender + context.seal(request), context)


class ReplayedError(WireError):
    """An encapsulated request that was opened before."""


class _Seen:
    """Encapsulated keys that were seen, for :data:`_REMEMBERED` seconds at least, unless very many come.

    There are two sets; when the younger has been filled for so long, or is full, it takes the place of the older one.

    Args:
        clock: Seconds of a clock that does not go back.
    """

    def __init__(self, clock: Callable[[], float]):
        self._clock, self._turn = clock, clock()
        self._young: set[bytes] = set()
        self._old: set[bytes] = set()

    def __contains__(self, key: bytes) -> bool:
        return key in self._young or key in self._old

    def add(self, key: bytes) -> None:
        """Remember the key of an encapsulated request (bytes), for at least ten minutes unless there are very many."""
        now = self._clock()
        if now >= self._turn + _REMEMBERED or len(self._young) >= _MOST_REMEMBERED:
            self._old = self._young if now < self._turn + 2 * _REMEMBERED else set()
            self._young, self._turn = set(), now
        self._young.add(key)


class Gateway:
    """Opens encapsulated requests, each once: a relay that keeps one and sends it again gets nothing for it.

    What was opened is remembered for some minutes, in memory (RFC 9458, Section 6.5.1). A request that is sent again
    later, or after a restart, is answered: to whoever made it, since no one else can read the answer.

    Args:
        private: X25519 private keys, 32 bytes each, the newest first: while one takes another's place, both are tried.
        clock: Seconds of a clock that does not go back.

    Attributes:
        public: The newest public key, 32 bytes.

    Raises:
        MissingExtraError: pyhpke is not installed.
    """

    def __init__(self, *private: bytes, clock: Callable[[], float] = time.monotonic):
        self._seen = _Seen(clock)
        self.use(*private)

    def use(self, *private: bytes) -> None:
        """Open requests for these keys from now on, and no others; may be called while another thread opens some."""
        self._keys = [_suite().kem.deserialize_private_key(one) for one in private]
        self.public = public_key_of(private[0])

    def open(self, request: bytes) -> Decapsulated:
        """The request in an encapsulated one.

        Raises:
            ReplayedError: It was opened before.
            WireError: It is not one for this key.
        """
        sender, sealed = request[len(_HEADER) :][:KEY_BYTES], request[len(_HEADER) + KEY_BYTES :]
        if request[: len(_HEADER)] != _HEADER or len(sealed) < _TAG:
            raise WireError("this is no encapsulated request for this gateway (RFC 9458, Section 4.3).")
        if sender in self._seen:
            raise ReplayedError("an encapsulated request was sent twice.")
        for key in self._keys:
            with contextlib.suppress(ValueError, _failures()):
                context = _suite().create_recipient_context(sender, key, _REQUEST_INFO)
                opened = Decapsulated(context.open(sealed), sender, context)
                self._seen.add(sender)
                return opened
        raise WireError("an encapsulated request cannot be opened.")


def new_private_key() -> bytes:
    """A gateway's new private key, 32 bytes."""
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

    return X25519PrivateKey.generate().private_bytes_raw()


def public_key_of(private: bytes) -> bytes:
    """The public key of a gateway's private key, both of 32 bytes."""
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

    return X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()


@functools.cache
def _suite() -> Any:
    try:
        from pyhpke import AEADId, CipherSuite, KDFId, KEMId
    except ImportError as error:
        raise MissingExtraError(error.name or "pyhpke", "serve", "an oblivious relay") from error
    return CipherSuite.new(KEMId.DHKEM_X25519_HKDF_SHA256, KDFId.HKDF_SHA256, AEADId.AES128_GCM)


def _failures() -> type[Exception]:
    from pyhpke import PyHPKEError

    return PyHPKEError


def _response_cipher(context: Any, sender: bytes, nonce: bytes) -> tuple[Any, bytes]:
    """The AEAD and its nonce of a response (RFC 9458, Section 4.4)."""
    from cryptography.hazmat.primitives import hashes, hmac
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

    extract = hmac.HMAC(sender + nonce, hashes.SHA256())  # HKDF-Extract is an HMAC with the salt as its key
    extract.update(context.export(_RESPONSE_LABEL, _SECRET))
    prk = extract.finalize()
    key, inner = (
        HKDFExpand(hashes.SHA256(), n, what).derive(prk) for n, what in ((_SECRET, b"key"), (_NONCE, b"nonce"))
    )
    return AESGCM(key), inner


def _open(aead: Any, nonce: bytes, response: bytes) -> bytes:
    from cryptography.exceptions import InvalidTag

    try:
        return aead.decrypt(nonce, response[_SECRET:], None)
    except (InvalidTag, ValueError) as error:
        raise WireError("an encapsulated response cannot be opened.") from error
