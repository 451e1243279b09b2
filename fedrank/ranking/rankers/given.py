"""Conversion of a caller's ranker or module to a Ranker."""

from __future__ import annotations

from typing import Any

from fedrank.core.errors import ConfigError
from fedrank.core.registry import get, names
from fedrank.ranking.rankers.base import Ranker

#: Entry points of functions from a module of a library, such as PyTorch, to a ranker.
_MODULES = "fedrank.modules"


def as_ranker(given: Any, n_features: int) -> Ranker:
    """A caller's ranker or module as a Ranker.

    Args:
        given: A :class:`~fedrank.ranking.rankers.base.Ranker`, or a module of a library that a package knows, such as
            a ``torch.nn.Module`` with ``fedrank-zoo``.
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
    for library in {cls.__module__.partition(".")[0] for cls in type(given).__mro__}.intersection(names(_MODULES)):
        return get(_MODULES, library)(given, n_features)
    raise ConfigError(
        f"a ranker must be a name, a fedrank.ranking.rankers.base.Ranker such as FunctionRanker(scores, initial, "
        f"n_features={n_features}), or, with fedrank-zoo, a torch.nn.Module; got {type(given).__name__}."
    )
