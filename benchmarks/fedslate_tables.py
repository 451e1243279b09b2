"""FedSlate's tables (Deng et al. 2024) at the paper's number of users, on all five seeds.

Run it from a clone: ``python -m benchmarks.fedslate_tables [--users 5000] [--only ten ten_variants]
[--cases "FedSlate, dense"] [--set slates.learn_every=3] [--out FOLDER] [--file RESULTS]``. Cells are those of
``reproductions/fedslate_2024/full``; one that has finished in FOLDER is not run again, and one that was stopped goes
on. ``fedrank reproduce reproductions/fedslate_2024/full`` makes pages of the same runs. Results go to RESULTS, by
default ``reproductions/fedslate_2024/full/results_USERS.json``: 128 fresh users a seed, without exploration; intervals
are Student's *t* over seeds, 95 %, and differences to fixed policies are for the same users. ``--show`` runs nothing
and prints the tables of that file in Markdown, as the README has them, and the CPU time.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

from fedrank.engine.config import RunConfig
from fedrank.engine.settings import with_setting
from fedrank.engine.sweep import run_sweep
from fedrank.engine.variations import Variation
from fedrank.report.load import load
from fedrank_zoo.reproduce.study import load_file, plan_runs, read_paper

PAPER = Path(__file__).parent.parent / "reproductions" / "fedslate_2024" / "full"
#: Rounds of a user, and evaluations of a run.
STAY, EVALUATIONS = 61, 5
#: Policies that both platforms are compared with.
POLICIES = ("random", "choc", "kale", "myopic", "optimum", "copying")


def of_length(config: RunConfig, users: int, settings: dict[str, Any]) -> RunConfig:
    """The same with so many users a run, and with other settings."""
    rounds = users * STAY
    changed = {"rounds": rounds, "evaluation.every": rounds // EVALUATIONS, **settings}
    for name, value in changed.items():
        config = with_setting(config, name, value)
    return config


def measured(folder: Path) -> dict[str, Any]:
    """What a finished run brings: engagement of fresh users at the end, beside what policies bring of the same users.

    Returns:
        ``A`` and ``B``; ``A, to random`` and so on, paired by seed; ``both, to`` each policy; ``policies``, means of A
        and B; ``published``, the publication's own metrics while learning.
    """
    found = json.loads((folder / "slates.json").read_text(encoding="utf-8"))["results"]
    out: dict[str, Any] = {}
    for name in "AB":
        measure = f"engagement ({name})"
        out[name] = _rounded(found["test"][measure])
        out[f"{name}, to random"] = _rounded(found["against"]["random"][measure])
    for policy in POLICIES:
        out[f"both, to {policy}"] = _rounded(found["against"][policy]["engagement"])
    out["policies"] = {
        policy: [
            round(found["test"][f"engagement ({name})"]["value"] - theirs[f"engagement ({name})"]["value"], 1)
            for name in "AB"
        ]
        for policy, theirs in found["against"].items()
    }
    legacy = load_file(PAPER.parent / "legacy.py").legacy_metrics(load(folder))
    out["published"] = {
        name: {"optimal reward": _rounded(_ends(of.reward)), "ETROR": list(of.etror)} for name, of in legacy.items()
    }
    return out


def _ends(found: Any) -> dict[str, float]:
    return {"value": found.mean, "low": found.low, "high": found.high}


def _rounded(interval: dict[str, float]) -> dict[str, float]:
    return {ours: round(interval[theirs], 1) for ours, theirs in (("mean", "value"), ("low", "low"), ("high", "high"))}


# -- tables ------------------------------------------------------------------------------------------------------------


def _number(value: float, signed: bool = False, digits: int = 0) -> str:
    return f"{value:{'+' if signed else ''}.{digits}f}".replace("-", "−")


def _level(of: dict[str, float]) -> str:
    return f"{_number(of['mean'])} ± {_number((of['high'] - of['low']) / 2)}"


def _gain(of: dict[str, float], digits: int = 0) -> str:
    low, high = (_number(of[end], digits=digits) for end in ("low", "high"))
    return f"{_number(of['mean'], True, digits)} [{low}, {high}]"


def table(cells: dict[str, Any]) -> str:
    """A study's cells in Markdown, with the policies that are served from beginning to end below them.

    The policies are those of the first cell: users and candidates of the others may differ by chance.
    """
    lines = [
        "| | A | A, to random | B | B, to random | both, to the optimum | B copying A, both | “optimal reward” A, B |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for case, row in cells.items():
        values = (_level(row["A"]), _gain(row["A, to random"]), _level(row["B"]), _gain(row["B, to random"]))
        copied = sum(row["policies"]["copying"]) if "copying" in row["policies"] else None
        best = ", ".join(_number(row["published"][name]["optimal reward"]["mean"]) for name in "AB")
        ends = (_gain(row["both, to optimum"], 1), "" if copied is None else _number(copied), best)
        lines.append("| " + " | ".join((case, *values, *ends)) + " |")
    first = next(iter(cells.values()))["policies"]
    best = sum(first["optimum"])
    for policy in ("random", "choc", "kale", "myopic", "optimum"):
        a, b = first[policy]
        over = [_number(mine - chance, True) for mine, chance in zip((a, b), first["random"], strict=True)]
        ends = (_number(a + b - best, True, 1), "", "")
        lines.append("| " + " | ".join((f"*{policy}*", _number(a), over[0], _number(b), over[1], *ends)) + " |")
    return "\n".join(lines)


def printed_table(studies: dict[str, Any]) -> str:
    """Every printed value beside ours, and beside chocolate from beginning to end (``full/constant.json``)."""
    printed = json.loads((PAPER / "expected.json").read_text(encoding="utf-8"))["values"]
    constant = json.loads((PAPER / "constant.json").read_text(encoding="utf-8"))
    settings = dict(
        zip(("ten", "hundred", "five_hundred"), (key for key in constant if key.startswith("N")), strict=True)
    )
    lines = ["| source | run | | printed | ours | chocolate |", "|---|---|---|---|---|---|"]
    for one in printed:
        metric, _, platform = one["measure"].rstrip(")").partition(" (")
        ours, never = (
            of[platform][metric]
            for of in (
                studies[one["study"]][one["where"]["case"]]["published"],
                constant[settings[one["study"]]],
            )
        )
        low, middle, high = never
        if metric == "ETROR":
            cells = f"{one['value']:,} | {sorted(ours)[len(ours) // 2]:,} ({min(ours):,} to {max(ours):,})"
        else:
            cells = f"{one['value']:,.0f} | {ours['mean']:,.0f} [{ours['low']:,.0f}, {ours['high']:,.0f}]"
        which = f"{one['where']['case']} | {platform}, {metric}"
        lines.append(f"| {one['source']} | {which} | {cells} | {middle:,.0f} ({low:,.0f} to {high:,.0f}) |")
    return "\n".join(lines)


def show(found: dict[str, Any]) -> None:
    """Print the tables of all studies, what they cost, and the printed values."""
    for name, cells in found["studies"].items():
        print(f"\n{name}\n\n{table(cells)}\n")
        costs = {case: row["CPU-seconds"] for case, row in cells.items() if "CPU-seconds" in row}
        print(f"CPU-seconds: {sum(costs.values())} ({', '.join(f'{case}: {cost}' for case, cost in costs.items())})")
    print(f"\n{printed_table(found['studies'])}")


def main() -> None:
    """Run the cells that are missing, and write what has finished."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    studies = {study.name: study for study in read_paper(str(PAPER)).studies}
    parser.add_argument("--users", type=int, default=5000, help="of a run")
    parser.add_argument("--only", nargs="*", choices=list(studies), help="studies; by default all")
    parser.add_argument("--cases", nargs="*", help="cases of the studies, by name; by default all")
    parser.add_argument("--set", nargs="*", default=[], metavar="NAME=VALUE", help="other settings, values as in JSON")
    parser.add_argument("--out", type=Path, default=Path("runs") / "fedslate-tables", help="folder of the runs")
    parser.add_argument("--file", type=Path, help="results; by default those of the reproduction")
    parser.add_argument("--show", action="store_true", help="run nothing, print the tables")
    given = parser.parse_args()
    file = given.file or PAPER / f"results_{given.users}.json"
    found = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {"users": given.users, "studies": {}}
    if given.show:
        show(found)
        return
    settings = {name: json.loads(value) for name, _, value in (text.partition("=") for text in given.set)}
    for name in given.only or studies:
        for variation in plan_runs(studies[name]):
            case = str(variation.where["case"])
            if given.cases and case not in given.cases:
                continue
            config = of_length(variation.config, given.users, settings)
            home, started = given.out / name / variation.name, time.process_time()
            whole = not home.exists()  # else a part of it has been run before, and is in no time measured here
            (folder,) = run_sweep([Variation(variation.name, config, variation.where)], given.out / name)
            row = measured(folder)
            cells = found["studies"].setdefault(name, {})
            if whole:
                row["CPU-seconds"] = round(time.process_time() - started)
            elif "CPU-seconds" in cells.get(case, {}):
                row["CPU-seconds"] = cells[case]["CPU-seconds"]
            row["learn_every"] = config.method.slates.learn_every  # type: ignore[attr-defined] - platforms have it
            cells[case] = row
            file.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
            print(f"{name}, {case}: A {row['A']['mean']:.0f}, B {row['B']['mean']:.0f}", flush=True)


if __name__ == "__main__":
    main()
