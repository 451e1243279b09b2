"""The page of attacks on sketches."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedrank.report import wording
from fedrank.report.claims import Measured, Named, Number, Opening, Share, say
from fedrank.report.figures import Level, levels_figure
from fedrank.report.page import write_findings_page
from fedrank_zoo.findings import Finding, table
from fedrank_zoo.sketch_attack.settings import SketchAttack

#: The attack that every mode stands, or not: is one more occurrence of a word in the document?
LEADING = "distinguish"


_CHART = "distinguish"


def attack_opening(findings: Sequence[Finding], epsilon: float) -> Opening:
    """Title, sentence and numbers; controls do not count.

    Args:
        findings: What was found.
        epsilon: ε as it was asked for.
    """
    offered = [one for one in findings if not one.control]
    broken = [one for one in offered if one.broken]
    modes = list(dict.fromkeys(one.mode for one in offered if one.attack == LEADING))
    holds = [mode for mode in modes if not any(one.broken for one in offered if one.mode == mode)]
    fails = [mode for mode in modes if mode not in holds]
    sentence = say(
        f"Of {len(offered)} promises about sketches and questions that were attacked {len(broken) or 'none'} "
    )
    sentence += say(("does" if len(broken) == 1 else "do") + " not hold." if broken else "was broken.")
    if fails:
        mode = Named(wording.in_words(fails))
        sentence += say(" In mode ", mode, " documents are not protected from the silo that asks.")
    if holds:
        mode = Named(wording.in_words(holds))
        sentence += say(" All hold in mode ", mode, ", which proves nothing about other attacks.")
    numbers = [Number("Promises that do not hold", Share(len(broken), len(offered)))]
    for one in [one for one in offered if one.attack == LEADING][:3]:
        told = f"allowed: {one.promised:.3f}; 99 % interval {one.low:.3f} to {one.high:.3f}"
        numbers.append(Number(f"{one.mode}: right guesses", Measured(one.measured), told))
    shown = "; ".join(f"{one.mode}: {one.measured:.3f}" for one in offered if one.attack == LEADING)
    said = f"Share of right guesses whether one occurrence more is in a document, by mode. {shown}."
    return Opening(f"What sketches give away at ε = {epsilon:g}", sentence, tuple(numbers), _CHART, said)


def chart(findings: Sequence[Finding]) -> Any:
    """Share of right answers of an attacker, by mode, beside what ε allows; None where that was not tried."""
    told = [one for one in findings if one.attack == LEADING]
    if not told:
        return None
    levels = [Level(one.mode, one.measured, one.low, one.high, not one.control) for one in told]
    bounds = dict.fromkeys(one.promised for one in told if not one.control)
    levels += [Level("the most that ε allows", bound) for bound in bounds]
    said = ["Right guesses whether a document has one occurrence more; 0.5 is guessing", "99 % intervals"]
    return levels_figure(levels, "One occurrence of a word, told by an attacker", said)


def write_page(findings: Sequence[Finding], settings: SketchAttack, file: str | os.PathLike[str]) -> Path:
    """Write the page.

    Args:
        findings: What was found.
        settings: The attack.
        file: Where.

    Returns:
        The file.
    """
    s = settings
    modes = wording.in_words(s.modes)
    about = f"fedrank privacy attack sketch · {modes}; z = {s.z}, w = {s.w}, {s.trials:,} trials, seed {s.seed}"
    caveats = ("Generated documents", "Simulated noise, seeded")
    top = attack_opening(findings, settings.epsilon)
    words = [f"{one.attack}, {one.mode}: {one.words}." for one in findings]
    return write_findings_page(
        file, top, about, caveats, chart(findings), table(findings), words, "fedrank privacy attack"
    )
