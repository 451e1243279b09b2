"""The exchanges of FedSlate whose replies are summed in secret: see the package for how they differ.

What a platform computes from values is the same as where the coordinator sees them; what it sends, and what it is
told, is not. Ω is evaluated at the platforms.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, Int32
from typing_extensions import override

from fedrank.core.arrays import PyTree
from fedrank.core.messages import Layout
from fedrank.privacy.quantise import clip_to_norm
from fedrank.privacy.secure_sum.extra_messages import extra_messages
from fedrank.slates.fedslate.acting import Look, Recommend
from fedrank.slates.fedslate.equations import (
    adam_step,
    joint_values,
    others_in_sum,
)
from fedrank.slates.fedslate.learning import Batch, FormTargets, LearningExchange
from fedrank.slates.fedslate.messages import (
    BatchSum,
    BatchSummands,
    Done,
    GradientSummands,
    NextValueSum,
    TargetSummands,
    ValueSum,
    ValueSummands,
)
from fedrank.slates.fedslate.secure_sum import SecureSum, length, total
from fedrank.slates.fedslate.settings import SlateSettings
from fedrank.slates.fedslate.state import PlatformState, transitions


class SummedReplies:
    """What exchanges have in common whose replies are summed in secret; comes before the exchange they extend."""

    settings: SlateSettings
    reply: Layout

    @property
    def sums(self) -> SecureSum:
        """Settings of the secure sums."""
        assert self.settings.secure_sum is not None
        return self.settings.secure_sum

    def extra_messages(self, parties: int) -> tuple[tuple[str, str, Layout], ...]:
        """What else crosses so that the replies are summed in secret."""
        return extra_messages(length(self.reply), parties) if self.reply.fields else ()

    def drawn(self, draws: PyTree) -> Int32[Array, "..."] | None:
        """Noise in steps as an exchange drew it; None without any."""
        noise = self.settings.noise
        return None if noise is None or noise.epsilon is None else draws


@dataclass(frozen=True)
class SummedLook(SummedReplies, Look, reply=ValueSummands):
    """Every platform values its candidates; the coordinator sees the sum."""

    @override
    def respond(self, request, party, draws):
        own: PlatformState = party.own
        values = self.learner.values(own)
        now = self.sums.values_grid(self.settings.noise).integers(values, self.drawn(draws))
        assert own.sent is not None  # platforms of a secure sum remember what they sent
        return party._replace(own=own._replace(sent=own.sent._replace(now=now))), ValueSummands(now)

    @override
    def tell(self, state, replies, arrived: Bool[Array, " platforms"]):
        return state._replace(values=total(replies.values, arrived), complete=jnp.all(arrived))


@dataclass(frozen=True)
class SummedRecommend(SummedReplies, Recommend, request=ValueSum):
    """Every platform is sent the sum and Ω, joins its own values with the others', and shows a slate; users act."""

    personal = False

    @override
    def ask(self, state):
        return ValueSum(state.round, _flag(state.complete), state.values, state.weights)

    @override
    def respond(self, request, party, draws):
        s, own = self.settings, party.own
        others = others_in_sum(s, self.sums, request.total, own.sent.now, request.complete)
        joint = joint_values(s, request.weights, self.learner.values(own), others)
        return party._replace(own=self.shown(own, request.round, joint, draws)), Done()


@dataclass(frozen=True)
class SummedBatch(SummedReplies, Batch, reply=BatchSummands):
    """The coordinator says which transitions to learn from; it sees sums of Q(s) and of Q̄(s′)."""

    @override
    def respond(self, request, party, draws):
        own: PlatformState = party.own
        grid = self.sums.values_grid(self.settings.noise)
        values, following = grid.integers(self.batch_values(own, request.ages), self.drawn(draws))
        assert own.sent is not None  # as above
        sent = own.sent._replace(batch=values, following=following)
        return party._replace(own=own._replace(ages=request.ages, sent=sent)), BatchSummands(values, following)

    @override
    def tell(self, state, replies, arrived: Bool[Array, " platforms"]):
        values, following = total(replies.values, arrived), total(replies.following, arrived)
        return state._replace(batch=values, following=following, learnable=jnp.all(arrived))


@dataclass(frozen=True)
class SummedTargets(SummedReplies, FormTargets, request=NextValueSum):
    """Platforms with feedback form targets; the coordinator sees their sum, if any platform needs another's."""

    personal = False

    @property
    @override
    def reply(self) -> Layout:
        return self.layout(TargetSummands if self.settings.shares_targets else Done)

    @override
    def asked(self, state, parties):
        return None

    @override
    def max_asked(self, parties):
        return parties

    @override
    def ask(self, state):
        return NextValueSum(_flag(state.learnable), state.following, state.target)

    @override
    def respond(self, request, party, draws):
        own, s = party.own, self.settings
        after = transitions(own, own.ages - s.steps)
        others = others_in_sum(s, self.sums, request.total, own.sent.following, request.complete)
        mine = self.learner.values_of(own.target, after.user, after.items)
        formed = self.formed(own, joint_values(s, request.weights, mine, others))
        told = own.feedback & (request.complete > 0)
        # A platform without feedback has learnt nothing of choices: it keeps what it was told, and adds nothing.
        choice = jnp.where(told, formed.choice, own.choice)
        targets = jnp.where(told, formed.targets, 0.0)
        party = party._replace(own=own._replace(choice=choice, sent=own.sent._replace(targets=targets)))
        if not s.shares_targets:
            return party, Done()
        grid = self.sums.targets_grid
        return party, TargetSummands(grid.integers(targets), grid.integers(jnp.where(told, choice, 0.0)))

    @override
    def tell(self, state, replies, arrived: Bool[Array, " platforms"]):
        learnable = state.learnable & jnp.all(arrived)
        if not self.settings.shares_targets:
            return state._replace(learnable=learnable)
        grid, count = self.sums.targets_grid, sum(self.settings.feedback)
        return state._replace(
            targets=grid.mean(total(replies.targets, arrived), count),
            choice=grid.mean(total(replies.choice, arrived), count),
            learnable=learnable,
        )


@dataclass(frozen=True)
class SummedLearn(SummedReplies, LearningExchange, request=BatchSum, reply=GradientSummands):
    """Every platform learns from the batch; the coordinator sees the sum of the gradients by Ω, and Ω takes a step."""

    name = "learn"

    @override
    def ask(self, state):
        return BatchSum(_flag(state.learnable), state.batch, state.weights, state.targets, state.choice)

    @override
    def respond(self, request, party, draws):
        s, own, there = self.settings, party.own, request.complete > 0
        batch = transitions(own, own.ages)
        others = others_in_sum(s, self.sums, request.total, own.sent.batch, request.complete)
        alone = own.feedback & (s.objective == "own")
        targets = jnp.where(alone, own.sent.targets, request.targets)
        learnt = jnp.where(own.feedback | ~there, own.choice, request.choice)

        def of_weights(weights, head):
            values = joint_values(s, head, self.learner.values_of(weights, batch.user, batch.items), others)
            return self.learner.loss(values, batch, targets, learnt, own.feedback)

        by_own, by_head = jax.grad(of_weights, argnums=(0, 1))(own.weights, request.weights)
        weights, optimiser = self.learner.stepped(own.weights, own.optimiser, by_own)
        after = own._replace(weights=weights, optimiser=optimiser, choice=learnt)
        after = jax.tree.map(lambda new, old: new if new is old else jnp.where(there, new, old), after, own)
        by_head = jnp.where(there, clip_to_norm(by_head, self.sums.gradient_clip, "l2", jnp), 0.0)
        return party._replace(own=after), GradientSummands(self.sums.gradient_grid.integers(by_head))

    @override
    def tell(self, state, replies, arrived: Bool[Array, " platforms"]):
        gradient = self.sums.gradient_grid.mean(total(replies.gradient, arrived), 1)
        weights, optimiser = adam_step(self.settings, state.weights, state.optimiser, gradient)
        heard = state.learnable & jnp.all(arrived)
        keep = lambda new, old: jnp.where(heard, new, old)  # noqa: E731
        optimiser = jax.tree.map(keep, optimiser, state.optimiser)
        return state._replace(weights=keep(weights, state.weights), optimiser=optimiser)


def _flag(complete: Any) -> Int[Array, ""]:
    return jnp.asarray(complete, jnp.int32)
