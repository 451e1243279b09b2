"""FOLtR-ES: federated online learning to rank with evolution strategies (Kharitonov, WSDM 2019).

A device ranks a few of its user's queries with a randomly perturbed model, sees how well that went, and sends the
*seed* of the perturbation and the *privatised* quality. The server remakes the perturbations from the seeds and follows
those that went well. Section numbers and equations are the paper's.

With ``interleaved`` lists a device shows one list made of both rankers' (:mod:`fedrank.ranking.on_device.interleave`),
and each ranker's value is that of the clicks on its own documents: the difference is then one of rankers, and not of
the queries that each happened to be asked. The paper's way is to show one ranker's list at a time.

One round::

    server   hands out the weights θ                                              Request
    device   draws a seed; v = perturbation(seed), standard normal                Section 3.2
             B/2 interactions ranked by θ + σv, B/2 others by θ − σv              (antithetic halves)
             each interaction's metric: one of n values, privatised by itself     Section 3.3
             sends the seed and the two sums of privatised values                 Reply, 9 bytes
    server   g = mean of v·(m⁺ − m⁻)/(2σ), with m± the halves' mean values        equations (4)–(6)
             one step of Adam along g                                             Section 5

**The seed that is sent makes the perturbation and nothing else.** Queries, clicks and privatisation have randomness of
their own. The code published with the paper draws queries and clicks from the seed's stream too, so that the reward is
correlated with the perturbation even where the ranking cannot matter, which biases the gradient. ``as_published=True``
reproduces that (:mod:`fedrank.ranking.foltr_es_2019.random_stream`), for comparison only.

The metric is not debiased: randomised response maps its expectation m to a·m + C with a = (pn − 1)/(n − 1) (equation
(7)); C cancels between the halves, and a scales the gradient, which Adam does not see.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int, Key, UInt32
from typing_extensions import override

from fedrank.aggregation.differences import ES_DEFENCES, Defence, coefficients, in_range, median_of_means
from fedrank.core.arrays import AnyArray, PyTree
from fedrank.core.arrays import JaxArray as Array
from fedrank.core.compiled import COMPILES
from fedrank.core.errors import ConfigError
from fedrank.core.kernels import weighted_sum, weighted_sum_kernel
from fedrank.core.lazy import jax, jnp, optax
from fedrank.core.messages import Layout
from fedrank.core.privacy_report import DELTA, PrivacyReport
from fedrank.core.protocol import Exchange, Party
from fedrank.metrics.online import OnlineMetric, max_rr
from fedrank.privacy.accounts import piecewise as piecewise_account
from fedrank.privacy.accounts.piecewise import Anonymity
from fedrank.privacy.accounts.randomised_response import account
from fedrank.privacy.noise.sums import NoisyValues
from fedrank.privacy.piecewise import WORDS, Piecewise
from fedrank.privacy.randomised_response import epsilon, os_words
from fedrank.ranking.clicks.cascade import CascadeUser
from fedrank.ranking.data.partition import Shares
from fedrank.ranking.data.queries import FeatureBlocks, PaddedQueries
from fedrank.ranking.foltr_es_2019.random_stream import published_sessions, published_weighted_sum
from fedrank.ranking.on_device.messages import NoisyReply, PlainReply, PrivateReply, Reply, Request
from fedrank.ranking.on_device.reply import ClicksToReply
from fedrank.ranking.protocol import RankingProtocol
from fedrank.ranking.rankers.base import Ranker
from fedrank.ranking.sessions.devices import PerDevice, draw_queries, record_experience
from fedrank.ranking.sessions.results import SessionResults
from fedrank.ranking.sessions.sessions import check_ties, run_interleaved, run_sessions

#: Noise exceeds so many scales with a probability of e⁻⁴⁰.
_TAIL = 40


class Draws(NamedTuple):
    """A device's random bits in one round; none is used twice.

    Attributes:
        seed: uint32: of the perturbation; the only one that is sent.
        queries: uint32 [halves, per_half]: which query an interaction is about.
        clicks: uint32 [halves, per_half, depth]: random bits for the user's decision at each rank.
        ties: uint32 [halves, per_half]: order of equal scores.
        privacy: uint32 [halves, per_half, 2]: for randomised response; or the first three of them for the one number
            of a message. uint32 [3] with interleaved lists.
        noise: int32 [halves]: what is added to the sums; zero with randomised response.
        toss: uint32 [1, interactions]: who goes first where two rankers make a list; None where they do not. The first
            axis of the others is 1 then as well: a list is not of one half.
    """

    seed: UInt32[AnyArray, ""]
    queries: UInt32[AnyArray, "halves per_half"]
    clicks: UInt32[AnyArray, "halves per_half depth"]
    ties: UInt32[AnyArray, "halves per_half"]
    privacy: UInt32[AnyArray, "halves per_half 2"] | UInt32[AnyArray, "3"]
    noise: Int[AnyArray, "halves"]
    toss: UInt32[AnyArray, "1 interactions"] | None = None


class ServerState(NamedTuple):
    """The server's state between rounds; nothing in it is about a single device.

    Attributes:
        round: uint32.
        weights: float32 [parameters].
        optimiser: State of Adam: step count, first and second moments.
    """

    round: UInt32[AnyArray, ""]
    weights: Float[AnyArray, "parameters"]
    optimiser: optax.OptState


@dataclass(frozen=True)
class FoltrES(RankingProtocol):
    """The protocol's settings; the defaults are the paper's.

    Attributes:
        ranker: The ranker, a function from features to scores.
        user: Click model of the simulated user; on a real device the user is the person who holds it.
        observed: Metric that a simulator's curves show; None: ``metric``.
        mechanism: ``"randomised-response"`` as in the paper, with ``p``; or ``"laplace"`` or ``"gaussian"`` noise on
            the sums, with ``epsilon`` and ``delta`` of one interaction: the paper's outlook on continuous metrics; or
            ``"piecewise"``: the difference of the halves is sent as one number that ``piecewise`` privatised.
        epsilon: See ``mechanism``.
        delta: See ``mechanism``.
        piecewise: See ``mechanism``; its ε is of everything that a device did in a round.
        participations: Most rounds of a run that a device takes part in, for the account; None: all.
        anonymity: The anonymous channel that reports take, for the account; None: they take none.
        clip: With ``piecewise`` the largest difference of the halves that a message tells, as a part of the largest
            there can be, in (0, 1].
        aggregate: How the server combines the messages: a name in
            :data:`fedrank.aggregation.differences.ES_DEFENCES`, or a function of the caller's own; the paper's is
            ``"mean"``.
        byzantine: Number of attacking devices that ``aggregate`` allows for.
        others: Further users of a simulation whose devices are not all alike; ``user`` is number 0.
        metric: Reward of an interaction: a function of its clicks with n values.
        interactions: B, interactions a device makes in a round; even when antithetic.
        sigma: σ, standard deviation of the perturbation.
        learning_rate: Adam's step size.
        p: Probability of an honest answer; 1 sends the truth. 0.9 as in the paper's main results (Section 6.3).
        antithetic: Judge θ + σv and θ − σv, or θ + σv alone.
        interleaved: Show lists that θ + σv and θ − σv make together, in place of one ranker's at a time; without
            privatisation or with ``piecewise``, since a click is told twice.
        ties: Equal scores: ``"fixed"`` order of the data or ``"random"`` in each interaction.
        as_published: Reproduce the shared random stream of the code published with the paper. Biased; for comparison
            only.
        kernels: Use the compiled CPU kernels where there are any; equal draws, sums equal to about 1e-6.
    """

    ranker: Ranker
    user: CascadeUser
    metric: OnlineMetric = field(default_factory=max_rr)
    interactions: int = 4
    sigma: float = 0.01
    learning_rate: float = 1e-3
    p: float = 0.9
    antithetic: bool = True
    interleaved: bool = False
    ties: str = "fixed"
    as_published: bool = False
    kernels: bool = COMPILES
    observed: OnlineMetric | None = None
    mechanism: str = "randomised-response"
    epsilon: float | None = None
    delta: float = DELTA
    piecewise: Piecewise | None = None
    participations: int | None = None
    anonymity: Anonymity | None = None
    clip: float = 1.0
    aggregate: str | Defence = "mean"
    byzantine: int = 1
    others: tuple[CascadeUser, ...] = ()

    name = "foltr-es"

    def __post_init__(self):
        check_ties(self.ties)
        if self.interactions < 1:
            raise ConfigError(f"interactions must be at least 1, got {self.interactions}.")
        if self.interleaved and (not self.antithetic or self.as_published):
            raise ConfigError("interleaved lists are made of both halves: antithetic = true, as_published = false.")
        if self.interleaved and self.piecewise is None and (self.p < 1 or self.mechanism != "randomised-response"):
            raise ConfigError(
                "interleaved lists tell of each interaction twice, once for each ranker; use one number a message "
                "(privacy.epsilon_user) or p = 1."
            )
        if self.antithetic and not self.interleaved and self.interactions % 2:
            raise ConfigError(
                f"interactions must be even with antithetic halves, got {self.interactions}; "
                "use an even number or antithetic = false."
            )
        if not 1e-30 < self.sigma < 1e30:
            raise ConfigError(f"sigma must be positive and finite, got {self.sigma}.")
        if not 0 < self.learning_rate < 1e30:
            raise ConfigError(f"learning_rate must be positive and finite, got {self.learning_rate}.")
        if not 1 / self.metric.n <= self.p <= 1:
            raise ConfigError(
                f"p must be in [1/n, 1] = [{1 / self.metric.n:.4g}, 1] for {self.metric.name} with n = {self.metric.n} "
                f"values, got {self.p}: below 1/n an answer says which value it is not."
            )
        if self.user.depth != self.metric.depth:
            raise ConfigError(f"{self.metric.name} looks at {self.metric.depth} ranks, the user at {self.user.depth}.")
        if self.per_half * self.metric.largest >= 2**24:
            most = (2**24 - 1) // self.metric.largest
            less = f"at most {most * self.halves} interactions a round" if most else "fewer values of the reward"
            raise ConfigError(f"a sum of {self.per_half} values of {self.metric.name} may exceed 24 bits; use {less}.")
        if isinstance(self.aggregate, str):
            ES_DEFENCES.entry(self.aggregate)
        if self.aggregate != "mean" and not self.antithetic:
            raise ConfigError(f"aggregate = {self.aggregate!r} works on differences; it needs antithetic halves.")
        if self.mechanism != "randomised-response" and not (self.antithetic and self.p == 1):
            raise ConfigError(
                f"the mechanism {self.mechanism!r} needs antithetic halves and p = 1: it takes the place of randomised "
                "response."
            )
        if (self.mechanism == "piecewise") != (self.piecewise is not None):
            raise ConfigError(
                f"the mechanism 'piecewise' needs 'piecewise', and no other does; got {self.mechanism!r}."
            )
        if not 0 < self.clip <= 1 or (self.clip < 1 and self.piecewise is None):
            raise ConfigError(f"clip must be in (0, 1], and 1 without the mechanism 'piecewise'; got {self.clip}.")
        if self.participations is not None and self.participations < 1:
            raise ConfigError(f"participations must be at least 1, got {self.participations}.")
        assert self.noise is None or self.piecewise is None  # noise that does not fit is refused here
        if self.as_published and not all(user.cascades for user in self.users):
            raise ConfigError(f"as_published has cascade users only, got a {self.user.name} user.")
        if self.as_published and self.ties != "fixed":
            raise ConfigError("as_published orders equal scores as the published code does; set ties = 'fixed'.")

    @property
    def noise(self) -> NoisyValues | None:
        """The noise on the sums; None without."""
        if self.mechanism in ("randomised-response", "piecewise"):
            return None
        epsilon = float("nan") if self.epsilon is None else self.epsilon
        return NoisyValues(self.mechanism, epsilon, self.delta, self.metric.largest)

    @property
    def halves(self) -> int:
        """Number of rankers that a device tries in a round: 2 or 1."""
        return 2 if self.antithetic else 1

    @property
    def lists(self) -> int:
        """Lists of different rankers: as many as halves; 1 where both make each list."""
        return 1 if self.interleaved else self.halves

    @property
    def per_half(self) -> int:
        """Interactions that judge each of these rankers in a round."""
        return self.interactions // self.lists

    @property
    def clicks_to_reply(self) -> ClicksToReply:
        """What turns clicks into a reply, here and on real devices."""
        return ClicksToReply(
            self.metric, self.per_half, self.antithetic, self.p, self.noise is not None, self.piecewise, self.clip
        )

    @property
    @override
    def exchanges(self) -> tuple[Exchange, ...]:
        return (TryPerturbation(self),)

    @property
    def optimiser(self) -> optax.GradientTransformation:
        """Adam with the usual decay rates (Section 5)."""
        return optax.adam(self.learning_rate)

    def init(self, key: Any) -> ServerState:
        """All weights zero, as in the paper; needs no randomness."""
        del key
        weights = jnp.asarray(self.ranker.initial())
        return ServerState(jnp.uint32(0), weights, self.optimiser.init(weights))

    def devices(
        self,
        data: PaddedQueries | FeatureBlocks,
        shares: Shares,
        user_index: PerDevice = None,
        amounts: PerDevice = None,
    ) -> Party:
        """All devices of a simulation; see :func:`fedrank.ranking.sessions.devices.devices`."""
        if self.as_published and not (user_index is None and amounts is None):
            raise ConfigError("as_published simulates devices that are all alike; give no users or amounts.")
        if amounts is not None and np.any(np.asarray(amounts) % self.lists):
            raise ConfigError("amounts of interactions must be even with antithetic halves.")
        return super().devices(data, shares, user_index, amounts)

    @override
    def account(self, rounds: int, delta: float) -> PrivacyReport:
        rounds = rounds if self.participations is None else min(rounds, self.participations)
        if self.piecewise is not None:
            known = (self.interactions, rounds, delta, self.participations, self.anonymity, self.clip)
            return piecewise_account.account(self.piecewise, *known)
        if self.noise is not None:
            return self.noise.account(self.per_half, self.halves, rounds, delta)
        return account(
            p=self.p,
            n=self.metric.n,
            interactions_per_message=self.interactions,
            rounds=rounds,
            antithetic=self.antithetic,
            delta=delta,
        )

    @override
    def epsilon_round(self, delta: float) -> float:
        if self.piecewise is None and self.noise is None:  # what composes over rounds takes half a second to import
            return self.interactions * epsilon(self.p, self.metric.n)
        return super().epsilon_round(delta)

    @override
    def experience(self, party: Party) -> dict[str, jax.Array]:
        observed = self.observed or self.metric
        return {observed.name: party.own.reward, f"nDCG@{self.user.depth}": party.own.ndcg}


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
        noise = self.settings.noise
        if noise is None:
            return self.cut(rng_bits, jnp.zeros(self.settings.halves, jnp.int32))
        return self.cut(rng_bits, noise.draw(jax.random.fold_in(key, 1), (self.settings.halves,)))

    def draw_from_os(self) -> Draws:
        """A real device's random bits of a round, from the operating system.

        A key would do in a simulation, where nobody is to be protected. On a device the server sees the seed, which
        must then say nothing about the bits that the randomised response is made of.
        """
        shape, noise = (self.settings.halves,), self.settings.noise
        drawn = jnp.zeros(shape, jnp.int32) if noise is None else noise.draw_from_os(shape)
        return self.cut(jnp.asarray(os_words((self.n_bits,))), drawn)

    @property
    def n_bits(self) -> int:
        """Random words of a device in a round."""
        s = self.settings
        more = s.interactions + WORDS if s.interleaved else 2 * s.interactions
        return 1 + s.interactions * (s.user.depth + 2) + more

    @property
    def places(self) -> list[int]:
        """Where in the words those for queries, clicks, ties, tosses (where there are any) and privacy begin."""
        s, b = self.settings, self.settings.interactions
        return np.cumsum([1, b, b * s.user.depth, b, *([b] if s.interleaved else [])]).tolist()

    def cut(self, rng_bits: UInt32[AnyArray, "*cohort bits"], noise: Int[AnyArray, "halves"]) -> Draws:
        """The words of a round, of one device or of each of a cohort, by what they are for."""
        s = self.settings
        shape, depth, at = (s.lists, s.per_half), s.user.depth, self.places
        lead = rng_bits.shape[:-1]  # of a simulated cohort; none of one device
        queries, clicks, ties, *toss = (rng_bits[..., i:j] for i, j in itertools.pairwise(at))
        privacy = rng_bits[..., at[-1] :]
        return Draws(
            rng_bits[..., 0],
            queries.reshape(*lead, *shape),
            clicks.reshape(*lead, *shape, depth),
            ties.reshape(*lead, *shape),
            privacy if s.interleaved else privacy.reshape(*lead, *shape, 2),
            noise,
            toss[0].reshape(*lead, *shape) if toss else None,
        )

    def respond(
        self, request: Request, party: Party, draws: Draws
    ) -> tuple[Party, Reply | PlainReply | NoisyReply | PrivateReply]:
        """Simulate the user's sessions with both perturbed rankers and make the reply about them."""
        s = self.settings
        active = jnp.arange(s.per_half) < -(-party.own.amount // s.lists)
        active = jnp.broadcast_to(active, (s.lists, s.per_half))
        if s.interleaved:
            sessions, patterns = self._interleave(request, party, draws)
        else:
            sessions = self._simulate(request, party, draws)
            patterns = sessions.patterns
        metric = s.observed or s.metric
        values = jnp.asarray(metric.values, jnp.float32)[jnp.asarray(metric.index)[sessions.patterns]]
        own = record_experience(party.own, values, sessions, active)
        return party._replace(own=own), self.report(draws, patterns, jnp.broadcast_to(active, patterns.shape))

    def _interleave(
        self, request: Request, party: Party, draws: Draws
    ) -> tuple[SessionResults, Int[Array, "2 interactions"]]:
        """The sessions of a user with lists of both rankers, results of shape [1, B], and each one's clicks [2, B]."""
        s = self.settings
        (data, queries), own = party.shared, party.own
        about = draw_queries(queries, own, draws.queries)
        assert draws.toss is not None  # drawn where lists are interleaved
        found = run_interleaved(
            s.ranker,
            s.users,
            own.user,
            data,
            request.weights,
            draws.seed,
            s.sigma,
            about[0],
            draws.clicks[0],
            draws.ties[0],
            draws.toss[0],
            s.ties,
        )
        return SessionResults(found.shown.patterns[None], found.shown.ndcg[None]), jnp.asarray(found.credited)

    def _simulate(self, request: Request, party: Party, draws: Draws) -> SessionResults:
        """The sessions of a simulated user, results of shape [halves, per_half]."""
        s = self.settings
        (data, queries), own = party.shared, party.own
        # Section 3.2: rank with θ + σv and θ − σv, v made from the seed.
        steps = (s.sigma, -s.sigma)[: s.halves]
        if s.as_published:
            return published_sessions(
                s.ranker,
                s.user,
                data,
                request.weights,
                jnp.asarray(draws.seed),
                steps,
                queries,
                own.first,
                own.count,
                s.per_half,
            )
        about = draw_queries(queries, own, draws.queries)
        return run_sessions(
            s.ranker,
            s.users,
            own.user,
            data,
            request.weights,
            draws.seed,
            steps,
            about,
            draws.clicks,
            draws.ties,
            s.ties,
        )

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
            The reply; see :class:`~fedrank.ranking.on_device.reply.ClicksToReply`, which a device calls as well.
        """
        to_reply = self.settings.clicks_to_reply
        # Two words an interaction are drawn, of which one number a message needs three.
        noise = draws.noise if to_reply.piecewise is None else jnp.ravel(draws.privacy)[:WORDS]
        return to_reply.message(draws.seed, to_reply.sums(patterns, draws.privacy, active, jnp), noise, jnp)

    def tell(self, state: ServerState, replies: PyTree, arrived: Bool[AnyArray, "parties"]) -> ServerState:
        """Estimate the gradient from the replies that arrived and take one step of Adam uphill."""
        s = self.settings
        if s.piecewise is not None:
            return self._step(state, jnp.asarray(replies.seed), *self._estimates(s.piecewise, replies, arrived))
        if s.antithetic:
            difference = replies.plus.astype(jnp.int32) - replies.minus.astype(jnp.int32)
        else:
            difference = replies.plus.astype(jnp.int32)
        # Equations (4)–(6), (θ − φ)/σ² = v/σ: v·(m⁺ − m⁻)/(2σ), or v·m/σ; the mean over devices.
        most = s.per_half * s.metric.largest
        # A message that no honest device can send (but for noise beyond e⁻⁴⁰) is no message.
        tail = 0 if s.noise is None else math.ceil(_TAIL * s.noise.scale)
        minus = replies.minus + tail if s.antithetic else None
        arrived = jnp.asarray(arrived) & in_range(replies.plus + tail, minus, most + 2 * tail)
        return self._step(state, jnp.asarray(replies.seed), difference.astype(jnp.float32), arrived)

    def _estimates(
        self, piecewise: Piecewise, replies: PrivateReply, arrived: Bool[AnyArray, "parties"]
    ) -> tuple[Float[Array, " parties"], Bool[Array, " parties"]]:
        """Unbiased estimates of the differences from privatised reports, and which reports there are."""
        report, most = jnp.asarray(replies.report, jnp.int32), self.settings.clicks_to_reply.largest_difference
        estimates = jnp.asarray(piecewise.estimates * most, jnp.float32)
        arrived = jnp.asarray(arrived) & (report >= 0) & (report < piecewise.reports)
        return estimates[jnp.clip(report, 0, piecewise.reports - 1)], arrived

    def _step(
        self,
        state: ServerState,
        seeds: UInt32[Array, " parties"],
        difference: Float[Array, " parties"],
        arrived: Bool[Array, " parties"],
    ) -> ServerState:
        """One step of Adam along the gradient that the differences of the halves' sums say."""
        s = self.settings
        size, spread = s.ranker.size, 2 * s.sigma if s.antithetic else s.sigma
        most = s.clicks_to_reply.largest_difference * (1.0 if s.piecewise is None else s.piecewise.scale)
        weighed = coefficients(s.aggregate, difference, arrived, most, s.byzantine)
        weighed = weighed / jnp.float32(s.per_half * s.metric.scale * spread)
        add = published_weighted_sum if s.as_published else weighted_sum_kernel if s.kernels else weighted_sum
        gradients = jax.vmap(lambda c: add(seeds, c, size))(weighed)
        gradient = (
            gradients[0]
            if len(gradients) == 1
            else median_of_means(gradients, jnp.arange(len(gradients)) < jnp.sum(arrived))
        )
        step, optimiser = s.optimiser.update(-gradient, state.optimiser, state.weights)
        stepped = (optax.apply_updates(state.weights, step), optimiser)
        # Adam would go on by its momentum where nobody was heard.
        kept = jax.tree.map(
            lambda new, old: jnp.where(jnp.any(arrived), new, old), stepped, (state.weights, state.optimiser)
        )
        return ServerState(state.round + 1, *kept)
