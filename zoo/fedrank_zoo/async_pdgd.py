"""Asynchronous federated PDGD: a device's weights are merged when they arrive (Xie, Koyejo, Gupta 2019, FedAsync).

A round of the simulation is one message of every device. All of them fetch the server's weights at its start, learn as
in FPDGD (:mod:`fedrank.ranking.foltr_pdgd`), and their answers arrive one after another, in another order every
round. The server merges each at once. To the k-th that arrives, k = 0, 1, …, the model has moved on by k merges: that
is its *staleness*. With a the part of its B interactions that the device made (Algorithm 1 of the paper)::

    server   αₖ = a · α · (1 + k)^(−b)                                            polynomial staleness
             θ ← (1 − αₖ) θ + αₖ θₖ

b = 0 lets late answers count as much as early ones. The order is drawn from the round's number, so that no device is
always early.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Int
from typing_extensions import override

from fedrank.aggregation.server_steps import Average
from fedrank.core.arrays import AnyArray, PyTree
from fedrank.core.arrays import AnyArray as Array
from fedrank.core.errors import ConfigError
from fedrank.core.fields import bound, setting
from fedrank.core.lazy import jnp
from fedrank.core.native import NotNativeError
from fedrank.core.protocol import Exchange, Party
from fedrank.ranking.foltr_pdgd import FoltrPDGD, LearnLocally, ServerState
from fedrank.ranking.on_device import Request
from fedrank.ranking.sessions.reference import mix32


@dataclass(frozen=True)
class AsyncPDGD(FoltrPDGD):
    """FPDGD whose server merges each device's weights as they arrive, by how stale they are."""

    mixing: float = setting(0.6, "α, weight of the first answer that arrives, in (0, 1].")
    staleness: float = setting(0.5, "b, how fast the weight falls with the answers that came before; 0: not at all.")
    server: Any = bound(Average())
    aggregate: str = bound("mean")
    byzantine: int | None = bound()

    name, paper = "async-pdgd", "xie2019fedasync"
    published = "Xie, Koyejo, Gupta: Asynchronous Federated Optimization, 2019"
    crosses = "weights: 4 bytes each"
    rules, populations, modes = None, False, ()

    def __post_init__(self):
        super().__post_init__()
        if not 0 < self.mixing <= 1 or not 0 <= self.staleness < 100:
            raise ConfigError(
                f"mixing must be in (0, 1] and staleness in [0, 100), got {self.mixing} and {self.staleness}."
            )
        if not self.privacy.in_the_clear:
            raise ConfigError("answers are merged one by one: there is no noise and no secure sum.")

    @override
    def cohort(self, parties: Party) -> Any:
        raise NotNativeError(f"the protocol {self.name!r}")

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
        sent = s.privacy.clip_vectors(jnp.asarray(replies.weights))  # type: ignore[attr-defined] - the only mechanism here
        heard = jnp.asarray(arrived) & jnp.all(jnp.isfinite(sent), axis=1)
        order = arrival_order(state.round, len(sent), heard)
        # θ after all merges is a weighted sum: an answer is scaled down by every merge after it.
        place = jnp.arange(len(sent), dtype=jnp.float32)
        parts = jnp.minimum(replies.interactions[order].astype(jnp.float32) / s.interactions, 1.0)
        alphas = jnp.where(heard[order], parts * s.mixing * (1 + place) ** -s.staleness, 0.0)
        kept = jnp.cumprod((1 - alphas)[::-1])[::-1]
        shares = alphas * jnp.concatenate([kept[1:], jnp.ones(1, jnp.float32)])
        weights = kept[0] * state.weights + shares @ jnp.where(heard[:, None], sent, 0.0)[order]
        return state._replace(round=state.round + 1, weights=weights)


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
