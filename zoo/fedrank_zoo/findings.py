"""Results of attacks on texts, with their confidence intervals: as a table of a page, and on a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from fedrank.cli.report import drawn
from fedrank.cli.terminal import headline, say
from fedrank.core.trees import Json
from fedrank.report.tables import Column, Table


@dataclass(frozen=True)
class Finding:
    """Result of one attack.

    Attributes:
        attack: Name of the attack.
        mode: Name of the mode, and how it was asked where there are several ways.
        measure: Name of the quantity in ``measured`` and ``promised``.
        measured: Its mean over the trials.
        low: Lower end of its 99 % interval.
        high: Upper end.
        promised: The bound that the mode promises, or the error that its noise is meant to cause.
        broken: Whether the promise does not hold.
        trials: Number of trials.
        words: Explanation in a sentence.
        control: Whether the attacked mode is not offered, but leaves out a part of one that is.
    """

    attack: str
    mode: str
    measure: str
    measured: float
    low: float
    high: float
    promised: float
    broken: bool
    trials: int
    words: str
    control: bool = False

    def as_json(self) -> dict[str, Json]:
        """The finding as plain values."""
        return asdict(self)


def table(findings: Sequence[Finding], title: str = "Attacks on sketches and on questions about them") -> Table:
    """The table of a page: one row for each finding, with what was measured, its 99 % interval, and the promise."""
    columns = (
        Column("attack", "attack"),
        Column("mode", "mode"),
        Column("measure", "measure"),
        Column("measured", "measured", numeric=True, digits=3),
        Column("low", "low", numeric=True, digits=3),
        Column("high", "high", numeric=True, digits=3),
        Column("promised", "promised", numeric=True, digits=3),
        Column("verdict", "verdict"),
        Column("trials", "trials", numeric=True),
    )
    rows = tuple(
        {**one.as_json(), "verdict": ("broken" if one.broken else "holds") + (" (control)" if one.control else "")}
        for one in findings
    )
    notes = (
        "Low and high: the ends of the 99 % interval.",
        "Controls are no modes: each lacks a part that its mode has.",
    )
    return Table(title, columns, rows, notes)


def print_findings(
    sentence: str, found: Sequence[Finding], title: str, words: Sequence[str], page: Path | None
) -> None:
    """Print what attacks on texts found: the page's first sentence, its table, and sentences below it."""
    made = table(found, title)
    shown = drawn(made, [column.key for column in made.columns if column.key != "trials"])
    found_words = (f"{one.attack}, {one.mode}: {one.words}." for one in found)
    say(headline(sentence), shown, *made.notes, *words, *found_words, page=page)
