"""A backup of a hub: all of its files or none, of one moment, and a hub that goes on from it."""

import asyncio
import contextlib
import dataclasses
import functools
import json
import shutil
import sqlite3
import stat
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from hubs import enrolled, make, running, some_messages
from log_worlds import Entries, LocalHub, aimed, cosign, device, entries_of, log_answer, signer_of, synced, witness
from token_worlds import Buyer, next_round, token_app

from fedrank.core.errors import ConfigError, RunError
from fedrank.deploy.device import State
from fedrank.deploy.hub.audit import audit_folder
from fedrank.deploy.hub.folder import HubFolder
from fedrank.deploy.hub.keys import ask_rotation, operator_of
from fedrank.deploy.hub.settings import read_settings
from fedrank.deploy.hub.store import Store, StoreError
from fedrank.deploy.log.note import LOG, Checkpoint, Signer, origin_of
from fedrank.deploy.log.proof import Answer, TooShortError, UnprovenError
from fedrank.deploy.log.tree import (
    GATEWAY_KEY,
    LOG_KEY,
    RECOVERY,
    ROTATION,
    Grown,
    inclusion_proof,
    leaf_hash,
    model_data,
    place_after,
    recovery_entry,
    recovery_statement,
    root,
)
from fedrank.engine.settings import write_settings

X = np.eye(3)


def modes(folder):
    return {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}


def turn_of(hub, devices, rounds):
    """Rounds in which devices buy until they have, search, and report; the number of reports of each that count."""
    for _ in range(rounds):
        sent = 0
        for _ in range(12):
            for one in devices:
                synced(one)
                while one.wants_clicks:
                    ranking = one.rank(X)
                    one.log_click(ranking, 0)
                    one.finish(ranking)
                sent += synced(one).sent
        yield sent
        hub.next_round()


def put_back(hub, folder, out, *devices):
    """The hub of a backup, and devices that speak to it from now on."""
    HubFolder(folder).restore(out, hub.home.path / "operator.key")
    restored = LocalHub.of(out)
    restored.__enter__()
    for one in devices:
        one._connection._hub = restored
    return restored


@pytest.mark.slow
def test_devices_from_before_and_after_a_backup_go_on_with_the_hub_that_is_put_back(tmp_path):
    with LocalHub(tmp_path / "hub") as hub:
        early, late = device(hub, tmp_path / "early"), device(hub, tmp_path / "late")
        for _ in range(3):
            hub.next_round()
        for one in (early, late):
            assert synced(one).state is State.OK
        names = hub.home.back_up(tmp_path / "copy")
        round_ = hub.hub.view.round
        hub.do(hub.hub.report(round_, 1, some_messages(hub.hub, 1)[0]))  # lost; without it the rounds would be the same
        for _ in range(40):  # more than the end of the log that every answer has
            hub.next_round()
        assert synced(late).state is State.OK  # it has seen a model that the backup does not have
        after = device(hub, tmp_path / "after")
        assert synced(after).state is State.OK and after.rank(X).learning
    assert names == ["admin.token", "backup", "enrolment.token", "hub.db", "hub.toml", "log.key"]
    assert set(modes(tmp_path / "copy").values()) == {0o600}
    assert stat.S_IMODE((tmp_path / "copy").stat().st_mode) == 0o700
    with pytest.raises(RunError, match="backup"):
        HubFolder(tmp_path / "copy").open()
    restored = put_back(hub, tmp_path / "copy", tmp_path / "restored", early, late, after)
    assert restored.hub.view.round == round_
    when = audit_folder(tmp_path / "restored").put_back
    assert len(when) == 1
    for number, one in (
        (round_, early),
        (round_, late),
        (round_ + 60, early),
        (round_ + 60, late),
        (round_ + 60, after),
    ):
        while restored.hub.view.round < number:
            restored.next_round()
        told = synced(one)
        if told.state is State.RETRY:  # one that enrolled after the backup is not known, and enrols again
            told = synced(one)
        assert told.state is State.OK and one._memory.round.number == number
        if (number, one) != (round_, early):  # its model is still the newest
            assert one.privacy()["put_back"] == list(when)
    ((_, before, now),) = late._conversation.prover.recoveries(late._memory.terms)
    key = signer_of(restored).key
    for note in (before, now):
        assert Checkpoint.parse(note).is_signed_by(key)
    assert not late._conversation.prover.conflicts(late._memory.terms)
    assert audit_folder(tmp_path / "restored").wrong == []
    restored.__exit__()
    for one in (early, late, after):
        one.close()


@pytest.mark.slow
def test_an_entry_excuses_one_way_back_and_no_other_log_after_it(tmp_path):
    """Whoever has the log's key shows a device another log that has the very entry that the device knows."""
    with LocalHub(tmp_path / "hub") as hub:
        one = device(hub, tmp_path / "d")
        assert synced(one).state is State.OK
        hub.home.back_up(tmp_path / "copy")
        hub.next_round()
        assert synced(one).state is State.OK
    restored = put_back(hub, tmp_path / "copy", tmp_path / "restored", one)
    for _ in range(3):
        restored.next_round()
        assert synced(one).state is State.OK
    entries = entries_of(restored)
    entries[-1] = b"\x02" + model_data(aimed(restored))
    (number,) = (n for n, entry in enumerate(entries) if entry[0] == RECOVERY)
    signer = signer_of(restored)
    fork, _ = log_answer(entries, signer, notices=[number])
    terms, trust = one._memory.terms, one._conversation.prover._trust
    with pytest.raises(UnprovenError, match="different people"):
        fork.check(terms, one._conversation.prover.seen(terms), trust)
    told = ((number, recovery_entry(2**40), fork.notices[0][2]),)
    head = Checkpoint.of(signer.key.name, len(entries), fork.checkpoint.root, [told[0][:2]])
    head = Checkpoint.parse(head.with_lines(signer.line(head)))
    later = dataclasses.replace(fork, checkpoint=head, notices=told)
    with pytest.raises(UnprovenError, match="nothing proves"):  # one that is not in the log
        later.check(terms, one._conversation.prover.seen(terms), trust)
    restored.__exit__()
    one.close()


def put_back_answer(entries, signer, when, tail=0, operator=None):
    """An answer about a log with these entries that says that it was put back, before its newest model."""
    entry, node, number = recovery_entry(when), Entries(entries).node, len(entries) - 1
    if operator is not None:
        place = place_after(number, root(node, number))
        hub = signer.key.name.removeprefix("fedrank/")
        entry += operator.sign(recovery_statement(hub, entry, place, signer.key.public))
    entries, before = [*entries[:-1], entry, entries[-1]], Grown()
    for entry in entries[:tail]:
        before.append(leaf_hash(entry))
    whole, _ = log_answer(entries, signer, notices=[number])
    return dataclasses.replace(whole, frontier=before.frontier, entries=tuple(entries[tail:]))


def test_a_log_that_was_put_back_begins_with_the_terms_and_is_not_of_the_future(tmp_path):
    now = 1_700_000_000
    with LocalHub(tmp_path / "hub") as hub:
        one = device(hub, tmp_path / "d")
        hub.next_round()
        assert synced(one).state is State.OK
        terms, prover, signer = one._memory.terms, one._conversation.prover, signer_of(hub)
        seen, entries = prover.seen(terms), entries_of(hub)
        operator = operator_of(hub.home.path / "operator.key", terms)
        said = functools.partial(put_back_answer, operator=operator)

        def checked(answer):
            return answer.check(terms, seen, prover._trust, now)

        assert checked(said(entries, signer, now + 86_399)).recovered == now + 86_399
        for wrong in (put_back_answer(entries, signer, now), said(entries, signer, now, operator=signer)):
            with pytest.raises(UnprovenError, match="put back"):  # by whoever has the log's key
                checked(wrong)
        with pytest.raises(UnprovenError, match="ahead"):
            checked(said(entries, signer, now + 86_401))
        other = json.loads(entries[0][1:]) | {"sigma": 0.5}
        with pytest.raises(UnprovenError, match="terms"):
            checked(said([b"\x01" + json.dumps(other).encode(), *entries[1:]], signer, now))
        with pytest.raises(TooShortError) as short:
            checked(said(entries, signer, now, tail=1))
        assert short.value.size == 0
        for first, right in ((entries[0], True), (b"\x01" + json.dumps(other).encode(), False)):
            tail = said([first, *entries[1:]], signer, now, tail=1)
            tree = Entries([first, *entries[1:-1], tail.notices[0][1], entries[-1]])
            proof = tuple(inclusion_proof(tree.node, 0, len(entries) + 1))
            asked = dataclasses.replace(tail, terms=first, proof=proof)
            with contextlib.nullcontext() if right else pytest.raises(UnprovenError, match="terms"):
                assert checked(asked).recovered == now
        one.close()


def ask(hub, folder):
    """What ``fedrank hub rotate`` does."""
    ask_rotation(folder, hub.store, hub.terms, LOG_KEY, folder / "operator.key")


def test_what_an_operator_signed_is_for_one_place_and_no_other_log(tmp_path):
    """It is public: whoever has a key of the log that another took the place of has it too."""
    with LocalHub(tmp_path / "hub") as hub:
        old, one = signer_of(hub), device(hub, tmp_path / "d")
        hub.do(hub.hub._inbox.call(ask, hub.hub, hub.home.path))
        hub.do(hub.hub.renew())
        hub.next_round()
        assert synced(one).state is State.OK
        hub.home.back_up(tmp_path / "copy")
        terms, prover, entries = one._memory.terms, one._conversation.prover, entries_of(hub)
        assert prover.seen(terms).keys[LOG_KEY].old == old.key.public
    HubFolder(tmp_path / "copy").restore(tmp_path / "restored", hub.home.path / "operator.key")
    with LocalHub.of(tmp_path / "restored") as restored:
        restored.next_round()
        right = Answer.parse(restored.ask("GET", "/v1/log/0")[2])
        assert right.check(terms, prover.seen(terms), prover._trust).recovered  # where it was signed for
        (_, change, _), (_, permit, _) = right.notices
    assert (change[0], permit[0]) == (ROTATION, RECOVERY)
    before = [entry for entry in entries if entry[0] != ROTATION]
    for place in range(1, len(before)):
        forged, _ = log_answer([*before[:place], permit, *before[place:]], old, notices=[place])
        with pytest.raises(UnprovenError, match="operator"):
            forged.check(terms, prover.seen(terms), prover._trust)
    one.close()


def test_of_many_times_that_a_hub_was_put_back_the_first_and_the_newest_are_kept(tmp_path):
    with LocalHub(tmp_path / "hub") as hub:
        one = device(hub, tmp_path / "d")
        assert synced(one).state is State.OK
        prover, terms = one._conversation.prover, one._memory.terms
        first = seen = prover.seen(terms)
        for when in range(1, 41):
            head = dataclasses.replace(seen, recovered=when, note=f"{when}")
            prover._keep(terms, seen, head)
            seen = head
        found = prover.recoveries(terms)
        assert [when for when, *_ in found] == [1, *range(26, 41)] and found[0][1] == first.note
        one.close()


def test_a_device_that_ends_as_its_hub_was_put_back_has_all_of_it_or_nothing(tmp_path, monkeypatch):
    with LocalHub(tmp_path / "hub", tokens=1, interactions=1, mechanism="piecewise") as hub:
        one = device(hub, tmp_path / "d")
        assert synced(one).state is State.OK
        prover, terms = one._conversation.prover, one._memory.terms
        tokens = "SELECT count(*) FROM epoch_token"
        while one._memory.outbox.execute(tokens) == [(0,)]:  # what is sold is known a moment after the hub answers
            synced(one)
        seen, ((bought,),) = prover.seen(terms), one._memory.outbox.execute(tokens)
        after = dataclasses.replace(seen, recovered=1_700_000_000)

        def end(*_):
            raise SystemExit

        with monkeypatch.context() as patched:
            patched.setattr("fedrank.deploy.oblivious.tokens.Wallet.forget", end)
            with pytest.raises(SystemExit):
                prover._keep(terms, seen, after)
        assert prover.seen(terms).recovered == 0 and prover.recoveries(terms) == []
        assert one._memory.outbox.execute(tokens) == [(bought,)]
        prover._keep(terms, seen, after)
        assert prover.seen(terms).recovered == 1_700_000_000 and len(prover.recoveries(terms)) == 1
        assert one._memory.outbox.execute(tokens) == [(0,)] and bought == 1
        one.close()


@pytest.mark.slow
def test_a_witness_goes_on_with_a_log_that_was_put_back_only_where_its_operator_says_so(tmp_path):
    with LocalHub(tmp_path / "hub") as hub:
        watching = witness(tmp_path / "witness", hub)
        one = device(hub, tmp_path / "d", witnesses=[str(watching.key)])
        hub.home.back_up(tmp_path / "copy")
        for _ in range(2):
            hub.next_round()
        cosign(hub, watching)
        assert synced(one).state is State.OK
        before = watching.heads()
    restored = put_back(hub, tmp_path / "copy", tmp_path / "restored", one)
    one._memory.outbox.put(token=None)  # it enrolled after the backup
    one._memory.load()
    with pytest.raises(AssertionError):
        cosign(restored, watching)
    assert watching.heads() == before and synced(one).state is State.UNPROVEN
    with pytest.raises(ConfigError, match="not watched"):
        watching.begin_anew(str(Signer(origin_of("0" * 32), LOG, bytes(32)).key))
    assert watching.begin_anew(str(signer_of(restored).key)) == before[0] and watching.put_back() == []
    cosign(restored, watching)
    assert watching.put_back() == [(origin_of(restored.hub.terms.hub), before[0], watching.heads()[0])]
    assert synced(one).state is State.OK and len(one.privacy()["put_back"]) == 1
    restored.__exit__()
    one.close()
    watching.close()


@pytest.mark.slow
def test_tokens_of_open_epochs_are_void_after_a_hub_was_put_back(tmp_path):
    """Neither one that was spent after the backup counts again, nor one that was sold for the next epoch."""

    async def before():
        app = token_app(home)
        await app._hub.start()
        buyers = [Buyer(app) for _ in range(3)]
        sold = {1: [], 2: []}
        for one in buyers:
            await one.enrol()
        for epoch in (1, 2):
            for one in buyers:
                sold[epoch].append(await one.buy(epoch))
            if epoch == 1:
                await next_round(app._hub)
        home.back_up(tmp_path / "copy")
        answers = [await buyers[0].report(1, token, some_messages(app._hub, 1)[0]) for token in sold[1]]
        assert [code for code, _ in answers] == [201] * 3
        offers = [app._issuer._epochs[epoch].offer for epoch in (1, 2)]
        await app._hub.stop()
        return sold, offers

    async def after(sold, offers):
        app = token_app(HubFolder(tmp_path / "restored"))
        hub = app._hub
        await hub.start()
        one = Buyer(app)
        await one.enrol()
        assert (await one.offer())[0] == 2 and (await one.offer())[1] not in offers
        answers = [await one.report(1, token, some_messages(hub, 1)[0]) for token in sold[1]]
        fresh = await one.buy(2)
        await next_round(hub)
        answers += [await one.report(2, token, some_messages(hub, 1)[0]) for token in sold[2]]
        assert {code for code, _ in answers} == {401}
        assert (await one.report(2, fresh, some_messages(hub, 1)[0]))[0] == 201
        await next_round(hub)
        await hub.stop()

    home = make(tmp_path / "hub", cohort=100, tokens=1)
    sold, offers = asyncio.run(before())
    HubFolder(tmp_path / "copy").restore(tmp_path / "restored", home.path / "operator.key")
    asyncio.run(after(sold, offers))
    assert audit_folder(tmp_path / "restored").wrong == []


def test_a_backup_of_a_hub_at_work_has_every_report_that_was_acknowledged_before_it(tmp_path):
    home = make(tmp_path / "hub", cohort=100_000)
    before = []

    async def story():
        async with running(home) as hub:
            devices = await enrolled(hub, 300)
            sent = some_messages(hub, 300)
            for number, message in zip(devices[:100], sent[:100], strict=True):
                await hub.report(0, number, message)
                before.append(number)
            copying = asyncio.create_task(asyncio.to_thread(home.back_up, tmp_path / "copy"))
            for number, message in zip(devices[100:], sent[100:], strict=True):
                await hub.report(0, number, message)
            await copying

    asyncio.run(story())
    with sqlite3.connect(tmp_path / "copy" / "hub.db") as db:
        kept = {device for (device,) in db.execute("SELECT device FROM report")}
    assert set(before) <= kept


@pytest.mark.slow
def test_devices_with_tokens_buy_and_report_again_after_their_hub_was_put_back(tmp_path):
    settings = dict(tokens=1, interactions=1, mechanism="piecewise", cohort=100)
    with LocalHub(tmp_path / "hub", **settings) as hub:
        devices = [device(hub, tmp_path / f"d{n}") for n in range(3)]
        assert sum(turn_of(hub, devices, 4)) >= 3
        hub.home.back_up(tmp_path / "copy")
        assert sum(turn_of(hub, devices, 3)) >= 3
    restored = put_back(hub, tmp_path / "copy", tmp_path / "restored", *devices)
    counted = sum(turn_of(restored, devices, 8))
    assert counted >= 3 and audit_folder(tmp_path / "restored").wrong == []
    restored.__exit__()
    for one in devices:
        assert len(one.privacy()["put_back"]) == 1
        one.close()


def test_a_backup_has_the_gateways_key(tmp_path):
    home = make(tmp_path / "hub", cohort=100, tokens=1, batch=2)
    (home.path / "attestation.toml").write_text("")
    assert home.back_up(tmp_path / "copy") == sorted(
        ["admin.token", "attestation.toml", "backup", "enrolment.token", "gateway.key", "hub.db", "hub.toml", "log.key"]
    )
    assert (tmp_path / "copy" / "gateway.key").read_text() == (home.path / "gateway.key").read_text()


def test_a_backup_is_never_written_over(tmp_path):
    home = make(tmp_path / "hub")
    (tmp_path / "copy").mkdir()
    with pytest.raises(ConfigError, match="exists"):
        home.back_up(tmp_path / "copy")
    assert list((tmp_path / "copy").iterdir()) == []


def test_only_a_backup_is_restored(tmp_path):
    home = make(tmp_path / "hub")
    with pytest.raises(ConfigError, match="is no backup"):
        home.restore(tmp_path / "second")
    assert not (tmp_path / "second").exists()


def test_a_backup_is_restored_into_an_empty_folder_that_stays_the_one_it_was(tmp_path):
    """As a volume is one: no folder can take its place."""
    home, out = make(tmp_path / "hub"), tmp_path / "volume"
    home.back_up(tmp_path / "copy")
    out.mkdir()
    (out / "other").touch()
    with pytest.raises(ConfigError, match="exists"):
        HubFolder(tmp_path / "copy").restore(out, home.path / "operator.key")
    (out / "other").unlink()
    before = out.stat().st_ino
    HubFolder(tmp_path / "copy").restore(out, home.path / "operator.key")
    assert out.stat().st_ino == before and set(modes(out)) == set(modes(tmp_path / "copy")) - {"backup"}
    HubFolder(out).open()[1].close()
    assert len(audit_folder(out).put_back) == 1
    assert {path.name for path in tmp_path.iterdir()} == {"hub", "copy", "volume"}


def test_a_backup_that_fails_leaves_nothing(tmp_path):
    for broken in ["log.key", "admin.token", "gateway.key", "hub.db"]:
        home = make(tmp_path / "hub", cohort=100, tokens=1, batch=2)
        if broken == "hub.db":
            with open(home.log, "r+b") as file:
                file.seek(5000)
                file.write(b"\xff" * 3000)
        else:
            (home.path / broken).unlink()
        with pytest.raises(RunError):
            home.back_up(tmp_path / "copies" / "copy")
        assert not (tmp_path / "copies").exists() or list((tmp_path / "copies").iterdir()) == []


SOLD = dict(tokens=1, interactions=1, mechanism="piecewise", cohort=100)


def lost(folder):
    """Take the hub's disk away: what it writes from now on is gone too."""
    shutil.rmtree(folder)


@pytest.mark.slow
def test_a_hub_whose_disk_is_lost_goes_on_from_its_copy_without_a_recovery(tmp_path):
    """Devices have seen the newest head, bought and spent since: they go on, and no token counts twice."""
    with LocalHub(tmp_path / "hub", copy_to=str(tmp_path / "copy"), **SOLD) as hub:
        assert hub.hub.status()["copy"] == "folder"
        devices = [device(hub, tmp_path / f"d{n}") for n in range(3)]
        assert sum(turn_of(hub, devices, 4)) >= 3
        for one in devices:  # they buy and spend after the newest head
            for _ in range(12):
                synced(one)
        terms = devices[0]._memory.terms
        newest = devices[0]._conversation.prover.seen(terms)
        offered = hub.hub.row.issuer.on_sale()[1]
        lost(tmp_path / "hub")
    assert HubFolder(tmp_path / "copy").restore(tmp_path / "restored", has_every_head=True) is None
    restored = LocalHub.of(tmp_path / "restored")
    restored.__enter__()
    assert restored.hub.row.publishing._shown.head.size >= newest.size
    for one in devices:
        one._connection._hub = restored
    assert sum(turn_of(restored, devices, 6)) >= 3
    assert restored.hub.row.issuer.on_sale()[1] != offered
    found = audit_folder(tmp_path / "restored")
    assert (found.wrong, found.put_back) == ([], ())
    for one in devices:
        assert one.privacy()["put_back"] == []
        one.close()
    restored.__exit__()


@pytest.mark.slow
def test_no_head_is_shown_that_the_copy_does_not_have(tmp_path):
    with LocalHub(tmp_path / "hub", copy_to=str(tmp_path / "copy")) as hub:
        hub.next_round()
        log, shown = hub.hub.row.publishing, []
        for _ in range(4):
            with contextlib.closing(sqlite3.connect(tmp_path / "copy" / "hub.db")) as db:
                shown.append(log._shown.head.size)
                assert db.execute("SELECT count(*) FROM entry").fetchone()[0] >= shown[-1]
            hub.next_round()
        (tmp_path / "copy").rename(tmp_path / "away")  # its disk goes: the round ends, and nothing new is shown
        before = log._shown.head.size
        assert hub.do(hub.hub._inbox.call(lambda: True))
        closing = asyncio.run_coroutine_threadsafe(hub.hub.close_round(empty=True), hub.loop)
        for _ in range(100):
            if not hub.hub.healthy:
                break
            hub.do(asyncio.sleep(0.05))
        assert not hub.hub.healthy and log._shown.head.size == before and hub.hub.view.state == "between"
        (tmp_path / "away").rename(tmp_path / "copy")
        closing.result(30)
        hub.do(hub.hub.wait_for_round(10))
        assert hub.hub.healthy and hub.hub.view.state == "open" and log._shown.head.size > before
        round_ = hub.hub.view.round
    assert set(modes(tmp_path / "copy").values()) == {0o600}
    HubFolder(tmp_path / "copy").restore(tmp_path / "restored", has_every_head=True)
    with LocalHub.of(tmp_path / "restored") as restored:
        assert restored.hub.view.round == round_


_SERVE = """
import asyncio, sys
from fedrank.deploy.hub.folder import HubFolder
from fedrank.deploy.hub.hub import Hub

async def main():
    home = HubFolder(sys.argv[1])
    settings, store = home.open()
    hub = Hub(home.path, store, settings)
    await hub.start()
    while True:
        await hub.close_round(empty=True)
        await hub.wait_for_round(10)
        log = hub.row.publishing._shown
        print(log.head.with_lines(log.line).encode().hex(), flush=True)

asyncio.run(main())
"""


@pytest.mark.slow
def test_a_copy_has_every_head_whenever_the_hub_is_killed(tmp_path):
    """Killed at any moment, its disk lost at once: the copy is whole and has the head that was shown last."""
    for turn in range(6):
        folder, copy, out = (tmp_path / f"{name}{turn}" for name in ("hub", "copy", "out"))
        make(folder, copy_to=str(copy))
        process = subprocess.Popen([sys.executable, "-c", _SERVE, str(folder)], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        shown = [process.stdout.readline()]
        time.sleep(0.05 + 0.037 * turn)
        process.kill()
        shown += process.stdout.read().splitlines()
        process.wait()
        lost(folder)
        HubFolder(copy).restore(out, has_every_head=True)
        head = Checkpoint.parse(bytes.fromhex([line for line in shown if line.strip()][-1]).decode())
        _, store = HubFolder(out).open(read_only=True)
        with contextlib.closing(store):
            assert store.log_size() >= head.size and root(store.log_node, head.size) == head.root
        with LocalHub.of(out) as restored:
            restored.next_round()
        assert audit_folder(out).wrong == []


def update(home):
    """Copy a hub that does not run, as it does before it shows a head."""
    settings, store = home.open(read_only=True)
    with contextlib.closing(store):
        home.update_copy(Path(settings.copy_to), store.copied_to()[1])


def edit(home, **settings):
    """Write settings into a stopped hub's ``hub.toml``, as an operator does with an editor."""
    write_settings(home.settings, dataclasses.replace(read_settings(home.settings), **settings), "A hub.")


def start(home):
    """What ``fedrank hub serve`` does first, with the settings of hub.toml."""
    home.prepare(read_settings(home.settings))


def test_a_copy_that_is_not_one_any_more_needs_the_operator(tmp_path):
    copy = tmp_path / "copy"
    home = make(tmp_path / "hub", copy_to=str(copy))
    update(home)
    make(tmp_path / "hub", copy_to=str(tmp_path / "second"))
    for claim in (False, True):
        with pytest.raises(ConfigError, match="operator"):
            HubFolder(copy).restore(tmp_path / "restored", has_every_head=claim)
    with pytest.raises(RunError, match="mounted"):
        home.update_copy(copy, "")
    with pytest.raises(ConfigError, match="other things"):
        make(tmp_path / "hub", copy_to=str(copy))
    settings = read_settings(home.settings)
    for wrong in ({"log": "no"}, {"database": "postgresql:///hub"}):
        with pytest.raises(ConfigError, match="copy_to"):
            dataclasses.replace(settings, operator="", **wrong)


@pytest.mark.parametrize("then", ["", "second"])
def test_a_copy_that_was_changed_in_the_settings_by_hand_is_one_no_more(tmp_path, then):
    home, copy = make(tmp_path / "hub", copy_to=str(tmp_path / "copy")), tmp_path / "copy"
    update(home)
    edit(home, copy_to=then and str(tmp_path / then))
    start(home)
    with pytest.raises(ConfigError, match="operator"):
        HubFolder(copy).restore(tmp_path / "restored", has_every_head=True)


def test_a_copy_is_restored_without_the_operator_only_by_who_says_that_it_has_every_head(tmp_path):
    """A copy of the copy looks the same: the newest head that it has is shown, and nothing is made."""
    home, copy = make(tmp_path / "hub", copy_to=str(tmp_path / "copy")), tmp_path / "copy"
    update(home)
    _, store = home.open(read_only=True)
    with contextlib.closing(store):
        size = store.log_size()
    with pytest.raises(ConfigError, match=f"{size} entries, of 20"):
        HubFolder(copy).restore(tmp_path / "restored")
    assert not (tmp_path / "restored").exists()
    home.back_up(tmp_path / "backup")
    with pytest.raises(ConfigError, match="has-every-head"):
        HubFolder(tmp_path / "backup").restore(tmp_path / "restored", has_every_head=True)


@pytest.mark.slow
def test_a_lost_hub_that_comes_back_shows_no_further_head(tmp_path):
    """Restored from its copy, both would write into one copy and sign two logs: the former is refused."""
    copy = tmp_path / "copy"
    with LocalHub(tmp_path / "hub", copy_to=str(copy)) as old:
        old.next_round()
        shown = old.hub.row.publishing._shown.head.size
        HubFolder(copy).restore(tmp_path / "restored", has_every_head=True)
        with LocalHub.of(tmp_path / "restored") as restored:
            restored.next_round()
            whole = (copy / "hub.db").read_bytes()
            asyncio.run_coroutine_threadsafe(old.hub.close_round(empty=True), old.loop)
            for _ in range(100):
                if not old.hub.healthy:
                    break
                old.do(asyncio.sleep(0.05))
            assert old.hub.row.publishing._shown.head.size == shown < restored.hub.row.publishing._shown.head.size
            assert (copy / "hub.db").read_bytes() == whole
    start(HubFolder(tmp_path / "hub"))
    with pytest.raises(RunError, match="restored"), LocalHub.of(tmp_path / "hub"):
        pass


def test_a_start_that_failed_can_be_repeated(tmp_path, monkeypatch):
    """Whichever step of a start with a copy is the last one, the next start finds its own mark, and goes on."""
    for turn, name in enumerate(("write_settings", "begin_copy")):
        home, copy = HubFolder(tmp_path / f"hub{turn}"), tmp_path / f"copy{turn}"
        with pytest.raises(ConfigError):
            make(home.path, copy_to=str(copy), n_features=0)
        assert not copy.exists()  # settings that cannot be used leave nothing behind
        with monkeypatch.context() as patched:
            if name == "begin_copy":
                patched.setattr(Store, name, failing)
            else:
                patched.setattr(f"fedrank.deploy.hub.folder.{name}", failing)
            with pytest.raises(RunError, match="power"):
                make(home.path, copy_to=str(copy))
        make(home.path, copy_to=str(copy))
        update(home)
        (tmp_path / f"second{turn}").mkdir()
        with monkeypatch.context() as patched, contextlib.suppress(RunError):
            patched.setattr("fedrank.deploy.hub.folder.write_settings", failing)
            make(home.path, copy_to=str(tmp_path / f"second{turn}"))
        start(home)
        update(home)  # the former copy still is one
        make(home.path, copy_to=str(tmp_path / f"second{turn}"))
        update(home)
        assert not (copy / "copy").exists()


def failing(*_):
    """A step at which the power fails."""
    raise RunError("power")


def test_a_copy_is_elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for wrong in ("hub", "hub/copy", "."):
        with pytest.raises(ConfigError, match="copy_to"):
            make(tmp_path / "hub", copy_to=wrong)
    home = make(tmp_path / "hub", copy_to="copy")
    assert read_settings(home.settings).copy_to == str(tmp_path / "copy")
    assert stat.S_IMODE((tmp_path / "copy").stat().st_mode) == 0o700


def test_nothing_of_a_copy_that_failed_stays(tmp_path, monkeypatch):
    home, copy = make(tmp_path / "hub", copy_to=str(tmp_path / "copy")), tmp_path / "copy"
    (copy / "gateway.key.7.partial").write_text("00" * 32)
    update(home)
    assert not list(copy.glob("*.partial"))
    before = (copy / "hub.db").read_bytes()
    with monkeypatch.context() as patched, pytest.raises(StoreError, match="heads wait"):
        patched.setattr("fedrank.deploy.hub.folder.write_atomically", failing)
        update(home)
    assert not list(copy.glob("*.partial")) and (copy / "hub.db").read_bytes() == before


def until(hub, condition):
    """Wait until a condition holds, 10 s at most; whether it does."""
    for _ in range(200):
        if condition():
            return True
        hub.do(asyncio.sleep(0.05))
    return False


@pytest.mark.slow
def test_a_head_that_waits_is_said_until_it_is_shown_and_is_shown_once_the_copy_is_back(tmp_path):
    """A gateway's key changes while the copy is away: enrolments are written meanwhile, and end nothing of it."""
    copy = tmp_path / "copy"
    with LocalHub(tmp_path / "hub", copy_to=str(copy), batch=2, **SOLD) as hub:
        log, (_, store) = hub.hub.row.publishing, hub.home.open()
        before = log._shown.head.size
        copy.rename(tmp_path / "away")
        with contextlib.closing(store):
            ask_rotation(hub.home.path, store, hub.hub.terms, GATEWAY_KEY, Path())
        with contextlib.suppress(StoreError):
            hub.do(hub.hub.renew())
        for _ in range(3):
            hub.do(hub.hub.enrol())
        assert hub.hub.healthy and hub.hub.status()["copy_waits"] and log._shown.head.size == before
        (tmp_path / "away").rename(copy)
        assert until(hub, lambda: log._shown.head.size > before)  # without a round, a key or a restart
        assert not hub.hub.status()["copy_waits"]
        assert hub.hub.status()["copy_bytes"] == (copy / "hub.db").stat().st_size


@pytest.mark.slow
def test_a_key_that_was_destroyed_is_not_in_the_copy_any_more(tmp_path):
    copy = tmp_path / "copy"
    with LocalHub(tmp_path / "hub", copy_to=str(copy), batch=2, overlap_days=1e-5, **SOLD) as hub:
        _, store = hub.home.open()
        assert (copy / "gateway.key").exists()
        with contextlib.closing(store):
            ask_rotation(hub.home.path, store, hub.hub.terms, GATEWAY_KEY, Path())
        hub.do(hub.hub.renew())
        assert until(hub, lambda: not (copy / "gateway.key").exists())
        assert not (hub.home.path / "gateway.key").exists()


@pytest.mark.slow
def test_tokens_that_a_restore_voids_are_of_the_epoch_on_sale_though_its_round_is_over(tmp_path):
    """The deadline passed while the hub was lost: its round ends at once, after the issuer's key was changed."""
    with LocalHub(tmp_path / "hub", copy_to=str(tmp_path / "copy"), deadline=1.0, least=1, **SOLD) as hub:
        epoch, offered = hub.hub.row.issuer.on_sale()
        until(hub, lambda: (tmp_path / "copy" / "hub.db").exists())
        lost(tmp_path / "hub")
    HubFolder(tmp_path / "copy").restore(tmp_path / "restored", has_every_head=True)
    time.sleep(1.2)
    with LocalHub.of(tmp_path / "restored") as restored:
        assert until(restored, lambda: restored.hub.view.round > 0)
        _, store = restored.home.open(read_only=True)
        with contextlib.closing(store):
            now = {number: offer for number, offer, *_ in store.issuer_keys()}
    assert now[epoch] != offered
