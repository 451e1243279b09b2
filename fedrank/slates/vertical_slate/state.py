"""What platforms of FedSlate and their coordinator keep, and what a platform makes of what it sees."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fedrank.slates.learners import choice_fit
from fedrank.slates.learners.slate_choice import OPTIMISERS
from fedrank.slates.vertical_slate.settings import PAST, SlateSettings
from fedrank.slates.world.satisfaction import Turn

#: What makes a uniform feature one of variance 1, and the noise of 0.1 on the satisfaction.
_ITEM_SCALE, _USER_SCALE = 12**0.5, 10.0
#: Rounds that a mean engagement is mostly of.
_MEAN_OF = 5000.0
#: How much of a trace is left after a round, of two ticks with the world's memory discount of 0.9.
_FADES = 0.81


class View(NamedTuple):
    """What one platform knows of the user it serves, and the candidates that it can show now.

    Attributes:
        observed: float32, what it sees of the satisfaction.
        smooth: float32, the same smoothed over the episode.
        consumed: float32, fading sum of the feature of what was clicked here; without feedback, of what its own
            choice model expects of the slates that it showed.
        engaged: float32, fading mean of scaled engagement here; 0 without feedback.
        past: float32 [5, n], engagement by slot of the last slates, newest first; zeros without feedback.
        documents: float32 [N], the feature of each candidate.
        first: int32, number of the first candidate: numbers count up for ever.
        others: float32 [(K − 1) · features], what the others know; empty unless everything is seen centrally.
    """

    observed: Any
    smooth: Any
    consumed: Any
    engaged: Any
    past: Any
    documents: Any
    first: Any
    others: Any


class Moment(NamedTuple):
    """One round at one platform, as it remembers it.

    Attributes:
        user: float32 [F].
        items: float32 [N, d].
        slate: int32 [n], what it showed.
        item: int32, the candidate that was clicked, −1: none, or it was not told.
        slot: int32, its place; n: none.
        engagement: float32, scaled; 0 where it was not told.
        over: float32, 1 if the episode ended there.
    """

    user: Any
    items: Any
    slate: Any
    item: Any
    slot: Any
    engagement: Any
    over: Any


class PlatformOwn(NamedTuple):
    """What a platform has for itself.

    Attributes:
        number: int32.
        feedback: bool.
        weights: float32 [P], its Q-network.
        target: float32 [P], its target network.
        optimiser: State of its Adam.
        choice: float32 [2], the choice model that it has learnt or was told.
        view: :class:`View`.
        slate: int32 [n], what it shows in this round.
        memory: :class:`Moment` with a leading axis of moments: a ring, round r at r mod its length.
        rounds: int32, rounds so far.
        mean: float32, mean of the scaled engagement so far, the last thousands of rounds counting most; 0 without
            feedback or centring.
        ages: uint32 [B], the batch that is being learnt from.
    """

    number: Any
    feedback: Any
    weights: Any
    target: Any
    optimiser: Any
    choice: Any
    view: View
    slate: Any
    memory: Moment
    rounds: Any
    mean: Any
    ages: Any


class CoordinatorState(NamedTuple):
    """What the coordinator has.

    Attributes:
        round: uint32, rounds so far.
        key: Of its own chance, which moments to learn from.
        ages: uint32 [B].
        weights: float32 [H], the federated network Ω.
        target: float32 [H], its target network.
        optimiser: State of its Adam.
        values: float32 [K, N], Q-values of the round.
        batch: float32 [K, B, N], Q-values of the batch; of a platform that has learnt from it the new ones.
        following: float32 [K, B, N], the target networks' one round later.
        targets: float32 [K, B].
        slopes: float32 [K, B, N]; empty unless targets move.
        gradient: float32 [K, B, N], what goes back to the platforms.
        choice: float32 [2].
        told: bool, somebody has formed targets for this batch: without them nobody learns.
        compared: bool [K], whose gradients of this batch have come.
    """

    round: Any
    key: Any
    ages: Any
    weights: Any
    target: Any
    optimiser: Any
    values: Any
    batch: Any
    following: Any
    targets: Any
    slopes: Any
    gradient: Any
    choice: Any
    told: Any
    compared: Any


def empty_view(s: SlateSettings) -> View:
    """Of a user who has just come, with nothing to show yet."""
    zero, others = jnp.float32(0.0), (s.user_features - s.user_features // s.platforms) if s.central else 0
    return View(
        zero, zero, zero, zero,
        past=jnp.zeros((PAST, s.world.slate) if s.faults.past else (0, 0), jnp.float32),
        documents=jnp.zeros(s.world.candidates, jnp.float32),
        first=jnp.int32(0),
        others=jnp.zeros(others, jnp.float32),
    )  # fmt: skip


def own_features(s: SlateSettings, view: View) -> jax.Array:
    """What a platform itself knows of the user: float32 vector."""
    observed = view.observed if s.faults.raw else _USER_SCALE * (view.observed - 0.5)
    if s.faults.past:
        return jnp.concatenate([observed[None], view.past.reshape(-1)])
    return jnp.stack([observed, _USER_SCALE * view.smooth, view.consumed, view.engaged])


def user_of(s: SlateSettings, view: View) -> jax.Array:
    """All that a platform's network is told of the user: float32 [F]."""
    return jnp.concatenate([own_features(s, view), view.others])


def items_of(s: SlateSettings, view: View) -> jax.Array:
    """What a platform's network is told of the candidates: float32 [N, d]."""
    features = view.documents if s.faults.raw else (view.documents - 0.5) * _ITEM_SCALE
    if not s.faults.ids:
        return features[:, None]
    numbers = (view.first + jnp.arange(s.world.candidates)).astype(jnp.float32)
    return jnp.stack([features, numbers], axis=1)


def kaleness_of(s: SlateSettings, items: jax.Array) -> jax.Array:
    """The feature of candidates, in [0, 1], from what networks are told of them: [..., N] of [..., N, d]."""
    return items[..., 0] if s.faults.raw else items[..., 0] / _ITEM_SCALE + 0.5


def choice_scores(s: SlateSettings, learnt: jax.Array, user: jax.Array, items: jax.Array) -> tuple[Any, Any]:
    """The agents' choice model: unnormalised v(s, i) of each candidate, float32 [N], and v(s, ⊥).

    Args:
        s: Settings.
        learnt: float32 [2].
        user: float32 [F].
        items: float32 [N, d].
    """
    kaleness = kaleness_of(s, items)
    if (
        s.choice == "published"
    ):  # slateq.py: softmax over [observed · feature, 1]: a click that these users never refuse
        observed = user[0] if s.faults.raw else user[0] / _USER_SCALE + 0.5
        logits = jnp.append(observed * kaleness, 1.0)
        v = jax.nn.softmax(logits)
        return v[:-1], v[-1]
    if s.choice == "learned":
        return choice_fit.scores(learnt, kaleness, s.world.choice.always_clicks)
    none = s.world.choice.no_click  # type: ignore[attr-defined] - multinomial, checked
    return jnp.exp(s.world.appeal(kaleness)), jnp.float32(0.0) if none is None else jnp.exp(jnp.float32(none))


def chosen_slate(s: SlateSettings, learnt: jax.Array, user: jax.Array, items: jax.Array, values: jax.Array):
    """The best slate by its values, int32 [n]."""
    v, none = choice_scores(s, learnt, user, items)
    return OPTIMISERS.get(s.optimiser)(v, values, s.world.slate, none)


def seen_next(s: SlateSettings, own: PlatformOwn, turn: Turn, observed: Any, documents: Any, over: Any) -> View:
    """A platform's view after a round.

    Args:
        s: Settings.
        own: What it had before.
        turn: What came of its slate; a platform without feedback looks at nothing of it.
        observed: float32, what it sees of the satisfaction now.
        documents: float32 [N], the candidates now.
        over: bool, whether another user has come.
    """
    view, n = own.view, s.world.slate
    v, _ = choice_scores(s, own.choice, user_of(s, view), items_of(s, view))
    shown = v[own.slate]
    expected = jnp.sum(shown * view.documents[own.slate]) / jnp.sum(shown) - 0.5
    clicked = jnp.where(turn.item >= 0, view.documents[turn.item] - 0.5, 0.0)
    engagement = jnp.where(own.feedback, turn.engagement / s.reward_scale, 0.0)
    past = view.past
    if s.faults.past:
        row = jnp.where(jnp.arange(n) == turn.slot, engagement, 0.0)
        past = jnp.concatenate([row[None], past[:-1]])
    after = view._replace(
        observed=observed,
        smooth=_FADES * view.smooth + (1 - _FADES) * (observed - 0.5),
        consumed=_FADES * view.consumed + jnp.where(own.feedback, clicked, expected),
        engaged=_FADES * view.engaged + (1 - _FADES) * (engagement - 1.0) * own.feedback,
        past=past,
        documents=documents,
        first=view.first + s.world.candidates,
    )
    fresh = empty_view(s)._replace(observed=observed, documents=documents, first=after.first)
    return jax.tree.map(lambda new, old: jnp.where(over, new, old), fresh, after)


def moment_of(s: SlateSettings, own: PlatformOwn, turn: Turn, over: Any) -> Moment:
    """What a platform remembers of a round; arguments as of :func:`seen_next`."""
    told = own.feedback
    ends = jnp.where(told, not s.faults.endless, True) * over
    return Moment(
        user=user_of(s, own.view),
        items=items_of(s, own.view),
        slate=own.slate,
        item=jnp.where(told, turn.item, -1),
        slot=jnp.where(told, turn.slot, s.world.slate),
        engagement=jnp.where(told, turn.engagement / s.reward_scale, 0.0),
        over=ends.astype(jnp.float32),
    )


def mean_after(s: SlateSettings, own: PlatformOwn, turn: Turn) -> jax.Array:
    """The mean engagement with one round more: of all rounds at first, fading later."""
    if not s.centred:
        return own.mean
    rate = jnp.maximum(1.0 / (own.rounds + 1.0), 1.0 / _MEAN_OF)
    return own.mean + jnp.where(own.feedback, rate * (turn.engagement / s.reward_scale - own.mean), 0.0)


def moments(own: PlatformOwn, ages: jax.Array) -> Moment:
    """Moments of a platform's memory by their age in rounds: leaves [B, ...]."""
    length = own.memory.item.shape[0]
    return jax.tree.map(lambda leaf: leaf[(own.rounds - 1 - ages.astype(jnp.int32)) % length], own.memory)
