"""FOLtR-ES without JAX; what is computed, and why, stands in :mod:`fedrank.ranking.foltr_es`.

What turns clicks into replies is the code of a device, :class:`~fedrank.ranking.on_device.reply.ClicksToReply`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Bool, Float32, UInt32
from typing_extensions import override

from fedrank.core.kernels import host_weighted_sum, party_words
from fedrank.core.native import NotNativeError, OneExchange, check_own_class, native_rounds
from fedrank.core.protocol import Party
from fedrank.ranking.data.queries import FeatureBlocks
from fedrank.ranking.foltr_es import FoltrES, ServerState, TryPerturbation
from fedrank.ranking.native.adam import Adam
from fedrank.ranking.native.cohort import drawn_queries, experienced, private_sums
from fedrank.ranking.native.noise import PartyNoise
from fedrank.ranking.sessions.devices import Device
from fedrank.ranking.sessions.kernel import HostSessions, host_interleaved
from fedrank.ranking.sessions.results import SessionResults
from fedrank.ranking.sessions.sessions import check_ties


@native_rounds.register(FoltrES)
class NativeFoltrES(OneExchange):
    """Rounds of :class:`~fedrank.ranking.foltr_es.FoltrES` for its CPU kernels.

    Args:
        settings: The protocol.
        parties: All devices.

    Raises:
        NotNativeError: The kernels do not know these settings.
    """

    def __init__(self, settings: FoltrES, parties: Party):
        check_own_class(settings, FoltrES)
        data, held = parties.shared
        if not isinstance(data, FeatureBlocks) or not settings.kernels:
            raise NotNativeError("compute.kernels = 'off'")
        if settings.as_published:
            raise NotNativeError("as_published")
        if settings.aggregate != "mean":
            raise NotNativeError(f"aggregate = {settings.aggregate!r}")
        self.settings, self.data, self.held = settings, data, np.asarray(held)
        self.exchange, self.to_reply = TryPerturbation(settings), settings.clicks_to_reply
        self.random_ties = check_ties(settings.ties)
        steps = (settings.sigma, -settings.sigma)[: settings.halves]
        self.sessions = HostSessions(settings.ranker, settings.users, data, steps, self.random_ties)

    @override
    def first(self, keys: UInt32[np.ndarray, "runs 2"]) -> ServerState:
        weights = np.broadcast_to(self.settings.ranker.initial(), (len(keys), self.settings.ranker.size))
        return ServerState(np.zeros(len(keys), np.uint32), weights, Adam.begin(*weights.shape))  # type: ignore[arg-type]

    @override
    def answer(
        self, state: ServerState, own: Device, keys: UInt32[np.ndarray, "runs 2"], number: int, first: int
    ) -> tuple[Device, Any]:
        s, parties = self.settings, own.first.shape[1]
        words = party_words(keys, number, first, parties, self.exchange.n_bits)
        draws = self.exchange.cut(words, np.zeros(s.halves, np.int32))
        about = drawn_queries(self.held, own, draws.queries)
        active = np.arange(s.per_half) < -(-np.asarray(own.amount) // s.lists)[..., None, None]
        active = np.broadcast_to(active, about.shape)
        weights = np.asarray(state.weights)[:, None]
        if s.interleaved:
            cohort = (s.ranker, s.users, np.asarray(own.user), self.data, weights, draws.seed)
            assert draws.toss is not None  # drawn where lists are interleaved
            lists = (about[..., 0, :], draws.clicks[..., 0, :, :], draws.ties[..., 0, :], draws.toss[..., 0, :])
            found = host_interleaved(*cohort, s.sigma, *lists, self.random_ties)
            sessions = SessionResults(found.shown.patterns[..., None, :], found.shown.ndcg[..., None, :])
            patterns = np.asarray(found.credited)
        else:
            whole = words.base  # rows of whole vectors, in C order
            assert whole is not None
            rows = whole.reshape(-1, whole.shape[-1])
            sessions = self.sessions(weights, own.user, draws.seed, about, rows, *self.exchange.places[1:3])
            patterns = np.asarray(sessions.patterns)
        own = experienced(own, s.observed or s.metric, sessions, active)
        privacy = draws.privacy
        for_values = privacy if s.p < 1 else None  # otherwise they are of a whole message, or of no use
        sums = private_sums(self.to_reply, patterns, for_values, np.broadcast_to(active, patterns.shape))
        added: Any = None
        if s.piecewise is not None:  # one number a message: the first three of the words
            added = privacy.reshape(*privacy.shape[:2], -1)[..., :3]
        elif s.noise is not None:
            noise = PartyNoise(keys, number, first, parties)
            drawn = (noise.laplace if s.mechanism == "laplace" else noise.gaussian)(s.noise.scale, s.halves)
            added = np.moveaxis(drawn, -1, 0)
        return own, self.to_reply.message(draws.seed, np.moveaxis(sums, -1, 0), added, np)

    @override
    def tell(self, state: ServerState, replies: Any, arrived: Bool[np.ndarray, "runs parties"]) -> ServerState:
        s = self.settings
        if s.piecewise is not None:
            estimates = (s.piecewise.estimates * self.to_reply.largest_difference).astype(np.float32)
            difference = estimates[replies.report]
        elif s.antithetic:
            difference = (replies.plus - replies.minus).astype(np.float32)
        else:
            difference = replies.plus.astype(np.float32)
        count = np.maximum(arrived.sum(axis=1), 1).astype(np.float32)
        weighed = np.where(arrived, difference, np.float32(0)) / count[:, None]
        weighed /= np.float32(s.per_half * s.metric.scale * (2 * s.sigma if s.antithetic else s.sigma))
        # The server makes the perturbations from the seeds. Here they are at hand where one call made all of them.
        made = self.sessions.perturbations(replies.seed)
        gradient: Float32[np.ndarray, "runs n"] = host_weighted_sum(replies.seed, weighed, s.ranker.size, made)
        step, optimiser = state.optimiser.uphill(gradient, s.learning_rate, arrived.any(axis=1))  # type: ignore[attr-defined]
        return ServerState(state.round + np.uint32(1), state.weights + step, optimiser)

    @override
    def experience(self, own: Device) -> dict[str, np.ndarray]:
        s = self.settings
        return {(s.observed or s.metric).name: own.reward, f"nDCG@{s.user.depth}": own.ndcg}  # type: ignore[dict-item]
