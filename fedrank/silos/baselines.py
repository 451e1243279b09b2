"""The baselines of a run of silos: what the target reaches alone, and with all silos.

The same network, first weights, rows and number of rounds, under the same evaluator: a bandit that always plays one
arm. Alone nothing would cross; everyone is federated averaging.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from fedrank.core.trees import Json
from fedrank.engine.attackers import Conditions
from fedrank.engine.native import NativeSimulator
from fedrank.silos.bandit_fedavg import Bandit, BanditFedAvg
from fedrank.silos.bandits.rules import RuleSettings
from fedrank.silos.build import SiloExperiment
from fedrank.silos.config import Network
from fedrank.silos.rounds import SiloEvaluator, begin_runs, models_of_runs

#: By name of the baseline: the arm that is played, and a note for the reader.
BASELINES = {
    "alone": (0, "The target trains by itself; nothing would cross."),
    "everyone": (1, "Federated averaging of all silos, judged by the target."),
}


@dataclass(frozen=True, eq=False)
class SiloBaseline:
    """The performance of one baseline.

    Attributes:
        name: One of :data:`BASELINES`.
        values: Performances by name, such as ``"test: last"``.
        names: Names of the targets.
    """

    name: str
    values: dict[str, Float[np.ndarray, "targets seeds"]]
    names: tuple[str, ...]

    def as_json(self, measure: str) -> dict[str, Json]:
        """The entry of ``baselines.json``: means over seeds."""
        out = []
        for key, rows in self.values.items():
            part, model = key.split(": ")
            for target, row in zip(self.names, rows, strict=True):
                name = measure + ("" if model == "last" else ", best so far")
                several = f" ({target})" if len(self.names) > 1 else ""
                sign = -1 if measure == "log-loss" else 1
                if np.isfinite(row).all():
                    out.append({"split": part, "measure": name + several, "value": float(sign * np.mean(row))})
        return {"name": self.name, "notes": [BASELINES[self.name][1]], "values": out}


def run_baselines(experiment: SiloExperiment, names: tuple[str, ...]) -> list[SiloBaseline]:
    """Train the baselines of these names; all of them, all targets and all seeds in one program."""
    if experiment.n_parties < 2:
        return []
    if not experiment.conditions.dropout and not experiment.protocol.sgd.draws_noise:
        return _train(experiment, names, experiment.conditions) if names else []
    # A silo that trains alone loses no round to drop-outs of others, and needs no noise.
    conditions = {"alone": Conditions(), "everyone": experiment.conditions}
    return [baseline for name in names for baseline in _train(experiment, (name,), conditions[name])]


def _train(experiment: SiloExperiment, names: tuple[str, ...], conditions: Conditions) -> list[SiloBaseline]:
    base, config = experiment.protocol, experiment.config
    sgd = base.sgd.without_noise() if names == ("alone",) else base.sgd
    protocol = BanditFedAvg(
        sgd,
        base.silos,
        base.most_rows,
        base.measure,
        network=Network(crossing=base.crossing),  # type: ignore[arg-type] - one of its values
        bandit=Bandit(rule="fixed", fixed=1, arms="everyone", pretrain=base.pretrain, refit=False),
        judgements=sgd.noise_on_judgements(2 * config.rounds) if base.measure == "auc" else None,
    )
    seeds = np.asarray(config.all_seeds)
    shape = (len(names), len(experiment.targets), len(seeds))
    arms = [BASELINES[name][0] for name in names for _ in range(shape[1] * shape[2])]
    rules = [RuleSettings(rule="fixed", fixed=arm).scalars() for arm in arms]
    targets = np.broadcast_to(np.asarray(experiment.targets)[None, :, None], shape).reshape(-1)
    which = np.broadcast_to(np.arange(len(seeds))[None, None], shape).reshape(-1)
    parties = protocol.parties(experiment.arrays, which)
    rounds = NativeSimulator(protocol, parties, max(1, config.compute.chunk // len(which)), conditions)
    keys, states = begin_runs(protocol, seeds[which], targets, rules)
    states, own, _ = rounds.advance(keys, states, parties.shared, parties.own, 0, config.rounds)
    usable = models_of_runs(protocol, states, parties.shared, own, targets[:, None])
    values = SiloEvaluator(protocol, experiment.arrays, which, targets[:, None])(usable)
    return [
        SiloBaseline(
            name,
            {key: np.asarray(rows).reshape(shape)[i] for key, rows in values.items()},
            tuple(experiment.names[target] for target in experiment.targets),
        )
        for i, name in enumerate(names)
    ]
