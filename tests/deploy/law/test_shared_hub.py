"""Several hub processes on one PostgreSQL server: what counts, who leads, and what survives a leader or the server."""

import asyncio
import contextlib
import json
import shutil

import numpy as np
import postgres_server
import pytest
from hubs import enrolled, make, opened, some_messages

from fedrank.core.errors import ConfigError, RunError
from fedrank.deploy.hub.audit import replay_log
from fedrank.deploy.hub.settings import HubSettings
from fedrank.deploy.hub.stages import Outcome
from fedrank.deploy.hub.store import STEPS, Store, StoreError

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
        for name in ("enrolment.token", "admin.token"):
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
            assert [hub.row.closing.leads for hub in hubs] == [True, False]
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
            assert second.row.closing.leads != third.row.closing.leads and second.view.model == third.view.model

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
            assert second.row.closing.leads

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
            assert (first.row.closing.leads, second.row.closing.leads) == (
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
        async with processes(folders(tmp_path, url, cohort=6, round_seconds=0.5, deadline=60.0)) as (one, two):
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
            assert one.row.closing.leads != two.row.closing.leads

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
    with pytest.raises(RunError, match=r"enrolment\.token: is not there.*copy"):
        make(tmp_path / "1", database=url)
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


def test_what_one_process_keeps_in_its_folder_cannot_be_shared():
    for setting in ({"relay": True}, {"tokens": 8}):
        with pytest.raises(ConfigError, match="cannot be had together"):
            HubSettings(n_features=5, database="postgresql:///hub", **setting)


def test_an_earlier_version_is_brought_to_the_present_one(tmp_path, url, monkeypatch):
    from fedrank.deploy.hub import postgres as module

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
    with pytest.raises(StoreError, match="no hub in it"):
        home.open()


def test_both_kinds_of_log_answer_alike(tmp_path, url):
    """The same calls, the same rows: one SQL on two systems."""
    made = [
        Store(tmp_path / "hub.db", name="0" * 32),
        make(tmp_path / "hub", database=url).open()[1],
    ]
    made[1].lead()
    seen = []
    for store in made:
        digest = np.arange(32, dtype=np.uint8).tobytes()
        store.set_model(0, digest)
        store.write([(store.reserve(1, 2), digest), (2, digest[::-1])], [], [(0, 2, b"two"), (0, 1, b"one")])
        store.close_round(0, 1.5, [2])
        store.apply_round(0, 0.5, None, next_model=digest)
        store.write([], [1], [(1, 2, b"more")])
        rows = [(r.number, r.state, r.seconds, r.model, r.reports, r.reward, r.error) for r in store.rounds()]
        seen.append(
            (
                rows,
                store.reports(0),
                sorted(store.reporters(0)),
                store.reports_of_devices(),
                store.devices(),
                store.last_device(),
                store.round_before(1),
                store.question(0),
                store.last_round().number,
            )
        )
        store.probe()
        store.close()
    assert seen[0] == seen[1]
