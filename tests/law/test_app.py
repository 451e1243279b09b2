"""What a hub answers over HTTP: each row of the protocol's table, each refusal, what is counted, what is kept quiet."""

import asyncio
import base64
import json
import logging
import math
import re
import types

import pytest
from hub_fakes import ADMIN, DEVICE, ENROLMENT, Exchange, FakeHub, a_reply, app_of, ask
from prometheus_client.parser import text_string_to_metric_families

from fedrank.core.errors import ConfigError, RunError
from fedrank.deploy import app as app_module
from fedrank.deploy.counters import Counters
from fedrank.deploy.guard import Guard
from fedrank.deploy.outcome import Outcome
from fedrank.deploy.terms import Terms


class Clock:
    def __init__(self):
        self.now = 0

    def __call__(self) -> int:
        return self.now

    def later(self, seconds: float) -> None:
        self.now += round(seconds * 1e9)


@pytest.fixture
def hub():
    return FakeHub((DEVICE, "token-of-device-2"))


@pytest.fixture
def app(hub):
    return app_of(hub)


def metrics(app, token=None) -> dict[tuple[str, tuple[str, ...]], float]:
    """Samples by name and label values, in the order of the labels' names; as another program reads them."""
    got = ask(app, "GET", "/metrics", token)
    assert got.code == 200 and got.headers["content-type"].startswith("text/plain")
    families = text_string_to_metric_families(got.body.decode())
    return {(s.name, tuple(s.labels.values())): s.value for family in families for s in family.samples}


# ------------------------------------------------------------------------------------------------------- devices


def test_a_device_enrols_asks_reports_and_leaves(hub, app):
    enrolled = ask(app, "POST", "/v1/enrol", ENROLMENT)
    assert enrolled.code == 201 and enrolled.headers["cache-control"] == "no-store"
    token = enrolled.json["token"]
    assert Terms.from_json(json.dumps(enrolled.json["terms"])) == hub.terms
    model = ask(app, "GET", "/v1/model", token)
    assert (model.code, model.body) == (200, hub.view.model)
    assert model.headers["etag"] == hub.view.etag == '"01234567-0"'
    assert model.headers["fedrank-state"] == "open" and model.headers["cache-control"] == "no-cache"
    assert model.headers["content-type"] == "application/octet-stream"
    assert [ask(app, "POST", "/v1/report/0", token, a_reply(7)).code for _ in range(3)] == [201, 200, 200]
    assert hub.counted == {(0, 3): a_reply(7)}
    other = ask(app, "POST", "/v1/report/0", token, a_reply(8))
    assert (other.code, other.error) == (409, "conflict")
    assert ask(app, "DELETE", "/v1/device", token).code == 204
    assert ask(app, "DELETE", "/v1/device", token).code == 401
    assert hub.counted == {(0, 3): a_reply(7)}, "what was counted stays"


def test_a_model_that_a_device_has_is_not_sent_again(hub, app):
    tag = hub.view.etag.encode()
    for header in (tag, b"W/" + tag, b'"x", ' + tag, b"*"):
        got = ask(app, "GET", "/v1/model", DEVICE, headers=[(b"if-none-match", header)])
        assert (got.code, got.body) == (304, b"")
        assert got.headers["etag"] == hub.view.etag and got.headers["fedrank-state"] == "open"
    hub.show(1)
    again = ask(app, "GET", "/v1/model", DEVICE, headers=[(b"if-none-match", tag)])
    assert (again.code, again.body) == (200, hub.view.model)
    hub.show(5, "done")
    last = ask(app, "GET", "/v1/model", DEVICE, headers=[(b"if-none-match", tag)])
    assert (last.code, last.headers["fedrank-state"]) == (200, "done")
    hub.show(5, "between")
    between = ask(app, "GET", "/v1/model", DEVICE, headers=[(b"if-none-match", hub.view.etag.encode())])
    assert (between.code, between.error, between.headers["retry-after"]) == (503, "between-rounds", "1")


@pytest.mark.parametrize(
    ("outcome", "code", "later"),
    [
        (Outcome.ACCEPTED, 201, None),
        (Outcome.ALREADY, 200, None),
        (Outcome.CONFLICT, 409, None),
        (Outcome.STALE, 409, None),
        (Outcome.EARLY, 409, None),
        (Outcome.BETWEEN, 503, "1"),
        (Outcome.DONE, 410, None),
        (Outcome.UNAVAILABLE, 503, "5"),
    ],
)
def test_every_outcome_has_its_answer_and_is_counted(hub, app, outcome, code, later):
    hub.show(17)
    hub.outcome = outcome
    got = ask(app, "POST", "/v1/report/3", DEVICE, a_reply())
    assert got.code == code and got.headers.get("retry-after") == later
    if code >= 400:
        assert got.error == outcome.value and got.json.get("round") == (17 if outcome is Outcome.STALE else None)
    else:
        assert got.body == b""
    samples = metrics(app)
    assert samples["fedrank_reports_total", (outcome.value,)] == 1
    assert samples["fedrank_requests_total", (str(code), "report")] == 1
    assert samples.get(("fedrank_refused_total", (outcome.value, "report"))) == (1 if code >= 400 else None)
    assert samples["fedrank_report_seconds_count", ()] == (0 if code >= 400 else 1)
    assert samples.get(("fedrank_payload_bytes_total", ("up", "Reply"))) == (9 if code == 201 else None)


@pytest.mark.parametrize(
    ("path", "body", "code", "reason"),
    [
        ("/v1/report/0", b"", 400, "malformed"),
        ("/v1/report/0", a_reply()[:-1], 400, "malformed"),
        ("/v1/report/0", a_reply() + b"\0", 400, "malformed"),
        ("/v1/report/0", b"\x42" + a_reply()[1:], 400, "malformed"),
        ("/v1/report/0", a_reply(1, 5041, 0), 422, "out-of-range"),
        ("/v1/report/x", a_reply(), 400, "malformed"),
        ("/v1/report/", a_reply(), 400, "malformed"),
        ("/v1/report/-1", a_reply(), 400, "malformed"),
        ("/v1/report/00", a_reply(), 400, "malformed"),
        ("/v1/report/0/", a_reply(), 400, "malformed"),
        ("/v1/report/4294967296", a_reply(), 400, "malformed"),
        ("/v1/report/٣", a_reply(), 400, "malformed"),
        ("/v1/report", a_reply(), 404, "not-found"),
        ("/v1/report/0", b"x" * 1025, 413, "too-large"),
        ("/v1/report/4294967295", a_reply(), 409, "early-round"),
    ],
)
def test_a_report_that_is_none_never_reaches_the_log(hub, app, path, body, code, reason):
    got = ask(app, "POST", path, DEVICE, body)
    assert (got.code, got.error) == (code, reason)
    assert hub.counted == {} and app.counters.refused() == {reason: 1}
    assert [call for call in hub.calls if call[0] != "report"] == []


def test_what_enrols_must_be_empty(hub, app):
    assert ask(app, "POST", "/v1/enrol", ENROLMENT, b"{}").error == "malformed"
    assert hub.calls == []


# --------------------------------------------------------------------------------------------- bodies and connections


def test_a_body_may_come_in_pieces_and_without_a_length(hub, app):
    pieces = [a_reply()[:4], b"", a_reply()[4:]]
    assert ask(app, "POST", "/v1/report/0", DEVICE, pieces).code == 201
    assert ask(app, "POST", "/v1/report/0", DEVICE, pieces, length=False).code == 200


def test_too_much_is_refused_before_it_is_read(app):
    declared = Exchange("POST", "/v1/report/0", DEVICE, headers=[(b"content-length", b"1000000000")])
    declared.stalls = True
    never = declared.receive

    async def read_only_after_the_answer():
        assert declared.sent, "nothing is read before the answer"
        return {"type": "http.disconnect"} if declared.sent else await never()

    declared.receive = read_only_after_the_answer
    got = asyncio.run(declared.to(app))
    assert got is not None
    assert (got.code, got.error, got.headers["connection"]) == (413, "too-large", "close")
    endless = Exchange("POST", "/v1/report/0", DEVICE, [b"x" * 100] * 1000, length=False)
    got = asyncio.run(endless.to(app))
    assert got is not None
    assert (got.code, got.headers["connection"]) == (413, "close")


@pytest.mark.parametrize("values", [[b"-1"], [b"9, 9"], [b"9", b"9"], [b""], [b"1e3"], [b"9" * 5000], [b"\xb2"]])
def test_a_length_that_is_none_closes_the_connection(hub, app, values):
    got = ask(
        app, "POST", "/v1/report/0", DEVICE, a_reply(), headers=[(b"content-length", v) for v in values], length=False
    )
    assert (got.code, got.error, got.headers["connection"]) == (400, "malformed", "close")
    assert hub.calls == []


def test_a_body_that_does_not_come_is_not_waited_for(hub, monkeypatch):
    monkeypatch.setattr("fedrank.deploy.guard._LINGER_SECONDS", 0.05)
    app = app_of(hub, Guard(body_seconds=0.05))
    slow = Exchange("POST", "/v1/report/0", DEVICE, [a_reply()[:3]])
    slow.stalls = True
    got = asyncio.run(asyncio.wait_for(slow.to(app), 1))
    assert got is not None
    assert (got.code, got.error, got.headers["connection"]) == (408, "too-slow", "close")
    assert hub.calls == [] and app.counters.refused() == {"too-slow": 1}


@pytest.mark.parametrize("pieces", [[], [OSError("gone")], [a_reply()[:3], RuntimeError("gone")], [TimeoutError()]])
def test_a_client_that_goes_away_is_no_report_and_no_error(hub, app, caplog, pieces):
    exchange = Exchange("POST", "/v1/report/0", DEVICE, pieces)
    assert asyncio.run(exchange.to(app)) is None
    assert hub.calls == [] and app.counters.refused() == {"disconnected": 1} and caplog.records == []
    assert metrics(app).get(("fedrank_reports_total", ("disconnected",))) is None


def test_a_client_that_is_gone_when_it_is_answered_is_no_error(hub, app, caplog):
    async def send(message):
        raise OSError("gone")

    exchange = Exchange("POST", "/v1/report/0", DEVICE, a_reply())
    asyncio.run(app(exchange.scope, exchange.receive, send))
    assert caplog.records == [] and app.counters.refused() == {"disconnected": 1}
    assert ask(app, "POST", "/v1/report/0", DEVICE, a_reply()).code == 200, "it was counted all the same"


def test_head_is_get_without_the_body(app):
    for path in ("/v1/model", "/healthz", "/metrics", "/status", "/status.json"):
        head, get = (ask(app, method, path, DEVICE) for method in ("HEAD", "GET"))
        assert head.code == get.code == 200 and head.body == b"" != get.body
        assert head.headers["content-type"] == get.headers["content-type"]
    assert ask(app, "HEAD", "/v1/model", DEVICE).headers["content-length"] == str(len(FakeHub().view.model))


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("/v1/enrol", "POST"),
        ("/v1/model", "GET, HEAD"),
        ("/v1/report/0", "POST"),
        ("/v1/device", "DELETE"),
        ("/v1/admin/close", "POST"),
        ("/v1/admin/device/1", "DELETE"),
        ("/healthz", "GET, HEAD"),
        ("/metrics", "GET, HEAD"),
        ("/status", "GET, HEAD"),
        ("/status.json", "GET, HEAD"),
    ],
)
def test_other_methods_are_refused_by_name(hub, app, path, allowed):
    for method in {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "BREW"} - set(
        allowed.split(", ")
    ):
        got = ask(app, method, path, ADMIN)
        assert (got.code, got.headers["allow"]) == (405, allowed)
        assert method == "HEAD" or got.error == "method"
    assert hub.calls == []


# -------------------------------------------------------------------------------------------------- who may ask

PRIVATE = [
    ("POST", "/v1/enrol"),
    ("GET", "/v1/model"),
    ("HEAD", "/v1/model"),
    ("POST", "/v1/report/0"),
    ("POST", "/v1/report/999"),
    ("POST", "/v1/report/x"),
    ("DELETE", "/v1/device"),
    ("POST", "/v1/admin/close"),
    ("DELETE", "/v1/admin/device/1"),
    ("DELETE", "/v1/admin/device/999"),
    ("DELETE", "/v1/admin/device/x"),
]
WRONG = [None, "", "x", "ü", "\0", DEVICE + "x", DEVICE.upper(), "x" * 300, "x" * 100_000, "Bearer " + DEVICE]


def test_who_has_no_token_learns_nothing(hub, app):
    """The answer is the same byte for byte, whatever the hub is doing and whatever else is in the request."""
    answers = set()
    for state in ("open", "between", "done"):
        hub.show(17, state)
        for method, path in PRIVATE:
            for token in WRONG:
                for body in (b"", a_reply()) if method == "POST" else (b"",):
                    got = ask(app, method, path, token, body)
                    assert got.code == 401 and got.headers["www-authenticate"] == "Bearer"
                    answers.add((got.body, tuple(sorted(got.headers.items()))) if method != "HEAD" else None)
    assert len(answers - {None}) == 1 and hub.calls == []


def test_each_token_opens_its_own_doors_only(hub, app):
    for method, path in PRIVATE:
        own = ADMIN if "admin" in path else ENROLMENT if "enrol" in path else DEVICE
        for token in {ADMIN, ENROLMENT, DEVICE} - {own}:
            assert ask(app, method, path, token).code == 401
        assert ask(app, method, path, own).code != 401


def test_two_authorizations_are_none(app):
    both = [(b"authorization", b"Bearer " + DEVICE.encode())] * 2
    assert ask(app, "GET", "/v1/model", headers=both).code == 401


def test_a_hub_without_tokens_lets_nobody_in(hub):
    app = app_of(hub, enrolment=None, admin=None, status="admin")
    for token in (None, "", "None"):
        assert ask(app, "POST", "/v1/enrol", token).code == 401
        assert ask(app, "POST", "/v1/admin/close", token).code == 401
        assert ask(app, "GET", "/status", token).code == 401


def test_tokens_must_be_worth_something(hub):
    with pytest.raises(ConfigError, match="admin token must have"):
        app_of(hub, admin="short")


def test_the_status_can_be_for_the_operator_only(hub):
    app = app_of(hub, status="admin")
    basic = lambda text: [(b"authorization", b"Basic " + base64.b64encode(text))]  # noqa: E731
    for path in ("/metrics", "/status", "/status.json"):
        asked = ask(app, "GET", path)
        assert (asked.code, asked.error) == (401, "unauthorised")
        assert ask(app, "GET", path, DEVICE).code == 401
        assert ask(app, "GET", path, headers=basic(b"operator:wrong")).code == 401
        assert ask(app, "GET", path, ADMIN).code == 200
        assert ask(app, "GET", path, headers=basic(b"anybody:" + ADMIN.encode())).code == 200
    assert ask(app, "GET", "/healthz").code == 200
    exchange = Exchange("GET", "/status")
    asyncio.run(exchange.to(app))
    schemes = {value.split()[0] for name, value in exchange.sent[0]["headers"] if name == b"www-authenticate"}
    assert schemes == {b"Bearer", b"Basic"}, "a browser asks for a password"


def test_a_browser_that_remembers_a_password_closes_no_round(hub, app):
    """Other sites can make a browser send it along."""
    basic = [(b"authorization", b"Basic " + base64.b64encode(b"x:" + ADMIN.encode()))]
    assert ask(app, "POST", "/v1/admin/close", headers=basic).code == 401
    assert ask(app, "DELETE", "/v1/admin/device/1", headers=basic).code == 401
    assert hub.calls == []


# ---------------------------------------------------------------------------------------------------- the operator


def test_the_operator_closes_a_round(hub, app):
    nothing = ask(app, "POST", "/v1/admin/close", ADMIN)
    assert (nothing.code, nothing.error) == (409, "no-reports")
    ask(app, "POST", "/v1/report/0", DEVICE, a_reply())
    closed = ask(app, "POST", "/v1/admin/close", ADMIN)
    assert (closed.code, closed.json) == (200, {"round": 0})
    late = ask(app, "POST", "/v1/report/0", "token-of-device-2", a_reply())
    assert (late.code, late.error, late.json["round"]) == (409, "stale-round", 1)
    hub.show(1, "between")
    assert ask(app, "POST", "/v1/admin/close", ADMIN).error == "between-rounds"
    hub.show(2, "done")
    assert ask(app, "POST", "/v1/admin/close", ADMIN).error == "done"


def test_the_operator_removes_a_device(hub, app):
    assert ask(app, "DELETE", "/v1/admin/device/1", ADMIN).code == 204
    again = ask(app, "DELETE", "/v1/admin/device/1", ADMIN)
    assert (again.code, again.error) == (404, "not-found")
    assert ask(app, "DELETE", "/v1/admin/device/one", ADMIN).error == "malformed"
    assert ask(app, "GET", "/v1/model", DEVICE).code == 401
    assert ask(app, "GET", "/v1/model", "token-of-device-2").code == 200


# ------------------------------------------------------------------------------------------------------- limits


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
    app = app_of(hub, Guard(failures_per_minute=3, clock=clock), status="admin")
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
    app = app_of(hub, Guard(failures_per_minute=1, clock=Clock()), status="admin")
    assert [ask(app, "GET", "/status").code for _ in range(5)] == [401] * 5
    assert ask(app, "GET", "/status", ADMIN).code == 200


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


def test_a_client_without_an_address_can_be_answered(app):
    assert ask(app, "GET", "/v1/model", "wrong", client=None).code == 401
    assert ask(app, "GET", "/v1/model", DEVICE, client=None).code == 200


# ------------------------------------------------------------------------------------------------- what it shows


def test_health_is_the_stores(hub, app):
    assert (ask(app, "GET", "/healthz").code, ask(app, "GET", "/healthz").json) == (200, {"status": "ok"})
    hub.healthy = False
    sick = ask(app, "GET", "/healthz")
    assert sick.code == 503 and "retry-after" in sick.headers
    assert app.counters.refused() == {"unavailable": 1}


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
    monkeypatch.setitem(__import__("sys").modules, "fedrank.deploy.status", fake)
    monkeypatch.setattr("fedrank.deploy.status", fake, raising=False)
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
        counters.acknowledged(seconds)
    families = text_string_to_metric_families(counters.text()[0].decode())
    samples = {s.labels.get("le"): s.value for f in families if f.name == "fedrank_report_seconds" for s in f.samples}
    assert (samples["0.001"], samples["0.0025"], samples["10.0"], samples["+Inf"]) == (2, 3, 3, 4)
    assert samples[None] in (4, pytest.approx(11.0026))


def test_a_hub_that_has_applied_no_round_has_no_reward(app):
    names = {name for name, _ in metrics(app)}
    assert "fedrank_reward" not in names and "fedrank_round" in names


# --------------------------------------------------------------------------------------------------------- trouble


@pytest.mark.parametrize(
    ("method", "path", "token", "body"),
    [
        ("POST", "/v1/enrol", ENROLMENT, b""),
        ("POST", "/v1/report/0", DEVICE, a_reply()),
        ("DELETE", "/v1/device", DEVICE, b""),
        ("POST", "/v1/admin/close", ADMIN, b""),
    ],
)
def test_what_fails_inside_is_said_without_anybodys_data(hub, app, caplog, method, path, token, body):
    hub.trouble = ValueError(f"could not handle {DEVICE} of 192.0.2.1")
    got = ask(app, method, path, token, body)
    assert (got.code, got.json) == (500, {"error": "internal"})
    (line,) = caplog.records
    assert line.levelno == logging.ERROR and "ValueError at" in line.getMessage() and line.exc_info is None
    assert not re.search(f"{DEVICE}|{ADMIN}|{ENROLMENT}|192", line.getMessage())
    assert app.counters.refused() == {"internal": 1}
    hub.trouble = RunError("the log cannot be written")
    assert ask(app, method, path, token, body).error == "unavailable"
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
    for path in listed:
        assert ask(app, "BREW", path.replace("<round>", "0").replace("<number>", "1")).code == 405
