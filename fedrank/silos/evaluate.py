"""What the models of a run are worth to their silos, scored as a model from a file scores."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int

from fedrank.metrics.auc import host_auc, host_log_loss
from fedrank.silos.data.splits import SiloArrays
from fedrank.silos.party import SiloProtocol
from fedrank.silos.scoring import blocks, scores

_PARTS = ("vali", "test")


class SiloEvaluator:
    """Measures models on the validation and the test rows of the silos that they are for.

    Args:
        protocol: The protocol, which says by what models are judged.
        arrays: The rows, leading axes [divisions, silos].
        splits: Division of each run, [runs].
        targets: Numbers of the silos that each run is measured for.
    """

    def __init__(
        self,
        protocol: SiloProtocol,
        arrays: SiloArrays,
        splits: Int[np.ndarray, " runs"],
        targets: Int[np.ndarray, "runs targets"],
    ):
        self._protocol, self._splits, self._targets = protocol, splits, targets
        wanted = {(int(s), int(t)) for s, row in zip(splits, targets, strict=True) for t in row}
        self._rows = {part: getattr(arrays, part) for part in _PARTS}
        self._counts = {part: np.asarray(rows.n) for part, rows in self._rows.items()}
        self._blocks = {
            (part, where): blocks(np.asarray(rows.x)[where][: self._counts[part][where]])
            for part, rows in self._rows.items()
            for where in wanted
        }

    def __call__(self, models: dict[str, Float[np.ndarray, "runs targets size"]]) -> dict[str, np.ndarray]:
        """The measure of each model, larger is better.

        Args:
            models: Models as the silos use them, by name.

        Returns:
            ``"vali: last"``, ``"test: last"`` and so on -> float32 [runs, targets]; NaN where it is undefined.
        """
        out = {}
        for part, rows in self._rows.items():
            where = np.broadcast_to(self._splits[:, None], self._targets.shape), self._targets
            labels = np.asarray(rows.y)[where]
            counts = self._counts[part][where]
            valid = np.arange(labels.shape[-1]) < counts[..., None]
            every = np.zeros((len(models), *labels.shape), np.float32)
            for number, weights in enumerate(models.values()):
                for place in np.ndindex(self._targets.shape):
                    rows_of_one = self._blocks[part, (int(where[0][place]), int(where[1][place]))]
                    n = int(counts[place])
                    every[(number, *place, slice(n))] = scores(self._protocol.network, weights[place], rows_of_one, n)
            auc = self._protocol.measure == "auc"
            values = host_auc(every, labels, valid) if auc else -host_log_loss(every, labels, valid)
            out |= {f"{part}: {name}": row for name, row in zip(models, values, strict=True)}
        return out
