"""Figures 5 to 8 of FedSlate (Deng et al. 2024), and what its metrics come to for policies that never change.

Run it from a clone: ``python -m benchmarks.fedslate_figures --runs FOLDER`` draws ``figure5.svg`` to ``figure8.svg`` of
five runs in FOLDER that it makes if they are not there, three CPU-minutes each. ``--constant`` writes
``full/constant.json``.

Curves are the publication's: the mean of the last 100 users while learning, after every 20, without their first round,
of one seed (400) and 100 candidates. Crosses are the maxima that it prints, at the episodes that it prints. What they
come to for chocolate from beginning to end is drawn from the mean and spread of 3,000 users.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

from fedrank.core.frame import Frame
from fedrank.core.lazy import jax
from fedrank.engine.settings import with_setting
from fedrank.engine.sweep import run_sweep
from fedrank.engine.variations import Variation
from fedrank.report.charts import (
    INK,
    MUTED,
    OKABE_ITO,
    Entry,
    Panel,
    compose,
    cross,
    decimal_labels,
    nice_domain,
    si_label,
    ticks,
)
from fedrank.report.figures import save
from fedrank.slates.world.policies import TopFeature, rollout
from fedrank.slates.world.satisfaction import preset
from fedrank_zoo.reproduce.study import load_file, plan_runs, read_paper

PAPER = Path(__file__).parent.parent / "reproductions" / "fedslate_2024"
LEGACY = load_file(PAPER / "legacy.py")
USERS, SEED = 5000, 7100
#: Users whose engagement is measured, and curves that are drawn from its mean and spread.
_PLAYED, _CURVES = 3000, 200
#: Users that are played at once, so that a block of candidates fits into the memory.
_BLOCK = 500
SETTINGS = {"N = 10, n = 3": (10, 3), "N = 100, n = 10": (100, 10), "N = 500, n = 10": (500, 10)}
POLICIES = {"chocolate": 1.0, "random": 0.0}
#: Of a figure: its title, platforms, and cases with the printed ETROR and optimal reward of each platform.
FIGURES: dict[int, tuple[str, str, dict[str, dict[str, tuple[int, float]]]]] = {
    5: ("A by itself and in FedSlate", "A", {
        "SlateQ, A alone": {"A": (3400, 1115.072)}, "FedSlate, dense": {"A": (2340, 1106.57)},
    }),
    6: ("B, which has no feedback", "B", {"FedSlate, dense": {"B": (2800, 1102.269)}}),
    7: ("The ablation: a linear global network", "AB", {
        "FedSlate, dense": {"A": (2340, 1115.072), "B": (2800, 1102.269)}, "FedSlate, dense, linear": {},
    }),
    8: ("Each platform its own items: sparse", "AB", {
        "FedSlate, sparse": {"A": (3540, 1081.422), "B": (2940, 1042.926)},
        "FedSlate, sparse, extended": {"A": (2280, 1091.515), "B": (780, 1108.855)},
    }),
}  # fmt: skip


def play(setting: tuple[int, int], sign: float, seed: int, users: int = USERS) -> np.ndarray:
    """Engagement of users [users, platforms] without their first round, by a policy that never changes."""
    candidates, slate = setting
    world = preset("recsim", candidates=candidates, slate=slate)
    policy = TopFeature(world, (sign,) * world.platforms)

    @jax.jit
    def together(keys: Any) -> Any:
        return jax.vmap(lambda key: rollout(world, policy, key).engagement[1:].sum(axis=0))(keys)

    keys = jax.random.split(jax.random.key(seed), users)
    return np.concatenate([together(keys[at : at + _BLOCK]) for at in range(0, users, _BLOCK)]).astype(np.float64)


def measure_constant() -> dict[str, Any]:
    """The publication's metrics for chocolate from beginning to end, by setting and platform: median, and middle 80 %.

    A user's engagement is a sum over 60 rounds and nearly normal, so that curves are drawn from its mean and spread.
    """
    out: dict[str, Any] = {"users": USERS, "played": _PLAYED, "seed": SEED}
    for name, setting in SETTINGS.items():
        returns, rng, found = play(setting, POLICIES["chocolate"], SEED, _PLAYED), np.random.default_rng(SEED), {}
        for place, platform in enumerate("AB"):
            mean, spread = float(returns[:, place].mean()), float(returns[:, place].std(ddof=1))
            metrics = LEGACY.max_of_moving_mean(rng.normal(mean, spread, (_CURVES, USERS)))
            found[platform] = {
                "mean": round(mean, 1),
                "half": round(1.96 * spread / _PLAYED**0.5, 1),
                "optimal reward": np.percentile(metrics.optimal_reward, (10, 50, 90)).round(1).tolist(),
                "ETROR": np.percentile(metrics.etror, (10, 50, 90)).round().tolist(),
            }
        out[name] = found
    return out


def curve(returns: np.ndarray) -> list[tuple[float, float]]:
    """The publication's curve of users in their order: users so far, and mean of the last 100."""
    window, every = LEGACY.WINDOW, LEGACY.EVERY
    ends = range(window, len(returns) + 1, every)
    return [(float(end), float(returns[end - window : end].mean())) for end in ends]


def curves_of(runs: Path) -> dict[str, dict[str, list[tuple[float, float]]]]:
    """Curves by case and platform of the runs in a folder, and of the policies that never change."""
    out: dict[str, dict[str, list[tuple[float, float]]]] = {}
    (study,) = (one for one in read_paper(str(PAPER / "full")).studies if one.name == "hundred")
    cases = {case for _, _, shown in FIGURES.values() for case in shown}
    for cell in plan_runs(study):
        case = str(cell.where["case"])
        if case not in cases:
            continue
        (folder,) = run_sweep([Variation(cell.name, with_setting(cell.config, "seeds", 1), cell.where)], runs)
        frame = Frame.from_parquet((folder / "episodes.parquet").read_bytes())
        for platform in "AB":
            mine = frame.where(platform=platform).sort("episode")
            out.setdefault(case, {})[platform] = curve(mine["engagement"] - mine["first"])
    for policy, sign in POLICIES.items():
        returns = play(SETTINGS["N = 100, n = 10"], sign, SEED)
        out[policy] = {platform: curve(returns[:, place]) for place, platform in enumerate("AB")}
    return out


def draw(number: int, curves: dict[str, dict[str, list[tuple[float, float]]]]) -> None:
    """Write one figure beside the README."""
    title, platforms, cases = FIGURES[number]
    colours = {case: OKABE_ITO[place] for place, case in enumerate(cases)} | {"chocolate": INK, "random": MUTED}
    panels = []
    for platform in platforms:
        printed = {case: said[platform] for case, said in cases.items() if platform in said}
        values = [value for case in colours for _, value in curves[case][platform]]
        domain = nice_domain([*values, *(reward for _, reward in printed.values())])
        panel = Panel(340, 210, (0.0, USERS), domain, title=f"Platform {platform}" if len(platforms) > 1 else "")
        levels, places = ticks(*domain, 6), ticks(0.0, USERS, 5, whole=True)
        panel.y_axis(levels, decimal_labels(levels), "engagement of a user")
        panel.x_axis(places, si_label, "users served so far")
        for case, colour in colours.items():
            panel.line(curves[case][platform], colour, width=1.5, dash="5 4" if case in POLICIES else None)
        for case, (episode, reward) in printed.items():
            note = f"{case}, printed: {reward:,.0f} at {episode:,}"
            panel.add(cross(panel.x(episode), panel.y(reward), colours[case], note=note))
        panels.append(panel)
    legend = [Entry(case, colour, dash="5 4" if case in POLICIES else None) for case, colour in colours.items()]
    said = [
        "100 candidates, one seed; mean of the last 100 users while learning",
        "crosses: the maxima that are printed",
    ]
    save(compose(panels, f"Figure {number}: {title}", said, legend), PAPER / f"figure{number}.svg")


def main() -> None:
    """Draw, or measure policies that never change."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=Path, help="folder of the figures' runs")
    parser.add_argument("--constant", action="store_true", help="measure policies that never change")
    given = parser.parse_args()
    if given.runs:
        curves = curves_of(given.runs)
        for number in FIGURES:
            draw(number, curves)
    if given.constant:
        file = PAPER / "full" / "constant.json"
        file.write_text(json.dumps(measure_constant(), indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
