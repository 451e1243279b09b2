"""How the page of attacks on platforms opens: how much of the engagement others read off the messages."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedrank.core.trees import Json
from fedrank.report.figures import Level, levels_figure
from fedrank.report.findings import write_findings_page
from fedrank.report.opening import Number, Opening
from fedrank.report.statistics import Interval
from fedrank.report.tables import Column, Table
from fedrank.slates.attacks.settings import MODES, SlateAttack
from fedrank.slates.attacks.suite import Leak

_CHART = "engagement"
_COORDINATOR, _ENGAGEMENT = "coordinator", "engagement"


def _best(leaks: Sequence[Leak]) -> list[Leak]:
    """By mode, the guess of A's engagement that comes nearest to it, by another platform."""
    known = [
        one for one in leaks if _ENGAGEMENT in one.secret and _COORDINATOR not in one.attacker and "r2" in one.measures
    ]
    known = [one for one in known if math.isfinite(one.measures["r2"].mean)]
    modes = dict.fromkeys(one.mode for one in known)
    return [max((one for one in known if one.mode == mode), key=lambda one: one.measures["r2"].mean) for mode in modes]


def attack_opening(leaks: Sequence[Leak], seeds: int) -> Opening:
    """Title, sentence and numbers.

    Args:
        leaks: What was found.
        seeds: Runs of each mode.
    """
    best = _best(leaks)
    numbers, said = [], []
    if best:
        most = max(best, key=lambda one: one.measures["r2"].mean)
        r2 = most.measures["r2"]
        said.append(
            f"From the messages of mode {most.mode} {most.attacker} reads {100 * max(0.0, r2.mean):.1f} % of the "
            f"variance of A’s {most.secret}."
        )
        for one in best[:3]:
            r2 = one.measures["r2"]
            note = f"95 % interval {r2.low:.3f} to {r2.high:.3f}" if math.isfinite(r2.low) else "one seed, no interval"
            numbers.append(Number(f"R², {one.mode}", f"{r2.mean:.3f}", note))
    clicks = [one for one in leaks if "r2" not in one.measures]
    if clicks:
        sure = max(clicks, key=lambda one: one.measures["exact"].mean)
        exact, blind = (100 * sure.measures[name].mean for name in ("exact", "blind"))
        said.append(f"The {sure.attacker} finds {sure.secret} in {exact:.1f} % of cases; guessing finds {blind:.1f} %.")
        numbers.append(Number(f"{sure.secret[:1].upper()}{sure.secret[1:]} found", f"{exact:.1f} %", sure.mode))
    sentence = " ".join(said) or "None of these attacks could be judged."
    shown = "; ".join(f"{one.mode}: {one.measures['r2'].mean:.3f}" for one in best)
    seen = f"R² of the best guess of engagement by another platform, by mode. {shown}."
    return Opening(
        "What platforms read off each other’s messages", sentence, tuple(numbers), _CHART if best else "", seen
    )


def chart(leaks: Sequence[Leak], seeds: int) -> Any:
    """How much of the engagement another platform explains, by mode; None where nothing could be judged."""
    levels = []
    for one in _best(leaks):
        r2 = one.measures["r2"]
        ends = (r2.low, r2.high) if math.isfinite(r2.low) else (None, None)
        levels.append(Level(one.mode, r2.mean, *ends, ours=True))
    if not levels:
        return None
    said = [f"R² of its best guess: 1 is everything, 0 a blind guess; {seeds} seeds"]
    return levels_figure(levels, "Another platform reads A’s engagement", said)


def table(leaks: Sequence[Leak]) -> Table:
    """The table of a page: one row for each leak, with its attacker, its secret, and how well it was guessed."""
    measures = {"r2": "R²", "rank": "rank correlation", "error": "error", "blind": "blind error", "exact": "exact"}
    columns = (
        Column("mode", "mode"),
        Column("attacker", "attacker"),
        Column("secret", "looks for"),
        Column("means", "by"),
        *(Column(key, title, numeric=True, digits=3) for key, title in measures.items()),
    )
    rows = []
    for one in leaks:
        named: dict[str, Json] = {"mode": one.mode, "attacker": one.attacker, "secret": one.secret, "means": one.means}
        for key, value in one.measures.items():
            if math.isfinite(value.mean):
                known = math.isfinite(value.low)
                named[key] = Interval(value.mean, value.low, value.high) if known else value.mean
        rows.append(named)
    notes = (
        "R² and rank correlation: 1 is everything. Error: mean absolute. Exact: share right to a part in a hundred.",
        *(f"{name}: {meaning}." for name, meaning in MODES.items()),
    )
    return Table("What each attacker finds", columns, tuple(rows), notes)


def write_page(leaks: Sequence[Leak], settings: SlateAttack, file: str | os.PathLike[str]) -> Path:
    """Write the page.

    Args:
        leaks: What was found.
        settings: The attack.
        file: Where.

    Returns:
        The file.
    """
    seeds = settings.seeds
    about = f"fedrank attack slates · {seeds} seeds of {settings.episodes} users, N = {settings.candidates}"
    words = [f"{one.words}." for one in leaks]
    caveats = ("Simulated users",)
    opening = attack_opening(leaks, seeds)
    return write_findings_page(
        file, opening, about, caveats, chart(leaks, seeds), table(leaks), words, "fedrank attack"
    )
