"""Evolution strategies whose server adapts the distribution that devices draw their perturbations from.

In FOLtR-ES (:mod:`fedrank.ranking.foltr_es`) a perturbation is σv, with one σ for all weights and all rounds. Natural
evolution strategies (:mod:`fedrank_zoo.foltr_nes`) and CMA-ES (:mod:`fedrank_zoo.foltr_cma`) learn how
far to go in which direction. Devices know of the server what it broadcasts, so the broadcast has to say it::

    server   hands out the weights θ and A, a spread a weight or a square matrix      SpreadRequest, FactorRequest
    device   draws a seed; v = perturbation(seed), standard normal
             B/2 interactions ranked by θ + Av, B/2 others by θ − Av                  as in FOLtR-ES
             sends the seed and the two sums of privatised values                     Reply, as in FOLtR-ES
    server   has 2N candidates ±v and their values; ranks them, and moves θ and A by the ranks

Up goes what goes up in FOLtR-ES. Down go four bytes more a weight, or four for each pair of weights: they say where the
server looks, and nothing about a device that its earlier messages did not.

**Ranks.** Rewards of few interactions have few values, and candidates are often level. Candidates of equal value share
the mean of the utilities of the ranks that they take together.

**Pairs.** A device judges v and −v. Were ranks drawn by lot, the step Σ (u⁺ − u⁻) v would have the variance
Σ (u⁺ − u⁻)² in every direction, less than Σ (u⁺)² + (u⁻)² of independent candidates. What measures steps against
chance (the paths of CMA-ES) has to use it, or every round looks like too long steps.
"""

from __future__ import annotations

import abc
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from jaxtyping import Bool, Float, UInt32
from typing_extensions import override

from fedrank.core.arrays import AnyArray, PyTree
from fedrank.core.arrays import AnyArray as Array
from fedrank.core.errors import ConfigError
from fedrank.core.fields import bound, part, setting
from fedrank.core.lazy import jax, jnp
from fedrank.core.messages import Array as Field
from fedrank.core.messages import f4, field, message, u4
from fedrank.core.native import NotNativeError
from fedrank.core.protocol import Party
from fedrank.core.rng import perturbation_jax
from fedrank.ranking.foltr_es import FoltrES, TryPerturbation
from fedrank.ranking.foltr_es.presentations import AntitheticHalves, Presentation
from fedrank.ranking.mechanisms import RewardMechanism
from fedrank.ranking.mechanisms.randomised_response import RandomisedResponse
from fedrank.ranking.sessions.devices import draw_queries, run_sessions
from fedrank.ranking.sessions.reference import Interactions, Perturbed

#: Perturbations that the server holds at once.
_CHUNK = 1024

_SPREAD = "standard deviation of each weight's perturbation; the server's, from what all devices reported"


@message(kind=8)
class SpreadRequest:
    """Server to devices: the model to start from, and how far to perturb each weight."""

    round: Field = field(u4, "number of the round")
    weights: Field = field(f4["parameters"], "the ranker to start from")
    spread: Field = field(f4["parameters"], _SPREAD)


@message(kind=9)
class FactorRequest:
    """Server to devices: the model to start from, and what perturbations are multiplied by."""

    round: Field = field(u4, "number of the round")
    weights: Field = field(f4["parameters"], "the ranker to start from")
    spread: Field = field(
        f4["parameters", "parameters"],
        "matrix that a perturbation is multiplied by; the server's, from what all devices reported",
    )


class Pairs(NamedTuple):
    """The candidates of a round: a pair v, −v a device.

    Attributes:
        seeds: uint32 [parties], of v.
        plus: float32 [parties], value of v; the larger the better.
        minus: float32 [parties], value of −v.
        arrived: bool [parties]: which count.
    """

    seeds: UInt32[Array, " parties"]
    plus: Float[Array, " parties"]
    minus: Float[Array, " parties"]
    arrived: Bool[Array, " parties"]

    @property
    def count(self) -> Float[Array, ""]:
        """λ, the number of candidates: float32."""
        return 2 * jnp.sum(self.arrived).astype(jnp.float32)

    def utilities(
        self, by_rank: Callable[[Float[Array, " ranks"]], Float[Array, " ranks"]]
    ) -> tuple[Float[Array, " parties"], Float[Array, " parties"]]:
        """Utilities u⁺ and u⁻ of v and −v; 0 where nothing arrived.

        Args:
            by_rank: The utility of each rank 1, 2, …, float32 [2·parties]; ranks beyond the last one get 0.
        """
        values = jnp.concatenate([self.plus, self.minus])
        there = jnp.concatenate([self.arrived, self.arrived])
        ranks = jnp.arange(1, len(values) + 1, dtype=jnp.float32)
        given = jnp.where(ranks <= self.count, by_rank(ranks), 0.0)
        shared = shared_utilities(values, there, given)
        return shared[: len(self.plus)], shared[len(self.plus) :]

    def sum(self, coefficients: Float[Array, " parties"], size: int) -> Float[Array, " n"]:
        """Σᵢ cᵢ vᵢ, the weighted sum of all parties' perturbations: float32 [n], n weights of the ranker."""
        return self._scan(
            lambda c, v: jnp.einsum("p,pn->n", c, v, precision=jax.lax.Precision.HIGHEST), coefficients, size
        )

    def squares(self, coefficients: Float[Array, " parties"], size: int) -> Float[Array, " n"]:
        """Σᵢ cᵢ vᵢ², the weighted sum of perturbations squared weight by weight: float32 [n]."""
        return self._scan(
            lambda c, v: jnp.einsum("p,pn->n", c, v * v, precision=jax.lax.Precision.HIGHEST), coefficients, size
        )

    def products(self, coefficients: Float[Array, " parties"], size: int) -> Float[Array, "n n"]:
        """Σᵢ cᵢ vᵢ vᵢᵀ, the weighted sum of perturbations' outer products: float32 [n, n]."""
        return self._scan(
            lambda c, v: jnp.einsum("p,pm,pn->mn", c, v, v, precision=jax.lax.Precision.HIGHEST), coefficients, size
        )

    def _scan(self, part: Callable[[Any, Any], Any], coefficients: Any, size: int) -> Any:
        """The sum of a function of coefficients and perturbations, some of them at a time."""
        chunk = min(_CHUNK, len(self.seeds))
        pad = -len(self.seeds) % chunk
        seeds, c = (jnp.pad(each, (0, pad)).reshape(-1, chunk) for each in (self.seeds, coefficients))

        def add(total, each):
            return total + part(each[1], jax.vmap(lambda seed: perturbation_jax(seed, size))(each[0])), None

        start = jax.eval_shape(part, c[0], jax.ShapeDtypeStruct((chunk, size), jnp.float32))
        return jax.lax.scan(add, jnp.zeros(start.shape, jnp.float32), (seeds, c))[0]


def shared_utilities(
    values: Float[Array, " candidates"], there: Bool[Array, " candidates"], given: Float[Array, " candidates"]
) -> Float[Array, " candidates"]:
    """The utility of each candidate by the rank of its value, the largest first; equal values share theirs evenly.

    Args:
        values: float32 [candidates], finite.
        there: bool [candidates]: which of them are ranked; the others get 0.
        given: float32 [candidates], the utility of each rank.
    """
    ascending = jnp.sort(jnp.where(there, -values, jnp.inf))
    first = jnp.searchsorted(ascending, -values, side="left")
    last = jnp.searchsorted(ascending, -values, side="right")
    sums = jnp.concatenate([jnp.zeros(1), jnp.cumsum(given)])
    return jnp.where(there, (sums[last] - sums[first]) / jnp.maximum(last - first, 1), 0.0)


@dataclass(frozen=True)
class ShapedHalves(AntitheticHalves):
    """One half of the lists are those of θ + Av, the other half those of θ − Av."""

    name = "shaped"

    @override
    def show(self, s, request, party, draws):
        (data, queries), own = party.shared, party.own
        v = perturbation_jax(jnp.asarray(draws.seed), s.ranker.size)
        spread = jnp.asarray(request.spread)
        away = jnp.einsum("mn,n->m", spread, v, precision=jax.lax.Precision.HIGHEST) if s.matrix else spread * v
        weights = jnp.asarray(request.weights)
        about = draw_queries(queries, own, draws.queries)

        def half(center, about, clicks, ties):  # the perturbation is in the model already
            model = Perturbed(s.ranker, s.users, own.user, data, center, draws.seed)
            sessions = run_sessions(model, (0.0,), Interactions(about[None], clicks[None], ties[None]), s.ties)
            return jax.tree.map(lambda leaf: leaf[0], sessions)

        centers = jnp.stack([weights + away, weights - away])
        sessions = jax.vmap(half)(centers, about, jnp.asarray(draws.clicks), jnp.asarray(draws.ties))
        return sessions, sessions.patterns


@dataclass(frozen=True)
class AdaptiveES(FoltrES, abc.ABC):
    """FOLtR-ES whose server adapts the perturbations; ``sigma`` is their spread at the start."""

    sigma: float = setting(0.01, "Standard deviation of the perturbation at the start.")
    presentation: Presentation = bound(ShapedHalves())
    privacy: RewardMechanism = part(
        RandomisedResponse, "What a device does to its rewards before it sends them.", "fedrank.mechanisms", ["reward"]
    )
    server: Any = bound()
    aggregate: str = bound("mean")
    byzantine: int | None = bound()
    reward_values: int | None = bound()

    crosses = "a seed and two privatised sums: 9 bytes; down the model and the shape of its perturbations"
    rules = None
    populations = False
    modes = ()

    def __post_init__(self):
        super().__post_init__()
        if self.privacy.one_number:
            raise ConfigError(
                f"{self.name} needs the value of both halves, and privacy.epsilon_user sends their difference only; "
                "use foltr-es."
            )

    @property
    def matrix(self) -> bool:
        """True if a perturbation is multiplied by a matrix; False: each weight by a number."""
        return False

    @property
    @override
    def exchanges(self) -> tuple[TryShaped, ...]:
        return (TryShaped(self),)

    @override
    def cohort(self, parties: Party) -> Any:
        raise NotNativeError(f"the protocol {self.name!r}")

    @abc.abstractmethod
    def spread(self, state: Any) -> Float[Array, "..."]:
        """A: what a perturbation is multiplied by, float32 [n] or [n, n]."""

    @abc.abstractmethod
    def step(self, state: Any, pairs: Pairs) -> Any:
        """The server's state after a round whose candidates are these, at least one of which arrived."""


@dataclass(frozen=True)
class TryShaped(TryPerturbation):
    """The exchange of :class:`AdaptiveES`: a device tries a perturbation of the broadcast's shape."""

    settings: AdaptiveES

    name = "try-shaped-perturbation"

    @property
    @override
    def request(self):
        return self.layout(FactorRequest if self.settings.matrix else SpreadRequest)

    @override
    def ask(self, state: Any) -> Any:
        kind = FactorRequest if self.settings.matrix else SpreadRequest
        return kind(state.round, state.weights, self.settings.spread(state))

    @override
    def tell(self, state: Any, replies: PyTree, arrived: Bool[AnyArray, "parties"]) -> Any:
        """Rank the candidates that arrived and move; where no reply was heard, nothing changes but the round."""
        s = self.settings
        heard: Any
        _, heard = s.privacy.differences(s.clicks_to_reply, replies, arrived)
        plus, minus = (jnp.asarray(each, jnp.int32).astype(jnp.float32) for each in (replies.plus, replies.minus))
        pairs = Pairs(jnp.asarray(replies.seed), plus, minus, heard)
        stepped = s.step(state, pairs)
        kept = jax.tree.map(lambda new, old: jnp.where(jnp.any(heard), new, old), stepped, state)
        return kept._replace(round=state.round + 1)
