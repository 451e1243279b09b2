"""What a sceptic tries first, on the very rows of a run: what ``sceptic.json`` says.

For each seed's division the target's training and validation rows train, and the others' training rows; the target's
test rows judge, as they judge the run's own models. What is chosen is chosen by cross-validation inside the rows that
train.
"""

from __future__ import annotations

from importlib import import_module

import numpy as np
from threadpoolctl import threadpool_limits

from fedrank.core.trees import Json
from fedrank.silos.build import SiloExperiment
from fedrank.silos.data.rows import Rows
from fedrank.silos.sceptic.auc import auc
from fedrank.silos.sceptic.learners import fit_trees, log_loss
from fedrank.silos.sceptic.rows import Own
from fedrank.silos.sceptic.ways import WAYS, Others, choose

#: Ways that choose by cross-validation; trees are fitted once.
_CHOSEN = ("alone", "as-they-are", "averaged", "fedavg", "federated", "shrunk", "ditto", "stacked")
#: Most silos for which it is done: with hundreds it would take longer than the run.
MOST_SILOS = 16
#: Fewest training rows of the rarer label.
_FEWEST = 2


def sceptics_rows(experiment: SiloExperiment) -> dict[str, Json]:
    """Test performance of every way, by target and seed; larger is better.

    Args:
        experiment: The run.

    Returns:
        Target -> ``rows`` (that train, mean over seeds), ``ways`` (way -> value of each seed, None where there is
        none) and ``recommended`` (of each seed). Targets with too few rows of one label are left out; empty with
        more than :data:`MOST_SILOS` silos, and of pooled rows.
    """
    if not 2 <= experiment.n_parties <= MOST_SILOS:
        return {}
    import_module("sklearn.ensemble")  # a limit holds for libraries that are loaded by then
    with threadpool_limits(1):
        made = {experiment.names[target]: _of(experiment, target) for target in experiment.targets}
    return {name: about for name, about in made.items() if about}


def _of(experiment: SiloExperiment, target: int) -> dict[str, Json]:
    ways = (*_CHOSEN, "trees")
    values: dict[str, list[float | None]] = {way: [] for way in (*ways, "recommended")}
    recommended: list[str] = []
    rows = []
    for division, seed in enumerate(experiment.config.all_seeds):
        rng = np.random.Generator(np.random.PCG64([seed, target]))
        parts = [_own(part, division, target) for part in (experiment.arrays.train, experiment.arrays.vali)]
        mine = Own(np.concatenate([part.x for part in parts]), np.concatenate([part.y for part in parts]))
        test = _own(experiment.arrays.test, division, target)
        if mine.rarer < _FEWEST:
            return {}
        rest = [_own(experiment.arrays.train, division, k) for k in range(experiment.n_parties) if k != target]
        chosen = choose(mine, Others.of(rest, rng), rng, _CHOSEN)
        models = {**chosen.models, "trees": fit_trees(mine)}
        for way in ways:
            values[way].append(_measured(experiment, models[way](test.x), test.y) if way in models else None)
        values["recommended"].append(values[chosen.best][-1])
        recommended.append(chosen.best)
        rows.append(mine.rows)
    return {"rows": float(np.mean(rows)), "ways": values, "recommended": recommended}


def _own(rows: Rows, division: int, silo: int) -> Own:
    n = int(np.asarray(rows.n)[division, silo])
    return Own(
        np.asarray(rows.x)[division, silo, :n].astype(float), np.asarray(rows.y)[division, silo, :n].astype(float)
    )


def _measured(experiment: SiloExperiment, scores: np.ndarray, y: np.ndarray) -> float | None:
    value = auc(scores, y).value if experiment.protocol.measure == "auc" else -log_loss(scores, y)
    return float(value) if np.isfinite(value) else None


def title(way: str) -> str:
    """What a table calls a way."""
    return "recommended" if way == "recommended" else WAYS[way].title
