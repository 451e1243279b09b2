"""A device's requests to its hub through an oblivious relay: the hub sees no address, the relay no content."""

from __future__ import annotations

import os
from typing import Any

from fedrank.core.errors import WireError
from fedrank.deploy.device.connection import HubClient
from fedrank.deploy.http.client import ClientResponse, HttpClient, response_of
from fedrank.deploy.oblivious.binary_http import BinaryRequest, decode_response, encode_request
from fedrank.deploy.oblivious.encapsulation import RESPONSE_OVERHEAD, encapsulate, public_key_in
from fedrank.deploy.oblivious.sizes import REQUEST_LENGTH, response_length
from fedrank.deploy.terms import Terms

#: Paths of a relay: reports wait for others, requests of other kinds a moment at most.
REPORTS, OTHERS = "/report", "/others"
#: Why a relay sends reports back: too few came to be passed on among each other.
TOO_FEW = "too-few"
#: Longest time that a relay may keep a request, in seconds.
LONGEST_BATCH = 60.0


class RelayedHubClient(HubClient):
    """A device's requests to its hub, each encapsulated and sent to a relay.

    Args:
        hub: URL of the hub, which is not connected to.
        relay: URL of the relay.
        ca: File with the certificates to trust in place of the system's.
        allow_http: Let encapsulated requests cross a network without TLS.
        timeout: Longest silence of the relay beside the time that it keeps requests, in seconds.
    """

    relayed = True

    def __init__(
        self,
        hub: str,
        relay: str,
        *,
        ca: str | os.PathLike[str] | None = None,
        allow_http: bool = False,
        timeout: float = 10.0,
    ):
        super().__init__(hub, ca=ca, allow_http=allow_http, timeout=timeout)
        self._relay = HttpClient(relay, ca=ca, allow_http=allow_http, timeout=timeout + LONGEST_BATCH)
        self._told: tuple[bytes, int] | None = None  # the gateway's key and the batch that the relay names
        self._pinned = b""

    def objection(self, terms: Terms) -> str:
        """Why this relay is not used under these terms; empty if it is. Pins the gateway's key of the terms.

        Raises:
            OSError: The relay does not answer.
        """
        if not terms.batch:
            return "the hub's terms know of no relay; leave relay out, or ask the hub's operator"
        key, batch = self._relays()
        why = ""
        if key.hex() != terms.gateway:
            why = "the relay passes requests on to another gateway than that of the hub's terms"
        elif batch < terms.batch:
            why = f"the relay passes on {batch} reports together, the hub's terms promise {terms.batch}"
        if why:
            self._told = None  # its operator may set it right: it is asked again
            return why
        self._pinned = bytes.fromhex(terms.gateway)
        return ""

    def request(
        self, method: str, path: str, token: str, *, body: bytes | None = None, etag: str = "", limit: int = 4096
    ) -> ClientResponse:
        """Send a request through the relay; arguments and errors as of the class above."""
        given = [(name.lower().encode(), value.encode()) for name, value in self._headers(token, etag).items()]
        inner = BinaryRequest(method.encode(), path.encode(), tuple(given), body or b"")
        try:
            sent = encapsulate(self._pinned or self._relays()[0], encode_request(inner, REQUEST_LENGTH))
            lane = REPORTS if path.startswith("/v1/report/") else OTHERS
            most = response_length(limit + 1024, limit) + RESPONSE_OVERHEAD
            answer = self._relay.request("POST", lane, "", body=sent.request, limit=most)
            if answer.status != 200:  # the relay's own word, or its neighbour's: says nothing about the request
                few = answer.reason == TOO_FEW
                if not few:
                    self._told = None  # it may pass requests on to another gateway by now
                return ClientResponse(503, b"", retry_after=answer.retry_after, reason=TOO_FEW if few else "")
            opened = decode_response(sent.open(answer.body))
        except WireError as error:
            self._told = None
            raise ConnectionError(f"no answer of the hub through the relay ({error})") from error
        fields = {name.decode("latin-1"): value.decode("latin-1") for name, value in opened.fields}
        return response_of(opened.status, opened.content[: limit + 1], lambda name: fields.get(name.lower()))

    def _relays(self) -> tuple[bytes, int]:
        """The gateway's key and the least batch, as the relay tells everybody."""
        if self._told is None:
            answer: dict[str, Any] = self._relay.request("GET", "/", "").json()
            try:
                self._told = (public_key_in(bytes.fromhex(answer["keys"])), int(answer["batch"]))
            except (KeyError, TypeError, ValueError) as error:
                raise WireError("the relay does not say what it passes on to whom.") from error
        return self._told
