"""COLTR: counterfactual online learning to rank (Zhuang and Zuccon, ECIR 2020).

Dueling bandits show users what candidates rank. COLTR shows what the current ranker ranks, and asks of the log of that
interaction how candidates *would* have done, which costs no user anything, so that there may be hundreds. For scores
s(d), a temperature τ, and D_i the documents that are not above rank i::

    R is drawn document by document:   p(R_i | D_i) = e^{s(R_i)/τ} / Σ_{d in D_i} e^{s(d)/τ}
    a user clicks; δ_i = 1 where R_i is not clicked and stands above the last click, else 0        (skipped: a loss)

    (1)  w_i(c) = p_c(R_i | D_i) / p(R_i | D_i)                      for a candidate c = θ + radius·u_c, |u_c| = 1
    (2)  L(c) = Σ_i w_i δ_i / Σ_i w_i                                SNIPS, the self-normalised estimate
    (3)  V(c) = Σ_i (δ_i − L)² w_i² / Σ_i w_i²
    (4)  c wins if L(c) + γ √(V(c)/k) is below the same of θ         k ranks
    (5)  θ ← θ + step · mean of u_c over the winners

Each rank is one record of a log: documents to choose from, a choice, its probability, a loss. Without the
normalisation of (2), Σ_i w_i δ_i is an unbiased estimate of what the candidate would have lost had it chosen at each
rank in place of θ, from the documents that were left (inverse propensity scoring).

The code published with the paper draws with τ = 0.1, but has τ = 1 and all documents of the query in place of D_i in
(1): its weights are not the inverse of the probabilities that it drew with. ``smoothing`` is the temperature in (1):
where it is τ, as it is by default, the weights are exact; above it they differ less from 1, which is biased and less
noisy.

``coltr`` is the paper's learner at one central service. In ``foltr-coltr`` devices take these steps on the logs of
their users' interactions, and the server averages their weights as in FPDGD (:mod:`fedrank.ranking.foltr_pdgd`): the
log never leaves the device; weights do, in the clear.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from jaxtyping import Bool, Float, Int, UInt32
from typing_extensions import override

from fedrank.core.arrays import AnyArray
from fedrank.core.arrays import AnyArray as Array
from fedrank.core.errors import ConfigError
from fedrank.core.fields import bound, setting
from fedrank.core.lazy import jax, jnp
from fedrank.core.protocol import Exchange, Party
from fedrank.core.rng import perturbation_jax
from fedrank.ranking.central import Central
from fedrank.ranking.clicks.cascade import CascadeUser
from fedrank.ranking.data.queries import PaddedQueries
from fedrank.ranking.foltr_pdgd import Draws, FoltrPDGD, LearnLocally, Plain
from fedrank.ranking.learners import Learned, document_bits, sample_ranking
from fedrank.ranking.on_device import Request
from fedrank.ranking.protocol import Parts
from fedrank.ranking.rankers.base import Ranker
from fedrank.ranking.sessions.devices import draw_queries
from fedrank.ranking.sessions.reference import SessionResults, simulate_clicks


class LogDraws(NamedTuple):
    """A party's random bits for K interactions; none is used twice.

    Attributes:
        documents: uint32 [K, 2]: makes random bits for every document, for drawing a ranking.
        clicks: uint32 [K, depth]: random bits for the user's decision at each rank.
        directions: uint32 [K]: seed of all candidates' directions.
    """

    documents: UInt32[AnyArray, "*interactions 2"]
    clicks: UInt32[AnyArray, "*interactions depth"]
    directions: UInt32[AnyArray, "*interactions"]


@dataclass(frozen=True)
class Comparison:
    """Settings of making and comparing candidates on a log; the defaults but for ``smoothing`` are published ones."""

    candidates: int = setting(
        499, "Rankers that are compared with the current one on each interaction's log.", low=1, high=1000
    )
    radius: float = setting(1.0, "Distance of the candidates from the current ranker.")
    temperature: float = setting(0.1, "τ, temperature of the ranking that is shown: the lower, the less it explores.")
    smoothing: float = setting(
        0.1,
        "Temperature of the probabilities that estimates are weighted by; exact where it is 'temperature'. The "
        "published code has 1.",
    )
    caution: float = setting(1.0, "γ, standard errors that are added to an estimate of loss.", low=0)

    def __post_init__(self):
        for name in ("radius", "temperature", "smoothing"):
            if not 1e-30 < getattr(self, name) < 1e30:
                raise ConfigError(f"{name} must be positive and finite, got {getattr(self, name)}.")
        if not 1 <= self.candidates <= 1000:
            raise ConfigError(f"candidates must be in 1..1000, got {self.candidates}.")
        if not 0 <= self.caution < 1e30:
            raise ConfigError(f"caution must be at least 0 and finite, got {self.caution}.")


def unit_directions(seed: UInt32[AnyArray, ""], candidates: int, size: int) -> Float[Array, "{candidates} {size}"]:
    """Directions, uniform on the unit sphere, from one seed: float32 [candidates, size]."""
    normal = perturbation_jax(jnp.asarray(seed), candidates * size).reshape(candidates, size)
    return normal / jnp.sqrt(jnp.sum(normal * normal, axis=1, keepdims=True))


def log_propensities(
    scores: Float[AnyArray, "*models documents"],
    where: Bool[AnyArray, "documents"],
    ranking: Int[AnyArray, "ranks"],
) -> Float[Array, "*models ranks"]:
    """Logarithms of the probabilities that each shown document is chosen of those that are not above it.

    Args:
        scores: float32 [..., d], of one or more models, divided by the temperature.
        where: bool [d], False on padding.
        ranking: int32 [k], the documents shown; padding last.

    Returns:
        float32 [..., k]; 0 on padding.
    """
    best = jnp.max(jnp.where(where, scores, -jnp.inf), axis=-1, keepdims=True)
    centred = jnp.where(where, scores - best, -jnp.inf)
    chances, there = jnp.exp(centred), jnp.asarray(where)[ranking]
    shown = chances[..., ranking]
    beside = jnp.ones(scores.shape[-1], bool).at[ranking].set(False)
    # The denominators from the last rank upwards: sums of positive numbers lose no digits.
    rest = jnp.sum(jnp.where(beside, chances, 0.0), axis=-1, keepdims=True)
    left = rest + jnp.cumsum(shown[..., ::-1], axis=-1)[..., ::-1]
    tiny = jnp.finfo(jnp.float32).tiny
    logs = centred[..., ranking] - jnp.log(jnp.maximum(left, tiny))
    return jnp.where(there, jnp.maximum(logs, -80.0), 0.0)  # e^-80 is a float32


def losses(pattern: Int[AnyArray, ""], there: Bool[AnyArray, "ranks"]) -> Float[Array, "ranks"]:
    """δ: 1 at ranks above the last click that were not clicked.

    Args:
        pattern: int32, bit i is set when the document at rank i + 1 was clicked.
        there: bool [k]: which ranks have a document.
    """
    place = jnp.arange(there.shape[0])
    above = (jnp.asarray(pattern) >> place) > 0  # a click here or below
    clicked = (jnp.asarray(pattern) >> place) & 1 > 0
    return (above & ~clicked & there).astype(jnp.float32)


def estimates(
    logs: Float[AnyArray, "*models ranks"],
    shown: Float[AnyArray, "ranks"],
    loss: Float[AnyArray, "ranks"],
    there: Bool[AnyArray, "ranks"],
    caution: float,
) -> Float[Array, "*models"]:
    """The estimates (2) with the standard errors (3) that (4) compares; lower is better.

    Args:
        logs: float32 [..., k], log-probabilities of the choices under models.
        shown: float32 [k], those under the ranker that made them.
        loss: float32 [k].
        there: bool [k].
        caution: γ.
    """
    shown, loss = (jnp.broadcast_to(each, logs.shape) for each in (shown, loss))
    ratio = jnp.where(there, jnp.clip(logs - shown, -40.0, 40.0), -jnp.inf)
    weight = jnp.exp(ratio - jnp.max(ratio, axis=-1, keepdims=True))  # (2) and (3) know no common factor
    mean = jnp.sum(weight * loss, axis=-1) / jnp.sum(weight, axis=-1)
    square = weight * weight
    variance = jnp.sum(square * (loss - mean[..., None]) ** 2, axis=-1) / jnp.sum(square, axis=-1)
    return mean + caution * jnp.sqrt(variance / jnp.maximum(jnp.sum(there), 1))


def coltr_steps(
    ranker: Ranker,
    users: tuple[CascadeUser, ...],
    user_index: Int[AnyArray, ""] | int,
    data: PaddedQueries,
    weights: Float[AnyArray, "parameters"],
    step: Float[AnyArray, ""] | float,
    queries: Int[AnyArray, "interactions"],
    active: Bool[AnyArray, "interactions"],
    rng_bits: LogDraws,
    how: Comparison,
) -> Learned:
    """K interactions of one party, one after another; arguments as :func:`fedrank.ranking.learners.pdgd_steps`.

    ``step`` is the learning rate, ``how`` makes and compares the candidates.
    """
    rng_bits, step = LogDraws(*map(jnp.asarray, rng_bits)), jnp.asarray(step, jnp.float32)

    def interact(weights: jax.Array, each: Any) -> tuple[jax.Array, SessionResults]:
        query, takes_place, (documents, click_bits, seed) = each
        features, labels, where = (jnp.asarray(a)[query] for a in (data.features, data.labels, data.where))
        noise = document_bits(documents[0], documents[1], where.shape[0])
        scores = ranker.scores(weights, features)
        ranking = sample_ranking(scores / how.temperature, where, noise, users[0].depth)
        sessions = simulate_clicks(users, user_index, labels, where, ranking, click_bits)
        there = where[ranking]
        loss = losses(sessions.patterns, there)

        directions = unit_directions(seed, how.candidates, ranker.size)
        models = jnp.concatenate([weights[None], weights[None] + how.radius * directions])  # the current one first
        logs = log_propensities(
            jax.vmap(ranker.scores, in_axes=(0, None))(models, features) / how.smoothing, where, ranking
        )
        found = estimates(logs, logs[0], loss, there, how.caution)
        wins = ((found[1:] < found[0]) & takes_place & (sessions.patterns > 0)).astype(jnp.float32)
        towards = jnp.einsum("c,cn->n", wins, directions) / jnp.maximum(jnp.sum(wins), 1.0)
        sessions = jax.tree.map(lambda x: jnp.where(takes_place, x, jnp.zeros_like(x)), sessions)
        return weights + step * towards, sessions

    each = (jnp.asarray(queries), jnp.asarray(active), rng_bits)
    return Learned(*jax.lax.scan(interact, jnp.asarray(weights), each))


@dataclass(frozen=True)
class COLTR(Central):
    """Central: one service compares hundreds of candidates on the log of each interaction."""

    learning_rate: float = setting(0.1, "Step size.")
    compare: Comparison = field(default_factory=Comparison, metadata={"flat": True})

    name, paper = "coltr", "zhuang2020coltr"
    published = "Zhuang, Zuccon: Counterfactual Online Learning to Rank, ECIR 2020"
    compiled = False

    @property
    @override
    def widths(self) -> list[int]:
        return [1, 2, self.user.depth, 1]

    @override
    def learn(self, party, weights, rate, about, active, words):
        documents, clicks, seeds = words
        bits = LogDraws(documents, clicks, seeds[:, 0])
        known = (self.ranker, self.users, party.own.user, party.shared[0], weights, rate)
        return coltr_steps(*known, about, active, bits, self.compare)


@dataclass(frozen=True)
class FoltrCOLTR(FoltrPDGD):
    """Devices compare candidates on the logs of their users' clicks (COLTR); the server averages their weights."""

    compare: Comparison = field(default_factory=Comparison, metadata={"flat": True})
    objective: Any = bound(Plain())

    name, paper = "foltr-coltr", "zhuang2020coltr"
    published = "Zhuang, Zuccon: Counterfactual Online Learning to Rank, ECIR 2020, on devices"
    crosses = "weights: 4 bytes each"
    populations, modes = False, ()

    def __post_init__(self):
        super().__post_init__()
        if self.user is not None and self.kernels:
            raise ConfigError("foltr-coltr has no compiled kernel; set kernels = False.")
        if not self.privacy.in_the_clear:
            raise ConfigError("foltr-coltr sends its weights as they are: there is no noise and no secure sum.")

    @override
    def bind(self, parts: Parts) -> Any:
        return super().bind(dataclasses.replace(parts, kernels=False))

    @property
    @override
    def exchanges(self) -> tuple[Exchange, ...]:
        return (LearnFromLog(self),)


@dataclass(frozen=True)
class LearnFromLog(LearnLocally, request=Request):
    """The exchange of :class:`FoltrCOLTR`: a device learns from the log of its user's interactions."""

    settings: FoltrCOLTR

    @property
    @override
    def n_bits(self) -> int:
        return super().n_bits + self.settings.interactions

    @override
    def cut(self, rng_bits: UInt32[AnyArray, "*cohort bits"], noise: Any) -> Draws:
        b = self.settings.interactions
        found = super().cut(rng_bits[..., :-b], noise)
        seeds = rng_bits[..., -b:, None]  # of the candidates, beside the words that a ranking is drawn with
        return found._replace(documents=jnp.concatenate([jnp.asarray(found.documents), seeds], axis=-1))

    @override
    def learn(self, request: Request, party: Party, draws: Draws) -> Learned:
        """COLTR with a simulated user, one step an interaction."""
        s = self.settings
        (data, queries), own = party.shared, party.own
        rate = jnp.float32(s.learning_rate)
        about, active = draw_queries(queries, own, draws.queries), self.active(own.amount)
        documents, start = jnp.asarray(draws.documents), jnp.asarray(request.weights)
        bits = LogDraws(documents[:, :2], draws.clicks, documents[:, 2])
        return coltr_steps(s.ranker, s.users, own.user, data, start, rate, about, active, bits, s.compare)
