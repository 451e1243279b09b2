"""The broker of a federation: it carries sealed questions to owners and their sealed answers back, and reads neither.

``POST /v1/ask`` has a JSON object, owner → sealed question in base64; the answer is owner → ``{"answer": …}`` or
``{"missing": why}``. All owners are asked at once, each by its own threads; one that is slow or gone is missing, and
no answer waits for it longer than ``patience`` seconds. ``GET /v1/owners`` has their names and keys, for comparison
with ``federation.toml``.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from fedrank.core.errors import ConfigError
from fedrank.core.trees import Json
from fedrank.deploy.http.app import HttpApp, RequestCounts
from fedrank.deploy.http.client import HttpClient
from fedrank.deploy.http.guard import Guard, Rate, network_of
from fedrank.deploy.http.routes import REFUSALS, HttpRequest, HttpResponse, Route, json_response, too_many
from fedrank.deploy.search.federation import FederationFile
from fedrank.texts.served.envelopes import LARGEST_ANSWER, LARGEST_QUESTION

#: Longest time in seconds for which an owner is waited for.
PATIENCE = 2.0
#: Requests to one owner that are under way at once; one that hangs takes no thread from the others.
_THREADS = 16


class BrokerApp(HttpApp):
    """Carries questions and answers.

    Args:
        federation: The owners; each with an address.
        patience: Longest time in seconds for which an owner is waited for.
        questions_per_minute: Most requests from one network address.
        ca: File with the certificates to trust in place of the system's.
        allow_http: Plain http to owners on other machines, where the network itself is protected.

    Raises:
        ConfigError: An owner has no address, or one that cannot work.
    """

    def __init__(
        self,
        federation: FederationFile,
        *,
        patience: float = PATIENCE,
        questions_per_minute: float = 6000.0,
        ca: str | None = None,
        allow_http: bool = False,
    ):
        super().__init__(Guard(), RequestCounts(), on_stop=self._stop)
        self._federation, self._patience = federation, patience
        if lacking := [card.name for card in federation.owners if not card.url]:
            raise ConfigError(f"the broker needs the address of {', '.join(lacking)}: url in [[owners]].")
        options: dict[str, Any] = {"ca": ca, "allow_http": allow_http, "timeout": patience}
        self._clients = {card.name: HttpClient(card.url, **options) for card in federation.owners}
        self._rate = Rate(questions_per_minute, 100, time.monotonic_ns)
        self._threads = {name: ThreadPoolExecutor(_THREADS, f"fedrank-broker-{name}") for name in self._clients}
        largest = (LARGEST_QUESTION * 4 // 3 + 200) * len(federation.owners)
        self.add_routes(
            {
                "/v1/ask": Route("ask", ("POST",), self._anybody, self._ask, max_body=largest),
                "/v1/owners": Route("owners", ("GET", "HEAD"), None, self._owners),
                "/healthz": Route("healthz", ("GET", "HEAD"), None, self._healthz),
            }
        )

    async def _stop(self) -> None:
        for threads in self._threads.values():
            threads.shutdown(wait=False, cancel_futures=True)

    def _anybody(self, request: HttpRequest) -> HttpResponse | None:
        seconds = self._rate.wait(network_of(request.address))
        return too_many(seconds) if seconds else None

    async def _ask(self, request: HttpRequest) -> HttpResponse:
        try:
            body = json.loads(request.body)
            asked = {str(name): base64.b64decode(sealed, validate=True) for name, sealed in body.items()}
        except (ValueError, TypeError, AttributeError, RecursionError, binascii.Error):
            return REFUSALS["malformed"]
        answers = await asyncio.gather(*(self._carry(name, sealed) for name, sealed in asked.items()))
        return json_response(200, dict(zip(asked, answers, strict=True)))

    async def _carry(self, name: str, sealed: bytes) -> dict[str, Json]:
        """An owner's answer to a question, or why it is missing."""
        client = self._clients.get(name)
        if client is None:
            return {"missing": "there is no such owner in this federation"}

        late: dict[str, Json] = {"missing": f"it did not answer within {self._patience:g} seconds"}

        def carry() -> dict[str, Json]:
            try:
                found = client.request("POST", "/v1/ask", "", body=sealed, limit=LARGEST_ANSWER)
            except TimeoutError:
                return late
            except OSError:
                return {"missing": "it cannot be reached"}
            if found.status != 200 or len(found.body) > LARGEST_ANSWER:
                return {"missing": f"it refused, with status {found.status}"}
            return {"answer": base64.b64encode(found.body).decode()}

        try:
            work = asyncio.get_running_loop().run_in_executor(self._threads[name], carry)
            return await asyncio.wait_for(work, self._patience)
        except TimeoutError:
            return late

    async def _owners(self, request: HttpRequest) -> HttpResponse:
        owners: list[Json] = [{"name": card.name, "key": card.key} for card in self._federation.owners]
        return json_response(200, {"name": self._federation.name, "owners": owners})

    async def _healthz(self, request: HttpRequest) -> HttpResponse:
        return json_response(200, {"status": "ok"})
