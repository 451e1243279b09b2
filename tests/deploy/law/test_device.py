"""What an app may rely on: a device never raises, never loops, says a thing once, and is silent when told to."""

import hashlib
import json
import logging
import math
import time

import numpy as np
import pytest
from device_worlds import EPSILON, FEATURES, TERMS, X, clock, hub, make, ready, use  # noqa: F401
from fake_hub import Fault, fault, model_bytes

from fedrank.deploy.device import Device


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


@pytest.mark.parametrize(
    ("status", "reason", "state", "outcome"),
    [
        (409, "stale-round", "STALE", "too late, not counted"),
        (409, "early-round", "STALE", "too late, not counted"),
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
    device._connection._timeout = 30.0  # a good answer may come late on a busy machine
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


def test_another_model_of_the_same_round_is_noticed(hub, make):
    """A hub that was put back from a copy may be at the round that the device knows, with another model."""
    device = make()
    device.sync()
    device.sync()
    asked = [h.get("If-None-Match") for _, path, h, _ in hub.seen if path == "/v1/model"]
    assert asked == [
        None,
        '"01234567-0-' + hashlib.sha256(np.arange(FEATURES, dtype="<f4").tobytes()).hexdigest()[:8] + '"',
    ]
    hub.weights = -hub.weights
    device.sync()
    assert np.array_equal(device._memory.round.weights, -np.arange(FEATURES, dtype=np.float32))
    device.close()
    make().sync()  # from its file
    assert hub.seen[-1][2]["If-None-Match"] != asked[1] and hub.asked("GET /v1/model") == 4
