"""Two services, their coordinator and 200 users at once as processes; all of them are killed on the way.

Run it from a clone: ``python -m benchmarks.platform_federation [--users 200] [--seeds 8]``. In each of three worlds
whose items have eight features, so many users explore at once, the model crosses, and as many others are served by it
for 20 rounds. Each service and the coordinator is killed with SIGKILL while users explore, one service again while it
plans, and started anew with the same command. It prints quantiles of how long calls took, how long those took that
waited for a start, memory, bytes, and the largest difference between a number of the model and of that of a simulation
of the same seed, where nothing is killed: what a user adds is rounded to integers, of which one may be another where
products of many users are summed together. A client has one connection, so that its calls do not wait for each other.

How good plans are follows from simulations of 1,600 explorers, without noise and with an ε of 2: the share of the gap
from random slates to the optimum for the same fresh users, on seeds from the hash of the commit that is checked out.
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
from typing import Any

import numpy as np
import psutil
from safetensors.numpy import load_file
from typing_extensions import override

import fedrank
from fedrank.core.frame import Frame
from fedrank.core.ledger import Ledger
from fedrank.deploy.platforms.client import PlatformClient, visits
from fedrank.deploy.platforms.folder import PlatformFolder, Terms
from fedrank.engine.settings import from_dict, to_toml

RESULT = Path(__file__).with_suffix(".json")
WORLDS = ("tension", "recsim", "paper")
STAY, FEATURES, EXPLORERS = 61, 8, 1600
#: Rounds of a user who is served by the plan of processes.
SERVED = 20


class TimedClient(PlatformClient):
    """A client that keeps how many seconds each call took, in ``took``."""

    took: list[float]

    @override
    def _ask(self, *said: Any, **more: Any) -> Any:
        begun = time.perf_counter()
        answer = super()._ask(*said, **more)
        self.took.append(time.perf_counter() - begun)
        return answer


class Process:
    """A command of fedrank that can be killed and started again; ``words`` are its arguments."""

    def __init__(self, *words: Any):
        self.words = [sys.executable, "-m", "fedrank", *map(str, words)]
        self.start()

    def start(self, more: tuple[str, ...] = ()) -> None:
        """Start it with ``more`` arguments."""
        self.now = subprocess.Popen([*self.words, *more], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def kill_and_start(self, more: tuple[str, ...] = ()) -> None:
        """Kill it with SIGKILL, and start it with ``more`` arguments."""
        self.now.send_signal(signal.SIGKILL)
        self.now.wait()
        self.start(more)

    @property
    def megabytes(self) -> float:
        """Its resident memory in 10⁶ bytes."""
        return psutil.Process(self.now.pid).memory_info().rss / 1e6


def settings_of(world: str, users: int, explorers: int, epsilon: float | None = None) -> dict[str, Any]:
    """Settings of a run of planned slates, without a trial."""
    private = {} if epsilon is None else {"sharing": {"epsilon": epsilon}, "privacy": {"delta": 1e-5}}
    slates = {"explorers": explorers, "trial": 0}
    return {"rounds": users * STAY, "world": {"preset": world, "features": FEATURES}, "slates": slates, **private}


def federated(folder: Path, world: str, users: int) -> dict[str, Any]:
    """What processes take and bring in one world; see the module.

    Args:
        folder: An empty one.
        world: Name of its preset.
        users: Users who explore, and who are served by the plan, at the same time.
    """
    given, homes, config = settings_of(world, 2 * users, users), [folder / "a", folder / "b"], folder / "run.toml"
    terms = Terms.of(from_dict({"protocol": "planned-slates", **given}), seeded=True)
    config.write_text(to_toml(terms.config), encoding="utf-8")
    same = ("--config", config, "--chance", "seed")
    running = [Process("slates", "serve", home, "--index", index, *same) for index, home in enumerate(homes)]
    try:
        while not all((home / "application.url").exists() for home in homes):
            time.sleep(0.1)
        places = [PlatformFolder(home) for home in homes]
        ports = [[home.url(who).rpartition(":")[2] for who in ("coordinator", "application")] for home in places]
        where = [word for home in homes for word in ("--platform", home)]
        running.append(Process("slates", "coordinate", folder / "c", *where, *same, "--wait"))
        clients: list[Any] = [TimedClient.of_folder(home, patience=120.0) for home in homes]
        for client in clients:
            client.took = []
        rounds, memory = users * STAY, {}
        last = rounds + users * SERVED
        kills = {rounds // 4: (0,), rounds // 2: (1, 2), (rounds + last) // 2: (0,)}
        for part in (users, 2 * users):
            seen = visits(terms, clients, part, at_once=users)
            for number, _ in enumerate(seen, 0 if part == users else rounds):
                for which in kills.get(number, ()):
                    port = ("--port", ports[which][0], "--application-port", ports[which][1]) if which < 2 else ()
                    running[which].kill_and_start(port)
                if number == last:
                    break
            if part == users:
                assert running[2].now.wait(120) == 0, "the coordinator has ended with an error"
            memory |= {"explores" if part == users else "plans": [round(one.megabytes, 1) for one in running[:2]]}
        model = load_file(folder / "c" / "federated.safetensors")["model"]
        crossed = sum(entry.bytes for entry in Ledger.read(folder / "c" / "ledger.jsonl"))
    finally:
        for one in running:
            one.now.terminate()
            one.now.wait()
    simulated = fedrank.train("planned-slates", folder=folder / "run", **given, seeds=1)
    expected: Any = fedrank.load(simulated.path)
    took = 1000 * np.concatenate([client.took for client in clients])
    waited = np.sort(took)[-sum(which < 2 for all_ in kills.values() for which in all_) :]
    calls = {f"p{q}": round(float(np.percentile(took, q)), 2) for q in (50, 90, 99, 99.9)}
    return {
        "calls": len(took),
        "ms": calls,
        "seconds until a killed service answers": [round(one / 1000, 2) for one in waited.tolist()],
        "MB of each service": memory,
        "bytes that cross": crossed,
        "model less the simulation's, largest": float(np.abs(model - expected.model).max()),
    }


def judged(world: str, seed: int, seeds: int, epsilon: float | None) -> dict[str, Any]:
    """Share of the gap that plans of 1,600 explorers close, by seed, and engagement over random slates.

    Args:
        world: Name of the world's preset.
        seed: The first seed.
        seeds: How many.
        epsilon: ε of a user's stay; None: no noise.
    """
    given, rounds = settings_of(world, EXPLORERS, EXPLORERS, epsilon), EXPLORERS * STAY
    evaluation = {"every": rounds, "episodes": 256, "baselines": ["random", "optimum"]}
    with tempfile.TemporaryDirectory() as home:
        more = {"seeds": seeds, "seed": seed, "evaluation": evaluation}
        folder = fedrank.train("planned-slates", folder=Path(home) / "run", **given, **more).path
        table = Frame.from_parquet((folder / "metrics.parquet").read_bytes())
        rows = json.loads((folder / "baselines.json").read_text(encoding="utf-8"))["baselines"]
    ours = table.where(split="test", round=rounds, measure="engagement").sort("seed")["value"]
    fixed = {one["name"]: np.array(one["runs"]).sum(axis=1) for one in rows}
    gain, gap = ours - fixed["random"], fixed["optimum"] - fixed["random"]
    return {
        "share of the gap": round(float((gain / gap).mean()), 3),
        "by seed": np.round(gain / gap, 3).tolist(),
        "over random, percent": round(float(100 * (gain / fixed["random"]).mean()), 2),
    }


def main() -> None:
    """Measure, print and write :data:`RESULT`."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--users", type=int, default=200, help="at once, who explore, and as many for the plan")
    parser.add_argument("--seeds", type=int, default=8, help="of each simulation")
    given = parser.parse_args()
    commit = subprocess.check_output(["git", "rev-parse", "HEAD"], text=True).strip()
    seed = int(commit[:6], 16)
    found: dict[str, Any] = {**vars(given), "commit": commit, "first seed": seed, "processes": {}, "simulations": {}}
    for world in WORLDS:
        with tempfile.TemporaryDirectory() as folder:
            found["processes"][world] = federated(Path(folder), world, given.users)
        print(world, found["processes"][world], flush=True)
    for world in WORLDS:
        for epsilon in (None, 2.0):
            name = world if epsilon is None else f"{world}, ε = {epsilon:g}"
            found["simulations"][name] = judged(world, seed, given.seeds, epsilon)
            print(name, found["simulations"][name], flush=True)
    RESULT.write_text(json.dumps(found, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
