"""FedSlate: platforms that share users recommend together (Deng et al., arXiv 2409.14872, 2024).

Platform α sees what users click and how they engage; platform β sees nothing of it. A coordinator has a network Ω that
joins the Q-values of both. In a round every platform shows one slate::

    look       β and α value their candidates by their own networks, Q_β(s_β) and Q_α(s_α)
    recommend  Q_f^α = Ω([Q_α ‖ Q_β]), Q_f^β = Ω([Q_β ‖ Q_α])                           (9, 10; one's own comes first)
               each shows the slate that is best by its federated values                (8), or a random one; users act

and every so many rounds they learn from moments that both remember::

    batch      Q_α(s), Q̄_α(s′) and Q_β(s), Q̄_β(s′) of the same B moments
    targets    α:  y = r + γ (1 − d) max_A Σ_{j∈A} P(j | s′, A) Q̄_f^α(s′, j)            (13)
    compare    α:  L = mean of Huber(Q_f^α(s, clicked) − y), its gradient by Q_f^α      (14)
               Ω steps; the gradient by Q_α goes back
    step       α steps, and sends Q_α(s) anew
    compare    β:  L = mean of Huber(Σ_{i∈A} P(i | s, A) Q_f^β(s, i) − y)               (15; A: the best slate by Q_f^β)
               Ω steps again; the gradient by Q_β goes back
    step       β steps

In Ω's input the others' values are constants (11, 12). Bars are target networks, copied every so many rounds. With more
platforms than two, "the others" are the mean of them. In the *extended* algorithm (Section IV-B, for sparse team
rewards) all platforms have feedback and do as α does.

Equation 15 fits the value of β's *best* slate to what α's *shown* slate was worth. Where α explores much, that pushes
down whatever β thinks best, until β thinks nothing; it holds only where α shows good slates.

The paper says nothing of how gradients pass from Ω to the platforms and back; its code holds all networks in one
process. Here they are messages, and every step is taken by whoever owns the network.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import optax

from fedrank.core.protocol import Exchange, Party, Promise, Protocol
from fedrank.privacy.unprotected import Unprotected
from fedrank.slates.learners import choice_fit
from fedrank.slates.learners.slate_choice import slate_value
from fedrank.slates.learners.slateq import huber, next_value
from fedrank.slates.vertical_slate.acting import Look, Recommend
from fedrank.slates.vertical_slate.learning import Batch, Compare, Copy, FormTargets, Step
from fedrank.slates.vertical_slate.settings import SlateSettings
from fedrank.slates.vertical_slate.state import (
    CoordinatorState,
    Moment,
    PlatformOwn,
    choice_scores,
    chosen_slate,
    empty_view,
    items_of,
    user_of,
)
from fedrank.slates.vertical_slate.visits import Greedy
from fedrank.slates.world.rollout import rollout

_SEEN = "Q-values, targets and gradients of Q-values, as they are."
_CUT = "Q-values, cut to a range but without noise; targets and gradients of Q-values, as they are."
_WORDS = (
    "No feature of a candidate or a user, no click, no engagement and no weight of a local network leaves a platform.",
    "A target is an engagement and what is expected after it, and a gradient is other than 0 where a click was: who "
    "receives them learns much of both. How much is measured by: fedrank attack slates.",
)


@dataclass(frozen=True)
class VerticalSlate(Protocol):
    """FedSlate.

    Attributes:
        settings: What everybody agrees on.
        silent: Nothing crosses: networks of single platforms, Ω does nothing. For baselines.
    """

    settings: SlateSettings
    silent: bool = False

    name = "vertical-slate"

    def __post_init__(self):
        self.settings.size_checked()

    @property
    def exchanges(self) -> tuple[Exchange, ...]:
        """A round's exchanges; those after the second are due where there is a batch to learn from."""
        s = self.settings
        # By itself, a platform without feedback has nothing to learn from.
        order = tuple(p for p in s.order if s.feedback[p] or not self.silent)
        learning = (
            exchange
            for place, p in enumerate(order)
            for exchange in (Compare(self, p), Step(self, p, place == len(order) - 1))
        )
        return Look(self), Recommend(self), Batch(self), FormTargets(self), *learning, Copy(self)

    @cached_property
    def adam(self) -> optax.GradientTransformation:
        """The optimiser of each network; all have the same step size, as in the published code."""
        return optax.adam(self.settings.learning_rate)

    def stepped(self, weights: Any, optimiser: Any, gradient: Any) -> tuple[Any, Any]:
        """New weights and state of Adam; gradients that are not finite change nothing."""
        step, after = self.adam.update(gradient, optimiser, weights)
        fine = jnp.all(jnp.isfinite(gradient))
        keep = lambda new, old: jnp.where(fine, new, old)  # noqa: E731
        return keep(optax.apply_updates(weights, step), weights), jax.tree.map(keep, after, optimiser)

    def init(self, key: Any) -> CoordinatorState:
        """A fresh Ω; ``key`` is consumed."""
        s = self.settings
        k, b, n = s.platforms, s.batch, s.world.candidates
        weights_key, own = jax.random.split(key)
        weights = s.head.init(weights_key)
        zeros = lambda *shape: jnp.zeros(shape, jnp.float32)  # noqa: E731
        return CoordinatorState(
            round=jnp.uint32(0),
            key=own,
            ages=jnp.ones(b, jnp.uint32),
            weights=weights,
            target=weights,
            optimiser=self.adam.init(weights),
            values=zeros(k, n),
            batch=zeros(k, b, n),
            following=zeros(k, b, n),
            targets=zeros(k, b),
            slopes=zeros(k, b, n) if s.faults.moving_targets else zeros(0),
            gradient=zeros(k, b, n),
            choice=choice_fit.initial(),
            told=jnp.bool_(False),
            compared=jnp.zeros(k, bool),
        )

    def platform(self, key: Any, number: Any) -> PlatformOwn:
        """What a platform has before it has met a user.

        Args:
            key: Consumed; makes its network.
            number: Which platform it is, from 0.
        """
        s = self.settings
        weights, view = s.local.init(key), empty_view(s)
        row = Moment(
            user_of(s, view),
            items_of(s, view),
            jnp.zeros(s.world.slate, jnp.int32),
            *(jnp.int32(0), jnp.int32(0), jnp.float32(0), jnp.float32(0)),
        )
        return PlatformOwn(
            number=jnp.int32(number),
            feedback=jnp.asarray(s.feedback)[number],
            weights=weights,
            target=weights,
            optimiser=self.adam.init(weights),
            choice=choice_fit.initial(),
            view=view,
            slate=row.slate,
            memory=jax.tree.map(lambda leaf: jnp.zeros((s.memory, *leaf.shape), leaf.dtype), row),
            rounds=jnp.int32(0),
            mean=jnp.float32(0),
            ages=jnp.ones(s.batch, jnp.uint32),
        )

    def parties(self, keys: Any) -> Party:
        """All platforms of several runs: leaves of ``own`` are [runs, K, ...].

        Args:
            keys: Typed keys [runs].
        """
        numbers = jnp.arange(self.settings.platforms)

        def of_run(key):
            return jax.vmap(lambda number: self.platform(jax.random.fold_in(key, number), number))(numbers)

        return Party(None, jax.vmap(of_run)(keys))

    def weights(self, state: CoordinatorState) -> jax.Array:
        """Ω."""
        return state.weights

    def evaluated(self, states: CoordinatorState, own: PlatformOwn, keys: Any) -> jax.Array:
        """Returns of fresh episodes without exploration: float32 [runs, E, K].

        Args:
            states: The coordinator's, [runs, ...].
            own: What the platforms have, [runs, K, ...].
            keys: Typed keys [runs, E].
        """

        def of_run(weights, own, keys):
            policy = Greedy(self, weights, own)
            return jax.vmap(lambda key: jnp.sum(rollout(self.settings.world, policy, key).engagement, axis=0))(keys)

        return jax.vmap(of_run)(states.weights, own, keys)

    def watch(self, state: CoordinatorState) -> dict[str, Any]:
        """The mean target of the last batch, of the first platform with feedback."""
        return {"target": jnp.mean(state.targets[jnp.asarray(self.settings.order[0])])}

    def account(self, rounds: int, delta: float) -> Promise:
        """What noise on Q-values promises; without it, and for targets and gradients, nothing is promised."""
        s = self.settings
        if s.central:
            return Unprotected(rounds, "Everything that any platform knows of a user, as it is: every learner sees it.")
        if self.silent:
            return Unprotected(rounds, "Nothing crosses.")
        if s.noise is None or s.noise.epsilon is None:
            return Unprotected(rounds, _SEEN if s.noise is None else _CUT, _WORDS)
        return s.noise.account(
            rounds,
            delta,
            candidates=s.world.candidates,
            platforms=s.platforms,
            batch=s.batch,
            learn_every=s.learn_every,
            burn_in=s.burn_in,
            memory=s.memory,
            episode_rounds=s.world.rounds_per_episode,
        )

    # -- what the coordinator computes ----------------------------------------------------------------------------

    def others_of(self, values: Any, platform: Any) -> jax.Array:
        """What Ω is told of the others (the second place of equations 9 and 10): [..., N] of values [K, ..., N]."""
        s = self.settings
        others = (jnp.sum(values, axis=0) - values[platform]) / max(1, s.platforms - 1)
        if s.others == "pooled":
            others = jnp.broadcast_to(jnp.mean(others, axis=-1, keepdims=True), others.shape)
        return others

    def joint(self, weights: Any, own: Any, others: Any) -> jax.Array:
        """Ω of moments: [..., N] of values [..., N]."""
        if own.ndim == 1:
            return self.settings.head.values(weights, own, others)
        return jax.vmap(self.joint, in_axes=(None, 0, 0))(weights, own, others)

    def acting(self, weights: Any, values: Any) -> jax.Array:
        """Federated values of all platforms in a round, [K, N] of [K, N]: equations 9 and 10."""
        numbers = jnp.arange(self.settings.platforms)
        return jax.vmap(lambda p: self.joint(weights, values[p], self.others_of(values, p)))(numbers)

    def played(self, weights: Any, values: Any, key: Any) -> jax.Array:
        """The same of values as they cross, clipped and with the noise of ``key``: what slates are made by."""
        noise = self.settings.noise
        if noise is not None and not self.silent:
            values = noise.applied(values, noise.draw(key, values.shape))
        return self.acting(weights, values)

    # -- what a platform computes ---------------------------------------------------------------------------------

    def local(self, weights: Any, user: Any, items: Any) -> jax.Array:
        """Q-values of moments: [..., N]."""
        if user.ndim == 1:
            return self.settings.local.values(weights, user, items)
        return jax.vmap(self.local, in_axes=(None, 0, 0))(weights, user, items)

    def target_of(self, values: Any, then: Moment, after: Moment, learnt: Any, mean: Any) -> jax.Array:
        """Equation 13 of one moment.

        Args:
            values: float32 [N], the federated target network's values one round later.
            then: The moment.
            after: The next.
            learnt: float32 [2], the learnt choice model.
            mean: float32, what is taken off engagement.
        """
        s = self.settings
        v, none = choice_scores(s, learnt, after.user, after.items)
        worth = next_value(s.target, v, values, none, s.world.slate, after.slate)
        return then.engagement - mean + s.discount * (1.0 - then.over) * worth

    def loss(self, values: Any, batch: Moment, targets: Any, learnt: Any, feedback: Any) -> jax.Array:
        """Equation 14 of a platform with feedback, equation 15 of one without.

        Args:
            values: float32 [B, N], federated values.
            batch: The moments.
            targets: float32 [B].
            learnt: float32 [2].
            feedback: bool.
        """
        s = self.settings

        def of_moment(q, moment, target):
            v, none = choice_scores(s, learnt, moment.user, moment.items)
            there = s.regress == "shown"
            slate = moment.slate if there else chosen_slate(s, learnt, moment.user, moment.items, q)
            slate = jax.lax.stop_gradient(slate)
            expected = huber(slate_value(v, q, slate, none) - target)  # (15)
            clicked = jnp.where(moment.item >= 0, huber(q[moment.item] - target), 0.0)  # (14)
            return jnp.where(feedback, clicked, expected)

        return jnp.mean(jax.vmap(of_moment)(values, batch, targets))
