"""What a hub answers over HTTP: each row of the protocol's table, each refusal, what is counted, what is kept quiet."""

import asyncio
import base64
import json

import pytest
from app_worlds import app, hub, metrics  # noqa: F401
from hub_fakes import ADMIN, DEVICE, ENROLMENT, Exchange, FakeHub, a_reply, app_of, ask

from fedrank.core.errors import ConfigError
from fedrank.deploy.http.guard import Guard
from fedrank.deploy.hub.stages import Outcome
from fedrank.deploy.terms import Terms


def test_a_device_enrols_asks_reports_and_leaves(hub, app):
    enrolled = ask(app, "POST", "/v1/enrol", ENROLMENT)
    assert enrolled.code == 201 and enrolled.headers["cache-control"] == "no-store"
    token = enrolled.json["token"]
    assert Terms.from_json(json.dumps(enrolled.json["terms"])) == hub.terms
    model = ask(app, "GET", "/v1/model", token)
    assert (model.code, model.body) == (200, hub.view.model)
    assert model.headers["etag"] == hub.view.etag == '"01234567-0-fbfe4ca6"'
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
        ("/v1/%72eport/0", a_reply(), 404, "not-found"),
        ("/v1/report/%30", a_reply(), 404, "not-found"),
        ("/v1/report/0", b"x" * 1025, 413, "too-large"),
        ("/v1/report/4294967295", a_reply(), 409, "early-round"),
    ],
)
def test_a_report_that_is_none_never_reaches_the_log(hub, app, path, body, code, reason):
    got = ask(app, "POST", path, DEVICE, body)
    assert (got.code, got.error) == (code, reason)
    assert hub.counted == {} and app.counters.refusals_by_reason() == {reason: 1}
    assert [call for call in hub.calls if call[0] != "report"] == []


def test_what_enrols_must_be_empty(hub, app):
    assert ask(app, "POST", "/v1/enrol", ENROLMENT, b"{}").error == "malformed"
    assert hub.calls == []


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
    monkeypatch.setattr("fedrank.deploy.http.guard._LINGER_SECONDS", 0.05)
    app = app_of(hub, Guard(body_seconds=0.05))
    slow = Exchange("POST", "/v1/report/0", DEVICE, [a_reply()[:3]])
    slow.stalls = True
    got = asyncio.run(asyncio.wait_for(slow.to(app), 1))
    assert got is not None
    assert (got.code, got.error, got.headers["connection"]) == (408, "too-slow", "close")
    assert hub.calls == [] and app.counters.refusals_by_reason() == {"too-slow": 1}


@pytest.mark.parametrize("pieces", [[], [OSError("gone")], [a_reply()[:3], RuntimeError("gone")], [TimeoutError()]])
def test_a_client_that_goes_away_is_no_report_and_no_error(hub, app, caplog, pieces):
    exchange = Exchange("POST", "/v1/report/0", DEVICE, pieces)
    assert asyncio.run(exchange.to(app)) is None
    assert hub.calls == [] and app.counters.refusals_by_reason() == {"disconnected": 1} and caplog.records == []
    assert metrics(app).get(("fedrank_reports_total", ("disconnected",))) is None


def test_a_client_that_is_gone_when_it_is_answered_is_no_error(hub, app, caplog):
    async def send(message):
        raise OSError("gone")

    exchange = Exchange("POST", "/v1/report/0", DEVICE, a_reply())
    asyncio.run(app(exchange.scope, exchange.receive, send))
    assert caplog.records == [] and app.counters.refusals_by_reason() == {"disconnected": 1}
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
    app = app_of(hub, enrolment=None, admin=None, public=False)
    for token in (None, "", "None"):
        assert ask(app, "POST", "/v1/enrol", token).code == 401
        assert ask(app, "POST", "/v1/admin/close", token).code == 401
        assert ask(app, "GET", "/status", token).code == 401


def test_tokens_must_be_worth_something(hub):
    with pytest.raises(ConfigError, match="admin token must have"):
        app_of(hub, admin="short")


def test_the_status_can_be_for_the_operator_only(hub):
    app = app_of(hub, public=False)
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


def test_the_operator_skips_a_round_that_nobody_reports_in(hub, app):
    assert ask(app, "POST", "/v1/admin/skip", DEVICE).code == 401 and hub.view.round == 0
    assert [ask(app, "POST", "/v1/admin/skip", ADMIN).json for _ in range(2)] == [{"round": 0}, {"round": 1}]
    assert hub.calls == [("close_round", True)] * 2 and hub.view.round == 2
    hub.show(2, "between")
    assert ask(app, "POST", "/v1/admin/skip", ADMIN).error == "between-rounds"
    hub.show(2, "done")
    assert ask(app, "POST", "/v1/admin/skip", ADMIN).error == "done"


@pytest.mark.parametrize("path", ["/v1/%61dmin/close", "/v1/admin%2Fclose", "/v1/x/%2e%2e/admin/close", "/%73tatus"])
def test_a_path_is_taken_as_it_was_sent(hub, app, path):
    """A proxy that keeps /v1/admin/ to itself may look at the raw path."""
    for method in ("GET", "POST"):
        got = ask(app, method, path, ADMIN)
        assert (got.code, got.error) == (404, "not-found")
    assert hub.calls == []


def test_a_path_without_its_raw_form_is_a_path(app):
    exchange = Exchange("GET", "/healthz")
    for raw in (None, b"/healthz"):
        exchange.scope["raw_path"] = raw
        exchange.sent.clear()
        got = asyncio.run(exchange.to(app))
        assert got is not None and got.code == 200


def test_credentials_enrol_up_to_their_caps_and_give_codes(hub, app):
    hub.tickets = {"cred.app-eu": 2}
    answers = [ask(app, "POST", "/v1/enrol", "cred.app-eu") for _ in range(3)]
    assert [one.code for one in answers] == [201, 201, 403] and answers[2].error == "enrolment-full"
    assert ask(app, "POST", "/v1/enrol", "cred.unknown").error == "unauthorised"
    assert ask(app, "POST", "/v1/enrol", "code.unknown").error == "unauthorised"
    code = ask(app, "POST", "/v1/code", "cred.app-eu")
    assert (code.code, code.json["code"]) == (201, "code.for-one-device")
    for wrong in ("cred.unknown", ENROLMENT, DEVICE, ADMIN, None):
        assert ask(app, "POST", "/v1/code", wrong).code == 401


def test_a_hub_may_enrol_with_credentials_alone(hub):
    app = app_of(hub, enrolment=None)
    hub.tickets = {"cred.app-eu": 1}
    assert ask(app, "POST", "/v1/enrol", ENROLMENT).code == 401
    assert ask(app, "POST", "/v1/enrol", "cred.app-eu").code == 201
