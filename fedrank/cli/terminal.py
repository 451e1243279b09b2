"""Output of commands: progress on one line of a terminal, in lines of a log, not at all in a pipe.

Results go to stdout, everything else to stderr. Text partly comes from outside: names in files, messages of machines.
Its control characters are shown, not obeyed (:func:`~fedrank.core.words.printable`), and what looks like a tag of
rich's markup is text, unless it is one of the few that commands use themselves.
"""

from __future__ import annotations

import json
import math
import os
import re
import stat
import sys
import time
from collections.abc import Collection
from pathlib import Path
from typing import Annotated, Any

import rich.console
from cyclopts import App, Parameter
from rich import box
from rich.text import Text
from typing_extensions import override

from fedrank.core import registry
from fedrank.core.trees import finite
from fedrank.core.words import CONTROL, printable
from fedrank.engine.progress import Listener, Progress

AsJson = Annotated[bool, Parameter(name="--json", negative="", help="Print JSON for machines.")]
Quiet = Annotated[bool, Parameter(name=["--quiet", "-q"], negative="", help="No progress.")]
Switch = Annotated[bool, Parameter(negative="")]
#: A flag that takes several values at once.
Names = Annotated[tuple[str, ...], Parameter(consume_multiple=True, negative="")]


#: Most characters of a table's line in a pipe or a log.
_LONG = 250
#: Parts of what is printed that are sentences and no tables.
_SENTENCES = (str, Text)
#: A tag that no command uses, and the backslashes before it.
_FOREIGN_TAG = re.compile(r"(\\*)(\[(?!/?(?:bold|dim|red|green)\])[a-zA-Z#/@][^\[]*?\])")


class Console(rich.console.Console):
    """A terminal that colours nothing by itself; arguments as of rich's class."""

    def __init__(self, **options: Any) -> None:
        super().__init__(highlight=False, **options)

    @override
    def render_str(self, text: str, *, markup: bool | None = None, **options: Any) -> Text:
        text = printable(text, lines=True)
        if markup or (markup is None and self._markup):
            text = _FOREIGN_TAG.sub(r"\1\1\\\2", text)
        return super().render_str(text, markup=markup, **options)


def add_plug_ins(app: App, place: str) -> None:
    """Add the commands that installed packages add below one, such as ``"hub"`` or ``"data.clicks"``."""
    for name in registry.names("fedrank.commands"):
        above, _, last = name.rpartition(".")
        if above == place:
            app.command(registry.get("fedrank.commands", name), name=last)


def say(*parts: Any, page: Path | None = None) -> None:
    """Print sentences, which have no markup, and tables, and last where the page is, if there is one.

    A pipe or a log gets whole lines, unless ``COLUMNS`` says how long they may be: a cell that goes on in the next
    line would be read by programs, and copied by people, as two.
    """
    console = Console()
    whole = not console.is_terminal and "COLUMNS" not in os.environ
    console = Console(width=_LONG) if whole else console
    for part in parts:
        console.print(part, markup=not isinstance(part, str), soft_wrap=whole and isinstance(part, _SENTENCES))
    if page is not None:
        console.print(f"page: {page}", markup=False, soft_wrap=True)


def in_style(text: str, style: str) -> Text:
    """A sentence in a style, such as bold red."""
    return Text(printable(text, lines=True), style)


def headline(sentence: object) -> Text:
    """The first sentence of a command or its page, in bold."""
    return in_style(str(sentence), "bold")


class Status:
    """A line on stderr that says how something goes: replaced on a terminal, one every few seconds in a log.

    Args:
        quiet: Print nothing.
        seconds: Between two lines of a log.
    """

    def __init__(self, quiet: bool, seconds: float = 10.0) -> None:
        self._quiet, self._seconds, self._last, self._line = quiet, seconds, -math.inf, ""
        self._terminal = sys.stderr.isatty()

    def show(self, line: str, now: bool = False) -> None:
        """Print the line if it says something new and it is time, or whenever ``now`` says so."""
        clock, line = time.monotonic(), printable(line, lines=True)
        early = line == self._line or clock - self._last < (0.2 if self._terminal else self._seconds)
        if self._quiet or (early and not now):
            return
        self._last, self._line = clock, line
        end = "" if self._terminal else "\n"
        print(f"\r\033[K{line[:100]}" if self._terminal else line, end=end, file=sys.stderr, flush=True)

    def end(self) -> None:
        """Go on in a new line of a terminal."""
        if self._terminal and self._line:
            print(file=sys.stderr)


def print_json(value: Any) -> None:
    """One JSON document on stdout; not-a-number and infinity become null."""
    said = json.dumps(finite(value), indent=2, ensure_ascii=False)
    print(CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", said))  # JSON itself escapes those below 0x20 only


def table(*columns: str, numbers: Collection[str] = (), whole: Collection[str] = (), title: str = "") -> Any:
    """A rich table that fits into a terminal of 80 characters: cells that are too long go on in the next line.

    Args:
        columns: Titles of the columns.
        numbers: Titles of those that stand on the right.
        whole: Titles of those that are never folded, such as names.
        title: The table's own.
    """
    from rich.table import Table

    made = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False, title=title or None)
    for column in columns:
        side = "right" if column in numbers else "left"
        made.add_column(column, justify=side, overflow="fold", no_wrap=column in whole)
    return made


def time_left(seconds: float) -> str:
    """Seconds as ``m:ss`` or ``h:mm:ss``."""
    if not math.isfinite(seconds):
        return "--:--"
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"


def _rate(progress: Progress) -> str:
    rate = progress.interactions_per_second
    return f"{rate:,.0f} {progress.unit}/s" if math.isfinite(rate) else "compiling"


def _value(progress: Progress) -> str:
    return f"{progress.measure} " + ("–" if math.isnan(progress.value) else f"{progress.value:.3f}")


class Lines(Listener):
    """Progress of a run: every stage, and the rounds on a line that is replaced, or one every few seconds in a log.

    Args:
        name: What tells several runs apart.
        seconds: Between two lines of a log.
    """

    def __init__(self, name: str = "", seconds: float = 5.0) -> None:
        self._name, self._status = f"{name}: " if name else "", Status(False, seconds)

    def stage(self, text: str) -> None:
        """Print a line about a stage of the run."""
        self._status.show(f"{self._name}{text} …", now=True)

    def progress(self, progress: Progress) -> None:
        """Print the rounds that are done, if it is time or if they are all."""
        line = f"{self._name}round {progress.round}/{progress.rounds}  {_value(progress)}  {_rate(progress)}  "
        self._status.show(f"{line}{time_left(progress.seconds_left)} left", now=progress.round == progress.rounds)

    def done(self) -> None:
        """Leave the line, because the run is over."""
        self._status.end()


def listener(quiet: bool = False, name: str = "") -> Listener:
    """The listener that fits where stderr goes; ``name`` tells several runs apart."""
    if quiet:
        return Listener()
    # A log that is kept (CI, nohup to a file) gets lines; a pipe into another program gets none.
    try:
        kept = stat.S_ISREG(os.fstat(sys.stderr.fileno()).st_mode)
    except (OSError, ValueError):  # stderr is not a file at all, as in a notebook
        kept = False
    return Lines(name) if kept or sys.stderr.isatty() or os.environ.get("CI") else Listener()
