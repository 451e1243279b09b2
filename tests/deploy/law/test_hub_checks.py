"""Some devices compare the newest model with the best one; a hub whose model sinks halts and says so."""

import asyncio
import contextlib
import json
import logging
import sqlite3
import sys
import time

import numpy as np
import pytest
from check_rounds import one_round, pair, parts, private, until_halted
from hub_apps import served
from hubs import enrolled, make, opened, running, trial_settings

from fedrank.core.errors import ConfigError
from fedrank.deploy.hub.audit import replay_log
from fedrank.deploy.hub.checks import Watch
from fedrank.deploy.hub.stages import Outcome
from fedrank.deploy.hub.store import StoreError

PIECEWISE = dict(mechanism="piecewise", epsilon=4.0, checks=0.5, cohort=4, check_margin=0.0)


def test_a_sinking_model_halts_the_hub_and_the_best_is_served(tmp_path, caplog):
    home = make(tmp_path / "hub", **PIECEWISE)

    async def story():
        async with running(home) as hub:
            devices = await enrolled(hub, 24)
            await one_round(hub, devices, better=True)
            assert hub.view.best[1:5] == bytes(4) and hub.view.round == 1
            await until_halted(hub, devices)
            view, status = hub.view, hub.status()
            late = await hub.report(view.round, devices[0], private(hub.terms.reply, 1, 0))
            assert await hub.close_round() is None and await hub.close_round(empty=True) is None
            return view, status, late

    view, status, late = asyncio.run(story())
    assert view.state == "halted" and late is Outcome.DONE
    assert view.model[5:] == view.best[5:] == bytes(4 * 5)  # round 0's weights: zeros
    alert = status["alert"]
    assert (alert["best"], alert["round"]) == (0, view.round - 1) and "resume" in alert["words"]
    assert any("ranks worse" in record.message and record.levelno == logging.ERROR for record in caplog.records)
    assert status["checks"]["money"] >= status["checks"]["alarm_at"] == 20
    assert status["checks"]["mean"] < 0 and status["checks"]["low"] < status["checks"]["mean"]
    replayed = replay_log(home.path)
    assert replayed.proven and replayed.models_alike == replayed.models and replayed.difference == 0.0
    assert not replayed.weights.any()


def test_a_halt_outlives_the_process_and_ends_when_the_operator_says(tmp_path):
    home = make(tmp_path / "hub", **PIECEWISE)

    async def first():
        async with running(home) as hub:
            devices = await enrolled(hub, 24)
            await until_halted(hub, devices)
            assert await hub.resume() == hub.view.round and hub.view.state == "open"
            assert await hub.resume() is None
            await one_round(hub, devices, better=True)  # the newest is the best: all learn
            assert hub.view.state == "open" and hub.view.model[5:] != bytes(4 * 5)
            await until_halted(hub, devices)
            return devices, hub.view

    devices, view = asyncio.run(first())

    async def second():
        async with running(home) as hub:
            assert (hub.view.state, hub.view.model, hub.view.etag) == ("halted", view.model, view.etag)
            assert hub.status()["alert"]["best"] == 0
            resumed = await hub.resume()
            await one_round(hub, devices, better=False)
            return resumed, hub.view, hub.status()

    resumed, after, status = asyncio.run(second())
    assert resumed == view.round and after.state == "open" and status["alert"] is None
    assert [one["resumed"] is not None for one in status["checks"]["halts"]] == [True, True]
    assert replay_log(home.path).proven
    with sqlite3.connect(home.log) as db:  # everything from the log
        db.execute("DELETE FROM state")

    async def third():
        async with running(home) as hub:
            return hub.view

    assert asyncio.run(third()).model == after.model


@pytest.mark.parametrize("step", ["close_round", "apply_round"])
def test_a_hub_that_dies_while_it_halts_halts_again(tmp_path, monkeypatch, step):
    home, died = make(tmp_path / "hub", **PIECEWISE), []

    async def first():
        async with running(home) as hub:
            devices = await enrolled(hub, 24)
            real, compared = getattr(hub.store, step), []

            def dies(*arguments, **named):
                about_to = named.get("judged") is not None and named["judged"][0].sinks
                if step == "apply_round" and about_to:
                    died.append(hub.view.round)
                    raise SystemError("killed here")
                if step == "close_round" and compared:
                    real(*arguments, **named)
                    died.append(hub.view.round)
                    raise SystemError("killed here")
                return real(*arguments, **named)

            monkeypatch.setattr(hub.store, step, dies)
            for _ in range(60):
                number = hub.view.round
                assert not hub.view.over
                compare, learn = parts(hub, devices)
                for d in compare:
                    await hub.report(number, d, private(hub.terms.check, pair(hub), 0))
                compared += compare
                for d in learn[: hub.settings.cohort]:
                    await hub.report(number, d, private(hub.terms.reply, d, 0))
                if len(learn) < hub.settings.cohort:
                    with contextlib.suppress(StoreError):  # it may be this close that it dies at
                        await hub.close_round(empty=True)
                for _ in range(500):
                    if died or hub.view.round > number or hub.view.over:
                        break
                    await asyncio.sleep(0.01)
                if died:
                    return devices

    devices = asyncio.run(first())
    assert died

    async def second():
        async with running(home) as hub:
            await opened(hub, died[0] + 1)
            await until_halted(hub, devices)
            return hub.view, hub.status()

    view, status = asyncio.run(second())
    assert view.state == "halted" and not any(view.model[5:])
    assert len(status["checks"]["halts"]) == 1 and replay_log(home.path).proven


def test_a_failing_disk_in_between_changes_no_verdict(tmp_path, monkeypatch):
    monkeypatch.setattr("fedrank.deploy.hub.hub._TRY_AGAIN", 0.01)
    states = []
    for name, broken in (("whole", False), ("broken", True)):
        home = make(tmp_path / name, **PIECEWISE)

        async def story(home=home, broken=broken):
            async with running(home) as hub:
                tokens = iter(range(10**6))
                monkeypatch.setattr(
                    "fedrank.deploy.hub.hub.secrets.token_urlsafe", lambda _: f"a-device-token-{next(tokens)}"
                )
                real, failures = hub.store.apply_round, []

                def fails(*arguments, **named):
                    if broken and len(failures) % 3 < 2:
                        failures.append(1)
                        raise StoreError("database or disk is full")
                    failures.append(0)
                    real(*arguments, **named)

                monkeypatch.setattr(hub.store, "apply_round", fails)
                devices = await enrolled(hub, 24)
                await one_round(hub, devices, better=False)
                await one_round(hub, devices, better=False)
                return json.loads(hub.store.watch()), hub.view.model

        states.append(asyncio.run(story()))
    assert states[0] == states[1] and states[0][0]["checks"] > 0


def test_a_better_model_becomes_the_best(tmp_path):
    home = make(tmp_path / "hub", **PIECEWISE)

    async def story():
        async with running(home) as hub:
            devices = await enrolled(hub, 24)
            models = []
            for _ in range(30):
                models.append(hub.view.model)
                await one_round(hub, devices, better=True)
                best = hub.status()["checks"]["best"]
                if best:
                    break
            assert hub.view.best == models[best]  # as it was handed out
            assert hub.status()["checks"]["checks"] == 0
            await until_halted(hub, devices)
            return hub.view, models[best], best

    view, model, best = asyncio.run(story())
    assert view.model[5:] == model[5:] and best > 0
    assert replay_log(home.path).proven


def test_checks_count_from_devices_that_were_drawn_only(tmp_path):
    home = make(tmp_path / "hub", **PIECEWISE, round_seconds=3600.0)

    async def story():
        async with running(home) as hub:
            devices = await enrolled(hub, 24)
            for device in devices[:6]:
                assert await hub.report(0, device, private(hub.terms.check, pair(hub), 0)) is Outcome.NOT_DUE
                assert await hub.report(0, device, private(hub.terms.reply, 0, 0)) is Outcome.ACCEPTED
            await hub.close_round()
            await opened(hub, 1)
            late = await enrolled(hub, 24)
            compare, learn = parts(hub, devices)
            drawn_late, _ = parts(hub, late)
            right, wrong = private(hub.terms.check, pair(hub), 0), private(hub.terms.check, pair(hub) ^ 1, 0)
            assert compare and learn and drawn_late
            assert await hub.report(1, learn[0], right) is Outcome.NOT_DUE
            assert await hub.report(1, compare[0], wrong) is Outcome.NOT_DUE
            assert await hub.report(1, drawn_late[0], right) is Outcome.NOT_DUE  # it could have enrolled for that
            assert await hub.report(1, compare[0], right) is Outcome.ACCEPTED
            assert await hub.report(1, compare[0], right) is Outcome.ALREADY
            assert await hub.report(1, compare[0], private(hub.terms.reply, 1, 0)) is Outcome.CONFLICT
            assert await hub.report(1, compare[1], private(hub.terms.reply, 1, 0)) is Outcome.ACCEPTED
            status = hub.status()
            return status["reports"], status["checked"]

    assert asyncio.run(story()) == (1, 1)


def test_checks_leave_the_model_as_it_is_and_take_no_room(tmp_path):
    home = make(tmp_path / "hub", **PIECEWISE)

    async def story():
        async with running(home) as hub:
            devices = await enrolled(hub, 40)
            await one_round(hub, devices, better=True)
            compared = await one_round(hub, devices, better=True)
            return compared, hub.status()["history"]

    compared, history = asyncio.run(story())
    assert compared >= 4 and [point["reports"] for point in history] == [4, 4]


def test_a_real_device_compares_when_it_was_drawn(tmp_path):
    home = make(tmp_path / "hub", **{**PIECEWISE, "cohort": 8, "interactions": 2}, round_seconds=3600.0)
    x = np.eye(5, dtype=np.float32)
    with served(home) as one:
        devices = [one.device(tmp_path / f"device-{n}") for n in range(8)]
        for number in range(3):
            for device in devices:
                assert device.sync().state in ("OK", "STALE")
                for _ in range(2):
                    ranking = device.rank(x)
                    device.log_click(ranking, 0)
                    device.finish(ranking)
                assert device.sync().sent == 1
            kinds, wanted = [row[1][0] for row in one.hub.store.reports(number)], parts(one.hub, range(1, 9))[0]
            assert one.do(one.hub.close_round()) == number
            one.do(opened(one.hub, number + 1))
            assert kinds.count(0x27) == len(wanted) and len(kinds) == 8
        words = "\n".join(row.words for device in devices for row in device.ledger())
        assert "compared with" in words
        epsilons = {row.epsilon for device in devices for row in device.ledger()}
        assert epsilons == {4.0}  # a check costs what a message costs
        for device in devices:
            device.close()


def test_an_operator_is_told_and_resumes_over_http(tmp_path):
    heard = tmp_path / "heard.json"
    script = f"import sys; open({str(heard)!r}, 'w').write(sys.stdin.read())"
    home = make(tmp_path / "hub", **PIECEWISE, alert_command=f'{sys.executable} -c "{script}"')
    with served(home) as one:
        admin = home.token("admin")
        assert one.ask("POST", "/v1/admin/resume", admin).error == "not-halted"
        devices = one.do(enrolled(one.hub, 24))
        token = one.do(one.hub.enrol())
        one.do(until_halted(one.hub, devices))
        model = one.ask("GET", "/v1/model", token)
        assert model.headers["fedrank-state"] == "done" and model.body == one.hub.view.model
        metrics = one.ask("GET", "/metrics").body.decode()
        assert "fedrank_alert 1.0" in metrics and 'fedrank_state{state="halted"} 1.0' in metrics
        page = one.ask("GET", "/status").body.decode()
        assert "Learning is halted" in page and 'role="alert"' in page
        end = time.monotonic() + 20
        while not (heard.exists() and heard.read_text().endswith("}")):
            assert time.monotonic() < end
            time.sleep(0.02)
        assert json.loads(heard.read_text())["alert"] == "model-sinks"
        assert one.ask("POST", "/v1/admin/resume", token).code == 401
        assert one.ask("POST", "/v1/admin/resume", admin).json == {"round": one.hub.view.round}
        assert one.ask("GET", "/v1/model", token).headers["fedrank-state"] == "open"


def test_randomised_response_is_compared_as_well():
    """What checks tell has the difference of the mean rewards as its mean, as parts of the largest reward."""
    terms = trial_settings(n_features=5, p=0.7, checks=0.1, interactions=2, depth=3).terms()
    watch = Watch(terms, 0.0, 0.05)
    metric, n = terms.metric, terms.metric.n
    means = []
    for plus, minus in ((n - 1, 0), (0, n - 1), (1, 1)):
        weights = [[0.7 if i == true else 0.3 / (n - 1) for i in range(n)] for true in (plus, minus)]
        mean = 0.0
        for i in range(n):
            for j in range(n):
                message = terms.check.encode(
                    terms.check.message(np.uint32(0), np.int32(metric.numerators[i]), np.int32(metric.numerators[j]))
                )
                mean += weights[0][i] * weights[1][j] * float(watch.estimates.of([message])[0])
        means.append(mean)
    assert means == pytest.approx([1.0, -1.0, 0.0], abs=1e-9)


def test_settings_that_make_no_sense_are_refused():
    for wrong, said in [
        ({"checks": 1.5}, "checks"),
        ({"checks": 0.1, "mechanism": "laplace", "epsilon": 1.0}, "laplace"),
        ({"checks": 0.1, "p": 1 / 11}, "tell nothing"),
        ({"checks": 0.1, "collect": True}, "collect"),
        ({"checks": 0.1, "check_margin": 2.0}, "check_margin"),
        ({"checks": 0.1, "check_alarm": 0.0}, "check_alarm"),
        ({"alert_command": "echo 'a"}, "alert_command"),
        ({"alert_url": "ftp://a"}, "alert_url"),
    ]:
        with pytest.raises(ConfigError, match=said):
            trial_settings(n_features=5, **wrong)
