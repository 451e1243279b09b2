"""The portal's page in a real browser, on a phone: a missing owner is seen, and no word is wider than the screen."""

import time

import pytest
from browser import Tab, chromium
from search_worlds import search_world

from fedrank.deploy.search.federation import Federation
from fedrank.deploy.search.portal import PortalApp
from fedrank_zoo.threaded_server import ThreadedServer

pytest.importorskip("tantivy")

TEXTS = {
    "north": [("n1", "Wings " + "x" * 200, "lift of a wing"), ("n2", "", "a wing without any title")],
    "south": [("s1", "Wings and flutter", "flutter of a wing")],
}
WIDTH = 390


def searched(tab, words):
    """Type a query, send it and wait for the list; gives the notices."""
    tab.value(f"document.getElementById('query').value = '{words}'; document.querySelector('#ask button').click()")
    until = time.monotonic() + 30
    while time.monotonic() < until and tab.value("/Asking/.test(document.getElementById('state').textContent)"):
        time.sleep(0.05)
    return tab.value("[...document.querySelectorAll('#notices li')].map((item) => item.textContent)")


@pytest.mark.slow
@pytest.mark.skipif(chromium() is None, reason="needs a Chromium on the PATH")
def test_a_phone_shows_who_is_missing_and_nothing_wider_than_itself(tmp_path):
    with search_world(tmp_path, TEXTS) as (asked, _, _):
        known = {name: token for name, token in asked._tokens.items() if name == "north"}
        with (
            ThreadedServer(PortalApp(Federation(asked.file, ("anna", known)))) as portal,
            Tab(tmp_path / "profile") as tab,
        ):
            tab.call("Emulation.setDeviceMetricsOverride", width=WIDTH, height=800, deviceScaleFactor=1, mobile=True)
            tab.call("Page.navigate", url=portal.url + "/")
            time.sleep(1)
            notices = searched(tab, "wing")
            assert len(notices) == 1 and "south" in notices[0]
            assert tab.value("document.querySelectorAll('#hits li').length") == 2
            assert tab.value("document.documentElement.scrollWidth") == WIDTH
            *same, unknown = searched(tab, "zebra")
            assert same == notices and "zebra" in unknown
            assert tab.value("document.querySelectorAll('#hits li').length") == 0
