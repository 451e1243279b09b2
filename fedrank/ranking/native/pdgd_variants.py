"""FedOpt, FedProx and asynchronous merging for federated PDGD, without JAX; their modules say what is computed."""

from __future__ import annotations

from typing import cast

import numpy as np
from jaxtyping import Bool, UInt32
from typing_extensions import override

from fedrank.core.native import native_rounds
from fedrank.core.protocol import Party
from fedrank.ranking.foltr_pdgd.asynchronous import AsyncPDGD
from fedrank.ranking.foltr_pdgd.fedopt import FedOptPDGD, FedOptState
from fedrank.ranking.foltr_pdgd.fedprox import FedProxPDGD
from fedrank.ranking.foltr_pdgd.messages import ServerState, WeightsReply
from fedrank.ranking.native.foltr_pdgd import NativeFoltrPDGD
from fedrank.ranking.native.measures import mix32


@native_rounds.register(FedProxPDGD)
class NativeFedProxPDGD(NativeFoltrPDGD):
    """Rounds of :class:`~fedrank.ranking.foltr_pdgd.fedprox.FedProxPDGD`."""

    knows = FedProxPDGD

    def __init__(self, settings: FedProxPDGD, parties: Party):
        super().__init__(settings, parties)
        self.mu = settings.mu


@native_rounds.register(FedOptPDGD)
class NativeFedOptPDGD(NativeFoltrPDGD):
    """Rounds of :class:`~fedrank.ranking.foltr_pdgd.fedopt.FedOptPDGD`."""

    knows = FedOptPDGD

    @override
    def first(self, keys: UInt32[np.ndarray, "runs 2"]) -> FedOptState:  # type: ignore[override] - more in it
        state, s = super().first(keys), cast(FedOptPDGD, self.settings)
        zero = np.zeros_like(state.weights)
        return FedOptState(state.round, state.weights, zero, zero + np.float32(s.tau) ** 2)

    @override
    def tell(  # type: ignore[override] - more in the state
        self, state: FedOptState, replies: WeightsReply, arrived: Bool[np.ndarray, "runs parties"]
    ) -> FedOptState:
        s = cast(FedOptPDGD, self.settings)
        mean = super().tell(ServerState(state.round, state.weights), replies, arrived)
        change, moment = np.asarray(mean.weights) - state.weights, np.asarray(state.moment)
        beta, gamma, old = np.float32(s.betas[0]), np.float32(s.betas[1]), np.asarray(state.square)
        moment, square = beta * moment + (1 - beta) * change, change * change
        if s.optimiser == "adam":
            square = gamma * old + (1 - gamma) * square
        elif s.optimiser == "yogi":
            square = old - (1 - gamma) * square * np.sign(old - square)
        else:
            square = old + square
        weights = state.weights + np.float32(s.server_rate) * moment / (np.sqrt(square) + np.float32(s.tau))
        some = self.heard(replies, arrived).any(axis=1, keepdims=True)
        kept = (np.where(some, a, b) for a, b in ((weights, state.weights), (moment, state.moment), (square, old)))
        return FedOptState(np.asarray(mean.round), *kept)


@native_rounds.register(AsyncPDGD)
class NativeAsyncPDGD(NativeFoltrPDGD):
    """Rounds of :class:`~fedrank.ranking.foltr_pdgd.asynchronous.AsyncPDGD`."""

    knows = AsyncPDGD

    @override
    def tell(self, state: ServerState, replies: WeightsReply, arrived: Bool[np.ndarray, "runs parties"]) -> ServerState:
        s = cast(AsyncPDGD, self.settings)
        heard, numbers = self.heard(replies, arrived), np.asarray(state.round)
        parties = np.arange(heard.shape[1], dtype=np.uint32)
        drawn = mix32(mix32(parties) ^ mix32(numbers + np.uint32(1))[:, None])
        order = np.lexsort((drawn, ~heard), axis=1)  # as they arrive, those not heard at the end
        parts = np.minimum(np.take_along_axis(replies.interactions, order, 1) / np.float32(s.interactions), 1)
        fading = ((1 + parties.astype(np.float32)) ** -s.staleness).astype(np.float32)
        alphas = np.where(np.take_along_axis(heard, order, 1), parts * np.float32(s.mixing) * fading, 0)
        kept = np.cumprod((1 - alphas)[:, ::-1], axis=1)[:, ::-1]
        # θ after all merges is a weighted sum: an answer is scaled down by every merge after it.
        shares = alphas * np.concatenate([kept[:, 1:], np.ones_like(kept[:, :1])], axis=1)
        sent = np.where(heard[..., None], np.asarray(replies.weights), 0)
        merged = np.einsum("rp,rpn->rn", shares, np.take_along_axis(sent, order[..., None], 1))
        weights = (kept[:, :1] * np.asarray(state.weights) + merged).astype(np.float32)
        return ServerState(numbers + np.uint32(1), weights)
