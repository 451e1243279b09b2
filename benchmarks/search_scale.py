"""An owner of many documents: how long it takes to add them, what the index weighs, and what a query costs.

    python -m benchmarks.search_scale [--documents 10000 100000 1000000] [--words 60] [--out FILE]

Texts are made up: words by Zipf's law (exponent 1.07, 200,000 words), lengths log-normal. An index of each size is
built in a folder, in a process of its own, by the code that serves; then 200 queries of three words, drawn as words of
documents are, are answered as an owner answers them: opened, searched, scored, sealed; and by the engine alone. Then
1,000 documents are added and 1,000 taken away. Seconds are those of one core (CPU) and, in brackets, of the clock;
memory is the most that the process has had.
"""

from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing
import resource
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from fedrank.texts.served.documents import Document
from fedrank.texts.served.engines.tantivy import TantivyEngine
from fedrank.texts.served.envelopes import Question, Tickets
from fedrank.texts.served.owner import Admitted, Owner, OwnerSettings
from fedrank.texts.served.statistics import StatisticsTerms

EXPONENT, VOCABULARY, QUERIES, CHANGED = 1.07, 200_000, 200, 1000


def vocabulary() -> np.ndarray:
    """Words that the stemmer leaves alone: syllables of two letters, ended by a k."""
    syllables = [a + b for a in "bdfgklmnprtvz" for b in "aiou"]
    numbers = np.arange(VOCABULARY)
    parts = [numbers // len(syllables) ** place % len(syllables) for place in range(4)]
    table = np.array(syllables)
    return np.char.add(np.char.add(np.char.add(table[parts[0]], table[parts[1]]), table[parts[2]]), table[parts[3]])


class Zipf:
    """Draws words of a made-up vocabulary whose frequencies follow Zipf's law; ``seed`` fixes the draws."""

    def __init__(self, seed: int):
        self.rng, self.words = np.random.default_rng(seed), vocabulary()
        weights = 1.0 / np.arange(1, VOCABULARY + 1) ** EXPONENT
        self._below = np.cumsum(weights / weights.sum())

    def draw(self, count: int) -> list[str]:
        """The words of a text of ``count`` words, in the order of the draws."""
        return self.words[np.searchsorted(self._below, self.rng.random(count))].tolist()

    def documents(self, count: int, words: int, first: int = 0) -> Iterator[Document]:
        """Documents of about so many words."""
        for number in range(first, first + count):
            length = max(5, round(words * float(np.exp(self.rng.normal(-0.125, 0.5)))))
            text = self.draw(length + 5)
            yield Document(f"d{number}", " ".join(text[:5]).capitalize(), " ".join(text[5:]))


class Anyone:
    """Askers of whom all may ask as often as they like."""

    def know(self, name: str, token: str) -> Admitted:
        """What the owner knows of an asker: in no group, without a key, whatever its token is."""
        return Admitted()

    def count(self, name: str, kind: str, identity: bytes, day: int, person: str) -> str:
        """The reason against a question, which is empty: no budget is used up."""
        return ""

    def note(self, name: str, kind: str, query: str, documents: Sequence[str]) -> None:
        """Keep no record of what was asked and given, so that a query costs no write to the disk."""


def measured(documents: int, words: int) -> dict[str, Any]:
    """CPU-seconds, memory and bytes of an owner's index of ``documents`` texts of ``words`` words, and of queries."""
    zipf = Zipf(documents)
    with tempfile.TemporaryDirectory() as folder:
        t = [time.process_time()]
        made = list(zipf.documents(min(documents, 20_000), words))
        making = (time.process_time() - t[0]) / len(made)  # of a text, which is not the index's
        began, cpu = time.perf_counter(), time.process_time()
        engine = TantivyEngine(Path(folder) / "index")
        engine.add(zipf.documents(documents, words))
        build = (time.process_time() - cpu - making * documents, time.perf_counter() - began)
        size = sum(file.stat().st_size for file in Path(folder).rglob("*") if file.is_file())
        indexed = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        terms = StatisticsTerms(2)
        cpu = time.process_time()
        counted = terms.count_words(itertools.islice(engine.words(), 20_000))
        counting = (time.process_time() - cpu) / min(documents, 20_000)
        table = terms.table((counted % 2**32).astype(np.uint32))
        key = X25519PrivateKey.generate()
        owner = Owner(engine, key, Tickets(bytes(32)), Anyone(), OwnerSettings(), table)
        queries = [zipf.draw(3) for _ in range(QUERIES)]

        def asked(bodies: list[dict[str, Any]]) -> dict[str, float]:
            common = {"asker": "a", "token": "t" * 43, "day": int(time.time() // 86400), "kind": "search", "k": 10}
            sealed = [Question(key.public_key(), common | body) for body in bodies]
            times, clock, sizes = [], [], []
            for question in sealed:
                began, cpu = time.perf_counter(), time.process_time()
                answer = owner.answer(question.sealed)
                times.append(time.process_time() - cpu)
                clock.append(time.perf_counter() - began)
                sizes.append(len(question.sealed) + len(answer))
                assert question.open_answer(answer)["hits"]
            return {
                "median_cpu_s": float(np.median(times)),
                "p99_cpu_s": float(np.quantile(times, 0.99)),
                "median_s": float(np.median(clock)),
                "p99_s": float(np.quantile(clock, 0.99)),
                "bytes": float(np.mean(sizes)),
            }

        asked([{"words": words} for words in queries[:20]])  # caches are filled
        one = asked([{"words": words} for words in queries])
        alone = []
        for query in queries:  # tantivy by itself: its ten best, with their titles
            cpu, searcher = time.process_time(), engine._index.searcher()
            parsed = engine._index.parse_query(" ".join(query), ["body_words", "title_words"])
            assert [searcher.doc(at).get_first("title") for _, at in searcher.search(parsed, 10).hits]
            alone.append(time.process_time() - cpu)
        began, cpu = time.perf_counter(), time.process_time()
        engine.add(zipf.documents(CHANGED, words, documents))
        engine.remove(f"d{number}" for number in range(CHANGED))
        changed = (time.process_time() - cpu - making * CHANGED, time.perf_counter() - began)
        assert len(engine) == documents
        engine.close()
    return {
        "documents": documents,
        "words": words,
        "build_cpu_s": build[0],
        "build_s": build[1],
        "index_bytes": size,
        "most_memory_bytes": 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
        "memory_after_build_bytes": 1024 * indexed,
        "statistics_cpu_s": counting * documents,
        "query": one,
        "engine_alone_median_cpu_s": float(np.median(alone)),
        "changed_2000_cpu_s": changed[0],
        "changed_2000_s": changed[1],
    }


def _measure(place: Any, documents: int, words: int) -> None:
    place.put(measured(documents, words))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--words", type=int, default=60)
    parser.add_argument("--out", type=Path)
    chosen = parser.parse_args()
    context, rows = multiprocessing.get_context("spawn"), []
    if chosen.out and chosen.out.exists():
        rows = json.loads(chosen.out.read_text())
    for documents in chosen.documents:
        place = context.Queue()
        process = context.Process(target=_measure, args=(place, documents, chosen.words))
        process.start()
        row = place.get()
        process.join()
        rows = [other for other in rows if (other["documents"], other["words"]) != (documents, chosen.words)] + [row]
        print(json.dumps(row), flush=True)
        if chosen.out:
            chosen.out.write_text(json.dumps(sorted(rows, key=lambda r: (r["words"], r["documents"])), indent=1) + "\n")


if __name__ == "__main__":
    main()
