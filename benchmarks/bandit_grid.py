"""The table of decision rules (37 settings × 10 experiments × 15 rounds) at once, against one model at a time.

    python -m benchmarks.bandit_grid             # on heart-disease, or generated silos where that is not at hand
    python -m benchmarks.bandit_grid --seeds 2

The published way is a loop: one experiment after another, in each round one silo after another trains for E epochs, one
mini-batch after another. That loop is written here in plain NumPy, with batch normalisation and its gradient by hand.
It is timed for a number of local trainings and extrapolated to those that the table needs (only the silos that are
asked; judging left out, in its favour). Ours looks at every model on validation and test rows after every round.

The floor: the multiplications of the local trainings alone, at the speed of a large matrix product on this machine.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import time
from pathlib import Path
from typing import Any

import numpy as np

WIDTHS, EPOCHS, BATCH, RATE = (32, 16, 8), 6, 16, 0.05
_EPSILON, _MOMENTUM = 1e-5, 0.1
_ALPHAS = ["stationary", 0.25, 0.5, 0.75]
TABLE: list[dict[str, Any]] = [
    {"rule": "epsilon-greedy", "epsilon": [0.1, 0.2, 0.5], "alpha": _ALPHAS},
    {"rule": "thompson", "threshold": [0.01, 0.025, 0.05], "gamma": ["stationary", 0.5, 0.75, 1.0]},
    {"rule": "ucb", "c": [0.01, 0.05, 0.1], "alpha": _ALPHAS},
    {"rule": "ucb", "c": [0.05], "threshold": [0.025], "alpha": ["stationary", 0.75]},
    {"rule": "extreme-explore"},
    {"rule": "bayesian-extreme-explore", "threshold": [0.05]},
]


def main() -> None:
    """Parse arguments, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--trainings", type=int, default=100, help="local trainings of the loop that are timed")
    parser.add_argument("--json", action="store_true")
    results = measure(parser.parse_args())
    if results.pop("json"):
        print(json.dumps(results, indent=2))
        return
    print("{settings} settings × {seeds} experiments × {rounds} rounds, {data}".format(**results))
    print(f"  ours: {results['seconds']:.1f} s")
    print(f"  one model at a time (NumPy): {results['loop_seconds']:.0f} s for {results['loop_trainings']:,} trainings")
    print(f"  ratio: {results['ratio']:.0f}")
    print(f"  floor: {results['floor']:.2f} s of multiplications at {results['gflops']:.0f} GFLOP/s")


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """Both, one after the other, in one process."""
    from fedrank.core.errors import FedrankError
    from fedrank.silos.bandit_fedavg import BanditFedAvg
    from fedrank.silos.build import build_silos
    from fedrank.silos.config import Network, SiloRun, Silos
    from fedrank_zoo.reproduce.study import load_file

    method = BanditFedAvg(network=Network(widths=WIDTHS))
    settings: dict[str, Any] = {"rounds": arguments.rounds, "seeds": arguments.seeds, "method": method}
    try:
        config = SiloRun(data="heart-disease", silos=Silos(target="hungarian"), **settings)
        experiment = build_silos(config.resolved())
    except FedrankError:
        config = SiloRun(silos=Silos(target="hospital-A"), **settings)
        experiment = build_silos(config.resolved())
    rules = load_file(Path(__file__).parents[1] / "reproductions" / "mab_fl_2021" / "rules.py")
    todo = rules.cells(TABLE)
    played = rules.play_cells(experiment, todo)
    # In a round with m messages, m/2 − 1 silos train; before round 0 all do.
    asked = sum(float(messages) / 2 - 1 for messages in played.messages) * arguments.rounds * arguments.seeds
    trainings = int(asked + len(todo) * arguments.seeds * experiment.n_parties)
    first = experiment.arrays.train
    x, y, n = np.asarray(first.x)[0, 0], np.asarray(first.y)[0, 0], int(np.asarray(first.n)[0, 0])
    each = loop(x[:n], y[:n], arguments.trainings)
    gflops = _gflops()
    sizes = (experiment.table.n_features, *WIDTHS, 2)
    work = 6 * n * EPOCHS * sum(a * b for a, b in itertools.pairwise(sizes)) * trainings
    return {
        "json": arguments.json,
        "data": experiment.table.name,
        "cpus": len(os.sched_getaffinity(0)),
        "settings": len(todo),
        "seeds": arguments.seeds,
        "rounds": arguments.rounds,
        "seconds": played.seconds,
        "loop_trainings": trainings,
        "loop_seconds": each * trainings,
        "ratio": each * trainings / played.seconds,
        "floor": work / gflops / 1e9,
        "gflops": gflops,
    }


def loop(x: np.ndarray, y: np.ndarray, times: int, widths: tuple[int, ...] = WIDTHS) -> float:
    """CPU-seconds of one local training, written plainly."""
    random = np.random.default_rng(0)
    model = Model(x.shape[1], random, widths)
    before = time.process_time()
    for _ in range(times):
        for _ in range(EPOCHS):
            for batch in np.array_split(random.permutation(len(x)), -(-len(x) // BATCH)):
                model.step(x[batch], y[batch])
    return (time.process_time() - before) / times


class Model:
    """Linear layers with batch normalisation and ReLU between them, two logits, SGD: float32, one batch at a time."""

    def __init__(self, features: int, random: np.random.Generator, widths: tuple[int, ...] = WIDTHS):
        sizes, self.widths = (features, *widths, 2), widths
        self.weights = [
            random.normal(0, np.sqrt(2 / a), (a, b)).astype(np.float32) for a, b in itertools.pairwise(sizes)
        ]
        self.biases = [np.zeros(b, np.float32) for b in sizes[1:]]
        self.scales = [np.ones(b, np.float32) for b in widths]
        self.shifts = [np.zeros(b, np.float32) for b in widths]
        self.means = [np.zeros(b, np.float32) for b in widths]
        self.variances = [np.ones(b, np.float32) for b in widths]

    def step(self, x: np.ndarray, y: np.ndarray) -> None:
        """One step of SGD on a batch."""
        kept, inputs = [], [x]
        for i in range(len(self.widths)):
            z = inputs[-1] @ self.weights[i] + self.biases[i]
            mean, variance = z.mean(0), z.var(0)
            deviation = np.sqrt(variance + _EPSILON)
            normal = (z - mean) / deviation
            self.means[i] += _MOMENTUM * (mean - self.means[i])
            self.variances[i] += _MOMENTUM * (variance * len(x) / max(len(x) - 1, 1) - self.variances[i])
            out = normal * self.scales[i] + self.shifts[i]
            kept.append((normal, deviation, out))
            inputs.append(np.maximum(out, 0))
        logits = inputs[-1] @ self.weights[-1] + self.biases[-1]
        odds = np.exp(logits - logits.max(1, keepdims=True))
        slope = odds / odds.sum(1, keepdims=True)
        slope[np.arange(len(y)), y.astype(int)] -= 1
        slope /= len(y)
        for i in range(len(self.widths), -1, -1):
            below = slope @ self.weights[i].T
            self.weights[i] -= RATE * (inputs[i].T @ slope)
            self.biases[i] -= RATE * slope.sum(0)
            if i == 0:
                break
            normal, deviation, out = kept[i - 1]
            below = below * (out > 0)
            direct = below * self.scales[i - 1]
            self.scales[i - 1] -= RATE * (below * normal).sum(0)
            self.shifts[i - 1] -= RATE * below.sum(0)
            slope = (direct - direct.mean(0) - normal * (direct * normal).mean(0)) / deviation


def _gflops() -> float:
    """10⁹ operations a second of a large matrix product."""
    size = 1024
    one = np.ones((size, size), np.float32)
    before = time.perf_counter()
    for _ in range(5):
        one @ one
    return 5 * 2 * size**3 / (time.perf_counter() - before) / 1e9


if __name__ == "__main__":
    main()
