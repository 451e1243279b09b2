"""FPDGD without JAX; what is computed, and why, stands in :mod:`fedrank.ranking.foltr_pdgd`."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Bool, Float32, Int, UInt32
from typing_extensions import override

from fedrank.core.kernels import normals, party_words
from fedrank.core.native import NotNativeError, OneExchange, check_own_class, native_rounds
from fedrank.core.protocol import Party
from fedrank.core.streams import folded
from fedrank.privacy.noise.correlated import coefficients
from fedrank.privacy.quantise import clip_to_norm, dequantise, quantise
from fedrank.ranking.data.queries import FeatureBlocks
from fedrank.ranking.foltr_pdgd import INITIAL, ROUNDING, FoltrPDGD, LearnLocally
from fedrank.ranking.foltr_pdgd.messages import ServerNoise, ServerState, SumReply, WeightsReply
from fedrank.ranking.learners.pdgd_kernel import host_steps
from fedrank.ranking.native.cohort import drawn_queries, experienced
from fedrank.ranking.native.noise import PartyNoise
from fedrank.ranking.sessions.devices import Device
from fedrank.ranking.sessions.kernel import kernel_shape
from fedrank.ranking.sessions.results import SessionResults


class NativeFoltrPDGD(OneExchange):
    """Rounds of :class:`~fedrank.ranking.foltr_pdgd.FoltrPDGD`: weights sent as they are, clipped, or in a secure sum.

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
        if settings.noise == "gamma":  # drawn by rejection, which in JAX is a loop of its own for each number
            raise NotNativeError(f"noise = {settings.noise!r}")
        if settings.aggregate != "mean":
            raise NotNativeError(f"aggregate = {settings.aggregate!r}")
        self.settings, self.data, self.held = settings, data, np.asarray(held)
        self.exchange = LearnLocally(settings)

    @override
    def first(self, keys: UInt32[np.ndarray, "runs 2"]) -> ServerState:
        s, ranker, noise = self.settings, self.settings.ranker, None
        if s.noise == "server":
            keys, secret = folded(keys, 0), folded(keys, 1)
            noise = ServerNoise(secret, np.zeros((len(keys), s.band - 1, ranker.size), np.float32))
        weights = np.broadcast_to(ranker.initial(), (len(keys), ranker.size))
        if kernel_shape(ranker)[1]:
            weights = weights + np.float32(INITIAL) * normals(keys, ranker.size)
        return ServerState(np.zeros(len(keys), np.uint32), weights, noise)

    @override
    def answer(
        self, state: Any, own: Device, keys: UInt32[np.ndarray, "runs 2"], number: int, first: int
    ) -> tuple[Device, WeightsReply | SumReply]:
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
        amounts = np.asarray(own.amount)
        if s.changes:
            weights = weights - np.asarray(state.weights)[:, None]
        if s.clip is not None:
            weights = clip_to_norm(weights, s.clip, s.clip_norm, np)
        if not s.secure_sum:
            return own, WeightsReply(weights, amounts)
        assert s.clip is not None  # checked when the settings were made
        parts = (amounts.astype(np.float32) / np.float32(s.interactions))[..., None]
        steps = quantise(parts * weights, s.grid, s.clip, ROUNDING)
        if s.noise == "gaussian":
            noise = PartyNoise(keys, number, first, parties)
            steps = steps + noise.gaussian(s.scale / s.enough**0.5, s.ranker.size)
        elif s.noise == "polya":
            noise = PartyNoise(keys, number, first, parties)
            steps = steps + noise.laplace_shares(s.scale, s.enough, s.ranker.size)
        return own, SumReply(steps.astype(np.uint32), amounts)

    @override
    def tell(self, state: ServerState, replies: Any, arrived: Bool[np.ndarray, "runs parties"]) -> ServerState:
        s = self.settings
        if s.secure_sum:
            return self._summed(state, replies, arrived)
        sent = np.asarray(replies.weights)
        if s.clip is not None:  # the server clips as well: attackers do not
            sent = clip_to_norm(sent, s.clip, s.clip_norm, np)
        if s.noise == "server":
            return self._noisy_mean(state, sent, np.asarray(replies.interactions), arrived)
        heard = self.heard(replies, arrived)
        counts = np.where(heard, replies.interactions, 0).astype(np.float32)
        total = counts.sum(axis=1, keepdims=True)
        shares = counts / np.where(total > 0, total, np.float32(1))
        mean: Float32[np.ndarray, "runs n"] = np.einsum("rp,rpn->rn", shares, np.where(heard[..., None], sent, 0))
        weights = np.where(np.any(heard, axis=1, keepdims=True), mean, state.weights).astype(np.float32)
        return ServerState(np.asarray(state.round) + np.uint32(1), weights)

    def _noisy_mean(
        self,
        state: ServerState,
        sent: Float32[np.ndarray, "runs parties n"],
        amounts: Int[np.ndarray, "runs parties"],
        arrived: Bool[np.ndarray, "runs parties"],
    ) -> ServerState:
        """With the server's noise; see :mod:`fedrank.privacy.noise.correlated`."""
        s, known = self.settings, state.noise
        assert known is not None and s.parties is not None  # with noise of the server
        parts = np.minimum(amounts.astype(np.float32) / np.float32(s.interactions), np.float32(1))
        parts = np.where(arrived, parts, np.float32(0))
        rounds, keys, past = np.asarray(state.round), np.asarray(known.key), np.asarray(known.past)
        fresh = normals(np.concatenate([folded(keys[r : r + 1], int(n)) for r, n in enumerate(rounds)]), s.ranker.size)
        noise = fresh - np.einsum("b,rbn->rn", coefficients(s.band)[1:].astype(np.float32), past)
        mean = (np.einsum("rp,rpn->rn", parts, sent) + np.float32(s.scale) * noise) / np.float32(s.parties)
        past = np.concatenate([noise[:, None], past], axis=1)[:, : s.band - 1]
        return ServerState(rounds + np.uint32(1), state.weights + mean, ServerNoise(keys, past))

    def _summed(self, state: ServerState, replies: SumReply, arrived: Bool[np.ndarray, "runs parties"]) -> ServerState:
        """From what the secure sum says alone."""
        s, before = self.settings, np.asarray(state.weights)
        amounts = np.where(arrived, replies.interactions, 0).sum(axis=1, keepdims=True).astype(np.float32)
        total = np.where(arrived[..., None], replies.values, 0).sum(axis=1, dtype=np.uint32)
        mean = dequantise(total, s.grid) * (np.float32(s.interactions) / np.maximum(amounts, np.float32(1)))
        heard = arrived.sum(axis=1, keepdims=True) >= (2 if s.noise == "none" else s.enough)
        weights = np.where(heard, mean + before if s.changes else mean, before).astype(np.float32)
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
