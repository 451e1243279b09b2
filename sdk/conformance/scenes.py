"""Conformance of a client with the wire format: scenes of a scripted hub, and a driver that acts in them.

``python sdk/conformance/scenes.py "./my-driver" [SCENE …]`` plays them; the exit status is 1 if something is wrong.

A scene sets the hub up, has the client act for some seconds, and looks at what was asked. It yields a sentence for each
thing that is wrong.

The client is a program, the *driver*, in any language: it makes one device and searches with it. It is told by
environment variables:

``FEDRANK_HUB``         address of the hub
``FEDRANK_ENROLMENT``   enrolment token
``FEDRANK_FOLDER``      folder in which the device keeps what lasts; the same when it is started again in a scene
``FEDRANK_SECONDS``     how long it acts

It makes a device with the limits that the wire format names for apps that say nothing (3.3). Until its time is over it
synchronises, searches while clicks are wanted (each time it ranks the documents (1, 0), (0, 1), (1, 1), clicks on the
first that is shown and ends the interaction), and waits a tenth of a second. At the end it ranks once more and prints
the order of the three documents as a JSON array, such as ``[0, 2, 1]``, as its last line.
"""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
import os
import shlex
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

import numpy as np

from fedrank.core.errors import ConfigError, FedrankError, UnknownNameError, WireError
from fedrank.core.trees import Json
from fedrank.core.words import printable
from fedrank.deploy.draws import Beacon
from fedrank.deploy.log.note import LOG, Checkpoint, Signer, origin_of
from fedrank.deploy.log.tree import (
    LOG_KEY,
    MODEL,
    Grown,
    Rotation,
    inclusion_proof,
    leaf_hash,
    model_data,
    statement,
)
from fedrank.deploy.oblivious.tokens import (
    EXPONENT,
    MODULUS,
    PublicKey,
    Verifier,
    blinded_in,
    content_of,
    encode_key,
    epoch_challenge,
    key_id,
    offer_of,
    token_in,
)
from fedrank.deploy.oblivious.tokens import Signer as BlindSigner
from fedrank.deploy.terms import Terms


class ScriptedIssuer:
    """Sells tokens of every epoch of one round, with one key (section 11 of the wire format).

    Args:
        hub: Name of the hub.

    Raises:
        MissingExtraError: gmpy2 is not installed.
    """

    def __init__(self, hub: str):
        from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key

        key = generate_private_key(EXPONENT, 8 * MODULUS)
        public = PublicKey(key.public_key().public_numbers().n)
        self._signer, self._verifier, self._public = BlindSigner(key), Verifier(public), encode_key(public)
        self._hub = hub

    def sale(self, round_: int, state: str, etag: str) -> bytes:
        """The answer about tokens: the offer, and the beacon of the open round's epoch (rule 11.2)."""
        commitment = hashlib.sha256(self._secret(round_ + 1)).digest()
        offer = base64.urlsafe_b64encode(offer_of(self._public, commitment)).decode()
        said: dict[str, Json] = {"round": round_, "state": state, "etag": etag, "epoch": round_ + 1, "offer": offer}
        if round_:
            said["beacon"] = Beacon(self._secret(round_), bytes(32), 1).as_json()
        return json.dumps(said).encode()

    def _secret(self, epoch: int) -> bytes:
        return hashlib.sha256(b"secret of epoch %d" % epoch).digest()

    def sign(self, request: bytes) -> bytes | None:
        """The token response to a token request; None if it is none."""
        try:
            return self._signer.sign(blinded_in(request, self._public))
        except WireError:
            return None

    def shown(self, header: str, epoch: int) -> bytes | None:
        """The token in a header, if it is one of this issuer's for an epoch; else None."""
        token = token_in(header.encode())
        challenge = epoch_challenge(self._hub, epoch, hashlib.sha256(self._secret(epoch)).digest())
        if token is None or token[34:66] != challenge or token[66:98] != key_id(self._public):
            return None
        return token if self._verifier.accepts(content_of(token), token[-MODULUS:]) else None


class ScriptedLog:
    """The log of a scene's hub, all of it in every answer, whose key can be changed (section 10 of the wire format).

    Args:
        hub: Name of the hub.

    Attributes:
        late: It answers as before the key was changed: by the old key alone, and without a word of the change.
    """

    def __init__(self, hub: str):
        self._keys = [Signer(origin_of(hub), LOG, hashlib.sha256(bytes([n])).digest()) for n in range(3)]
        self._hub, self._entries, self._changed, self.late = hub, list[bytes](), 0, False
        self.terms: dict[str, Json] = {
            name: one.key.public.hex() for name, one in zip(("log", "operator"), self._keys, strict=False)
        }

    def change_key(self) -> None:
        """Have another key take the log's key's place; the operator signs that too."""
        old, operator, new = self._keys
        one = Rotation(LOG_KEY, int(time.time()), old.key.public, new.key.public)
        said = statement(self._hub, one.entry())
        self._changed = len(self._entries)
        self._entries.append(one._replace(signatures=(old.sign(said), operator.sign(said))).entry())

    def answer(self, terms: dict[str, Json], model: bytes) -> bytes:
        """The answer, after the newest model was added if it is not there."""
        entry = bytes([MODEL]) + model_data(model)
        self._entries = self._entries or [b"\x01" + json.dumps(terms).encode()]
        if entry not in self._entries:
            self._entries.append(entry)
        leaves = [leaf_hash(one) for one in self._entries]
        changed = self._changed and not self.late
        told = [(self._changed, self._entries[self._changed])] if changed else []
        head = Checkpoint.of(self._keys[0].key.name, len(leaves), _tree_over(leaves), told)
        said: dict[str, Json] = {
            "checkpoint": head.with_lines(self._keys[2 if changed else 0].line(head)),
            "frontier": [],
            "entries": [base64.b64encode(one).decode() for one in self._entries],
        }
        if changed:
            at = self._changed
            proof = inclusion_proof(lambda level, n: _tree_over(leaves[n << level : (n + 1) << level]), at, len(leaves))
            texts = [base64.b64encode(one).decode() for one in (self._entries[at], *proof)]
            said["notices"] = [{"number": at, "entry": texts[0], "proof": texts[1:]}]
        return json.dumps(said).encode()


def _tree_over(leaves: Sequence[bytes]) -> bytes:
    tree = Grown()
    for leaf in leaves:
        tree.append(leaf)
    return tree.root()


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
    """A reply in place of the right answer to the next request that begins so.

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
        log: Its log; None: it has none.
    """

    def __init__(self, terms: Terms):
        self.terms: dict[str, Json] = terms.as_json()
        self.weights = np.array([1.0, -1.0], np.float32)
        self.round, self.state = 0, "open"
        self.tokens: list[str] = []
        self.reports: dict[tuple[int, str], bytes] = {}
        self.issuer: ScriptedIssuer | None = None
        self.log: ScriptedLog | None = None
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
                return refusal_of(401, "unauthorised")
            self._issued += 1
            self.tokens.append(f"device-token-{self._issued:04}")
            return 201, {}, json.dumps({"token": self.tokens[-1], "terms": self.terms}).encode()
        if self.log is not None and str(asked).startswith("GET /v1/log"):
            return 200, {}, self.log.answer(self.terms, self.model())
        if self.issuer is not None and str(asked) == "GET /v1/tokens":
            return 200, {}, self.issuer.sale(self.round, self.state, self._tag())
        if self.issuer is not None and str(asked) == "GET /v1/model":
            return 200, {"ETag": self._tag(), "Fedrank-State": self.state}, self.model()
        if self.issuer is not None and asked.path.startswith("/v1/report/"):
            if self.issuer.shown(asked.headers.get("authorization", ""), self.round) is None:
                return refusal_of(401, "unauthorised")
            return self._report(asked)
        if asked.token not in self.tokens:
            return refusal_of(401, "unauthorised")
        if self.issuer is not None and asked.path.startswith("/v1/token/"):
            if asked.path == f"/v1/token/{self.round + 1}" and not self.round:
                self.round = 1  # the epoch begins for which it has bought
            signed = self.issuer.sign(asked.body)
            return refusal_of(400, "malformed") if signed is None else (200, {}, signed)
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
        return refusal_of(404, "not-found")

    def _tag(self) -> str:
        return f'"{self.round}-{hashlib.sha256(self.model()).hexdigest()[:8]}"'

    def _report(self, asked: Asked) -> tuple[int, dict[str, str], bytes]:
        number = asked.path.removeprefix("/v1/report/")
        round_ = int(number) if number.isdecimal() else -1
        before = self.reports.get((round_, asked.token))
        if before is not None:
            return (200, {}, b"{}") if before == asked.body else refusal_of(409, "conflict")
        if self.state == "done":
            return refusal_of(410, "done")
        if round_ != self.round:
            return refusal_of(409, "stale-round" if round_ < self.round else "early-round")
        self.reports[round_, asked.token] = asked.body
        self.round += 1
        self.weights = self.weights + np.float32(0.125)
        return 201, {}, b"{}"


def refusal_of(status: int, reason: str, **headers: str) -> tuple[int, dict[str, str], bytes]:
    """A refusal as the wire format has it (rule 7.3)."""
    return status, headers, json.dumps({"error": reason, "detail": ""}).encode()


#: One search a message, ε = 0.05, so that many messages fit into a life of 1.
TERMS = Terms(
    hub=HUB, n_features=FEATURES, interactions=1, mechanism="piecewise", p=1.0, epsilon=0.05, inside=1, outside=2,
    interleaved=True,
)  # fmt: skip
#: Has the client act for a number of seconds; gives what it printed last: the order of the documents that it showed.
Act = Callable[[float], list[int]]
#: Order of the scenes' three documents, (1, 0), (0, 1) and (1, 1), by the weights (1, −1).
BY_MODEL, BY_DATA = [0, 2, 1], [0, 1, 2]
#: Seconds that a client has after a failure; it may wait for two.
_LONG, _SHORT = 5.0, 2.5


@dataclass(frozen=True)
class Scene:
    """A scene: its name, the rules of the wire format that it is about, and its play."""

    name: str
    rules: str
    play: Callable[[ScriptedHub, Act], Iterator[str]]


def _plain(hub: ScriptedHub, act: Act) -> Iterator[str]:
    act(_SHORT)
    if len(hub.of("POST /v1/enrol")) != 1:
        yield f"it must enrol once; it did {len(hub.of('POST /v1/enrol'))} times"
    if len(hub.reports) < 2:
        yield f"it must report in each round; it did in {len(hub.reports)}"
    seeds = set()
    for body in hub.reports.values():
        try:
            seeds.add(int(TERMS.reply.decode(body).seed))
        except WireError as error:
            yield f"a report is not in the form of 6.1: {error}"
    if len(seeds) < len(hub.reports):
        yield "seeds repeat: each round has its own (5.1)"
    for asked in hub.asked:
        if "cookie" in asked.headers or "referer" in asked.headers:
            yield f"{asked} has a cookie or a referrer"
    if any(asked.body for asked in hub.of("GET")):
        yield "a request for the model has a body"


def _lost(hub: ScriptedHub, act: Act) -> Iterator[str]:
    hub.tricks.append(Trick("POST /v1/report", 0))
    act(_LONG)
    sent = [asked.body for asked in hub.of("POST /v1/report/0")]
    if len(sent) < 2:
        yield "a report without an answer must be sent again"
    if len(set(sent)) > 1:
        yield "a report was sent again with other bytes"


def _unknown_token(hub: ScriptedHub, act: Act) -> Iterator[str]:
    threading.Timer(1.5, hub.tokens.clear).start()
    act(_LONG)
    if len(hub.of("POST /v1/enrol")) != 2:
        yield f"after a 401 it must enrol once more; it enrolled {len(hub.of('POST /v1/enrol'))} times in all"
        return
    second = hub.asked.index(hub.of("POST /v1/enrol")[1])
    models = [one for one in hub.asked[second:] if str(one) == "GET /v1/model"]
    if models and "if-none-match" in models[0].headers:
        yield "the first request for a model with a new token has the tag that came with the old one"
    if any(one.token == hub.asked[0].token for one in models):
        yield "a request for the model shows the enrolment token"


def _changed_terms(hub: ScriptedHub, act: Act) -> Iterator[str]:
    def change() -> None:
        hub.terms = {**hub.terms, "epsilon": 0.1, "hub": "f" * 32}
        hub.tokens.clear()

    threading.Timer(1.5, change).start()
    act(_LONG)
    act(_SHORT)  # nor after another start
    agreed = {"device-token-0001"}
    if {asked.token for asked in hub.of("POST /v1/report")} - agreed:
        yield "it reported under terms that its app did not agree to"


def _changed_key(hub: ScriptedHub, act: Act) -> Iterator[str]:
    hub.log = ScriptedLog(HUB)
    hub.terms = {**hub.terms, **hub.log.terms, "epsilon": 0.01}  # so that a life is long enough
    act(_SHORT)
    before = len(hub.reports)
    hub.log.change_key()
    act(_SHORT)
    if not before or len(hub.reports) == before:
        yield f"it must report before the log's key is changed and after: {before}, then {len(hub.reports)} in all"
    hub.log.late = True
    hub.round, before = hub.round + 1, len(hub.reports)
    act(_SHORT)
    if len(hub.reports) > before:
        yield "it used a model that only the log's old key proves, after it saw that another took its place"


def _weak_terms(hub: ScriptedHub, act: Act) -> Iterator[str]:
    hub.terms = {**hub.terms, "epsilon": 1.5}
    act(_SHORT)
    if hub.of("POST /v1/report"):
        yield "it reported with ε = 1.5 of a message, where its app allows 1"


def _life(hub: ScriptedHub, act: Act) -> Iterator[str]:
    hub.terms = {**hub.terms, "epsilon": 0.4}
    act(_SHORT)
    act(_SHORT)  # another start
    if len(hub.reports) != 2:
        yield f"of messages with ε = 0.4 two fit into a life of 1; it sent {len(hub.reports)}"


def _participations(hub: ScriptedHub, act: Act) -> Iterator[str]:
    hub.terms = {**hub.terms, "participations": 1}
    act(_SHORT)
    act(_SHORT)
    if len(hub.reports) != 1:
        yield f"the terms allow one message ever; it sent {len(hub.reports)}"


def _stale(hub: ScriptedHub, act: Act) -> Iterator[str]:
    hub.tricks.append(Trick("POST /v1/report", 409, refusal_of(409, "stale-round")[2]))
    act(_LONG)
    first = hub.of("POST /v1/report")
    if not first:
        yield "it never reported"
    elif len({asked.body for asked in hub.of(str(first[0]))}) > 1:
        yield "after a 409 it made another report of the same round"


def _done(hub: ScriptedHub, act: Act) -> Iterator[str]:
    hub.state = "done"
    order = act(_SHORT)
    if hub.of("POST /v1/report"):
        yield "it reported when training was over"
    if order != BY_MODEL:
        yield "when training is over it must rank by the model"


def _later(hub: ScriptedHub, act: Act) -> Iterator[str]:
    hub.tricks.append(Trick("GET /v1/model", 503, refusal_of(503, "unavailable")[2], {"Retry-After": "4"}))
    act(3.0)
    models = hub.of("GET /v1/model")
    if len(models) > 1 and models[1].when - models[0].when < 4.0:
        yield f"asked to wait 4 seconds, it came back after {models[1].when - models[0].when:.1f}"


def _wrong_model(hub: ScriptedHub, act: Act) -> Iterator[str]:
    wrong = (b"", hub.model()[:-1], b"\x22" + hub.model()[1:], hub.model()[:5] + b"\x00\x00\xc0\x7f" + hub.model()[9:])
    for body in wrong:
        hub.tricks.append(Trick("GET /v1/model", 200, body, {"ETag": '"x"', "Fedrank-State": "open"}))
    if act(_SHORT) not in (BY_DATA, BY_MODEL):
        yield "it ranked by a model that is none"
    if len(hub.tricks) == len(wrong):
        yield "it never asked for a model"
    elif len(hub.tricks) and hub.of("POST /v1/report"):
        yield "it reported about a model that is none"


def _huge_model(hub: ScriptedHub, act: Act) -> Iterator[str]:
    hub.tricks.append(Trick("GET /v1/model", 200, hub.model() + bytes(32 << 20), {"Fedrank-State": "open"}))
    if act(_SHORT) not in (BY_DATA, BY_MODEL):
        yield "it ranked by a model that is too long"


def _elsewhere(hub: ScriptedHub, act: Act) -> Iterator[str]:
    with ScriptedHub(TERMS) as other:
        hub.tricks.append(Trick("GET /v1/model", 307, b"", {"Location": f"{other.url}/v1/model"}))
        act(_SHORT)
        if any(asked.token for asked in other.asked):
            yield "it followed a redirection to another address with its token"


def _another_language(hub: ScriptedHub, act: Act) -> Iterator[str]:
    hub.terms = {**hub.terms, "wire": 7}
    act(_SHORT)
    if hub.of("POST /v1/report"):
        yield "it reported under terms of a version that it does not speak"


def _missing_terms(hub: ScriptedHub, act: Act) -> Iterator[str]:
    hub.terms = {name: value for name, value in hub.terms.items() if name != "sigma"}
    act(_SHORT)
    if hub.of("POST /v1/report"):
        yield "it reported under terms in which σ is missing"


def _later_terms(hub: ScriptedHub, act: Act) -> Iterator[str]:
    hub.terms = {**hub.terms, "a-term-of-later": json.loads('{"x": [1, 2]}')}
    act(_SHORT)
    if not hub.reports:
        yield "a term that it does not know, under a version that it speaks, must be ignored"


def _without_a_log(hub: ScriptedHub, act: Act) -> Iterator[str]:
    hub.terms = {**dataclasses.replace(TERMS, log="ab" * 32).as_json()}
    order = act(_SHORT)
    if order != BY_DATA:
        yield "its hub has a log, and it ranked by a model that no log proves"
    if hub.of("POST /v1/report"):
        yield "it reported about a model that no log proves"


def _tokens(hub: ScriptedHub, act: Act) -> Iterator[str]:
    issuer = hub.issuer = ScriptedIssuer(HUB)
    hub.terms = dataclasses.replace(TERMS, tokens=1, wire=0).as_json()
    hub.tricks.append(Trick("POST /v1/token", 0))
    act(_LONG)
    act(_SHORT)  # another start
    reports = [(asked.path, asked.headers.get("authorization", ""), asked.body) for asked in hub.of("POST /v1/report")]
    shown = {header for _, header, _ in reports}
    if any(issuer.shown(header, int(path.rpartition("/")[2])) is None for path, header, _ in reports):
        yield "it reported with something else than a token that it bought for the round's epoch (11.7)"
    bought = hub.of("POST /v1/token")
    if not bought and not shown:  # it does not speak version 3 of the terms
        return
    if not shown:
        yield "it bought a token and never reported with it"
    if len(bought) < 2:
        yield "a token request without an answer must be sent again"
    if len({(asked.path, asked.body) for asked in bought}) > len({asked.path for asked in bought}):
        yield "it asked for two tokens of one epoch (11.1, 11.5)"
    if len(set(reports)) > len(shown):
        yield "it showed one token with two reports (11.7)"
    if any({"authorization", "if-none-match"} & set(asked.headers) for asked in hub.of("GET /v1/model")):
        yield "its request for the model says who asks, or which model it has (11.8)"


def _checks(hub: ScriptedHub, act: Act) -> Iterator[str]:
    hub.terms = dataclasses.replace(TERMS, checks=1.0, wire=0).as_json()
    hub.best = b"\x21" + bytes(4) + np.array([0.5, 2.0], "<f4").tobytes()
    act(_SHORT)
    made = [asked for asked in hub.of("POST /v1/report") if asked.body[:1] == b"\x27"]
    for asked in made:  # one that learns knows nothing of checks, which is allowed
        if asked.body[1:5] != hashlib.sha256(hub.best[5:]).digest()[:4]:
            yield "a check does not name the model that was the best (12.7)"
        if not any(str(one) == "GET /v1/best" and one.when < asked.when for one in hub.asked):
            yield "it compared with a best model that it never asked for (12.6)"
    if not hub.reports:
        yield "where some devices compare models, it reports in each round all the same"


SCENES = (
    Scene("round-after-round", "4.1, 5, 6.1, 7", _plain),
    Scene("a-report-is-lost", "9.1, 9.2", _lost),
    Scene("the-token-is-unknown", "8", _unknown_token),
    Scene("the-terms-change", "1", _changed_terms),
    Scene("weak-terms", "3.1, 3.2", _weak_terms),
    Scene("a-life", "3.3", _life),
    Scene("participations", "3.4", _participations),
    Scene("a-stale-round", "8, 9.1", _stale),
    Scene("training-is-over", "8", _done),
    Scene("come-back-later", "8", _later),
    Scene("a-model-that-is-none", "4", _wrong_model),
    Scene("a-model-without-end", "4", _huge_model),
    Scene("led-elsewhere", "7", _elsewhere),
    Scene("another-version", "1", _another_language),
    Scene("a-term-is-missing", "1", _missing_terms),
    Scene("terms-of-later", "1", _later_terms),
    Scene("a-model-that-no-log-proves", "10", _without_a_log),
    Scene("another-key-of-the-log", "10.11, 10.12", _changed_key),
    Scene("blind-tokens", "11", _tokens),
    Scene("models-are-compared", "12.6, 12.7", _checks),
)


#: Seconds beyond its time after which a driver is killed.
_GRACE = 30.0


class Outcome(NamedTuple):
    """Result of a scene: its name, its rules, and what is wrong; nothing: the client kept to them."""

    name: str
    rules: str
    wrong: tuple[str, ...]


def conformance(command: Sequence[str], only: Sequence[str] = ()) -> Iterator[Outcome]:
    """Play the scenes with a client, one after the other.

    Args:
        command: Program of the driver and its arguments.
        only: Names of scenes; empty: all.

    Raises:
        ConfigError: There is no such program.
        UnknownNameError: There is no such scene.
    """
    names = [scene.name for scene in SCENES]
    for name in only:
        if name not in names:
            raise UnknownNameError("scene", name, names)
    for scene in SCENES:
        if not only or scene.name in only:
            yield Outcome(scene.name, scene.rules, tuple(dict.fromkeys(_play(scene, command))))


def _play(scene: Scene, command: Sequence[str]) -> Iterator[str]:
    wrong: list[str] = []
    with tempfile.TemporaryDirectory() as folder, ScriptedHub(TERMS) as hub:

        def act(seconds: float) -> list[int]:
            about = {"HUB": hub.url, "ENROLMENT": ENROLMENT, "FOLDER": folder, "SECONDS": f"{seconds:g}"}
            named = {f"FEDRANK_{name}": value for name, value in about.items()}
            try:
                done = subprocess.run(
                    command, env={**os.environ, **named}, capture_output=True, text=True, timeout=seconds + _GRACE
                )
            except OSError as error:
                raise ConfigError(f"the driver cannot be started: {error}.") from error
            except subprocess.TimeoutExpired:
                wrong.append(f"the driver did not end within {_GRACE:g} seconds after its time")
                return []
            if done.returncode:
                last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
                how = f"status {done.returncode}" if done.returncode > 0 else f"signal {-done.returncode}"
                wrong.append(f"the driver ended with {how}: {last[:200]}")
                return []
            try:
                order = json.loads((done.stdout.strip().splitlines() or [""])[-1])
            except ValueError:
                wrong.append("the driver's last line is not the order of the documents")
                return []
            return order if isinstance(order, list) else []

        yield from scene.play(hub, act)
    yield from wrong


def main(arguments: Sequence[str]) -> int:
    """Play scenes and print what is wrong in each.

    Args:
        arguments: The driver's program with its arguments in one text, then names of scenes; none: all scenes.

    Returns:
        The exit status.
    """
    status = 0
    for outcome in conformance(shlex.split(arguments[0]), arguments[1:]):
        print(f"{'no ' if outcome.wrong else 'yes'}  {outcome.name}  (rules {outcome.rules})", flush=True)
        for sentence in outcome.wrong:
            print(f"     {printable(sentence)}")
            status = 1
    return status


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:] or ["--help"]))
    except FedrankError as error:
        sys.exit(f"scenes: {error}")
