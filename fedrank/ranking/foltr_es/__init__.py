"""FOLtR-ES: federated online learning to rank with evolution strategies (Kharitonov, WSDM 2019).

A device ranks a few of its user's queries with a randomly perturbed model, sees how well that went, and sends the
*seed* of the perturbation and the *privatised* quality. The server remakes the perturbations from the seeds and follows
those that went well. Section numbers and equations are the paper's.

One round, as in the paper::

    server   hands out the weights θ                                              Request
    device   draws a seed; v = perturbation(seed), standard normal                Section 3.2
             B/2 interactions ranked by θ + σv, B/2 others by θ − σv              (antithetic halves)
             each interaction's metric: one of n values, privatised by itself     Section 3.3
             sends the seed and the two sums of privatised values                 Reply, 9 bytes
    server   g = mean of v·(m⁺ − m⁻)/(2σ), with m± the halves' mean values        equations (4)–(6)
             one step of Adam along g                                             Section 5

By default a device does more, and takes part in one round only: each list is made by both rankers, 64 interactions or
so stand behind a message, and the difference of their rewards is sent as one number, privatised with an ε of all that
the user ever does (:mod:`fedrank.ranking.mechanisms.piecewise`, :mod:`fedrank.ranking.schedule`).

What varies is a value: the *presentation*, which lists a user is shown (:mod:`fedrank.ranking.foltr_es.presentations`;
the paper's are antithetic halves); the *mechanism*, what a device does to its rewards
(:mod:`fedrank.ranking.mechanisms`; the paper's is randomised response); the *server step*
(:mod:`fedrank.aggregation.server_steps`; the paper's is Adam); and
how differences are combined (:mod:`fedrank.aggregation.differences`).

**The seed that is sent makes the perturbation and nothing else.** Queries, clicks and privatisation have other random
words. The code published with the paper draws queries and clicks from the seed's stream too, so that the reward is
correlated with the perturbation even where the ranking cannot matter, which biases the gradient
(``foltr-es-2019`` of the package ``fedrank-zoo`` reproduces that, for comparison only).

The metric is not debiased: randomised response maps its expectation m to a·m + C with a = (pn − 1)/(n − 1) (equation
(7)); C cancels between the halves, and a scales the gradient, which Adam does not see.
"""

from __future__ import annotations

import dataclasses
import itertools
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int, Key, UInt32
from typing_extensions import override

from fedrank.aggregation.differences import ES_DEFENCES, Defence, coefficients, median_of_means
from fedrank.aggregation.server_steps import Adam, ServerStep
from fedrank.core.arrays import AnyArray, ArrayT, PyTree, module_of
from fedrank.core.arrays import JaxArray as Array
from fedrank.core.errors import ConfigError
from fedrank.core.fields import bound, part, setting
from fedrank.core.kernels import host_weighted_sum, party_words, weighted_sum, weighted_sum_kernel
from fedrank.core.lazy import jax, jnp
from fedrank.core.messages import Layout
from fedrank.core.native import Cohort, NotNativeError
from fedrank.core.privacy_report import PrivacyReport
from fedrank.core.protocol import Exchange, Party
from fedrank.data.folders import OWN
from fedrank.metrics.online import OnlineMetric, discretise
from fedrank.privacy.noise.parties import PartyNoise
from fedrank.privacy.randomised_response import os_words
from fedrank.ranking.config import INTERACTIONS
from fedrank.ranking.data.queries import FeatureBlocks
from fedrank.ranking.foltr_es.presentations import AntitheticHalves, Automatic, Interleaved, Presentation
from fedrank.ranking.mechanisms import RewardMechanism
from fedrank.ranking.mechanisms.piecewise import PiecewiseNumber
from fedrank.ranking.on_device import ClicksToReply, NoisyReply, PlainReply, PrivateReply, Reply, Request
from fedrank.ranking.protocol import Parts, PrivacyMode, RankingProtocol
from fedrank.ranking.schedule import ROUNDS, choose_interactions, choose_schedule, step_size
from fedrank.ranking.sessions.devices import (
    Device,
    PerDevice,
    check_ties,
    draw_cohort_queries,
    private_sums,
    record_cohort_experience,
    record_experience,
)
from fedrank.ranking.sessions.kernel import HostSessions, perturbations_at_hand


class Draws(NamedTuple):
    """A device's random bits in one round; none is used twice.

    Attributes:
        seed: uint32: of the perturbation; the only one that is sent.
        queries: uint32 [halves, per_half]: which query an interaction is about.
        clicks: uint32 [halves, per_half, depth]: random bits for the user's decision at each rank.
        ties: uint32 [halves, per_half]: order of equal scores.
        privacy: uint32 [halves, per_half, 2]: for randomised response; or the first of them for the one number of a
            message. uint32 [words] with interleaved lists.
        noise: int32 [halves]: what is added to the sums; zero with randomised response.
        toss: uint32 [1, interactions]: who goes first where two rankers make a list; None where they do not. The first
            axis of the others is 1 then as well: a list is not of one half.
    """

    seed: UInt32[AnyArray, ""]
    queries: UInt32[AnyArray, "halves per_half"]
    clicks: UInt32[AnyArray, "halves per_half depth"]
    ties: UInt32[AnyArray, "halves per_half"]
    privacy: UInt32[AnyArray, "halves per_half 2"] | UInt32[AnyArray, "words"]
    noise: Int[AnyArray, "halves"]
    toss: UInt32[AnyArray, "1 interactions"] | None = None


class ServerState(NamedTuple):
    """The server's state between rounds; nothing in it is about a single device.

    Attributes:
        round: uint32.
        weights: float32 [parameters].
        optimiser: State of the server step.
    """

    round: UInt32[AnyArray, ""]
    weights: Float[AnyArray, "parameters"]
    optimiser: Any


@dataclass(frozen=True)
class FoltrES(RankingProtocol):
    """Devices try random perturbations of the ranker and report how well they went.

    Attributes:
        observed: Metric that a simulator's curves show; None: ``metric``.
        rule: A rule of the caller's own in place of ``aggregate``.
    """

    interactions: int = setting(
        0,
        "B, interactions of a device in a round; 0: 4, or as many as an ε of a user's life needs.",
        low=0,
        high=10**6,
    )
    sigma: float = setting(0.01, "σ, standard deviation of the perturbation.")
    presentation: Presentation = part(
        Automatic,
        "Lists that a device shows; auto: interleaved with one number a message.",
        "fedrank.presentations",
        ["presentation"],
    )
    privacy: RewardMechanism = part(
        PiecewiseNumber,
        "What a device does to its rewards before it sends them; the paper's is --privacy.p.",
        "fedrank.mechanisms",
        ["reward"],
    )
    server: ServerStep = part(Adam, "How the server steps along the gradient.", "fedrank.server_steps", ["gradient"])
    aggregate: str = setting(
        "mean", "How the server combines the replies: mean, or a rule that is robust to attackers (see the reference)."
    )
    byzantine: int | None = setting(
        None,
        "Attackers that the rule allows for; without it as many as attack.share makes, at least 1.",
        low=0,
        high=10**8,
    )
    ties: Literal["fixed", "random"] = setting("fixed", "Equal scores in the order of the data, or shuffled each time.")
    reward_values: int | None = setting(
        None,
        "Evenly spaced values that the reward is rounded to: fewer mean a smaller ε at the same p.",
        low=2,
        high=65_537,
    )
    observed: OnlineMetric | None = bound()
    rule: Defence | None = bound()

    name = "foltr-es"
    paper = "kharitonov2019foltr"
    published = "Kharitonov: Federated Online Learning to Rank with Evolution Strategies, WSDM 2019"
    crosses = "a seed and one privatised number: 6 bytes; or two privatised sums: 9"
    recommended = True
    rules: ClassVar[Any] = ES_DEFENCES
    populations = new_devices = True
    modes = (
        PrivacyMode(
            "defaults: a user's life",
            {},
            "expected MaxRR within 1 % of the same without noise, in 1,067 days at 3 searches a day (MQ2008)",
        ),
        PrivacyMode(
            "a user's life, anonymous channel",
            {"population": 100_000, "privacy": {"epsilon_user": 1.0, "channel": "anonymous"}},
            "no loss found against the same without noise, in 467 days at 3 searches a day (MQ2008)",
        ),
        PrivacyMode("the paper's, an interaction", {"privacy": {"p": 0.9}}),
        PrivacyMode("noise on the sums of rewards", {"privacy": {"name": "laplace", "epsilon_interaction": 1.0}}),
    )

    def __post_init__(self):
        if self.user is not None and not self.interactions:
            object.__setattr__(self, "interactions", INTERACTIONS)  # frozen: derived once, here
        super().__post_init__()
        check_ties(self.ties)
        if not 1e-30 < self.sigma < 1e30:
            raise ConfigError(f"sigma must be positive and finite, got {self.sigma}.")
        shown = self.shown
        if shown.lists == 2 and self.interactions % 2:
            raise ConfigError(
                f"interactions must be even with antithetic halves, got {self.interactions}; "
                "use an even number, or one-sided or interleaved lists."
            )
        if self.rule is None and self.aggregate != OWN:
            ES_DEFENCES.entry(self.aggregate)
        if (self.rule or self.aggregate) != "mean" and shown.halves == 1:
            raise ConfigError(f"aggregate = {self.aggregate!r} works on differences; it needs antithetic halves.")
        if self.user is None:
            return
        self.privacy.check_halves(shown.halves == 2)
        bounds = dataclasses.replace(self.bounds, interactions=self.interactions)
        object.__setattr__(self, "privacy", self.privacy.bind(bounds, self.metric))  # frozen: derived once, here
        if shown.lists < shown.halves and not self.privacy.interleaves:
            raise ConfigError(
                "interleaved lists tell of each interaction twice, once for each ranker; use one number a message "
                "(privacy.epsilon_user), or privacy.p = 1 for no protection."
            )
        if self.per_half * self.metric.largest >= 2**24:
            most = (2**24 - 1) // self.metric.largest
            less = f"at most {most * shown.lists} interactions a round" if most else "fewer values of the reward"
            raise ConfigError(f"a sum of {self.per_half} values of {self.metric.name} may exceed 24 bits; use {less}.")

    @override
    def bind(self, parts: Parts) -> Any:
        sent = parts.metric if self.reward_values is None else discretise(parts.metric, self.reward_values)
        byzantine = max(1, parts.attackers) if self.byzantine is None else self.byzantine
        made = super().bind(dataclasses.replace(parts, metric=sent))
        return dataclasses.replace(made, observed=parts.metric, byzantine=byzantine, rule=parts.aggregate)

    @property
    def shown(self) -> Presentation:
        """The presentation; for ``auto`` interleaved lists with one number a message, else antithetic halves."""
        if not isinstance(self.presentation, Automatic):
            return self.presentation
        return Interleaved() if self.privacy.one_number else AntitheticHalves()

    @override
    def choose_schedule(self, bounds, said):
        if self.privacy.second_moment(1.0) is None or bounds.population is None:
            return None
        rounds, clients, interactions = bounds.rounds, bounds.clients or 1, self.interactions

        def moment(clients: int) -> float:
            private: Any = dataclasses.replace(self.privacy, bounds=dataclasses.replace(bounds, clients=clients))
            return private.second_moment(private.epsilon_message)

        if not {"rounds", "clients", "budget"} & {*said}:
            messages = bounds.population * bounds.times
            clients = messages // ROUNDS
            for _ in range(2):  # among how many a message hides depends on the rounds
                chosen = choose_schedule(messages, moment(clients))
                rounds, clients = chosen.rounds, chosen.clients
            interactions = interactions or chosen.interactions
        elif not interactions and "budget" not in said:
            interactions = choose_interactions(rounds * clients, moment(clients))
        server = self.server
        if server == Adam() and "server.learning_rate" not in said:
            server = Adam(step_size(rounds))
        return rounds, clients, dataclasses.replace(self, interactions=interactions, server=server)

    @property
    def per_half(self) -> int:
        """Interactions that judge each ranker in a round."""
        return self.interactions // self.shown.lists

    @property
    @override
    def group(self) -> int:
        return self.shown.lists

    @property
    def clicks_to_reply(self) -> ClicksToReply:
        """The rule that turns clicks into a reply, in a simulation and on real devices."""
        return self.privacy.clicks_to_reply(self.metric, self.per_half, self.shown.halves == 2)

    @property
    @override
    def exchanges(self) -> tuple[Exchange, ...]:
        return (TryPerturbation(self),)

    @override
    def init(self, key: Any) -> ServerState:
        """All weights zero, as in the paper, or those of a model to start from; needs no randomness."""
        xp, weights = (np if isinstance(key, np.ndarray) else jnp), self.start_weights()
        return ServerState(xp.asarray(0, xp.uint32), xp.asarray(weights), self.server.init(xp.asarray(weights)))

    @override
    def devices(self, data, shares, user_index: PerDevice = None, amounts: PerDevice = None) -> Party:
        if amounts is not None and np.any(np.asarray(amounts) % self.shown.lists):
            raise ConfigError("amounts of interactions must be even with antithetic halves.")
        return super().devices(data, shares, user_index, amounts)

    @override
    def account(self, rounds: int, delta: float) -> PrivacyReport:
        most = self.bounds.participations or (None if self.bounds.population is None else 1)
        rounds = rounds if most is None else min(rounds, most)
        return self.privacy.account(self.clicks_to_reply, self.interactions, rounds, delta)

    @override
    def epsilon_round(self, delta: float) -> float:
        return self.privacy.epsilon_round(self.clicks_to_reply, self.interactions, delta)

    @override
    def experience(self, party: Party) -> dict[str, Any]:
        observed = self.observed or self.metric
        return {observed.name: party.own.reward, f"nDCG(dcg='exp-log2')@{self.user.depth}": party.own.ndcg}

    @override
    def cohort(self, parties: Party) -> Cohort:
        return PerturbationCohort(self, parties)

    def weighted_sum(
        self, seeds: UInt32[ArrayT, "*runs parties"], weights: Float[ArrayT, "*runs parties"]
    ) -> Float[ArrayT, "*runs n"]:
        """Σ wᵢ·v(seedᵢ) over the devices: the perturbations are made again from their seeds."""
        size = self.ranker.size
        if module_of(seeds, weights) is np:
            found: Any = host_weighted_sum(seeds, weights, size, perturbations_at_hand(seeds, size))
            return found
        add: Any = weighted_sum_kernel if self.kernels else weighted_sum
        return add(seeds, weights, size)


@dataclass(frozen=True)
class TryPerturbation(Exchange, request=Request):
    """The exchange of :class:`FoltrES`: a device tries a perturbation of the model and reports how well it went."""

    settings: FoltrES

    name = "try-perturbation"

    @property
    def reply(self) -> Layout[Reply | PlainReply | NoisyReply | PrivateReply]:
        """Seed and privatised sums: 9 bytes for MaxRR with B = 4 and antithetic halves; 6 to 13 in all settings."""
        return self.settings.clicks_to_reply.layout

    @override
    def ask(self, state: ServerState) -> Request:
        return Request(state.round, state.weights)

    def draw(self, key: Key[Array, ""]) -> Draws:
        """A simulated device's random bits of a round, from its key."""
        rng_bits = jax.random.bits(key, (self.n_bits,), jnp.uint32)
        noise = self.settings.privacy.draw(jax.random.fold_in(key, 1), self.settings.shown.halves)
        return self.cut(rng_bits, noise)

    def draw_from_os(self) -> Draws:
        """A real device's random bits of a round, from the operating system.

        A simulation protects no real user and can derive the bits from a key. On a device the server sees the seed,
        which must then say nothing about the bits that the randomised response is made of.
        """
        noise = self.settings.privacy.draw_from_os(self.settings.shown.halves)
        return self.cut(jnp.asarray(os_words((self.n_bits,))), noise)

    @property
    def n_bits(self) -> int:
        """Random words of a device in a round."""
        s = self.settings
        more = s.interactions + s.privacy.words if isinstance(s.shown, Interleaved) else 2 * s.interactions
        return 1 + s.interactions * (s.user.depth + 2) + more

    @property
    def places(self) -> list[int]:
        """First words of queries, clicks, ties, tosses (interleaved lists only) and privacy among a round's words."""
        s, b = self.settings, self.settings.interactions
        return np.cumsum([1, b, b * s.user.depth, b, *([b] if isinstance(s.shown, Interleaved) else [])]).tolist()

    def cut(self, rng_bits: UInt32[AnyArray, "*cohort bits"], noise: Int[AnyArray, "halves"]) -> Draws:
        """The words of a round, of one device or of each of a cohort, by what they are for."""
        s = self.settings
        shape, depth, at = (s.shown.lists, s.per_half), s.user.depth, self.places
        lead = rng_bits.shape[:-1]  # of a simulated cohort; none of one device
        queries, clicks, ties, *toss = (rng_bits[..., i:j] for i, j in itertools.pairwise(at))
        privacy = rng_bits[..., at[-1] :]
        return Draws(
            rng_bits[..., 0],
            queries.reshape(*lead, *shape),
            clicks.reshape(*lead, *shape, depth),
            ties.reshape(*lead, *shape),
            privacy if toss else privacy.reshape(*lead, *shape, 2),
            noise,
            toss[0].reshape(*lead, *shape) if toss else None,
        )

    def respond(
        self, request: Request, party: Party, draws: Draws
    ) -> tuple[Party, Reply | PlainReply | NoisyReply | PrivateReply]:
        """Simulate the user's sessions with both perturbed rankers and make the reply about them."""
        s, lists = self.settings, self.settings.shown.lists
        active = jnp.arange(s.per_half) < -(-party.own.amount // lists)
        active = jnp.broadcast_to(active, (lists, s.per_half))
        # Section 3.2: rank with θ + σv and θ − σv, v made from the seed.
        sessions, patterns = s.shown.show(s, request, party, draws)
        metric = s.observed or s.metric
        values = jnp.asarray(metric.values, jnp.float32)[jnp.asarray(metric.index)[sessions.patterns]]
        own = record_experience(party.own, values, sessions, active)
        return party._replace(own=own), self.report(draws, patterns, jnp.broadcast_to(active, patterns.shape))

    def report(
        self,
        draws: Draws,
        patterns: Int[AnyArray, "halves per_half"],
        active: Bool[AnyArray, "halves per_half"] | None = None,
    ) -> Reply | PlainReply | NoisyReply | PrivateReply:
        """The reply about interactions that have taken place, each privatised by itself (Section 3.3), or all together.

        Args:
            draws: The device's random numbers; of them, the seed that was tried and those of the privatisation.
            patterns: int32 [halves, per_half]: the clicks, bit i for rank i + 1; of an interleaved list those that each
                half is credited with.
            active: bool [halves, per_half]: which interactions took place, the others add nothing; None: all.

        Returns:
            The reply; see :class:`~fedrank.ranking.on_device.ClicksToReply`, which a device calls as well.
        """
        to_reply = self.settings.clicks_to_reply
        # Two words an interaction are drawn, more than one number a message takes.
        privacy = self.settings.privacy
        noise = jnp.ravel(draws.privacy)[: privacy.words] if privacy.one_number else draws.noise
        return to_reply.message(draws.seed, to_reply.sums(patterns, draws.privacy, active, jnp), noise, jnp)

    def tell(self, state: ServerState, replies: PyTree, arrived: Bool[AnyArray, "*runs parties"]) -> ServerState:
        """Estimate the gradient from the replies that arrived and take one step of the server uphill."""
        s, to_reply = self.settings, self.settings.clicks_to_reply
        gradient: Any
        heard: Any
        difference, heard = s.privacy.differences(to_reply, replies, arrived)
        # Equations (4)–(6), (θ − φ)/σ² = v/σ: v·(m⁺ − m⁻)/(2σ), or v·m/σ; the mean over devices.
        weighed = coefficients(s.rule or s.aggregate, difference, heard, s.privacy.largest(to_reply), s.byzantine or 0)
        weighed = weighed / np.float32(s.per_half * s.metric.scale * s.shown.halves * s.sigma)
        if len(weighed) == 1:
            gradient = s.weighted_sum(replies.seed, weighed[0])
        else:
            gradients: Any = jax.vmap(lambda group: s.weighted_sum(replies.seed, group))(weighed)
            gradient = median_of_means(gradients, jnp.arange(len(gradients)) < jnp.sum(heard))
        weights, optimiser = s.server.step(state.optimiser, state.weights, gradient, heard.any(axis=-1))
        return ServerState(state.round + np.uint32(1), weights, optimiser)


class PerturbationCohort(Cohort):
    """Answers of all devices of :class:`FoltrES` with the compiled kernels.

    Args:
        settings: The protocol.
        parties: All devices.

    Raises:
        NotNativeError: The kernels do not know these settings.
    """

    def __init__(self, settings: FoltrES, parties: Party):
        data, held = parties.shared
        if not isinstance(data, FeatureBlocks) or not settings.kernels:
            raise NotNativeError("compute.kernels = 'off'")
        if settings.aggregate != "mean":
            raise NotNativeError(f"aggregate = {settings.aggregate!r}")
        self.settings, self.held = settings, np.asarray(held)
        self.exchange, self.to_reply = TryPerturbation(settings), settings.clicks_to_reply
        steps = settings.shown.steps(settings.sigma)
        self.kernel = HostSessions(settings.ranker, settings.users, data, steps, check_ties(settings.ties))

    @override
    def answer(
        self, request: Request, own: Device, keys: UInt32[np.ndarray, "runs 2"], number: int, first: int
    ) -> tuple[Device, Any]:
        s, parties, shown = self.settings, own.first.shape[1], self.settings.shown
        words = party_words(keys, number, first, parties, self.exchange.n_bits)
        draws = self.exchange.cut(words, np.zeros(shown.halves, np.int32))
        about = draw_cohort_queries(self.held, own, draws.queries)
        active = np.arange(s.per_half) < -(-np.asarray(own.amount) // shown.lists)[..., None, None]
        active = np.broadcast_to(active, about.shape)
        weights, places = np.asarray(request.weights)[:, None], self.exchange.places
        sessions, patterns = shown.show_cohort(s, self.kernel, weights, own, about, draws, words, places)
        own = record_cohort_experience(own, s.observed or s.metric, sessions, active)
        for_values = draws.privacy if self.to_reply.p < 1 else None  # otherwise they are of a whole message, or unused
        sums = private_sums(self.to_reply, patterns, for_values, np.broadcast_to(active, patterns.shape))
        if s.privacy.one_number:
            added: Any = draws.privacy.reshape(*draws.privacy.shape[:2], -1)[..., : s.privacy.words]
        else:
            added = s.privacy.draw_of_cohort(PartyNoise(keys, number, first, parties), shown.halves)
        return own, self.to_reply.message(draws.seed, np.moveaxis(sums, -1, 0), added, np)
