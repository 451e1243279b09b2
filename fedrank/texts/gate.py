"""The gate: a silo adopts the federation's ranker only if that ranks its own validation queries better.

Both papers report silos whose ranking a federation made worse. Only the silo knows its validation queries, and nothing
crosses: the silo decides by itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Bool, Float, Integer

from fedrank.core.trees import Json
from fedrank.texts.scores import UNTRAINED
from fedrank.texts.silo_sketch import FEDERATED
from fedrank.texts.silo_sketch.state import TEST, VALI


def gate(
    values: Mapping[str, Mapping[str, Mapping[str, np.ndarray]]],
    part: Integer[np.ndarray, "seeds silos queries"],
    measure: str,
    seeds: Sequence[int],
    names: Sequence[str],
) -> dict[str, Json]:
    """Which silos adopt the federation's ranker, and their gain on test queries.

    By itself a silo has its own ranker and plain BM25, and keeps whichever ranks its validation queries better. It
    adopts the federation's ranker where that is better still; where the difference is 0 it does not. This is about
    ranking the silo's own documents; the gate does not decide whether to show documents of others.

    Args:
        values: Values of queries by method, scope and measure, float [seeds, silos, queries].
        part: Part that each query belongs to.
        measure: Name of the measure that decides.
        seeds: Seeds of the runs.
        names: Names of the silos.

    Returns:
        The content of ``gate.json``: ``measure``, and in ``decisions`` for each seed and silo ``against`` (the better
        of its own ranker and BM25), ``vali`` and ``test`` (gain of the federation's ranker over that), ``adopted``,
        and ``kept`` (gain on test queries with the gate).
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


def _mean(values: Float[np.ndarray, " queries"], where: Bool[np.ndarray, " queries"]) -> float:
    """Mean of the values that are ``where``; NaN where there are none."""
    return float(values[where].mean()) if where.any() else float("nan")
