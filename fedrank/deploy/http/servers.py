"""Several HTTP servers in one event loop: what one of them changes, requests to another may be waiting for."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import socket
from collections.abc import Callable, Sequence
from typing import Any

from fedrank.deploy.http.app import HttpApp
from fedrank.deploy.http.signals import signals_restored


class Servers:
    """Several servers in one event loop that begin and end together.

    Args:
        apps: Applications, each with options of :func:`serve`, such as ``host`` and ``port`` (0: any that is free).
        connections: Most connections of each.

    Raises:
        ConfigError: A port is taken, or a certificate cannot be used.
        MissingExtraError: The extra ``serve`` is not installed.
    """

    def __init__(self, apps: Sequence[tuple[HttpApp, dict[str, Any]]], connections: int = 64):
        from fedrank.deploy.http.server import _server

        self.urls = [""] * len(apps)
        self._sockets: list[socket.socket] = []
        self._servers: list[Any] = []
        for place, (app, options) in enumerate(apps):
            server, sock = _server(app, functools.partial(self._listening, place), connections=connections, **options)
            self._servers.append(server)
            self._sockets.append(sock)

    def _listening(self, place: int, url: str) -> None:
        self.urls[place] = url
        if all(self.urls):
            self._on_ready(self.urls)

    def run(self, on_ready: Callable[[list[str]], object]) -> None:
        """Answer requests until SIGTERM, SIGINT or :meth:`stop`.

        Args:
            on_ready: Called with the URLs once all servers accept connections.
        """
        self._on_ready = on_ready
        with contextlib.ExitStack() as stack:
            stack.enter_context(signals_restored())  # servers side by side would restore each other's handlers
            for sock in self._sockets:
                stack.enter_context(sock)
            asyncio.run(self._serve())

    async def _serve(self) -> None:
        tasks = [
            asyncio.create_task(server.serve(sockets=[sock]))
            for server, sock in zip(self._servers, self._sockets, strict=True)
        ]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self.stop()
            await asyncio.gather(*tasks)

    def stop(self) -> None:
        """End soon, after the requests that are being answered."""
        for server in self._servers:
            server.should_exit = True
