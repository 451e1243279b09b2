"""The hub's status page in a real browser: it keeps itself fresh, says when the hub is gone, and asks nobody else."""

import http.server
import re
import shutil
import subprocess
import threading
from contextlib import contextmanager

import pytest
from status_examples import history, status

from fedrank.deploy.hub.status import CSP, page

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")


@pytest.fixture(scope="module")
def chromium():
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        pytest.skip(f"a browser is needed: none of {', '.join(BROWSERS)} is installed")
    return found


@contextmanager
def served(*answers):
    """A hub behind a path prefix that gives these answers, one a request, then the last for ever."""
    asked = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            code, body = answers[min(len(asked), len(answers) - 1)]
            asked.append(self.path)
            self.send_response(code)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            if not body.startswith("<script>"):  # a test's own script is not the page's
                self.send_header("Content-Security-Policy", CSP)
            self.send_header("Content-Length", str(len(body.encode())))
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/some/prefix/status", asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def browsed(chromium, url, folder, milliseconds):
    """The document after so many milliseconds of the browser's own time, and what it complained about."""
    flags = (
        "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
        "--disable-component-update --disable-sync --disable-dev-shm-usage --enable-logging=stderr --dump-dom"
    )
    own = (f"--user-data-dir={folder}", f"--virtual-time-budget={milliseconds}")
    command = [chromium, *flags.split(), *own, url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert "<main>" in done.stdout, done.stderr
    return done.stdout, [line for line in done.stderr.splitlines() if "CONSOLE" in line]


def later():
    return status(round=18, reports=3, history=history(18))


def test_a_browser_shows_what_is_new_and_asks_for_nothing_else(chromium, tmp_path):
    with served((200, page(status(), {})), (200, page(later(), {"conflict": 5}))) as (url, asked):
        text, complaints = browsed(chromium, url, tmp_path, 3000)
    assert '<p class="now">Round 18 is open: 3 of 50 reports' in text and "<title>Round 18: 3 of 50" in text
    assert "<code>conflict</code>" in text and 'id="contact" role="status"></p>' in text
    assert complaints == []
    assert set(asked) == {"/some/prefix/status"} and len(asked) >= 2


def test_a_browser_keeps_what_its_user_does_while_the_page_changes(chromium, tmp_path):
    # The test opens the details and remembers elements; it must find them, still there and still open.
    watch = (
        "<script>addEventListener('load', () => { const d = document.querySelector('details'), h = document."
        "querySelector('.now').firstChild; d.open = true; setInterval(() => document.body.dataset.seen = h.data + "
        "(h.isConnected && d.isConnected && d.open), 100) })</script>"
    )
    with served((200, watch + page(status(), {})), (200, page(later(), {"conflict": 5}))) as (url, _):
        text, _ = browsed(chromium, url, tmp_path, 3000)
    assert 'data-seen="Round 18 is open: 3 of 50 reports, closes in 58:20 at the latest.true"' in text


@pytest.mark.parametrize("answer", [(503, "{}"), (200, "<p>another page</p>")], ids=["refusing", "replaced"])
def test_a_hub_that_is_gone_is_said_to_be_gone_and_the_last_picture_stays(chromium, tmp_path, answer):
    with served((200, page(status(), {})), answer) as (url, asked):
        text, _ = browsed(chromium, url, tmp_path, 10_000)
    assert re.search(r'id="contact" role="status">The hub has not been heard since \d{4}-\d\d-\d\d [\d:]{8} UTC', text)
    assert ("it answers 503" in text) == (answer[0] == 503)
    assert '<p class="now">Round 17 is open: 12 of 50 reports' in text and "<title>No answer: Round 17" in text
    assert 3 <= len(asked) <= 4  # the page, after 2 s, 4 s after that, then 8 s: not every 2 s


def test_a_hub_that_comes_back_is_heard_again(chromium, tmp_path):
    with served((200, page(status(), {})), (503, ""), (200, page(later(), {}))) as (url, _):
        text, _ = browsed(chromium, url, tmp_path, 9000)
    assert '<p class="now">Round 18 is open' in text and 'id="contact" role="status"></p>' in text
    assert "<title>Round 18" in text and '<body class="">' in text


@pytest.mark.parametrize(("shown_after", "asks"), [(600_000, False), (5_000, True)], ids=["hidden", "then shown"])
def test_a_tab_that_nobody_sees_does_not_ask(chromium, tmp_path, shown_after, asks):
    hide = (
        "<script>let gone = true; Object.defineProperty(document, 'hidden', { get: () => gone }); setTimeout(() => "
        f"{{ gone = false; document.dispatchEvent(new Event('visibilitychange')) }}, {shown_after})</script>"
    )
    with served((200, hide + page(status(), {})), (200, page(later(), {}))) as (url, asked):
        text, _ = browsed(chromium, url, tmp_path, 6000)
    assert (len(asked) > 1) == asks
    assert f'<p class="now">Round {18 if asks else 17} is open' in text


def test_a_new_hub_with_another_script_is_loaded_anew(chromium, tmp_path):
    old = page(status(), {})
    build = re.search(r'data-build="(\w+)"', old)[1]
    with served((200, old.replace(build, "00000000")), (200, page(later(), {}))) as (url, asked):
        text, _ = browsed(chromium, url, tmp_path, 3000)
    assert f'data-build="{build}"' in text and '<p class="now">Round 18' in text
    assert len(asked) >= 3  # the page, the page again, and the page as a document
