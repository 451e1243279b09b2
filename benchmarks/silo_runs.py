"""Processor time of a run of silos as a user starts it, first and second time, beside a plain NumPy loop.

    python -m benchmarks.silo_runs                # fedrank run bandit-fedavg with its defaults; about two minutes
    python -m benchmarks.silo_runs --protocol fedavg

The first run has an empty cache folder and compiles; the second has what the first left. Both are whole commands:
imports, training alone and with everybody to compare with, what one tries first, measures, and the page. Counted is the
processor time of the process and its threads. The loop is that of :mod:`benchmarks.bandit_grid`: the same number of
local trainings and nothing else.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.bandit_grid import loop


def seconds(protocol: str, cache: str, out: Path) -> float:
    """Processor time of one command."""
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")
    kept = {name: value for name, value in os.environ.items() if name != "JAX_COMPILATION_CACHE_DIR"}
    command = [sys.executable, "-m", "fedrank", "run", protocol, "--quiet", "--out", str(out)]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, env={**kept, **threads, "XDG_CACHE_HOME": cache}, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def measure(protocol: str) -> dict[str, Any]:
    """A first run, two more, and the loop."""
    from fedrank.engine.settings import defaults
    from fedrank.silos.build import build_silos

    with tempfile.TemporaryDirectory() as folder:
        first, *others = (seconds(protocol, folder, Path(folder, f"run-{k}")) for k in range(3))
    made = build_silos(defaults(protocol).resolved())
    config, silos = made.config, made.n_parties
    # Every silo before the first round and in each; beside it the target alone, and all silos once more.
    rounds = config.rounds + 1
    trainings = len(config.all_seeds) * rounds * (silos + 1 + silos)
    x, y, n = (np.asarray(leaf)[0, 0] for leaf in made.arrays.train)
    each = loop(x[:n], y[:n], 50, config.method.network.widths)
    return {
        "protocol": protocol,
        "first": first,
        "second": min(others),
        "loop": each * trainings,
        "trainings": trainings,
        "cpus": len(os.sched_getaffinity(0)),
        "load": os.getloadavg()[0],
    }


def main() -> None:
    """Parse arguments, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--protocol", default="bandit-fedavg")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    found = measure(asked.protocol)
    if asked.json:
        print(json.dumps(found, indent=2))
        return
    print("fedrank run {protocol}, defaults, CPU-seconds ({cpus} CPUs, load {load:.1f})".format(**found))
    print("  first run {first:.1f}, second {second:.1f}".format(**found))
    print("  NumPy loop, {trainings:,} local trainings and nothing else: {loop:.1f}".format(**found))


if __name__ == "__main__":
    main()
