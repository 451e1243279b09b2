"""Online learning to rank with one service that sees everything: what federated learners are compared with.

**Nothing is federated here.** One service has the queries of all users, ranks them, sees what they click, and learns
after every interaction; queries, results and clicks are in the clear at the service. The learner here is ``pdgd``,
pairwise differentiable gradient descent (Oosterhuis & de Rijke, CIKM 2018; :mod:`fedrank.ranking.learners`);
others, such as dueling bandits, are plug-ins of ``fedrank-zoo``.

One round, with as many interactions K as all devices of a federated round have together::

    service   starts from its weights θ                                           Request
              K interactions, one after another, each with a step of the learner
              keeps the weights that it has come to                               Reply

It is written as a protocol with one party, the service itself, so that the same simulator runs it on the same data with
the same users. Request and Reply are what moves inside the service from one round to the next. **What users send to the
service is not counted here, and it is everything:** what they look for, what they were shown and what they clicked.

With ``batch=True``, PDGD takes all gradients of a round at the weights it started from and moves once by their sum. So
does the baseline that was published with the study of federated online learning to rank (Wang et al., ECIR 2021), which
had as many updates as the federated learner, not as many as interactions.
"""

from __future__ import annotations

import abc
import dataclasses
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Key, UInt32
from typing_extensions import override

from fedrank.core.arrays import AnyArray, module_of
from fedrank.core.errors import ConfigError
from fedrank.core.fields import bound, setting
from fedrank.core.kernels import party_words
from fedrank.core.lazy import jax, jnp
from fedrank.core.messages import Array, f4, field, message
from fedrank.core.native import Cohort, NotNativeError
from fedrank.core.privacy_report import PrivacyReport
from fedrank.core.protocol import Exchange, Party
from fedrank.privacy.randomised_response import os_words
from fedrank.ranking.config import RankingRun
from fedrank.ranking.data.queries import FeatureBlocks
from fedrank.ranking.learners import Learned, PdgdDraws, host_steps, pdgd_steps
from fedrank.ranking.on_device import Request
from fedrank.ranking.protocol import Parts, RankingProtocol
from fedrank.ranking.sessions.devices import (
    Device,
    PerDevice,
    draw_cohort_queries,
    draw_queries,
    record_cohort_experience,
    record_experience,
)
from fedrank.ranking.sessions.reference import SessionResults

#: Random bits are drawn for a whole round at once.
_MAX_INTERACTIONS = 10**6


@message(kind=2)
class Reply:
    """Inside the service: the model at the end of a round."""

    weights: Array = field(f4["parameters"], "the ranker after the round, within the service")


class ServerState(NamedTuple):
    """The service's state between rounds.

    Attributes:
        round: uint32.
        weights: float32 [parameters].
    """

    round: UInt32[AnyArray, ""]
    weights: Float[AnyArray, "parameters"]


@dataclass(frozen=True)
class Central(RankingProtocol):
    """A learner at one central service.

    Attributes:
        clients: Devices whose interactions the service has.
    """

    learning_rate: float = setting(0.01, "Step size.")
    clients: int = bound(1)

    run_settings = RankingRun
    crosses = "everything: queries, results and clicks"
    #: A ranking is drawn from the scores, so that the gradient of a network that starts at zero is zero.
    draws_rankings = False
    #: The learner has a compiled kernel.
    compiled = True

    def __post_init__(self):
        super().__post_init__()
        if not 1 <= self.total <= _MAX_INTERACTIONS:
            raise ConfigError(
                f"clients × interactions, those of a round, must be in 1..{_MAX_INTERACTIONS:,} for a central "
                f"learner, got {self.total:,}."
            )
        if not 0 < self.learning_rate < 1e30:
            raise ConfigError(f"learning_rate must be positive and finite, got {self.learning_rate}.")
        if self.user is not None and self.kernels and not self.compiled:
            raise ConfigError(f"{self.name} has no compiled kernel; set kernels = False.")

    @override
    def bind(self, parts: Parts) -> Any:
        made = dataclasses.replace(self, clients=parts.bounds.clients or 1)
        return super(Central, made).bind(dataclasses.replace(parts, kernels=parts.kernels and self.compiled))

    @property
    def total(self) -> int:
        """K, interactions of a round; as many as all devices of a federated round together."""
        return self.interactions * self.clients

    @property
    @override
    def exchanges(self) -> tuple[Exchange, ...]:
        return (ServeAndLearn(self),)

    @override
    def init(self, key: Any) -> ServerState:
        """All weights zero; small normal numbers where a gradient needs them, for all but linear rankers.

        ``key`` is consumed.
        """
        weights = self.first_weights(key) if self.draws_rankings else self.start_weights()
        xp = np if isinstance(key, np.ndarray) else jnp
        return ServerState(xp.asarray(0, xp.uint32), xp.asarray(weights))

    @override
    def account(self, rounds: int, delta: float) -> PrivacyReport:
        """No privacy: the service sees all queries, results and clicks."""
        del delta
        return PrivacyReport.none(
            rounds,
            "Nothing is federated: who asks, the queries, the results and the clicks are in the clear at the service.",
        )

    @override
    def devices(self, data, shares, user_index: PerDevice = None, amounts: PerDevice = None) -> Party:
        """The service, as the only party; see :func:`fedrank.ranking.sessions.devices.devices`.

        Raises:
            ConfigError: Shares of more than one party, or data in a layout that ``kernels`` does not go with.
        """
        if shares.parties != 1:
            raise ConfigError(
                f"a central learner is one party, got shares of {shares.parties}; use partition.uniform(n_queries, 1)."
            )
        if isinstance(data, FeatureBlocks) != self.kernels:
            layout = "blocks" if self.kernels else "padded"
            raise ConfigError(f"kernels = {self.kernels} takes data as queries.{layout}(), got {type(data).__name__}.")
        return dataclasses.replace(self, interactions=self.total, clients=1)._devices(data, shares, user_index, amounts)

    def _devices(self, data, shares, user_index, amounts):
        return super().devices(data, shares, user_index, amounts)

    @property
    @abc.abstractmethod
    def widths(self) -> list[int]:
        """Number of random words of one interaction, purpose by purpose, the query's first."""

    @abc.abstractmethod
    def learn(self, party: Party, weights: Any, rate: Any, about: Any, active: Any, words: list[Any]) -> Learned:
        """A round's interactions of a simulated user, with a step after each.

        Args:
            party: The service.
            weights: float32 [n], to start from.
            rate: float32, the learning rate.
            about: int32 [K], the query of each interaction.
            active: bool [K]: which take place.
            words: Random words of the interactions, purpose by purpose after the query's, each [K, width].
        """

    def learn_cohort(self, known: Any, about: Any, active: Any, words: tuple) -> tuple[Any, ...]:
        """:meth:`learn` with the compiled kernel: weights, clicks and quality of what was shown.

        Args:
            known: Ranker, users, numbers of the users, data, weights and learning rate, of all runs.
            about: As of :meth:`learn`, [runs, 1, K].
            active: As of :meth:`learn`.
            words: As of :meth:`learn`.
        """
        raise NotNativeError(f"the learner {self.name!r}")

    @override
    def cohort(self, parties: Party) -> Cohort:
        return ServiceCohort(self, parties)


@dataclass(frozen=True)
class ServeAndLearn(Exchange, request=Request, reply=Reply):
    """The exchange of :class:`Central`: the service serves a round's interactions and learns from each."""

    settings: Central

    name = "serve-and-learn"

    @override
    def ask(self, state: ServerState) -> Request:
        return Request(state.round, state.weights)

    def draw(self, key: Key[jax.Array, ""]) -> list[Any]:
        """All random words of a round, from the key: the learner's and the simulated users'."""
        return self.cut(jax.random.bits(key, (self.n_bits,), jnp.uint32))

    def draw_from_os(self) -> list[Any]:
        """The same from the operating system."""
        return self.cut(jnp.asarray(os_words((self.n_bits,))))

    @property
    def n_bits(self) -> int:
        """Random words of a round: those of one interaction, as :attr:`Central.widths` has them, times K."""
        return self.settings.total * sum(self.settings.widths)

    def cut(self, words: UInt32[AnyArray, "*cohort bits"]) -> list[UInt32[AnyArray, "*cohort interactions width"]]:
        """The words of a round, one array [..., K, width] for each purpose, the query's first."""
        k, ends = self.settings.total, (self.settings.total * np.cumsum(self.settings.widths)[:-1]).tolist()
        return [part.reshape(*part.shape[:-1], k, -1) for part in module_of(words).split(words, ends, axis=-1)]

    def respond(self, request: Request, party: Party, draws: list[Any]) -> tuple[Party, Reply]:
        """Rank for the users of a round, simulate their clicks, and learn after each interaction."""
        s, own, (queries, *words) = self.settings, party.own, draws
        active = jnp.arange(s.total) < own.amount
        about = draw_queries(party.shared[1], own, queries[:, 0])
        learned = s.learn(party, jnp.asarray(request.weights), jnp.float32(s.learning_rate), about, active, words)
        numerators = jnp.asarray(s.metric.numerators, jnp.int32)[jnp.asarray(s.metric.index)[learned.sessions.patterns]]
        values = numerators.astype(jnp.float32) / s.metric.scale
        return party._replace(own=record_experience(own, values, learned.sessions, active)), Reply(learned.weights)

    def tell(self, state: ServerState, replies: Reply, arrived: Bool[AnyArray, "*runs parties"]) -> ServerState:
        """Keep the weights of the round; what did not arrive is as if it had not been learned."""
        xp = module_of(replies.weights, arrived)
        weights = xp.where(arrived[..., :1], replies.weights[..., 0, :], state.weights)
        return ServerState(state.round + np.uint32(1), weights)


class ServiceCohort(Cohort):
    """Answers of the service with the compiled kernels.

    Args:
        settings: The protocol.
        parties: The service.

    Raises:
        NotNativeError: The kernels do not know the learner or the ranker, or are not wanted.
    """

    def __init__(self, settings: Central, parties: Party):
        data, held = parties.shared
        if not settings.compiled:
            raise NotNativeError(f"the learner {settings.name!r}")
        if not isinstance(data, FeatureBlocks) or not settings.kernels:
            raise NotNativeError("compute.kernels = 'off'")
        if settings.ranker.kernel_shape() is None:
            raise NotNativeError(f"the ranker {type(settings.ranker).__name__}")
        self.settings, self.data, self.held = settings, data, np.asarray(held)
        self.exchange = ServeAndLearn(settings)

    @override
    def answer(
        self, request: Request, own: Device, keys: UInt32[np.ndarray, "runs 2"], number: int, first: int
    ) -> tuple[Device, Reply]:
        s = self.settings
        words = party_words(keys, number, first, own.first.shape[1], self.exchange.n_bits)
        queries, *bits = self.exchange.cut(words)
        about = draw_cohort_queries(self.held, own, queries[..., 0])
        active = np.arange(s.total) < np.asarray(own.amount)[..., None]
        rate = np.broadcast_to(np.float32(s.learning_rate), (len(keys), 1))
        start = np.asarray(request.weights)[:, None]
        known = (s.ranker, s.users, np.asarray(own.user), self.data, start, rate)
        weights, *sessions = s.learn_cohort(known, about, active, tuple(bits))
        return record_cohort_experience(own, s.metric, SessionResults(*sessions), active), Reply(weights)


@dataclass(frozen=True)
class PDGD(Central):
    """Central: one service learns from all clicks with PDGD."""

    learning_rate: float = setting(0.1, "Step size.")
    batch: bool = setting(False, "One step a round with the sum of all gradients, as the published baseline does.")

    name, paper = "pdgd", "oosterhuis2018pdgd"
    published = "Oosterhuis, de Rijke: Differentiable Unbiased Online Learning to Rank, CIKM 2018"
    draws_rankings = True

    @property
    @override
    def widths(self) -> list[int]:
        return [1, 2, self.user.depth]

    @override
    def learn(self, party, weights, rate, about, active, words):
        known: Any = (self.ranker, self.users, party.own.user, party.shared[0], weights, rate)
        steps: Any = pdgd_steps
        return steps(*known, about, active, PdgdDraws(*words), self.batch)

    @override
    def learn_cohort(self, known: Any, about, active, words):
        documents, clicks = words
        steps: Any = host_steps
        return steps(*known, about, active, documents, clicks, batch=self.batch)
