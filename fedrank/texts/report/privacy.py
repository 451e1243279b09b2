"""Protection of documents on a page: warning, ε, errors of counts, questions asked and answered."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from fedrank.core.privacy_report import Unit
from fedrank.core.words import format_count
from fedrank.report import wording
from fedrank.report.claims import Named, Number, Spent
from fedrank.report.run import Run
from fedrank.report.tables import Column, Table, filled, table_of
from fedrank.texts.report.files import READABLE, InsiderReads, TextRun
from fedrank.texts.report.tables import details_of

#: A document that has a word has it at least once: an error of this size is as large as the smallest such count.
_LARGE_ERROR = 1.0


def warning(run: Run) -> tuple[str, list[str]] | None:
    """Title and sentences of the warning where other silos read documents, or find a text there; None elsewhere."""
    texts = details_of(run)
    read = reading_words(run)
    if texts.protects:
        if read is None or texts.insider is None or not (texts.insider.readable or texts.insider.finds):
            return None
        can = "can read the documents" if texts.insider.readable else "can tell whether a text is among the documents"
        return f"Warning: other silos {can}", [
            read,
            "Noise on single occurrences bounds what one word shows, not what a document shows. Take this mode only "
            "among silos that may know that of each other; else take a smaller ε, or leave documents with their "
            "owners: fedrank search owner serve.",
        ]
    measured = [] if read is None else [read]
    if texts.mode == "plain":
        account = [
            "Mode plain adds no noise. Every other silo knows the secret of the hashes and reads the count of every "
            "word in every document. It is there to see what noise costs; it is not for documents that others must "
            "not see."
        ]
    else:  # a method from elsewhere, whose account says why
        account = list(run.privacy.words if run.privacy is not None else ())
    return "Warning: nothing protects the documents", [*measured, *account]


def reading_words(run: Run) -> str | None:
    """Share of a document that the attack in the box reads in this run, as a sentence; None where it was not made."""
    found = details_of(run).insider
    if found is None:
        return None
    low, share, high = (f"{100 * part:.0f}" for part in (found.low, found.share, found.high))
    name = "readable" if found.readable else "not readable"
    return (
        f"Documents are {name} to other silos: one that has documents too reads {share} % of the words of "
        f"another’s (99 % interval {low} to {high}, {format_count(found.documents, 'document')}; readable is more than "
        f"{100 * READABLE:.0f} %).{_found_words(found)}"
    )


def _found_words(read: InsiderReads) -> str:
    """Result of the test whether a text is present; empty where it was not made."""
    if read.found is None:
        return ""
    area, low, high = (f"{part:.2f}" for part in (read.found, read.found_low, read.found_high))
    says = "tells" if read.finds else "does not tell"
    return (
        f" It {says} whether a text is among them: AUC {area} (99 % interval {low} to {high}, "
        f"{format_count(read.texts, 'text')}; 0.5 is chance)."
    )


def epsilon_table(run: Run) -> Table | None:
    """Table of ε by the unit that it protects; None before the run wrote its account."""
    if run.privacy is None:
        return None
    texts, epsilon, got = details_of(run), run.privacy.epsilon, run.privacy.details
    known = (
        (epsilon(Unit.OCCURRENCE), "one occurrence of a word, all in all", "Once and for all, whoever looks."),
        (epsilon(Unit.REPLACED_WORD), "a word replaced by another", "Two occurrences."),
        (
            epsilon(Unit.DOCUMENT),
            f"a whole document of {got['occurrences']:,} words",
            "Not covered: a number of this size promises nothing.",
        ),
    )
    rows = [(what, wording.epsilon_text(e), "No bound." if math.isinf(e) else note) for e, what, note in known]
    columns = (Column("what", "what"), Column("epsilon", "ε", numeric=True), Column("note", "in words"))
    scale = got["scale"]
    noise = f"Noise: {run.privacy.mechanism}"
    noise += f", scale {wording.number(scale)} in each cell." if scale is not None else "."
    shape = texts.sketch
    kind = "Count Sketch" if shape.kind == "count" else "Count-Min"
    cells = f"A document’s sketch: {kind}, {shape.z} rows of {shape.w:,} cells, body and title each."
    read = reading_words(run)
    return table_of("What ε protects", columns, rows, (noise, cells, *(() if read is None else (read,))))


def budgets_table(runs: Mapping[str, Run]) -> Table | None:
    """Table of the ε that silos spend in each run, after composition; None if no run has an account of sketches.

    Args:
        runs: By label.
    """
    known = {label: run.privacy for label, run in runs.items() if isinstance(run.details, TextRun) and run.privacy}
    rows = []
    for label, privacy in known.items():
        got = privacy.details
        rows.append(
            {
                "case": label,
                "mode": got["mode"],
                "total": wording.epsilon_text(privacy.epsilon(Unit.OCCURRENCE)),
                "document": wording.epsilon_text(privacy.epsilon(Unit.DOCUMENT)),
                "read": _read(runs[label]),
                "words": got["occurrences"],
            }
        )
    if not rows:
        return None
    columns = (
        Column("case", "run"),
        Column("mode", "mode"),
        Column("total", "ε of an occurrence, all in all", numeric=True),
        Column("document", "ε of a document", numeric=True),
        Column("words", "its words", numeric=True),
        Column("read", "words that another silo reads"),
    )
    deltas = dict.fromkeys(wording.number(privacy.details["delta"]) for privacy in known.values())
    notes = [
        "An occurrence is one word at one place of a document. All in all: sketches, sizes and statistics; "
        f"Gaussian noise at δ = {' or '.join(deltas)}. ∞: no bound. A document is not "
        "covered: its ε is what the bound would come to, and promises nothing.",
        "Models are trained on own documents and sent without noise, which no ε here covers.",
    ]
    return Table("What is spent, after composition", filled(columns, rows), tuple(rows), tuple(notes))


def errors_table(run: Run) -> Table | None:
    """Table of the errors of the counts that silos estimate; None where there are none."""
    texts = details_of(run)
    titles = {"all": "all pairs of a query word and a foreign document", "held": "pairs whose document has the word"}
    rows = []
    for key, title in titles.items():
        errors, counts = texts.errors.get(key, ()), texts.counts.get(key, ())
        if errors:
            rows.append({"pairs": title, "error": _over(errors), "count": _over(counts) if counts else None})
    if not rows:
        return None
    columns = (
        Column("pairs", "counts of"),
        Column("error", "mean absolute error", numeric=True),
        Column("count", "mean true count", numeric=True),
    )
    notes = [
        "What the first silo sees of the second’s documents, mean over seeds. Counts are used as they are estimated, "
        "those below 0 as 0. A document that has the word has it once or more; all other true counts are 0."
    ]
    if any(one >= _LARGE_ERROR for one in texts.errors.get("held", ())):
        notes.append(
            "An error of 1 or more is as large as the difference between having a word once and not having it."
        )
    title = "How far counts are off that silos see of each other"
    return Table(title, filled(columns, rows), tuple(rows), tuple(notes))


def privacy_number(run: Run) -> Number | None:
    """ε of one occurrence of a word, and what is not covered; None before the run wrote its account."""
    if run.privacy is None:
        return None
    if not details_of(run).protects:
        return Number("Privacy of documents", Named("none"), "see the warning")
    document, read = Spent(run.privacy, Unit.DOCUMENT), _read(run)
    note = (
        f"all added up; of a document {document}, not covered; models go out without noise"
        if read is None
        else f"all added up; another silo reads {read} of a document’s words"
    )
    return Number("ε of one occurrence of a word", Spent(run.privacy, Unit.OCCURRENCE), note)


def _read(run: Run) -> str | None:
    """The part of a document that another silo reads, with its name; None where it was not measured."""
    found = details_of(run).insider
    return None if found is None else f"{100 * found.share:.0f} %{' (readable)' if found.readable else ''}"


def _over(values: Any) -> str:
    return f"{math.fsum(values) / len(values):.3g}"
