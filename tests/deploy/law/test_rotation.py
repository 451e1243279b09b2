"""Keys of a hub change while it runs, by entries of its log, and devices and witnesses follow."""

import asyncio
import dataclasses
import json
import sqlite3
import threading
import time
from base64 import b64encode
from pathlib import Path

import pytest
from hubs import make
from log_worlds import LocalClient, LocalHub, cosign, device, entries_of, log_answer, rested, signer_of, synced, witness
from relay_worlds import relayed

from fedrank.core.errors import ConfigError, RunError, WireError
from fedrank.deploy.database import open_database
from fedrank.deploy.device import State
from fedrank.deploy.device.connection import HubRefusedError
from fedrank.deploy.http.client import HttpClient, response_of
from fedrank.deploy.hub.audit import audit_folder
from fedrank.deploy.hub.keys import WHAT, ask_rotation, operator_of, private_keys
from fedrank.deploy.hub.store import Purchase
from fedrank.deploy.log.note import LOG, Checkpoint, Signer, new_private_key
from fedrank.deploy.log.proof import Answer, Trust, UnprovenError, newest_keys
from fedrank.deploy.log.submission import body_of
from fedrank.deploy.log.tree import (
    GATEWAY_KEY,
    ISSUER_KEY,
    LOG_KEY,
    OFFER,
    ROTATION,
    Rotation,
    index_numbered,
    statement,
)
from fedrank.deploy.oblivious.encapsulation import Gateway, encapsulate, public_key_of
from fedrank_zoo.witness.gossip import compare
from fedrank_zoo.witness.witness import STEPS, Reading, Witness, WitnessFolder, read_on

HUB, X = "http://localhost:1", [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]


def ask(hub, folder, key, operator=None):
    """What ``fedrank hub rotate`` does."""
    ask_rotation(folder, hub.store, hub.terms, WHAT[key], operator or folder / "operator.key")


def rotate(local, key, overlap=7.0):
    local.hub.row.keys._settings = dataclasses.replace(local.hub.settings, overlap_days=overlap)
    local.do(local.hub._inbox.call(ask, local.hub, local.home.path, key))
    local.do(local.hub.renew())


def checked(hub, one, body, seen=True):
    prover, terms = one._conversation.prover, one._memory.terms
    return Answer.parse(body).check(terms, prover.seen(terms) if seen else None, prover._trust)


def test_a_log_goes_on_under_another_key_and_no_answer_brings_the_old_one_back(tmp_path):
    with LocalHub(tmp_path / "hub") as hub:
        old, one, late = signer_of(hub), device(hub, tmp_path / "one"), device(hub, tmp_path / "late")
        for each in (one, late):
            assert synced(each).state is State.OK
        before = hub.ask("GET", "/v1/log/0")[2]
        rotate(hub, "log")
        hub.next_round()
        head = Answer.parse(hub.ask("GET", "/v1/log")[2]).checkpoint
        new = hub.hub.row.keys.signers[0].key
        assert head.is_signed_by(old.key) and head.is_signed_by(new) and new.public != old.key.public
        assert synced(one).state is State.OK
        with pytest.raises(UnprovenError, match="took the place"):
            checked(hub, one, before)
        # Whoever has the old key shows a log that goes on without the change, or with another.
        tree = Answer.parse(hub.ask("GET", "/v1/log")[2])
        alone = dataclasses.replace(tree, checkpoint=Checkpoint.parse(head.with_lines(old.line(head))))
        for forged in (alone, dataclasses.replace(alone, notices=())):
            with pytest.raises(UnprovenError):
                forged.check(
                    one._memory.terms, one._conversation.prover.seen(one._memory.terms), one._conversation.prover._trust
                )
        rotate(hub, "log", overlap=0.0)  # twice, and the second old key is over at once
        hub.do(hub.hub.renew())
        hub.next_round()
        assert len(hub.hub.row.keys.signers) == 1
        assert all(synced(each).state is State.OK for each in (one, late, device(hub, tmp_path / "new")))
    found = audit_folder(tmp_path / "hub")
    assert found.wrong == [] and found.key == hub.hub.row.keys.signers[0].key
    with LocalHub.of(tmp_path / "hub") as again:  # the keys are there after a restart
        again.next_round()
        late._connection._hub = again
        assert synced(rested(late)).state is State.OK


def test_the_private_key_of_what_is_over_is_gone(tmp_path):
    with LocalHub(tmp_path / "hub") as hub:
        first = (hub.home.path / "log.key").read_text().strip()
        rotate(hub, "log", overlap=0.0)
        second = hub.hub.store.rotations()[0].private
        rotate(hub, "log", overlap=0.0)
        hub.do(hub.hub.renew())
        assert not (hub.home.path / "log.key").exists()
        assert [row.private is None for row in hub.hub.store.rotations()] == [True, False]
    raw = b"".join(path.read_bytes() for path in tmp_path.glob("hub/hub.db"))
    assert bytes.fromhex(first) not in raw and second not in raw


def test_only_the_old_key_and_the_operator_together_change_the_logs_key(tmp_path):
    home = make(tmp_path / "hub")
    settings, store = home.open()
    terms = settings.terms(store.name)
    old, operator, thief = (Signer("k", 1, one) for one in (
        private_keys(home.path, store, terms, LOG_KEY)[0],
        bytes.fromhex((home.path / "operator.key").read_text().strip()),
        new_private_key(),
    ))  # fmt: skip
    store.close()
    one = Rotation(LOG_KEY, 5, old.key.public, thief.key.public)
    said = statement(terms.hub, one.entry())

    def signed(*signers, by=one):
        return by._replace(signatures=tuple(signer.sign(said) for signer in signers)).entry()

    assert newest_keys(terms, [signed(old, operator)])[LOG_KEY].new == thief.key.public
    other = one._replace(old=thief.key.public, new=old.key.public)
    for wrong in (
        [signed(old)],
        [signed(operator)],
        [signed(old, thief)],
        [signed(old, old)],
        [signed(old, operator), signed(old, operator)],
        [signed(old, operator, by=one._replace(when=6))],
        [signed(old, operator, by=other)],
        [signed(old, operator)[:-1]],
    ):
        with pytest.raises(UnprovenError):
            newest_keys(terms, wrong)
    before = dataclasses.replace(terms, operator="")  # a hub from before there were operators
    assert newest_keys(before, [signed(old)])[LOG_KEY].new == thief.key.public
    with pytest.raises(UnprovenError):
        newest_keys(before, [signed(thief)])


def test_the_command_wants_the_operators_key_and_one_change_at_a_time(tmp_path):
    home = make(tmp_path / "hub")
    settings, store = home.open()
    terms = settings.terms(store.name)
    (tmp_path / "other.key").write_text("11" * 32)
    with pytest.raises(ConfigError, match="operator"):
        ask_rotation(home.path, store, terms, LOG_KEY, tmp_path / "other.key")
    (home.path / "operator.key").rename(tmp_path / "away.key")
    with pytest.raises(RunError, match="operator"):
        ask_rotation(home.path, store, terms, LOG_KEY, home.path / "operator.key")
    ask_rotation(home.path, store, terms, LOG_KEY, tmp_path / "away.key")
    with pytest.raises(ConfigError, match="waiting"):
        ask_rotation(home.path, store, terms, LOG_KEY, tmp_path / "away.key")
    for what in (GATEWAY_KEY, ISSUER_KEY):  # this hub has none
        with pytest.raises(ConfigError, match="no such key"):
            ask_rotation(home.path, store, terms, what, tmp_path / "away.key")
    store.close()


def test_a_gateway_opens_requests_for_both_keys_until_the_old_one_is_over():
    old, new = bytes(range(32)), bytes(range(1, 33))
    gateway = Gateway(old)
    early = encapsulate(gateway.public, b"early").request
    gateway.use(new, old)
    assert gateway.public == public_key_of(new)
    assert gateway.open(early).request == b"early"
    assert gateway.open(encapsulate(public_key_of(new), b"late").request).request == b"late"
    gateway.use(new)
    with pytest.raises(WireError):
        gateway.open(encapsulate(public_key_of(old), b"stolen").request)


@pytest.mark.slow
@pytest.mark.parametrize("overlap", [7.0, 0.0])
def test_devices_behind_a_relay_follow_the_gateways_key(tmp_path, overlap):
    with relayed(tmp_path, tokens=1, batch=1) as world:

        def call(job):
            asyncio.run_coroutine_threadsafe(job, world.hub._inbox.loop).result(10)

        one = world.device("one")
        assert one.sync().state == "OK"
        keys, before = world.hub.row.keys, one._connection.gateway_key
        keys._settings = dataclasses.replace(world.hub.settings, overlap_days=overlap)
        for job in (
            world.hub._inbox.call(ask, world.hub, keys._folder, "gateway"),
            world.hub.renew(),
            world.hub.renew(),
        ):
            asyncio.run_coroutine_threadsafe(job, world.hub._inbox.loop).result(10)
        assert world.app._gateway.public != before
        for _ in range(3):
            one._conversation.backoff.reset()
            told = one.sync()
        assert told.state == "OK", told
        if overlap:  # the old key works until the device has seen the log, with the next model
            assert one._connection.gateway_key in (before, world.app._gateway.public)
            call(world.hub.close_round(empty=True))
            one._conversation.backoff.reset()
            assert one.sync().state == "OK"
        else:
            assert one._connection.gateway_key == world.app._gateway.public
        head = one._conversation.prover.seen(one._memory.terms)
        assert head.gateway(one._memory.terms) == (world.app._gateway.public, before)


def test_a_gateways_key_changes_by_its_schedule(tmp_path):
    with LocalHub(tmp_path / "hub", tokens=1, batch=1) as hub:
        keys, before = hub.hub.row.keys, hub.hub.row.keys.gateway.public
        hub.do(hub.hub.renew())
        assert 29 * 86_400 < keys.seconds() <= 30 * 86_400
        keys._settings = dataclasses.replace(hub.hub.settings, gateway_days=1e-9)
        hub.do(hub.hub.renew())
        assert keys.gateway.public != before
        changed = newest_keys(hub.hub.terms, entries_of(hub))[GATEWAY_KEY]
        assert (changed.old, changed.new) == (before, keys.gateway.public)
        keys._settings = dataclasses.replace(hub.hub.settings, gateway_days=0.0)
        hub.do(hub.hub.renew())
        assert keys.seconds() <= 7 * 86_400


def test_whoever_carries_an_answer_leaves_no_change_of_a_key_out(tmp_path):
    """Else a relay that works with a thief of the gateway's key would have devices go on with it for ever."""
    with LocalHub(tmp_path / "hub", tokens=1, batch=1) as hub:
        old = hub.hub.row.keys.gateway.public
        rotate(hub, "gateway")
        hub.next_round()
        whole = json.loads(hub.ask("GET", "/v1/log/0")[2])
        trust = Trust()
        head = Answer.parse(json.dumps(whole).encode()).check(hub.hub.terms, None, trust)
        assert head.gateway(hub.hub.terms) == (hub.hub.row.keys.gateway.public, old)
        without = {name: value for name, value in whole.items() if name != "notices"}
        for less in (without, without | {"notices": []}):
            with pytest.raises(UnprovenError, match="notices"):
                Answer.parse(json.dumps(less).encode()).check(hub.hub.terms, None, trust)
        text, _, lines = whole["checkpoint"].partition("\n\n")
        assert len(text.split("\n")) == 4
        less = without | {"checkpoint": "\n".join(text.split("\n")[:3]) + "\n\n" + lines}
        with pytest.raises(UnprovenError, match="signed"):
            Answer.parse(json.dumps(less).encode()).check(hub.hub.terms, None, trust)


@pytest.mark.parametrize("number", ["1e999", "-1e999", "NaN", "true", '"2"', "1.5", "-1", "9" * 400])
def test_a_number_that_is_none_is_refused_as_an_answer_that_cannot_be_read(number):
    body = '{"checkpoint": "x", "notices": [{"number": ' + number + ', "entry": "Bw==", "proof": []}]}'
    with pytest.raises(UnprovenError, match="ValueError"):
        Answer.parse(body.encode())


@pytest.mark.slow
def test_tokens_of_a_changed_key_are_bought_anew(tmp_path):
    settings = dict(tokens=1, interactions=1, mechanism="piecewise", cohort=100)
    with LocalHub(tmp_path / "hub", **settings) as hub:
        one, away = device(hub, tmp_path / "one"), device(hub, tmp_path / "away")

        def holds(each, epoch):
            held = each._conversation._wallet.find(hub.hub.terms.hub, epoch)
            return held is not None and held.token is not None and held.offer == hub.hub.row.issuer._epochs[epoch].offer

        def until(each, epoch):
            for _ in range(60):
                assert synced(each).state is State.OK
                if holds(each, epoch):
                    return True
            return False

        assert until(one, 1) and until(away, 1)
        rotate(hub, "issuer")
        assert until(one, 1)  # anew; the other one does not come before the epoch opens
        for _ in range(4):
            hub.next_round()
            for _ in range(12):
                for each in (one, away):
                    assert synced(each).state is State.OK
                    while each.wants_clicks:
                        ranking = each.rank(X)
                        each.log_click(ranking, 0)
                        each.finish(ranking)
        assert {row.outcome for each in (one, away) for row in each.ledger()} == {"counted"}
        assert away.ledger() == [] or away.ledger()[0].round > 1  # of the void token nothing was sent
        entries = entries_of(hub)
        assert sum(entry[0] == OFFER for entry in entries) >= 3 and index_numbered(entries) is not None
        without = [entry for entry in entries if entry[0] != 7]
        assert index_numbered(without) is None  # two offers of one epoch, and nothing that says why
    assert audit_folder(tmp_path / "hub").wrong == []


@pytest.mark.slow
def test_a_witness_that_reads_the_log_follows_its_key(tmp_path):
    with LocalHub(tmp_path / "hub") as hub:
        watching = witness(tmp_path / "witness", hub)
        cosign(hub, watching)
        before = watching.keys[hub.hub.row.publishing._signers()[0].key.name]
        rotate(hub, "log")
        hub.next_round()
        cosign(hub, watching)  # both sign
        assert compare(watching, [HUB], lambda _: LocalClient(hub)).unproven == []
        now = watching.keys[before.name]
        assert now == hub.hub.row.keys.signers[0].key != before
        rotate(hub, "log", overlap=0.0)
        hub.next_round()
        hub.do(hub.hub.renew())
        hub.next_round()
        note, _ = hub.hub.row.publishing._submission._head
        assert watching.add(body_of(0, [], note)).status == 403  # it did not read, and the old key is over
        watching.close()
        home = WitnessFolder(tmp_path / "witness")
        home.prepare(None, [str(hub.hub.row.keys.signers[0].key)])  # its operator was told the key
        watching = Witness(home)
        cosign(hub, watching)
        watching.close()


def test_a_witness_follows_no_change_that_the_operator_did_not_sign(tmp_path):
    """Whoever has the log's key alone hands it on to himself, before witnesses as before devices."""
    with LocalHub(tmp_path / "hub") as hub:
        old, thief, fresh = signer_of(hub), Signer("k", LOG, new_private_key()), Reading()
        operator = operator_of(hub.home.path / "operator.key", hub.hub.terms)
        one = Rotation(LOG_KEY, 5, old.key.public, thief.key.public)
        said, entries = statement(hub.hub.terms.hub, one.entry()), entries_of(hub)

        def read(*signers, before=fresh):
            shown = [*entries, one._replace(signatures=tuple(each.sign(said) for each in signers)).entry()]
            _, note = log_answer(shown, old)
            return read_on(Pages(shown), Checkpoint.parse(note), before, old.key)

        begun = read_on(Pages(entries), log_answer(entries, old)[0].checkpoint, Reading(), old.key)
        assert begun.operator == hub.hub.terms.operator == operator.key.public.hex() and begun.key == old.key
        for before in (fresh, begun):
            for wrong in ([old], [old, thief], [old, old], [operator, old], []):
                assert read(*wrong, before=before).key == old.key
            assert read(old, operator, before=before).key == dataclasses.replace(old.key, public=thief.key.public)
        # Terms that name no operator, and a log that has none that can be read.
        entries[0] = b"\x01" + json.dumps(json.loads(entries[0][1:]) | {"operator": ""}).encode()
        assert read(old).key != old.key and read(old).operator == ""
        entries[0] = b"\x01{}"
        assert read(old).key == old.key and read(old).operator is None


class Pages(HttpClient):
    """A hub that shows entries."""

    def __init__(self, entries):
        super().__init__("http://localhost:1")
        self._entries = entries

    def request(self, method, path, token, *, body=None, limit=0):
        start = int(path.rpartition("/")[2])
        texts = [b64encode(entry).decode() for entry in self._entries[start : start + 2]]
        return response_of(200, json.dumps({"entries": texts}).encode(), lambda name: None)


def test_a_witness_of_an_earlier_version_reads_a_log_from_its_terms_on(tmp_path):
    home = WitnessFolder(tmp_path / "witness")
    home.prepare("witness.example/1", [str(Signer("log.example/1", LOG, bytes(32)).key)])
    with open_database(home.path / "witness.db", STEPS[:3]) as db:
        for row in (("right", ""), ("wrong", "two models")):
            db.execute("INSERT INTO reading VALUES (?, 1, zeroblob(32), 7, ?)", row)
    watching = Witness(home)
    assert watching.reading("right") == Reading() and watching.reading("wrong").wrong == "two models"
    watching.close()


def test_an_old_store_has_no_changes_of_keys(tmp_path):
    home = make(tmp_path / "hub")
    with sqlite3.connect(home.log) as db:
        db.execute("DROP TABLE rotation")
        db.execute("PRAGMA user_version = 5")
    _, store = home.open()
    assert store.rotations() == []
    store.close()


def test_a_change_that_waits_when_the_schedule_is_due_is_made_and_nothing_stops(tmp_path):
    with LocalHub(tmp_path / "hub", tokens=1, batch=1) as hub:
        keys, first = hub.hub.row.keys, hub.hub.row.keys.gateway.public
        hub.do(hub.hub._inbox.call(ask, hub.hub, hub.home.path, "gateway"))  # the hub was stopped for that long
        keys._settings = dataclasses.replace(hub.hub.settings, gateway_days=1e-9)
        hub.do(hub.hub.renew())
        assert hub.hub.alive and keys.gateway.public != first
        assert all(row.ends is not None for row in hub.hub.store.rotations())
        hub.next_round()
        assert newest_keys(hub.hub.terms, entries_of(hub))[GATEWAY_KEY].new == keys.gateway.public


@pytest.mark.parametrize("key", ["log", "gateway"])
def test_of_two_changes_of_one_key_that_wait_one_is_made(tmp_path, key):
    home = make(tmp_path / "hub", tokens=1, batch=1)
    settings, store = home.open()
    terms, rows = settings.terms(store.name), []
    for _ in range(2):  # two commands that looked before either wrote
        ask_rotation(home.path, store, terms, WHAT[key], home.path / "operator.key")
        rows += store.query("SELECT entry, private FROM rotation")
        with store.transaction() as db:
            db.execute("DELETE FROM rotation")
    with store.transaction() as db:
        db.executemany("INSERT INTO rotation (entry, private) VALUES (?, ?)", rows)
    store.close()
    with LocalHub.of(tmp_path / "hub") as hub:
        hub.do(hub.hub.renew())
        assert hub.hub.alive and [row.entry for row in hub.hub.store.rotations()] == [rows[0][0]]
        assert synced(device(hub, tmp_path / "one")).state is State.SILENT  # it has no relay
        rotate(hub, key)  # the next one goes on from the one that was made
        hub.next_round()
        assert synced(device(hub, tmp_path / "two")).state is State.SILENT
        changes = [Rotation.parse(entry) for entry in entries_of(hub) if entry[0] == ROTATION]
        assert len(changes) == 2 and changes[1].old == changes[0].new
    assert audit_folder(tmp_path / "hub").wrong == []


def test_two_commands_at_once_ask_for_one_change(tmp_path):
    home = make(tmp_path / "hub", tokens=1, batch=1)
    settings, store = home.open()
    terms, (_, other) = settings.terms(store.name), home.open()
    begun, done, said = threading.Event(), [], []

    def second():
        begun.wait(10)
        try:
            ask_rotation(home.path, other, terms, GATEWAY_KEY, home.path)
        except ConfigError as error:
            said.append(error)

    def slow(rows, ask=store.rotations):
        begun.set()
        time.sleep(0.3)  # the other command looks meanwhile, if it can
        done.append(rows)
        return ask()

    store.rotations = lambda: slow(())
    thread = threading.Thread(target=second)
    thread.start()
    ask_rotation(home.path, store, terms, GATEWAY_KEY, home.path)
    thread.join(10)
    assert done and len(said) == 1 and len(other.rotations()) == 1
    store.close()
    other.close()


def test_a_key_that_is_over_and_cannot_be_deleted_stops_nothing(tmp_path, monkeypatch, caplog):
    def refuse(file, missing_ok=False):
        raise PermissionError(13, "Permission denied", str(file))

    with LocalHub(tmp_path / "hub") as hub:
        with monkeypatch.context() as patched:
            patched.setattr(Path, "unlink", refuse)
            rotate(hub, "log", overlap=0.0)
            for _ in range(3):
                hub.do(hub.hub.renew())
            assert hub.hub.alive and hub.next_round() == 0
            assert sum("log.key" in record.getMessage() for record in caplog.records) == 1
        hub.do(hub.hub.renew())
        assert not (hub.home.path / "log.key").exists() and len(hub.hub.row.keys.signers) == 1


def test_a_process_that_does_not_lead_waits_for_no_schedule(tmp_path, monkeypatch):
    with LocalHub(tmp_path / "hub", tokens=1, batch=1) as hub:
        keys = hub.hub.row.keys
        hub.do(hub.hub._inbox.call(keys.renew))  # has read the rows, also where the hub itself has not yet
        monkeypatch.setattr(type(hub.hub.store), "leads", property(lambda self: False))
        keys._settings = dataclasses.replace(hub.hub.settings, gateway_days=1e-9)
        assert not hub.do(hub.hub._inbox.call(keys.renew)) and keys.seconds() > 0


def test_a_token_is_sold_only_of_the_key_that_the_store_has(tmp_path):
    with LocalHub(tmp_path / "hub", tokens=1, interactions=1, mechanism="piecewise") as hub:
        epoch, before = hub.hub.row.issuer.on_sale()
        rotate(hub, "issuer")
        now = hub.hub.row.issuer.on_sale()[1]

        def buys(device, offer):
            one = Purchase(epoch, device, bytes(32), 0, offer)
            return hub.do(hub.hub._inbox.call(lambda: hub.hub.store.write([], [], [], [], [one])[1]))

        assert buys(1, before) == ["wrong-epoch"] and buys(1, now) == [""] and buys(2, now) == [""]


def test_a_head_is_signed_anew_when_other_keys_sign_and_nothing_else_changed(tmp_path):
    with LocalHub(tmp_path / "hub") as hub:
        log, before = hub.hub.row.publishing, Answer.parse(hub.ask("GET", "/v1/log")[2]).checkpoint
        other = Signer(signer_of(hub).key.name, LOG, new_private_key())
        log._signers = lambda: (other, signer_of(hub))
        hub.do(hub.hub._inbox.call(log.publish))
        now = Answer.parse(hub.ask("GET", "/v1/log")[2]).checkpoint
        assert now.size == before.size and not before.is_signed_by(other.key)
        assert now.is_signed_by(other.key) and now.is_signed_by(signer_of(hub).key)


TOKENS = dict(tokens=1, interactions=1, mechanism="piecewise", cohort=100)


def is_bought(hub, one, epoch=1):
    """Synchronise until the device has a token of the key on sale; every synchronisation has to end well."""
    for _ in range(60):
        assert synced(one).state is State.OK
        held = one._conversation._wallet.find(hub.hub.terms.hub, epoch)
        if held is not None and held.token and held.offer == hub.hub.row.issuer._epochs[epoch].offer:
            return True
    return False


@pytest.mark.slow
def test_a_device_that_missed_the_first_of_two_changes_buys_anew(tmp_path):
    with LocalHub(tmp_path / "hub", **TOKENS) as hub:
        one = device(hub, tmp_path / "one")
        assert is_bought(hub, one)
        rotate(hub, "issuer")
        rotate(hub, "issuer")
        assert is_bought(hub, one)


@pytest.mark.slow
def test_a_device_that_comes_after_both_changes_uses_the_model_and_shows_nothing(tmp_path):
    with LocalHub(tmp_path / "hub", **TOKENS) as hub:
        one = device(hub, tmp_path / "one")
        assert is_bought(hub, one)
        rotate(hub, "issuer")
        rotate(hub, "issuer")
        other = device(hub, tmp_path / "other")  # an epoch without sales draws nothing
        assert is_bought(hub, other)
        hub.next_round()
        assert synced(one).state is State.OK and one._memory.round.number == 1
        assert is_bought(hub, one, 2)


@pytest.mark.slow
def test_a_request_of_a_key_that_was_changed_is_given_up_once_its_epoch_is_open(tmp_path):
    with LocalHub(tmp_path / "hub", **TOKENS) as hub:
        lost = lambda path, *answer: (503, {}, b"") if path.startswith("/v1/token/") else answer  # noqa: E731
        one = device(hub, tmp_path / "one", lost)
        for _ in range(60):
            synced(one)
            if (held := one._conversation._wallet.find(hub.hub.terms.hub, 1)) is not None:
                break
        assert held.pending is not None
        one._connection.twist = None
        rotate(hub, "issuer")
        rotate(hub, "issuer")
        hub.next_round()
        assert synced(one).state is State.OK and one._memory.round.number == 1
        held = one._conversation._wallet.find(hub.hub.terms.hub, 1)
        assert held is None or (held.pending is None and held.token is None)


def refuse(why):
    def request(_):
        raise HubRefusedError(why)

    return request


@pytest.mark.slow
def test_a_fresh_process_leaves_through_the_hubs_gateway_alone_though_its_key_changed(tmp_path):
    with relayed(tmp_path, tokens=1, batch=1) as world:
        one = world.device("one")
        assert one.sync().state == "OK"
        token, keys, before = one._memory.token, world.hub.row.keys, world.app._gateway.public
        one._connection.leave = refuse("leaving: status 503")
        assert not one.leave()
        one.close()
        two, left = world.device("one"), []
        send = two._connection.leave
        two._connection.leave = lambda token: left.append(two._connection.gateway_key) or send(token)
        two._connection._relays = lambda: (public_key_of(bytes(range(32))), 1)  # the relay names a thief's key
        two._connection.log = refuse("log: status 503")  # and whoever has it answers nothing of the hub's
        two._conversation.backoff.reset()
        assert two.sync().state == "RETRY" and left == []
        del two._connection._relays, two._connection.log
        keys._settings = dataclasses.replace(world.hub.settings, overlap_days=0.0)
        for job in (
            world.hub._inbox.call(ask, world.hub, keys._folder, "gateway"),
            world.hub.renew(),
            world.hub.renew(),
        ):
            asyncio.run_coroutine_threadsafe(job, world.hub._inbox.loop).result(10)
        for _ in range(4):
            two._conversation.backoff.reset()
            two.sync()
        assert two._memory.leaving is None and world.hub.device_of(token) is None
        assert left == [before, world.app._gateway.public]  # the first is over: its refusal has the log asked
        assert two._memory.outbox.get("leaving_terms") is None
