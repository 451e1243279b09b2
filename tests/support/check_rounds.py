"""Rounds of a hub with checks, in which devices say that its model rises or sinks."""

import asyncio
import hashlib

import numpy as np
from hubs import opened

from fedrank.deploy.draws import CHECK, beacon_of, drawn
from fedrank.deploy.hub.stages import Outcome


def private(layout, word, report):
    return layout.encode(layout.message(np.uint32(word), np.int32(report)))


def parts(hub, devices):
    """Devices that were drawn to compare in the open round, and the others."""
    if hub.view.best[5:] == hub.view.model[5:]:
        return [], list(devices)
    beacon = beacon_of(hub.view.model)
    compare = [d for d in devices if drawn(hub.row.admission.devices.key(d), CHECK, beacon, hub.terms.checks)]
    return compare, [d for d in devices if d not in compare]


def pair(hub):
    """What checks of the open round say about the model that they compare with."""
    return int.from_bytes(hashlib.sha256(hub.view.best[5:]).digest()[:4], "little")


async def one_round(hub, devices, better):
    """All report; checks say that the newest is better, or worse."""
    number = hub.view.round
    compare, learn = parts(hub, devices)
    top = hub.terms.number_mechanism.reports - 1
    check = [private(hub.terms.check, pair(hub), top if better else 0)] * len(compare)
    sent = [private(hub.terms.reply, 1000 * number + d, d % (top + 1)) for d in learn[: hub.settings.cohort]]
    outcomes = await asyncio.gather(*(hub.report(number, d, m) for d, m in zip(compare, check, strict=True)))
    assert set(outcomes) <= {Outcome.ACCEPTED}
    outcomes = await asyncio.gather(*(hub.report(number, d, m) for d, m in zip(learn, sent, strict=False)))
    assert set(outcomes) <= {Outcome.ACCEPTED}
    if len(sent) < hub.settings.cohort:  # nearly all were drawn to compare
        await hub.close_round(empty=True)
    await opened(hub, number + 1)
    return len(compare)


async def until_halted(hub, devices, most=60):
    """Play rounds whose checks say that the model sinks, until the hub halts; returns how many."""
    for played in range(most):
        if hub.view.state == "halted":
            return played
        await one_round(hub, devices, better=False)
    raise AssertionError("the hub never halted")
