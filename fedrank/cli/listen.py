"""Flags of servers and of what talks to them: an address to listen at, and trust in other machines."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from fedrank.cli.terminal import Switch
from fedrank.core.errors import ConfigError, MissingDataError
from fedrank.core.fields import setting
from fedrank.deploy.http.client import is_loopback

Port = Annotated[int, Parameter(help="Port to listen at; 0: any that is free.")]


@dataclass(frozen=True, kw_only=True)
class Address:
    """Address and TLS of a server.

    Raises:
        ConfigError: A certificate without its key, or a key without its certificate.
    """

    host: str = setting("127.0.0.1", "Address to listen at. The default is this machine only.")
    certificate: Path | None = setting(None, "PEM file of the server's certificate chain, for TLS.")
    key: Path | None = setting(None, "PEM file of its private key.")

    def __post_init__(self) -> None:
        if (self.certificate is None) != (self.key is None):
            raise ConfigError("TLS needs both --certificate and --key.")

    @property
    def is_loopback(self) -> bool:
        """True if the address is this machine's own."""
        return is_loopback(self.host)

    def warn_without_tls(self, what: str) -> None:
        """Warn on stderr if ``what`` crosses a network in the clear."""
        if not self.is_loopback and self.certificate is None:
            said = "cross in the clear; give --certificate and --key, or put a proxy with TLS in front"
            print(f"fedrank: warning: {what} {said}", file=sys.stderr)

    def serve(
        self, app: Any, port: int, on_ready: Callable[[str], object], home: Any = None, name: str = "", **options: Any
    ) -> None:
        """Answer requests until the process is told to stop.

        Args:
            app: The application.
            port: Port to listen at.
            on_ready: Called with the URL once connections are accepted.
            home: Folder in which the URL stands meanwhile, for commands of this machine; None: none.
            name: Name of the URL there.
            options: As of :func:`fedrank.deploy.http.server.serve`.
        """
        from fedrank.deploy.http.server import serve

        def ready(url: str) -> None:
            if home is not None:
                home.write_urls({name: url}, self.certificate)
            on_ready(url)

        where = {"host": self.host, "port": port, "certfile": self.certificate, "keyfile": self.key}
        try:
            serve(app, on_ready=ready, **where, **options)
        finally:
            if home is not None:
                home.remove_urls(name)


At = Annotated[Address, Parameter(name="*")]


@dataclass(frozen=True, kw_only=True)
class Reach:
    """Certificates that connections to other machines trust, and whether plain http is allowed there."""

    ca: Path | None = setting(None, "File with the certificates to trust in place of the system's.")
    allow_http: Switch = setting(False, "Plain http to other machines, where the network itself is protected.")


Reached = Annotated[Reach, Parameter(name="*")]


def log_to_stderr() -> None:
    """Print warnings and errors of a server, one line each, with the time."""
    from fedrank.deploy.folder import LogLine

    handler = logging.StreamHandler()
    handler.setFormatter(LogLine("%(asctime)s %(levelname)s %(message)s"))
    log = logging.getLogger("fedrank")
    log.addHandler(handler)
    log.setLevel(logging.INFO)


@dataclass(frozen=True, kw_only=True)
class Who:
    """The federation, and who asks it."""

    owner: Path | None = setting(None, "Folder of an owner that has joined the federation, which asks in its name.")
    federation: Path = setting(Path("federation.toml"), "Without it: file that names broker and owners.")
    asker: Path = setting(Path("asker.toml"), "And file with your name and your tokens, one an owner.")

    def open_federation(self, reach: Reach, choose: bool = False) -> Any:
        """The federation as this asker reaches it; ``choose``: owners to ask are chosen. Errors as of its class."""
        from fedrank.deploy.search.choice import PastAnswers
        from fedrank.deploy.search.federation import Federation
        from fedrank.deploy.search.folder import OwnerFolder

        if self.owner is not None and not OwnerFolder(self.owner).federation.exists():
            raise MissingDataError(f"--owner {self.owner}: is no folder of an owner that has joined a federation.")
        if self.owner is None and not self.federation.exists():
            raise MissingDataError(f"there is no {self.federation}: give --owner FOLDER, or --federation FILE.")
        file, asker = (self.federation, self.asker) if self.owner is None else OwnerFolder(self.owner).asker()
        folder = self.asker.parent if self.owner is None else self.owner
        return Federation(file, asker, past=PastAnswers(folder / "past.json") if choose else None, **vars(reach))


Asking = Annotated[Who, Parameter(name="*")]
