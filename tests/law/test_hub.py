"""The hub's rounds: what counts, what does not, and what survives."""

import asyncio
import shutil
import sqlite3

import numpy as np
import pytest
from hubs import enrolled, make, message, opened, running, some_messages

from fedrank.core.errors import ConfigError, RunError
from fedrank.core.rng import perturbation
from fedrank.deploy import hub as hub_module
from fedrank.deploy.audit import replay_log
from fedrank.deploy.folder import HubFolder
from fedrank.deploy.hub import Outcome
from fedrank.deploy.settings import HubSettings
from fedrank.deploy.store import StoreError


def weights_of(hub) -> np.ndarray:
    return hub.terms.request.decode(hub.view.model).weights


def test_a_round_goes_by_the_papers_equations(tmp_path):
    async def story():
        async with running(make(tmp_path / "hub", p=1.0)) as hub:
            devices = await enrolled(hub, 4)
            sent = [(11, 5040, 0), (22, 2520, 2520), (33, 0, 1260), (44, 840, 0)]
            for device, (seed, plus, minus) in zip(devices, sent, strict=True):
                assert await hub.report(0, device, message(hub, seed, plus, minus)) is Outcome.ACCEPTED
            await opened(hub, 1)
            return weights_of(hub), hub.status()

    weights, status = asyncio.run(story())
    # Equations (4)-(6): the mean over devices of v (m+ - m-) / (2 sigma), with m the mean of two values in 1/2520.
    sent = [(11, 5040, 0), (22, 2520, 2520), (33, 0, 1260), (44, 840, 0)]
    gradient = np.mean([perturbation(s, 5) * (p - m) / 2 / 2520 / 0.02 for s, p, m in sent], axis=0)
    # Adam's first step is the sign of the gradient, but for its epsilon.
    np.testing.assert_allclose(weights, 1e-3 * gradient / (np.abs(gradient) + 1e-8), rtol=1e-5)
    (point,) = status["history"]
    assert point["reward"] == pytest.approx(np.mean([5040, 5040, 1260, 840]) / 4 / 2520)


def test_a_report_counts_once_however_often_it_is_sent(tmp_path):
    async def story():
        async with running(make(tmp_path / "hub")) as hub:
            first, second, *others = await enrolled(hub, 5)
            one, other = some_messages(hub, 2)
            together = await asyncio.gather(*(hub.report(0, first, one) for _ in range(20)))
            again = [await hub.report(0, first, one), await hub.report(0, first, other)]
            await hub.report(0, second, other)
            assert hub.status()["reports"] == 2
            for device, sent in zip(others[:2], some_messages(hub, 2, seed=1), strict=True):
                await hub.report(0, device, sent)
            await opened(hub, 1)
            late = [await hub.report(0, first, one), await hub.report(0, first, other), await hub.report(0, 5, one)]
            early = await hub.report(2, first, one)
        return together, again, late, early

    together, again, late, early = asyncio.run(story())
    assert sorted(outcome.value for outcome in together) == ["accepted"] + ["already"] * 19
    assert again == [Outcome.ALREADY, Outcome.CONFLICT]
    assert late == [Outcome.ALREADY, Outcome.STALE, Outcome.STALE]  # the first answer may have been lost on its way
    assert early is Outcome.EARLY
    with sqlite3.connect(tmp_path / "hub" / "hub.db") as db:
        assert db.execute("SELECT count(*) FROM report").fetchone() == (4,)


def test_reports_in_any_order_make_the_same_model(tmp_path):
    async def story(name, order):
        async with running(make(tmp_path / name)) as hub:
            devices = await enrolled(hub, 4)
            sent = some_messages(hub, 4)
            for i in order:
                await hub.report(0, devices[i], sent[i])
            await opened(hub, 1)
            return hub.view.model

    assert asyncio.run(story("a", [0, 1, 2, 3])) == asyncio.run(story("b", [3, 1, 0, 2]))


async def play(hub, devices, rounds, first=0):
    for round_ in range(first, first + rounds):
        for device, sent in zip(devices, some_messages(hub, len(devices), seed=round_), strict=True):
            assert await hub.report(round_, device, sent) is Outcome.ACCEPTED
        await opened(hub, round_ + 1)


def test_the_log_makes_the_very_model_again(tmp_path):
    home = make(tmp_path / "hub", ranker="mlp", hidden=3)

    async def story():
        async with running(home) as hub:
            devices = await enrolled(hub, 4)
            await play(hub, devices, 5)
            running_too = replay_log(home.path)  # while the hub is at work
            return weights_of(hub), running_too

    served, while_running = asyncio.run(story())
    found = replay_log(home.path)
    for one in (found, while_running):
        assert (one.rounds, one.reports, one.models_alike, one.difference) == (5, 20, 5, 0.0)
        assert one.proven
        np.testing.assert_array_equal(one.weights, served)
    less = replay_log(home.path, without=[2])
    assert (less.reports, less.left_out) == (15, 5)
    assert np.abs(less.weights - served).max() > 0
    np.testing.assert_array_equal(replay_log(home.path, until=0).weights, np.zeros(21))
    with pytest.raises(ConfigError, match="device 9 has no report"):
        replay_log(home.path, without=[9])
    with pytest.raises(ConfigError, match=r"0\.\.5"):
        replay_log(home.path, until=6)


def test_a_log_that_was_tampered_with_is_found_out(tmp_path):
    home = make(tmp_path / "hub")

    async def story():
        async with running(home) as hub:
            await play(hub, await enrolled(hub, 4), 3)
            return message(hub, 1, 2, 3)

    other = asyncio.run(story())
    with sqlite3.connect(home.log) as db:
        db.execute("UPDATE report SET message = ? WHERE round = 1 AND device = 2", (other,))
    changed = replay_log(home.path)
    assert not changed.proven
    assert changed.models_alike == 2  # rounds 0 and 1 were asked from models that the change does not touch
    with sqlite3.connect(home.log) as db:
        db.execute("DELETE FROM report WHERE round = 1 AND device = 2")
    with pytest.raises(RunError, match="round 1 was applied with 4 reports, the log has 3"):
        replay_log(home.path)


@pytest.mark.parametrize("lost", ["nothing", "newest checkpoint", "damaged checkpoint", "all checkpoints"])
def test_a_hub_goes_on_where_it_was(tmp_path, lost):
    async def story(home, stop):
        async with running(home) as hub:
            await play(hub, await enrolled(hub, 4), 3)
            await hub.report(3, 1, some_messages(hub, 4, seed=3)[0])
        if stop:
            files = sorted((home.path / "checkpoints").iterdir())
            if lost == "newest checkpoint":
                files[-1].unlink()
            elif lost == "damaged checkpoint":
                files[-1].write_bytes(files[-1].read_bytes()[:100])
            elif lost == "all checkpoints":
                shutil.rmtree(home.path / "checkpoints")
        async with running(home) as hub:
            assert (hub.view.round, hub.view.state, hub.status()["reports"]) == (3, "open", 1)
            sent = some_messages(hub, 4, seed=3)
            assert await hub.report(3, 1, sent[0]) is Outcome.ALREADY
            for device in (2, 3, 4):
                await hub.report(3, device, sent[device - 1])
            await opened(hub, 4)
            return hub.view.model

    whole = asyncio.run(story(make(tmp_path / "whole"), False))
    again = asyncio.run(story(make(tmp_path / "again"), True))
    assert whole == again


@pytest.mark.parametrize("where", ["closed, not applied", "checkpoint written, not applied"])
def test_a_round_that_was_closed_when_the_process_died_is_applied(tmp_path, where):
    async def story(home, crash):
        settings, store = home.open()
        hub = hub_module.Hub(home.path, store, settings)
        await hub.start()
        devices = await enrolled(hub, 4)
        if crash:

            def died(*_, **__):
                raise KeyboardInterrupt  # what no handler of the writer catches

            if where == "closed, not applied":
                hub.model.tell = died
            else:
                hub.store.applied = died
        for device, sent in zip(devices, some_messages(hub, 4), strict=True):
            await hub.report(0, device, sent)
        if crash:
            hub._thread.join()
            store.shut()
            async with running(home) as hub:
                await opened(hub, 1)
                return hub.view.model
        await opened(hub, 1)
        await hub.stop()
        return hub.view.model

    import threading

    hook, threading.excepthook = threading.excepthook, lambda *_: None
    try:
        crashed = asyncio.run(story(make(tmp_path / "a"), True))
    finally:
        threading.excepthook = hook
    assert crashed == asyncio.run(story(make(tmp_path / "b"), False))
    assert replay_log(tmp_path / "a").proven


def test_nothing_counts_while_the_log_cannot_be_written(tmp_path, monkeypatch):
    async def story():
        async with running(make(tmp_path / "hub")) as hub:
            devices = await enrolled(hub, 4)
            sent = some_messages(hub, 4)
            write = hub.store.write

            def full(*_):
                raise StoreError("database or disk is full")

            monkeypatch.setattr(hub.store, "write", full)
            assert await hub.report(0, devices[0], sent[0]) is Outcome.UNAVAILABLE
            assert not hub.healthy
            with pytest.raises(StoreError):
                await hub.enrol()
            assert hub.status()["reports"] == 0
            monkeypatch.setattr(hub.store, "write", write)
            assert await hub.report(0, devices[0], sent[0]) is Outcome.ACCEPTED
            assert hub.healthy
            # The disk is full again when the round is to be applied: it waits, and refuses nobody for good.
            monkeypatch.setattr(hub_module, "_TRY_AGAIN", 0.05)
            save, tries = hub.model._checkpoints.save, []

            def twice_full(*arguments):
                tries.append(1)
                if len(tries) < 3:
                    raise RunError("no space left")
                save(*arguments)

            monkeypatch.setattr(hub.model._checkpoints, "save", twice_full)
            for i in (1, 2, 3):
                assert await hub.report(0, devices[i], sent[i]) is Outcome.ACCEPTED
            await opened(hub, 1)
            assert len(tries) == 3 and hub.healthy

    asyncio.run(story())
    assert replay_log(tmp_path / "hub").proven


def test_a_real_full_disk_loses_nothing(tmp_path):
    """SQLite itself says that the disk is full, through a limit on the file's pages."""

    async def story():
        async with running(make(tmp_path / "hub", cohort=100_000)) as hub:
            pages = hub.store._db.execute("PRAGMA page_count").fetchone()[0]
            hub.store._db.execute(f"PRAGMA max_page_count = {pages}")
            outcomes = []
            for device in range(1, 2000):
                outcomes.append(await hub.report(0, device, some_messages(hub, 1, seed=device)[0]))
                if outcomes[-1] is not Outcome.ACCEPTED:
                    break
            assert outcomes[-1] is Outcome.UNAVAILABLE
            hub.store._db.execute(f"PRAGMA max_page_count = {pages + 100}")
            assert await hub.report(0, 5000, some_messages(hub, 1)[0]) is Outcome.ACCEPTED
            return len(outcomes)

    counted = asyncio.run(story())
    with sqlite3.connect(tmp_path / "hub" / "hub.db") as db:
        assert db.execute("SELECT count(*) FROM report").fetchone() == (counted,)  # one less that failed, one after it


class Clock:
    """A clock that is set by hand, in place of the module ``time``."""

    def __init__(self):
        self.now, self.wall = 1000.0, 1_700_000_000.0

    def monotonic(self):
        return self.now

    def time(self):
        return self.wall


def test_a_deadline_closes_a_round_with_what_it_has(tmp_path):
    async def story():
        async with running(make(tmp_path / "hub", cohort=100, least=2, deadline=0.3)) as hub:
            devices = await enrolled(hub, 2)
            sent = some_messages(hub, 2)
            await hub.report(0, devices[0], sent[0])
            await asyncio.sleep(0.5)
            assert hub.view.round == 0  # one report is less than the least
            await hub.report(0, devices[1], sent[1])
            await opened(hub, 1)
            assert hub.status()["history"][0]["reports"] == 2

    asyncio.run(story())


@pytest.mark.parametrize("jump", [-1e9, 1e9, 0.0])
def test_a_clock_that_jumps_closes_no_round_and_keeps_none_open(tmp_path, monkeypatch, jump):
    async def story():
        home = make(tmp_path / "hub", cohort=100, least=1, deadline=60.0)
        clock = Clock()
        monkeypatch.setattr(hub_module, "time", clock)
        async with running(home) as hub:
            (device,) = await enrolled(hub, 1)
            await hub.report(0, device, some_messages(hub, 1)[0])
            clock.wall += jump
            clock.now += 59
            await hub.leave(99)  # a turn of the writer
            assert hub.view.round == 0
        clock.now = 5.0  # the machine was started again: its monotonic clock begins anew
        async with running(home) as hub:
            left = hub._opened + 60 - clock.now
            assert 0 <= left <= 60
            clock.now += left + 1
            await hub.leave(99)
            await opened(hub, 1)

    asyncio.run(story())


def test_training_ends_after_its_rounds_and_goes_on_if_told_so(tmp_path):
    home = make(tmp_path / "hub", rounds=2)

    async def until_done():
        async with running(home) as hub:
            await play(hub, await enrolled(hub, 4), 2)
            assert (hub.view.state, hub.view.round) == ("done", 2)
            assert await hub.report(2, 1, some_messages(hub, 1)[0]) is Outcome.DONE
            return hub.view.model

    async def look():
        async with running(home) as hub:
            return hub.view.state, hub.view.model

    model = asyncio.run(until_done())
    assert asyncio.run(look()) == ("done", model)
    home.prepare(HubSettings(n_features=5, cohort=4, least=1, deadline=0.0, rounds=3))
    assert asyncio.run(look()) == ("open", model)


def test_tokens_are_kept_as_hashes_and_forgotten_when_a_device_leaves(tmp_path):
    home = make(tmp_path / "hub")

    async def story():
        async with running(home) as hub:
            token = await hub.enrol()
            device = hub.device_of(token)
            await hub.report(0, device, some_messages(hub, 1)[0])
            raw = b"".join(p.read_bytes() for p in home.path.glob("hub.db*"))
            assert token.encode() not in raw
            for wrong in ("", token[:-1], token + "x", "ä" * 40, "\udcff"):
                assert hub.device_of(wrong) is None
            assert await hub.leave(device) is True
            assert await hub.leave(device) is False
            assert hub.device_of(token) is None
            return device, hub.device_of(await hub.enrol())

    gone, new = asyncio.run(story())

    async def again():
        async with running(home) as hub:
            return hub.device_of(await hub.enrol())

    assert (gone, new, asyncio.run(again())) == (1, 2, 3)  # a number is never given twice


def test_terms_cannot_change_and_other_settings_can(tmp_path):
    home = make(tmp_path / "hub")
    with pytest.raises(ConfigError, match="sigma cannot be changed"):
        home.prepare(HubSettings(n_features=5, sigma=0.1))
    home.prepare(HubSettings(n_features=5, cohort=7))
    assert home.open()[0].cohort == 7
    text = home.settings.read_text()
    home.settings.write_text(text.replace("interactions = 4", "interactions = 8"))
    with pytest.raises(RunError, match="interactions is 8, was 4"):
        home.open()


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (dict(), "n_features"),
        (dict(n_features=5, interactions=3), "even"),
        (dict(n_features=5, cohort=0), "cohort"),
        (dict(n_features=5, least=200), "least"),
        (dict(n_features=5, p=0.01), r"p in \[1/11, 1\]"),
        (dict(n_features=5, mechanism="laplace"), "needs epsilon"),
        (dict(n_features=5, aggregate="meen"), "Did you mean 'mean'"),
        (dict(n_features=5, reward="Max"), "online metric"),
        (dict(n_features=2_000_000), "n_features"),
        (dict(n_features=900_000, ranker="mlp"), "1,000,000 weights"),
        (dict(n_features=5, ranker="linear", hidden=3), "linear without hidden"),
    ],
)
def test_settings_that_cannot_be_are_refused_before_anything_is_made(tmp_path, settings, words):
    with pytest.raises(ConfigError, match=words):
        HubFolder(tmp_path / "hub").prepare(HubSettings(**settings))
    assert not (tmp_path / "hub").exists()


def test_a_folder_of_other_things_is_left_alone(tmp_path):
    (tmp_path / "letter.txt").write_text("dear")
    with pytest.raises(RunError, match=r"letter\.txt"):
        make(tmp_path)
    with pytest.raises(StoreError, match="no hub here"):
        HubFolder(tmp_path).open()
    home = make(tmp_path / "hub")
    home.log.write_bytes(b"not a database at all" * 100)
    with pytest.raises(StoreError, match="cannot be opened"):
        home.open()


def test_one_process_serves_a_hub(tmp_path):
    home = make(tmp_path / "hub")
    with home.locked(), pytest.raises(RunError, match="another process"), HubFolder(home.path).locked():
        pass


def test_secrets_are_the_owners_and_stay(tmp_path):
    home = make(tmp_path / "hub")
    path = home.path / "admin.token"
    assert path.stat().st_mode & 0o777 == 0o600
    before = home.token("admin")
    home.prepare(HubSettings(**dict(n_features=5, cohort=4, least=1, deadline=0.0)))
    assert home.token("admin") == before != home.token("enrolment")
    path.write_text("short")
    with pytest.raises(RunError, match="16 characters"):
        home.token("admin")
