"""A server in a thread."""

import threading

from fedrank.deploy.http.server import Servers


class ThreadedServer:
    """A server in a thread, as a context; options as of ``Servers``, and the port is any that is free."""

    def __init__(self, app, connections=10_000, **options):
        self.url, self.port, self._failure = "", 0, None
        self._ready = threading.Event()
        self.servers = Servers([(app, options)], connections)
        self._thread = threading.Thread(target=self._run, name="server", daemon=True)

    def _on_ready(self, urls):
        self.url = urls[0]
        self.port = int(self.url.rpartition(":")[2])
        self._ready.set()

    def _run(self):
        try:
            self.servers.run(self._on_ready)
        except Exception as error:
            self._failure = error
        finally:
            self._ready.set()

    def __enter__(self):
        self._thread.start()
        self._ready.wait()
        if self._failure is not None:
            raise self._failure
        return self

    def __exit__(self, *exception):
        self.servers.stop()
        self._thread.join()
