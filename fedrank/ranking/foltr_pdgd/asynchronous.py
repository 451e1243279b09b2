"""Asynchronous federated PDGD: a device's weights are merged when they arrive (Xie, Koyejo, Gupta 2019, FedAsync).

A round of the simulation is one message of every device. All of them fetch the server's weights at its start, learn as
in FPDGD (:mod:`fedrank.ranking.foltr_pdgd`), and their answers arrive one after another, in another order every
round. The server waits for nobody. To the k-th that arrives, k = 0, 1, …, the model has moved on by k merges: that is
its *staleness*. With a the part of its B interactions that the device made (Algorithm 1 of the paper)::

    server   αₖ = a · α · (1 + k)^(−b)                                            polynomial staleness
             θ ← (1 − αₖ) θ + αₖ θₖ

b = 0 lets late answers count as much as early ones. The order is drawn from the round's number, so that no device is
always early.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Int
from typing_extensions import override

from fedrank.core.arrays import AnyArray, PyTree
from fedrank.core.arrays import JaxArray as Array
from fedrank.core.errors import ConfigError
from fedrank.core.lazy import jax, jnp
from fedrank.core.protocol import Exchange
from fedrank.privacy.quantise import clip_to_norm
from fedrank.ranking.foltr_pdgd import FoltrPDGD, LearnLocally
from fedrank.ranking.foltr_pdgd.messages import ServerState
from fedrank.ranking.on_device.messages import Request
from fedrank.ranking.sessions.reference import mix32


@dataclass(frozen=True)
class AsyncPDGD(FoltrPDGD):
    """The protocol's settings; those of FPDGD, without noise and other rules than the merge.

    Attributes:
        mixing: α, weight of an answer that nobody came before, in (0, 1].
        staleness: b, how fast the weight falls with what came before, at least 0.
    """

    mixing: float = 0.6
    staleness: float = 0.5

    name = "async-pdgd"

    def __post_init__(self):
        super().__post_init__()
        if not 0 < self.mixing <= 1 or not 0 <= self.staleness < 100:
            raise ConfigError(
                f"mixing must be in (0, 1] and staleness in [0, 100), got {self.mixing} and {self.staleness}."
            )
        if self.noise != "none" or self.secure_sum or self.aggregate != "mean":
            raise ConfigError("answers are merged one by one: there is no noise, no secure sum, no other rule.")

    @property
    @override
    def exchanges(self) -> tuple[Exchange, ...]:
        return (LearnAndMerge(self),)


@dataclass(frozen=True)
class LearnAndMerge(LearnLocally, request=Request):
    """The exchange of :class:`AsyncPDGD`: devices learn as in FPDGD, the server merges answers as they arrive."""

    settings: AsyncPDGD

    @override
    def tell(self, state: ServerState, replies: PyTree, arrived: Bool[AnyArray, "parties"]) -> ServerState:
        """Merge the answers that arrived one by one; those that are not finite are passed over."""
        s = self.settings
        sent = jnp.asarray(replies.weights)
        if s.clip is not None:
            clip = s.clip
            sent = jax.vmap(lambda w: clip_to_norm(w, clip, s.clip_norm, jnp))(sent)
        heard = jnp.asarray(arrived) & jnp.all(jnp.isfinite(sent), axis=1)
        order = arrival_order(state.round, len(sent), heard)
        # θ after all merges is a weighted sum: an answer is scaled down by every merge after it.
        place = jnp.arange(len(sent), dtype=jnp.float32)
        parts = jnp.minimum(replies.interactions[order].astype(jnp.float32) / s.interactions, 1.0)
        alphas = jnp.where(heard[order], parts * s.mixing * (1 + place) ** -s.staleness, 0.0)
        kept = jnp.cumprod((1 - alphas)[::-1])[::-1]
        shares = alphas * jnp.concatenate([kept[1:], jnp.ones(1, jnp.float32)])
        weights = kept[0] * state.weights + shares @ jnp.where(heard[:, None], sent, 0.0)[order]
        return ServerState(state.round + 1, weights)


def arrival_order(
    number: AnyArray | int, parties: int, heard: Bool[AnyArray, "{parties}"] | None = None
) -> Int[Array, "{parties}"]:
    """The devices in the order in which a round's answers arrive, int [parties]; those not heard at the end.

    Args:
        number: uint32, the round.
        parties: Number of devices.
        heard: bool [parties]; None: all.
    """
    drawn = mix32(mix32(jnp.arange(parties, dtype=jnp.uint32)) ^ mix32(jnp.asarray(number, jnp.uint32) + np.uint32(1)))
    last = jnp.zeros(parties, bool) if heard is None else ~jnp.asarray(heard)
    return jnp.lexsort((drawn, last))
