"""Runs of devices, or of one service, that learn to rank: what is measured and written.

A run's evaluation is of the server's ranker. Where each device has its own ranker
(:mod:`fedrank_zoo.fedper_pdgd`, ``rankguard`` of ``fedrank-zoo``), no user is shown the server's.
"""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Float32, Int
from typing_extensions import override

from fedrank.core.arrays import PyTree
from fedrank.core.errors import FedrankWarning
from fedrank.core.frame import Frame
from fedrank.core.protocol import Protocol
from fedrank.engine.model import provenance
from fedrank.engine.native import rounds_of
from fedrank.engine.progress import Listener
from fedrank.engine.run_folder import RunFolder, Score, bytes_up, rows
from fedrank.engine.runner import Runner
from fedrank.ranking.baselines import Baseline, baselines
from fedrank.ranking.build import POISON, Experiment
from fedrank.ranking.config import RankingRun
from fedrank.ranking.evaluate import Evaluator
from fedrank.ranking.model import RankingModel
from fedrank.ranking.rankers.mlp import TwoLayer

#: ε of a message below which a run says that almost nothing is learnt: a report has 85 times the variance of ε = 1.
LEAST_EPSILON = 0.1
#: Suffix of the name of a measure of the devices' own rankers.
OWN_RANKERS = " (own rankers)"


def has_own_models(protocol: Protocol) -> bool:
    """True if devices show their users their own rankers, instead of the server's."""
    return type(protocol).own_models is not Protocol.own_models


def own_models(protocol: Protocol, states: PyTree, own: PyTree) -> Float[np.ndarray, "seeds parties n"]:
    """The ranker of each device, of several runs.

    Args:
        protocol: The protocol.
        states: The servers' states [seeds, ...].
        own: What devices keep, [seeds, parties, ...].
    """
    import jax

    if has_own_models(protocol):
        return np.asarray(jax.vmap(protocol.own_models)(states, own))
    models = np.asarray(jax.vmap(protocol.weights)(states))
    parties = np.shape(own.amount)[1]
    return np.broadcast_to(models[:, None], (len(models), parties, models.shape[-1]))


def attackers_of(experiment: Experiment) -> Bool[np.ndarray, " parties"]:
    """Mask of the devices that attack, by forged messages or by poisoned clicks."""
    users: Int[np.ndarray, " parties"] = np.asarray(experiment.parties.own.user)
    attack = getattr(experiment.config, "attack", None)
    if attack is not None and attack.kind == POISON and attack.share:
        return users == len(experiment.device_users) - 1
    attackers = np.asarray(experiment.conditions.attackers, bool)
    return attackers if len(attackers) else np.zeros(len(users), bool)


def some_honest(experiment: Experiment, most: int = 20) -> Int[np.ndarray, " chosen"]:
    """Numbers of devices that do not attack, evenly spaced among all of them.

    Args:
        experiment: What is run.
        most: How many; fewer where there are fewer.
    """
    honest = np.flatnonzero(~attackers_of(experiment))
    return honest[np.unique(np.linspace(0, len(honest) - 1, min(most, len(honest))).round().astype(int))]


class RankingRunner(Runner):
    """A run of an :class:`~fedrank.ranking.build.Experiment`; arguments as :class:`Runner` has them."""

    config: RankingRun

    def __init__(self, experiment: Experiment, home: RunFolder, listener: Listener):
        config, protocol = experiment.config, experiment.protocol
        chunk = max(1, config.compute.chunk // config.seeds)
        compute = config.compute
        found = rounds_of(protocol, experiment.parties, chunk, experiment.conditions, compute.backend, compute.debug)
        super().__init__(config, home, listener, found, experiment.interactions)
        self.experiment, self.data, self.shared = experiment, experiment.splits, experiment.parties.shared
        a_round = protocol.epsilon_round(config.delta)
        self.per_round = (
            experiment.interactions,
            experiment.n_parties * bytes_up(protocol, experiment.n_parties),
            None if np.isinf(a_round) else a_round,
        )
        # Rounds are simulated with as many devices as take part in one; who takes part is another one each time.
        self.participations: int | None = getattr(config, "participations", None)
        self.evaluator = Evaluator(
            experiment.splits,
            experiment.ranker,
            experiment.metric,
            experiment.users,
            config.evaluation.measures,
            config.evaluation.tie_orders,
        )

    @override
    def start(self) -> tuple[PyTree, PyTree, PyTree]:
        keys = self.simulator.keys(self.seeds)
        return keys, *self.simulator.begin(keys, self.experiment.parties)

    def note(self, done: int, seen: dict[str, Any]) -> tuple[str, float]:
        """Keep the metrics of the sessions of these rounds, as the simulated users experienced them."""
        online = {name: values for name, values in seen.items() if np.ndim(values) == 2}
        for i in range(len(next(iter(online.values()), ()))):
            scores = [
                [Score("online", name, float(values[i, run])) for name, values in online.items()]
                for run in range(self.runs)
            ]
            self.frames.append(rows(self.seeds, done + i + 1, scores, self.per_round, self.participations))
        name, values = next(iter(online.items()), ("rounds", done))
        return name, float(np.mean(values))

    def evaluate(self, states: PyTree, own: PyTree, done: int) -> None:
        """Keep the exact expected metric and the offline measures of the models after ``done`` rounds.

        Of the server's model, and where each device has its own ranker, the mean over those of some devices.
        """
        scores = self.evaluator(self._weights(states))
        for run, values in enumerate(self._own(states, own)):
            named = {f"{name}{OWN_RANKERS}": row[None] for name, row in values.items()}
            scores[run] = scores[run] + self.evaluator.measurement.means(named)[0]
        self.frames.append(rows(self.seeds, done, scores, self.per_round, self.participations))

    def _own(self, states: PyTree, own: PyTree) -> list[dict[str, np.ndarray]]:
        """Each run's measures, query by query: means over some devices' own rankers; empty where they have none.

        The expected metric under a user is that of the devices which this user has.
        """
        experiment, protocol = self.experiment, self.experiment.protocol
        if not has_own_models(protocol):
            return []
        chosen = some_honest(experiment)
        if not len(chosen):  # all devices attack: no ranker counts
            return []
        models = own_models(protocol, self.simulator.server(states), own)[:, chosen]
        whose = np.asarray(experiment.parties.own.user)[chosen]
        users = {
            f"expected {experiment.metric.name} ({user.name})": n for n, user in enumerate(experiment.device_users)
        }
        out = []
        for one in models:
            found = self.evaluator.per_query(one)
            mine = {name: whose == users.get(name, whose) for name in found}
            out.append({name: values[mine[name]].mean(axis=0) for name, values in found.items() if mine[name].any()})
        return out

    def _weights(self, states: PyTree) -> np.ndarray:
        return np.asarray(self.simulator.models(states))

    def write_known(self) -> None:
        """Write environment and model, which do not depend on how the run goes."""
        e, c = self.experiment, self.config
        ranker, known = e.ranker, [*e.splits.warnings, *self._promise_warnings()]
        self.write_environment()
        self.home.json(
            "model.json",
            {
                "ranker": c.ranker,
                "n_features": ranker.n_features,
                "parameters": ranker.size,
                **({"hidden": ranker.hidden} if isinstance(ranker, TwoLayer) else {}),
                "data": e.splits.name,
                "generated": e.splits.generated,
                "notes": list(e.splits.notes),
                "warnings": known,
                "caveat": e.protocol.caveat,
                "queries": {part: q.n_queries for part, q in e.splits.parts().items()},
                "judged": {part: int(q.has_relevant.sum()) for part, q in e.splits.parts().items()},
            },
        )
        for warning in known:
            warnings.warn(f"{warning}.", FedrankWarning, stacklevel=2)

    def _promise_warnings(self) -> list[str]:
        """A sentence where an ε of a user's life is divided among so many rounds that messages say next to nothing."""
        one = getattr(getattr(self.experiment.protocol, "privacy", None), "epsilon_message", math.inf)
        times = self.config.bounds.times
        if one >= LEAST_EPSILON or times == 1:
            return []
        return [
            f"A device takes part in {times:,} rounds, so that a message has ε = {one:.2g} of the user's: almost "
            "nothing is learnt. Let new devices take part in every round (share = 'uniform', a larger population), "
            "take fewer rounds, or privacy.p, the paper's ε of one interaction"
        ]

    def _write_baselines(self) -> None:
        """Write what rankers trained with labels are worth; after the first rounds, which need not wait for them."""
        if (self.home.path / "baselines.json").exists():
            return
        self.listener.stage("Training the baselines")
        means = self.evaluator.measurement.means
        written = [
            {
                "name": one.name,
                "notes": list(one.notes),
                "values": [vars(score) for score in means({name: row[None] for name, row in one.per_query.items()})[0]],
            }
            for one in self._baselines()
        ]
        self.home.json("baselines.json", {"baselines": written})

    def _baselines(self) -> list[Baseline]:
        e, asked = self.experiment, self.config.evaluation
        return baselines(asked.baselines, e.splits, e.metric, e.users, asked.measures, asked.tie_orders)

    def write_crossed(self, done: int) -> None:
        """Write the ledger and the privacy account of the rounds that took place, and the baselines."""
        self._write_baselines()
        protocol = self.experiment.protocol
        self.home.json("privacy.json", protocol.account(done, self.config.delta).as_json())
        self.home.ledger(protocol, done, self.experiment.n_parties)

    def write_results(self, states: PyTree, own: PyTree, seconds: float, rate: float | None) -> None:
        """Write the final rankers, their values query by query, and the speed."""
        weights = self._weights(states)
        for seed, row in zip(self.seeds, weights, strict=True):
            self.home.model(ranking_model(self.experiment, row, seed), seed)
        learned = {name: np.mean(values, axis=0) for name, values in self.evaluator.per_query(weights).items()}
        rankers = {"learnt": learned}
        if devices := self._own(states, own):
            rankers["own rankers"] = {name: np.mean([one[name] for one in devices], axis=0) for name in devices[0]}
        rankers |= {m.name: m.per_query for m in self._baselines()}
        self.home.per_query(self.evaluator.measurement.queries, rankers)
        self.home.metrics(Frame.concat([self.metrics(), self.totals()]))
        self.write_environment(seconds=round(seconds, 3), interactions_per_second=rate)


def ranking_model(experiment: Experiment, weights: Float32[np.ndarray, "parameters"], seed: int) -> RankingModel:
    """The model of a finished run of a seed, with everything that scoring needs."""
    config, splits = experiment.config, experiment.splits
    about = provenance(
        config,
        data=splits.name,
        generated=splits.generated,
        seed=seed,
        privacy=experiment.protocol.account(config.rounds, config.delta),
    )
    names, constants = splits.feature_names, splits.constants
    return RankingModel(experiment.ranker, weights, splits.normalised, names, about, constants)
