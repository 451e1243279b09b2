"""The broker of a federation: it carries sealed questions to owners and their sealed answers back, and reads neither.

``POST /v1/ask`` has a JSON object, owner → sealed question in base64; the answer is owner → ``{"answer": …}`` or
``{"missing": why}``. All owners are asked at once, and whoever has not answered ``patience`` seconds later is missing:
one deadline for the whole query. An owner that lets two deadlines pass, without an answer to anybody meanwhile, is not
asked until it answers a look at ``/healthz`` in the background (a circuit breaker), so that one that hangs costs
searchers two waits and not one a search. ``POST /v1/join`` takes an owner's card
(:mod:`fedrank.deploy.search.joining`).
"""

from __future__ import annotations

import asyncio
import base64
import dataclasses
import functools
import logging
import os
import ssl
import time
from typing import Any

from fedrank.core.errors import ConfigError, FedrankError
from fedrank.core.lazy import OptionalModule
from fedrank.core.trees import Json
from fedrank.deploy.http.app import HttpApp, RequestCounts, limit_rate
from fedrank.deploy.http.client import HttpClient
from fedrank.deploy.http.guard import Guard, Rate, Secret
from fedrank.deploy.http.routes import REFUSALS, HttpRequest, HttpResponse, Route, json_response, refuse
from fedrank.deploy.search.federation import FederationFile, OwnerCard, federation_text, read_federation
from fedrank.deploy.search.joining import LARGEST_CARD, BrokerFolder
from fedrank.deploy.search.statistics import SpentError, make_statistics
from fedrank.engine.checkpoint import write_atomically
from fedrank.engine.settings import read_toml
from fedrank.texts.served.envelopes import LARGEST_ANSWER, LARGEST_QUESTION

httpx = OptionalModule("httpx", "search", "The broker of a federation")

_log = logging.getLogger("fedrank.broker")
#: Seconds from a query to its answer; owners that have not answered by then are missing.
PATIENCE = 2.0
#: Connections to one owner, and questions that may wait for one of them.
_CONNECTIONS, _WAITING = 16, 256
#: Deadlines in a row that an owner may miss before it is asked no more.
_MISSES = 2
#: Seconds until the first look at an owner that is asked no more, and longest time between looks; each doubles.
_FIRST_LOOK, _LONGEST_PAUSE = 1.0, 60.0
#: Seconds after which owners that have joined should be served: those that are not are named in the log.
_SETTLED = 30.0


class _Carrier:
    """The way to one owner.

    Args:
        card: The owner.
        patience: Seconds that it may take to answer.
        options: ``ca`` and ``allow_http`` of the connection.
    """

    def __init__(self, card: OwnerCard, patience: float, **options: Any):
        self.card, checked = card, HttpClient(card.url, **options)
        self._url, self._patience = checked.url, patience
        limits = httpx.Limits(max_connections=_CONNECTIONS, max_keepalive_connections=_CONNECTIONS)
        verify = checked.tls or False
        # No proxy is looked up, and no redirect followed: a question is for this address.
        self._client = httpx.AsyncClient(verify=verify, limits=limits, timeout=None, trust_env=False)
        self._asked, self._missed, self._pause, self._heard = 0, 0, _FIRST_LOOK, 0.0
        self._look: asyncio.Task[None] | None = None

    async def carry(self, sealed: bytes) -> dict[str, Json]:
        """The owner's answer to a question, or why it is missing."""
        if self._look is not None:
            return _missing(f"hung: it let {_MISSES} questions pass, and is asked again when it answers")
        if self._asked >= _CONNECTIONS + _WAITING:
            return _missing("overloaded: too many questions wait for it")
        self._asked += 1
        began = time.monotonic()
        try:
            async with asyncio.timeout(self._patience):
                status, body = await self._post(sealed)
        except TimeoutError:
            if self._heard > began:  # it answers others: it has too much to do, and does not hang
                return _missing(f"overloaded: it did not answer within {self._patience:g} seconds")
            self._missed += 1
            if self._missed >= _MISSES and self._look is None:
                self._look = asyncio.create_task(self._look_again())
            return _missing(f"hung: it did not answer within {self._patience:g} seconds")
        except (httpx.HTTPError, OSError) as error:
            return _missing(_reason(error))
        finally:
            self._asked -= 1
        self._missed, self._pause, self._heard = 0, _FIRST_LOOK, time.monotonic()
        if status == 429:
            return _missing("overloaded: it takes no more questions this minute")
        if status != 200 or len(body) > LARGEST_ANSWER:
            return _missing(f"refused: it answered with status {status}")
        return {"answer": base64.b64encode(body).decode()}

    async def _post(self, sealed: bytes) -> tuple[int, bytes]:
        headers = {"content-type": "application/octet-stream", "accept-encoding": "identity"}
        async with self._client.stream("POST", f"{self._url}/v1/ask", content=sealed, headers=headers) as response:
            body = bytearray()
            if response.status_code == 200 and response.headers.get("content-type") != "application/octet-stream":
                return 415, b""  # no owner is there: what another service says is not passed on
            async for part in response.aiter_raw():
                body += part
                if len(body) > LARGEST_ANSWER:
                    break
            return response.status_code, bytes(body)

    async def _look_again(self) -> None:
        """Look after the owner until it answers; one more missed deadline is then enough to stop asking again."""
        while True:
            await asyncio.sleep(self._pause)
            self._pause = min(2 * self._pause, _LONGEST_PAUSE)
            if await self.is_there():
                break
        self._missed, self._look = _MISSES - 1, None

    async def is_there(self) -> bool:
        """True if the owner answers a look at ``/healthz`` in time."""
        try:
            async with asyncio.timeout(self._patience):
                return (await self._client.get(f"{self._url}/healthz")).status_code == 200
        except (TimeoutError, httpx.HTTPError, OSError):
            return False

    async def close(self) -> None:
        """Close the owner's HTTP connections, and end the look at whether an owner that hung answers again."""
        if self._look is not None:
            self._look.cancel()
        await self._client.aclose()


def _reason(error: BaseException) -> str:
    """The reason for which an owner could not be asked, from the error of its connection."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return f"certificate: {cause.verify_message or 'it cannot be trusted'}"
        cause = cause.__cause__ or cause.__context__
    return "unreachable: nothing answers at its address"


def _missing(why: str) -> dict[str, Json]:
    return {"missing": why}


class BrokerApp(HttpApp):
    """Carries questions and answers.

    Args:
        federation: The owners; each with an address. None: they have not all joined. While more are joining, those
            of before.
        folder: Folder that cards of owners are written to, and that has the tokens for statistics; None: no owner can
            join.
        patience: Seconds from a query to its answer.
        questions_per_minute: Most requests from one network address.
        statistics: Have the owners make their common statistics once all have joined.
        ca: Certificates that owners' are trusted by, as of :class:`~fedrank.deploy.http.client.HttpClient`.
        allow_http: As there.

    Raises:
        ConfigError: An owner has no address, or one that cannot work.
    """

    def __init__(
        self,
        federation: FederationFile | None,
        folder: BrokerFolder | None = None,
        *,
        patience: float = PATIENCE,
        questions_per_minute: float = 6000.0,
        statistics: bool = True,
        ca: str | os.PathLike[str] | None = None,
        allow_http: bool = False,
    ):
        super().__init__(Guard(), RequestCounts(), on_start=self._start, on_stop=self._stop)
        self._federation, self._sums = federation, statistics
        self._folder, self._patience = folder, patience
        self._reach: dict[str, Any] = {"ca": ca, "allow_http": allow_http}
        self._carriers: dict[str, _Carrier] = {}
        if federation is not None:
            self._carry_for(federation)
        self._summing: asyncio.Task[None] | None = None
        self._looking: asyncio.Task[None] | None = None
        code = Secret(None if folder is None else folder.token("join"), "join.token")
        anybody = limit_rate(Rate(questions_per_minute, 100, time.monotonic_ns))
        state = folder.state() if folder else None
        owners = state["owners"] if state else len(self._carriers)
        largest = (LARGEST_QUESTION * 4 // 3 + 200) * max(1, owners)
        self.add_routes(
            {
                "/v1/ask": Route("ask", ("POST",), anybody, self._ask, max_body=largest),
                "/v1/join": Route("join", ("POST",), self.requires(code), self._join, max_body=LARGEST_CARD),
                "/healthz": Route("healthz", ("GET", "HEAD"), None, self._healthz),
            }
        )

    def _carry_for(self, federation: FederationFile) -> list[_Carrier]:
        """Carry to these owners; returns the connections to those of before."""
        if lacking := [card.name for card in federation.owners if not card.url]:
            raise ConfigError(f"the broker needs the address of {', '.join(lacking)}: url in [[owners]].")
        former, self._federation = [*self._carriers.values()], federation
        self._carriers = {card.name: _Carrier(card, self._patience, **self._reach) for card in federation.owners}
        return former

    async def _start(self) -> None:
        self._sum_when_needed()
        self._look_soon()

    def _look_soon(self) -> None:
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._name_unreachable())

    async def _name_unreachable(self) -> None:
        """Say which owners do not answer at the addresses that they gave."""
        await asyncio.sleep(_SETTLED)
        for name, carrier in [*self._carriers.items()]:
            if not await carrier.is_there():
                _log.warning("%s does not answer at %s; its --url is the address to reach it", name, carrier.card.url)

    def _sum_when_needed(self) -> None:
        if self._sums and self._folder is not None and self._summing is None and self._folder.needs_release():
            self._summing = asyncio.create_task(self._make_statistics(self._folder))

    async def _make_statistics(self, folder: BrokerFolder) -> None:
        """Have the owners make the first release that they have not given, as soon as all of them are served."""
        pause, said, release = _FIRST_LOOK, "", 0
        while folder.needs_release():
            try:
                file, tokens = read_federation(folder.federation), read_toml(folder.tokens)
                made = functools.partial(make_statistics, file, tokens, release, timeout=120.0, **self._reach)
                _, table = await asyncio.to_thread(made)
                folder.note_release()
                _log.info("the owners' statistics are made, with ε = %g a document; %s", file.epsilon, table.note())
            except SpentError as error:
                release += 1
                if release >= file.releases:
                    _log.warning("these owners make no common statistics, and go on with their own: %s", error)
                    break
            except FedrankError as error:
                if str(error) != said:
                    _log.info("statistics wait, and are tried again: %s", str(error).partition("; repeat")[0])
                said, pause = str(error), min(2 * pause, _LONGEST_PAUSE / 4)
                await asyncio.sleep(pause)
        self._summing = None

    async def _stop(self) -> None:
        for running in (self._summing, self._looking):
            if running is not None:
                running.cancel()
        for carrier in self._carriers.values():
            await carrier.close()

    async def _join(self, request: HttpRequest) -> HttpResponse:
        assert self._folder is not None
        body = request.json()
        try:
            card, token = OwnerCard(*(str(body[part]) for part in ("name", "key", "url"))), str(body["token"])
            Secret(token, "token")
        except (KeyError, ConfigError):
            return REFUSALS["malformed"]
        try:
            HttpClient(card.url, **self._reach)  # before it is written: the broker could not start with it again
            file = self._folder.add(card, token, request.address)
        except ConfigError as error:
            return refuse(409, str(error))
        state = self._folder.state() or {}
        answer: dict[str, Json] = {"joined": len(state["cards"]), "owners": state["owners"]}
        before = self._federation
        if file is None and before is not None and (card.name, card.key) in {(o.name, o.key) for o in before.owners}:
            # Those of before go on, and each starts at once, until the federation with more owners is there.
            owners = tuple(card if one.name == card.name else one for one in before.owners)
            file = dataclasses.replace(before, owners=owners)
            if file != before:
                write_atomically(self._folder.federation, federation_text(file).encode())
        if file is None:
            return json_response(200, answer)
        if file.owners != tuple(carrier.card for carrier in self._carriers.values()):
            for former in self._carry_for(file):
                await former.close()
            self._look_soon()
        self._sum_when_needed()
        return json_response(200, {**answer, "federation": federation_text(file)})

    async def _ask(self, request: HttpRequest) -> HttpResponse:
        try:
            asked = {name: base64.b64decode(sealed, validate=True) for name, sealed in request.json().items()}
        except (ValueError, TypeError):
            return REFUSALS["malformed"]
        answers = await asyncio.gather(*(self._carry(name, sealed) for name, sealed in asked.items()))
        return json_response(200, dict(zip(asked, answers, strict=True)))

    async def _carry(self, name: str, sealed: bytes) -> dict[str, Json]:
        carrier = self._carriers.get(name)
        return _missing("there is no such owner in this federation") if carrier is None else await carrier.carry(sealed)
