"""How many owners a query must ask: nDCG@10 against questions, for ways to choose owners.

    FEDRANK_DATA=FOLDER python -m benchmarks.choice_of_owners [--out FILE] [--seeds 300 301 …]

Twelve owners: ADI is one; CISI is cut by topic (latent semantic space, k-means) into three, Cranfield and Vaswani into
four each, anew for each seed. All queries of the four collections are asked; documents of other collections are not
relevant. Every owner gives 20 hits, BM25 with exact statistics of all; lists are in the order of score / best score +
2 · cosine, of the static encoder. Five folds: past answers are those of the other folds' queries, asked of everybody.

Ways to choose owners: `size`; `cori` (Callan et al. 1995) with exact document frequencies and with those of each owner
alone under Gaussian noise of ε = 1 a document; `redde`, votes of samples of 100 documents each by size (Si & Callan
2003), which owners do not give; `past answers`, by which askers choose (:mod:`fedrank.deploy.search.choice`), of all
queries of other folds and `of 100` of them.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats
from scipy.sparse import csr_array

from benchmarks.served_search import HITS, documents_of, ndcg
from fedrank.deploy.search.choice import PastAnswers
from fedrank.privacy.calibration import gaussian_sigma
from fedrank.texts.data.silos import cut
from fedrank.texts.served.analyser import english
from fedrank.texts.served.documents import words_of
from fedrank.texts.served.encoder import WORDLLAMA, load_encoder, text_of
from fedrank.texts.served.owner import COSINE
from fedrank.texts.served.query import find_snippet
from fedrank.texts.served.statistics import SENSITIVITY

COLLECTIONS = {"adi": 1, "cisi": 3, "cranfield": 4, "vaswani": 4}
FOLDS, DEPTH, SAMPLE = 5, 10, 100
#: Documents of samples that vote.
VOTES = 50
WAYS = ("random", "size", "cori", "cori, ε = 1", "redde", "of 100", "past answers")


class World:
    """All documents and queries, and what does not change with the seed."""

    def __init__(self):
        self.documents, self.queries, self.corpora = [], [], []
        for name in COLLECTIONS:
            documents, queries, corpus = documents_of(name)
            self.corpora.append((len(self.documents), len(documents), corpus))
            self.documents += documents
            self.queries += queries
        analyser, vocabulary = english(), dict[str, int]()
        rows, columns, values, lengths = [], [], [], []
        cut_words = words_of(self.documents, analyser)
        self.asked = [[word for word in analyser.cut_query(query.words)] for query in self.queries]
        for number, words in enumerate(cut_words):
            for field in (words.body, words.title):
                for word in field:
                    rows.append(number)
                    columns.append(vocabulary.setdefault(word, len(vocabulary)))
                    values.append(1.0)
            lengths.append(len(words.body) + len(words.title))
        shape = (len(self.documents), len(vocabulary))
        counts = csr_array((values, (rows, columns)), shape=shape)
        counts.sum_duplicates()
        self.counts, self.vocabulary = counts, vocabulary
        self.frequency = np.bincount(counts.indices, minlength=shape[1])
        self.idf = np.log1p((shape[0] - self.frequency + 0.5) / (self.frequency + 0.5))
        length = np.asarray(lengths, float)
        # BM25 (k₁ = 1.2, b = .75) over title and body together.
        tf = counts.copy()
        norm = 1.2 * (0.25 + 0.75 * length / length.mean())
        each = np.repeat(norm, np.diff(tf.indptr))
        tf.data = tf.data * 2.2 / (tf.data + each) * self.idf[tf.indices]
        self.query_words = self._matrix(self.asked)
        self.scores = (self.query_words @ tf.T).toarray()
        encoder = load_encoder(WORDLLAMA)
        vectors = encoder.encode([text_of(one.title, one.body) for one in self.documents])
        self.cosines = encoder.encode([query.words for query in self.queries]) @ vectors.T
        self.analyser, self.cut_words = analyser, cut_words
        self._pieces: dict[tuple[int, int], list[str]] = {}

    def _matrix(self, texts: list[list[str]]) -> csr_array:
        """Number of times that each known word stands in each text: sparse float64 [texts, words]."""
        rows = [number for number, words in enumerate(texts) for word in words if word in self.vocabulary]
        columns = [self.vocabulary[word] for words in texts for word in words if word in self.vocabulary]
        return csr_array((np.ones(len(rows)), (rows, columns)), shape=(len(texts), len(self.vocabulary)))

    def piece(self, query: int, place: int) -> list[str]:
        """Words of the piece of a document that is shown for a query."""
        if (query, place) not in self._pieces:
            found = find_snippet(self.documents[place].body[:1000], self.asked[query], self.analyser)
            self._pieces[query, place] = self.analyser.cut(found.text)
        return self._pieces[query, place]

    def owners(self, seed: int) -> np.ndarray:
        """The owner of each document."""
        owner, first = np.zeros(len(self.documents), int), 0
        for (start, count, corpus), parts in zip(self.corpora, COLLECTIONS.values(), strict=True):
            if parts == 1:
                owner[start : start + count] = first
            else:
                for number, places in enumerate(cut(corpus, parts, "topic", seed).documents):
                    owner[start + np.asarray(places)] = first + number
            first += parts
        return owner


def answers(world: World, owner: np.ndarray, query: int) -> list[np.ndarray]:
    """The documents that each owner gives."""
    given, scores = [], world.scores[query]
    for number in range(owner.max() + 1):
        own = np.flatnonzero((owner == number) & (scores > 0))
        given.append(own[np.argsort(-scores[own], kind="stable")[:HITS]])
    return given


def merged(world: World, query: int, given: list[np.ndarray]) -> np.ndarray:
    """The best documents of several owners' answers."""
    found = np.concatenate(given) if given else np.zeros(0, int)
    if not len(found):
        return found
    scores = world.scores[query, found]
    return found[np.argsort(-(scores / scores.max() + COSINE * world.cosines[query, found]), kind="stable")[:DEPTH]]


def value(world: World, query: int, found: np.ndarray) -> float:
    """nDCG(dcg='exp-log2')@10 of a list."""
    grades = world.queries[query].grades
    here = np.array([grades.get(world.documents[place].id, 0) for place in found], np.int64)
    return ndcg(here, sorted(grades.values(), reverse=True), -np.arange(len(here), dtype=float))


def cori(frequency: np.ndarray, words: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Belief in each owner for each query (queries × owners)."""
    owners = len(frequency)
    t = frequency / (frequency + 50 + 150 * (lengths / lengths.mean())[:, None] + 1e-9)
    i = np.log((owners + 0.5) / np.maximum((frequency > 0).sum(axis=0), 0.5)) / np.log(owners + 1.0)
    return words @ (0.4 + 0.6 * t * i).T


def run(world: World, seed: int) -> dict[str, Any]:
    rng, owner = np.random.default_rng(seed), world.owners(seed)
    count, owners = len(world.queries), int(owner.max()) + 1
    given = [answers(world, owner, query) for query in range(count)]
    full = [merged(world, query, given[query]) for query in range(count)]
    everybody = np.array([value(world, query, full[query]) for query in range(count)])
    sizes = np.bincount(owner, minlength=owners).astype(float)
    membership = csr_array((np.ones(len(owner)), (owner, np.arange(len(owner)))), shape=(owners, len(owner)))
    has = world.counts.copy()
    has.data[:] = 1.0
    frequency = (membership @ has).toarray()
    length = np.asarray(membership @ world.counts.sum(axis=1)).ravel()
    noisy = np.maximum(frequency + rng.normal(0, gaussian_sigma(1.0, 1e-6, SENSITIVITY), frequency.shape), 0)
    words = world.query_words
    beliefs: dict[str, np.ndarray] = {
        "random": rng.random((count, owners)),
        "size": np.tile(sizes, (count, 1)),
        "cori": cori(frequency, words, length),
        "cori, ε = 1": cori(noisy, words, length),
    }
    sample = np.concatenate([rng.permutation(np.flatnonzero(owner == one))[:SAMPLE] for one in range(owners)])
    held = np.minimum(sizes, SAMPLE)
    redde = np.zeros((count, owners))
    for query in range(count):
        scores = world.scores[query, sample]
        best = sample[np.argsort(-scores)[:VOTES]]
        np.add.at(redde[query], owner[best], (sizes / held)[owner[best]] * (world.scores[query, best] > 0))
    beliefs["redde"] = redde
    fold = rng.permutation(count) % FOLDS
    beliefs["past answers"], beliefs["of 100"] = np.zeros((count, owners)), np.zeros((count, owners))
    names = [str(one) for one in range(owners)]
    for number in range(FOLDS):
        before, now = np.flatnonzero(fold != number), np.flatnonzero(fold == number)
        for way, queries in (("past answers", before), ("of 100", before[:100])):
            past = PastAnswers()
            for query in queries:
                pieces = [
                    (names[owner[place]], str(place), {*world.cut_words[place].title, *world.piece(query, int(place))})
                    for one in given[query]
                    for place in one[:DEPTH]
                ]
                past.record(world.asked[query], [names[owner[place]] for place in full[query]], pieces)
            for query in now:
                shares = past.shares(world.asked[query], names)
                beliefs[way][query] = [shares[name] for name in names]
    found: dict[str, Any] = {"everybody": everybody.tolist(), "sizes": sizes.tolist()}
    for way in WAYS:
        order = np.argsort(-(beliefs[way] + 1e-9 * sizes), axis=1, kind="stable")
        found[way] = [
            [value(world, q, merged(world, q, [given[q][one] for one in order[q, :most]])) for q in range(count)]
            for most in range(1, 7)
        ]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--seeds", type=int, nargs="+", default=[*range(300, 308)])
    chosen = parser.parse_args()
    world, cells = World(), []
    for seed in chosen.seeds:
        cells.append(run(world, seed))
        print(f"seed {seed}: {time.process_time():.0f} s", flush=True)
    table = table_of(cells)
    if chosen.out:
        chosen.out.write_text(json.dumps(table, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def table_of(cells: list[dict[str, Any]]) -> dict[str, Any]:
    """Differences to asking everybody, after the mean over seeds, with 95 % intervals over queries; printed too."""
    everybody = np.mean([cell["everybody"] for cell in cells], axis=0)
    sizes = np.sort([cell["sizes"] for cell in cells], axis=1).mean(axis=0).round().astype(int).tolist()
    table: dict[str, Any] = {"seeds": len(cells), "queries": len(everybody), "everybody": float(everybody.mean())}
    print(f"{len(everybody)} queries, sizes {sizes}, everybody {everybody.mean():.3f}")
    for way in WAYS:
        rows = []
        for most in range(1, 7):
            loss = np.mean([cell[way][most - 1] for cell in cells], axis=0) - everybody
            half = stats.t.ppf(0.975, len(loss) - 1) * loss.std(ddof=1) / np.sqrt(len(loss))
            rows.append({"asked": most, "difference": float(loss.mean()), "half_width": float(half)})
        table[way] = rows
        print(f"{way:12}", *(f"{row['difference']:+.3f} ± {row['half_width']:.3f}" for row in rows), flush=True)
    return table


if __name__ == "__main__":
    main()
