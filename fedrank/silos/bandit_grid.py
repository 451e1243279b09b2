"""Many decision rules, each under many seeds: Table 3 and Figures 16 to 18 of Lundahl 2021.

All settings have the same network, rows, random numbers of training and rounds. Models are evaluated after every round
on the target's validation and test rows: the thesis took the best *test* AUC over the rounds, which is optimistic;
beside it stands the test AUC of the round that is best on validation.
"""

from __future__ import annotations

import dataclasses
import itertools
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from fedrank.core.errors import ConfigError
from fedrank.core.trees import Json
from fedrank.engine.native import NativeSimulator
from fedrank.engine.progress import Listener, Progress
from fedrank.silos.bandit_fedavg import BanditFedAvg, evaluated_by
from fedrank.silos.bandits.rules import Rule, make_rule
from fedrank.silos.build import SiloExperiment
from fedrank.silos.evaluate import SiloEvaluator
from fedrank.silos.rounds import begin_runs, models_of_runs

#: How a table calls a mean of all rewards, as opposed to a recency weight.
STATIONARY = "stationary"


@dataclass(frozen=True)
class Cell:
    """One setting of a decision rule.

    Attributes:
        kind: One of :data:`fedrank.silos.bandits.rules.KINDS`.
        settings: Its parameters as :func:`fedrank.silos.bandits.rules.make_rule` takes them; None: the default.
    """

    kind: str
    settings: tuple[tuple[str, float | None], ...]

    @property
    def name(self) -> str:
        """Such as ``"ucb, c = 0.05, alpha = 0.75"``."""
        said = (f"{key} = {STATIONARY if value is None else f'{value:g}'}" for key, value in self.settings)
        return ", ".join((self.kind, *said))

    @property
    def rule(self) -> Rule:
        """The decision rule with these settings."""
        return make_rule(self.kind, **dict(self.settings))  # type: ignore[arg-type] - checked there


def cells(table: Sequence[Mapping[str, Json]]) -> list[Cell]:
    """All combinations of each row's lists, without those that make the same rule as an earlier one.

    Args:
        table: Rows with ``rule`` and lists of parameters; ``"stationary"`` is the mean of all rewards.

    Raises:
        ConfigError: No such rule, or a value out of range.

    >>> [cell.name for cell in cells([{"rule": "ucb", "c": [0.1], "alpha": ["stationary", 0.5]}])]
    ['ucb, c = 0.1, alpha = stationary', 'ucb, c = 0.1, alpha = 0.5']
    """
    out: dict[tuple, Cell] = {}
    for row in table:
        names = [name for name in row if name != "rule"]
        for values in itertools.product(*(row[name] for name in names)):
            given = {n: None if v == STATIONARY else float(v) for n, v in zip(names, values, strict=True)}
            if given.get("gamma", 0) is None:
                given["gamma"] = 1.0  # of discounted Thompson sampling that is the stationary one
            cell = Cell(str(row["rule"]), tuple(given.items()))
            key = (cell.kind, *(float(np.nan_to_num(leaf, nan=-1.0)) for leaf in cell.rule))
            out.setdefault(key, cell)
    return list(out.values())


@dataclass(frozen=True, eq=False)
class Played:
    """The results of every setting and seed.

    Attributes:
        cells: The settings.
        seeds: The seeds.
        members: Which silos an arm has.
        test: Test AUC of θ after each number of rounds, from 0.
        vali: Validation AUC of θ, likewise.
        own: Validation AUC of the target's own local model, by round.
        increments: Increment of each arm, by round; NaN where not observed.
        arm: The arm whose average became θ, by round.
        messages: Mean number of messages in a round.
        seconds: Seconds that the rounds took.
    """

    cells: tuple[Cell, ...]
    seeds: tuple[int, ...]
    members: Bool[np.ndarray, "arms silos"]
    test: Float[np.ndarray, "settings seeds models"]
    vali: Float[np.ndarray, "settings seeds models"]
    own: Float[np.ndarray, "settings seeds rounds"]
    increments: Float[np.ndarray, "settings seeds rounds arms"]
    arm: Int[np.ndarray, "settings seeds rounds"]
    messages: Float[np.ndarray, " settings"]
    seconds: float

    @property
    def best_test(self) -> Float[np.ndarray, "settings seeds"]:
        """Best test AUC over the rounds, as the thesis reports it."""
        return self.test[..., 1:].max(axis=-1)

    @property
    def selected(self) -> Float[np.ndarray, "settings seeds"]:
        """Test AUC of the round that is best on validation, the first of several."""
        chosen = self.vali[..., 1:].argmax(axis=-1)[..., None]
        return np.take_along_axis(self.test[..., 1:], chosen, axis=-1)[..., 0]


def play_cells(
    experiment: SiloExperiment, todo: Sequence[Cell], listener: Listener | None = None, **how: Any
) -> Played:
    """Run all settings under all seeds of the experiment.

    Args:
        experiment: Of ``bandit-fedavg``; its own rule does not matter.
        todo: The settings.
        listener: Hears of the progress.
        how: Settings of :class:`BanditFedAvg` that replace the experiment's.

    Raises:
        ConfigError: The experiment is of another protocol, or there are no settings.
    """
    base, config, listener = experiment.protocol, experiment.config, listener or Listener()
    if not isinstance(base, BanditFedAvg) or not todo:
        raise ConfigError("a grid needs the protocol bandit-fedavg and at least one setting.")
    rules = [cell.rule for cell in todo]
    needed = {evaluated_by(rule) for rule in rules}
    evaluates = needed.pop() if len(needed) == 1 else "either"
    protocol = dataclasses.replace(base, rule=rules[0], evaluates=evaluates, **how)
    seeds, target = np.asarray(config.all_seeds), experiment.targets[0]
    settings, n = len(todo), len(seeds)
    divisions, targets = np.tile(np.arange(n), settings), np.full(settings * n, target)
    parties = protocol.parties(experiment.arrays, divisions)
    chunk = max(1, config.compute.chunk // (settings * n))
    rounds = NativeSimulator(protocol, parties, chunk, experiment.conditions)
    evaluator = SiloEvaluator(protocol, experiment.arrays, divisions, targets[:, None])
    begun, own = time.perf_counter(), parties.own
    keys, states = begin_runs(protocol, np.tile(seeds, settings), targets, [rule for rule in rules for _ in range(n)])

    def look() -> dict[str, Float[np.ndarray, "runs 1"]]:
        return evaluator(models_of_runs(protocol, states, parties.shared, own, targets[:, None]))

    looks, seen = [look()], []
    for number in range(config.rounds):
        states, own, now = rounds.advance(keys, states, parties.shared, own, number, 1)
        seen.append(now)
        looks.append(look())
        done = int((number + 1) * settings * n)
        rate = done / (time.perf_counter() - begun)
        left = (config.rounds - number - 1) * settings * n / rate
        auc = float(np.nanmean(looks[-1]["vali: last"]))
        listener.progress(Progress(number + 1, config.rounds, done, rate, left, "AUC", auc))
    listener.done()

    def watched(name):
        values = np.stack([row["watched"][name][0] for row in seen], axis=1)  # [runs, rounds, ...]
        return values.reshape(settings, n, *values.shape[1:])

    crossed = np.stack([row["crossed"][0].sum(axis=(1, 2)) for row in seen], axis=1)
    values = {
        part: np.stack([look[f"{part}: last"][:, 0] for look in looks], axis=-1).reshape(settings, n, -1)
        for part in ("test", "vali")
    }
    return Played(
        cells=tuple(todo),
        seeds=tuple(config.all_seeds),
        members=watched("members")[0, 0, -1],
        **values,
        own=watched("own"),
        increments=watched("increments"),
        arm=watched("arm"),
        messages=crossed[:, 1:].mean(axis=1).reshape(settings, n).mean(axis=1),
        seconds=time.perf_counter() - begun,
    )
