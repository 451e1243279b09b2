"""Real devices with tokens, directly and through a relay: what they report counts once, and nothing else leaves."""

import asyncio
import hashlib
import sqlite3
import time
from dataclasses import dataclass

import numpy as np
import pytest
from hubs import make
from relay_worlds import FEATURES, relayed
from token_worlds import token_app

from fedrank.deploy.device import conversation
from fedrank.deploy.device.connection import Synced
from fedrank.deploy.device.outbox import Outbox
from fedrank.deploy.draws import Beacon
from fedrank.deploy.http.client import HttpClient
from fedrank.deploy.hub.attestation import Attestor, Challenges, Door, NotAttestedError
from fedrank.deploy.hub.tokens import new_offer
from fedrank.deploy.oblivious.encapsulation import (
    REQUEST_LENGTH,
    REQUEST_OVERHEAD,
    key_configuration,
    new_private_key,
    public_key_of,
)
from fedrank.deploy.oblivious.relay import RelaySettings
from fedrank.deploy.oblivious.tokens import Wallet

OFFER, _, SECRET = new_offer()
HUB = "00" * 16
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
    told = list[Synced]()
    while len(told) < times:
        told.append(device.sync())
        if told[-1].state == "STALE" and "in this moment" in told[-1].why:  # an epoch began between its two questions
            told[-1] = device.sync()
    assert {one.state for one in told} == {"OK"}, told
    return sum(one.sent for one in told)


def entered(world, *names, **options):
    """Devices that bought a token of the epoch that has just begun, and fetched its first model."""
    devices = [world.device(name, **options) for name in names]
    for device in devices:
        assert synced(device, 2) == 0 and not device.wants_clicks, "there is no token of the first epoch"
    go_on(world)
    for device in devices:
        synced(device, 2)
    return devices


def go_on(world):
    """Close the open round, with what it has."""
    number = world.hub.view.round
    done = asyncio.run_coroutine_threadsafe(world.hub.close_round(empty=True), world.hub._inbox.loop)
    assert done.result(10) == number
    until_round(world, number + 1)


def until_round(world, number, seconds=10.0):
    end = time.monotonic() + seconds
    while world.hub.view.round < number or world.hub.view.state != "open":
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_device_buys_ahead_and_reports_with_a_token(tmp_path):
    with relayed(tmp_path, tokens=1, cohort=2) as world:
        one, two = entered(world, "one", "two")
        for number in (1, 2):
            for device in (one, two):
                assert device.wants_clicks
                use(device)
                assert synced(device, 2) == 1
            until_round(world, number + 1)
            for device in (one, two):
                assert synced(device, 2) == 0
        assert len(one.ledger()) == 2
        with sqlite3.connect(tmp_path / "hub" / "hub.db") as db:
            numbers = [number for (number,) in db.execute("SELECT device FROM report")]
        assert len(set(numbers)) == 4 and min(numbers) > 2**32


def test_in_an_epoch_of_several_rounds_a_device_reports_in_the_one_that_its_token_draws(tmp_path):
    with relayed(tmp_path, tokens=3, cohort=50) as world:  # no round is full before it is closed
        devices = entered(world, *map(str, range(14)))
        sent = {device: [] for device in devices}
        for number in range(1, 7):
            for device in devices:
                synced(device, 2)
                wanted = device.wants_clicks
                use(device)
                assert synced(device, 2) == wanted
                sent[device] += [number] * wanted
            go_on(world)
        assert all(len(rounds) == 2 and rounds[0] <= 3 < rounds[1] for rounds in sent.values())
        assert len({rounds[0] for rounds in sent.values()}) > 1
        assert world.app.counters.refusals_by_reason() == {}


def test_everything_at_once_through_a_relay(tmp_path):
    """Draws, drawn seeds, checks, blind tokens, a relay and a log: what is sent is what the hub wants of each."""
    settings = dict(mechanism="piecewise", epsilon=1.0, due=0.8, drawn_seeds=True, checks=0.5, least_sales=5)
    with relayed(tmp_path, tokens=2, cohort=50, batch=1, **settings) as world:
        devices, kinds = entered(world, *map(str, range(10))), []
        for _ in range(6):
            for device in devices:
                synced(device, 2)
                wanted = device.wants_clicks
                use(device)
                assert synced(device, 2) == wanted
            number = world.hub.view.round
            kinds += [(number, world.hub.terms.is_check(one)) for one in world.hub.round.counted.values()]
            go_on(world)
        assert {check for _, check in kinds} == {True, False} and 15 <= len(kinds) <= 30
        refused = world.app.counters.refusals_by_reason()
        assert refused == {}, refused


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
            devices = entered(world, "one", "two")
            for device in devices:
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


@dataclass(frozen=True)
class Echo(Attestor):
    """Accepts statements that repeat the challenge."""

    def check(self, statement, challenge, now):
        if statement["said"] != challenge.hex():
            raise NotAttestedError("wrong-challenge")
        return str(statement["of"]).encode()


def test_statements_of_the_platform_go_through_the_relay_at_the_counter_and_reports_keep_their_length(tmp_path):
    door = Door({"echo": Echo()}, "hub", Challenges(bytes(32), lambda *_: True))
    app = token_app(make(tmp_path / "hub", n_features=FEATURES, tokens=1, batch=1), door)
    with relayed(tmp_path, app=app, tokens=1, batch=1) as world:
        asked, ask = [], world.app.__class__.__call__

        async def watched(self, scope, receive, send):
            if scope["type"] == "http" and scope["client"] != ("", 0):
                asked.append((scope["path"], dict(scope["headers"]).get(b"content-length")))
            await ask(self, scope, receive, send)

        world.app.__class__.__call__ = watched
        try:
            for of, states in (("one", {"OK"}), ("one", {"RETRY"}), ("two", {"OK"})):  # a phone enrols one device

                def attest(challenge, kinds, of=of):
                    return kinds[0], {"said": challenge.hex(), "of": of, "chain": "x" * 9000}

                device = world.device(str(len(world.made)), attest=attest)
                assert {device.sync().state} == states
                statements = [length for _, length in asked if length != b"1079"]
                assert statements == [str(16_384 + REQUEST_OVERHEAD).encode()]
                asked.clear()
            bare = world.device("bare").sync()
            assert bare.state == "RETRY" and "attestation-needed" in bare.why
            device = world.made[0]
            go_on(world)
            synced(device)
            use(device)
            asked.clear()
            assert synced(device) == 1 and set(asked) == {("/v1/oblivious", b"1079")}
        finally:
            world.app.__class__.__call__ = ask


def test_fewer_than_a_batch_are_sent_back_and_come_again(tmp_path):
    with relayed(
        tmp_path, tokens=1, cohort=3, batch=3, relay=RelaySettings(batch=3, seconds=0.2, company=0.05)
    ) as world:
        (device,) = entered(world, "alone")
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
        told = world.device("two", relay=other.relay).sync()
        assert told.state == "RETRY" and "another gateway" in told.why
        routes = {key[0] for key in other.app.counters.requests}
        assert routes <= {"about", "others", "keys", "log", "oblivious"}, (
            "it was asked for its log, which it does not have"
        )


def test_a_relay_that_was_set_right_is_used_by_the_same_process(tmp_path):
    """It is asked again after a refusal, and after an answer that is not the hub's."""
    (tmp_path / "one-hub").mkdir()
    (tmp_path / "other").mkdir()
    with (
        relayed(tmp_path / "one-hub", tokens=1, batch=1) as world,
        relayed(tmp_path / "other", tokens=1, batch=1) as other,
    ):
        (device,) = entered(world, "one")
        right = device._connection._relay
        device._connection._relay = HttpClient(other.relay)  # the relay's operator names another hub …
        use(device)
        assert device.sync().state in ("RETRY", "OFFLINE")
        device._conversation.backoff.reset()
        assert "another gateway" in device.sync().why
        device._connection._relay = right  # … and the right one again
        device._conversation.backoff.reset()
        assert device.sync().state == "OK" and len(device.ledger()) == 1 == world.hub.status()["reports"]


def test_a_relay_tells_a_key_that_the_gateway_has_now(tmp_path, monkeypatch):
    with relayed(tmp_path, tokens=1, batch=1) as world:
        relay = HttpClient(world.relay)
        before = relay.request("GET", "/", "").json()
        private = new_private_key()
        world.app._gateway.use(private)
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


def test_a_token_draws_by_what_the_hub_committed_to_and_by_nothing_else(tmp_path):
    """With two beacons a token would be shown in two rounds, and both reports would be of one device."""
    wallet = Wallet(Outbox(tmp_path))
    wallet.draw(HUB, 3, OFFER)
    right = Beacon(SECRET, bytes(32), 5)
    for wrong in (right._replace(secret=bytes(32)), right._replace(secret=hashlib.sha256(SECRET).digest())):
        assert "another secret" in wallet.take_beacon(HUB, 3, wrong)
    assert wallet.take_beacon(HUB, 3, right) == wallet.take_beacon(HUB, 3, right) == ""
    assert "changed" in wallet.take_beacon(HUB, 3, right._replace(reports=b"1" * 32))
    assert wallet.take_beacon(HUB, 4, right) and wallet.find(HUB, 3).beacon == right.value
    wallet.forget(HUB, 4)
    assert wallet.find(HUB, 3) is None


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
        go_on(world)  # the epoch begins for which it has paid
        device = world.device("one")
        connection = device._connection
        buy = connection.buy
        connection.buy = lambda *arguments: asked.append(arguments) or buy(*arguments)
        device._conversation.backoff.reset()
        assert device.sync().state == "OK" and device.wants_clicks
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


def test_a_request_that_never_reached_the_hub_is_given_up_when_its_epoch_begins(tmp_path):
    with relayed(tmp_path, tokens=1, cohort=2) as world:
        device = world.device("one")
        connection = device._connection
        buy, asked = connection.buy, []

        def down(*_):
            raise OSError("no way to the hub")

        connection.buy = down
        assert device.sync().state == "OFFLINE"
        go_on(world)
        connection.buy = lambda *arguments: asked.append(arguments[1]) or buy(*arguments)
        device._conversation.backoff.reset()
        assert synced(device, 3) == 0 and asked == [1, 2] and not device.wants_clicks


def test_a_hub_that_changes_what_it_offers_sells_nothing(tmp_path):
    with relayed(tmp_path, tokens=1, cohort=2, log="no") as world:
        device = world.device("one")
        buy, device._connection.buy = device._connection.buy, lambda *_: (_ for _ in ()).throw(OSError("lost"))
        assert device.sync().state == "OFFLINE"
        device._connection.buy, issuer = buy, world.app._issuer
        right = issuer._epochs
        issuer._epochs = {epoch: one._replace(offer=OFFER) for epoch, one in right.items()}
        device._conversation.backoff.reset()
        assert device.sync().state == "OK"  # the report of the open epoch still goes
        assert world.hub.store.query("SELECT count(*) FROM purchase") == [(0,)]
        issuer._epochs = right
        device._conversation.backoff.reset()
        synced(device)
        assert world.hub.store.query("SELECT count(*) FROM purchase") == [(1,)]


def test_a_hub_that_reveals_another_secret_or_another_beacon_gets_no_report(tmp_path):
    for log in ("no", ""):
        folder = tmp_path / (log or "log")
        folder.mkdir()
        with relayed(folder, tokens=2, cohort=9, log=log) as world:
            device, issuer = world.device("one"), world.app._issuer
            synced(device, 2)
            go_on(world)
            right = issuer._epochs
            beacon = right[1].beacon
            for wrong, state in (
                (beacon._replace(secret=SECRET), "another secret" if log else "does not say"),
                (beacon._replace(reports=b"1" * 32), "does not say" if log == "" else ""),
            ):
                issuer._epochs = {**right, 1: right[1]._replace(beacon=wrong)}
                told = device.sync()
                assert told.state == ("UNPROVEN" if state else "OK") and state in told.why, told
                device._conversation.backoff.reset()
                assert not (state and device.wants_clicks)
            issuer._epochs = right
            go_on(world)
            told = device.sync()
            # Without a log it has taken the beacon that was shown first, and takes no other in this epoch.
            assert told.state == ("UNPROVEN" if log else "OK"), told
            assert ("changed" in told.why) == bool(log)


def test_the_token_of_a_report_that_came_too_late_is_not_shown_again(tmp_path):
    with relayed(tmp_path, tokens=5, cohort=9) as world:
        (slow,) = entered(world, "slow")
        while not slow.wants_clicks:
            go_on(world)
            synced(slow)
        use(slow)
        slow._conversation._fetch = lambda: None  # it does not hear of the new round
        go_on(world)
        assert "STALE" in [slow.sync().state for _ in range(2)]  # in the first it may buy
        del slow._conversation._fetch
        while world.hub.terms.epoch_of(world.hub.view.round) == 1:
            assert synced(slow) == 0 and not slow.wants_clicks, "its token was seen with another message"
            go_on(world)


def test_no_purchase_stands_beside_a_report(tmp_path, monkeypatch):
    with relayed(tmp_path, tokens=1, cohort=9) as world:
        device = world.device("one")
        synced(device)
        go_on(world)
        monkeypatch.setattr(conversation, "_AHEAD", 0.0)  # it does not buy at once
        synced(device)
        use(device)
        monkeypatch.setattr(conversation, "_AHEAD", 1.0)
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
