"""Evaluation of the rankers on devices, each for its own user, by groups of devices.

A run's evaluation is of the server's ranker. Where each device has its own ranker
(:mod:`fedrank_zoo.fedper_pdgd`, ``rankguard`` of ``fedrank-zoo``), no user is shown the server's. Here each
device's ranker is measured under the click model of its user, and averaged over the devices of a group.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from fedrank.core.trees import Json
from fedrank.engine.progress import Listener
from fedrank.engine.settings import from_dict
from fedrank.engine.simulator import Simulator, run_keys
from fedrank.engine.variations import read_sweep
from fedrank.ranking.build import Experiment, build
from fedrank.ranking.evaluate import Evaluator
from fedrank.ranking.run import attackers_of, own_models
from fedrank.report import describe
from fedrank.report.statistics import mean_interval
from fedrank.report.tables import Column, Table
from fedrank_zoo.reproduce.study import Study, shorten_run


def own_ranker_results(study: Study, fraction: float, listener: Listener) -> tuple[tuple[Table, ...], dict[str, Json]]:
    """Quality of the rankers on devices for their users, a table for each case; a row for each method and group.

    The study's ``settings`` hold ``methods``: tables of settings with a ``name``, of which ``protocol`` is one. Each
    runs under each of the study's cases.

    Returns:
        The tables, and no figures.
    """
    base, _, cases = read_sweep(study.path)
    methods = study.settings["methods"]
    out = []
    for case in cases or ({"name": study.title},):
        rows, columns = [], [Column("method", "method"), Column("group", "users")]
        for i, (split, measure) in enumerate(study.measures):
            columns.append(Column(f"m{i}", f"{measure}, {describe.SPLIT_NAMES[split]}", numeric=True))
            columns.append(Column(f"d{i}", f"difference to {methods[0]['name']}", numeric=True, signed=True))
        columns.append(Column("online", "online, last tenth", numeric=True))
        first: dict[tuple[str, tuple[str, str]], Any] = {}
        for method in methods:
            listener.stage(f"{case['name']}: {method['name']}")
            settings = {**base, **{k: v for table in (case, method) for k, v in table.items() if k != "name"}}
            config = from_dict(settings)
            experiment = build(shorten_run(config, fraction) if fraction < 1 else config)
            trained = train(experiment)
            for group, values in worth(experiment, trained).items():
                row: dict[str, Any] = {"method": method["name"], "group": group}
                for i, key in enumerate(study.measures):
                    against = first.setdefault((group, key), values[key])
                    row[f"m{i}"] = mean_interval(values[key].tolist())
                    row[f"d{i}"] = mean_interval((values[key] - against).tolist())
                rows.append({**row, "online": mean_interval(trained.online.tolist())})
        notes = (
            "Each device's ranker is measured under the click model of its user, on all queries; the mean of the "
            "first 20 honest devices of a group. Online: what all users experienced, attackers included.",
            "± is half of a 95 % Student t interval over seeds; differences are taken seed by seed.",
        )
        out.append(Table(str(case["name"]), tuple(columns), tuple(rows), notes))
    listener.done()
    return tuple(out), {}


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


def groups(experiment: Experiment) -> dict[str, Bool[np.ndarray, " parties"]]:
    """The devices of each user, by the user's name; where devices attack, the honest ones and the others.

    Those that click to do harm are no group of users: what they want is not what is measured.
    """
    users: Int[np.ndarray, " parties"] = np.asarray(experiment.parties.own.user)
    attackers = attackers_of(experiment)
    found = {}
    for number, user in enumerate(experiment.device_users):
        chosen = (users == number) & ~attackers
        if chosen.any():
            found[user.name] = chosen
    return found


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
