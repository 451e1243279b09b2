"""A real SuperLink and two SuperNodes on this machine: the model of a simulator, and a run that goes on."""

import json

import numpy as np
import pytest
from flower_links import linked
from flower_nodes import simulated
from safetensors.numpy import load_file

from fedrank.core.ledger import Ledger

NODES, CLIENTS = 2, 9

pytestmark = pytest.mark.minutes


@pytest.fixture
def federation(tmp_path):
    """Runs the app: settings -> what it printed."""
    pytest.importorskip("flwr", reason="needs flwr: pip install -e ./flower")
    tables = [
        f'partition-id={i} num-partitions={NODES} chance="seed" state-dir="{tmp_path}/node{i}"' for i in range(NODES)
    ]
    with linked(tmp_path, "foltr-es", tables) as run:
        yield run


def test_two_supernodes_learn_what_a_simulator_learns_and_go_on(federation, tmp_path):
    kept = tmp_path / "kept"
    table = {"clients": CLIENTS, "checkpoint-dir": str(kept), "n-features": 46, "privacy-p": 0.9}
    for done, rounds in ((0, 2), (2, 3)):
        values = {**table, "num-server-rounds": rounds}
        said = federation(**values)
        assert f"{done} of {rounds} rounds are done" in said
        weights = load_file(kept / "weights" / "seed0.safetensors")["weight"]
        expected, _ = simulated(values)
        assert np.abs(expected).max() > 0
        np.testing.assert_allclose(weights.ravel(), expected, rtol=1e-5, atol=1e-8)
    rows = [json.loads(line) for line in (kept / "metrics.jsonl").read_text().splitlines()]
    heard = [(row["round"], row["exchanges"][0]["heard"], row["exchanges"][0]["parties"]) for row in rows[1:]]
    assert heard == [(number, NODES, CLIENTS) for number in (1, 2, 3)]
    ledger = Ledger.read(kept / "ledger.jsonl")
    assert ledger.bytes_from("parties") == 3 * CLIENTS * 9
    assert ledger.bytes_from("server") == 3 * NODES * (1 + 4 + 4 * 46)
    assert all(any((tmp_path / f"node{i}").rglob("state-00000003.npz")) for i in range(NODES)), "parties remember"
