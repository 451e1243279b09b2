"""What hides a query from the owners who answer it, and what that costs: hashes, decoys, encrypted scoring.

    FEDRANK_DATA=FOLDER python -m benchmarks.hidden_queries [--out FILE] [--only hashes decoys encrypted]

*Hashes*: the owner gets cells of words in place of words. It must compute cells of its own words to answer, and so has
a dictionary: of each cell it names the word that most of its documents hold. Fewer cells hide more words behind each
and mix up their counts.

*Decoys*: the owner gets a query among seven others and names the one for which its best document has the highest BM25
score as a part of what the query's words are worth. Decoys are queries of the same collection, or of another one.

*Encrypted scoring*: the asker encrypts its query's vector (CKKS, by TenSEAL, which is not installed with fedrank), and
the owner multiplies it with the vectors of all its documents, as Tiptoe does within a cluster (Henzinger et al.,
SOSP 2023). The owner learns nothing, and the asker gets the cosine of every document. TenSEAL's ring of 4,096 holds
2,048 documents in a ciphertext of the answer. Vectors are random, of 384 numbers and of 64 (the largest principal
components keep most of a cosine; what that costs in nDCG is measured with the vectors of all-MiniLM-L6-v2).
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.served_search import Text, documents_of, ndcg
from fedrank.texts.data.features import Statistics, bm25
from fedrank.texts.served.analyser import english
from fedrank.texts.served.documents import Words, words_of
from fedrank.texts.served.owner import counts_of
from fedrank.texts.served.statistics import cells_of

CELLS = (0, 1 << 18, 1 << 16, 1 << 14, 1 << 12, 1 << 10)
COLLECTIONS = ("cranfield", "cisi")
DECOYS, BLOCK = 7, 2048
SIZES = (10_000, 100_000, 1_000_000)


class Collection:
    """Documents and queries as words, or as cells of words."""

    def __init__(self, name: str, cells: int = 0):
        documents, self.queries, _ = documents_of(name)
        self.cells, self.names = cells, [document.id for document in documents]
        self.texts = [". ".join(filter(None, (one.title, one.body))) for one in documents]
        cut = words_of(documents)
        self.frequency: dict[str, int] = {}
        for one in cut:
            for word in {*one.body, *one.title}:
                self.frequency[word] = self.frequency.get(word, 0) + 1
        self.documents = [Words(self.hashed(one.title), self.hashed(one.body)) for one in cut]
        self.held: list[dict[str, int]] = [{}, {}]
        for one in self.documents:
            for field, own in enumerate((one.body, one.title)):
                for word in set(own):
                    self.held[field][word] = self.held[field].get(word, 0) + 1
        self.tokens = np.array([sum(len(one.body) for one in cut), sum(len(one.title) for one in cut)], float)

    def hashed(self, words: list[str]) -> list[str]:
        """Words as the owner sees them."""
        return [str(cell) for cell in cells_of(words, self.cells)] if self.cells and words else words

    def scores(self, words: list[str]) -> tuple[np.ndarray, float]:
        """BM25 of every document, and what the words are worth together."""
        own = self.hashed(words)
        frequency = np.array([[held.get(word, 0) for held in self.held] for word in own], float).reshape(-1, 2)
        statistics = Statistics(float(len(self.documents)), np.maximum(frequency, 0.5), frequency, self.tokens)
        counts, lengths = counts_of(own, self.documents)
        return bm25(counts, lengths, statistics).sum(axis=1), float(statistics.idf.max(axis=1).sum())


def quality(collection: Collection, query: Text, scores: np.ndarray) -> float:
    """nDCG(dcg='exp-log2')@10 of a collection's documents in the order of ``scores`` [documents], for one query."""
    best = np.argsort(-scores, kind="stable")[:10]
    grades = np.array([query.grades.get(collection.names[place], 0) for place in best], np.int64)
    return ndcg(grades, sorted(query.grades.values(), reverse=True), -np.arange(len(best), dtype=float))


def hashes(name: str) -> list[dict[str, Any]]:
    """Share of a query's words that an owner names, and what the search is worth."""
    out = []
    plain = Collection(name)
    words = list(plain.frequency)
    for cells in CELLS:
        collection = Collection(name, cells)
        likeliest: dict[int, str] = {}
        for word, cell in zip(words, cells_of(words, cells or 2**62).tolist(), strict=True):
            if cell not in likeliest or plain.frequency[word] > plain.frequency[likeliest[cell]]:
                likeliest[cell] = word
        named, values = [], []
        for query in plain.queries:
            own = english().cut_query(query.words)
            known = [word for word in own if word in plain.frequency]
            guessed = [likeliest[cell] for cell in cells_of(known, cells or 2**62).tolist()] if known else []
            named += [guess == word for guess, word in zip(guessed, known, strict=True)]
            values.append(quality(plain, query, collection.scores(own)[0]))
        out.append({"collection": name, "cells": cells, "named": float(np.mean(named)), "ndcg": float(np.mean(values))})
        print(json.dumps(out[-1]), flush=True)
    return out


def decoys(name: str, other: str) -> list[dict[str, Any]]:
    """How often an owner names the query among its decoys."""
    rng, own = np.random.default_rng(0), Collection(name)
    queries = [[english().cut_query(one.words) for one in documents_of(which)[1]] for which in (name, other)]

    def told(words: list[str]) -> float:
        scores, worth = own.scores(words)
        return float(scores.max(initial=0.0) / max(worth, 1e-9))

    values = [np.array([told(words) for words in some]) for some in queries]
    out = []
    for kind, among in (("same collection", values[0]), ("another collection", values[1])):
        right = []
        for place, value in enumerate(values[0]):
            pool = np.delete(among, place) if among is values[0] else among
            chosen = rng.choice(pool, DECOYS, replace=False)
            right.append(float(value > chosen.max()) + (value == chosen.max()) / 2)
        half = 1.96 * float(np.std(right)) / np.sqrt(len(right))
        out.append({"collection": name, "decoys": kind, "named": float(np.mean(right)), "half": half,
                    "chance": 1 / (1 + DECOYS)})  # fmt: skip
        print(json.dumps(out[-1]), flush=True)
    return out


def components(name: str) -> dict[str, Any]:
    """nDCG(dcg='exp-log2')@10 of BM25, and of cosines of all numbers of a vector and of the 64 largest components."""
    from fedrank.texts.served.encoder import MINILM, Encoder

    encoder, own = Encoder(MINILM), Collection(name)
    vectors, asked = encoder.encode(own.texts), encoder.encode([query.words for query in own.queries])
    *_, axes = np.linalg.svd(vectors - vectors.mean(axis=0), full_matrices=False)
    found: dict[str, Any] = {"collection": name}
    for title, left, right in (
        ("cosine_384", vectors, asked),
        ("cosine_64", vectors @ axes[:64].T, asked @ axes[:64].T),
    ):
        found[title] = float(
            np.mean([quality(own, query, left @ one) for query, one in zip(own.queries, right, strict=True)])
        )
    scores = [quality(own, query, own.scores(english().cut_query(query.words))[0]) for query in own.queries]
    found["bm25"] = float(np.mean(scores))
    print(json.dumps(found), flush=True)
    return found


def encrypted(numbers: int, most: int) -> dict[str, Any]:
    """Bytes and seconds of an encrypted query, of blocks of documents one after the other."""
    import tenseal as ts

    rng = np.random.default_rng(numbers)
    padded = 1 << (numbers - 1).bit_length()  # rotations wrap around a power of two
    context = ts.context(ts.SCHEME_TYPE.CKKS, 4096, coeff_mod_bit_sizes=[40, 20, 40])  # 100 bits: 128 of security
    context.global_scale = 2**20
    context.generate_galois_keys()
    keys = context.serialize(save_secret_key=False, save_galois_keys=True)
    query = np.zeros(padded)
    query[:numbers] = rng.normal(size=numbers)
    query /= np.linalg.norm(query)
    cpu = time.process_time()
    sealed = ts.ckks_vector(context, query.tolist()).serialize()
    asking = time.process_time() - cpu
    owner = ts.context_from(keys)
    at_owner = ts.ckks_vector_from(owner, sealed)
    times, opened, off, size = [], [], [], 0
    for _ in range(-(-most // BLOCK)):
        documents = np.zeros((BLOCK, padded))
        documents[:, :numbers] = rng.normal(size=(BLOCK, numbers))
        documents /= np.linalg.norm(documents, axis=1, keepdims=True)
        matrix = documents.T.tolist()
        cpu = time.process_time()
        answer = at_owner.mm(matrix).serialize()
        times.append(time.process_time() - cpu)
        cpu = time.process_time()
        scores = np.array(ts.ckks_vector_from(context, answer).decrypt())[:BLOCK]
        opened.append(time.process_time() - cpu)
        off.append(float(np.abs(scores - documents @ query).max()))
        size = len(answer)
    rows = []
    for documents in SIZES:
        blocks = -(-documents // BLOCK)
        rows.append(
            {
                "documents": documents,
                "owner_cpu_s": float(np.mean(times)) * blocks,
                "asker_cpu_s": asking + float(np.mean(opened)) * blocks,
                "bytes": len(sealed) + size * blocks,
                "measured": documents <= most,
            }
        )
    found = {
        "numbers": numbers,
        "blocks_measured": len(times),
        "keys_bytes_once": len(keys),
        "query_bytes": len(sealed),
        "answer_bytes_a_block": size,
        "largest_error": max(off),
        "costs": rows,
    }
    print(json.dumps(found), flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--only", nargs="+", default=["hashes", "decoys", "components", "encrypted"])
    chosen = parser.parse_args()
    known = json.loads(chosen.out.read_text()) if chosen.out and chosen.out.exists() else {}
    parts = {
        "hashes": lambda: [row for name in COLLECTIONS for row in hashes(name)],
        "decoys": lambda: [*decoys("cranfield", "cisi"), *decoys("cisi", "cranfield")],
        "components": lambda: [components(name) for name in COLLECTIONS],
        "encrypted": lambda: [encrypted(64, 100_000), encrypted(384, 10_000)],
    }
    for part in chosen.only:
        known[part] = parts[part]()
        if chosen.out:
            chosen.out.write_text(json.dumps(known, indent=1) + "\n")


if __name__ == "__main__":
    main()
