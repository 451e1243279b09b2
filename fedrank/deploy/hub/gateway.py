"""The HTTP application of a hub with tokens, and its gateway.

=====================================  ==============================================================
``GET /v1/tokens``                     the open round, what is sold in it, and what its epoch draws by
``POST /v1/token/<epoch>``             a device buys its token of the next epoch
``POST /v1/report/<round>``            a reply, with a token in place of the device's own
``GET /v1/model``                      as ever, and without a token
``POST /v1/oblivious``                 an encapsulated request, with an encapsulated answer
``GET /v1/oblivious/keys``             the gateway's key configuration
=====================================  ==============================================================

Whatever a device may ask can be asked through the gateway. What an operator may ask cannot.
"""

from __future__ import annotations

import base64
import time
from typing import Any

from fedrank.core.errors import WireError
from fedrank.core.trees import Json
from fedrank.deploy.http.guard import number_of
from fedrank.deploy.http.routes import NO_STORE, REFUSALS, HttpRequest, HttpResponse, Route, json_response, too_many
from fedrank.deploy.hub.app import HubApp
from fedrank.deploy.hub.tokens import Issuer
from fedrank.deploy.oblivious.binary_http import (
    STATEMENT_LENGTH,
    BinaryRequest,
    BinaryResponse,
    decode_request,
    encode_response,
    response_length,
)
from fedrank.deploy.oblivious.encapsulation import (
    KEYS_TYPE,
    REQUEST_OVERHEAD,
    RESPONSE_TYPE,
    Gateway,
    ReplayedError,
    key_configuration,
)
from fedrank.deploy.oblivious.tokens import spending_number, token_in

#: Addresses that are answered through the gateway: all of devices, none of operators.
_WITHIN, _NOT_WITHIN = "/v1/", ("/v1/admin", "/v1/oblivious")
#: Header fields of an answer that go through the gateway.
_FIELDS = (b"retry-after", b"fedrank-state")
#: In place of an address of a request that came through the gateway, which has none.
_NOWHERE = ""


class TokenApp(HubApp):
    """The application of a hub with tokens; arguments as of :class:`~fedrank.deploy.hub.app.HubApp`.

    Args:
        hub: The hub, which sells tokens.
        *args: Of the class above.
        issuer: Sells and verifies tokens.
        gateway: Opens encapsulated requests; None: there is no gateway.
        **options: Of the class above.
    """

    def __init__(self, hub: Any, *args: Any, issuer: Issuer, gateway: Gateway | None = None, **options: Any):
        self._issuer, self._gateway, self._sell = issuer, gateway, hub.sell
        super().__init__(hub, *args, **options)
        self.add_routes(
            {
                "/v1/token/": Route("token", ("POST",), self._device, self._token),
                "/v1/tokens": Route("tokens", ("GET", "HEAD"), None, self._tokens),
            }
        )
        if gateway is not None:
            most = STATEMENT_LENGTH + REQUEST_OVERHEAD
            self.add_routes(
                {
                    "/v1/oblivious": Route("oblivious", ("POST",), _anybody, self._oblivious, max_body=most),
                    "/v1/oblivious/keys": Route("keys", ("GET", "HEAD"), None, self._configuration),
                }
            )

    # ------------------------------------------------------------------------------------------------- who may ask

    def _reader(self, request: HttpRequest) -> HttpResponse | None:
        """Admit all: to ask for it with a token would tell who has which."""
        return None

    def _reporter(self, request: HttpRequest) -> HttpResponse | None:
        token = token_in(request.authorization)
        epoch = None if token is None else self._issuer.epoch_in(token)
        if token is None or epoch is None:
            return self._deny(self._guard.failure, request)
        request.device = spending_number(token)
        seconds = self._guard.device.wait(request.device)
        if seconds:
            return too_many(seconds)
        round_ = number_of(request.tail)
        if round_ is not None and self._hub.terms.epoch_of(round_) != epoch:
            return REFUSALS["wrong-epoch"]
        return None

    def _deny(self, rate: Any, request: HttpRequest, *refused: HttpResponse) -> HttpResponse:
        if request.address == _NOWHERE:  # all who come through the gateway would share one limit
            return refused[0] if refused else REFUSALS["unauthorised"]
        return super()._deny(rate, request, *refused)

    # ------------------------------------------------------------------------------------------------ what they get

    async def _tokens(self, request: HttpRequest) -> HttpResponse:
        view = self._hub.view
        said: dict[str, Json] = {"round": view.round, "state": view.state, "etag": view.etag}
        if (sold := self._issuer.offer(view.round)) is not None:
            said |= {"epoch": sold[0], "offer": base64.urlsafe_b64encode(sold[1]).decode()}
        if (beacon := self._issuer.beacon(view.round)) is not None:
            said["beacon"] = beacon.as_json()
        return json_response(200, said)

    async def _token(self, request: HttpRequest) -> HttpResponse:
        epoch = number_of(request.tail)
        if epoch is None:
            return REFUSALS["malformed"]
        answer = await self._sell(epoch, request.device, request.body)
        if isinstance(answer, str):
            return REFUSALS[answer]
        return HttpResponse(200, answer, NO_STORE, content_type=b"application/private-token-response")

    async def _configuration(self, request: HttpRequest) -> HttpResponse:
        assert self._gateway is not None  # else there is no such route
        return HttpResponse(200, key_configuration(self._gateway.public), content_type=KEYS_TYPE.encode())

    # -------------------------------------------------------------------------------------------------- the gateway

    async def _oblivious(self, request: HttpRequest) -> HttpResponse:
        assert self._gateway is not None  # else there is no such route
        try:
            opened = self._gateway.open(request.body)
            inner = decode_request(opened.request)
        except ReplayedError:
            return REFUSALS["replayed"]
        except WireError:
            return REFUSALS["malformed"]
        answer = await self._answer(inner)
        plain = encode_response(answer)
        sealed = opened.seal(encode_response(answer, response_length(len(plain), self._hub.terms.request.nbytes)))
        return HttpResponse(200, sealed, NO_STORE, content_type=RESPONSE_TYPE.encode())

    async def _answer(self, inner: BinaryRequest) -> BinaryResponse:
        """The answer to a request that was inside another one."""
        try:
            method, path = inner.method.decode("ascii"), inner.path.decode("ascii")
        except UnicodeDecodeError:
            return BinaryResponse(400)
        if not path.startswith(_WITHIN) or path.startswith(_NOT_WITHIN):
            return BinaryResponse(404)
        route, tail = self._route(path, inner.path)
        given: dict[bytes, bytes] = {}
        for name, value in inner.fields:  # a field that comes twice says nothing
            given[name.lower()] = b"" if name.lower() in given else value
        asked = HttpRequest(
            method,
            tail,
            given.get(b"authorization"),
            given.get(b"if-none-match"),
            inner.content,
            _NOWHERE,
            time.perf_counter(),
        )
        if len(inner.content) > max(self._guard.body_bytes, route.max_body):
            answer = REFUSALS["too-large"]
        else:
            answer = await self._judge(route, self._respond(route, asked))
        if answer is None:
            return BinaryResponse(503)
        fields = tuple((name, value) for name, value in answer.start["headers"] if name in _FIELDS)
        return BinaryResponse(answer.code, fields, b"" if method == "HEAD" else answer.payload["body"])


def _anybody(request: HttpRequest) -> HttpResponse | None:
    return None
