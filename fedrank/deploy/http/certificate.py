"""A server's certificate, read again when its files change: new connections get the new one."""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import uvicorn

_log = logging.getLogger("fedrank.hub")

#: Seconds between looks at the files.
LOOK_SECONDS = 2.0


class Certificate:
    """The certificate of a server that runs.

    Args:
        config: Loaded configuration of the server, with TLS.
    """

    def __init__(self, config: uvicorn.Config):
        assert config.ssl is not None
        self._context, self._cert, self._key = config.ssl, str(config.ssl_certfile), config.ssl_keyfile
        self._seen = self._told = self._state()

    def _state(self) -> tuple[tuple[int, int, int] | None, ...]:
        """What changes when one of the files is replaced or written."""
        found = []
        for path in (self._cert, self._key):
            try:
                at = os.stat(path) if path is not None else None
            except OSError:
                at = None
            found.append(None if at is None else (at.st_mtime_ns, at.st_ino, at.st_size))
        return tuple(found)

    def look(self) -> bool:
        """Take a new certificate; True if there was one. One that cannot be used is logged once, and the old stays."""
        now = self._state()
        if now == self._seen:
            return False
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(self._cert, self._key)  # whole, and a pair
            self._context.load_cert_chain(self._cert, self._key)
        except (OSError, ValueError) as error:
            if now != self._told:
                _log.error(
                    "certificate %s and key %s cannot be used (%s); the old one stays", self._cert, self._key, error
                )
            self._told = now
            return False
        self._seen = self._told = now
        _log.warning("certificate %s was read again", self._cert)
        return True

    async def watch(self) -> None:
        """Look again and again."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            self.look()
