"""Conversion of a caller's ranker or torch module to a Ranker."""

from __future__ import annotations

from typing import Any

from fedrank.core.errors import ConfigError
from fedrank.ranking.rankers.base import Ranker


def as_ranker(given: Any, n_features: int) -> Ranker:
    """A caller's ranker or torch module as a Ranker.

    Args:
        given: A :class:`~fedrank.ranking.rankers.base.Ranker`, or a ``torch.nn.Module``.
        n_features: Features of a document of the data.

    Raises:
        ConfigError: It is neither, or for other features.
    """
    if isinstance(given, Ranker):
        if given.n_features != n_features:
            raise ConfigError(
                f"the ranker takes {given.n_features} features, the data has {n_features}; make it for the data."
            )
        return given
    if any(cls.__module__.partition(".")[0] == "torch" for cls in type(given).__mro__):
        from fedrank.ranking.rankers.torch import torch_ranker  # imports JAX

        return torch_ranker(given, n_features)
    raise ConfigError(
        f"a ranker must be a name, a fedrank.ranking.rankers.base.Ranker such as FunctionRanker(scores, initial, "
        f"n_features={n_features}), or a torch.nn.Module; got {type(given).__name__}."
    )
