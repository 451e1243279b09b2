"""RankGuard: a peer's ranker is merged only if it explains one's own clicks better (Gregoriadis et al. 2026).

After *Efficient and Robust Online Learning to Rank in Decentralized Systems*, arXiv 2606.12246, of which its abstract
was at hand: devices exchange rankers without a server that combines them, and "an incoming model is only aggregated if
it better explains the user's past interactions than the current local model", on clicks that are corrected for where
documents stood. How better is measured, and how rankers are merged, is our own. One round::

    server   hands out the rankers of k devices, drawn anew each round                    PeersRequest
    device   has its own ranker θ, and a log of its last H interactions
             for each peer's ranker c and each logged interaction with a click:
                 value(c) = Σ over clicked documents d of  rank shown of d / log₂(1 + rank of d under c)
             merges those c whose values are above θ's by more than t standard errors:  θ ← mean of θ and these
             B interactions, each with a step of PDGD; logs them
             sends θ                                                                      WeightsReply
    server   relays

The factor in front is the inverse of 1/rank, the usual guess of how likely a rank is looked at (Joachims, Swaminathan,
Schnabel, WSDM 2017, at η = 1). The test is paired: with differences x over m interactions, mean(x) > t·sd(x)/√m.

**What the server can do.** It combines nothing; it chooses whose rankers are seen. Its own ``weights``, the plain mean
of what was sent, are what a newcomer starts from, and the result for those who trust every device. The rankers that
count are those on the devices (:meth:`RankGuard.own_models`).

**What is not covered.** A ranker that helps this user and harms others passes. So does one whose harm does not show in
the last H interactions. Clicks never leave, but weights do, in the clear, as in FPDGD.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from typing_extensions import override

from fedrank.aggregation.server_steps import Average
from fedrank.core.arrays import AnyArray, PyTree
from fedrank.core.arrays import AnyArray as Array
from fedrank.core.errors import ConfigError
from fedrank.core.fields import bound, setting
from fedrank.core.lazy import jax, jnp
from fedrank.core.messages import Array as Field
from fedrank.core.messages import f4, field, message, u4
from fedrank.core.protocol import Exchange, Party
from fedrank.ranking.data.partition import Shares
from fedrank.ranking.data.queries import FeatureBlocks, PaddedQueries
from fedrank.ranking.foltr_pdgd import Draws, FoltrPDGD, LearnLocally
from fedrank.ranking.foltr_pdgd import ServerState as MeanState
from fedrank.ranking.learners import document_bits, pdgd_gradient, sample_ranking
from fedrank.ranking.mechanisms.weights import WeightsReply
from fedrank.ranking.protocol import Parts
from fedrank.ranking.sessions.devices import Device, PerDevice, draw_queries, record_experience
from fedrank.ranking.sessions.reference import SessionResults, simulate_clicks
from fedrank_zoo.async_pdgd import arrival_order


@message(kind=8)
class PeersRequest:
    """Server to devices: rankers of some of them, and what a newcomer starts from."""

    round: Field = field(u4, "number of the round")
    weights: Field = field(f4["parameters"], "mean of the rankers that devices sent, for newcomers")
    peers: Field = field(f4["models", "parameters"], "rankers that some devices sent in the last round")


class RelayState(NamedTuple):
    """The server's state between rounds.

    Attributes:
        round: uint32.
        weights: float32 [n], the mean of what was sent.
        peers: float32 [k, n], the rankers that it hands out.
    """

    round: Any
    weights: Float[AnyArray, " n"]
    peers: Float[AnyArray, "k n"]


class Log(NamedTuple):
    """The last interactions of a device; the oldest is written over.

    Attributes:
        query: int32 [H].
        shown: int32 [H, depth], documents of the query, by rank.
        pattern: int32 [H], the clicks; 0: nothing to learn from, or nothing logged yet.
    """

    query: Int[AnyArray, "*parties interactions"]
    shown: Int[AnyArray, "*parties interactions depth"]
    pattern: Int[AnyArray, "*parties interactions"]


class Kept(NamedTuple):
    """State of a device beside the fields of :class:`~fedrank.ranking.sessions.devices.Device`.

    Attributes:
        model: float32 [n], its ranker.
        log: Its last interactions.
        accepted: float32: part of the peers that it merged in the last round.
    """

    model: Float[AnyArray, "*parties n"]
    log: Log
    accepted: Float[AnyArray, "*parties"]


@dataclass(frozen=True)
class RankGuard(FoltrPDGD):
    """Devices exchange rankers and merge those that explain their users' clicks better."""

    peers: int = setting(4, "k, rankers of other devices that each is shown in a round.", low=1, high=1000)
    history: int = setting(64, "H, interactions that a device remembers to judge by.", low=1, high=10_000)
    threshold: float = setting(0.0, "t, standard errors by which a ranker must explain the clicks better.", low=0)
    server: Any = bound(Average())
    aggregate: str = bound("mean")
    byzantine: int | None = bound()

    name, paper = "rankguard", "gregoriadis2026rankguard"
    published = (
        "Gregoriadis et al.: Efficient and Robust Online Learning to Rank in Decentralized Systems, 2026; its idea"
    )
    crosses = "weights: 4 bytes each; down the weights of some other devices"
    rules, populations, modes = None, False, ()

    def __post_init__(self):
        super().__post_init__()
        if not 1 <= self.peers <= 1000:
            raise ConfigError(f"peers must be in 1..1,000, got {self.peers}.")
        if not self.interactions <= self.history <= 10_000:
            raise ConfigError(
                f"history must be in {self.interactions}..10,000, from those of one round; got {self.history}."
            )
        if not 0 <= self.threshold < 1e30:
            raise ConfigError(f"threshold must be at least 0 and finite, got {self.threshold}.")
        if self.user is not None and self.kernels:
            raise ConfigError("rankguard has no compiled kernel; set kernels = False.")
        if not self.privacy.in_the_clear or getattr(self.privacy, "clip", None) is not None:
            raise ConfigError("rankguard relays rankers as they are: there is no noise, no secure sum and no clip.")

    @override
    def bind(self, parts: Parts) -> Any:
        return super().bind(dataclasses.replace(parts, kernels=False))

    @property
    @override
    def sizes(self) -> dict[str, int]:  # type: ignore[override] - elsewhere an attribute of the class
        return {**super().sizes, "models": self.peers}

    @property
    @override
    def exchanges(self) -> tuple[Exchange, ...]:
        return (ScreenAndLearn(self),)

    @override
    def init(self, key: Any) -> RelayState:  # type: ignore[override] - a state with more in it
        state = super().init(key)
        peers = jnp.broadcast_to(state.weights, (self.peers, self.ranker.size))
        return RelayState(state.round, state.weights, peers)

    @override
    def own_models(self, state: PyTree, own: Device) -> Float[Array, "parties n"]:
        """The rankers that devices show their users: their own."""
        del state
        return jnp.asarray(own.kept.model)

    @override
    def devices(
        self,
        data: PaddedQueries | FeatureBlocks,
        shares: Shares,
        user_index: PerDevice = None,
        amounts: PerDevice = None,
    ) -> Party:
        party, parties, h = super().devices(data, shares, user_index, amounts), shares.parties, self.history
        log = Log(
            np.zeros((parties, h), np.int32),
            np.zeros((parties, h, self.user.depth), np.int32),
            np.zeros((parties, h), np.int32),
        )
        model = np.zeros((parties, self.ranker.size), np.float32)
        kept = Kept(model, log, np.zeros(parties, np.float32))
        return party._replace(own=party.own._replace(kept=kept))


@dataclass(frozen=True)
class ScreenAndLearn(LearnLocally, request=PeersRequest):
    """The exchange of :class:`RankGuard`: a device merges the peers that it believes, learns, and sends its ranker."""

    settings: RankGuard

    @property
    @override
    def request(self):
        return self.layout(PeersRequest)

    @override
    def ask(self, state: Any) -> Any:
        return PeersRequest(state.round, state.weights, state.peers)

    @override
    def respond(self, request: Any, party: Party, draws: Draws) -> tuple[Party, WeightsReply]:
        s, own = self.settings, party.own
        data, queries = party.shared
        kept: Kept = own.kept
        # A newcomer has nothing to judge by.
        model = jnp.where(jnp.asarray(request.round) == 0, jnp.asarray(request.weights), kept.model)
        peers = jnp.asarray(request.peers)
        better = screened(s.ranker, model, peers, data, kept.log, s.threshold)
        peers = jnp.where(better[:, None], peers, 0.0)  # a number that is not finite must not come near a sum
        model = (model + jnp.sum(peers, axis=0)) / (1 + jnp.sum(better))

        about, active = draw_queries(queries, own, draws.queries), self.active(own.amount)
        rate = jnp.float32(s.learning_rate)

        def interact(weights: jax.Array, each: Any) -> tuple[jax.Array, tuple[SessionResults, Array]]:
            query, takes_place, pair, click_bits = each
            features, labels, where = (jnp.asarray(a)[query] for a in (data.features, data.labels, data.where))
            noise = document_bits(pair[0], pair[1], where.shape[0])
            ranking = sample_ranking(s.ranker.scores(weights, features), where, noise, s.user.depth)
            sessions = simulate_clicks(s.users, own.user, labels, where, ranking, click_bits)
            step = rate * pdgd_gradient(s.ranker, weights, features, where, ranking, sessions.patterns)
            step, sessions = jax.tree.map(lambda x: jnp.where(takes_place, x, jnp.zeros_like(x)), (step, sessions))
            return weights + step, (sessions, ranking)

        each = (about, active, jnp.asarray(draws.documents), jnp.asarray(draws.clicks))
        model, (sessions, rankings) = jax.lax.scan(interact, model, each)
        shown = jnp.zeros((len(about), s.user.depth), jnp.int32).at[:, : rankings.shape[1]].set(rankings)
        new = (about, shown, jnp.asarray(sessions.patterns))
        log = Log(*(_remembered(jnp.asarray(old), latest) for old, latest in zip(kept.log, new, strict=True)))
        values = jnp.asarray(s.metric.values, jnp.float32)[jnp.asarray(s.metric.index)[sessions.patterns]]
        own = record_experience(own, values, sessions, active)
        kept = Kept(model, log, jnp.mean(better.astype(jnp.float32)))
        return party._replace(own=own._replace(kept=kept)), WeightsReply(model, own.amount)

    @override
    def tell(self, state: Any, replies: PyTree, arrived: Bool[AnyArray, "parties"]) -> Any:
        """Hand out other devices' rankers, and the mean for newcomers; if no device was heard, the same again."""
        s = self.settings
        mean = super().tell(MeanState(state.round, state.weights), replies, arrived).weights
        sent = jnp.asarray(replies.weights)
        heard = jnp.asarray(arrived) & jnp.all(jnp.isfinite(sent), axis=1)
        drawn = arrival_order(state.round, len(sent), heard)[: s.peers]
        drawn = jnp.resize(drawn, (s.peers,))  # of fewer devices than peers, some twice
        peers = jnp.where(heard[drawn][:, None], sent[drawn], state.peers)
        return RelayState(state.round + 1, mean, peers)


def _remembered(log: AnyArray, new: Array) -> Array:
    """A log with the newest interactions at its end, and without as many of the oldest."""
    return jnp.concatenate([jnp.asarray(log)[len(new) :], new.astype(jnp.int32)])


def ranks(
    scores: Float[AnyArray, " d"], where: Bool[AnyArray, " d"], chosen: Int[AnyArray, " c"]
) -> Float[Array, " c"]:
    """The ranks of some documents of a query, from 1; among equals the middle, so that no order is favoured.

    Args:
        scores: float32 [d]; those that are not a number rank last.
        where: bool [d], False on padding.
        chosen: int32 [c], numbers of documents.

    Returns:
        float32 [c].
    """
    scores = jnp.where(where & ~jnp.isnan(scores), scores, -jnp.inf)
    mine = scores[jnp.asarray(chosen)]
    ahead = jnp.sum((scores[None, :] > mine[:, None]) & where[None, :], axis=1)
    level = jnp.sum((scores[None, :] == mine[:, None]) & where[None, :], axis=1)
    return 1 + ahead + (jnp.maximum(level, 1) - 1) / 2


def explained(rank: Float[AnyArray, "h depth"], log: Log) -> Float[Array, " h"]:
    """Value of a ranker on each logged interaction: its clicked documents' DCG, corrected for where they stood.

    Args:
        rank: float32 [H, depth], the ranks that it gives to the documents that were shown.
        log: The interactions.

    Returns:
        float32 [H]; 0 where nothing was clicked.
    """
    place = jnp.arange(rank.shape[-1])[None]
    clicked = ((jnp.asarray(log.pattern)[:, None] >> place) & 1) > 0
    return jnp.sum(jnp.where(clicked, (1.0 + place) / jnp.log2(1 + rank), 0.0), axis=-1)


def screened(
    ranker: Any,
    model: Float[AnyArray, " n"],
    peers: Float[AnyArray, "k n"],
    data: PaddedQueries,
    log: Log,
    threshold: float,
) -> Bool[Array, " k"]:
    """Mask of the peers whose rankers explain the log better than one's own by ``threshold`` standard errors.

    Args:
        ranker: The ranker.
        model: float32 [n], one's own.
        peers: float32 [k, n].
        data: The queries.
        log: One's interactions.
        threshold: t.

    Returns:
        bool [k]; False with fewer than two interactions that had a click, and for numbers that are not finite.
    """
    log = Log(*map(jnp.asarray, log))
    features, where = jnp.asarray(data.features), jnp.asarray(data.where)
    counted = log.pattern > 0
    many = jnp.sum(counted)

    def logged(query: AnyArray, shown: AnyArray) -> Array:
        return ranks(ranker.scores(jnp.asarray(model), features[query]), where[query], shown)

    own = explained(jax.vmap(logged)(log.query, log.shown), log)

    def better(peer: Array) -> Array:
        finite = jnp.all(jnp.isfinite(peer))
        weights, everything = jnp.where(finite, peer, 0.0), jnp.arange(where.shape[1])
        # Of all queries: peers are the same at all devices, so that this is computed once for all of them.
        rank = jax.lax.map(
            lambda q: ranks(ranker.scores(weights, q[0]), q[1], everything), (features, where), batch_size=64
        )
        x = jnp.where(counted, explained(rank[log.query[:, None], log.shown], log) - own, 0.0)
        mean = jnp.sum(x) / jnp.maximum(many, 1)
        spread = jnp.sum(jnp.where(counted, (x - mean) ** 2, 0.0)) / jnp.maximum(many - 1, 1)
        error = jnp.sqrt(spread / jnp.maximum(many, 1))
        return (many >= 2) & (mean > threshold * error) & (mean > 0) & finite

    return jax.lax.map(better, jnp.asarray(peers))
