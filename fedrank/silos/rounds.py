"""Runs of silos: how they begin, each with a target and a rule, the models they give, and how good these are."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Int

from fedrank.core.arrays import PyTree
from fedrank.core.native import map_trees
from fedrank.core.protocol import Party
from fedrank.core.rng import INIT
from fedrank.core.streams import fold_words, run_words
from fedrank.engine.native import stack_states
from fedrank.metrics.offline import host_auc, host_log_loss
from fedrank.silos.bandits.rules import Rule
from fedrank.silos.data.splits import SiloArrays
from fedrank.silos.network import blocks, scores
from fedrank.silos.party import SiloProtocol


def begin_runs(
    protocol: SiloProtocol,
    seeds: Sequence[int] | Int[np.ndarray, " runs"],
    targets: Int[np.ndarray, " runs"],
    rules: Sequence[Rule | None] | None = None,
) -> tuple[PyTree, PyTree]:
    """Keys uint32 [runs, 2] and server states [runs, ...] before the first round.

    Args:
        protocol: The protocol.
        seeds: Of the runs.
        targets: The target of each run; −1: it is for all silos.
        rules: The rule of each run, where a bandit plays several; None: the protocol's own.
    """
    keys = run_words(np.asarray(seeds).tolist())
    each = fold_words(keys, INIT)
    rules = [None] * len(keys) if rules is None else rules
    begun = zip(each, rules, np.asarray(targets).tolist(), strict=True)
    return keys, stack_states([protocol.begin(key, rule, target) for key, rule, target in begun])


def models_of_runs(
    protocol: SiloProtocol, states: PyTree, shared: PyTree, own: PyTree, targets: Int[np.ndarray, "runs targets"]
) -> dict[str, Float[np.ndarray, "runs targets size"]]:
    """The models that each target could use, by name, as it uses them.

    Args:
        protocol: The protocol.
        states: Server states [runs, ...].
        shared: The rows.
        own: What the silos keep, [runs, silos, ...].
        targets: Numbers of the silos that each run is measured for.
    """
    each = []
    with np.errstate(all="ignore"):  # numbers of models that diverged
        for run, silos in enumerate(targets):
            party = Party(shared, map_trees(lambda leaf, at=(run, silos): leaf[at], own))
            each.append(protocol.models(map_trees(lambda leaf, run=run: leaf[run], states), party))
    return {name: np.stack([one[name] for one in each]) for name in each[0]}


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
        self._blocks = {
            (part, where): blocks(np.asarray(rows.x)[where][: np.asarray(rows.n)[where]])
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
            counts = np.asarray(rows.n)[where]
            valid = np.arange(labels.shape[-1]) < counts[..., None]
            every = np.zeros((len(models), *labels.shape), np.float32)
            for number, weights in enumerate(models.values()):
                for place in np.ndindex(self._targets.shape):
                    rows_of_one = self._blocks[part, (int(where[0][place]), int(where[1][place]))]
                    n = int(counts[place])
                    every[(number, *place, slice(n))] = scores(self._protocol.net, weights[place], rows_of_one, n)
            auc = self._protocol.measure == "auc"
            values = host_auc(every, labels, valid) if auc else -host_log_loss(every, labels, valid)
            out |= {f"{part}: {name}": row for name, row in zip(models, values, strict=True)}
        return out
