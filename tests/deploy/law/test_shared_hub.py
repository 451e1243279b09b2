"""Several hub processes on one PostgreSQL server: what counts, who leads, and what survives a leader or the server."""

import asyncio
import contextlib
import json
import shutil
import subprocess
import time

import numpy as np
import postgres_server
import pytest
from check_rounds import one_round, until_halted
from hubs import enrolled, make, message, opened, some_messages
from token_worlds import Buyer, next_round, round_of, token_app

from fedrank.core.errors import ConfigError, RunError
from fedrank.deploy.draws import DUE, beacon_of, drawn
from fedrank.deploy.hub.admission import Credentials, NotAdmittedError
from fedrank.deploy.hub.attestation import Challenges, NotAttestedError
from fedrank.deploy.hub.audit import audit_folder, replay_log
from fedrank.deploy.hub.folder import HubFolder
from fedrank.deploy.hub.keys import WHAT, ask_rotation
from fedrank.deploy.hub.stages import Outcome
from fedrank.deploy.hub.store import (
    STEPS,
    Admitted,
    ClosedError,
    CountedError,
    DeposedError,
    Purchase,
    Store,
    StoreError,
)
from fedrank.deploy.log.proof import Answer

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(postgres_server.why_not()), reason=postgres_server.why_not() or "there is one"),
]
ACCEPTED, ALREADY = Outcome.ACCEPTED, Outcome.ALREADY


@pytest.fixture(scope="module")
def server():
    with postgres_server.Server() as started:
        yield started


@pytest.fixture
def url(server, request):
    name = "t" + str(abs(hash(request.node.name)))
    return server.database(name)


def folders(tmp_path, url, count=2, **settings):
    """Folders of processes of one hub."""
    homes = [make(tmp_path / "0", database=url, **settings)]
    for number in range(1, count):
        (tmp_path / str(number)).mkdir()
        for name in ("enrolment.token", "admin.token", "log.key", "gateway.key"):
            if (tmp_path / "0" / name).exists():
                shutil.copy(tmp_path / "0" / name, tmp_path / str(number) / name)
        homes.append(make(tmp_path / str(number), database=url, **settings))
    return homes


@contextlib.asynccontextmanager
async def processes(homes):
    """Hubs of these folders, the first of which leads."""
    from fedrank.deploy.hub.service import hub_app

    hubs = []
    try:
        for home in homes:
            hubs.append(hub_app(home)[0])
            await hubs[-1].start()
        yield hubs
    finally:
        for hub in hubs:
            await hub.stop()


async def becomes(true, seconds=15.0):
    for _ in range(int(seconds / 0.02)):
        if true():
            return
        await asyncio.sleep(0.02)
    raise AssertionError("it never came")


def vanish(hub):
    """Cut a process from the database as kill -9 does: its connections end, and it does nothing more."""
    hub._look = hub._close = lambda *_: None
    hub.store._db._server.close()
    hub.store._db._tried = float("inf")


def table(url, query):
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        return connection.execute(query).fetchall()


def test_reports_at_any_process_make_the_model_that_one_process_makes(tmp_path, url):
    homes = folders(tmp_path, url)
    alone = make(tmp_path / "alone")

    async def story():
        from hubs import running

        async with processes(homes) as hubs, running(alone) as single:
            devices = await enrolled(hubs[0], 2) + await enrolled(hubs[1], 2)
            assert devices == await enrolled(single, 4)
            for round_ in range(3):
                for i, (device, sent) in enumerate(zip(devices, some_messages(single, 4, round_), strict=True)):
                    assert await hubs[i % 2].report(round_, device, sent) is ACCEPTED
                    assert await single.report(round_, device, sent) is ACCEPTED
                for hub in (*hubs, single):
                    await opened(hub, round_ + 1)
            assert [hub.leads for hub in hubs] == [True, False]
            assert hubs[0].view.model == hubs[1].view.model == single.view.model
            assert hubs[0].view.etag == hubs[1].view.etag
            status = [hub.status() for hub in hubs]
            assert status[0]["history"] == status[1]["history"] and status[1]["applied"] == 3

    asyncio.run(story())
    for home in homes:
        found = replay_log(home.path)
        assert found.proven and (found.rounds, found.reports) == (3, 12)


def test_a_report_counts_once_whichever_process_hears_it(tmp_path, url):
    async def story():
        async with processes(folders(tmp_path, url, cohort=3)) as (one, two):
            devices = await enrolled(one, 3)
            sent, other = some_messages(one, 3), some_messages(one, 3, seed=1)
            results = await asyncio.gather(*(hub.report(0, devices[0], sent[0]) for hub in (one, two) * 5))
            assert sorted(result.value for result in results) == ["accepted", *["already"] * 9]
            assert await two.report(0, devices[0], other[0]) is Outcome.CONFLICT
            for device, message in zip(devices[1:], sent[1:], strict=True):
                await two.report(0, device, message)
            for hub in (one, two):
                await opened(hub, 1)
                assert await hub.report(0, devices[1], sent[1]) is ALREADY  # its answer was lost
                assert await hub.report(0, devices[1], other[1]) is Outcome.STALE

    asyncio.run(story())
    assert table(url, "SELECT round, count(*) FROM report GROUP BY round") == [(0, 3)]


def test_a_device_is_known_everywhere_at_once_and_forgotten_soon(tmp_path, url):
    async def story():
        async with processes(folders(tmp_path, url)) as (one, two):
            tokens = await asyncio.gather(*(hub.enrol() for hub in (one, two) * 10))
            numbers = [two.device_of(token) for token in tokens]
            assert numbers == [one.device_of(token) for token in tokens]
            assert sorted(numbers) == list(range(1, 21))  # no number twice
            assert one.device_of("wrong" * 9) is None
            assert await two.leave(numbers[0])
            await becomes(lambda: one.device_of(tokens[0]) is None, 2.0)
            assert not await one.leave(numbers[0])
            assert table(url, f"SELECT count(*) FROM device WHERE number = {numbers[0]}") == [(0,)]

    asyncio.run(story())


def test_guesses_of_tokens_are_bounded_and_no_honest_token_is_called_wrong(tmp_path, url):
    async def story():
        async with processes(folders(tmp_path, url)) as (one, two):
            token = await one.enrol()
            with pytest.raises(StoreError):  # the answer is 503, not 401
                for guess in range(5000):
                    two.device_of(f"guess {guess}")
            await becomes(
                lambda: token is not None and bool(two.row.admission.devices.find(token)), 2.0
            )  # seen by looking
            assert two.device_of(token) == 1

    asyncio.run(story())


def test_when_the_leader_is_lost_another_closes_and_applies_what_is_due_once(tmp_path, url):
    homes = folders(tmp_path, url, count=3)

    async def story():
        async with processes(homes) as (first, second, third):
            devices = await enrolled(first, 4)
            sent = some_messages(first, 4)
            for device, message in zip(devices[:2], sent, strict=False):
                assert await first.report(0, device, message) is ACCEPTED
            vanish(first)
            for device, message in zip(devices[2:], sent[2:], strict=True):
                assert await third.report(0, device, message) is ACCEPTED
            await opened(second, 1)
            await opened(third, 1)
            assert second.leads != third.leads and second.view.model == third.view.model

    asyncio.run(story())
    assert replay_log(homes[1].path).proven
    assert table(url, "SELECT number, state, reports FROM round ORDER BY number") == [
        (0, "applied", 4),
        (1, "open", None),
    ]


def test_a_round_that_a_leader_closed_and_did_not_apply_is_applied_by_the_next(tmp_path, url):
    homes = folders(tmp_path, url)

    async def story():
        async with processes(homes) as (first, second):
            devices = await enrolled(first, 4)
            first._apply = lambda: vanish(first)
            for device, message in zip(devices, some_messages(first, 4), strict=True):
                assert await first.report(0, device, message) is ACCEPTED
            await opened(second, 1)
            assert second.leads

    asyncio.run(story())
    found = replay_log(homes[1].path)
    assert found.proven and found.reports == 4


def test_a_leader_that_lost_its_lead_writes_nothing_and_follows(tmp_path, url):
    homes = folders(tmp_path, url)

    async def story():
        async with processes(homes) as (first, second):
            devices = await enrolled(first, 4)
            apply = first._apply

            def late():  # between the close and this, its connection broke, and the other one went on
                if first.view.round == 0 and second.view.round == 0:
                    first.store._db._server.close()
                    postgres_server.until(lambda: second.view.round == 1)
                apply()

            first._apply = late
            for device, message in zip(devices, some_messages(first, 4), strict=True):
                assert await first.report(0, device, message) is ACCEPTED
            await opened(second, 1)
            await opened(first, 1)
            assert (first.leads, second.leads) == (
                False,
                True,
            ) and first.view.model == second.view.model
            for device, message in zip(devices, some_messages(first, 4, seed=1), strict=True):
                assert await first.report(1, device, message) is ACCEPTED
            await opened(first, 2)
            assert first.view.model == second.view.model

    asyncio.run(story())
    assert replay_log(homes[0].path).proven


def test_no_report_is_added_to_a_round_that_another_process_has_closed(tmp_path, url):
    async def story():
        async with processes(folders(tmp_path, url)) as (first, second):
            devices = await enrolled(first, 4)
            second._look = lambda: None  # it has not noticed yet
            for device, message in zip(devices, some_messages(first, 4), strict=True):
                await first.report(0, device, message)
            await opened(first, 1)
            (new,) = await enrolled(second, 1)
            assert await second.report(0, new, some_messages(first, 1, seed=7)[0]) is Outcome.BETWEEN
            del second._look
            await opened(second, 1)
            assert await second.report(0, new, some_messages(first, 1, seed=7)[0]) is Outcome.STALE

    asyncio.run(story())
    assert table(url, "SELECT count(*) FROM report WHERE round = 0") == [(4,)]


def test_a_round_that_another_process_handed_out_is_not_too_early(tmp_path, url):
    async def story():
        async with processes(folders(tmp_path, url)) as (first, second):
            devices = await enrolled(first, 4)
            second._look_at += 1e6  # it would not look by itself
            for device, message in zip(devices, some_messages(first, 4), strict=True):
                await first.report(0, device, message)
            await opened(first, 1)
            assert await second.report(1, devices[0], some_messages(first, 1)[0]) is ACCEPTED
            assert await second.report(5, devices[1], some_messages(first, 1)[0]) is Outcome.EARLY

    asyncio.run(story())


def test_a_rounds_lot_falls_among_the_reports_of_all_processes(tmp_path, url):
    """Twelve reports, eight of them by the leader, six are used: who is used does not hang on the process."""

    async def story():
        used = []
        async with processes(folders(tmp_path, url, cohort=6, round_seconds=1.5, deadline=60.0)) as (one, two):
            devices = await enrolled(one, 12)
            for round_ in range(6):
                messages = zip(devices, some_messages(one, 12, seed=round_), strict=True)
                answers = [(one if i < 8 else two).report(round_, *pair) for i, pair in enumerate(messages)]
                assert set(await asyncio.gather(*answers)) == {ACCEPTED}
                await opened(one, round_ + 1)
                await opened(two, round_ + 1)
                used.append([device for device, _ in one.store.reports(round_)])
        return used

    used = asyncio.run(story())
    assert all(len(set(round_)) == 6 for round_ in used)
    of_follower = sum(device > 8 for round_ in used for device in round_)
    assert 3 <= of_follower <= 22  # 12 of 36 expected; outside with probability below 1e-4
    assert len({tuple(round_) for round_ in used}) > 1


def test_all_processes_show_one_log_and_it_goes_on_when_the_leader_is_lost(tmp_path, url):
    homes = folders(tmp_path, url)

    def head(hub):
        shown = hub.row.publishing._shown
        return shown.head.size, shown.head.root, shown.line

    async def story():
        async with processes(homes) as (first, second):
            devices = await enrolled(first, 4)
            for round_ in range(3):
                for device, message in zip(devices, some_messages(first, 4, round_), strict=True):
                    assert await second.report(round_, device, message) is ACCEPTED
                await opened(first, round_ + 1)
                await opened(second, round_ + 1)
                await becomes(lambda: head(first) == head(second), 2.0)
            assert head(first)[0] == 1 + 4  # the terms, four models
            vanish(first)
            for device, message in zip(devices, some_messages(second, 4, 3), strict=True):
                assert await second.report(3, device, message) is ACCEPTED
            await opened(second, 4)
            assert head(second)[0] == 1 + 5

    asyncio.run(story())
    found = audit_folder(homes[1].path)
    assert not found.wrong and (found.size, found.models, found.replayed) == (6, 5, 5)


def test_a_device_gets_one_token_an_epoch_and_spends_it_once_whichever_process_it_asks(tmp_path, url):
    homes = folders(tmp_path, url, tokens=2, cohort=2)

    async def story():
        apps = [token_app(home) for home in homes]
        hubs = [app._hub for app in apps]
        for hub in hubs:
            await hub.start()
        try:
            buyers = [Buyer(app) for app in apps]
            await buyers[0].enrol()
            buyers[1].token = buyers[0].token  # one device
            assert await buyers[0].offer() == await buyers[1].offer()
            asked = [await buyer.begin(1) for buyer in buyers]
            bought = await asyncio.gather(
                *(buyer.buy(1, one) for buyer, one in zip(buyers * 8, asked * 8, strict=True))
            )
            tokens = {got for got in bought if isinstance(got, bytes)}
            refused = [got.error for got in bought if not isinstance(got, bytes)]
            assert len(tokens) == 1 and refused == ["other-purchase"] * 8
            (token,) = tokens
            sent = some_messages(hubs[0], 2)
            for number in (1, 2, 3):  # at either process
                await hubs[number % 2].close_round(empty=True)
                for hub in hubs:
                    await opened(hub, number)
                if number < 3:
                    assert hubs[0].row.issuer.beacon(number) == hubs[1].row.issuer.beacon(number) is not None
                    mine = round_of(hubs[1], token) == number
                    said = await asyncio.gather(*(buyer.report(number, token, sent[0]) for buyer in buyers * 3))
                    assert sorted(said) == ([(200, "")] * 5 + [(201, "")] if mine else [(409, "not-due")] * 6)
                    again = [(await buyer.buy(1)).error for buyer in buyers]
                    assert again == ["other-purchase"] * 2
            late = [await buyer.report(3, token, sent[1]) for buyer in buyers]
            assert late == [(409, "wrong-epoch")] * 2
            newcomer = Buyer(apps[0])
            await newcomer.enrol()
            assert (await newcomer.buy(2)).error == "wrong-epoch"
        finally:
            for hub in hubs:
                await hub.stop()

    asyncio.run(story())
    assert not audit_folder(homes[0].path).wrong
    assert table(url, "SELECT epoch, private IS NULL FROM issuer ORDER BY epoch") == [(1, True), (2, False), (3, False)]
    assert table(url, "SELECT count(*) FROM purchase") == [(0,)]


def test_caps_and_codes_hold_over_all_processes(tmp_path, url):
    homes = folders(tmp_path, url, open_enrolment=False, attested_devices=2)

    async def enrols(hub, *ticket):
        try:
            await hub.enrol(*ticket)
        except NotAdmittedError as error:
            return error.reason
        return ""

    async def story():
        async with processes(homes) as hubs:
            _, store = homes[1].open()
            secret, back_end = Credentials(store).add("app", 7), Credentials(store).add("back", 9, code_minutes=5)
            store.close()
            assert all(hub.knows(secret) for hub in hubs)
            reasons = await asyncio.gather(*(enrols(hub, secret) for hub in hubs * 10))
            assert sorted(reasons) == [""] * 7 + ["enrolment-full"] * 13
            code, _ = await hubs[0].code(back_end)
            reasons = await asyncio.gather(*(enrols(hub, code) for hub in hubs * 5))
            assert sorted(reasons) == [""] + ["unauthorised"] * 9
            reasons = await asyncio.gather(*(enrols(hub, None, b"one phone" * 3) for hub in hubs * 5))
            assert sorted(reasons) == [""] * 2 + ["enrolment-full"] * 8
            assert table(url, "SELECT count(*) FROM device") == [(10,)]

    asyncio.run(story())


def test_a_challenge_of_one_process_is_taken_by_another_and_once(tmp_path, url):
    homes = folders(tmp_path, url)

    async def story():
        async with processes(homes) as hubs:
            made = [Challenges(hub.store.secret("challenge"), hub.use_challenge) for hub in hubs]
            challenge, _ = made[0].new("token", time.time())

            def take(challenges):
                try:
                    challenges.take(challenge, "token", time.time())
                except NotAttestedError as error:
                    return error.reason
                return ""

            with pytest.raises(NotAttestedError, match="challenge-unknown"):
                made[1].take(challenge, "another", time.time())
            said = await asyncio.gather(*(asyncio.to_thread(take, one) for one in made * 4))
            assert sorted(said) == [""] + ["challenge-used"] * 7

    asyncio.run(story())


def test_all_processes_draw_alike(tmp_path, url):
    homes = folders(tmp_path, url, due=0.5, round_seconds=3600.0, deadline=3600.0)

    async def story():
        async with processes(homes) as (one, two):
            devices = await enrolled(one, 12) + await enrolled(two, 12)
            assert await two.close_round(empty=True) == 0  # whoever is asked closes it, the leader applies it
            for hub in (one, two):
                await opened(hub, 1)
            await becomes(lambda: len(two.row.admission.devices) == len(one.row.admission.devices) == 24, 2.0)
            answers = []
            for hub in (one, two):
                beacon = beacon_of(hub.view.model)
                keys = [hub.row.admission.devices.key(device) for device in devices]
                due = [drawn(key, DUE, beacon, 0.5) for key in keys]
                answers.append(due)
            assert answers[0] == answers[1] and 3 < sum(answers[0]) < 21
            for device, due in zip(devices, answers[0], strict=True):
                hub = (one, two)[device % 2]
                said = await hub.report(1, device, message(hub, device, 1, 0))
                assert said is (ACCEPTED if due else Outcome.NOT_DUE)

    asyncio.run(story())


def test_a_hub_halts_and_is_resumed_at_any_process(tmp_path, url):
    homes = folders(tmp_path, url, mechanism="piecewise", epsilon=4.0, checks=0.5, cohort=4, check_margin=0.0)

    async def story():
        async with processes(homes) as (one, two):
            devices = await enrolled(one, 24)
            await until_halted(one, devices)
            await becomes(lambda: two.view.state == "halted")
            assert (two.view.model, two.view.best) == (one.view.model, one.view.best)
            assert two.status()["alert"]["round"] == one.status()["alert"]["round"]
            number = two.view.round
            assert await two.resume() == number and two.view.state == "open"
            await becomes(lambda: one.view.state == "open")
            assert one.status()["alert"] is None and two.status()["alert"] is None
            for _ in range(2):  # in the first, the newest model is the best one
                await one_round(one, devices, better=True)
            await becomes(lambda: two.view.round == number + 2)
            assert two.view.etag == one.view.etag
            # With many of 24 drawn to compare, the second round makes its model the best one and counts from 0.
            told = [hub.status()["checks"] for hub in (one, two)]
            assert told[0] == told[1] and told[0]["rounds"][-1]["checks"] > 0

    asyncio.run(story())
    assert replay_log(homes[1].path).proven and not audit_folder(homes[0].path).wrong


def test_a_coordinator_may_ask_any_process(tmp_path, url):
    homes = folders(tmp_path, url, collect=True, cohort=2, log="no")

    async def story():
        async with processes(homes) as (one, two):
            devices = await enrolled(one, 2)
            request = two.terms.request
            questions = [request.encode(request.message(np.uint32(n), np.full(5, n, np.float32))) for n in (3, 8)]
            assert await two.ask_round(questions[0]) is ACCEPTED
            assert await one.ask_round(questions[0]) is ALREADY
            assert await one.ask_round(questions[1]) is Outcome.CONFLICT
            await becomes(lambda: one.view.model == questions[0])
            sent = some_messages(one, 2)
            for hub, device, message_ in zip((one, two), devices, sent, strict=True):
                assert await hub.report(3, device, message_) is ACCEPTED
            await becomes(lambda: one.view.state == two.view.state == "between")
            for hub in (one, two):
                for _ in range(500):
                    if (got := await hub.collect(3)) is not None:
                        break
                    await asyncio.sleep(0.02)
                assert got == b"".join(sent)
            assert await one.ask_round(questions[0]) is ALREADY
            assert await two.ask_round(questions[1]) is ACCEPTED
            vanish(one)
            assert await two.report(8, devices[0], sent[1]) is ACCEPTED

    asyncio.run(story())


def test_numbers_go_on_where_a_database_counted_them_beside_the_column(tmp_path, url):
    """Version 3 kept the last number in a table of its own, and gave numbers itself."""
    home = make(tmp_path / "hub", database=url, log="no")
    table(url, "SELECT 1")
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        for name in ("issuer", "purchase", "challenge", "secret", "rotation"):
            connection.execute(f"DROP TABLE {name}")
        connection.execute("UPDATE version SET number = 3")
        connection.execute("CREATE TABLE last_device (number BIGINT NOT NULL)")
        connection.execute("INSERT INTO last_device VALUES (41)")
        connection.execute("INSERT INTO device VALUES (41, %s, 1)", (bytes(32),))
    _, store = home.open()
    assert store.write([b"1" * 32], [], []) == ([42], [])
    assert [number for number, _ in store.devices()] == [41, 42]
    store.close()


@pytest.mark.minutes
def test_an_outage_of_the_server_loses_nothing(tmp_path, server, url):
    homes = folders(tmp_path, url, cohort=3)

    async def story():
        async with processes(homes) as (one, two):
            devices = await enrolled(one, 3)
            sent = some_messages(one, 3)
            assert await one.report(0, devices[0], sent[0]) is ACCEPTED
            await asyncio.to_thread(server.stop, "immediate")
            assert await one.report(0, devices[1], sent[1]) is Outcome.UNAVAILABLE
            assert await two.report(0, devices[1], sent[1]) is Outcome.UNAVAILABLE
            with pytest.raises(StoreError):
                two.device_of("a token that nobody can look up")
            await becomes(lambda: not (one.healthy or two.healthy))
            await asyncio.to_thread(server.start)
            await becomes(lambda: one.healthy and two.healthy)
            assert await two.report(0, devices[0], sent[0]) is ALREADY
            for device, message in zip(devices[1:], sent[1:], strict=True):
                assert await one.report(0, device, message) is ACCEPTED
            await opened(one, 1)
            await opened(two, 1)
            assert one.leads != two.leads

    asyncio.run(story())
    assert replay_log(homes[0].path).proven


def test_a_commit_waits_for_the_disk_whatever_the_database_says(tmp_path, url):
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"ALTER DATABASE {connection.info.dbname} SET synchronous_commit TO off")
    home = make(tmp_path / "hub", database=url)
    _, store = home.open()
    assert store._db.execute("SHOW synchronous_commit").fetchone() == ("on",)
    store.close()


def test_the_same_tokens_and_settings_are_needed_to_join(tmp_path, url):
    make(tmp_path / "0", database=url)
    with pytest.raises(RunError, match=r"enrolment\.token: is not there.*copy enrolment.token, admin.token, log.key"):
        make(tmp_path / "1", database=url)
    shutil.copytree(tmp_path / "0", tmp_path / "2")
    (tmp_path / "2" / "hub.toml").unlink()
    with pytest.raises(ConfigError, match="n_features is 6, was 5"):
        make(tmp_path / "2", database=url, n_features=6)
    with pytest.raises(RunError):
        replay_log(tmp_path / "1")


def test_a_password_comes_from_a_file_and_never_from_the_url(tmp_path, url):
    with pytest.raises(ConfigError, match=r"database\.password"):
        make(tmp_path / "0", database=url.replace("fedrank@", "fedrank:secret@"))
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "database.password").write_text("secret\n")
    _, store = make(tmp_path / "1", database=url).open()
    assert store._db._arguments["password"] == "secret"
    assert "secret" not in (tmp_path / "1" / "hub.toml").read_text()
    store.close()


def test_an_earlier_version_is_brought_to_the_present_one(tmp_path, url, monkeypatch):
    from fedrank.deploy.hub import store as module

    home = make(tmp_path / "hub", database=url)
    later = (*STEPS, "ALTER TABLE device ADD COLUMN credential INTEGER;\nCREATE TABLE more (x BLOB) STRICT")
    monkeypatch.setattr(module, "STEPS", later)
    with pytest.raises(StoreError, match="newest version"):
        home.open(read_only=True)
    _, store = home.open()
    assert store._db.execute("SELECT credential FROM device").fetchall() == []
    store.close()
    monkeypatch.setattr(module, "STEPS", STEPS)
    with pytest.raises(StoreError, match=f"version {len(later)}"):
        home.open()


def test_a_database_without_a_hub_is_said_to_be_one(tmp_path, url):
    home = make(tmp_path / "hub", log="no")
    home.settings.write_text(home.settings.read_text().replace('database = ""', f"database = {json.dumps(url)}"))
    with pytest.raises(StoreError, match="no tables"):
        home.open()


def test_a_process_that_does_not_lead_writes_no_model_no_round_and_no_entry(tmp_path, url):
    home = make(tmp_path / "hub", database=url, log="no")
    leader, other = home.open()[1], home.open()[1]
    assert leader.lead() and not other.lead()
    digest = bytes(range(32))
    leader.close_round(0, 1.0, [])
    before = leader.rounds()
    for write in (
        lambda: other.set_model(0, digest),
        lambda: other.apply_round(0, None, None, next_model=digest),
        lambda: other.append_model(b"entry"),
        lambda: other.append_entry(b"entry"),
    ):
        with pytest.raises(DeposedError):
            write()
    assert leader.rounds() == before and leader.log_size() == 0
    leader.close()
    other.close()


def test_both_kinds_of_log_answer_alike(tmp_path, url):
    """The same calls, the same rows: one SQL on two systems."""
    made = [
        Store(tmp_path / "hub.db", name="0" * 32),
        make(tmp_path / "hub", database=url, log="no").open()[1],
    ]
    assert all(store.lead() and store.leads for store in made)
    seen = []
    for store in made:
        digest = np.arange(32, dtype=np.uint8).tobytes()
        store.set_model(0, digest)
        store.add_issuer_key(1, b"more", b"private", b"other")
        bought = [
            Purchase(1, 1, digest, 0, b"more"),
            Purchase(1, 1, digest[::-1], 0, b"more"),
            Purchase(1, 2, digest, 0, b"more"),
            Purchase(1, 4, digest, 0, b"less"),
            Purchase(1, 1, digest),
            Purchase(1, 1, digest[::-1]),
            Purchase(1, 3, digest),
        ]
        key = Admitted(credential=None, keys=(b"key", b"other"))
        reports = [(0, 2, b"two"), (0, 1, b"one")]
        seen.append(store.write([digest, digest[::-1]], [], reports, [key], bought))
        assert store.count_reports(0, b"") == 2 and store.count_reports(0, b"o") == 1
        seen.append([store.use_challenge(digest, 9.0, now) for now in (1.0, 2.0, 9.0)])
        store.add_issuer_key(0, b"public", b"private", b"secret")
        store.add_issuer_key(0, b"another", b"private", b"secret")
        store.draw_epoch(1, b"reports")
        store.write([], [], [], [], [Purchase(1, 4, digest, 0, b"more")])
        store.draw_epoch(1, b"others")
        store.end_epochs(1)
        seen.append(store.issuer_keys())
        assert store.secret("x") == store.secret("x") != store.secret("y")
        with pytest.raises(CountedError):
            store.write([], [], [(0, 1, b"one")])
        store.close_round(0, 1.5, [2])
        store.apply_round(0, 0.5, None, next_model=digest)
        store.write([], [1], [(1, 2, b"more")])
        with pytest.raises(ClosedError):
            store.write([], [], [(0, 7, b"late")])
        with pytest.raises(ClosedError):
            store.write([], [], [], [], [Purchase(1, 5, digest, 0)])
        rows = [(r.number, r.state, r.seconds, r.model, r.reports, r.reward, r.error) for r in store.rounds()]
        seen.append(
            (
                rows,
                store.reports(0),
                sorted(store.reporters(0)),
                store.reports_of_devices(),
                store.devices(),
                (store.used(), store.find(digest[::-1]), store.find(digest), store.devices(2)),
                store.round_before(1),
                store.question(0),
                store.last_round().number,
            )
        )
        store.probe()
        store.close()
    half = len(seen) // 2
    assert seen[:half] == seen[half:]
    assert seen[0] == ([1, 2], ["", "other-purchase", "", "wrong-epoch", "", "other-purchase", "wrong-epoch"])
    keys = [(0, b"public", None, b"secret", None, None), (1, b"more", b"private", b"other", b"reports", 2)]
    assert seen[1] == [True, False, True] and seen[2] == keys


@pytest.mark.skipif(shutil.which("pg_dump") is None, reason="pg_dump is not installed")
def test_a_database_is_put_back_by_its_own_tools_and_the_log_says_so(tmp_path, url):
    (home,) = folders(tmp_path, url, count=1, tokens=1, cohort=100)
    backup, dump = tmp_path / "backup", tmp_path / "hub.dump"

    async def rounds(where, number):
        async with processes([where]) as (hub,):
            for _ in range(number):
                await hub.close_round(empty=True)
            if where is home and not backup.exists():
                home.back_up(backup)
                subprocess.run(["pg_dump", "--format=custom", f"--file={dump}", url], check=True)
                with pytest.raises(RunError, match="serves its database"):
                    HubFolder(backup).restore(tmp_path / "early", home.path / "operator.key")
            await opened(hub, hub.view.round)
            return hub.view.round, [offer for _, offer, *_ in hub.store.issuer_keys()]

    kept, sold = asyncio.run(rounds(home, 3))
    lost, _ = asyncio.run(rounds(home, 2))
    assert (kept, lost) == (3, 5) and not (tmp_path / "early").exists()
    subprocess.run(["pg_restore", "--clean", "--if-exists", f"--dbname={url}", str(dump)], check=True)
    HubFolder(backup).restore(tmp_path / "restored", home.path / "operator.key")
    number, offers = asyncio.run(rounds(HubFolder(tmp_path / "restored"), 2))
    found = audit_folder(tmp_path / "restored")
    assert number == 5 and found.wrong == [] and len(found.put_back) == 1
    assert not set(sold[-2:]) & set(offers)  # of the epoch that was open, and of the next


def test_a_process_that_missed_a_change_of_the_logs_key_signs_with_the_new_one(tmp_path, url):
    homes = folders(tmp_path, url)

    async def story():
        async with processes(homes) as (leader, other):
            other._look_at = float("inf")  # it is slow, and looks when a round is over
            key, operator = WHAT["log"], homes[0].path / "operator.key"
            job = leader._inbox.call(ask_rotation, homes[0].path, leader.store, leader.terms, key, operator)
            assert await job is None
            await leader.renew()
            await leader.close_round(empty=True)
            await opened(leader, 1)
            other._look_at = 0.0
            other.look()
            await opened(other, 1)
            await becomes(lambda: len(other.row.keys.signers) == 2)
            await asyncio.sleep(0.5)
            new, old = (signer.key for signer in leader.row.keys.signers)
            for hub in (leader, other):
                head = Answer.parse(hub.row.publishing.since(10**6).payload["body"]).checkpoint
                assert head.is_signed_by(new) and head.is_signed_by(old)

    asyncio.run(story())


def test_keys_change_at_three_processes_while_devices_report(tmp_path, url):
    """Asked for at a process that does not lead: all follow, nothing is refused, and void tokens count nowhere."""
    homes = folders(tmp_path, url, 3, tokens=1, batch=1, cohort=1000)
    operator = homes[0].path / "operator.key"

    async def story():
        apps = [token_app(home) for home in homes]
        hubs = [app._hub for app in apps]
        for hub in hubs:
            await hub.start()
        buyers = [Buyer(apps[n % 3]) for n in range(12)]
        for one in buyers:
            await one.enrol()
        tokens = [await one.buy(1) for one in buyers]
        await next_round(hubs[0])
        for hub in hubs:
            await opened(hub, 1)
        for one in buyers:  # whichever process hears it, a token of the next epoch
            one.app = apps[(apps.index(one.app) + 1) % 3]
        void = [await one.buy(2) for one in buyers[:3]]
        codes, before = [], {}
        for turn, key in enumerate(("gateway", "issuer", "log")):
            before = {
                "gateway": hubs[0].row.keys.gateway.public,
                "issuer": hubs[0].row.issuer.on_sale(),
                "log": hubs[0].row.keys.signers[0].key.public,
            }
            asked = hubs[1]._inbox.call(ask_rotation, homes[1].path, hubs[1].store, hubs[1].terms, WHAT[key], operator)
            changing = asyncio.gather(asked, hubs[1].renew())
            for n in range(4 * turn, 4 * turn + 4):
                sent = some_messages(hubs[0], 1, n)[0]
                codes.append((await Buyer(apps[n % 3]).report(1, tokens[n], sent))[0])
            await changing

            def now(hub):
                row = hub.row
                return {
                    "gateway": row.keys.gateway.public,
                    "issuer": row.issuer.on_sale(),
                    "log": row.keys.signers[0].key.public,
                }

            await becomes(lambda key=key, before=before: all(now(hub)[key] != before[key] for hub in hubs))
            assert all(now(hub) == now(hubs[0]) for hub in hubs)
        assert codes == [201] * 12
        fresh = [await one.buy(2) for one in buyers]
        await next_round(hubs[0])
        for hub in hubs:
            await opened(hub, 2)
        sent = some_messages(hubs[0], 1)[0]
        assert [(await Buyer(apps[n]).report(2, void[n], sent))[0] for n in range(3)] == [401] * 3
        assert [(await Buyer(apps[n % 3]).report(2, fresh[n], sent))[0] for n in range(12)] == [201] * 12
        for hub in hubs:
            await hub.stop()

    asyncio.run(story())
    assert audit_folder(homes[2].path).wrong == []
    assert table(url, "SELECT round, count(*) FROM report GROUP BY round ORDER BY round") == [(1, 12), (2, 12)]


def test_a_hub_whose_database_is_lost_goes_on_at_its_standby_with_every_head_and_report(tmp_path):
    with postgres_server.Server() as primary:
        url = primary.database("hub")
        with postgres_server.standby(primary) as second:
            (home,) = folders(tmp_path, url, 1)

            async def before():
                async with processes([home]) as (hub,):
                    assert hub.status()["copy"] == "standby"
                    for _ in range(3):
                        await hub.close_round(empty=True)
                        await opened(hub, hub.view.round)
                    (device,) = await enrolled(hub, 1)
                    assert await hub.report(3, device, some_messages(hub, 1)[0]) is ACCEPTED
                    head = Answer.parse(hub.row.publishing.since(10**6).payload["body"]).checkpoint
                    primary.stop("immediate")  # and its disk is gone
                    return head

            head = asyncio.run(before())
            second._run("pg_ctl", "-D", str(second._folder / "data"), "-w", "promote")
            other = second.url("hub")
            text = home.settings.read_text().replace(url, other)
            home.settings.write_text(text)
            import psycopg

            with psycopg.connect(second.url("postgres"), autocommit=True) as connection:
                connection.execute("ALTER SYSTEM RESET synchronous_standby_names")
                connection.execute("SELECT pg_reload_conf()")

            async def after():
                async with processes([home]) as (hub,):
                    now = Answer.parse(hub.row.publishing.since(10**6).payload["body"]).checkpoint
                    assert hub.view.round == 3 and now.size >= head.size and len(hub.round.counted) == 1
                    await hub.close_round()
                    await opened(hub, 4)

            asyncio.run(after())
            found = audit_folder(home.path)
            assert found.wrong == [] and found.put_back == ()
        primary.start()  # for its end
