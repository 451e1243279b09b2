"""Online learning to rank with one service that sees everything: what federated learners are compared with.

**Nothing is federated here.** One service has the queries of all users, ranks them, sees what they click, and learns
after every interaction; queries, results and clicks are in the clear at the service. Five learners, one setting:

* ``pdgd``: pairwise differentiable gradient descent (Oosterhuis & de Rijke, CIKM 2018;
  :mod:`fedrank.ranking.learners.pdgd`);
* ``dbgd``: dueling bandit gradient descent (Yue & Joachims, ICML 2009; :mod:`fedrank.ranking.learners.dueling`);
* ``mdprank``: REINFORCE (Wei et al., SIGIR 2017; :mod:`fedrank.ranking.learners.policy_gradient`), in JAX alone;
* ``mgd``: multileave gradient descent (Schuth et al., WSDM 2016; the file of ``dbgd``);
* ``coltr``: counterfactual online learning to rank (Zhuang and Zuccon, ECIR 2020;
  :mod:`fedrank.ranking.learners.counterfactual`), in JAX alone.

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

import dataclasses
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Key, UInt32
from typing_extensions import override

from fedrank.core.arrays import AnyArray
from fedrank.core.compiled import COMPILES
from fedrank.core.errors import ConfigError
from fedrank.core.lazy import jax, jnp
from fedrank.core.messages import Array, f4, field, message
from fedrank.core.privacy_report import PrivacyReport
from fedrank.core.protocol import Exchange, Party
from fedrank.metrics.online import OnlineMetric, max_rr
from fedrank.privacy.randomised_response import os_words
from fedrank.ranking.clicks.cascade import CascadeUser
from fedrank.ranking.data.partition import Shares
from fedrank.ranking.data.queries import FeatureBlocks, PaddedQueries
from fedrank.ranking.learners.counterfactual import Comparison, LogDraws, check_comparison, coltr_steps
from fedrank.ranking.learners.dueling import DuelDraws, dueling_steps
from fedrank.ranking.learners.pdgd import Learned, PdgdDraws, pdgd_steps
from fedrank.ranking.learners.policy_gradient import policy_gradient_steps
from fedrank.ranking.on_device.messages import Request
from fedrank.ranking.protocol import RankingProtocol
from fedrank.ranking.rankers.base import Ranker
from fedrank.ranking.sessions.devices import PerDevice, draw_queries, record_experience

#: The learners, with the learning rate of published experiments.
LEARNERS = {"pdgd": 0.1, "dbgd": 0.01, "mgd": 0.01, "mdprank": 0.01, "coltr": 0.1}
#: Learners that draw a ranking from the scores.
DRAWING = ("pdgd", "mdprank")
#: Learners that have no compiled kernel.
JAX_ONLY = ("mdprank", "coltr")

#: Rankers that a learner compares with the current one in an interaction.
CANDIDATES = {"mgd": 9, "coltr": Comparison().candidates}

#: Standard deviation of the weights that PDGD starts a network from: at zero its gradient is zero, and stays so.
INITIAL = 0.1

#: Random bits are drawn for a whole round at once.
_MAX_INTERACTIONS = 10**6


@message(kind=2)
class Reply:
    """Inside the service: the model at the end of a round."""

    weights: Array = field(f4["parameters"], "the ranker after the round, within the service")


class Draws(NamedTuple):
    """The random bits of one round; none is used twice.

    Attributes:
        queries: uint32 [K]: which query an interaction is about.
        learner: Random bits of its K steps, :class:`~fedrank.ranking.learners.pdgd.PdgdDraws`,
            :class:`~fedrank.ranking.learners.dueling.DuelDraws` or
            :class:`~fedrank.ranking.learners.counterfactual.LogDraws`.
    """

    queries: UInt32[AnyArray, "interactions"]
    learner: PdgdDraws | DuelDraws | LogDraws


class ServerState(NamedTuple):
    """The service's state between rounds.

    Attributes:
        round: uint32.
        weights: float32 [parameters].
    """

    round: UInt32[AnyArray, ""]
    weights: Float[AnyArray, "parameters"]


#: What a central service says about privacy.
IN_THE_CLEAR = (
    "Nothing is federated: who asks, the queries, the results and the clicks are in the clear at the service."
)


@dataclass(frozen=True)
class Central(RankingProtocol):
    """The settings of a central learner; the defaults are those of published experiments.

    Attributes:
        learner: ``"pdgd"``, ``"dbgd"``, ``"mgd"``, ``"mdprank"`` or ``"coltr"``.
        ranker: The ranker, a function from features to scores.
        user: Click model of the user.
        others: Further users; the service meets one of them only, as :meth:`devices` is told.
        metric: For the curve of what users experience; nothing is learned from it.
        interactions: K, most interactions of a round; as many as all devices of a federated round together.
        learning_rate: Length of a step: of PDGD along its gradient, of the others along a unit direction. None: 0.1
            for PDGD and COLTR, 0.01 for the others.
        decay: What it is multiplied by after each round, in (0, 1].
        radius: DBGD, MGD, COLTR: distance of the candidates from the current ranker.
        candidates: MGD, COLTR: rankers that are compared with the current one in each interaction. None: 9 and 499.
        batch: PDGD: sum the gradients of a round, taken at the weights of its start.
        discount: MDPRank: γ, what a later click counts for a choice.
        temperature: COLTR: of the ranking that is shown.
        smoothing: COLTR: temperature of the probabilities that estimates are weighted by.
        caution: COLTR: standard errors that are added to an estimate.
        kernels: Use the compiled CPU kernels, which take data as ``queries.blocks()``; otherwise JAX, which takes
            ``queries.padded()``. Equal draws, sums equal to about 1e-6.
    """

    learner: str
    ranker: Ranker
    user: CascadeUser
    metric: OnlineMetric = dataclasses.field(default_factory=max_rr)
    interactions: int = 8000
    learning_rate: float | None = None
    decay: float = 1.0
    radius: float = 1.0
    candidates: int | None = None
    batch: bool = False
    discount: float = 1.0
    temperature: float = Comparison().temperature
    smoothing: float = Comparison().smoothing
    caution: float = Comparison().caution
    kernels: bool = COMPILES
    others: tuple[CascadeUser, ...] = ()

    def __post_init__(self):
        if self.learner not in LEARNERS:
            raise ConfigError(f"learner must be one of {', '.join(LEARNERS)}, got {self.learner!r}.")
        if not 1 <= self.interactions <= _MAX_INTERACTIONS:
            raise ConfigError(f"interactions must be in 1..{_MAX_INTERACTIONS:,}, got {self.interactions:,}.")
        if not 0 < self.rate < 1e30:
            raise ConfigError(f"learning_rate must be positive and finite, got {self.learning_rate}.")
        if not 0 < self.decay <= 1:
            raise ConfigError(f"decay must be in (0, 1], got {self.decay}.")
        if self.learner in CANDIDATES and not 1 <= self.n_candidates <= 1000:
            raise ConfigError(f"candidates of {self.learner} must be in 1..1000, got {self.candidates}.")
        if self.learner not in CANDIDATES and self.candidates not in (None, 1):
            raise ConfigError(
                f"candidates = {self.candidates} is a setting of mgd and coltr; {self.learner} has at most one."
            )
        if self.learner in JAX_ONLY and self.kernels:
            raise ConfigError(f"{self.learner} has no compiled kernel; set kernels = False.")
        check_comparison(self.comparison)
        if self.batch and self.learner != "pdgd":
            raise ConfigError(f"batch sums gradients, and {self.learner} has none; leave it out or use pdgd.")
        if self.user.depth != self.metric.depth:
            raise ConfigError(f"{self.metric.name} looks at {self.metric.depth} ranks, the user at {self.user.depth}.")

    @property
    def name(self) -> str:  # type: ignore[override] - a run is called by its learner
        """Name of the learner: ``pdgd``, ``dbgd``, ``mgd``, ``mdprank`` or ``coltr``."""
        return self.learner

    @property
    def rate(self) -> float:
        """The learning rate of the first round."""
        return LEARNERS[self.learner] if self.learning_rate is None else self.learning_rate

    @property
    def n_candidates(self) -> int:
        """Rankers that DBGD, MGD and COLTR compare with the current one in each interaction."""
        return CANDIDATES.get(self.learner, 1) if self.candidates is None else self.candidates

    @property
    def comparison(self) -> Comparison:
        """How COLTR makes and compares candidates."""
        return Comparison(self.n_candidates, self.radius, self.temperature, self.smoothing, self.caution)

    @property
    @override
    def exchanges(self) -> tuple[Exchange, ...]:
        return (ServeAndLearn(self),)

    def init(self, key: Any) -> ServerState:
        """All weights zero; small normal numbers where a gradient needs them, for all but linear rankers.

        ``key`` is consumed.
        """
        weights = jnp.asarray(self.ranker.initial())
        linear = (self.ranker.kernel_shape() or (0, 1))[1] == 0
        if self.learner in DRAWING and not linear:
            weights = weights + INITIAL * jax.random.normal(key, weights.shape, jnp.float32)
        return ServerState(jnp.uint32(0), weights)

    def account(self, rounds: int, delta: float) -> PrivacyReport:
        """No privacy: the service sees all queries, results and clicks."""
        del delta
        return PrivacyReport.none(rounds, IN_THE_CLEAR)

    def devices(
        self,
        data: PaddedQueries | FeatureBlocks,
        shares: Shares,
        user_index: PerDevice = None,
        amounts: PerDevice = None,
    ) -> Party:
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
        return super().devices(data, shares, user_index, amounts)


@dataclass(frozen=True)
class ServeAndLearn(Exchange, request=Request, reply=Reply):
    """The exchange of :class:`Central`: the service serves a round's interactions and learns from each."""

    settings: Central

    name = "serve-and-learn"

    @override
    def ask(self, state: ServerState) -> Request:
        return Request(state.round, state.weights)

    def draw(self, key: Key[jax.Array, ""]) -> Draws:
        """All random bits of a round, from the key: the learner's and the simulated users'."""
        return self._cut(jax.random.bits(key, (self.n_bits,), jnp.uint32))

    def draw_from_os(self) -> Draws:
        """The same from the operating system."""
        return self._cut(jnp.asarray(os_words((self.n_bits,))))

    @property
    def widths(self) -> list[int]:
        """Number of random integers of one interaction, purpose by purpose, the query's first."""
        depth, n_candidates = self.settings.user.depth, self.settings.n_candidates
        if self.settings.learner == "coltr":
            return [1, 2, depth, 1]
        return [1, 2, depth] if self.settings.learner in DRAWING else [1, n_candidates, depth, depth, depth]

    @property
    def n_bits(self) -> int:
        """How many random uint32 a round takes: those of one interaction, as :attr:`widths` has them, times K."""
        return self.settings.interactions * sum(self.widths)

    def _cut(self, rng_bits: jax.Array) -> Draws:
        k = self.settings.interactions
        parts = jnp.split(rng_bits, (k * np.cumsum(self.widths[:-1])).tolist())
        first, *others = (part.reshape(k, -1) for part in parts)
        if self.settings.learner == "coltr":
            documents, clicks, seeds = others
            return Draws(first[:, 0], LogDraws(documents, clicks, seeds[:, 0]))
        return Draws(first[:, 0], PdgdDraws(*others) if self.settings.learner in DRAWING else DuelDraws(*others))

    def respond(self, request: Request, party: Party, draws: Draws) -> tuple[Party, Reply]:
        """Rank for the users of a round, simulate their clicks, and learn after each interaction."""
        s, own = self.settings, party.own
        active = jnp.arange(s.interactions) < own.amount
        learned = self._learn(request, party, draws, active)
        numerators = jnp.asarray(s.metric.numerators, jnp.int32)[jnp.asarray(s.metric.index)[learned.sessions.patterns]]
        values = numerators.astype(jnp.float32) / s.metric.scale
        return party._replace(own=record_experience(own, values, learned.sessions, active)), Reply(learned.weights)

    def _learn(self, request: Request, party: Party, draws: Draws, active: jax.Array) -> Learned:
        s, own = self.settings, party.own
        data, queries = party.shared
        rate = jnp.float32(s.rate) * jnp.float32(s.decay) ** jnp.asarray(request.round, jnp.float32)
        about = draw_queries(queries, own, draws.queries)
        start = jnp.asarray(request.weights)
        if isinstance(draws.learner, LogDraws):
            args = (s.ranker, s.users, own.user, data, start, rate, about, active, draws.learner)
            return coltr_steps(*args, s.comparison)
        if isinstance(draws.learner, PdgdDraws):
            if s.learner == "mdprank":
                args = (s.ranker, s.users, own.user, data, start, rate, about, active, draws.learner)
                return policy_gradient_steps(*args, s.discount)
            return pdgd_steps(s.ranker, s.users, own.user, data, start, rate, about, active, draws.learner, s.batch)
        return dueling_steps(
            s.ranker, s.users, own.user, data, start, rate, s.radius, s.n_candidates, about, active, draws.learner
        )

    def tell(self, state: ServerState, replies: Reply, arrived: Bool[AnyArray, "parties"]) -> ServerState:
        """Keep the weights of the round; what did not arrive is as if it had not been learned."""
        return ServerState(state.round + 1, jnp.where(arrived[0], replies.weights[0], state.weights))
