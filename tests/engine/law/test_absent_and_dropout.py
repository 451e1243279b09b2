"""Parties that are absent stay so where others drop out by chance, and chance works on the others as before."""

import jax.numpy as jnp
import numpy as np
from worlds import tiny_parties, tiny_protocol

from fedrank.engine.simulator import Conditions, Simulator, run_keys

PARTIES, ROUNDS = 24, 4
ABSENT = tuple(n % 3 == 0 for n in range(PARTIES))


def arrived(**conditions):
    protocol = tiny_protocol()
    simulator = Simulator(protocol, conditions=Conditions(**conditions), record=True)
    parties = tiny_parties(protocol, PARTIES)
    keys = run_keys([0])
    states, own = simulator.start(keys, parties)
    seen = simulator.advance(keys, states, parties.shared, own, 0, ROUNDS)[2]
    return np.asarray(jnp.squeeze(seen["arrived"], 1))


def test_absence_and_drop_out_add_up():
    both, dropped = arrived(dropout=0.5, absent=ABSENT), arrived(dropout=0.5)
    np.testing.assert_array_equal(both, dropped & ~np.asarray(ABSENT))
    assert 0 < both.sum() < dropped.sum() < PARTIES * ROUNDS
    assert not both[:, np.asarray(ABSENT)].any()


def test_absence_alone_takes_nobody_else_out():
    np.testing.assert_array_equal(arrived(absent=ABSENT), np.tile(~np.asarray(ABSENT), (ROUNDS, 1)))
