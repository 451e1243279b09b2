"""Attacks where a reply is a seed and bounded numbers, as in FOLtR-ES: random numbers, and seeds that are searched.

The interface is in :mod:`fedrank.engine.attackers`.
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
from fedrank.core.rng import perturbation, perturbation_jax
from fedrank.engine.attackers import OnValues, largest_values


@dataclass(frozen=True)
class RandomMetric(OnValues):
    """Each sum is uniform on 0 .. largest: noise, which points nowhere on average."""

    @override
    def tamper(
        self,
        key: Key[Array, ""],
        request: PyTree,
        replies: PyTree,
        attackers: Bool[Array, " parties"],
        protocol: Protocol,
    ) -> PyTree:
        del request
        forged = {}
        for name, largest in largest_values(protocol).items():
            key, mine = jax.random.split(key)
            honest = getattr(replies, name)
            crafted = jax.random.randint(mine, honest.shape, 0, largest + 1, honest.dtype)
            forged[name] = jnp.where(attackers, crafted, honest)
        return dataclasses.replace(replies, **forged)


#: Where :class:`TargetedSeeds` wants the weights to go.
TARGETS = ("reverse", "fixed")


@dataclass(frozen=True)
class TargetedSeeds(OnValues):
    """The strongest attack that a seed and bounded sums allow: the best of S random seeds, reported as all good.

    Each attacker draws S seeds by itself, takes the one whose perturbation has the largest cosine with its target, and
    reports the largest sum under θ + σv and 0 under θ − σv, or the largest report of their difference. The cosine of a
    random direction with the target is about normal with standard deviation 1/√n, so that the best of S has 2.4/√n on
    average for S = 64, and below √(2 ln S / n) for any S: the more weights, the less a search finds.

    Attributes:
        searched: S, seeds that an attacker tries in a round.
        target: ``"reverse"``: −θ, back to where the weights came from; with θ = 0 any seed will do. A ranking by a
            linear ranker does not change when θ shrinks, only when it turns. ``"fixed"``: one random direction, in all
            rounds and for all attackers.
        target_seed: Seed of the fixed direction.
    """

    searched: int = 64
    target: str = "fixed"
    target_seed: int = 0

    def __post_init__(self):
        if self.searched < 1:
            raise ConfigError(f"searched must be at least 1 seed, got {self.searched}.")
        if self.target not in TARGETS:
            raise ConfigError(f"target must be one of {', '.join(TARGETS)}, got {self.target!r}.")
        if not 0 <= self.target_seed < 2**32:
            raise ConfigError(f"target_seed must be in [0, 2³²), got {self.target_seed}.")

    def direction(self, weights: Float[Array, " n"]) -> Float[Array, " n"]:
        """The direction in which the attackers push the model from these weights: float32 [n]."""
        if self.target == "reverse":
            return -weights
        return jnp.asarray(perturbation(self.target_seed, weights.shape[0]))

    @override
    def tamper(
        self,
        key: Key[Array, ""],
        request: PyTree,
        replies: PyTree,
        attackers: Bool[Array, " parties"],
        protocol: Protocol,
    ) -> PyTree:
        size = request.weights.shape[0]
        direction = self.direction(request.weights)

        def cosine(seed):  # up to the length of the direction
            v = perturbation_jax(seed, size)
            return jnp.sum(v * direction) / jnp.sqrt(jnp.sum(v * v))

        def search(number):
            seeds = jax.random.bits(jax.random.fold_in(key, number), (self.searched,), jnp.uint32)
            return seeds[jnp.argmax(jax.vmap(cosine)(seeds))]

        # One party after another, so that only attackers search.
        numbers = jnp.arange(attackers.shape[0], dtype=jnp.uint32)
        seeds = jax.lax.map(
            lambda party: jax.lax.cond(party[1], search, lambda _: party[2], party[0]),
            (numbers, attackers, replies.seed),
        )
        forged = {"seed": seeds}
        for name, largest in largest_values(protocol).items():
            forged[name] = jnp.where(attackers, 0 if name == "minus" else largest, getattr(replies, name))
        return dataclasses.replace(replies, **forged)


#: The attacks by their names.
RANDOM_METRIC = Entry("random-metric", RandomMetric, "Values drawn uniformly from all that a message can hold.")
TARGETED_SEEDS = Entry(
    "targeted-seeds", TargetedSeeds, "Seeds are searched until the perturbation points where the attacker wants to go."
)
