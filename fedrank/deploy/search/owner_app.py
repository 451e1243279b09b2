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
import functools
import json
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from fedrank.core.errors import DataError, FedrankError, WireError
from fedrank.deploy.http.app import HttpApp, RequestCounts
from fedrank.deploy.http.guard import Guard, Rate, Secret, bearer, network_of
from fedrank.deploy.http.routes import (
    NO_STORE,
    REFUSALS,
    HttpRequest,
    HttpResponse,
    Route,
    json_response,
    too_many,
)
from fedrank.deploy.search.askers import Askers
from fedrank.deploy.search.folder import OwnerFolder
from fedrank.deploy.search.statistics import STEPS, StatisticsParty
from fedrank.texts.served.documents import read_documents
from fedrank.texts.served.envelopes import LARGEST_QUESTION
from fedrank.texts.served.owner import Owner

R = TypeVar("R")

#: Largest body of documents to add, and of one step of the statistics.
LARGEST_BODY = 64 << 20
_OCTETS = b"application/octet-stream"


class OwnerApp(HttpApp):
    """Answers sealed questions, and its operator.

    Args:
        folder: Folder of the owner.
        owner: The owner.
        askers: Its askers.
        party: Its part in statistics; None: it is in no federation yet.
        questions_per_minute: Most questions from one network address.
    """

    def __init__(
        self,
        folder: OwnerFolder,
        owner: Owner,
        askers: Askers,
        party: StatisticsParty | None,
        questions_per_minute: float = 6000.0,
    ):
        guard = Guard(body_bytes=1024)
        super().__init__(guard, RequestCounts(), on_stop=self._stop)
        self._folder, self._owner, self._askers, self._party = folder, owner, askers, party
        self._admin = Secret(folder.token("admin"), "admin.token")
        self._broker = Secret(folder.token("broker"), "broker.token")
        self._asked = Rate(questions_per_minute, 100, time.monotonic_ns)
        # The index and the list of askers belong to one thread; questions wait in its queue.
        self._worker = ThreadPoolExecutor(1, "fedrank-owner")
        self._answered = 0
        most = LARGEST_BODY
        self.add_routes(
            {
                "/v1/ask": Route("ask", ("POST",), self._anybody, self._ask, max_body=LARGEST_QUESTION),
                "/v1/statistics/": Route("statistics", ("POST",), self._is_broker, self._statistics, max_body=most),
                "/v1/documents": Route("documents", ("POST", "DELETE"), self._is_admin, self._documents, max_body=most),
                "/healthz": Route("healthz", ("GET", "HEAD"), None, self._healthz),
                "/status.json": Route("status", ("GET", "HEAD"), self._is_admin, self._status),
            }
        )

    async def _work(self, act: Callable[[], R]) -> R:
        return await asyncio.get_running_loop().run_in_executor(self._worker, act)

    async def _stop(self) -> None:
        def close() -> None:
            self._owner.engine.close()
            self._askers.close()

        await self._work(close)
        self._worker.shutdown()

    # ------------------------------------------------------------------------------------------------ who may ask

    def _anybody(self, request: HttpRequest) -> HttpResponse | None:
        seconds = self._asked.wait(network_of(request.address))
        return too_many(seconds) if seconds else None

    def _is_broker(self, request: HttpRequest) -> HttpResponse | None:
        return self._has(self._broker, request)

    def _is_admin(self, request: HttpRequest) -> HttpResponse | None:
        return self._has(self._admin, request)

    def _has(self, secret: Secret, request: HttpRequest) -> HttpResponse | None:
        if secret.matches(bearer(request.authorization)):
            return None
        return self._unauthorised(self._guard.admin_failure, request)

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
            return _told(409, "no-federation", "This owner is in no federation; start it with --federation.")
        try:
            body = json.loads(request.body)
        except (ValueError, RecursionError):
            return REFUSALS["malformed"]
        try:
            answer = await self._work(functools.partial(self._party.answer, request.tail, body))
        except FedrankError as error:
            return _told(409, "refused", str(error))
        if request.tail == "table":
            self._owner.table = self._folder.table()
        return json_response(200, answer)

    async def _documents(self, request: HttpRequest) -> HttpResponse:
        act = self._added if request.method == "POST" else self._removed
        try:
            count = await self._work(functools.partial(act, request.body))
        except DataError as error:
            return _told(400, "malformed", str(error))
        return json_response(200, {"documents": count, "all": await self._work(self._owner.engine.__len__)})

    def _added(self, body: bytes) -> int:
        with tempfile.TemporaryDirectory(dir=self._folder.path) as folder:
            path = Path(folder) / "documents.jsonl"
            path.write_bytes(body)
            try:
                return self._owner.engine.add(list(read_documents(path)))
            except DataError as error:
                line = error.line or 0
                raise DataError(f"line {line}: {str(error).removeprefix(f'{path}:{line}: ')}") from error

    def _removed(self, body: bytes) -> int:
        return self._owner.engine.remove(body.decode("utf-8", "replace").split("\n"))

    async def _healthz(self, request: HttpRequest) -> HttpResponse:
        return json_response(200, {"status": "ok"})

    async def _status(self, request: HttpRequest) -> HttpResponse:
        def numbers() -> dict[str, Any]:
            return {
                "documents": len(self._owner.engine),
                "answered": self._answered,
                "statistics": "shared" if self._owner.table else "own",
                "note": self._owner.table.note() if self._owner.table else "",
                "releases": self._folder.releases(),
                "askers": [{"name": n, "searched": s, "fetched": f} for n, s, f in self._askers.rows()],
            }

        return json_response(200, await self._work(numbers))


def _told(code: int, reason: str, detail: str) -> HttpResponse:
    return json_response(code, {"error": reason, "detail": detail}, reason=reason)
