"""Computations of a platform of FedSlate: features for its networks, a slate, a row of its replay buffer.

The choice model that a platform with feedback learns from clicks: a multinomial logit of two parameters.

Item i of the slate A has the logit β k_i, where k_i is its kaleness, and no click has the logit c:
P(i | A) = exp(β k_i) / (exp(c) + Σ_A exp(β k_j)). A constant in all items' logits would change c alone: there is none.
The log-likelihood of clicks is concave in (β, c), and each step goes up its gradient. Its curvature is the covariance
of (k, 1 if none) under the model, at most ½ for kaleness in [0, 1], so that a rate below 4 always climbs on one batch.

SlateQ assumes a choice model that is known; one like this is easily learnt from responses (Deng et al. 2024, IV-A).

What a platform of the published FedSlate sees: its choice model, past slates and numbers of items.
"""

from __future__ import annotations

from jaxtyping import Bool, Float, Int

from fedrank.core.arrays import AnyArray as Array
from fedrank.core.lazy import jax, jnp
from fedrank.slates.fedslate.settings import Slates
from fedrank.slates.fedslate.state import PlatformState, Transition, View, empty_view
from fedrank.slates.fedslate_2024 import Fault
from fedrank.slates.world.best_slate import OPTIMISERS
from fedrank.slates.world.satisfaction import Turn

#: Factors that give a uniform feature, and the noise of 0.1 on the observed satisfaction, a variance of 1.
_ITEM_SCALE, _USER_SCALE = 12**0.5, 10.0
#: Rounds over which the mean engagement fades.
_MEAN_ROUNDS = 5000.0
#: Rounds before the user leaves over which the two features of the clock rise by a factor of e.
_CLOCKS = (2.5, 7.0)


# -- features --------------------------------------------------------------------------------------------------------


def own_features(s: Slates, view: View) -> Float[Array, " own_features"]:
    """Features of a platform's own knowledge of the user."""
    observed = view.observed if s.has(Fault.RAW_FEATURES) else _USER_SCALE * (view.observed - 0.5)
    if s.has(Fault.SHORT_MEMORY):
        return jnp.stack([observed, *view.past.reshape(-1), *clock_features(s, view)])
    return jnp.stack([observed, _USER_SCALE * view.smooth, view.consumed, view.engaged, *clock_features(s, view)])


def clock_features(s: Slates, view: View) -> list[Float[Array, ""]]:
    """Nearness of the end of the stay, e^(−left/2.5) and e^(−left/7), 1 in the last round; empty without a clock."""
    if not s.clock:
        return []
    left = jnp.maximum(s.world.rounds_per_episode - 1 - view.into, 0).astype(jnp.float32)
    return [jnp.exp(-left / rounds) for rounds in _CLOCKS]


def user_features(s: Slates, view: View) -> Float[Array, " user_features"]:
    """The features of the user that a platform's network gets; centrally, what the other platforms know included."""
    return jnp.concatenate([own_features(s, view), view.others])


def item_features(s: Slates, view: View) -> Float[Array, "candidates item_features"]:
    """The features of the candidates that a platform's network gets."""
    features = view.documents if s.has(Fault.RAW_FEATURES) else (view.documents - 0.5) * _ITEM_SCALE
    return with_numbers(features, view.first) if s.has(Fault.ITEM_NUMBERS) else features[:, None]


def kaleness_of(s: Slates, items: Float[Array, "*shape item_features"]) -> Float[Array, "*shape"]:
    """The kaleness of candidates, in [0, 1], from their features."""
    return items[..., 0] if s.has(Fault.RAW_FEATURES) else items[..., 0] / _ITEM_SCALE + 0.5


def scale_engagement(s: Slates, turn: Turn) -> Float[Array, ""]:
    """Engagement as it is learnt from."""
    return turn.engagement / s.reward_scale  # type: ignore[operator] - resolved


# -- slates ----------------------------------------------------------------------------------------------------------


def choice_scores(
    s: Slates,
    learnt: Float[Array, "2"],
    user: Float[Array, " user_features"],
    items: Float[Array, "candidates item_features"],
) -> tuple[Float[Array, " candidates"], Float[Array, ""]]:
    """The agents' choice model: unnormalised scores v(s, i) of each candidate, and v(s, ⊥) of no click.

    Args:
        s: Settings.
        learnt: The choice model that was learnt: slope, logit of no click.
        user: Features of the user.
        items: Features of the candidates.
    """
    kaleness = kaleness_of(s, items)
    if s.choice == "published":
        observed = user[0] if s.has(Fault.RAW_FEATURES) else user[0] / _USER_SCALE + 0.5
        return published_choice_scores(observed, kaleness)
    if s.choice == "learned":
        return fitted_choice_scores(learnt, kaleness, s.world.choice.always_clicks)
    none = s.world.choice.no_click  # type: ignore[attr-defined] - multinomial, checked
    return jnp.exp(s.world.appeal(kaleness)), jnp.float32(0.0) if none is None else jnp.exp(jnp.float32(none))


def best_slate(
    s: Slates,
    learnt: Float[Array, "2"],
    user: Float[Array, " user_features"],
    items: Float[Array, "candidates item_features"],
    values: Float[Array, " candidates"],
) -> Int[Array, " slots"]:
    """The best slate by the values of its candidates (equation 8); arguments as :func:`choice_scores`."""
    v, none = choice_scores(s, learnt, user, items)
    return OPTIMISERS.get(s.optimiser)(v, values, s.world.slate, none)


# -- what a round leaves ---------------------------------------------------------------------------------------------


def next_view(
    s: Slates,
    own: PlatformState,
    turn: Turn,
    observed: Float[Array, ""],
    documents: Float[Array, " candidates"],
    over: Bool[Array, ""] | bool,
) -> View:
    """A platform's view after a round.

    Args:
        s: Settings.
        own: The platform's state in the round: view, slate and choice model.
        turn: What came of its slate; a platform without feedback uses nothing of it.
        observed: The satisfaction that it observes now.
        documents: The feature of each candidate now.
        over: Whether another user has come.
    """
    view = own.view
    v, _ = choice_scores(s, own.choice, user_features(s, view), item_features(s, view))
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
        past=past_after(view.past, turn.slot, engagement) if s.has(Fault.SHORT_MEMORY) else view.past,
        documents=documents,
        first=view.first + s.world.candidates,
    )
    fresh = empty_view(s)._replace(observed=observed, documents=documents, first=after.first)
    return jax.tree.map(lambda new, old: jnp.where(over, new, old), fresh, after)


def transition_of(s: Slates, own: PlatformState, turn: Turn, over: Bool[Array, ""]) -> Transition:
    """The row of the replay buffer for a round; arguments as :func:`next_view`."""
    told = own.feedback
    ends = jnp.where(told, not s.has(Fault.ENDLESS_EPISODE), True) * over
    return Transition(
        user=user_features(s, own.view),
        items=item_features(s, own.view),
        slate=own.slate,
        item=jnp.where(told, turn.item, -1),
        slot=jnp.where(told, turn.slot, s.world.slate),
        engagement=jnp.where(told, scale_engagement(s, turn), 0.0),
        over=ends.astype(jnp.float32),
    )


def remember(s: Slates, own: PlatformState, row: Transition, number: Int[Array, ""]) -> PlatformState:
    """The platform's state with the transition of round ``number`` in its replay buffer."""
    place = number % s.memory  # type: ignore[operator] - resolved
    return own._replace(replay=jax.tree.map(lambda kept, new: kept.at[place].set(new), own.replay, row))


def finish_round(
    s: Slates, own: PlatformState, turn: Turn, number: Int[Array, ""], over: Bool[Array, ""]
) -> tuple[PlatformState, Transition]:
    """The platform's state once it is known what came of its slate, and the transition that it remembers.

    Args:
        s: Settings.
        own: The platform's state in the round.
        turn: What came of its slate; a platform without feedback uses nothing of it.
        number: Number of the round.
        over: Whether the episode ended with it, as far as the platform knows.
    """
    row = transition_of(s, own, turn, over)
    return remember(s, own, row, number)._replace(rounds=number + 1, mean=_mean_after(s, own, turn)), row


def _mean_after(s: Slates, own: PlatformState, turn: Turn) -> Float[Array, ""]:
    """The mean engagement with one round more: of all rounds at first, fading later."""
    if not s.centred:
        return own.mean
    rate = jnp.maximum(1.0 / (own.rounds + 1.0), 1.0 / _MEAN_ROUNDS)
    return own.mean + jnp.where(own.feedback, rate * (scale_engagement(s, turn) - own.mean), 0.0)


def fitted_choice_scores(
    params: Float[Array, "2"], kaleness: Float[Array, " candidates"], clickless: bool = False
) -> tuple[Float[Array, " candidates"], Float[Array, ""]]:
    """Choice fitted_choice_scores of candidates, and of no click, scaled so that the largest is 1; only ratios matter.

    Args:
        params: β and c.
        kaleness: Of each candidate, in [0, 1].
        clickless: The user always clicks: no click has the score 0.
    """
    logits = params[0] * kaleness
    most = jnp.max(logits) if clickless else jnp.maximum(jnp.max(logits), params[1])
    return jnp.exp(logits - most), jnp.zeros_like(most) if clickless else jnp.exp(params[1] - most)


def log_likelihood(
    params: Float[Array, "2"],
    kaleness: Float[Array, "rows slots"],
    slots: Int[Array, " rows"],
    clickless: bool = False,
    where: Bool[Array, " rows"] | None = None,
) -> Float[Array, ""]:
    """Mean log-probability of what was clicked; 0 if no row counts.

    Args:
        params: β and c.
        kaleness: Of the slates' items.
        slots: The slot that was clicked; n: none.
        clickless: The user always clicks; rows without a click do not count.
        where: Rows that count; all if None.
    """
    rows, n = kaleness.shape
    logits = params[0] * kaleness
    counted = jnp.ones(rows, bool) if where is None else where
    if clickless:
        counted = counted & (slots < n)
    else:
        logits = jnp.concatenate([logits, jnp.broadcast_to(params[1], (rows, 1))], axis=1)
    seen = jnp.where(counted, slots, 0)[:, None]
    each = jnp.take_along_axis(jax.nn.log_softmax(logits, axis=1), seen, axis=1)[:, 0]
    return jnp.sum(jnp.where(counted, each, 0.0)) / jnp.maximum(jnp.sum(counted), 1)


def fit_step(
    params: Float[Array, "2"],
    kaleness: Float[Array, "rows slots"],
    slots: Int[Array, " rows"],
    rate: float,
    clickless: bool = False,
    where: Bool[Array, " rows"] | None = None,
) -> Float[Array, "2"]:
    """One step of size ``rate`` up the gradient of :func:`log_likelihood`; the other arguments as there."""
    return params + rate * jax.grad(log_likelihood)(params, kaleness, slots, clickless, where)


def published_choice_scores(
    observed: Float[Array, ""], kaleness: Float[Array, " candidates"]
) -> tuple[Float[Array, " candidates"], Float[Array, ""]]:
    """The published choice model (slateq.py): softmax over [observed · feature, 1].

    Args:
        observed: What the platform sees of the user's satisfaction.
        kaleness: The feature of each candidate, in [0, 1].

    Returns:
        The score of each candidate, and of no click.
    """
    v = jax.nn.softmax(jnp.append(observed * kaleness, 1.0))
    return v[:-1], v[-1]


def past_after(
    past: Float[Array, "slates slots"], slot: Int[Array, ""], engagement: Float[Array, ""]
) -> Float[Array, "slates slots"]:
    """Engagement by slot of the last slates, newest first, with one slate more; ``slot`` is the clicked one."""
    row = jnp.where(jnp.arange(past.shape[1]) == slot, engagement, 0.0)
    return jnp.concatenate([row[None], past[:-1]])


def with_numbers(features: Float[Array, " candidates"], first: Int[Array, ""]) -> Float[Array, "candidates 2"]:
    """Features of candidates beside their numbers, which count up from ``first``."""
    numbers = (first + jnp.arange(features.shape[0])).astype(jnp.float32)
    return jnp.stack([features, numbers], axis=1)
