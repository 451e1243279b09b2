"""A protocol, a ranker and data of somebody else: without registration, with metrics, ledger and privacy account."""

import json
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import polars as pl
import pytest
from worlds import tiny_queries

import fedrank
from fedrank.core.errors import ConfigError
from fedrank.core.ledger import Ledger
from fedrank.core.messages import Array, f4, field, message
from fedrank.core.protocol import SingleExchangeProtocol
from fedrank.ranking.rankers.base import Ranker


@dataclass(frozen=True)
class Squares(Ranker):
    """s(x) = w·x²: a ranker that no kernel knows."""

    n_features: int

    @property
    def size(self):
        return self.n_features

    def scores(self, weights, features):
        return jnp.square(features) @ weights

    def tensors(self, weights):
        return {"squares": np.asarray(weights)}

    @classmethod
    def build(cls, n_features, hidden):
        return cls(n_features)

    def kernel_shape(self):
        return None


@message(kind=1)
class Model:
    """Server to devices: the model to start from."""

    weights: Array = field(f4["parameters"], "the model to start from")


@message(kind=2)
class Trained:
    """Device to server: the model after a step on one of the device's queries."""

    weights: Array = field(f4["parameters"], "the model after training")


class FedAvg(SingleExchangeProtocol, request=Model, reply=Trained):
    """Federated averaging of a ranker that is trained on labels."""

    name = "my-fedavg"

    def __init__(self, ranker):
        self.ranker, self.sizes = ranker, {"parameters": ranker.size}

    def init(self, key):
        return jnp.zeros(self.ranker.size)

    def ask(self, state):
        return Model(state)

    def respond(self, request, party, draws):
        data, queries = party.shared
        query = queries[party.own.first]
        x, y, there = data.features[query], data.labels[query], data.where[query]

        def loss(weights):
            return jnp.sum(jnp.where(there, (self.ranker.scores(weights, x) - y) ** 2, 0.0)) / jnp.sum(there)

        return party, Trained(request.weights - 0.1 * jax.grad(loss)(request.weights))

    def tell(self, state, replies, arrived):
        mean = jnp.sum(jnp.where(arrived[:, None], replies.weights, 0.0), axis=0) / jnp.maximum(jnp.sum(arrived), 1)
        return jnp.where(jnp.any(arrived), mean, state)

    def weights(self, state):
        return state


SETTINGS = dict(
    clients=6,
    share="fixed",
    rounds=4,
    seeds=2,
    evaluation={"every": 4, "measures": ["nDCG(dcg='exp-log2')@10"], "baselines": []},
)


def test_it_runs_on_data_of_its_own(tmp_path):
    queries = tiny_queries()
    folder = fedrank.run(FedAvg(Squares(queries.n_features)), queries, folder=tmp_path / "run", **SETTINGS).path
    frame = pl.read_parquet(folder / "metrics.parquet")
    assert set(frame["split"]) == {"train"} and set(frame["round"]) == {0, 4} and set(frame["seed"]) == {0, 1}
    ndcg = frame.filter(pl.col("measure") == "nDCG(dcg='exp-log2')@10").sort("round")["value"].to_list()
    assert min(ndcg[2:]) > max(ndcg[:2])  # it learns
    ledger = Ledger.read(folder / "ledger.jsonl")
    assert ledger.bytes_from("parties") == 4 * 6 * (1 + 4 * queries.n_features)
    assert json.loads((folder / "privacy.json").read_text())["mechanism"] == "none"
    assert len(list((folder / "weights").iterdir())) == 2


def test_a_model_of_another_size_than_the_rankers_is_refused(tmp_path):
    protocol = FedAvg(Squares(5))
    protocol.init = lambda key: jnp.zeros(4)
    with pytest.raises(ConfigError, match=r"weights of shape \(4,\), its ranker 5 weights"):
        fedrank.run(protocol, tiny_queries(), folder=tmp_path / "run", **SETTINGS)
