"""A hub that collects for a coordinator: it hands out what it is given, and learns nothing itself."""

import asyncio

import numpy as np
import pytest
from hubs import enrolled, make, opened, running, some_messages

from fedrank.core.errors import RunError, WireError
from fedrank.deploy.hub.audit import replay_log
from fedrank.deploy.hub.stages import Outcome


def question(hub, round_, weights=(0.0, 1.0, 2.0, 3.0, 4.0)):
    layout = hub.terms.request
    return layout.encode(layout.message(np.uint32(round_), np.float32(weights)))


async def closed(hub, round_):
    for _ in range(3000):
        found = await hub.collect(round_)
        if found is not None:
            return found
        await asyncio.sleep(0.01)
    raise AssertionError("the round was not closed")


def test_a_coordinators_rounds(tmp_path):
    home = make(tmp_path / "hub", collect=True)

    async def first():
        async with running(home) as hub:
            devices = await enrolled(hub, 4)
            assert hub.view.state == "between"
            assert await hub.report(0, 1, some_messages(hub, 1)[0]) is Outcome.BETWEEN
            assert await hub.collect(3) is None
            assert await hub.ask_round(question(hub, 3)) is Outcome.ACCEPTED
            assert (hub.view.round, hub.view.state, hub.view.model) == (3, "open", question(hub, 3))
            assert await hub.ask_round(question(hub, 3)) is Outcome.ALREADY
            assert await hub.ask_round(question(hub, 4)) is Outcome.CONFLICT  # the round is open
            sent = some_messages(hub, 4)
            for device, message in zip(reversed(devices), reversed(sent), strict=True):
                assert await hub.report(3, device, message) is Outcome.ACCEPTED
            assert await closed(hub, 3) == b"".join(sent)  # by device, not by arrival
            assert await hub.report(3, 1, sent[0]) is Outcome.ALREADY  # its answer was lost
            assert await hub.ask_round(question(hub, 3, np.ones(5))) is Outcome.STALE
            assert await hub.ask_round(question(hub, 2)) is Outcome.STALE
            assert await hub.ask_round(question(hub, 7)) is Outcome.ACCEPTED  # it had missed some
            assert await hub.report(3, 2, sent[1]) is Outcome.ALREADY
            assert await hub.report(7, 2, sent[1]) is Outcome.ACCEPTED
            with pytest.raises(WireError):
                await hub.ask_round(question(hub, 8)[:-1])
            assert hub.status()["history"][0]["reports"] == 4
            return sent

    async def again(sent):
        async with running(home) as hub:
            assert (hub.view.round, hub.view.state, hub.view.model) == (7, "open", question(hub, 7))
            assert await hub.report(7, 2, sent[1]) is Outcome.ALREADY
            assert await hub.report(3, 2, sent[1]) is Outcome.ALREADY
            assert await hub.close_round() == 7
            assert await hub.collect(7) == sent[1]
            assert await hub.collect(3) == b"".join(sent)

    async def between():
        async with running(home) as hub:
            assert hub.view.state == "between"
            assert await hub.ask_round(question(hub, 8)) is Outcome.ACCEPTED

    sent = asyncio.run(first())
    asyncio.run(again(sent))
    asyncio.run(between())
    with pytest.raises(RunError, match="collects"):
        replay_log(home.path)


def test_a_log_that_was_put_back_asks_what_it_asked(tmp_path):
    """The question stands in the log, with the round that it opened."""
    home = make(tmp_path / "hub", collect=True)

    async def story():
        async with running(home) as hub:
            await hub.ask_round(question(hub, 7))
        copy = home.log.read_bytes()
        async with running(home) as hub:
            (device,) = await enrolled(hub, 1)
            await hub.report(7, device, some_messages(hub, 1)[0])
            await hub.close_round()
            await hub.ask_round(question(hub, 9))
        home.log.write_bytes(copy)
        async with running(home) as hub:
            assert (hub.view.round, hub.view.state, hub.view.model) == (7, "open", question(hub, 7))
            assert await hub.close_round() is None
            assert await hub.close_round(empty=True) == 7
            assert await hub.collect(7) == b""
            assert await hub.ask_round(question(hub, 9)) is Outcome.ACCEPTED

    asyncio.run(story())


def test_a_report_that_was_counted_is_known_between_rounds_after_a_restart(tmp_path):
    home = make(tmp_path / "hub", collect=True)

    async def story():
        async with running(home) as hub:
            await hub.ask_round(question(hub, 0))
            (device,) = await enrolled(hub, 1)
            (sent,) = some_messages(hub, 1)
            await hub.report(0, device, sent)
            await hub.close_round()
            assert hub.status()["bytes"]["reports"] == len(sent) and hub.status()["applied"] == 1
        async with running(home) as hub:
            assert hub.view.state == "between"
            assert await hub.report(0, device, sent) is Outcome.ALREADY
            await hub.ask_round(question(hub, 1))
            assert await hub.report(0, device, sent) is Outcome.ALREADY

    asyncio.run(story())


def test_between_rounds_one_can_wait_for_the_next(tmp_path):
    async def story():
        async with running(make(tmp_path / "hub", collect=True)) as hub:
            assert (await hub.wait_for_round(0.05)).state == "between"
            waiting = asyncio.create_task(hub.wait_for_round(20.0))
            await asyncio.sleep(0.05)
            assert not waiting.done()
            await hub.ask_round(question(hub, 0))
            assert (await waiting).state == "open"
            await opened(hub, 0)

    asyncio.run(story())
