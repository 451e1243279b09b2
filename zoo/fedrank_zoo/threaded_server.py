"""A server beside the program that asks it: for measurements and tests."""

from __future__ import annotations

import threading
from typing import Any

from fedrank.deploy.http.app import HttpApp
from fedrank.deploy.http.server import Servers


class ThreadedServer:
    """A server in a thread, as a context.

    Args:
        app: The application.
        connections: Most connections at once.
        **options: As of :class:`~fedrank.deploy.http.server.Servers`; the port is any that is free.

    Attributes:
        url: URL of the server.
        port: Its TCP port.
        servers: The server.
    """

    def __init__(self, app: HttpApp, connections: int = 10_000, **options: Any):
        self.url, self.port, self._failure = "", 0, None
        self._ready = threading.Event()
        self.servers = Servers([(app, options)], connections)
        self._thread = threading.Thread(target=self._run, name="fedrank-server", daemon=True)

    def _on_ready(self, urls: list[str]) -> None:
        self.url, self.port = urls[0], int(urls[0].rpartition(":")[2])
        self._ready.set()

    def _run(self) -> None:
        try:
            self.servers.run(self._on_ready)
        except Exception as error:
            self._failure = error
        finally:
            self._ready.set()

    def __enter__(self) -> ThreadedServer:
        self._thread.start()
        self._ready.wait()
        if self._failure is not None:
            raise self._failure
        return self

    def __exit__(self, *exception: object) -> None:
        self.servers.stop()
        self._thread.join()
