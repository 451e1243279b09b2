"""FedSlate's tables (Deng et al. 2024) with fewer users than the paper's 5,000, on all five seeds.

Run it from a clone: ``python -m benchmarks.fedslate_tables [--users 1000] [--only ten ten_variants] [--out FOLDER]``.
Cells are those of ``reproductions/fedslate_2024/full``; one that has finished in FOLDER is not run again, and one that
was stopped goes on. ``fedrank reproduce reproductions/fedslate_2024/full`` has them at the paper's length. Results
go to ``reproductions/fedslate_2024/full/results_USERS.json``: 128 fresh users a seed, without exploration; intervals
are Student's *t* over seeds, 95 %, and differences to fixed policies are for the same users.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from fedrank.engine.config import RunConfig
from fedrank.engine.settings import with_setting
from fedrank.engine.study import planned, read_paper
from fedrank.engine.sweep import run_sweep
from fedrank.engine.variations import Variation
from fedrank.metrics.returns import mean_interval

PAPER = Path(__file__).parent.parent / "reproductions" / "fedslate_2024" / "full"
#: Rounds of a user, and evaluations of a run.
STAY, EVALUATIONS = 61, 10


def shorter(config: RunConfig, users: int) -> RunConfig:
    """The same with so many users a run."""
    rounds = users * STAY
    return with_setting(with_setting(config, "rounds", rounds), "evaluation.every", rounds // EVALUATIONS)


def measured(folder: Path) -> dict[str, Any]:
    """What a finished run brings: engagement of fresh users at the end, and over random slates and the optimum."""
    last = pl.read_parquet(folder / "metrics.parquet").filter(pl.col("split") == "test")
    last = last.filter(pl.col("round") == last["round"].max())
    found = json.loads((folder / "baselines.json").read_text(encoding="utf-8"))["baselines"]
    policies = {one["name"]: np.array(one["runs"]) for one in found}
    ours = np.stack(
        [last.filter(pl.col("measure") == f"engagement ({name})").sort("seed")["value"].to_numpy() for name in "AB"], 1
    )
    out: dict[str, Any] = {}
    for place, name in enumerate("AB"):
        out[name] = _interval(ours[:, place])
        out[f"{name}, to random"] = _interval(ours[:, place] - policies["random"][:, place])
    for policy in ("random", "choc", "optimum"):
        out[f"both, to {policy}"] = _interval((ours - policies[policy]).sum(axis=1))
    return out


def _interval(values: Any) -> dict[str, float]:
    found = mean_interval(values)
    return {"mean": round(found.mean, 1), "low": round(found.low, 1), "high": round(found.high, 1)}


def main() -> None:
    """Run the cells that are missing, and write what has finished."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    studies = {study.name: study for study in read_paper(str(PAPER)).studies}
    parser.add_argument("--users", type=int, default=1000, help="of a run")
    parser.add_argument("--only", nargs="*", choices=list(studies), help="studies; by default all")
    parser.add_argument("--out", type=Path, default=Path("runs") / "fedslate-tables", help="folder of the runs")
    given = parser.parse_args()
    file = PAPER / f"results_{given.users}.json"
    found = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {"users": given.users, "studies": {}}
    for name in given.only or studies:
        for variation in planned(studies[name]):
            todo = Variation(variation.name, shorter(variation.config, given.users), variation.where)
            (folder,) = run_sweep([todo], given.out / name)
            case = str(variation.where["case"])
            row = found["studies"].setdefault(name, {})[case] = measured(folder)
            file.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
            print(f"{name}, {case}: A {row['A']['mean']:.0f}, B {row['B']['mean']:.0f}")


if __name__ == "__main__":
    main()
