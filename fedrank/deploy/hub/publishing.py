"""The stage that publishes models, and the public log of a running hub: its answers, prepared once for every head.

=============================  ======================================================================
``GET /v1/log``                the newest signed head and the end of the log, the same for all
``GET /v1/log/<size>``         the same, and a proof that the log only grew since it had that size;
                               with 0: its first entry, the terms, and a proof that they are
``GET /v1/log/entries/<n>``    entries from number n on, some hundred at most, for auditors
=============================  ======================================================================

These routes need no token: the hub does not learn who asks, and nothing is secret.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import json
import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from fedrank.core.trees import Json
from fedrank.deploy.http.routes import NO_SNIFF, REFUSALS, HttpRequest, HttpResponse, Route
from fedrank.deploy.hub.learning import Model
from fedrank.deploy.hub.stages import Stage
from fedrank.deploy.hub.store import Store, StoreError
from fedrank.deploy.log.note import Checkpoint, Signer
from fedrank.deploy.log.proof import BLOCK
from fedrank.deploy.log.submission import Submission
from fedrank.deploy.log.tree import (
    consistency_proof,
    frontier,
    inclusion_proof,
    model_data,
    root,
    round_of,
)

_log = logging.getLogger("fedrank.hub")

#: Entries of one page; answers with proofs that are kept until the next head.
PAGE, _KEPT = 256, 1024


@dataclass(frozen=True)
class _Shown:
    """Answers under one head: replaced as a whole, so that no answer has parts of two.

    Attributes:
        head: The newest head.
        line: The log's signatures under it.
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


class Publishing(Stage):
    """The stage that shows models; without a public log it has no entry of any.

    Attributes:
        skips: The open round's model is not the one in the public log, which has one of a round.
        waits: The newest head, or what has changed beside it, is still to be copied; it is not shown before.
    """

    skips = waits = False

    def entry(self, question: bytes = b"") -> bytes | None:
        """Data of the public log's entry of a model message, by default the newest; None where there is none."""
        return None

    def differs(self, number: int) -> bool:
        """True if the public log has another model of a round than the one that would be handed out."""
        return False

    def publish(self) -> None:
        """Show the newest model before it is handed out; the leader appends it to the public log, if need be.

        Raises:
            StoreError: The log cannot be read or written.
        """
        self.waits = False

    def show(self, number: int, question: bytes, best: bytes | None) -> None:
        """Show the newest model, unless it is not the one of the public log."""
        if not self.skips:
            self.publish()

    def routes(self) -> dict[str, Route]:
        """Routes by path on which anyone may ask."""
        return {}


class PublicLog(Publishing):
    """A public log of terms, models and keys; the writer publishes, any thread reads.

    Args:
        signers: Returns those that sign heads now: two while one takes the other's place.
        store: The hub's log; only the writer uses it.
        model: The model that is handed out.
        others: Returns the entries about offers of tokens and draws that devices need.
        witnesses: Addresses and public keys of witnesses, as the setting has them.
        copy: Copies the hub before a head is shown, so that no head is lost with a disk, and returns the bytes of its
            database; None: it has no copy.
    """

    def __init__(
        self,
        signers: Callable[[], Sequence[Signer]],
        store: Store,
        model: Model,
        others: Callable[[], Sequence[bytes]],
        witnesses: Iterable[str] = (),
        copy: Callable[[], int] | None = None,
    ):
        self._signers, self._copy = signers, copy
        self._standby = store.has_standby()
        self._failed: StoreError | None = None
        self._try_at, self._copied = 0.0, (0.0, 0)
        self._store, self._model, self._others = store, model, others
        self._newest, self._tail, self._keys = b"", frozenset[bytes](), list[bytes]()
        self._shown = _Shown(Checkpoint.of("", 0, b""), "", {}, REFUSALS["unavailable"])
        self._replacing, self._reading = threading.Lock(), threading.RLock()
        self._submission = Submission(tuple(witnesses), self._proof_since, self._add_cosignatures)

    def start(self) -> None:
        """Begin to ask witnesses; say so if nothing of a database outlives its disk."""
        if self._store.shared and not self._standby:
            _log.warning("the database has no synchronous standby: what devices saw is lost with its disk")
        self._submission.start()

    def stop(self) -> None:
        """Stop asking witnesses, and close what was opened."""
        self._submission.stop()
        if "_reader" in vars(self):
            self._reader.close()

    # ------------------------------------------------------------------------------------------------- the writer

    def entry(self, question: bytes = b"") -> bytes | None:
        """Data of the entry of a model message and the best model's; None before a coordinator's first."""
        question = question or self._model.question()
        return model_data(question, self._model.best()) if question else None

    def differs(self, number: int) -> bool:
        """True if the newest entry is another model of this round."""
        newest = self._store.newest_model()
        return newest is not None and round_of(newest[1]) == number and newest[1] != self.entry()

    def publish(self) -> None:
        """Show the log with the model as its newest; that, offers and draws are appended where they are not shown.

        The latter stand in the tail of every answer: they are appended again when the tail begins after them.
        """
        model = self.entry()
        if model is None:
            return
        size = self._store.log_size()
        others = self._others()
        whole = self._tail.issuperset(others) or not self._store.leads
        signers = self._signers()
        keys = [signer.key.public for signer in signers]
        same = size == self._shown.head.size and model == self._newest and whole and keys == self._keys
        if same and not self.waits:
            return
        newest = self._store.newest_model()
        if newest is None or newest[1] != model:
            if not self._store.leads:
                return
            self._store.append_model(model)
            newest, size = self._store.newest_model(), self._store.log_size()
        assert newest is not None  # it has just been appended
        before = newest[0] // BLOCK * BLOCK
        entries = self._store.log_entries(before, size)
        missing = [entry for entry in others if entry not in entries] if self._store.leads else []
        if missing:
            for entry in missing:
                self._store.append_entry(entry)
            size, entries = size + len(missing), entries + missing
        node = self._store.log_node
        notices = self._store.notices(size)
        head = Checkpoint.of(signers[0].key.name, size, root(node, size), notices)
        body: dict[str, Json] = {
            "frontier": _texts(node(*place) for place in frontier(before)),
            "entries": _texts(entries),
        }
        if notices:
            body["notices"] = [
                {"number": n, "entry": _texts([entry])[0], "proof": _texts(inclusion_proof(node, n, size))}
                for n, entry in notices
            ]
        self._copy_first()
        self.waits = False
        self._tail, self._newest, self._keys = frozenset(entries), model, keys
        made = _Shown.of(head, "".join(signer.line(head) for signer in signers), body)
        with self._replacing:
            self._shown = made
        self._submission.submit(head.with_lines(made.line), size)

    def _copy_first(self) -> None:
        """Have a head outlive this disk before it is shown.

        A copy that failed is tried again after ten times as long as the try took, as it may be of a large database.

        Raises:
            StoreError: It cannot be copied; the head waits.
        """
        if self._copy is None:
            if self._store.shared:
                self._store.probe()  # a standby has all that was committed before, by other processes too
            return
        started = time.monotonic()
        if self._failed is not None and started < self._try_at:
            raise self._failed
        try:
            copied = self._copy()
        except StoreError as error:
            if self._failed is None:
                _log.error("%s", error)
            self.waits, self._failed = True, error
            self._try_at = time.monotonic() + 10 * (time.monotonic() - started)
            raise
        self._failed, self._copied = None, (time.monotonic() - started, copied)

    # ------------------------------------------------------------------------------------------------- any thread

    def status(self) -> dict[str, Json]:
        """The copy or standby that has every head before it is shown, and whether it can be written.

        ``copy`` is ``"folder"``, ``"standby"``, or ``"none"``; ``copy_waits`` says that it cannot be
        written, and heads wait; ``copy_seconds`` and ``copy_bytes`` are of the last copy into a folder.
        """
        if self._store.shared:
            with contextlib.suppress(StoreError), self._reading:
                self._standby = self._reader.has_standby()
        seconds, size = self._copied
        return {
            "copy": "standby" if self._standby else "none" if self._copy is None else "folder",
            "copy_waits": self._failed is not None,
            "copy_seconds": seconds,
            "copy_bytes": size,
        }

    def _add_cosignatures(self, size: int, lines: str) -> None:
        """Add what witnesses wrote under the head of a size, if that is still the newest."""
        with self._replacing:
            now = self._shown
            if now.head.size == size:
                self._shown = _Shown.of(now.head, now.line, now.body, lines)

    def _proof_since(self, old: int, size: int) -> list[bytes]:
        with self._reading:
            return consistency_proof(self._reader.log_node, old, size) if 0 < old < size else []

    @functools.cached_property
    def _reader(self) -> Store:
        """A connection for reading, with the lock of reading held: that of the writer belongs to the writer."""
        return self._store.reader()

    def since(self, size: int) -> HttpResponse:
        """The answer with a proof since a size."""
        shown = self._shown
        head, kept = shown.head, shown.asked
        if size > head.size or not head.size:
            return shown.whole
        answer = kept.get(size)
        if answer is None:
            body = json.loads(shown.whole.payload["body"])
            with self._reading:
                reader = self._reader
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

    def page(self, start: int) -> HttpResponse:
        """Entries from a number on."""
        size = self._shown.head.size
        with self._reading:
            return _json({"entries": _texts(self._reader.log_entries(start, min(start + PAGE, size)))})

    def routes(self) -> dict[str, Route]:
        """The routes of the log by path."""
        get = ("GET", "HEAD")

        async def whole(request: HttpRequest) -> HttpResponse:
            return self._shown.whole

        async def since(request: HttpRequest) -> HttpResponse:
            return self.since(*request.numbers(reason="not-found"))

        async def page(request: HttpRequest) -> HttpResponse:
            return self.page(*request.numbers(reason="not-found"))

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
