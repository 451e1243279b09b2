"""What an app may rely on: a device never raises, never loops, says a thing once, and is silent when told to."""

import json
import logging
import math
import ssl
import statistics
import sys
import threading
import time

import numpy as np
import pytest
from fake_hub import ENROLMENT, HUB, FakeHub, Fault, fault, model_bytes

from fedrank.core.errors import ConfigError
from fedrank.deploy import connection
from fedrank.deploy.connection import Backoff, Connection
from fedrank.deploy.device import Device, Ranking
from fedrank.deploy.terms import Terms

FEATURES = 4
EPSILON = 4 * math.log(0.9 * 10 / 0.1)  # of a message: B = 4, MaxRR with p = 0.9
TERMS = Terms(HUB, FEATURES)
X = np.random.default_rng(0).random((12, FEATURES))


@pytest.fixture
def hub():
    with FakeHub(TERMS, np.arange(FEATURES)) as server:
        yield server


@pytest.fixture
def clock(monkeypatch):
    """The clock that does not jump, ahead by so many seconds."""
    ahead = [0.0]
    for name, module in list(sys.modules.items()):
        if name.startswith("fedrank.deploy.") and hasattr(module, "monotonic"):
            monkeypatch.setattr(module, "monotonic", lambda: time.monotonic() + ahead[0])
    return ahead


@pytest.fixture
def make(hub, tmp_path):
    """Makes devices on one folder; closes them in the end."""
    made = []

    def device(url=None, **settings):
        made.append(Device(url or hub.url, ENROLMENT, tmp_path / "device", **{"timeout": 2.0, **settings}))
        return made[-1]

    yield device
    for device in made:
        device.close()


def use(device, times=4, click=0):
    """So many searches, each with a click."""
    for _ in range(times):
        ranking = device.rank(X)
        if click is not None:
            device.log_click(ranking, click)
        device.finish(ranking)


def ready(make, **settings):
    """A device with a message to send."""
    device = make(**settings)
    assert device.sync().state == "OK"
    use(device)
    assert not device.wants_clicks
    return device


def outcomes(device):
    return [row.outcome for row in device.ledger()]


def test_the_four_lines_of_an_app(hub, make):
    device = make()
    assert device.rank(X).order.tolist() == list(range(12))  # no model yet: as the data came
    told = device.sync()
    assert (told.state, told.sent, told.why, told.lasting) == ("OK", 0, "", True)
    assert 30 <= told.next_in <= 90
    use(device, 3)
    assert device.sync().sent == 0 and not device.ledger()  # three of four interactions are no message
    use(device, 1)
    assert device.sync().sent == 1 and device.sync().sent == 0
    ((key, body),) = hub.reports.items()
    assert key == (0, "device-token-0001") and len(body) == 9
    assert hub.asked("POST /v1/enrol") == hub.asked("POST /v1/report") == 1
    (row,) = device.ledger()
    assert (row.round, row.bytes, row.outcome) == (0, 9, "counted")
    assert row.epsilon == row.total == pytest.approx(EPSILON)
    assert f"{int.from_bytes(body[1:5], 'little')}: seed" in row.words
    json.dumps(device.privacy())
    assert device.privacy()["epsilon_total"] == pytest.approx(EPSILON)
    assert sum("If-None-Match" not in h for m, p, h, _ in hub.seen if p == "/v1/model") == 1  # fetched once


def test_a_round_has_one_message_and_the_next_round_another(hub, make):
    device = ready(make)
    device.sync()
    use(device, 9)  # by the model itself: nothing is measured
    assert device.sync().sent == 0
    hub.move_on()
    device.sync()
    use(device, 9)
    assert device.sync().sent == 1
    assert [row.round for row in device.ledger()] == [0, 1]
    assert [row.total for row in device.ledger()] == pytest.approx([EPSILON, 2 * EPSILON])
    bodies = list(hub.reports.values())
    assert bodies[0][1:5] != bodies[1][1:5]  # each round has a seed of its own


def test_a_model_that_moves_on_ends_what_is_unfinished(hub, make):
    device = make()
    device.sync()
    use(device, 3)
    open_list = device.rank(X)
    hub.move_on()
    assert device.sync().state == "OK"
    assert not device.log_click(open_list, 0) and not device.finish(open_list)
    assert device.privacy()["discarded"] == {"interactions": 3, "messages": 0}
    use(device, 4)
    hub.move_on()
    assert device.sync().sent == 0  # complete, but about a model of the past: it never leaves
    assert device.privacy()["discarded"] == {"interactions": 3, "messages": 1}
    assert not device.ledger() and not hub.reports


# ------------------------------------------------------------------------------------------- every answer to a report


@pytest.mark.parametrize(
    ("status", "reason", "state", "outcome"),
    [
        (409, "stale-round", "STALE", "too late, not counted"),
        (409, "early-round", "RETRY", "refused, not counted"),
        (409, "conflict", "RETRY", "refused, not counted"),
        (410, "done", "DONE", "training was over, not counted"),
        (400, "malformed", "RETRY", "refused, not counted"),
        (413, "too-large", "RETRY", "refused, not counted"),
        (422, "out-of-range", "RETRY", "refused, not counted"),
    ],
)
def test_a_message_that_is_refused_for_good_is_dropped_and_its_epsilon_counts(
    hub, make, clock, status, reason, state, outcome
):
    device = ready(make)
    hub.faults.append(fault("POST /v1/report", status, reason))
    told = device.sync()
    assert (told.state, told.sent) == (state, 0)
    assert outcomes(device) == [outcome] and device.ledger()[0].total == pytest.approx(EPSILON)
    clock[0] += 4000
    device.sync()
    assert hub.asked("POST /v1/report") == 1 and outcomes(device) == [outcome]
    use(device, 4)
    assert device.sync().sent == 0  # no other message of that round


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (503, "between-rounds"),
        (503, "unavailable"),
        (429, "too-many"),
        (408, "too-slow"),
        (404, "not-found"),
        (405, "method"),
        (500, ""),
        (302, ""),
        (206, ""),
    ],
)
def test_a_message_that_is_refused_for_now_waits(hub, make, clock, status, reason):
    device = ready(make)
    hub.faults.append(fault("POST /v1/report", status, reason, Retry_After="7"))
    told = device.sync()
    assert told.state == "RETRY" and 7 <= told.next_in <= 9 and str(status) in told.why
    assert outcomes(device) == ["sent, no answer yet"]  # it has left: it is in the ledger
    requests = len(hub.seen)
    again = device.sync()
    assert again.state == "RETRY" and 0 < again.next_in <= told.next_in and len(hub.seen) == requests
    clock[0] += 10
    assert device.sync().sent == 1
    assert outcomes(device) == ["counted"] and device.ledger()[0].total == pytest.approx(EPSILON)
    assert len(hub.reports) == 1


def test_a_lost_answer_counts_once(hub, make, clock):
    device = ready(make)
    hub.faults.append(Fault("POST /v1/report", lose=True))
    assert device.sync().state == "OFFLINE"
    assert len(hub.reports) == 1 and outcomes(device) == ["sent, no answer yet"]
    clock[0] += 10
    assert device.sync().sent == 1  # 200: counted before
    assert outcomes(device) == ["counted"] and device.ledger()[0].total == pytest.approx(EPSILON)
    first, second = (body for m, p, _, body in hub.seen if p == "/v1/report/0")
    assert first == second


def test_a_lost_answer_that_is_too_late_to_get_is_not_called_uncounted(hub, make, clock):
    device = ready(make)
    hub.faults.append(Fault("POST /v1/report", lose=True))
    device.sync()
    hub.move_on()
    hub.faults.append(fault("POST /v1/report/0", 409, "stale-round"))
    clock[0] += 10
    assert device.sync().state == "STALE"
    assert outcomes(device) == ["no answer came; it may have been counted"]


def test_a_refusal_for_now_followed_by_too_late_was_not_counted(hub, make, clock):
    device = ready(make)
    hub.faults.append(fault("POST /v1/report", 503, "between-rounds", Retry_After="1"))
    device.sync()
    hub.move_on()
    clock[0] += 10
    assert device.sync().state == "STALE"
    assert outcomes(device) == ["too late, not counted"]
    assert device.sync().state == "OK" and device.wants_clicks


def test_an_unknown_device_enrols_again(hub, make, clock):
    device = ready(make)
    hub.faults.append(fault("POST /v1/report", 401, "unauthorised"))
    assert device.sync().state == "RETRY"
    clock[0] += 10
    assert device.sync().sent == 1
    assert hub.issued == 2 and list(hub.reports) == [(0, "device-token-0002")]
    assert outcomes(device) == ["counted"] and len(device.ledger()) == 1


def test_what_may_have_counted_for_one_name_is_not_sent_under_another(hub, make, clock):
    device = ready(make)
    hub.faults.append(Fault("POST /v1/report", lose=True))
    device.sync()
    hub.tokens.clear()  # the hub forgets its devices, not its reports
    clock[0] += 10
    assert device.sync().state == "RETRY"
    clock[0] += 10
    assert device.sync().state == "OK" and hub.issued == 2
    assert len(hub.reports) == 1
    assert outcomes(device) == ["no answer came; it may have been counted"]


def test_a_hub_that_knows_nobody_is_not_asked_in_a_loop(hub, make, clock):
    device = make()
    for _ in range(8):
        hub.faults.append(fault("GET /v1/model", 401, "unauthorised"))
        assert device.sync().state == "RETRY"
        clock[0] += 4000
    assert hub.issued == 8  # one a look
    assert device._conversation.backoff.failures == 8


def test_training_that_is_over_leaves_the_model(hub, make, clock):
    device = make()
    hub.state = "done"
    told = device.sync()
    assert (told.state, told.next_in) == ("DONE", 3600.0)
    assert not device.wants_clicks and not device.rank(X).learning
    np.testing.assert_array_equal(device.rank(X).order, np.argsort(-(X @ np.arange(FEATURES)), kind="stable"))
    hub.state = "open"  # it goes on after all
    assert device.sync().state == "OK" and device.wants_clicks


# ---------------------------------------------------------------------------------- answers that make no sense


NONSENSE = {
    "nothing": Fault("", raw=b""),
    "not HTTP": Fault("", raw=b"\x00\x01\x02" * 100 + b"\r\n\r\n"),
    "half a status line": Fault("", raw=b"HTTP/1.1 2"),
    "wrong version": Fault("", raw=b"HTTP/9.9 200 OK\r\n\r\n"),
    "endless line": Fault("", trickle=(b"A" * 65536, 0.0, 40)),
    "endless headers": Fault("", raw=b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 5000),
    "cut body": Fault("", raw=b"HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\nhalf"),
    "broken chunks": Fault("", raw=b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nhello"),
    "negative length": Fault("", raw=b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n"),
    "100 for ever": Fault("", trickle=(b"HTTP/1.1 100 Continue\r\n\r\n" * 20, 0.05, 200)),
    "drop by drop": Fault("", trickle=(b"H", 0.1, 200)),
    "huge model": Fault("GET", status=200, body=model_bytes(0, np.zeros(100_000))),
    "short model": Fault("GET", status=200, body=model_bytes(0, np.zeros(FEATURES))[:-1]),
    "long model": Fault("GET", status=200, body=model_bytes(0, np.zeros(FEATURES)) + b"\0"),
    "infinite model": Fault("GET", status=200, body=model_bytes(0, [math.inf] * FEATURES)),
    "model that is no number": Fault("GET", status=200, body=model_bytes(0, [math.nan] * FEATURES)),
    "other version": Fault("GET", status=200, body=b"\x41" + model_bytes(0, np.zeros(FEATURES))[1:]),
    "other kind": Fault("GET", status=200, body=b"\x22" + model_bytes(0, np.zeros(FEATURES))[1:]),
    "login page": Fault("GET", status=200, body=b"<html>Welcome to our hotel</html>"),
    "304 to nobody": Fault("GET", status=304),
    "server error": Fault("GET", status=500, body=b"[" * 5000),
}


@pytest.mark.parametrize("what", NONSENSE)
def test_nonsense_is_survived_and_the_next_good_answer_is_taken(hub, make, clock, what):
    device = make(timeout=0.25)
    device._conversation._agree()
    hub.faults.append(NONSENSE[what])
    start = time.monotonic()
    told = device.sync()
    assert time.monotonic() - start < 4  # six timeouts, and a slow machine
    assert told.state in ("RETRY", "OFFLINE") and told.why and 0 <= told.next_in <= 2
    assert device.rank(X).order.tolist() == list(range(12))
    clock[0] += 10
    assert device.sync().state == "OK" and device.rank(X).learning


def test_an_answer_is_read_one_byte_too_far_and_no_further(hub, make):
    """Ten seconds of a body that does not end: the device has seen enough at once."""
    device = make(timeout=0.25)
    device._conversation._agree()
    head = b"HTTP/1.1 200 OK\r\n\r\n" + model_bytes(0, np.zeros(FEATURES))
    hub.faults.append(Fault("GET", raw=head, trickle=(b"A" * 65536, 0.01, 1000)))
    told = device.sync()
    assert told.state == "RETRY" and "21 bytes, got 22" in told.why


def enrolment(**changes):
    given = {"token": "device-token-xyz", "terms": {**TERMS.as_json(), **changes.pop("terms", {})}, **changes}
    return json.dumps(given).encode()


BAD_ENROLMENTS = {
    "not JSON": b"\xff{",
    "not an object": b"[]",
    "nothing in it": b"{}",
    "deep": b"[" * 60_000,
    "huge": enrolment(more="x" * 100_000),
    "no token": enrolment(token=None),
    "header in the token": enrolment(token="abcdefgh\r\nX-Evil: 1"),
    "another protocol": enrolment(terms={"protocol": "fed-avg"}),
    "terms of wrong types": enrolment(terms={"n_features": "many"}),
    "reward that fills the memory": enrolment(terms={"reward_values": 10**13}),
    "number beyond all floats": enrolment(terms={"sigma": 10**400}),
    "model that fills the memory": enrolment(terms={"n_features": 10**12}),
    "terms that are none": enrolment(terms={}).replace(b'"terms": {', b'"terms": [], "x": {'),
}


@pytest.mark.parametrize("what", BAD_ENROLMENTS)
def test_terms_that_cannot_be_read_are_no_terms(hub, make, clock, what):
    device = make()
    hub.faults.append(Fault("POST /v1/enrol", status=201, body=BAD_ENROLMENTS[what]))
    told = device.sync()
    assert told.state == "RETRY" and "enrolment" in told.why
    clock[0] += 10
    assert device.sync().state == "OK" and hub.asked("GET") == 1


def test_a_wrong_enrolment_token_is_said_once_and_not_repeated(hub, tmp_path, caplog, clock):
    with Device(hub.url, "not-the-token", tmp_path) as device:
        assert device.sync().state == "RETRY"
        clock[0] += 10
        device.sync()
    assert [r.getMessage() for r in caplog.records if r.levelno == logging.ERROR] == [
        "the hub does not accept the enrolment token"
    ]
    assert "not-the-token" not in caplog.text


def test_a_redirect_is_not_followed_and_no_token_goes_elsewhere(hub, make):
    with FakeHub(TERMS, np.zeros(FEATURES)) as elsewhere:
        for where in ("POST /v1/enrol", "GET /v1/model"):
            hub.faults.append(Fault(where, status=307, headers={"Location": elsewhere.url + "/v1/model"}))
            device = make()
            assert device.sync().state == "RETRY"
            device._conversation.backoff.over()
            device.sync()
        assert not elsewhere.seen


def test_another_hub_gets_another_token(hub, make):
    device = ready(make)
    device.sync()
    device.close()
    with FakeHub(TERMS, np.zeros(FEATURES)) as other:
        device = make(other.url)
        assert device.sync().state == "OK"
        assert [h["Authorization"] for *_, h, _ in other.seen] == [f"Bearer {ENROLMENT}", "Bearer device-token-0001"]
        assert other.issued == 1 and len(device.ledger()) == 1  # the ledger stays


# ----------------------------------------------------------------------------------------------------- back-off


def test_pauses_double_up_to_an_hour_and_are_spread_evenly():
    backoff, bounds = Backoff(), []

    def most(low, high):
        assert low == 0
        bounds.append(high)
        return high

    waits = [backoff.later(uniform=most) for _ in range(20)]
    assert waits == bounds == [min(3600.0, 2.0**n) for n in range(1, 21)]
    drawn = [backoff.later() for _ in range(400)]
    assert 0 <= min(drawn) < 120 and 3480 < max(drawn) <= 3600
    # A uniform mean is 1800 ± 1039/√400; five standard errors.
    assert abs(statistics.fmean(drawn) - 1800) < 260
    backoff.over()
    assert backoff.left() == 0 and backoff.later() <= 2


def test_the_hubs_wish_is_kept_to_and_bounded():
    assert 30 <= Backoff().later(30.0) <= 32
    assert Backoff().later(1e9) == 3600


@pytest.mark.parametrize("said", ["soon", "-5", "1e3", "٣", "9" * 50, "Wed, 21 Oct 2015 07:28:00 GMT"])
def test_a_wish_that_is_no_number_is_none(hub, make, said):
    # http.server writes headers in Latin-1; what cannot be written so is sent as it is.
    head = f"HTTP/1.1 503 no\r\nRetry-After: {said}\r\nContent-Length: 0\r\n\r\n".encode()
    hub.faults.append(Fault("POST /v1/enrol", raw=head))
    assert make().sync().next_in <= 2


def test_a_restart_goes_on_waiting_but_never_because_of_the_clock(monkeypatch):
    backoff = Backoff()
    wait = backoff.later(uniform=lambda low, high: 1.5)
    kept = backoff.as_json()
    again = Backoff(kept)
    assert 0 < again.left() <= wait and again.failures == 1
    now = time.time()
    for jump in (-1e9, -100.0, 100.0, 1e9):  # the clock was set back, or forward
        monkeypatch.setattr(connection.time, "time", lambda jump=jump: now + jump)
        assert Backoff(kept).left() == 0
    for rubbish in ("", "[", "[1]", '["a", "b", "c"]', "[1e400, 2, 3]", "[1, NaN, NaN]", "{}"):
        assert Backoff(rubbish).left() == 0


def test_a_device_that_is_started_again_does_not_ask_at_once(hub, make):
    hub.faults.append(fault("POST /v1/enrol", 503, "unavailable", Retry_After="60"))
    device = make()
    device.sync()
    device.close()
    told = make().sync()
    assert told.state == "RETRY" and 50 < told.next_in <= 62 and len(hub.seen) == 1


def test_without_a_hub_an_app_works(tmp_path, hub):
    port = hub.port
    hub.server.shutdown()
    hub.server.server_close()
    with Device(f"http://127.0.0.1:{port}", ENROLMENT, tmp_path, timeout=0.5) as device:
        told = device.sync()
        assert told.state == "OFFLINE" and told.next_in <= 2
        assert device.rank(X).order.tolist() == list(range(12))


# ------------------------------------------------------------------------------------------------ an app's mistakes


@pytest.mark.parametrize(
    "features",
    [None, 3, "text", ["a", "b"], [1.0, 2.0], np.ones((3, FEATURES + 1)), np.full((2, FEATURES), np.nan), [[1], [2, 3]],
     np.ones((2, 2, 2)), np.full((2, FEATURES), 1e300), object(), {"a": 1}, np.ones((3, FEATURES)) * 1j],
)  # fmt: skip
def test_features_that_cannot_be_used_leave_the_order_and_are_said_once(make, caplog, features):
    device = make()
    device.sync()
    with caplog.at_level(logging.ERROR, "fedrank.device"):
        rankings = [device.rank(features) for _ in range(3)]
    expected = list(range(len(features))) if hasattr(features, "__len__") else []
    assert all(r.order.tolist() == expected and not r.learning for r in rankings)
    assert len(caplog.records) == 1


def test_a_log_does_not_quote_what_a_user_did(make, caplog):
    device = make()
    device.sync()
    device.rank(["my secret query"])
    device.log_click(device.rank(X), "my secret document")  # type: ignore[arg-type]
    assert len(caplog.records) == 2 and "secret" not in caplog.text


def test_clicks_that_cannot_be_are_no_clicks(make):
    device = make()
    device.sync()
    ranking = device.rank(X)
    assert [device.log_click(ranking, p) for p in (-1, 12, 10**30)] == [False] * 3
    assert [device.log_click(r, 0) for r in (None, 7, Ranking(np.arange(3)))] == [False] * 3  # type: ignore[arg-type]
    assert device.log_click(ranking, np.int64(9)) and not device.log_click(ranking, 10)  # only ten ranks count
    later = device.rank(X)
    assert not device.log_click(ranking, 0) and device.log_click(later, 0)
    assert not device.finish(ranking) and device.finish(later) and not device.finish(later)


def test_no_documents_are_no_interaction(make):
    device = make()
    device.sync()
    assert device.rank(np.zeros((0, FEATURES))).order.tolist() == []
    use(device, 4)
    assert device.sync().sent == 1


def test_an_order_cannot_be_changed_by_accident(make):
    with pytest.raises(ValueError):
        make().rank(X).order[0] = 5


def test_a_closed_device_is_harmless(make):
    device = make()
    device.sync()
    ranking = device.rank(X)
    device.close()
    device.close()
    assert device.sync().state == "RETRY" and device.rank(X).order.tolist() == list(range(12))
    assert not device.log_click(ranking, 0) and not device.finish(ranking) and not device.wants_clicks
    assert not device.opt_out() and not device.opt_in() and not device.leave()
    assert device.ledger() == [] and device.privacy() == {}


def test_whatever_fails_inside_stays_inside(make, monkeypatch):
    device = ready(make)

    def fails(*_, **__):
        raise MemoryError("no")

    for name in ("end", "drop", "load"):
        monkeypatch.setattr(device._memory, name, fails)
    monkeypatch.setattr(device._conversation, "hold", fails)
    monkeypatch.setattr(device._memory.outbox, "ledger", fails)
    assert device.rank(X).order.tolist() == list(range(12))
    assert device.sync().state == "OFFLINE" and device.ledger() == [] and device.privacy() == {}
    assert not device.leave() and not device.opt_out()
    device.close()


def test_calls_that_no_signature_allows_are_survived(make):
    device = make()
    assert device.rank().order.tolist() == [] and device.rank(X, 1, a=2).order.tolist() == list(range(12))
    assert not device.log_click() and not device.finish(1, 2) and not device.opt_out(7) and not device.leave(b=1)
    assert device.sync(3).state == "OFFLINE" and device.ledger(1) == [] and device.privacy(1) == {}
    assert device.close(1) is None


def test_an_interrupt_at_the_keyboard_passes(make, monkeypatch):
    device = make()

    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(device._connection, "request", interrupted)
    with pytest.raises(KeyboardInterrupt):
        device.sync()
    monkeypatch.undo()
    assert device.sync().state == "OK"  # nothing is left locked


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"hub": "hub.example.org"}, "address"),
        ({"hub": "ftp://hub.example.org"}, "address"),
        ({"hub": "https://user:pass@hub.example.org"}, "address"),
        ({"hub": "https://hub.example.org/?x=1"}, "address"),
        ({"hub": "https://hub.example.org:99999"}, "address"),
        ({"hub": "https://hub.example.org/a b"}, "ASCII"),
        ({"hub": "http://hub.example.org"}, "plain http"),
        ({"hub": "http://192.0.2.7"}, "plain http"),
        ({"enrolment": "short"}, "enrolment"),
        ({"enrolment": "two words\r\nX: y"}, "enrolment"),
        ({"most_epsilon": -1.0}, "most_epsilon"),
        ({"most_epsilon": math.nan}, "most_epsilon"),
        ({"lifetime_epsilon": -0.5}, "lifetime_epsilon"),
        ({"timeout": 0.0}, "timeout"),
        ({"patience": -1.0}, "patience"),
        ({"hub": "https://hub.example.org", "ca": "/nowhere/ca.pem"}, "ca"),
    ],
)
def test_settings_that_can_never_work_are_refused(tmp_path, settings, words):
    given = {"hub": "http://127.0.0.1:1", "enrolment": ENROLMENT, "folder": tmp_path, **settings}
    with pytest.raises(ConfigError, match=words) as error:
        Device(**given)
    assert "pass@" not in str(error.value) and "X: y" not in str(error.value)


def test_plain_http_is_for_loopback_or_on_request():
    for url in ("http://localhost:1", "http://127.0.0.5", "http://[::1]:80", "https://hub.example.org"):
        Connection(url)
    Connection("http://hub.example.org", allow_http=True)


def test_one_hub_has_one_address_however_it_is_spelled():
    assert Connection("HTTPS://Hub.Example.org/learn/").url == Connection("https://hub.example.org:443/learn").url
    assert Connection("https://hub.example.org").url != Connection("https://hub.example.org/learn").url


def test_a_hub_may_live_below_a_path(hub, make):
    assert make(hub.url + "/learn/").sync().state == "RETRY"
    assert [path for _, path, _, _ in hub.seen] == ["/learn/v1/enrol"]


# --------------------------------------------------------------------------------------------- privacy and silence


def test_terms_that_promise_too_little_are_answered_with_silence(hub, make, caplog):
    device = make(most_epsilon=EPSILON - 0.01)
    for _ in range(2):
        told = device.sync()
        assert told.state == "SILENT" and "most_epsilon" in told.why
        use(device, 8)
    assert [f"{m} {p}" for m, p, *_ in hub.seen] == ["POST /v1/enrol"]  # how it learnt the terms; nothing since
    assert "most_epsilon" in caplog.text and "most_epsilon" in device.privacy()["silent"]
    device.close()
    assert make(most_epsilon=EPSILON + 0.01).sync().state == "OK"


def test_a_lifetime_has_a_limit(hub, make):
    device = make(lifetime_epsilon=3 * EPSILON)
    for _ in range(5):
        device.sync()
        use(device, 8)
        device.sync()
        hub.move_on()
    assert len(hub.reports) == 3 and device.ledger()[-1].total <= 3 * EPSILON * (1 + 1e-9)
    told = device.sync()
    assert told.state == "SILENT" and "lifetime_epsilon" in told.why
    np.testing.assert_array_equal(device._memory.round.weights, hub.weights)  # the newest model is still fetched
    assert not device.rank(X).learning
    device.close()
    assert not make(lifetime_epsilon=3 * EPSILON).wants_clicks  # nor after a restart
    assert make(lifetime_epsilon=4 * EPSILON).sync().state == "OK"


def test_opting_out_ends_everything_that_has_not_left(hub, make):
    device = ready(make)
    assert device.opt_out()
    requests = len(hub.seen)
    use(device, 8)
    told = device.sync()
    assert told.state == "SILENT" and "opted out" in told.why
    device.close()
    device = make()
    assert device.sync().state == "SILENT" and len(hub.seen) == requests  # after a restart too
    np.testing.assert_array_equal(device.rank(X).order, np.argsort(-(X @ np.arange(FEATURES)), kind="stable"))
    assert not device.ledger() and device.privacy()["discarded"]["messages"] == 1
    assert device.opt_in() and device.wants_clicks
    use(device, 4)
    assert device.sync().sent == 1 and hub.issued == 1


def test_opting_out_while_the_hub_is_being_asked_comes_in_time(hub, make):
    device = ready(make)
    hub.faults.append(Fault("GET /v1/model", before=lambda: device.opt_out()))
    assert device.sync().state == "SILENT" and not hub.reports and not device.ledger()


@pytest.mark.parametrize("erase", [True, False])
def test_leaving_is_forgetting_on_both_sides(hub, make, erase):
    device = ready(make)
    device.sync()
    assert device.leave(erase)
    assert hub.tokens == [] and hub.asked("DELETE /v1/device") == 1
    assert len(device.ledger()) == (0 if erase else 1)
    assert device.sync().state == "SILENT" and device.rank(X).order.tolist() == list(range(12))
    device.close()
    device = make()
    assert device.sync().state == "SILENT" and hub.asked("POST /v1/enrol") == 1  # it does not come back by itself
    assert device.opt_in() and device.sync().state == "OK" and hub.issued == 2


def test_a_hub_that_cannot_be_reached_is_told_later(hub, make, clock):
    device = ready(make)
    hub.faults.append(fault("DELETE /v1/device", 503, "unavailable"))
    assert not device.leave()
    assert hub.tokens == ["device-token-0001"] and not device.ledger() and not device.wants_clicks
    device.close()
    clock[0] += 10
    device = make()
    device._conversation.backoff.over()
    assert device.sync().state == "SILENT" and hub.tokens == []
    requests = len(hub.seen)
    device.sync()
    assert len(hub.seen) == requests


def test_leaving_before_arriving_needs_nobody(hub, make):
    assert make().leave() and not hub.seen


def test_leaving_a_hub_that_has_forgotten_already_is_done(hub, make):
    device = ready(make)
    hub.tokens.clear()
    assert device.leave() and device.sync().state == "SILENT"


def test_leaving_while_the_model_comes_keeps_nothing_of_it(hub, make):
    device = ready(make)
    hub.move_on()
    hub.faults.append(Fault("GET /v1/model", before=lambda: device.leave()))
    assert device.sync().state == "SILENT" and device._memory.outbox.get("model") is None
    assert device.rank(X).order.tolist() == list(range(12))
    device.sync()
    assert hub.tokens == []


def test_leaving_while_enrolling_leaves_no_token_behind(hub, make, clock):
    device = make()
    hub.faults.append(Fault("POST /v1/enrol", before=lambda: device.leave()))
    assert device.sync().state == "SILENT"
    device.sync()
    assert hub.tokens == [] and hub.asked("DELETE") == 1


def test_an_interaction_ends_after_a_while(hub, make, clock):
    device = make(patience=60.0)
    device.sync()
    use(device, 3)
    ranking = device.rank(X)
    clock[0] += 59
    assert device.log_click(ranking, 2)
    clock[0] += 59
    assert device.sync().sent == 0  # 59 s after a click
    clock[0] += 2
    assert device.sync().sent == 1


def test_a_user_who_closes_the_app_has_finished_looking(hub, make):
    device = make()
    device.sync()
    use(device, 3)
    device.log_click(device.rank(X), 0)
    device.close()
    assert make().sync().sent == 1


def test_a_restarted_app_goes_on_with_its_round(hub, tmp_path):
    """The same chance with a restart between all steps, and without any: the same bytes."""
    random = np.random.default_rng(1)
    privacy = random.integers(0, 2**32, (4, 2), dtype=np.uint32)

    def words(left):
        return lambda shape: left.pop(0).reshape(shape)

    whole = [np.array([77], np.uint32), *privacy]
    whole_again = list(whole)
    with Device(hub.url, ENROLMENT, tmp_path / "whole", _words=words(whole)) as device:
        device.sync()
        for click in (0, 3, 1, 7):
            use(device, 1, click)
        device.sync()
    for number, click in enumerate((0, 3, 1, 7)):
        left = [privacy[number]] if number else whole_again[:2]  # the seed is drawn at the first start only
        device = Device(hub.url, ENROLMENT, tmp_path / "parts", _words=words(left))
        device.sync()
        use(device, 1, click)
        if number % 2:  # else the process dies
            device.close()
    with Device(hub.url, ENROLMENT, tmp_path / "parts") as device:
        assert device.sync().sent == 1
    one, other = hub.reports.values()
    assert one == other


def test_a_folder_that_cannot_be_used_does_not_stop_an_app(hub, tmp_path, caplog):
    (tmp_path / "file").write_text("in the way")
    with Device(hub.url, ENROLMENT, tmp_path / "file" / "folder") as device:
        device.sync()
        use(device, 4)
        told = device.sync()
        assert told.sent == 1 and not told.lasting and len(device.ledger()) == 1
        assert not device.opt_out() and device.sync().state == "SILENT"
    assert "nothing outlives this process" in caplog.text
    with Device(hub.url, ENROLMENT, tmp_path / "file" / "folder", lifetime_epsilon=100.0) as device:
        told = device.sync()  # a limit over a lifetime needs a memory of that length
        assert told.state == "SILENT" and "lifetime_epsilon" in told.why and not device.wants_clicks


# --------------------------------------------------------------------------------------------- threads and network


def test_nobody_waits_for_the_network(hub, make):
    """While the hub takes its time, the app's thread ranks, clicks and reads the ledger."""
    device = ready(make)
    done = []

    def meanwhile():
        worker = threading.Thread(
            target=lambda: done.append(
                (device.rank(X), device.ledger(), device.privacy(), device.sync().state, device.opt_in())
            )
        )
        worker.start()
        worker.join(5)

    for where in ("GET /v1/model", "POST /v1/report"):
        hub.faults.append(Fault(where, before=meanwhile))
    assert device.sync().sent == 1
    assert len(done) == 2 and {state for *_, state, _ in done} == {"RETRY"}


def test_threads_share_a_device(hub, make):
    device = make()
    device.sync()
    errors, stop = [], threading.Event()

    def app(number):
        random = np.random.default_rng(number)
        while not stop.is_set():
            ranking = device.rank(random.random((8, FEATURES)))
            if sorted(ranking.order) != list(range(8)):
                errors.append(ranking)
            device.log_click(ranking, int(random.integers(8)))
            device.finish(ranking)

    def network():
        while not stop.is_set():
            told = device.sync()
            if told.state not in ("OK", "RETRY"):
                errors.append(told)
            if told.sent:
                hub.move_on()

    threads = [threading.Thread(target=app, args=(n,)) for n in range(2)]
    threads += [threading.Thread(target=network) for _ in range(2)]
    for thread in threads:
        thread.start()
    end = time.monotonic() + 20
    while len(hub.reports) < 12 and time.monotonic() < end:
        time.sleep(0.02)
    stop.set()
    for thread in threads:
        thread.join()
    assert not errors and len(hub.reports) >= 12 and not device._memory._said
    rows = device.ledger()
    assert len({row.round for row in rows}) == len(rows) == len(hub.reports)
    for body in hub.reports.values():
        assert TERMS.reply.decode(body)


def test_tls_is_checked_against_the_given_certificates(tmp_path):
    certificate, key = self_signed(tmp_path)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate, key)
    with FakeHub(TERMS, np.zeros(FEATURES), tls=tls) as hub:
        with Device(hub.url, ENROLMENT, tmp_path / "a", ca=certificate) as device:
            assert device.sync().state == "OK"
        requests = len(hub.seen)
        for number, url in enumerate((hub.url, hub.url.replace("127.0.0.1", "localhost"))):
            ca = certificate if number else None  # nobody vouches for it; vouched for, but another host
            with Device(url, ENROLMENT, tmp_path / f"b{number}", ca=ca, timeout=2.0) as device:
                told = device.sync()
                assert told.state == "OFFLINE" and "SSLCertVerificationError" in told.why
        assert len(hub.seen) == requests


def self_signed(folder):
    import datetime
    import ipaddress

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "hub")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), True)
        .sign(key, hashes.SHA256())
    )
    (folder / "hub.crt").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    pem = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (folder / "hub.key").write_bytes(key.private_bytes(*pem))
    return folder / "hub.crt", folder / "hub.key"
