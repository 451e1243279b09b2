"""The HTTP application of an owner.

==============================  ==========  ==================================================================
``POST /v1/ask``                –           a sealed question; the sealed answer. Who asks stands inside the seal
``POST /v1/statistics/<step>``  broker      the owner's part in a release of the federation's statistics
``POST /v1/documents``          admin       documents to add, one JSON object a line
``DELETE /v1/documents``        admin       ids to take away, one a line
``GET /healthz``                –           whether it answers
``GET /status.json``            admin       numbers of documents and questions
==============================  ==========  ==================================================================
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import json
import logging
import os
import ssl
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from fedrank.core.errors import DataError, FedrankError, RunError, WireError
from fedrank.deploy.http.app import HttpApp, RequestCounts, limit_rate
from fedrank.deploy.http.client import HttpClient
from fedrank.deploy.http.guard import Guard, Rate, Secret
from fedrank.deploy.http.routes import NO_STORE, REFUSALS, HttpRequest, HttpResponse, Route, json_response, refuse
from fedrank.deploy.search.federation import read_federation
from fedrank.deploy.search.folder import Askers, OwnerFolder
from fedrank.deploy.search.statistics import STEPS, SpentError, StatisticsParty
from fedrank.deploy.search.watched import WatchedFolder
from fedrank.texts.served.documents import Document
from fedrank.texts.served.engines import Engine
from fedrank.texts.served.envelopes import LARGEST_QUESTION
from fedrank.texts.served.files import read_documents
from fedrank.texts.served.owner import Owner

R = TypeVar("R")

#: Largest body of documents to add, and of one step of the statistics.
LARGEST_BODY = 64 << 20
#: Seconds between looks at the folder of documents.
FOLLOW_SECONDS = 30.0
#: Files and rows that were left out which are named in the log.
_MOST_SHOWN = 50
_OCTETS = b"application/octet-stream"


class OwnerApp(HttpApp):
    """Answers sealed questions, and its operator.

    Args:
        folder: Folder of the owner.
        owner: The owner.
        askers: Its askers.
        party: Its part in statistics; None: it is in no federation yet.
        questions_per_minute: Most questions from one network address.
        watched: Documents that the index follows; None: they come by requests alone.
    """

    def __init__(
        self,
        folder: OwnerFolder,
        owner: Owner,
        askers: Askers,
        party: StatisticsParty | None,
        questions_per_minute: float = 6000.0,
        watched: WatchedFolder | None = None,
    ):
        guard = Guard(body_bytes=1024)
        super().__init__(guard, RequestCounts(), on_start=self._start, on_stop=self._stop)
        self._watched, self._following = watched, None
        self._folder, self._owner, self._askers, self._party = folder, owner, askers, party
        admin = self.requires(Secret(folder.token("admin"), "admin.token"))
        broker = self.requires(Secret(folder.token("broker"), "broker.token"))
        anybody = limit_rate(Rate(questions_per_minute, 100, time.monotonic_ns))
        # The index and the list of askers belong to one thread; questions wait in its queue.
        self._worker = ThreadPoolExecutor(1, "fedrank-owner")
        self._answered = 0
        self._followed = datetime.now(UTC).isoformat(timespec="seconds") if watched is not None else ""
        most = LARGEST_BODY
        self.add_routes(
            {
                "/v1/ask": Route("ask", ("POST",), anybody, self._ask, max_body=LARGEST_QUESTION),
                "/v1/statistics/": Route("statistics", ("POST",), broker, self._statistics, max_body=most),
                "/v1/documents": Route("documents", ("POST", "DELETE"), admin, self._documents, max_body=most),
                "/healthz": Route("healthz", ("GET", "HEAD"), None, self._healthz),
                "/status.json": Route("status", ("GET", "HEAD"), admin, self._status),
            }
        )

    async def _work(self, act: Callable[[], R]) -> R:
        return await asyncio.get_running_loop().run_in_executor(self._worker, act)

    async def _start(self) -> None:
        if self._watched is not None:  # files are read beside questions, which wait while a batch is indexed
            engine, submit = self._owner.engine, self._worker.submit
            self._watched.add = lambda documents: submit(engine.add, list(documents)).result()
            self._watched.remove = lambda ids: submit(engine.remove, list(ids)).result()
            self._following = asyncio.create_task(self._follow(self._watched))

    async def _follow(self, watched: WatchedFolder) -> None:
        while True:
            await asyncio.sleep(FOLLOW_SECONDS)
            try:
                added, removed = await asyncio.to_thread(watched.follow)
                self._followed = datetime.now(UTC).isoformat(timespec="seconds")
                if added or removed:
                    _log.info("%d documents were added or changed, %d removed", added, removed)
            except FedrankError as error:
                _log.warning("%s", error)
            except Exception:  # the next look may succeed; the status says when the last one did
                _log.exception("the folder of documents cannot be followed")

    async def _stop(self) -> None:
        if self._following is not None:
            self._following.cancel()

        def close() -> None:
            self._owner.engine.close()
            self._askers.close()
            if self._watched is not None:
                self._watched.close()

        await self._work(close)
        self._worker.shutdown()

    # ------------------------------------------------------------------------------------------------ what they get

    async def _ask(self, request: HttpRequest) -> HttpResponse:
        try:
            answer = await self._work(functools.partial(self._owner.answer, request.body))
        except WireError:
            return REFUSALS["malformed"]
        self._answered += 1
        return HttpResponse(200, answer, NO_STORE, content_type=_OCTETS)

    async def _statistics(self, request: HttpRequest) -> HttpResponse:
        if request.tail not in STEPS:
            return REFUSALS["not-found"]
        if self._party is None:
            return refuse(409, "This owner is in no federation; start it with --federation.", "no-federation")
        body = request.json()
        try:
            answer = await self._work(functools.partial(self._party.answer, request.tail, body))
        except FedrankError as error:
            return refuse(409, str(error), "spent" if isinstance(error, SpentError) else "refused")
        if request.tail == "table":
            self._owner.table = self._folder.table()
        return json_response(200, answer)

    async def _documents(self, request: HttpRequest) -> HttpResponse:
        act = self._add if request.method == "POST" else self._remove
        try:
            count = await self._work(functools.partial(act, request.body))
        except DataError as error:
            return refuse(400, str(error), "malformed")
        return json_response(200, {"documents": count, "all": await self._work(self._owner.engine.__len__)})

    def _add(self, body: bytes) -> int:
        with tempfile.TemporaryDirectory(dir=self._folder.path) as folder:
            path = Path(folder) / "documents.jsonl"
            path.write_bytes(body)
            try:
                return self._owner.engine.add(list(read_documents(path)))
            except DataError as error:
                line = error.line or 0
                raise DataError(f"line {line}: {str(error).removeprefix(f'{path}:{line}: ')}") from error

    def _remove(self, body: bytes) -> int:
        return self._owner.engine.remove(body.decode("utf-8", "replace").split("\n"))

    def _note(self) -> str:
        if self._owner.table is not None:
            return self._owner.table.note(self._owner.analyser.fingerprint)
        return "" if self._party is None else self._party.lacking()

    async def _status(self, request: HttpRequest) -> HttpResponse:
        def numbers() -> dict[str, Any]:
            left_out = self._watched.problems() if self._watched is not None else []
            documents, shared = len(self._owner.engine), bool(self._owner.common)
            known = _numbers(self._folder, self._askers, documents, shared, self._note())
            return known | {"answered": self._answered, "followed": self._followed, "left_out": left_out}

        return json_response(200, await self._work(numbers))


def _numbers(folder: OwnerFolder, askers: Askers, documents: int, shared: bool, note: str) -> dict[str, Any]:
    """Entries of an owner's status, those of one that is not served."""
    return {
        "documents": documents,
        "answered": 0,
        "statistics": "shared" if shared else "own",
        "note": note,
        "followed": "",
        "left_out": [],
        "releases": folder.releases(),
        "askers": [{"name": n, "searched": s, "fetched": f} for n, s, f in askers.rows()],
    }


_log = logging.getLogger("fedrank.owner")


#: Bytes of documents that go to a running owner in one request.
_CHUNK = 16 << 20


def owner_app(home: OwnerFolder, federation: Path | None = None, documents: Path | None = None) -> OwnerApp:
    """The application of the owner in a folder that is prepared and locked.

    Args:
        home: The folder.
        federation: The federation's file; None: the owner takes part in no statistics.
        documents: Folder or file whose documents the index follows, from before anything is answered.

    Raises:
        ConfigError: Settings or federation cannot be used, or the federation does not know this owner.
        RunError: Something in the folder cannot be used.
        DataError: There are no documents.
    """
    file = None if federation is None else read_federation(federation)
    if file is not None and (languages := " ".join(file.languages)) != home.settings().languages:
        home.prepare(dataclasses.replace(home.settings(), languages=languages))
    encoder = home.encoder()
    engine, askers = home.engine(encoder), home.askers()
    try:
        watched = None
        if documents is not None:
            watched = WatchedFolder(documents, home.path / "documents.db", engine.add, engine.remove)
            if not len(engine):
                watched.forget()
            _log.info("%d documents were added or changed, %d removed", *watched.follow())
            for line in watched.problems()[:_MOST_SHOWN]:
                _log.warning("left out: %s", line)
        party = None
        if file is not None and len(file.owners) > 1:  # the sum over one owner would be that owner's
            party = StatisticsParty(home, home.private_key(), file, engine)
        return OwnerApp(home, home.owner(engine, askers, encoder), askers, party, watched=watched)
    except BaseException:
        engine.close()
        askers.close()
        raise


class Operator:
    """Operations on an owner: through the process that serves it, or on its folder if there is none.

    Args:
        folder: Folder of the owner.

    Raises:
        RunError: There is no owner.
    """

    def __init__(self, folder: str | os.PathLike[str]):
        self._home = OwnerFolder(folder)
        self._home.public_key()
        self._client: HttpClient | None = None
        if self._home.url_path("owner").exists():
            pinned = self._home.certificate("owner")
            self._client = HttpClient(self._home.url("owner"), allow_http=True, timeout=120.0, pinned=pinned)

    def add(self, documents: Path, problems: list[str] | None = None) -> tuple[int, int]:
        """Add documents.

        Args:
            documents: The file or folder.
            problems: As of :func:`~fedrank.texts.served.files.read_documents`.

        Returns:
            How many were added, and how many there are.

        Raises:
            DataError: The documents cannot be read.
            RunError: They cannot be added; those of earlier chunks may have been.
        """
        if not self._is_served():
            return self._at_home(lambda engine: (engine.add(read_documents(documents, problems)), len(engine)))
        added = total = 0
        for chunk in _chunks(read_documents(documents, problems)):
            found = self._send_request("POST", "/v1/documents", chunk)
            added, total = added + found["documents"], found["all"]
        return added, total

    def remove(self, ids: Iterable[str]) -> tuple[int, int]:
        """Take documents away; returns how many, and how many there are. Errors as :meth:`add`."""
        wanted = list(ids)
        if not self._is_served():
            return self._at_home(lambda engine: (engine.remove(wanted), len(engine)))
        found = self._send_request("DELETE", "/v1/documents", "\n".join(wanted).encode())
        return found["documents"], found["all"]

    def status(self) -> dict[str, Any]:
        """Numbers of the owner."""
        if self._is_served():
            return self._send_request("GET", "/status.json", None)
        with contextlib.closing(self._home.askers()) as askers:
            table, documents = self._home.table(), self._at_home(len)
            note = table.note(self._home.analyser().fingerprint) if table else ""
            return _numbers(self._home, askers, documents, table is not None and not table.few, note)

    def _is_served(self) -> bool:
        """True if the process that wrote its address answers; one that was killed has left the file."""
        if self._client is None:
            return False
        try:
            return self._client.request("GET", "/healthz", "").status == 200
        except ssl.SSLError as error:
            raise RunError(
                f"{self._home.path}: what answers at {self._client.url} does not have the certificate "
                f"{self._home.certificate('owner')} ({error}). Start the owner again."
            ) from error
        except OSError:
            return False

    def _at_home(self, act: Callable[[Engine], R]) -> R:
        with self._home.lock(), contextlib.closing(self._home.engine(self._home.encoder())) as engine:
            return act(engine)

    def _send_request(self, method: str, path: str, body: bytes | None) -> dict[str, Any]:
        assert self._client is not None
        try:
            found = self._client.request(method, path, self._home.token("admin"), body=body, limit=1 << 20)
        except OSError as error:
            raise RunError(f"{self._home.path}: the owner's process does not answer ({error}).") from error
        if found.status != 200:
            raise RunError(f"{self._home.path}: refused: {found.json().get('detail') or found.status}")
        return found.json()


def _chunks(documents: Iterator[Document]) -> Iterator[bytes]:
    """JSON lines of documents, in pieces of about :data:`_CHUNK` bytes."""
    lines: list[bytes] = []
    size = 0
    for document in documents:
        row = {"id": document.id, "title": document.title, "text": document.body, "about": dict(document.about)}
        line = json.dumps(row).encode()
        if lines and size + len(line) > _CHUNK:
            yield b"\n".join(lines)
            lines, size = [], 0
        lines.append(line)
        size += len(line) + 1
    if lines:
        yield b"\n".join(lines)
