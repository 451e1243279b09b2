"""The exchanges of pooled FedSlate, in the order in which they take place: see ``vertical_slate_pooled.py``.

What a platform does with values is FedSlate's own; what it sends, and what the coordinator is told of it, is not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp

from fedrank.core.messages import Layout
from fedrank.core.protocol import Encounter, Party
from fedrank.privacy.quantise import clip_to_norm
from fedrank.privacy.secure_sum.carriers import carriers
from fedrank.slates.learners import replay
from fedrank.slates.vertical_slate import messages as m
from fedrank.slates.vertical_slate.acting import Coin, Recommend, SlateExchange
from fedrank.slates.vertical_slate.learning import Copy, FormTargets
from fedrank.slates.vertical_slate.pooled import messages as pm
from fedrank.slates.vertical_slate.pooled.state import PooledOwn, PooledState, PooledVisits, summed
from fedrank.slates.vertical_slate.state import (
    moments,
)

if TYPE_CHECKING:
    from fedrank.slates.vertical_slate.pooled import PooledSlate


class PooledExchange(SlateExchange):
    """What all exchanges of pooled FedSlate have in common."""

    p: PooledSlate  # type: ignore[assignment] - a VerticalSlate of its own kind

    @property
    def head(self) -> int:
        """H."""
        return self.s.head.size

    def _masked(self, layout: Layout, parties: int) -> tuple[tuple[str, str, Layout], ...]:
        """What else crosses so that replies of this layout are summed in secret."""
        return carriers(pm.length(layout), parties)


def _inner(party: Party) -> Party:
    """The platform as FedSlate knows it."""
    return Party(party.shared, party.own.platform)


def _outer(party: Party, inner: Party, **more: Any) -> Party:
    """The platform as it is here, after FedSlate's part of it has done something."""
    return party._replace(own=party.own._replace(platform=inner.own, **more))


@dataclass(frozen=True)
class PooledLook(PooledExchange):
    """Everybody values its candidates; the sum is seen."""

    p: PooledSlate

    name = "look"
    request = property(lambda self: m.turn_layout())
    reply = property(lambda self: pm.value_words_layout(self.shape[1]))

    def carriers(self, parties: int) -> tuple[tuple[str, str, Layout], ...]:
        """A secure sum's."""
        return self._masked(self.reply, parties)

    def ask(self, state: PooledState) -> m.Turn:
        """The round."""
        return m.Turn(state.round)

    def draw(self, key: Any) -> Any:
        """Noise on N values."""
        return self._noise(key)

    def draw_from_os(self) -> Any:
        """The same for a real platform."""
        return self._noise(None)

    def respond(self, request: m.Turn, party: Party, draws: Any) -> tuple[Party, pm.ValueWords]:
        """Q(s), and a note of what was sent."""
        words = self.p.values_grid.words(self.p.values_now(party.own.platform), self.p.noise_of(draws))
        return party._replace(own=party.own._replace(now=words)), pm.ValueWords(words)

    def tell(self, state: PooledState, replies: pm.ValueWords, arrived: Any) -> PooledState:
        """Keep the sum."""
        return state._replace(values=summed(replies.values, arrived), looked=jnp.all(arrived))


@dataclass(frozen=True)
class PooledRecommend(PooledExchange):
    """Everybody is sent the sum and Ω, joins its own values with the others', and shows a slate; the users act."""

    p: PooledSlate

    name = "recommend"
    request = property(lambda self: pm.value_sum_layout(self.shape[1], self.head))
    reply = property(lambda self: m.done_layout())

    @property
    def encounter(self) -> Encounter:  # type: ignore[override] - elsewhere an attribute of the class
        """Users come to each platform and look at its slate."""
        return PooledVisits(self.s)

    def ask(self, state: PooledState) -> pm.ValueSum:
        """The same for everybody."""
        return pm.ValueSum(state.round, _flag(state.looked), state.values, state.weights)

    def draw(self, key: Any) -> Coin:
        """A coin and a random slate."""
        return Recommend(self.p).draw(key)

    def draw_from_os(self) -> Coin:
        """The same for a real platform."""
        return Recommend(self.p).draw_from_os()

    def respond(self, request: pm.ValueSum, party: Party, draws: Coin) -> tuple[Party, m.Done]:
        """Equations 9 and 10 at the platform itself, and a slate as in FedSlate."""
        own: PooledOwn = party.own
        others = self.p.others_in(request.total, own.now, request.there)
        joint = self.p.joint(request.weights, self.p.values_now(own.platform), others)
        inner, done = Recommend(self.p).respond(m.SharedValues(request.round, joint), _inner(party), draws)
        return _outer(party, inner), done

    def tell(self, state: PooledState, replies: m.Done, arrived: Any) -> PooledState:
        """A round more."""
        return state._replace(round=state.round + 1)


@dataclass(frozen=True)
class PooledBatch(PooledExchange):
    """The coordinator says which moments, everybody values its candidates at them; sums are seen."""

    p: PooledSlate

    name = "batch"
    request = property(lambda self: m.moments_layout(self.shape[0]))
    reply = property(lambda self: pm.batch_words_layout(*self.shape))

    def carriers(self, parties: int) -> tuple[tuple[str, str, Layout], ...]:
        """A secure sum's."""
        return self._masked(self.reply, parties)

    def due(self, number: Any) -> Any:
        """At the end of some rounds."""
        return self.learns(number)

    def ask(self, state: PooledState) -> m.Moments:
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

    def respond(self, request: m.Moments, party: Party, draws: Any) -> tuple[Party, pm.BatchWords]:
        """Q(s) and Q̄(s′), and a note of what was sent."""
        own = party.own.platform
        then, after = moments(own, request.ages), moments(own, request.ages - 1)
        values = self.p.local(own.weights, then.user, then.items)
        following = self.p.local(own.target, after.user, after.items)
        values, following = self.p.values_grid.words(jnp.stack([values, following]), self.p.noise_of(draws))
        own = party.own._replace(platform=own._replace(ages=request.ages), batch=values, following=following)
        return party._replace(own=own), pm.BatchWords(values, following)

    def tell(self, state: PooledState, replies: pm.BatchWords, arrived: Any) -> PooledState:
        """Keep the sums."""
        values, following = summed(replies.values, arrived), summed(replies.following, arrived)
        return state._replace(batch=values, following=following, whole=jnp.all(arrived))


@dataclass(frozen=True)
class PooledTargets(PooledExchange):
    """Platforms with feedback form targets; the sum over them is seen, if anybody needs it."""

    p: PooledSlate

    name = "targets"
    request = property(lambda self: pm.following_sum_layout(self.shape[0], self.shape[1], self.head))

    @property
    def reply(self) -> Layout:
        """Targets; nothing where everybody has its own."""
        return pm.target_words_layout(self.shape[0]) if self.p.shares_targets else m.done_layout()

    def carriers(self, parties: int) -> tuple[tuple[str, str, Layout], ...]:
        """A secure sum's."""
        return self._masked(self.reply, parties) if self.p.shares_targets else ()

    def due(self, number: Any) -> Any:
        """As the batch."""
        return self.learns(number)

    def ask(self, state: PooledState) -> pm.FollowingSum:
        """The same for everybody."""
        return pm.FollowingSum(_flag(state.whole), state.following, state.target)

    def respond(self, request: pm.FollowingSum, party: Party, draws: Any) -> tuple[Party, Any]:
        """Equation 13, and a step of the choice model; who has no feedback adds nothing to the sum."""
        own: PooledOwn = party.own
        after = moments(own.platform, own.platform.ages - 1)
        others = self.p.others_in(request.total, own.following, request.there)
        mine = self.p.local(own.platform.target, after.user, after.items)
        joint = self.p.joint(request.weights, mine, others)
        inner, formed = FormTargets(self.p).respond(m.Following(joint), _inner(party), draws)
        told = own.platform.feedback & (request.there > 0)
        # Who has no feedback has learnt nothing of choices, and keeps what it was told.
        choice = jnp.where(told, formed.choice, own.platform.choice)
        targets = jnp.where(told, formed.targets, 0.0)
        inner = inner._replace(own=inner.own._replace(choice=choice))
        party = _outer(party, inner, targets=targets)
        if not self.p.shares_targets:
            return party, m.Done()
        grid = self.p.targets_grid
        return party, pm.TargetWords(grid.words(targets), grid.words(jnp.where(told, choice, 0.0)))

    def tell(self, state: PooledState, replies: Any, arrived: Any) -> PooledState:
        """The means over platforms with feedback."""
        whole = state.whole & jnp.all(arrived)
        if not self.p.shares_targets:
            return state._replace(whole=whole)
        grid, count = self.p.targets_grid, sum(self.s.feedback)
        return state._replace(
            targets=grid.mean(summed(replies.targets, arrived), count),
            choice=grid.mean(summed(replies.choice, arrived), count),
            whole=whole,
        )


@dataclass(frozen=True)
class PooledLearn(PooledExchange):
    """Everybody learns from the batch; the sum of the gradients by Ω is seen, and steps Ω."""

    p: PooledSlate

    name = "learn"
    request = property(lambda self: pm.learn_sum_layout(self.shape[0], self.shape[1], self.head))
    reply = property(lambda self: pm.gradient_words_layout(self.head))

    def carriers(self, parties: int) -> tuple[tuple[str, str, Layout], ...]:
        """A secure sum's."""
        return self._masked(self.reply, parties)

    def due(self, number: Any) -> Any:
        """As the batch."""
        return self.learns(number)

    def ask(self, state: PooledState) -> pm.LearnSum:
        """The same for everybody."""
        return pm.LearnSum(_flag(state.whole), state.batch, state.weights, state.targets, state.choice)

    def respond(self, request: pm.LearnSum, party: Party, draws: Any) -> tuple[Party, pm.GradientWords]:
        """Equation 14 or 15: a step of the platform's own Adam, and the gradient by Ω."""
        own: PooledOwn = party.own
        mine, there = own.platform, request.there > 0
        batch = moments(mine, mine.ages)
        others = self.p.others_in(request.total, own.batch, request.there)
        alone = mine.feedback & (self.s.objective == "own")
        targets = jnp.where(alone, own.targets, request.targets)
        learnt = jnp.where(mine.feedback | ~there, mine.choice, request.choice)

        def loss(weights, head):
            values = self.p.joint(head, self.p.local(weights, batch.user, batch.items), others)
            return self.p.loss(values, batch, targets, learnt, mine.feedback)

        by_own, by_head = jax.grad(loss, argnums=(0, 1))(mine.weights, request.weights)
        weights, optimiser = self.p.stepped(mine.weights, mine.optimiser, by_own)
        after = mine._replace(weights=weights, optimiser=optimiser, choice=learnt)
        after = jax.tree.map(lambda new, old: new if new is old else jnp.where(there, new, old), after, mine)
        by_head = jnp.where(there, clip_to_norm(by_head, self.p.gradient_clip, "l2", jnp), 0.0)
        words = self.p.gradient_grid.words(by_head)
        return party._replace(own=own._replace(platform=after)), pm.GradientWords(words)

    def tell(self, state: PooledState, replies: pm.GradientWords, arrived: Any) -> PooledState:
        """Ω's step."""
        gradient = self.p.gradient_grid.mean(summed(replies.gradient, arrived), 1)
        weights, optimiser = self.p.stepped(state.weights, state.optimiser, gradient)
        heard = state.whole & jnp.all(arrived)
        keep = lambda new, old: jnp.where(heard, new, old)  # noqa: E731
        optimiser = jax.tree.map(keep, optimiser, state.optimiser)
        return state._replace(weights=keep(weights, state.weights), optimiser=optimiser)


@dataclass(frozen=True)
class PooledCopy(PooledExchange):
    """Now and then everybody copies its network to its target network; nothing crosses."""

    p: PooledSlate

    name = "copy"
    silent = True  # type: ignore[assignment]
    request = property(lambda self: m.turn_layout())
    reply = property(lambda self: m.done_layout())

    def due(self, number: Any) -> Any:
        """Every so many rounds; what everybody counts by itself."""
        return Copy(self.p).due(number)

    def ask(self, state: PooledState) -> m.Turn:
        """Not sent."""
        return m.Turn(state.round)

    def respond(self, request: m.Turn, party: Party, draws: Any) -> tuple[Party, m.Done]:
        """θ̄ ← θ."""
        inner, done = Copy(self.p).respond(request, _inner(party), draws)
        return _outer(party, inner), done

    def tell(self, state: PooledState, replies: m.Done, arrived: Any) -> PooledState:
        """Ω̄ ← Ω."""
        return state._replace(target=state.weights)


def _flag(there: Any) -> jax.Array:
    return jnp.asarray(there, jnp.int32)
