"""A platform's two servers in one event loop: what one changes, the other may be waiting for."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from fedrank.deploy.hub.app import App

#: Connections that a platform takes at once: a coordinator has one, an application a few.
_CONNECTIONS = 64


class Servers:
    """Servers that begin and end together.

    Args:
        faces: Of each its application and options of :func:`fedrank.deploy.hub.server.serve`, such as ``host`` and
            ``port`` (0: any that is free).

    Raises:
        ConfigError: A port is taken, or a certificate cannot be used.
        MissingExtraError: The extra ``serve`` is not installed.
    """

    def __init__(self, faces: Sequence[tuple[App, dict[str, Any]]]):
        from fedrank.deploy.hub.server import _server

        self.urls = [""] * len(faces)
        self._sockets: list[socket.socket] = []
        self._servers: list[Any] = []
        for place, (app, options) in enumerate(faces):
            server, sock = _server(app, self._listening(place), connections=_CONNECTIONS, **options)
            self._servers.append(server)
            self._sockets.append(sock)

    def _listening(self, place: int) -> Callable[[str], object]:
        def note(url: str) -> None:
            self.urls[place] = url
            if all(self.urls):
                self._on_ready(self.urls)

        return note

    def run(self, on_ready: Callable[[list[str]], object]) -> None:
        """Answer requests until SIGTERM, SIGINT or :meth:`stop`.

        Args:
            on_ready: Is told the addresses once all listen.
        """
        self._on_ready = on_ready
        with contextlib.ExitStack() as stack:
            stack.enter_context(_signals_kept())
            for sock in self._sockets:
                stack.enter_context(sock)
            asyncio.run(self._all())

    async def _all(self) -> None:
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
        """End soon, after the last answers."""
        for server in self._servers:
            server.should_exit = True


@contextlib.contextmanager
def _signals_kept() -> Iterator[None]:
    """Signal handlers are afterwards what they were: servers that run side by side put back each other's."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
