"""A run directory of a protocol between silos, written file by file to the schema; the tests of the report read it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import polars as pl

from fedrank.core.ledger import Entry, Ledger
from fedrank.core.privacy_report import PrivacyReport

NAMES = ("cleveland", "hungarian", "switzerland", "long-beach")
PARAMETERS = 1186

CONFIG = """\
protocol = "{protocol}"
data = "{data}"
clicks = "navigational"
clients = 2000
rounds = {rounds}
seeds = {seeds}

[silos]
target = "{target}"
train = 40.0
inverted = "{inverted}"

[network]
widths = [32, 16, 8]
norm = "batch"
epochs = 6

[bandit]
rule = "{rule}"
"""

#: What a silo is worth to any target, in AUC; the factory draws increments around it.
WORTH = {"cleveland": -0.09, "hungarian": 0.03, "switzerland": 0.0, "long-beach": 0.015}


def arms_of(target: str, names=NAMES) -> list[dict]:
    """The target alone, then with each other silo."""
    t = names.index(target)
    arms = []
    for j in [t, *(j for j in range(len(names)) if j != t)]:
        members = [i in (t, j) for i in range(len(names))]
        name = f"{target} alone" if j == t else f"{target} + {names[j]}"
        arms.append({"code": "".join("01"[m] for m in members), "name": name, "members": members})
    return arms


def make_silo_run(
    folder: Path,
    *,
    target: str = "hungarian",
    names: tuple[str, ...] = NAMES,
    protocol: str = "bandit-fedavg",
    rule: str = "extreme-explore",
    seeds: int = 6,
    rounds: int = 15,
    inverted: str = "",
    generated: bool = False,
    data: str = "heart-disease",
    lift: float = 0.0,
    explores: bool = True,
    marks: bool = True,
    done: bool = True,
) -> Path:
    """Write ``folder`` as a run; returns it.

    Args:
        folder: Where; made if it is missing.
        target: A name, or "all".
        names: Of the silos.
        protocol: "bandit-fedavg", or one without arms.
        rule: Decision rule.
        seeds: How many.
        rounds: How many.
        inverted: Which silo's labels are turned round.
        generated: Whether the data is.
        data: Its name.
        lift: Added to every AUC.
        explores: Whether every round observes all arms, or only the one that it plays.
        marks: Whether the run knows what the target reaches alone and with everyone.
        done: Whether the run came to its end.
    """
    folder.mkdir(parents=True, exist_ok=True)
    targets = list(names) if target == "all" else [target]
    bandit = protocol == "bandit-fedavg"
    rng = np.random.default_rng(7)
    settings = {"protocol": protocol, "data": data, "rounds": rounds, "seeds": seeds, "target": target, "rule": rule}
    (folder / "config.toml").write_text(CONFIG.format(**settings, inverted=inverted))
    said = {"fedrank": "0.1.0", "python": "3.11.7", "platform": "Linux x86_64", "seconds": 4.2}
    (folder / "environment.json").write_text(json.dumps(said | {"command": "fedrank run it.toml", "citations": []}))

    metrics, plays = [], []
    for t in targets:
        arms = arms_of(t, names)
        worth = np.array(
            [sum(WORTH.get(n, 0.0) for n, m in zip(names, a["members"], strict=True) if m and n != t) for a in arms]
        )
        for seed in range(seeds):
            estimate, counts, best, messages = np.full(len(arms), 0.05), np.zeros(len(arms)), 0.0, 6
            for r in range(1, rounds + 1):
                gains = np.clip(worth + rng.normal(0, 0.015, len(arms)), -1, 1)
                arm = int(np.argmax(gains if explores else estimate))
                seen = np.arange(len(arms)) == arm if not explores else np.ones(len(arms), bool)
                counts += seen
                estimate = np.where(seen, estimate + (gains - estimate) / np.maximum(counts, 1), estimate)
                messages += 10 if explores else 6
                base = 0.79 + lift - 0.12 * np.exp(-r / 3) + 0.004 * rng.normal() + 0.01 * (seed % 3)
                best = max(best, base)
                at = {"seed": seed, "round": r, "interactions": messages + seed % 2}
                at |= {"bytes_up": 4 * PARAMETERS * messages // 2, "epsilon": None}
                tail = f" ({t})" if target == "all" else ""
                for split, shift in (("vali", 0.01), ("test", 0.0)):
                    metrics.append({**at, "split": split, "measure": f"AUC{tail}", "value": base + shift})
                    metrics.append({**at, "split": split, "measure": f"AUC, best so far{tail}", "value": best + shift})
                if not bandit:
                    continue
                metrics.append({**at, "split": "online", "measure": f"increment{tail}", "value": gains[arm]})
                for i, a in enumerate(arms):
                    row = {"seed": seed, "target": t, "round": r - 1, "arm": i, "code": a["code"], "played": i == arm}
                    row |= {"explored": explores, "increment": float(gains[i]) if seen[i] else None}
                    plays.append({**row, "estimate": float(estimate[i])})
    kinds = {"epsilon": pl.Float64}
    pl.DataFrame(metrics, schema_overrides=kinds, infer_schema_length=None).write_parquet(folder / "metrics.parquet")

    rows = {n: {"train": 40, "vali": 84, "test": 125, "positive": 0.36 + 0.05 * i} for i, n in enumerate(names)}
    if "switzerland" in rows:
        rows["switzerland"] = {"train": 40, "vali": 2, "test": 4, "positive": 1.0}
    undefined = ["switzerland: all validation rows have label 1, AUC is undefined."]
    silos = {
        "silos": names, "targets": targets, "rule": rule if bandit else None, "rows": rows, "generated": generated,
        "arms": {t: arms_of(t, names) for t in targets} if bandit else {}, "notes": ["Rows with gaps are dropped."],
        "undefined": undefined if "switzerland" in rows else [],
    }  # fmt: skip
    (folder / "silos.json").write_text(json.dumps(silos))
    tails = [f" ({t})" for t in targets] if target == "all" else [""]
    known = [
        {"name": name, "notes": [], "values": [{"split": "test", "measure": f"AUC{t}", "value": level} for t in tails]}
        for name, level in (("alone", 0.76), ("everyone", 0.78))
    ]
    (folder / "baselines.json").write_text(json.dumps({"baselines": known if marks else []}))
    (folder / "evidence.json").write_text(json.dumps({t: _against(seeds) for t in targets} if marks else {}))
    if bandit:
        kinds = {"increment": pl.Float64}
        frame = pl.DataFrame(plays, schema_overrides=kinds, infer_schema_length=None)
        frame.write_parquet(folder / "arms.parquet")
        found = {
            t: _evidence(t, names, frame, inverted, seeds, rounds) | (_against(seeds) if marks else {}) for t in targets
        }
        (folder / "evidence.json").write_text(json.dumps(found))

    entries = [_entry(0, "pretrain", "Ready", "parties", len(names), 5)]
    for r in range(rounds):
        asked = len(names) if explores else 2
        entries += [
            _entry(r, "train", "Model", "server", asked, 5 + 4 * PARAMETERS),
            _entry(r, "train", "Trained", "parties", asked, 5 + 4 * PARAMETERS),
            _entry(r, "judge-all", "Candidates", "server", 1, 1 + 4 * 3 * PARAMETERS),
            _entry(r, "judge-all", "Judged", "parties", 1, 1 + 4 + 4 * 3),
        ]
    Ledger(entries).write(folder / "ledger.jsonl")
    header = {"name": "header", "dtype": "u1", "bytes": 1, "meaning": "message kind and version"}
    weights = {"name": "weights", "dtype": "f4", "bytes": 4 * PARAMETERS, "meaning": "the model to start from"}
    number = {"name": "rows", "dtype": "u4", "bytes": 4, "meaning": "number of rows that the silo trains on"}
    several = {"name": "models", "dtype": "f4", "bytes": 12 * PARAMETERS, "meaning": "averages of silos' models"}
    judged = {"name": "models", "dtype": "f4", "bytes": 12, "meaning": "how good each of them is on the target's rows"}
    own = {"name": "own", "dtype": "f4", "bytes": 4, "meaning": "how good the target's own local model is"}
    fields = {"Ready": [number], "Model": [number, weights], "Trained": [weights, number], "Candidates": [several]}
    fields |= {"Judged": [own, judged]}
    (folder / "messages.json").write_text(json.dumps({name: [header, *some] for name, some in fields.items()}))
    seen = "Nothing is noised. The server sees the model of every silo that takes part as it is."
    (folder / "privacy.json").write_text(json.dumps(PrivacyReport.none(rounds, seen).as_json()))
    (folder / "model.json").write_text(json.dumps({"n_features": 13}))
    if done:
        (folder / "done.json").write_text("{}")
    return folder


def _entry(round_: int, exchange: str, message: str, sender: str, messages: int, size: int) -> Entry:
    return Entry(round_, exchange, message, sender, "parties" if sender == "server" else "server", messages, size)


def _evidence(target, names, plays, inverted, seeds, rounds) -> dict:
    """Plausible numbers: the tests check that they are shown, not how they came about."""
    silos = {}
    for n in names:
        if n == target:
            continue
        mean = WORTH.get(n, 0.0)
        verdict = "harms" if mean < -0.05 else "helps" if mean > 0.02 else "no evidence"
        one = {"n": seeds * rounds, "mean": mean, "low": mean - 0.02, "high": mean + 0.025, "verdict": verdict}
        if seeds < 3:
            one |= {"low": None, "high": None, "verdict": (verdict := "no evidence")}
        one |= {"seeds": seeds, "p": 0.3 if verdict == "no evidence" else 0.0004, "inverted": None}
        if inverted:
            bad = n == inverted
            words = "labels look inverted" if bad else "no sign of inverted labels"
            one["inverted"] = {
                "auc": 0.23 if bad else 0.71,
                "p": 0.00004 if bad else 0.99,
                "verdict": words,
                "first": 0.3 if bad else 0.7,
            }
        silos[n] = one | {"shapley": {"mean": mean / 2, "low": mean / 2 - 0.01, "high": mean / 2 + 0.01}}
    shares = plays.filter(pl.col("played") & (pl.col("target") == target)).group_by("code").agg(pl.len())
    out = {"silos": silos, "played": {code: count / (seeds * rounds) for code, count in shares.iter_rows()}}
    return out | {"level": 0.05, "statements": 2 * len(silos)}


def _against(seeds: int) -> dict:
    gains = {"alone": {"mean": 0.04, "low": 0.03, "high": 0.05}, "everyone": {"mean": 0.02, "low": -0.01, "high": 0.05}}
    if seeds < 3:  # as a run writes them
        gains = {name: {**one, "low": None, "high": None} for name, one in gains.items()}
    return {"against": {name: {"last": {**one, "mean": 0.0}, "best": one} for name, one in gains.items()}}
