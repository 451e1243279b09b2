"""What crosses where three platforms or more add up what they send, and the coordinator sees sums.

Every reply with numbers in it is a vector of integers modulo 2³², and means nothing until all platforms' are added up.
In a deployment each is masked so that the masks cancel in the sum (:mod:`fedrank.privacy.secure_sum`);
:func:`as_vector` and :func:`from_vector` lead there and back.

Sizes in the layouts: N candidates, B moments in a batch, H weights of Ω.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import jax
import numpy as np

from fedrank.core.messages import Field, Layout


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class ValueWords:
    """Platform to secure sum: its Q-values now.

    Attributes:
        values: uint32 [N], steps of a grid.
    """

    values: Any


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class ValueSum:
    """Coordinator to all platforms: the sum of their Q-values, and the network Ω to join it with their own.

    Attributes:
        round: uint32, number of the round.
        there: 1 if everybody was heard; else there is no sum, and ``total`` is 0.
        total: uint32 [N].
        weights: float32 [H], Ω.
    """

    round: Any
    there: Any
    total: Any
    weights: Any


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class BatchWords:
    """Platform to secure sum: its Q-values at the moments, and its target network's one round later.

    Attributes:
        values: uint32 [B, N].
        following: uint32 [B, N].
    """

    values: Any
    following: Any


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class FollowingSum:
    """Coordinator to all platforms: what targets are made of.

    Attributes:
        there: As in :class:`ValueSum`.
        total: uint32 [B, N], the sum of the target networks' values one round after the moments.
        weights: float32 [H], Ω's target network.
    """

    there: Any
    total: Any
    weights: Any


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class TargetWords:
    """Platform to secure sum: y of equation 13; of a platform without feedback zeros.

    Attributes:
        targets: uint32 [B].
        choice: uint32 [2], the learnt choice model: slope on the feature and logit of no click.
    """

    targets: Any
    choice: Any


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class LearnSum:
    """Coordinator to all platforms: what to learn from.

    Attributes:
        there: As in :class:`ValueSum`, of the batch and of the targets.
        total: uint32 [B, N], the sum of the values at the moments.
        weights: float32 [H], Ω.
        targets: float32 [B], the mean over platforms with feedback.
        choice: float32 [2], likewise.
    """

    there: Any
    total: Any
    weights: Any
    targets: Any
    choice: Any


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class GradientWords:
    """Platform to secure sum: the gradient of its loss by Ω's weights.

    Attributes:
        gradient: uint32 [H].
    """

    gradient: Any


def _words(name: str, meaning: str, *axes: tuple[str, int]) -> Field:
    return Field(name, "u4", f"{meaning}, as integers that mean nothing until all platforms' are added up", axes)


def _sum(meaning: str, *axes: tuple[str, int]) -> Field:
    return Field("total", "u4", f"{meaning}: the sum over all platforms, as integers", axes)


def _network(meaning: str, h: int) -> Field:
    return Field("weights", "f4", meaning, (("parameters", h),))


_THERE = Field("there", "u1", "whether everybody was heard, so that there is a sum", largest=1)
_JOINT = "the federated network"


def value_words_layout(n: int) -> Layout[ValueWords]:
    """A word a candidate."""
    return Layout(ValueWords, 5, (_words("values", "how a network values each candidate now", ("candidates", n)),))


def value_sum_layout(n: int, h: int) -> Layout[ValueSum]:
    """Round, a word a candidate, and Ω."""
    total = _sum("how platforms value each candidate now", ("candidates", n))
    return Layout(ValueSum, 6, (Field("round", "u4", "number of the round"), _THERE, total, _network(_JOINT, h)))


def batch_words_layout(b: int, n: int) -> Layout[BatchWords]:
    """Two words a moment and candidate."""
    axes = ("moments", b), ("candidates", n)
    return Layout(
        BatchWords,
        7,
        (
            _words("values", "how a network values each candidate of each moment", *axes),
            _words("following", "the same of its target network, one round later", *axes),
        ),
    )


def following_sum_layout(b: int, n: int, h: int) -> Layout[FollowingSum]:
    """A word a moment and candidate, and Ω's target network."""
    total = _sum("how target networks value candidates one round later", ("moments", b), ("candidates", n))
    return Layout(FollowingSum, 8, (_THERE, total, _network(f"{_JOINT}'s target network", h)))


def target_words_layout(b: int) -> Layout[TargetWords]:
    """A word a moment, and a choice model."""
    targets = _words("targets", "engagement at each moment and what is expected after it", ("moments", b))
    return Layout(TargetWords, 9, (targets, _words("choice", "the choice model that was learnt", ("parameters", 2))))


def learn_sum_layout(b: int, n: int, h: int) -> Layout[LearnSum]:
    """A word a moment and candidate, Ω, a number a moment, and a choice model."""
    return Layout(
        LearnSum,
        10,
        (
            _THERE,
            _sum("how platforms value candidates at each moment", ("moments", b), ("candidates", n)),
            _network(_JOINT, h),
            Field("targets", "f4", "mean target of the platforms with feedback: tells engagement", (("moments", b),)),
            Field("choice", "f4", "mean choice model: slope, logit of no click", (("parameters", 2),)),
        ),
    )


def gradient_words_layout(h: int) -> Layout[GradientWords]:
    """A word a weight of Ω."""
    meaning = "how a platform's loss changes with each weight of the federated network"
    return Layout(GradientWords, 11, (_words("gradient", meaning, ("parameters", h)),))


def length(layout: Layout) -> int:
    """Numbers in the vector of a message: of words to be summed."""
    return sum(int(np.prod(field.shape)) for field in layout.fields)


def as_vector(message: Any) -> np.ndarray:
    """One message of words as one vector, uint32 [length], for a secure sum."""
    return np.concatenate([np.asarray(getattr(message, f.name), np.uint32).reshape(-1) for f in fields(message)])


def from_vector(layout: Layout, vector: np.ndarray) -> Any:
    """The inverse of :func:`as_vector`: a sum of vectors as one message of words."""
    values, position = {}, 0
    for field in layout.fields:
        size = int(np.prod(field.shape))
        values[field.name] = vector[position : position + size].reshape(field.shape)
        position += size
    return layout.message(**values)
