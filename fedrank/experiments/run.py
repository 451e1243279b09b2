"""One experiment, from its configuration to the files that it leaves.

The host's loop: some rounds in one compiled program, then a look at the models, a word to whoever listens, now and then
a checkpoint. A run that was stopped or killed resumes from its last checkpoint and ends with the same numbers as one
that was not.
"""

from __future__ import annotations

import os
import shutil
import signal
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
import numpy as np
import polars as pl

from fedrank.core.errors import RunError
from fedrank.experiments import checkpoint
from fedrank.experiments.build import Experiment, build
from fedrank.experiments.config import RunConfig
from fedrank.experiments.evaluate import Evaluator, Score
from fedrank.experiments.files import SCHEMA, RunFolder, bytes_up, environment, rows
from fedrank.experiments.marks import Mark, marks
from fedrank.experiments.progress import Beat, Listener
from fedrank.experiments.settings import as_dict
from fedrank.metrics.discounted import discounted_cumulative
from fedrank.simulate.rounds import Simulator, run_keys

#: Interactions of all seeds in one compiled call, so that progress shows and Ctrl-C is heard within seconds.
_PER_CALL = 4_000_000


class Interrupted(KeyboardInterrupt):
    """The run was stopped by Ctrl-C and can be resumed.

    Attributes:
        folder: Its directory.
        round: Rounds done.
    """

    def __init__(self, folder: Path, round_: int):
        self.folder, self.round = folder, round_
        super().__init__(f"stopped after round {round_}; go on with: fedrank resume {folder}")


def run(
    config: RunConfig,
    folder: str | os.PathLike[str],
    *,
    listener: Listener | None = None,
    data_folder: str | os.PathLike[str] | None = None,
) -> Path:
    """Run an experiment into a new directory.

    Args:
        config: What to run.
        folder: The run's directory; must be empty or not exist.
        listener: Hears of the progress.
        data_folder: Where data sets are looked for; by default ``FEDRANK_DATA`` or the platform's cache.

    Returns:
        The directory.

    Raises:
        FedrankError: The configuration, the data or the directory cannot be used.
        Interrupted: Ctrl-C; the run can be resumed.
    """
    listener = listener or Listener()
    listener.stage("Loading the data")
    home = RunFolder(folder)
    config = config.resolved()
    runner = _Runner(build(config, data_folder), home, listener)  # first: a bad configuration leaves nothing behind
    home.create(config)
    with home.locked():
        return runner.run()


def resume(
    folder: str | os.PathLike[str],
    *,
    listener: Listener | None = None,
    data_folder: str | os.PathLike[str] | None = None,
) -> Path:
    """Go on with a run that was stopped or killed; a finished one is left as it is.

    Raises:
        RunError: There is no run in the directory, or its checkpoint is damaged.
    """
    listener = listener or Listener()
    home = RunFolder(folder)
    config = home.reopen()
    with home.locked():
        if home.finished:
            return home.path
        listener.stage("Loading the data")
        return _Runner(build(config, data_folder), home, listener).run()


@dataclass
class _Runner:
    experiment: Experiment
    home: RunFolder
    listener: Listener
    stop: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self):
        config, protocol = self.experiment.config, self.experiment.protocol
        self.config, self.seeds = config, config.all_seeds
        self.simulator = Simulator(
            protocol,
            max(1, config.compute.chunk // config.seeds),
            config.compute.debug,
            self.experiment.conditions,
        )
        a_round = protocol.account(1, config.privacy.delta).epsilon_round
        self.per_round = (
            self.experiment.interactions,
            self.experiment.n_parties * bytes_up(protocol, self.experiment.n_parties),
            None if np.isinf(a_round) else a_round,
        )
        self.evaluator = Evaluator(
            self.experiment.splits,
            self.experiment.ranker,
            self.experiment.metric,
            self.experiment.users,
            config.evaluation.measures,
            config.evaluation.tie_orders,
        )
        self.frames: list[pl.DataFrame] = []
        self.measured = 0.0  # seconds and
        self.counted = 0  # interactions of calls that did not compile anything

    def run(self) -> Path:
        """From the last checkpoint, or from the start, to the end."""
        started = time.time()
        keys = run_keys(self.seeds)
        states, own = self.simulator.start(keys, self.experiment.parties)
        done, before = 0, 0.0
        if self.home.checkpoint.exists():
            (states, own), about = checkpoint.load(self.home.checkpoint, (states, own))
            if about["config"] != as_dict(self.config):
                raise RunError(f"{self.home.checkpoint}: belongs to another configuration than config.toml beside it.")
            done, before = about["round"], about["seconds"]
            kept = self.home.read_metrics()
            # Online rows are numbered by the rounds they include, evaluations by the rounds before them.
            self.frames = [kept.filter(pl.col("round") <= done)]
        else:
            self._write_what_is_known()
            self._evaluate(states, 0)
        try:
            with self._ctrl_c():
                states, own, done = self._loop(keys, states, own, done, started - before)
        finally:
            self.listener.done()
        self._write_what_crossed(done)
        if done < self.config.rounds:
            raise Interrupted(self.home.path, done)
        self._finish(states, time.time() - started + before)
        if self.stop.is_set():  # heard while the last rounds ran: this run is done, what comes after it is not
            raise Interrupted(self.home.path, done)
        return self.home.path

    def _loop(self, keys: Any, states: Any, own: Any, done: int, since: float) -> tuple[Any, Any, int]:
        config, shared = self.config, self.experiment.parties.shared
        every, step = config.evaluation.every, self._step()
        seen: set[int] = set()
        saved = time.monotonic()
        self.listener.stage("Compiling")
        while done < config.rounds and not self.stop.is_set():
            length = min(step, every - done % every, config.rounds - done)
            before = time.perf_counter()
            states, own, experience = self.simulator.advance(keys, states, shared, own, done, length)
            experience = jax.device_get(experience)
            if length in seen:  # the first call of a length compiles it
                self.measured += time.perf_counter() - before
                self.counted += length * self.per_round[0] * config.seeds
            seen.add(length)
            for i in range(length):
                scores = [
                    [Score("online", name, float(values[i, run])) for name, values in experience.items()]
                    for run in range(config.seeds)
                ]
                self.frames.append(rows(self.seeds, done + i + 1, scores, self.per_round))
            done += length
            if done % every == 0 or done == config.rounds:
                self._evaluate(states, done)
            self._tell(done, experience)
            late = time.monotonic() - saved >= config.compute.checkpoint_seconds
            if done < config.rounds and (late or self.stop.is_set()):
                self._save(states, own, done, time.time() - since)
                saved = time.monotonic()
        return states, own, done

    def _step(self) -> int:
        """Rounds of one call: a divisor of the evaluation interval, so that few lengths are compiled."""
        most = max(1, _PER_CALL // (self.per_round[0] * self.config.seeds))
        every = self.config.evaluation.every
        return max(n for n in range(1, min(every, most) + 1) if every % n == 0)

    def _evaluate(self, states: Any, done: int) -> None:
        self.frames.append(rows(self.seeds, done, self.evaluator(self._weights(states)), self.per_round))

    def _weights(self, states: Any) -> np.ndarray:
        return np.asarray(jax.vmap(self.experiment.protocol.weights)(self.simulator.server(states)))

    def _tell(self, done: int, experience: dict[str, np.ndarray]) -> None:
        name, values = next(iter(experience.items()))
        rate = self.counted / self.measured if self.measured else float("nan")
        left = (self.config.rounds - done) * self.per_round[0] * self.config.seeds / rate
        self.listener.beat(Beat(done, self.config.rounds, self.counted, rate, left, name, float(np.mean(values))))

    def _metrics(self) -> pl.DataFrame:
        frame = pl.concat(self.frames) if self.frames else self.home.read_metrics()
        self.frames = [frame]
        return frame

    def _totals(self) -> pl.DataFrame:
        """The online measures of all rounds so far, discounted and added up, at each round."""
        online = self._metrics().filter(pl.col("split") == "online").sort("seed", "measure", "round")
        parts = [
            part.with_columns(
                pl.lit("total").alias("split"),
                (pl.lit("discounted ") + pl.col("measure")).alias("measure"),
                pl.Series("value", discounted_cumulative(part["value"].to_numpy())),
            )
            for part in online.partition_by("seed", "measure", maintain_order=True)
        ]
        return pl.concat(parts).select(list(SCHEMA))

    def _save(self, states: Any, own: Any, done: int, seconds: float) -> None:
        self._write_what_crossed(done)
        self.home.metrics(self._metrics())  # first: rows beyond the checkpoint are dropped when it is read
        about = {"config": as_dict(self.config), "round": done, "seconds": seconds}
        checkpoint.save(self.home.checkpoint, jax.device_get((states, own)), about)

    def _write_what_is_known(self) -> None:
        """Everything that does not depend on how the run goes."""
        e, c = self.experiment, self.config
        ranker = e.ranker
        self.home.json("environment.json", environment(c, e.citations, e.kernels))
        self.home.json(
            "model.json",
            {
                "ranker": c.ranker,
                "n_features": ranker.n_features,
                "parameters": ranker.size,
                **({"hidden": c.hidden} if hasattr(ranker, "hidden") else {}),
                "data": e.splits.name,
                "generated": e.splits.generated,
                "notes": list(e.splits.notes),
                "queries": {part: q.n_queries for part, q in e.splits.parts().items()},
                "judged": {part: int(q.judged.sum()) for part, q in e.splits.parts().items()},
            },
        )
        self.listener.stage("Training the baselines")
        written = [
            {
                "name": mark.name,
                "notes": list(mark.notes),
                "values": [
                    vars(score)
                    for score in self.evaluator.means({name: row[None] for name, row in mark.per_query.items()})[0]
                ],
            }
            for mark in self._marks()
        ]
        self.home.json("baselines.json", {"baselines": written})

    def _marks(self) -> list[Mark]:
        e, asked = self.experiment, self.config.evaluation
        return marks(asked.baselines, e.splits, e.metric, e.users, asked.measures, asked.tie_orders)

    def _write_what_crossed(self, done: int) -> None:
        """The ledger and the privacy of the rounds that took place, not of those that were planned."""
        protocol = self.experiment.protocol
        self.home.json("privacy.json", protocol.account(done, self.config.privacy.delta).as_json())
        self.home.ledger(protocol, done, self.experiment.n_parties)

    def _finish(self, states: Any, seconds: float) -> None:
        weights = self._weights(states)
        for seed, row in zip(self.seeds, weights, strict=True):
            self.home.weights(self.experiment.ranker, seed, row)
        learnt = {name: np.mean(values, axis=0) for name, values in self.evaluator.per_query(weights).items()}
        self.home.per_query(self.evaluator.queries, {"learnt": learnt, **{m.name: m.per_query for m in self._marks()}})
        self.home.metrics(pl.concat([self._metrics(), self._totals()]))
        rate = self.counted / self.measured if self.measured else None
        self.home.json(
            "environment.json",
            {
                **environment(self.config, self.experiment.citations, self.experiment.kernels),
                "seconds": round(seconds, 3),
                "interactions_per_second": rate,
            },
        )
        self.home.json("done.json", {"rounds": self.config.rounds, "seconds": round(seconds, 3)})
        shutil.rmtree(self.home.checkpoint.parent, ignore_errors=True)

    def _ctrl_c(self):
        return _StopOnCtrlC(self.stop)


class _StopOnCtrlC:
    """The first Ctrl-C asks the run to stop after the rounds in progress; the second stops it at once."""

    def __init__(self, stop: threading.Event):
        self.stop = stop

    def __enter__(self):
        self.main = threading.current_thread() is threading.main_thread()
        if self.main:
            self.previous = signal.signal(signal.SIGINT, self._heard)
        return self

    def _heard(self, number, frame):
        if self.stop.is_set():
            raise KeyboardInterrupt
        self.stop.set()

    def __exit__(self, *exception):
        if self.main:
            signal.signal(signal.SIGINT, self.previous)
