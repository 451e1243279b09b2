"""Checks of the headers Host and Origin, for what a server gives to a browser without asking for a token.

A web page may point a name of its own at this machine (DNS rebinding), and then reads whatever a server here answers:
to the browser it is the page's own site. Its requests carry that name in ``Host``. A page of another site may also send
requests without reading their answers; those carry its ``Origin``.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from typing import Any

from fedrank.core.errors import ConfigError
from fedrank.deploy.http.routes import REFUSALS, HttpResponse

#: A host and its port, as in ``Host`` and behind the scheme of ``Origin``.
_HOST = re.compile(r"(?P<host>[a-z0-9_.-]+|\[[0-9a-f:.]+\])(:(?P<port>[0-9]{1,5}))?")
_DEFAULT_PORTS = {"http": "80", "https": "443"}


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
        names = [name for name in names if not _is_address(name)]
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
        if len(hosts) > 1 or not all(map(self._allowed, hosts)):  # a browser always sends one
            return REFUSALS["wrong-host"]
        if len(origins) > 1 or not all(self._of_page(origin, hosts) for origin in origins):
            return REFUSALS["wrong-origin"]
        return None

    def _allowed(self, host: str) -> bool:
        found = _HOST.fullmatch(host)
        return found is not None and (found["host"].rstrip(".") in self._names or _is_address(found["host"]))

    def _of_page(self, origin: str, hosts: list[str]) -> bool:
        """Whether a page of this origin was loaded from this server."""
        scheme, _, host = origin.partition("://")
        usual = f":{_DEFAULT_PORTS.get(scheme, '')}"
        return host in self._pages or host in [one.removesuffix(usual) for one in hosts]


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return False
    return True
