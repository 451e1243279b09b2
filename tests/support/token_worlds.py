"""Hubs with tokens for tests: devices of a few lines that buy and spend."""

import base64
import json
import math

from hub_fakes import Exchange, Got

from fedrank.deploy.http.guard import Guard
from fedrank.deploy.hub.folder import HubFolder
from fedrank.deploy.hub.gateway import TokenApp
from fedrank.deploy.hub.hub import Hub
from fedrank.deploy.hub.tally import Counters
from fedrank.deploy.oblivious.tokens import Asked, ask_for, epoch_challenge, header_of

ENROLMENT, ADMIN = "enrolment-token-of-a-test", "admin-token-of-a-test"


def token_app(home: HubFolder) -> TokenApp:
    """The application of a folder's hub, which a caller starts and stops."""
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
        gateway=home.gateway(),
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

    async def keys(self) -> dict[int, bytes]:
        got = await self.ask("GET", "/v1/tokens")
        return {int(epoch): base64.urlsafe_b64decode(key) for epoch, key in got.json["keys"].items()}

    async def begin(self, epoch: int) -> Asked:
        return ask_for((await self.keys())[epoch], epoch_challenge(self.hub.terms.hub, epoch))

    async def buy(self, epoch: int, asked: Asked | None = None) -> bytes | Got:
        """A token of an epoch, or the answer in its place."""
        asked = asked or await self.begin(epoch)
        got = await self.ask("POST", f"/v1/token/{epoch}", f"Bearer {self.token}", asked.request)
        return asked.token(got.body) if got.code == 200 else got

    async def report(self, round_: int, token: bytes, message: bytes) -> tuple[int, str]:
        got = await self.ask("POST", f"/v1/report/{round_}", header_of(token), message)
        return got.code, json.loads(got.body)["error"] if got.body else ""
