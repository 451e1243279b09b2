"""A protocol of somebody else's package over Flower's messages: by its name, without an edit of this one."""

import json

import numpy as np
import pytest
from safetensors.numpy import load_file

import fedrank
from fedrank.cli.main import call
from fedrank.core import registry
from fedrank.core.errors import ConfigError, RunError
from fedrank.core.ledger import Ledger
from fedrank.engine.deployment import NodeSettings
from fedrank_flower.rounds import LocalNetwork
from fedrank_flower.server_app import serve
from fedrank_flower.settings import read_run, task_of

SHORT = {"clients": 5, "seed": 3, "learning_rate": 0.25}


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """A package as ``fedrank new`` writes it, put where Python looks for packages together with its entry point."""
    site = tmp_path / "site"
    assert call(["new", "my-idea", "--out", str(site)]) == 0
    about = site / "my_idea-0.1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: my-idea\nVersion: 0.1.0\n")
    (about / "entry_points.txt").write_text("[fedrank.protocols]\nmy-idea = my_idea:MyIdea\n")
    monkeypatch.syspath_prepend(str(site))
    registry._points.cache_clear()
    yield
    monkeypatch.undo()
    registry._points.cache_clear()


def table(folder, **settings):
    values = {"protocol": "my-idea", "clients": SHORT["clients"], "seed": SHORT["seed"], "learning-rate": 0.25}
    return {**values, "num-server-rounds": 2, "checkpoint-dir": str(folder), "round-attempts": 1, **settings}


def test_it_learns_the_model_of_a_simulator_and_leaves_a_ledger_and_an_account(installed, tmp_path):
    values = table(tmp_path / "kept")
    state = serve(values, LocalNetwork(values))
    folder = fedrank.run("my-idea", folder=tmp_path / "run", **SHORT, rounds=2, seeds=1).path
    (simulated,) = load_file(folder / "weights" / "seed3.safetensors").values()
    np.testing.assert_allclose(np.asarray(state), np.ravel(simulated), rtol=1e-5, atol=1e-8)
    assert np.abs(simulated).max() > 0
    size = 1 + 4 * state.size
    ledger = Ledger.read(tmp_path / "kept" / "ledger.jsonl")
    assert ledger.bytes_from("parties") == 2 * SHORT["clients"] * size
    assert ledger.bytes_from("server") == 2 * 2 * size  # two rounds, two nodes
    assert json.loads((tmp_path / "kept" / "privacy.json").read_text())["not_covered"]


def test_a_node_that_asks_for_more_than_it_promises_takes_no_part(installed, tmp_path):
    values = table(tmp_path / "kept")
    strict = [NodeSettings(i, 2, chance="seed", most_epsilon=1.0) for i in range(2)]
    with pytest.raises(RunError, match="nodes were heard"):
        serve(values, LocalNetwork(values, strict))


def test_devices_behind_a_hub_cannot_answer_for_it(installed, tmp_path):
    config, _ = read_run(table(tmp_path / "kept"))
    with pytest.raises(ConfigError, match="my-idea"):
        task_of(config).device_terms(config)
