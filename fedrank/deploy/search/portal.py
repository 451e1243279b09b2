"""A search page and a REST interface for the people of one asker; it holds the asker's tokens and seals for them.

``POST /v1/search`` takes ``{"query": …, "k": …}`` and gives hits, ``POST /v1/fetch`` takes the name of an answer and
the number of a hit in it. The page at ``/`` uses both. It is for one company's network: whoever reaches it asks in the
asker's name. Web pages of other sites do not (:mod:`fedrank.deploy.http.origins`).
"""

from __future__ import annotations

import asyncio
import functools
import json
import secrets
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.resources import files
from typing import Any, TypeVar

from fedrank.core.errors import ConfigError, FedrankError, RunError
from fedrank.core.trees import Json
from fedrank.deploy.http.app import HttpApp, RequestCounts
from fedrank.deploy.http.guard import Guard
from fedrank.deploy.http.origins import Hosts
from fedrank.deploy.http.routes import NO_SNIFF, NO_STORE, REFUSALS, HttpRequest, HttpResponse, Route, json_response
from fedrank.deploy.search.federation import Answer, Federation

R = TypeVar("R")

#: Searches at once: each waits for its slowest owner.
_THREADS = 32
#: Answers whose hits can still be fetched.
_KEPT = 1000
#: The page loads nothing from elsewhere and runs nothing that stands within it.
_CSP = (
    b"default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; base-uri 'none'; "
    b"form-action 'self'; frame-ancestors 'none'"
)
#: Path → file in the folder ``page``, and its type.
_FILES = {
    "/": ("page.html", b"text/html; charset=utf-8"),
    "/page.css": ("page.css", b"text/css; charset=utf-8"),
    "/page.js": ("page.js", b"text/javascript; charset=utf-8"),
}


class PortalApp(HttpApp):
    """The page and its interface.

    Args:
        federation: The asker's side of the federation.
        names: Names by which browsers may call it; see :class:`~fedrank.deploy.http.origins.Hosts`.

    Raises:
        ConfigError: A name is not the name of a host.
    """

    def __init__(self, federation: Federation, names: Sequence[str] = ()):
        super().__init__(Guard(body_bytes=8192), RequestCounts())
        self.hosts = Hosts(names)
        self._federation = federation
        self._threads = ThreadPoolExecutor(_THREADS, "fedrank-portal")
        self._answers: OrderedDict[str, Answer] = OrderedDict()
        routes = {
            "/v1/search": Route("search", ("POST",), None, self._search),
            "/v1/fetch": Route("fetch", ("POST",), None, self._fetch),
            "/v1/federation": Route("federation", ("GET", "HEAD"), None, self._about),
            "/healthz": Route("healthz", ("GET", "HEAD"), None, self._healthz),
        }
        for path, (name, kind) in _FILES.items():
            routes[path] = Route("page", ("GET", "HEAD"), None, self._file(name, kind))
        self.add_routes(routes)

    def _file(self, name: str, kind: bytes) -> Callable[[HttpRequest], Any]:
        data = (files("fedrank.deploy.search") / "page" / name).read_bytes()
        headers = ((b"content-security-policy", _CSP), (b"referrer-policy", b"no-referrer"))
        shown = HttpResponse(200, data, NO_STORE, NO_SNIFF, *headers, content_type=kind)

        async def respond(_: HttpRequest) -> HttpResponse:
            return shown

        return respond

    async def _work(self, act: Callable[[], R]) -> R:
        return await asyncio.get_running_loop().run_in_executor(self._threads, act)

    async def _search(self, request: HttpRequest) -> HttpResponse:
        body = _object(request.body)
        query, k = body.get("query"), body.get("k", 10)
        if not isinstance(query, str) or not isinstance(k, int) or isinstance(k, bool):
            return REFUSALS["malformed"]
        try:
            answer = await self._work(functools.partial(self._federation.search, query, k))
        except ConfigError as error:
            return _refuse(400, str(error))
        except FedrankError as error:
            return _refuse(502, str(error))
        name = secrets.token_urlsafe(12)
        self._answers[name] = answer
        while len(self._answers) > _KEPT:
            self._answers.popitem(last=False)
        hits: list[Json] = [
            {
                "owner": hit.owner,
                "score": hit.score,
                "cosine": hit.features and hit.features[0],
                "title": hit.title,
                "snippet": hit.snippet._asdict(),
            }
            for hit in answer.hits
        ]
        said: dict[str, Json] = {"missing": dict(answer.missing), "own_statistics": [*answer.own_statistics]}
        said |= {"left_out_cosines": [*answer.left_out_cosines], "note": answer.note}
        return json_response(200, {"answer": name, "hits": hits, **said})

    async def _fetch(self, request: HttpRequest) -> HttpResponse:
        body = _object(request.body)
        answer, number = self._answers.get(str(body.get("answer"))), body.get("hit")
        if (
            answer is None
            or not isinstance(number, int)
            or isinstance(number, bool)
            or not 0 <= number < len(answer.hits)
        ):
            return _refuse(404, "This hit is not kept any more; search again.")
        hit = answer.hits[number]
        try:
            found = await self._work(functools.partial(self._federation.fetch, hit))
        except RunError as error:
            return _refuse(502, str(error))
        return json_response(200, {**found._asdict(), "about": dict(found.about), "owner": hit.owner})

    async def _about(self, request: HttpRequest) -> HttpResponse:
        file = self._federation.file
        owners: list[Json] = [owner.name for owner in file.owners]
        return json_response(200, {"name": file.name, "owners": owners})

    async def _healthz(self, request: HttpRequest) -> HttpResponse:
        return json_response(200, {"status": "ok"})


def _object(body: bytes) -> dict[str, Any]:
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _refuse(code: int, detail: str) -> HttpResponse:
    return json_response(code, {"error": "refused", "detail": detail}, reason="refused")
