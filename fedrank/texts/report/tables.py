"""Tables of runs of silos with texts: methods and measures, silos, what crossed."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from fedrank.core.trees import Json
from fedrank.report import describe, words
from fedrank.report.run import Run
from fedrank.report.statistics import Estimate, difference, mean_interval
from fedrank.report.tables import Column, Table
from fedrank.texts.report.files import (
    BM25,
    BM25_EXACT,
    COST,
    EXACT,
    FEDERATED,
    GLOBAL,
    LOCAL,
    LOCAL_PLUS,
    POOLED,
    TextRun,
)
from fedrank.texts.report.words import TRAINING, setup_words

#: Decimals of measures.
DIGITS = 3

#: What must be said of a search of all documents where silos are collections with judgements of their own.
UNJUDGED = (
    "No foreign document is judged here: the judgements of each collection are about its own documents. A foreign "
    "document counts as not relevant whatever it says, so that a search of all documents can only lose to one at home "
    "with the same ranker: the numbers tell how far foreign documents push own ones down, not what they are worth."
)


def details_of(run: Run) -> TextRun:
    """The run's details about silos with texts."""
    return run.details


def gain(run: Run, method: str = FEDERATED, *, scope: str = "own", silo: str | None = None) -> Estimate | None:
    """Difference of a method to Local on test queries, paired by seed; None where one of them has no values.

    Args:
        run: A run of silos with texts.
        method: One of its methods.
        scope: ``"own"``: both rank the silo's own documents. ``"federation"``: the method searches all silos'
            documents, and Local the silo's own.
        silo: Name of a silo; None for the mean over silos.
    """
    return lead(run, method, LOCAL, scope=scope, at="own" if scope == "own" else "home", silo=silo)


def lead(
    run: Run, method: str, other: str, *, scope: str = "own", at: str | None = None, silo: str | None = None
) -> Estimate | None:
    """Difference of a method to another on test queries, paired by seed; None where one of them has no values.

    Args:
        run: A run of silos with texts.
        method: One of its methods.
        other: Another method, or the same where the scopes differ.
        scope: Scope of the method.
        at: Scope of the other method; the same if None.
        silo: Name of a silo; None for the mean over silos.
    """
    texts = details_of(run)
    measure = texts.measure if scope == "own" else texts.searched
    if measure is None:
        return None
    ours, theirs = (
        texts.values(name, measure, scope=where, silo=silo) for name, where in ((method, scope), (other, at or scope))
    )
    return difference(ours, theirs) if ours and theirs else None


def unjudged(run: Run) -> bool:
    """Whether nobody judged other silos' documents: each silo is a collection with judgements of its own."""
    share = details_of(run).foreign_share
    return share == 0 or (share is None and not cut_anew(run))


def methods_table(run: Run) -> Table:
    """Table of all methods and measures on the silos' own documents: mean over silos with an interval over seeds."""
    texts = details_of(run)
    measures = texts.measures("own")
    rows = []
    for method in _having(texts, "own"):
        row: dict[str, Json] = {
            "method": method,
            "gain": None if method == LOCAL else gain(run, method),
            "lead": None if method == BM25 else lead(run, method, BM25),
        }
        for i, measure in enumerate(measures):
            row[f"m{i}"] = _mean(texts.values(method, measure))
        rows.append(row)
    titles = [f"{m} (1 is best, larger is worse)" if m == COST else m for m in measures]
    columns = (
        Column("method", "method"),
        *(Column(f"m{i}", title, numeric=True, digits=DIGITS) for i, title in enumerate(titles)),
        Column("gain", f"gain over Local in {texts.measure}", numeric=True, signed=True, digits=DIGITS),
        *_over_bm25(texts, f"gain over BM25 in {texts.measure}", "own"),
    )
    notes = [
        "Test queries, each silo ranks its own judged and other documents; mean over silos.",
        spread(run, "Gains are paired by seed."),
        "MAP is average precision. "
        + (f"{COST} is the paper’s MAP: a cost, 1 is best and larger is worse." if COST in measures else ""),
        _methods_in_words(texts),
        *_features_in_words(run),
    ]
    return Table("Methods, on the silos’ own documents", columns, tuple(rows), tuple(notes))


def search_table(run: Run) -> Table | None:
    """Table of all methods in a search of all silos' documents and at home; None if the run has no such measure."""
    texts = details_of(run)
    measure = texts.searched
    if measure is None:
        return None
    rows = []
    for method in texts.compared:
        everywhere, home = (texts.values(method, measure, scope=scope) for scope in ("federation", "home"))
        rows.append(
            {
                "method": method,
                "everywhere": _mean(everywhere),
                "home": _mean(home),
                "difference": difference(everywhere, home) if everywhere and home else None,
                "gain": gain(run, method, scope="federation"),
                "lead": None if method == BM25 else lead(run, method, BM25, scope="federation"),
            }
        )
    columns = (
        Column("method", "ranker"),
        Column("home", "searching its own documents", numeric=True, digits=DIGITS),
        Column("everywhere", "searching all silos’ documents", numeric=True, digits=DIGITS),
        Column("difference", "difference of the two", numeric=True, signed=True, digits=DIGITS),
        Column("gain", "all silos’ documents, against Local at home", numeric=True, signed=True, digits=DIGITS),
        *_over_bm25(texts, "against BM25 in the same search", "federation"),
    )
    share = texts.foreign_share
    lie = "" if share is None else f" ({share:.0%} of the relevant pairs are with another silo’s document)"
    notes = [
        f"{measure} of the same test queries where every relevant document of the federation counts, whoever has it, "
        f"also those that no search found{lie.replace('%', ' %')}. These values are not comparable with those above.",
        "Documents are found by BM25: at home with the silo’s own statistics, elsewhere with the federation’s by what "
        f"the silos see of each other, with {EXACT}, {POOLED} and {BM25_EXACT} by exact numbers. The ranker then "
        f"orders what was found. {BM25} is that search alone, without a ranker.",
        f"{LOCAL} and a search at home need no federation, and {LOCAL} does not search elsewhere (–). {LOCAL_PLUS} in "
        "a search of all is a silo’s own ranker over the federation’s search.",
        spread(run, "Differences are paired by seed."),
    ]
    if unjudged(run):
        notes.insert(0, UNJUDGED)
    return Table("A search of the whole federation against a search at home", columns, tuple(rows), tuple(notes))


def silos_table(run: Run) -> Table:
    """Table of all silos and methods, in the measure of the headline, on the silos' own documents."""
    texts = details_of(run)
    methods = _having(texts, "own")
    rows = []
    for silo in texts.names:
        row: dict[str, Json] = {
            "silo": silo,
            "gain": gain(run, silo=silo),
            "lead": lead(run, FEDERATED, BM25, silo=silo),
        }
        for i, method in enumerate(methods):
            row[f"m{i}"] = _mean(texts.values(method, texts.measure, silo=silo))
        rows.append(row)
    columns = (
        Column("silo", "silo"),
        *(Column(f"m{i}", method, numeric=True, digits=DIGITS) for i, method in enumerate(methods)),
        Column("gain", f"{FEDERATED} − Local", numeric=True, signed=True, digits=DIGITS),
        *_over_bm25(texts, f"{FEDERATED} − BM25", "own"),
    )
    notes = ["Test queries, own documents.", spread(run, "Differences are paired by seed.")]
    if cut_anew(run):
        notes.append("A silo has other documents in each seed: its name says its place in the cut, no more.")
    return Table(f"{texts.measure} of each silo", columns, tuple(rows), tuple(notes))


def data_table(run: Run) -> Table:
    """Table of the silos' documents, queries and pairs."""
    rows = [
        {"silo": s.name, "documents": s.documents, **s.queries, "rows": s.rows, "pairs": s.pairs, "words": s.words}
        for s in details_of(run).silos
    ]
    columns = (
        Column("silo", "silo"),
        Column("documents", "documents", numeric=True),
        Column("train", "training queries", numeric=True),
        Column("vali", "validation queries", numeric=True),
        Column("test", "test queries", numeric=True),
        Column("rows", "labelled training pairs", numeric=True),
        Column("pairs", "unlabelled cross pairs", numeric=True),
        Column("words", "different query words", numeric=True),
    )
    notes = ("Of the first seed. A cross pair is an own query with another silo’s document.",)
    return Table("Who has what", columns, tuple(rows), notes if cut_anew(run) or len(run.seeds) > 1 else notes[:1])


def crossed_table(run: Run) -> Table | None:
    """Table of one silo's bytes by exchange, in setup and training; None before the run wrote its ledger."""
    if run.ledger is None or not len(run.ledger):
        return None
    flows, silos = words.flows(run.ledger), len(details_of(run).silos)
    rows = []
    for part, known in (("setup", setup_words(run)), ("training", TRAINING)):
        of = [f for f in flows if (f.exchange in TRAINING) == (part == "training")]
        for exchange in dict.fromkeys(flow.exchange for flow in of):
            mine = [flow for flow in of if flow.exchange == exchange]
            up, down = (sum(f.bytes for f in mine if f.sender == sender) for sender in ("parties", "server"))
            rows.append(
                {
                    "exchange": exchange,
                    "part": part,
                    "what": known.get(exchange, "–"),
                    "times": max(flow.rounds for flow in mine),
                    "up": describe.size(round(up / silos)),
                    "down": describe.size(round(down / silos)),
                }
            )
    columns = (
        Column("exchange", "exchange"),
        Column("part", "part"),
        Column("what", "what crosses"),
        Column("times", "times", numeric=True),
        Column("up", "a silo sends, in all", numeric=True),
        Column("down", "a silo receives, in all", numeric=True),
    )
    return Table("What crossed, for one silo (one seed)", columns, tuple(rows))


def spread(run: Run, more: str) -> str:
    """A note on the meaning of ± in a table over seeds, followed by ``more``."""
    n = len(run.seeds)
    first = (
        "One seed: no interval." if n == 1 else f"± is half of a 95 % Student t interval over {seeds_in_words(run)}."
    )
    return f"{first} {more}".strip()


def seeds_in_words(run: Run) -> str:
    """Number of seeds and what each draws anew, such as ``"5 seeds, each with its own cut and split of queries"``."""
    n = len(run.seeds)
    own = "its own cut and split of queries" if cut_anew(run) else "its own split of queries"
    return f"{n} seeds, each with {own}" if n > 1 else f"one seed, with {own}"


def cut_anew(run: Run) -> bool:
    """Whether every seed cuts one collection into silos anew, rather than having a collection for each silo."""
    return "+" not in str(run.setting("data"))


def _methods_in_words(texts: TextRun) -> str:
    known = {
        LOCAL: "a silo’s own labels",
        LOCAL_PLUS: "own labels and own guesses for cross pairs",
        GLOBAL: "all silos’ labels, no cross pairs",
        FEDERATED: "all silos’ labels and guesses for cross pairs",
        EXACT: "the same with exact counts in place of sketches: what protection costs is the difference",
        POOLED: "the true label of everybody’s judged pairs and exact counts, as silos could train that share "
        "everything; no strict bound, other rankers may be above it",
    }
    said = "Trained on: " + "; ".join(f"{name}, {known[name]}" for name in texts.compared if name in known) + "."
    return said + (f" {BM25} is not trained." if BM25 in texts.compared else "")


def _features_in_words(run: Run) -> list[str]:
    """Notes on whose statistics each method computes its features with."""
    there = _having(details_of(run), "own")
    alone = [name for name in (LOCAL, BM25) if name in there]
    if alone == [BM25]:  # nobody's statistics are apart then
        alone = []
    seen = [name for name in (FEDERATED, LOCAL_PLUS, GLOBAL) if name in there]
    exact = [name for name in (EXACT, POOLED) if name in there]
    scaled = run.setting("texts.scale") == "federation"
    scale = " and scale" if scaled else ""
    out = []
    if alone:
        verb, pronoun = ("are", "their") if len(alone) > 1 else ("is", "its")
        out.append(
            f"{describe.in_words(alone)} {verb} what a silo has by itself: {pronoun} statistics are those of its own "
            "documents, and nobody else’s have a part in them."
        )
    verb = "compute" if len(seen) > 1 else "computes"
    said = f"{describe.in_words(seen)} {verb} features with the federation’s statistics{scale}, noise included"
    verb = "compute" if len(exact) > 1 else "computes"
    out.append(said + (f"; {describe.in_words(exact)} {verb} them with exact ones." if exact else "."))
    return out


def _having(texts: TextRun, scope: str) -> list[str]:
    """Methods that have values of a scope, in the order in which they are shown."""
    there = set(texts.methods.filter(pl.col("scope") == scope)["method"])
    return [method for method in texts.compared if method in there]


def _over_bm25(texts: TextRun, title: str, scope: str) -> list[Column]:
    """The column of differences to BM25, where the run has it."""
    if BM25 not in _having(texts, scope):
        return []
    return [Column("lead", title, numeric=True, signed=True, digits=DIGITS)]


def _mean(values: Mapping[int, float]) -> Estimate | None:
    return mean_interval(list(values.values())) if values else None
