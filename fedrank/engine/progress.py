"""Events that a run reports while it goes on. Front ends listen; the run itself prints nothing."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedrank.engine.config import RunConfig


@dataclass(frozen=True)
class Progress:
    """Progress of a run.

    Attributes:
        round: Rounds done.
        rounds: Rounds in all.
        interactions: Interactions of all devices and seeds since the start of this process.
        interactions_per_second: Measured over the whole rounds since the start of this process, compilation left out.
        seconds_left: Estimate; nan before the first measurement.
        measure: Name of the number below.
        value: Mean over seeds of the online reward in the last rounds; nan where nothing has been measured yet.
        unit: What ``interactions`` counts.
    """

    round: int
    rounds: int
    interactions: int
    interactions_per_second: float
    seconds_left: float
    measure: str
    value: float
    unit: str = "interactions"


class Listener:
    """Receives reports about a run's progress; this one ignores them. Override the methods that are wanted."""

    def stage(self, text: str) -> None:
        """Report that a step that takes a while begins, such as loading the data."""

    def start(self, folder: Path, config: RunConfig, done: int) -> None:
        """Report that the rounds begin.

        Args:
            folder: The run's folder.
            config: Its configuration, resolved.
            done: Rounds that were done before: 0 in a new run, those of the checkpoint in one that is resumed.
        """

    def report_values(self, rows: Any) -> None:
        """Report what was measured since the last report: rows with the columns of ``metrics.parquet``.

        The first report of a run that is resumed has the rows up to its checkpoint once more.
        """

    def progress(self, progress: Progress) -> None:
        """Report how many rounds are done."""

    def done(self) -> None:
        """Report that the run has ended, with or without success."""
