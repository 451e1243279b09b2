"""What another owner reads of documents, and whether it finds a text among them, in every way to show documents.

    FEDRANK_DATA=FOLDER python -m benchmarks.document_attacks [--out FILE] [--only NAME] [--seeds N]

The attacks of ``fedrank privacy attack documents``, on four collections, by seeds that nothing was chosen on; each cuts
the collection by chance among four owners anew, and draws hashes and noise. Two ways are defaults: sketches as
``fedrank run silo-sketch`` shows them, and the statistics of ``fedrank search owner serve``. Beside them are the other
modes. Intervals are Student's t, 95 %, over seeds. Of Vaswani a part of the documents is taken, anew for each seed.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from fedrank.data import load
from fedrank.texts.data.reader import TextReader
from fedrank.texts.insider import Holdings
from fedrank.texts.report.files import FOUND, READABLE
from fedrank_zoo.document_attack import DocumentAttack
from fedrank_zoo.document_attack.documents import attack_as_owner, holdings_of
from fedrank_zoo.document_attack.served import statistics_tell
from fedrank_zoo.findings import Finding

COLLECTIONS = ("cranfield", "vaswani", "cisi", "adi")
SEEDS = range(500, 508)
#: Documents of a collection that are given out, at most; and texts that are looked for in sketches.
PART, TRIALS = 2_000, 400
#: What each way is called, and its settings; the first is the default of a run.
SKETCHED: dict[str, dict[str, Any]] = {
    "sketches, the default": {},
    "publish-once, ε = 1": {"sketch_mode": "publish-once", "sketch_epsilon": 1.0},
    "publish-once, ε = 8": {"sketch_mode": "publish-once", "sketch_epsilon": 8.0},
    "plain": {"sketch_mode": "plain"},
}
SERVED = "served search, the default"

Attack = Callable[[Holdings, DocumentAttack, np.random.Generator], list[Finding]]


def holdings(name: str, seed: int) -> Holdings:
    """A collection, or a part of it, given out by chance."""
    texts, rng = load(name, TextReader()), np.random.default_rng((seed, 0))
    some = np.sort(rng.permutation(len(texts.bodies))[:PART])
    ids, titles, bodies = ([part[number] for number in some]
                           for part in (texts.document_ids, texts.titles, texts.bodies))  # fmt: skip
    none = np.zeros(0, np.int32)  # nobody searches here
    part = replace(
        texts,
        document_ids=ids,
        titles=titles,
        bodies=bodies,
        judged_queries=none,
        judged_documents=none,
        grades=none,
    )
    return holdings_of(part, DocumentAttack().owners, rng)


def measured(held: Holdings, settings: DocumentAttack, attack: Attack) -> dict[str, float]:
    """Words that an insider reads, and the area under the curve of its test whether a text is there."""
    found = attack(held, settings, np.random.default_rng((settings.seed, 1)))
    return {key: next(f.measured for f in found if f.attack == name) for key, name in _ATTACKS.items()}


_ATTACKS = {"words read": "insider reads", "AUC": "is it there?"}


def interval(values: list[float]) -> dict[str, float]:
    """Mean and half of its 95 % interval."""
    half = stats.t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / math.sqrt(len(values))
    return {"mean": round(float(np.mean(values)), 4), "half": round(float(half), 4)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/document_attacks.json"))
    parser.add_argument("--only", default="")
    parser.add_argument("--seeds", type=int, default=len(SEEDS))
    chosen = parser.parse_args()
    began, table = time.process_time(), dict[str, Any]()
    for name in COLLECTIONS:
        if chosen.only and name != chosen.only:
            continue
        values: dict[str, list[dict[str, float]]] = {way: [] for way in (*SKETCHED, SERVED)}
        for seed in SEEDS[: chosen.seeds]:
            held = holdings(name, seed)
            for way, more in SKETCHED.items():
                settings = DocumentAttack(seed=seed, trials=TRIALS, **more)
                values[way].append(measured(held, settings, attack_as_owner))
            values[SERVED].append(measured(held, DocumentAttack(seed=seed), statistics_tell))
        table[name] = {"documents": len(held.documents)} | {
            way: {key: interval([one[key] for one in seeds]) for key in _ATTACKS} for way, seeds in values.items()
        }
        print(name, json.dumps(table[name], ensure_ascii=False), flush=True)
        about = _about(chosen.seeds) | {"CPU seconds": round(time.process_time() - began, 1)}
        chosen.out.write_text(json.dumps({"settings": about, "summary": table}, indent=1, ensure_ascii=False) + "\n")


def _about(seeds: int) -> dict[str, Any]:
    default = DocumentAttack().sketch()
    return {
        "default of a run": {"mode": default.mode, "epsilon": default.epsilon, "z": default.z, "w": default.w},
        "statistics of a served search, epsilon of a document": DocumentAttack().statistics_epsilon,
        "seeds": list(SEEDS[:seeds]),
        "limits": {"words read": READABLE, "AUC": FOUND},
    }


if __name__ == "__main__":
    main()
