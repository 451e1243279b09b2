"""Hubs for tests: tiny settings, messages, and a loop to run them in."""

import asyncio
import contextlib

import numpy as np

from fedrank.deploy.hub.folder import HubFolder
from fedrank.deploy.hub.hub import Hub
from fedrank.deploy.hub.settings import TRIAL, HubSettings

SETTINGS = dict(n_features=5, cohort=4, least=1, deadline=0.0, mechanism="randomised-response")


def trial_settings(**settings) -> HubSettings:
    """Settings of a hub whose devices report in every round, and under their own tokens."""
    return HubSettings(**{**TRIAL, **settings})


def make(folder, **settings) -> HubFolder:
    """A new hub's folder."""
    home = HubFolder(folder)
    home.prepare(trial_settings(**{**SETTINGS, **settings}))
    return home


@contextlib.asynccontextmanager
async def running(home: HubFolder):
    """The hub of a folder, at work."""
    settings, store = home.open()
    hub = Hub(home.path, store, settings)
    await hub.start()
    try:
        yield hub
    finally:
        await hub.stop()


async def enrolled(hub: Hub, devices: int) -> list[int]:
    """Numbers of new devices."""
    tokens = await asyncio.gather(*(hub.enrol() for _ in range(devices)))
    return [hub.device_of(token) for token in tokens]


async def opened(hub: Hub, round_: int) -> None:
    """Wait until a round is open, or training is over."""
    for _ in range(3000):
        if hub.view.round >= round_ and hub.view.state != "between":
            return
        await asyncio.sleep(0.01)
    raise AssertionError(f"round {round_} was not opened: {hub.view.round} {hub.view.state}")


def message(hub: Hub, seed: int, plus: int, minus: int) -> bytes:
    """A report's bytes."""
    layout = hub.terms.reply
    return layout.encode(layout.message(np.uint32(seed), np.int32(plus), np.int32(minus)))


def some_messages(hub: Hub, count: int, seed: int = 0) -> list[bytes]:
    """Reports that honest devices may send."""
    random = np.random.default_rng(seed)
    most = hub.terms.per_half * hub.terms.metric.largest
    return [
        message(hub, int(random.integers(2**32)), *(int(v) for v in random.integers(0, most + 1, 2)))
        for _ in range(count)
    ]
