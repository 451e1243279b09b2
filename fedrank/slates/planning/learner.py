"""Platforms that share users fit one small model of engagement together, and each plans the user's whole stay alone.

FedSlate learns values of items from engagement, which is log-normal, a batch of 32 at a time, and sends values, targets
and gradients thousands of times. What a platform lacks is less than that: how the logarithm of engagement changes with
what the user clicked before. Everything else that a plan needs it knows by itself: what it showed, what it can show,
and when the user leaves. So, as a learner from sums (:mod:`fedrank.slates.sums` has the round)::

    explore   slates of one taste for several rounds, then of the other
    release   Σ f y over the users' stays, with f = (1, trace / 2, item), whitened, and y the logarithm of engagement:
              three numbers; and two more, Σ (1, trace / 2) s with the satisfaction s that was observed before the
              click, which say with less noise what the trace does
    improve   θ, the weights of least squares: of the constant and the item one for all, of the trace one a platform
              (:mod:`fedrank.slates.planning.engagement`). Each plans the stay by dynamic programming over its own trace
              and the rounds that are left, and never explores again

A platform without feedback is lent the model: its trace is of the clicks that it expects. How much its users forgive it
finds out by itself, as it too observes satisfaction: it sends the two numbers of that, and what they say is turned into
engagement by the lent constant. Each plans for the engagement of all platforms, and the part of the others' that its
own clicks change follows from the model, so that no rounds of two platforms need be joined.

What it rests on: engagement is log-linear in the trace and the item, as in the worlds here; how users choose from a
slate, how fast the past fades and how long a stay is are known. What it replaces is a critic of least squares
(Lagoudakis and Parr: Least-Squares Policy Iteration, JMLR 2003), whose weights hold the chance of every click to come;
those of engagement do not. reproductions/fedslate_2024/README.md has both numbers.

**The plan.** With x the trace before a click, z the item's feature and ``left`` the rounds that are left, a click is
worth what it engages now, what the trace that it leaves is worth to the other platforms until this one is due again,
and what is to come::

    x′ = fade · x − z
    q_left(x, z) = exp f(x, z)ᵀθ + m_left exp f(x′, ·)ᵀθ′ + V_{left−1}(x′)
    V_left(x) = E_candidates max_A Σ_i P(i | A) q_left(x, z_i),    V_0 = 0

Nothing is discounted, and after the last round there is nothing to come: that is the clock. m_left counts the ticks of
others in a round, and θ′ is their model; they are valued with their mean item, because a platform does not know what
they show. Each platform thus counts the engagement of all platforms, and changes it by its own clicks alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Float32, Int
from typing_extensions import override

from fedrank.core.arrays import AnyArray, module_of, take
from fedrank.core.errors import ConfigError
from fedrank.core.lazy import jax, jnp
from fedrank.slates.planning.engagement import (
    FEATURES,
    ITEM,
    NEUTRAL,
    OF_ENGAGEMENT,
    PAST,
    SHARED,
    TRACE,
    TRIANGLE,
    Models,
    error_of_trace,
    features,
    fit_weights,
    inverse_design,
    inverse_of_past,
    models_at,
    of_satisfaction,
    outer_triangle,
    past_whitening,
    random_effects,
    visible_share,
    whitening,
    with_observed,
    with_trace,
)
from fedrank.slates.sums.learner import PlatformState, SumLearner, item_feature
from fedrank.slates.world.best_slate import best_slate, best_value
from fedrank.slates.world.choice import Cascade
from fedrank.slates.world.satisfaction import Satisfaction

#: Nodes of the grid in the trace.
GRID = 41
#: Lists of candidates that the expectation is over.
LISTS = 64


def largest_trace(fade: float) -> float:
    """Bound of the trace's absolute value."""
    return 1.0 / (1.0 - fade)


def worth(
    fade: float,
    models: Models,
    later: Float[AnyArray, "*#users grid"],
    trace: Float[AnyArray, "*#users"],
    item: Float[AnyArray, "*#users clicks"],
    others: Float[AnyArray, "*#users"],
    mean_item: Float[AnyArray, "*#users"],
    moved: Float[AnyArray, "*#users clicks"] | None = None,
) -> Float[AnyArray, "*#users clicks+1"]:
    """Q of clicks, and last of no click.

    Args:
        fade: Factor of the trace a round.
        models: Weights of the model of engagement, at this platform and at others.
        later: V after this round, at the nodes of the grid.
        trace: x.
        item: Feature z of each click; of several features, what they say of its engagement.
        others: m, ticks of others until this platform is due again.
        mean_item: Mean feature of what others' users click.
        moved: What each click takes off the trace; None: z.
    """
    xp = module_of(item, trace, later)
    before = trace[..., None]
    clicked = fade * before - (item if moved is None else moved)
    nothing = xp.broadcast_to(fade * before, (*clicked.shape[:-1], 1))
    after = xp.concatenate([clicked, nothing], axis=-1)
    bound = largest_trace(fade)
    place = xp.clip((after + bound) / (2.0 * bound), 0.0, 1.0) * (GRID - 1)
    low = xp.minimum(place.astype(xp.int32), GRID - 2)
    here = take(later, low)
    to_come = here + (place - low.astype(xp.float32)) * (take(later, low + 1) - here)
    now = _engagement(models.own, before, item)
    now = xp.concatenate([now, xp.zeros_like(now[..., :1])], axis=-1)
    return now + _column(others) * _engagement(models.others, after, _column(mean_item)) + to_come


def _column(numbers: Any) -> Any:
    """Numbers of users beside what each has of several clicks; one number is for all."""
    return numbers if np.ndim(numbers) == 0 else numbers[..., None]


def _engagement(
    model: Float[AnyArray, "*#users features"],
    trace: Float[AnyArray, "..."],
    item: Float[AnyArray, "..."],
) -> Float[AnyArray, "..."]:
    constant, of_trace, of_item = (_column(model[..., place]) for place in range(FEATURES))
    return module_of(model, trace, item).exp(constant + of_trace * (trace / 2) + of_item * item)


def others_ticks(
    world: Satisfaction, number: Int[AnyArray, "*#users"], left: Int[AnyArray, "*#users"]
) -> Float[AnyArray, "*#users"]:
    """Ticks of other platforms until this one is due again, or the user leaves.

    Args:
        world: The users.
        number: Number of the platform.
        left: Rounds left, this one included.
    """
    k = world.platforms
    xp = module_of(number, left)
    last = (k - 1) / 2 if world.turns == "shuffled" else k - 1.0 - number
    return xp.where(left <= 1, xp.asarray(last, xp.float32), xp.float32(k - 1))


def planned_slate(
    world: Satisfaction,
    documents: Float[AnyArray, "*#users candidates"],
    values: Float[AnyArray, "*#users candidates+1"],
) -> Int[AnyArray, "*#users slots"]:
    """The slate of the highest expected worth; ``values`` as :func:`worth` returns them."""
    return best_slate(world.choice, world.appeal(documents), values[..., :-1], world.slate, values[..., -1])


def mean_click(
    world: Satisfaction, appeal: Float[AnyArray, "lists candidates"], item: Float[AnyArray, "lists candidates"]
) -> Float[AnyArray, ""]:
    """Mean feature of a click, were all candidates shown, from their appeal to users and their features."""
    weights = world.choice.weights(appeal)[..., :-1]
    return ((weights * item).sum(axis=-1) / weights.sum(axis=-1)).mean()


def plan(
    world: Satisfaction,
    fade: float,
    models: Models,
    lists: Float[AnyArray, "lists candidates *features"],
    typical: Float[AnyArray, ""],
    number: Int[AnyArray, ""],
    coordinates: tuple[AnyArray, AnyArray, AnyArray] | None = None,
) -> Float[AnyArray, "rounds grid"]:
    """V after a round at the nodes of the grid, by rounds left less one: row 0 is of the last round.

    Args:
        world: The users.
        fade: Factor of the trace a round.
        models: Weights of the model of engagement, at this platform and at others.
        lists: Lists of candidates that the platform had.
        typical: Mean feature of what others' users click.
        number: Number of the platform.
        coordinates: Of items of several features, ``moved`` and ``item`` of :func:`worth` and their appeal to users.
    """
    xp = module_of(lists, typical)
    moved, items, appeal = coordinates or (item_feature(lists), item_feature(lists), world.appeal(lists))
    nodes = xp.linspace(-largest_trace(fade), largest_trace(fade), GRID, dtype=xp.float32)
    scores = xp.moveaxis(world.choice.weights(appeal), -1, 0)[:, None]

    def of_list(later, others, trace, documents):
        item = item_feature(documents)
        values = worth(fade, models, later, trace, item, others, typical)
        slate = planned_slate(world, documents, values)
        return jnp.vdot(
            world.choice.probabilities(world.appeal(documents[slate])), jnp.append(values[slate], values[-1])
        )

    def one_round(later, left):
        others = others_ticks(world, number, left)
        if isinstance(world.choice, Cascade):  # which takes JAX
            of_lists = jax.vmap(of_list, (None, None, None, 0))
            return jax.vmap(lambda trace: jnp.mean(of_lists(later, others, trace, lists)))(nodes), later
        values = worth(fade, models, later, nodes[:, None], items[None], others, typical, moved[None])
        values = xp.moveaxis(values, -1, 0)  # [candidates + 1, grid, lists]
        weights = xp.broadcast_to(scores, values.shape)
        best = best_value(weights[:-1], values[:-1] - values[-1:], world.slate, weights[-1])
        return (best + values[-1]).mean(axis=-1), later

    rounds, later = 1 + xp.arange(world.rounds_per_episode, dtype=xp.int32), xp.zeros(GRID, xp.float32)
    if xp is not np:
        return jax.lax.scan(one_round, later, rounds)[1]
    table = []
    for left in rounds:
        after, later = one_round(later, left)
        table.append(later)
        later = after
    return np.stack(table)


class Learnt(NamedTuple):
    """State of a platform that plans, beside the model.

    Attributes:
        lists: Lists of candidates that it had, the newest of them.
        typical: Mean feature of a click, were all candidates of these lists shown.
        table: Its plan; see :func:`fedrank.slates.planning.plan`.
    """

    lists: Float[AnyArray, "lists candidates"]
    typical: Float[AnyArray, ""]
    table: Float[AnyArray, "rounds grid"]


@dataclass(frozen=True)
class PlanLearner(SumLearner):
    """Platforms fit a model of the logarithm of engagement together, and each plans the stay by it.

    Attributes:
        clip: As of :class:`~fedrank.slates.sums.learner.SumLearner`. In Choc and Kale half of the users add up to 17,
            nine in ten up to 27: a third of the vectors are shortened, and weights are found an eighth too small. A
            clip that shortens most vectors halves them, and with them what slates that spare users seem to be worth; a
            larger one takes more noise.
        scale: Divisor of engagement before its logarithm is taken: a typical engagement, above 0.
        design: ``"known"``: the design follows from how platforms explore and users choose, and does not cross;
            ``"sent"``: how far the one that was met is from it crosses with the sums, clipped and noised as they are.
        caution: Standard errors by which greed is taken to cost more than it was found to, in 0..10. A plan serves
            greedily or it does not, and turns where greed costs as much as it brings. Where its cost is found too small
            users are served badly all their stay; far beyond the turn more caution changes nothing.
        observed: Whether what platforms observe of the satisfaction says what the past does, beside engagement: where
            engagement is scaled with satisfaction, as in Choc and Kale, it says it five times as well.
        differ: Whether users may forgive one platform more than another. If not, the trace has one weight for all, and
            platforms without feedback send nothing. With ``observed`` they send what they observe of satisfaction.
        spread: Standard deviation of the logarithm of engagement with one item, about: a public number.
        evidence: Standard errors that the item's weight must be away from 0, or the model is not handed out.
    """

    clip: float = 20.0
    scale: float = 10.0
    design: str = "known"
    caution: float = 0.75
    observed: bool = True
    differ: bool = True
    spread: float = 1.0
    evidence: float = 3.0

    name, steady, together = "planned-slates", True, True

    @classmethod
    @override
    def of(cls, settings: Any, **known: Any) -> PlanLearner:
        plan = ("scale", "design", "caution", "observed", "differ", "evidence")
        return cls(**known, **{name: getattr(settings, name) for name in plan})

    def __post_init__(self):
        SumLearner.__post_init__(self)
        if not 0.0 < self.scale < 1e6:
            raise ConfigError(f"scale must be above 0 and below a million, got {self.scale}.")
        if not 0.0 < self.spread < 100.0:
            raise ConfigError(f"spread must be above 0 and below 100, got {self.spread}.")
        if not 0.0 <= self.caution <= 10.0:
            raise ConfigError(f"caution must be in 0..10, got {self.caution}.")
        if self.design not in ("known", "sent"):
            raise ConfigError(f"design must be known or sent, got {self.design!r}.")

    @property
    def numbers(self) -> int:  # type: ignore[override] - elsewhere an attribute of the class
        """Numbers that a click contributes."""
        return FEATURES + PAST * self.observed + TRIANGLE * (self.design == "sent")

    @property
    def parameters(self) -> int:  # type: ignore[override] - elsewhere an attribute of the class
        """Length of the model, 2 + K: the constant, the item's weight, and the trace's weight at each platform."""
        return SHARED + self.world.platforms

    @property
    @override
    def senders(self) -> tuple[bool, ...]:
        return tuple(sees or (self.differ and self.observed) for sees in self.feedback)

    @property
    @override
    def by_platform(self) -> bool:
        return bool(self.differ)

    @cached_property
    def whiten(self) -> Float32[np.ndarray, "features features"]:
        """Whitening of features; see :func:`~fedrank.slates.planning.engagement.whitening`."""
        return whitening(self.world, self.fade, self.hold)

    @cached_property
    def whiten_expected(self) -> Float32[np.ndarray, "features features"]:
        """The same where platforms see no feedback."""
        return whitening(self.world, self.fade, self.hold, feedback=False)

    @override
    def first_learnt(self) -> Learnt:
        world = self.world
        lists = np.zeros_like(self.features_of(np.zeros((LISTS, world.candidates), np.float32)))
        return Learnt(lists, np.zeros((), np.float32), np.zeros((world.rounds_per_episode, GRID), np.float32))

    @override
    def learnt_after(self, own: PlatformState) -> Learnt:
        learnt: Learnt = own.learnt
        lists: Any = learnt.lists
        if isinstance(own.rounds, np.ndarray | np.generic):
            lists = np.array(lists)
            lists[own.rounds % LISTS] = own.view.documents
            return learnt._replace(lists=lists)
        lists = jnp.asarray(lists)
        return learnt._replace(lists=lists.at[own.rounds % LISTS].set(own.view.documents))

    @override
    def learnt_since(self, learnt, first, documents):
        number = documents.shape[1]
        lists, documents = np.array(learnt.lists), np.asarray(self.features_of(documents[:, -LISTS:]))
        lists[:, :, (first + np.arange(number)[-LISTS:]) % LISTS] = np.moveaxis(documents, 1, 2)
        return learnt._replace(lists=lists)

    @override
    def contribution(self, own, item, engagement):
        xp = module_of(item, engagement)
        f = features(own.view.known, item) @ xp.asarray(self.whiten.T)
        parts = [f * OF_ENGAGEMENT * xp.log(engagement / self.scale)[..., None]]
        if self.design == "sent":
            parts.append(outer_triangle(f))
        if self.observed:
            parts.append(self._seen(own, self.whiten))
        return xp.concatenate(parts, axis=-1)

    def _seen(
        self, own: PlatformState, whiten: Float32[np.ndarray, "features features"]
    ) -> Float[AnyArray, "*#users past"]:
        """A round's contribution to the sums of the satisfaction that is observed."""
        xp = module_of(own.view.known, own.view.observed)
        past = features(own.view.known, xp.zeros_like(own.view.known))[..., :PAST]
        factors = of_satisfaction(self.world.observation_noise)
        return past @ xp.asarray(past_whitening(whiten).T) * factors * (own.view.observed - NEUTRAL)[..., None]

    @override
    def without_click(self):
        nothing = np.zeros(self.numbers, np.float32)
        if self.design == "sent":
            nothing[FEATURES : FEATURES + TRIANGLE] = outer_triangle(np.zeros(FEATURES, np.float32))
        return nothing

    @override
    def without_feedback(self, own):
        if not (self.differ and self.observed):
            return np.zeros(self.numbers, np.float32)
        seen = self._seen(own, self.whiten_expected)
        xp = module_of(seen)
        nothing = xp.zeros((*seen.shape[:-1], self.numbers - PAST), xp.float32)
        return xp.concatenate([nothing, seen], axis=-1)

    @override
    def solve(self, sums, rounds, model, noise):
        # Of a total, with one weight of the trace for all: as if each platform with feedback had sent its mean part.
        xp = module_of(sums)
        heard = xp.asarray(self.feedback)
        count = float(sum(self.feedback))
        each = xp.where(heard[:, None], sums / count, xp.float32(0))
        # A slope of satisfaction is the weight by what is passed on, their mean the weight by its harmonic mean.
        parts = [visible_share(self.world, self.fade, k) for k, sees in enumerate(self.feedback) if sees]
        part = 0.0 if min(parts) == 0.0 else count / sum(1.0 / one for one in parts)
        return self._solve(each, heard, rounds / count, noise / np.sqrt(count), [part] * len(self.feedback))

    @override
    def solve_platforms(self, sums, heard, rounds, model, noise):
        parts = [visible_share(self.world, self.fade, k) for k in range(len(self.feedback))]
        return self._solve(sums, heard, rounds, noise, parts)

    def _solve(
        self, sums: AnyArray, heard: AnyArray, rounds: AnyArray, noise: AnyArray, parts: list[float]
    ) -> AnyArray:
        """The model; ``parts`` is what :func:`.visible_share` says of each platform's sums."""
        xp = module_of(sums, heard)
        seeing = heard & xp.asarray(self.feedback)
        count = xp.sum(seeing).astype(xp.float32)
        of_all = xp.sum(xp.where(seeing[:, None], sums, xp.float32(0)), axis=0)
        of_design = of_all[FEATURES : self.numbers - PAST * self.observed]
        inverse = inverse_design(of_design, count * rounds, self.whiten)
        weights = fit_weights(of_all[:FEATURES] / OF_ENGAGEMENT, count * rounds, inverse, self.whiten)
        each = [
            self._found(k, sums[k], heard[k], rounds, noise, inverse, weights[0], part) for k, part in enumerate(parts)
        ]
        found, precision = (xp.stack(of) for of in zip(*each, strict=True))
        traces, errors = random_effects(found, precision, bool(self.differ))
        of_seeing = xp.sum(xp.where(seeing, traces, xp.float32(0)))
        weights = with_trace(weights, of_seeing / xp.maximum(count, 1.0), inverse)
        # Greed for items of a high feature makes the trace negative, for those of a low one positive. The other weights
        # stay: a plan turns where the trace's is large beside the item's.
        traces = traces + self.caution * errors * xp.sign(weights[ITEM])
        return xp.concatenate([xp.stack([weights[0], weights[ITEM]]), traces]).astype(xp.float32)

    def _found(
        self,
        k: int,
        sums: AnyArray,
        heard: AnyArray,
        rounds: AnyArray,
        noise: AnyArray,
        inverse: AnyArray,
        constant: AnyArray,
        part: float,
    ) -> tuple[Float[AnyArray, ""], Float[AnyArray, ""]]:
        """The trace's weight at a platform by its own sums, and its precision: 0 where these say nothing."""
        sees, world = self.feedback[k], self.world
        whiten = self.whiten if sees else self.whiten_expected
        xp = module_of(sums, inverse)
        inverse = inverse if sees else inverse_design(xp.zeros(0), rounds, whiten)
        trace, precision = xp.float32(0.0), xp.float32(0.0)
        if sees:
            trace = fit_weights(sums[:FEATURES] / OF_ENGAGEMENT, rounds, inverse, whiten)[TRACE]
            precision = error_of_trace(rounds, whiten, self.spread, noise / OF_ENGAGEMENT) ** -2
        if self.observed and self.senders[k]:
            factors, whiten = of_satisfaction(world.observation_noise), past_whitening(whiten)
            satisfaction = fit_weights(sums[-PAST:] / factors, rounds, inverse_of_past(inverse), whiten)
            satisfaction = satisfaction * np.where(np.arange(PAST) == TRACE, np.float32(part), np.float32(1))
            error = part * error_of_trace(rounds, whiten, world.observation_noise, noise / factors)
            log_engagement = constant + np.log(self.scale)
            trace, precision = with_observed(trace, precision, satisfaction, error, log_engagement)
        return trace, xp.where(heard, precision, xp.float32(0))

    @override
    def informs(self, model, clicks, noise):
        xp = module_of(model)
        error = error_of_trace(xp.maximum(clicks, 1), self.whiten, self.spread, noise / OF_ENGAGEMENT, ITEM)
        return xp.abs(model[1]) >= self.evidence * error

    @override
    def residual(self, own, turn):
        item = self.item_of(own, np.maximum(turn.item, 0))
        model = models_at(own.model, own.number).own
        expected = (features(own.view.known, item) * model).sum(axis=-1)
        return self._log_engagement(turn) - expected, item

    def _log_engagement(self, turn: Any) -> Any:
        return np.log(np.maximum(turn.engagement, 1e-3 * self.scale) / self.scale)

    @override
    def typical_stay(self, model):
        return self.world.rounds_per_episode * self.scale * np.exp(np.clip(model[..., 0] + self.spread**2 / 2, -30, 30))

    @override
    def greedy_values(self, own: PlatformState):
        return self.values(own, greedy=True)

    def coordinates(self, own: PlatformState, documents: Any) -> tuple[Models, Any, Any, Any]:
        """Candidates as a plan sees them: the models, what each takes off the trace, its feature, and its appeal."""
        item = item_feature(documents)
        return models_at(own.model, own.number), item, item, self.world.appeal(documents)

    def trace_of(self, own: PlatformState) -> Float[AnyArray, "*#users"]:
        """The trace of the user's clicks by which is planned."""
        return own.view.known

    @override
    def improve(self, own: PlatformState) -> Learnt:
        lists = own.learnt.lists
        models, moved, item, appeal = self.coordinates(own, lists)
        typical = mean_click(self.world, appeal, item)
        table = plan(self.world, self.fade, models, lists, typical, own.number, (moved, item, appeal))
        return Learnt(lists, typical, table)

    @override
    def choose_users(self, own, chosen):
        learnt: Learnt = own.learnt
        lists = np.zeros((*chosen.shape, 0), np.float32)
        return super().choose_users(
            own._replace(learnt=Learnt(lists, learnt.typical, self._later(own)[..., None, :])), chosen
        )

    def _later(self, own: PlatformState) -> Float[AnyArray, "*#users grid"]:
        """V after this round, at the nodes of the grid; a table of one row has that of this round."""
        table, left = own.learnt.table, own.view.left
        if not isinstance(table, np.ndarray):
            return table[left - 1]
        place = np.minimum(left, table.shape[-2]) - 1
        if place.size and (place == place.flat[0]).all():
            return np.broadcast_to(table[..., place.flat[0], :], (*place.shape, table.shape[-1]))
        return np.take_along_axis(table, place[..., None, None], axis=-2)[..., 0, :]

    @override
    def values(self, own: PlatformState, greedy: bool = False):
        """Worth of clicks by the plan, and last of no click; before there is one, all candidates are as good."""
        later, others = self._later(own), others_ticks(self.world, own.number, own.view.left)
        models, moved, item, _ = self.coordinates(own, own.view.documents)
        if greedy:
            later, others = np.zeros_like(later), np.zeros_like(others)
        typical = own.learnt.typical
        return worth(self.fade, models, later, self.trace_of(own), item, others, typical, moved)
