"""Names and pages under which a server without tokens is called: DNS rebinding and pages of other sites are refused."""

import asyncio
import http.client
import json

import pytest
from app_worlds import app, hub  # noqa: F401
from hub_fakes import Exchange, ask
from hubs import make
from search_worlds import TEXTS, search_world

from fedrank.core.errors import ConfigError
from fedrank.deploy.demo import demo_app
from fedrank.deploy.http.origins import Hosts
from fedrank.deploy.hub.folder import HubFolder
from fedrank.deploy.hub.service import hub_app
from fedrank.deploy.search.portal import PortalApp
from fedrank_zoo.threaded_server import ThreadedServer


def refused(hosts, host, origin=None, path="/"):
    headers = [] if host is None else [(b"host", host.encode("latin-1"))]
    headers += [] if origin is None else [(b"origin", origin.encode("latin-1"))]
    response = hosts.refusal({"path": path, "headers": headers})
    return None if response is None else response.code


def test_only_known_names_and_addresses_are_answered():
    for host, code in [
        ("localhost:8770", None),
        ("LOCALHOST.", None),
        ("127.0.0.1:8770", None),
        ("[::1]:8770", None),
        ("10.1.2.3", None),  # a page cannot point an address elsewhere
        ("search.example.org", None),
        ("search.example.org:9999", None),
        (None, None),  # HTTP/1.0: no browser
        ("evil.example:8770", 421),
        ("127.0.0.1.evil.example", 421),
        ("localhost.evil.example", 421),
        ("xsearch.example.org", 421),
        ("localhost:80@evil.example", 421),
        ("", 421),
        ("loc\xe4lhost", 421),
    ]:
        assert refused(Hosts(["Search.example.org", "::", "0.0.0.0"]), host) == code


def test_pages_of_other_sites_are_refused():
    for host, origin, code in [
        ("localhost:8770", "http://localhost:8770", None),
        ("portal.example", "https://portal.example", None),
        ("portal.example:443", "https://portal.example", None),
        ("127.0.0.1:8770", "https://portal.example", None),  # a proxy that does not hand Host on
        ("localhost:8770", "http://localhost:3000", 403),  # another program's page on this machine
        ("localhost:8770", "http://127.0.0.1:8770", 403),
        ("localhost:8770", "https://evil.example", 403),
        ("localhost:8770", "null", 403),
        ("localhost:8770", "", 403),
        (None, "https://evil.example", 403),
    ]:
        assert refused(Hosts(["portal.example"]), host, origin) == code


def test_only_the_paths_that_are_named_are_checked():
    hosts = Hosts(paths=("/status", "/metrics"))
    assert [refused(hosts, "evil.example", path=path) for path in ("/v1/model", "/status", "/status.json")] == [
        None,
        421,
        421,
    ]
    two = {"path": "/status", "headers": [(b"host", b"localhost"), (b"host", b"localhost")]}
    assert hosts.refusal(two).code == 421


def test_what_is_not_a_name_is_refused():
    for name in ["https://portal.example", "portal.example/", "a b", "", "*"]:
        with pytest.raises(ConfigError, match="name of a server"):
            Hosts([name])


def test_an_application_without_names_answers_under_every_name(app):
    assert ask(app, "GET", "/healthz").code == 200  # under the name hub
    app.hosts = Hosts()
    assert ask(app, "GET", "/healthz").code == 421


def test_a_foreign_page_reads_no_document_of_the_portal(tmp_path):
    pytest.importorskip("tantivy")
    with search_world(tmp_path, {"north": TEXTS["north"]}) as (asked, _, _), ThreadedServer(PortalApp(asked)) as portal:

        def post(path, body, **headers):
            connection = http.client.HTTPConnection("127.0.0.1", portal.port, timeout=20)
            connection.request("POST", path, json.dumps(body), headers)
            response = connection.getresponse()
            return response.status, json.loads(response.read())

        own = f"localhost:{portal.port}"
        code, found = post("/v1/search", {"query": "wing"}, Host=own, Origin=f"http://{own}")
        assert code == 200 and len(found["hits"]) == 1
        wanted = {"answer": found["answer"], "hit": 0}
        assert post("/v1/fetch", wanted, Host=own)[0] == 200
        rebound = {"Host": f"evil.example:{portal.port}", "Origin": f"http://evil.example:{portal.port}"}
        assert post("/v1/search", {"query": "wing"}, **rebound)[0] == 421
        assert post("/v1/fetch", wanted, **rebound)[1]["error"] == "wrong-host"
        assert post("/v1/fetch", wanted, Host=own, Origin="https://evil.example")[0] == 403


def asked(app, path, **headers):
    given = [(name.encode(), value.encode()) for name, value in headers.items()]

    async def ask_once():
        exchange = Exchange("GET", path)
        exchange.scope["headers"] = given
        return (await exchange.to(app)).code

    return asyncio.run(ask_once())


def test_a_foreign_page_reads_no_status_of_a_hub_on_this_machine(tmp_path):
    for path in ["/status", "/status.json", "/metrics"]:
        for settings, options, code in [
            ({}, {"host": "127.0.0.1"}, 421),
            ({"status": "public"}, {"host": "127.0.0.1"}, 200),  # its operator wants it read
            ({}, {"host": "0.0.0.0", "public": False}, 401),
        ]:
            home = make(tmp_path / "hub", **settings)
            hub, app = hub_app(home, **options)
            try:
                assert asked(app, path, host="evil.example:8750") == code
                assert asked(app, path, host="localhost:8750", origin="https://evil.example") == (
                    403 if code == 421 else code
                )
                if options["host"] == "127.0.0.1":
                    assert asked(app, path, host="127.0.0.1:8750") == asked(app, path, host="localhost:8750") == 200
                # a proxy hands on the name that devices use
                assert asked(app, "/v1/model", host="hub.example:8750") == 401
            finally:
                for stage in hub.row:
                    stage.stop()
                hub.store.close()


def test_a_foreign_page_does_not_get_at_the_demo(tmp_path, monkeypatch):
    for path in ["/", "/demo.json", "/status", "/v1/log"]:
        monkeypatch.setattr("fedrank.deploy.demo._FILES", {})
        app = demo_app(HubFolder(tmp_path / "hub"))
        assert asked(app, path, host="evil.example:8790") == 421
        assert asked(app, "/demo.json", host="localhost:8790") == 200
