"""What the past does to users at each platform: its own trace's weight, from what all platforms say together.

A constant and the item's weight are about items and the same everywhere. The trace's weight is about users, who may
forgive one platform more than another. What one platform finds of it is x_k with variance 1 / w_k; a platform that has
found nothing has w_k = 0. Taken as one of a family, the weights of which have mean μ and variance τ² (random effects;
DerSimonian and Laird, Controlled Clinical Trials 1986)::

    τ² = max(0, (Σ w (x − x̄)² − (n − 1)) / (Σ w − Σ w² / Σ w)),    x̄ = Σ w x / Σ w
    μ = Σ v x / Σ v,                                               v = w / (1 + w τ²)
    weight of k = (1 − B) x_k + B μ,                               B = 1 / (1 + w_k τ²)

So platforms that differ by no more than chance share one weight, those that differ by far keep their own, and one that
has found nothing is lent the mean.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from fedrank.slates.world.satisfaction import Satisfaction

#: Numbers of a model beside the platforms' weights of the trace: the constant and the item's weight.
SHARED = 2


class Models(NamedTuple):
    """Weights of (1, trace / 2, item) in the logarithm of engagement, as one platform plans by them.

    Attributes:
        own: Its own.
        others: The other platforms', the trace's weight their mean; its own where there are no others.
    """

    own: Float[Array, " features"]
    others: Float[Array, " features"]


def models_at(model: Float[Array, " parameters"], number: Int[Array, ""]) -> Models:
    """The models of a platform.

    Args:
        model: Constant, item's weight, and the trace's weight at each platform.
        number: Number of the platform.
    """
    constant, item, traces = model[0], model[1], model[SHARED:]
    own = traces[number]
    others = (jnp.sum(traces) - own) / (len(traces) - 1) if len(traces) > 1 else own
    return Models(jnp.stack([constant, own, item]), jnp.stack([constant, others, item]))


def passed(world: Satisfaction, fade: float, number: int) -> float:
    """How much of what a platform's click does to its own next engagement there is in what it next observes.

    Between a click and the next one at the same platform all others act, and the past fades at each; what is observed
    may be older.

    Args:
        world: In which order platforms act, and whether what they observe is as old as the round.
        fade: Factor of the trace a round.
        number: Number of the platform.

    Returns:
        What the click does to engagement by what it does to the observation, in [0, 1].
    """
    k = world.platforms
    tick = fade ** (1.0 / k)
    # What is left when the round is over, and when the platform acts in the next one.
    places = range(k) if world.turns == "shuffled" else (number,)
    over, acts = (sum(tick**after for after in of) / len(places) for of in ([k - 1 - p for p in places], places))
    if not world.fresh:
        return over * acts
    return acts


def random_effects(
    found: Float[Array, " platforms"], precision: Float[Array, " platforms"], differ: bool
) -> tuple[Float[Array, " platforms"], Float[Array, " platforms"]]:
    """Each platform's number, from its own finding and everybody's.

    Args:
        found: x.
        precision: w: one over the variance of each; 0 for a platform that has found nothing. One is above 0.
        differ: Whether platforms may differ; if not, τ² is 0.

    Returns:
        The numbers, and the standard error of each, with τ² taken as known.
    """
    total = jnp.maximum(jnp.sum(precision), 1e-30)
    between = jnp.float32(0.0)
    if differ:
        squares = jnp.vdot(precision, (found - jnp.vdot(precision, found) / total) ** 2)
        spare = total - jnp.vdot(precision, precision) / total
        more = squares - (jnp.sum(precision > 0) - 1)
        between = jnp.maximum(more, 0.0) / jnp.maximum(spare, 1e-30)
        between = jnp.where(jnp.sum(precision > 0) > 1, between, 0.0)
    to_mean = 1.0 / (1.0 + precision * between)
    weights = precision * to_mean
    of_mean = 1.0 / jnp.maximum(jnp.sum(weights), 1e-30)
    mean = jnp.vdot(weights, found) * of_mean
    # What is not known of each by itself, and what is not known of the mean that it is moved to.
    error = jnp.sqrt(between * to_mean + to_mean**2 * of_mean)
    return found + to_mean * (mean - found), error
