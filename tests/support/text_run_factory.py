"""A run directory of silos with texts, written file by file to the schema; the tests of the report read it."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import polars as pl

from fedrank.core.ledger import Entry, Ledger
from fedrank.core.privacy_report import NOBODY, PrivacyReport, Promise, Unit

METHODS = ("CS-F-LTR", "BM25", "Local", "Local+", "Global (β = 0)", "exact features", "pooled data", "BM25, exact")
#: What a method adds to Local, on own documents and in a search of all documents; at home all are worth the same.
WORTH = {
    "CS-F-LTR": (0.03, 0.10), "BM25": (-0.02, 0.06), "Local": (0.0, 0.05), "Local+": (-0.01, 0.04),
    "Global (β = 0)": (0.02, 0.09), "exact features": (0.05, 0.20), "pooled data": (0.06, 0.22),
    "BM25, exact": (0.0, 0.08),
}  # fmt: skip
#: What some methods do not do: Local does not search elsewhere, and exact BM25 is there for that only.
SCOPES_OF = {"Local": ("own", "home"), "BM25, exact": ("federation",)}

WHERE = {"own": "", "federation": ", all documents", "home": ", all documents, searched at home"}

CONFIG = """\
protocol = "silo-sketch"
data = "{data}"
rounds = {rounds}
seeds = {seeds}

[privacy]
delta = 1e-06

[evaluation]
every = {every}
measures = ["nDCG(dcg='exp-log2')@10", "MAP", "MAP-JOS"]

[texts]
silos = {silos}
cut = "random"
scale = "{scale}"

[sketch]
mode = "{mode}"
{epsilon}

[training]
beta = 0.3
"""


def make_text_run(
    folder: Path,
    *,
    mode: str = "publish-once",
    names: tuple[str, ...] = ("silo-1", "silo-2"),
    seeds: int = 3,
    rounds: int = 20,
    every: int = 10,
    epsilon: float | None = 8.0,
    worth: dict[str, tuple[float, float]] | None = None,
    noise: float = 0.004,
    data: str = "cranfield",
    foreign_share: float | None = 0.73,
    scale: str = "silo",
    generated: bool = False,
    refused: int = 0,
    done: bool = True,
    read: float | None = None,
) -> Path:
    """Write ``folder`` as a run; returns it.

    Args:
        folder: Where; made if it is missing.
        mode: How silos see each other's documents.
        names: Of the silos.
        seeds: How many.
        rounds: How many.
        every: Rounds between evaluations.
        epsilon: Of the configuration, or None.
        worth: In place of :data:`WORTH`, for some methods.
        noise: Standard deviation of what differs by method, seed and silo.
        data: Its name.
        foreign_share: Part of the relevant pairs that are with another silo's document.
        scale: Whose rows features are scaled by.
        generated: Whether the data is.
        refused: Questions that each owner refused.
        done: Whether the run came to its end.
        read: What another silo reads of a document, or None.
    """
    folder.mkdir(parents=True, exist_ok=True)
    known = {"data": data, "rounds": rounds, "seeds": seeds, "every": every, "silos": len(names), "mode": mode}
    known["scale"] = scale
    said = "" if epsilon is None else f"epsilon = {epsilon}"
    (folder / "config.toml").write_text(CONFIG.format(**known, epsilon=said))
    about = {"fedrank": "0.1.0", "seconds": 4.2, "command": "fedrank run it.toml", "citations": []}
    (folder / "environment.json").write_text(json.dumps(about))
    rows = _methods(names, seeds, rounds, every, {**WORTH, **(worth or {})}, noise)
    rows.write_parquet(folder / "methods.parquet")
    _metrics(rows, names).write_parquet(folder / "metrics.parquet")
    (folder / "federation.json").write_text(
        json.dumps(_federation(names, seeds, mode, generated, refused, foreign_share, read))
    )
    if done:
        _gate(folder, rows, names, seeds)
        _queries(folder, rows)
        (folder / "privacy.json").write_text(json.dumps(_privacy(mode, epsilon)))
        (folder / "model.json").write_text(json.dumps({"n_features": 16, "notes": ["A note on the data."]}))
        (folder / "baselines.json").write_text(json.dumps({"baselines": _baselines(rows)}))
        _ledger(len(names), rounds).write(folder / "ledger.jsonl")
        (folder / "done.json").write_text("{}")
    return folder


def _methods(names, seeds, rounds, every, worth, noise) -> pl.DataFrame:
    rng, rows = np.random.default_rng(5), []
    for r in range(every, rounds + 1, every):
        for seed in range(seeds):
            base = 0.4 + 0.02 * seed
            for k, name in enumerate(names):
                for method in METHODS:
                    own, far = worth[method]
                    level = {"own": base + own, "federation": base / 2 + far, "home": base / 2}
                    scopes = SCOPES_OF.get(method, tuple(WHERE))
                    for scope, split in ((scope, split) for scope in scopes for split in ("test", "vali")):
                        off = noise * rng.normal() + 0.01 * k
                        at = {"seed": seed, "round": r, "method": method, "silo": name, "scope": scope, "split": split}
                        rows.append({**at, "measure": "nDCG(dcg='exp-log2')@10", "value": level[scope] + off})
                        if scope == "own":
                            rows.append({**at, "measure": "MAP", "value": level[scope] - 0.1 + off})
                            rows.append({**at, "measure": "MAP-JOS", "value": 1.5 - level[scope] + off})
    return pl.DataFrame(rows)


def _metrics(rows: pl.DataFrame, names) -> pl.DataFrame:
    means: dict[tuple, list[float]] = {}
    for seed, r, method, silo, scope, split, measure, value in rows.iter_rows():
        named = measure + WHERE[scope]
        means.setdefault((seed, r, split, named if method == METHODS[0] else f"{named}, {method}"), []).append(value)
        if method == METHODS[0]:
            means[seed, r, split, f"{named} ({silo})"] = [value]
    out = [
        {"seed": s, "round": r, "interactions": 40 + 4 * r, "bytes_up": 9000 * r, "epsilon": None, "split": split,
         "measure": measure, "value": float(np.mean(values))}
        for (s, r, split, measure), values in means.items()
    ]  # fmt: skip
    return pl.DataFrame(out, schema_overrides={"epsilon": pl.Float64})


def _federation(names, seeds, mode, generated, refused, share, read) -> dict:
    silos = []
    for k, name in enumerate(names):
        one = {"name": name, "documents": 350, "queries": {"train": 29, "vali": 10, "test": 9 + k}, "rows": 1174}
        silos.append({**one, "pairs": 1740})
    return {
        "silos": silos, "words": [50] * len(names), "foreign_share": share, "mode": mode,
        "sketch": {"z": 10, "w": 120, "kind": "count"}, "statistics": {"z": 1, "w": 16384},
        "count_error": {"all": [0.25] * seeds, "held": [0.5, 1.0, 1.5][:seeds]}, "beta": 0.3, "generated": generated,
        "notes": ["Documents <without> a word: 2."],
        "insider": None if read is None else {"share": read, "low": read - 0.02, "high": read + 0.02, "documents": 50},
    }  # fmt: skip


def _gate(folder: Path, rows: pl.DataFrame, names, seeds) -> None:
    last = rows.filter((pl.col("round") == rows["round"].max()) & (pl.col("scope") == "own"))
    last = last.filter(pl.col("measure") == "nDCG(dcg='exp-log2')@10")
    values = {(s, m, silo, split): v for s, m, silo, split, v in
              last.select("seed", "method", "silo", "split", "value").iter_rows()}  # fmt: skip
    decisions = []
    for seed in range(seeds):
        for silo in names:
            other = max(("Local", "BM25"), key=lambda method: values[seed, method, silo, "vali"])
            vali, test = (
                values[seed, METHODS[0], silo, split] - values[seed, other, silo, split] for split in ("vali", "test")
            )
            one = {"seed": seed, "silo": silo, "against": other, "vali": vali, "test": test, "adopted": vali > 0}
            decisions.append({**one, "kept": test if vali > 0 else 0.0})
    (folder / "gate.json").write_text(json.dumps({"measure": "nDCG(dcg='exp-log2')@10", "decisions": decisions}))


def _queries(folder: Path, rows: pl.DataFrame) -> None:
    last = rows.filter((pl.col("round") == rows["round"].max()) & (pl.col("split") == "test"))
    last = last.filter(pl.col("measure") == "nDCG(dcg='exp-log2')@10").group_by("method", "scope", maintain_order=True)
    rng, out = np.random.default_rng(8), []
    for method, scope, level in last.agg(pl.col("value").mean()).iter_rows():
        for q in range(12):
            one = {"split": "test", "qid": f"q{q}", "judged": True, "measure": "nDCG(dcg='exp-log2')@10" + WHERE[scope]}
            value = float(level + 0.02 * rng.normal())
            out.append({**one, "ranker": "learnt" if method == METHODS[0] else method, "value": value})
    pl.DataFrame(out).write_parquet(folder / "per_query.parquet")


def _privacy(mode: str, epsilon: float | None) -> dict:
    def of(unit, times, scope=""):
        found = times * epsilon if epsilon is not None and mode == "publish-once" else math.inf
        return Promise(unit, found, scope=scope)

    bounded = of(Unit.OCCURRENCE, 1).epsilon < math.inf
    return PrivacyReport(
        "discrete Laplace noise",
        NOBODY,
        (
            of(Unit.OCCURRENCE, 1),
            of(Unit.REPLACED_WORD, 2), of(Unit.DOCUMENT, 407),
        ),
        ("One occurrence of a word.",) if bounded else (),
        ("The models that a silo sends.",),
        {
            "mode": mode, "scale": 0.46875, "sensitivity": 3.0, "occurrences": 407, "training": True, "delta": 1e-06,
        },
        (f"What mode {mode} promises.",),
    ).as_json()  # fmt: skip


def _baselines(rows: pl.DataFrame) -> list[dict]:
    last = rows.filter(pl.col("round") == rows["round"].max())
    out = []
    for method in METHODS[1:]:
        means = last.filter(pl.col("method") == method).group_by("split", "measure", "scope", maintain_order=True)
        values = [
            {"split": split, "measure": measure + WHERE[scope], "value": value}
            for split, measure, scope, value in means.agg(pl.col("value").mean()).iter_rows()
        ]
        out.append({"name": method, "notes": [], "values": values})
    return out


def _ledger(silos: int, rounds: int) -> Ledger:
    entries = [
        Entry(0, "publish", "Totals", "server", "parties", silos, 1000),
        Entry(0, "publish", "Published", "parties", "server", silos, 20000),
        Entry(0, "receive", "Sketches", "server", "parties", silos, 50000),
        Entry(0, "receive", "Moments", "parties", "server", silos, 133),
        Entry(0, "local", "LocalModel", "parties", "server", silos, 345),
    ]
    for r in range(rounds):
        entries.append(Entry(r, "step", "Ranker", "server", "parties", silos, 345))
        entries.append(Entry(r, "step", "Change", "parties", "server", silos, 341))
    return Ledger(entries)
