"""Four silos with small folders of texts of their own, and a run over them, for tests of Flower."""

import json

import numpy as np

from fedrank.engine.deployment import NodeSettings
from fedrank.texts.build import build_texts
from fedrank_flower import settings as flat
from fedrank_flower.answers import answer_for

SILOS, ROUNDS = 4, 2
DOCUMENTS, QUERIES, GRADES = 6, 5, 3
WORDS = ["wing", "slipstream", "lift", "drag", "flutter", "shock", "layer", "heat", "plate", "cone", "nozzle", "jet"]


def write_folders(folder):
    """A folder a silo. All of one size, so that silos share compiled programs; every query has a relevant document."""
    folders = []
    for silo in range(SILOS):
        rng = np.random.default_rng([7, silo])
        home = folder / f"texts{silo}"
        home.mkdir()
        bodies = [rng.choice(WORDS, 12) for _ in range(DOCUMENTS)]
        (home / "documents.jsonl").write_text(
            "".join(
                json.dumps({"id": f"d{i}", "title": " ".join(body[:2]), "text": " ".join(body)}) + "\n"
                for i, body in enumerate(bodies)
            )
        )
        queries = [rng.choice(bodies[i], 3, replace=False) for i in range(QUERIES)]
        lines = (json.dumps({"id": f"q{i}", "text": " ".join(words)}) + "\n" for i, words in enumerate(queries))
        (home / "queries.jsonl").write_text("".join(lines))
        judged = [(i, i, 2) for i in range(QUERIES)] + [(i, (i + 1) % DOCUMENTS, 1) for i in range(QUERIES)]
        (home / "qrels").write_text("".join(f"q{q} 0 d{d} {grade}\n" for q, d, grade in judged))
        folders.append(home)
    return folders


def table(folder, **settings):
    """A run's table; ``_`` stands for ``-``."""
    values = {
        "protocol": "silo-sketch",
        "data": "own",
        "texts-silos": SILOS,
        "texts-documents": DOCUMENTS + 1,
        "texts-grades": GRADES,
        "texts-depth": DOCUMENTS,
        "texts-negatives": 0,
        "texts-foreign": 2,
        "texts-scale": "federation",
        "sketch-z": 2,
        "sketch-w": 16,
        "sketch-statistics-w": 64,
        "training-local-steps": 5,
        "training-steps": 3,
        "training-batch": 8,
        "training-cross-batch": 8,
        "training-ramp": 2,
        "num-server-rounds": ROUNDS,
        "min-available-nodes": SILOS,
        "checkpoint-dir": str(folder / "kept"),
    }
    return {**values, **{name.replace("_", "-"): value for name, value in settings.items()}}


def node(number, home, folder, **told):
    """The settings of a silo's node."""
    given = {"data": str(home), "state_dir": str(folder / f"node{number}"), "chance": "seed", **told}
    return NodeSettings(number, SILOS, **given)


def silo(values, number, home, folder, **told):
    """The behaviour of a silo that does as it should."""
    config, _ = flat.read_run(values)
    mine = node(number, home, folder, **told)
    return lambda question: [answer_for(config, mine, question).as_record()]


def experiment_of(values, folders):
    """The same run where one computer has everybody's texts."""
    config, _ = flat.read_run({**values, "data": "+".join(map(str, folders))})
    return build_texts(config)
