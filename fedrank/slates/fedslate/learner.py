"""Learners that need other platforms' values of candidates in every round, and gradients of them: FedSlate's kind.

What such a critic is, are five functions of arrays (:class:`ValueLearner`): first weights, the values of a batch, the
target of a transition, the loss of a batch, and a step. State features, replay buffer, exploration, noise, and what
crosses are the same for all; see :class:`fedrank.slates.fedslate.FedSlate`. :class:`SlateQ` is the paper's.
"""

from __future__ import annotations

import abc
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float
from typing_extensions import override

from fedrank.core.lazy import optax
from fedrank.slates.fedslate import equations
from fedrank.slates.fedslate.platform import (
    best_slate,
    finish_round,
    item_features,
    next_view,
    own_features,
    user_features,
)
from fedrank.slates.fedslate.settings import SlateSettings
from fedrank.slates.fedslate.state import PlatformState, Transition, empty_view, first_platform_state
from fedrank.slates.learner import SlateLearner
from fedrank.slates.world.satisfaction import Satisfaction


@dataclass(frozen=True)
class ValueLearner(SlateLearner):
    """A learner whose platforms send values of candidates, and gradients by them; see the module.

    Attributes:
        settings: What everybody agrees on.
    """

    settings: SlateSettings

    @property
    def world(self) -> Satisfaction:  # type: ignore[override] - elsewhere an attribute of the class
        """The users."""
        return self.settings.world

    @property
    def feedback(self) -> tuple[bool, ...]:  # type: ignore[override] - as above
        """Whether each platform sees clicks and engagement."""
        return self.settings.feedback

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
        """What the click of a transition was worth.

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
    def stepped(
        self, weights: Float[Array, " weights"], optimiser: optax.OptState, gradient: Float[Array, " weights"]
    ) -> tuple[Float[Array, " weights"], optax.OptState]:
        """Weights and optimiser after a gradient by the weights; one that is not finite changes nothing."""

    # -- the same for all --------------------------------------------------------------------------------------------

    @override
    def first_state(self, key, number):
        return first_platform_state(self.settings, key, number)

    @override
    def greeted(self, own, observed, documents):
        return empty_view(self.settings)._replace(observed=observed, documents=documents)

    @override
    def view_after(self, own, turn, observed, documents, over):
        return next_view(self.settings, own, turn, observed, documents, over)

    @override
    def together(self, views):
        s = self.settings
        if not s.central or s.platforms == 1:
            return views
        features = jax.vmap(partial(own_features, s))(views)
        others = [jnp.concatenate([features[q] for q in range(s.platforms) if q != p]) for p in range(s.platforms)]
        return views._replace(others=jnp.stack(others))

    @override
    def remembered(self, own, turn, number, over):
        return finish_round(self.settings, own, turn, number, over)[0]

    @override
    def values(self, own: PlatformState):
        s = self.settings
        return self.values_of(own.weights, user_features(s, own.view), item_features(s, own.view))

    @override
    def joined(self, shared, values, key):
        return equations.federated_values_with_noise(self.settings, shared, values, key)

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
        return equations.local_values(self.settings, weights, user, items)

    @override
    def target(self, values, row, after, choice, mean):
        return equations.td_target(self.settings, values, row, after, choice, mean)

    @override
    def loss(self, values, batch, targets, choice, feedback):
        return equations.loss(self.settings, values, batch, targets, choice, feedback)

    @override
    def stepped(self, weights, optimiser, gradient):
        return equations.adam_step(self.settings, weights, optimiser, gradient)
