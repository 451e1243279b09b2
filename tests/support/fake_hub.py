"""A hub of a few lines that speaks the protocol of devices, and misbehaves on demand. It knows nothing of the real one.

::

    with FakeHub(terms, weights) as hub:
        hub.faults.append(Fault("POST /v1/report", status=503, headers={"Retry-After": "1"}))
        hub.faults.append(Fault("POST /v1/report", lose=True))   # does what was asked, then closes without an answer
"""

import hashlib
import json
import math
import struct
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np

from fedrank.deploy.terms import Terms

#: Limits of a device whose app allows everything.
ANYTHING = {"most_epsilon": math.inf, "most_search_epsilon": math.inf, "lifetime_epsilon": math.inf}
ENROLMENT = "enrolment-token-of-tests"
HUB = "0123456789abcdef" * 2


@dataclass
class Fault:
    """What happens to the next request whose method and path begin so."""

    where: str
    status: int | None = None
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    raw: bytes | None = None  # sent as it is, in place of an answer in HTTP
    trickle: tuple[bytes, float, int] | None = None  # bytes, pause in seconds, how often
    lose: bool = False  # done, but no answer
    before: object = None  # called without arguments before the request is looked at


def model_bytes(round_: int, weights) -> bytes:
    """A request of the wire form, version 1, kind 1, written from its description."""
    return bytes([1 << 5 | 1]) + struct.pack("<I", round_) + np.asarray(weights, "<f4").tobytes()


class FakeHub:
    """A server in a thread; all that it was told is in ``seen`` and ``reports``."""

    def __init__(self, terms: Terms, weights, *, tls=None):
        self.terms, self.weights = terms, np.asarray(weights, np.float32)
        self.round, self.state = 0, "open"
        self.tokens: list[str] = []
        self.issued = 0
        self.reports: dict[tuple[int, str], bytes] = {}
        self.seen: list[tuple[str, str, dict[str, str], bytes]] = []
        self.faults: list[Fault] = []
        self.lock = threading.Lock()
        hub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, format, *args):
                pass

            def handle_one_request(self):
                try:
                    super().handle_one_request()
                except OSError:
                    self.close_connection = True

            def do_GET(self):
                hub.handle(self)

            do_POST = do_DELETE = do_GET

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.server.handle_error = lambda *_: None  # clients that go away, on purpose
        if tls is not None:
            self.server.socket = tls.wrap_socket(self.server.socket, server_side=True)
        self.port = self.server.server_address[1]
        self.url = f"{'http' if tls is None else 'https'}://127.0.0.1:{self.port}"
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()

    def asked(self, where: str) -> int:
        """How many requests began so."""
        return sum(f"{method} {path}".startswith(where) for method, path, _, _ in self.seen)

    def move_on(self, weights=None):
        """The next round, with another model."""
        self.round += 1
        self.weights = self.weights + np.float32(0.125) if weights is None else np.asarray(weights, np.float32)

    def handle(self, request):
        """One request."""
        body = request.rfile.read(int(request.headers.get("Content-Length") or 0))
        method, path = request.command, request.path
        fault = None
        with self.lock:
            self.seen.append((method, path, dict(request.headers), body))
            for candidate in self.faults:
                if f"{method} {path}".startswith(candidate.where):
                    fault = candidate
                    self.faults.remove(candidate)
                    break
        if fault is not None and fault.before is not None:
            fault.before()
        if fault is None or fault.lose or (fault.status is None and fault.raw is None and fault.trickle is None):
            with self.lock:
                status, headers, out = self.answer(method, path, request.headers, body)
        else:
            status, headers, out = fault.status, fault.headers, fault.body
        if fault is not None and (fault.lose or fault.raw is not None or fault.trickle is not None):
            request.wfile.write(fault.raw or b"")
            data, pause, times = fault.trickle or (b"", 0, 0)
            for _ in range(times):
                request.wfile.write(data)
                request.wfile.flush()
                time.sleep(pause)
            request.close_connection = True
            return
        request.send_response(status)
        for name, value in headers.items():
            request.send_header(name, value)
        if "Content-Length" not in headers:
            request.send_header("Content-Length", str(len(out)))
        request.end_headers()
        request.wfile.write(out)

    def answer(self, method, path, headers, body):
        """What the protocol says."""
        token = (headers.get("Authorization") or "").removeprefix("Bearer ")
        if (method, path) == ("POST", "/v1/enrol"):
            if token != ENROLMENT:
                return refusal(401, "unauthorised")
            self.issued += 1
            self.tokens.append(f"device-token-{self.issued:04}")
            given = {"token": self.tokens[-1], "terms": self.terms.as_json()}
            return 201, {"Content-Type": "application/json"}, json.dumps(given).encode()
        if token not in self.tokens:
            return refusal(401, "unauthorised")
        if (method, path) == ("DELETE", "/v1/device"):
            self.tokens.remove(token)
            return 204, {}, b""
        if (method, path) == ("GET", "/v1/model"):
            model = model_bytes(self.round, self.weights)
            etag = f'"{self.terms.hub[:8]}-{self.round}-{hashlib.sha256(model[5:]).hexdigest()[:8]}"'
            about = {"ETag": etag, "Fedrank-State": self.state}
            if headers.get("If-None-Match") == etag:
                return 304, about, b""
            return 200, about, model
        if method == "POST" and path.startswith("/v1/report/"):
            round_ = int(path.rsplit("/", 1)[1])
            before = self.reports.get((round_, token))
            if before is not None:
                return (200, {}, b"{}") if before == body else refusal(409, "conflict")
            if self.state == "done":
                return refusal(410, "done")
            if round_ != self.round:
                return refusal(409, "stale-round" if round_ < self.round else "early-round")
            self.reports[round_, token] = body
            return 201, {}, b"{}"
        return refusal(404, "not-found")


def refusal(status: int, reason: str, **headers: str):
    """A refusal as the protocol has it."""
    return status, {"Content-Type": "application/json", **headers}, json.dumps({"error": reason}).encode()


def fault(where: str, status: int, reason: str, **headers: str) -> Fault:
    """The next such request is refused."""
    _, about, body = refusal(status, reason, **{name.replace("_", "-"): value for name, value in headers.items()})
    return Fault(where, status=status, headers=about, body=body)
