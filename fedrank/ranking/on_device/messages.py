"""What crosses in :mod:`fedrank.ranking.foltr_es`, to the byte; NumPy and the standard library are enough to read it.

A device has no JAX. :mod:`fedrank.ranking.foltr_es` makes the same classes known to it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fedrank.core.messages import Field, Layout


@dataclass(frozen=True)
class Request:
    """Server to devices: the model to start from.

    Attributes:
        round: uint32: number of the round.
        weights: float32 [parameters].
    """

    round: Any
    weights: Any


@dataclass(frozen=True)
class Reply:
    """Device to server, antithetic.

    Attributes:
        seed: uint32: makes the perturbation, nothing else.
        plus: Sum of the privatised values under θ + σv, in units of 1/scale of the metric.
        minus: The same under θ − σv.
    """

    seed: Any
    plus: Any
    minus: Any


@dataclass(frozen=True)
class PlainReply:
    """Device to server without antithetic halves.

    Attributes:
        seed: uint32: makes the perturbation, nothing else.
        plus: Sum of the privatised values under θ + σv, in units of 1/scale of the metric.
    """

    seed: Any
    plus: Any


@dataclass(frozen=True)
class NoisyReply:
    """Device to server, antithetic, with noise on the sums instead of lies about interactions.

    Attributes:
        seed: uint32: makes the perturbation, nothing else.
        plus: int32: sum of the values under θ + σv and noise, in units of 1/scale of the metric.
        minus: int32: the same under θ − σv.
    """

    seed: Any
    plus: Any
    minus: Any


def request_layout(parameters: int) -> Layout[Request]:
    """Round and weights."""
    weights = Field("weights", "f4", "the ranker to start from", (("parameters", parameters),))
    return Layout(Request, 1, (Field("round", "u4", "number of the round"), weights))


def reply_layout(largest: int, antithetic: bool, noisy: bool) -> Layout[Any]:
    """Seed and sums: 9 bytes for MaxRR with B = 4 and antithetic halves; 7 to 13 in all settings.

    Args:
        largest: Largest sum that an honest device can have.
        antithetic: Two sums or one.
        noisy: There is noise on the sums, so that any integer may come.
    """
    seed = Field("seed", "u4", "seed of the random perturbation that was tried; says nothing about anyone")
    if noisy:
        added = "sum of the metric values with the perturbation added, and noise"
        minus = Field("minus", "i4", added.replace("added", "subtracted"))
        return Layout(NoisyReply, 4, (seed, Field("plus", "i4", added), minus))
    width, added = "u2" if largest < 2**16 else "u3", "sum of the privatised metric values with the perturbation added"
    plus = Field("plus", width, added, largest=largest)
    if not antithetic:
        return Layout(PlainReply, 3, (seed, plus))
    return Layout(Reply, 2, (seed, plus, Field("minus", width, added.replace("added", "subtracted"), largest=largest)))
