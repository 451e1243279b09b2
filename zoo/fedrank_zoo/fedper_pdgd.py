"""FedPer for federated PDGD: a part of the ranker stays on the device (Arivazhagan et al. 2019, arXiv 1912.00818).

Devices learn as in FPDGD (:mod:`fedrank.ranking.foltr_pdgd`), each with a ranker of two parts: a *body* that all share,
which is sent and averaged, and a *personal* part p, which never leaves. Which part is which depends on the ranker:

* of two layers: the body is the hidden layer, the personal part the output layer (the paper's last layer);
* linear: the ranker is θ + p, and each step of PDGD is divided between the two::

    device   w = θ + p;   B steps of PDGD from w, which end at w + Δ
             p ← p + ρΔ,   sends θ + (1 − ρ)Δ
    server   θ ← the mean of what devices sent, as in FPDGD

ρ = 0 is FPDGD, and with ρ = 1 every device learns alone. A ranker with a personal part is good for its own user; what
the server has is the ranker that a newcomer starts with, whose personal part has learnt nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float
from typing_extensions import override

from fedrank.core.arrays import AnyArray, PyTree
from fedrank.core.arrays import JaxArray as Array
from fedrank.core.errors import ConfigError
from fedrank.core.fields import setting
from fedrank.core.lazy import jax, jnp
from fedrank.core.native import NotNativeError
from fedrank.core.protocol import Exchange, Party
from fedrank.ranking.data.partition import Shares
from fedrank.ranking.data.queries import FeatureBlocks, PaddedQueries
from fedrank.ranking.foltr_pdgd import Draws, FoltrPDGD, LearnLocally, ServerState
from fedrank.ranking.mechanisms.weights import WeightsReply
from fedrank.ranking.on_device import Request
from fedrank.ranking.protocol import INITIAL
from fedrank.ranking.rankers.linear import Linear
from fedrank.ranking.rankers.mlp import TwoLayer
from fedrank.ranking.sessions.devices import Device, PerDevice


@dataclass(frozen=True)
class FedPerPDGD(FoltrPDGD):
    """FPDGD whose devices keep a part of the ranker: the output layer, or a part of each weight."""

    personal: float = setting(
        0.5,
        "ρ, part of each step that stays on the device: 0 is foltr-pdgd, with 1 devices learn alone. Of two layers "
        "the output stays.",
        low=0,
        high=1,
        needs=("ranker", ("linear",)),
    )

    name, paper = "fedper-pdgd", "arivazhagan2019fedper"
    published = "Arivazhagan et al.: Federated Learning with Personalization Layers, 2019"
    crosses = "weights: 4 bytes each"
    populations, modes = False, ()

    def __post_init__(self):
        super().__post_init__()
        if self.user is not None and not isinstance(self.ranker, Linear | TwoLayer):
            raise ConfigError(
                f"fedper-pdgd knows what is personal in a linear ranker and one of two layers, not in "
                f"{type(self.ranker).__name__}."
            )
        if not 0 <= self.personal <= 1:
            raise ConfigError(f"personal must be in [0, 1], got {self.personal}.")
        if not self.privacy.in_the_clear or getattr(self.privacy, "clip", None) is not None:
            raise ConfigError(
                "fedper-pdgd sends its weights as they are: there is no noise, no secure sum and no clip."
            )

    @property
    def output_layer_is_personal(self) -> bool:
        """True if the output layer is personal; False if a part of each weight is."""
        return isinstance(self.ranker, TwoLayer)

    @property
    def body(self) -> int:
        """Number of weights that are shared: the first ones."""
        return self.ranker.size - self.ranker.hidden if isinstance(self.ranker, TwoLayer) else self.ranker.size

    @property
    def newcomer(self) -> np.ndarray:
        """The personal part of a device that has learnt nothing, float32 [p].

        Of two layers the same on all devices, half of it negative: bodies that are averaged must mean the same.
        """
        if not isinstance(self.ranker, TwoLayer):
            return np.zeros(self.ranker.size, np.float32)
        return np.where(np.arange(self.ranker.hidden) % 2, -INITIAL, INITIAL).astype(np.float32)

    @property
    @override
    def sent(self) -> int:
        return self.body

    @override
    def cohort(self, parties: Party) -> Any:
        raise NotNativeError(f"the protocol {self.name!r}")

    @property
    @override
    def exchanges(self) -> tuple[Exchange, ...]:
        return (LearnInPart(self),)

    @override
    def init(self, key: Any) -> ServerState:
        state = super().init(key)
        return state._replace(weights=state.weights[: self.body])

    @override
    def weights(self, state: PyTree) -> jax.Array:
        """The ranker of a newcomer."""
        return self.join_parts(state.weights, jnp.asarray(self.newcomer))

    def join_parts(self, body: Float[AnyArray, " b"], personal: Float[AnyArray, " p"]) -> Float[Array, " n"]:
        """The ranker of a device, float32 [n], from the shared and its own part."""
        return (
            jnp.concatenate([jnp.asarray(body), personal])
            if self.output_layer_is_personal
            else jnp.asarray(body) + personal
        )

    @override
    def own_models(self, state: PyTree, own: Device) -> Float[Array, "parties n"]:
        """The rankers that devices show their users, from the server's state and what they keep."""
        return jax.vmap(lambda personal: self.join_parts(state.weights, personal))(jnp.asarray(own.kept))

    @override
    def devices(
        self,
        data: PaddedQueries | FeatureBlocks,
        shares: Shares,
        user_index: PerDevice = None,
        amounts: PerDevice = None,
    ) -> Party:
        party = super().devices(data, shares, user_index, amounts)
        newcomers = np.broadcast_to(self.newcomer, (shares.parties, len(self.newcomer)))
        return party._replace(own=party.own._replace(kept=newcomers))


@dataclass(frozen=True)
class LearnInPart(LearnLocally, request=Request):
    """The exchange of :class:`FedPerPDGD`: a device learns from its user's clicks and sends a part of it."""

    settings: FedPerPDGD

    @override
    def respond(self, request: Request, party: Party, draws: Draws) -> tuple[Party, WeightsReply]:
        s, own = self.settings, party.own
        before = s.join_parts(request.weights, own.kept)
        learned = self.learn(Request(request.round, before), party, draws)
        if s.output_layer_is_personal:
            sent, personal = learned.weights[: s.body], learned.weights[s.body :]
        else:
            change = learned.weights - before
            sent, personal = request.weights + (1 - s.personal) * change, own.kept + s.personal * change
        own = self.add_experience(own, learned)
        return party._replace(own=own._replace(kept=personal)), WeightsReply(sent, own.amount)
