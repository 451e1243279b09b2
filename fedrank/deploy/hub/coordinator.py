"""Further routes of a hub that collects reports for a coordinator, such as a node of Flower.

=================================  =====================================================================
``GET /v1/admin/terms``            the terms that the hub's devices agreed to
``PUT /v1/admin/round``            body: the round's request, which devices get from now on
``GET /v1/admin/reports/<round>``  the round's messages, concatenated, once it has closed
=================================  =====================================================================

All of them need the admin token. A round closes as any hub's does: by count, by deadline, by ``/v1/admin/close``.
"""

from __future__ import annotations

from fedrank.core.errors import WireError
from fedrank.deploy.http.guard import number_of
from fedrank.deploy.http.routes import NO_STORE, REFUSALS, Authorise, HttpRequest, HttpResponse, Route, json_response
from fedrank.deploy.hub.hub import Hub
from fedrank.deploy.hub.stages import Outcome

_RESPONSES = {
    Outcome.ACCEPTED: HttpResponse(201, b"", NO_STORE, content_type=None),
    Outcome.ALREADY: HttpResponse(200, b"", NO_STORE, content_type=None),
    Outcome.CONFLICT: REFUSALS["round-open"],
    Outcome.STALE: REFUSALS["stale-round"],
    Outcome.UNAVAILABLE: REFUSALS["unavailable"],
}


def coordinator_routes(hub: Hub, operator: Authorise) -> dict[str, Route]:
    """The routes by path; ``operator`` refuses everybody but the operator."""

    async def terms(request: HttpRequest) -> HttpResponse:
        return json_response(200, hub.terms.as_json())

    async def ask(request: HttpRequest) -> HttpResponse:
        try:
            return _RESPONSES[await hub.ask_round(request.body)]
        except WireError:
            return REFUSALS["malformed"]

    async def collect(request: HttpRequest) -> HttpResponse:
        number = number_of(request.tail)
        if number is None:
            return REFUSALS["malformed"]
        messages = await hub.collected(number)
        if messages is None:
            return REFUSALS["not-closed"]
        return HttpResponse(200, messages, NO_STORE, content_type=b"application/octet-stream")

    return {
        "/v1/admin/terms": Route("terms", ("GET",), operator, terms),
        "/v1/admin/round": Route("ask", ("PUT",), operator, ask, max_body=hub.terms.request.nbytes),
        "/v1/admin/reports/": Route("collect", ("GET",), operator, collect),
    }
