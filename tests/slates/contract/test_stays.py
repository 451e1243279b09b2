"""Stays that NumPy plays together against the same rounds in JAX, one after another: models, sums and engagement."""

import jax
import numpy as np
import pytest

from fedrank.core.protocol import Party
from fedrank.engine.settings import from_dict
from fedrank.engine.simulator import Simulator
from fedrank.slates.build import experiment_of
from fedrank.slates.config import SlatesRun
from fedrank.slates.sums.stays import StayRounds, plays_stays

ROUNDS = 15  # twice: a stop in the middle of a stay of four rounds, and one program for both halves
WORLD = {"candidates": 5, "slate": 2, "time_budget": 8, "preset": "tension"}
SETTINGS = {
    "learnt": {"slates": {"explorers": 3, "evidence": 0.0}},
    "sent": {
        "slates": {"explorers": 4, "evidence": 0.0, "releases": 2, "feedback": "all", "design": "sent"},
        "sharing": {"epsilon": 1.0},
    },
    "bounded": {
        "slates": {"explorers": 3, "evidence": 0.0},
        "sharing": {"bounders": 1, "epsilon": 2.0},
        "world": {"turns": "shuffled"},
    },
}


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_stays_played_together_are_those_of_the_simulator(settings):
    config = from_dict(
        {"protocol": "planned-slates", "rounds": 32} | settings | {"world": WORLD | settings.get("world", {})}
    )
    config = config.resolved()
    assert isinstance(config, SlatesRun)
    experiment = experiment_of(config)
    assert plays_stays(experiment.protocol)
    together, simulator = StayRounds(experiment.protocol), Simulator(experiment.protocol)
    keys = simulator.keys([3, 4])
    theirs = simulator.start(keys, experiment.first_parties(keys), per_run=True)
    ours = together.begin(together.keys([3, 4]), Party(None, None))
    for first in (0, ROUNDS):
        *theirs, wanted = simulator.advance(keys, theirs[0], None, theirs[1], first, ROUNDS)
        *ours, seen = together.advance(together.keys([3, 4]), ours[0], None, ours[1], first, ROUNDS)
        for name in ("engagement", "over"):
            np.testing.assert_allclose(seen["world"][name], wanted["world"][name], rtol=1e-4, atol=1e-5)
        assert (seen["crossed"] == np.asarray(wanted["crossed"])).all()
    own, kept = ours[1], jax.device_get(theirs[1])
    np.testing.assert_allclose(together.models(ours[0]), simulator.models(theirs[0]), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(own.learnt.table, kept.learnt.table, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(own.learnt.lists, kept.learnt.lists)
    assert np.abs(own.sums - kept.sums).max() <= 2 and (own.norms == kept.norms).all()  # steps, by rounding
