"""A first look in a simulator: the same messages, from the rows of a run."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedrank.core.errors import DataError
from fedrank.engine.setup import run_setup
from fedrank.silos.build import SiloExperiment
from fedrank.silos.config import SilosConfig
from fedrank.silos.first_look.protocol import FirstLook
from fedrank.silos.sceptic.rows import rows_of

#: Fewest rows of the rarer label at the target.
_FEWEST = 4


def look_of(config: SilosConfig, experiment: SiloExperiment, target: int | None = None) -> FirstLook:
    """The first look of a run.

    Args:
        config: The run.
        experiment: The run, built; of a stand-in only numbers are taken.
        target: Number of the silo that asks; None: the run's first.
    """
    first = experiment.targets[0] if target is None else target
    return FirstLook(experiment.n_parties, experiment.table.n_features, first, config.seed)


def first_looks(experiment: SiloExperiment) -> dict[str, Any]:
    """What a first look finds for each target of a run, by name.

    Raises:
        DataError: A target has too few rows of one label.
    """
    rows, out = rows_of(experiment.table), {}
    for target in experiment.targets:
        if rows[target].rarer < _FEWEST:
            raise DataError(
                f"silos.first_look: {experiment.names[target]} has {rows[target].rarer} rows of the rarer label, and "
                f"{_FEWEST} are needed; take another target, or leave it out."
            )
        look = look_of(experiment.config, experiment, target)
        parties = [look.party(own, number) for number, own in enumerate(rows)]
        state, _, _ = run_setup(look, parties, np.random.default_rng([experiment.config.seed, target]))
        out[experiment.names[target]] = state.looked.named(experiment.names)
    return out
