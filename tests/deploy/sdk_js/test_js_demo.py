"""The page that learns, in a real browser: what leaves, that the ranker gets better, that opting out ends it."""

import contextlib
import sys
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

from browser import Tab, chromium
from js_sdk import built

import fedrank.deploy.demo
from fedrank.deploy.demo import demo_app
from fedrank.deploy.hub.folder import HubFolder
from fedrank_zoo.threaded_server import ThreadedServer

PAGE = Path(fedrank.deploy.demo.__file__).parent / "page"
#: Seconds in which the simulated visitors teach the ranker; a quiet machine needs twenty.
LONGEST = 180.0


@pytest.mark.minutes
def test_the_page_has_the_sdk_as_it_is_built():
    """Tests build the SDK without writing the page's copy; ``npm run build`` writes it."""
    same = (PAGE / "fedrank-device.js").read_bytes() == built().read_bytes()
    assert same


def wait(tab, condition, seconds=30.0):
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        with contextlib.suppress(RuntimeError):
            if tab.value(condition):
                return
        time.sleep(0.2)
    raise AssertionError(f"not within {seconds:g} s: {condition}")


@pytest.mark.minutes
@pytest.mark.skipif(chromium() is None, reason="needs a Chromium on the PATH")
def test_a_visitor_teaches_and_opts_out(tmp_path):
    with ThreadedServer(demo_app(HubFolder(tmp_path / "hub"))) as server, Tab(tmp_path / "profile") as tab:
        tab.call("Page.navigate", url=server.url + "/")
        wait(tab, "Boolean(globalThis.fedrankDemo)")

        for _ in range(10):  # a round may end between a search and its click; the next report is in time
            tab.value("fedrankDemo.synchronise()")
            tab.value("document.querySelector('#examples button').click()")
            assert tab.value("document.querySelectorAll('.hit').length") >= 5
            before = tab.value("fedrankDemo.messages.length")
            if not tab.value("document.getElementById('state').textContent.includes('teaches nothing')"):
                tab.value("document.querySelector('.hit').click()")
                wait(tab, f"fedrankDemo.messages.length > {before}")
                if tab.value("fedrankDemo.messages[0].status") == 201:
                    break
            time.sleep(2.0)
        assert tab.value("[...fedrankDemo.messages[0].body].length") == 6
        assert tab.value("fedrankDemo.messages[0].status") == 201
        assert "0.5 a report" in tab.value("document.getElementById('budget').textContent")
        spent = tab.value("parseFloat(document.getElementById('spent').style.width)")
        assert spent == pytest.approx(100 / 12 * tab.value("fedrankDemo.messages.length"), abs=0.1)

        # Simulated visitors, over the same network: the measured quality rises well above the beginning.
        wait(tab, "fedrankDemo.history.at(-1) > fedrankDemo.history[0] + 0.2", LONGEST)

        tab.value("document.getElementById('part').click()")
        wait(tab, "document.getElementById('part-label').textContent.includes('nothing leaves')")
        said = tab.value("document.getElementById('left').textContent")
        tab.value("document.querySelector('#examples button').click()")
        tab.value("document.querySelector('.hit').click()")
        time.sleep(5.0)
        assert tab.value("document.getElementById('left').textContent") == said
        assert "teaches nothing" in tab.value("document.getElementById('state').textContent")
