"""Many askers at once of a search of three owners as processes: how long they wait.

    python -m benchmarks.search_load [--documents 100000] [--askers 1 50] [--think 2] [--seconds 30] [--out FILE]

Owners and broker are processes of the command line on loopback, each owner with ``--documents`` texts that
:mod:`benchmarks.search_scale` makes up. The askers are threads of a process apart; each asks three words, drawn as
words of documents are, and thinks for an exponential time of mean ``--think`` seconds before it asks again (0: not at
all, so that the askers always fill the machine). Each asks once before the clock runs. CPU-seconds of a search are
those of all owners and of the broker.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.search_processes import OWNERS, free_port, listens, processes, waited_for
from benchmarks.search_scale import Zipf
from fedrank.deploy.search.federation import Federation
from fedrank.deploy.search.folder import OwnerFolder
from fedrank.deploy.search.joining import BrokerFolder
from fedrank.texts.served.owner import OwnerSettings

_TICKS = os.sysconf("SC_CLK_TCK")


def cpu_of(pids: list[int]) -> float:
    """CPU-seconds of processes."""
    fields = [Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split() for pid in pids]
    return sum(int(one[11]) + int(one[12]) for one in fields) / _TICKS


def memory_of(pid: int) -> float:
    """Most memory that a process has had, in bytes."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return 1024.0 * next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


def ask_at_once(place: Any, home: Path, askers: int, think: float, seconds: float, seed: int) -> None:
    """Seconds of every search of so many askers, and how many found nothing or lacked an owner; into a queue."""
    file, asker = OwnerFolder(home).asker()
    zipf, lock, ready = Zipf(seed), threading.Lock(), threading.Barrier(askers)
    queries = [" ".join(zipf.draw(3)) for _ in range(round(500 * seconds))]  # before the clock runs
    waits: list[float] = []
    failed = [0]

    def one(number: int) -> None:
        rng, federation, mine = np.random.default_rng(seed + number), Federation(file, asker), queries[number::askers]
        federation.search(mine.pop())  # connections are made
        ready.wait(60)
        until = time.perf_counter() + seconds
        time.sleep(rng.random() * think)
        while time.perf_counter() < until and mine:
            began = time.perf_counter()
            answer = federation.search(mine.pop())
            took = time.perf_counter() - began
            with lock:
                waits.append(took)
                failed[0] += bool(answer.missing)
            time.sleep(rng.exponential(think) if think else 0.0)

    with ThreadPoolExecutor(askers) as threads:
        for made in [threads.submit(one, number) for number in range(askers)]:
            made.result()
    place.put((waits, failed[0]))


def measure(
    folder: Path, documents: int, rows: list[tuple[int, float]], seconds: float, seed: int
) -> list[dict[str, Any]]:
    """Waits and CPU of a search, for each number of askers and its thinking."""
    ports = {name: free_port() for name in (*OWNERS, "broker")}
    for number, owner in enumerate(OWNERS):
        with (folder / f"{owner}.jsonl").open("w", encoding="utf-8") as file:
            for text in Zipf(seed + number).documents(documents, 60):
                file.write(json.dumps({"id": text.id, "title": text.title, "text": text.body}) + "\n")
        OwnerFolder(folder / owner).prepare(OwnerSettings(questions_a_day=100_000_000))
    broker, made = BrokerFolder(folder / "broker"), list[dict[str, Any]]()
    with processes(folder) as start:
        pids = [start("search", "broker", broker.path, "--owners", len(OWNERS), "--port", ports["broker"],
                      "--patience", 30).pid]  # fmt: skip
        waited_for(lambda: listens(ports["broker"]), "broker")
        place = f"http://127.0.0.1:{ports['broker']}#{broker.token('join')}"
        for owner in OWNERS:
            given = (
                "--documents",
                folder / f"{owner}.jsonl",
                "--join",
                place,
                "--trust-broker",
                "--port",
                ports[owner],
            )
            pids.append(start("search", "owner", "serve", folder / owner, *given).pid)
        for name, port in ports.items():
            waited_for(lambda port=port: listens(port), name, 1200)
        waited_for(lambda: not broker.needs_release(), "statistics", 1200)
        context = multiprocessing.get_context("spawn")
        for askers, think in rows:
            queue, before = context.Queue(), cpu_of(pids)
            apart = context.Process(
                target=ask_at_once, args=(queue, folder / OWNERS[0], askers, think, seconds, seed + 100)
            )
            apart.start()
            waits, failed = queue.get(timeout=seconds + 300)
            apart.join()
            row = {
                "documents": documents,
                "askers": askers,
                "think_s": think,
                "searches": len(waits),
                "without_an_owner": failed,
                "median_s": float(np.median(waits)),
                "p99_s": float(np.quantile(waits, 0.99)),
                "most_s": max(waits),
                "cpu_s": (cpu_of(pids) - before) / (len(waits) + askers),
                "owner_memory_bytes": max(memory_of(pid) for pid in pids[1:]),
            }
            print(json.dumps(row), flush=True)
            made.append(row)
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=100_000)
    parser.add_argument("--askers", type=int, nargs="+", default=[1, 50])
    parser.add_argument("--think", type=float, nargs="+", default=[2.0, 0.0])
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--seed", type=int, default=300)
    parser.add_argument("--out", type=Path)
    chosen = parser.parse_args()
    rows = [(askers, think) for askers in chosen.askers for think in chosen.think]
    with tempfile.TemporaryDirectory() as folder:
        made = measure(Path(folder), chosen.documents, rows, chosen.seconds, chosen.seed)
    if chosen.out:
        chosen.out.write_text(json.dumps(made, indent=1) + "\n")


if __name__ == "__main__":
    main()
