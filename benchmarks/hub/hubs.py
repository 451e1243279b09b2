"""Hubs and many light devices for the benchmarks: loopback only, bounded in count and time.

A device here is a token and the bytes of its reports; thousands share a connection. What the SDK does by itself is not
part of these measurements.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from fedrank.core.errors import RunError
from fedrank.deploy.hub.folder import HubFolder
from fedrank.deploy.hub.settings import TRIAL, HubSettings
from fedrank.deploy.terms import Terms


def make_hub(folder: Path, devices: int, **settings) -> tuple[HubFolder, Terms, list[str]]:
    """A new hub with devices that have enrolled already; their tokens."""
    home = HubFolder(folder)
    home.prepare(HubSettings(**{**TRIAL, "mechanism": "randomised-response", **settings}))
    told, store = home.open()
    tokens = [secrets.token_urlsafe(32) for _ in range(devices)]
    store.write([hashlib.sha256(t.encode()).digest() for t in tokens], [], [])
    terms = told.terms(store.name)
    store.close()
    return home, terms, tokens


@contextlib.contextmanager
def served(home: HubFolder) -> Iterator[tuple[subprocess.Popen, int]]:
    """The hub in a process of its own: the process and its port."""
    process = subprocess.Popen(
        [sys.executable, "-m", "fedrank", "hub", "serve", str(home.path), "--port", "0", "--proxies", "127.0.0.1"],
        stdout=subprocess.DEVNULL,
        env={**os.environ, "JAX_PLATFORMS": "cpu"},
    )
    try:
        yield process, wait_for(home, process)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        process.wait(30)


def wait_for(home: HubFolder, process: subprocess.Popen, seconds: float = 60.0) -> int:
    """The port, once the hub listens."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if process.poll() is not None:
            raise RuntimeError(f"the hub ended with status {process.returncode}")
        with contextlib.suppress(RunError, ValueError):
            return int(home.url("hub").rsplit(":", 1)[1])
        time.sleep(0.01)
    raise RuntimeError(f"the hub does not listen after {seconds:.0f} s")


def random_replies(terms: Terms, count: int, seed: int) -> list[bytes]:
    """Reports that honest devices may send."""
    random, layout = np.random.default_rng(seed), terms.reply
    most = terms.per_half * terms.metric.largest
    made = layout.message(
        random.integers(0, 2**32, count, np.uint32),
        random.integers(0, most + 1, count).astype(np.int32),
        random.integers(0, most + 1, count).astype(np.int32),
    )
    data = layout.encode_all(made, (count,))
    return [data[i : i + layout.nbytes] for i in range(0, len(data), layout.nbytes)]


def request(round_: int, token: str, body: bytes) -> bytes:
    """A report as it goes through the socket."""
    head = (
        f"POST /v1/report/{round_} HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer {token}\r\n"
        f"content-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


class Client(asyncio.Protocol):
    """One connection: a request, its answer, the next request."""

    def __init__(self):
        self._answer: asyncio.Future | None = None
        self._data = b""

    def connection_made(self, transport):
        """Connected."""
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        """Something came: perhaps the answer is whole."""
        self._data += data
        end = self._data.find(b"\r\n\r\n")
        if end < 0 or self._answer is None:
            return
        head = self._data[:end].lower()
        at = head.find(b"content-length: ")
        length = int(head[at + 16 : head.find(b"\r", at) if head.find(b"\r", at) > 0 else None]) if at >= 0 else 0
        if len(self._data) < end + 4 + length:
            return
        body, self._data = self._data[end + 4 : end + 4 + length], self._data[end + 4 + length :]
        answer, self._answer = self._answer, None
        if not answer.done():
            answer.set_result((int(head[9:12]), body))

    def connection_lost(self, error) -> None:
        """Whoever waits waits in vain."""
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(ConnectionResetError())
        self._answer = None

    async def ask(self, data: bytes) -> tuple[int, bytes]:
        """Status code and body of the answer.

        Raises:
            ConnectionError: The hub is gone; nobody knows whether it counted the report.
        """
        if self.transport.is_closing():
            raise ConnectionResetError
        self._answer = asyncio.get_running_loop().create_future()
        self.transport.write(data)
        return await self._answer


async def connect(port: int) -> Client:
    """A connection to the hub on this machine."""
    _, client = await asyncio.get_running_loop().create_connection(Client, "127.0.0.1", port)
    return client
