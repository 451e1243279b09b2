"""Oblivious HTTP (RFC 9458): a request encrypted to a gateway, so that whoever passes it on cannot read it.

One suite is spoken: DHKEM(X25519, HKDF-SHA256), HKDF-SHA256, AES-128-GCM. X25519 and AES are those of
``cryptography``, whose HPKE exports no secret, from which a response's key follows. The ten HMACs that HPKE (RFC 9180)
puts around them are written here: ``pyhpke``, which makes objects for each, takes 90 µs longer for a request and its
answer, beside 140 that remain.

What is encrypted is HTTP messages as bytes: known-length messages of Binary HTTP (RFC 9292), padded to one length.
"""

from __future__ import annotations

import hmac
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from fedrank.core.errors import WireError

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
        keys: Keys of the request.
    """

    request: bytes
    keys: _Keys

    def open(self, response: bytes) -> bytes:
        """The response in an encapsulated one.

        Raises:
            WireError: It was not made for this request.
        """
        aead, nonce = _response_cipher(self.keys, self.request[len(_HEADER) :][:KEY_BYTES], response[:_SECRET])
        opened = _open(aead, nonce, response[_SECRET:])
        if opened is None:
            raise WireError("an encapsulated response cannot be opened.")
        return opened


@dataclass(frozen=True)
class Decapsulated:
    """A request that was opened, and what seals its response.

    Attributes:
        request: The request inside.
        sender: The sender's encapsulated key.
        keys: Keys of the request.
    """

    request: bytes
    sender: bytes
    keys: _Keys

    def seal(self, response: bytes, nonce: bytes | None = None) -> bytes:
        """A response as it is sent; ``nonce``, 16 bytes, is the operating system's unless a test vector has it."""
        nonce = os.urandom(_SECRET) if nonce is None else nonce
        aead, inner = _response_cipher(self.keys, self.sender, nonce)
        return nonce + aead.encrypt(inner, response, None)


def encapsulate(public: bytes, request: bytes, ephemeral: bytes | None = None) -> Encapsulated:
    """Encrypt a request to a gateway.

    Args:
        public: The gateway's key, 32 bytes.
        request: The request, as Binary HTTP.
        ephemeral: X25519 private key, 32 bytes, in place of a fresh one, for test vectors.

    Raises:
        WireError: The key is none.
    """
    private = _private_key(new_private_key() if ephemeral is None else ephemeral)
    sender = private.public_key().public_bytes_raw()
    try:
        keys = _keys(private, public, sender + public)
    except ValueError as error:
        raise WireError("a gateway's key cannot be used.") from error
    return Encapsulated(_HEADER + sender + keys.aead.encrypt(keys.nonce, request, None), keys)


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
    """

    def __init__(self, *private: bytes, clock: Callable[[], float] = time.monotonic):
        self._seen = _Seen(clock)
        self.use(*private)

    def use(self, *private: bytes) -> None:
        """Open requests for these keys from now on, and no others; may be called while another thread opens some."""
        made = [_private_key(one) for one in private]
        self._keys = [(key, key.public_key().public_bytes_raw()) for key in made]
        self.public = self._keys[0][1]

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
        for key, public in self._keys:
            try:
                keys = _keys(key, sender, sender + public)
            except ValueError as error:  # no key, or one that gives zeros (RFC 9180, Section 7.1.4)
                raise WireError("an encapsulated request cannot be opened.") from error
            opened = _open(keys.aead, keys.nonce, sealed)
            if opened is not None:
                self._seen.add(sender)
                return Decapsulated(opened, sender, keys)
        raise WireError("an encapsulated request cannot be opened.")


def new_private_key() -> bytes:
    """A gateway's new private key, 32 bytes."""
    return os.urandom(KEY_BYTES)  # any 32 bytes are one (RFC 7748, Section 5)


def public_key_of(private: bytes) -> bytes:
    """The public key of a gateway's private key, both of 32 bytes."""
    return _private_key(private).public_key().public_bytes_raw()


def _private_key(raw: bytes) -> Any:
    # A device that knows no relay does not load cryptography.
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

    return X25519PrivateKey.from_private_bytes(raw)


class _Keys(NamedTuple):
    """Keys of a request: its AEAD and nonce, and the secret from which others are exported."""

    aead: Any
    nonce: bytes
    exporter: bytes


def _extract(suite: bytes, salt: bytes, label: bytes, secret: bytes) -> bytes:
    """LabeledExtract of RFC 9180, Section 4: 32 bytes."""
    return hmac.digest(salt, b"HPKE-v1" + suite + label + secret, "sha256")


def _expand(suite: bytes, key: bytes, label: bytes, info: bytes, length: int) -> bytes:
    """LabeledExpand of RFC 9180, Section 4, for at most 32 bytes."""
    return hmac.digest(key, length.to_bytes(2) + b"HPKE-v1" + suite + label + info + b"\x01", "sha256")[:length]


_KEM_SUITE, _SUITE = b"KEM" + _HEADER[1:3], b"HPKE" + _HEADER[1:]
# Mode "base", which has no pre-shared key, and the one info that there is (RFC 9180, Section 5.1).
_SCHEDULE = b"\x00" + _extract(_SUITE, b"", b"psk_id_hash", b"") + _extract(_SUITE, b"", b"info_hash", _REQUEST_INFO)


def _keys(private: Any, public: bytes, context: bytes) -> _Keys:
    """Keys between a private key and a public one.

    Args:
        private: One's own X25519 key.
        public: The other's key.
        context: The encapsulated key, and the gateway's public one.

    Raises:
        ValueError: The public key is none, or gives a shared secret of zeros.
    """
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    shared = private.exchange(X25519PublicKey.from_public_bytes(public))
    shared = _expand(_KEM_SUITE, _extract(_KEM_SUITE, b"", b"eae_prk", shared), b"shared_secret", context, 32)
    secret = _extract(_SUITE, shared, b"secret", b"")
    key, nonce, exporter = (
        _expand(_SUITE, secret, label, _SCHEDULE, length)
        for label, length in ((b"key", _SECRET), (b"base_nonce", _NONCE), (b"exp", 32))
    )
    return _Keys(AESGCM(key), nonce, exporter)


def _response_cipher(keys: _Keys, sender: bytes, nonce: bytes) -> tuple[Any, bytes]:
    """The AEAD and its nonce of a response (RFC 9458, Section 4.4)."""
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    exported = _expand(_SUITE, keys.exporter, b"sec", _RESPONSE_LABEL, _SECRET)
    prk = hmac.digest(sender + nonce, exported, "sha256")
    key, inner = (hmac.digest(prk, what + b"\x01", "sha256") for what in (b"key", b"nonce"))
    return AESGCM(key[:_SECRET]), inner[:_NONCE]


def _open(aead: Any, nonce: bytes, sealed: bytes) -> bytes | None:
    from cryptography.exceptions import InvalidTag

    try:
        return aead.decrypt(nonce, sealed, None)
    except (InvalidTag, ValueError):
        return None


Fields = Sequence[tuple[bytes, bytes]]

#: Framing indicators of known-length requests and responses.
_REQUEST, _RESPONSE = 0, 1
#: Most header fields of a message.
_MOST_FIELDS = 32


@dataclass(frozen=True)
class BinaryRequest:
    """A request; the scheme is https and the authority empty: an encapsulated request is for one hub.

    Attributes:
        method: Such as ``b"GET"``.
        path: Path below the hub's address.
        fields: Header fields, names in lower case.
        content: Body.
        scheme: Such as ``b"https"``.
        authority: Host, and port.
    """

    method: bytes
    path: bytes
    fields: Fields = ()
    content: bytes = b""
    scheme: bytes = b"https"
    authority: bytes = b""


@dataclass(frozen=True)
class BinaryResponse:
    """A response.

    Attributes:
        status: Status code, 200..599.
        fields: Header fields, names in lower case.
        content: Body.
    """

    status: int
    fields: Fields = ()
    content: bytes = b""


def encode_request(request: BinaryRequest, length: int = 0) -> bytes:
    """A request as bytes.

    Args:
        request: The request.
        length: Pad with zeros to this number of bytes; 0: do not, and leave empty sections at the end out.

    Raises:
        WireError: It is longer than that.
    """
    head = b"".join(_with_length(x) for x in (request.method, request.scheme, request.authority, request.path))
    return _pad(_integer(_REQUEST) + head, request.fields, request.content, length)


def encode_response(response: BinaryResponse, length: int = 0) -> bytes:
    """A response as bytes; padding and errors as for :func:`encode_request`."""
    return _pad(_integer(_RESPONSE) + _integer(response.status), response.fields, response.content, length)


def decode_request(data: bytes) -> BinaryRequest:
    """The inverse of :func:`encode_request`.

    Raises:
        WireError: It is no known-length request.
    """
    reader = _Reader(data)
    if reader.integer() != _REQUEST:
        raise WireError("an encapsulated request must have a known length (RFC 9292, Section 3.1).")
    method, scheme, authority, path = (reader.bytes() for _ in range(4))
    fields, content = reader.rest()
    return BinaryRequest(method, path, fields, content, scheme, authority)


def decode_response(data: bytes) -> BinaryResponse:
    """The inverse of :func:`encode_response`.

    Raises:
        WireError: It is no known-length response, or one that only informs.
    """
    reader = _Reader(data)
    if reader.integer() != _RESPONSE:
        raise WireError("an encapsulated response must have a known length (RFC 9292, Section 3.1).")
    status = reader.integer()
    if not 200 <= status <= 599:
        raise WireError(f"a final response has a status of 200 to 599, got {status}.")
    return BinaryResponse(status, *reader.rest())


def _integer(value: int) -> bytes:
    """A variable-length integer (RFC 9000, Section 16), in the fewest bytes."""
    for prefix, size in ((0, 1), (1, 2), (2, 4)):
        if value < 1 << (8 * size - 2):
            return (prefix << (8 * size - 2) | value).to_bytes(size)
    return (3 << 62 | value).to_bytes(8)


def _with_length(data: bytes) -> bytes:
    return _integer(len(data)) + data


def _pad(head: bytes, fields: Fields, content: bytes, length: int) -> bytes:
    section = b"".join(_with_length(name) + _with_length(value) for name, value in fields)
    whole = head + _with_length(section) + _with_length(content) + _integer(0)
    if not length:
        return whole if content else head + _with_length(section) if section else head
    if len(whole) > length:
        raise WireError(f"a message of {len(whole)} bytes does not fit into {length}.")
    return whole + bytes(length - len(whole))


class _Reader:
    """Reads one message from its beginning; raises WireError where it ends too early."""

    def __init__(self, data: bytes):
        self._data, self._at = data, 0

    def integer(self) -> int:
        first = self._take(1)[0]
        value = first & 0x3F
        for byte in self._take((1 << (first >> 6)) - 1):
            value = value << 8 | byte
        return value

    def bytes(self) -> bytes:
        return self._take(self.integer())

    def _take(self, count: int) -> bytes:
        taken = self._data[self._at : self._at + count]
        if len(taken) < count:
            raise WireError("a message of Binary HTTP ends too early.")
        self._at += count
        return taken

    def rest(self) -> tuple[tuple[tuple[bytes, bytes], ...], bytes]:
        """Header fields and content; sections at the end may be missing, padding is zero (RFC 9292, Section 3.8)."""
        sections = [self.bytes() if self._at < len(self._data) else b"" for _ in range(3)]
        if any(self._data[self._at :]):
            raise WireError("the padding of a message of Binary HTTP is not zero.")
        reader, fields = _Reader(sections[0]), []
        while reader._at < len(reader._data):
            fields.append((reader.bytes(), reader.bytes()))
            if len(fields) > _MOST_FIELDS:
                raise WireError(f"a message of Binary HTTP has more than {_MOST_FIELDS} fields.")
        return tuple(fields), sections[1]


#: Bytes of every request inside an encapsulated one: the largest is a report with its token. An enrolment with a
#: statement of the device's platform is longer, and has another length and path.
REQUEST_LENGTH, STATEMENT_LENGTH = 1024, 16_384
#: Answers are padded to a multiple of this; the largest but models, two issuer's keys, takes one.
_UNIT = 2048
#: What an answer has beside its body, at most.
_HEAD = 256
#: Up to this number of bytes of a model, all answers are as long as one with a model.
_LARGEST = 16_384


def response_length(length: int, model: int) -> int:
    """The length to which an answer is padded.

    Args:
        length: Bytes of the answer.
        model: Bytes of a model message of the hub.
    """
    least = _multiple(model + _HEAD) if model <= _LARGEST else _UNIT
    return max(_multiple(length), least)


def _multiple(length: int) -> int:
    return -(-length // _UNIT) * _UNIT


#: Paths of a relay: reports wait for others, requests of other kinds a moment at most.
REPORTS, OTHERS, STATEMENTS = "/report", "/others", "/statement"
#: Why a relay sends reports back: too few came to be passed on among each other.
TOO_FEW = "too-few"
#: Longest time that a relay may keep a request, in seconds.
LONGEST_BATCH = 60.0
