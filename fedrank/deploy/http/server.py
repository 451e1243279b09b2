"""uvicorn as the server of hubs and platforms, with limits that an open network needs.

uvicorn alone waits without limit for the first byte of a connection, for the end of headers and for a client that does
not read. It accepts headers of any size, reads the trailers of a body as headers, and logs a line for each request that
is not HTTP. :class:`GuardedProtocol` bounds all of these in time and size, and counts them.

No address of a client is logged. There are no WebSockets.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import functools
import http
import json
import logging
import os
import signal
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from typing_extensions import override

from fedrank.core.errors import ConfigError, MissingExtraError, RunError
from fedrank.deploy.http.app import HttpApp
from fedrank.deploy.http.guard import limited_network

try:
    import httptools
    import uvicorn
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
except ImportError as error:
    raise MissingExtraError(error.name or "uvicorn", "serve", "fedrank hub serve") from error

_log = logging.getLogger("fedrank.hub")

#: Most bytes of a request beside its body: headers, and what chunks and trailers add. Bodies are the application's.
LARGEST_HEAD = 1 << 16
#: Most requests of a connection that wait for their turn.
_PIPELINE = 64
#: Seconds for which the rest of what a client sends is read and dropped, so that the response reaches it.
_LINGER_SECONDS = 1.0
#: One network address may have this fraction of all connections, as 1 in n.
_SHARE = 8
#: Files that a process has open beside its connections.
_OTHER_FILES = 128


@dataclass(frozen=True)
class _Limits:
    header_seconds: float
    idle_seconds: float
    connections: int
    refuse: Callable[[str], None]
    limiter: ConnectionLimiter


class GuardedProtocol(HttpToolsProtocol):
    """One connection, bounded in time and size; arguments as of uvicorn's class, and the limits."""

    def __init__(self, *args: Any, limits: _Limits, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.access_log = False
        self.timeout_keep_alive = limits.idle_seconds
        self._limits, self._address = limits, ""
        self._unread = 0  # bytes since the last whole request, without its body
        self._in_head = self._closing = False
        self._earlier: list[Any] = []  # requests before the newest that are not answered yet
        self._deadline: asyncio.TimerHandle | None = None  # for headers, and in the end for the last answer
        self._stall: asyncio.TimerHandle | None = None  # for a client that does not read

    # ------------------------------------------------------------------------------------------------- connections

    @override
    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._address = self.client[0] if self.client else ""
        if not self._limits.limiter.add(self._address) or len(self.connections) > self._limits.connections:
            self._refuse(503, "connections")
        else:
            self._expect_headers()

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        # uvicorn itself tells only the newest request that its client has gone.
        self._closing = True
        self._limits.limiter.remove(self._address)
        for cycle in self._earlier:
            cycle.disconnected = True
            cycle.message_event.set()
        self._cancel_deadline()
        self._unset_keepalive_if_required()
        self.resume_writing()
        super().connection_lost(exc)

    @override
    def data_received(self, data: bytes) -> None:
        parser = self.parser
        if self._closing or parser is None:
            return
        self._unset_keepalive_if_required()
        self._unread += len(data)
        try:
            parser.feed_data(data)
        except httptools.HttpParserUpgrade:  # refused; nothing after it is read
            self._refuse(400, "upgrade")
        except httptools.HttpParserError:
            self._refuse(400, "malformed")
        else:
            if self._unread > LARGEST_HEAD and self._in_head:
                self._refuse(431, "large-headers")
            elif self._unread > LARGEST_HEAD:
                self._closing = True  # the application waits for the body to end, and refuses it
            elif self._deadline is None and (self.cycle is None or self.cycle.response_complete):
                self._expect_headers()

    # -------------------------------------------------------------------------------------------------- the parser

    @override
    def on_message_begin(self) -> None:
        self._in_head = True
        super().on_message_begin()

    @override
    def on_header(self, name: bytes, value: bytes) -> None:
        if self._in_head:  # a trailer after the body is not a header
            super().on_header(name, value)

    @override
    def on_headers_complete(self) -> None:
        self._in_head = False
        self._cancel_deadline()
        if len(self.pipeline) >= _PIPELINE:
            raise ValueError("too many requests at once")  # for the parser: it stops here
        before = self.cycle
        if before is not None and not before.response_complete:
            self._earlier = [*(cycle for cycle in self._earlier if not cycle.response_complete), before]
        super().on_headers_complete()

    @override
    def on_body(self, body: bytes) -> None:
        self._unread -= len(body)
        super().on_body(body)

    @override
    def on_message_complete(self) -> None:
        self._unread = 0
        super().on_message_complete()

    # ---------------------------------------------------------------------------------------------------- the clocks

    def _expect_headers(self) -> None:
        self._deadline = self.loop.call_later(self._limits.header_seconds, self._headers_too_slow)

    def _cancel_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _headers_too_slow(self) -> None:
        self._deadline = None
        if self._unread:
            self._refuse(408, "slow-headers")
        else:
            self._limits.refuse("slow-headers")
            self.transport.close()

    @override
    def timeout_keep_alive_handler(self) -> None:
        if self._stall is not None:  # the last answer is still being read; that has its own clock
            again = self.loop.call_later(self._limits.idle_seconds, self.timeout_keep_alive_handler)
            self.timeout_keep_alive_task = again
        elif self.transport.get_write_buffer_size():
            self.transport.abort()  # to close would be to wait for a client that does not read
        else:
            super().timeout_keep_alive_handler()

    @override
    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch(self.transport.get_write_buffer_size())

    @override
    def resume_writing(self) -> None:
        if self._stall is not None:
            self._stall.cancel()
            self._stall = None
        super().resume_writing()

    def _watch(self, size: int) -> None:
        self._stall = self.loop.call_later(self._limits.idle_seconds, self._reader_too_slow, size)

    def _reader_too_slow(self, before: int) -> None:
        size = self.transport.get_write_buffer_size()
        if size < before:
            self._watch(size)
        else:
            self._stall = None
            self._limits.refuse("slow-reader")
            self.transport.abort()

    # ----------------------------------------------------------------------------------------------------- the end

    def _refuse(self, code: int, reason: str) -> None:
        """Read nothing more; requests that came whole are answered, then the connection is closed."""
        self._closing = True
        self._cancel_deadline()
        self._limits.refuse(reason)
        cycle = self.cycle
        if cycle is not None and not cycle.response_complete:
            if not cycle.more_body:
                cycle.keep_alive = False
                return
            cycle.disconnected = True  # its body is what is wrong
            cycle.message_event.set()
            if self.pipeline or cycle.response_started:  # this response would be taken for that to another request
                self.transport.close()
                return
        self.transport.write(_refusal(code, reason))
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self._deadline = self.loop.call_later(_LINGER_SECONDS, self.transport.close)


@functools.cache
def _refusal(code: int, reason: str) -> bytes:
    body = json.dumps({"error": reason, "detail": f"{http.HTTPStatus(code).phrase}."}).encode()
    head = f"HTTP/1.1 {code} {http.HTTPStatus(code).phrase}\r\ncontent-type: application/json\r\n"
    return head.encode() + b"content-length: %d\r\nconnection: close\r\n\r\n" % len(body) + body


class _Server(uvicorn.Server):
    """uvicorn's server, whose connections are handled by :class:`GuardedProtocol`."""

    def __init__(self, config: uvicorn.Config, app: HttpApp, limits: _Limits, on_ready: Callable[[str], object]):
        super().__init__(config)
        self._app, self._limits, self._on_ready = app, limits, on_ready
        self._certificate = Certificate(config) if config.ssl is not None else None
        self._watching: asyncio.Task[None] | None = None

    @override
    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        # As uvicorn's, for one socket, and with a time limit for the TLS handshake.
        await self.lifespan.startup()
        if self.lifespan.should_exit:
            raise self._app.failure or RunError("the hub could not start; see the log.")
        loop, config = asyncio.get_running_loop(), self.config
        parts = {"config": config, "server_state": self.server_state, "app_state": self.lifespan.state}
        protocol = functools.partial(GuardedProtocol, limits=self._limits, **parts)
        tls = {"ssl": config.ssl, "ssl_handshake_timeout": self._limits.header_seconds} if config.ssl else {}
        sock = (sockets or [])[0]
        try:  # from here on the port is open, and not before: what is sent there is answered
            sock.listen(config.backlog)  # uvloop does not say that another took the port meanwhile
            self.servers = [await loop.create_server(protocol, sock=sock, backlog=config.backlog, **tls)]
        except OSError as error:
            await self.lifespan.shutdown()
            host, port = sock.getsockname()[:2]
            raise _cannot_listen(host, port, error) from error
        if self._certificate is not None:
            self._watching = asyncio.create_task(self._certificate.watch())
        self.started = True
        host, port = sock.getsockname()[:2]
        self._on_ready(f"{'https' if tls else 'http'}://{f'[{host}]' if ':' in host else host}:{port}")

    @override
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        # As uvicorn's, but without raising the signal again afterwards: the hub is still to be closed.
        with signals_restored() as signals:
            for number in signals:
                signal.signal(number, self.handle_exit)
            yield


def _bound(host: str, port: int) -> socket.socket:
    """A socket that has its port and does not listen yet; as of ``socket.create_server`` otherwise."""
    sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    try:
        if os.name == "posix":
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if sock.family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.bind((host, port))
    except BaseException:
        sock.close()
        raise
    return sock


def _cannot_listen(host: str, port: int, error: Exception) -> ConfigError:
    return ConfigError(f"cannot listen on {host} port {port} ({error}). Choose another host or port.")


def _server(
    app: HttpApp,
    on_ready: Callable[[str], object],
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    certfile: str | os.PathLike[str] | None = None,
    keyfile: str | os.PathLike[str] | None = None,
    header_seconds: float = 10.0,
    idle_seconds: float = 60.0,
    grace_seconds: float = 10.0,
    connections: int = 10_000,
    proxies: Sequence[str] = (),
    log_level: str = "warning",
) -> tuple[_Server, socket.socket]:
    """A server that is ready to run, and the socket that it listens on; options as of :func:`serve`."""
    if keyfile is not None and certfile is None:
        raise ConfigError("a key file needs a certificate file beside it.")
    config = uvicorn.Config(
        app,
        http=HttpToolsProtocol,
        ws="none",
        interface="asgi3",
        lifespan="on",
        log_config=None,
        log_level=log_level,
        access_log=False,
        server_header=False,
        date_header=False,
        proxy_headers=bool(proxies),
        forwarded_allow_ips=list(proxies),
        ssl_certfile=certfile,
        ssl_keyfile=keyfile,
        timeout_graceful_shutdown=max(1, round(grace_seconds)),
    )
    try:
        config.load()
    except OSError as error:
        raise ConfigError(f"certificate {certfile} and key {keyfile} cannot be used ({error}).") from error
    try:
        sock = _bound(host, port)
        # Accepted connections inherit it; asyncio sets it for named protocols only. Without it an answer waits 40 ms.
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    except (OSError, OverflowError) as error:
        raise _cannot_listen(host, port, error) from error
    refuse = functools.partial(app.counters.refuse, "connection")
    # A proxy is one address with many clients behind it.
    limiter = ConnectionLimiter(0 if proxies else max(1, connections // _SHARE))
    return _Server(config, app, _Limits(header_seconds, idle_seconds, connections, refuse, limiter), on_ready), sock


def serve(
    app: HttpApp, *, on_ready: Callable[[str], object] = print, connections: int = 10_000, **options: Any
) -> None:
    """Answer requests until SIGTERM or SIGINT; requests that are being answered then are answered to the end.

    Args:
        app: The application.
        on_ready: Called with the URL once connections are accepted.
        connections: Most connections at once; fewer where the system allows a process fewer open files. An eighth of
            them for one network address, but for this machine's own and behind proxies.
        **options: ``host``; ``port`` (0: any that is free); ``certfile`` and ``keyfile`` for TLS; ``header_seconds``
            that a connection has for its headers and for the handshake of TLS; ``idle_seconds`` between requests;
            ``grace_seconds`` for the last answers; ``proxies``, addresses or networks whose ``X-Forwarded-For`` is
            believed; ``log_level`` of uvicorn.

    Raises:
        ConfigError: The port is taken, or the certificate cannot be used.
    """
    server, sock = _server(app, on_ready, connections=_most_connections(connections), **options)
    with sock:
        server.run(sockets=[sock])


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


class ThreadedServer:
    """A server in a thread, as a context; for tests and measurements.

    Args:
        app: The application.
        **options: Of :func:`serve`; the port is any that is free.

    Attributes:
        url: URL of the server.
        port: Its TCP port.
    """

    def __init__(self, app: HttpApp, **options: Any):
        self.url, self.port = "", 0
        self._ready, self._failure = threading.Event(), None
        self._server, self._sock = _server(app, self._on_ready, **options)
        self._thread = threading.Thread(target=self._run, name="fedrank-server", daemon=True)

    def _on_ready(self, url: str) -> None:
        self.url, self.port = url, self._sock.getsockname()[1]
        self._ready.set()

    def _run(self) -> None:
        try:
            self._server.run(sockets=[self._sock])
        except Exception as error:
            self._failure = error
        finally:
            self._ready.set()

    def __enter__(self) -> ThreadedServer:
        self._thread.start()
        self._ready.wait()
        if self._failure is not None:
            self._sock.close()
            raise self._failure
        return self

    def __exit__(self, *exception: object) -> None:
        self._server.should_exit = True
        self._thread.join()
        self._sock.close()


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


class ConnectionLimiter:
    """Counts open connections by network address; an address is forgotten with its last connection.

    Args:
        limit: Connections of one address at once; 0: any number.
    """

    def __init__(self, limit: int):
        self._limit = limit
        self._open: collections.Counter[str] = collections.Counter()

    def __len__(self) -> int:
        return len(self._open)

    def add(self, address: str) -> bool:
        """Count a new connection. Returns whether it is within the limit; it counts until :meth:`remove` anyway."""
        network = limited_network(address) if self._limit else None
        if network is None:
            return True
        self._open[network] += 1
        return self._open[network] <= self._limit

    def remove(self, address: str) -> None:
        """Count a connection that was closed."""
        network = limited_network(address) if self._limit else None
        if network is not None:
            self._open[network] -= 1
            if self._open[network] <= 0:
                del self._open[network]


@contextlib.contextmanager
def signals_restored() -> Iterator[tuple[signal.Signals, ...]]:
    """Restore the handlers of SIGINT and SIGTERM afterwards; yields these signals, none outside the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield ()
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield tuple(before)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


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
