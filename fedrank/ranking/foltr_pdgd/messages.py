"""What crosses in :mod:`fedrank.ranking.foltr_pdgd`, what a device draws for it, and what the server keeps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax

from fedrank.core.messages import Field, Layout


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Request:
    """Server to devices: the model to start from.

    Attributes:
        round: uint32: number of the round; the learning rate follows from it.
        weights: float32 [parameters].
    """

    round: Any
    weights: Any


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class WeightsReply:
    """Device to server: its weights, for the server to see.

    Attributes:
        weights: float32 [parameters], clipped and with the device's share of noise.
        interactions: How many interactions they come from.
    """

    weights: Any
    interactions: Any


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class SumReply:
    """Device to secure sum: a vector of which the server learns nothing but the sum over devices.

    Attributes:
        values: uint32 [parameters]: clipped weights times the device's part of B interactions, in steps of the grid,
            with the device's share of noise, modulo 2³². Masked in a deployment.
        interactions: How many interactions they come from. Public.
    """

    values: Any
    interactions: Any


class Draws(NamedTuple):
    """A device's chance in one round; no two fields share a word.

    Attributes:
        queries: uint32 [B]: which query an interaction is about.
        documents: uint32 [B, 2]: makes the words that a ranking is drawn with.
        clicks: uint32 [B, depth]: the user's chance at each rank.
        noise: The device's share: float32 [n] for weights, int32 [n] for integers; None without noise.
    """

    queries: Any
    documents: Any
    clicks: Any
    noise: Any


class ServerState(NamedTuple):
    """What the server keeps between rounds: nothing about any device.

    Attributes:
        round: uint32.
        weights: float32 [parameters].
    """

    round: Any
    weights: Any


def request_layout(parameters: int) -> Layout[Request]:
    """Round and weights."""
    weights = Field("weights", "f4", "the ranker to start from", (("parameters", parameters),))
    return Layout(Request, 1, (Field("round", "u4", "number of the round"), weights))


def reply_layout(parameters: int, interactions: int, secure_sum: bool, noised: bool) -> Layout[Any]:
    """Four bytes a weight, and two that say how many interactions they come from.

    Args:
        parameters: Number of weights.
        interactions: Most interactions of a device.
        secure_sum: The server sees the sum only.
        noised: There is a share of noise on the weights.
    """
    axes = (("parameters", parameters),)
    count = Field("interactions", "u2", "number of interactions learnt from", largest=interactions)
    if secure_sum:
        meaning = "weights after learning, as integers that mean nothing until all devices' are added up"
        return Layout(SumReply, 3, (Field("values", "u4", meaning, axes), count))
    meaning = "weights after learning" + (", with the device's share of noise" if noised else "")
    return Layout(WeightsReply, 2, (Field("weights", "f4", meaning, axes), count))
