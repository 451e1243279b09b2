"""A log that an earlier version wrote is brought to the present one, whole or not at all, and nothing in it changes."""

import asyncio
import contextlib
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hubs import enrolled, opened, running, some_messages

from fedrank.deploy.device import outbox
from fedrank.deploy.hub import store
from fedrank.deploy.hub.audit import replay_log
from fedrank.deploy.hub.folder import HubFolder
from fedrank.deploy.hub.stages import Outcome
from fedrank.deploy.hub.store import STEPS, Store, StoreError
from fedrank.deploy.platforms import folder as key_value_store

OLD = Path(__file__).with_name("hub_version_1")
#: Steps that a later version might have: a column that devices get, and a table of its own.
LATER = (
    *STEPS,
    "ALTER TABLE device ADD COLUMN team INTEGER NOT NULL DEFAULT 0;\nUPDATE device SET team = number * 10",
    "CREATE TABLE team (number INTEGER PRIMARY KEY) STRICT",
)
#: Opens a log as the process that will be killed at the named place does.
KILLED = """
import os, signal, sys
from pathlib import Path
from fedrank.deploy import database
from fedrank.deploy.hub import store
store.STEPS = eval(sys.argv[3])
place, left = sys.argv[2].split(":")[0], int(sys.argv[2].split(":")[1])
def dying(real):
    def call(*args, **kwargs):
        global left
        left -= 1
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*args, **kwargs)
    return call
if place == "copy":
    database.create_private = dying(database.create_private)
elif place == "kept":
    database.sync_folder = dying(database.sync_folder)
else:
    import sqlite3
    class Dying(sqlite3.Connection):
        execute = dying(sqlite3.Connection.execute)
    connect = sqlite3.connect
    def connected(*args, **kwargs):
        return connect(*args, **{**kwargs, "factory": Dying})
    database.sqlite3.connect = connected
store.Store(Path(sys.argv[1]))
"""


@pytest.fixture
def home(tmp_path):
    """A copy of the old hub, without its model checkpoints, which follow from the log."""
    shutil.copytree(OLD, tmp_path / "hub")
    (tmp_path / "hub" / "README.md").unlink()
    (tmp_path / "hub" / "enrolment.token").write_text("an enrolment token\n")
    (tmp_path / "hub" / "admin.token").write_text("the token of the operator\n")
    return HubFolder(tmp_path / "hub")


def rows(path, columns):
    """What a log of version 1 holds, by table."""
    with contextlib.closing(sqlite3.connect(path)) as db:
        return {name: db.execute(f"SELECT {of} FROM {name} ORDER BY 1, 2").fetchall() for name, of in columns.items()}


def columns_of_version_1():
    with contextlib.closing(sqlite3.connect(OLD / "hub.db")) as db:
        names = [name for (name,) in db.execute("SELECT name FROM sqlite_schema WHERE sql LIKE 'CREATE TABLE %'")]
        names.remove("sqlite_sequence") if "sqlite_sequence" in names else None
        return {name: ", ".join(row[1] for row in db.execute(f"PRAGMA table_info({name})")) for name in names}


COLUMNS = columns_of_version_1()
BEFORE = rows(OLD / "hub.db", COLUMNS)


def version(path):
    with contextlib.closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        return db.execute("PRAGMA user_version").fetchone()[0]


def test_the_kept_log_has_what_its_description_says():
    assert set(BEFORE) == {"hub", "device", "round", "report"}
    assert [row[0] for row in BEFORE["device"]] == [1, 3, 4, 5, 6, 7]
    assert len(BEFORE["report"]) == 20 and version(OLD / "hub.db") == 1


@pytest.mark.slow
def test_an_old_hub_goes_on_with_its_model_its_devices_and_its_reports(home):
    served = np.array(json.loads((OLD / "weights.json").read_text()), np.float32)

    async def story():
        async with running(home) as hub:
            assert (hub.view.round, hub.view.state, len(hub.row.admission.devices)) == (3, "open", 6)
            np.testing.assert_allclose(
                hub.row.model._learning.weights(hub.row.model._state), served, rtol=1e-5, atol=1e-8
            )
            (new,) = await enrolled(hub, 1)
            assert new == 8  # numbers go on
            waiting = {device: message for round_, device, message in BEFORE["report"] if round_ == 3}
            assert await hub.report(3, 5, waiting[5]) is Outcome.ALREADY
            for device, message in zip((7, 8), some_messages(hub, 2), strict=True):
                assert await hub.report(3, device, message) is Outcome.ACCEPTED
            await opened(hub, 4)

    asyncio.run(story())
    assert version(home.log) == len(STEPS)
    after = replay_log(home.path)
    assert (after.rounds, after.reports) == (4, 16) and after.difference == 0.0


def test_a_log_goes_through_every_step_and_a_copy_is_kept(home, monkeypatch):
    monkeypatch.setattr(store, "STEPS", LATER)
    opened_ = Store(home.log)
    assert opened_.query("SELECT number, team FROM device ORDER BY number") == [
        (number, number * 10) for number in (1, 3, 4, 5, 6, 7)
    ]
    assert opened_.query("SELECT * FROM team") == []
    opened_.close()
    kept = home.path / "hub.db.version-1"
    assert version(home.log) == len(LATER) and version(kept) == 1
    assert rows(home.log, COLUMNS) == BEFORE == rows(kept, COLUMNS)
    assert kept.stat().st_mode & 0o077 == 0
    Store(home.log).close()  # once only
    assert [p.name for p in home.path.glob("hub.db.*")] == [kept.name]


def test_a_new_log_goes_through_the_same_steps(tmp_path, monkeypatch):
    monkeypatch.setattr(store, "STEPS", LATER)
    made = Store(tmp_path / "hub.db", name="0" * 32)
    assert made.query("SELECT number, team FROM device") == [] and version(made.path) == len(LATER)
    made.close()
    assert [p.name for p in tmp_path.glob("hub.db.*")] == []


def test_commits_that_are_in_the_write_ahead_log_only_are_in_the_copy(home, monkeypatch):
    before = Store(home.log)
    before._db.execute("PRAGMA wal_autocheckpoint = 0")
    before.write([], [], [(3, 7, b"a report")])
    for name in ("hub.db", "hub.db-wal", "hub.db-shm"):  # as a kill leaves them
        shutil.copy(home.path / name, home.path / f"{name}.killed")
    before.close()
    for name in ("hub.db", "hub.db-wal", "hub.db-shm"):
        os.replace(home.path / f"{name}.killed", home.path / name)
    monkeypatch.setattr(store, "STEPS", (*STEPS, LATER[-1]))
    Store(home.log).close()
    for path in (home.log, home.path / f"hub.db.version-{len(STEPS)}"):
        assert (3, 7, b"a report") in rows(path, COLUMNS)["report"]


def test_an_earlier_copy_is_never_written_over(home, monkeypatch):
    (home.path / "hub.db.version-1").write_bytes(b"the log of last year")
    monkeypatch.setattr(store, "STEPS", LATER)
    Store(home.log).close()
    assert (home.path / "hub.db.version-1").read_bytes() == b"the log of last year"
    assert rows(home.path / "hub.db.version-1.2", COLUMNS) == BEFORE


def test_replay_reads_an_old_log_and_changes_nothing(home, monkeypatch):
    monkeypatch.setattr(store, "STEPS", LATER)
    before = home.log.read_bytes()
    assert replay_log(home.path).reports == 12
    assert home.log.read_bytes() == before and version(home.log) == 1


def test_a_step_that_fails_leaves_the_log_as_it_was(home, monkeypatch):
    monkeypatch.setattr(store, "STEPS", (*LATER, "INSERT INTO nowhere VALUES (1)"))
    with pytest.raises(StoreError, match="nowhere"):
        Store(home.log)
    assert version(home.log) == 1 and rows(home.log, COLUMNS) == BEFORE


def test_without_room_for_the_copy_the_log_stays_as_it_was(home, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(store, "STEPS", LATER)
    monkeypatch.setattr("fedrank.deploy.database.create_private", full)
    with pytest.raises(StoreError, match="No space left"):
        Store(home.log)
    assert version(home.log) == 1 and rows(home.log, COLUMNS) == BEFORE


def test_a_log_of_a_later_version_is_refused_with_what_to_do(home, monkeypatch):
    monkeypatch.setattr(store, "STEPS", LATER)
    Store(home.log).close()
    before = home.log.read_bytes()
    monkeypatch.setattr(store, "STEPS", LATER[:-1])
    for read_only in (False, True):
        said = rf"of version {len(LATER)}.*up to {len(LATER) - 1}\. Use the version .*go back to hub.db.version-1"
        with pytest.raises(StoreError, match=said):
            Store(home.log, read_only=read_only)
    assert home.log.read_bytes() == before


@pytest.mark.slow
@pytest.mark.parametrize("place", ["copy:0", "kept:0", *(f"sql:{n}" for n in range(6, 20, 2))])
def test_a_process_that_is_killed_leaves_the_old_log_or_the_new_one(home, monkeypatch, place):
    with contextlib.closing(sqlite3.connect(home.log)) as db:
        db.execute("PRAGMA journal_mode = WAL")
    ended = subprocess.run([sys.executable, "-c", KILLED, str(home.log), place, repr(LATER)], check=False)
    assert ended.returncode in (0, -signal.SIGKILL)
    if place in ("copy:0", "kept:0"):
        assert ended.returncode == -signal.SIGKILL
    assert version(home.log) in (1, 3)
    assert rows(home.log, COLUMNS) == BEFORE
    monkeypatch.setattr(store, "STEPS", LATER)
    Store(home.log).close()  # and the next start goes on
    assert version(home.log) == len(LATER) and rows(home.log, COLUMNS) == BEFORE
    copies = sorted(p.name for p in home.path.glob("hub.db.version-1*"))
    assert copies == ["hub.db.version-1"] and rows(home.path / copies[0], COLUMNS) == BEFORE


def test_a_device_and_a_platform_go_through_later_steps_without_losing_anything(tmp_path, monkeypatch):
    device = outbox.Outbox(tmp_path / "device")
    with device.transaction():
        device._db.execute("INSERT INTO fact VALUES ('token', 'a secret')")
    device.close()
    kept = key_value_store.KeyValueStore(tmp_path / "platform.db", "a platform")
    kept.put({"round": b"7"})
    kept.close()
    monkeypatch.setattr(outbox, "STEPS", (*outbox.STEPS, "ALTER TABLE message ADD COLUMN later TEXT"))
    monkeypatch.setattr(key_value_store, "_STEPS", (*key_value_store._STEPS, "CREATE TABLE later (x INTEGER) STRICT"))
    device = outbox.Outbox(tmp_path / "device")
    assert device.lasting and device._db.execute("SELECT * FROM fact").fetchall() == [("token", "a secret")]
    assert device._db.execute("SELECT later FROM message").fetchall() == []
    device.close()
    kept = key_value_store.KeyValueStore(tmp_path / "platform.db", "a platform")
    assert kept.get("round") == b"7"
    kept.close()
    # A device forgets its token when it leaves: no copy of it stays.
    assert sorted(p.name for p in (tmp_path / "device").iterdir()) == [outbox.FILE]
