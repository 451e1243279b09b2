"""Trackers that follow a run with TensorBoard or MLflow (``--track tensorboard mlflow``)."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from typing_extensions import override

from fedrank.core.frame import Frame
from fedrank.core.lazy import require
from fedrank.core.trees import flat
from fedrank.engine.config import RunConfig
from fedrank.engine.progress import Listener, Progress
from fedrank.engine.settings import as_dict
from fedrank.engine.tracking import load_remembered, remember

#: The folder in a run's folder with what TensorBoard and MLflow read.
FOLDER = "tracking"


class TensorBoard(Listener):
    """Writes event files to ``tracking/tensorboard``: one run for each seed, and one for the mean over seeds.

    A tag is a split and a measure, such as ``test/nDCG_at_10``; the step is the round.

    Raises:
        MissingExtraError: tensorboardX is not installed.
    """

    def __init__(self):
        require("tracking", "Following a run with TensorBoard", "tensorboardX")
        from tensorboardX import SummaryWriter  # pyright: ignore[reportMissingImports]

        self._open = SummaryWriter
        self._writers: dict[str, Any] = {}

    @override
    def start(self, folder: Path, config: RunConfig, done: int) -> None:
        self._home = folder / FOLDER / "tensorboard"
        self._written = done if self._home.exists() else -1

    @override
    def report_values(self, rows: Frame) -> None:
        rows = rows[rows["round"] > self._written]
        for (seed,), mine in rows.groups("seed"):
            self._write(f"seed{seed}", mine.select(("split", "measure", "round", "value")).tuples())
        self._write("mean", [(*key, value) for key, value in _mean_values(rows).items()])
        for writer in self._writers.values():
            writer.flush()

    def _write(self, name: str, rows: Iterable[tuple[str, str, int, float]]) -> None:
        """Write (split, measure, round, value) each as a point of one run."""
        if name not in self._writers:
            # What an earlier process wrote of rounds after its checkpoint does not count any more.
            purge = self._written + 1 if self._written >= 0 else None
            # Files are named after the second in which they were opened, which two processes may share.
            own = f".{self._written + 1:09d}"
            self._writers[name] = self._open(str(self._home / name), purge_step=purge, filename_suffix=own)
        for split, measure, round_, value in rows:
            self._writers[name].add_scalar(metric_name(f"{split}/{measure}").replace(" ", "_"), value, round_)

    @override
    def done(self) -> None:
        for writer in self._writers.values():
            writer.close()
        self._writers.clear()


class MlFlow(Listener):
    """Logs a run of MLflow: settings as parameters, means over seeds as metrics whose step is the round.

    It goes to where ``MLFLOW_TRACKING_URI`` says, else into a SQLite file in ``tracking`` beside the run's other files.
    The experiment is ``MLFLOW_EXPERIMENT_NAME``, else ``fedrank``.

    Raises:
        MissingExtraError: mlflow-skinny is not installed.
    """

    def __init__(self):
        require("tracking", "Following a run with MLflow", "mlflow", "sqlalchemy", "alembic")
        import mlflow  # pyright: ignore[reportMissingImports]

        self._mlflow: Any = mlflow  # its names are made at run time

    @override
    def start(self, folder: Path, config: RunConfig, done: int) -> None:
        address = os.environ.get("MLFLOW_TRACKING_URI")
        if not address:
            (folder / FOLDER).mkdir(exist_ok=True)
            address = f"sqlite:///{(folder / FOLDER / 'mlflow.db').resolve()}"
        self._client = self._mlflow.MlflowClient(tracking_uri=address)
        remembered = load_remembered(folder)
        self._last: dict[str, int] = {}
        self._rounds, self._reached = config.rounds, done
        if "mlflow_run" not in remembered:
            self._run = self._create(folder, config)
            remember(folder, {**remembered, "mlflow_run": self._run})
        else:
            self._run = str(remembered["mlflow_run"])
            self._client.update_run(self._run, status="RUNNING")
            for key in self._client.get_run(self._run).data.metrics:
                self._last[key] = max(one.step for one in self._client.get_metric_history(self._run, key))

    def _create(self, folder: Path, config: RunConfig) -> str:
        """The id of a new run with the configuration's settings."""
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", "fedrank")
        known = self._client.get_experiment_by_name(name)
        experiment = self._client.create_experiment(name) if known is None else known.experiment_id
        made = self._client.create_run(experiment, run_name=folder.resolve().name).info.run_id
        entity = self._mlflow.entities.Param
        settings = [entity(key, str(value)) for key, value in flat(as_dict(config))]
        for start in range(0, len(settings), 100):  # a call takes a hundred
            self._client.log_batch(made, params=settings[start : start + 100])
        return made

    @override
    def report_values(self, rows: Frame) -> None:
        now = int(time.time() * 1000)
        metrics = []
        for (split, measure, round_), value in _mean_values(rows).items():
            key = metric_name(f"{split}/{measure}")
            if round_ > self._last.get(key, -1):
                metrics.append(self._mlflow.entities.Metric(key, value, now, round_))
                self._last[key] = round_
        for start in range(0, len(metrics), 1000):
            self._client.log_batch(self._run, metrics=metrics[start : start + 1000])

    @override
    def progress(self, progress: Progress) -> None:
        self._reached = progress.round

    @override
    def done(self) -> None:
        self._client.set_terminated(self._run, "FINISHED" if self._reached >= self._rounds else "KILLED")


def metric_name(name: str) -> str:
    """A name that MLflow takes: letters, digits, and some punctuation."""
    return re.sub(r"[^\w\-. :/]+", "", name.replace("@", " at "), flags=re.ASCII)


def _mean_values(rows: Frame) -> dict[tuple[str, str, int], float]:
    """The mean over seeds by (split, measure, round)."""
    groups = rows[np.isfinite(rows["value"])].groups("split", "measure", "round")
    return {key: float(part["value"].mean()) for key, part in groups}
