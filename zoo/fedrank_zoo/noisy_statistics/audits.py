"""Audits of what a silo sends once: its own code, with noise from the operating system."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Float, Int64

from fedrank.core.privacy_report import DELTA, Unit
from fedrank.privacy.audit import Audit
from fedrank.silos.records.audits import COLUMNS, STEPS, WORLDS, world_rows
from fedrank_zoo.noisy_statistics.ranges import ranges_of
from fedrank_zoo.noisy_statistics.releases import perturb, release_sums


def _audit(
    name: str, epsilon: float, delta: float, send: Callable[..., tuple[Float[np.ndarray, " numbers"], float]]
) -> Audit:
    """An audit of what ``send`` makes of a world's rows, labels, ranges, ε and δ: numbers, and the σ of their noise."""
    ranges = ranges_of(("x", "z"), {"x": (-1.0, 1.0), "z": (-1.0, 1.0)}, clip=COLUMNS**0.5)

    def sample(world: int, trials: int) -> Int64[np.ndarray, " trials"]:
        sent = (send(*world_rows(world), ranges, epsilon, delta) for _ in range(trials))
        return np.rint([numbers.sum() / sigma * STEPS for numbers, sigma in sent]).astype(np.int64)

    return Audit(name, Unit.RECORD, WORLDS, epsilon, sample, delta, True, True, 4_000)


def record_statistics(epsilon: float = 1.0, delta: float = DELTA) -> Audit:
    """The noisy sums that a silo sends.

    Args:
        epsilon: ε of a record, in nats.
        delta: δ.
    """

    def send(*about: Any) -> tuple[Float[np.ndarray, " numbers"], float]:
        sums = release_sums(*about)
        return sums.first, sums.sigma_first

    return _audit("record-statistics", epsilon, delta, send)


def record_model(epsilon: float = 1.0, delta: float = DELTA) -> Audit:
    """The coefficients of a logistic model that a silo sends with noise.

    Args:
        epsilon: ε of a record, in nats.
        delta: δ.
    """

    def send(*about: Any) -> tuple[Float[np.ndarray, " numbers"], float]:
        model = perturb(*about)
        return model.beta, model.sigma

    return _audit("record-model", epsilon, delta, send)
