"""How quickly a platform's service answers a hundred users at once, a hundred requests a second, 1,000 candidates.

Run it from a clone: ``python -m benchmarks.platform_sessions [--candidates 1000] [--features 8] [--items 10000]``. The
service is another process; this one asks at fixed times over one connection, so that a request that waits for the one
before it counts from its own time. It prints quantiles of slates and outcomes together, by whether the platform
explores or plans, and the service's CPU time and memory.
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import psutil

from fedrank.deploy.platforms.client import PlatformClient
from fedrank.deploy.platforms.folder import PlatformFolder, Terms
from fedrank.deploy.platforms.planning_platform import PlanningPlatform
from fedrank.engine.settings import read_config

RESULT = Path(__file__).with_suffix(".json")
#: Settings of both measurements, with places for d and the number of explorers.
CONFIG = """
protocol = "planned-slates"
rounds = 24400

[world]
preset = "tension"
candidates = 100
slate = 10
features = {features}

[slates]
explorers = {explorers}
"""
_USERS, _A_SECOND, _AT_ONCE = 100, 100.0, 10_000


def main() -> None:
    """Measure, print and write :data:`RESULT`."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=20.0, help="of each measurement")
    parser.add_argument("--candidates", type=int, default=1000, help="of a slate, by id")
    parser.add_argument("--features", type=int, default=8, help="of an item")
    parser.add_argument("--items", type=int, default=10_000, help="that are registered")
    given = parser.parse_args()
    found = {}
    for planned in (False, True):
        with tempfile.TemporaryDirectory() as folder:
            found["plans" if planned else "explores"] = measured(Path(folder), given, planned)
    kept = json.loads(RESULT.read_text(encoding="utf-8"))
    kept[f"{given.items} items"] = {**vars(given), **found}
    RESULT.write_text(json.dumps(kept, indent=2) + "\n", encoding="utf-8")


def measured(folder: Path, given: argparse.Namespace, planned: bool) -> dict[str, float]:
    """Milliseconds of a request at some quantiles; and CPU seconds a request and MB of the service."""
    config, home, random = folder / "run.toml", PlatformFolder(folder / "a"), np.random.default_rng(0)
    config.write_text(CONFIG.format(features=given.features, explorers=1 if planned else 200))
    terms = Terms.of(read_config(config))
    if planned:
        plan(terms, home, random)
    service = subprocess.Popen([sys.executable, "-m", "fedrank", "slates", "serve", home.path, "--index", "0",
                                "--config", config], stdout=subprocess.DEVNULL)  # fmt: skip
    try:
        while not (home.path / "application.url").exists():
            time.sleep(0.1)
        client = PlatformClient.of_folder(home.path)
        begun = time.perf_counter()
        for first in range(0, given.items, _AT_ONCE):
            rows = items(random, min(_AT_ONCE, given.items - first), given.features).tolist()
            client.register({f"item-{place}": row for place, row in enumerate(rows, first)})
        registered = time.perf_counter() - begun
        for user in range(_USERS):
            client.begin(f"user-{user}")
        process = psutil.Process(service.pid)
        took, begun, cpu = [], time.perf_counter(), process.cpu_times().user
        for number in range(int(given.seconds * _A_SECOND)):
            due, user = begun + number / _A_SECOND, f"user-{number // 2 % _USERS}"
            time.sleep(max(0.0, due - time.perf_counter()))
            if number % 2:
                client.outcome(user, int(random.integers(10)), float(random.exponential(20)))
            else:
                chosen = random.choice(given.items, given.candidates, replace=False)
                client.slate(user, items=[f"item-{one}" for one in chosen], observed=0.5)
            took.append(1000 * (time.perf_counter() - due))
        seconds = process.cpu_times().user - cpu
        quantiles = {f"p{q}": round(float(np.percentile(took, q)), 2) for q in (50, 90, 99, 99.9)}
        more = {"cpu_ms": 1000 * seconds / len(took), "mb": process.memory_info().rss / 1e6, "register_s": registered}
        print("plans" if planned else "explores", quantiles, more, flush=True)
        return {**quantiles, **{name: round(value, 2) for name, value in more.items()}}
    finally:
        service.send_signal(signal.SIGTERM)
        service.wait()


def items(random: np.random.Generator, number: int, features: int) -> np.ndarray:
    """Items as platforms agree on: [number, features] uniform in [−1, 1], or [number] in [0, 1] of a single feature."""
    return random.uniform(-1.0, 1.0, (number, features)) if features > 1 else random.random(number)


def plan(terms: Terms, home: PlatformFolder, random: np.random.Generator) -> None:
    """Let a platform explore one user, and tell it a model."""
    home.path.mkdir(parents=True, exist_ok=True)
    store = home.open_store("platform 0", terms)
    platform, world = PlanningPlatform(terms, 0, store), terms.protocol.world
    platform.begin("explorer")
    for _ in range(world.rounds_per_episode):
        platform.slate("explorer", items(random, world.candidates, world.features))
        platform.outcome("explorer", 0, 20.0)
    improve = terms.exchanges[-1].request
    weights = random.standard_normal(terms.protocol.learner.parameters).astype(np.float32) / 10
    platform.answer(
        terms.protocol.learner.release_rounds[-1], len(terms.exchanges) - 1, improve.encode(improve.message(weights))
    )
    store.close()


if __name__ == "__main__":
    main()
