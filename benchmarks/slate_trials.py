"""Trials of planned slates in worlds that they were not made for: true gains, verdicts, and what is served.

    python -m benchmarks.slate_trials [--only NAME ...]

Each row is eight seeds, 9700 to 9707: 200 explorers (1,600 where items have eight features), then a trial of 4,000
stays in four looks, with an ε in one. The true gain is that of the plan over random slates for 800 fresh users a seed,
at the platforms that have feedback, which a trial is about, and at all. Rows that stand in ``slate_trials.json`` are
not run again.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np

from fedrank.core.native import map_trees
from fedrank.core.protocol import Party
from fedrank.engine.settings import from_dict
from fedrank.slates.build import experiment_of
from fedrank.slates.results import fresh_users
from fedrank.slates.sums.stays import StayRounds
from fedrank.slates.sums.trial import verdict_json
from fedrank.slates.world.policies import TopFeature, play_together

RESULTS = Path(__file__).parent / "slate_trials.json"
SEEDS, FRESH, STAY = tuple(range(9700, 9708)), 800, 61


def _row(explorers: int = 200, epsilon: float | None = None, feedback: str = "first", **world: Any) -> dict[str, Any]:
    return {
        "protocol": "planned-slates",
        "rounds": (explorers + 4000) * STAY,
        "world": {"preset": "tension", **world},
        "slates": {"explorers": explorers, "feedback": feedback},
        "sharing": {} if epsilon is None else {"epsilon": epsilon},
        "privacy": {"delta": 1e-5},
    }


ROWS: dict[str, dict[str, Any]] = {
    "tension": _row(),
    "tension, ε = 2": _row(epsilon=2.0),
    "recsim": _row(preset="recsim"),
    "third kind": _row(departure="third-kind"),
    "third kind, ε = 2": _row(departure="third-kind", epsilon=2.0),
    "third kind, recsim": _row(departure="third-kind", preset="recsim"),
    "clickbait": _row(departure="clickbait"),
    "bots": _row(departure="bots"),
    "late at B": _row(departure="late"),
    "few at B": _row(departure="few"),
    "cascade": _row(departure="cascade"),
    "drift up": _row(drift=1.0),
    "drift down": _row(drift=-1.0),
    "τ = 0.005": _row(sensitivity=0.005),
    "τ = 0.02": _row(sensitivity=0.02),
    "τ = 0.06": _row(sensitivity=0.06),
    "τ = 0.03, 0.01": _row(sensitivities=[0.03, 0.01]),
    "20 explorers, ε = 2": _row(20, epsilon=2.0),
    "20 explorers": _row(20),
    "eight features": _row(1600, features=8),
    "both with feedback": _row(feedback="all"),
    "late at B, both with feedback": _row(feedback="all", departure="late"),
    "few at B, both with feedback": _row(feedback="all", departure="few"),
}


def measure(settings: dict[str, Any]) -> list[dict[str, Any]]:
    """True gains and verdict of each seed."""
    experiment = experiment_of(from_dict(settings).resolved())  # type: ignore[arg-type] - it is of platforms
    protocol: Any = experiment.protocol
    world, simulator = experiment.world, StayRounds(protocol)
    keys = simulator.keys(SEEDS)
    states, own = simulator.begin(keys, Party(None, None))
    states, own, _ = simulator.advance(keys, states, None, own, 0, settings["rounds"])
    server, users = states[0], fresh_users(SEEDS, FRESH, world.rounds_per_episode)
    planning = own._replace(verdict=np.zeros_like(own.verdict))

    def played(policy: Any) -> np.ndarray:
        return np.asarray(play_together(world, policy, users).engagement, np.float64).mean(axis=1)

    def by(state: Any) -> np.ndarray:
        return played(protocol.policy(server, map_trees(lambda leaf: leaf[:, None], state)))

    random = played(TopFeature(world, (0.0,) * world.platforms))
    sees, rows = list(protocol.feedback), []
    plan, served = by(planning), by(own)
    for run, seed in enumerate(SEEDS):
        state = map_trees(lambda leaf, run=run: np.asarray(leaf)[run], server)

        def gain(brought: np.ndarray, run: int = run, which: Any = slice(None)) -> float:
            return float(brought[run][which].sum() / random[run][which].sum() - 1)

        rows.append(
            {
                "seed": seed,
                "informs": bool(state.model.any()),
                "plan": gain(plan, which=sees),
                "plan, all platforms": gain(plan),
                "served, all platforms": gain(served),
                **verdict_json(protocol.verdict(state)),
            }
        )
    return rows


def main() -> None:
    """Run what is not there yet, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=list(ROWS))
    known = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for name in parser.parse_args().only:
        if name not in known:
            begun = time.process_time()
            known[name] = {"runs": measure(ROWS[name]), "cpu_seconds": round(time.process_time() - begun, 1)}
            RESULTS.write_text(json.dumps(known, indent=1, ensure_ascii=False) + "\n")
    print(
        "| world | plan over random at A | at all | half of the interval | served | at all, as served | residuals, z |"
    )
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for name, row in known.items():
        print(f"| {name} | {' | '.join(words_of(row['runs']))} |")


def words_of(runs: list[dict[str, Any]]) -> list[str]:
    """Cells of a row, percentages of engagement; means over seeds."""

    def mean(values: Any) -> str:
        found = [one for one in values if one is not None]
        return f"{100 * np.mean(found):+.1f} %" if found else "–"

    halves = [one["over_fallback"]["high"] - one["over_fallback"]["gain"] for one in runs if "over_fallback" in one]
    served = sum(one["serves"] == "plan" for one in runs)
    without = sum(not one["informs"] for one in runs)
    worst = [max(one["residuals"], key=abs) for one in runs]
    return [
        mean(one["plan"] for one in runs if one["informs"]),
        mean(one["plan, all platforms"] for one in runs if one["informs"]),
        mean(halves).lstrip("+"),
        f"{served} of {len(runs)}" + ("" if without == 0 else f", no model in {without}"),
        mean(one["served, all platforms"] for one in runs),
        f"{np.median(worst):.1f}",
    ]


if __name__ == "__main__":
    main()
