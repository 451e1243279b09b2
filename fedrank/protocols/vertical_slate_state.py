"""What platforms of FedSlate and their coordinator keep, and the settings that everything shares."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp

from fedrank.clicks.slate_choice import Multinomial
from fedrank.core.errors import ConfigError
from fedrank.learners import choice_fit
from fedrank.learners.slateq import TARGETS
from fedrank.learners.slates import OPTIMISERS
from fedrank.networks.slate_q import FederatedQ, LocalQ
from fedrank.privacy.value_noise import ValueNoise
from fedrank.worlds.satisfaction import Satisfaction, Turn

#: Numbers about the user that a platform remembers of an episode, beside what it sees of the satisfaction.
_TRACES = 3
#: Engagements that the published agents keep in their state (Section V-B: "the user's previous 5 engages").
PAST = 5
#: What makes a uniform feature one of variance 1, and the noise of 0.1 on the satisfaction.
_ITEM_SCALE, _USER_SCALE = 12**0.5, 10.0
#: Rounds that a mean engagement is mostly of.
_MEAN_OF = 5000.0
#: How much of a trace is left after a round, of two ticks with the world's memory discount of 0.9.
_FADES = 0.81


@dataclass(frozen=True)
class Exploration:
    """ε of round t: ``max(floor, start · decay^t)``, and 0 for good once that is below ``snap``.

    Attributes:
        start: ε of the first round, in [0, 1].
        decay: Factor a round, in (0, 1].
        floor: What ε does not fall below.
        snap: Below it, ε is 0; 0: never.
    """

    start: float = 0.1
    decay: float = 0.9995
    floor: float = 0.05
    snap: float = 0.0

    def __post_init__(self):
        if not (0 <= self.floor <= 1 and 0 <= self.start <= 1 and 0 < self.decay <= 1 and 0 <= self.snap <= 1):
            raise ConfigError(f"exploration must be of probabilities and a decay in (0, 1], got {self}.")

    def chance(self, round_: Any) -> jax.Array:
        """ε of a round."""
        falling = self.start * jnp.float32(self.decay) ** jnp.asarray(round_, jnp.float32)
        return jnp.where(falling < self.snap, 0.0, jnp.maximum(falling, self.floor))


@dataclass(frozen=True)
class Faults:
    """What the published code does and nobody should; all off by default.

    Attributes:
        ids: Document numbers, which count up for ever, are features of the candidates (trap of scale and of meaning).
        raw: Features are given to networks as they come, not centred and scaled. Where values start at 0 and have to
            grow, a feature that is never negative is learnt to be good before anything has been learnt from it.
        online_others: In the targets of equation 13 the others' part is of their online networks at the moment itself,
            not of their target networks one round later.
        moving_targets: Targets are no constants: the gradient of equation 15 passes through them, too.
        endless: A platform with feedback is never told that an episode is over.
        past: The state holds the last 5 slates' engagements instead of traces.
    """

    ids: bool = False
    raw: bool = False
    online_others: bool = False
    moving_targets: bool = False
    endless: bool = False
    past: bool = False


@dataclass(frozen=True)
class SlateSettings:
    """What platforms and coordinator agree on.

    Attributes:
        world: The users; of it platforms know N, n, and the choice model if ``choice`` is ``"true"``.
        local: Networks of the platforms, alike in shape.
        head: The federated network Ω.
        feedback: Which platforms see clicks and engagement; the paper's: the first only, its extension: all.
        discount: γ a round, in [0, 1].
        learning_rate: Step size of the three Adams.
        batch: B, moments in a batch.
        memory: Moments that a platform keeps.
        burn_in: Rounds before learning.
        learn_every: Rounds between two batches.
        copy_every: Rounds between copies to the target networks.
        exploration: ε.
        optimiser: How slates are put together, one of :data:`~fedrank.learners.slates.OPTIMISERS`.
        target: Which next slate a target is about, one of :data:`~fedrank.learners.slateq.TARGETS`.
        choice: The choice model of the agents: the users' own, a learnt one, or the published one.
        objective: ``own``: a target is about a platform's own engagement. ``team``: about the mean of all platforms
            that see theirs.
        others: ``aligned``: candidate i beside the others' candidate i. ``pooled``: one number, their mean.
        regress: Which slate of a platform without feedback has its value regressed: the best by its values (equation
            15), or the one that it showed.
        reward_scale: What engagement is divided by before it is learnt from.
        centred: What is learnt from is engagement less a platform's mean ("reward centring", Naik et al. 2024), so
            that values need not grow from 0 to r/(1 − γ), and with them everything that happens to be shown. Only where
            users always click: no click is worth 0.
        central: All platforms see what any sees: no federation, a bound.
        noise: What is done to Q-values before they leave a platform; None: nothing.
        faults: The published code's.

    Raises:
        ConfigError: A number out of range, or settings that contradict each other.
    """

    world: Satisfaction
    local: LocalQ
    head: FederatedQ
    feedback: tuple[bool, ...] = (True, False)
    discount: float = 0.9
    learning_rate: float = 1e-3
    batch: int = 32
    memory: int = 5000
    burn_in: int = 500
    learn_every: int = 3
    copy_every: int = 500
    exploration: Exploration = Exploration()
    optimiser: str = "greedy"
    target: str = "greedy"
    choice: Literal["true", "learned", "published"] = "true"
    objective: Literal["own", "team"] = "own"
    others: Literal["aligned", "pooled"] = "aligned"
    regress: Literal["greedy", "shown"] = "greedy"
    reward_scale: float = 15.0
    centred: bool = True
    central: bool = False
    noise: ValueNoise | None = None
    faults: Faults = Faults()

    def __post_init__(self):
        for what, value, low, high in (
            ("discount", self.discount, 0, 1),
            ("batch", self.batch, 1, 10**5),
            ("memory", self.memory, self.batch + 1, 10**7),
            ("burn_in", self.burn_in, self.batch + 1, 10**7),
            ("learn_every", self.learn_every, 1, 10**6),
            ("copy_every", self.copy_every, 1, 10**7),
        ):
            if not low <= value <= high:
                raise ConfigError(f"{what} must be in {low}..{high}, got {value}.")
        if not (self.learning_rate > 0 and self.reward_scale > 0):
            raise ConfigError(
                f"learning rate and reward scale must be positive, got {self.learning_rate} and {self.reward_scale}."
            )
        if len(self.feedback) != self.world.platforms or not any(self.feedback):
            raise ConfigError(
                f"feedback must say of each of {self.world.platforms} platforms whether it sees clicks, and of one at "
                f"least that it does; got {self.feedback}."
            )
        if self.optimiser not in OPTIMISERS or self.target not in TARGETS:
            raise ConfigError(f"no such optimiser or target: {self.optimiser!r}, {self.target!r}.")
        if self.choice == "true" and not isinstance(self.world.choice, Multinomial):
            raise ConfigError(
                "choice = 'true' needs users of a multinomial choice: slate values are for that model. These users "
                "choose otherwise; take choice = 'learned'."
            )
        if self.faults.moving_targets and not self.faults.online_others:
            raise ConfigError(
                "moving_targets is about online values in targets, so it needs online_others: target networks do not "
                "move."
            )
        if self.centred and not self.world.choice.always_clicks:
            raise ConfigError("centred engagement needs users who always click; set centred to false.")

    @property
    def platforms(self) -> int:
        """K."""
        return self.world.platforms

    @property
    def item_features(self) -> int:
        """Features of a candidate: the one that the world draws; with the published code's fault its number, too."""
        return 2 if self.faults.ids else 1

    @property
    def user_features(self) -> int:
        """Features of the user, all that a platform knows: see :func:`user_of`."""
        mine = 1 + (PAST * self.world.slate if self.faults.past else _TRACES)
        return mine * (self.platforms if self.central else 1)

    @cached_property
    def order(self) -> tuple[int, ...]:
        """Platforms in the order in which they learn from a batch: those with feedback come first, as in the paper."""
        return tuple(sorted(range(self.platforms), key=lambda p: not self.feedback[p]))

    def size_checked(self) -> SlateSettings:
        """The same, if the networks fit.

        Raises:
            ConfigError: The local network is for other features.
        """
        if (self.local.user_features, self.local.item_features) != (self.user_features, self.item_features):  # type: ignore[attr-defined]
            raise ConfigError(
                f"local networks must take {self.user_features} features of a user and {self.item_features} of a "
                f"candidate, these take {self.local}."
            )
        return self


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
