"""Learn to rank and to recommend from what people do, without collecting what they do.

::

    import fedrank

    result = fedrank.train("foltr-es", "my-letor-folder", rounds=100)
    model = result.model()
    model.score(features, qid)

The house: what is shared stands in layers, each importing only those below it, and every task has its own wing::

    cli                              commands
    deploy                           the same protocols over a network: a hub and its devices, platforms, Flower
    api                              the names below, for Python
    ranking, silos, texts, slates    the wings: settings, data, protocols, baselines, attacks, pages of a task
    report                           files -> tables, figures, a page
    engine                           configuration -> run -> files; simulation, sweeps, studies, models
    aggregation, metrics, privacy    rules for weights, measures, mechanisms and their accounts
    data                             sources, catalogue, checks
    core                             ask -> answer -> tell; messages, ledger, randomness, registry, errors

Nothing heavy is imported here: ``import fedrank`` costs milliseconds, ``import jax`` is paid where arrays are used.
"""

import importlib
from typing import Any

__version__ = "0.2.0rc1"

#: Public names and where they live; ``__init__.pyi`` says the same to type checkers.
_NAMES = {
    "run": "fedrank.api.training",
    "train": "fedrank.api.training",
    "resume": "fedrank.api.training",
    "load": "fedrank.api.training",
    "protocols": "fedrank.api.training",
    "learn_from_log": "fedrank.ranking.logs.learn",
    "Result": "fedrank.api.result",
    "Model": "fedrank.engine.model",
    "RankingEstimator": "fedrank.api.estimators",
    "SiloClassifier": "fedrank.api.estimators",
    "load_data": "fedrank.data.sources:load",
    "Queries": "fedrank.ranking.data.queries:QuerySet",
    "Listener": "fedrank.engine.progress",
    "Frame": "fedrank.core.frame",
    "Ledger": "fedrank.core.ledger",
    "PrivacyReport": "fedrank.core.privacy_report",
    "Protocol": "fedrank.core.protocol",
    "Exchange": "fedrank.core.protocol",
    "Party": "fedrank.core.protocol",
    "message": "fedrank.core.messages",
    "field": "fedrank.core.messages",
    "Task": "fedrank.engine.task",
    "Ranker": "fedrank.ranking.rankers.base",
    "FunctionRanker": "fedrank.ranking.rankers.own",
    "CascadeUser": "fedrank.ranking.clicks.cascade",
    "FoltrES": "fedrank.ranking.foltr_es",
    "FoltrPDGD": "fedrank.ranking.foltr_pdgd",
    "FedrankError": "fedrank.core.errors",
}

__all__ = ["__version__", *_NAMES]  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    """A public name, imported when it is asked for first."""
    if name not in _NAMES:
        raise AttributeError(f"module 'fedrank' has no attribute {name!r}")
    module, _, attribute = _NAMES[name].partition(":")
    value = getattr(importlib.import_module(module), attribute or name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
