"""A hub with tokens, an oblivious relay and devices, on loopback, in threads."""

import contextlib
import dataclasses

from fake_hub import ANYTHING
from hubs import make
from token_worlds import ENROLMENT, token_app

from fedrank.deploy.device import Device
from fedrank.deploy.oblivious.relay import GatewayClient, RelayApp, RelaySettings
from fedrank_zoo.threaded_server import ThreadedServer

FEATURES = 5


class World:
    """Addresses of a hub and a relay, and devices that know them."""

    def __init__(self, app, hub_url, relay_url, folder):
        self.app, self.hub, self.url, self.relay, self.folder = app, app._hub, hub_url, relay_url, folder
        self.made = []

    def device(self, name: str, **options) -> Device:
        given = {**ANYTHING, "relay": self.relay, "timeout": 5.0, **options}
        self.made.append(Device(self.url, ENROLMENT, self.folder / name, **given))
        return self.made[-1]


@contextlib.contextmanager
def relayed(folder, *, app=None, relay: RelaySettings | None = None, **settings):
    """A hub, and a relay to it where the settings have a batch."""
    app = app or token_app(make(folder / "hub", n_features=FEATURES, **settings))
    app._on_start, app._on_stop = app._hub.start, app._hub.stop
    with ThreadedServer(app) as hub, contextlib.ExitStack() as stack:
        address = None
        if settings.get("batch"):
            gateway = GatewayClient(hub.url)
            asked = relay or RelaySettings(batch=settings["batch"], seconds=0.5, company=0.05)
            asked = dataclasses.replace(asked, trial=True)  # all are on this machine
            address = stack.enter_context(ThreadedServer(RelayApp(gateway, gateway.configuration(), asked))).url
        world = World(app, hub.url, address, folder)
        try:
            yield world
        finally:
            for device in world.made:
                device.close()
