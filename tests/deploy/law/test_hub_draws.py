"""A device draws by itself whether it is due and what it tries; the hub draws the same, and refuses the rest."""

import asyncio
import dataclasses
import json

import numpy as np
import pytest
from hub_apps import served
from hubs import enrolled, make, message, opened, running, trial_settings
from scipy import stats

from fedrank.core.errors import ConfigError, WireError
from fedrank.deploy.draws import DUE, SEED, beacon_of, drawn, key_of, word
from fedrank.deploy.hub.audit import replay_log
from fedrank.deploy.hub.stages import Outcome
from fedrank.deploy.terms import Terms

LONG = dict(round_seconds=3600.0, deadline=3600.0)


def due(hub, devices):
    """Devices that are due in the open round."""
    beacon = beacon_of(hub.view.model)
    return [d for d in devices if drawn(hub.row.admission.devices.key(d), DUE, beacon, hub.terms.due)]


def test_a_share_of_the_devices_is_drawn_anew_in_each_round():
    """Draws of 400 devices in 25 rounds: binomial, and nobody is drawn in all or in none."""
    keys = [key_of(f"token-{n}") for n in range(400)]
    table = np.array([[drawn(k, DUE, beacon_of(b"%d" % r), 0.3) for r in range(25)] for k in keys])
    assert stats.binomtest(int(table.sum()), table.size, 0.3).pvalue > 1e-6
    for counts, n in ((table.sum(0), 400), (table.sum(1), 25)):
        spread = ((counts - 0.3 * n) ** 2).sum() / (n * 0.3 * 0.7)
        assert 1e-6 < stats.chi2.sf(spread, len(counts)) < 1 - 1e-6


def test_a_report_of_a_device_that_was_not_due_is_refused_and_costs_nothing(tmp_path):
    home = make(tmp_path / "hub", due=0.5, **LONG)

    async def story():
        async with running(home) as hub:
            devices = await enrolled(hub, 30)
            early = {await hub.report(0, d, message(hub, d, 1, 0)) for d in devices}
            assert early == {Outcome.NOT_DUE}  # the first round could be seen before they enrolled, as any other
            await hub.close_round(empty=True)
            await opened(hub, 1)
            mine = due(hub, devices)
            outcomes = {d: await hub.report(1, d, message(hub, d, 1, 0)) for d in devices}
            assert {d for d, one in outcomes.items() if one is Outcome.ACCEPTED} == set(mine)
            assert {one for d, one in outcomes.items() if d not in mine} == {Outcome.NOT_DUE}
            assert 0 < len(mine) < 30 and hub.status()["reports"] == len(mine)
            await hub.close_round()
            await opened(hub, 2)
            late = await enrolled(hub, 30)
            return {await hub.report(2, d, message(hub, d, 1, 0)) for d in due(hub, late)}

    assert asyncio.run(story()) == {Outcome.NOT_DUE}  # they might have enrolled because they are due
    assert replay_log(home.path).proven


def test_a_round_in_which_too_few_are_due_ends_at_its_deadline(tmp_path):
    async def story():
        async with running(make(tmp_path / "hub", due=2.0**-30, deadline=0.3, least=2)) as hub:
            await enrolled(hub, 3)
            model = hub.view.model
            await opened(hub, 2)
            return model, hub.view.model

    first, later = asyncio.run(story())
    assert first[5:] == later[5:] and first[1:5] != later[1:5]


def test_real_devices_report_when_they_are_due_and_not_else(tmp_path):
    home = make(tmp_path / "hub", due=0.5, interactions=2, **LONG)
    x = np.eye(5, dtype=np.float32)
    with served(home) as one:
        devices = [one.device(tmp_path / f"device-{n}") for n in range(10)]
        for device in devices:
            device.sync()
            assert not device.wants_clicks  # new in the first round, as in any other
        one.do(one.hub.close_round(empty=True))
        one.do(opened(one.hub, 1))
        for number in range(1, 3):
            mine, sent = None, 0
            for device in devices:
                device.sync()
                wanted = device.wants_clicks
                for _ in range(2):
                    ranking = device.rank(x)
                    device.log_click(ranking, 0)
                    device.finish(ranking)
                    assert ranking.learning is wanted
                told = device.sync()
                assert told.state == "OK" and told.next_in >= 30  # nobody polls in a race
                sent += told.sent
                assert told.sent == int(wanted)
            mine = due(one.hub, range(1, 11))
            assert sent == len(mine) and one.app.counters.refusals_by_reason() == {}
            one.do(one.hub.close_round(empty=True))
            one.do(opened(one.hub, number + 1))
        late = one.device(tmp_path / "late")
        late.sync()
        assert not late.wants_clicks  # until the next round
        late.close()
        for device in devices:
            device.close()


def test_the_seed_is_the_one_that_was_drawn(tmp_path):
    home = make(tmp_path / "hub", drawn_seeds=True, interactions=2, **LONG)
    x = np.eye(5, dtype=np.float32)
    with served(home) as one:
        devices = [one.device(tmp_path / f"device-{n}") for n in range(4)]
        for device in devices:
            device.sync()
        mine = devices[0]._memory.token
        early = word(key_of(mine), SEED, beacon_of(one.hub.view.model))
        got = one.do(one.hub.report(0, one.hub.device_of(mine), message(one.hub, early, 1, 0)))
        assert got is Outcome.NOT_DUE  # it might have enrolled for this very seed
        one.do(one.hub.close_round(empty=True))
        one.do(opened(one.hub, 1))
        for device in devices:
            device.sync()
        token = devices[0]._memory.token
        beacon = beacon_of(one.hub.view.model)
        seed = word(key_of(token), SEED, beacon)
        number = one.hub.device_of(token)
        assert one.do(one.hub.report(1, number, message(one.hub, seed ^ 1, 1, 0))) is Outcome.NOT_DUE
        for device in devices:
            for _ in range(2):
                device.finish(device.rank(x))
            assert device.sync().sent == 1
        reports = dict(one.hub.store.reports(1))
        for device in devices:
            number = one.hub.device_of(device._memory.token)
            wanted = word(key_of(device._memory.token), SEED, beacon)
            assert reports[number][1:5] == wanted.to_bytes(4, "little")
            device.close()


def test_a_client_of_the_first_version_refuses_draws_and_not_checks():
    """Version 2 stands in the terms where a device has to do what one of version 1 does not know."""
    base = Terms(hub="0" * 32, n_features=5)
    assert base.wire == 1 and dataclasses.replace(base, checks=0.1, wire=0).wire == 1
    for version, more in (
        (2, {"due": 0.5}),
        (2, {"drawn_seeds": True}),
        (3, {"tokens": 2}),
        (3, {"tokens": 1, "due": 0.5}),
    ):
        terms = dataclasses.replace(base, **more, wire=0)
        assert terms.wire == version and Terms.from_json(json.dumps(terms.as_json())) == terms
    with pytest.raises(WireError):
        Terms.from_json(json.dumps({**base.as_json(), "due": 0.5}))


def test_settings_that_make_no_sense_are_refused():
    for wrong, said in [
        ({"due": 0.0}, "due"),
        ({"due": 1.5}, "due"),
    ]:
        with pytest.raises(ConfigError, match=said):
            trial_settings(n_features=5, **wrong)
