"""A backup of a hub: all of its files or none, of one moment, and a hub that goes on from it."""

import asyncio
import sqlite3
import stat

import numpy as np
import pytest
from hubs import enrolled, make, running, some_messages
from log_worlds import LocalHub, device, synced

from fedrank.core.errors import ConfigError, RunError
from fedrank.deploy.device import State
from fedrank.deploy.hub.folder import HubFolder

X = np.eye(3)


def modes(folder):
    return {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}


@pytest.mark.slow
def test_a_hub_goes_on_from_a_backup_and_so_do_devices_that_had_synchronised_before(tmp_path):
    with LocalHub(tmp_path / "hub") as hub:
        early, late = device(hub, tmp_path / "early"), device(hub, tmp_path / "late")
        for _ in range(3):
            hub.next_round()
        for one in (early, late):
            assert synced(one).state is State.OK
        names = hub.home.back_up(tmp_path / "copy")
        round_ = hub.hub.view.round
        hub.do(hub.hub.report(round_, 1, some_messages(hub.hub, 1)[0]))  # lost; without it the rounds would be the same
        hub.next_round()
        assert synced(late).state is State.OK  # it has seen a model that the backup does not have
    assert names == ["admin.token", "enrolment.token", "hub.db", "hub.toml", "log.key"]
    assert set(modes(tmp_path / "copy").values()) == {0o600}
    assert stat.S_IMODE((tmp_path / "copy").stat().st_mode) == 0o700
    with LocalHub(tmp_path / "copy") as restored:
        assert restored.hub.view.round == round_
        for one in (early, late):
            one._connection._hub = restored
        assert synced(early).state is State.OK and early.rank(X).learning
        assert synced(late).state is State.UNPROVEN
        for _ in range(4):  # also when the log is longer than it was
            restored.next_round()
        assert synced(early).state is State.OK
        assert synced(late).state is State.UNPROVEN
    for one in (early, late):
        one.close()


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
def test_the_keys_of_tokens_are_in_a_backup_so_that_devices_go_on(tmp_path):
    """With other keys of the same epochs in the log, no device would use a model until they left its tail."""
    with LocalHub(tmp_path / "hub", tokens=3) as hub:
        one = device(hub, tmp_path / "d")
        for _ in range(4):
            hub.next_round()
            assert synced(one).state is State.OK
        hub.home.back_up(tmp_path / "copy")
    with LocalHub(tmp_path / "copy", tokens=3) as restored:
        one._connection._hub = restored
        for _ in range(8):
            assert synced(one).state is State.OK
            restored.next_round()
    one.close()


def test_a_backup_has_the_gateways_key(tmp_path):
    home = make(tmp_path / "hub", cohort=100, tokens=1, batch=2)
    (home.path / "attestation.toml").write_text("")
    assert home.back_up(tmp_path / "copy") == sorted(
        ["admin.token", "attestation.toml", "enrolment.token", "gateway.key", "hub.db", "hub.toml", "log.key"]
    )
    copy = HubFolder(tmp_path / "copy")
    assert copy.gateway().public == home.gateway().public


def test_a_backup_is_never_written_over(tmp_path):
    home = make(tmp_path / "hub")
    (tmp_path / "copy").mkdir()
    with pytest.raises(ConfigError, match="exists"):
        home.back_up(tmp_path / "copy")
    assert list((tmp_path / "copy").iterdir()) == []


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
