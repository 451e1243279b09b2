"""Attacks by malicious parties: a simulator applies them between ``answer`` and ``tell``.

An attack is a frozen dataclass. Its ``tamper`` replaces the replies of the attackers and leaves those of the honest as
they are, bit for bit; it is pure JAX. Attackers may talk to each other, know the protocol and the server's question,
and know their own honest replies; they do not know those of others (*partial knowledge* in the literature). What they
send is a well-formed message: a server that checks its messages finds nothing wrong.

How far one attacker can move the server differs between protocols:

* **Evolution strategies** (:mod:`fedrank.ranking.foltr_es`): a message is a seed and two bounded numbers. The server
  remakes the perturbation, so that an attacker chooses among random directions and by how much, within the range of the
  metric.
* **Weights** (FPDGD): a message is a vector, and the mean goes wherever one attacker wants it. If vectors are clipped
  to a norm the step is bounded.

Attacks on weights are in :mod:`fedrank.engine.weight_attacks`. A user who clicks to do harm is no attack on replies:
see :mod:`fedrank.ranking.clicks.cascade`.
"""

from __future__ import annotations

import abc
import dataclasses
import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Key
from typing_extensions import override

from fedrank.core.arrays import JaxArray as Array
from fedrank.core.arrays import PyTree
from fedrank.core.errors import ConfigError
from fedrank.core.lazy import jax, jnp
from fedrank.core.messages import Field
from fedrank.core.protocol import Protocol
from fedrank.core.registry import Registry
from fedrank.core.rng import perturbation, perturbation_jax


class Attack(abc.ABC):
    """A rule for the replies that attackers send. Subclasses are final, frozen dataclasses with their settings."""

    @classmethod
    @abc.abstractmethod
    def works_on(cls, protocol: Protocol) -> bool:
        """True if the replies of this protocol are of the kind that this attack makes."""

    @abc.abstractmethod
    def tamper(
        self,
        key: Key[Array, ""],
        request: PyTree,
        replies: PyTree,
        attackers: Bool[Array, " parties"],
        protocol: Protocol,
    ) -> PyTree:
        """The replies of a round, those of the attackers replaced.

        Args:
            key: Typed key of the round for this purpose; consumed.
            request: What the server asked.
            replies: All parties' honest replies; leaves have a leading axis of parties.
            attackers: bool [parties].
            protocol: The protocol that the replies belong to.

        Returns:
            As ``replies``.
        """


#: Attacks on replies by name.
ATTACKS: Registry[type[Attack]] = Registry("attack")


#: Keeps the draw of the attackers apart from other draws with the same seed: who attacks is independent of who holds
#: what.
_ATTACKERS = 0x4C494152


def draw_attackers(parties: int, share: float, seed: int) -> Bool[np.ndarray, "{parties}"]:
    """A random set of attacking parties, the same in every round.

    Args:
        parties: Number of parties.
        share: Share of attackers, in [0, 1]. Rounded down to whole parties, but at least one if it is not 0.
        seed: Seed of the draw (PCG64).

    Returns:
        bool [parties].

    Raises:
        ConfigError: No parties, or a share outside [0, 1].

    >>> [int(draw_attackers(10, share, seed=0).sum()) for share in (0.3, 0.01, 0.0)]
    [3, 1, 0]
    """
    if parties < 1:
        raise ConfigError(f"parties must be at least 1, got {parties}.")
    if not 0 <= share <= 1:
        raise ConfigError(f"the share of attackers must be in [0, 1], got {share}.")
    # A product such as 0.29 · 100 lies a rounding error below the whole number that is meant.
    number = max(math.floor(share * parties + 1e-9), 1 if share > 0 else 0)
    chosen = np.random.Generator(np.random.PCG64([seed, _ATTACKERS])).permutation(parties)[:number]
    attacking = np.zeros(parties, bool)
    attacking[chosen] = True
    return attacking


def reply_fields(protocol: Protocol) -> dict[str, Field]:
    """The fields of the reply of a protocol with one exchange, by name; empty for other protocols."""
    if len(protocol.exchanges) != 1:
        return {}
    return {field.name: field for field in protocol.exchanges[0].reply.fields}


class _OnValues(Attack):
    """Attacks on a seed and one or two bounded numbers: the replies of FOLtR-ES.

    The numbers are the sums of the halves, or one report of the piecewise mechanism about their difference. Such a
    report counts for more than the largest honest difference (``Piecewise.scale``), and so does a forged one: what
    makes single messages say little lets attackers say much.
    """

    @classmethod
    def works_on(cls, protocol: Protocol) -> bool:
        """True if a reply is a seed and bounded numbers."""
        return "seed" in reply_fields(protocol) and set(_sums(protocol)) in ({"plus"}, {"plus", "minus"}, {"report"})


@ATTACKS.register("random-metric", summary="Values drawn uniformly from all that a message can hold.")
@dataclass(frozen=True)
class RandomMetric(_OnValues):
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
        for name, largest in _sums(protocol).items():
            key, mine = jax.random.split(key)
            honest = getattr(replies, name)
            crafted = jax.random.randint(mine, honest.shape, 0, largest + 1, honest.dtype)
            forged[name] = jnp.where(attackers, crafted, honest)
        return dataclasses.replace(replies, **forged)


@ATTACKS.register("inverted-metric", summary="Good is reported as bad and bad as good.")
@dataclass(frozen=True)
class InvertedMetric(_OnValues):
    """Each sum x becomes largest − x: with antithetic halves exactly the negative of the honest contribution."""

    @override
    def tamper(
        self,
        key: Key[Array, ""],
        request: PyTree,
        replies: PyTree,
        attackers: Bool[Array, " parties"],
        protocol: Protocol,
    ) -> PyTree:
        del key, request
        forged = {}
        for name, largest in _sums(protocol).items():
            honest = getattr(replies, name)
            forged[name] = jnp.where(attackers, largest - honest, honest)
        return dataclasses.replace(replies, **forged)


#: Where :class:`TargetedSeeds` wants the weights to go.
TARGETS = ("reverse", "fixed")


@ATTACKS.register(
    "targeted-seeds", summary="Seeds are searched until the perturbation points where the attacker wants to go."
)
@dataclass(frozen=True)
class TargetedSeeds(_OnValues):
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
        for name, largest in _sums(protocol).items():
            forged[name] = jnp.where(attackers, 0 if name == "minus" else largest, getattr(replies, name))
        return dataclasses.replace(replies, **forged)


def _sums(protocol: Protocol) -> dict[str, int]:
    """Largest value of each field of a reply that holds a sum or a report."""
    fields = reply_fields(protocol)
    return {name: field.largest for name, field in fields.items() if name != "seed" and field.largest is not None}
