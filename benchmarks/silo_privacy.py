"""What a record's ε costs: test AUC of a silo that has others' messages with noise, and what an attack finds in them.

    python -m benchmarks.silo_privacy               # ten divisions of four tables, an attack on one; minutes

Results go to ``benchmarks/silo_privacy.json``. The tables are those of ``benchmarks/silo_answers.py``, the ranges what
codebooks say or nearly. Of tables with thousands of rows the target trains on 200, which is where others' rows are
worth most; a silo with many rows needs nobody. Networks are those of a run: each silo trains on 60 % of its rows, and
all are averaged in five rounds (FedAvg), with the same settings with noise and without. The settings were chosen on
other divisions of heart disease.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats
from threadpoolctl import threadpool_limits

from benchmarks.silo_answers import split, tables

RESULTS = Path(__file__).with_suffix(".json")
EPSILONS, DELTA = (1.0, 4.0, 8.0), 1e-6
#: Training rows of the target.
MOST = 200
#: First seed: those below were used while the mechanisms were chosen.
FIRST = 30_000

#: A run of networks: rounds, and what silos train.
ROUNDS, RATE = 5, 0.5
NETWORK: dict[str, Any] = {"widths": (16,), "norm": "layer", "epochs": 2, "batch": 64}

RANGES: dict[str, dict[str, tuple[float, float]]] = {
    "heart-disease": {
        "age": (20, 90), "sex": (0, 1), "trestbps": (80, 220), "chol": (100, 500), "fbs": (0, 1),
        "thalach": (60, 220), "exang": (0, 1), "oldpeak": (-3, 7),
    },
    "health-insurance": {"age": (18, 65), "family": (1, 12)},
    "NMES1988": {"chronic": (0, 8), "age": (6.5, 11), "school": (0, 18), "income": (0, 20)},
    "WVS": {"age": (18, 90)},
}  # fmt: skip


def divided(silos: list[Any], target: int, seed: int, ranges: Any) -> dict[str, float]:
    """Test AUC alone, with others' rows without noise, and with others' messages of each mechanism and ε."""
    from fedrank.silos.sceptic.auc import auc
    from fedrank.silos.sceptic.ways import Others, choose
    from fedrank_zoo.noisy_statistics.releases import perturb, release_sums
    from fedrank_zoo.noisy_statistics.ways import choose_privately

    rng = np.random.default_rng([FIRST + seed, target])
    mine, others = silos[target], [own for k, own in enumerate(silos) if k != target]
    test = split(mine.y, 0.3, rng)
    there = np.flatnonzero(~test)
    train = mine[rng.permutation(there)[:MOST]]
    if train.rarer < 4:
        train = mine[~test]

    def measured(model: Any) -> float:
        return round(auc(model(mine.x[test]), mine.y[test]).value, 5)

    ways = ("alone", "as-they-are", "federated", "shrunk", "stacked")
    chosen = choose(train, Others.of(others, rng), rng, ways)
    found = {"alone": measured(chosen.models["alone"]), "without noise": measured(chosen.models[chosen.best])}
    for name, send in (("sums", release_sums), ("model", perturb)):
        for epsilon in EPSILONS:
            sent = [send(one.x, one.y, ranges, epsilon, DELTA, rng) for one in others]
            made = choose_privately(train, sent, ranges, rng)
            found[f"{name}, ε = {epsilon:g}"] = measured(made.models[made.best])
    return found


def networks(table: Any, name: str, seeds: int, way: str) -> dict[str, list[float]]:
    """Test AUC of each silo that has one, by division, of the networks of one way."""
    from fedrank.engine.native import NativeSimulator
    from fedrank.silos.averaging import FedAvg
    from fedrank.silos.build import build_silos
    from fedrank.silos.config import Network, RecordPrivacy, SiloRun, Silos
    from fedrank.silos.rounds import SiloEvaluator, begin_runs, models_of_runs
    from fedrank_zoo.local_only import LocalOnly

    settings: dict[str, Any] = {"learning_rate": RATE, "network": Network(**NETWORK)}
    if way.startswith("ε = "):
        ranges = tuple(f"{c}={a}:{b}" for c, (a, b) in RANGES[name].items() if c in table.feature_names)
        settings["privacy"] = RecordPrivacy(epsilon=float(way[4:]), delta=DELTA, ranges=ranges)
    method = (LocalOnly if way == "alone" else FedAvg)(**settings)
    silos = Silos(target="all")
    config = SiloRun(method=method, data=name, seed=FIRST, seeds=seeds, rounds=ROUNDS, silos=silos)
    made = build_silos(config.resolved(), data=table)
    parties = made.parties_of_runs()
    simulator = NativeSimulator(made.protocol, parties, 1000, made.conditions)
    keys, states = begin_runs(made.protocol, made.seeds_of_runs, made.targets_of_runs)
    states, own, _ = simulator.advance(keys, states, parties.shared, parties.own, 0, ROUNDS)
    targets = np.tile(made.targets, (seeds, 1)).astype(np.int32)
    found = models_of_runs(made.protocol, states, parties.shared, own, targets)
    measure = SiloEvaluator(made.protocol, made.arrays, np.arange(seeds), targets)
    values = measure({"last": found["last"]})["test: last"]
    return {made.names[target]: [round(float(v), 5) for v in values[:, k]] for k, target in enumerate(made.targets)}


def summary_of_networks(found: dict[str, dict[str, dict[str, list[float]]]]) -> dict[str, Any]:
    """As :func:`summary`, of networks."""
    out: dict[str, Any] = {}
    for table, ways in found.items():
        each = {way: np.mean(list(of.values()), axis=0) for way, of in ways.items()}
        out[table] = _compared(each)
    return out


def summary(runs: dict[str, dict[str, dict[str, float]]]) -> dict[str, Any]:
    """Mean AUC over targets, and its difference to alone and to no noise with 95 % intervals over divisions."""
    out: dict[str, Any] = {}
    for table in RANGES:
        of = {name: one for name, one in runs.items() if name.startswith(f"{table}: ")}
        if not of:
            continue
        seeds = sorted(set.intersection(*(set(one) for one in of.values())), key=int)
        ways = list(next(iter(of.values()))[seeds[0]])
        each = {way: np.mean([[one[seed][way] for seed in seeds] for one in of.values()], axis=0) for way in ways}
        out[table] = _compared(each)
    return out


def _compared(each: dict[str, np.ndarray]) -> dict[str, dict[str, Any]]:
    """Mean AUC of each way, and its differences with 95 % intervals; AUCs are [divisions]."""
    return {
        way: {
            "auc": round(float(values.mean()), 4),
            "over alone": _interval(values - each["alone"]),
            "cost of noise": _interval(values - each["without noise"]),
        }
        for way, values in each.items()
    }


def _interval(values: np.ndarray) -> list[float]:
    half = float(stats.t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / len(values) ** 0.5)
    return [round(float(values.mean()) + sign * half, 4) for sign in (-1, 0, 1)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10, help="divisions of each table")
    parser.add_argument("--again", action="store_true", help="begin anew")
    asked = parser.parse_args()

    from fedrank.silos.sceptic.learners import rows_of
    from fedrank_zoo.noisy_statistics.ranges import ranges_of
    from fedrank_zoo.record_attack import MODES, RecordAttack
    from fedrank_zoo.record_attack.membership import attack_records

    kept = json.loads(RESULTS.read_text()) if RESULTS.exists() and not asked.again else {}
    runs, attacks, nets = kept.get("runs", {}), kept.get("attacks", []), kept.get("networks", {})

    def keep() -> None:
        lines = (f"  {json.dumps(name)}: {json.dumps(one, separators=(',', ':'))}" for name, one in runs.items())
        RESULTS.write_text(
            "{\n"
            + f'"summary": {json.dumps(summary(runs), indent=1, ensure_ascii=False)},\n'
            + f'"summary of networks": {json.dumps(summary_of_networks(nets), indent=1, ensure_ascii=False)},\n'
            + f'"attacks": {json.dumps(attacks, indent=1)},\n'
            + f'"networks": {json.dumps(nets, ensure_ascii=False)},\n'
            + '"runs": {\n' + ",\n".join(lines) + "\n}\n}\n",
            encoding="utf-8",
        )  # fmt: skip

    with threadpool_limits(1):
        for name, made in tables().items():
            table = made()
            silos = rows_of(table)
            given = {column: ends for column, ends in RANGES[name].items() if column in table.feature_names}
            ranges = ranges_of(table.feature_names, given)
            for target, silo in enumerate(table.names):
                of = runs.setdefault(f"{name}: {silo}", {})
                for seed in range(asked.seeds):
                    if str(seed) not in of:
                        of[str(seed)] = divided(silos, target, seed, ranges)
            keep()
            print(name, summary(runs)[name], file=sys.stderr, flush=True)
            made_so_far = nets.setdefault(name, {})
            for way in ("alone", "without noise", *(f"ε = {epsilon:g}" for epsilon in EPSILONS)):
                if way not in made_so_far:
                    made_so_far[way] = networks(table, name, asked.seeds, way)
            keep()
            print("networks of", name, summary_of_networks(nets)[name], file=sys.stderr, flush=True)
            if name == "heart-disease":
                todo = tuple(mode for mode in MODES if mode not in {one["mode"] for one in attacks})
                attacks += [one.as_json() for one in attack_records(silos[0], ranges, RecordAttack(modes=todo))]
                keep()
    print(json.dumps(summary(runs) | {"networks": summary_of_networks(nets)}, indent=1, ensure_ascii=False))


if __name__ == "__main__":
    main()
