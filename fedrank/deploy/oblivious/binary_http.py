"""HTTP messages as bytes, for encryption: known-length messages of Binary HTTP (RFC 9292), padded to one length."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fedrank.core.errors import WireError

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
