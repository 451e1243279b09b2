"""A search page and a REST interface for the people of one asker; it holds the asker's tokens and seals for them.

``POST /v1/search`` takes ``{"query": …, "k": …}`` and gives hits, ``POST /v1/fetch`` takes the name of an answer and
the number of a hit in it. The page at ``/`` uses both. It is for one company's network: whoever reaches it asks in the
asker's name. Web pages of other sites do not (:mod:`fedrank.deploy.http.app`).

With a company's key the portal signs who asks, as the proxy in front of it says in two headers, so that each person
finds what they may read. Groups whose names cannot be those of readers are left out, and all after the 64th. The proxy
must set both headers in every request, and be the only way to the portal.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.resources import files
from typing import TypeVar

from fedrank.core.errors import ConfigError, FedrankError
from fedrank.core.trees import Json
from fedrank.deploy.http.app import HttpApp, RequestCounts
from fedrank.deploy.http.guard import Guard
from fedrank.deploy.http.origins import Hosts
from fedrank.deploy.http.routes import (
    REFUSALS,
    HttpRequest,
    HttpResponse,
    Respond,
    Route,
    json_response,
    page_route,
    refuse,
)
from fedrank.deploy.search.federation import Answer, Federation
from fedrank.texts.served.rights import MOST_GROUPS, is_name, sign_person

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
        names: Names by which browsers may call it; see :class:`~fedrank.deploy.http.app.Hosts`.
        key: The company's private key, with which it signs who asks; empty: all ask in the asker's name.
        headers: Names of the headers with the person, and with groups (commas between).

    Raises:
        ConfigError: A name is not the name of a host.
    """

    def __init__(
        self,
        federation: Federation,
        names: Sequence[str] = (),
        key: bytes = b"",
        headers: tuple[str, str] = ("Remote-User", "Remote-Groups"),
    ):
        super().__init__(Guard(body_bytes=8192), RequestCounts())
        self.hosts = Hosts(names)
        self._federation, self._key = federation, key
        self._headers = tuple(name.lower().encode() for name in headers)
        self._threads = ThreadPoolExecutor(_THREADS, "fedrank-portal")
        self._answers: OrderedDict[tuple[str, str], Answer] = OrderedDict()  # by person, and a random name
        routes = {
            "/v1/search": Route("search", ("POST",), None, _explain(self._search)),
            "/v1/more": Route("more", ("POST",), None, _explain(self._extend)),
            "/v1/fetch": Route("fetch", ("POST",), None, _explain(self._fetch)),
            "/v1/federation": Route("federation", ("GET", "HEAD"), None, self._about),
            "/healthz": Route("healthz", ("GET", "HEAD"), None, self._healthz),
        }
        for path, (name, kind) in _FILES.items():
            routes[path] = page_route("page", (files("fedrank.deploy.search") / "page" / name).read_bytes(), kind, _CSP)
        self.add_routes(routes)

    async def _work(self, act: Callable[[], R]) -> R:
        return await asyncio.get_running_loop().run_in_executor(self._threads, act)

    def _person(self, request: HttpRequest) -> tuple[str, Mapping[str, Json] | None]:
        """The person who asks, and the company's word for it.

        Raises:
            ConfigError: The proxy does not say who asks, or with a name that cannot be used.
        """
        if not self._key:
            return "", None
        given = [[value.decode("latin-1") for key, value in request.headers if key == name] for name in self._headers]
        if len(given[0]) != 1 or len(given[1]) > 1:
            raise ConfigError("The proxy in front of this portal does not say who asks; ask whoever runs it.")
        groups = [one for one in (part.strip() for part in "".join(given[1]).split(",")) if is_name(one)][:MOST_GROUPS]
        until = int(time.time() // 86400) + 1
        return given[0][0], sign_person(self._key, self._federation.asker, given[0][0], groups, until)

    async def _search(self, request: HttpRequest) -> HttpResponse:
        body = request.json()
        query, k, every = body.get("query"), body.get("k", 10), body.get("all_owners") is True
        if not isinstance(query, str) or type(k) is not int:
            return REFUSALS["malformed"]
        who, person = self._person(request)
        answer = await self._work(lambda: self._federation.search(query, k, person, every))
        return self._keep(who, secrets.token_urlsafe(12), answer)

    async def _extend(self, request: HttpRequest) -> HttpResponse:
        body = request.json()
        k = body.get("k", 10)
        if type(k) is not int or not 1 <= k <= 1000:
            return REFUSALS["malformed"]
        who, person = self._person(request)
        if (before := self._answers.get((who, str(body.get("answer"))))) is None:
            return refuse(404, "This answer is not kept any more; search again.")
        answer = await self._work(lambda: self._federation.extend(before, k, person))
        # Of another name, as two may extend the same answer.
        return self._keep(who, secrets.token_urlsafe(12), answer, len(before.hits))

    def _keep(self, who: str, name: str, answer: Answer, shown: int = 0) -> HttpResponse:
        """Keep an answer, so that its hits can be fetched; what is new of it, for the page."""
        self._answers[who, name] = answer
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
            for hit in answer.hits[shown:]
        ]
        said: dict[str, Json] = {"missing": dict(answer.missing), "own_statistics": [*answer.own_statistics]}
        said |= {"left_out_cosines": [*answer.left_out_cosines], "note": answer.note, "not_asked": [*answer.not_asked]}
        said |= {"unknown": dict(answer.unknown), "more": answer.more}
        return json_response(200, {"answer": name, "hits": hits, **said})

    async def _fetch(self, request: HttpRequest) -> HttpResponse:
        body = request.json()
        who, person = self._person(request)
        answer, number = self._answers.get((who, str(body.get("answer")))), body.get("hit")
        if answer is None or type(number) is not int or not 0 <= number < len(answer.hits):
            return refuse(404, "This hit is not kept any more; search again.")
        hit = answer.hits[number]
        found = await self._work(lambda: self._federation.fetch(hit, person))
        return json_response(200, {**found._asdict(), "about": dict(found.about), "owner": hit.owner})

    async def _about(self, request: HttpRequest) -> HttpResponse:
        file = self._federation.file
        owners: list[Json] = [owner.name for owner in file.owners]
        return json_response(200, {"name": file.name, "owners": owners})


def _explain(respond: Respond) -> Respond:
    """The same, where people are told in a sentence why they get nothing."""

    async def explain(request: HttpRequest) -> HttpResponse:
        try:
            return await respond(request)
        except FedrankError as error:
            return refuse(400 if isinstance(error, ConfigError) else 502, str(error))

    return explain
