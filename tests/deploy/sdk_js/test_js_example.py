"""The example application in a browser: its searches are ranked and counted, its user may opt out."""

import contextlib
import functools
import json
import shutil
import sqlite3
import sys
import threading
import time
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

from browser import Tab, chromium
from js_sdk import SDK, built, hub

from fedrank.deploy.hub.audit import replay_log

pytestmark = [
    pytest.mark.minutes,
    pytest.mark.skipif(chromium() is None, reason="needs a Chromium on the PATH"),
]

#: A person who searches for soup and always opens the same one; the place at which it was shown, from 0.
SEARCH = """(async () => {
  const before = device_messages();
  const box = document.querySelector("input[type=search]");
  box.value = "soup";
  box.dispatchEvent(new Event("change"));
  const links = [...document.querySelectorAll("ol a")];
  const place = links.findIndex((link) => link.textContent.startsWith("Lentil soup"));
  links[place].click();
  for (let i = 0; i < 200 && device_messages() === before; i++) await new Promise((done) => setTimeout(done, 10));
  return [place, links.length];
})()"""
COUNT = "window.device_messages = () => parseInt(document.querySelector('[role=status]').textContent) || 0, 0"


class QuietFiles(SimpleHTTPRequestHandler):
    """Files of a folder; requests are not logged."""

    def log_message(self, format, *args):
        pass


@contextlib.contextmanager
def page_server(folder: Path):
    """The address of a server of a folder's files."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(QuietFiles, directory=folder))
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


def test_the_example_learns_from_a_person_until_they_opt_out(tmp_path):
    folder = tmp_path / "page"
    shutil.copytree(SDK / "example", folder)
    shutil.copy(built().parent / "fedrank-device.iife.js", folder)
    settings = dict(
        n_features=4, cohort=1, interactions=1, deadline=0.0, epsilon=8.0, mechanism=None, learning_rate=0.1
    )
    with (
        page_server(folder) as url,
        Tab(tmp_path / "profile") as tab,
        hub(tmp_path / "hub", **settings, origins=(url,)) as home,
    ):
        (folder / "enrolment.token").write_text(home.token("enrolment"))
        script = folder / "search.js"
        text = script.read_text().replace('"http://127.0.0.1:8750"', json.dumps(home.url("hub")))
        script.write_text(text.replace("LONGEST_PAUSE = 0.5", "LONGEST_PAUSE = 0.03"))
        tab.call("Page.navigate", url=url + "/")
        ready = "document.querySelector('[role=status]')?.textContent.startsWith('0 messages') ?? false"
        until = time.monotonic() + 30
        while not tab.value(ready):
            assert time.monotonic() < until, "the page is not ready"
            time.sleep(0.05)
        tab.value(COUNT)
        places = [tab.value(SEARCH) for _ in range(30)]
        assert {count for _, count in places} == {4}
        sent = tab.value("device_messages()")
        assert sent >= 8  # every other search may come before the next model

        tab.value("document.querySelector('input[type=checkbox]').click()")
        opted = "document.querySelector('[role=status]').textContent.includes('opted out')"
        until = time.monotonic() + 30
        while not tab.value(opted):
            assert time.monotonic() < until, "the page does not opt out"
            time.sleep(0.05)
        tab.value(SEARCH.replace("i < 30", "i < 20"))
        assert tab.value("device_messages()") == sent
        with contextlib.closing(sqlite3.connect(home.log)) as db:
            assert db.execute("SELECT count(*) FROM report").fetchone() == (sent,)
        found = replay_log(home.path)
        assert found.proven and any(found.weights)
