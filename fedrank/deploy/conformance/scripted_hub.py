"""A hub that does what a scene wants, right or wrong, and keeps everything that it is asked."""

from __future__ import annotations

import base64
import hashlib
import json
import struct
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np

from fedrank.core.errors import WireError
from fedrank.core.trees import Json
from fedrank.deploy.oblivious.blind_rsa import EXPONENT, PublicKey, Signer, Verifier
from fedrank.deploy.oblivious.tokens import (
    MODULUS,
    blinded_in,
    content_of,
    encode_key,
    epoch_challenge,
    key_id,
    token_in,
)
from fedrank.deploy.terms import Terms


class ScriptedIssuer:
    """Sells tokens of epoch 0 (section 11 of the wire format).

    Args:
        hub: Name of the hub.

    Raises:
        MissingExtraError: gmpy2 is not installed.
    """

    def __init__(self, hub: str):
        from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key

        key = generate_private_key(EXPONENT, 8 * MODULUS)
        public = PublicKey(key.public_key().public_numbers().n)
        self._signer, self._verifier, self._public = Signer(key), Verifier(public), encode_key(public)
        self._challenge = epoch_challenge(hub, 0)

    def keys(self, round_: int, state: str, etag: str) -> bytes:
        """The answer to a question for the keys (rule 11.2)."""
        sold = {"0": base64.urlsafe_b64encode(self._public).decode()}
        return json.dumps({"round": round_, "state": state, "etag": etag, "keys": sold}).encode()

    def sign(self, request: bytes) -> bytes | None:
        """The token response to a token request; None if it is none."""
        try:
            return self._signer.sign(blinded_in(request, self._public))
        except WireError:
            return None

    def shown(self, header: str) -> bytes | None:
        """The token in a header, if it is one of this issuer's; else None."""
        token = token_in(header.encode())
        if token is None or token[34:66] != self._challenge or token[66:98] != key_id(self._public):
            return None
        return token if self._verifier.accepts(content_of(token), token[-MODULUS:]) else None


#: The enrolment token of every scene.
ENROLMENT = "enrolment-token-of-scenes"
#: Name of the hub of every scene.
HUB = "0123456789abcdef" * 2
#: Features of a document in every scene.
FEATURES = 2


@dataclass
class Asked:
    """A request: method, path, headers by their names in lower case, body, and seconds since the scene began."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    when: float

    @property
    def token(self) -> str:
        """The token that it showed; empty: none."""
        return self.headers.get("authorization", "").removeprefix("Bearer ")

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


@dataclass
class Trick:
    """What is done in place of the right answer to the next request that begins so.

    Attributes:
        start: Beginning of method and path, such as ``"POST /v1/report"``.
        status: Status of the answer; 0: the right thing is done, and the connection closed without an answer.
        body: Bytes of the answer.
        headers: Headers of the answer.
    """

    start: str
    status: int
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)


class ScriptedHub:
    """A hub on loopback, in a thread, for one scene; leave it as a context manager.

    Args:
        terms: What it hands out; a scene may change it.

    Attributes:
        issuer: Sells tokens, which reports are then shown with; None: reports show the tokens of devices.
        best: The message of the best model; None: there is none.
    """

    def __init__(self, terms: Terms):
        self.terms: dict[str, Json] = terms.as_json()
        self.weights = np.array([1.0, -1.0], np.float32)
        self.round, self.state = 0, "open"
        self.tokens: list[str] = []
        self.reports: dict[tuple[int, str], bytes] = {}
        self.issuer: ScriptedIssuer | None = None
        self.best: bytes | None = None
        self.asked: list[Asked] = []
        self.tricks: list[Trick] = []
        self._issued, self._lock, self._began = 0, threading.Lock(), time.monotonic()
        hub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, format: str, *args: Any) -> None:
                pass

            def do_GET(self) -> None:
                hub._handle(self)

            do_POST = do_DELETE = do_PUT = do_HEAD = do_GET

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._server.handle_error = lambda *_: None  # type: ignore[method-assign] - clients that go away, on purpose
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    def __enter__(self) -> ScriptedHub:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def of(self, start: str) -> list[Asked]:
        """The requests whose method and path begin so, in order."""
        return [one for one in self.asked if str(one).startswith(start)]

    def model(self) -> bytes:
        """The model message of the open round (rule 4.1)."""
        return b"\x21" + struct.pack("<I", self.round) + self.weights.astype("<f4").tobytes()

    def _handle(self, request: BaseHTTPRequestHandler) -> None:
        body = request.rfile.read(int(request.headers.get("Content-Length") or 0))
        headers = {name.lower(): value for name, value in request.headers.items()}
        asked = Asked(request.command, request.path, headers, body, time.monotonic() - self._began)
        with self._lock:
            self.asked.append(asked)
            trick = next((one for one in self.tricks if str(asked).startswith(one.start)), None)
            if trick is not None:
                self.tricks.remove(trick)
            status, about, out = self._answer(asked) if trick is None or not trick.status else (0, {}, b"")
        if trick is not None and not trick.status:
            request.close_connection = True
            return
        if trick is not None:
            status, about, out = trick.status, trick.headers, trick.body
        request.send_response(status)
        for name, value in {"Content-Length": str(len(out)), **about}.items():
            request.send_header(name, value)
        request.end_headers()
        request.wfile.write(out)

    def _answer(self, asked: Asked) -> tuple[int, dict[str, str], bytes]:
        if str(asked) == "POST /v1/enrol":
            if asked.token != ENROLMENT:
                return refused(401, "unauthorised")
            self._issued += 1
            self.tokens.append(f"device-token-{self._issued:04}")
            return 201, {}, json.dumps({"token": self.tokens[-1], "terms": self.terms}).encode()
        if self.issuer is not None and str(asked) == "GET /v1/tokens":
            return 200, {}, self.issuer.keys(self.round, self.state, self._tag())
        if self.issuer is not None and str(asked) == "GET /v1/model":
            return 200, {"ETag": self._tag(), "Fedrank-State": self.state}, self.model()
        if self.issuer is not None and asked.path.startswith("/v1/report/"):
            if self.issuer.shown(asked.headers.get("authorization", "")) is None:
                return refused(401, "unauthorised")
            return self._report(asked)
        if asked.token not in self.tokens:
            return refused(401, "unauthorised")
        if self.issuer is not None and str(asked) == "POST /v1/token/0":
            signed = self.issuer.sign(asked.body)
            return refused(400, "malformed") if signed is None else (200, {}, signed)
        if self.best is not None and str(asked) == "GET /v1/best":
            return 200, {}, self.best
        if str(asked) == "DELETE /v1/device":
            self.tokens.remove(asked.token)
            return 204, {}, b""
        if str(asked) == "GET /v1/model":
            tag = self._tag()
            about = {"ETag": tag, "Fedrank-State": self.state}
            return (304, about, b"") if asked.headers.get("if-none-match") == tag else (200, about, self.model())
        if asked.method == "POST" and asked.path.startswith("/v1/report/"):
            return self._report(asked)
        return refused(404, "not-found")

    def _tag(self) -> str:
        return f'"{self.round}-{hashlib.sha256(self.model()).hexdigest()[:8]}"'

    def _report(self, asked: Asked) -> tuple[int, dict[str, str], bytes]:
        number = asked.path.removeprefix("/v1/report/")
        round_ = int(number) if number.isdecimal() else -1
        before = self.reports.get((round_, asked.token))
        if before is not None:
            return (200, {}, b"{}") if before == asked.body else refused(409, "conflict")
        if self.state == "done":
            return refused(410, "done")
        if round_ != self.round:
            return refused(409, "stale-round" if round_ < self.round else "early-round")
        self.reports[round_, asked.token] = asked.body
        self.round += 1
        self.weights = self.weights + np.float32(0.125)
        return 201, {}, b"{}"


def refused(status: int, reason: str, **headers: str) -> tuple[int, dict[str, str], bytes]:
    """A refusal as the wire format has it (rule 7.3)."""
    return status, headers, json.dumps({"error": reason, "detail": ""}).encode()
