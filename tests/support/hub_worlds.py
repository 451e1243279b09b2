"""The hub's rounds: what counts, what does not, and what survives."""

from hubs import opened, some_messages

from fedrank.deploy.hub.stages import Outcome


async def play(hub, devices, rounds, first=0):
    for round_ in range(first, first + rounds):
        for device, sent in zip(devices, some_messages(hub, len(devices), seed=round_), strict=True):
            assert await hub.report(round_, device, sent) is Outcome.ACCEPTED
        await opened(hub, round_ + 1)
