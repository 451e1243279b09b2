"""A bounded HTTP/1.1 client over the standard library, for devices, gateways, coordinators and applications.

The server, or whoever answers in its place, is not trusted. A response is read up to a given number of bytes and one
more, headers up to what :mod:`http.client` allows; a redirect is returned like any other response and not followed, so
that a token never goes to another host; a response that trickles in ends at a deadline. No proxy is looked up.
"""

from __future__ import annotations

import http.client
import io
import ipaddress
import json
import math
import os
import re
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic
from typing import Any
from urllib.parse import urlsplit

from fedrank.core.errors import ConfigError
from fedrank.core.trees import Json

#: A whole response must be there after this number of timeouts.
_WHOLE = 6


@dataclass(frozen=True)
class ClientResponse:
    """A response as a client received it.

    Attributes:
        status: HTTP status code.
        body: At most one byte more than was asked for; then it was too long.
        over: The hub says that its training is over.
        retry_after: Seconds that the server asks to wait; None if it does not.
        reason: Reason of a refusal, as in the protocol; empty if there is none.
    """

    status: int
    body: bytes
    over: bool = False
    retry_after: float | None = None
    reason: str = ""

    def json(self) -> dict[str, Json]:
        """The JSON object in the body; empty if there is none."""
        try:
            value = json.loads(self.body)
        except (ValueError, RecursionError):
            return {}
        return value if isinstance(value, dict) else {}


class HttpClient:
    """Requests to one server, each over a new connection.

    Args:
        url: ``https://host[:port][/path]``.
        ca: File with the certificates to trust in place of the system's; for https.
        allow_http: Let tokens and messages cross a network without TLS.
        timeout: Longest silence in seconds; a whole response may take six times as long.
        pinned: File with the server's own certificate, where it is known: that one is trusted, under any name and
            whoever issued it, and no other.

    Attributes:
        url: The address in its normal form.
        tls: Certificates that are trusted; None: plain http.

    Raises:
        ConfigError: The address cannot work, is plain http to another machine, or a file cannot be read.
    """

    def __init__(
        self,
        url: str,
        *,
        ca: str | os.PathLike[str] | None = None,
        allow_http: bool = False,
        timeout: float = 10.0,
        pinned: str | os.PathLike[str] | None = None,
    ):
        wrong = "hub must be an address like https://hub.example.org, without user, query or fragment"
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except (ValueError, TypeError, AttributeError):
            raise ConfigError(f"{wrong}; what was given is not one.") from None
        if parts.scheme not in ("http", "https") or not host or "@" in parts.netloc or parts.query or parts.fragment:
            raise ConfigError(f"{wrong}; what was given is not one.")  # it may hold a password: not repeated here
        if not url.isascii() or not url.isprintable() or " " in url:
            raise ConfigError(f"{wrong}; it may have printable ASCII characters only.")
        if parts.scheme == "http" and not allow_http and not is_loopback(host):
            raise ConfigError(
                f"hub {host}: plain http to another machine lets anyone on the way read the device's token. "
                "Use https, or allow_http=True where the network itself is protected."
            )
        if not 0 < timeout < math.inf:
            raise ConfigError(f"timeout must be positive and finite, got {timeout}.")
        self._host, self._secure, self._timeout = host, parts.scheme == "https", timeout
        self._port = port or (443 if self._secure else 80)
        self._path = parts.path.rstrip("/")
        self.url = f"{parts.scheme}://{host}:{self._port}{self._path}"
        self.tls: ssl.SSLContext | None = None
        self._pinned: bytes | None = None
        if self._secure and pinned is not None:
            self._pinned, self.tls = _certificate(pinned), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            self.tls.check_hostname, self.tls.verify_mode = False, ssl.CERT_NONE  # compared byte by byte instead
        elif self._secure:
            try:
                self.tls = ssl.create_default_context(cafile=None if ca is None else os.fspath(ca))
            except OSError as error:
                raise ConfigError(f"ca {os.fspath(ca or '')}: no certificates can be read there ({error}).") from error

    def request(
        self, method: str, path: str, token: str, *, body: bytes | None = None, etag: str = "", limit: int = 4096
    ) -> ClientResponse:
        """Send a request and read its response.

        Args:
            method: ``GET``, ``POST``, ``PUT`` or ``DELETE``.
            path: Path below the server's address.
            token: Token for the header ``Authorization``, or the whole header; no such header if empty.
            body: Body of the request.
            etag: Value of the header ``If-None-Match``; no such header if empty.
            limit: Most bytes of the response's body that are of use.

        Raises:
            OSError: There was no response, none in HTTP, or none in time.
        """
        headers = {"Connection": "close", **self._headers(token, etag)}
        connection = self._connection()
        try:
            return self._exchange(connection, method, path, body, limit, headers)
        except (http.client.HTTPException, ValueError) as error:
            raise _no_response(error) from error
        finally:
            connection.close()

    def _headers(self, token: str, etag: str = "") -> dict[str, str]:
        """Headers of a request: what a token that is no device's own stands after is part of it."""
        shown = {} if not token else {"Authorization": token if " " in token else f"Bearer {token}"}
        return {**shown, **({"If-None-Match": etag} if etag else {})}

    def _connection(self) -> http.client.HTTPConnection:
        if self.tls is None:
            made = http.client.HTTPConnection(self._host, self._port, timeout=self._timeout)
        else:
            made = _TlsConnection(self._host, self._port, timeout=self._timeout, context=self.tls)
            made.pinned = self._pinned
        made.response_class = self._response_within_deadline  # type: ignore[assignment] - called like the class
        return made

    def _response_within_deadline(self, sock: Any, *_: Any, method: str | None = None, **__: Any) -> Any:
        return http.client.HTTPResponse(_BoundedSocket(sock, self._timeout), method=method)  # type: ignore[arg-type]

    def _exchange(
        self,
        connection: http.client.HTTPConnection,
        method: str,
        path: str,
        body: bytes | None,
        limit: int,
        headers: dict[str, str],
    ) -> ClientResponse:
        if body is not None:
            headers = {"Content-Type": "application/octet-stream", **headers}
        connection.request(method, self._path + path, body, headers)
        with connection.getresponse() as response:
            received = response_of(response.status, response.read(limit + 1), response.getheader)
            if not response.isclosed():  # longer than what was asked for: the rest is not read
                connection.close()
        return received


class _TlsConnection(http.client.HTTPSConnection):
    """A connection over TLS, to a server that proves to have the certificate that is expected, if one is."""

    pinned: bytes | None = None

    def connect(self) -> None:
        """Connect; errors as of the base class, and :class:`ssl.SSLCertVerificationError`."""
        super().connect()
        if self.pinned is not None and self.sock.getpeercert(binary_form=True) != self.pinned:  # type: ignore[attr-defined]
            self.close()  # before anything was sent
            raise ssl.SSLCertVerificationError("the server has another certificate than its file")


def _certificate(path: str | os.PathLike[str]) -> bytes:
    """The first certificate of a PEM file: the server's own, where its chain stands there."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            (text,) = re.findall("-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", file.read(), re.DOTALL)[:1]
        return ssl.PEM_cert_to_DER_cert(text)
    except (OSError, ValueError) as error:
        raise ConfigError(f"{os.fspath(path)}: no certificate can be read there ({error}).") from error


class PersistentClient(HttpClient):
    """Requests to one server over a connection that stays open; for one thread at a time.

    All requests must be such that they may be sent again: a connection that was closed in between is opened anew, once.

    Args:
        url: Address of the server.
        token: Token for the header ``Authorization``.
        options: As of :class:`HttpClient`.

    Attributes:
        on_connect: Called over every new connection before anything else is asked; None: nothing is.

    Raises:
        ConfigError: As :class:`HttpClient`.
    """

    def __init__(self, url: str, token: str, **options: Any):
        super().__init__(url, **options)
        self._token = token
        self._open: http.client.HTTPConnection | None = None
        self.on_connect: Callable[[], object] | None = None

    def ask(
        self, method: str, path: str, body: bytes | None = None, *, limit: int = 65_536, kind: str = ""
    ) -> ClientResponse:
        """Send a request and read its response.

        Args:
            method: ``GET``, ``PUT`` or ``POST``.
            path: Path below the server's address.
            body: Body of the request.
            limit: Most bytes of the response's body that are of use.
            kind: Media type of the body, where it is a particular one.

        Raises:
            OSError: There was no response, none in HTTP, or none in time.
        """
        fresh = self._open is None  # else it may have been closed while nothing was asked, and is opened again
        while True:
            try:
                return self._once(method, path, body, limit, kind)
            except (http.client.HTTPException, OSError, ValueError) as error:
                self.close()
                if fresh or isinstance(error, TimeoutError):
                    raise _no_response(error) from error
                fresh = True

    def _once(self, method: str, path: str, body: bytes | None, limit: int, kind: str) -> ClientResponse:
        if self._open is None:
            self._open = self._connection()
            self._open.connect()
            # A request goes out as head and body: the second must not wait until the first is acknowledged.
            self._open.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self.on_connect is not None:
                try:
                    self.on_connect()
                except BaseException:
                    self.close()  # what could not be checked is not used
                    raise
        headers = {**self._headers(self._token), **({"Content-Type": kind} if kind else {})}
        received = self._exchange(self._open, method, path, body, limit, headers)
        if self._open.sock is None:
            self.close()
        return received

    def close(self) -> None:
        """Close the connection; the next request opens another."""
        if self._open is not None:
            self._open.close()
            self._open = None


def _no_response(error: Exception) -> OSError:
    return error if isinstance(error, OSError) else ConnectionError(f"no answer in HTTP ({type(error).__name__})")


def is_loopback(host: str) -> bool:
    """True if a host name or numeric address is this machine's own."""
    parsed = parse_address(host)
    return host == "localhost" or (parsed is not None and parsed.is_loopback)


def parse_address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """A numeric address, an IPv4 one in the form of IPv6 as what it is; None for a name."""
    try:
        parsed = ipaddress.ip_address(host)
    except ValueError:
        return None
    return getattr(parsed, "ipv4_mapped", None) or parsed


def response_of(status: int, body: bytes, header: Callable[[str], str | None]) -> ClientResponse:
    """A response from its parts; ``header`` returns the value of a header, None if it is not there."""
    asked = (header("Retry-After") or "").strip()
    reason = ""
    if status >= 400:
        try:
            refusal = json.loads(body)
            said = refusal.get("error") if isinstance(refusal, dict) else None
            reason = said if isinstance(said, str) and re.fullmatch("[a-z0-9-]{1,40}", said) else ""
        except (ValueError, RecursionError):
            pass  # the page of a proxy
    return ClientResponse(
        status,
        body,
        (header("Fedrank-State") or "").strip().lower() == "done",
        float(asked) if asked.isascii() and asked.isdigit() and len(asked) < 10 else None,
        reason,
    )


class _BoundedSocket(io.RawIOBase):
    """A socket's bytes until a deadline, in the form that :class:`http.client.HTTPResponse` reads."""

    def __init__(self, sock: socket.socket, timeout: float):
        self._sock, self._timeout, self._end = sock, timeout, monotonic() + _WHOLE * timeout
        self._bytes = sock.makefile("rb", buffering=0)  # keeps the socket open until the response has been read

    def makefile(self, mode: str) -> io.BufferedReader:
        del mode
        return io.BufferedReader(self)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer) -> int | None:  # type: ignore[override]
        left = self._end - monotonic()
        if left <= 0:
            raise TimeoutError("the answer took too long")
        self._sock.settimeout(min(left, self._timeout))
        return self._bytes.readinto(buffer)

    def close(self) -> None:
        self._bytes.close()
        super().close()
