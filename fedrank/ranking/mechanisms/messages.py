"""Messages of vectors: what a device sends that has learnt weights, and the state of a server that adds noise."""

from __future__ import annotations

from typing import NamedTuple

from jaxtyping import Float, UInt32

from fedrank.core.arrays import AnyArray
from fedrank.core.messages import Array, f4, field, message, u2, u4


@message(kind=2)
class WeightsReply:
    """Device to server: weights after learning, or their change, which the server sees.

    The run's mechanism says which of the two is sent, and whether it is clipped or has a share of noise.
    """

    weights: Array = field(
        f4["parameters"], "weights after learning, or their change, with the device's share of noise if it has one"
    )
    interactions: Array = field(u2, "number of interactions learnt from", largest="interactions")


@message(kind=3)
class SumReply:
    """Device to secure sum: a vector of which the server learns nothing but the sum over devices.

    The values are clipped weights, or with an ε of a user their clipped change, times the device's part of B
    interactions, in steps of the grid, with the device's share of noise, modulo 2³². In a deployment they are masked.
    The number of interactions is public.
    """

    values: Array = field(
        u4["parameters"], "weights after learning, as integers that mean nothing until all devices' are added up"
    )
    interactions: Array = field(u2, "number of interactions learnt from", largest="interactions")


class ServerNoise(NamedTuple):
    """State of the server's noise: see :mod:`fedrank.privacy.noise.correlated`.

    Attributes:
        key: uint32 [2], for the noise of all rounds.
        past: float32 [before, parameters]: noise of the last rounds in units of σ, the latest first.
    """

    key: UInt32[AnyArray, "2"]
    past: Float[AnyArray, "before parameters"]
