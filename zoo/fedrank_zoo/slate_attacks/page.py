"""Opening of the page of attacks on platforms: how much of the engagement others read off the messages."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedrank.core.trees import Json
from fedrank.metrics.returns import MeanInterval
from fedrank.report.claims import Measured, Named, Number, Opening, Percent, Sentence, join_all, say
from fedrank.report.figures import Level, levels_figure
from fedrank.report.page import write_findings_page
from fedrank.report.statistics import Interval
from fedrank.report.tables import Column, Table
from fedrank_zoo.slate_attacks.leak import Leak
from fedrank_zoo.slate_attacks.settings import MODES, SlateAttack
from fedrank_zoo.slate_attacks.sums import ALL_KNOWN, ALONE, ENGAGEMENT

_CHART = "engagement"
_COORDINATOR, _ENGAGEMENT = "coordinator", "engagement"


def _best(leaks: Sequence[Leak]) -> list[Leak]:
    """By mode, the guess of A's engagement that comes nearest to it, by another platform, off messages."""
    known = [one for one in leaks if "r2" in one.measures and math.isfinite(one.measures["r2"].mean)]
    of_a = ENGAGEMENT.format("platform A")
    known = [
        one
        for one in known
        if (one.secret == of_a and one.means in (ALONE, ALL_KNOWN) if one.of_sums else _ENGAGEMENT in one.secret)
        and one.attacker != _COORDINATOR
    ]
    modes = dict.fromkeys(one.mode for one in known)
    return [max((one for one in known if one.mode == mode), key=lambda one: one.measures["r2"].mean) for mode in modes]


def attack_opening(leaks: Sequence[Leak], seeds: int) -> Opening:
    """Title, sentence and numbers.

    Args:
        leaks: What was found.
        seeds: Runs of each mode.
    """
    best = _best(leaks)
    numbers: list[Number] = []
    said: list[Sentence] = []
    if best:
        most = max(best, key=lambda one: one.measures["r2"].mean)
        read = say(_share_of_variance(most), " of the variance of ")
        if most.of_sums:
            knows = "and knows what all others added" if most.means == ALL_KNOWN else "and knows nothing of the others"
            who = say(Named(f"{most.mode}: {most.attacker}, which has {ALONE} {knows},"), " reads ", read)
            said.append(say(who, Named(most.secret), "."))
            least = min((one for one in best if one.of_sums), key=lambda one: one.measures["r2"].mean)
            if least is not most:
                said.append(say(Named(least.mode), ": the best such attacker reads ", _share_of_variance(least), "."))
        else:
            who = say("From the messages of mode ", Named(most.mode), " ", Named(most.attacker), " reads ", read)
            said.append(say(who, Named(f"A’s {most.secret}"), "."))
        numbers += [Number(f"R², {one.mode}", _as_measured(one.measures["r2"])) for one in best[:3]]
    clicks = [one for one in leaks if "r2" not in one.measures and "advantage" not in one.measures]
    there = [one for one in leaks if "advantage" in one.measures and one.measures["bound"].mean < 1]
    if clicks:
        sure = max(clicks, key=lambda one: one.measures["exact"].mean)
        exact, blind = (Percent(sure.measures[name].mean, 1) for name in ("exact", "blind"))
        finds = say("The ", Named(f"{sure.attacker} finds {sure.secret}"), " in ", exact)
        said.append(say(finds, " of cases; guessing finds ", blind, "."))
        numbers.append(Number(f"{sure.secret[:1].upper()}{sure.secret[1:]} found", exact, sure.mode))
    elif there:
        sure = max(there, key=lambda one: (-one.measures["bound"].mean, one.measures["advantage"].mean))
        found, allowed = (Measured(sure.measures[name].mean, digits=2) for name in ("advantage", "bound"))
        tells = say(
            Named(f"{sure.mode}: an attacker who knows all others tells {sure.secret}"), " with an advantage of "
        )
        said.append(say(tells, found, " at most (1 is certainty); ε allows ", allowed, "."))
        numbers.append(Number("Advantage, who was there", found, f"{sure.mode}, which allows {allowed}"))
    sentence = join_all(said) or say("None of these attacks could be judged.")
    shown = "; ".join(f"{one.mode}: {one.measures['r2'].mean:.3f}" for one in best)
    seen = f"R² of the best guess of engagement by another platform, by mode. {shown}."
    return Opening(
        "What platforms read off each other’s messages", sentence, tuple(numbers), _CHART if best else "", seen
    )


def _as_measured(found: MeanInterval) -> Measured:
    ends = (found.low, found.high) if math.isfinite(found.low) else (None, None)
    return Measured(Interval(found.mean, *ends))


def _share_of_variance(leak: Leak) -> Percent:
    """The share of the secret's variance that the attacker explains."""
    return Percent(min(1.0, max(0.0, leak.measures["r2"].mean)), 1)


def chart(leaks: Sequence[Leak], seeds: int) -> Any:
    """Chart of the engagement that another platform explains, by mode; None where nothing could be judged."""
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
    titles = {"r2": "R²", "advantage": "advantage", "ceiling": "best attacker", "bound": "ε allows"}
    if not all(one.of_sums for one in leaks):  # else a page is narrow enough for all columns without these
        titles |= {"rank": "rank correlation", "error": "error", "blind": "blind error", "exact": "exact"}
    measures = {key: title for key, title in titles.items() if any(key in one.measures for one in leaks)}
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
                known = math.isfinite(value.low) and key not in ("ceiling", "bound")
                named[key] = Interval(value.mean, value.low, value.high) if known else value.mean
        rows.append(named)
    notes = ["R²: 1 is everything, 0 a blind guess."]
    if "exact" in measures:
        notes.append("Rank correlation: 1 is everything. Error: mean absolute. Exact: right to a part in a hundred.")
    if "advantage" in measures:
        notes.append(
            "Of sums: engagement is its mean logarithm over a stay. Advantage: true less false positives, 1 is "
            "certainty. Others known: what each other user added, at all platforms, noise left out."
        )
    shown = {one.mode.split(",")[0] for one in leaks}
    notes += [f"{name}: {meaning}." for name, meaning in MODES.items() if name in shown]
    return Table("What each attacker finds", columns, tuple(rows), tuple(notes))


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
    users = [f"{settings.episodes} users"] if any(not one.of_sums for one in leaks) else []
    users += [f"{settings.targets} users attacked"] if any(one.of_sums for one in leaks) else []
    of = f"{seeds} seeds of {' and '.join(users)}, N = {settings.candidates}"
    about = " · ".join(("fedrank privacy attack slates", of, *settings.set))
    words = [f"{one.words}." for one in leaks]
    caveats = ("Simulated users",)
    opening = attack_opening(leaks, seeds)
    return write_findings_page(
        file, opening, about, caveats, chart(leaks, seeds), table(leaks), words, "fedrank privacy attack"
    )
