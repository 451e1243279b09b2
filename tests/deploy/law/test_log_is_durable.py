"""A hub's log: what was acknowledged is on the disk, what was forgotten is not, and time goes on while it is down."""

import asyncio
import sqlite3
import time

import pytest
from hubs import enrolled, make, running, some_messages

from fedrank.deploy.draws import key_of
from fedrank.deploy.hub.stages import Outcome
from fedrank.deploy.hub.store import Store, StoreError


class CommitFails(sqlite3.Connection):
    """A connection whose first COMMIT fails, as on a disk that is full."""

    failures = 1

    def execute(self, statement, *values):
        if statement == "COMMIT" and self.failures:
            self.failures -= 1
            raise sqlite3.OperationalError("database or disk is full")
        return super().execute(statement, *values)


def connect_badly(store: Store) -> None:
    """Let a store go on with such a connection."""
    store.close()
    store._db = sqlite3.connect(store.path, factory=CommitFails, isolation_level=None, check_same_thread=False)


def test_a_commit_that_fails_is_an_error_and_leaves_nothing(tmp_path):
    store = Store(tmp_path / "hub.db", name="0" * 32)
    connect_badly(store)
    with pytest.raises(StoreError):
        store.write([b"a" * 32], [], [(0, 1, b"report")])
    assert not store._db.in_transaction
    assert store.devices() == [] and store.reports(0) == []
    store.write([b"a" * 32], [], [(0, 1, b"report")])  # the next one goes through
    assert store.devices() == [(1, b"a" * 32)] and store.reports(0) == [(1, b"report")]


def test_no_device_is_told_that_a_report_counts_whose_commit_failed(tmp_path):
    home = make(tmp_path / "hub")

    async def story():
        async with running(home) as hub:
            (device,) = await enrolled(hub, 1)
            (sent,) = some_messages(hub, 1)
            connect_badly(hub.store)
            first = await hub.report(0, device, sent)
            again = await hub.report(0, device, sent)
            return first, again

    assert asyncio.run(story()) == (Outcome.UNAVAILABLE, Outcome.ACCEPTED)
    with sqlite3.connect(home.log) as db:
        assert db.execute("SELECT count(*) FROM report").fetchone() == (1,)


def test_a_device_that_has_left_is_unknown_after_a_restart_too(tmp_path):
    home = make(tmp_path / "hub")

    async def story():
        async with running(home) as hub:
            leaves, stays = await hub.enrol(), await hub.enrol()
            assert await hub.leave(hub.device_of(leaves))
        async with running(home) as hub:
            return hub.device_of(leaves), hub.device_of(stays), leaves, len(hub.row.admission.devices)

    gone, there, token, devices = asyncio.run(story())
    assert gone is None and there == 2 and devices == 1
    written = b"".join(path.read_bytes() for path in home.path.iterdir() if path.is_file())
    assert key_of(token) not in written  # deleted rows are overwritten, not only unlinked


def test_the_log_survives_a_power_cut(tmp_path):
    """SQLite's setting for it: 2 is FULL, which syncs the write-ahead log at every commit."""
    home = make(tmp_path / "hub")
    _, store = home.open()
    assert store.query("PRAGMA synchronous") == [(2,)]
    assert store.query("PRAGMA journal_mode") == [("wal",)]
    assert store.query("PRAGMA secure_delete") == [(1,)]
    store.close()


@pytest.mark.parametrize("ago", [3500.0, 10_000.0])
def test_a_deadline_goes_on_while_the_hub_is_down(tmp_path, ago):
    """A round that was opened an hour before the restart has as much less time left, and none if it has passed."""
    home = make(tmp_path / "hub", deadline=3600.0, least=1)

    async def story():
        async with running(home) as hub:
            (device,) = await enrolled(hub, 1)
            assert await hub.report(0, device, some_messages(hub, 1)[0]) is Outcome.ACCEPTED
        with sqlite3.connect(home.log) as db:
            db.execute("UPDATE round SET opened = ?", (time.time() - ago,))
        async with running(home) as hub:
            open_for = hub.status()["seconds_open"]
            for _ in range(500):
                if ago < 3600.0 or hub.view.round == 1:
                    break
                await asyncio.sleep(0.01)
            return open_for, hub.view.round

    open_for, round_ = asyncio.run(story())
    assert round_ == (ago > 3600.0)
    if not round_:
        assert ago <= open_for < ago + 60
