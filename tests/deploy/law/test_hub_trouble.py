"""What a hub does when the disk, a crash or somebody else's hand gets in its way."""

import asyncio
import sqlite3

import numpy as np
import pytest
from hub_worlds import play
from hubs import SETTINGS, enrolled, make, message, opened, running, some_messages, trial_settings

from fedrank.core.errors import RunError
from fedrank.deploy.checkpoints import Checkpoints
from fedrank.deploy.hub import hub as hub_module
from fedrank.deploy.hub.admission import NotAdmittedError
from fedrank.deploy.hub.audit import replay_log
from fedrank.deploy.hub.folder import HubFolder
from fedrank.deploy.hub.service import hub_app
from fedrank.deploy.hub.stages import Outcome
from fedrank.deploy.hub.store import StoreError
from fedrank.engine import checkpoint


def full(*_, **__):
    raise StoreError("database or disk is full")


@pytest.mark.parametrize(
    "left",
    [
        {"hub.db": b""},
        {"hub.db": b"", "hub.db-journal": b"x" * 100},
        {"enrolment.token": b""},
        {"enrolment.token": b"a-token-of-the-operators-own\n", "admin.token": b""},
        {"hub.toml.123.partial": b"n_feat", "enrolment.token.123.partial": b""},
    ],
)
def test_a_hub_whose_making_was_interrupted_is_made(tmp_path, left):
    """The process died in the middle, or the disk was full: room is made, and the same command works."""
    (tmp_path / "hub").mkdir()
    for name, content in left.items():
        (tmp_path / "hub" / name).write_bytes(content)
    home = make(tmp_path / "hub")
    settings, store = home.open()
    store.close()
    assert settings.n_features == 5 and len(home.token("admin")) >= 16
    if b"operators" in left.get("enrolment.token", b""):
        assert home.token("enrolment") == "a-token-of-the-operators-own"
    assert (home.path / "admin.token").stat().st_mode & 0o777 == 0o600


def test_a_log_made_for_other_settings_is_made_again_unless_devices_use_it(tmp_path):
    home = make(tmp_path / "hub")
    home.settings.unlink()  # as if the process had died before it was written
    home.prepare(trial_settings(**{**SETTINGS, "sigma": 0.5}))
    assert home.open()[0].sigma == 0.5

    async def story():
        async with running(home) as hub:
            await hub.enrol()

    asyncio.run(story())
    home.settings.unlink()
    with pytest.raises(RunError, match=r"Put hub\.toml back"):
        make(tmp_path / "hub")


def test_nobody_is_told_that_something_was_done_which_was_not(tmp_path, monkeypatch):
    async def story():
        async with running(make(tmp_path / "hub")) as hub:
            (device,) = await enrolled(hub, 1)
            monkeypatch.setattr(hub.store, "write", full)
            for asked in (hub.leave(device), hub.enrol()):
                with pytest.raises(StoreError):
                    await asked
            assert not hub.healthy and device in hub.row.admission.devices
            monkeypatch.setattr(hub_module, "_TRY_AGAIN", 0.05)
            for _ in range(200):  # nobody asks anything: it looks by itself whether it can write again
                if hub.healthy:
                    break
                await asyncio.sleep(0.02)
            assert hub.healthy

    asyncio.run(story())


def test_an_applied_round_is_applied_once_however_often_it_is_tried(tmp_path, monkeypatch):
    """The commit took effect and the answer to it was lost."""

    async def story():
        async with running(make(tmp_path / "hub")) as hub:
            monkeypatch.setattr(hub_module, "_TRY_AGAIN", 0.02)
            applied, tries = hub.store.apply_round, []

            def done_and_failed(*arguments, **named):
                applied(*arguments, **named)
                tries.append(1)
                if len(tries) < 3:
                    full()

            monkeypatch.setattr(hub.store, "apply_round", done_and_failed)
            await play(hub, await enrolled(hub, 4), 1)
            assert len(tries) == 3 and hub.view.round == 1 and hub.healthy

    asyncio.run(story())
    assert replay_log(tmp_path / "hub").proven


def test_what_somebody_else_wrote_into_the_log_is_what_counts(tmp_path):
    async def story():
        async with running(make(tmp_path / "hub")) as hub:
            devices = await enrolled(hub, 3)
            planted, other, third = some_messages(hub, 3)
            with sqlite3.connect(hub.store.path) as db:
                db.execute("INSERT INTO report VALUES (0, ?, ?)", (devices[0], planted))
            answers = await asyncio.gather(
                hub.report(0, devices[0], other), hub.report(0, devices[1], third), hub.report(0, devices[0], planted)
            )
            assert sorted(a.value for a in answers) == ["accepted", "already", "conflict"]
            assert hub.healthy

    asyncio.run(story())


def test_a_round_takes_no_more_reports_than_close_it(tmp_path):
    async def story():
        async with running(make(tmp_path / "hub", cohort=4)) as hub:
            devices, sent = await enrolled(hub, 50), some_messages(hub, 50)
            outcomes = await asyncio.gather(*(hub.report(0, d, m) for d, m in zip(devices, sent, strict=True)))
            await opened(hub, 1)
            assert sum(outcome is Outcome.ACCEPTED for outcome in outcomes) == 4
            assert set(outcomes) <= {Outcome.ACCEPTED, Outcome.BETWEEN, Outcome.STALE}

    asyncio.run(story())


def test_a_tag_names_what_the_model_is(tmp_path):
    async def story(name, seed):
        async with running(make(tmp_path / name)) as hub:
            devices = await enrolled(hub, 4)
            for device, sent in zip(devices, some_messages(hub, 4, seed), strict=True):
                await hub.report(0, device, sent)
            await opened(hub, 1)
            return hub.view.etag

    tags = [asyncio.run(story(name, seed)) for name, seed in (("a", 1), ("b", 1), ("c", 2))]
    contents = [tag.strip('"').split("-")[2] for tag in tags]
    assert contents[0] == contents[1] != contents[2]
    assert [tag.strip('"').split("-")[1] for tag in tags] == ["1"] * 3


def test_the_last_round_is_proven_too(tmp_path):
    """By the round that is open after it, whose model the log names; without that, nobody says that it is proven."""
    home = make(tmp_path / "hub")

    async def story():
        async with running(home) as hub:
            await play(hub, await enrolled(hub, 4), 3)
            return message(hub, 1, 2, 3)

    other = asyncio.run(story())
    with sqlite3.connect(home.log) as db:
        db.execute("DELETE FROM state")
    assert replay_log(home.path).proven is True
    with sqlite3.connect(home.log) as db:
        db.execute("UPDATE report SET message = ? WHERE round = 2 AND device = 1", (other,))
    assert replay_log(home.path).proven is False
    assert replay_log(home.path, until=2).proven is True
    with sqlite3.connect(home.log) as db:
        db.execute("UPDATE round SET model = NULL WHERE number = 3")
    assert replay_log(home.path).proven is None


def test_states_of_other_settings_or_of_another_round_are_refused(tmp_path):
    state = {"weights": np.arange(3.0)}
    mine, others = Checkpoints(tmp_path, {"sigma": 0.01}), Checkpoints(tmp_path, {"sigma": 0.02})
    mine.save(4, state)
    with pytest.raises(RunError, match="other settings"):
        others.newest(state)
    (tmp_path / "state-00000004.npz").rename(tmp_path / "state-00000005.npz")
    with pytest.raises(RunError, match="other settings"):
        mine.newest(state)


def test_no_flipped_bit_of_a_checkpoint_is_taken_for_a_state(tmp_path):
    path = tmp_path / "state-00000003.npz"
    state = (np.arange(5, dtype=np.float32), np.uint32(3))
    checkpoint.save(path, state, {"of": "x"})
    whole = path.read_bytes()
    for at in range(0, len(whole)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << at % 8]) + whole[at + 1 :])
        try:
            found, about = checkpoint.load(path, state)
        except RunError:
            continue
        assert about == {"of": "x"}  # a byte that nothing depends on
        np.testing.assert_array_equal(found[0], state[0])


def test_there_is_an_end_to_how_many_devices_enrol(tmp_path):
    async def story():
        async with running(make(tmp_path / "hub", most_devices=2)) as hub:
            await enrolled(hub, 2)
            with pytest.raises(NotAdmittedError) as refused:
                await hub.enrol()
            assert refused.value.reason == "hub-full" and hub.full

    asyncio.run(story())


def test_devices_that_enrol_at_once_are_never_more_than_the_hub_takes(tmp_path):
    async def story():
        async with running(make(tmp_path / "hub", most_devices=7)) as hub:
            outcomes = await asyncio.gather(*(hub.enrol() for _ in range(50)), return_exceptions=True)
            assert sum(isinstance(one, str) for one in outcomes) == 7 == len(hub.row.admission.devices)
            assert {one.reason for one in outcomes if isinstance(one, Exception)} == {"hub-full"}
            assert await hub.leave(3)
            assert not hub.full and await hub.enrol()

    asyncio.run(story())


def test_one_token_for_everything_is_refused(tmp_path):
    home = make(tmp_path / "hub")
    (home.path / "admin.token").write_text(home.token("enrolment"))
    with pytest.raises(RunError, match="are the same"):
        hub_app(home)


def test_an_epsilon_counts_the_report_of_the_open_round(tmp_path):
    async def story():
        async with running(make(tmp_path / "hub")) as hub:
            assert hub.status()["epsilon"]["messages_most"] == 0
            devices = await enrolled(hub, 4)
            await hub.report(0, devices[0], some_messages(hub, 1)[0])
            first = hub.status()["epsilon"]
            assert first["messages_most"] == 1 and first["user_basic"] == pytest.approx(first["message"])
            for device, sent in zip(devices[1:], some_messages(hub, 3, seed=1), strict=True):
                await hub.report(0, device, sent)
            await opened(hub, 1)
            assert hub.status()["epsilon"]["messages_most"] == 1
            await hub.report(1, devices[2], some_messages(hub, 1)[0])
            assert hub.status()["epsilon"]["messages_most"] == 2
        async with running(HubFolder(tmp_path / "hub")) as hub:  # after a restart, too
            assert hub.status()["epsilon"]["messages_most"] == 2

    asyncio.run(story())
