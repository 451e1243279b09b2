"""Audits of what a silo sends with noise: its own code, with the operating system's randomness.

Both worlds have the same rows, of which one has the other label.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Int64

from fedrank.core.privacy_report import DELTA, Unit
from fedrank.privacy.audit import Audit
from fedrank.silos.records.perturbed import perturbed
from fedrank.silos.records.ranges import Ranges, ranges_of
from fedrank.silos.records.statistics import released

_WORLDS = "One record of a silo's table has label 0, or label 1."
#: Steps of the number that is judged.
_STEPS = 2**16


#: Columns, and the rows of both worlds: the first one lies at the end of every range.
_COLUMNS, _ROWS = 2, 3


def _world(world: int) -> tuple[np.ndarray, np.ndarray]:
    x = np.zeros((_ROWS, _COLUMNS))
    x[0] = 1.0
    return x, np.array([world, 0, 1], float)


def _ranges() -> Ranges:
    return ranges_of(("x", "z"), {"x": (-1.0, 1.0), "z": (-1.0, 1.0)}, clip=_COLUMNS**0.5)


def record_statistics(epsilon: float = 1.0, delta: float = DELTA) -> Audit:
    """The noisy sums that a silo sends.

    Args:
        epsilon: ε of a record, in nats.
        delta: δ.
    """
    ranges = _ranges()

    def sample(world: int, trials: int) -> Int64[np.ndarray, " trials"]:
        told = (released(*_world(world), ranges, epsilon, delta) for _ in range(trials))
        return np.rint([one.first.sum() / one.sigma_first * _STEPS for one in told]).astype(np.int64)

    return Audit("record-statistics", Unit.RECORD, _WORLDS, epsilon, sample, delta, True, True, 4_000)


def record_model(epsilon: float = 1.0, delta: float = DELTA) -> Audit:
    """The coefficients of a logistic model that a silo sends with noise.

    Args:
        epsilon: ε of a record, in nats.
        delta: δ.
    """
    ranges = _ranges()

    def sample(world: int, trials: int) -> Int64[np.ndarray, " trials"]:
        made = (perturbed(*_world(world), ranges, epsilon, delta) for _ in range(trials))
        return np.rint([one.beta.sum() / one.sigma * _STEPS for one in made]).astype(np.int64)

    return Audit("record-model", Unit.RECORD, _WORLDS, epsilon, sample, delta, True, True, 4_000)


def record_network(epsilon: float = 1.0, delta: float = DELTA) -> Audit:
    """A small network trained by DP-SGD for two steps on all rows.

    Args:
        epsilon: ε of a record, in nats.
        delta: δ.
    """
    import jax
    import jax.numpy as jnp

    from fedrank.silos.data.rows import Rows
    from fedrank.silos.network import TabularNetwork
    from fedrank.silos.private_sgd import PrivateSgd

    network = TabularNetwork(_COLUMNS, (), "none")
    sgd = PrivateSgd(network, epochs=2, batch=_ROWS, epsilon=epsilon, delta=delta).for_rows({_ROWS})
    ((_, z),) = sgd.multipliers
    train = jax.jit(jax.vmap(sgd.train, in_axes=(None, None, 0)))

    def sample(world: int, trials: int) -> Int64[np.ndarray, " trials"]:
        x, y = (jnp.asarray(one, jnp.float32) for one in _world(world))
        each = [sgd.draw_from_os(sgd.rng_shape(_ROWS)) for _ in range(trials)]
        draws = jax.tree.map(lambda *leaves: jnp.stack(leaves), *each)
        made = np.asarray(train(jnp.zeros(network.size), Rows(x, y, jnp.int32(_ROWS)), draws), float)
        # Weights and biases of label 1 less those of label 0: along it the record's label moves the network.
        along = (made.reshape(trials, -1, 2) @ np.array([-1.0, 1.0])).sum(axis=1)
        return np.rint(along / (z * sgd.learning_rate / _ROWS) * _STEPS).astype(np.int64)

    return Audit("record-network", Unit.RECORD, _WORLDS, epsilon, sample, delta, True, True, 4_000)
