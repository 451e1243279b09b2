"""What the models of a run are worth to their silos, scored by the program that scores a model from a file."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from fedrank.core.arrays import AnyArray, PyTree
from fedrank.core.protocol import Party
from fedrank.engine.scoring import blocks, scores
from fedrank.metrics.auc import auc, log_loss
from fedrank.silos.data.splits import SiloArrays
from fedrank.silos.model import ROWS
from fedrank.silos.party import SiloProtocol

_PARTS = ("vali", "test")


@functools.partial(jax.jit, static_argnums=0)
def models_of(
    protocol: SiloProtocol, states: PyTree, shared: PyTree, own: PyTree, targets: Int[Array, "runs targets"]
) -> tuple[dict[str, Float[Array, "runs targets size"]], dict[str, Float[Array, "runs targets size"]]]:
    """The models that each target could use, by name.

    Args:
        protocol: The protocol.
        states: Server states [runs, ...].
        shared: The rows.
        own: What the silos keep, [runs, silos, ...].
        targets: Numbers of the silos that each run is measured for.

    Returns:
        The models, and the same as the target uses them: where ``recalibrate``, with statistics of its own rows.
    """

    def one(state, own, target):
        party = Party(shared, jax.tree.map(lambda leaf: leaf[target], own))
        models = protocol.models(state, party)
        return models, {name: protocol.usable(model, party) for name, model in models.items()}

    return jax.vmap(jax.vmap(one, in_axes=(None, None, 0)))(states, own, targets)


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
            (part, where): blocks(np.asarray(rows.x[where])[: self._counts[part][where]], ROWS)
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
            values = _measured(self._protocol.measure, every, labels, valid)
            out |= {f"{part}: {name}": row for name, row in zip(models, np.asarray(values), strict=True)}
        return out


@functools.partial(jax.jit, static_argnums=0)
def _measured(
    measure: str,
    found: Float[AnyArray, "models runs targets rows"],
    labels: Float[AnyArray, "runs targets rows"],
    valid: Bool[AnyArray, "runs targets rows"],
) -> Float[Array, "models runs targets"]:
    """The measure of scores of rows, larger is better."""

    def one(found: Any) -> Any:
        if measure == "auc":
            return auc(found, labels, valid)
        return -log_loss(jnp.stack([jnp.zeros_like(found), found], axis=-1), labels, valid)

    return jax.vmap(one)(found)
