"""Robust aggregation: rules that combine the vectors of all parties into one, where some parties may send anything.

A rule is pure JAX and runs under ``jit`` and ``vmap``. It is told which parties were heard, and how many of them
(``byzantine``) the server assumes to be attackers.

* A party that did not arrive is left out, not counted as zero: the result is that of the same call without its row.
* A vector with a number that is not finite is left out too, as the wire form refuses it.
* If no party is heard the result is zero; the caller checks, and keeps its model.
* A rule may be asked for more than arrived (:func:`fewest` says how many it needs). It then looks at as many neighbours
  or trims as many values as there are, promises nothing, and the caller may prefer to skip the round.

Only ``mean`` looks at ``weights``. A party may send a wrong weight as well, so the other rules count every party once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Integer

from fedrank.core.arrays import AnyArray, ArrayT, module_of
from fedrank.core.arrays import JaxArray as Array
from fedrank.core.errors import ConfigError
from fedrank.core.lazy import jax, jnp
from fedrank.core.registry import Entry, Registry

#: ``(vectors float32 [parties, n], weights float32 [parties], arrived bool [parties], byzantine) -> float32 [n]``.
Rule = Callable[[Float[Array, "parties n"], Float[Array, " parties"], Bool[Array, " parties"], int], Float[Array, " n"]]

#: Rules by name: the entry points of ``fedrank.aggregation``. Those of this file stand at its end.
AGGREGATORS: Registry[Rule] = Registry("aggregator", "fedrank.aggregation")

# Blanchard et al. 2017, Proposition 1: 2f + 2 < n. Yin et al. 2018: a share of attackers below one half.
_FEWEST: dict[str, Callable[[int], int]] = {
    "krum": lambda byzantine: 2 * byzantine + 3,
    "multi-krum": lambda byzantine: 2 * byzantine + 3,
    "trimmed-mean": lambda byzantine: 2 * byzantine + 1,
    "median": lambda byzantine: 2 * byzantine + 1,
}


def rule_of(rule: str | Rule) -> Rule:
    """A rule by its name; one of the caller's own as it is.

    Raises:
        UnknownNameError: No such rule.
    """
    return AGGREGATORS.get(rule) if isinstance(rule, str) else rule


def fewest(name: str | Rule, byzantine: int) -> int:
    """The smallest number of parties for which a rule's guarantee holds against a number of attackers.

    Args:
        name: Name of a rule, or one of the caller's own, of which nothing is known.
        byzantine: Number of attackers, at least 0.

    Returns:
        2·byzantine + 3 for Krum and Multi-Krum, 2·byzantine + 1 for the trimmed mean and the median, 1 for the mean,
        which guarantees nothing against any, and for a rule of the caller's own.

    Raises:
        UnknownNameError: No such rule.
        ConfigError: ``byzantine`` is negative.

    >>> fewest("krum", byzantine=3)
    9
    """
    if isinstance(name, str):
        AGGREGATORS.entry(name)
    if byzantine < 0:
        raise ConfigError(f"byzantine must be at least 0, got {byzantine}.")
    return _FEWEST[name](byzantine) if isinstance(name, str) and name in _FEWEST else 1


def check(name: str | Rule, parties: int, byzantine: int) -> None:
    """Refuse a rule whose guarantee does not hold for this number of parties.

    Args:
        name: As of :func:`fewest`.
        parties: Parties of a round.
        byzantine: How many of them may be attackers.

    Raises:
        UnknownNameError: No such rule.
        ConfigError: Too few parties for the number of attackers, or a negative number of attackers.
    """
    least = fewest(name, byzantine)
    if parties < least:
        raise ConfigError(
            f"{name} against byzantine = {byzantine} attackers needs at least {least} parties, got {parties}; "
            "take more parties a round, or assume fewer attackers."
        )


def mean(
    vectors: Float[ArrayT, "*runs parties n"],
    weights: Float[AnyArray, "*runs parties"],
    arrived: Bool[ArrayT, "*runs parties"],
    byzantine: int,
) -> Float[ArrayT, "*runs n"]:
    """Σ wᵢ vᵢ / Σ wᵢ over the parties that arrived.

    Args:
        vectors: float32 [..., parties, n], of JAX or NumPy.
        weights: float32 [..., parties], at least 0; if those of all who arrived are 0 the result is zero.
        arrived: bool [..., parties].
        byzantine: Ignored.

    Returns:
        float32 [..., n].

    Source:
        McMahan et al.: *Communication-efficient learning of deep networks from decentralized data*, AISTATS 2017.
    """
    del byzantine
    vectors, heard = _heard(vectors, arrived)
    xp: Any = module_of(vectors, weights)
    weights = xp.where(heard, weights, np.float32(0))
    total = xp.sum(weights, axis=-1, keepdims=True)
    shares = weights / xp.where(total > 0, total, np.float32(1))
    if xp is np:
        return np.einsum("...p,...pn->...n", shares, vectors)
    return xp.sum(shares[..., None] * vectors, axis=-2)


def krum(
    vectors: Float[Array, "parties n"],
    weights: Float[Array, " parties"],
    arrived: Bool[Array, " parties"],
    byzantine: int,
) -> Float[Array, " n"]:
    """The vector with the lowest :func:`krum_scores`; of several, that of the lowest party.

    Args:
        vectors: float32 [parties, n].
        weights: Ignored.
        arrived: bool [parties].
        byzantine: f, the number of attackers.

    Returns:
        float32 [n], one of the vectors.

    Source:
        Blanchard, El Mhamdi, Guerraoui, Stainer: *Machine learning with adversaries: Byzantine tolerant gradient
        descent*, NeurIPS 2017, Section 4.
    """
    del weights
    vectors, heard = _heard(vectors, arrived)
    return vectors[jnp.argmin(krum_scores(vectors, heard, byzantine))]


def multi_krum(
    vectors: Float[Array, "parties n"],
    weights: Float[Array, " parties"],
    arrived: Bool[Array, " parties"],
    byzantine: int,
) -> Float[Array, " n"]:
    """Mean of the m vectors with the lowest :func:`krum_scores`; of equal ones, those of the lowest parties.

    The paper leaves m open, from 1 (Krum) to all (the mean). Here m = arrived − byzantine: as many as are honest in the
    worst case.

    Args:
        vectors: float32 [parties, n].
        weights: Ignored.
        arrived: bool [parties].
        byzantine: f, the number of attackers.

    Returns:
        float32 [n].

    Source:
        As :func:`krum`, Section 6.
    """
    del weights
    vectors, heard = _heard(vectors, arrived)
    order = jnp.argsort(krum_scores(vectors, heard, byzantine), stable=True)
    wanted = jnp.maximum(jnp.sum(heard) - byzantine, 1)
    chosen = heard & (jnp.argsort(order) < wanted)
    return _mean_of(vectors, chosen)


def trimmed_mean(
    vectors: Float[Array, "parties n"],
    weights: Float[Array, " parties"],
    arrived: Bool[Array, " parties"],
    byzantine: int,
) -> Float[Array, " n"]:
    """Coordinate-wise mean of what is left when the ``byzantine`` largest and smallest values are removed.

    Args:
        vectors: float32 [parties, n].
        weights: Ignored.
        arrived: bool [parties].
        byzantine: How many values are removed at each end.

    Returns:
        float32 [n].

    Source:
        Yin, Chen, Ramchandran, Bartlett: *Byzantine-robust distributed learning: towards optimal statistical rates*,
        ICML 2018, Definition 2, with β·m = byzantine.
    """
    del weights
    vectors, heard = _heard(vectors, arrived)
    count = jnp.sum(heard)
    trimmed = jnp.clip(byzantine, 0, jnp.maximum(count - 1, 0) // 2)  # at least one value stays
    place = jnp.arange(vectors.shape[0])
    kept = (place >= trimmed) & (place < count - trimmed)
    return _mean_of(_ascending(vectors, heard), kept)


def median(
    vectors: Float[Array, "parties n"],
    weights: Float[Array, " parties"],
    arrived: Bool[Array, " parties"],
    byzantine: int,
) -> Float[Array, " n"]:
    """Coordinate-wise median; of an even number of values, the mean of the two in the middle.

    Args:
        vectors: float32 [parties, n].
        weights: Ignored.
        arrived: bool [parties].
        byzantine: Ignored.

    Returns:
        float32 [n].

    Source:
        As :func:`trimmed_mean`, Definition 1.
    """
    del weights, byzantine
    vectors, heard = _heard(vectors, arrived)
    count = jnp.sum(heard)
    ascending = _ascending(vectors, heard)
    low, high = ascending[jnp.maximum(count - 1, 0) // 2], ascending[count // 2]
    return jnp.where(count > 0, 0.5 * low + 0.5 * high, 0.0)


def krum_scores(
    vectors: Float[Array, "parties n"], heard: Bool[Array, " parties"], byzantine: int | Integer[Array, ""]
) -> Float[Array, " parties"]:
    """Krum's score of each vector, its distance from its nearest neighbours: lower is better.

    The score of a vector is the sum of its *squared* distances to the k − byzantine − 2 closest of the k − 1 other
    vectors; with fewer than byzantine + 3 vectors to the closest one.

    Differences are taken before they are squared: the shorter way by inner products loses all digits where vectors are
    close to each other and far from zero, as models are. One party's distances at a time, so that memory is
    parties × n.

    Args:
        vectors: float32 [parties, n], finite.
        heard: bool [parties]: which of them count.
        byzantine: f, the number of attackers.

    Returns:
        float32 [parties], infinite where not heard and finite elsewhere.
    """
    count = jnp.sum(heard)
    neighbours = jnp.clip(count - byzantine - 2, 1, jnp.maximum(count - 1, 0))
    party = jnp.arange(vectors.shape[0])

    def score(one):
        squared = jnp.sum(jnp.square(vectors - vectors[one][None, :]), axis=1)
        nearest = jnp.sort(jnp.where(heard & (party != one), squared, jnp.inf))
        return jnp.sum(jnp.where(party < neighbours, nearest, 0.0))

    # Squares of an attacker's numbers may overflow; it still comes before those who were not heard.
    scores = jnp.minimum(jax.lax.map(score, party), jnp.finfo(jnp.float32).max)
    return jnp.where(heard, scores, jnp.inf)


def _heard(
    vectors: Float[ArrayT, "*runs parties n"], arrived: Bool[ArrayT, "*runs parties"]
) -> tuple[Float[ArrayT, "*runs parties n"], Bool[ArrayT, "*runs parties"]]:
    """The vectors, with zeros in place of those that do not count, and which count: arrived, with finite numbers."""
    xp: Any = module_of(vectors, arrived)
    heard = arrived & xp.all(xp.isfinite(vectors), axis=-1)
    return xp.where(heard[..., None], vectors, np.float32(0)), heard


def _ascending(vectors: Float[Array, "parties n"], heard: Bool[Array, " parties"]) -> Float[Array, "parties n"]:
    """Each coordinate's values in ascending order, those that are not heard last."""
    return jnp.sort(jnp.where(heard[:, None], vectors, jnp.inf), axis=0)


def _mean_of(rows: Float[Array, "parties n"], kept: Bool[Array, " parties"]) -> Float[Array, " n"]:
    """Mean of these rows, zero of none. Divided before they are added, so that large numbers do not overflow."""
    return jnp.sum(jnp.where(kept[:, None], rows, 0.0) / jnp.maximum(jnp.sum(kept), 1), axis=0)


MEAN = Entry("mean", mean, "Weighted mean: one attacker moves it anywhere.", "mcmahan2017fedavg")
KRUM = Entry("krum", krum, "The one vector that is closest to its nearest neighbours.", "blanchard2017krum")
MULTI_KRUM = Entry(
    "multi-krum", multi_krum, "Mean of the vectors that Krum likes best, all but byzantine.", "blanchard2017krum"
)
TRIMMED_MEAN = Entry(
    "trimmed-mean",
    trimmed_mean,
    "Coordinate by coordinate, the mean without the byzantine largest and smallest values.",
    "yin2018byzantine",
)
MEDIAN = Entry("median", median, "Coordinate by coordinate, the median.", "yin2018byzantine")
