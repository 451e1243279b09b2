"""What crosses while silos train one ranker: models and changes of models.

What crosses before that, so that each silo has rows of its queries with others' documents, is in
:mod:`fedrank.texts.silo_sketch.setup_messages`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax

from fedrank.core.messages import Field, Layout


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Begin:
    """Server to silos: train by yourselves.

    Attributes:
        round: uint32, number of the round.
    """

    round: Any


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class LocalModel:
    """Silo to server: the ranker that it has learnt from its own labels.

    Attributes:
        weights: float32 [parameters].
        rows: uint32, labelled rows behind it.
    """

    weights: Any
    rows: Any


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Labeller:
    """Server to silos: the model that guesses the labels of cross pairs.

    Attributes:
        round: uint32, number of the round.
        weights: float32 [parameters].
    """

    round: Any
    weights: Any


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Labelled:
    """Silo to server: its cross pairs have labels now.

    Attributes:
        rows: uint32, how many pairs.
    """

    rows: Any


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Ranker:
    """Server to silos: everybody's ranker.

    Attributes:
        round: uint32, number of the round.
        weights: float32 [parameters].
    """

    round: Any
    weights: Any


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Change:
    """Silo to server: Δθ, what its steps of SGD changed.

    Attributes:
        weights: float32 [parameters].
    """

    weights: Any


_ROUND = Field("round", "u4", "number of the round")


def _weights(parameters: int, meaning: str) -> Field:
    return Field("weights", "f4", meaning, (("parameters", parameters),))


def begin_layout() -> Layout[Begin]:
    """The round only."""
    return Layout(Begin, 1, (_ROUND,))


def local_model_layout(parameters: int) -> Layout[LocalModel]:
    """Weights and a count."""
    rows = Field("rows", "u4", "number of labelled rows that the silo trained on")
    return Layout(LocalModel, 2, (_weights(parameters, "the ranker learnt from the silo's own labels"), rows))


def labeller_layout(parameters: int) -> Layout[Labeller]:
    """Round and weights."""
    return Layout(Labeller, 3, (_ROUND, _weights(parameters, "the model that guesses labels")))


def labelled_layout() -> Layout[Labelled]:
    """A count."""
    return Layout(Labelled, 4, (Field("rows", "u4", "number of cross pairs that the silo has"),))


def ranker_layout(parameters: int) -> Layout[Ranker]:
    """Round and weights."""
    return Layout(Ranker, 5, (_ROUND, _weights(parameters, "everybody's ranker")))


def change_layout(parameters: int) -> Layout[Change]:
    """A change of the weights."""
    return Layout(Change, 6, (_weights(parameters, "what the silo's training changed in the ranker"),))
