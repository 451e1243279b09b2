"""Audits of what a silo sends once: its own code, with noise from the operating system."""

from __future__ import annotations

import numpy as np
from jaxtyping import Int64

from fedrank.core.privacy_report import DELTA, Unit
from fedrank.privacy.audit import Audit
from fedrank.silos.records.audits import COLUMNS, STEPS, WORLDS, world_rows
from fedrank_zoo.noisy_statistics.ranges import Ranges, ranges_of
from fedrank_zoo.noisy_statistics.releases import perturb, release_sums


def _ranges() -> Ranges:
    return ranges_of(("x", "z"), {"x": (-1.0, 1.0), "z": (-1.0, 1.0)}, clip=COLUMNS**0.5)


def record_statistics(epsilon: float = 1.0, delta: float = DELTA) -> Audit:
    """The noisy sums that a silo sends.

    Args:
        epsilon: ε of a record, in nats.
        delta: δ.
    """
    ranges = _ranges()

    def sample(world: int, trials: int) -> Int64[np.ndarray, " trials"]:
        told = (release_sums(*world_rows(world), ranges, epsilon, delta) for _ in range(trials))
        return np.rint([one.first.sum() / one.sigma_first * STEPS for one in told]).astype(np.int64)

    return Audit("record-statistics", Unit.RECORD, WORLDS, epsilon, sample, delta, True, True, 4_000)


def record_model(epsilon: float = 1.0, delta: float = DELTA) -> Audit:
    """The coefficients of a logistic model that a silo sends with noise.

    Args:
        epsilon: ε of a record, in nats.
        delta: δ.
    """
    ranges = _ranges()

    def sample(world: int, trials: int) -> Int64[np.ndarray, " trials"]:
        made = (perturb(*world_rows(world), ranges, epsilon, delta) for _ in range(trials))
        return np.rint([one.beta.sum() / one.sigma * STEPS for one in made]).astype(np.int64)

    return Audit("record-model", Unit.RECORD, WORLDS, epsilon, sample, delta, True, True, 4_000)
