"""What an app may rely on: a device never raises, never loops, says a thing once, and is silent when told to."""

import dataclasses
import logging
import math
import statistics
import time

import numpy as np
import pytest
from device_worlds import EPSILON, FEATURES, TERMS, X, hub, make, ready, use  # noqa: F401
from fake_hub import ANYTHING, ENROLMENT, FakeHub, Fault, fault

from fedrank.core.errors import ConfigError
from fedrank.deploy.device import Device, Ranking, connection
from fedrank.deploy.device.connection import Backoff, HubClient, HubRefusedError
from fedrank.deploy.http.client import response_of


def test_a_redirect_is_not_followed_and_no_token_goes_elsewhere(hub, make):
    with FakeHub(TERMS, np.zeros(FEATURES)) as elsewhere:
        for where in ("POST /v1/enrol", "GET /v1/model"):
            hub.faults.append(Fault(where, status=307, headers={"Location": elsewhere.url + "/v1/model"}))
            device = make()
            assert device.sync().state == "RETRY"
            device._conversation.backoff.reset()
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


def test_a_number_beyond_all_rounds_is_an_answer_that_cannot_be_read(hub, make):
    for body in (b'{"round": 1e999}', b'{"round": 1, "state": "open", "etag": "", "epoch": 1e999}', b'{"round": -1}'):
        device = make()
        device._connection.request = lambda *_, body=body, **__: response_of(200, body, lambda name: None)
        with pytest.raises(HubRefusedError) as refused:
            device._connection.tokens()
        assert "cannot be read" in refused.value.why
        device.close()


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
    backoff.reset()
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
    with Device(f"http://127.0.0.1:{port}", ENROLMENT, tmp_path, timeout=0.5, **ANYTHING) as device:
        told = device.sync()
        assert told.state == "OFFLINE" and told.next_in <= 2
        assert device.rank(X).order.tolist() == list(range(12))


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
    monkeypatch.setattr(device._conversation, "sync", fails)
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


def test_settings_that_can_never_work_are_refused(tmp_path):
    for settings, words in [
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
    ]:
        given = {"hub": "http://127.0.0.1:1", "enrolment": ENROLMENT, "folder": tmp_path, **settings}
        with pytest.raises(ConfigError, match=words) as error:
            Device(**given)
        assert "pass@" not in str(error.value) and "X: y" not in str(error.value)


def test_plain_http_is_for_loopback_or_on_request():
    for url in ("http://localhost:1", "http://127.0.0.5", "http://[::1]:80", "https://hub.example.org"):
        HubClient(url)
    HubClient("http://hub.example.org", allow_http=True)


def test_one_hub_has_one_address_however_it_is_spelled():
    assert HubClient("HTTPS://Hub.Example.org/learn/").url == HubClient("https://hub.example.org:443/learn").url
    assert HubClient("https://hub.example.org").url != HubClient("https://hub.example.org/learn").url


def test_a_hub_may_live_below_a_path(hub, make):
    assert make(hub.url + "/learn/").sync().state == "RETRY"
    assert [path for _, path, _, _ in hub.seen] == ["/learn/v1/enrol"]


def test_terms_that_promise_too_little_are_answered_with_silence(hub, make, caplog):
    device = make(most_epsilon=EPSILON - 0.01)
    for _ in range(2):
        told = device.sync()
        assert told.state == "SILENT" and "most_epsilon" in told.why
        use(device, 8)
    assert {f"{m} {p}" for m, p, *_ in hub.seen} == {"POST /v1/enrol", "GET /v1/model"}  # it ranks, and says nothing
    assert list(device.rank(X).order) == list(np.argsort(-(X @ hub.weights)))
    assert "most_epsilon" in caplog.text and "most_epsilon" in device.privacy()["silent"]
    device.close()
    assert make(most_epsilon=EPSILON + 0.01).sync().state == "OK"


def test_without_a_word_of_the_app_a_device_agrees_to_what_a_hub_asks_for(hub, tmp_path):
    with Device(hub.url, ENROLMENT, tmp_path / "a") as device:
        told = device.sync()
        assert told.state == "SILENT" and "a message ε = 18; this app allows at most 1" in told.why
        use(device, 4)
        assert not device.wants_clicks and not hub.reports
    private = {"mechanism": "piecewise", "p": 1.0, "epsilon": 0.5, "inside": 1, "outside": 2}
    with (
        FakeHub(dataclasses.replace(TERMS, **private), np.zeros(FEATURES)) as other,
        Device(other.url, ENROLMENT, tmp_path / "b") as device,
    ):
        for _ in range(4):
            device.sync()
            use(device, 4)
            device.sync()
            other.move_on()
        assert len(other.reports) == 2 and device.privacy()["epsilon_total"] == 1.0
        assert "lifetime_epsilon = 1" in device.sync().why


def test_terms_may_limit_how_often_a_device_ever_sends(tmp_path):
    """One message of ε = 1 in a life: not a second one in a later round, nor after everything was erased."""
    private = {"mechanism": "piecewise", "p": 1.0, "epsilon": 1.0, "inside": 1, "outside": 2, "participations": 1}
    terms = dataclasses.replace(TERMS, **private)
    with FakeHub(terms, np.zeros(FEATURES)) as hub, Device(hub.url, ENROLMENT, tmp_path, **ANYTHING) as device:
        for _ in range(3):
            device.sync()
            use(device, terms.interactions)
            device.sync()
            hub.move_on()
        assert len(hub.reports) == 1 and device.privacy()["epsilon_total"] == 1.0
        told = device.sync()
        assert told.state == "SILENT" and "terms" in told.why and not device.wants_clicks
        assert device.leave(erase=True) and device.opt_in()
        assert device.sync().state == "SILENT" and len(hub.reports) == 1
        said = device.privacy()
        assert [p["epsilon"] for p in said["promises"] if p["unit"] == "user"] == [1.0]


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
