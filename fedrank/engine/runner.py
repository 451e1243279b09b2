"""The host's loop of a run: some rounds in one compiled program, then a look at the models, a word, a checkpoint.

What is measured and written depends on what is run; a subclass of :class:`Runner` fills that in.

The loop needs :class:`~fedrank.engine.rounds.Rounds` of a protocol over all its parties:
:class:`~fedrank.engine.simulator.Simulator` computes any protocol with JAX,
:class:`~fedrank.engine.native.NativeSimulator` some of them without.
"""

from __future__ import annotations

import abc
import functools
import signal
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from fedrank.core.arrays import PyTree
from fedrank.core.errors import RunError
from fedrank.core.frame import Frame
from fedrank.core.ledger import Ledger
from fedrank.core.protocol import Exchange
from fedrank.core.registry import class_name
from fedrank.core.trees import Json
from fedrank.engine import checkpoint
from fedrank.engine.config import RunConfig
from fedrank.engine.progress import Listener, Progress
from fedrank.engine.rounds import Rounds
from fedrank.engine.run_folder import SCHEMA, RunFolder, describe_messages, environment
from fedrank.engine.settings import as_dict
from fedrank.metrics.returns import discounted_cumulative


class Interrupted(KeyboardInterrupt):
    """The run was stopped by Ctrl-C and can be resumed.

    Attributes:
        folder: Its directory.
        round: Rounds done.
    """

    def __init__(self, folder: Path, round_: int):
        self.folder, self.round = folder, round_
        super().__init__(f"stopped after round {round_}; go on with: fedrank resume {folder}")


class Runner(abc.ABC):
    """One run in its directory.

    Args:
        config: The configuration.
        home: The directory; no other process writes to it.
        listener: Hears of the progress.
        simulator: Computes the rounds.
        work: Interactions, or whatever is counted, of all parties in a round of one run; for progress and speed.
    """

    #: What ``work`` counts.
    unit = "interactions"
    #: Of all seeds, how many in one compiled call, so that progress shows and Ctrl-C is heard within seconds.
    per_call = 4_000_000
    #: The run's configuration with all that it names built.
    experiment: Any
    #: All that the run learns from and is judged on: a checkpoint goes on with the same only.
    data: Any
    #: What all parties hold in common, which a simulator holds once.
    shared: PyTree

    def __init__(self, config: RunConfig, home: RunFolder, listener: Listener, simulator: Rounds, work: int):
        self.config, self.home, self.listener, self.simulator = config, home, listener, simulator
        self.seeds, self.work, self.stop = config.all_seeds, max(1, work), threading.Event()
        self.frames: list[Frame] = []
        self.measured = 0.0  # seconds and
        self.counted = 0  # interactions of calls that did not compile anything

    @property
    def runs(self) -> int:
        """Number of runs that the program maps over: one for each seed."""
        return len(self.seeds)

    @functools.cached_property
    def data_digest(self) -> str:
        """Digest of :attr:`data`; a gigabyte takes a second or two."""
        return checkpoint.digest_of(self.data)

    @property
    def code(self) -> list[str]:
        """Classes that compute the run, as ``module:name``; a checkpoint goes on with the same only."""
        return [class_name(type(self.experiment.protocol))]

    @abc.abstractmethod
    def start(self) -> tuple[PyTree, PyTree, PyTree]:
        """Keys [runs], states and the parties' own states before the first round."""

    @abc.abstractmethod
    def note(self, done: int, seen: dict[str, Any]) -> tuple[str, float]:
        """Keep the online measures of a number of rounds.

        Args:
            done: Rounds before them.
            seen: As :meth:`~fedrank.engine.runner.Rounds.advance` returns it, on the host.

        Returns:
            Name and value of one number for the progress bar.
        """

    @abc.abstractmethod
    def evaluate(self, states: PyTree, own: PyTree, done: int) -> None:
        """Measure the models after ``done`` rounds."""

    @abc.abstractmethod
    def write_known(self) -> None:
        """Write everything that does not depend on how the run goes."""

    @abc.abstractmethod
    def write_crossed(self, done: int) -> None:
        """Write the ledger and the privacy of the rounds that took place, not of those that were planned."""

    @abc.abstractmethod
    def write_results(self, states: PyTree, own: PyTree, seconds: float, rate: float | None) -> None:
        """Write the results of the finished run; ``rate`` is interactions per second."""

    def write_environment(self, **more: Json) -> None:
        """Write machine and packages of the run, the backend that computed its rounds with the reason for it, and more.

        Args:
            more: Such as the speed.
        """
        about = environment(self.config, self.experiment.citations, getattr(self.experiment, "kernels", False))
        about |= {"backend": self.simulator.backend, "backend_why": self.simulator.why}
        self.home.json("environment.json", about | more)

    def write_messages(self, done: int, ledger: Ledger, setup: Iterable[Exchange] = ()) -> None:
        """Write what crossed, its types and the privacy account.

        Args:
            done: Number of rounds that took place.
            ledger: Of the first run.
            setup: The exchanges before the first round.
        """
        protocol = self.experiment.protocol
        self.home.json("privacy.json", protocol.account(done, self.config.delta).as_json())
        self.home.text("ledger.jsonl", ledger.text())
        self.home.json("messages.json", describe_messages((*setup, *protocol.exchanges)))

    def restore(self, done: int) -> None:
        """Read what was kept of the rounds before a checkpoint."""
        kept = self.home.read_metrics()
        # Online rows are numbered by the rounds they include, evaluations by the rounds before them.
        self.frames = [kept[kept["round"] <= done]]

    def keep(self) -> None:
        """Write what :meth:`restore` reads, and what the finished run has in tables: ``metrics.parquet`` and more."""
        self.home.metrics(self.metrics())  # before the checkpoint: rows beyond it are dropped when it is read

    def run(self) -> Path:
        """Run from the last checkpoint, or from the start, to the end; returns the run folder."""
        if self.simulator.backend != "numba":
            return self._run()
        from fedrank.core.compiled import OnCompilation

        with OnCompilation(lambda: self.listener.stage("Compiling, once on this machine")):
            return self._run()

    def _run(self) -> Path:
        started = time.time()
        keys, states, own = self.start()
        done, before = 0, 0.0
        if self.home.checkpoint.exists():
            (states, own), about = checkpoint.load(self.home.checkpoint, (states, own))
            if about["config"] != as_dict(self.config):
                raise RunError(f"{self.home.checkpoint}: belongs to another configuration than config.toml beside it.")
            if about.get("data", self.data_digest) != self.data_digest:
                raise RunError(
                    f"{self.home.path}: the data is not that of the {about['round']} rounds which were done, and the "
                    "results would be of both. Bring the data back, or start a run in another folder."
                )
            if (known := about.get("code", self.code)) != self.code:
                raise RunError(
                    f"{self.home.path}: its {about['round']} rounds were computed by {', '.join(known)}, and the next "
                    f"would be by {', '.join(self.code)}. Hand over the protocol that the run was begun with."
                )
            done, before = about["round"], about["seconds"]
            self.restore(done)
        else:
            self.write_known()
            self.evaluate(states, own, 0)
        self.listener.start(self.home.path, self.config, done)
        try:
            with _StopOnCtrlC(self.stop):
                states, own, done = self._loop(keys, states, own, done, started - before)
        finally:
            self.listener.done()
        self.write_crossed(done)
        if done < self.config.rounds:
            raise Interrupted(self.home.path, done)
        self.keep()
        seconds = time.time() - started + before
        self.write_results(states, own, seconds, self.counted / self.measured if self.measured else None)
        self.home.finish(self.config.rounds, seconds)
        if self.stop.is_set():  # heard while the last rounds ran: this run is done, what comes after it is not
            raise Interrupted(self.home.path, done)
        return self.home.path

    def _loop(self, keys: PyTree, states: PyTree, own: PyTree, done: int, since: float) -> tuple[PyTree, PyTree, int]:
        config = self.config
        every, step = config.evaluation.every, self._step()
        self._tell_measured(0)
        met: set[int] = set()
        saved = time.monotonic()
        if self.simulator.backend == "jax":
            self.listener.stage("Compiling" + (f", since {self.simulator.why} takes JAX" if self.simulator.why else ""))
        while done < config.rounds and not self.stop.is_set():
            length = min(step, every - done % every, config.rounds - done)
            before = time.perf_counter()
            states, own, seen = self.simulator.advance(keys, states, self.shared, own, done, length)
            seen = self.simulator.on_host(seen)
            if length in met:  # the first call of a length compiles it
                self.measured += time.perf_counter() - before
                self.counted += length * self.work * self.runs
            met.add(length)
            known = len(self.frames)
            shown = self.note(done, seen)
            done += length
            if done % every == 0 or done == config.rounds:
                self.evaluate(states, own, done)
            self._tell_measured(known)
            self._tell(done, *shown)
            late = time.monotonic() - saved >= config.compute.checkpoint_seconds
            if done < config.rounds and (late or self.stop.is_set()):
                self._save(states, own, done, time.time() - since)
                saved = time.monotonic()
        return states, own, done

    def _step(self) -> int:
        """Rounds of one call: a divisor of the evaluation interval, so that few lengths are compiled."""
        most = max(1, self.per_call // (self.work * self.runs))
        every = self.config.evaluation.every
        return max(n for n in range(1, min(every, most) + 1) if every % n == 0)

    def _tell_measured(self, known: int) -> None:
        """Report the rows of the frames after the first ``known``."""
        if len(self.frames) > known:
            self.listener.report_values(Frame.concat(self.frames[known:]))

    def _tell(self, done: int, name: str, value: float) -> None:
        rate = self.counted / self.measured if self.measured else float("nan")
        left = (self.config.rounds - done) * self.work * self.runs / rate
        self.listener.progress(Progress(done, self.config.rounds, self.counted, rate, left, name, value, self.unit))

    def metrics(self) -> Frame:
        """All rows of ``metrics.parquet`` so far, one a round, seed and measure."""
        frame = Frame.concat(self.frames) if self.frames else self.home.read_metrics()
        self.frames = [frame]
        return frame

    def totals(self) -> Frame:
        """The online measures of all rounds so far, discounted and added up, at each round."""
        online = self.metrics().where(split="online").sort("round")
        parts = [
            part.with_columns(
                {
                    "split": "total",
                    "measure": f"discounted {measure}",
                    "value": discounted_cumulative(part["value"]),
                }
            )
            for (_, measure), part in online.groups("seed", "measure")
        ]
        return Frame.concat(parts) if parts else Frame.of_rows([], SCHEMA)

    def _save(self, states: PyTree, own: PyTree, done: int, seconds: float) -> None:
        self.write_crossed(done)
        self.keep()
        about = {"config": as_dict(self.config), "data": self.data_digest, "code": self.code}
        about |= {"round": done, "seconds": seconds}
        checkpoint.save(self.home.checkpoint, self.simulator.on_host((states, own)), about)


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
