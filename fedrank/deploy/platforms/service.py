"""The two HTTP applications of a platform: one for the coordinator, one for the platform's own application.

For the coordinator:

==========================================  ======================================================================
``GET /v1/platform``                        which platform this is, and the state of its rounds
``GET /v1/missing/<round>``                 rounds up to this one of which it has no transition
``POST /v1/exchange/<round>/<place>``       request of an exchange, in the bytes of its layout; the reply likewise
``POST /v1/sum/<round>/<place>/<step>``     request of a step of a secure sum of the replies, likewise
==========================================  ======================================================================

For the application, on a port of this machine only, in JSON:

==========================================  ======================================================================
``GET /v1/state``                           state of the platform's rounds, N and n
``PUT /v1/visit/<round>``                   ``{"candidates": […], "observed": 0.5, "newcomer": false}``
``GET /v1/slate/<round>``                   ``{"slate": [2, 0, 7]}``, once there is one
``PUT /v1/outcome/<round>``                 ``{"slot": 1, "engagement": 23.4}``, or ``{}`` without feedback
==========================================  ======================================================================

Each needs a token of its own. What depends on another party, such as a slate on the coordinator, is waited for up to
:data:`PATIENCE` seconds; then the response is 409 ``early-round`` and the client asks again. Every request may be
repeated.
"""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections.abc import Callable
from typing import Any, TypeVar

from fedrank.core.trees import Json
from fedrank.deploy.http.app import HttpApp, RequestCounts
from fedrank.deploy.http.guard import Guard, Secret, bearer, number_of
from fedrank.deploy.http.routes import NO_STORE, REFUSALS, HttpRequest, HttpResponse, Route, json_response, refusal
from fedrank.deploy.platforms.planning.platform import PlanningPlatform
from fedrank.deploy.platforms.platform import Platform
from fedrank.deploy.platforms.steps import NotYetError, RefusedError
from fedrank.deploy.platforms.terms import EXCHANGE_PATH, SUM_PATH

T = TypeVar("T")

#: Seconds that a response waits for what has still to happen.
PATIENCE = 2.0
#: Seconds that a user waits for the coordinator by default.
USER_PATIENCE = 1.0
#: Most bytes of JSON of a candidate's feature, and of everything else in a visit.
_NUMBER, _REST = 32, 1024
#: Reasons of refusals that only platforms have: status code and sentence.
_REASONS = {
    "conflict": (409, "Another request for the same was accepted before."),
    "out-of-order": (409, "It is not this exchange's turn."),
    "not-due": (409, "This exchange does not take place in this round."),
    "missing-transitions": (409, "Transitions of rounds that did not take place here."),
    "sum-stopped": (409, "This secure sum does not go on; begin another."),
    "not-finite": (500, "The platform's network has numbers that are not finite."),
}


class Changes:
    """Wakes coroutines of one event loop that wait for a change of the platform."""

    def __init__(self):
        self._waiting: list[asyncio.Future[None]] = []

    def happened(self) -> None:
        """Wake all requests that wait for something to happen."""
        waiting, self._waiting = self._waiting, []
        for one in waiting:
            if not one.done():
                one.set_result(None)

    async def until(self, attempt: Callable[[], T], seconds: float) -> T:
        """What ``attempt`` returns, tried again after every change for up to ``seconds``.

        Raises:
            NotYetError: It was still too early after the last try.
        """
        end = time.monotonic() + seconds
        while True:
            try:
                return attempt()
            except NotYetError:
                left = end - time.monotonic()
                if left <= 0:
                    raise
            change = asyncio.get_running_loop().create_future()
            self._waiting.append(change)
            await asyncio.wait([change], timeout=left)


class PlatformApp(HttpApp):
    """One of a platform's two HTTP applications, for those who have one token.

    Args:
        token: The token.
        name: Name of the token in errors.
    """

    def __init__(self, token: str, name: str):
        super().__init__(Guard(), RequestCounts())
        self._token = Secret(token, name)

    def _authorise(self, request: HttpRequest) -> HttpResponse | None:
        matches = self._token.matches(bearer(request.authorization))
        return None if matches else self._unauthorised(self._guard.failure, request)


def refused(error: RefusedError) -> HttpResponse:
    """The response to a request that the platform refuses."""
    if error.reason in _REASONS:
        code, detail = _REASONS[error.reason]
        return json_response(code, {"error": error.reason, "detail": detail, **error.more}, reason=error.reason)
    return refusal(error.reason, **error.more)


class CoordinatorApp(PlatformApp):
    """The HTTP application for the coordinator.

    Args:
        platform: The platform.
        changes: Signals changes of the platform.
        token: Token of the coordinator.
    """

    def __init__(self, platform: Platform | PlanningPlatform, changes: Changes, token: str):
        super().__init__(token, "coordinator token")
        self._platform, self._changes = platform, changes
        most = max(exchange.request.nbytes for exchange in platform.terms.exchanges)
        if isinstance(platform, PlanningPlatform):
            largest = platform.largest_of_sums
            self.add_routes({SUM_PATH: Route("sum", ("POST",), self._authorise, self._sum, max_body=largest)})
        self.add_routes(
            {
                "/v1/platform": Route("platform", ("GET",), self._authorise, self._about),
                "/v1/missing/": Route("missing", ("GET",), self._authorise, self._missing),
                EXCHANGE_PATH: Route("exchange", ("POST",), self._authorise, self._exchange, max_body=most),
            }
        )

    async def _about(self, request: HttpRequest) -> HttpResponse:
        return json_response(200, self._platform.about())

    async def _missing(self, request: HttpRequest) -> HttpResponse:
        number = number_of(request.tail)
        if number is None:
            return REFUSALS["malformed"]
        return json_response(200, {"missing": self._platform.missing(number)})

    async def _exchange(self, request: HttpRequest) -> HttpResponse:
        round_, _, exchange = request.tail.partition("/")
        number, place = number_of(round_), number_of(exchange)
        if number is None or place is None:
            return REFUSALS["malformed"]
        return await self._answered(lambda: self._platform.answer(number, place, request.body))

    async def _sum(self, request: HttpRequest) -> HttpResponse:
        round_, _, rest = request.tail.partition("/")
        exchange, _, last = rest.partition("/")
        number, place, step, platform = number_of(round_), number_of(exchange), number_of(last), self._platform
        if number is None or place is None or step is None or not isinstance(platform, PlanningPlatform):
            return REFUSALS["malformed"]
        return await self._answered(lambda: platform.sum_step(number, place, step, request.body))

    async def _answered(self, attempt: Callable[[], bytes]) -> HttpResponse:
        try:
            data = await self._changes.until(attempt, PATIENCE)
        except RefusedError as error:
            return refused(error)
        self._changes.happened()
        return HttpResponse(200, data, NO_STORE, content_type=b"application/octet-stream")


class OwnApp(PlatformApp):
    """The HTTP application for the platform's own application.

    Args:
        platform: The platform.
        changes: Signals changes of the platform.
        token: Token of the application.
        patience: Seconds that a user waits for the coordinator before the slate is made without it; may be infinite.
    """

    def __init__(
        self, platform: Platform | PlanningPlatform, changes: Changes, token: str, patience: float = USER_PATIENCE
    ):
        super().__init__(token, "application token")
        self._platform, self._changes, self._patience = platform, changes, patience
        world = platform.terms.protocol.settings.world
        self._sizes = {"candidates": world.candidates, "slate": world.slate}
        most = _NUMBER * world.candidates + _REST
        self._since: tuple[int, float] = (-1, 0.0)  # a round, and when its user came
        self.add_routes(
            {
                "/v1/state": Route("state", ("GET",), self._authorise, self._state),
                "/v1/visit/": Route("visit", ("PUT",), self._authorise, self._visit, max_body=most),
                "/v1/slate/": Route("slate", ("GET",), self._authorise, self._slate),
                "/v1/outcome/": Route("outcome", ("PUT",), self._authorise, self._outcome),
            }
        )

    async def _state(self, request: HttpRequest) -> HttpResponse:
        p = self._platform
        feedback = p.terms.protocol.settings.feedback[p.index]
        # What the noise on sums does not cover is for the platform's own application, and not in what others are told.
        stays = {"stays": p.stays, "cut_short": p.cut_short} if isinstance(p, PlanningPlatform) else {}
        return json_response(200, {**p.about(), **self._sizes, **stays, "feedback": feedback})

    async def _visit(self, request: HttpRequest) -> HttpResponse:
        number, said = number_of(request.tail), _json(request.body)
        if number is None or said is None or set(said) != {"candidates", "observed", "newcomer"}:
            return REFUSALS["malformed"]
        candidates, observed, newcomer = said["candidates"], said["observed"], said["newcomer"]
        if not isinstance(candidates, list) or len(candidates) != self._sizes["candidates"]:
            return REFUSALS["malformed"]
        if not all(map(_is_number, (*candidates, observed))) or not isinstance(newcomer, bool):
            return REFUSALS["out-of-range"]
        return self._done(lambda: self._platform.visit(number, candidates, float(observed), newcomer))

    async def _slate(self, request: HttpRequest) -> HttpResponse:
        number = number_of(request.tail)
        if number is None:
            return REFUSALS["malformed"]
        if self._since[0] != number:
            self._since = number, time.monotonic()
        left = self._since[1] + self._patience - time.monotonic()
        try:
            slate = await self._changes.until(lambda: self._platform.slate(number), max(0.0, min(left, PATIENCE)))
        except NotYetError as error:
            if left > PATIENCE or number != self._platform.round:
                return refused(error)
            slate = self._platform.recommend_alone(number)
            self._changes.happened()
        except RefusedError as error:
            return refused(error)
        return json_response(200, {"slate": slate})

    async def _outcome(self, request: HttpRequest) -> HttpResponse:
        number, said = number_of(request.tail), _json(request.body)
        if number is None or said is None or not set(said) <= {"slot", "engagement"}:
            return REFUSALS["malformed"]
        slot, engagement = said.get("slot"), said.get("engagement", 0.0)
        if not (slot is None or type(slot) is int) or not _is_number(engagement) or engagement < 0:
            return REFUSALS["out-of-range"]
        return self._done(lambda: self._platform.outcome(number, slot, float(engagement)))

    def _done(self, act: Callable[[], None]) -> HttpResponse:
        try:
            act()
        except RefusedError as error:
            return refused(error)
        self._changes.happened()
        return HttpResponse(204, b"", NO_STORE, content_type=None)


def _json(body: bytes) -> dict[str, Json] | None:
    try:
        said = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return said if isinstance(said, dict) else None


def _is_number(value: Any) -> bool:
    """Whether a value is a number that single precision can hold."""
    return type(value) in (int, float) and abs(value) < 3e38 and math.isfinite(value)
