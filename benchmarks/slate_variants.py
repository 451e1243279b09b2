"""Planned slates and the baselines in worlds where users drift, platforms differ, and there are more of them.

Run it from a clone: ``python -m benchmarks.slate_variants``. Eight seeds a row, 1100 to 1107; rows that stand in
``reproductions/fedslate_2024/variants.json`` are not run again, so that it can be stopped at any time. Intervals are
Student's *t* over seeds, 95 %. Interest evolution, in which planned slates do not run, is measured with its own
policies, 500 viewers a seed.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.planned_slates import SEED, SEEDS, measured
from fedrank.metrics.returns import mean_interval
from fedrank.slates.world.interest_evolution import InterestEvolution, price_of_time, sessions

RESULTS = Path(__file__).parent.parent / "reproductions" / "fedslate_2024" / "variants.json"
#: Users who are explored.
USERS = 200
VIEWERS = 500


def _row(stay: int = 61, **world: Any) -> dict[str, Any]:
    return {
        "rounds": USERS * stay,
        "world": {"preset": "tension", **world},
        "slates": {"feedback": "all", "explorers": USERS},
    }


ROWS = {
    "tension": _row(),
    "users drift to three times the sensitivity": _row(sensitivity=0.015, drift=1.0986),
    "users drift from three times the sensitivity": _row(sensitivity=0.045, drift=-1.0986),
    "A's users forgive (0.01), B's do not (0.05)": _row(sensitivities=[0.01, 0.05]),
    "A's users do not forgive (0.05), B's do (0.01)": _row(sensitivities=[0.05, 0.01]),
    "three platforms": _row(platforms=3),
    "three platforms, own items": _row(platforms=3, shared_candidates=False),
    "five platforms, own items": _row(platforms=5, shared_candidates=False),
    "RecSim's stock world": _row(60, preset="stock", platforms=1, slate=1, time_budget=60),
}


def evolution(platforms: int) -> dict[str, Any]:
    """Minutes that viewers watch, all platforms together, by policy."""
    world = InterestEvolution(platforms=platforms, shared_candidates=False)
    price = price_of_time(world, jax.random.split(jax.random.key(SEED - 1), VIEWERS))
    rows: dict[str, list[float]] = {"random": [], "short-sighted": [], "looking ahead": []}
    for seed in range(SEED, SEED + SEEDS):
        keys = jax.random.split(jax.random.key(seed), VIEWERS)
        for name, (ahead, value) in zip(rows, ((False, 0.0), (True, 0.0), (True, price)), strict=True):
            found = sessions(world, ahead, jnp.float32(value), keys)
            rows[name].append(float(np.asarray(found.minutes).sum(axis=1).mean()))
    return {"price of a minute": round(price, 3), **{name: _interval(values) for name, values in rows.items()}}


def _interval(values: Any) -> dict[str, float]:
    found = mean_interval(values)
    return {"mean": round(found.mean, 2), "low": round(found.low, 2), "high": round(found.high, 2)}


def main() -> None:
    """Measure the rows that are missing, and write them."""
    found = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {"rows": {}, "evolution": {}}
    for name, settings in ROWS.items():
        if name not in found["rows"]:
            found["rows"][name] = measured(settings, SEED, SEEDS)
            _write(found)
            share = found["rows"][name]["share of the gap"]
            print(f"{name}: {share['mean']:.0%} [{share['low']:.0%}, {share['high']:.0%}] of the gap", flush=True)
    for platforms in (1, 2):
        name = f"platforms: {platforms}"
        if name not in found["evolution"]:
            found["evolution"][name] = evolution(platforms)
            _write(found)
            print(name, found["evolution"][name], flush=True)


def _write(found: dict[str, Any]) -> None:
    found["seeds"] = list(range(SEED, SEED + SEEDS))
    RESULTS.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
