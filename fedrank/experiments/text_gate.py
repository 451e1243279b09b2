"""Do no harm: a silo adopts the federation's ranker only where its own validation queries are ranked better by it.

Both papers report silos that a federation made worse. Nobody but the silo knows its validation queries, and nothing
crosses: the gate is a decision at home.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedrank.protocols.silo_sketch import FEDERATED
from fedrank.protocols.silo_sketch_state import TEST, VALI


def gate(
    values: Mapping[str, Any], part: np.ndarray, measure: str, seeds: Sequence[int], names: Sequence[str]
) -> dict[str, Any]:
    """Who adopts the federation's ranker, and what that was worth on test queries.

    A silo compares on its own documents: the federation's ranker with its own one, and adopts the former where the mean
    over its validation queries is above. A difference of 0 keeps what the silo has.

    Args:
        values: Method, scope and measure to float [seeds, silos, queries].
        part: int [seeds, silos, queries]: which part each query belongs to.
        measure: What decides.
        seeds: Of the runs.
        names: Of the silos.

    Returns:
        The content of ``gate.json``: ``measure`` and ``decisions``, one a seed and silo: what the federation gains on
        validation and on test queries, whether it is adopted, and what the silo has in the end.
    """
    if "Local" not in values:
        return {"measure": measure, "decisions": []}
    gain = values[FEDERATED]["own"][measure] - values["Local"]["own"][measure]
    decisions = []
    for s, seed in enumerate(seeds):
        for k, name in enumerate(names):
            vali, test = (_mean(gain[s, k], part[s, k] == split) for split in (VALI, TEST))
            adopted = bool(vali > 0)
            decisions.append(
                {
                    "seed": int(seed),
                    "silo": name,
                    "vali": vali,
                    "test": test,
                    "adopted": adopted,
                    "kept": test if adopted else 0.0,
                }
            )
    return {"measure": measure, "decisions": decisions}


def _mean(values: np.ndarray, where: np.ndarray) -> float:
    return float(values[where].mean()) if where.any() else float("nan")
