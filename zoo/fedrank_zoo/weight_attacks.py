"""Attacks by malicious parties where a reply is a vector of weights, as in federated averaging.

The attacks of the poisoning studies, under *partial knowledge*: attackers pool their own honest replies and take them
for a sample of all replies. With one attacker that sample has no spread, which leaves little of the attacks built on
it.

Published forms attack gradients or models; all of them are written here for models w, with the model w₀ that the server
handed out: w − w₀ is the update. The interface is in :mod:`fedrank.engine.attackers`.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from jaxtyping import Bool, Float, Key
from typing_extensions import override

from fedrank.core.arrays import JaxArray as Array
from fedrank.core.arrays import PyTree
from fedrank.core.errors import ConfigError
from fedrank.core.lazy import jax, jnp
from fedrank.core.protocol import Protocol
from fedrank.core.registry import Entry
from fedrank.engine.attackers import Attack, reply_fields


class _OnWeights(Attack):
    """Attacks on a vector as long as the model."""

    @classmethod
    def works_on(cls, protocol: Protocol) -> bool:
        """True if a reply holds weights, one a parameter."""
        fields = reply_fields(protocol)
        return "weights" in fields and [axis for axis, _ in fields["weights"].axes] == ["parameters"]


@dataclass(frozen=True)
class Lie(_OnWeights):
    """A little is enough: all attackers send μ − z·σ, coordinate by coordinate.

    With n parties and m attackers, s = ⌊n/2⌋ + 1 − m honest parties further out than the attackers make a majority,
    and::

        z = Φ⁻¹((n − m − s) / (n − m))

    is the largest shift for which s such parties can be expected. μ and σ are mean and standard deviation (of the
    sample, divided by m) of the attackers' own honest weights. One attacker alone has σ = 0 and sends what it would
    have sent.

    Attributes:
        z: Standard deviations to move; None: by the formula, or the quantile of 1 − 10⁻⁶ where attackers have the
            majority, so that no shift would be noticed.

    Source:
        Baruch, Baruch, Goldberg: *A little is enough: circumventing defenses for distributed learning*, NeurIPS 2019,
        the attack that prevents convergence.
    """

    z: float | None = None

    def shift(self, attackers: Bool[Array, " parties"]) -> Float[Array, ""]:
        """Standard deviations, float32, by which the attackers, bool [parties], move away from their mean."""
        if self.z is not None:
            return jnp.float32(self.z)
        n, m = attackers.shape[0], jnp.sum(attackers)
        supporters = n // 2 + 1 - m
        # From the other tail, where single precision has more digits.
        return -jax.scipy.special.ndtri(jnp.maximum(supporters / jnp.maximum(n - m, 1), 1e-6))

    @override
    def tamper(
        self,
        key: Key[Array, ""],
        request: PyTree,
        replies: PyTree,
        attackers: Bool[Array, " parties"],
        protocol: Protocol,
    ) -> PyTree:
        del key, request, protocol
        mean, std = _moments(replies.weights, attackers)
        crafted = mean - self.shift(attackers) * std
        return _sent(replies, attackers, jnp.broadcast_to(crafted, replies.weights.shape))


@dataclass(frozen=True)
class FangTrimmedMean(_OnWeights):
    """The attack on the trimmed mean and the median.

    Where the attackers' mean μ is above w₀ the model is taken to be rising, and each attacker sends a number drawn
    uniformly from [μ − 4σ, μ − 3σ]; where not, from [μ + 3σ, μ + 4σ]. μ and σ are those of the attackers' own honest
    weights; σ = 0 with one attacker.

    Source:
        Fang, Cao, Jia, Gong: *Local model poisoning attacks to Byzantine-robust federated learning*, USENIX Security
        2020, Section 3.3, partial knowledge.
    """

    @override
    def tamper(
        self,
        key: Key[Array, ""],
        request: PyTree,
        replies: PyTree,
        attackers: Bool[Array, " parties"],
        protocol: Protocol,
    ) -> PyTree:
        del protocol
        mean, std = _moments(replies.weights, attackers)
        rising = _rising(mean, request.weights)
        away = jax.random.uniform(key, replies.weights.shape, jnp.float32, 3.0, 4.0)
        return _sent(replies, attackers, mean[None, :] - (rising * std)[None, :] * away)


@dataclass(frozen=True)
class FangKrum(_OnWeights):
    """The attack on Krum: w₀ − λs with the largest λ for which Krum would pick it, as far as the attackers can tell.

    s is 1 where the attackers' mean is above w₀ and −1 elsewhere. The attackers play Krum among k copies of their
    vector and their own c honest ones, with k taken for the number of attackers, which leaves K = max(c − 2, 1)
    neighbours. They begin with k = 1 and a λ that is too large, halve it until the vector is picked, and begin anew
    with k + 1 when λ falls below the threshold. k = c always succeeds. The attacker with the lowest number sends the
    vector, the others random ones within ``radius`` of it.

    The first λ is the bound of the paper's Theorem 1 in the form that it takes here: the paper adds up distances, Krum
    adds up their squares. If the vector w is picked among the honest ones, its score is at most that of each of them::

        minᵢ ‖w − wᵢ‖² ≤ S/K    with S the least score among the attackers' honest vectors, played by themselves
        λ·√n = ‖w − w₀‖ ≤ √(S/K) + maxᵢ ‖wᵢ − w₀‖

    Attributes:
        radius: ε, how far the other attackers' vectors may be from the first; the paper's 0.01.
        threshold: λ below which one more copy is tried; the paper's 1e-5.

    Source:
        As :class:`FangTrimmedMean`, Section 3.2, partial knowledge.
    """

    radius: float = 0.01
    threshold: float = 1e-5

    def __post_init__(self):
        if not 0 <= self.radius < 1e30:
            raise ConfigError(f"radius must be at least 0 and finite, got {self.radius}.")
        if not 1e-30 < self.threshold < 1e30:
            raise ConfigError(f"threshold must be positive and finite, got {self.threshold}.")

    @override
    def tamper(
        self,
        key: Key[Array, ""],
        request: PyTree,
        replies: PyTree,
        attackers: Bool[Array, " parties"],
        protocol: Protocol,
    ) -> PyTree:
        del protocol
        start, own = request.weights, replies.weights
        mean, _ = _moments(own, attackers)
        crafted = start - self.step(start, own, attackers) * _rising(mean, start)
        aside, length = jax.random.split(key)
        around = jax.random.normal(aside, own.shape, jnp.float32)
        around = around / jnp.sqrt(jnp.sum(around * around, axis=1, keepdims=True))
        around = around * self.radius * jax.random.uniform(length, (own.shape[0], 1))
        first = jnp.arange(attackers.shape[0]) == jnp.argmax(attackers)
        return _sent(replies, attackers, crafted[None, :] + jnp.where(first[:, None], 0.0, around))

    def step(
        self, start: Float[Array, " n"], own: Float[Array, "parties n"], attackers: Bool[Array, " parties"]
    ) -> Float[Array, ""]:
        """λ, the length of the step against the direction of the model.

        Args:
            start: float32 [n], w₀.
            own: float32 [parties, n]; only rows of attackers are looked at.
            attackers: bool [parties].

        Returns:
            float32; 0 if no party attacks.
        """
        count = jnp.sum(attackers)
        own = jnp.where(attackers[:, None], own, start[None, :])
        mean, _ = _moments(own, attackers)
        direction, party = _rising(mean, start), jnp.arange(attackers.shape[0])

        def distances(to, where):  # squared, ascending; infinite where there is no party
            squared = jnp.sum(jnp.square(own - to[None, :]), axis=1)
            return squared, jnp.sort(jnp.where(where, squared, jnp.inf))

        # Running sums of the distances: entry j of a row is the sum of the j smallest.
        apart = jax.lax.map(lambda one: distances(own[one], attackers & (party != one))[1], party)
        sums = jnp.concatenate([jnp.zeros((len(party), 1)), jnp.cumsum(apart, axis=1)], axis=1)
        # Krum's k + c − k − 2 neighbours, and at least one.
        neighbours = jnp.maximum(count - 2, 1)

        def would_pick(step, copies):
            to, ascending = distances(start - step * direction, attackers)
            # Its own copies are at distance 0. One of the others finds q copies among its neighbours, all at one
            # distance, before or after its fellow attackers.
            others = jnp.maximum(neighbours - (copies - 1), 0)
            mine = jnp.sum(jnp.where(party < others, ascending, 0.0))
            closer = jnp.sum(apart < to[:, None], axis=1)
            q = jnp.clip(neighbours - closer, 0, copies)
            theirs = jnp.take_along_axis(sums, (neighbours - q)[:, None], axis=1)[:, 0] + q * to
            return mine <= jnp.min(jnp.where(attackers, theirs, jnp.inf))

        known = jnp.minimum(neighbours, jnp.maximum(count - 1, 0))
        closest = jnp.min(jnp.where(attackers, sums[:, known], jnp.inf)) / neighbours
        furthest = jnp.max(jnp.where(attackers, jnp.sum(jnp.square(own - start[None, :]), axis=1), 0.0))
        bound = (jnp.sqrt(closest) + jnp.sqrt(furthest)) / jnp.sqrt(jnp.float32(start.shape[0]))
        bound = jnp.minimum(bound, jnp.finfo(jnp.float32).max)

        def go_on(state):
            step, copies = state
            return (copies < count) & ~would_pick(step, copies)

        def shrink(state):
            step, copies = state
            small = ~(step / 2 >= self.threshold)  # true as well if a weight is not a number: the search ends
            return jnp.where(small, bound, step / 2), jnp.where(small, copies + 1, copies)

        step, _ = jax.lax.while_loop(go_on, shrink, (bound, jnp.ones_like(count)))
        return jnp.where(count > 0, step, 0.0)


@dataclass(frozen=True)
class ScaledInverse(_OnWeights):
    """Each attacker sends w₀ − 2γg + noise for its honest update g, with γ uniform on [1, 2].

    Attributes:
        noise: Standard deviation of the normal noise, as a multiple of the root mean square of g: a scale of our own,
            which means the same at every learning rate.

    Source:
        Tao et al.: *Unlearning for federated online learning to rank: a reproducibility study*, SIGIR 2025, model
        poisoning.
    """

    noise: float = 0.1

    def __post_init__(self):
        if not 0 <= self.noise < 1e30:
            raise ConfigError(f"noise must be at least 0 and finite, got {self.noise}.")

    @override
    def tamper(
        self,
        key: Key[Array, ""],
        request: PyTree,
        replies: PyTree,
        attackers: Bool[Array, " parties"],
        protocol: Protocol,
    ) -> PyTree:
        del protocol
        start = request.weights[None, :]
        update = replies.weights - start
        scale, aside = jax.random.split(key)
        gamma = jax.random.uniform(scale, (update.shape[0], 1), jnp.float32, 1.0, 2.0)
        size = jnp.sqrt(jnp.mean(update * update, axis=1, keepdims=True))
        noise = self.noise * size * jax.random.normal(aside, update.shape, jnp.float32)
        return _sent(replies, attackers, start - 2 * gamma * update + noise)


def _sent(replies: PyTree, attackers: Bool[Array, " parties"], forged: Float[Array, "parties n"]) -> PyTree:
    """The replies with these weights, float32 [parties, n], in the rows of attackers."""
    return dataclasses.replace(replies, weights=jnp.where(attackers[:, None], forged, replies.weights))


def _moments(
    weights: Float[Array, "parties n"], attackers: Bool[Array, " parties"]
) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
    """Mean and standard deviation of the attackers' weights, float32 [n] each; zero if no party attacks."""
    count = jnp.maximum(jnp.sum(attackers), 1)
    mean = jnp.sum(jnp.where(attackers[:, None], weights, 0.0), axis=0) / count
    square = jnp.where(attackers[:, None], jnp.square(weights - mean[None, :]), 0.0)
    return mean, jnp.sqrt(jnp.sum(square, axis=0) / count)


def _rising(mean: Float[Array, " n"], start: Float[Array, " n"]) -> Float[Array, " n"]:
    """1 where the mean is above the start, −1 elsewhere: float32 [n]."""
    return jnp.where(mean > start, 1.0, -1.0)


#: The attacks by their names.
LIE = Entry("lie", Lie, "The attackers' mean, moved by as many standard deviations as go unnoticed.", "baruch2019lie")
FANG_TRIMMED_MEAN = Entry(
    "fang-trimmed-mean",
    FangTrimmedMean,
    "Values just outside those of the attackers, on the side away from where the model goes.",
    "fang2020local",
)
FANG_KRUM = Entry(
    "fang-krum",
    FangKrum,
    "One vector against the direction of the model that Krum still picks, and its supporters around it.",
    "fang2020local",
)
SCALED_INVERSE = Entry(
    "scaled-inverse", ScaledInverse, "The update reversed, scaled up and noised.", "tao2025unlearning"
)
