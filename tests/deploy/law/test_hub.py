"""The hub's rounds: what counts, what does not, and what survives."""

import asyncio
import sqlite3

import numpy as np
import pytest
from hub_worlds import play
from hubs import enrolled, make, message, opened, running, some_messages

from fedrank.core.errors import ConfigError, RunError
from fedrank.core.rng import perturbation
from fedrank.deploy.hub import hub as hub_module
from fedrank.deploy.hub.audit import replay_log
from fedrank.deploy.hub.inbox import Job, plan_batch
from fedrank.deploy.hub.stages import Outcome
from fedrank.deploy.hub.store import StoreError


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
        assert (one.rounds, one.reports, one.models, one.models_alike, one.difference) == (5, 20, 6, 6, 0.0)
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
    assert (changed.models, changed.models_alike) == (
        4,
        2,
    )  # rounds 0 and 1 were asked from models that the change does not touch
    with sqlite3.connect(home.log) as db:
        db.execute("DELETE FROM report WHERE round = 1 AND device = 2")
    with pytest.raises(RunError, match="round 1 was applied with 4 reports, the log has 3"):
        replay_log(home.path)


@pytest.mark.parametrize("lost", ["nothing", "newest state", "damaged state", "all states"])
def test_a_hub_goes_on_where_it_was(tmp_path, lost):
    async def story(home, stop):
        async with running(home) as hub:
            await play(hub, await enrolled(hub, 4), 3)
            await hub.report(3, 1, some_messages(hub, 4, seed=3)[0])
        if stop:
            with sqlite3.connect(home.log) as db:
                assert db.execute("SELECT round FROM state ORDER BY round").fetchall() == [(1,), (2,), (3,)]
                if lost == "newest state":
                    db.execute("DELETE FROM state WHERE round = 3")
                elif lost == "damaged state":
                    db.execute("UPDATE state SET data = substr(data, 1, 100) WHERE round = 3")
                elif lost == "all states":
                    db.execute("DELETE FROM state")
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
                hub.row.model.tell = died
            else:
                hub.store.apply_round = died
        for device, sent in zip(devices, some_messages(hub, 4), strict=True):
            await hub.report(0, device, sent)
        if crash:
            hub._thread.join()
            store.close()
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
            save, tries = hub.row.model._checkpoints.save, []

            def twice_full(*arguments):
                tries.append(1)
                if len(tries) < 3:
                    raise RunError("no space left")
                save(*arguments)

            monkeypatch.setattr(hub.row.model._checkpoints, "save", twice_full)
            for i in (1, 2, 3):
                assert await hub.report(0, devices[i], sent[i]) is Outcome.ACCEPTED
            await opened(hub, 1)
            assert len(tries) == 3 and hub.healthy

    asyncio.run(story())
    assert replay_log(tmp_path / "hub").proven


def test_a_round_that_had_enough_when_the_process_died_closes_by_itself(tmp_path):
    """The last report was committed, and the process ended before it closed the round: no device is left to report."""
    home = make(tmp_path / "hub")

    async def story():
        async with running(home) as hub:
            devices = await enrolled(hub, 4)
            sent = some_messages(hub, 4)
            for device, message_ in zip(devices[:3], sent[:3], strict=True):
                await hub.report(0, device, message_)
            hub.store.write([], [], [(0, devices[3], sent[3])])
        async with running(home) as hub:
            await opened(hub, 1)

    asyncio.run(story())
    assert replay_log(home.path).proven


def test_a_device_that_left_is_forgotten_at_once(tmp_path):
    async def story():
        async with running(make(tmp_path / "hub")) as hub:
            token = await hub.enrol()
            number = hub.device_of(token)
            assert await hub.leave(number)
            assert hub.device_of(token) is None and len(hub.row.admission.devices) == 0
            assert not await hub.leave(number)

    asyncio.run(story())


def test_a_deadline_closes_no_round_with_fewer_reports_than_the_operator_wants(tmp_path):
    async def story():
        async with running(make(tmp_path / "hub", deadline=0.05, least=2)) as hub:
            first, second = await enrolled(hub, 2)
            one, other = some_messages(hub, 2)
            await hub.report(0, first, one)
            await asyncio.sleep(0.1)
            await hub.enrol()  # the writer looks at the clock after every batch of jobs
            assert await hub.report(0, first, one) is Outcome.ALREADY
            assert (hub.view.round, hub.view.state) == (0, "open")
            await hub.report(0, second, other)
            await opened(hub, 1)

    asyncio.run(story())


def test_a_batch_fills_a_round_and_no_more():
    loop = asyncio.new_event_loop()
    try:
        batch = [Job("report", loop.create_future(), 0, device, bytes([device])) for device in range(5)]
        plan = plan_batch(batch, lambda *_: None, set(range(5)), 3)
    finally:
        loop.close()
    assert plan.reports == {0: b"\0", 1: b"\1", 2: b"\2"}
    assert [answer for _, answer in plan.answers] == [Outcome.ACCEPTED] * 3 + [Outcome.BETWEEN] * 2
