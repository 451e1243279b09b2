"""Central learners without JAX, those that have kernels; what is computed stands in :mod:`fedrank.ranking.central`."""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, UInt32
from typing_extensions import override

from fedrank.core.kernels import normals, party_words
from fedrank.core.native import NotNativeError, OneExchange, check_own_class, native_rounds
from fedrank.core.protocol import Party
from fedrank.ranking.central import DRAWING, INITIAL, JAX_ONLY, Central, Reply, ServeAndLearn, ServerState
from fedrank.ranking.data.queries import FeatureBlocks
from fedrank.ranking.learners.dueling_kernel import host_duels
from fedrank.ranking.learners.pdgd_kernel import host_steps
from fedrank.ranking.native.cohort import drawn_queries, experienced
from fedrank.ranking.sessions.devices import Device
from fedrank.ranking.sessions.results import SessionResults


@native_rounds.register(Central)
class NativeCentral(OneExchange):
    """Rounds of :class:`~fedrank.ranking.central.Central` with PDGD, DBGD or MGD.

    Args:
        settings: The protocol.
        parties: The service.

    Raises:
        NotNativeError: The kernels do not know the learner or the ranker, or are not wanted.
    """

    def __init__(self, settings: Central, parties: Party):
        check_own_class(settings, Central)
        data, held = parties.shared
        if settings.learner in JAX_ONLY:
            raise NotNativeError(f"the learner {settings.learner!r}")
        if not isinstance(data, FeatureBlocks) or not settings.kernels:
            raise NotNativeError("compute.kernels = 'off'")
        if settings.ranker.kernel_shape() is None:
            raise NotNativeError(f"the ranker {type(settings.ranker).__name__}")
        self.settings, self.data, self.held = settings, data, np.asarray(held)
        self.exchange = ServeAndLearn(settings)

    @override
    def first(self, keys: UInt32[np.ndarray, "runs 2"]) -> ServerState:
        s, ranker = self.settings, self.settings.ranker
        weights = np.broadcast_to(ranker.initial(), (len(keys), ranker.size))
        if s.learner in DRAWING and (ranker.kernel_shape() or (0, 0))[1]:
            weights = weights + np.float32(INITIAL) * normals(keys, ranker.size)
        return ServerState(np.zeros(len(keys), np.uint32), weights)

    @override
    def answer(
        self, state: ServerState, own: Device, keys: UInt32[np.ndarray, "runs 2"], number: int, first: int
    ) -> tuple[Device, Reply]:
        s, k = self.settings, self.settings.interactions
        words = party_words(keys, number, first, own.first.shape[1], self.exchange.n_bits)
        ends = (k * np.cumsum(self.exchange.widths)[:-1]).tolist()
        queries, *bits = (part.reshape(*part.shape[:2], k, -1) for part in np.split(words, ends, axis=-1))
        about = drawn_queries(self.held, own, queries[..., 0])
        active = np.arange(k) < np.asarray(own.amount)[..., None]
        rate = np.float32(s.rate) * np.float32(s.decay) ** np.asarray(state.round, np.float32)[:, None]
        known = (s.ranker, s.users, np.asarray(own.user), self.data, np.asarray(state.weights)[:, None], rate)
        if s.learner in DRAWING:
            documents, clicks = bits
            weights, *sessions = host_steps(*known, about, active, documents, clicks, batch=s.batch)
        else:
            weights, *sessions = host_duels(*known, s.radius, about, active, tuple(bits))
        return experienced(own, s.metric, SessionResults(*sessions), active), Reply(weights)

    @override
    def tell(self, state: ServerState, replies: Reply, arrived: Bool[np.ndarray, "runs parties"]) -> ServerState:
        weights = np.where(arrived[:, :1], np.asarray(replies.weights)[:, 0], state.weights)
        return ServerState(np.asarray(state.round) + np.uint32(1), weights)

    @override
    def experience(self, own: Device) -> dict[str, np.ndarray]:
        s = self.settings
        return {s.metric.name: np.asarray(own.reward), f"nDCG@{s.user.depth}": np.asarray(own.ndcg)}
