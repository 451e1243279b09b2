"""Hubs with tokens for tests: devices of a few lines that buy and spend."""

import base64
import json
import math

from hub_fakes import Exchange, Got
from hubs import opened

from fedrank.deploy.draws import turn
from fedrank.deploy.http.guard import Guard
from fedrank.deploy.hub.attestation import Door
from fedrank.deploy.hub.folder import HubFolder
from fedrank.deploy.hub.hub import Hub
from fedrank.deploy.hub.service import TokenApp
from fedrank.deploy.hub.tally import Counters
from fedrank.deploy.oblivious.tokens import (
    Asked,
    ask_for,
    draw_key,
    epoch_challenge,
    header_of,
    parts_of,
    spending_number,
)

ENROLMENT, ADMIN = "enrolment-token-of-a-test", "admin-token-of-a-test"


def token_app(home: HubFolder, door: Door | None = None) -> TokenApp:
    """The application of a folder's hub, which a caller starts and stops; ``door`` asks for statements."""
    settings, store = home.open()
    hub = Hub(home.path, store, settings)
    guard = Guard(device_per_minute=math.inf, failures_per_minute=math.inf)
    app = TokenApp(
        hub,
        guard,
        Counters(hub.status),
        enrolment=ENROLMENT,
        admin=ADMIN,
        issuer=hub.row.issuer,
        gateway=hub.row.keys.gateway,
        door=door,
    )
    app.add_routes(hub.row.publishing.routes())
    return app


class Buyer:
    """One device that speaks to an application, without a network."""

    def __init__(self, app: TokenApp):
        self.app, self.hub = app, app._hub
        self.token = ""

    async def ask(self, method: str, path: str, authorization: str | None = None, body: bytes = b"") -> Got:
        headers = [] if authorization is None else [(b"authorization", authorization.encode())]
        got = await Exchange(method, path, None, body, headers=headers).to(self.app)
        assert got is not None
        return got

    async def enrol(self) -> None:
        got = await self.ask("POST", "/v1/enrol", f"Bearer {ENROLMENT}")
        assert got.code == 201
        self.token = got.json["token"]

    async def offer(self) -> tuple[int, bytes]:
        """Epoch and offer of what is sold now."""
        got = await self.ask("GET", "/v1/tokens")
        return got.json["epoch"], base64.urlsafe_b64decode(got.json["offer"])

    async def begin(self, epoch: int) -> Asked:
        """A token request for an epoch whose tokens are sold, or were."""
        key, commitment = parts_of(self.app._issuer._epochs[epoch].offer)
        return ask_for(key, epoch_challenge(self.hub.terms.hub, epoch, commitment))

    async def buy(self, epoch: int, asked: Asked | None = None) -> bytes | Got:
        """A token of an epoch, or the answer in its place."""
        asked = asked or await self.begin(epoch)
        got = await self.ask("POST", f"/v1/token/{epoch}", f"Bearer {self.token}", asked.request)
        return asked.token(got.body) if got.code == 200 else got

    async def report(self, round_: int, token: bytes, message: bytes) -> tuple[int, str]:
        got = await self.ask("POST", f"/v1/report/{round_}", header_of(token), message)
        return got.code, json.loads(got.body)["error"] if got.body else ""


def round_of(hub: Hub, token: bytes) -> int:
    """The round in which a token of the open epoch counts."""
    number, rounds = hub.view.round, hub.terms.tokens
    first = (hub.terms.epoch_of(number) - 1) * rounds + 1
    return first + turn(draw_key(spending_number(token)), hub.row.issuer.beacon(number).value, rounds)


async def next_round(hub: Hub) -> None:
    """Close the open round, with what it has, and wait for the next."""
    number = hub.view.round
    assert await hub.close_round(empty=True) == number
    await opened(hub, number + 1)
