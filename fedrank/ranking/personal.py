"""Evaluation of the rankers on devices, each for its own user, by groups of devices.

A run's evaluation is of the server's ranker. Where each device has its own ranker
(:mod:`fedrank.ranking.foltr_pdgd.fedper`, ``rankguard`` of ``fedrank-zoo``), no user is shown the server's. Here each
device's ranker is measured under the click model of its user, and averaged over the devices of a group.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int

from fedrank.core.arrays import PyTree
from fedrank.core.protocol import Protocol
from fedrank.engine.simulator import Simulator, run_keys
from fedrank.ranking.build import POISON, Experiment
from fedrank.ranking.evaluate import Evaluator

#: Suffix of the name of a measure of the devices' own rankers.
OWN_RANKERS = " (own rankers)"


@dataclass(frozen=True)
class Trained:
    """A run that is over.

    Attributes:
        models: float32 [seeds, parties, n], the ranker that each device shows its user.
        online: float64 [seeds], the metric that users experienced, mean over devices and the last tenth of the rounds.
    """

    models: Float[np.ndarray, "seeds parties n"]
    online: Float[np.ndarray, " seeds"]


def train(experiment: Experiment) -> Trained:
    """Run an experiment, and keep the ranker of every device: its own, or the server's where it has none."""
    protocol, config, parties = experiment.protocol, experiment.config, experiment.parties
    keys = run_keys(config.all_seeds)
    simulator = Simulator(protocol, max(1, config.compute.chunk // config.seeds), conditions=experiment.conditions)
    states, own = simulator.start(keys, parties)
    states, own, seen = simulator.advance(keys, states, parties.shared, own, 0, config.rounds)
    return Trained(
        own_models(protocol, simulator.server(states), own),
        np.asarray(seen[experiment.metric.name], np.float64)[-max(1, config.rounds // 10) :].mean(axis=0),
    )


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


def groups(experiment: Experiment) -> dict[str, Bool[np.ndarray, " parties"]]:
    """The devices of each user, by the user's name; where devices attack, the honest ones and the others.

    Those that click to do harm are no group of users: what they want is not what is measured.
    """
    users: Int[np.ndarray, " parties"] = np.asarray(experiment.parties.own.user)
    attackers = _attackers(experiment)
    found = {}
    for number, user in enumerate(experiment.device_users):
        chosen = (users == number) & ~attackers
        if chosen.any():
            found[user.name] = chosen
    return found


def _attackers(experiment: Experiment) -> Bool[np.ndarray, " parties"]:
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
    honest = np.flatnonzero(~_attackers(experiment))
    return honest[np.unique(np.linspace(0, len(honest) - 1, min(most, len(honest))).round().astype(int))]


def worth(
    experiment: Experiment, trained: Trained, most: int = 20
) -> dict[str, dict[tuple[str, str], Float[np.ndarray, " seeds"]]]:
    """Mean value of each group's rankers.

    Args:
        experiment: What was run.
        trained: How it ended.
        most: Devices of a group that are measured, the first ones.

    Returns:
        Group -> (split, measure) -> float64 [seeds]. The expected metric is that under the group's own user.
    """
    out: dict[str, dict[tuple[str, str], np.ndarray]] = {}
    asked, metric = experiment.config.evaluation, experiment.metric
    for name, chosen in groups(experiment).items():
        user = next(u for u in experiment.device_users if u.name == name)
        evaluator = Evaluator(experiment.splits, experiment.ranker, metric, (user,), asked.measures, asked.tie_orders)
        numbers = np.flatnonzero(chosen)[:most]
        values: dict[tuple[str, str], list[float]] = {}
        for models in trained.models:
            different = np.unique(models[numbers], axis=0, return_counts=True)
            scores, weights = evaluator(different[0].astype(np.float32)), different[1] / len(numbers)
            for i, first in enumerate(scores[0]):
                mean = sum(w * row[i].value for w, row in zip(weights, scores, strict=True))
                measure = f"expected {metric.name}" if first.measure.startswith("expected") else first.measure
                values.setdefault((first.split, measure), []).append(float(mean))
        out[name] = {key: np.asarray(row) for key, row in values.items()}
    return out
