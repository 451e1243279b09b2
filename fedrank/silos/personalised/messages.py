"""What crosses in the methods that MAB-FL is compared with, beside :mod:`fedrank.silos.messages`.

Nothing, of silos that train alone; several models at once, of IFCA and FedFomo, and what a silo made of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax

from fedrank.core.messages import Field, Layout


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Nothing:
    """What crosses where nothing does."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Models:
    """Server to silos: several models, of which each silo takes what suits it.

    Attributes:
        round: uint32, number of the round.
        weights: float32 [models, parameters].
    """

    round: Any
    weights: Any


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class TrainedInCluster:
    """Silo to server: the model that it has come to, and from which of the server's it started.

    Attributes:
        weights: float32 [parameters].
        rows: uint32, how many rows it was trained on.
        cluster: uint32, number of the model that it started from.
    """

    weights: Any
    rows: Any
    cluster: Any


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Others:
    """Server to a silo: models of silos.

    Attributes:
        round: uint32, number of the round.
        who: uint32 [models], whose they are.
        weights: float32 [models, parameters].
    """

    round: Any
    who: Any
    weights: Any


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class TrainedOnMix:
    """Silo to server: the model that it has come to, and what it mixed before.

    Attributes:
        weights: float32 [parameters].
        rows: uint32, how many rows it was trained on.
        mixed: float32 [models], the weight of each model that it was sent; with its own they add up to 1, or all are 0.
    """

    weights: Any
    rows: Any
    mixed: Any


_ROUND = Field("round", "u4", "number of the round")
_ROWS = Field("rows", "u4", "number of rows that the silo trains on")


def _trained(parameters: int) -> Field:
    return Field("weights", "f4", "the model after training on the silo's rows", (("parameters", parameters),))


def _several(parameters: int, models: int, meaning: str) -> Field:
    return Field("weights", "f4", meaning, (("models", models), ("parameters", parameters)))


def nothing_layout() -> Layout[Nothing]:
    """No field."""
    return Layout(Nothing, 8, ())


def models_layout(parameters: int, models: int) -> Layout[Models]:
    """Round and so many models."""
    return Layout(Models, 9, (_ROUND, _several(parameters, models, "the models to choose from, one a cluster")))


def trained_in_cluster_layout(parameters: int, clusters: int) -> Layout[TrainedInCluster]:
    """Weights, rows and the number of one of so many clusters."""
    cluster = Field("cluster", "u4", "which model fits the silo's training rows best", largest=clusters - 1)
    return Layout(TrainedInCluster, 10, (_trained(parameters), _ROWS, cluster))


def others_layout(parameters: int, models: int) -> Layout[Others]:
    """Round, and models of so many silos."""
    who = Field("who", "u4", "whose models these are", (("models", models),))
    return Layout(Others, 11, (_ROUND, who, _several(parameters, models, "silos' models as they were sent")))


def trained_on_mix_layout(parameters: int, models: int) -> Layout[TrainedOnMix]:
    """Weights, rows, and a number for each of so many models."""
    mixed = Field("mixed", "f4", "how much of each model the silo mixed into its own", (("models", models),))
    return Layout(TrainedOnMix, 12, (_trained(parameters), _ROWS, mixed))
