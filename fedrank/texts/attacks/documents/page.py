"""How the page of attacks on documents opens: who reads how much of a document."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedrank.report.figures import Level, levels_figure
from fedrank.report.findings import write_findings_page
from fedrank.report.opening import Number, Opening
from fedrank.texts.attacks.documents.settings import DocumentAttack
from fedrank.texts.attacks.documents.told import READABLE
from fedrank.texts.attacks.page import table
from fedrank.texts.attacks.world import Finding

_CHART = "words-read"
_READ = "words read"


def attack_opening(found: Sequence[Finding], collection: str) -> Opening:
    """Title, sentence and numbers."""
    read = [one for one in found if one.measure == _READ]
    readable = [one for one in read if one.broken]
    sentence = "Nobody who was tried reads documents."
    if readable:
        who = "; ".join(f"{one.attack} ({one.mode})" for one in readable)
        sentence = f"Documents are readable in {len(readable)} of {len(read)} ways that were tried: {who}."
    numbers = [
        Number(f"{one.attack}: {one.mode}", f"{100 * one.measured:.0f} %", "of the words that a guess does not name")
        for one in read[:4]
    ]
    shown = "; ".join(f"{one.attack}, {one.mode}: {one.measured:.2f}" for one in read)
    return Opening(f"What others read of {collection}", sentence, tuple(numbers), _CHART, f"Words read. {shown}.")


def chart(found: Sequence[Finding]) -> Any:
    """How much is read, by attacker."""
    read = [one for one in found if one.measure == _READ]
    levels = [Level(f"{one.attack}, {one.mode}", one.measured, one.low, one.high, True) for one in read]
    levels.append(Level("readable from here on", READABLE))
    said = ["Part of a document's words that is read and that a guess does not name", "99 % intervals"]
    return levels_figure(levels, "Words of a document that an attacker reads", said)


def write_page(found: Sequence[Finding], collection: str, s: DocumentAttack, file: str | os.PathLike[str]) -> Path:
    """Write the page and return its file."""
    shape = f"z = {s.sketch().z}, w = {s.sketch().w}"
    about = f"fedrank attack documents {collection} · {s.owners} owners, {shape}, seed {s.seed}"
    caveats = ("Documents given out by chance", "Simulated noise, seeded")
    words = [f"{one.attack}, {one.mode}: {one.words}." for one in found]
    title = "Attacks on documents"
    return write_findings_page(
        file,
        attack_opening(found, collection),
        about,
        caveats,
        chart(found),
        table(found, title),
        words,
        "fedrank attack",
    )
