"""The protocols of platforms that share users, by name."""

from __future__ import annotations

from typing import Any

from fedrank.core.arrays import PyTree
from fedrank.core.protocol import Protocol
from fedrank.engine.methods import Method, PrivacyMode
from fedrank.slates.config import (
    FedSlateConfig,
    PlannedSlatesConfig,
    SlateQConfig,
)

_SLATEQ = "Ie et al.: SlateQ, a Tractable Decomposition for RL with Recommendation Sets, IJCAI 2019"


def _fedslate(config: Any, world: PyTree) -> Protocol:
    from fedrank.slates.build import protocol_of

    return protocol_of(config, world)


def _slateq(config: Any, world: PyTree) -> Protocol:
    from fedrank.slates.build import protocol_of

    return protocol_of(config, world, silent=True)


def _make_planned(config: Any, world: PyTree) -> Protocol:
    from fedrank.slates.build import planned_slates

    return planned_slates(config, world)


VERTICAL_SLATE = Method(
    name="vertical-slate",
    task="slates",
    settings=FedSlateConfig,
    make=_fedslate,
    summary="Platforms that share users learn which slates please them for long; one has no feedback (FedSlate).",
    paper="Deng et al.: FedSlate, a Federated Deep RL Recommender System, arXiv 2409.14872, 2024",
    crosses="values of candidates, and gradients of them",
    file="fedrank/slates/fedslate/__init__.py",
    citation="deng2024fedslate",
    modes=(PrivacyMode("noise on values", {"sharing": {"clip": 1.0, "epsilon": 1.0}}),),
)

SLATEQ = Method(
    name="slateq",
    task="slates",
    settings=SlateQConfig,
    make=_slateq,
    summary="Platforms that share users, each by itself, or each seeing the user as all of them do (SlateQ).",
    paper=_SLATEQ,
    crosses="nothing",
    file="fedrank/slates/fedslate/__init__.py",
    citation="ie2019slateq",
)

PLANNED_SLATES = Method(
    name="planned-slates",
    task="slates",
    settings=PlannedSlatesConfig,
    make=_make_planned,
    summary="Platforms that share users fit one model of engagement together, once, and each plans the stay alone.",
    paper="Our own; in place of Lagoudakis and Parr: Least-Squares Policy Iteration, JMLR 2003",
    crosses="five sums over all users of a platform, once",
    file="fedrank/slates/planning/__init__.py",
    citation="lagoudakis2003lspi",
    modes=(PrivacyMode("a user's whole stay", {"sharing": {"epsilon": 2.0}, "privacy": {"delta": 1e-5}}),),
)
