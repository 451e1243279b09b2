"""The plan of a user's stay: dynamic programming over what one platform knows of a user.

With x the trace before a click, z the item's feature and ``left`` the rounds that are left, a click is worth what it
engages now, what the trace that it leaves is worth to the other platforms until this one is due again, and what is to
come::

    x′ = fade · x − z
    q_left(x, z) = exp f(x, z)ᵀθ + m_left exp f(x′, ·)ᵀθ′ + V_{left−1}(x′)
    V_left(x) = E_candidates max_A Σ_i P(i | A) q_left(x, z_i),    V_0 = 0

Nothing is discounted, and after the last round there is nothing to come: that is the clock. m_left counts the ticks of
others in a round, and θ′ is their model; they are valued with their mean item, because a platform does not know what
they show. Each platform thus counts everybody's engagement, and changes it by its own clicks alone.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from fedrank.slates.learners.slate_choice import best_value
from fedrank.slates.planning.engagement import features
from fedrank.slates.planning.platforms import Models
from fedrank.slates.sums.learner import item_feature
from fedrank.slates.world.best_slate import best_slate
from fedrank.slates.world.choice import Cascade
from fedrank.slates.world.satisfaction import Satisfaction

#: Nodes of the grid in the trace.
GRID = 41
#: Lists of candidates that the expectation is over.
LISTS = 64


def largest_trace(fade: float) -> float:
    """Bound of the trace's absolute value."""
    return 1.0 / (1.0 - fade)


def worth(
    world: Satisfaction,
    fade: float,
    models: Models,
    later: Float[Array, " grid"],
    trace: Float[Array, ""],
    item: Float[Array, " clicks"],
    others: Float[Array, ""],
    mean_item: Float[Array, ""],
) -> Float[Array, " clicks+1"]:
    """Q of clicks, and last of no click.

    Args:
        world: The users; of them platforms know the choice model, as everywhere.
        fade: Factor of the trace a round.
        models: Weights of the model of engagement, at this platform and at others.
        later: V after this round, at the nodes of the grid.
        trace: x.
        item: Feature z of each click.
        others: m, ticks of others until this platform is due again.
        mean_item: Mean feature of what others' users click.
    """
    after = jnp.append(fade * trace - item, fade * trace)
    bound = largest_trace(fade)
    place = jnp.clip((after + bound) / (2.0 * bound), 0.0, 1.0) * (GRID - 1)
    low = jnp.minimum(place.astype(jnp.int32), GRID - 2)
    to_come = later[low] + (place - low) * (later[low + 1] - later[low])
    now = jnp.append(_engagement(models.own, jnp.full_like(item, trace), item), 0.0)
    return now + others * _engagement(models.others, after, jnp.full_like(after, mean_item)) + to_come


def _engagement(
    model: Float[Array, " features"], trace: Float[Array, " clicks"], item: Float[Array, " clicks"]
) -> Float[Array, " clicks"]:
    return jnp.exp(features(trace, item) @ model)


def others_ticks(world: Satisfaction, number: Int[Array, ""], left: Int[Array, ""]) -> Float[Array, ""]:
    """Ticks of other platforms until this one is due again, or the user leaves.

    Args:
        world: The users.
        number: Number of the platform.
        left: Rounds left, this one included.
    """
    k = world.platforms
    last = (k - 1) / 2 if world.turns == "shuffled" else k - 1.0 - number
    return jnp.where(left <= 1, last, k - 1.0)


def planned_slate(
    world: Satisfaction, documents: Float[Array, " candidates"], values: Float[Array, " candidates+1"]
) -> Int[Array, " slots"]:
    """The slate of the highest expected worth; ``values`` as :func:`worth` returns them."""
    return best_slate(world.choice, world.appeal(documents), values[:-1], world.slate, values[-1])


def mean_click(world: Satisfaction, lists: Float[Array, "lists candidates"]) -> Float[Array, ""]:
    """Mean feature of a click, were all candidates shown."""

    def of_list(documents):
        weights = world.choice.weights(world.appeal(documents))[:-1]
        return jnp.vdot(weights, item_feature(documents)) / jnp.sum(weights)

    return jnp.mean(jax.vmap(of_list)(lists))


def plan(
    world: Satisfaction,
    fade: float,
    models: Models,
    lists: Float[Array, "lists candidates"],
    typical: Float[Array, ""],
    number: Int[Array, ""],
) -> Float[Array, "rounds grid"]:
    """V after a round at the nodes of the grid, by rounds left less one: row 0 is of the last round.

    Args:
        world: The users.
        fade: Factor of the trace a round.
        models: Weights of the model of engagement, at this platform and at others.
        lists: Lists of candidates that the platform had.
        typical: Mean feature of what others' users click.
        number: Number of the platform.
    """
    nodes = jnp.linspace(-largest_trace(fade), largest_trace(fade), GRID)
    scores = jax.vmap(lambda documents: world.choice.weights(world.appeal(documents)), out_axes=1)(lists)

    def of_list(later, others, trace, documents):
        values = worth(world, fade, models, later, trace, item_feature(documents), others, typical)
        slate = planned_slate(world, documents, values)
        return jnp.vdot(
            world.choice.probabilities(world.appeal(documents[slate])), jnp.append(values[slate], values[-1])
        )

    def at_node(later, others, trace):
        if isinstance(world.choice, Cascade):
            return jnp.mean(jax.vmap(lambda documents: of_list(later, others, trace, documents))(lists))
        every = jax.vmap(lambda item: worth(world, fade, models, later, trace, item, others, typical), out_axes=1)
        values = every(item_feature(lists))
        best = best_value(scores[:-1], values[:-1] - values[-1:], world.slate, scores[-1])
        return jnp.mean(best + values[-1])

    def one_round(later, left):
        others = others_ticks(world, number, left)
        return jax.vmap(lambda trace: at_node(later, others, trace))(nodes), later

    return jax.lax.scan(one_round, jnp.zeros(GRID), 1 + jnp.arange(world.rounds_per_episode))[1]
