"""A small run directory, written file by file to the schema; the tests of the report read it."""

from __future__ import annotations

import json
import math
from pathlib import Path

import polars as pl

from fedrank.core.ledger import Entry, Ledger
from fedrank.privacy.accounts.randomised_response import account

MEASURES = ("expected MaxRR (navigational)", "nDCG(dcg='exp-log2')@10", "nDCG(dcg='exp-log2')@10 (judged)")
BASELINE = {"train": 0.70, "vali": 0.66, "test": 0.68}

CONFIG = """\
protocol = "foltr-es"
data = "{data}"
fold = {fold}
clicks = "{clicks}"
ranker = "linear"
clients = {clients}
interactions = 4
rounds = {rounds}
reward = "MaxRR"
sigma = 0.01
learning_rate = 0.001
seeds = {seeds}

[privacy]
p = {p}
"""


def value(seed: int, round_: int, rounds: int, split: str, measure: str, lift: float = 0.0) -> float:
    """What the metrics of a made run hold: a saturating curve, shifted by split, measure and seed."""
    base = {"online": 0.40, "train": 0.46, "vali": 0.43, "test": 0.44}[split]
    base += 0.03 * MEASURES.index(measure) if measure in MEASURES else 0.0
    wobble = 0.004 * math.sin(12.9898 * (seed + 1) + 0.7 * round_ + len(split))
    return (
        base
        + lift
        + 0.2 * (1 - math.exp(-4 * round_ / rounds))
        + 0.003 * seed
        + (0.02 if split == "online" else 0.2) * wobble
    )


def make_run(
    folder: Path,
    *,
    clicks: str = "navigational",
    caveat: str = "",
    seeds: int = 2,
    rounds: int = 6,
    clients: int = 10,
    p: float = 0.9,
    data: str = "mq2008",
    fold: int = 1,
    lift: float = 0.0,
    done: bool = True,
    asked_rounds: int | None = None,
    asked_seeds: int | None = None,
    first_seed: int = 0,
    every: int = 2,
    environment: dict | None = None,
) -> Path:
    """Write ``folder`` as a run of ``seeds`` × ``rounds``; returns it."""
    folder.mkdir(parents=True, exist_ok=True)
    asked_rounds = asked_rounds or rounds
    values = {
        "clicks": clicks,
        "clients": clients,
        "rounds": asked_rounds,
        "seeds": asked_seeds or seeds,
        "data": data,
        "fold": fold,
        "p": p,
    }
    (folder / "config.toml").write_text(CONFIG.format(**values))
    said = {
        "fedrank": "0.1.0",
        "python": "3.11.7",
        "jax": "0.6.0",
        "numpy": "2.4.0",
        "platform": "Linux x86_64",
        "cpus": 2,
    }
    said |= {"device": "cpu", "seconds": 12.5, "interactions_per_second": 640000.0}
    said |= {"command": "fedrank run made.toml", "citations": ["kharitonov2019foltr"]}
    (folder / "environment.json").write_text(json.dumps(said | (environment or {})))
    epsilon = None if p == 1 else 4 * math.log(p * 10 / (1 - p))
    rows = []
    for seed in range(first_seed, first_seed + seeds):
        for r in range(rounds + 1):
            at = {"interactions": 4 * clients * r, "bytes_up": 9 * clients * r, "epsilon": epsilon and epsilon * r}
            if r < rounds:
                after = {"interactions": 4 * clients * (r + 1), "bytes_up": 9 * clients * (r + 1)}
                after["epsilon"] = epsilon and epsilon * (r + 1)
                reward = value(seed, r, rounds, "online", "MaxRR", lift)
                rows.append(
                    {"seed": seed, "round": r + 1, **after, "split": "online", "measure": "MaxRR", "value": reward}
                )
            if r % every == 0 or r == rounds:
                for split in ("train", "vali", "test"):
                    for m in MEASURES:
                        v = value(seed, r, rounds, split, m, lift)
                        m = m.replace("navigational", clicks)
                        rows.append({"seed": seed, "round": r, **at, "split": split, "measure": m, "value": v})
    kinds = {"seed": pl.Int64, "round": pl.Int64, "interactions": pl.Int64, "bytes_up": pl.Int64, "epsilon": pl.Float64}
    pl.DataFrame(rows, schema_overrides=kinds, infer_schema_length=None).write_parquet(folder / "metrics.parquet")
    marks = [
        {"split": s, "measure": m.replace("navigational", clicks), "value": b + 0.03 * i}
        for s, b in BASELINE.items()
        for i, m in enumerate(MEASURES)
    ]
    (folder / "baselines.json").write_text(json.dumps({"baselines": [{"name": "MSE", "values": marks}]}))
    entries = []
    for r in range(rounds):
        entries.append(Entry(r, "try-perturbation", "Request", "server", "parties", clients, 189))
        entries.append(Entry(r, "try-perturbation", "Reply", "parties", "server", clients, 9))
    Ledger(entries).write(folder / "ledger.jsonl")
    fields = {
        "Request": [
            {"name": "header", "dtype": "u1", "bytes": 1, "meaning": "message kind and version"},
            {"name": "round", "dtype": "u4", "bytes": 4, "meaning": "number of the round"},
            {"name": "weights", "dtype": "f4", "bytes": 184, "meaning": "the ranker to start from"},
        ],
        "Reply": [
            {"name": "header", "dtype": "u1", "bytes": 1, "meaning": "message kind and version"},
            {"name": "seed", "dtype": "u4", "bytes": 4, "meaning": "seed of the perturbation, drawn on the device"},
            {"name": "plus", "dtype": "u2", "bytes": 2, "meaning": "sum of two randomised rewards under +v"},
            {"name": "minus", "dtype": "u2", "bytes": 2, "meaning": "sum of two randomised rewards under −v"},
        ],
    }
    (folder / "messages.json").write_text(json.dumps(fields))
    promised = account(p=p, n=11, interactions_per_message=4, rounds=asked_rounds)
    (folder / "privacy.json").write_text(json.dumps(promised.as_json()))
    (folder / "model.json").write_text(json.dumps({"ranker": "linear", "n_features": 46, "caveat": caveat}))
    if done:
        (folder / "done.json").write_text("{}")
    return folder
