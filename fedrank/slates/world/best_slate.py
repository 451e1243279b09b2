"""The slate of the highest expected value for a policy that knows the user's choice model.

A click on item i is worth q_i, no click q_⊥. For models in which the odds of two items do not depend on what else is
shown (multinomial, proportional), the value Σ P(i|A) q_i is a ratio of sums, and Dinkelbach's method finds its maximum
exactly: it solves the linear programme of SlateQ (Ie et al. 2019, arXiv:1905.12767, Section 5.2) by a few selections of
the n largest. For a cascade, the best order of any set is by descending worth (exchange two neighbours), and a table
over (item, free slots) finds the set.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from fedrank.slates.learners.slate_choice import dinkelbach, largest
from fedrank.slates.world.choice import Cascade, SlateChoice


def best_slate(
    choice: SlateChoice,
    scores: Float[Array, " candidates"],
    worth: Float[Array, " candidates"],
    n: int,
    nothing: Float[Array, ""],
) -> Int[Array, " slots"]:
    """The n candidates, in slot order, that maximise the expected value of what is clicked.

    Args:
        choice: The user's choice model.
        scores: The user's scores of the candidates.
        worth: Value of a click on each.
        n: Length of the slate, at most N.
        nothing: Value of no click.
    """
    gain = worth - nothing  # probabilities sum to 1: what all share makes no difference
    if isinstance(choice, Cascade):
        return _best_cascade(jax.vmap(lambda score: choice.weights(score[None])[0])(scores), gain, n)
    weights = choice.weights(scores)
    v = weights[:-1]
    start = largest(v * (gain - jnp.max(gain)), n)  # no slate is worth more than its best click
    return dinkelbach(v, gain, weights[-1], start)


def _best_cascade(
    click: Float[Array, " candidates"], gain: Float[Array, " candidates"], n: int
) -> Int[Array, " slots"]:
    """The slate of the highest expected gain for a user who examines slots in order, by dynamic programming."""
    # Best value of the slots from here on, by the number of slots still to fill; items in ascending worth, so that
    # every new item goes in front of those already placed.
    order = jnp.argsort(gain)

    def place(best, item):
        with_it = click[item] * gain[item] + (1.0 - click[item]) * best[:-1]
        takes = with_it > best[1:]
        return best.at[1:].set(jnp.where(takes, with_it, best[1:])), takes

    def unfold(free, takes):
        taken = (free > 0) & takes[jnp.maximum(free, 1) - 1]
        return free - taken.astype(jnp.int32), jnp.where(taken, n - free, n)

    start = jnp.full(n + 1, -jnp.inf, jnp.float32).at[0].set(0.0)
    takes = jax.lax.scan(place, start, order)[1]
    # From the most worthy item down: the first that was taken with all slots free is slot 0.
    slots = jax.lax.scan(unfold, jnp.int32(n), takes, reverse=True)[1]
    return jnp.zeros(n + 1, jnp.int32).at[slots].set(order.astype(jnp.int32))[:n]
