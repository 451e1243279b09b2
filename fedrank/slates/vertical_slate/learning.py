"""The exchanges of FedSlate in which platforms learn, in their order; the equations are in ``vertical_slate.py``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp

from fedrank.core.messages import Layout
from fedrank.core.protocol import Party
from fedrank.slates.learners import choice_fit, replay
from fedrank.slates.vertical_slate import messages as m
from fedrank.slates.vertical_slate.acting import SlateExchange, rows_heard
from fedrank.slates.vertical_slate.state import (
    CoordinatorState,
    PlatformOwn,
    kaleness_of,
    moments,
)

if TYPE_CHECKING:
    from fedrank.slates.vertical_slate import VerticalSlate

#: Step size of the learnt choice model, whose gradients are of the mean log-likelihood of a batch.
_CHOICE_RATE = 0.05


@dataclass(frozen=True)
class Batch(SlateExchange):
    """The coordinator says which moments, everybody values its candidates at them."""

    p: VerticalSlate

    name = "batch"
    request = property(lambda self: m.moments_layout(self.shape[0]))
    reply = property(lambda self: m.batch_values_layout(*self.shape))

    def due(self, number: Any) -> Any:
        """At the end of some rounds."""
        return self.learns(number)

    def ask(self, state: CoordinatorState) -> m.Moments:
        """Uniform without replacement among those that everybody still remembers, but for the newest."""
        kept = jnp.minimum(state.round.astype(jnp.int32), self.s.memory)
        key = jax.random.fold_in(state.key, state.round)
        ages = 1 + replay.indices(key, kept - 1, self.s.batch)
        return m.Moments(state.round, ages.astype(jnp.uint32))

    def draw(self, key: Any) -> Any:
        """Noise on two vectors of N values a moment."""
        return self._noise(key, 2, self.shape[0])

    def draw_from_os(self) -> Any:
        """The same for a real platform."""
        return self._noise(None, 2, self.shape[0])

    def respond(self, request: m.Moments, party: Party, draws: Any) -> tuple[Party, m.BatchValues]:
        """Q(s) and Q̄(s′)."""
        own: PlatformOwn = party.own
        then, after = moments(own, request.ages), moments(own, request.ages - 1)
        values = self.p.local(own.weights, then.user, then.items)
        following = self.p.local(own.target, after.user, after.items)
        values, following = self._sent(jnp.stack([values, following]), draws)
        return party._replace(own=own._replace(ages=request.ages)), m.BatchValues(values, following)

    def tell(self, state: CoordinatorState, replies: m.BatchValues, arrived: Any) -> CoordinatorState:
        """Keep them."""
        return state._replace(
            batch=rows_heard(replies.values, arrived), following=rows_heard(replies.following, arrived)
        )


@dataclass(frozen=True)
class FormTargets(SlateExchange):
    """Platforms with feedback say what their moments were worth."""

    p: VerticalSlate

    name = "targets"
    personal = True
    request = property(lambda self: m.following_layout(*self.shape))

    @property
    def reply(self) -> Layout:
        """Targets; where they move, how."""
        return m.moving_targets_layout(*self.shape) if self.s.faults.moving_targets else m.targets_layout(self.shape[0])

    def due(self, number: Any) -> Any:
        """As the batch."""
        return self.learns(number)

    def asked(self, state: CoordinatorState, parties: int) -> Any:
        """Those with feedback."""
        return None if all(self.s.feedback) else jnp.asarray(self.s.feedback)

    def most(self, parties: int) -> int:
        """So many."""
        return sum(self.s.feedback)

    def following(self, state: CoordinatorState, following: Any) -> jax.Array:
        """Q̄_f(s′) of all platforms, [K, B, N]: Ω's target network of Q̄(s′).

        The others' part is of their target networks at the same later moment. In the published code it is of their
        online networks at the moment itself.
        """
        theirs = state.batch if self.s.faults.online_others else following

        def of_platform(p):
            return self.p.joint(state.target, following[p], self.p.others_of(theirs, p))

        return jax.vmap(of_platform)(jnp.arange(self.s.platforms))

    def ask(self, state: CoordinatorState) -> m.Following:
        """The federated target network's values."""
        return m.Following(self.following(state, state.following))

    def respond(self, request: m.Following, party: Party, draws: Any) -> tuple[Party, Any]:
        """Equation 13, and a step of the choice model."""
        own, s = party.own, self.s
        then, after = moments(own, own.ages), moments(own, own.ages - 1)
        learnt = own.choice
        if s.choice == "learned":
            shown = jnp.take_along_axis(kaleness_of(s, then.items), then.slate, axis=1)
            learnt = choice_fit.fit_step(learnt, shown, then.slot, _CHOICE_RATE, s.world.choice.always_clicks)
            own = own._replace(choice=learnt)

        def target(values, then, after):
            return self.p.target_of(values, then, after, learnt, own.mean)

        party = party._replace(own=own)
        if not s.faults.moving_targets:
            return party, m.Targets(jax.vmap(target)(request.values, then, after), learnt)
        targets, slopes = jax.vmap(jax.value_and_grad(target))(request.values, then, after)
        return party, m.TargetsThatMove(targets, learnt, slopes)

    def tell(self, state: CoordinatorState, replies: Any, arrived: Any) -> CoordinatorState:
        """What each platform is to compare with: its own target, or the mean; who has none, the mean."""
        finite = jnp.all(jnp.isfinite(replies.targets), axis=1) & jnp.all(jnp.isfinite(replies.choice), axis=1)
        heard = arrived & jnp.asarray(self.s.feedback) & finite
        count = jnp.sum(heard)

        def mean(rows):
            return jnp.sum(jnp.where(heard[:, None], rows, 0.0), axis=0) / jnp.maximum(count, 1)

        alone = heard & (self.s.objective == "own")
        state = state._replace(
            targets=jnp.where(alone[:, None], replies.targets, mean(replies.targets)[None]),
            choice=jnp.where(count > 0, mean(replies.choice), state.choice),
            told=count > 0,
            compared=jnp.zeros_like(state.compared),
        )
        if self.s.faults.moving_targets:
            state = state._replace(slopes=rows_heard(replies.slopes, heard))
        return state


@dataclass(frozen=True)
class Compare(SlateExchange):
    """One platform compares federated values with targets; Ω learns from it.

    Attributes:
        platform: Which.
    """

    p: VerticalSlate
    platform: int

    name = "compare"
    request = property(lambda self: m.compare_layout(*self.shape))

    @property
    def moves(self) -> bool:
        """Whether the loss has to pass through the targets, too."""
        return self.s.faults.moving_targets and not self.s.feedback[self.platform]

    @property
    def reply(self) -> Layout:
        """A gradient; where targets move, by them as well."""
        return (m.moving_gradient_layout if self.moves else m.value_gradient_layout)(*self.shape)

    def due(self, number: Any) -> Any:
        """As the batch."""
        return self.learns(number)

    def asked(self, state: CoordinatorState, parties: int) -> Any:
        """The platform, where there are targets."""
        return (jnp.arange(parties) == self.platform) & state.told

    def most(self, parties: int) -> int:
        """One."""
        return 1

    def ask(self, state: CoordinatorState) -> m.Compare:
        """Equation 9 or 10, with what the platforms before have learnt from this batch."""
        p = self.platform
        values = self.p.joint(state.weights, state.batch[p], self.p.others_of(state.batch, p))
        return m.Compare(values, state.targets[p], state.choice)

    def respond(self, request: m.Compare, party: Party, draws: Any) -> tuple[Party, Any]:
        """The gradient of equation 14 or 15 by the federated values."""
        own: PlatformOwn = party.own
        learnt = jnp.where(own.feedback, own.choice, request.choice)  # who sees no click is told what others learnt
        batch = moments(own, own.ages)
        slopes = jax.grad(self.p.loss, argnums=(0, 2))(request.values, batch, request.targets, learnt, own.feedback)
        party = party._replace(own=own._replace(choice=learnt))
        return party, m.GradientThatMoves(*slopes) if self.moves else m.ValueGradient(slopes[0])

    def tell(self, state: CoordinatorState, replies: Any, arrived: Any) -> CoordinatorState:
        """Ω's step, and what goes back to the platform."""
        p, gradient = self.platform, replies.gradient[self.platform]
        heard = arrived[p] & jnp.all(jnp.isfinite(gradient))
        gradient = jnp.where(heard, gradient, 0.0)
        others = self.p.others_of(state.batch, p)
        _, back = jax.vjp(lambda weights, own: self.p.joint(weights, own, others), state.weights, state.batch[p])
        by_weights, by_values = back(gradient)
        if self.moves:
            by_values = by_values + self._through_targets(state, rows_heard(replies.by_targets, arrived)[p])
        weights, optimiser = self.p.stepped(state.weights, state.optimiser, by_weights)
        weights = jnp.where(heard, weights, state.weights)
        optimiser = jax.tree.map(lambda new, old: jnp.where(heard, new, old), optimiser, state.optimiser)
        back_to = state.gradient.at[p].set(by_values)
        compared = state.compared.at[p].set(heard)
        return state._replace(weights=weights, optimiser=optimiser, gradient=back_to, compared=compared)

    def _through_targets(self, state: CoordinatorState, by_targets: Any) -> jax.Array:
        """The published code's: targets hold this platform's online values, so that its loss moves them as well.

        Args:
            state: The coordinator's.
            by_targets: float32 [B], the loss's gradient by the targets, which are means over platforms with feedback.
        """
        s, p = self.s, self.platform
        told = [a for a in s.order if s.feedback[a]]

        def targets_values(mine):
            values = state.batch.at[p].set(mine)
            return [self.p.joint(state.target, state.following[a], self.p.others_of(values, a)) for a in told]

        _, back = jax.vjp(targets_values, state.batch[p])
        return back([by_targets[:, None] * state.slopes[a] / len(told) for a in told])[0]


@dataclass(frozen=True)
class Step(SlateExchange):
    """One platform learns from what came back through Ω.

    Attributes:
        platform: Which.
        last: Nobody learns from the batch after it, so that nobody needs its new values.
    """

    p: VerticalSlate
    platform: int
    last: bool

    name = "step"
    request = property(lambda self: m.back_layout(*self.shape))

    @property
    def reply(self) -> Layout:
        """New values, where they are needed."""
        return m.done_layout() if self.last else m.new_values_layout(*self.shape)

    def due(self, number: Any) -> Any:
        """As the batch."""
        return self.learns(number)

    def asked(self, state: CoordinatorState, parties: int) -> Any:
        """The platform, if its gradient has come."""
        return (jnp.arange(parties) == self.platform) & state.compared[self.platform]

    def most(self, parties: int) -> int:
        """One."""
        return 1

    def ask(self, state: CoordinatorState) -> m.ValueGradient:
        """The gradient by the platform's own values."""
        return m.ValueGradient(state.gradient[self.platform])

    def draw(self, key: Any) -> Any:
        """Noise on a vector of N values a moment."""
        return () if self.last else self._noise(key, self.shape[0])

    def draw_from_os(self) -> Any:
        """The same for a real platform."""
        return () if self.last else self._noise(None, self.shape[0])

    def respond(self, request: m.ValueGradient, party: Party, draws: Any) -> tuple[Party, Any]:
        """A step of Adam; the new values."""
        own: PlatformOwn = party.own
        batch = moments(own, own.ages)
        _, back = jax.vjp(lambda weights: self.p.local(weights, batch.user, batch.items), own.weights)
        weights, optimiser = self.p.stepped(own.weights, own.optimiser, back(request.gradient)[0])
        party = party._replace(own=own._replace(weights=weights, optimiser=optimiser))
        if self.last:
            return party, m.Done()
        return party, m.NewValues(self._sent(self.p.local(weights, batch.user, batch.items), draws))

    def tell(self, state: CoordinatorState, replies: Any, arrived: Any) -> CoordinatorState:
        """Who learns next sees the new values as the others'."""
        if self.last:
            return state
        new, p = replies.values[self.platform], self.platform
        fine = arrived[p] & jnp.all(jnp.isfinite(new))
        return state._replace(batch=state.batch.at[p].set(jnp.where(fine, new, state.batch[p])))


@dataclass(frozen=True)
class Copy(SlateExchange):
    """Now and then everybody copies its network to its target network; nothing crosses."""

    p: VerticalSlate

    name = "copy"
    silent = True  # type: ignore[assignment]
    request = property(lambda self: m.turn_layout())
    reply = property(lambda self: m.done_layout())

    def due(self, number: Any) -> Any:
        """Every so many rounds; what everybody counts by itself."""
        return (number + 1) % self.s.copy_every == 0

    def ask(self, state: CoordinatorState) -> m.Turn:
        """Not sent."""
        return m.Turn(state.round)

    def respond(self, request: m.Turn, party: Party, draws: Any) -> tuple[Party, m.Done]:
        """θ̄ ← θ."""
        return party._replace(own=party.own._replace(target=party.own.weights)), m.Done()

    def tell(self, state: CoordinatorState, replies: m.Done, arrived: Any) -> CoordinatorState:
        """Ω̄ ← Ω."""
        return state._replace(target=state.weights)
