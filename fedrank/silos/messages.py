"""What crosses between a server and silos that average models: models, numbers of rows, performances.

Shared by :mod:`fedrank.silos.bandit_fedavg` and what it is compared with. No message has an axis of rows: what a
silo's patients or customers are never crosses. What a *model* gives away of the rows that it was trained on is another
matter, and nothing here bounds it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from fedrank.core.messages import Field, Layout


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Model:
    """Server to silos: the model to start from.

    Attributes:
        round: uint32, number of the round.
        weights: float32 [parameters].
    """

    round: Any
    weights: Any


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Trained:
    """Silo to server: the model that it has come to.

    Attributes:
        weights: float32 [parameters].
        rows: uint32, how many rows it was trained on; the weight of the average.
    """

    weights: Any
    rows: Any


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Ready:
    """Silo to server: it has trained by itself, and keeps what it has come to.

    Attributes:
        rows: uint32, how many rows it has to train on.
    """

    rows: Any


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Candidates:
    """Server to target: averages of local models, to be judged.

    Attributes:
        models: float32 [models, parameters].
    """

    models: Any


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Judged:
    """Target to server: how good models are on its validation rows.

    Attributes:
        own: float32, of its own local model of this round; :data:`UNDEFINED` where there is no such number.
        models: float32 [models]; likewise.
    """

    own: Any
    models: Any


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class ModelAndCandidates:
    """Server to target where rewards are a round late: :class:`Model` and :class:`Candidates` in one."""

    round: Any
    weights: Any
    models: Any


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class TrainedAndJudged:
    """Target to server where rewards are a round late: :class:`Trained` and :class:`Judged` in one."""

    weights: Any
    rows: Any
    own: Any
    models: Any


#: Stands for "there is no such number", such as the AUC on rows of one class: what is not finite cannot cross.
UNDEFINED = -1e30

_ROUND = Field("round", "u4", "number of the round")
_ROWS = Field("rows", "u4", "number of rows that the silo trains on")
_OWN = Field("own", "f4", "how good the target's own local model is on its validation rows")


def defined(numbers: Any) -> Any:
    """Numbers as they crossed, NaN for :data:`UNDEFINED`."""
    return jnp.where(numbers > UNDEFINED / 2, numbers, jnp.nan)


def _weights(parameters: int, meaning: str) -> Field:
    return Field("weights", "f4", meaning, (("parameters", parameters),))


def _candidates(parameters: int, models: int) -> Field:
    meaning = "averages of silos' models" if models > 1 else "an average of silos' models"
    return Field("models", "f4", meaning, (("models", models), ("parameters", parameters)))


def _judged(models: int) -> Field:
    return Field("models", "f4", "how good each of them is on the target's validation rows", (("models", models),))


def model_layout(parameters: int) -> Layout[Model]:
    """Round and weights."""
    return Layout(Model, 1, (_ROUND, _weights(parameters, "the model to start from")))


def trained_layout(parameters: int) -> Layout[Trained]:
    """Weights and rows."""
    return Layout(Trained, 2, (_weights(parameters, "the model after training on the silo's rows"), _ROWS))


def ready_layout() -> Layout[Ready]:
    """Rows only."""
    return Layout(Ready, 3, (_ROWS,))


def candidates_layout(parameters: int, models: int) -> Layout[Candidates]:
    """So many models."""
    return Layout(Candidates, 4, (_candidates(parameters, models),))


def judged_layout(models: int) -> Layout[Judged]:
    """A number for each of so many models, and the target's own."""
    return Layout(Judged, 5, (_OWN, _judged(models)))


def model_and_candidates_layout(parameters: int, models: int) -> Layout[ModelAndCandidates]:
    """A model to start from, and models to judge."""
    start = _weights(parameters, "the model to start from")
    return Layout(ModelAndCandidates, 6, (_ROUND, start, _candidates(parameters, models)))


def trained_and_judged_layout(parameters: int, models: int) -> Layout[TrainedAndJudged]:
    """The target's model, and numbers for the models of the round before."""
    trained = _weights(parameters, "the model after training on the silo's rows")
    return Layout(TrainedAndJudged, 7, (trained, _ROWS, _OWN, _judged(models)))


#: What the server of any protocol of silos sees.
SEEN = (
    "Nothing is noised. The server sees the model of every silo that takes part as it is, and how many rows it has: "
    "what a model reveals of the rows that it was trained on has no bound."
)
