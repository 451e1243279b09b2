"""Learners that need other platforms' values of candidates in every round, and gradients of them: FedSlate's kind.

Such a critic is five functions of arrays (:class:`ValueLearner`): first weights, the values of a batch, the target of a
transition, the loss of a batch, and a step. State features, replay buffer, exploration, noise, and what crosses are the
same for all; see :class:`fedrank.slates.fedslate.FedSlate`. :class:`SlateQ` is the paper's: equations 9 to 15 of Deng
et al. (arXiv 2409.14872), on SlateQ (Ie et al. 2019, arXiv 1905.12767). What comes after a slate depends on the clicked
item alone, so that the value of a click on an item is learnt from

    y = r + γ (1 − d) Σ_{j∈A′} P(j | s′, A′) Q(s′, j)

with the reward r of the clicked item, d = 1 if the episode has ended, and the slate A′ of the *next* state s′: the one
that was shown there (SARSA, equation 6), or one that is chosen by the values (equations 7 and 8).
"""

from __future__ import annotations

import abc
from dataclasses import dataclass
from functools import partial
from typing import Any

from jaxtyping import Bool, Float, Int
from typing_extensions import override

from fedrank.core.arrays import AnyArray as Array
from fedrank.core.lazy import jax, jnp, optax
from fedrank.slates.fedslate.platform import (
    best_slate,
    choice_scores,
    finish_round,
    item_features,
    next_view,
    own_features,
    user_features,
)
from fedrank.slates.fedslate.settings import Slates
from fedrank.slates.fedslate.state import PlatformState, Transition, empty_view, first_platform_state
from fedrank.slates.learner import SlateLearner
from fedrank.slates.world.best_slate import next_value, slate_value
from fedrank.slates.world.satisfaction import Satisfaction


def huber(error: Float[Array, "*shape"], threshold: float = 1.0) -> Float[Array, "*shape"]:
    """Huber's loss: ½ e² up to the threshold t, and t (``|e|`` − ½ t) beyond."""
    size = jnp.abs(error)
    return jnp.where(size <= threshold, 0.5 * error * error, threshold * (size - 0.5 * threshold))


# -- values ----------------------------------------------------------------------------------------------------------


def joint_values(
    s: Slates,
    weights: Float[Array, " weights"],
    own: Float[Array, "*rows candidates"],
    others: Float[Array, "*rows candidates"],
) -> Float[Array, "*rows candidates"]:
    """Ω of a platform's own values and of the others' (equations 9 and 10)."""
    if own.ndim == 1:
        return s.federated_network.values(weights, own, others)
    return jax.vmap(partial(joint_values, s), in_axes=(None, 0, 0))(weights, own, others)


def others_mean(
    s: Slates, values: Float[Array, "platforms *rows candidates"], platform: Int[Array, ""] | int
) -> Float[Array, "*rows candidates"]:
    """The others' part of Ω's input: the mean of their values (the second place of equations 9 and 10).

    Args:
        s: Settings.
        values: Q-values of all platforms.
        platform: Which is not among the others.
    """
    return _pool_values(s, (jnp.sum(values, axis=0) - values[platform]) / max(1, s.platforms - 1))


def _pool_values(s: Slates, others: Float[Array, "*rows candidates"]) -> Float[Array, "*rows candidates"]:
    """Others' values as the settings have them: as they are, or their mean over the candidates in every place."""
    if s.others == "pooled":
        return jnp.broadcast_to(jnp.mean(others, axis=-1, keepdims=True), others.shape)
    return others


def federated_values(
    s: Slates, weights: Float[Array, " weights"], values: Float[Array, "platforms candidates"]
) -> Float[Array, "platforms candidates"]:
    """Federated values of all platforms in a round from their Q-values, joined at the coordinator (equations 9, 10)."""
    each = jax.vmap(lambda p: joint_values(s, weights, values[p], others_mean(s, values, p)))
    return each(jnp.asarray(s.serving_platforms))


def adam_step(
    s: Slates,
    weights: Float[Array, " weights"],
    optimiser: optax.OptState,
    gradient: Float[Array, " weights"],
) -> tuple[Float[Array, " weights"], optax.OptState]:
    """New weights and the new state of Adam; gradients that are not finite change nothing."""
    step, after = s.adam.update(gradient, optimiser, weights)
    finite = jnp.all(jnp.isfinite(gradient))
    keep = lambda new, old: jnp.where(finite, new, old)  # noqa: E731
    return keep(optax.apply_updates(weights, step), weights), jax.tree.map(keep, after, optimiser)


@dataclass(frozen=True)
class ValueLearner(SlateLearner):
    """A learner whose platforms send values of candidates, and gradients by them; see the module.

    Attributes:
        settings: Settings that platforms and coordinator agree on.
    """

    settings: Slates

    @property
    def world(self) -> Satisfaction:  # type: ignore[override] - elsewhere an attribute of the class
        """The users."""
        return self.settings.world

    @property
    def feedback(self) -> tuple[bool, ...]:  # type: ignore[override] - as above
        """For each platform, true if it sees clicks and engagement."""
        return self.settings.sees

    @property
    @override
    def sizes_of_model(self):
        s = self.settings
        networks = {"network": s.local, "joined by": s.federated_network, "faults": s.all_faults}
        return {**super().sizes_of_model, **networks, "reward scale": s.reward_scale, "centred": s.centred}

    # -- the critic --------------------------------------------------------------------------------------------------

    @abc.abstractmethod
    def values_of(
        self,
        weights: Float[Array, " weights"],
        user: Float[Array, "*rows user_features"],
        items: Float[Array, "*rows candidates item_features"],
    ) -> Float[Array, "*rows candidates"]:
        """Values of clicks on candidates by a platform's own weights.

        Args:
            weights: The platform's.
            user: Features of the user.
            items: Features of the candidates.
        """

    @abc.abstractmethod
    def target(
        self,
        values: Float[Array, " candidates"],
        row: Transition,
        after: Transition,
        choice: Float[Array, "2"],
        mean: Float[Array, ""],
    ) -> Float[Array, ""]:
        """Target of the value of the click of a transition.

        Args:
            values: Joint values of the target networks at ``after``.
            row: The transition.
            after: The one after it.
            choice: The learnt choice model.
            mean: Mean engagement of the platform, which is subtracted.
        """

    @abc.abstractmethod
    def loss(
        self,
        values: Float[Array, "transitions candidates"],
        batch: Transition,
        targets: Float[Array, " transitions"],
        choice: Float[Array, "2"],
        feedback: Bool[Array, ""],
    ) -> Float[Array, ""]:
        """The loss of a batch.

        Args:
            values: Joint values.
            batch: The transitions, leaves [B, ...].
            targets: What they were worth.
            choice: The learnt choice model.
            feedback: Whether the platform sees clicks.
        """

    @abc.abstractmethod
    def step_weights(
        self, weights: Float[Array, " weights"], optimiser: optax.OptState, gradient: Float[Array, " weights"]
    ) -> tuple[Float[Array, " weights"], optax.OptState]:
        """Weights and optimiser after a gradient by the weights; one that is not finite changes nothing."""

    # -- the same for all --------------------------------------------------------------------------------------------

    @override
    def first_state(self, key, number):
        return first_platform_state(self.settings, key, number)

    @override
    def first_view(self, own, observed, documents):
        return empty_view(self.settings)._replace(observed=observed, documents=documents)

    @override
    def next_view(self, own, turn, observed, documents, over):
        return next_view(self.settings, own, turn, observed, documents, over)

    @override
    def pool_views(self, views):
        s = self.settings
        if not s.central or s.platforms == 1:
            return views
        features = jax.vmap(partial(own_features, s))(views)
        others = [jnp.concatenate([features[q] for q in range(s.platforms) if q != p]) for p in range(s.platforms)]
        return views._replace(others=jnp.stack(others))

    @override
    def record(self, own, turn, number, over):
        return finish_round(self.settings, own, turn, number, over)[0]

    @override
    def values(self, own: PlatformState):
        s = self.settings
        return self.values_of(own.weights, user_features(s, own.view), item_features(s, own.view))

    @override
    def join_values(self, shared, values, key):
        noise = self.settings.noise
        sent = values if noise is None else noise.apply(values, noise.draw(key, values.shape))
        return federated_values(self.settings, shared, sent)

    @override
    def best(self, own: PlatformState, values: Any):
        s = self.settings
        return best_slate(s, own.choice, user_features(s, own.view), item_features(s, own.view), values)


@dataclass(frozen=True)
class SlateQ(ValueLearner):
    """FedSlate's critic: Q-values of items by networks, one-step targets, Huber's loss, Adam."""

    name = "slateq"

    @override
    def values_of(self, weights, user, items):
        local = self.settings.local
        if user.ndim == 1:
            return local.values(weights, user, items)
        if user.ndim == 2:
            return local.of_batch(weights, user, items)
        return jax.vmap(self.values_of, in_axes=(None, 0, 0))(weights, user, items)

    @override
    def target(self, values, row, after, choice, mean):
        """Equation 13."""
        s = self.settings
        v, none = choice_scores(s, choice, after.user, after.items)
        worth = next_value(s.target, v, values, none, s.world.slate, after.slate)
        return row.engagement - mean + s.discount * (1.0 - row.over) * worth

    @override
    def loss(self, values, batch, targets, choice, feedback):
        """Equation 14 of a platform with feedback, equation 15 of one without."""
        s = self.settings

        def of_transition(q, row, target):
            v, none = choice_scores(s, choice, row.user, row.items)
            slate = row.slate if s.regress == "shown" else best_slate(s, choice, row.user, row.items, q)
            slate = jax.lax.stop_gradient(slate)
            expected = huber(slate_value(v, q, slate, none) - target)  # (15)
            clicked = jnp.where(row.item >= 0, huber(q[row.item] - target), 0.0)  # (14)
            return jnp.where(feedback, clicked, expected)

        return jnp.mean(jax.vmap(of_transition)(values, batch, targets))

    @override
    def step_weights(self, weights, optimiser, gradient):
        return adam_step(self.settings, weights, optimiser, gradient)
