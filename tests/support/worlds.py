"""Small worlds that several tests share; shapes are few so that compilations are."""

import numpy as np
from short_settings import es_settings

from fedrank.ranking.clicks.cascade import cascade
from fedrank.ranking.data.partition import uniform
from fedrank.ranking.data.queries import QuerySet
from fedrank.ranking.foltr_es import FoltrES
from fedrank.ranking.rankers.linear import Linear
from fedrank.ranking.rankers.mlp import TwoLayer

FEATURES = 5


def tiny_queries(seed: int = 0, queries: int = 12, longest: int = 14, features: int = FEATURES) -> QuerySet:
    """Queries of 1 to ``longest`` documents; features are eighths, so that such products are exact."""
    random = np.random.default_rng(seed)
    lengths = np.concatenate([[1, longest], random.integers(1, longest + 1, queries - 2)])
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    x = random.integers(0, 9, (offsets[-1], features)) / 8
    noise = random.random(offsets[-1])
    y = np.clip(np.rint(2 * x[:, 0] * x[:, 1] + 0.8 * noise - 0.4), 0, 2).astype(int)
    return QuerySet(x, y, offsets, np.array([f"q{i}" for i in range(queries)]), "tiny")


def tiny_protocol(ranker: str = "linear", kind: type[FoltrES] = FoltrES, **settings) -> FoltrES:
    """FOLtR-ES, or a variant of it, on :func:`tiny_queries`; without privatisation unless asked for."""
    shape = TwoLayer(FEATURES, 3) if ranker == "mlp" else Linear(FEATURES)
    made = es_settings(**settings)
    if kind is not FoltrES:  # a variant has its own presentation and step; what is given stays
        made = {name: value for name, value in made.items() if name not in ("presentation", "server")}
        made |= {name: settings[name] for name in ("presentation", "learning_rate") if name in settings}
    return kind(shape, cascade("navigational"), **made)


def tiny_parties(protocol: FoltrES, devices: int, queries: QuerySet | None = None):
    """Devices that all ask about all of the tiny queries."""
    queries = queries or tiny_queries()
    data = queries.blocks() if protocol.kernels else queries.padded()
    return protocol.devices(data, uniform(queries.n_queries, devices))
