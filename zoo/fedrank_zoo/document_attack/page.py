"""The page of attacks on documents: who reads how much of a document."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedrank.report.claims import Named, Number, Opening, Percent, Share, say
from fedrank.report.figures import Level, levels_figure
from fedrank.report.page import write_findings_page
from fedrank.texts.report.files import READABLE
from fedrank_zoo.document_attack import DocumentAttack
from fedrank_zoo.findings import Finding, table

_DOCUMENTS_CHART = "words-read"
_READ = "words read"


def documents_opening(found: Sequence[Finding], collection: str) -> Opening:
    """Title, sentence and numbers."""
    read = [one for one in found if one.measure == _READ]
    readable = [one for one in read if one.broken]
    sentence = say("None of the attacks reads documents.")
    if readable:
        who = Named("; ".join(f"{one.attack} ({one.mode})" for one in readable))
        sentence = say(
            "Documents are readable in ", Share(len(readable), len(read)), " ways that were tried: ", who, "."
        )
    numbers = [
        Number(
            f"{one.attack}: {one.mode}",
            Percent(min(1.0, max(0.0, one.measured))),
            "of the words that a guess does not name",
        )
        for one in read[:4]
    ]
    shown = "; ".join(f"{one.attack}, {one.mode}: {one.measured:.2f}" for one in read)
    return Opening(
        f"What others read of {collection}", sentence, tuple(numbers), _DOCUMENTS_CHART, f"Words read. {shown}."
    )


def documents_chart(found: Sequence[Finding]) -> Any:
    """Share of words read, by attacker."""
    read = [one for one in found if one.measure == _READ]
    levels = [Level(f"{one.attack}, {one.mode}", one.measured, one.low, one.high, True) for one in read]
    levels.append(Level("readable from here on", READABLE))
    said = ["Part of a document's words that is read and that a guess does not name", "99 % intervals"]
    return levels_figure(levels, "Words of a document that an attacker reads", said)


def write_documents_page(
    found: Sequence[Finding], collection: str, s: DocumentAttack, file: str | os.PathLike[str]
) -> Path:
    """Write the page and return its file."""
    shape = f"z = {s.sketch().z}, w = {s.sketch().w}"
    about = f"fedrank privacy attack documents {collection} · {s.owners} owners, {shape}, seed {s.seed}"
    caveats = ("Documents given out by chance", "Simulated noise, seeded")
    words = [f"{one.attack}, {one.mode}: {one.words}." for one in found]
    title = "Attacks on documents"
    return write_findings_page(
        file,
        documents_opening(found, collection),
        about,
        caveats,
        documents_chart(found),
        table(found, title),
        words,
        "fedrank privacy attack",
    )
