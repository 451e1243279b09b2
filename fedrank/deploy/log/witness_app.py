"""The HTTP application of a witness.

=========================  ==================================================================
``POST /add-checkpoint``   a log's new head and a proof that it grew from the one before
``GET /heads``             the newest head of each log, cosigned; evidence of split views
=========================  ==================================================================
"""

from __future__ import annotations

import asyncio

from fedrank.deploy.http.app import HttpApp, RequestCounts
from fedrank.deploy.http.guard import Guard
from fedrank.deploy.http.routes import NO_SNIFF, NO_STORE, HttpRequest, HttpResponse, Route
from fedrank.deploy.log.note import LARGEST
from fedrank.deploy.log.witness import Witness, as_json

#: Largest request in bytes: a head, and 63 hashes.
_LARGEST = LARGEST + 4096


class WitnessApp(HttpApp):
    """The application of a witness.

    Args:
        witness: The witness.
    """

    def __init__(self, witness: Witness):
        super().__init__(Guard(body_bytes=_LARGEST), RequestCounts())
        self._witness = witness
        self.add_routes(
            {
                "/add-checkpoint": Route("add", ("POST",), None, self._add),
                "/heads": Route("heads", ("GET", "HEAD"), None, self._heads),
            }
        )

    async def _add(self, request: HttpRequest) -> HttpResponse:
        said = await asyncio.get_running_loop().run_in_executor(None, self._witness.add, request.body)
        reason = None if said.status == 200 else f"status-{said.status}"
        kind = said.kind.encode()
        return HttpResponse(said.status, said.text.encode(), NO_STORE, NO_SNIFF, content_type=kind, reason=reason)

    async def _heads(self, request: HttpRequest) -> HttpResponse:
        return HttpResponse(200, as_json(self._witness).encode(), NO_STORE, NO_SNIFF)
