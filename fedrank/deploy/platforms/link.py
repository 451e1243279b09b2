"""HTTP to one platform over a connection that stays open; for its coordinator and for its application.

All requests to a platform may be sent again, so a connection that has gone in between is made anew, once.
"""

from __future__ import annotations

import http.client
import json
import os
import socket
from collections.abc import Callable
from typing import Any

from fedrank.deploy.device.connection import Answer, Connection, _answer, _Paced


class Link(Connection):
    """A connection that is used again and again; for one thread at a time.

    Args:
        url: Address of the platform.
        token: For the header ``Authorization``.
        ca: As of :class:`~fedrank.deploy.device.connection.Connection`.
        allow_http: Likewise.
        timeout: Longest silence in seconds.

    Attributes:
        greet: Called over every new connection before anything else is asked; None: nothing is.

    Raises:
        ConfigError: As :class:`~fedrank.deploy.device.connection.Connection`.
    """

    def __init__(
        self,
        url: str,
        token: str,
        *,
        ca: str | os.PathLike[str] | None = None,
        allow_http: bool = False,
        timeout: float = 10.0,
    ):
        super().__init__(url, ca=ca, allow_http=allow_http, timeout=timeout)
        self._bearer = f"Bearer {token}"
        self._kept: http.client.HTTPConnection | None = None
        self.greet: Callable[[], object] | None = None

    def ask(self, method: str, path: str, body: bytes | None = None, *, limit: int = 65_536) -> Answer:
        """One request and its answer.

        Args:
            method: ``GET``, ``PUT`` or ``POST``.
            path: Below the platform's address.
            body: Of the request.
            limit: Bytes wanted of the answer's body.

        Raises:
            OSError: No answer, or none in HTTP, or not in time.
        """
        fresh = self._kept is None
        try:
            return self._once(method, path, body, limit)
        except (http.client.HTTPException, OSError, ValueError) as error:
            self.close()
            if fresh or isinstance(error, TimeoutError):
                raise _as_os_error(error) from error
        try:  # it was closed while nothing was asked
            return self._once(method, path, body, limit)
        except (http.client.HTTPException, OSError, ValueError) as error:
            self.close()
            raise _as_os_error(error) from error

    def _once(self, method: str, path: str, body: bytes | None, limit: int) -> Answer:
        if self._kept is None:
            self._kept = self._connected()
            if self.greet is not None:
                self.greet()
        headers = {"Authorization": self._bearer}
        if body is not None:
            headers["Content-Type"] = "application/octet-stream"
        self._kept.request(method, self._path + path, body, headers)
        with self._kept.getresponse() as response:
            answer = _answer(response, limit)
            whole = response.isclosed()
        if not whole:  # longer than anything that was asked for
            self.close()
        return answer

    def _connected(self) -> http.client.HTTPConnection:
        if self._tls is None:
            made = http.client.HTTPConnection(self._host, self._port, timeout=self._timeout)
        else:
            made = http.client.HTTPSConnection(self._host, self._port, timeout=self._timeout, context=self._tls)
        made.connect()
        # A question goes out as head and body: the second must not wait for the first to be acknowledged.
        made.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        made.response_class = self._paced  # type: ignore[assignment] - called like the class
        return made

    def _paced(self, sock: Any, *_: Any, method: str | None = None, **__: Any) -> http.client.HTTPResponse:
        """A response whose bytes have to arrive before a deadline."""
        return http.client.HTTPResponse(_Paced(sock, self._timeout), method=method)  # type: ignore[arg-type]

    def close(self) -> None:
        """Close the connection; the next request opens another."""
        if self._kept is not None:
            self._kept.close()
            self._kept = None


def said_by(answer: Answer) -> dict[str, Any]:
    """The JSON of an answer; empty if it is none."""
    try:
        said = json.loads(answer.body)
    except (ValueError, RecursionError):
        return {}
    return said if isinstance(said, dict) else {}


def _as_os_error(error: Exception) -> OSError:
    return error if isinstance(error, OSError) else ConnectionError(f"no answer in HTTP ({type(error).__name__})")
