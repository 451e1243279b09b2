"""Pages in a headless Chromium: sizes, colours and boxes as a reader's browser computes them.

The browser is spoken to over two pipes in the Chrome DevTools Protocol, a JSON document and a zero byte a message.
"""

import base64
import contextlib
import itertools
import json
import os
import select
import shutil
import subprocess
import time
from pathlib import Path

#: How Chromium is called, in the order in which it is looked for.
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
#: Seconds after which an answer is not waited for any longer.
PATIENCE = 60.0


def chromium():
    """The path of a Chromium, or None if there is none."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


class Tab:
    """A tab of a browser that was started for it; leave it as a context manager.

    Args:
        profile: Folder of the browser's profile.
        extensions: Unpacked extensions may be loaded by ``Extensions.loadUnpacked``.
    """

    def __init__(self, profile: Path, extensions: bool = False):
        requests, answers = os.pipe(), os.pipe()
        flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"]
        flags += ["--no-first-run", "--disable-background-networking", "--disable-sync"]
        flags += ["--enable-unsafe-extension-debugging" if extensions else "--disable-extensions"]
        command = [str(chromium()), *flags, f"--user-data-dir={profile}", "--remote-debugging-pipe", "about:blank"]

        def attach():  # the browser reads its descriptor 3 and writes its descriptor 4
            reader, writer = os.dup(requests[0]), os.dup(answers[1])
            os.dup2(reader, 3)
            os.dup2(writer, 4)

        self.process = subprocess.Popen(
            command, preexec_fn=attach, close_fds=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        os.close(requests[0])
        os.close(answers[1])
        self.out, self.incoming, self.buffer = requests[1], answers[0], b""
        self.numbers, self.events, self.session = itertools.count(1), [], None
        target = next(one for one in self.call("Target.getTargets")["targetInfos"] if one["type"] == "page")
        self.session = self.attach(target["targetId"])
        self.call("Page.enable")

    def attach(self, target: str) -> str:
        """The session of another tab or worker: as :attr:`session`, commands go there."""
        self.session = None
        return self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        with contextlib.suppress(Exception):
            self.session = None
            self.call("Browser.close")
        self.process.terminate()
        self.process.wait(20)
        os.close(self.out)
        os.close(self.incoming)

    def _message(self, until):
        while b"\0" not in self.buffer:
            if not select.select([self.incoming], [], [], max(0.0, until - time.monotonic()))[0]:
                raise TimeoutError("the browser does not answer")
            read = os.read(self.incoming, 1 << 20)
            if not read:
                raise ConnectionError("the browser has gone")
            self.buffer += read
        first, _, self.buffer = self.buffer.partition(b"\0")
        return json.loads(first)

    def call(self, method, **parameters):
        """Send a command and return its result."""
        number, until = next(self.numbers), time.monotonic() + PATIENCE
        request = {"id": number, "method": method, "params": parameters}
        request |= {"sessionId": self.session} if self.session else {}
        os.write(self.out, json.dumps(request).encode() + b"\0")
        while True:
            message = self._message(until)
            if message.get("id") == number:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']['message']}")
                return message["result"]
            self.events.append(message)

    def show(self, file: Path, *, width=1280, height=900, dark=False, printed=False):
        """Load a page at a width, in a colour scheme, on a screen or for print."""
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", media="print" if printed else "screen", features=[scheme])
        self.events.clear()
        self.call("Page.navigate", url=file.resolve().as_uri())
        until = time.monotonic() + PATIENCE
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self._message(until))

    def value(self, expression):
        """What an expression of JavaScript comes to, as JSON can hold it."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(answer["exceptionDetails"].get("exception", {}).get("description", "JavaScript failed"))
        return answer["result"].get("value")

    def screenshot(self, file: Path, *, whole=False):
        """Write what is seen, or the whole page, as PNG."""
        options = {}
        if whole:
            high = self.value("document.documentElement.scrollHeight")
            wide = self.value("innerWidth")
            options = {
                "captureBeyondViewport": True,
                "clip": {"x": 0, "y": 0, "width": wide, "height": high, "scale": 1},
            }
        file.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png", **options)["data"]))
