"""A protocol of silos that nobody registered, on a table of one's own, is handed to a run as an object."""

import json

import numpy as np
import polars as pl
import pytest

import fedrank
from fedrank.core.errors import ConfigError
from fedrank.core.protocol import Protocol
from fedrank.engine.settings import from_dict
from fedrank.engine.task import Given
from fedrank.silos.averaging import FedAvg, PersonalisedProtocol
from fedrank.silos.config import Network, SiloRun
from fedrank.silos.data.tables import Silo, SiloTable
from fedrank.silos.local_sgd import LocalSgd
from fedrank.silos.network import TabularNetwork
from fedrank.silos.task import TASK

ROWS, FEATURES = 30, 3


class Halfway(PersonalisedProtocol):
    """Federated averaging whose silos use the mean of the server's model and their own."""

    name = "halfway"

    def personal_model(self, weights, party):
        return (self.whole_model(weights, party.own.model) + party.own.model) / 2


def table():
    rng = np.random.default_rng(0)
    silos = []
    for name in ("north", "south"):
        x = rng.normal(size=(ROWS, FEATURES)).astype(np.float32)
        silos.append(Silo(name, x, (x[:, 0] + 0.5 * rng.normal(size=ROWS) > 0).astype(np.int8)))
    return SiloTable("mine", tuple(silos), tuple(f"x{i}" for i in range(FEATURES)), "ill")


SETTINGS_OF_RUN = dict(silos={"train": 10.0, "stratified": True}, evaluation={"baselines": []})
SETTINGS = dict(rounds=3, seeds=2, network={"widths": [2]}, **SETTINGS_OF_RUN)


def test_an_own_protocol_on_own_rows_leaves_a_run_like_any_other(tmp_path):
    mine = Halfway(LocalSgd(TabularNetwork(FEATURES, (2,)), epochs=2), 2, 10)
    folder = fedrank.run(mine, table(), folder=tmp_path / "run", **SETTINGS).path
    assert json.loads((folder / "silos.json").read_text())["silos"] == ["north", "south"]
    frame = pl.read_parquet(folder / "metrics.parquet").filter((pl.col("round") == 3) & (pl.col("split") == "test"))
    assert set(frame["measure"]) == {"AUC", "AUC, best so far"} and frame["value"].is_between(0, 1).all()
    ledger = [json.loads(line) for line in (folder / "ledger.jsonl").read_text().splitlines()]
    assert sum(entry["messages"] for entry in ledger) == 4 * 2 * 2  # pre-training and three rounds, there and back


class Elsewhere(Protocol):
    """A protocol of another task."""

    name, exchanges = "elsewhere", ()

    def init(self, key):
        return None

    def weights(self, state):
        return None


def test_a_protocol_of_another_kind_is_refused():
    with pytest.raises(ConfigError, match="SiloProtocol, got Elsewhere"):
        TASK.build(SiloRun(), Given(protocol=Elsewhere()))


def test_a_method_is_its_own_configuration(tmp_path):
    method = FedAvg(network=Network(widths=(2,), crossing="local"), learning_rate=0.1)
    trained = fedrank.train(method, table(), rounds=2, folder=tmp_path / "run", **SETTINGS_OF_RUN)
    said = (tmp_path / "run" / "config.toml").read_text()
    assert 'protocol = "fedavg"' in said and 'crossing = "local"' in said and "learning_rate = 0.1" in said
    assert trained.model().network.widths == (2,)
    assert SiloRun.of(method).unchanged() == SiloRun.of(FedAvg())


@pytest.mark.parametrize(
    ("protocol", "table", "name", "value", "said"),
    [
        ("bandit-fedavg", "bandit", "rule", "tompson", "Did you mean 'thompson'"),
        ("bandit-fedavg", "bandit", "arms", "triples", "bandit.arms"),
        ("bandit-fedavg", "bandit", "against", "best", "bandit.against"),
        ("fedavg", "network", "crossing", "half", "network.crossing"),
        ("fedper", "network", "crossing", "local", "network.crossing means nothing"),
    ],
)
def test_a_misspelt_value_is_told(protocol, table, name, value, said):
    with pytest.raises(ConfigError, match=said):
        from_dict({"protocol": protocol, table: {name: value}})
