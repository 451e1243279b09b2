"""Following a run while it goes on, with a CSV file, or a tracker of another package.

A tracker is a :class:`~fedrank.engine.progress.Listener` that writes every measure as soon as there is a value::

    fedrank.run("foltr-es", folder="runs/mine", listener=track(["csv"]))

Nothing is written twice: a run that is resumed repeats the rounds after its checkpoint, whose numbers are the same.
What was followed once is followed again when the run is resumed from the command line.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from typing_extensions import override

from fedrank.core.errors import RunError
from fedrank.core.frame import Frame
from fedrank.core.registry import Registry
from fedrank.core.trees import Json
from fedrank.engine.checkpoint import write_atomically
from fedrank.engine.config import RunConfig
from fedrank.engine.progress import Listener, Progress

#: The file in a run's folder that says what follows it.
REMEMBERED = "tracking.json"
#: The folder in a run's folder with what TensorBoard and MLflow read.
FOLDER = "tracking"


class Csv(Listener):
    """Adds rows to ``metrics.csv`` in the run's folder: the columns of ``metrics.parquet``, a row a value."""

    @override
    def start(self, folder: Path, config: RunConfig, done: int) -> None:
        self._file = folder / "metrics.csv"
        self._file.unlink(missing_ok=True)  # all rows up to the checkpoint come again

    @override
    def report_values(self, rows: Frame) -> None:
        first = not self._file.exists()
        with open(self._file, "a", encoding="utf-8") as file:
            file.write(rows.to_csv(header=first))


#: Trackers by name; a class of listeners that takes no arguments.
TRACKERS: Registry[type[Listener]] = Registry("tracker", "fedrank.trackers")
TRACKERS.register("csv", summary="Adds rows to metrics.csv.")(Csv)


class _Listeners(Listener):
    """Several listeners that hear of the same run, in order.

    Args:
        members: The listeners.
        names: Names of the trackers among them, kept in the run's folder for :func:`tracked_before`.
    """

    def __init__(self, members: Iterable[Listener], names: Sequence[str]):
        self.members, self.names = tuple(members), tuple(names)

    @override
    def stage(self, text: str) -> None:
        for member in self.members:
            member.stage(text)

    @override
    def start(self, folder: Path, config: RunConfig, done: int) -> None:
        remember(folder, {**load_remembered(folder), "track": list(self.names)})
        for member in self.members:
            member.start(folder, config, done)

    @override
    def report_values(self, rows: Frame) -> None:
        for member in self.members:
            member.report_values(rows)

    @override
    def progress(self, progress: Progress) -> None:
        for member in self.members:
            member.progress(progress)

    @override
    def done(self) -> None:
        for member in self.members:
            member.done()


def track(names: Sequence[str], beside: Listener | None = None) -> Listener:
    """A listener that follows a run.

    Args:
        names: Names of :data:`TRACKERS`, such as ``csv``, or ``tensorboard`` and ``mlflow`` of ``fedrank-zoo``.
        beside: Another listener that hears of the same run.

    Raises:
        UnknownNameError: There is no such tracker.
        MissingExtraError: A tracker's library is not installed; says which extra brings it.
    """
    if not names:
        return beside or Listener()
    chosen = tuple(dict.fromkeys(names))
    return _Listeners([*([] if beside is None else [beside]), *(TRACKERS.get(name)() for name in chosen)], chosen)


def tracked_before(folder: str | os.PathLike[str]) -> list[str]:
    """The names of what followed a run until now; empty if nothing did."""
    return list(load_remembered(Path(folder)).get("track", ()))


def load_remembered(folder: Path) -> dict[str, Json]:
    """The content of a run's file about its trackers; empty if it has none."""
    file = folder / REMEMBERED
    try:
        return json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    except ValueError as error:
        raise RunError(f"{file}: not JSON ({error}). Delete it; the run is then followed from the start.") from error


def remember(folder: Path, content: dict[str, Json]) -> None:
    """Write a run's file about its trackers."""
    write_atomically(folder / REMEMBERED, (json.dumps(content, indent=2) + "\n").encode())
