"""Building sketches of documents and reading counts from them, beside NumPy and Apache datasketches.

    python -m benchmarks.sketches                  # 10,000 documents × 300 tokens, z = 10, w = 120
    python -m benchmarks.sketches --z 30 --w 200

One collection (Zipf's law with exponent 1.07 over 50,000 words, seed 0) is sketched and asked in turns by every
program; reported is the best turn of each. A *count* is the estimate of one term in one document from all z rows; a
*cell query* is one of the z cells that it reads. ``datasketches`` (Apache; Count-Min only, one object a document, in a
Python loop) handles a part of the documents and is scaled up; it is left out where it is not installed.

The floor is memory: built sketches have to be written once, and a count has to read z cells and write one number. How
fast memory is copied is measured in the same turns, and the floor's time is printed beside ours.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import platform
import time
from collections.abc import Callable
from typing import Any

EXPONENT = 1.07
CELL = 4  # bytes of a cell and of a count


def main() -> None:
    """Parse arguments, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=10_000)
    parser.add_argument("--tokens", type=int, default=300, help="of a document")
    parser.add_argument("--vocabulary", type=int, default=50_000)
    parser.add_argument("--asked", type=int, default=200, help="terms, each in all documents")
    parser.add_argument("--z", type=int, default=10)
    parser.add_argument("--w", type=int, default=120)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--threads", type=int, default=min(2, os.cpu_count() or 1))
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    os.environ["NUMBA_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = str(arguments.threads)
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: arguments.threads])
    results = measure(arguments)
    if arguments.json:
        print(json.dumps(results, indent=2))


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """Best seconds of every program, scaled to the whole task, and rates."""
    import fedrank

    tasks, counts = _programs(arguments)
    best = dict.fromkeys(tasks, float("inf"))
    for turn in tasks.values():
        turn()  # compiles
    for _ in range(arguments.turns):
        for name, turn in tasks.items():
            best[name] = min(best[name], turn())
    machine = {
        "fedrank": fedrank.__version__,
        "python": platform.python_version(),
        "cores": arguments.threads,
        "processor": platform.processor() or platform.machine(),
    }
    d, z, w = arguments.documents, arguments.z, arguments.w
    print("  ".join(f"{key} {value}" for key, value in machine.items()))
    print(f"{d:,} documents × {arguments.tokens} tokens, vocabulary {arguments.vocabulary:,}, z={z} w={w}")
    speed = best.pop("memory") ** -1 * 2 * CELL * d * z * w  # bytes a second: read and written
    floor = {"build": CELL * d * z * w / speed, "ask": counts * CELL * (z + 1) / speed}
    print(f"memory: {speed / 1e9:.1f} GB/s copied, read and written counted")
    for name, seconds in best.items():
        rate = f"   {counts / seconds / 1e6:8.2f} M counts/s {counts * z / seconds / 1e6:9.1f} M cell queries/s"
        print(f"{name:46s} {seconds:9.3f} s{rate if name.startswith('ask') else ''}")
    for name, seconds in floor.items():
        print(f"{name + ': floor of memory':46s} {seconds:9.3f} s")
    return {"machine": machine, "settings": vars(arguments), "seconds": best, "floor": floor, "bytes_a_second": speed}


def _seconds(turn: Callable[[], Any]) -> float:
    start = time.perf_counter()
    turn()
    return time.perf_counter() - start


def _programs(arguments: argparse.Namespace) -> tuple[dict[str, Callable[[], float]], int]:
    """Turns that return their seconds, and how many counts an asking turn estimates."""
    import numpy as np

    from fedrank.texts.sketch import SketchShape, by_cell, cells_at, counts_of, encode, estimate, hash_terms

    counts = _collection(arguments)
    terms = [f"word{i}" for i in range(arguments.vocabulary)]
    shape = SketchShape(arguments.z, arguments.w)
    hashes = hash_terms(terms, shape, bytes(32))
    sketches = encode(counts, hashes, shape)
    cells = by_cell(sketches)
    asked = np.random.default_rng(1).integers(0, arguments.vocabulary, arguments.asked)
    ours = hashes.select(asked)
    few, part = slice(0, 20), 20 / arguments.asked  # NumPy's arrays of all answers are large

    def documents_first() -> None:
        for rows, signs in zip(ours.rows[few], ours.signs[few], strict=True):
            np.median(sketches[:, np.arange(shape.z), rows] * signs, axis=1)

    def cells_first() -> None:
        for rows, signs in zip(ours.rows[few], ours.signs[few], strict=True):
            np.median(cells[np.arange(shape.z) * shape.w + rows] * signs[:, None], axis=0)

    tasks: dict[str, tuple[Callable[[], Any], float]] = {
        "memory": (_copier(sketches, arguments.threads), 1),
        "hash: every word once (BLAKE2b)": (lambda: hash_terms(terms, shape, bytes(32)), 1),
        "build": (lambda: encode(counts, hashes, shape), 1),
        "ask": (lambda: counts_of(sketches, ours, shape), 1),
        "ask: look up, then estimate (raw answers)": (
            lambda: estimate(cells_at(sketches, ours.rows[few]), ours.signs[few, None]), part,
        ),
        "ask: NumPy, cell-major": (cells_first, part),
        "ask: NumPy, document-major": (documents_first, part),
        **_datasketches(counts, terms, asked, shape),
    }  # fmt: skip
    turns = {name: _scaled(turn, share) for name, (turn, share) in tasks.items()}
    return turns, arguments.documents * arguments.asked


def _scaled(turn: Callable[[], Any], share: float) -> Callable[[], float]:
    return lambda: _seconds(turn) / share


def _collection(arguments: argparse.Namespace) -> Any:
    import numpy as np
    from scipy.sparse import coo_array, csr_array

    rng = np.random.default_rng(0)
    chances = 1 / np.arange(1, arguments.vocabulary + 1) ** EXPONENT
    words = rng.choice(arguments.vocabulary, arguments.documents * arguments.tokens, p=chances / chances.sum())
    documents = np.repeat(np.arange(arguments.documents), arguments.tokens)
    shape = (arguments.documents, arguments.vocabulary)
    counts = csr_array(coo_array((np.ones(words.size, np.int32), (documents, words)), shape=shape))
    counts.sum_duplicates()
    return counts


def _copier(array: Any, threads: int) -> Callable[[], None]:
    """Copies an array with all cores."""
    from concurrent.futures import ThreadPoolExecutor

    import numpy as np

    pool, target = ThreadPoolExecutor(threads), np.empty_like(array)
    parts = list(zip(np.array_split(target, threads), np.array_split(array, threads), strict=True))
    return lambda: list(pool.map(lambda pair: np.copyto(*pair), parts))  # type: ignore[return-value]


def _datasketches(counts: Any, terms: list[str], asked: Any, shape: Any) -> dict[str, tuple[Callable[[], Any], float]]:
    """A part of the documents in Apache datasketches' Count-Min sketches of the same size."""
    try:
        from datasketches import count_min_sketch  # type: ignore[import-not-found]
    except ImportError:
        print("datasketches is not installed; nothing to compare with")
        return {}
    documents = min(300, counts.shape[0])
    share = documents / counts.shape[0]
    starts = counts.indptr[: documents + 1].tolist()
    words = [terms[term] for term in counts.indices[: starts[-1]].tolist()]
    times, questions = counts.data[: starts[-1]].tolist(), [terms[term] for term in asked.tolist()]
    built: list[Any] = []

    def build() -> None:
        built.clear()
        for first, last in itertools.pairwise(starts):
            sketch = count_min_sketch(shape.z, shape.w)
            for i in range(first, last):
                sketch.update(words[i], times[i])
            built.append(sketch)

    def ask() -> None:
        for sketch in built:
            for word in questions:
                sketch.get_estimate(word)

    return {"build: datasketches Count-Min": (build, share), "ask: datasketches Count-Min": (ask, share)}


if __name__ == "__main__":
    main()
