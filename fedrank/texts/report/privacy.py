"""Protection of documents on a page: warning, ε, errors of counts, questions asked and answered."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from fedrank.report import describe, words
from fedrank.report.run import Run
from fedrank.report.tables import Column, Table
from fedrank.texts.report.files import UNPROTECTED, TextRun
from fedrank.texts.report.tables import details_of
from fedrank.texts.sketch.account import PAPER_ATTACK

#: A document that has a word has it at least once: an error of this size is as large as the smallest such count.
_LARGE_ERROR = 1.0


def warning(run: Run) -> tuple[str, list[str]] | None:
    """Title and sentences of the warning about a mode that does not protect documents; None for other modes."""
    mode = details_of(run).mode
    if mode not in UNPROTECTED:
        return None
    if mode == "plain":
        return "Warning: nothing protects the documents", [
            "Mode plain adds no noise. Every other silo knows the secret of the hashes and reads the count of every "
            "word in every document. It is there to see what noise costs; it is not for documents that others must "
            "not see."
        ]
    published = words.epsilon_text((run.privacy or {}).get("epsilon_published"))
    return "Warning: paper mode does not protect the document owner from the querier", [
        f"The paper’s noise is one variable for all cells of an answer. The querier takes it off again, and the "
        f"printed ε = {published} bounds nothing. {PAPER_ATTACK.in_words()} Use publish-once or per-query for "
        "documents that others must not see."
    ]


def epsilon_table(run: Run) -> Table | None:
    """Table of ε by the unit that it protects; None before the run wrote its account."""
    privacy = run.privacy
    if not privacy:
        return None
    texts = details_of(run)
    delta = f"at δ = {describe.number(privacy.get('delta'))}"
    counted = texts.mode == "per-query"
    n, own = int(privacy.get("answers") or 0), int(privacy.get("answers_of_querier") or 0)
    known = [
        ("epsilon_published", "as the paper states it, of one answer", "Not a bound: see the warning."),
        ("epsilon_published_total", f"the same, added up over {n:,} answers", "What it would come to, if it held."),
        ("epsilon_answer", "one occurrence of a word, one answer", "Noise is drawn anew for each answer."),
        (
            "epsilon_occurrence",
            "one occurrence of a word, all in all",
            f"After {n:,} answers about a sketch, {delta}." if counted else "Once and for all, whoever looks.",
        ),
        ("epsilon_querier", "the same against one querier alone", f"Who has {own:,} of the answers, {delta}."),
        ("epsilon_replaced", "a word replaced by another", "Two occurrences."),
        (
            "epsilon_document",
            f"a whole document of {int(privacy.get('occurrences') or 0):,} words",
            "Not covered: a number of this size promises nothing.",
        ),
    ]
    rows = []
    for key, what, note in known:
        value = published_total(privacy) if key == "epsilon_published_total" else privacy.get(key)
        if key == "epsilon_querier" and not counted:
            continue
        if value is None and (
            key in ("epsilon_published", "epsilon_published_total", "epsilon_answer") or not privacy.get("mode")
        ):
            continue
        rows.append({"what": what, "epsilon": _epsilon(value), "note": note if value is not None else "No bound."})
    columns = (Column("what", "what"), Column("epsilon", "ε", numeric=True), Column("note", "in words"))
    scale = privacy.get("scale")
    noise = f"Noise: {privacy.get('mechanism')}"
    noise += f", scale {describe.number(scale)} in each cell." if scale is not None else "."
    shape = texts.sketch
    kind = "Count Sketch" if shape["kind"] == "count" else "Count-Min"
    cells = f"A document’s sketch: {kind}, {shape['z']} rows of {shape['w']:,} cells, body and title each."
    return Table("What ε protects", columns, tuple(rows), (noise, cells))


def published_total(privacy: Mapping[str, Any]) -> float | None:
    """Sum of the paper's ε of one answer over all answers, in mode paper; else None."""
    if privacy.get("epsilon_published") is None:
        return None
    return float(privacy["epsilon_published"]) * int(privacy.get("answers") or 0)


def budgets_table(runs: Mapping[str, Run], title: str = "case") -> Table | None:
    """Table of the ε that silos spend in each run, after composition; None if no run has an account of sketches.

    Args:
        runs: By label.
        title: What a label is.
    """
    known = {label: run.privacy for label, run in runs.items() if isinstance(run.details, TextRun) and run.privacy}
    rows = []
    for label, privacy in known.items():
        mode, total = str(privacy.get("mode")), published_total(privacy)
        asked = mode in ("per-query", "paper")
        rows.append(
            {
                "case": label,
                "mode": mode,
                "answer": _small(privacy.get("epsilon_answer")) if asked else None,
                "answers": int(privacy.get("answers") or 0) if asked else None,
                "total": _epsilon(privacy.get("epsilon_occurrence")),
                "document": _epsilon(privacy.get("epsilon_document")),
                "words": int(privacy.get("occurrences") or 0),
                "published": None if total is None else words.epsilon_text(float(privacy["epsilon_published"])),
                "printed": None if total is None else words.epsilon_text(total),
            }
        )
    if not rows:
        return None
    columns = [
        Column("case", title),
        Column("mode", "mode"),
        Column("answer", "ε of one answer", numeric=True),
        Column("answers", "answers about a sketch", numeric=True),
        Column("total", "ε of an occurrence, all in all", numeric=True),
        Column("document", "ε of a document", numeric=True),
        Column("words", "its words", numeric=True),
    ]
    deltas = dict.fromkeys(describe.number(privacy.get("delta")) for privacy in known.values())
    notes = [
        "An occurrence is one word at one place of a document. All in all: after all answers, sizes and statistics; "
        f"answers that are counted, and Gaussian noise, at δ = {' or '.join(deltas)}. ∞: no bound. A document is not "
        "covered: its ε is what the bound would come to, and promises nothing.",
        "Models are trained on own documents and sent without noise, which no ε here covers.",
    ]
    if any(row["printed"] is not None for row in rows):
        columns += [
            Column("published", "paper: ε of one answer as printed", numeric=True),
            Column("printed", "paper: that times the answers", numeric=True),
        ]
        notes.append(
            f"Mode paper has no bound on what even one answer reveals. {PAPER_ATTACK.in_words()} The last columns are "
            "the authors’ own number and what it would add up to, if it held."
        )
    return Table("What is spent, after composition", tuple(columns), tuple(rows), tuple(notes))


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
    columns = [Column("pairs", "counts of"), Column("error", "mean absolute error", numeric=True)]
    if texts.counts:
        columns.append(Column("count", "mean true count", numeric=True))
    notes = [
        "What the first silo sees of the second’s documents, mean over seeds. Counts are used as they are estimated, "
        "those below 0 as 0. A document that has the word has it once or more; all other true counts are 0."
    ]
    if any(one >= _LARGE_ERROR for one in texts.errors.get("held", ())):
        notes.append(
            "An error of 1 or more is as large as the difference between having a word once and not having it."
        )
    return Table("How far counts are off that silos see of each other", tuple(columns), tuple(rows), tuple(notes))


def questions_table(run: Run) -> Table | None:
    """Table of the questions that each silo was asked, answered and refused; None where nothing is asked."""
    texts = details_of(run)
    if not any(silo.answered is not None for silo in texts.silos):
        return None
    rows = []
    for silo in texts.silos:
        answered = sum(silo.answered or ())
        known = [one.words for one in texts.silos if one.name != silo.name]
        asked = sum(n for n in known if n is not None) if None not in known else None
        rows.append(
            {
                "silo": silo.name,
                "asked": asked,
                "answered": answered,
                "refused": None if asked is None else asked - answered,
                "spent": silo.spent if texts.mode == "per-query" else None,
            }
        )
    columns = [
        Column("silo", "owner"),
        Column("asked", "words asked about", numeric=True),
        Column("answered", "answered", numeric=True),
        Column("refused", "refused", numeric=True),
    ]
    notes = [
        f"Of the first seed. A question is about one word in all documents of the owner; {texts.z1} of its "
        f"{texts.sketch['z']} rows belong to the word, the others to decoys ({texts.decoys})."
    ]
    if texts.mode == "per-query":
        columns.append(Column("spent", "ε spent", numeric=True, digits=2))
        limit = describe.number(run.setting("sketch.epsilon"))
        allowed = "" if texts.allowed is None else f": {texts.allowed:,} different answers about one sketch"
        notes.append(f"Spent: of the budget of ε = {limit}{allowed}. What is beyond it is refused.")
    return Table("Questions about words", tuple(columns), tuple(rows), tuple(notes))


def tile_words(run: Run) -> tuple[str, str, str] | None:
    """Label, number and note of the tile about privacy; None before the run wrote its account."""
    privacy = run.privacy
    if not privacy:
        return None
    if details_of(run).mode in UNPROTECTED:
        return ("Privacy of documents", "none", "see the warning")
    value, document = (_epsilon(privacy.get(key)) for key in ("epsilon_occurrence", "epsilon_document"))
    return (
        "ε of one occurrence of a word",
        value,
        f"all added up; of a document {document}, not covered; models go out without noise",
    )


def _epsilon(value: Any) -> str:
    return "∞" if value is None else words.epsilon_text(float(value))


def _small(value: Any) -> str:
    return "∞" if value is None else f"{float(value):.3g}"


def _over(values: Any) -> str:
    return f"{math.fsum(values) / len(values):.3g}"
