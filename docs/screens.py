"""Pictures of pages that are served: a hub's status, the page that learns, the portal of a search.

``make screens`` starts each with the commands that its page of the documentation names, opens it in a headless
Chromium and writes what is seen into ``images`` (five minutes). ``python docs/screens.py NAME`` makes one of them:
``status``, ``demo-web`` or ``portal``.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
IMAGES = Path(__file__).with_name("images")
sys.path.insert(0, str(ROOT / "tests" / "support"))

from browser import Tab, chromium  # noqa: E402 - found by the line above

#: Seconds in which a page must show what its picture needs.
PATIENCE = 400.0


@contextlib.contextmanager
def started(*arguments: str, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """``fedrank ARGUMENTS`` while the block runs, as a person would start it; what it prints goes into ``log``."""
    with log.open("wb") as out:
        process = subprocess.Popen([sys.executable, "-m", "fedrank", *arguments], stdout=out, stderr=subprocess.STDOUT)
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def address_in(log: Path, pattern: str = r"http://[\d.]+:\d+\S*") -> str:
    """The first address that a command printed; waits for it.

    Raises:
        TimeoutError: None came.
    """
    until = time.monotonic() + 60
    while time.monotonic() < until:
        if found := re.search(pattern, log.read_text(encoding="utf-8")):
            return found[0]
        time.sleep(0.1)
    raise TimeoutError(f"no address in {log}:\n{log.read_text(encoding='utf-8')}")


def free_port() -> str:
    """A port of this machine at which nothing listens."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return str(one.getsockname()[1])


def open_page(tab: Tab, url: str, width: int, height: int = 900, dark: bool = False) -> None:
    """Load a page at a width in pixels."""
    tab.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
    scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    tab.call("Emulation.setEmulatedMedia", media="screen", features=[scheme])
    tab.call("Page.navigate", url=url)


def wait(tab: Tab, condition: str) -> None:
    """Wait until an expression of JavaScript is true.

    Raises:
        TimeoutError: It did not come true.
    """
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        with contextlib.suppress(RuntimeError):  # a page that is being loaded
            if tab.value(condition):
                return
        time.sleep(0.5)
    raise TimeoutError(f"not within {PATIENCE:g} s: {condition}")


def status(tab: Tab, folder: Path, images: Path) -> None:
    """A trial hub after its last round, in light and dark: the commands of the tutorial on learning servers."""
    hub, log = folder / "hub", folder / "hub.log"
    settings = ("--trial", "--n-features", "46", "--cohort", "40", "--rounds", "300", "--p", "0.9", "--port", "0")
    with started("hub", "serve", str(hub), *settings, log=log):
        url = address_in(log, r"http://\S+/status")
        with started("hub", "simulate", str(hub), "--data", "mq2008", "--devices", "50", log=folder / "devices.log"):
            open_page(tab, url, 1000)
            wait(tab, "document.querySelector('.now').textContent.startsWith('Training is over')")
        for dark in (False, True):
            open_page(tab, url, 1000, 1490, dark)
            wait(tab, "document.readyState === 'complete'")
            tab.screenshot(images / ("status-dark.png" if dark else "status.png"))


def demo_web(tab: Tab, folder: Path, images: Path) -> None:
    """The page that learns, once its ranker has passed BM25 and its visitor has searched and clicked."""
    log = folder / "demo.log"
    with started("demo", "web", "--port", "0", log=log):
        open_page(tab, address_in(log), 1280)
        wait(tab, "Boolean(globalThis.fedrankDemo)")
        wait(tab, "fedrankDemo.history.at(-1) > Number(/BM25 has ([0-9.]+[0-9])/.exec(document.body.innerText)[1])")
        until = time.monotonic() + PATIENCE
        while not tab.value("fedrankDemo.messages.length") and time.monotonic() < until:
            # A click between two rounds teaches nothing.
            tab.value("document.querySelector('#examples button').click()")
            wait(tab, "document.querySelectorAll('.hit').length >= 5")
            tab.value("document.querySelector('.hit').click()")
            time.sleep(2)
        tab.screenshot(images / "demo-web.png", whole=True)


def portal(tab: Tab, folder: Path, images: Path) -> None:
    """A question to two owners, one of whom has this documentation's explanations, the other its instructions."""
    owners = {"explanations": "explanation", "instructions": "how-to"}
    for owner, of in owners.items():
        shutil.copytree(ROOT / "docs" / of, folder / "documents" / owner)
    with contextlib.ExitStack() as stack:
        log = folder / "broker.log"
        stack.enter_context(
            started("search", "broker", str(folder / "documentation"), "--owners", "2", "--port", "0", log=log)
        )
        invitation = address_in(log, r"http://\S+#\S+")
        for owner in owners:
            of, told = str(folder / owner), folder / f"{owner}.log"
            which = ("--documents", str(folder / "documents" / owner), "--join", invitation, "--port", free_port())
            stack.enter_context(started("search", "owner", "serve", of, *which, "--trust-broker", log=told))
        told = folder / "portal.log"
        address_in(folder / "instructions.log", r"allow .*")
        stack.enter_context(
            started("search", "portal", "--owner", str(folder / "instructions"), "--port", "0", log=told)
        )
        open_page(tab, address_in(told), 1000)
        wait(tab, "document.readyState === 'complete'")
        tab.value("document.getElementById('query').value = 'what does the hub learn about a device'")
        tab.value("document.getElementById('ask').requestSubmit()")
        wait(tab, "document.querySelectorAll('.title').length >= 5")
        tab.screenshot(images / "portal.png")


#: By name, what writes the picture.
SCREENS: dict[str, Callable[[Tab, Path, Path], None]] = {"status": status, "demo-web": demo_web, "portal": portal}


def write(names: list[str], images: Path = IMAGES) -> None:
    """Write the pictures of these names into a folder.

    Raises:
        SystemExit: There is no Chromium, or no such picture.
    """
    if unknown := set(names) - set(SCREENS):
        raise SystemExit(f"no such picture: {', '.join(sorted(unknown))}. There are {', '.join(SCREENS)}.")
    if chromium() is None:
        raise SystemExit("Pictures of served pages need Chromium or Chrome on the PATH.")
    for name in names or SCREENS:
        with tempfile.TemporaryDirectory() as folder, Tab(Path(folder) / "profile") as tab:
            SCREENS[name](tab, Path(folder), images)
            print(f"{name}: {images}")


if __name__ == "__main__":
    write(sys.argv[1:])
