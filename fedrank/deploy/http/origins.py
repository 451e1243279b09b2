"""Checks of the headers Host and Origin: which names and which web pages may call a server.

A web page may point its own name at this machine (DNS rebinding), and then reads whatever a server here answers:
to the browser it is the page's own site. Its requests carry that name in ``Host``. A page of another site may also send
requests without reading their answers; those carry its ``Origin``.

Pages of chosen other origins may call a hub or a relay by cross-origin resource sharing, https://fetch.spec.whatwg.org:
a browser lets a page read an answer from another origin only where the answer names the page's origin, and asks before
it sends a token (a preflight, without one). No answer names ``*``, and none allows cookies, which a hub does not have.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from fedrank.core.errors import ConfigError
from fedrank.deploy.http.client import parse_address
from fedrank.deploy.http.routes import REFUSALS, HttpResponse

#: A host and its port, as in ``Host`` and behind the scheme of ``Origin``.
_HOST = re.compile(r"(?P<host>[a-z0-9_.-]+|\[[0-9a-f:.]+\])(:(?P<port>[0-9]{1,5}))?")


_PORTS = {"http": "80", "https": "443"}


class Hosts:
    """Names by which a server may be called.

    Always allowed are ``localhost`` and addresses (``127.0.0.1``, ``[::1]``, ``10.0.0.7``): a page cannot point an
    address elsewhere.

    Args:
        names: Further names, such as the one that the server was told to listen at, or that of the proxy in front of
            it: ``"search.example.org"``, with ``:port`` where a browser shows one.
        paths: How the paths begin that are checked.

    Raises:
        ConfigError: One of the names is not the name of a host.
    """

    def __init__(self, names: Sequence[str] = (), paths: tuple[str, ...] = ("/",)):
        self._paths = paths
        names = [name for name in names if parse_address(name.strip("[]")) is None]
        if wrong := [name for name in names if _HOST.fullmatch(name.lower()) is None]:
            raise ConfigError(f"the name of a server must be like search.example.org, got {wrong[0]!r:.100}.")
        self._pages = {name.lower() for name in names}
        self._names = {"localhost", *(_HOST.sub(r"\g<host>", name) for name in self._pages)}

    def refusal(self, scope: Any) -> HttpResponse | None:
        """The refusal of a request under another name (421) or from a page of another site (403); None: neither."""
        if not scope["path"].startswith(self._paths):
            return None
        hosts = [value.decode("latin-1").lower() for name, value in scope["headers"] if name == b"host"]
        origins = [value.decode("latin-1").lower() for name, value in scope["headers"] if name == b"origin"]
        if len(hosts) > 1 or not all(map(self._is_allowed, hosts)):  # a browser always sends one
            return REFUSALS["wrong-host"]
        if len(origins) > 1 or not all(self._of_page(origin, hosts) for origin in origins):
            return REFUSALS["wrong-origin"]
        return None

    def _is_allowed(self, host: str) -> bool:
        found = _HOST.fullmatch(host)
        return found is not None and (
            found["host"].rstrip(".") in self._names or parse_address(found["host"].strip("[]")) is not None
        )

    def _of_page(self, origin: str, hosts: list[str]) -> bool:
        """True if a page of this origin was loaded from this server."""
        scheme, _, host = origin.partition("://")
        usual = f":{_PORTS.get(scheme, '')}"
        return host in self._pages or host in [one.removesuffix(usual) for one in hosts]


_ORIGIN = re.compile(r"https?://([a-z0-9]([a-z0-9.-]*[a-z0-9])?|\[[0-9a-f:.]+\])(:[1-9][0-9]{0,4})?")


#: What a device asks a hub for; what is for operators and an app's own server stays closed to pages of other origins.
OF_DEVICES = (
    "/v1/enrol",
    "/v1/challenge",
    "/v1/model",
    "/v1/best",
    "/v1/report/",
    "/v1/device",
    "/v1/log",
    "/v1/token/",
    "/v1/tokens",
    "/v1/oblivious",
)


#: Seconds for which a browser may keep the answer to a preflight.
_SECONDS = 600


_VARY = (b"vary", b"Origin")


_EXPOSED = (b"access-control-expose-headers", b"ETag, Fedrank-State, Retry-After")


_ALLOWED = (
    (b"access-control-allow-methods", b"GET, POST, DELETE"),
    (b"access-control-allow-headers", b"Authorization, Content-Type, If-None-Match"),
    (b"access-control-max-age", b"%d" % _SECONDS),
)


def check_origins(origins: Sequence[str]) -> None:
    """Check a list of origins.

    Raises:
        ConfigError: One is not an origin as browsers write it: scheme, host and a port that is not the scheme's own.
    """
    for origin in origins:
        scheme = origin.partition(":")[0]
        if not _ORIGIN.fullmatch(origin) or origin.endswith(f":{_PORTS[scheme]}"):
            raise ConfigError(
                f"origins must be exact, as browsers write them, such as https://shop.example or "
                f"http://localhost:8080, without path, wildcard or usual port; got {origin!r}."
            )


class Origins:
    """Origins whose pages may call some addresses, by default those of a hub that a device calls.

    Args:
        origins: Such as ``"https://shop.example"``; compared byte by byte.
        paths: How the paths begin that are shared.

    Raises:
        ConfigError: One of them is not an origin.
    """

    def __init__(self, origins: Sequence[str], paths: tuple[str, ...] = OF_DEVICES):
        check_origins(origins)
        self._paths = paths
        self._allowed = {origin.encode() for origin in origins}

    def headers(self, path: str, headers: Iterable[tuple[bytes, bytes]]) -> tuple[tuple[bytes, bytes], ...]:
        """Headers to add to the answer to a request with this path and these headers; none where nothing is shared."""
        if not path.startswith(self._paths):
            return ()
        given = [value for name, value in headers if name == b"origin"]
        if len(given) != 1 or given[0] not in self._allowed:
            return (_VARY,)
        return ((b"access-control-allow-origin", given[0]), _EXPOSED, _VARY)

    def preflight(self, scope: Any) -> HttpResponse | None:
        """The answer to a preflight of an allowed origin; None for any other request."""
        if scope["method"] != "OPTIONS" or not any(n == b"access-control-request-method" for n, _ in scope["headers"]):
            return None
        shared = self.headers(scope["path"], scope["headers"])
        return HttpResponse(204, b"", *_ALLOWED, content_type=None) if len(shared) > 1 else None
