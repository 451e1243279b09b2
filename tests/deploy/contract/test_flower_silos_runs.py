"""A real SuperLink and four SuperNodes on this machine, one a silo: MAB-FL and its first look, as in a simulator."""

import json

import jax
import numpy as np
import pytest
from flower_links import linked
from safetensors.numpy import load_file

from fedrank.core.ledger import Ledger
from fedrank.engine.native import NativeSimulator
from fedrank.silos.build import build_silos
from fedrank.silos.first_look import first_looks
from fedrank_flower.settings import read_run

SILOS, ROUNDS = 4, 2

pytestmark = pytest.mark.minutes


def test_four_silos_learn_what_a_simulator_learns_and_only_who_is_asked_is_sent_a_model(tmp_path):
    pytest.importorskip("flwr", reason="needs flwr: pip install -e ./flower")
    kept = tmp_path / "kept"
    values = {
        "protocol": "bandit-fedavg",
        "silos-target": "1",
        "silos-rows": 120,
        "silos-first-look": True,
        "network-widths": "8,4",
        "network-epochs": 2,
        "bandit-rule": "ucb",
        "bandit-alone": False,
        "num-server-rounds": ROUNDS,
        "min-available-nodes": SILOS,
        "checkpoint-dir": str(kept),
    }
    config, _ = read_run(values)
    experiment = build_silos(config)
    simulator = NativeSimulator(experiment.protocol, experiment.parties, 16, experiment.conditions)
    keys = simulator.keys([config.seed])
    states, own = simulator.begin(keys, experiment.parties)
    states, _, seen = simulator.advance(keys, states, experiment.parties.shared, own, 0, ROUNDS)
    expected = jax.tree.map(lambda leaf: np.asarray(leaf)[0], states._replace(key=()))
    tables = [
        f'partition-id={i} num-partitions={SILOS} chance="seed" state-dir="{tmp_path}/node{i}"' for i in range(SILOS)
    ]
    with linked(tmp_path, "bandit-fedavg", tables) as run:
        said = run(**{name: value for name, value in values.items() if name != "protocol"})
    assert f"is done, {ROUNDS} of {ROUNDS}" in said
    network = experiment.protocol.net
    for name, theta in (("seed0-last", expected.weights), ("seed0", expected.best_weights)):
        for part, tensor in load_file(kept / "weights" / f"{name}.safetensors").items():
            np.testing.assert_allclose(tensor, network.tensors(theta)[part], rtol=1e-5, atol=1e-5, err_msg=part)
    # Requests and replies of each exchange of each round, as the simulator counts them.
    crossed = np.asarray(seen["crossed"])[:, 0]
    ledger = Ledger.read(kept / "ledger.jsonl")
    got = {(e.round, e.exchange, e.sender): e.messages for e in ledger}
    names = [exchange.name for exchange in experiment.protocol.exchanges]
    due = [(number, i) for number in range(ROUNDS) for i in range(len(names)) if crossed[number, i, 0]]
    senders = ("server", "parties")
    got = {key: count for key, count in got.items() if not key[1].startswith("look-")}
    assert got == {(n, names[i], sender): crossed[n, i, j] for n, i in due for j, sender in enumerate(senders)}
    assert crossed[:, names.index("train"), 0].tolist() == [2] * ROUNDS, "the target and one other silo"
    # Before the first round: the verdicts of one division, as of all rows at one place.
    ((name, looked),) = json.loads((kept / "first_look.json").read_text()).items()
    simulated = first_looks(experiment)[name]
    assert looked["warnings"] == simulated["warnings"] and len(looked["silos"]) == SILOS - 1
    for silo, verdict in simulated["silos"].items():
        assert looked["silos"][silo]["verdict"] == verdict["verdict"]
        for number in ("gain", "low", "high", "p", "visible_harm", "auc_as_it_is"):
            assert looked["silos"][silo][number] == pytest.approx(verdict[number], rel=1e-9, abs=1e-12)
    rows = [json.loads(line) for line in (kept / "metrics.jsonl").read_text().splitlines()]
    watched = [row["watched"] for row in rows if "watched" in row]
    increments = np.array([[np.nan if x is None else x for x in one["increments"]] for one in watched], np.float32)
    np.testing.assert_allclose(increments, np.asarray(seen["watched"]["increments"])[:, 0], rtol=1e-5, atol=1e-5)
    assert json.loads((kept / "privacy.json").read_text())["details"]["rounds"] == ROUNDS
