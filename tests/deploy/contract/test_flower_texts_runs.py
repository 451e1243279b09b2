"""A real SuperLink and four SuperNodes on this machine, one a silo with texts of its own: CS-F-LTR as simulated."""

import json

import jax
import numpy as np
import pytest
from flower_links import linked
from safetensors.numpy import load_file
from text_folders import ROUNDS, SILOS, experiment_of, table, write_folders

from fedrank.core.ledger import Ledger
from fedrank.core.privacy_report import PrivacyReport, Unit
from fedrank.engine.simulator import Simulator, run_keys
from fedrank_flower.kept_answers import Remembered

pytestmark = pytest.mark.minutes


def test_four_silos_learn_over_each_others_texts_what_a_simulator_learns(tmp_path):
    pytest.importorskip("flwr", reason="needs flwr: pip install -e ./flower")
    folders = write_folders(tmp_path)
    values = table(tmp_path, round_timeout=90.0)  # a process that Flower loses on a busy machine is asked again
    experiment = experiment_of(values, folders)
    seen = experiment.setup_results()
    simulator, keys = Simulator(experiment.protocol), run_keys([0])
    parties = experiment.protocol.parties(seen.arrays.rows)
    states, own = simulator.start(keys, parties, per_run=True)
    states, _, crossed = simulator.advance(keys, states, parties.shared, own, 0, ROUNDS)
    expected = np.asarray(states.weights)[0]

    tables = [
        f'partition-id={i} num-partitions={SILOS} chance="seed" data="{home}" state-dir="{tmp_path}/node{i}" '
        "most-sketch-epsilon=8.0"
        for i, home in enumerate(folders)
    ]
    with linked(tmp_path, "silo-sketch", tables) as run:
        said = run(**{name: value for name, value in values.items() if name != "protocol"})
    assert f"is done, {ROUNDS} of {ROUNDS}" in said and "setup: done" in said
    kept = tmp_path / "kept"
    weights = load_file(kept / "weights" / "seed0.safetensors")["weights"]
    np.testing.assert_allclose(weights, expected, rtol=1e-5, atol=1e-5)
    assert np.abs(expected).max() > 0.01, "something was learnt"
    for number in range(SILOS):
        (path,) = (tmp_path / f"node{number}").glob("setup-*.npz")
        rows = Remembered.unpack(path.read_bytes()).own
        for name in ("x", "y", "cross_x"):
            np.testing.assert_allclose(
                rows[f"rows.{name}"], np.asarray(getattr(seen.arrays.rows, name))[0, 0, number], rtol=1e-5, atol=1e-5
            )
    ledger = [(e.round, e.exchange, e.sender, e.messages, e.bytes) for e in Ledger.read(kept / "ledger.jsonl")]
    simulated = [(e.round, e.exchange, e.sender, e.messages, e.bytes) for e in seen.ledger]
    assert ledger[: len(simulated)] == simulated
    counts = np.asarray(jax.device_get(crossed["crossed"]))[:, 0]
    names = [exchange.name for exchange in experiment.protocol.exchanges]
    assert [row[:4] for row in ledger[len(simulated) :]] == [
        (number, names[i], sender, counts[number, i, j])
        for number in range(ROUNDS)
        for i in range(len(names))
        if counts[number, i, 0]
        for j, sender in enumerate(("server", "parties"))
    ]
    promise = PrivacyReport.from_json(json.loads((kept / "privacy.json").read_text()))
    assert promise.epsilon(Unit.OCCURRENCE) == 8.0 and promise.details["training"]
    logs = "".join((tmp_path / f"node{i}.log").read_text() for i in range(SILOS))
    letters = [line.split("secret: ")[1].split(".")[0] for line in logs.splitlines() if "fingerprint of the" in line]
    assert len(letters) == SILOS and len(set(letters)) == 1
    assert logs.count("do no harm: on this silo's validation queries nDCG(dcg='exp-log2')@10") == SILOS
