"""What an app may rely on: a device never raises, never loops, says a thing once, and is silent when told to."""

import math
import sys
import time

import numpy as np
import pytest
from fake_hub import ANYTHING, ENROLMENT, HUB, FakeHub

from fedrank.deploy.device import Device
from fedrank.deploy.terms import Terms

FEATURES = 4


EPSILON = 4 * math.log(0.9 * 10 / 0.1)  # of a message: B = 4, MaxRR with p = 0.9


TERMS = Terms(hub=HUB, n_features=FEATURES)


X = np.random.default_rng(0).random((12, FEATURES))


@pytest.fixture
def hub():
    with FakeHub(TERMS, np.arange(FEATURES)) as server:
        yield server


@pytest.fixture
def clock(monkeypatch):
    """The clock that does not jump, ahead by so many seconds."""
    ahead = [0.0]
    for name, module in list(sys.modules.items()):
        if name.startswith("fedrank.deploy.") and hasattr(module, "monotonic"):
            monkeypatch.setattr(module, "monotonic", lambda: time.monotonic() + ahead[0])
    return ahead


@pytest.fixture
def make(hub, tmp_path):
    """Makes devices on one folder; closes them in the end."""
    made = []

    def device(url=None, **settings):
        made.append(Device(url or hub.url, ENROLMENT, tmp_path / "device", **{"timeout": 2.0, **ANYTHING, **settings}))
        return made[-1]

    yield device
    for device in made:
        device.close()


def use(device, times=4, click=0):
    """So many searches, each with a click."""
    for _ in range(times):
        ranking = device.rank(X)
        if click is not None:
            device.log_click(ranking, click)
        device.finish(ranking)


def ready(make, **settings):
    """A device with a message to send."""
    device = make(**settings)
    assert device.sync().state == "OK"
    use(device)
    assert not device.wants_clicks
    return device
