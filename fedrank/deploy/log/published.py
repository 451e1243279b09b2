"""The public log of a running hub: what everybody may ask about it, prepared once for every head.

=============================  ======================================================================
``GET /v1/log``                the newest signed head and the end of the log, the same for all
``GET /v1/log/<size>``         the same, and a proof that the log only grew since it had that size;
                               with 0: its first entry, the terms, and a proof that they are
``GET /v1/log/entries/<n>``    entries from number n on, some hundred at most, for auditors
=============================  ======================================================================

Nobody shows a token here: who asks is nobody's business, and nothing is secret.
"""

from __future__ import annotations

import base64
import json
import logging
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from fedrank.core.errors import RunError
from fedrank.core.trees import Json
from fedrank.deploy.http.guard import number_of
from fedrank.deploy.http.routes import NO_SNIFF, REFUSALS, HttpRequest, HttpResponse, Route
from fedrank.deploy.hub.store import Store
from fedrank.deploy.log.entries import ISSUER_KEY, key_entry
from fedrank.deploy.log.note import LOG, Checkpoint, Signer, new_private_key, origin_of
from fedrank.deploy.log.proof import BLOCK
from fedrank.deploy.log.submission import Submission
from fedrank.deploy.log.tree import consistency_proof, frontier, inclusion_proof, root
from fedrank.deploy.terms import Terms
from fedrank.engine.checkpoint import write_atomically

_log = logging.getLogger("fedrank.hub")

#: Name of the file with the log's private key, in the hub's folder.
KEY_FILE = "log.key"
#: Entries of one page; answers with proofs that are kept until the next head.
PAGE, _KEPT = 256, 1024


def make_key(folder: Path) -> str:
    """Make the private key of a new log, if there is none; returns the public key as hexadecimal digits.

    Raises:
        RunError: It cannot be written, or what is there is no key.
    """
    if not (folder / KEY_FILE).exists():
        write_atomically(folder / KEY_FILE, new_private_key().hex().encode() + b"\n", 0o600)
    return read_key(folder, "").key.public.hex()


def read_key(folder: Path, hub: str) -> Signer:
    """What signs the heads of a hub's log.

    Args:
        folder: Of the hub.
        hub: Name of the hub.

    Raises:
        RunError: The file is missing or holds no key.
    """
    file = folder / KEY_FILE
    try:
        private = bytes.fromhex(file.read_text(encoding="ascii").strip())
        return Signer(origin_of(hub), LOG, private)
    except (OSError, ValueError) as error:
        raise RunError(f"{file}: the private key of the hub's log cannot be read. Put it back from a copy.") from error


def read_log_key(folder: Path, terms: Terms) -> Signer:
    """What signs the heads of a hub's log, checked against the hub's terms.

    Args:
        folder: Of the hub.
        terms: Of the hub.

    Raises:
        RunError: The file is missing, or holds no key or another.
    """
    signer = read_key(folder, terms.hub)
    if signer.key.public.hex() != terms.log:
        raise RunError(f"{folder / KEY_FILE}: is not the key of the hub's terms. Put it back from a copy.")
    return signer


@dataclass(frozen=True)
class _Shown:
    """What is shown under one head: it is replaced as a whole, so that nobody gets parts of two.

    Attributes:
        head: The newest head.
        line: The log's signature under it.
        body: Frontier and tail of its tree.
        whole: The answer to who was here lately.
        asked: Answers with proofs by the size that they begin at.
    """

    head: Checkpoint
    line: str
    body: dict[str, Json]
    whole: HttpResponse
    asked: dict[int, HttpResponse] = field(default_factory=dict)

    @classmethod
    def of(cls, head: Checkpoint, line: str, body: dict[str, Json], cosignatures: str = "") -> _Shown:
        """With what witnesses wrote under the head."""
        return cls(head, line, body, _json({"checkpoint": head.with_lines(line + cosignatures), **body}))


class PublishedLog:
    """The log as it is shown; :meth:`show` is called by the writer, everything else by any thread.

    Args:
        folder: Folder of the hub.
        store: The hub's log; only the writer uses it.
        terms: Of the hub.
        witnesses: Addresses and public keys of witnesses, as the setting has them.

    Raises:
        RunError: The private key is missing, or is not that of the terms.
    """

    def __init__(self, folder: Path, store: Store, terms: Terms, witnesses: Iterable[str] = ()):
        self._signer = read_log_key(folder, terms)
        self._store, self._reader = store, None
        self._model, self._tail = b"", frozenset[bytes]()
        self._shown = _Shown(Checkpoint.of("", 0, b""), "", {}, REFUSALS["unavailable"])
        self._replacing, self._reading = threading.Lock(), threading.RLock()
        self.submission = Submission(tuple(witnesses), self._proof_since, self._cosigned)

    # ------------------------------------------------------------------------------------------------- the writer

    def show(self, model: bytes, keys: Mapping[int, bytes] | None = None) -> None:
        """Show the log as it is, with a model as its newest; that and keys are appended where they are not shown.

        Keys stand in the tail of every answer: they are appended again when the tail begins after them.

        Args:
            model: Data of the entry of the model message that devices get.
            keys: The issuer's keys by epoch, as published, of all tokens that can be bought.

        Raises:
            StoreError: The log cannot be read or written.
        """
        size = self._store.log_size()
        sold = [key_entry(epoch, key) for epoch, key in sorted((keys or {}).items())]
        if size == self._shown.head.size and model == self._model and self._tail.issuperset(sold):
            return
        newest = self._store.newest_model()
        if newest is None or newest[1] != model:
            self._store.append_model(model)
            newest, size = self._store.newest_model(), self._store.log_size()
        assert newest is not None  # it has just been appended
        before = newest[0] // BLOCK * BLOCK
        entries = self._store.log_entries(before, size)
        if missing := [entry for entry in sold if entry not in entries]:
            for entry in missing:
                self._store.append_entry(ISSUER_KEY, entry[1:])
            size, entries = size + len(missing), entries + missing
        node = self._store.log_node
        head = Checkpoint.of(self._signer.key.name, size, root(node, size))
        self._tail = frozenset(entries)
        body = {"frontier": _texts(node(*place) for place in frontier(before)), "entries": _texts(entries)}
        self._model = model
        made = _Shown.of(head, self._signer.line(head), body)
        with self._replacing:
            self._shown = made
        self.submission.submit(head.with_lines(made.line), size)

    # ------------------------------------------------------------------------------------------------- any thread

    def _cosigned(self, size: int, lines: str) -> None:
        """Add what witnesses wrote under the head of a size, if that is still the newest."""
        with self._replacing:
            now = self._shown
            if now.head.size == size:
                self._shown = _Shown.of(now.head, now.line, now.body, lines)

    def _proof_since(self, old: int, size: int) -> list[bytes]:
        with self._reading:
            return consistency_proof(self._open().log_node, old, size) if 0 < old < size else []

    def _open(self) -> Store:
        """A connection for reading, with the lock of reading held: that of the writer belongs to the writer."""
        if self._reader is None:
            self._reader = Store(self._store.path, read_only=True)
        return self._reader

    def since(self, size: int) -> HttpResponse:
        """The answer with a proof since a size."""
        shown = self._shown
        head, kept = shown.head, shown.asked
        if size > head.size or not head.size:
            return shown.whole
        if size not in kept:
            body = json.loads(shown.whole.payload["body"])
            with self._reading:
                reader = self._open()
                if size == 0:
                    body["terms"] = _texts(reader.log_entries(0, 1))[0]
                    body["proof"] = _texts(inclusion_proof(reader.log_node, 0, head.size))
                else:
                    body["proof"] = _texts(consistency_proof(reader.log_node, size, head.size))
            answer = _json(body)
            if len(kept) >= _KEPT:
                kept.clear()
            kept[size] = answer
            return answer
        return kept[size]

    def page(self, start: int) -> HttpResponse:
        """Entries from a number on."""
        size = self._shown.head.size
        with self._reading:
            return _json({"entries": _texts(self._open().log_entries(start, min(start + PAGE, size)))})

    @property
    def whole(self) -> HttpResponse:
        """The answer to who was here lately."""
        return self._shown.whole

    def close(self) -> None:
        """Stop asking witnesses, and close what was opened."""
        self.submission.stop()
        if self._reader is not None:
            self._reader.close()


def log_routes(log: PublishedLog) -> dict[str, Route]:
    """The routes of a log by path."""
    get = ("GET", "HEAD")

    async def whole(request: HttpRequest) -> HttpResponse:
        return log.whole

    async def since(request: HttpRequest) -> HttpResponse:
        size = number_of(request.tail)
        return REFUSALS["not-found"] if size is None else log.since(size)

    async def page(request: HttpRequest) -> HttpResponse:
        start = number_of(request.tail)
        return REFUSALS["not-found"] if start is None else log.page(start)

    return {
        "/v1/log": Route("log", get, None, whole),
        "/v1/log/entries/": Route("log", get, None, page),
        "/v1/log/": Route("log", get, None, since),
    }


def _json(value: dict[str, Json]) -> HttpResponse:
    return HttpResponse(
        200, json.dumps(value, separators=(",", ":")).encode(), (b"cache-control", b"no-cache"), NO_SNIFF
    )


def _texts(values: Iterable[bytes]) -> list[str]:
    return [base64.b64encode(value).decode() for value in values]
