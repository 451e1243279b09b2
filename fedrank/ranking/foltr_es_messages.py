"""What crosses in :mod:`fedrank.ranking.foltr_es`, what a device draws for it, and what the server keeps."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax

from fedrank.ranking.on_device.messages import NoisyReply, PlainReply, Reply, Request, reply_layout, request_layout

__all__ = ["Draws", "NoisyReply", "PlainReply", "Reply", "Request", "ServerState", "reply_layout", "request_layout"]

for _message in (Request, Reply, PlainReply, NoisyReply):
    jax.tree_util.register_dataclass(_message)


class Draws(NamedTuple):
    """A device's chance in one round; no two fields share a word.

    Attributes:
        seed: uint32: of the perturbation; the only one that is sent.
        queries: uint32 [halves, each]: which query an interaction is about.
        clicks: uint32 [halves, each, depth]: the user's chance at each rank.
        ties: uint32 [halves, each]: order of equal scores.
        privacy: uint32 [halves, each, 2]: the lies.
        noise: int32 [halves]: what is added to the sums; zero where interactions are lied about.
    """

    seed: Any
    queries: Any
    clicks: Any
    ties: Any
    privacy: Any
    noise: Any


class ServerState(NamedTuple):
    """What the server keeps between rounds: nothing about any device.

    Attributes:
        round: uint32.
        weights: float32 [parameters].
        optimiser: Adam's moments.
    """

    round: Any
    weights: Any
    optimiser: Any
