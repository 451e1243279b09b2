"""What a hub answers over HTTP: each row of the protocol's table, each refusal, what is counted, what is kept quiet."""

import asyncio
import logging
import math
import re
import types

import pytest
import status_examples
from app_worlds import app, hub, metrics  # noqa: F401
from hub_fakes import ADMIN, DEVICE, ENROLMENT, Exchange, FakeHub, a_reply, app_of, ask
from prometheus_client.parser import text_string_to_metric_families

from fedrank.core.errors import RunError
from fedrank.deploy.http.guard import Guard
from fedrank.deploy.hub import app as app_module
from fedrank.deploy.hub.admission import NotAdmittedError
from fedrank.deploy.hub.store import StoreError
from fedrank.deploy.hub.tally import Counters


class Clock:
    def __init__(self):
        self.now = 0

    def __call__(self) -> int:
        return self.now

    def later(self, seconds: float) -> None:
        self.now += round(seconds * 1e9)


def test_the_operator_removes_a_device(hub, app):
    assert ask(app, "DELETE", "/v1/admin/device/1", ADMIN).code == 204
    again = ask(app, "DELETE", "/v1/admin/device/1", ADMIN)
    assert (again.code, again.error) == (404, "not-found")
    assert ask(app, "DELETE", "/v1/admin/device/one", ADMIN).error == "malformed"
    assert ask(app, "GET", "/v1/model", DEVICE).code == 401
    assert ask(app, "GET", "/v1/model", "token-of-device-2").code == 200


def test_a_device_that_asks_too_often_waits_and_others_do_not(hub):
    clock = Clock()
    app = app_of(hub, Guard(device_per_minute=60, device_burst=3, clock=clock))
    codes = [ask(app, "GET", "/v1/model", DEVICE).code for _ in range(5)]
    assert codes == [200, 200, 200, 429, 429]
    refused = ask(app, "POST", "/v1/report/0", DEVICE, a_reply())
    assert (refused.code, refused.error, refused.headers["retry-after"]) == (429, "too-many", "1")
    assert hub.calls == []
    assert ask(app, "POST", "/v1/report/0", "token-of-device-2", a_reply()).code == 201
    clock.later(1.0)
    assert ask(app, "POST", "/v1/report/0", DEVICE, a_reply()).code == 201
    assert ask(app, "GET", "/v1/model", DEVICE).code == 429


def test_wrong_tokens_lock_nobody_else_out(hub):
    clock = Clock()
    app = app_of(hub, Guard(failures_per_minute=3, clock=clock))
    wrong = [ask(app, "GET", "/v1/model", f"wrong-{n}").code for n in range(5)]
    assert wrong == [401, 401, 401, 429, 429]
    assert ask(app, "POST", "/v1/enrol", "wrong").headers["retry-after"] == "20"
    assert ask(app, "GET", "/v1/model", "wrong", client="192.0.2.2").code == 401, "another address"
    assert ask(app, "GET", "/v1/model", DEVICE).code == 200, "a device behind the same address"
    assert ask(app, "POST", "/v1/enrol", ENROLMENT).code == 201
    assert ask(app, "POST", "/v1/admin/close", ADMIN).code == 409, "the operator behind the same address"
    clock.later(20)
    assert [ask(app, "GET", "/v1/model", None).code for _ in range(2)] == [401, 429]


def test_the_admin_token_cannot_be_guessed_for_long(hub):
    clock = Clock()
    app = app_of(hub, Guard(failures_per_minute=3, clock=clock), public=False)
    codes = [ask(app, "POST", "/v1/admin/close", f"wrong-{n}").code for n in range(4)]
    assert codes == [401, 401, 401, 429]
    right = ask(app, "POST", "/v1/admin/close", ADMIN)
    assert (right.code, right.error) == (429, "too-many"), "not even compared"
    assert ask(app, "GET", "/status", ADMIN).code == 429
    assert hub.calls == []
    assert ask(app, "GET", "/status", ADMIN, client="192.0.2.2").code == 200
    assert ask(app, "GET", "/v1/model", DEVICE).code == 200
    clock.later(20)
    assert ask(app, "POST", "/v1/admin/close", ADMIN).code == 409


def test_a_browser_that_has_not_been_asked_yet_has_not_failed(hub):
    app = app_of(hub, Guard(failures_per_minute=1, clock=Clock()), public=False)
    assert [ask(app, "GET", "/status").code for _ in range(5)] == [401] * 5
    assert ask(app, "GET", "/status", ADMIN).code == 200


def test_strangers_with_made_up_secrets_keep_nobody_from_enrolling(hub):
    """Only secrets that exist take from what all enrolments share; strangers are slowed down by their network."""
    app = app_of(hub, Guard(enrolments_per_minute=60, enrolment_burst=2, failures_per_minute=3, clock=Clock()))
    hub.tickets = {"cred.good": 1, "code.good": 1}
    for path, made_up in (("/v1/enrol", "cred.x"), ("/v1/enrol", "code.x"), ("/v1/code", "cred.x")):
        answers = [ask(app, "POST", path, f"{made_up}{n}", client="203.0.113.9") for n in range(10)]
        assert {one.code for one in answers} <= {401, 429} and answers[-1].code == 429
    assert hub.calls == []  # the writer was not asked
    assert [ask(app, "POST", "/v1/enrol", one).code for one in ("cred.good", "code.good")] == [201, 201]
    assert ask(app, "POST", "/v1/enrol", ENROLMENT).code == 429  # these two were known


def test_enrolments_are_limited_all_together_and_wrong_tokens_take_none(hub):
    clock = Clock()
    app = app_of(hub, Guard(enrolments_per_minute=60, enrolment_burst=2, failures_per_minute=math.inf, clock=clock))
    for _ in range(50):
        assert ask(app, "POST", "/v1/enrol", "wrong").code == 401
    assert [ask(app, "POST", "/v1/enrol", ENROLMENT, client=f"192.0.2.{n}").code for n in range(4)] == [
        201,
        201,
        429,
        429,
    ]
    clock.later(1)
    assert ask(app, "POST", "/v1/enrol", ENROLMENT).code == 201


def test_one_network_leaves_room_for_others_to_enrol(hub):
    """One /24 enrols 20 at once and one in three seconds; 100 others, and a device with a code, are not kept out."""
    clock = Clock()
    app = app_of(hub, Guard(network_enrolments_per_minute=20, clock=clock))
    hub.tickets = {"code.good": 1, "cred.good": 99}

    def enrol(client, token=ENROLMENT):
        return ask(app, "POST", "/v1/enrol", token, client=client).code

    codes = [enrol(f"198.51.100.{n}") for n in range(200)]
    assert codes.count(201) == 20 and codes.count(429) == 180
    assert enrol("198.51.100.7", "cred.good") == 429 and enrol("198.51.100.7", "code.good") == 201
    assert enrol("::ffff:198.51.100.8") == 429
    assert [enrol(f"203.0.{n}.7") for n in range(100)] == [201] * 100
    # A line of a household has up to 256 networks of 64 bits, and counts once.
    assert [enrol(f"2001:db8:1:{n:x}::1") for n in range(256)] == [201] * 20 + [429] * 236
    assert enrol("2001:db8:2:1::1") == 201
    for here in ("127.0.0.1", "::1", None):  # a proxy that the hub does not know of; clients without an address
        assert [enrol(here) for _ in range(30)] == [201] * 30
    clock.later(9)
    assert [enrol("198.51.100.9") for _ in range(4)] == [201] * 3 + [429]
    assert 1 <= int(ask(app, "POST", "/v1/enrol", ENROLMENT, client="198.51.100.9").headers["retry-after"]) <= 3


def test_a_back_end_that_asks_for_many_codes_keeps_no_device_from_enrolling(hub):
    app = app_of(hub, Guard(enrolments_per_minute=60, enrolment_burst=2, clock=Clock()))
    hub.tickets = {"cred.good": 9}
    assert [ask(app, "POST", "/v1/code", "cred.good").code for _ in range(9)] == [201] * 2 + [429] * 7
    assert [ask(app, "POST", "/v1/enrol", ENROLMENT).code for _ in range(3)] == [201, 201, 429]


def test_a_full_hub_says_so(hub):
    hub.trouble = NotAdmittedError("hub-full")
    app = app_of(hub)
    got = ask(app, "POST", "/v1/enrol", ENROLMENT)
    assert (got.code, got.error, got.headers["retry-after"]) == (503, "hub-full", "3600")
    assert app.counters.refusals_by_reason() == {"hub-full": 1}
    hub.full = True
    for path in ("/healthz", "/readyz"):  # its devices are served: no load balancer is to leave it out
        assert (ask(app, "GET", path).code, ask(app, "GET", path).json["enrolment"]) == (200, "full")


def test_a_flooded_hub_says_so_and_goes_on_serving(hub):
    """Two may enrol at once; a minute after the third was refused it is no flood any more."""
    clock = Clock()
    guard = Guard(enrolments_per_minute=60, enrolment_burst=2, clock=clock)
    app = app_of(hub, guard)
    hub.tickets = {"cred.good": 9}
    assert [ask(app, "POST", "/v1/enrol", ENROLMENT).code for _ in range(3)] == [201, 201, 429]
    for path in ("/healthz", "/readyz"):
        assert (ask(app, "GET", path).code, ask(app, "GET", path).json["enrolment"]) == (200, "flooded")
    assert ask(app, "GET", "/v1/model", DEVICE).code == 200
    collected = Counters(lambda: {**status_examples.status(), "flooded": guard.is_flooded}).text()[0].decode()
    families = {family.name: family for family in text_string_to_metric_families(collected)}
    states = {one.labels["state"]: one.value for one in families["fedrank_enrolment"].samples}
    assert states == {"open": 0.0, "full": 0.0, "flooded": 1.0}
    clock.later(60)
    assert "enrolment" not in ask(app, "GET", "/healthz").json


def test_a_client_without_an_address_can_be_answered(app):
    assert ask(app, "GET", "/v1/model", "wrong", client=None).code == 401
    assert ask(app, "GET", "/v1/model", DEVICE, client=None).code == 200


def test_health_is_the_stores(hub, app):
    assert (ask(app, "GET", "/healthz").code, ask(app, "GET", "/healthz").json) == (200, {"status": "ok"})
    hub.healthy = False
    sick = ask(app, "GET", "/healthz")
    assert sick.code == 503 and "retry-after" in sick.headers
    assert app.counters.refusals_by_reason() == {"unavailable": 1}


def test_status_as_json_has_the_refusals_and_the_bytes(hub, app):
    ask(app, "GET", "/v1/model", DEVICE)
    ask(app, "GET", "/v1/model", DEVICE)
    ask(app, "HEAD", "/v1/model", DEVICE)
    ask(app, "GET", "/v1/model", DEVICE, headers=[(b"if-none-match", b"*")])
    ask(app, "GET", "/v1/model", "wrong")
    ask(app, "GET", "/nowhere")
    ask(app, "GET", "/nowhere")
    status = ask(app, "GET", "/status.json").json
    assert status["refused"] == {"not-found": 2, "unauthorised": 1}
    assert status["bytes"] == {"report": 9, "model": 17, "reports": 0, "models": 2 * 17}
    assert status["hub"] == hub.terms.hub


def test_the_page_is_the_status_modules_and_a_browser_must_not_trust_it(hub, app, monkeypatch):
    seen = []
    fake = types.SimpleNamespace(CSP="default-src 'none'", page=lambda *given: seen.append(given) or "<p>ε</p>")
    monkeypatch.setitem(__import__("sys").modules, "fedrank.deploy.hub.status", fake)
    monkeypatch.setattr("fedrank.deploy.hub.status", fake, raising=False)
    ask(app, "GET", "/nowhere")
    got = ask(app, "GET", "/status")
    assert (got.code, got.body.decode()) == (200, "<p>ε</p>")
    assert seen[0][0]["hub"] == hub.terms.hub and seen[0][1] == {"not-found": 1}
    assert got.headers["content-type"] == "text/html; charset=utf-8"
    assert got.headers["content-security-policy"] == "default-src 'none'"
    assert got.headers["x-content-type-options"] == "nosniff" and got.headers["x-frame-options"] == "DENY"
    assert got.headers["referrer-policy"] == "no-referrer" and got.headers["cache-control"] == "no-store"


def test_the_real_page_can_be_shown(hub, app):
    hub.show(3)
    got = ask(app, "GET", "/status")
    assert got.code == 200 and b"<html" in got.body and "default-src 'none'" in got.headers["content-security-policy"]


@pytest.mark.parametrize("path", ["/status", "/status.json", "/metrics"])
def test_a_flood_of_looks_is_one_look_a_second(hub, monkeypatch, path):
    now, made = [100.0], []
    monkeypatch.setattr("fedrank.deploy.hub.app.monotonic", lambda: now[0])
    status = hub.status
    hub.status = lambda: made.append(now[0]) or status()
    app = app_of(hub)
    looks = [ask(app, "GET", path).body for _ in range(50)]
    assert made == [100.0] and len(set(looks)) == 1
    assert ask(app, "HEAD", path).headers["content-length"] == str(len(looks[0]))
    now[0] = 100.99
    hub.show(7)
    assert ask(app, "GET", path).body == looks[0] and made == [100.0]
    now[0] = 101.0
    assert ask(app, "GET", path).body != looks[0] and made == [100.0, 101.0]


def test_a_page_that_is_kept_is_still_for_the_operator_only(hub):
    app = app_of(hub, public=False)
    for path in ("/status", "/status.json", "/metrics"):
        assert [ask(app, "GET", path, token).code for token in (ADMIN, None, DEVICE, ADMIN)] == [200, 401, 401, 200]


def test_a_page_that_fails_is_made_again(hub, app, caplog):
    status = hub.status
    hub.status = lambda: 1 / 0
    assert ask(app, "GET", "/status.json").code == 500
    hub.status = status
    assert ask(app, "GET", "/status.json").code == 200


def test_rounds_that_were_applied_are_counted_by_the_hub(hub, app):
    """Where numbers of rounds leave some out."""
    hub.show(9)
    status = hub.status
    hub.status = lambda: {**status(), "applied": 4}
    assert Counters(hub.status).text()[0].decode().count("fedrank_rounds_total 4.0") == 1
    assert metrics(app)["fedrank_rounds_total", ()] == 9, "a hub that does not say so"


def test_nothing_but_the_model_may_be_kept(hub, app):
    asked = [
        ("GET", path, None) for path in ("/healthz", "/metrics", "/status", "/status.json", "/nowhere", "/v1/model")
    ]
    asked += [("POST", "/v1/enrol", ENROLMENT), ("POST", "/v1/admin/close", ADMIN), ("DELETE", "/v1/device", DEVICE)]
    for method, path, token in asked:
        assert ask(app, method, path, token).headers["cache-control"] == "no-store"
    assert ask(app, "POST", "/v1/report/0", "token-of-device-2", a_reply()).headers["cache-control"] == "no-store"


def test_metrics_say_what_happened(hub, app):
    hub.show(2)
    ask(app, "GET", "/v1/model", DEVICE)
    for _ in range(2):
        ask(app, "POST", "/v1/report/2", DEVICE, a_reply())
    ask(app, "POST", "/v1/report/1", DEVICE, a_reply())
    ask(app, "POST", "/v1/report/1", "wrong", a_reply())
    samples = metrics(app)
    expected = {
        ("fedrank_reports_total", ("accepted",)): 1,
        ("fedrank_reports_total", ("already",)): 1,
        ("fedrank_reports_total", ("stale-round",)): 1,
        ("fedrank_reports_total", ("unauthorised",)): 1,
        ("fedrank_refused_total", ("stale-round", "report")): 1,
        ("fedrank_refused_total", ("unauthorised", "report")): 1,
        ("fedrank_requests_total", ("200", "model")): 1,
        ("fedrank_requests_total", ("200", "report")): 1,
        ("fedrank_requests_total", ("201", "report")): 1,
        ("fedrank_requests_total", ("409", "report")): 1,
        ("fedrank_requests_total", ("401", "report")): 1,
        ("fedrank_payload_bytes_total", ("up", "Reply")): 9,
        ("fedrank_payload_bytes_total", ("down", "Request")): 17,
        ("fedrank_report_seconds_count", ()): 2,
        ("fedrank_report_seconds_bucket", ("+Inf",)): 2,
        ("fedrank_round", ()): 2,
        ("fedrank_rounds_total", ()): 2,
        ("fedrank_devices", ()): 2,
        ("fedrank_cohort_reports", ()): 1,
        ("fedrank_cohort_size", ()): 50,
        ("fedrank_round_seconds", ()): 1.5,
        ("fedrank_reward", ()): 0.26,
        ("fedrank_epsilon_user", ("message",)): 18.0,
        ("fedrank_epsilon_user", ("user",)): math.inf,
        ("fedrank_state", ("open",)): 1,
        ("fedrank_state", ("done",)): 0,
    }
    assert {key: samples.get(key) for key in expected} == expected
    assert samples["process_resident_memory_bytes", ()] > 1e6


def test_the_histogram_counts_each_report_at_its_border():
    counters = Counters(FakeHub().status)
    for seconds in (0.0005, 0.001, 0.0011, 11.0):
        counters.count_acknowledged(seconds)
    families = text_string_to_metric_families(counters.text()[0].decode())
    samples = {s.labels.get("le"): s.value for f in families if f.name == "fedrank_report_seconds" for s in f.samples}
    assert (samples["0.001"], samples["0.0025"], samples["10.0"], samples["+Inf"]) == (2, 3, 3, 4)
    assert samples[None] in (4, pytest.approx(11.0026))


def test_a_hub_that_has_applied_no_round_has_no_reward(app):
    names = {name for name, _ in metrics(app)}
    assert "fedrank_reward" not in names and "fedrank_round" in names


@pytest.mark.parametrize(
    ("method", "path", "token", "body"),
    [
        ("POST", "/v1/enrol", ENROLMENT, b""),
        ("POST", "/v1/report/0", DEVICE, a_reply()),
        ("DELETE", "/v1/device", DEVICE, b""),
        ("POST", "/v1/admin/close", ADMIN, b""),
        ("POST", "/v1/admin/skip", ADMIN, b""),
        ("DELETE", "/v1/admin/device/1", ADMIN, b""),
    ],
)
def test_what_fails_inside_is_said_without_anybodys_data(hub, app, caplog, method, path, token, body):
    hub.trouble = ValueError(f"could not handle {DEVICE} of 192.0.2.1")
    got = ask(app, method, path, token, body)
    assert (got.code, got.json) == (500, {"error": "internal"})
    (line,) = caplog.records
    assert line.levelno == logging.ERROR and "ValueError at" in line.getMessage() and line.exc_info is None
    assert not re.search(f"{DEVICE}|{ADMIN}|{ENROLMENT}|192", line.getMessage())
    assert app.counters.refusals_by_reason() == {"internal": 1}
    for trouble in (RunError("the log cannot be written"), StoreError("the log cannot be written")):
        hub.trouble = trouble
        full = ask(app, method, path, token, body)
        assert (full.code, full.error, full.headers["retry-after"]) == (503, "unavailable", "5")
    hub.trouble = None
    assert ask(app, method, path, token, body).code < 500, "and it goes on"


def test_the_loop_starts_and_stops_the_hub(hub):
    async def life(fails: bool):
        done = []

        async def start():
            done.append("start")
            if fails:
                raise RunError("no")

        async def stop():
            done.append("stop")

        app = app_of(hub, on_start=start, on_stop=stop)
        messages = iter(["lifespan.startup", "lifespan.shutdown"])

        async def receive():
            return {"type": next(messages)}

        async def send(message):
            done.append(message["type"])

        await app({"type": "lifespan"}, receive, send)
        return done, app.failure

    done, failure = asyncio.run(life(False))
    assert done == ["start", "lifespan.startup.complete", "stop", "lifespan.shutdown.complete"] and failure is None
    done, failure = asyncio.run(life(True))
    assert done == ["start", "lifespan.startup.failed"] and isinstance(failure, RunError)


def test_a_web_socket_is_closed(app):
    exchange = Exchange("GET", "/v1/model", DEVICE)
    exchange.scope["type"] = "websocket"
    asyncio.run(app(exchange.scope, exchange.receive, exchange.send))
    assert [message["type"] for message in exchange.sent] == ["websocket.close"]


def test_the_table_of_addresses_is_complete(app):
    """What the module's docstring lists is what is answered."""
    listed = set(re.findall(r"/[a-z0-9./<>]+", (app_module.__doc__ or "").split("====  ====", 2)[1]))
    assert {"/v1/enrol", "/v1/report/<round>", "/v1/admin/device/<number>", "/status.json"} < listed
    for path in listed - {"/v1/challenge"}:  # that is there where a hub wants statements of devices
        assert ask(app, "BREW", path.replace("<round>", "0").replace("<number>", "1")).code == 405
