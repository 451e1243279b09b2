"""Click logs with known position bias, made up from labelled queries: to try the way from a log to a ranker.

A search is for one of the queries, drawn evenly. One of several rankers answers it, as over a year in which the ranker
was changed: the best single feature beside random weights. A share of the lists has two neighbours swapped. The user
looks at position k with probability k^−η and clicks what attracts
(:func:`~fedrank.ranking.clicks.browsing.attraction`).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from fedrank.core.errors import ConfigError
from fedrank.core.lazy import OptionalModule
from fedrank.ranking.clicks.browsing import attraction
from fedrank.ranking.data.queries import QuerySet
from fedrank.ranking.logs.read import ClickLog

pl: Any = OptionalModule("polars", "logs", "Writing a click log")


@dataclass(frozen=True)
class GeneratedLog:
    """A click log and what made it.

    Attributes:
        query: int [n], number of the query of each session.
        documents: int [n, depth], row of each shown document in the queries; −1 below the end of a short list.
        clicked: bool [n, depth].
        theta: float [depth], probability that a position is looked at.
        attraction: float [documents], probability that a document is clicked when looked at.
    """

    query: Int[np.ndarray, " n"]
    documents: Int[np.ndarray, "n depth"]
    clicked: Bool[np.ndarray, "n depth"]
    theta: Float[np.ndarray, " depth"]
    attraction: Float[np.ndarray, " documents"]

    def log(self, queries: QuerySet) -> ClickLog:
        """The log as :func:`~fedrank.ranking.logs.read.read_log` reads it; a pair is a row of the queries."""
        shown = self.documents >= 0
        offsets = np.concatenate([[0], np.cumsum(shown.sum(axis=1))])
        position = np.broadcast_to(np.arange(1, shown.shape[1] + 1, dtype=np.uint8), shown.shape)[shown]
        draw = np.random.default_rng(len(self.query)).integers(0, 2**32, len(self.query), dtype=np.uint32)
        owner = np.repeat(np.arange(queries.n_queries, dtype=np.int32), queries.lengths)
        rows = self.documents[shown].astype(np.int32)
        return ClickLog(offsets, rows, position, self.clicked[shown], draw, owner, queries.features)

    def write(self, queries: QuerySet, path: str | Path) -> None:
        """Write a Parquet, CSV or JSON lines file with a row for each result, features included."""
        path = Path(path)
        writers = {".parquet": "sink_parquet", ".csv": "sink_csv", ".jsonl": "sink_ndjson"}
        if path.suffix not in writers:
            raise ConfigError(f"a log is written as {', '.join(writers)}, got {path.name}.")
        names = [f"f{number}" for number in range(1, queries.n_features + 1)]
        table = pl.DataFrame(queries.features, schema=names).with_columns(
            document=pl.Series([f"d{row}" for row in range(queries.n_documents)]),
            row=pl.Series(range(queries.n_documents)),
        )
        shown = self.documents >= 0
        session, place = np.nonzero(shown)
        rows = pl.DataFrame(
            {
                "session": session,
                "query": queries.qids[self.query[session]],
                "row": self.documents[shown],
                "position": (place + 1).astype(np.uint8),
                "click": self.clicked[shown],
            }
        )
        joined = rows.lazy().join(table.lazy(), on="row", how="left", maintain_order="left").drop("row")
        getattr(joined, writers[path.suffix])(path)


def generate_log(
    queries: QuerySet,
    sessions: int,
    *,
    eta: float = 1.0,
    depth: int = 10,
    rankers: int = 3,
    swapped: float = 0.1,
    seed: int = 0,
) -> GeneratedLog:
    """Make up a click log.

    Args:
        queries: Labelled queries.
        sessions: Number of searches.
        eta: η, severity of the position bias; 0: none.
        depth: Results of a list at most.
        rankers: Number of rankers that answered in turn; with one, and nothing swapped, bias cannot be told.
        swapped: Share of the lists in which two neighbours are swapped.
        seed: Of everything.

    Raises:
        ConfigError: Numbers that make no sense.
    """
    if sessions < 1 or depth < 1 or rankers < 1 or not 0 <= swapped <= 1 or eta < 0:
        raise ConfigError(
            f"sessions, depth and rankers must be at least 1, swapped in [0, 1] and eta at least 0, got {sessions}, "
            f"{depth}, {rankers}, {swapped} and {eta}."
        )
    rng = np.random.default_rng(seed)
    deviation = queries.features.std(axis=0)
    scale = np.where(deviation > 0, 1 / np.where(deviation > 0, deviation, 1), 0)
    base = _correlation(queries) * scale
    lists = np.full((rankers, queries.n_queries, depth), -1, np.int64)
    for ranker in range(rankers):
        weights = base + rng.normal(0, 0.1, queries.n_features) * scale
        scores = queries.features @ weights + rng.normal(0, 1e-9, queries.n_documents)
        owner = np.repeat(np.arange(queries.n_queries), queries.lengths)
        order = np.lexsort((-scores, owner))
        rank = np.arange(len(order)) - np.repeat(queries.offsets[:-1], queries.lengths)
        top = rank < depth
        lists[ranker][owner[order][top], rank[top]] = order[top]
    query = rng.integers(0, queries.n_queries, sessions)
    documents = lists[rng.integers(0, rankers, sessions), query]
    upper = rng.integers(0, max(depth - 1, 1), sessions)
    chosen = np.flatnonzero((rng.random(sessions) < swapped) & (depth > 1))
    chosen = chosen[documents[chosen, upper[chosen] + 1] >= 0]
    at = upper[chosen]
    documents[chosen, at], documents[chosen, at + 1] = documents[chosen, at + 1], documents[chosen, at]
    theta = np.arange(1, depth + 1) ** -float(eta)
    attracts = np.asarray(attraction(queries.max_label + 1))[queries.labels]
    clicked = (documents >= 0) & (rng.random(documents.shape) < theta * attracts[documents])
    return GeneratedLog(query, documents, clicked, theta, attracts)


def _correlation(queries: QuerySet) -> np.ndarray:
    """A middling ranker: all weights 0 but that of the feature that goes best with the labels, which is 0.3."""
    labels = queries.labels - queries.labels.mean()
    centred = queries.features - queries.features.mean(axis=0)
    spread = np.sqrt((centred**2).sum(axis=0))
    found = np.where(spread > 0, labels @ centred / np.where(spread > 0, spread, 1), 0.0)
    best = int(np.argmax(np.abs(found)))
    weights = np.zeros(queries.n_features)
    weights[best] = 0.3 * np.sign(found[best])
    return weights
