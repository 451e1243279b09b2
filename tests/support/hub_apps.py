"""A real hub with its application in a thread, and real devices that talk to it without a network."""

import asyncio
import contextlib
import threading

from fake_hub import ANYTHING
from hub_fakes import Exchange

from fedrank.deploy.device import Device
from fedrank.deploy.http.client import ClientResponse
from fedrank.deploy.hub.service import hub_app


class Served:
    """A hub at work in a thread.

    Attributes:
        home: Its folder.
        hub: The hub.
        app: Its application.
    """

    def __init__(self, home, hub, app, loop):
        self.home, self.hub, self.app, self._loop = home, hub, app, loop

    def do(self, coroutine):
        """What a coroutine returns that runs in the hub's loop."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(60)

    def ask(self, method, path, token=None, body=b"", **options):
        """The answer to a request."""
        return self.do(Exchange(method, path, token, body, **options).to(self.app))

    def device(self, folder, **options):
        """A real device whose requests go to the application."""
        enrolment = options.pop("enrolment", None) or self.home.token("enrolment")
        device = Device("http://127.0.0.1:9", enrolment, folder, **(ANYTHING | options))

        def request(method, path, token, *, body=None, etag="", limit=0):
            headers = [(b"if-none-match", etag.encode())] if etag else []
            got = self.ask(method, path, token, body or b"", headers=headers)
            reason = got.json["error"] if got.code >= 400 else ""
            over = got.headers.get("fedrank-state") == "done"
            return ClientResponse(got.code, got.body, over, None, reason)

        device._connection.request = request
        return device


@contextlib.contextmanager
def served(home):
    """The hub of a folder at work in a thread, as :class:`Served`."""
    hub, app = hub_app(home, host="hub")
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    one = Served(home, hub, app, loop)
    one.do(hub.start())
    try:
        yield one
    finally:
        one.do(hub.stop())
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()
