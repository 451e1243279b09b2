"""Do no harm: a silo adopts the federation's ranker only where its own validation queries are ranked better by it.

Both papers report silos that a federation made worse. Nobody but the silo knows its validation queries, and nothing
crosses: the gate is a decision at home.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedrank.texts.scores import UNTRAINED
from fedrank.texts.silo_sketch import FEDERATED
from fedrank.texts.silo_sketch.state import TEST, VALI


def gate(
    values: Mapping[str, Any], part: np.ndarray, measure: str, seeds: Sequence[int], names: Sequence[str]
) -> dict[str, Any]:
    """Who adopts the federation's ranker, and what that was worth on test queries.

    By itself a silo has its own ranker and plain BM25, and keeps whichever ranks its validation queries better. It
    adopts the federation's ranker where that one is better still; a difference of 0 keeps what the silo has. All of it
    on the silo's own documents: whether to show others' documents beside them, the gate does not decide.

    Args:
        values: Method, scope and measure to float [seeds, silos, queries].
        part: int [seeds, silos, queries]: which part each query belongs to.
        measure: What decides.
        seeds: Of the runs.
        names: Of the silos.

    Returns:
        The content of ``gate.json``: ``measure`` and ``decisions``, one a seed and silo: ``against``, what it has by
        itself; what the federation's ranker gains over that on validation and on test queries, whether it is adopted,
        and what the silo gains in the end.
    """
    own = {name: values[name]["own"][measure] for name in ("Local", UNTRAINED) if name in values}
    if not own:
        return {"measure": measure, "decisions": []}
    federated = values[FEDERATED]["own"][measure]
    decisions = []
    for s, seed in enumerate(seeds):
        for k, name in enumerate(names):
            there = part[s, k] == VALI
            against = max(own, key=lambda ranker: _mean(own[ranker][s, k], there))
            gain = federated[s, k] - own[against][s, k]
            vali, test = (_mean(gain, part[s, k] == split) for split in (VALI, TEST))
            adopted = bool(vali > 0)
            decisions.append(
                {
                    "seed": int(seed),
                    "silo": name,
                    "against": against,
                    "vali": vali,
                    "test": test,
                    "adopted": adopted,
                    "kept": test if adopted else 0.0,
                }
            )
    return {"measure": measure, "decisions": decisions}


def _mean(values: np.ndarray, where: np.ndarray) -> float:
    return float(values[where].mean()) if where.any() else float("nan")
