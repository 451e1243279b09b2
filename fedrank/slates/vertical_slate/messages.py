"""What crosses between platforms and their coordinator in FedSlate: Q-values, gradients of Q-values, targets.

Numbers about candidates, which a network made; no feature of a candidate, no click, no engagement and no weight of a
local network. That is not to say that they tell nothing: :mod:`fedrank.slates.attacks.leakage` measures what.

Sizes in the layouts: N candidates, B moments in a batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax

from fedrank.core.messages import Field, Layout


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Turn:
    """Coordinator to platforms: a round begins.

    Attributes:
        round: uint32, number of the round.
    """

    round: Any


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class LocalValues:
    """Platform to coordinator: its Q-values now, Q_α(s_α) or Q_β(s_β).

    Attributes:
        values: float32 [N].
    """

    values: Any


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class SharedValues:
    """Coordinator to a platform: the federated Q-values of its candidates, equation 9 or 10.

    Attributes:
        round: uint32, number of the round.
        values: float32 [N].
    """

    round: Any
    values: Any


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Done:
    """Platform to coordinator: it has done so. Holds nothing."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Moments:
    """Coordinator to platforms: which moments to learn from, the same at all.

    Attributes:
        round: uint32, number of the round.
        ages: uint32 [B], rounds since the moment, at least 1: the newest has no next state yet.
    """

    round: Any
    ages: Any


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class BatchValues:
    """Platform to coordinator: its Q-values at the moments, and its target network's one round later.

    Attributes:
        values: float32 [B, N].
        following: float32 [B, N].
    """

    values: Any
    following: Any


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Following:
    """Coordinator to a platform with feedback: the federated target network's values one round after the moments.

    Attributes:
        values: float32 [B, N].
    """

    values: Any


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Targets:
    """Platform with feedback to coordinator: y of equation 13.

    Attributes:
        targets: float32 [B].
        choice: float32 [2], the learnt choice model: slope on the feature and logit of no click; zeros where none is
            learnt.
    """

    targets: Any
    choice: Any


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class TargetsThatMove:
    """The same where targets are no constants, as in the published code.

    Attributes:
        targets: float32 [B].
        choice: float32 [2].
        slopes: float32 [B, N], how much each target changes with the target network's values.
    """

    targets: Any
    choice: Any
    slopes: Any


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Compare:
    """Coordinator to a platform: what to compare, equations 14 and 15.

    Attributes:
        values: float32 [B, N], the federated values of its candidates at the moments.
        targets: float32 [B]; its own come back to a platform with feedback.
        choice: float32 [2], as in :class:`Targets`.
    """

    values: Any
    targets: Any
    choice: Any


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class ValueGradient:
    """Either way: the gradient of a platform's loss by Q-values of its candidates.

    Attributes:
        gradient: float32 [B, N].
    """

    gradient: Any


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class GradientThatMoves:
    """Platform to coordinator where targets are no constants, as in the published code.

    Attributes:
        gradient: float32 [B, N].
        by_targets: float32 [B], the gradient of its loss by the targets.
    """

    gradient: Any
    by_targets: Any


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class NewValues:
    """Platform to coordinator: its Q-values at the moments after its step.

    Attributes:
        values: float32 [B, N].
    """

    values: Any


_ROUND = Field("round", "u4", "number of the round")
_CHOICE = Field("choice", "f4", "the choice model that was learnt: slope, logit of no click", (("parameters", 2),))


def _of_candidates(name: str, meaning: str, n: int) -> Field:
    return Field(name, "f4", meaning, (("candidates", n),))


def _of_moments(name: str, meaning: str, b: int, n: int | None = None) -> Field:
    return Field(name, "f4", meaning, (("moments", b), *((("candidates", n),) if n else ())))


def turn_layout() -> Layout[Turn]:
    """The round."""
    return Layout(Turn, 0, (_ROUND,))


def local_values_layout(n: int) -> Layout[LocalValues]:
    """A number a candidate."""
    return Layout(LocalValues, 1, (_of_candidates("values", "how a platform's network values each candidate now", n),))


def shared_values_layout(n: int) -> Layout[SharedValues]:
    """Round, and a number a candidate."""
    meaning = "how the federated network values each candidate"
    return Layout(SharedValues, 2, (_ROUND, _of_candidates("values", meaning, n)))


def done_layout() -> Layout[Done]:
    """No field."""
    return Layout(Done, 3, ())


def moments_layout(b: int) -> Layout[Moments]:
    """Round, and an age a moment."""
    return Layout(
        Moments, 4, (_ROUND, Field("ages", "u4", "rounds since each moment to learn from", (("moments", b),)))
    )


def batch_values_layout(b: int, n: int) -> Layout[BatchValues]:
    """Two numbers a moment and candidate."""
    return Layout(
        BatchValues,
        5,
        (
            _of_moments("values", "how the network values each candidate of each moment", b, n),
            _of_moments("following", "the same of its target network, one round later", b, n),
        ),
    )


def following_layout(b: int, n: int) -> Layout[Following]:
    """A number a moment and candidate."""
    meaning = "how the federated target network values each candidate, one round later"
    return Layout(Following, 6, (_of_moments("values", meaning, b, n),))


def targets_layout(b: int) -> Layout[Targets]:
    """A number a moment, and a choice model."""
    return Layout(Targets, 7, (_target(b), _CHOICE))


def moving_targets_layout(b: int, n: int) -> Layout[TargetsThatMove]:
    """The same, and a number a moment and candidate."""
    slopes = _of_moments("slopes", "how the target changes with the values that it was made of", b, n)
    return Layout(TargetsThatMove, 8, (_target(b), _CHOICE, slopes))


def compare_layout(b: int, n: int) -> Layout[Compare]:
    """A number a moment and candidate, and one a moment."""
    values = _of_moments("values", "how the federated network values each candidate of each moment", b, n)
    return Layout(Compare, 9, (values, _target(b), _CHOICE))


def value_gradient_layout(b: int, n: int) -> Layout[ValueGradient]:
    """A number a moment and candidate."""
    meaning = (
        "how a platform's loss changes with the value of each candidate: with feedback, other than 0 where a click was"
    )
    return Layout(ValueGradient, 10, (_of_moments("gradient", meaning, b, n),))


def moving_gradient_layout(b: int, n: int) -> Layout[GradientThatMoves]:
    """The same, and a number a moment."""
    by_targets = _of_moments("by_targets", "how a platform's loss changes with each target", b)
    return Layout(GradientThatMoves, 13, (value_gradient_layout(b, n).fields[0], by_targets))


def back_layout(b: int, n: int) -> Layout[ValueGradient]:
    """The same on its way back through the federated network."""
    meaning = "how the platform's loss changes with its own network's value of each candidate"
    return Layout(ValueGradient, 11, (_of_moments("gradient", meaning, b, n),))


def new_values_layout(b: int, n: int) -> Layout[NewValues]:
    """A number a moment and candidate."""
    meaning = "how the platform's network values each candidate of each moment after its step"
    return Layout(NewValues, 12, (_of_moments("values", meaning, b, n),))


def _target(b: int) -> Field:
    return _of_moments("targets", "engagement at each moment and what is expected after it: tells engagement", b)
