"""Sentences about runs of silos with texts: what crossed, the purpose of each exchange, what is not protected.

Tables of runs of silos with texts: methods and measures, silos, what crossed.

Figures of runs of silos with texts: learning curves with baselines, and the gate's decisions.

The federation's ranker compared with others, query by query.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from fedrank.core.frame import Frame
from fedrank.core.ledger import Ledger
from fedrank.core.words import format_count
from fedrank.report import describe, figures, wording, words
from fedrank.report.charts import Chart, Entry, Panel, compose, cross, decimal_labels, nice_domain, ticks
from fedrank.report.files import parquet
from fedrank.report.run import Run
from fedrank.report.significance import COMPARED, compare_queries, compared_cells
from fedrank.report.statistics import Estimate, difference, mean_interval
from fedrank.report.tables import Column, Table, filled, table_of
from fedrank.report.words import flows
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
    SCOPES,
    TextRun,
)

#: What is said of a run in which the attack in the box reads documents.
READABLE_TO_SILOS = "Documents are readable to other silos"

#: Exchanges between silos with texts and their purpose: of the setup, which takes place once, and of training.
SETUP = {
    "keys": "silos learn each other's public keys",
    "secrets": "parts of the secret of the hashes, sealed for each other silo",
    "agree": "every silo has the secret of the hashes, the server has not",
    "sum-keys": "keys of the masks for the secure sum",
    "sum-shares": "shares by which the masks of whoever drops out can be taken off",
    "sum-vectors": "masked statistics: document frequencies and counts of all words",
    "sum-unmasking": "the masks of the sum are taken off; the server learns the sum only",
    "publish": "the summed statistics; sketches of each silo's documents, sealed",
    "receive": "what others show; how many rows and cross pairs a silo trains on",
    "scale": "how all centre and scale features",
}
#: "receive" where features are centred and scaled by all silos' rows, whose sums cross.
_RECEIVE_SUMS = "what others show; sums by which features are centred, without noise"
TRAINING = {
    "local": "the model that each silo trained by itself",
    "label": "their mean, by which each silo labels its cross pairs",
    "step": "the ranker, and the step of training of each silo",
}


def setup_words(run: Run) -> dict[str, str]:
    """Purpose of each exchange of the setup, by its name."""
    sums = run.setting("texts.scale") == "federation"
    return {**SETUP, "receive": _RECEIVE_SUMS} if sums else SETUP


def ledger_words(run: Run) -> list[str]:
    """Sentences about the bytes that crossed in the setup, in training and in all, for one silo and for all."""
    ledger, silos = run.ledger or Ledger(), len(run.details.silos)
    out = []
    for title, known in (("Setup, once", setup_words(run)), ("Training", TRAINING)):
        lines = [flow for flow in flows(ledger) if (flow.exchange in TRAINING) == (known is TRAINING)]
        if not lines:
            continue
        up, down = (sum(f.bytes for f in lines if f.sender == sender) for sender in ("parties", "server"))
        most = max(lines, key=lambda flow: flow.bytes)
        what = known.get(most.exchange)
        rounds = max(flow.rounds for flow in lines)
        turns = f", {wording.size(round((up + down) / silos / rounds))} a round both ways" if rounds > 1 else ""
        out.append(
            f"{title}: a silo sent {wording.size(round(up / silos))} and received "
            f"{wording.size(round(down / silos))}{turns}. Most of it: “{most.exchange}”{f' ({what})' if what else ''}."
        )
    up, down, count = ledger.bytes_from("parties"), ledger.bytes_from("server"), sum(e.messages for e in ledger)
    seeds = "" if len(run.seeds) == 1 else "; other seeds are cut otherwise, and messages have the same size"
    out.append(
        f"In all: {format_count(count, 'message')}, {wording.size(up)} up from {silos} silos and "
        f"{wording.size(down)} down to them, for one run of one seed{seeds}. Transport (TCP, TLS, HTTP) comes on top."
    )
    return out


#: Decimals of measures.
DIGITS = 3

#: What must be said of a search of all documents where silos are collections with separate judgements.
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
    measure = texts.measure_of(scope)
    if measure is None:
        return None
    ours, theirs = (
        texts.values(name, measure, scope=where, silo=silo) for name, where in ((method, scope), (other, at or scope))
    )
    return difference(ours, theirs) if ours and theirs else None


def level(run: Run, method: str, scope: str) -> Estimate | None:
    """Value of a method on test queries in the measure that is shown of a scope; None where it has none."""
    texts = details_of(run)
    return mean_of_seeds(texts.values(method, str(texts.measure_of(scope)), scope=scope))


def lacks_judgements(run: Run) -> bool:
    """True if other silos' documents have no judgements: each silo is a separate collection with judgements."""
    share = details_of(run).foreign_share
    return share == 0 or (share is None and not cut_anew(run))


def methods_table(run: Run) -> Table:
    """Table of all methods and measures on the silos' own documents: mean over silos with an interval over seeds."""
    texts = details_of(run)
    measures = texts.measures("own")
    rows = [
        {
            "method": method,
            "gain": None if method == LOCAL else gain(run, method),
            "lead": None if method == BM25 else lead(run, method, BM25),
            **{f"m{i}": mean_of_seeds(texts.values(method, measure)) for i, measure in enumerate(measures)},
        }
        for method in _having(texts)
    ]
    titles = [f"{m} (1 is best, larger is worse)" if m == COST else m for m in measures]
    columns = (
        Column("method", "method"),
        *(Column(f"m{i}", title, numeric=True, digits=DIGITS) for i, title in enumerate(titles)),
        Column("gain", f"gain over Local in {texts.measure}", numeric=True, signed=True, digits=DIGITS),
        _over_bm25(f"gain over BM25 in {texts.measure}"),
    )
    notes = [
        "Test queries, each silo ranks its own judged and other documents; mean over silos.",
        spread(run, "Gains are paired by seed."),
        "MAP is average precision. "
        + (f"{COST} is the paper’s MAP: a cost, 1 is best and larger is worse." if COST in measures else ""),
        _methods_in_words(texts),
        *_features_in_words(run),
    ]
    return Table("Methods, on the silos’ own documents", filled(columns, rows), tuple(rows), tuple(notes))


def search_table(run: Run) -> Table | None:
    """Table of all methods in a search of all silos' documents and at home; None if the run has no such measure."""
    texts = details_of(run)
    measure = texts.search_measure
    if measure is None:
        return None
    rows = []
    for method in texts.ordered_methods:
        everywhere, home = (texts.values(method, measure, scope=scope) for scope in ("federation", "home"))
        rows.append(
            {
                "method": method,
                "everywhere": mean_of_seeds(everywhere),
                "home": mean_of_seeds(home),
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
        _over_bm25("against BM25 in the same search"),
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
    if lacks_judgements(run):
        notes.insert(0, UNJUDGED)
    return Table(
        "A search of the whole federation against a search at home", filled(columns, rows), tuple(rows), tuple(notes)
    )


def silos_table(run: Run) -> Table:
    """Table of all silos and methods, in the measure of the headline, on the silos' own documents."""
    texts = details_of(run)
    methods, measure = _having(texts), texts.measure
    rows = [
        {
            "silo": silo,
            "gain": gain(run, silo=silo),
            "lead": lead(run, FEDERATED, BM25, silo=silo),
            **{f"m{i}": mean_of_seeds(texts.values(method, measure, silo=silo)) for i, method in enumerate(methods)},
        }
        for silo in texts.names
    ]
    columns = (
        Column("silo", "silo"),
        *(Column(f"m{i}", method, numeric=True, digits=DIGITS) for i, method in enumerate(methods)),
        Column("gain", f"{FEDERATED} − Local", numeric=True, signed=True, digits=DIGITS),
        _over_bm25(f"{FEDERATED} − BM25"),
    )
    notes = ["Test queries, own documents.", spread(run, "Differences are paired by seed.")]
    if cut_anew(run):
        notes.append("A silo has other documents in each seed: its name says its place in the cut, no more.")
    return Table(f"{texts.measure} of each silo", filled(columns, rows), tuple(rows), tuple(notes))


def unprotected(run: Run) -> str:
    """Sentence of a mode that protects no document, for wherever a number of the run is shown; else empty."""
    texts = details_of(run)
    if texts.protects:
        return ""
    why = "no noise, nothing protects" if texts.mode == "plain" else "nothing bounds what others learn of"
    return f"Mode {texts.mode}: {why} the documents"


def data_table(run: Run) -> Table:
    """Table of the silos' documents, queries and pairs."""
    rows = [{"silo": one.name, **vars(one), **vars(one.queries)} for one in details_of(run).silos]
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
    return Table("Who has what", columns, tuple(rows), notes)


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
            sizes = (wording.size(round(total / silos)) for total in (up, down))
            rows.append((exchange, part, known.get(exchange, "–"), max(flow.rounds for flow in mine), *sizes))
    columns = (
        Column("exchange", "exchange", code=True),
        Column("part", "part"),
        Column("what", "what crosses"),
        Column("times", "times", numeric=True),
        Column("up", "a silo sends, in all", numeric=True),
        Column("down", "a silo receives, in all", numeric=True),
    )
    return table_of("What crossed, for one silo (one seed)", columns, rows)


def spread(run: Run, more: str) -> str:
    """A note on the meaning of ± in a table over seeds, followed by ``more``."""
    return f"{wording.spread_note(len(run.seeds), drawn=drawn_anew(run))} {more}".strip()


def drawn_anew(run: Run) -> str:
    """The part of the data that each seed draws anew."""
    return "its own cut and split of queries" if cut_anew(run) else "its own split of queries"


def seeds_in_words(run: Run) -> str:
    """Number of seeds and what each draws anew, such as ``"5 seeds, each with its own cut and split of queries"``."""
    n = len(run.seeds)
    return f"{n} seeds, each with {drawn_anew(run)}" if n > 1 else f"one seed, with {drawn_anew(run)}"


def cut_anew(run: Run) -> bool:
    """True if every seed cuts one collection into silos anew, rather than having a collection for each silo."""
    return "+" not in str(run.setting("data"))


def _methods_in_words(texts: TextRun) -> str:
    known = {
        LOCAL: "a silo’s own labels",
        LOCAL_PLUS: "own labels and own guesses for cross pairs",
        GLOBAL: "all silos’ labels, no cross pairs",
        FEDERATED: "all silos’ labels and guesses for cross pairs",
        EXACT: "the same with exact counts in place of sketches: what protection costs is the difference",
        POOLED: "the true label of all judged pairs and exact counts, as silos could train that share "
        "everything; no strict bound, other rankers may be above it",
    }
    said = "Trained on: " + "; ".join(f"{name}, {known[name]}" for name in texts.ordered_methods if name in known) + "."
    return said + (f" {BM25} is not trained." if BM25 in texts.ordered_methods else "")


def _features_in_words(run: Run) -> list[str]:
    """Notes on whose statistics each method computes its features with."""
    there = _having(details_of(run))
    alone = [name for name in (LOCAL, BM25) if name in there]
    if alone == [BM25]:  # no statistics are apart then
        alone = []
    seen = [name for name in (FEDERATED, LOCAL_PLUS, GLOBAL) if name in there]
    exact = [name for name in (EXACT, POOLED) if name in there]
    scaled = run.setting("texts.scale") == "federation"
    scale = " and scale" if scaled else ""
    out = []
    if alone:
        verb, pronoun = ("are", "their") if len(alone) > 1 else ("is", "its")
        out.append(
            f"{wording.in_words(alone)} {verb} what a silo has by itself: {pronoun} statistics are those of "
            "the silo’s documents alone."
        )
    verb = "compute" if len(seen) > 1 else "computes"
    said = f"{wording.in_words(seen)} {verb} features with the federation’s statistics{scale}, noise included"
    verb = "compute" if len(exact) > 1 else "computes"
    out.append(said + (f"; {wording.in_words(exact)} {verb} them with exact ones." if exact else "."))
    return out


def _having(texts: TextRun) -> list[str]:
    """Methods that have values on own documents, in the order in which they are shown."""
    there = set(texts.methods.where(scope="own")["method"])
    return [method for method in texts.ordered_methods if method in there]


def _over_bm25(title: str) -> Column:
    return Column("lead", title, numeric=True, signed=True, digits=DIGITS)


def mean_of_seeds(values: Mapping[int, float]) -> Estimate | None:
    """Mean over seeds with its interval; None without any."""
    return mean_interval(list(values.values())) if values else None


#: Colours of methods, the same in every figure.
COLOURS = {FEDERATED: figures.OKABE_ITO[0], EXACT: figures.OKABE_ITO[2], GLOBAL: figures.OKABE_ITO[1]}


def learning_figure(run: Run, scope: str = "own") -> Chart | None:
    """The headline's measure over rounds on test queries, with baselines as dashed lines (as the paper's Figure 6).

    Args:
        run: A run of silos with texts.
        scope: ``"own"``: own documents, beside BM25, Local and Local+. ``"federation"``: a search of all documents,
            beside BM25 in the same search, and what BM25 and Local find at home.

    Returns:
        None if the run has no such measure.
    """
    texts = details_of(run)
    measure = texts.measure_of(scope)
    if measure is None:
        return None
    named = measure + SCOPES[scope]
    series = [
        ("test", named if method == FEDERATED else f"{named}, {method}", method)
        for method in COLOURS
        if texts.values(method, measure, scope=scope)
    ]
    frame, _ = figures.points(run, series, "round")
    frame = frame.with_columns({end: frame[end].clip(0.0, 1.0) for end in ("low", "high")})
    marks = texts.baseline_values("test", named)
    what = "own documents" if scope == "own" else "search of all silos’ documents"
    colours = {label: COLOURS[label] for _, _, label in series}
    return figures.line_chart(run, frame, "round", f"{measure} by round, {what}", measure, colours, marks=marks)


def gate_figure(run: Run) -> Any | None:
    """Gain of adopting the federation's ranker for each silo and seed, by the gate's decision; None without a gate."""
    texts = details_of(run)
    found = [one for one in texts.decisions if math.isfinite(one.test)]
    if not found:
        return None
    domain = nice_domain([0.0, *(one.test for one in found)])
    panel = Panel(380, max(120, 42 * len(texts.names)), domain)
    panel.rows(texts.names, grid=True)
    places = ticks(*domain, 4)
    title = f"{FEDERATED} − what the silo has, {texts.measure} on test queries"
    panel.x_axis(places, decimal_labels(places, signed=True), title)
    panel.vertical(0.0)
    adopted, refused = figures.OKABE_ITO[:2]
    for one in found:
        note = (
            f"{one.silo}, seed {one.seed}: {'adopted' if one.adopted else 'refused'}, against {one.against}: "
            f"test {wording.format_value(one.test, signed=True, digits=DIGITS)}, held out "
            f"{wording.format_value(one.vali, signed=True, digits=DIGITS)}"
        )
        x, y = panel.x(one.test), (list(texts.names).index(one.silo) + 0.5) * panel.height / len(texts.names)
        if one.adopted:
            panel.dot(x, y, adopted, filled=False, note=note)
        else:
            panel.add(cross(x, y, refused, note=note))
    said = [
        "A point a seed; right of 0 the federation’s ranker beats the better of BM25 and Local on test queries",
        *describe.caveats(run),
    ]
    legend = [Entry("adopted", adopted, "circle"), Entry("refused", refused, "cross")]
    return compose([panel], "What adopting is worth, and what was decided", said, legend)


_PER_QUERY = {"split": str, "qid": str, "ranker": str, "measure": str, "value": float}


def queries_table(run: Run) -> Table | None:
    """Table of CS-F-LTR against every other method, paired by query; None if the run kept no values by query."""
    texts, file = details_of(run), run.path / "per_query.parquet"
    if not file.exists():
        return None
    frame = parquet(file, _PER_QUERY).where(split="test")
    pairs = [("own documents", texts.measure, "own", m, "own") for m in texts.ordered_methods if m != FEDERATED]
    if texts.search_measure is not None:
        others = [(LOCAL, "home"), (BM25, "home"), *((m, "federation") for m in (BM25, GLOBAL, EXACT, POOLED))]
        pairs += [
            ("all silos’ documents", texts.search_measure, "federation", m, scope)
            for m, scope in others
            if m in texts.ordered_methods
        ]
    found = []
    for about, measure, scope, other, of in pairs:
        ours = _by_query(frame, "learnt", measure + SCOPES[scope])
        theirs = _by_query(frame, other, measure + SCOPES[of])
        common = [qid for qid in ours if qid in theirs]
        if not common:
            continue
        label = f"{other} at home" if of == "home" else other
        a, b = (np.array([values[qid] for qid in common]) for values in (ours, theirs))
        found.append((about, label, compare_queries(a, b)))
    if not found:
        return None
    cells = compared_cells([one for _, _, one in found])
    rows = [
        {"about": about, "against": label, "queries": one.queries, **of}
        for (about, label, one), of in zip(found, cells, strict=True)
    ]
    columns = (
        Column("against", f"{FEDERATED} against"),
        Column("about", "ranking"),
        Column("queries", "queries", numeric=True),
        Column("difference", f"difference in {texts.measure}", numeric=True, signed=True, digits=DIGITS),
        *COMPARED,
    )
    notes = (
        "Test queries of all silos; a query’s value is the mean over the seeds in which it is a test query. ± is half "
        f"of a 95 % Student t interval over queries. p: paired tests, corrected for the {len(found)} rows (Holm). A "
        "query tells nothing about other cuts of the documents; seeds do.",
    )
    return Table("Would the difference be there with other queries?", columns, tuple(rows), notes)


def _by_query(frame: Frame, ranker: str, measure: str) -> dict[str, float]:
    return dict(frame.where(ranker=ranker, measure=measure).select(("qid", "value")).tuples())
