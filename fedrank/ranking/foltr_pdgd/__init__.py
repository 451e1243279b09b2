"""FPDGD: federated pairwise differentiable gradient descent (Wang, Liu, Zhuang, Zuccon, ICTIR 2021).

A device learns from its user's clicks by itself, for a few interactions, and sends the weights that it has come to. The
server takes their mean (federated averaging; McMahan et al., AISTATS 2017). What is sent can be clipped, noised and
summed in secret.

One round::

    server   hands out the weights θ                                              Request
    device   B interactions, each with one step of PDGD from where the last one ended
             clips its weights to the norm s; adds its share of noise
             sends the weights and the number a of its interactions               WeightsReply, or SumReply
    server   θ ← Σ aᵢ θᵢ / Σ aᵢ over the devices that were heard; if none was, θ stays

What varies is a value: the *mechanism*, what is done to the weights that are sent (:mod:`fedrank.ranking.mechanisms`):
nothing, a clip, a secure sum, shares of noise in a secure sum; the *objective* of a local step; the *server step*
(:mod:`fedrank.aggregation.server_steps`), which FedOpt changes; and the rule that combines replies
(:mod:`fedrank.aggregation.robust`).

**ε of a round** (:class:`~fedrank.ranking.mechanisms.secure_sum.LaplaceShares`) is that of one round for one device:
whatever else the device had learned, what the server sees would be at most e^ε times as likely. **ε of a user**
(:class:`~fedrank.ranking.mechanisms.secure_sum.GaussianShares`) takes Gaussian noise, and a clip of how a device
*changes* the weights, which is much shorter than the weights: then θ ← θ + Σ aᵢ Δᵢ / Σ aᵢ.
"""

from __future__ import annotations

import abc
import dataclasses
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int, Key, UInt32
from typing_extensions import override

from fedrank.aggregation import robust
from fedrank.aggregation.server_steps import Average, FedAdam, ServerStep
from fedrank.core.arrays import AnyArray, PyTree
from fedrank.core.arrays import JaxArray as Array
from fedrank.core.errors import ConfigError
from fedrank.core.fields import bound, part, setting
from fedrank.core.kernels import party_words
from fedrank.core.lazy import jax, jnp
from fedrank.core.messages import Layout
from fedrank.core.native import Cohort, NotNativeError
from fedrank.core.privacy_report import PrivacyReport
from fedrank.core.protocol import Exchange, Party
from fedrank.privacy.noise.parties import PartyNoise
from fedrank.privacy.randomised_response import os_words
from fedrank.ranking.data.queries import FeatureBlocks
from fedrank.ranking.learners import Learned, PdgdDraws, host_steps, pdgd_steps
from fedrank.ranking.mechanisms import VectorMechanism
from fedrank.ranking.mechanisms.weights import ClearWeights, SumReply, WeightsReply
from fedrank.ranking.on_device import Request
from fedrank.ranking.protocol import Parts, PrivacyMode, RankingProtocol
from fedrank.ranking.sessions.devices import (
    Device,
    PerDevice,
    draw_cohort_queries,
    draw_queries,
    record_cohort_experience,
    record_experience,
)
from fedrank.ranking.sessions.reference import SessionResults

#: 20,000 devices, which are enough in a secure sum.
_FEWER = {"population": 20_000, "rounds": 50, "clients": 400, "interactions": 16, "learning_rate": 0.3}


class Draws(NamedTuple):
    """A device's random bits in one round; none is used twice.

    Attributes:
        queries: uint32 [B]: which query an interaction is about.
        documents: uint32 [B, 2]: makes the random bits that a ranking is drawn with.
        clicks: uint32 [B, depth]: random bits for the user's decision at each rank.
        noise: The device's share: float32 [n] for weights, int32 [n] for integers; None without noise.
    """

    queries: UInt32[AnyArray, "interactions"]
    documents: UInt32[AnyArray, "interactions 2"]
    clicks: UInt32[AnyArray, "interactions depth"]
    noise: Float[AnyArray, "parameters"] | Int[AnyArray, "parameters"] | None


class ServerState(NamedTuple):
    """The server's state between rounds; nothing in it is about a single device.

    Attributes:
        round: uint32.
        weights: float32 [parameters].
        noise: State of a mechanism whose server adds noise; None with others.
        optimiser: State of the server step.
    """

    round: UInt32[AnyArray, ""]
    weights: Float[AnyArray, "parameters"]
    noise: Any = None
    optimiser: Any = ()


class Objective(abc.ABC):
    """The objective of a device's local steps; found by an entry point of ``fedrank.objectives``.

    Attributes:
        pull: μ, how hard weights are pulled back to the server's after each step.
    """

    kind = "objective"
    name: ClassVar[str]
    pull: float = 0.0

    def check(self, learning_rate: float) -> None:  # noqa: B027 - by default nothing is refused
        """Refuse a learning rate that the objective does not go with.

        Raises:
            ConfigError: See the objective.
        """


@dataclass(frozen=True)
class Plain(Objective):
    """PDGD's loss alone."""

    name = "plain"


@dataclass(frozen=True)
class Proximal(Objective):
    """PDGD's loss and a pull back to the server's weights θ₀ (FedProx; Li et al., MLSys 2020, Equation (2)).

    The gradient of (μ/2)‖θ − θ₀‖²: after each step with the learning rate η, θ ← θ − ημ (θ − θ₀). Wang and Zuccon
    (SIGIR 2022) tried it on devices whose users differ, with μ from 1e-5 to 1, and found no help against labels that
    are dealt out unevenly.
    """

    name = "proximal"
    citation = "li2020fedprox"

    mu: float = setting(0.01, "How hard weights are pulled back to the server's after each step.")

    @property
    def pull(self) -> float:  # type: ignore[override] - a setting of this objective
        """μ."""
        return self.mu

    @override
    def check(self, learning_rate):
        if not 0 <= self.mu * learning_rate <= 1:
            raise ConfigError(f"mu must be in [0, 1 / learning_rate = {1 / learning_rate:g}], got {self.mu}.")


@dataclass(frozen=True)
class FoltrPDGD(RankingProtocol):
    """Devices learn from their users' clicks with PDGD; the server averages their weights.

    Attributes:
        rule: A rule of the caller's own in place of ``aggregate``.
    """

    learning_rate: float = setting(0.1, "Step size of each local step.")
    objective: Objective = part(Plain, "Objective of a local step.", "fedrank.objectives")
    privacy: VectorMechanism = part(
        ClearWeights, "What is done to the weights that devices send.", "fedrank.mechanisms", ["vector"]
    )
    server: ServerStep = part(
        Average, "How the server moves towards the mean of the devices' weights.", "fedrank.server_steps", ["mean"]
    )
    aggregate: str = setting(
        "mean", "How the server combines the replies: mean, or a rule that is robust to attackers (see the reference)."
    )
    byzantine: int | None = setting(
        None,
        "Attackers that the rule allows for; without it as many as attack.share makes, at least 1.",
        low=0,
        high=10**8,
    )
    rule: robust.Rule | None = bound()

    name = "foltr-pdgd"
    paper = "wang2021fpdgd"
    published = "Wang et al.: Effective and Privacy-Preserving Federated Online Learning to Rank, ICTIR 2021"
    crosses = "weights: 4 bytes each; or integers of which the server sees the sum only"
    rules: ClassVar[Any] = robust.AGGREGATORS
    populations = True
    modes: ClassVar[tuple[PrivacyMode, ...]] = (  # type: ignore[misc] - those of one class of protocols
        PrivacyMode(
            "a user's life, secure sum",
            {**_FEWER, "privacy": {"epsilon_user": 1.0}},
            "expected MaxRR at most 0.4 % below the same without privacy (MQ2008)",
        ),
        PrivacyMode("noise in a secure sum", {"privacy": {"epsilon": 1.0}}),
    )

    def __post_init__(self):
        super().__post_init__()
        if self.interactions >= 2**16:
            raise ConfigError(f"interactions must be in 1..65,535, got {self.interactions}.")
        if not 0 < self.learning_rate < 1e30:
            raise ConfigError(f"learning_rate must be positive and finite, got {self.learning_rate}.")
        self.objective.check(self.learning_rate)
        self.privacy.check_rule(self.combining_rule)
        if not self.privacy.in_the_clear and not self.server.averages:
            raise ConfigError(
                f"the server step {self.server.name!r} is for weights that are sent as they are: with privacy.name = "
                f"{self.privacy.name!r} use server.name = 'average'."
            )
        if self.user is None:
            return
        mechanism = self.privacy.bind(self.bounds, self.sent, self.interactions)
        object.__setattr__(self, "privacy", mechanism)  # frozen: derived once, here
        parties = self.bounds.clients or robust.fewest(self.combining_rule, self.byzantine or 0)
        robust.check(self.combining_rule, parties, self.byzantine or 0)

    @override
    def bind(self, parts: Parts) -> Any:
        byzantine = max(1, parts.attackers) if self.byzantine is None else self.byzantine
        made = dataclasses.replace(self, byzantine=byzantine, rule=parts.aggregate)
        return super(FoltrPDGD, made).bind(parts)

    @property
    def combining_rule(self) -> str | robust.Rule:
        """The server's rule for combining replies: a rule's name, or a rule."""
        return self.rule or self.aggregate

    @property
    def sent(self) -> int:
        """Number of weights that cross."""
        return self.ranker.size

    @property
    @override
    def sizes(self) -> dict[str, int]:  # type: ignore[override] - elsewhere an attribute of the class
        return {"parameters": self.sent, "interactions": self.interactions}

    @property
    @override
    def exchanges(self) -> tuple[Exchange, ...]:
        return (LearnLocally(self),)

    @override
    def init(self, key: Any) -> ServerState:
        """Zero for a linear ranker, small normal numbers for others; ``key`` is consumed."""
        key, noise = self.privacy.init(key)
        weights = self.first_weights(key)
        xp = np if isinstance(weights, np.ndarray) else jnp
        return ServerState(xp.asarray(0, xp.uint32), weights, noise, self.server.init(weights))

    @override
    def devices(self, data, shares, user_index: PerDevice = None, amounts: PerDevice = None) -> Party:
        if isinstance(data, FeatureBlocks) != self.kernels:
            layout = "blocks" if self.kernels else "padded"
            raise ConfigError(f"kernels = {self.kernels} takes data as queries.{layout}(), got {type(data).__name__}.")
        robust.check(self.combining_rule, shares.parties, self.byzantine or 0)
        self.privacy.check_parties(shares.parties)
        return super().devices(data, shares, user_index, amounts)

    @override
    def account(self, rounds: int, delta: float) -> PrivacyReport:
        """The account of the noise in the sums of a run; of a run without noise, that nothing is protected."""
        return self.privacy.account(rounds, delta)

    @override
    def cohort(self, parties: Party) -> Cohort:
        return LearningCohort(self, parties)


@dataclass(frozen=True)
class LearnLocally(Exchange, request=Request):
    """The exchange of :class:`FoltrPDGD`: a device learns from its user's clicks and sends its weights."""

    settings: FoltrPDGD

    name = "learn-locally"

    @property
    def reply(self) -> Layout[SumReply | WeightsReply]:
        """Four bytes a weight, and two that say how many interactions they come from."""
        return self.layout(self.settings.privacy.reply)

    def extra_messages(self, parties: int) -> tuple[tuple[str, str, Layout], ...]:
        """Messages of the secure sum; empty for other mechanisms."""
        return self.settings.privacy.extra_messages(parties)

    @override
    def ask(self, state: ServerState) -> Request:
        return Request(state.round, state.weights)

    def draw(self, key: Key[Array, ""]) -> Draws:
        """A simulated device's random bits of a round, from its key."""
        words_key, noise_key = jax.random.split(key)
        rng_bits = jax.random.bits(words_key, (self.n_bits,), jnp.uint32)
        return self.cut(rng_bits, self.settings.privacy.draw(noise_key))

    def draw_from_os(self) -> Draws:
        """A real device's random bits of a round, from the operating system."""
        return self.cut(jnp.asarray(os_words((self.n_bits,))), self.settings.privacy.draw_from_os())

    @property
    def n_bits(self) -> int:
        """Random words of a device in a round, without those of its noise."""
        return self.settings.interactions * (self.settings.user.depth + 3)

    def cut(self, rng_bits: UInt32[AnyArray, "*cohort bits"], noise: Any) -> Draws:
        """The words of a round, of one device or of each of a cohort, by what they are for."""
        b, depth, lead = self.settings.interactions, self.settings.user.depth, rng_bits.shape[:-1]
        documents, clicks = rng_bits[..., b : 3 * b], rng_bits[..., 3 * b :]
        return Draws(rng_bits[..., :b], documents.reshape(*lead, b, 2), clicks.reshape(*lead, b, depth), noise)

    def respond(self, request: Request, party: Party, draws: Draws) -> tuple[Party, SumReply | WeightsReply]:
        """Simulate the user's sessions, learn from them with PDGD, and make the reply with the new weights."""
        learned, own = self.learn(request, party, draws), party.own
        result = learned.weights - request.weights if self.settings.privacy.changes else learned.weights
        after = self.add_experience(own, learned)
        return party._replace(own=after), self.report(result, own.amount, draws.noise)

    def add_experience(self, own: Device, learned: Learned) -> Device:
        """The device after its interactions, with what its user went through."""
        metric = self.settings.metric
        values = jnp.asarray(metric.values, jnp.float32)[jnp.asarray(metric.index)[learned.sessions.patterns]]
        return record_experience(own, values, learned.sessions, self.active(own.amount))

    def active(self, amount: Int[AnyArray, ""]) -> Bool[Array, "interactions"]:
        """Mask of the interactions of a round that a device makes, bool [interactions]: the first ``amount``."""
        return jnp.arange(self.settings.interactions) < amount

    def learn(self, request: Request, party: Party, draws: Draws) -> Learned:
        """PDGD with a simulated user: one step an interaction, each followed by the objective's pull if it has one."""
        s = self.settings
        (data, queries), own = party.shared, party.own
        rate = jnp.float32(s.learning_rate)
        about, active = draw_queries(queries, own, draws.queries), self.active(own.amount)
        bits = PdgdDraws(draws.documents, draws.clicks)  # type: ignore[arg-type] - arrays of JAX in a program of JAX
        if not s.objective.pull:
            return pdgd_steps(s.ranker, s.users, own.user, data, request.weights, rate, about, active, bits)
        start = weights = jnp.asarray(request.weights)
        sessions = []
        for k in range(s.interactions):
            one = slice(k, k + 1)
            bits = PdgdDraws(jnp.asarray(draws.documents)[one], jnp.asarray(draws.clicks)[one])
            learned = pdgd_steps(s.ranker, s.users, own.user, data, weights, rate, about[one], active[one], bits)
            pulled = jnp.where(active[k], rate * jnp.float32(s.objective.pull), 0.0)
            weights = learned.weights - pulled * (learned.weights - start)
            sessions.append(learned.sessions)
        return Learned(weights, jax.tree.map(lambda *parts: jnp.concatenate(parts), *sessions))

    def report(
        self,
        weights: Float[AnyArray, "parameters"],
        amount: Int[AnyArray, ""],
        noise: Float[AnyArray, "parameters"] | Int[AnyArray, "parameters"] | None = None,
    ) -> SumReply | WeightsReply:
        """The reply with the weights that a device has come to, or their change: clipped, with its share of noise.

        Args:
            weights: float32 [parameters].
            amount: int32, interactions they come from, at least 1.
            noise: The device's share of noise, as :class:`Draws` has it.

        Returns:
            :class:`SumReply` for a secure sum, else :class:`WeightsReply`.
        """
        return self.settings.privacy.message(weights, jnp.asarray(amount), noise)

    def tell(self, state: ServerState, replies: PyTree, arrived: Bool[AnyArray, "*runs parties"]) -> ServerState:
        """One server step towards the mean of the devices' weights, or towards what ``aggregate`` makes of them."""
        s = self.settings
        mean, heard, noise = s.privacy.combine(state, replies, arrived, s.combining_rule, s.byzantine or 0)
        weights, optimiser = s.server.towards(state.optimiser, state.weights, mean, heard)
        return ServerState(state.round + np.uint32(1), weights, noise, optimiser)


class LearningCohort(Cohort):
    """Answers of all devices of :class:`FoltrPDGD` with the compiled kernels.

    Args:
        settings: The protocol.
        parties: All devices.

    Raises:
        NotNativeError: The kernels do not know these settings.
    """

    def __init__(self, settings: FoltrPDGD, parties: Party):
        data, held = parties.shared
        if not isinstance(data, FeatureBlocks) or not settings.kernels:
            raise NotNativeError("compute.kernels = 'off'")
        if settings.ranker.kernel_shape() is None:
            raise NotNativeError(f"the ranker {type(settings.ranker).__name__}")
        if not settings.privacy.native:
            raise NotNativeError(f"privacy.name = {settings.privacy.name!r}")
        if settings.combining_rule != "mean":
            raise NotNativeError(f"aggregate = {settings.aggregate!r}")
        self.settings, self.data, self.held = settings, data, np.asarray(held)
        self.exchange = LearnLocally(settings)

    @override
    def answer(
        self, request: Request, own: Device, keys: UInt32[np.ndarray, "runs 2"], number: int, first: int
    ) -> tuple[Device, WeightsReply | SumReply]:
        s, parties = self.settings, own.first.shape[1]
        # The first of the two keys that a party's key is split into; the other is of its noise.
        draws = self.exchange.cut(party_words(keys, number, first, parties, self.exchange.n_bits, folds=(0,)), None)
        about = draw_cohort_queries(self.held, own, draws.queries)
        active = np.arange(s.interactions) < np.asarray(own.amount)[..., None]
        rate = np.broadcast_to(np.float32(s.learning_rate), (len(keys), 1))
        start = np.asarray(request.weights)[:, None]
        known = (s.ranker, s.users, np.asarray(own.user), self.data, start, rate)
        words = (np.asarray(draws.documents), np.asarray(draws.clicks))
        weights, patterns, ndcg = host_steps(*known, about, active, *words, s.objective.pull)
        own = record_cohort_experience(own, s.metric, SessionResults(patterns, ndcg), active)
        noise = s.privacy.draw_of_cohort(PartyNoise(keys, number, first, parties))
        return own, s.privacy.message(weights - start if s.privacy.changes else weights, np.asarray(own.amount), noise)


@dataclass(frozen=True)
class FedOptPDGD(FoltrPDGD):
    """FPDGD whose server takes an adaptive step (Adam, Yogi, Adagrad) towards the devices' mean."""

    name, paper = "fedopt-pdgd", "reddi2021fedopt"
    published = "Reddi et al.: Adaptive Federated Optimization, ICLR 2021"
    modes = ()

    server: ServerStep = part(FedAdam, "Step of the server towards the mean.", "fedrank.server_steps", ["mean"])


@dataclass(frozen=True)
class FedProxPDGD(FoltrPDGD):
    """FPDGD whose local steps are pulled back to the server's model."""

    name, paper = "fedprox-pdgd", "li2020fedprox"
    published = "Li et al.: Federated Optimization in Heterogeneous Networks, MLSys 2020"
    modes = ()

    objective: Objective = part(Proximal, "Objective of a local step.", "fedrank.objectives")
