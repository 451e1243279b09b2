"""What devices send in :mod:`fedrank.ranking.foltr_pdgd`, what they draw for it, and what the server keeps.

The server sends a :class:`~fedrank.ranking.on_device.messages.Request`.
"""

from __future__ import annotations

from typing import NamedTuple

from jaxtyping import Float, Int, UInt32

from fedrank.core.arrays import AnyArray
from fedrank.core.messages import Array, f4, field, message, u2, u4


@message(kind=2)
class WeightsReply:
    """Device to server: its weights, for the server to see; where a run says so, clipped, and with a share of noise.

    Or how the weights changed while it learned, where a run says that.
    """

    weights: Array = field(
        f4["parameters"], "weights after learning, or their change, with the device's share of noise if it has one"
    )
    interactions: Array = field(u2, "number of interactions learnt from", largest="interactions")


@message(kind=3)
class SumReply:
    """Device to secure sum: a vector of which the server learns nothing but the sum over devices.

    The values are clipped weights, or where a run says so their clipped change, times the device's part of B
    interactions, in steps of the grid, with the device's share of noise, modulo 2³². In a deployment they are masked.
    The number of interactions is public.
    """

    values: Array = field(
        u4["parameters"], "weights after learning, as integers that mean nothing until all devices' are added up"
    )
    interactions: Array = field(u2, "number of interactions learnt from", largest="interactions")


class Draws(NamedTuple):
    """A device's random bits in one round; none is used twice.

    Attributes:
        queries: uint32 [B]: which query an interaction is about.
        documents: uint32 [B, 2]: makes the random bits that a ranking is drawn with.
        clicks: uint32 [B, depth]: random bits for the user's decision at each rank.
        noise: The device's share: float32 [n] for weights, int32 [n] for integers; None without noise.
    """

    queries: UInt32[AnyArray, "interactions"]
    documents: UInt32[AnyArray, "interactions 2"]
    clicks: UInt32[AnyArray, "interactions depth"]
    noise: Float[AnyArray, "parameters"] | Int[AnyArray, "parameters"] | None


class ServerNoise(NamedTuple):
    """What the server's noise is made of: see :mod:`fedrank.privacy.noise.correlated`.

    Attributes:
        key: uint32 [2], for the noise of all rounds.
        past: float32 [before, parameters]: noise of the last rounds in units of σ, the latest first.
    """

    key: UInt32[AnyArray, "2"]
    past: Float[AnyArray, "before parameters"]


class ServerState(NamedTuple):
    """The server's state between rounds; nothing in it is about a single device.

    Attributes:
        round: uint32.
        weights: float32 [parameters].
        noise: Where the server adds the noise; else None.
    """

    round: UInt32[AnyArray, ""]
    weights: Float[AnyArray, "parameters"]
    noise: ServerNoise | None = None
