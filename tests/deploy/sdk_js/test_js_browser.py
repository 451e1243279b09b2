"""The JavaScript SDK in a real browser: its store outlives the page; a hub behind the page's own server hears it."""

import contextlib
import http.client
import json
import shutil
import sqlite3
import sys
import threading
import time
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

from browser import Tab, chromium
from hubs import trial_settings
from js_sdk import built, hub

from fedrank.deploy.hub.admission import Credentials
from fedrank.deploy.hub.folder import HubFolder

pytestmark = [
    pytest.mark.minutes,
    pytest.mark.skipif(chromium() is None, reason="needs a Chromium on the PATH"),
]

PAGE = b"""<!doctype html><meta charset="utf-8"><title>Search</title><script type="module">
import * as sdk from "/fedrank-device.js";
Object.assign(window, sdk, {
  open(options = {}) { window.device = new Device("/hub", TOKEN, options); return device.ready },
  searches() {
    let count = 0;
    for (; device.wantsClicks; count++) {
      const ranking = device.rank([[1, 0], [0, 1], [1, 1]]);
      device.logClick(ranking, 0);
      device.finish(ranking);
    }
    return count;
  },
  loaded: true,
});
</script>"""


WORKER = b"""
import { Device } from "./fedrank-device.js";
self.addEventListener("install", () => self.skipWaiting());
self.addEventListener("activate", (event) => event.waitUntil(self.clients.claim()));
self.addEventListener("message", async (event) => {
  const said = ["window", "document", "localStorage"].filter((name) => name in self);
  const device = new Device(self.location.origin + "/hub", event.data, { log: (line) => said.push(line) });
  const first = await device.sync();
  let searches = 0;
  for (; device.wantsClicks; searches++) {
    const ranking = device.rank([[1, 0], [0, 1], [1, 1]]);
    device.logClick(ranking, 0);
    device.finish(ranking);
  }
  const second = await device.sync();
  const [ledger, privacy] = [await device.ledger(), await device.privacy()];
  event.source.postMessage({ states: [first.state, second.state], sent: second.sent, searches, said, ledger, privacy });
});
"""


@contextlib.contextmanager
def site(bundle: Path, hub_url: str, token: str):
    """A server of a search page that passes what is below /hub/ on to a hub; its address, and what it passed on."""
    port, passed = urllib.parse.urlsplit(hub_url).port, []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format, *args):
            pass

        def say(self, status, headers, body):
            self.send_response(status)
            for name, value in headers:
                if name.lower() not in ("content-length", "connection", "date", "server"):
                    self.send_header(name, value)
            if status != 304:
                self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_GET(self):
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            if self.path.startswith("/hub/"):
                names = ("Authorization", "If-None-Match")
                given = {name: self.headers[name] for name in names if self.headers[name]}
                with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=20)) as connection:
                    connection.request(self.command, self.path.removeprefix("/hub"), body or None, given)
                    answer = connection.getresponse()
                    passed.append((self.command, self.path, answer.status, dict(self.headers), body))
                    self.say(answer.status, answer.getheaders(), answer.read())
            elif self.path == "/worker.js":
                self.say(200, [("Content-Type", "text/javascript")], WORKER)
            elif (bundle.parent / self.path[1:]).is_file() and self.path.endswith(".js"):
                self.say(200, [("Content-Type", "text/javascript")], (bundle.parent / self.path[1:]).read_bytes())
            else:
                self.say(200, [("Content-Type", "text/html")], PAGE.replace(b"TOKEN", json.dumps(token).encode()))

        do_POST = do_DELETE = do_GET

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/", passed
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def load(tab: Tab, url: str):
    """Load the page, or load it again."""
    tab.call("Page.navigate", url=url)
    waited = "new Promise(done => { const look = () => window.loaded ? done(true) : setTimeout(look, 20); look() })"
    for _ in range(50):
        with contextlib.suppress(RuntimeError):  # the page before this one is being left
            if tab.value(f"location.href === {json.dumps(url)} && {waited}"):
                return
    raise AssertionError("the page was not loaded")


def test_a_device_in_a_browser_outlives_its_page(tmp_path):
    settings = dict(mechanism="piecewise", epsilon=2.0, participations=2, interactions=2)
    with (
        hub(tmp_path / "hub", n_features=2, cohort=1, deadline=0.0, rounds=5, **settings) as home,
        site(built(), home.url("hub"), home.token("enrolment")) as (url, passed),
        Tab(tmp_path / "profile") as tab,
    ):
        load(tab, url + "?1")
        tab.value("open({ mostEpsilon: 2, mostSearchEpsilon: 2, lifetimeEpsilon: 8 })")
        assert tab.value("device.sync()")["state"] == "OK" and tab.value("searches()") == 2
        assert tab.value("device.sync()")["sent"] == 1

        load(tab, url + "?2")  # another page: the device is the same, and goes on with the next round
        tab.value("open({ mostEpsilon: 2, mostSearchEpsilon: 2, lifetimeEpsilon: 8 })")
        assert [row["outcome"] for row in tab.value("device.ledger()")] == ["counted"]
        for _ in range(100):  # between two rounds a hub says so
            if tab.value("device.wantsClicks"):
                break
            tab.value("new Promise(done => setTimeout(done, 100)).then(() => device.sync())")
        assert tab.value("searches()") == 2 and tab.value("device.sync()")["sent"] == 1
        assert tab.value("device.rank([[0, 0], [1, 0]])")["learning"] is False

        load(tab, url + "?3")  # all that the terms allow is spent, and stays so
        tab.value("open({ mostEpsilon: 2, mostSearchEpsilon: 2, lifetimeEpsilon: 8 })")
        told = tab.value("device.privacy()")
        assert (told["epsilonTotal"], told["messages"], told["lasting"]) == (4, 2, True)
        assert "would exceed the 2 of the hub's terms" in told["silent"] and tab.value("searches()") == 0
        assert tab.value("device.optOut()") is True

        load(tab, url + "?4")
        before = len(passed)
        tab.value("open({ mostEpsilon: 2, mostSearchEpsilon: 2, lifetimeEpsilon: 8 })")
        assert tab.value("device.sync()")["why"] == "the user has opted out" and len(passed) == before
        assert tab.value("device.leave()") is True
        assert tab.value("device.privacy()")["epsilonTotal"] == 4 and tab.value("device.ledger()") == []

    assert [one[0] for one in passed].count("POST") == 3 and passed[-1][:3] == ("DELETE", "/hub/v1/device", 204)
    assert any(status == 304 for _, _, status, _, _ in passed) or len(passed) < 6
    for _, _, _, headers, body in passed:
        assert "Cookie" not in headers and "Referer" not in headers and len(body) in (0, 6)
    with contextlib.closing(sqlite3.connect(home.log)) as db:
        sent = [body for method, path, _, _, body in passed if path.startswith("/hub/v1/report")]
        assert [row[0] for row in db.execute("SELECT message FROM report ORDER BY round")] == sent


def test_a_page_that_is_left_at_each_click_finishes_a_message_of_thirty_searches(tmp_path):
    options = "{ mostEpsilon: 2, mostSearchEpsilon: 2, lifetimeEpsilon: 8 }"
    settings = dict(mechanism="piecewise", epsilon=2.0, participations=2, interactions=30)
    search = """(async () => {
        await open(OPTIONS);
        if (!device.wantsClicks) return false;
        const ranking = device.rank([[1, 0], [0, 1], [1, 1]]);
        addEventListener("beforeunload", () => device.finish(ranking));
        device.logClick(ranking, 0);
        return true;
    })()""".replace("OPTIONS", options)
    with (
        hub(tmp_path / "hub", n_features=2, cohort=1, deadline=0.0, rounds=5, **settings) as home,
        site(built(), home.url("hub"), home.token("enrolment")) as (url, passed),
        Tab(tmp_path / "profile") as tab,
    ):
        load(tab, url + "?first")
        tab.value(f"open({options})")
        assert tab.value("device.sync()")["state"] == "OK"
        searched = 0
        for number in range(60):
            load(tab, f"{url}?{number}")
            if not tab.value(search):
                break
            searched += 1
        assert searched == 30
        assert tab.value("device.sync()")["sent"] == 1
    assert len([path for method, path, *_ in passed if "/report/" in path]) == 1


def test_a_store_that_cannot_be_opened_makes_the_device_silent(tmp_path):
    with (
        hub(tmp_path / "hub", n_features=2, cohort=1, deadline=0.0) as home,
        site(built(), home.url("hub"), home.token("enrolment")) as (url, passed),
        Tab(tmp_path / "profile") as tab,
    ):
        load(tab, url + "?1")
        tab.value(
            "new Promise(done => { const later = indexedDB.open('fedrank-device', 9); later.onsuccess = () => "
            "{ later.result.close(); done(true) } })"
        )
        tab.value("open({ log() {} })")
        told = tab.value("device.sync()")
        assert (told["state"], told["lasting"], passed) == ("SILENT", False, [])


@pytest.mark.parametrize(
    "how",
    {
        "hang": "IDBFactory.prototype.open = () => ({})",
        "never written": "IDBDatabase.prototype.transaction = "
        "() => ({ objectStore: () => ({ getAll: () => ({}) }), abort() {} })",
        "throws": "IDBFactory.prototype.open = () => { throw new DOMException('', 'InvalidStateError') }",
        "error": "IDBFactory.prototype.open = () => { const request = {}; setTimeout(() => { request.error = "
        "new DOMException('', 'UnknownError'); request.onerror({}) }, 10); return request }",
        "getter": "Object.defineProperty(globalThis, 'indexedDB', "
        "{ get() { throw new DOMException('', 'SecurityError') } })",
    }.items(),
    ids=lambda one: one[0],
)
def test_a_store_that_never_answers_makes_the_device_silent(tmp_path, how):
    with (
        hub(tmp_path / "hub", n_features=2, cohort=1, deadline=0.0) as home,
        site(built(), home.url("hub"), home.token("enrolment")) as (url, passed),
        Tab(tmp_path / "profile") as tab,
    ):
        load(tab, url + "?1")
        tab.value(f"({how[1]}, window.said = [], true)")
        before = time.monotonic()
        tab.value("open({ log: (line) => said.push(line) })")
        told = tab.value("device.sync()")
        assert time.monotonic() - before < 9
        assert (told["state"], told["lasting"], passed) == ("SILENT", False, [])
        assert len(tab.value("said")) == 1


@pytest.mark.parametrize(
    ("how", "error"),
    [
        ("() => ({ objectStore: () => ({ getAll: () => ({}) }), abort() {} })", "TimeoutError"),
        ("() => { throw new DOMException('', 'InvalidStateError') }", "InvalidStateError"),
    ],
    ids=["hangs", "throws"],
)
def test_a_store_that_fails_in_mid_life_sends_nothing_until_it_works(tmp_path, how, error):
    with (
        hub(tmp_path / "hub", n_features=2, cohort=1, deadline=0.0, mechanism=None) as home,
        site(built(), home.url("hub"), home.token("enrolment")) as (url, passed),
        Tab(tmp_path / "profile") as tab,
    ):
        load(tab, url + "?1")
        tab.value("open({ log() {} })")
        assert tab.value("device.sync()")["state"] == "OK" and tab.value("searches()") == 4
        tab.value("device.privacy()")  # the message is written
        tab.value("window.whole = IDBDatabase.prototype.transaction, 0")
        tab.value(f"IDBDatabase.prototype.transaction = {how}, 0")
        before, asked = time.monotonic(), len(passed)
        told = tab.value("device.sync()")
        assert time.monotonic() - before < 14
        assert (told["state"], told["why"]) == ("RETRY", f"what is kept cannot be written ({error})")
        assert tab.value("device.rank([[0, 0], [1, 0]]).order") == [0, 1] and len(passed) == asked
        tab.value("IDBDatabase.prototype.transaction = window.whole, 0")
        tab.value(f"new Promise(done => setTimeout(done, {1000 * told['nextIn'] + 100}))")
        assert tab.value("device.sync()")["sent"] == 1


def test_what_was_spent_outlives_the_database_and_a_credential_everything(tmp_path):
    """Evicted under an open page, then between two pages; then all is deleted, and the hub knows the credential."""
    settings = dict(mechanism="piecewise", epsilon=0.5, interactions=1, open_enrolment=False)
    with hub(tmp_path / "hub", n_features=2, cohort=1, deadline=0.0, **settings) as home:
        with contextlib.closing(home.open()[1]) as store:
            secret = Credentials(store).add("one-person", 1)
        with site(built(), home.url("hub"), secret) as (url, passed), Tab(tmp_path / "profile") as tab:

            def delete(kinds):
                tab.call("Storage.clearDataForOrigin", origin=url.rstrip("/"), storageTypes=kinds)

            def spent():
                told = tab.value("device.privacy()")
                return told["epsilonTotal"], told["since"]

            load(tab, url + "?1")
            tab.value("window.said = [], open({ log: (line) => said.push(line) })")
            assert tab.value("device.sync()")["state"] == "OK" and tab.value("searches()") == 1
            assert tab.value("device.sync()")["sent"] == 1 and tab.value("said") == []
            first = spent()
            assert first[0] == 0.5
            delete("indexeddb")
            told = tab.value("device.sync()")  # no token is kept any more, and the credential was for one device
            assert (told["state"], told["sent"]) == ("RETRY", 0) and "enrolment" in told["why"]
            again = spent()
            assert again[0] == 0.5 and again[1] > first[1] and len(tab.value("said")) == 1

            load(tab, url + "?2")
            delete("indexeddb")
            tab.value("window.said = [], open({ log: (line) => said.push(line) })")
            assert spent()[0] == 0.5 and len(tab.value("said")) == 1

            load(tab, url + "?3")
            delete("all")
            tab.value("open({ log() {} })")
            last = spent()
            assert last[0] == 0 and last[1] > again[1]
            assert tab.value("device.sync()")["state"] == "RETRY" and tab.value("searches()") == 0
    assert [status for _, path, status, *_ in passed if path.endswith("/enrol")] == [201, 403, 403]
    assert len([path for _, path, *_ in passed if "/report/" in path]) == 1


def test_three_tabs_are_one_device_with_one_life(tmp_path):
    settings = dict(mechanism="piecewise", epsilon=0.5, participations=2, interactions=2)
    with (
        hub(tmp_path / "hub", n_features=2, cohort=1, deadline=0.0, **settings) as home,
        site(built(), home.url("hub"), home.token("enrolment")) as (url, passed),
        Tab(tmp_path / "profile") as tab,
    ):
        sessions = [tab.session]
        for _ in range(2):
            sessions.append(tab.attach(tab.call("Target.createTarget", url="about:blank")["targetId"]))

        def in_all(expression):
            found = []
            for tab.session in sessions:
                found.append(tab.value(expression))
            return found

        for tab.session in sessions:
            load(tab, url)
        in_all("void open({ log() {} })")
        for _ in range(60):
            in_all("void (window.told = device.sync())")  # all at once
            told = in_all("told")
            in_all("searches()")
            if all(one["state"] == "SILENT" for one in told):
                break
            time.sleep(0.5)
        assert [one["state"] for one in told] == ["SILENT"] * 3
        assert [one["epsilonTotal"] for one in in_all("device.privacy()")] == [1.0] * 3
        tab.session = sessions[0]
        assert [path for _, path, *_ in passed].count("/hub/v1/enrol") == 1
        counted = [body for _, path, status, _, body in passed if "/report/" in path and status == 201]
        assert len(counted) == 2


def test_a_service_worker_is_a_device_of_a_default_hub(tmp_path):
    with (
        hub(tmp_path / "hub", n_features=2, cohort=1, deadline=0.0, mechanism=None) as home,
        site(built(), home.url("hub"), home.token("enrolment")) as (url, passed),
        Tab(tmp_path / "profile") as tab,
    ):
        load(tab, url.replace("127.0.0.1", "localhost"))
        told = tab.value(
            "navigator.serviceWorker.register('/worker.js', { type: 'module' }).then(async (it) => { "
            "await navigator.serviceWorker.ready; const heard = new Promise(done => "
            "navigator.serviceWorker.addEventListener('message', (event) => done(event.data))); "
            "it.active.postMessage(TOKEN); return heard })".replace("TOKEN", json.dumps(home.token("enrolment")))
        )
        assert told["states"] == ["OK", "SILENT"] and (told["searches"], told["sent"]) == (4, 1), told
        assert told["said"] == [] and [row["outcome"] for row in told["ledger"]] == ["counted"]
        assert told["privacy"]["epsilonTotal"] == 1
        assert [(method, path) for method, path, *_ in passed if method == "POST"][-1] == ("POST", "/hub/v1/report/0")


def test_the_background_of_an_extension_is_a_device(tmp_path):
    folder = tmp_path / "extension"
    folder.mkdir()
    manifest = {
        "manifest_version": 3,
        "name": "Search",
        "version": "1",
        "background": {"service_worker": "background.js", "type": "module"},
        "host_permissions": ["http://127.0.0.1/*"],
        "permissions": ["unlimitedStorage"],
    }
    (folder / "manifest.json").write_text(json.dumps(manifest))
    (folder / "background.js").write_text('import * as sdk from "./fedrank-device.js"; Object.assign(self, sdk);')
    shutil.copy(built(), folder)
    with (
        hub(tmp_path / "hub", n_features=2, cohort=1, deadline=0.0, mechanism=None) as home,
        Tab(tmp_path / "profile", extensions=True) as tab,
    ):
        tab.session = None
        name = tab.call("Extensions.loadUnpacked", path=str(folder))["id"]
        until = time.monotonic() + 20
        while not (
            found := [
                one["targetId"]
                for one in tab.call("Target.getTargets")["targetInfos"]
                if one["type"] == "service_worker" and name in one["url"]
            ]
        ):
            assert time.monotonic() < until, "the extension has no background"
            time.sleep(0.1)
        tab.session = tab.attach(found[0])
        while not tab.value("'Device' in self"):
            time.sleep(0.05)
        about = f"{json.dumps(home.url('hub'))}, {json.dumps(home.token('enrolment'))}"
        told = tab.value(
            f"(async () => {{ const device = self.device = new Device({about}, {{ log() {{}} }}); "
            "const states = [(await device.sync()).state]; "
            "while (device.wantsClicks) { const ranking = device.rank([[1, 0], [0, 1]]); device.logClick(ranking, 0); "
            "device.finish(ranking) } const { state, sent, lasting } = await device.sync(); "
            "return [...states, state, sent, lasting] })()"
        )
        assert told == ["OK", "SILENT", 1, True]


def test_a_page_of_another_origin_calls_a_hub_that_allows_it(tmp_path):
    nowhere = "http://127.0.0.1:9"  # the pages' servers pass nothing on
    with (
        site(built(), nowhere, "") as (allowed, _),
        site(built(), nowhere, "") as (other, _),
        hub(tmp_path / "hub", n_features=2, cohort=1, deadline=0.0, origins=(allowed.rstrip("/"),)) as home,
        Tab(tmp_path / "profile") as tab,
    ):
        device = f"window.device = new Device({json.dumps(home.url('hub'))}, {json.dumps(home.token('enrolment'))}, "
        load(tab, other)
        tab.value(device + "{ log() {} }); device.ready")
        assert tab.value("device.sync()")["state"] == "OFFLINE"
        with contextlib.closing(sqlite3.connect(home.log)) as db:
            assert db.execute("SELECT count(*) FROM device").fetchone() == (0,)

        load(tab, allowed)
        tab.value(device + "{ mostEpsilon: 20, mostSearchEpsilon: 5, lifetimeEpsilon: 100 }); device.ready")
        assert tab.value("device.sync()")["state"] == "OK" and tab.value("searches()") == 4
        assert tab.value("device.sync()")["sent"] == 1
        assert tab.value("device.sync()")["state"] == "OK"
        assert tab.value("device.leave()") is True
        with contextlib.closing(sqlite3.connect(home.log)) as db:
            assert db.execute("SELECT count(*) FROM report").fetchone() == (1,)


def test_a_browser_states_what_its_authenticator_is(tmp_path):
    """The test browser's authenticator is of no maker: all that the hub has against its statement is its root."""
    pytest.importorskip("webauthn", reason="the extra attestation is not installed")
    from cryptography.hazmat.primitives.serialization import Encoding
    from cryptography.x509 import load_der_x509_certificate
    from webauthn.helpers import base64url_to_bytes, parse_attestation_object

    table = "[webauthn]\nsite = 'localhost'\norigins = ['ORIGIN']\nformats = ['packed']\nroots = ['root.pem']\n"
    with site(built(), "http://127.0.0.1:9", "") as (url, _), Tab(tmp_path / "profile") as tab:
        here = url.replace("127.0.0.1", "localhost")
        tab.call("WebAuthn.enable")
        kind = {"protocol": "ctap2", "transport": "internal", "hasUserVerification": True, "isUserVerified": True}
        tab.call("WebAuthn.addVirtualAuthenticator", options=kind)
        load(tab, here)
        attest = "import('/attest.js').then(({ webAuthn }) => "
        made = tab.value(attest + "webAuthn('A test')(new Uint8Array(48), ['webauthn'])).then(JSON.stringify)")
        name, statement = json.loads(made)
        assert name == "webauthn"
        parsed = parse_attestation_object(base64url_to_bytes(statement["response"]["attestationObject"]))
        root = load_der_x509_certificate(parsed.att_stmt.x5c[-1]).public_bytes(Encoding.PEM)
        settings = dict(n_features=2, cohort=1, deadline=0.0, mechanism="piecewise")
        settings |= dict(attestation=("webauthn",), origins=(here.rstrip("/"),))
        HubFolder(tmp_path / "hub").prepare(trial_settings(**settings))
        (tmp_path / "hub" / "root.pem").write_bytes(root)  # it makes a new one each time: this is another's
        for origin, why in ((here.rstrip("/"), "wrong-root"), ("http://localhost:1", "wrong-app")):
            (tmp_path / "hub" / "attestation.toml").write_text(table.replace("ORIGIN", origin))
            with hub(tmp_path / "hub", **settings) as home:
                about = f"{json.dumps(home.url('hub'))}, {json.dumps(home.token('enrolment'))}"
                store = "store: new MemoryStore(), log() {}"
                tab.value(f"window.device = new Device({about}, {{ {store} }}); device.ready")
                assert "attestation-needed" in tab.value("device.sync()")["why"]
                made = f"new Device({about}, {{ {store}, attest: webAuthn('A test') }})"
                tab.value(f"{attest}{{ window.device = {made}; return device.ready }})")
                assert tab.value("device.sync()")["why"] == f"enrolment: status 403, not-attested, {why}"
