"""Steps per CPU-second of the satisfaction world under random slates, beside the real RecSim.

    python -m benchmarks.slate_worlds                                  # ours alone, or with RecSim if it is importable
    python -m benchmarks.slate_worlds --recsim-python venv/bin/python  # RecSim in an environment of its own

A step is one platform showing one slate to one user: drawing its candidates and its slate, the click, the engagement
and the user's change. Two platforms share a user for 61 rounds. Ours runs all users of a batch in one compiled function
(a scan over rounds of a map over users); RecSim is the one of ``tests/slates/golden/make_recsim_traces.py``, which
says how to install it. Both run in turns; reported is the best turn of each, in CPU-seconds of the whole process, so
that threads are paid for. If RecSim is measured and the ratio falls below ``--least``, the exit status is 1.

The floor is randomness: what the same number of random words costs when nothing is done with them.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import platform
import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
GOLDEN = ROOT / "tests" / "slates" / "golden"
SETTINGS = {"N=10, n=3": (10, 3, 2048), "N=100, n=10": (100, 10, 512), "N=500, n=10": (500, 10, 128)}
DOCUMENT_SEEDS = (42, 42)
PLATFORMS = 2


def main() -> None:
    """Parse arguments, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recsim-python", help="a Python that can import recsim")
    parser.add_argument("--least", type=float, default=300.0, help="ratio to RecSim below which the run fails")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0, help="of RecSim in a turn")
    parser.add_argument("--large", action="store_true", help="N=500 as well")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--recsim-steps", nargs=3, metavar=("N", "n", "SECONDS"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.recsim_steps:  # this file, run by RecSim's Python
        candidates, slate, seconds = arguments.recsim_steps
        print(json.dumps(recsim_rate(int(candidates), int(slate), float(seconds))))
        return
    results = measure(arguments)
    if arguments.json:
        print(json.dumps(results, indent=2))
    slow = [name for name, row in results["rates"].items() if row.get("ratio", arguments.least) < arguments.least]
    if slow:
        sys.exit(f"less than {arguments.least:g} times RecSim at {', '.join(slow)}")


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """Steps per CPU-second of ours, of the floor and of RecSim, by setting."""
    import jax

    import fedrank

    machine = {
        "fedrank": fedrank.__version__,
        "jax": jax.__version__,
        "python": platform.python_version(),
        "processor": platform.processor() or platform.machine(),
    }
    print("  ".join(f"{key} {value}" for key, value in machine.items()))
    theirs = _recsim(arguments)
    if theirs is None:
        print("RecSim is not measured: it is not importable; name a Python that has it with --recsim-python")
    rates: dict[str, dict[str, float]] = {}
    for name, (candidates, slate, users) in SETTINGS.items():
        if candidates > 100 and not arguments.large:
            continue
        ours, floor = _ours(candidates, slate, users)
        for program in (ours, floor):
            program(0)  # compiles
        row = {"ours": 0.0, "floor": 0.0} | ({"recsim": 0.0} if theirs else {})
        for turn in range(1, arguments.turns + 1):
            row["ours"] = max(row["ours"], ours(turn))
            row["floor"] = max(row["floor"], floor(turn))
            if theirs:
                row["recsim"] = max(row["recsim"], theirs(candidates, slate))
        millions = {kind: row[kind] / 1e6 for kind in ("ours", "floor")}
        text = f"{name:12s} ours {millions['ours']:6.2f} M steps per CPU-s, random words {millions['floor']:6.2f} M"
        if theirs:
            row["ratio"] = row["ours"] / row["recsim"]
            text += f", RecSim {row['recsim']:,.0f}: {row['ratio']:,.0f} times"
        print(text, flush=True)
        rates[name] = row
    return {"machine": machine, "rates": rates}


def _ours(candidates: int, slate: int, users: int) -> tuple[Callable[[int], float], Callable[[int], float]]:
    """Episodes of the world, and the drawing of as many random words; each returns steps per CPU-second."""
    import jax
    import jax.numpy as jnp

    from fedrank.slates.world.policies import BASELINES
    from fedrank.slates.world.satisfaction import preset

    world = preset("recsim", candidates=candidates, slate=slate)
    policy = BASELINES.get("random")(world)
    rounds = world.rounds_per_episode
    # What one round draws: the world's block of words and a number for each candidate of each platform.
    words = PLATFORMS * (1 + 4) + candidates + 1 + PLATFORMS * candidates

    def one_round(scene, key):
        scene, turns, _ = world.round(scene, policy.act((), scene, key[1]), world.draw(key[0]))
        return scene, turns.engagement

    def episode(key):
        keys = jax.random.split(key, (rounds + 1, 2))
        return jax.lax.scan(one_round, world.first(world.draw(keys[0, 0])), keys[1:])[1].sum(0)

    def drawing(key):
        def draw(total, key):
            return total ^ jax.lax.reduce_xor(jax.random.bits(key, (words,)), (0,)), None

        return jax.lax.scan(draw, jnp.uint32(0), jax.random.split(key, rounds))[0]

    def timed(one: Callable[[Any], Any]) -> Callable[[int], float]:
        run = jax.jit(lambda key: jax.vmap(one)(jax.random.split(key, users)))

        def turn(seed: int) -> float:
            key = jax.random.key(seed)
            start = time.process_time()
            jax.block_until_ready(run(key))
            return users * rounds * PLATFORMS / (time.process_time() - start)

        return turn

    return timed(episode), timed(drawing)


def _recsim(arguments: argparse.Namespace) -> Callable[[int, int], float] | None:
    """RecSim's rate by candidates and slate, here or in another Python; None where there is no RecSim."""
    if arguments.recsim_python:

        def elsewhere(candidates: int, slate: int) -> float:
            sizes = [str(candidates), str(slate), str(arguments.seconds)]
            command = [arguments.recsim_python, str(Path(__file__).resolve()), "--recsim-steps", *sizes]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                sys.exit(f"RecSim failed in {arguments.recsim_python}:\n{done.stderr}")
            return json.loads(done.stdout.splitlines()[-1])

        return elsewhere
    if importlib.util.find_spec("recsim") is None:
        return None
    return lambda candidates, slate: recsim_rate(candidates, slate, arguments.seconds)


def recsim_rate(candidates: int, slate: int, seconds: float) -> float:
    """Steps per CPU-second of RecSim's world with two platforms, under random slates, resets included."""
    sys.path.insert(0, str(GOLDEN))
    import make_recsim_traces  # pyright: ignore[reportMissingImports]

    _, environments = make_recsim_traces.world(candidates, slate, DOCUMENT_SEEDS)
    chance, steps, done = random.Random(0), 0, True
    start = time.process_time()
    while time.process_time() < start + seconds:
        if done:
            for environment in environments:
                environment.reset()
        for environment in environments:
            *_, done = environment.step(chance.sample(range(candidates), slate))
            steps += 1
    return steps / (time.process_time() - start)


if __name__ == "__main__":
    main()
