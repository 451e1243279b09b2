"""The equations of FedSlate (Deng et al., arXiv 2409.14872), as functions of arrays; numbers are the paper's."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from fedrank.core.lazy import optax
from fedrank.slates.fedslate.platform import best_slate, choice_scores
from fedrank.slates.fedslate.settings import SlateSettings
from fedrank.slates.fedslate.state import Transition
from fedrank.slates.learners.slate_choice import slate_value
from fedrank.slates.learners.slateq import huber, next_value

# -- values ----------------------------------------------------------------------------------------------------------


def local_values(
    s: SlateSettings,
    weights: Float[Array, " weights"],
    user: Float[Array, "*rows user_features"],
    items: Float[Array, "*rows candidates item_features"],
) -> Float[Array, "*rows candidates"]:
    """Q-values of candidates by a platform's own network."""
    if user.ndim == 1:
        return s.local.values(weights, user, items)
    if user.ndim == 2:
        return s.local.of_batch(weights, user, items)
    return jax.vmap(partial(local_values, s), in_axes=(None, 0, 0))(weights, user, items)


def joint_values(
    s: SlateSettings,
    weights: Float[Array, " weights"],
    own: Float[Array, "*rows candidates"],
    others: Float[Array, "*rows candidates"],
) -> Float[Array, "*rows candidates"]:
    """Ω of a platform's own values and of the others' (equations 9 and 10)."""
    if own.ndim == 1:
        return s.head.values(weights, own, others)
    return jax.vmap(partial(joint_values, s), in_axes=(None, 0, 0))(weights, own, others)


def others_mean(
    s: SlateSettings, values: Float[Array, "platforms *rows candidates"], platform: Int[Array, ""] | int
) -> Float[Array, "*rows candidates"]:
    """The others' part of Ω's input: the mean of their values (the second place of equations 9 and 10).

    Args:
        s: Settings.
        values: Q-values of all platforms.
        platform: Which is not among the others.
    """
    return _pooled(s, (jnp.sum(values, axis=0) - values[platform]) / max(1, s.platforms - 1))


def _pooled(s: SlateSettings, others: Float[Array, "*rows candidates"]) -> Float[Array, "*rows candidates"]:
    """Others' values as the settings have them: as they are, or their mean over the candidates in every place."""
    if s.others == "pooled":
        return jnp.broadcast_to(jnp.mean(others, axis=-1, keepdims=True), others.shape)
    return others


def federated_values(
    s: SlateSettings, weights: Float[Array, " weights"], values: Float[Array, "platforms candidates"]
) -> Float[Array, "platforms candidates"]:
    """Federated values of all platforms in a round from their Q-values, joined at the coordinator (equations 9, 10)."""
    each = jax.vmap(lambda p: joint_values(s, weights, values[p], others_mean(s, values, p)))
    return each(jnp.asarray(s.served))


def federated_values_with_noise(
    s: SlateSettings,
    weights: Float[Array, " weights"],
    values: Float[Array, "platforms candidates"],
    key: PRNGKeyArray,
) -> Float[Array, "platforms candidates"]:
    """The same with what happens to values before they leave a platform: clipping and noise.

    Args:
        s: Settings.
        weights: Ω.
        values: Q-values of all platforms.
        key: Of the noise.
    """
    sent = values if s.noise is None else s.noise.applied(values, s.noise.draw(key, values.shape))
    return federated_values(s, weights, sent)


# -- learning --------------------------------------------------------------------------------------------------------


def td_target(
    s: SlateSettings,
    values: Float[Array, " candidates"],
    row: Transition,
    after: Transition,
    learnt: Float[Array, "2"],
    mean: Float[Array, ""],
) -> Float[Array, ""]:
    """Equation 13 of one transition.

    Args:
        s: Settings.
        values: The federated target network's values at ``after``.
        row: The transition.
        after: The one after it.
        learnt: The learnt choice model.
        mean: Mean engagement, which is subtracted.
    """
    v, none = choice_scores(s, learnt, after.user, after.items)
    worth = next_value(s.target, v, values, none, s.world.slate, after.slate)
    return row.engagement - mean + s.discount * (1.0 - row.over) * worth


def loss(
    s: SlateSettings,
    values: Float[Array, "transitions candidates"],
    batch: Transition,
    targets: Float[Array, " transitions"],
    learnt: Float[Array, "2"],
    feedback: Bool[Array, ""],
) -> Float[Array, ""]:
    """Equation 14 of a platform with feedback, equation 15 of one without.

    Args:
        s: Settings.
        values: Federated values.
        batch: The transitions, leaves [B, ...].
        targets: What the values are compared with.
        learnt: The learnt choice model.
        feedback: Whether the platform sees clicks.
    """

    def of_transition(q, row, target):
        v, none = choice_scores(s, learnt, row.user, row.items)
        slate = row.slate if s.regress == "shown" else best_slate(s, learnt, row.user, row.items, q)
        slate = jax.lax.stop_gradient(slate)
        expected = huber(slate_value(v, q, slate, none) - target)  # (15)
        clicked = jnp.where(row.item >= 0, huber(q[row.item] - target), 0.0)  # (14)
        return jnp.where(feedback, clicked, expected)

    return jnp.mean(jax.vmap(of_transition)(values, batch, targets))


def adam_step(
    s: SlateSettings,
    weights: Float[Array, " weights"],
    optimiser: optax.OptState,
    gradient: Float[Array, " weights"],
) -> tuple[Float[Array, " weights"], optax.OptState]:
    """New weights and the new state of Adam; gradients that are not finite change nothing."""
    step, after = s.adam.update(gradient, optimiser, weights)
    finite = jnp.all(jnp.isfinite(gradient))
    keep = lambda new, old: jnp.where(finite, new, old)  # noqa: E731
    return keep(optax.apply_updates(weights, step), weights), jax.tree.map(keep, after, optimiser)
