"""The gate: a silo adopts the federation's ranker only if its own held-out queries show that this ranks them better.

Both papers report silos whose ranking a federation made worse. Only the silo knows its held-out queries, and nothing
crosses: the silo decides by itself. It adopts where the lower end of an interval of the mean difference over queries is
above 0; two or three queries seldom show that, and then it keeps what it has.
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
from fedrank.texts.silo_sketch.state import TEST, VALI

#: Probability with which a silo adopts a ranker that is no better than what it has, at most.
ERROR = 0.05


def gate(
    values: Mapping[str, Mapping[str, Mapping[str, np.ndarray]]],
    part: Integer[np.ndarray, "seeds silos queries"],
    measure: str,
    seeds: Sequence[int],
    names: Sequence[str],
    queries: Sequence[Sequence[Sequence[str]]] | None = None,
) -> dict[str, Json]:
    """Which silos adopt the federation's ranker, and their gain on test queries.

    By itself a silo has its own ranker and plain BM25, and keeps whichever ranks its held-out queries better. It adopts
    the federation's ranker where that is better still, and the lower end of the interval says so. This is about ranking
    the silo's own documents; the gate does not decide whether to show documents of others.

    Held out are the validation queries. Where all seeds have the same silos, whose queries each seed divides anew, that
    is a cross-validation: a query counts with its mean difference over the seeds in which it was not learnt from. Test
    queries of the seed that is decided for never count.

    Args:
        values: Values of queries by method, scope and measure, float [seeds, silos, queries].
        part: Part that each query belongs to.
        measure: Name of the measure that decides.
        seeds: Seeds of the runs.
        names: Names of the silos.
        queries: Ids of each seed's and silo's queries, where the silos of all seeds are the same; None where they are
            not.

    Returns:
        The content of ``gate.json``: ``measure``, and in ``decisions`` for each seed and silo ``against`` (the better
        of its own ranker and BM25), ``vali`` and ``test`` (gain of the federation's ranker over that), ``low`` (lower
        end of the one-sided 95 % interval of ``vali``), ``held`` (queries that decided), ``adopted``, and ``kept``
        (gain on test queries with the gate).
    """
    own = {name: values[name]["own"][measure] for name in ("Local", UNTRAINED) if name in values}
    if not own:
        return {"measure": measure, "decisions": []}
    federated = values[FEDERATED]["own"][measure]
    decisions = []
    for s, seed in enumerate(seeds):
        for k, name in enumerate(names):
            held = {name: _held_out(own[name], part, queries, s, k) for name in own}
            against = max(own, key=lambda ranker: _mean(held[ranker]))
            differences = _held_out(federated, part, queries, s, k) - held[against]
            vali, low = _mean(differences), lower_end(differences)
            there = part[s, k] == TEST
            test = _mean((federated[s, k] - own[against][s, k])[there])
            adopted = bool(low > 0)
            decisions.append(
                {
                    "seed": int(seed),
                    "silo": name,
                    "against": against,
                    "vali": vali,
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


def _held_out(
    values: Float[np.ndarray, "seeds silos queries"],
    part: Integer[np.ndarray, "seeds silos queries"],
    queries: Sequence[Sequence[Sequence[str]]] | None,
    seed: int,
    silo: int,
) -> Float[np.ndarray, " held"]:
    """A ranker's value of each query that decides for a seed and silo, in an order that all rankers share."""
    if queries is None:
        return values[seed, silo][part[seed, silo] == VALI].astype(np.float64)
    names = queries[seed][silo]
    tested = {name for name, where in zip(names, part[seed, silo], strict=False) if where == TEST}
    found: dict[str, list[float]] = {}
    for other in range(len(values)):
        for name, where, value in zip(queries[other][silo], part[other, silo], values[other, silo], strict=False):
            if where in (VALI, TEST) and name not in tested:
                found.setdefault(name, []).append(float(value))
    return np.array([np.mean(found[name]) for name in sorted(found)])


def _mean(values: Float[np.ndarray, " queries"]) -> float:
    """Mean of values; NaN where there are none."""
    return float(values.mean()) if len(values) else float("nan")
