"""Noise on what a target says of models during a run: all its AUCs together have a record's ε.

How many validation rows have each label is public. A record in the place of another one of its label moves an AUC by at
most one part in the number of rows of the rarer label; m of them by √m times that.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from jaxtyping import Float, Int32

from fedrank.privacy.calibration import concentrated_epsilon, gaussian_sigma
from fedrank.silos.data.rows import Rows
from fedrank.silos.local_sgd import LocalSgd
from fedrank.silos.private_sgd import SIGMA, PrivateSgd


@lru_cache(maxsize=64)
def _multiple(epsilon: float, delta: float) -> float:
    return gaussian_sigma(epsilon, delta, 1.0)


@dataclass(frozen=True)
class NoisyJudgements:
    """Noise on AUCs.

    Attributes:
        epsilon: ε of a record, in nats, of all AUCs of the run.
        delta: δ.
        values: How many AUCs the target tells in the run at most.
    """

    epsilon: float
    delta: float
    values: int

    @property
    def length(self) -> float:
        """How far a record moves one AUC, in steps of the grid on which σ is :data:`SIGMA`."""
        return SIGMA / (_multiple(self.epsilon, self.delta) * math.sqrt(self.values))

    def noised(
        self, values: Float[np.ndarray, "#silos models"], rows: Rows, noise: Int32[np.ndarray, "silos models"]
    ) -> Float[np.ndarray, "silos models"]:
        """The AUCs with noise, in [0, 1]; of rows of one label, of which there is none, one half with noise.

        Whether a label is missing may depend on one record, so that neither a refusal nor a mark may say it.

        Args:
            values: AUCs of models on each target's validation rows.
            rows: These rows.
            noise: Whole numbers of σ = :data:`SIGMA`.
        """
        positive = np.sum(rows.where & (rows.y > 0.5), axis=-1)
        rarer = np.maximum(np.minimum(positive, rows.n - positive), 1).astype(np.float32)
        grid = (1 / (rarer * np.float32(self.length - 1)))[:, None]  # rounding moves numbers apart by one step at most
        values = np.where(np.isfinite(values), values, np.float32(0.5))
        return np.clip((np.rint(values / grid) + noise.astype(np.float32)) * grid, 0, 1).astype(np.float32)

    def spent(self, values: int, delta: float) -> float:
        """ε of a validation row, in nats, of all AUCs that the target told.

        Args:
            values: How many AUCs it told, at least 0. By zero-concentrated differential privacy they cost
                values · Δ²/2, where Δ is how far a row moves one AUC, in units of the noise's deviation.
            delta: δ, in (0, 1).
        """
        return concentrated_epsilon(values * (self.length / SIGMA) ** 2 / 2, delta) if values else 0.0


def noise_beside(sgd: LocalSgd, measure: str, values: int) -> NoisyJudgements | None:
    """Noise on AUCs by which a run chooses among models that were trained with noise; None where those have none.

    Args:
        sgd: Local training.
        measure: What models are judged by; there is noise for ``"auc"`` alone.
        values: How many AUCs the target tells in the run.
    """
    if not isinstance(sgd, PrivateSgd) or measure != "auc" or not values:
        return None
    return NoisyJudgements(sgd.epsilon, sgd.delta, values)
