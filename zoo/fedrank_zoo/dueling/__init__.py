"""Dueling bandits at one central service: DBGD with one candidate, MGD with several.

The steps are in :mod:`fedrank_zoo.dueling.steps`, the service in :mod:`fedrank.ranking.central`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from typing_extensions import override

from fedrank.core.errors import ConfigError
from fedrank.core.fields import bound, setting
from fedrank.ranking.central import Central
from fedrank_zoo.dueling.kernel import host_duels
from fedrank_zoo.dueling.steps import DuelDraws, dueling_steps


@dataclass(frozen=True)
class DBGD(Central):
    """Central: one service duels its ranker with a random neighbour."""

    radius: float = setting(1.0, "Distance of the candidate from the current ranker.")
    candidates: int = bound(1)

    name, paper = "dbgd", "yue2009dbgd"
    published = "Yue, Joachims: Interactively Optimizing Information Retrieval Systems, ICML 2009"

    def __post_init__(self):
        super().__post_init__()
        if not 1e-30 < self.radius < 1e30:
            raise ConfigError(f"radius must be positive and finite, got {self.radius}.")
        if not 1 <= self.candidates <= 1000:
            raise ConfigError(f"candidates of {self.name} must be in 1..1000, got {self.candidates}.")

    @property
    @override
    def widths(self) -> list[int]:
        return [1, self.candidates, *(3 * [self.user.depth])]

    @override
    def learn(self, party, weights, rate, about, active, words):
        (data, _), bits = party.shared, DuelDraws(*words)
        known: Any = (self.ranker, self.users, party.own.user, data, weights, rate)
        steps: Any = dueling_steps
        return steps(*known, self.radius, self.candidates, about, active, bits)

    @override
    def learn_cohort(self, known: Any, about, active, words):
        steps: Any = host_duels
        return steps(*known, self.radius, about, active, words)


@dataclass(frozen=True)
class MGD(DBGD):
    """Central: one service multileaves its ranker with several neighbours."""

    candidates: int = setting(
        9, "Rankers that are compared with the current one in each interaction.", low=1, high=1000
    )

    name, paper = "mgd", "schuth2016mgd"
    published = "Schuth, Oosterhuis, Whiteson, de Rijke: Multileave Gradient Descent, WSDM 2016"
