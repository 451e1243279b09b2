"""Tables of runs of silos with texts: methods and measures, silos, the gate, tests by query, privacy, what crossed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from fedrank.report import describe, words
from fedrank.report.files import parquet
from fedrank.report.load import Run
from fedrank.report.significance import adjust, compare_per_query
from fedrank.report.statistics import Estimate, difference, mean_interval
from fedrank.report.tables import Column, Table
from fedrank.report.texts import COST, EXACT, FEDERATED, LOCAL, POOLED, SCOPES, TextRun

#: Decimals of measures.
DIGITS = 3

_PER_QUERY = {"split": "text", "qid": "text", "ranker": "text", "measure": "text", "value": "number"}


def texts_of(run: Run) -> TextRun:
    """What the run holds of silos with texts."""
    assert run.texts is not None  # tables of this module are of runs that have them
    return run.texts


def gain(run: Run, method: str = FEDERATED, *, scope: str = "own", silo: str | None = None) -> Estimate | None:
    """What a method is better by than Local on test queries, paired by seed; None without Local or such values.

    Args:
        run: A run of silos with texts.
        method: One of its methods.
        scope: ``"own"``: both rank the silo's own documents. ``"federation"``: the method searches everybody's
            documents, and Local the silo's own.
        silo: Of which silo; None for the mean over silos.
    """
    texts = texts_of(run)
    measure = texts.measure if scope == "own" else texts.searched
    if measure is None:
        return None
    of = texts.values(method, measure, scope=scope, silo=silo)
    local = texts.values(LOCAL, measure, scope="own" if scope == "own" else "home", silo=silo)
    return difference(of, local) if of and local else None


def methods_table(run: Run) -> Table:
    """Every method by every measure, on the silos' own documents: mean over silos, with its interval over seeds."""
    texts = texts_of(run)
    measures = texts.measures("own")
    rows = []
    for method in texts.compared:
        row: dict[str, Any] = {"method": method, "gain": None if method == LOCAL else gain(run, method)}
        for i, measure in enumerate(measures):
            row[f"m{i}"] = _mean(texts.values(method, measure))
        rows.append(row)
    titles = [f"{m} (1 is best, larger is worse)" if m == COST else m for m in measures]
    columns = (
        Column("method", "method"),
        *(Column(f"m{i}", title, numeric=True, digits=DIGITS) for i, title in enumerate(titles)),
        Column("gain", f"gain over Local in {texts.measure}", numeric=True, signed=True, digits=DIGITS),
    )
    notes = [
        "Test queries, each silo ranks its own judged and other documents; mean over silos.",
        spread(run, "The gain is paired by seed."),
        "MAP is average precision. "
        + (f"{COST} is the paper’s MAP: a cost, 1 is best and larger is worse." if COST in measures else ""),
        _methods_in_words(texts),
        "All but exact features and pooled data compute features with the federation’s statistics and scale, noise "
        "included; so do Local and Local+, which are not what a silo reaches that knows its own documents only.",
    ]
    return Table("Methods, on the silos’ own documents", columns, tuple(rows), tuple(notes))


def search_table(run: Run) -> Table | None:
    """Every method in a search of all silos' documents and at home; None if the run has no such measure."""
    texts = texts_of(run)
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
            }
        )
    columns = (
        Column("method", "ranker"),
        Column("home", "searching its own documents", numeric=True, digits=DIGITS),
        Column("everywhere", "searching all silos’ documents", numeric=True, digits=DIGITS),
        Column("difference", "difference of the two", numeric=True, signed=True, digits=DIGITS),
        Column("gain", "all silos’ documents, against Local at home", numeric=True, signed=True, digits=DIGITS),
    )
    share = texts.foreign_share
    lie = "" if share is None else f" ({share:.0%} of the relevant pairs are with another silo’s document)"
    notes = (
        f"{measure} of the same test queries where every relevant document of the federation counts, whoever has it, "
        f"also those that no search found{lie.replace('%', ' %')}. These values are not comparable with those above.",
        "Documents are found by BM25 with the federation’s document frequencies, at home by exact counts and elsewhere "
        f"by what the silos see of each other; with {EXACT} and {POOLED} by exact numbers everywhere. The ranker then "
        "orders what was found.",
        spread(run, "Differences are paired by seed."),
    )
    return Table("A search of the whole federation against a search at home", columns, tuple(rows), notes)


def silos_table(run: Run) -> Table:
    """Every silo by every method, in the measure that decides, on its own documents."""
    texts = texts_of(run)
    methods = texts.compared
    rows = []
    for silo in texts.names:
        row: dict[str, Any] = {"silo": silo, "gain": gain(run, silo=silo)}
        for i, method in enumerate(methods):
            row[f"m{i}"] = _mean(texts.values(method, texts.measure, silo=silo))
        rows.append(row)
    columns = (
        Column("silo", "silo"),
        *(Column(f"m{i}", method, numeric=True, digits=DIGITS) for i, method in enumerate(methods)),
        Column("gain", f"{FEDERATED} − Local", numeric=True, signed=True, digits=DIGITS),
    )
    notes = ["Test queries, own documents.", spread(run, "The last column is paired by seed.")]
    if cut_anew(run):
        notes.append("A silo has other documents in each seed: its name says its place in the cut, no more.")
    return Table(f"{texts.measure} of each silo", columns, tuple(rows), tuple(notes))


def gate_table(run: Run) -> Table | None:
    """Who adopts the federation's ranker, what it gained, who would have lost; None before the run knows."""
    texts = texts_of(run)
    if not texts.decisions:
        return None
    rows = []
    for silo in texts.names:
        of = [one for one in texts.decisions if one.silo == silo]
        tested = [one for one in of if math.isfinite(one.test)]
        rows.append(
            {
                "silo": silo,
                "adopts": f"{sum(one.adopted for one in of)} of {len(of)}",
                "gained": _count(one.test > 0 for one in tested if one.adopted),
                "lost": _count(one.test < 0 for one in tested if one.adopted),
                "spared": _count(one.test < 0 for one in tested if not one.adopted),
                "missed": _count(one.test > 0 for one in tested if not one.adopted),
                "offered": _mean({one.seed: one.test for one in tested}),
                "kept": _mean({one.seed: one.kept for one in tested}),
            }
        )
    by_seed: dict[str, dict[int, float]] = {
        key: {
            seed: math.fsum(values) / len(values)
            for seed in run.seeds
            if (
                values := [
                    getattr(d, key) for d in texts.decisions if d.seed == seed and math.isfinite(getattr(d, key))
                ]
            )
        }
        for key in ("test", "kept")
    }
    adopted = sum(one.adopted for one in texts.decisions)
    everyone: dict[str, Any] = {"silo": "all", "adopts": f"{adopted} of {len(texts.decisions)}"}
    everyone |= {key: str(sum(int(row[key]) for row in rows)) for key in ("gained", "lost", "spared", "missed")}
    rows.append({**everyone, "offered": _mean(by_seed["test"]), "kept": _mean(by_seed["kept"])})
    columns = (
        Column("silo", "silo"),
        Column("adopts", "adopts", numeric=True),
        Column("gained", "adopted and gained", numeric=True),
        Column("lost", "adopted and lost", numeric=True),
        Column("spared", "refused, would have lost", numeric=True),
        Column("missed", "refused, would have gained", numeric=True),
        Column("offered", "gain without the gate", numeric=True, signed=True, digits=DIGITS),
        Column("kept", "gain with the gate", numeric=True, signed=True, digits=DIGITS),
    )
    queries = [silo.queries["vali"] for silo in texts.silos]
    held = f"{min(queries)}" if min(queries) == max(queries) else f"{min(queries)} to {max(queries)}"
    notes = (
        f"A silo adopts the federation’s ranker where it is better than its own one by {texts.measure} on the silo’s "
        f"validation queries ({held} of them: a decision by so few is often wrong). Gained and lost: on its test "
        "queries, which the decision does not see.",
        f"Counts are seeds, of {len(run.seeds)}. " + spread(run, ""),
    )
    return Table("Do no harm: who adopts the federation’s ranker", columns, tuple(rows), notes)


def queries_table(run: Run) -> Table | None:
    """CS-F-LTR against every other method, query by query; None if the run kept no values by query."""
    texts, file = texts_of(run), run.path / "per_query.parquet"
    if not file.exists():
        return None
    frame = parquet(file, _PER_QUERY).filter(pl.col("split") == "test")
    pairs = [("own documents", texts.measure, "own", m, "own") for m in texts.compared if m != FEDERATED]
    if texts.searched is not None:
        others = [(LOCAL, "home"), *((m, "federation") for m in (EXACT, POOLED))]
        pairs += [
            ("all silos’ documents", texts.searched, "federation", m, scope)
            for m, scope in others
            if m in texts.compared
        ]
    found = []
    for about, measure, scope, other, of in pairs:
        ours = _by_query(frame, "learnt", measure + SCOPES[scope])
        theirs = _by_query(frame, other, measure + SCOPES[of])
        common = [qid for qid in ours if qid in theirs]
        if not common:
            continue
        key: tuple[str, str] = ("test", measure)
        values: dict[str, dict[tuple[str, str], np.ndarray]] = {
            FEDERATED: {key: _array(ours, common)},
            other: {key: _array(theirs, common)},
        }
        label = f"{other} at home" if of == "home" else other
        found.append((about, label, compare_per_query(values, other)[0]))
    if not found:
        return None
    by_t, by_r = (_adjusted([getattr(row, key) for _, _, row in found]) for key in ("p_t", "p_randomisation"))
    rows = [
        {
            "about": about,
            "against": label,
            "queries": row.queries,
            "difference": Estimate(
                row.difference, None if row.high is None else row.high - row.difference, row.queries
            ),
            "wins": f"{row.wins}/{row.ties}/{row.losses}",
            "p_t": _p(t),
            "p_r": _p(r),
        }
        for (about, label, row), t, r in zip(found, by_t, by_r, strict=True)
    ]
    columns = (
        Column("against", f"{FEDERATED} against"),
        Column("about", "ranking"),
        Column("queries", "queries", numeric=True),
        Column("difference", f"difference in {texts.measure}", numeric=True, signed=True, digits=DIGITS),
        Column("wins", "better/equal/worse", numeric=True),
        Column("p_t", "p, t-test", numeric=True),
        Column("p_r", "p, randomisation", numeric=True),
    )
    notes = (
        "Test queries of all silos; a query’s value is the mean over the seeds in which it is a test query. ± is half "
        f"of a 95 % Student t interval over queries. p: paired tests, corrected for the {len(found)} rows (Holm). A "
        "query tells nothing about other cuts of the documents; seeds do.",
    )
    return Table("Would the difference be there with other queries?", columns, tuple(rows), notes)


def data_table(run: Run) -> Table:
    """Who has what."""
    rows = [
        {"silo": s.name, "documents": s.documents, **s.queries, "rows": s.rows, "pairs": s.pairs, "words": s.words}
        for s in texts_of(run).silos
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
    """Bytes of one silo by exchange, of the opening and of training; None before the run wrote its ledger."""
    if run.ledger is None or not len(run.ledger):
        return None
    flows, silos = words.flows(run.ledger), len(texts_of(run).silos)
    rows = []
    for part, known in (("opening", words.TEXT_OPENING), ("training", words.TEXT_TRAINING)):
        of = [f for f in flows if (f.exchange in words.TEXT_TRAINING) == (part == "training")]
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
    """What ± means in a table over seeds, with what else is to be said."""
    n = len(run.seeds)
    first = (
        "One seed: no interval." if n == 1 else f"± is half of a 95 % Student t interval over {seeds_in_words(run)}."
    )
    return f"{first} {more}".strip()


def seeds_in_words(run: Run) -> str:
    """How many seeds, and what is drawn anew in each: ``"5 seeds, each with its own cut and split of queries"``."""
    n = len(run.seeds)
    own = "its own cut and split of queries" if cut_anew(run) else "its own split of queries"
    return f"{n} seeds, each with {own}" if n > 1 else f"one seed, with {own}"


def cut_anew(run: Run) -> bool:
    """Whether every seed cuts one collection into silos anew, rather than having a collection for each silo."""
    return "+" not in str(run.setting("data"))


def _methods_in_words(texts: TextRun) -> str:
    known = {
        "Local": "a silo’s own labels",
        "Local+": "own labels and own guesses for cross pairs",
        "Global (β = 0)": "all silos’ labels, no cross pairs",
        FEDERATED: "all silos’ labels and guesses for cross pairs",
        EXACT: "the same with exact counts in place of sketches: what protection costs is the difference",
        POOLED: "true labels of cross pairs and exact counts: what silos that share everything would reach",
    }
    return "Trained on: " + "; ".join(f"{name}, {known[name]}" for name in texts.compared if name in known) + "."


def _mean(values: Mapping[int, float]) -> Estimate | None:
    return mean_interval(list(values.values())) if values else None


def _count(which: Any) -> str:
    return str(sum(bool(one) for one in which))


def _by_query(frame: pl.DataFrame, ranker: str, measure: str) -> dict[str, float]:
    rows = frame.filter((pl.col("ranker") == ranker) & (pl.col("measure") == measure))
    return dict(rows.select("qid", "value").iter_rows())


def _array(values: Mapping[str, float], keys: Sequence[str]) -> np.ndarray:
    return np.array([values[key] for key in keys])


def _adjusted(values: Sequence[float | None]) -> list[float | None]:
    tested = [(i, value) for i, value in enumerate(values) if value is not None]
    adjusted = dict(zip((i for i, _ in tested), adjust([v for _, v in tested]).tolist(), strict=True))
    return [adjusted.get(i) for i in range(len(values))]


def _p(value: float | None) -> str:
    return "–" if value is None else "< 0.001" if value < 0.001 else f"{value:.3f}"
