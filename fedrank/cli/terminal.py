"""How commands speak: a progress bar on a terminal, plain lines in a log, nothing in a pipe.

Results go to stdout, everything else to stderr.
"""

from __future__ import annotations

import json
import math
import os
import sys
import time
from typing import Any

from fedrank.engine.progress import Progress, Listener


def print_json(value: Any) -> None:
    """One JSON document on stdout; not-a-number and infinity become null."""

    def plain(v: Any) -> Any:
        if isinstance(v, dict):
            return {str(key): plain(item) for key, item in v.items()}
        if isinstance(v, list | tuple):
            return [plain(item) for item in v]
        return None if isinstance(v, float) and not math.isfinite(v) else v

    print(json.dumps(plain(value), indent=2, ensure_ascii=False))


def _left(seconds: float) -> str:
    if not math.isfinite(seconds):
        return "--:--"
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"


def _rate(beat: Progress) -> str:
    rate = beat.interactions_per_second
    return f"{rate:,.0f} {beat.unit}/s" if math.isfinite(rate) else "compiling"


def _value(beat: Progress) -> str:
    return f"{beat.measure} " + ("–" if math.isnan(beat.value) else f"{beat.value:.3f}")


class Bar(Listener):
    """A progress bar (rich) on a terminal."""

    def __init__(self, name: str = "") -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn

        self._bar = Progress(
            TextColumn("[bold]{task.description}"),
            BarColumn(bar_width=None),
            TextColumn("{task.completed:.0f}/{task.total:.0f} rounds"),
            TextColumn("{task.fields[rate]}"),
            TextColumn("{task.fields[reward]}"),
            TextColumn("{task.fields[left]} left"),
            console=Console(stderr=True),
            transient=True,
        )
        self._task: Any = None
        self._name = f"{name}  " if name else ""

    def stage(self, text: str) -> None:
        """Say it on a line that the next one replaces."""
        if self._task is None:
            self._bar.start()
            self._task = self._bar.add_task(self._name + text, total=1, rate="", reward="", left="--:--")
        self._bar.update(self._task, description=self._name + text)

    def progress(self, progress: Progress) -> None:
        """Move the bar."""
        self._bar.update(
            self._task,
            description=self._name + "Training",
            completed=beat.round,
            total=beat.rounds,
            rate=_rate(beat),
            reward=_value(beat),
            left=_left(beat.seconds_left),
        )

    def done(self) -> None:
        """Take the bar away."""
        self._bar.stop()


class Lines(Listener):
    """Plain lines for a log: every stage, and one line every few seconds."""

    def __init__(self, name: str = "", seconds: float = 5.0) -> None:
        self._seconds, self._last = seconds, -math.inf
        self._name = f"{name}: " if name else ""

    def stage(self, text: str) -> None:
        """One line."""
        print(f"{self._name}{text} …", file=sys.stderr, flush=True)

    def progress(self, progress: Progress) -> None:
        """One line, if the last is some seconds old or this is the end."""
        now = time.monotonic()
        if now - self._last < self._seconds and beat.round < beat.rounds:
            return
        self._last = now
        print(
            f"{self._name}round {beat.round}/{beat.rounds}  {_value(beat)}  {_rate(beat)}  "
            f"{_left(beat.seconds_left)} left",
            file=sys.stderr,
            flush=True,
        )


def listener(quiet: bool = False, name: str = "") -> Listener:
    """The listener that fits where stderr goes; ``name`` tells several runs apart."""
    if quiet:
        return Listener()
    if sys.stderr.isatty():
        return Bar(name)
    # A log that somebody keeps (CI, nohup to a file) gets lines; a pipe into another program gets none.
    import stat

    try:
        kept = stat.S_ISREG(os.fstat(sys.stderr.fileno()).st_mode)
    except (OSError, ValueError):  # stderr is not a file at all, as in a notebook
        kept = False
    return Lines(name) if kept or os.environ.get("CI") else Listener()
