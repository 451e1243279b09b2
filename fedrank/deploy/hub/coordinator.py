"""The routes of a hub that collects for a coordinator, such as a node of Flower beside it.

=================================  =====================================================================
``GET /v1/admin/terms``            what the hub's devices agreed to
``PUT /v1/admin/round``            body: the round's question; devices are asked from now on
``GET /v1/admin/reports/<round>``  the round's messages one after the other, once it has closed
=================================  =====================================================================

All of them are for the admin token. A round closes as any hub's does: by count, by deadline, by ``/v1/admin/close``.
"""

from __future__ import annotations

from collections.abc import Callable

from fedrank.core.errors import WireError
from fedrank.deploy.hub.guard import number_of
from fedrank.deploy.hub.hub import Hub
from fedrank.deploy.hub.outcome import Outcome
from fedrank.deploy.hub.routes import NO_STORE, REFUSED, Answer, Asked, Route, as_json

_ANSWERS = {
    Outcome.ACCEPTED: Answer(201, b"", NO_STORE, kind=None),
    Outcome.ALREADY: Answer(200, b"", NO_STORE, kind=None),
    Outcome.CONFLICT: REFUSED["round-open"],
    Outcome.STALE: REFUSED["stale-round"],
    Outcome.UNAVAILABLE: REFUSED["unavailable"],
}


def coordinator_routes(hub: Hub, may: Callable[[Asked], Answer | None]) -> dict[str, Route]:
    """The routes by path; ``may`` refuses everybody but the operator."""

    async def terms(asked: Asked) -> Answer:
        return as_json(200, hub.terms.as_json())

    async def ask(asked: Asked) -> Answer:
        try:
            return _ANSWERS[await hub.ask_round(asked.body)]
        except WireError:
            return REFUSED["malformed"]

    async def collect(asked: Asked) -> Answer:
        number = number_of(asked.tail)
        if number is None:
            return REFUSED["malformed"]
        messages = await hub.collected(number)
        if messages is None:
            return REFUSED["not-closed"]
        return Answer(200, messages, NO_STORE, kind=b"application/octet-stream")

    return {
        "/v1/admin/terms": Route("terms", ("GET",), may, terms),
        "/v1/admin/round": Route("ask", ("PUT",), may, ask, most=hub.terms.request.nbytes),
        "/v1/admin/reports/": Route("collect", ("GET",), may, collect),
    }
