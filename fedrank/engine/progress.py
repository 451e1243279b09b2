"""What a run tells while it goes on. Front ends listen; the run itself prints nothing."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Progress:
    """Where a run is.

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

    def progress(self, progress: Progress) -> None:
        """Report how many rounds are done."""

    def done(self) -> None:
        """Report that the run has ended, with or without success."""
