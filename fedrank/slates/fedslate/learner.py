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
from fedrank.slates.fedslate.choice_model import fitted_choice_scores
from fedrank.slates.fedslate.settings import Slates
from fedrank.slates.fedslate.state import PlatformState, Transition, View, empty_view, first_platform_state
from fedrank.slates.learner import SlateLearner
from fedrank.slates.world.best_slate import OPTIMISERS, next_value, slate_value
from fedrank.slates.world.satisfaction import Satisfaction, Turn

#: Factors that give a uniform feature, and the noise of 0.1 on the observed satisfaction, a variance of 1.
_ITEM_SCALE, USER_SCALE = 12**0.5, 10.0
#: Rounds over which the mean engagement fades.
_MEAN_ROUNDS = 5000.0
#: Rounds before the user leaves over which the two features of the clock rise by a factor of e.
_CLOCKS = (2.5, 7.0)


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
        networks = {"network": s.local, "joined by": s.federated_network}
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

    # -- what networks see -------------------------------------------------------------------------------------------

    def own_features(self, view: View) -> Float[Array, " own_features"]:
        """Features of a platform's own knowledge of the user."""
        known = (USER_SCALE * (view.observed - 0.5), USER_SCALE * view.smooth, view.consumed, view.engaged)
        return jnp.stack([*known, *clock_features(self.settings, view)])

    def user_features(self, view: View) -> Float[Array, " user_features"]:
        """Features of the user that a platform's network gets; centrally, what the other platforms know included."""
        return jnp.concatenate([self.own_features(view), view.others])

    def item_features(self, view: View) -> Float[Array, "candidates item_features"]:
        """Features of the candidates that a platform's network gets."""
        return ((view.documents - 0.5) * _ITEM_SCALE)[:, None]

    def kaleness_of(self, items: Float[Array, "*shape item_features"]) -> Float[Array, "*shape"]:
        """The kaleness of candidates, in [0, 1], from their features."""
        return items[..., 0] / _ITEM_SCALE + 0.5

    def choice_scores(
        self,
        learnt: Float[Array, "2"],
        user: Float[Array, " user_features"],
        items: Float[Array, "candidates item_features"],
    ) -> tuple[Float[Array, " candidates"], Float[Array, ""]]:
        """The agents' choice model: unnormalised scores v(s, i) of each candidate, and v(s, ⊥) of no click.

        Args:
            learnt: The choice model that was learnt: slope, logit of no click.
            user: Features of the user.
            items: Features of the candidates.
        """
        s, kaleness = self.settings, self.kaleness_of(items)
        if s.choice == "learned":
            return fitted_choice_scores(learnt, kaleness, s.world.choice.always_clicks)
        none = s.world.choice.no_click  # type: ignore[attr-defined] - multinomial, checked
        return jnp.exp(s.world.appeal(kaleness)), jnp.float32(0.0) if none is None else jnp.exp(jnp.float32(none))

    def best_slate(
        self,
        learnt: Float[Array, "2"],
        user: Float[Array, " user_features"],
        items: Float[Array, "candidates item_features"],
        values: Float[Array, " candidates"],
    ) -> Int[Array, " slots"]:
        """The best slate by the values of its candidates (equation 8); arguments as :meth:`choice_scores`."""
        v, none = self.choice_scores(learnt, user, items)
        return OPTIMISERS.get(self.settings.optimiser)(v, values, self.settings.world.slate, none)

    # -- the same for all --------------------------------------------------------------------------------------------

    @override
    def first_state(self, key, number):
        return first_platform_state(self.settings, key, number)

    @override
    def first_view(self, own, observed, documents):
        return empty_view(self.settings)._replace(observed=observed, documents=documents)

    @override
    def next_view(self, own, turn, observed, documents, over):
        s, view = self.settings, own.view
        v, _ = self.choice_scores(own.choice, self.user_features(view), self.item_features(view))
        shown = v[own.slate]
        expected = jnp.sum(shown * view.documents[own.slate]) / jnp.sum(shown) - 0.5
        clicked = jnp.where(turn.item >= 0, view.documents[turn.item] - 0.5, 0.0)
        engagement = jnp.where(own.feedback, scale_engagement(s, turn), 0.0)
        after = view._replace(
            observed=observed,
            smooth=s.fade * view.smooth + (1 - s.fade) * (observed - 0.5),
            consumed=s.fade * view.consumed + jnp.where(own.feedback, clicked, expected),
            engaged=s.fade * view.engaged + (1 - s.fade) * (engagement - 1.0) * own.feedback,
            into=view.into + 1,
            documents=documents,
        )
        fresh = empty_view(s)._replace(observed=observed, documents=documents)
        return jax.tree.map(lambda new, old: jnp.where(over, new, old), fresh, after)

    @override
    def pool_views(self, views):
        s = self.settings
        if not s.central or s.platforms == 1:
            return views
        features = jax.vmap(self.own_features)(views)
        others = [jnp.concatenate([features[q] for q in range(s.platforms) if q != p]) for p in range(s.platforms)]
        return views._replace(others=jnp.stack(others))

    @override
    def record(self, own, turn, number, over):
        s, told = self.settings, own.feedback
        row = Transition(
            user=self.user_features(own.view),
            items=self.item_features(own.view),
            slate=own.slate,
            item=jnp.where(told, turn.item, -1),
            slot=jnp.where(told, turn.slot, s.world.slate),
            engagement=jnp.where(told, scale_engagement(s, turn), 0.0),
            over=over.astype(jnp.float32),
        )
        place = number % s.memory
        replay = jax.tree.map(lambda kept, new: kept.at[place].set(new), own.replay, row)
        return own._replace(replay=replay, rounds=number + 1, mean=_mean_after(s, own, turn))

    @override
    def values(self, own: PlatformState):
        return self.values_of(own.weights, self.user_features(own.view), self.item_features(own.view))

    @override
    def join_values(self, shared, values, key):
        noise = self.settings.noise
        sent = values if noise is None else noise.apply(values, noise.draw(key, values.shape))
        return federated_values(self.settings, shared, sent)

    @override
    def best(self, own: PlatformState, values: Any):
        return self.best_slate(own.choice, self.user_features(own.view), self.item_features(own.view), values)


def clock_features(s: Slates, view: View) -> list[Float[Array, ""]]:
    """Nearness of the end of the stay, e^(−left/2.5) and e^(−left/7), 1 in the last round; empty without a clock."""
    if not s.clock:
        return []
    left = jnp.maximum(s.world.rounds_per_episode - 1 - view.into, 0).astype(jnp.float32)
    return [jnp.exp(-left / rounds) for rounds in _CLOCKS]


def scale_engagement(s: Slates, turn: Turn) -> Float[Array, ""]:
    """Engagement as it is learnt from."""
    return turn.engagement / s.reward_scale


def _mean_after(s: Slates, own: PlatformState, turn: Turn) -> Float[Array, ""]:
    """The mean engagement with one round more: of all rounds at first, fading later."""
    if not s.centred:
        return own.mean
    rate = jnp.maximum(1.0 / (own.rounds + 1.0), 1.0 / _MEAN_ROUNDS)
    return own.mean + jnp.where(own.feedback, rate * (scale_engagement(s, turn) - own.mean), 0.0)


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
        v, none = self.choice_scores(choice, after.user, after.items)
        worth = next_value(s.target, v, values, none, s.world.slate, after.slate)
        return row.engagement - mean + s.discount * (1.0 - row.over) * worth

    @override
    def loss(self, values, batch, targets, choice, feedback):
        """Equation 14 of a platform with feedback, equation 15 of one without."""
        s = self.settings

        def of_transition(q, row, target):
            v, none = self.choice_scores(choice, row.user, row.items)
            slate = row.slate if s.regress == "shown" else self.best_slate(choice, row.user, row.items, q)
            slate = jax.lax.stop_gradient(slate)
            expected = huber(slate_value(v, q, slate, none) - target)  # (15)
            clicked = jnp.where(row.item >= 0, huber(q[row.item] - target), 0.0)  # (14)
            return jnp.where(feedback, clicked, expected)

        return jnp.mean(jax.vmap(of_transition)(values, batch, targets))

    @override
    def step_weights(self, weights, optimiser, gradient):
        return adam_step(self.settings, weights, optimiser, gradient)
