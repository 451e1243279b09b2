"""An AUC that a silo tells others, with noise: how good a model is on its rows says a little about each of them."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from fedrank.core.errors import DataError
from fedrank.silos.records.gaussian import RecordNoise
from fedrank.silos.sceptic.auc import auc


def auc_noise(positive: int, negative: int, epsilon: float, delta: float) -> RecordNoise:
    """The noise of one AUC.

    How many rows have each label is public here, besides the number of rows: without it an AUC of few positive rows
    could change by anything. A record is replaced by another of the same label, which changes the AUC by at most one
    part in the number of rows with that label.

    Args:
        positive: Rows with label 1.
        negative: Rows with label 0.
        epsilon: ε of a record.
        delta: δ.

    Raises:
        DataError: One of the labels is missing; there is no AUC then.
    """
    rarer = min(positive, negative)
    if not rarer:
        raise DataError("all rows have one label; there is no AUC to tell.")
    return RecordNoise(epsilon, delta, 1 / rarer, 1)


def noisy_auc(
    scores: Float[np.ndarray, " rows"],
    y: Float[np.ndarray, " rows"],
    epsilon: float,
    delta: float,
    rng: np.random.Generator | None = None,
) -> tuple[float, RecordNoise]:
    """The AUC of a model that comes from elsewhere, with noise, and the noise.

    Args:
        scores: Of all rows of the silo; the model must not depend on them beyond what was sent with noise.
        y: Their labels.
        epsilon: ε of a record.
        delta: δ.
        rng: A simulation's generator, which protects nobody; None: the operating system.
    """
    positive = int(y.sum())
    noise = auc_noise(positive, len(y) - positive, epsilon, delta)
    told = noise.added(np.array([auc(scores, y).value]), rng)[0]
    return float(min(1.0, max(0.0, told))), noise
