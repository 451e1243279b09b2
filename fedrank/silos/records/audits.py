"""Audits of what a silo sends: its own code, with noise from the operating system.

Of noise both worlds have the same rows, of which one has the other label.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Int64

from fedrank.core.privacy_report import DELTA, Unit
from fedrank.privacy.audit import Audit

#: What the two worlds differ in.
WORLDS = "one record of a silo's table has label 0, or label 1"
#: Steps of the number that is judged.
STEPS = 2**16


#: Columns, and the rows of both worlds: the first one lies at the end of every range.
COLUMNS, _ROWS = 2, 3


def world_rows(world: int) -> tuple[np.ndarray, np.ndarray]:
    """Features and labels of a world; the first row's label is the world's number."""
    x = np.zeros((_ROWS, COLUMNS))
    x[0] = 1.0
    return x, np.array([world, 0, 1], float)


def record_network(epsilon: float = 1.0, delta: float = DELTA) -> Audit:
    """A small network trained by DP-SGD for two steps on all rows.

    Args:
        epsilon: ε of a record, in nats.
        delta: δ.
    """
    return _network("record-network", epsilon, delta, epochs=2, batch=_ROWS)


def record_network_batches(epsilon: float = 1.0, delta: float = DELTA) -> Audit:
    """A small network trained by DP-SGD for thirty steps, in each of which every row is with a probability of a third.

    Thirty sampled steps come close to Gaussian noise (Bu et al., *Deep learning with Gaussian differential privacy*,
    Harvard Data Science Review 2020), by whose trade-off curve they are judged. What is shown errs on the safe side:
    of the promised ε, 1, 4 or 8, an attacker who knew everything could show 1.00, 3.99 or 7.93.

    Args:
        epsilon: ε of a record, in nats.
        delta: δ.
    """
    return _network("record-network-batches", epsilon, delta, epochs=10, batch=1)


def _network(name: str, epsilon: float, delta: float, *, epochs: int, batch: int) -> Audit:
    from fedrank.silos.config import RecordPrivacy
    from fedrank.silos.data.splits import Rows
    from fedrank.silos.network import TabularNetwork
    from fedrank.silos.records.private_sgd import Draws, PrivateSgd

    network = TabularNetwork(COLUMNS, (), "none")
    # Steps so short that the record's gradient stays what it was, and longer than what it is cut to.
    privacy = RecordPrivacy(epsilon=epsilon, delta=delta)
    sgd = PrivateSgd(network, epochs, batch, 1e-3, privacy=privacy).for_rows({_ROWS})
    ((_, z),) = sgd.multipliers

    def sample(world: int, trials: int) -> Int64[np.ndarray, " trials"]:
        x, y = (np.repeat(one[None].astype(np.float32), trials, axis=0) for one in world_rows(world))
        each = [sgd.draw_from_os(sgd.rng_shape(_ROWS)) for _ in range(trials)]
        draws = Draws(*(np.stack(leaves) for leaves in zip(*each, strict=True)))
        rows = Rows(x, y, np.full(trials, _ROWS, np.int32))
        made = sgd.train(np.zeros((trials, network.size), np.float32), rows, draws).astype(float)
        # Weights and biases of label 1 less those of label 0: along it the record's label moves the network.
        along = (made.reshape(trials, -1, 2) @ np.array([-1.0, 1.0])).sum(axis=1)
        return np.rint(along / (z * sgd.learning_rate / _ROWS) * STEPS).astype(np.int64)

    return Audit(name, Unit.RECORD, WORLDS, epsilon, sample, delta, True, True, 4_000)


#: Validation rows of each label, and AUCs that are told of them.
_OF_EACH, _TOLD = 1_000, 30


def record_auc(epsilon: float = 1.0, delta: float = DELTA) -> Audit:
    """The AUCs that a target tells during a run, of models that all rank one of its rows first, or last.

    Args:
        epsilon: ε of a record, in nats.
        delta: δ.
    """
    from fedrank.metrics.offline import host_auc
    from fedrank.silos.data.splits import Rows
    from fedrank.silos.records.private_sgd import NoisyJudgements, os_noise

    noise = NoisyJudgements(epsilon, delta, _TOLD)
    n = 2 * _OF_EACH
    y = np.repeat([0, 1], _OF_EACH).astype(np.float32)

    def sample(world: int, trials: int) -> Int64[np.ndarray, " trials"]:
        scores = np.tile(np.arange(_OF_EACH, dtype=np.float32), 2)
        scores[-1] = 2 * n if world else -2 * n
        told = np.full((1, _TOLD), host_auc(scores, y, np.ones(n, bool)), np.float32)
        rows = Rows(scores[None, :, None], y[None], np.array([n], np.int32))
        values = noise.add_noise(told, rows, os_noise((trials, _TOLD))).astype(float)
        return np.rint(values.sum(axis=1) * _OF_EACH * STEPS).astype(np.int64)

    worlds = "models rank one of a silo's rows of label 1 below all others, or above"
    return Audit("record-auc", Unit.RECORD, worlds, epsilon, sample, delta, True, True, 20_000)
