"""uvicorn as the server of hubs and platforms, by its public interface.

uvicorn bounds the number of connections, the time between requests, and, with no proxy in front, the size of headers.
The application bounds bodies in size and time. What an open network asks for beside these is a proxy's: time for
headers, connections of one address, clients that do not read (``docker/compose/nginx.conf``).

No address of a client is logged. There are no WebSockets.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import ssl
import threading
from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import Any, NamedTuple

from fedrank.core.errors import ConfigError, MissingExtraError, RunError
from fedrank.deploy.http.app import HttpApp

try:
    import httptools  # noqa: F401  # uvicorn's parser behind a proxy
    import uvicorn
except ImportError as error:
    raise MissingExtraError(error.name or "uvicorn", "serve", "fedrank hub serve") from error

_log = logging.getLogger("fedrank.hub")

#: Largest headers of a request, in bytes, where no proxy bounds them.
LARGEST_HEAD = 1 << 16
#: Seconds for which an idle connection stays open.
IDLE_SECONDS = 60
#: Seconds between looks at the files of a certificate.
LOOK_SECONDS = 2.0
#: Files that a process has open beside its connections.
_OTHER_FILES = 128


class _Running(NamedTuple):
    app: HttpApp
    server: uvicorn.Server
    sock: socket.socket
    address: tuple[str, int]

    @property
    def place(self) -> str:
        host, port = self.address
        return f"{host} port {port}"

    @property
    def url(self) -> str:
        host, port = self.address
        return f"http{'s' * self.server.config.is_ssl}://{f'[{host}]' if ':' in host else host}:{port}"


class Servers:
    """Servers in one event loop that begin and end together.

    Args:
        apps: Applications, each with options: ``host``; ``port`` (0: any that is free); ``certfile`` and ``keyfile``
            for TLS; ``grace_seconds`` for the last answers; ``proxies``, addresses or networks whose
            ``X-Forwarded-For`` is believed, which bound the size of headers.
        connections: Most connections of each; fewer where the system allows a process fewer open files.
        beside: What runs beside them in their event loop, until they end.

    Raises:
        ConfigError: A port is taken, or a certificate cannot be used.
        MissingExtraError: The extra ``serve`` is not installed.
    """

    def __init__(
        self,
        apps: Sequence[tuple[HttpApp, dict[str, Any]]],
        connections: int = 10_000,
        beside: Sequence[Callable[[], Coroutine[Any, Any, None]]] = (),
    ):
        self._beside, connections = beside, _most_connections(connections)
        self.running = [_prepare(app, connections, **options) for app, options in apps]

    def run(self, on_ready: Callable[[list[str]], object]) -> None:
        """Answer requests until SIGTERM, SIGINT or :meth:`stop`; those that are being answered then are, to the end.

        Args:
            on_ready: Called with the URLs once all accept connections.

        Raises:
            ConfigError: Another process took a port meanwhile.
        """
        loop_factory = self.running[0].server.config.get_loop_factory()
        with contextlib.ExitStack() as stack:
            stack.enter_context(_ignore_signals())
            for one in self.running:
                stack.enter_context(one.sock)
            stack.enter_context(runner := asyncio.Runner(loop_factory=loop_factory))
            runner.run(self._serve(on_ready))

    async def _serve(self, on_ready: Callable[[list[str]], object]) -> None:
        tasks = [asyncio.create_task(_serve_one(one)) for one in self.running]
        watching = [Certificate(one.server.config).watch() for one in self.running if one.server.config.is_ssl]
        watching = [asyncio.create_task(one) for one in [*watching, *(begin() for begin in self._beside)]]
        try:
            while not all(one.server.started for one in self.running) and not any(task.done() for task in tasks):
                await asyncio.sleep(0.005)
            # uvloop does not say that another process took a port between binding and listening.
            taken = [one for one in self.running if one.server.started and not _listens(one.sock)]
            if not taken and not any(task.done() for task in tasks):
                on_ready([one.url for one in self.running])
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self.stop()
            for task in watching:
                task.cancel()
            await asyncio.gather(*tasks)
        for one in taken:
            raise _cannot_listen(one.place, "another process does")

    def stop(self) -> None:
        """End soon, after the requests that are being answered."""
        for one in self.running:
            one.server.should_exit = True


def serve(
    app: HttpApp, *, on_ready: Callable[[str], object] = print, connections: int = 10_000, **options: Any
) -> None:
    """Answer requests until SIGTERM or SIGINT; those that are being answered then are answered to the end.

    Args:
        app: The application.
        on_ready: Called with the URL once connections are accepted.
        connections: Most connections at once; fewer where the system allows a process fewer open files.
        **options: As of :class:`Servers`.

    Raises:
        ConfigError: The port is taken, or the certificate cannot be used.
    """
    Servers([(app, options)], connections).run(lambda urls: on_ready(urls[0]))


def _prepare(
    app: HttpApp,
    connections: int,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    certfile: str | os.PathLike[str] | None = None,
    keyfile: str | os.PathLike[str] | None = None,
    grace_seconds: float = 10.0,
    proxies: Sequence[str] = (),
) -> _Running:
    if keyfile is not None and certfile is None:
        raise ConfigError("a key file needs a certificate file beside it.")
    config = uvicorn.Config(
        app,
        http="httptools" if proxies else "h11",  # the faster one reads headers of any size
        h11_max_incomplete_event_size=LARGEST_HEAD,
        limit_concurrency=connections,
        timeout_keep_alive=IDLE_SECONDS,
        timeout_graceful_shutdown=max(1, round(grace_seconds)),
        ws="none",
        interface="asgi3",
        lifespan="on",
        log_config=None,
        log_level="critical",  # it has a line for each request that is not HTTP
        access_log=False,
        server_header=False,
        date_header=False,
        proxy_headers=bool(proxies),
        forwarded_allow_ips=list(proxies),
        ssl_certfile=certfile,
        ssl_keyfile=keyfile,
    )
    try:
        config.load()
    except OSError as error:
        raise ConfigError(f"certificate {certfile} and key {keyfile} cannot be used ({error}).") from error
    try:
        sock = _bound(host, port)
    except (OSError, OverflowError) as error:
        raise _cannot_listen(f"{host} port {port}", error) from error
    return _Running(app, uvicorn.Server(config), sock, sock.getsockname()[:2])


def _bound(host: str, port: int) -> socket.socket:
    """A socket that has its port and does not listen yet; as of ``socket.create_server`` otherwise."""
    sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    try:
        if os.name == "posix":
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if sock.family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.bind((host, port))
        # Accepted connections inherit it; asyncio sets it for named protocols only. Without it an answer waits 40 ms.
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    except BaseException:
        sock.close()
        raise
    return sock


def _cannot_listen(place: str, error: object) -> ConfigError:
    return ConfigError(f"cannot listen on {place} ({error}). Choose another host or port.")


def _listens(sock: socket.socket) -> bool:
    return sock.fileno() >= 0 and bool(sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))


async def _serve_one(one: _Running) -> None:
    """Serve one application, whose errors at its start are raised."""
    try:
        await one.server.serve(sockets=[one.sock])
    except OSError as error:  # what loops other than uvloop's raise
        await one.server.lifespan.shutdown()
        raise _cannot_listen(one.place, error) from error
    if one.app.failure is not None:
        raise one.app.failure
    if not one.server.started:
        raise RunError("the application could not start; see the log.")


def _most_connections(connections: int) -> int:
    """As many connections as open files allow; the limit of open files is raised as far as the system allows."""
    try:
        import resource
    except ImportError:  # not on Windows
        return connections
    wanted, (soft, hard) = connections + _OTHER_FILES, resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return connections
    room = max(1, soft - _OTHER_FILES)
    _log.warning("open files are limited to %d: at most %d connections at once", soft, room)
    return room


@contextlib.contextmanager
def _ignore_signals() -> Iterator[None]:
    """SIGINT and SIGTERM do nothing but what a server does at them: it raises them again when it has ended."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        for number in before:
            signal.signal(number, lambda *_: None)
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


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
        """Stamps of the files, which change when one is replaced or written."""
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
