"""A run directory of platforms that share users, written file by file to the schema; tests of the report read it."""

from __future__ import annotations

import dataclasses
import json
import string
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from fedrank.core.ledger import Entry, Ledger
from fedrank.core.privacy_report import NOBODY, PrivacyReport, Promise, Unit
from fedrank.engine.methods import method
from fedrank.engine.settings import to_toml
from fedrank.slates.config import Evaluation, World

#: What a user brings a platform, by policy; 61 rounds.
POLICIES = {"random": 950.0, "choc": 1040.0, "kale": 870.0, "myopic": 1040.0, "optimum": 1050.0}
STAY, SPREAD, USERS = 61, 178.0, 2000


def make_slate_run(
    folder: Path,
    *,
    protocol: str = "vertical-slate",
    central: bool = False,
    platforms: int = 2,
    feedback: str = "first",
    seeds: int = 3,
    first_seed: int = 0,
    users: int = 120,
    candidates: int = 10,
    gains: tuple[float, ...] = (60.0, 40.0),
    noise: float = 5.0,
    policies: dict[str, float] | None = None,
    faults: tuple[dict[str, str], ...] = (),
    sensitivity: float | None = None,
    epsilon: float | None = None,
    done: bool = True,
) -> Path:
    """Write ``folder`` as a run; returns it.

    Args:
        folder: Where; made if it is missing.
        protocol: One of the platforms' protocols.
        central: Each platform sees the user as all of them do.
        platforms: How many.
        feedback: ``"first"`` or ``"all"``.
        seeds: How many.
        first_seed: The first one.
        users: Users of a run.
        candidates: N.
        gains: What each platform has in the end over random, in every seed but for ``noise``.
        noise: Standard deviation of a mean over the users of an evaluation.
        policies: What fixed policies bring a platform.
        faults: Of the published code.
        sensitivity: Given in the configuration, or the preset's.
        epsilon: Of a vector of values; None: no noise.
        done: Whether the run came to its end.
    """
    folder.mkdir(parents=True, exist_ok=True)
    names, all_seeds = string.ascii_uppercase[:platforms], list(range(first_seed, first_seed + seeds))
    gains = (*gains, *[gains[-1]] * platforms)[:platforms]
    world = World(candidates=candidates, platforms=platforms, sensitivity=sensitivity)
    known: Any = {
        "rounds": users * STAY, "seeds": seeds, "seed": first_seed, "world": world,
        "evaluation": Evaluation(every=20 * STAY),
    }  # fmt: skip
    config = dataclasses.replace(method(protocol).defaults(), **known).resolved()
    (folder / "config.toml").write_text(to_toml(config))
    about = {"fedrank": "0.1.0", "seconds": 4.2, "command": "fedrank run it.toml", "citations": ["deng2024fedslate"]}
    (folder / "environment.json").write_text(json.dumps(about))
    rng = np.random.default_rng(7)
    # Users of an evaluation are the same for everybody: what they bring differs by seed, not by policy.
    luck = noise * rng.normal(size=(seeds, platforms))
    fixed = POLICIES if policies is None else policies
    (folder / "baselines.json").write_text(
        json.dumps({"baselines": [_mark(n, v, luck, names) for n, v in fixed.items()]})
    )
    metrics = _metrics(all_seeds, names, users, gains, luck, noise, rng)
    metrics.write_parquet(folder / "metrics.parquet")
    sees = [feedback == "all" or not place for place in range(platforms)]
    slates = {
        "platforms": list(names), "feedback": sees, "protocol": protocol, "central": central,
        "faults": list(faults),
        "world": {
            "preset": "recsim", "candidates": candidates, "slate": 3, "platforms": platforms, "memory_discount": 0.9,
            "sensitivity": 0.01 if sensitivity is None else sensitivity, "observation_noise": 0.1,
            "semantics": "recsim-code", "choice": "multinomial", "shared_candidates": True, "turns": "in-order",
            "fresh": True, "rounds_per_episode": STAY,
        },
        "episodes": users, "evaluation": {"every": 20 * STAY, "episodes": 128}, "generated": True,
        "notes": ["Users <and> what they like are made up by a program."],
    }  # fmt: skip
    if done:
        slates["results"] = {"threshold": _threshold(fixed, names, seeds)}
        silent = protocol != "vertical-slate"
        (folder / "privacy.json").write_text(json.dumps(_privacy(epsilon, users * STAY)))
        (folder / "model.json").write_text(json.dumps({"n_features": 5, "notes": slates["notes"]}))
        (folder / "messages.json").write_text(
            json.dumps(
                {} if silent else {"Targets": [{"name": "targets", "dtype": "f4", "bytes": 128, "meaning": "y"}]}
            )
        )
        (Ledger() if silent else ledger(platforms, users * STAY, 20 * STAY)).write(folder / "ledger.jsonl")
        (folder / "done.json").write_text("{}")
    (folder / "slates.json").write_text(json.dumps(slates))
    return folder


def _mark(name: str, value: float, luck: np.ndarray, names: str) -> dict:
    half = 1.961 * SPREAD / USERS**0.5
    ends = {"value": value, "low": value - half, "high": value + half}
    values: list[dict] = [{"split": "test", "measure": f"engagement ({n})", **ends} for n in names]
    whole, wide = len(names) * value, half * len(names) ** 0.5
    values.append({"split": "test", "measure": "engagement", "value": whole, "low": whole - wide, "high": whole + wide})
    return {
        "name": name,
        "notes": [f"What {name} is."],
        "values": values,
        "episodes": USERS,
        "runs": (value + luck).tolist(),
    }


def _metrics(seeds, names, users, gains, luck, noise, rng) -> pl.DataFrame:
    rows = []
    for i, seed in enumerate(seeds):
        for user in range(users + 1):
            at = {"seed": seed, "round": user * STAY, "interactions": 2 * user * STAY, "bytes_up": 3000 * user * STAY}
            learnt = 1 - np.exp(-5 * user / users)
            true = [950.0 + gain * learnt for gain in gains]
            if user:
                seen = [value + SPREAD * rng.normal() for value in true]
                rows += _of(names, seen, {**at, "split": "online"})
            if user % 20 == 0:
                end = user == users
                seen = [
                    (950.0 + gains[k] if end else value) + luck[i, k] + (0 if end else noise * rng.normal())
                    for k, value in enumerate(true)
                ]
                rows += _of(names, seen, {**at, "split": "test"})
    return pl.DataFrame(rows).with_columns(pl.lit(None, pl.Float64).alias("epsilon"))


def _of(names, values, at) -> list[dict]:
    each = [{**at, "measure": f"engagement ({n})", "value": float(v)} for n, v in zip(names, values, strict=True)]
    return [{**at, "measure": "engagement", "value": float(sum(values))}, *each]


def _threshold(fixed, names, seeds) -> dict | None:
    if not {"random", "optimum"} <= set(fixed):
        return None
    level = (fixed["random"] + fixed["optimum"]) / 2
    times = [None if seed == seeds - 1 and seeds > 1 else 20.0 * (1 + seed) for seed in range(seeds)]
    measures = {f"engagement ({n})": {"level": level, "episodes": times} for n in names}
    whole = {"level": len(names) * level, "episodes": [40.0] * seeds}
    return {"share": 0.5, "stay": 2, "measures": {"engagement": whole, **measures}}


def _privacy(epsilon: float | None, rounds: int) -> dict:
    if epsilon is None:
        said = "Q-values, targets and gradients of Q-values, as they are."
        return PrivacyReport.none(rounds, said).as_json()
    promises = Promise(Unit.VECTOR, epsilon, 1e-6), Promise(Unit.USER, 40 * epsilon, 1e-6)
    words = ("Each Q-value carries noise.",)
    return PrivacyReport(
        "discrete Gaussian noise", NOBODY, promises, ("Q-values.",), ("Targets.",), words=words
    ).as_json()


def ledger(platforms: int, rounds: int, every: int) -> Ledger:
    """Messages of platforms with a batch in every tenth round; a line is of all rounds between two evaluations."""
    entries = []
    for first in range(0, rounds, every):
        count = min(every, rounds - first)
        batches = count // 10
        entries += [
            Entry(first, "look", "Turn", "server", "parties", platforms * count, 5),
            Entry(first, "look", "LocalValues", "parties", "server", platforms * count, 41),
            Entry(first, "recommend", "SharedValues", "server", "parties", platforms * count, 45),
            Entry(first, "recommend", "Done", "parties", "server", platforms * count, 1),
            Entry(first, "batch", "Moments", "server", "parties", platforms * batches, 133),
            Entry(first, "batch", "BatchValues", "parties", "server", platforms * batches, 2561),
            Entry(first, "targets", "Targets", "parties", "server", batches, 137),
            Entry(first, "compare", "Compare", "server", "parties", platforms * batches, 1417),
        ]
    return Ledger(entries)
