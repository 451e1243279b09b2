"""Real devices with tokens, directly and through a relay: what they report counts once, and nothing else leaves."""

import sqlite3
import time

import numpy as np
import pytest
from relay_worlds import FEATURES, relayed

from fedrank.deploy.device import conversation
from fedrank.deploy.device.outbox import Outbox
from fedrank.deploy.http.client import HttpClient
from fedrank.deploy.http.routes import HttpResponse
from fedrank.deploy.hub.tokens import _new_key
from fedrank.deploy.oblivious.binary_http import REQUEST_LENGTH
from fedrank.deploy.oblivious.encapsulation import (
    REQUEST_OVERHEAD,
    Gateway,
    key_configuration,
    new_private_key,
    public_key_of,
)
from fedrank.deploy.oblivious.relay import RelaySettings
from fedrank.deploy.oblivious.tokens import Wallet, ask_for, epoch_challenge

KEY = _new_key()[0]
X = np.random.default_rng(0).random((12, FEATURES))


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    """Nobody waits for a random moment."""
    monkeypatch.setattr(conversation, "POLL", 1e-9)
    monkeypatch.setattr(conversation, "_AHEAD", 1.0)


def use(device, times=4):
    for _ in range(times):
        ranking = device.rank(X)
        device.log_click(ranking, 0)
        device.finish(ranking)


def synced(device, times=3):
    told = [device.sync() for _ in range(times)]
    assert {one.state for one in told} == {"OK"}, told
    return sum(one.sent for one in told)


def until_round(world, number, seconds=10.0):
    end = time.monotonic() + seconds
    while world.hub.view.round < number or world.hub.view.state != "open":
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_device_buys_and_reports_with_a_token(tmp_path):
    with relayed(tmp_path, tokens=1, cohort=2) as world:
        one, two = world.device("one"), world.device("two")
        for device in (one, two):
            assert synced(device) == 0
            use(device)
            assert synced(device, 2) == 1
        until_round(world, 1)
        for device in (one, two):
            assert synced(device, 3) == 0
            use(device)
            assert synced(device, 2) == 1
        assert len(one.ledger()) == 2
        with sqlite3.connect(tmp_path / "hub" / "hub.db") as db:
            numbers = [number for (number,) in db.execute("SELECT device FROM report")]
        assert len(set(numbers)) == 4 and min(numbers) > 2**32


def test_through_a_relay_the_hub_sees_one_address_and_one_size(tmp_path):
    with relayed(tmp_path, tokens=1, cohort=2, batch=1) as world:
        seen, inner, original, within = [], [], world.app.__class__.__call__, world.app._answer

        async def watched(self, scope, receive, send):
            if scope["type"] == "http" and scope["client"] != ("", 0):
                headers = dict(scope["headers"])
                seen.append(
                    (scope["method"], scope["path"], headers.get(b"content-length"), b"authorization" in headers)
                )
            await original(self, scope, receive, send)

        async def noted(request):
            inner.append(request)
            return await within(request)

        world.app.__class__.__call__, world.app._answer = watched, noted
        try:
            devices = [world.device(name) for name in ("one", "two")]
            for device in devices:
                synced(device)
                use(device)
            assert sum(synced(device) for device in devices) == 2
        finally:
            world.app.__class__.__call__ = original
        assert set(seen) == {("POST", "/v1/oblivious", b"1079", False)}
        reports = [request for request in inner if request.path.startswith(b"/v1/report/")]
        assert len(reports) == 2
        for request in inner:
            names = {name for name, _ in request.fields}
            shown = dict(request.fields).get(b"authorization", b"")
            assert names <= {b"authorization"}
            with_device = request.path.startswith((b"/v1/token/", b"/v1/enrol"))
            assert shown.startswith(b"Bearer ") == with_device
            assert shown.startswith(b"PrivateToken ") == request.path.startswith(b"/v1/report/")


def test_fewer_than_a_batch_are_sent_back_and_come_again(tmp_path):
    with relayed(
        tmp_path, tokens=1, cohort=3, batch=3, relay=RelaySettings(batch=3, seconds=0.2, company=0.05)
    ) as world:
        device = world.device("alone")
        synced(device)
        use(device)
        told = device.sync()
        assert told.state == "RETRY" and told.sent == 0 and world.hub.status()["reports"] == 0
        assert [row.outcome for row in device.ledger()] == ["sent, no answer yet"]


def test_without_its_relay_a_device_sends_no_report(tmp_path):
    with relayed(tmp_path, tokens=1, batch=2) as world:
        device = world.device("bare", relay=None)
        told = device.sync()
        assert told.state == "SILENT" and "relay" in told.why and not device.wants_clicks
        assert len(device.rank(X).order) == 12 and device.rank(X).order.tolist() != []


def test_a_relay_that_promises_less_or_leads_elsewhere_is_not_used(tmp_path):
    with relayed(tmp_path, tokens=1, batch=4, relay=RelaySettings(batch=3, seconds=0.1, company=0.05)) as world:
        told = world.device("one").sync()
        assert told.state == "RETRY" and "3 reports" in told.why
    (tmp_path / "one-hub").mkdir()
    (tmp_path / "other").mkdir()
    with (
        relayed(tmp_path / "one-hub", tokens=1, batch=1) as world,
        relayed(tmp_path / "other", tokens=1, batch=1) as other,
    ):
        device = world.device("two")
        synced(device, 1)
        device.close()
        asked = len(other.app.counters.requests)
        told = world.device("two", relay=other.relay).sync()
        assert told.state == "RETRY" and "another gateway" in told.why
        assert len(other.app.counters.requests) == asked, "nothing was encrypted to it"


def test_a_relay_that_was_set_right_is_used_by_the_same_process(tmp_path):
    """It is asked again after a refusal, and after an answer that is not the hub's."""
    (tmp_path / "one-hub").mkdir()
    (tmp_path / "other").mkdir()
    with (
        relayed(tmp_path / "one-hub", tokens=1, batch=1) as world,
        relayed(tmp_path / "other", tokens=1, batch=1) as other,
    ):
        device = world.device("one")
        assert device.sync().state == "OK"
        right = device._connection._relay
        device._connection._relay = HttpClient(other.relay)  # the relay's operator names another hub …
        use(device)
        assert device.sync().state in ("RETRY", "OFFLINE")
        device._conversation.backoff.reset()
        assert "another gateway" in device.sync().why
        device._connection._relay = right  # … and the right one again
        device._conversation.backoff.reset()
        assert device.sync().state == "OK" and synced(device, 3) == 1


def test_a_relay_tells_a_key_that_the_gateway_has_now(tmp_path, monkeypatch):
    with relayed(tmp_path, tokens=1, batch=1) as world:
        relay = HttpClient(world.relay)
        before = relay.request("GET", "/", "").json()
        private = new_private_key()
        world.app._gateway = Gateway(private)  # as of another hub behind the same address
        world.app._keys = HttpResponse(200, key_configuration(public_key_of(private)))
        assert relay.request("GET", "/", "").json() == before
        unreadable = bytes(REQUEST_LENGTH + REQUEST_OVERHEAD)
        assert relay.request("POST", "/others", "", body=unreadable).status == 400
        now = relay.request("GET", "/", "").json()
        assert now["keys"] == key_configuration(public_key_of(private)).hex() != before["keys"]


def test_a_process_that_enrolled_second_has_its_token_forgotten(tmp_path):
    file = Outbox(tmp_path)
    for token in ("first", "second", "first"):
        file.adopt("https://hub.example", token, "{}")
    assert (file.get("token"), file.get("leaving")) == ("first", "second")


@pytest.mark.parametrize("ahead", [30.0, 86_400.0, 3e7])
def test_a_token_that_was_bought_while_the_clock_was_ahead_is_spent(tmp_path, monkeypatch, ahead):
    file = Outbox(tmp_path)
    wallet = Wallet(file)
    asked = ask_for(KEY, epoch_challenge("00" * 16, 0))
    file.execute(
        "INSERT INTO token (hub, epoch, key, content, token, ripe) VALUES (?, 0, ?, ?, ?, ?)",
        ("00" * 16, KEY, asked.content, b"token", 1e9 + ahead),
    )
    shown = wallet.spendable("00" * 16, 0, 0, 1e9, 60.0)
    assert shown == (None if ahead == 30.0 else b"token")  # the first may well be one of half a minute ago
    assert wallet.spendable("00" * 16, 0, 0, 1e9 + ahead, 60.0) == b"token"


def test_a_device_that_is_killed_between_two_steps_sends_the_same_again(tmp_path):
    with relayed(tmp_path, tokens=1, cohort=2) as world:
        device = world.device("one")
        connection, asked = device._connection, []
        buy, report = connection.buy, connection.report

        def lost(*arguments):
            asked.append((buy(*arguments), arguments)[1])
            raise OSError("the answer is lost")

        connection.buy = lost
        assert device.sync().state == "OFFLINE"
        device.close()
        device = world.device("one")
        connection = device._connection
        buy = connection.buy
        connection.buy = lambda *arguments: asked.append(arguments) or buy(*arguments)
        device._conversation.backoff.reset()
        assert device.sync().state == "OK"
        assert asked[0] == asked[1]
        sent = []

        def counted_and_lost(*arguments):
            sent.append((report(*arguments), arguments)[1])
            raise OSError("the answer is lost")

        synced(device)
        report = connection.report
        use(device)
        connection.report = counted_and_lost
        assert device.sync().state == "OFFLINE" and world.hub.status()["reports"] == 1
        device.close()
        device = world.device("one")
        device._conversation.backoff.reset()
        report = device._connection.report
        device._connection.report = lambda *arguments: sent.append(arguments) or report(*arguments)
        assert device.sync().sent == 1 and sent[0] == sent[1]
        assert world.hub.status()["reports"] == 1
        assert [row.outcome for row in device.ledger()] == ["counted"]


def test_a_hub_that_changes_an_issuers_key_gets_nothing(tmp_path):
    with relayed(tmp_path, tokens=1, cohort=2) as world:
        device = world.device("one")
        synced(device)
        use(device)
        issuer = world.app._issuer
        (key, signer), other = issuer._open[0], issuer._open[1][0]
        issuer._open[0] = (other, signer)
        told = device.sync()
        assert told.state == "RETRY" and "key" in told.why and world.hub.status()["reports"] == 0
        issuer._open[0] = (key, signer)
        device._conversation.backoff.reset()
        assert device.sync().sent == 1


def test_the_token_of_a_report_that_came_too_late_is_not_shown_again(tmp_path):
    with relayed(tmp_path, tokens=5, cohort=1, least=1) as world:
        slow, fast = world.device("slow"), world.device("fast")
        for device in (slow, fast):
            synced(device)
            use(device)
        fetch = slow._conversation._fetch
        slow._conversation._fetch = lambda: None  # it does not hear of the new round
        assert fast.sync().sent == 1
        until_round(world, 1)
        assert slow.sync().state == "STALE"
        slow._conversation._fetch = fetch
        synced(slow)
        use(slow)
        assert synced(slow) == 0, "its token was seen with another message"
        assert world.hub.status()["reports"] == 0


def test_no_purchase_stands_beside_a_report(tmp_path):
    with relayed(tmp_path, tokens=1, cohort=9) as world:
        device = world.device("one")
        assert device.sync().state == "OK"
        use(device)
        asked = []
        connection = device._connection
        buy, report = connection.buy, connection.report
        connection.buy = lambda *arguments: asked.append("buy") or buy(*arguments)
        connection.report = lambda *arguments: asked.append("report") or report(*arguments)
        rounds = []
        for _ in range(3):
            asked.clear()
            device.sync()
            rounds.append(tuple(asked))
        assert rounds == [("buy",), ("report",), ()]
