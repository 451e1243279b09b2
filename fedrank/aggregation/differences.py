"""Robust aggregation for evolution strategies, where attackers send chosen seeds and wrong metric values.

A message of FOLtR-ES is a seed and the values m⁺, m⁻ of the two rankers that the seed makes. The server computes the
perturbation v(seed) by itself, so an attacker can choose only the seed and the difference d = m⁺ − m⁻, which cannot
leave the metric's range. Every defence here works on the differences, one number a message, and returns coefficients c
with::

    gradient = Σᵢ cᵢ · v(seedᵢ) / (2σ)

in units of the metric; a caller with differences of sums of metric values divides by the number of values as well.

The range already bounds d, so a defence can gain little more: honest differences are not small compared with the
range, so that clipping hardly weakens an attacker, and no rule that looks at d alone can tell a chosen *seed* from an
honest one. Medians over groups of messages bound the effect of such attackers, at the price of noise.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Integer

from fedrank.aggregation.robust import median
from fedrank.core.arrays import AnyArray, ArrayT, module_of
from fedrank.core.arrays import JaxArray as Array
from fedrank.core.errors import ConfigError
from fedrank.core.lazy import jax, jnp
from fedrank.core.registry import Registry

#: A defence of the caller's own: ``(differences float32 [parties], arrived bool [parties]) -> float32 [parties]``.
Defence = Callable[[Float[Array, " parties"], Bool[Array, " parties"]], Float[Array, " parties"]]

#: Defences by name: ``(differences, arrived[, setting]) -> coefficients``. Those of ``median-of-means`` are
#: [groups, parties], one gradient a row, which :func:`median_of_means` makes into one.
ES_DEFENCES: Registry[Callable[..., Float[Array, "*groups parties"]]] = Registry("defence")


def in_range(
    plus: Integer[AnyArray, "*runs parties"], minus: Integer[AnyArray, "*runs parties"] | None, largest: int
) -> Bool[AnyArray, "*runs parties"]:
    """Mask of messages with values in the range that an honest device can send; a server drops the others.

    Args:
        plus: int32 [parties], sums of metric values under θ + σv.
        minus: int32 [parties], the same under θ − σv; None where devices try θ + σv only.
        largest: Largest sum, as in the message's layout.

    Returns:
        bool [parties].
    """
    fits = (plus >= 0) & (plus <= largest)
    return fits if minus is None else fits & (minus >= 0) & (minus <= largest)


@ES_DEFENCES.register("mean", summary="Every message counts alike.", citation="kharitonov2019foltr")
def mean(
    differences: Float[ArrayT, "*runs parties"], arrived: Bool[AnyArray, "*runs parties"]
) -> Float[ArrayT, "*runs parties"]:
    """dᵢ / N over the N messages that arrived: the estimator of the paper (equations (4)–(6)).

    Args:
        differences: float32 [..., parties], of JAX or NumPy.
        arrived: bool [..., parties].

    Returns:
        float32 [..., parties], 0 where nothing arrived.
    """
    xp = module_of(differences, arrived)
    count = xp.maximum(xp.sum(arrived, axis=-1, keepdims=True), 1).astype(xp.float32)
    return xp.where(arrived, differences, np.float32(0)) / count


@ES_DEFENCES.register("clip", summary="Differences are cut to ± a fixed bound.")
def clip(
    differences: Float[Array, " parties"], arrived: Bool[Array, " parties"], bound: float
) -> Float[Array, " parties"]:
    """:func:`mean` of the differences cut to [−bound, bound].

    For antithetic halves, whose differences lie around 0. A value under θ + σv alone does not, and cutting it makes
    good rankings look like fair ones.

    Args:
        differences: float32 [parties].
        arrived: bool [parties].
        bound: Largest size of a difference, above 0.

    Returns:
        float32 [parties].

    Raises:
        ConfigError: ``bound`` is not positive.
    """
    if not bound > 0:
        raise ConfigError(f"the bound that differences are cut to must be positive, got {bound}.")
    return mean(jnp.clip(differences, -bound, bound), arrived)


@ES_DEFENCES.register("clip-quantile", summary="Differences are cut to ± a quantile of their sizes in the round.")
def clip_at_quantile(
    differences: Float[Array, " parties"], arrived: Bool[Array, " parties"], quantile: float
) -> Float[Array, " parties"]:
    """:func:`clip` at the smallest size of a difference that at least this share of those that are not 0 do not exceed.

    Where rewards have few values, many differences are 0, and a quantile of all of them might be.

    Args:
        differences: float32 [parties].
        arrived: bool [parties].
        quantile: In (0, 1]; 1 cuts nothing. Bounds the effect of attackers as long as they send less than 1 − quantile
            of the messages.

    Returns:
        float32 [parties].

    Raises:
        ConfigError: ``quantile`` is not in (0, 1].
    """
    if not 0 < quantile <= 1:
        raise ConfigError(f"the quantile that differences are cut at must be in (0, 1], got {quantile}.")
    counted = arrived & (differences != 0)
    count = jnp.sum(counted)
    sizes = jnp.sort(jnp.where(counted, jnp.abs(differences), jnp.inf))
    # A hair less than quantile · count, which rounding must not lift above a whole number.
    place = jnp.ceil(quantile * count * (1 - 1e-6)).astype(jnp.int32) - 1
    bound = jnp.where(count > 0, sizes[jnp.clip(place, 0, jnp.maximum(count - 1, 0))], 0.0)
    return mean(jnp.clip(differences, -bound, bound), arrived)


@ES_DEFENCES.register(
    "median-of-means",
    summary="Coordinate by coordinate, the median of the gradients of groups of messages.",
    citation="yin2018byzantine",
)
def group_means(
    differences: Float[Array, " parties"], arrived: Bool[Array, " parties"], groups: int
) -> Float[Array, "{groups} parties"]:
    """:func:`mean` within each group: the messages that arrived are dealt out to groups in turn.

    With fewer attackers than half the groups, each coordinate of the median lies within the range of the honest groups'
    gradients, whatever seeds and values the attackers send. That bound is weak: honest gradients of few messages are
    mostly noise, and attackers who agree move the median far within their range. The price is noise: for normal
    gradients and many groups the median's standard deviation is √(π/2) = 1.25 times that of the mean of all messages.

    Args:
        differences: float32 [parties].
        arrived: bool [parties].
        groups: Number of groups.

    Returns:
        float32 [groups, parties]: row g holds the coefficients of group g's gradient. If fewer messages arrived than
        there are groups, the last rows are zero.

    Raises:
        ConfigError: ``groups`` is not in 1 .. parties.
    """
    if not 1 <= groups <= arrived.shape[0]:
        raise ConfigError(f"groups must be in 1..{arrived.shape[0]}, the number of parties; got {groups}.")
    group = (jnp.cumsum(arrived) - 1) % groups
    return jax.vmap(lambda number: mean(differences, arrived & (group == number)))(jnp.arange(groups))


def median_of_means(
    group_gradients: Float[Array, "groups n"], where: Bool[Array, " groups"] | None = None
) -> Float[Array, " n"]:
    """Coordinate-wise median of the groups' gradients.

    Args:
        group_gradients: float32 [groups, n].
        where: bool [groups]: which groups have messages; None: all. With k messages, the first k of them.

    Returns:
        float32 [n]; zero if no group has any.
    """
    where = jnp.ones(group_gradients.shape[0], bool) if where is None else where
    return median(group_gradients, jnp.ones(where.shape, jnp.float32), where, 0)


#: "clip" cuts differences to half of the largest there can be.
CLIP = 0.5


def coefficients(
    rule: str | Defence,
    differences: Any,
    arrived: Any,
    largest: float,
    byzantine: int,
) -> Float[AnyArray, "groups *runs parties"]:
    """The factor of each message's perturbation in the gradient, under a defence with its usual setting.

    Args:
        rule: Name of a defence, in :data:`ES_DEFENCES`, or one of the caller's own.
        differences: float32 [parties]; of the mean [..., parties], of NumPy as well.
        arrived: bool, of the same shape.
        largest: The largest size that a difference can have.
        byzantine: Number of attackers that the rule allows for: ``clip-quantile`` cuts at the median size,
            ``median-of-means`` makes 2·byzantine + 1 groups, as many as there are parties at most.

    Returns:
        float32 [groups, parties]; one group but for ``median-of-means``.
    """
    parties = differences.shape[0]
    if not isinstance(rule, str):
        return rule(differences, arrived)[None]
    if rule == "median-of-means":
        return group_means(differences, arrived, min(2 * byzantine + 1, parties))
    settings = {"mean": (), "clip": (CLIP * largest,), "clip-quantile": (0.5,)}[rule]
    return ES_DEFENCES.get(rule)(differences, arrived, *settings)[None]
