"""What ε of a whole document costs a search: statistics of the owners alone, summed with noise, and exact.

    FEDRANK_DATA=FOLDER python -m benchmarks.search_statistics [--out FILE] [--seeds 3]

A collection is cut by topic among four owners. Each owner scores its documents by BM25 with the statistics that it has,
and the best ten of all are judged. *Alone*: each owner's own statistics. *Exact*: those of all documents. Between them,
the noisy sums of a served search, by ε of a document (δ = 10⁻⁶). *Closed* is the part of the gap between alone and
exact. Beside it the other way to a bound for a document: sketches that are handed out once, with Gaussian noise for the
128 cells that a document may change, read as posterior means.
"""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.served_search import Text, ndcg, noise, world
from fedrank.privacy.calibration import gaussian_sigma
from fedrank.texts.data.features import Statistics, bm25
from fedrank.texts.served.analyser import english
from fedrank.texts.served.documents import Words, words_of
from fedrank.texts.served.owner import counts_of
from fedrank.texts.served.statistics import MOST_BODY, StatisticsTerms, cells_of

COLLECTIONS = ("cranfield", "cisi")
EPSILONS, SKETCHED = (0.1, 0.3, 1.0, 3.0), (1.0, 8.0, 64.0)
CELLS, FIRST_SEED = 4096, 300


class Owner:
    """An owner's documents, its frequencies and its sketches."""

    def __init__(self, documents: list[Any]):
        self.names = [document.id for document in documents]
        self.words: list[Words] = words_of(documents)
        self.held: list[dict[str, int]] = [{}, {}]
        for one in self.words:
            for field, own in enumerate((one.body, one.title)):
                for word in set(own):
                    self.held[field][word] = self.held[field].get(word, 0) + 1
        self.tokens = np.array([sum(len(one[1 - field]) for one in self.words) for field in (0, 1)], float)
        self.sketch = np.zeros((len(documents), CELLS), np.float32)
        for row, one in enumerate(self.words):
            cells = np.unique(cells_of(sorted(set(one.body)), CELLS)) if one.body else np.zeros(0, np.int64)
            self.sketch[row, cells[:MOST_BODY]] = 1

    def frequency(self, words: list[str]) -> np.ndarray:
        """Documents that hold each word in body and title."""
        return np.array([[held.get(word, 0) for held in self.held] for word in words], float).reshape(-1, 2)


def statistics_of(owners: list[Owner], words: list[str]) -> Statistics:
    """Exact statistics of some owners."""
    frequency = np.maximum(sum(owner.frequency(words) for owner in owners), 0.5)
    documents = float(sum(len(owner.names) for owner in owners))
    return Statistics(documents, frequency, frequency, sum(owner.tokens for owner in owners))


def judged(query: Text, owners: list[Owner], scores: list[np.ndarray]) -> float:
    """nDCG(dcg='exp-log2')@10 of the merged list."""
    names = [name for owner in owners for name in owner.names]
    every = np.concatenate(scores)
    best = np.argsort(-every, kind="stable")[:10]
    grades = np.array([query.grades.get(names[place], 0) for place in best], np.int64)
    return ndcg(grades, sorted(query.grades.values(), reverse=True), -np.arange(len(best), dtype=float))


def cell(name: str, seed: int) -> dict[str, list[float]]:
    """nDCG(dcg='exp-log2')@10 of every query in every way."""
    parts, queries = world(name, seed)
    owners, rng = [Owner(part) for part in parts], np.random.default_rng(seed)
    tables = {}
    for epsilon in EPSILONS:
        terms = StatisticsTerms(len(owners), epsilon)
        total = sum(terms.count_words(owner.words) for owner in owners)
        total = total + sum(noise(rng)(terms.share, terms.length) for _ in owners)
        tables[epsilon] = terms.table((total % 2**32).astype(np.uint32))
    sigmas = {epsilon: gaussian_sigma(epsilon, 1e-6, math.sqrt(MOST_BODY)) for epsilon in SKETCHED}
    noisy = {e: [o.sketch + rng.normal(0, s, o.sketch.shape).astype(np.float32) for o in owners]
             for e, s in sigmas.items()}  # fmt: skip
    found: dict[str, list[float]] = {}

    def note(way: str, query: Text, scores: list[np.ndarray]) -> None:
        found.setdefault(way, []).append(judged(query, owners, scores))

    for query in queries:
        words = english().cut_query(query.words)
        if not words:
            continue
        counted = [counts_of(words, owner.words) for owner in owners]
        exact = statistics_of(owners, words)
        note("exact", query, [bm25(*one, exact).sum(axis=1) for one in counted])
        alone = [statistics_of([owner], words) for owner in owners]
        note("alone", query, [bm25(*one, own).sum(axis=1) for one, own in zip(counted, alone, strict=True)])
        for epsilon, table in tables.items():
            scores = []
            for owner, one in zip(owners, counted, strict=True):
                own = [(int(body), int(title)) for body, title in owner.frequency(words)]
                scores.append(bm25(*one, table.at(words, own, len(owner.names))).sum(axis=1))
            note(f"summed {epsilon:g}", query, scores)
        cells, share = cells_of(words, CELLS), exact.document_frequency[:, 0] / exact.documents
        for epsilon, sketches in noisy.items():
            scores = []
            for sketch in sketches:
                ratio = np.exp(np.clip((sketch[:, cells].T - 0.5) / sigmas[epsilon] ** 2, -50, 50))
                there = share[:, None] * ratio / (share[:, None] * ratio + 1 - share[:, None])
                scores.append((exact.idf[:, :1] * there).sum(axis=0))
            note(f"sketched {epsilon:g}", query, scores)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--seeds", type=int, default=3)
    chosen = parser.parse_args()
    rows = []
    for name in COLLECTIONS:
        cells = [cell(name, FIRST_SEED + number) for number in range(chosen.seeds)]
        means = {way: np.mean([one[way] for one in cells], axis=0) for way in cells[0]}
        gap = float((means["exact"] - means["alone"]).mean())
        for way, values in means.items():
            off = values - means["exact"]
            half = 1.96 * float(off.std(ddof=1)) / math.sqrt(len(off))
            closed = 1 + float(off.mean()) / gap if gap else math.nan
            row = {"collection": name, "way": way, "ndcg": float(values.mean()), "against_exact": float(off.mean()),
                   "half": half, "closed": closed}  # fmt: skip
            rows.append(row)
            print(json.dumps(row), flush=True)
        if chosen.out:
            chosen.out.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
