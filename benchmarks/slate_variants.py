"""Planned slates and the baselines in worlds where users drift, platforms differ, and there are more of them.

Run it from a clone: ``python -m benchmarks.slate_variants``. Eight seeds a row, 1100 to 1107; rows that stand in
``reproductions/fedslate_2024/variants.json`` are not run again, so that it can be stopped at any time. Intervals are
Student's *t* over seeds, 95 %.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.planned_slates import SEED, SEEDS, measured

RESULTS = Path(__file__).parent.parent / "reproductions" / "fedslate_2024" / "variants.json"
#: Users who are explored.
USERS = 200


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


def main() -> None:
    """Measure the rows that are missing, and write them."""
    found = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {"rows": {}}
    for name, settings in ROWS.items():
        if name not in found["rows"]:
            found["rows"][name] = measured(settings, SEED, SEEDS)
            _write(found)
            share = found["rows"][name]["share of the gap"]
            print(f"{name}: {share['mean']:.0%} [{share['low']:.0%}, {share['high']:.0%}] of the gap", flush=True)


def _write(found: dict[str, Any]) -> None:
    found["seeds"] = list(range(SEED, SEED + SEEDS))
    RESULTS.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
