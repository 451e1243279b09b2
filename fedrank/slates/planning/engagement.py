"""The model of engagement that platforms fit together: linear least squares on the logarithm of engagement.

Engagement is log-normal and its coefficient of variation is 1.3, so that logarithms need far fewer users than
engagement itself. With f the features of a click and y the logarithm, least squares are θ = (Σ f fᵀ)⁻¹ Σ f y. What
platforms show while they explore is drawn by a rule that all know, so that E f fᵀ, the *design*, is the same at all and
tells of nobody: it is computed once by simulation, and Σ f fᵀ need not cross. Features are whitened by it, L⁻¹ f with
L Lᵀ = E f fᵀ, so that every number that crosses is equally well known, and noise harms none more than another.
"""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Float32, Int, Key

from fedrank.slates.world.satisfaction import Satisfaction

#: Features of a click: a constant, the trace, the item. As many numbers cross.
FEATURES = 3
#: Steps of a unit of a clipped vector.
STEPS = 2**14
#: Users that the design is the mean of.
_USERS = 500


def item_feature(documents: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """The feature of candidates as the model of engagement has it: in [−1, 1]."""
    return 2.0 * documents - 1.0


def features(trace: Float[Array, "*shape"], item: Float[Array, "*shape"]) -> Float[Array, "*shape features"]:
    """Features of a click.

    Args:
        trace: Fading sum of what the user clicked here before; negative after items of a high feature.
        item: The feature of what is clicked, in [−1, 1].
    """
    return jnp.stack([jnp.ones_like(item), trace / 2, item], axis=-1)


def next_taste(taste: Float[Array, ""], uniform: Float[Array, "2"], hold: float) -> Float[Array, ""]:
    """The taste of the next slate while a platform explores.

    Long runs of one taste move a user's trace further than slates at random, and by as much fewer users tell what the
    trace does.

    Args:
        taste: +1: the items of the highest feature; −1: those of the lowest; 0: a user has just come.
        uniform: Two numbers uniform in [0, 1).
        hold: Probability of drawing another taste.
    """
    draws = (uniform[0] < hold) | (taste == 0.0)
    return jnp.where(draws, jnp.where(uniform[1] < 0.5, 1.0, -1.0), taste)


def taste_slate(taste: Float[Array, ""], documents: Float[Array, " candidates"], slots: int) -> Int[Array, " slots"]:
    """The candidates of a taste: places of those with the highest feature, or with the lowest."""
    return jax.lax.top_k(taste * documents, slots)[1].astype(jnp.int32)


def whitening(world: Satisfaction, fade: float, hold: float) -> Float32[np.ndarray, "features features"]:
    """L⁻¹ of the design, from simulated clicks of users who choose as the world's do; no engagement takes part.

    Args:
        world: The users.
        fade: Factor of the trace a round.
        hold: As of :func:`next_taste`.
    """
    with jax.ensure_compile_time_eval():
        keys = jax.random.split(jax.random.key(0), _USERS)
        squares = np.asarray(_design(world, fade, hold, keys), np.float64)
    return np.linalg.inv(np.linalg.cholesky(squares + 1e-6 * np.eye(FEATURES))).astype(np.float32)


@partial(jax.jit, static_argnums=(0, 1, 2))
def _design(
    world: Satisfaction, fade: float, hold: float, keys: Key[Array, " users"]
) -> Float[Array, "features features"]:
    def one_round(carry, key):
        trace, taste = carry
        one, two, three = jax.random.split(key, 3)
        documents = jax.random.uniform(one, (world.candidates,))
        taste = next_taste(taste, jax.random.uniform(two, (2,)), hold)
        shown = documents[taste_slate(taste, documents, world.slate)]
        slot = world.choice.choose(world.appeal(shown), jax.random.uniform(three))
        clicked = slot < world.slate
        item = jnp.where(clicked, item_feature(shown[jnp.minimum(slot, world.slate - 1)]), 0.0)
        f = jnp.where(clicked, features(trace, item), 0.0)
        return (fade * trace - item, taste), jnp.outer(f, f)

    def of_user(key):
        start = (jnp.float32(0.0), jnp.float32(0.0))
        return jnp.mean(jax.lax.scan(one_round, start, jax.random.split(key, world.rounds_per_episode))[1], axis=0)

    return jnp.mean(jax.vmap(of_user)(keys), axis=0)


def clipped(stay: Float[Array, " features"], clip: float) -> Int[Array, " features"]:
    """A user's vector in steps of clip / 2¹⁴, of L2 norm up to 2¹⁴: shortened, then rounded towards zero.

    Shortening makes all weights smaller by one factor, on the whole; plans depend on their ratios.

    Args:
        stay: Σ L⁻¹ f y over the stay.
        clip: Largest norm.
    """
    norm = jnp.linalg.norm(stay)
    # A hair less than the clip, so that rounding of floats does not lead above it.
    shorter = stay * jnp.minimum(1.0, (1.0 - 1e-5) * clip / jnp.maximum(norm, 1e-30))
    return jnp.trunc(shorter / clip * STEPS).astype(jnp.int32)


def fitted(
    sums: Float[Array, " features"], clicks: Float[Array, ""], whiten: Float32[np.ndarray, "features features"]
) -> Float[Array, " features"]:
    """Weights of least squares from sums over users and platforms: L⁻ᵀ Σ L⁻¹ f y / clicks.

    Args:
        sums: Sums of users' vectors.
        clicks: Rounds behind them.
        whiten: L⁻¹.
    """
    return jnp.asarray(whiten).T @ sums / jnp.maximum(clicks, 1.0)
