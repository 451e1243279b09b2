"""The gate: a silo adopts the federation's ranker only if its own held-out queries show that this ranks them better.

Both papers report silos whose ranking a federation made worse. Only the silo knows its held-out queries, and decides
by itself. It adopts where the lower end of an interval of the mean difference over queries is
above 0; a few queries seldom show that, and then it keeps what it has.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Float, Integer
from scipy import stats

from fedrank.core.trees import Json
from fedrank.texts.scores import UNTRAINED
from fedrank.texts.silo_sketch import FEDERATED
from fedrank.texts.silo_sketch.state import TEST, TRAIN, VALI

#: Probability with which a silo adopts a ranker that is no better than what it has, about: queries of different folds
#: are ranked by rankers that share training rows.
ERROR = 0.05


def gate(
    values: Mapping[str, Mapping[str, Mapping[str, np.ndarray]]],
    part: Integer[np.ndarray, "seeds silos queries"],
    measure: str,
    seeds: Sequence[int],
    names: Sequence[str],
    held: Mapping[str, Float[np.ndarray, "seeds silos queries"]] | None = None,
) -> dict[str, Json]:
    """Which silos adopt the federation's ranker, and their gain on test queries.

    By itself a silo has its own ranker and plain BM25, and keeps whichever ranks its held-out queries better. It adopts
    the federation's ranker where that is better still, and the lower end of the interval says so. This is about ranking
    the silo's own documents; the gate does not decide whether to show documents of others.

    Held out are all queries but those of the test, each ranked by rankers that did not learn from it
    (:mod:`fedrank.texts.folds`); without such values, the validation queries. Test queries never count.

    Args:
        values: Values of queries by method, scope and measure, float [seeds, silos, queries].
        part: Part that each query belongs to.
        measure: Name of the measure that decides.
        seeds: Seeds of the runs.
        names: Names of the silos.
        held: By method, values of queries by rankers that did not learn from them; NaN where there are none.

    Returns:
        The content of ``gate.json``: ``measure``, and in ``decisions`` for each seed and silo ``against`` (the better
        of its own ranker and BM25), ``vali`` and ``test`` (gain of the federation's ranker over that on held-out and on
        test queries), ``low`` (lower end of the one-sided 95 % interval of ``vali``), ``held`` (queries that decided),
        ``adopted``, and ``kept`` (gain on test queries with the gate).
    """
    own = {name: values[name]["own"][measure] for name in ("Local", UNTRAINED) if name in values}
    if not own:
        return {"measure": measure, "decisions": []}
    ours = {FEDERATED: values[FEDERATED]["own"][measure]}
    decisions = []
    for s, seed in enumerate(seeds):
        for k, name in enumerate(names):
            if held is None:
                decide = {name: table[s, k][part[s, k] == VALI] for name, table in (own | ours).items()}
            else:
                learnt = np.isin(part[s, k], (TRAIN, VALI)) & np.isfinite(held[FEDERATED][s, k])
                decide = {name: held[name][s, k][learnt] for name in own | ours}
            against = max(own, key=lambda ranker: _mean(decide[ranker]))
            differences = decide[FEDERATED].astype(np.float64) - decide[against].astype(np.float64)
            mean, low = _mean(differences), lower_end(differences)
            there = part[s, k] == TEST
            test = _mean((ours[FEDERATED][s, k] - own[against][s, k])[there])
            adopted = bool(low > 0)
            decisions.append(
                {
                    "seed": int(seed),
                    "silo": name,
                    "against": against,
                    "vali": mean,
                    "low": low,
                    "held": len(differences),
                    "test": test,
                    "adopted": adopted,
                    "kept": test if adopted else 0.0,
                }
            )
    return {"measure": measure, "decisions": decisions}


def lower_end(differences: Float[np.ndarray, " queries"]) -> float:
    """Lower end of the one-sided 95 % interval of a mean (Student's t); −∞ for fewer than two values.

    >>> round(lower_end(np.array([0.1, 0.2, 0.3])), 4)
    0.0314
    """
    n = len(differences)
    if n < 2:
        return -math.inf
    half = float(stats.t.ppf(1 - ERROR, n - 1) * differences.std(ddof=1) / math.sqrt(n))
    return float(differences.mean()) - half


def _mean(values: Float[np.ndarray, " queries"]) -> float:
    """Mean of values; NaN where there are none."""
    return float(values.mean()) if len(values) else float("nan")
