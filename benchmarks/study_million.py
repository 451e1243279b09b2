"""Logistic regression of a million rows and fifty columns at one silo: what its five rounds cost the silo.

    python -m benchmarks.study_million               # a parquet file and a CSV file of 10^6 rows; minutes

Results go to ``benchmarks/study_million.json``. Each file is written in blocks and read by a process of its own, in
which the silo's node answers the moments and four rounds of Newton's method on its rows; what is measured is the
process's processor time, its wall time and its largest resident memory, with those of a process that imports the node
and answers nothing beside them. The node answers by the default rules, so that it counts and hashes all values too.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

RESULTS = Path(__file__).with_suffix(".json")
ROWS, COLUMNS, ROUNDS = 1_000_000, 50, 5
#: Rows that are written at once.
BLOCK = 50_000


def main() -> None:
    """Parse arguments, measure, write and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--answer", type=Path, help="answer from this file and print what it cost; for this script")
    asked = parser.parse_args()
    if asked.answer is not None:
        print(json.dumps(answer(asked.answer)))
        return
    results: dict[str, Any] = {"rows": asked.rows, "columns": COLUMNS, "rounds": ROUNDS}
    with tempfile.TemporaryDirectory() as folder:
        for kind in ("nothing", "parquet", "csv"):
            path = Path(folder) / f"rows.{kind}"
            if kind != "nothing":
                write_rows(path, asked.rows)
                size = path.stat().st_size
            command = [sys.executable, "-m", "benchmarks.study_million", "--answer", str(path)]
            results[kind] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
            if kind != "nothing":
                results[kind]["file_mb"] = round(size / 1e6, 1)
            print(kind, results[kind], flush=True)
            path.unlink(missing_ok=True)
    if asked.rows == ROWS:
        RESULTS.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


def write_rows(path: Path, n: int) -> None:
    """Write random rows: a CSV file in blocks, and a parquet file streamed from one."""
    import polars as pl

    rng = np.random.default_rng(0)
    names = [f"x{k}" for k in range(COLUMNS)]
    beta = rng.normal(size=COLUMNS) / COLUMNS**0.5
    text = path.with_suffix(".csv")
    with open(text, "wb") as file:
        for start in range(0, n, BLOCK):
            x = np.round(rng.normal(size=(min(BLOCK, n - start), COLUMNS)).clip(-5, 5), 3)
            y = (rng.random(len(x)) < 1 / (1 + np.exp(-(x @ beta)))).astype(int)
            frame = pl.DataFrame(dict(zip(names, x.T, strict=True)) | {"y": y})
            frame.write_csv(file, include_header=not start)
    if path != text:
        pl.scan_csv(text).sink_parquet(path, row_group_size=BLOCK)
        text.unlink()


def answer(path: Path) -> dict[str, float]:
    """Answer the rounds of a study of one silo in this process."""
    from fedrank.silos.studies.codebook import Codebook, Column, Question, Rules
    from fedrank.silos.studies.coordinator import Coordinator
    from fedrank.silos.studies.node import Node
    from fedrank.silos.studies.table import own_table

    began = time.perf_counter()
    names = [f"x{k}" for k in range(COLUMNS)]
    columns = {name: Column(name=name, range=(-5.0, 5.0)) for name in names}
    columns["y"] = Column(name="y", levels=("0", "1"))
    question = Question(name="q", formula=f"y ~ {' + '.join(names)}")
    book = Codebook(
        study="million", silos=("a",), columns=columns, rules=Rules(fewest_silos=1), questions=(question,)
    )  # fmt: skip
    made = Coordinator(book)
    if path.exists():
        node = Node(own_table(path, book, "a"))
        for _ in range(ROUNDS):
            asked = made.open
            if asked is None:
                break
            told = node.answer(asked)
            if told.replies["q"].refused:
                raise SystemExit(told.replies["q"].refused)
            made.take([told], asked)
    used = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "rounds": made.number,
        "cpu_s": round(used.ru_utime + used.ru_stime, 2),
        "wall_s": round(time.perf_counter() - began, 2),
        "peak_mb": round(used.ru_maxrss / 1024, 1),
    }


if __name__ == "__main__":
    main()
