"""FPDGD without JAX; what is computed, and why, stands in :mod:`fedrank.ranking.foltr_pdgd`."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Bool, Float32, UInt32
from typing_extensions import override

from fedrank.core.kernels import normals, party_words
from fedrank.core.native import NativeRounds, NotNativeError, check_own_class, native_rounds
from fedrank.core.protocol import Party
from fedrank.ranking.data.queries import FeatureBlocks
from fedrank.ranking.foltr_pdgd import INITIAL, FoltrPDGD, LearnLocally
from fedrank.ranking.foltr_pdgd.messages import ServerState, WeightsReply
from fedrank.ranking.learners.pdgd_kernel import host_steps
from fedrank.ranking.native.cohort import drawn_queries, experienced
from fedrank.ranking.sessions.devices import Device
from fedrank.ranking.sessions.kernel import kernel_shape
from fedrank.ranking.sessions.results import SessionResults


class NativeFoltrPDGD(NativeRounds):
    """Rounds of :class:`~fedrank.ranking.foltr_pdgd.FoltrPDGD`: whose weights are sent as they are.

    Attributes:
        knows: The class of protocol whose rounds these are.
        mu: How hard a device's weights are pulled back to those that it was sent.

    Args:
        settings: The protocol.
        parties: All devices.

    Raises:
        NotNativeError: The settings are others.
    """

    knows: type[FoltrPDGD] = FoltrPDGD
    mu = 0.0

    def __init__(self, settings: FoltrPDGD, parties: Party):
        check_own_class(settings, self.knows)
        data, held = parties.shared
        if not isinstance(data, FeatureBlocks) or not settings.kernels:
            raise NotNativeError("compute.kernels = 'off'")
        if settings.as_published:
            raise NotNativeError("as_published")
        if settings.ranker.kernel_shape() is None:
            raise NotNativeError(f"the ranker {type(settings.ranker).__name__}")
        if settings.noise != "none" or settings.clip is not None or settings.secure_sum:
            raise NotNativeError("what is clipped, noised or summed in secret")
        if settings.aggregate != "mean":
            raise NotNativeError(f"aggregate = {settings.aggregate!r}")
        self.settings, self.data, self.held = settings, data, np.asarray(held)
        self.exchange = LearnLocally(settings)

    @override
    def first(self, keys: UInt32[np.ndarray, "runs 2"]) -> ServerState:
        ranker = self.settings.ranker
        weights = np.broadcast_to(ranker.initial(), (len(keys), ranker.size))
        if kernel_shape(ranker)[1]:
            weights = weights + np.float32(INITIAL) * normals(keys, ranker.size)
        return ServerState(np.zeros(len(keys), np.uint32), weights)

    @override
    def answer(
        self, state: Any, own: Device, keys: UInt32[np.ndarray, "runs 2"], number: int, first: int
    ) -> tuple[Device, WeightsReply]:
        s, parties = self.settings, own.first.shape[1]
        # The first of the two keys that a party's key is split into; the other is of its noise.
        draws = self.exchange.cut(party_words(keys, number, first, parties, self.exchange.n_bits, folds=(0,)), None)
        about = drawn_queries(self.held, own, draws.queries)
        active = np.arange(s.interactions) < np.asarray(own.amount)[..., None]
        rate = np.float32(s.learning_rate) * np.float32(s.decay) ** np.asarray(state.round, np.float32)
        weights, patterns, ndcg = host_steps(
            s.ranker,
            s.users,
            np.asarray(own.user),
            self.data,
            np.asarray(state.weights)[:, None],
            rate[:, None],
            about,
            active,
            np.asarray(draws.documents),
            np.asarray(draws.clicks),
            self.mu,
        )
        own = experienced(own, s.metric, SessionResults(patterns, ndcg), active)
        return own, WeightsReply(weights, np.asarray(own.amount))

    @override
    def tell(self, state: ServerState, replies: WeightsReply, arrived: Bool[np.ndarray, "runs parties"]) -> ServerState:
        sent = np.asarray(replies.weights)
        heard = self.heard(replies, arrived)
        counts = np.where(heard, replies.interactions, 0).astype(np.float32)
        total = counts.sum(axis=1, keepdims=True)
        shares = counts / np.where(total > 0, total, np.float32(1))
        mean: Float32[np.ndarray, "runs n"] = np.einsum("rp,rpn->rn", shares, np.where(heard[..., None], sent, 0))
        weights = np.where(np.any(heard, axis=1, keepdims=True), mean, state.weights).astype(np.float32)
        return ServerState(np.asarray(state.round) + np.uint32(1), weights)

    @staticmethod
    def heard(replies: WeightsReply, arrived: Bool[np.ndarray, "runs parties"]) -> Bool[np.ndarray, "runs parties"]:
        """Whose weights arrived and are numbers."""
        return arrived & np.isfinite(np.asarray(replies.weights)).all(axis=-1)

    @override
    def experience(self, own: Device) -> dict[str, np.ndarray]:
        s = self.settings
        return {s.metric.name: np.asarray(own.reward), f"nDCG@{s.user.depth}": np.asarray(own.ndcg)}


native_rounds.register(FoltrPDGD, NativeFoltrPDGD)
