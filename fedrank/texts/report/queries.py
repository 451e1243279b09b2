"""The federation's ranker compared with others, query by query."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl

from fedrank.report.files import parquet
from fedrank.report.run import Run
from fedrank.report.significance import adjust, compare_per_query
from fedrank.report.statistics import Estimate
from fedrank.report.tables import Column, Table
from fedrank.texts.report.files import BM25, EXACT, FEDERATED, GLOBAL, LOCAL, POOLED, SCOPES
from fedrank.texts.report.tables import DIGITS, details_of

_PER_QUERY = {"split": "text", "qid": "text", "ranker": "text", "measure": "text", "value": "number"}


def queries_table(run: Run) -> Table | None:
    """Table of CS-F-LTR against every other method, paired by query; None if the run kept no values by query."""
    texts, file = details_of(run), run.path / "per_query.parquet"
    if not file.exists():
        return None
    frame = parquet(file, _PER_QUERY).filter(pl.col("split") == "test")
    pairs = [("own documents", texts.measure, "own", m, "own") for m in texts.compared if m != FEDERATED]
    if texts.searched is not None:
        others = [(LOCAL, "home"), (BM25, "home"), *((m, "federation") for m in (BM25, GLOBAL, EXACT, POOLED))]
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
