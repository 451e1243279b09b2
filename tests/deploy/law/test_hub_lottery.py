"""A round that is open for a while draws by lot whose reports are used, so that the fastest do not decide."""

import asyncio
import collections
import sqlite3
import time

import pytest
from hubs import enrolled, make, message, opened, running, some_messages, trial_settings
from scipy import stats

from fedrank.core.errors import ConfigError
from fedrank.deploy.hub.audit import replay_log
from fedrank.deploy.hub.stages import Outcome


def used(home, round_):
    """Devices of a round whose messages are used, and those whose are not, from the file."""
    with sqlite3.connect(home.path / "hub.db") as log:
        rows = log.execute("SELECT device, length(message) FROM report WHERE round = ?", (round_,)).fetchall()
    return {device for device, size in rows if size}, {device for device, size in rows if not size}


#: Longer than any test: rounds are closed by the operator, when all have reported.
LONG = 3600.0


async def race(home, rounds, honest, attackers, whole):
    """Attackers report first in every round, honest devices after them; what is used of each."""
    counted = collections.Counter()
    async with running(home) as hub:
        devices = await enrolled(hub, honest + attackers)
        sent = some_messages(hub, len(devices))
        for number in range(rounds):
            await opened(hub, number)
            for group in (devices[honest:], devices[:honest]):
                await asyncio.gather(
                    *(hub.report(number, device, one) for device, one in zip(group, sent, strict=False))
                )
            if whole:
                assert await hub.close_round() == number
        await opened(hub, rounds)
    for number in range(rounds):
        mine, others = used(home, number)
        counted["attackers"] += len(mine & set(devices[honest:]))
        counted["all"] += len(mine)
        counted["unused"] += len(others)
    return counted


def test_attackers_who_are_always_first_get_their_share_and_no_more(tmp_path):
    """20 attackers beside 200 honest devices are 9 %; without the lottery they fill half of each round of 40."""
    first = asyncio.run(race(make(tmp_path / "first", cohort=40), 3, 200, 20, False))
    assert first["attackers"] / first["all"] >= 0.5
    drawn = asyncio.run(race(make(tmp_path / "drawn", cohort=40, round_seconds=LONG), 10, 200, 20, True))
    assert drawn["all"] == 400 and drawn["unused"] == 10 * 180
    assert stats.binomtest(drawn["attackers"], 400, 20 / 220).pvalue > 1e-6
    assert drawn["attackers"] / drawn["all"] < 0.17


def test_everybody_is_drawn_equally_often(tmp_path):
    home, rounds, n, cohort = make(tmp_path / "hub", cohort=6, round_seconds=LONG), 60, 12, 6
    drawn = collections.Counter()

    async def story():
        async with running(home) as hub:
            devices = await enrolled(hub, n)
            for number in range(rounds):
                await opened(hub, number)
                sent = zip(devices, some_messages(hub, n), strict=True)
                await asyncio.gather(*(hub.report(number, device, one) for device, one in sent))
                await hub.close_round()
            await opened(hub, rounds)

    asyncio.run(story())
    for number in range(rounds):
        drawn.update(used(home, number)[0])
    # Of each round half are drawn: counts are binomial, and add up to what is fixed.
    assert sum(drawn.values()) == rounds * cohort
    assert len(drawn) == n
    spread = sum((times - rounds / 2) ** 2 for times in drawn.values()) / (rounds / 4) * (n - 1) / n
    assert stats.chi2.sf(spread, n - 1) > 1e-6 and stats.chi2.cdf(spread, n - 1) > 1e-6


def test_a_round_is_open_for_its_time_and_closes_by_itself_then(tmp_path):
    async def story():
        async with running(make(tmp_path / "hub", round_seconds=2.0)) as hub:
            devices = await enrolled(hub, 9)
            sent = zip(devices, some_messages(hub, 9), strict=True)
            outcomes = await asyncio.gather(*(hub.report(0, device, one) for device, one in sent))
            again = await hub.report(0, devices[0], some_messages(hub, 9)[0])
            assert hub.status()["reports"] == 9 and hub.view.state == "open"
            await opened(hub, 1)
            return outcomes, again, hub.status()

    outcomes, again, status = asyncio.run(story())
    assert set(outcomes) == {Outcome.ACCEPTED} and again is Outcome.ALREADY
    (point,) = status["history"]
    assert point["seconds"] >= 2.0 and point["reports"] == 4


def test_who_was_not_drawn_has_told_something_all_the_same(tmp_path):
    async def story():
        async with running(make(tmp_path / "hub", cohort=1, round_seconds=LONG)) as hub:
            devices = await enrolled(hub, 5)
            for number in range(6):
                await opened(hub, number)
                for device, one in zip(devices, some_messages(hub, 5), strict=True):
                    await hub.report(number, device, one)
                await hub.close_round()
            await opened(hub, 6)
            return hub.status()["epsilon"]["messages_most"]

    assert asyncio.run(story()) == 6


def test_few_reports_wait_for_more_and_then_for_the_deadline(tmp_path):
    async def story():
        async with running(make(tmp_path / "hub", round_seconds=0.1, deadline=0.6, least=1)) as hub:
            start = hub.round.opened
            (device,) = await enrolled(hub, 1)
            await hub.report(0, device, some_messages(hub, 1)[0])
            await opened(hub, 1)
            return time.monotonic() - start

    assert asyncio.run(story()) >= 0.5


def test_the_log_gives_the_model_of_what_was_drawn(tmp_path):
    home = make(tmp_path / "hub", cohort=5, round_seconds=LONG)
    asyncio.run(race(home, 4, 10, 3, True))
    replayed = replay_log(home.path)
    assert (replayed.rounds, replayed.reports) == (4, 20) and replayed.proven


def test_a_hub_that_was_killed_with_a_full_round_draws_and_goes_on(tmp_path):
    home = make(tmp_path / "hub", cohort=3, round_seconds=LONG)

    async def first():
        async with running(home) as hub:
            devices = await enrolled(hub, 8)
            for device, one in zip(devices, some_messages(hub, 8), strict=True):
                await hub.report(0, device, one)
            return devices

    devices = asyncio.run(first())
    settings = home.settings.read_text().replace("round_seconds = 3600.0", "round_seconds = 0.05")
    home.settings.write_text(settings)

    async def second():
        async with running(home) as hub:
            await opened(hub, 1)
            return await hub.report(0, devices[0], some_messages(hub, 8)[0]), hub.status()

    outcome, status = asyncio.run(second())
    drawn, unused = used(home, 0)
    assert len(drawn) == 3 and drawn | unused == set(devices)
    assert outcome is Outcome.ALREADY and status["epsilon"]["messages_most"] == 1
    assert replay_log(home.path).proven


def test_who_was_not_drawn_is_not_asked_to_send_again_after_a_restart(tmp_path):
    home = make(tmp_path / "hub", cohort=1, round_seconds=LONG)

    async def first():
        async with running(home) as hub:
            devices = await enrolled(hub, 5)
            for device in devices:
                await hub.report(0, device, message(hub, device, 1, 0))
            await hub.close_round()
            await opened(hub, 1)

    asyncio.run(first())
    _, unused = used(home, 0)

    async def second():
        async with running(home) as hub:
            return {await hub.report(0, device, message(hub, device, 1, 0)) for device in unused}

    assert asyncio.run(second()) == {Outcome.STALE}  # devices drop it; it never counts twice


def test_a_round_cannot_be_open_for_longer_than_its_deadline():
    with pytest.raises(ConfigError, match="round_seconds"):
        trial_settings(n_features=5, deadline=10.0, round_seconds=20.0)
