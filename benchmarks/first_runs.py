"""Processor time of a run of slates as a user starts it: with nothing compiled yet, and once more.

    python -m benchmarks.first_runs                              # this checkout alone, 4 turns
    python -m benchmarks.first_runs --beside ../before --write   # beside another checkout, in turns

Each turn has an empty cache folder: the first run compiles, the second has what the first left. Both are whole
commands: imports, what the run is compared with, rounds, evaluations, page. Counted is the processor time of the
process and its threads, of which there are as many as it takes by itself. On a machine that others use it is more: two
checkouts are compared turn by turn, each with its own interpreter (``.venv/bin/python``), and the load is kept beside
the numbers. With ``--write`` they go to ``benchmarks/first_runs.json``.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

#: What is run unless told otherwise.
PROTOCOL = "planned-slates"
#: Variables that would change how many threads there are, or where compiled programs are kept.
_LEFT_OUT = ("NPROC", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS", "JAX_COMPILATION_CACHE_DIR")
RESULTS = Path(__file__).with_suffix(".json")


def seconds(python: str, checkout: Path, arguments: list[str], cache: str, out: Path) -> float:
    """Processor time of one command.

    Args:
        python: The interpreter.
        checkout: Whose code is run.
        arguments: Of ``fedrank run``.
        cache: The user's cache folder.
        out: The run's folder, new.
    """
    kept = {name: value for name, value in os.environ.items() if name not in _LEFT_OUT}
    command = [python, "-m", "fedrank", "run", *arguments, "--quiet", "--out", str(out)]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, cwd=checkout, env={**kept, "XDG_CACHE_HOME": cache}, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def turn(checkouts: dict[str, tuple[str, Path]], arguments: list[str]) -> dict[str, Any]:
    """First and second run of each checkout, one after the other.

    Args:
        checkouts: By name: interpreter and folder.
        arguments: Of ``fedrank run``.
    """
    found: dict[str, Any] = {"load": round(os.getloadavg()[0], 1)}
    for name, (python, checkout) in checkouts.items():
        with tempfile.TemporaryDirectory() as folder:
            each = [seconds(python, checkout, arguments, folder, Path(folder, kind)) for kind in ("one", "two")]
        found[name] = {"first": round(each[0], 2), "second": round(each[1], 2)}
    return found


def main() -> None:
    """Parse arguments, measure, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--protocol", default=PROTOCOL)
    parser.add_argument("--turns", type=int, default=4)
    parser.add_argument("--beside", type=Path, help="another checkout, with an environment of its own")
    parser.add_argument("--write", action="store_true", help=f"write the numbers to {RESULTS.name}")
    asked = parser.parse_args()
    checkouts = {"this": (sys.executable, Path(__file__).resolve().parents[1])}
    if asked.beside is not None:
        other = asked.beside.resolve()
        checkouts = {"before": (str(other / ".venv/bin/python"), other), **checkouts}
    title = f"fedrank run {asked.protocol}, defaults, CPU-seconds ({len(os.sched_getaffinity(0))} CPUs)"
    print(title)
    kept, found = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}, []
    for _ in range(asked.turns):
        found.append(turn(checkouts, [asked.protocol]))
        print(f"  {found[-1]}", flush=True)
        if asked.write:
            RESULTS.write_text(json.dumps({**kept, title: found}, indent=1) + "\n", encoding="utf-8")
    for name in checkouts:
        for kind in ("first", "second"):
            each = [one[name][kind] for one in found]
            print(f"  {name:7s}{kind:7s} least {min(each):5.1f}, median {statistics.median(each):5.1f}")


if __name__ == "__main__":
    main()
