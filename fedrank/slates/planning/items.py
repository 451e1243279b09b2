"""Planned slates for items of several features: two directions among them say what an item engages now, and later.

With z the d features of an item, and x the fading sum of those that a user
clicked before, :mod:`fedrank.slates.planning` carries over coordinate by coordinate::

    log engagement = c + wᵀz + γᵀx / 2,        x′ = fade · x − z

d weights say what an item engages now, d others what it does to all that follows. A plan needs no grid in d dimensions:
only u = vᵀx matters to it, v the direction of γ, and u′ = fade · u − vᵀz. So each item is two numbers to the plan, wᵀz
and vᵀz, and the plan is that of a single feature.

**Choice.** Users who choose by a multinomial logit, odds exp hᵀz, are not known beforehand. In slates that are shown
whatever the user is like, the mean of what is clicked less that of what is shown is Cov(z) h for small h, Cov within a
slate: d more numbers in the sums.

**Design.** Platforms explore by a rule that all know, slates of the highest or the lowest value of one feature for
several rounds. With h and the distribution of items the second moments of features follow by simulation at the
coordinator, and need not cross. Items are simulated as independent numbers that are uniform in [−1, 1]. Real ones must
have the same first and second moments, up to :data:`TOLERANCE`, or weights come out with a wrong sign:
:func:`differ_from_design` says so of them. With weights .6, −.4, .2, 0 of four features, of which two correlate by .8,
.39, .19, .23, −.01 were found, and .72, −.47, .24, −.01 once they had been whitened; with four in [0, 1], .10, −.17, 0,
−.07, and .70, −.42, .29, −.02 once whitened; of independent ones uniform in [−1, 1], .70, −.43, .26, −.01.

**Directions.** All platforms share v, of length such that vᵀz has the variance of a uniform number in [−1, 1]; how much
users forgive is one number a platform, as with a single feature. The length of a direction that is found with noise is
too large on average, by the noise of its other d − 1 coordinates; that is taken off (James and Stein, 1961).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Float32, Int
from typing_extensions import override

from fedrank.core.arrays import AnyArray
from fedrank.core.errors import ConfigError
from fedrank.slates.planning.engagement import NEUTRAL, Models, features, of_satisfaction, random_effects
from fedrank.slates.planning.learner import PlanLearner
from fedrank.slates.sums.learner import next_taste
from fedrank.slates.world.best_slate import largest
from fedrank.slates.world.choice import Multinomial
from fedrank.slates.world.satisfaction import Satisfaction

#: Factors of what crosses, of the constant and of the rest: numbers on which a plan hardly depends are made small.
_CONSTANT = 0.3
#: Users and rounds that the design is the mean of are these many times the stay's.
_USERS = 500
#: Variance of a number uniform in [−1, 1].
_UNIFORM = 1.0 / 3.0
_RIDGE = 1e-6
#: How far means may be from 0, in standard deviations of a number uniform in [−1, 1], and covariances from those of
#: independent ones, in its variance; beside three standard errors, 3 / √items.
TOLERANCE = 0.3
#: Largest fourth moment, in squares of the variance: what rare values do to the future is not found. Of a column of 0
#: and 1 it is 5.8 with 13 % ones and 8.1 with 10 %.
LARGEST_FOURTH = 6.0


def rows_at(
    documents: Float[AnyArray, "*users candidates d"], places: Int[AnyArray, "*users slots"]
) -> Float[np.ndarray, "*users slots d"]:
    """Features of the candidates at some places."""
    return np.take_along_axis(np.asarray(documents), np.asarray(places)[..., None], axis=-2)


def differ_from_design(items: Float[AnyArray, "items d"]) -> str:
    """A difference from the items that a design is simulated with, in words; empty if there is none.

    Args:
        items: Features of each; of some dozens nothing can be told.
    """
    z, allowed = np.asarray(items, np.float64) / np.sqrt(_UNIFORM), TOLERANCE + 3 / np.sqrt(len(items))
    apart = z - z.mean(axis=0)
    covariance = apart.T @ apart / len(z)
    off, variances = covariance - np.diag(np.diag(covariance)), np.diag(covariance)
    fourth = (apart**4).mean(axis=0) / np.maximum(variances, 1e-12) ** 2
    for worst, most, name in (
        (np.abs(z.mean(axis=0)), allowed, "mean / √(1/3)"),
        (np.abs(variances - 1), allowed, "variance / (1/3), less 1,"),
        (np.abs(off).max(axis=0), allowed, "covariance / (1/3) with another feature"),
        (fourth, LARGEST_FOURTH, "fourth moment / variance²"),
    ):
        place = int(worst.argmax())
        if worst[place] > most:
            return f"feature {place}: {name} of {len(z):,} items is {worst[place]:.2f} in size, and may be {most:.2f}"
    return ""


class Design(NamedTuple):
    """Second moments of what is met while platforms explore.

    Attributes:
        features: E f fᵀ of f = (1, x / 2, z).
        within: Mean covariance of the items of a slate.
        items: E z zᵀ of candidates.
    """

    features: Float[np.ndarray, "features features"]
    within: Float[np.ndarray, "d d"]
    items: Float[np.ndarray, "d d"]


def simulate_design(
    world: Satisfaction, fade: float, hold: float, choice: Float[np.ndarray, " d"], feedback: bool = True
) -> Design:
    """The design, from simulated clicks; no engagement and no user takes part.

    Args:
        world: Whose items are drawn.
        fade: Factor of the trace a round.
        hold: As of :func:`~fedrank.slates.sums.learner.next_taste`.
        choice: Weights h of the users' choice.
        feedback: Features are of what is clicked; if not, of the mean item of a slate, in every round.
    """
    d, random, rounds = world.features, np.random.default_rng(0), world.rounds_per_episode
    trace, taste = np.zeros((_USERS, d)), np.zeros(_USERS, np.float32)
    squares, within, items = np.zeros((1 + 2 * d, 1 + 2 * d)), np.zeros((d, d)), np.zeros((d, d))
    for _ in range(rounds):
        z = world.item_features(random.random((_USERS, world.candidates), np.float32))
        draws = random.random((_USERS, 3), np.float32)
        taste = next_taste(taste, draws[:, :2], hold, d)
        shown = rows_at(z, taste_places(taste, z, world.slate))
        apart = shown - shown.mean(axis=1, keepdims=True)
        within += np.einsum("und,une->de", apart, apart) / shown.shape[1]
        items += np.einsum("und,une->de", z, z) / z.shape[1]
        item = shown.mean(axis=1)
        if feedback:
            slot = np.asarray(world.choice.choose((shown @ choice).astype(np.float32), draws[:, 2]))
            item = shown[np.arange(_USERS), np.minimum(slot, world.slate - 1)] * (slot < world.slate)[:, None]
        f = np.concatenate([np.ones((_USERS, 1)), trace / 2, item], axis=1)
        squares += f.T @ f
        trace = fade * trace - item
    of_all = rounds * _USERS
    return Design(squares / of_all + _RIDGE * np.eye(1 + 2 * d), within / of_all, items / of_all)


def taste_places(
    taste: Float[AnyArray, "*users"], documents: Float[AnyArray, "*users candidates d"], slots: int
) -> Int[AnyArray, "*users slots"]:
    """The candidates of a taste: those with the highest value of a feature, or with the lowest; see ``next_taste``."""
    axis = np.maximum(np.abs(np.asarray(taste)) - 1, 0).astype(np.int64)[..., None, None]
    along = np.take_along_axis(np.asarray(documents), axis, axis=-1)[..., 0]
    return largest(np.sign(taste)[..., None] * along, slots)


@dataclass(frozen=True)
class ItemsLearner(PlanLearner):
    """Planned slates where an item has d = ``world.features`` features; with NumPy alone.

    The model is (c, w [d], v [d], h [d], weight of u at each platform).
    """

    steady, together = True, True

    @classmethod
    @override
    def of(cls, settings: Any, **known: Any) -> ItemsLearner:
        d = known["world"].features
        # A user adds more numbers than with one feature, and as large ones.
        made = super().of(settings, **{"clip": 20.0 * ((1 + 2 * d) / 3) ** 0.5, **known})
        assert isinstance(made, ItemsLearner)
        return made

    def __post_init__(self):
        super().__post_init__()
        if self.design == "sent":
            raise ConfigError("slates.design must be known for items of several features: the choice is found instead.")
        if not isinstance(self.world.choice, Multinomial) or not self.observed:
            raise ConfigError("items of several features take world.choice = multinomial, and slates.observed.")

    @property
    def d(self) -> int:
        """Number of features of an item."""
        return self.world.features

    @property
    @override
    def numbers(self) -> int:  # type: ignore[override] - elsewhere an attribute of the class
        return (1 + 2 * self.d) + (1 + self.d) + self.d

    @property
    @override
    def parameters(self) -> int:  # type: ignore[override] - elsewhere an attribute of the class
        return 1 + 3 * self.d + self.world.platforms

    @cached_property
    def designs(self) -> tuple[Design, Design]:
        """The design where a platform has feedback and where it has none, were all items chosen alike."""
        zero = np.zeros(self.d)
        return tuple(simulate_design(self.world, self.fade, self.hold, zero, sees) for sees in (True, False))  # type: ignore[return-value]

    @cached_property
    def whitenings(self) -> tuple[Any, ...]:
        """W of all features with feedback, and of (1, x / 2) with feedback and without; W E f fᵀ Wᵀ = 1."""
        d, (seen, blind) = self.d, self.designs
        order = [0, *range(1 + d, 1 + 2 * d), *range(1, 1 + d)]
        whole = np.linalg.inv(np.linalg.cholesky(seen.features[np.ix_(order, order)]))[:, np.argsort(order)]
        pasts = [np.linalg.inv(np.linalg.cholesky(one.features[: 1 + d, : 1 + d])) for one in (seen, blind)]
        return tuple(one.astype(np.float32) for one in (whole, *pasts))

    @cached_property
    def factors(self) -> tuple[Float32[np.ndarray, " features"], Float32[np.ndarray, " past"]]:
        """Factors of what crosses: of sums of log-engagement, and of satisfaction."""
        ones, seen = np.ones(2 * self.d, np.float32), of_satisfaction(self.world.observation_noise)
        return np.append(np.float32(_CONSTANT), ones), np.append(seen[0], ones[: self.d] * seen[1])

    # -- a platform's users ------------------------------------------------------------------------------------------

    @override
    def features_of(self, documents):
        return self.world.item_features(np.asarray(documents))

    @override
    def first_known(self):
        return np.zeros(self.d, np.float32)

    @override
    def item_of(self, own, places):
        return rows_at(own.view.documents, places[..., None])[..., 0, :]

    @override
    def clicked_feature(self, own, turn):
        clicked = np.where((turn.item >= 0)[..., None], self.item_of(own, np.maximum(turn.item, 0)), np.float32(0))
        mean = rows_at(own.view.documents, own.slate).mean(axis=-2)
        return np.where(own.feedback[..., None], clicked, mean)

    @override
    def explore_slate(self, own, draws):
        taste = next_taste(own.view.taste, draws, self.hold, self.d)
        return taste, taste_places(taste, own.view.documents, self.world.slate)

    @override
    def contribution(self, own, item, engagement):
        whole, past, _ = self.whitenings
        known = own.view.known
        f = np.concatenate([np.ones_like(known[..., :1]), known / 2, item], axis=-1) @ whole.T
        apart = item - rows_at(own.view.documents, own.slate).mean(axis=-2)
        logs = f * self.factors[0] * np.log(engagement / self.scale)[..., None]
        return np.concatenate([logs, apart, self._satisfaction_part(own, past)], axis=-1)

    def _satisfaction_part(self, own: Any, whiten: Any) -> Any:
        known = own.view.known
        past = np.concatenate([np.ones_like(known[..., :1]), known / 2], axis=-1) @ whiten.T
        return past * self.factors[1] * (own.view.observed - NEUTRAL)[..., None]

    @override
    def without_feedback(self, own):
        seen = self._satisfaction_part(own, self.whitenings[2])
        if not self.differ:
            return np.zeros(self.numbers, np.float32)
        nothing = np.zeros((*seen.shape[:-1], self.numbers - seen.shape[-1]), np.float32)
        return np.concatenate([nothing, seen], axis=-1)

    # -- the model ---------------------------------------------------------------------------------------------------

    @override
    def _solve(self, sums, heard, rounds, noise, parts):
        """The model; ``parts`` is what :func:`.visible_share` says of each platform's sums."""
        d, (whole, past, blind) = self.d, self.whitenings
        tr = slice(1, 1 + d)
        seeing = np.asarray(heard) & np.asarray(self.feedback)
        behind, noise = float(seeing.sum() * rounds), float(noise)
        if not behind:
            return np.zeros(self.parameters, np.float32)
        means = np.where(seeing[:, None], sums, 0).sum(axis=0, dtype=np.float64) / behind
        choice = np.linalg.solve(self.designs[0].within + _RIDGE * np.eye(d), means[1 + 2 * d : 1 + 3 * d])
        design, items = simulate_design(self.world, self.fade, self.hold, choice).features, self.designs[0].items
        products = np.linalg.solve(whole.astype(np.float64), means[: 1 + 2 * d] / self.factors[0])
        weights = np.linalg.solve(design, products)
        found, precision = [], []
        for k, part in enumerate(parts):
            sees = self.feedback[k]
            spread = self._error(whole[:, tr], rounds, self.spread, noise / self.factors[0])
            mine = spread**-2 if sees else 0.0
            gamma = weights[tr].copy()
            mean = np.asarray(sums[k][1 + 3 * d :], np.float64) / rounds / self.factors[1]
            white = past if sees else blind
            moments = design if sees else self.designs[1].features
            seen = np.linalg.solve(moments[: 1 + d, : 1 + d], np.linalg.solve(white.astype(np.float64), mean))
            level = NEUTRAL + seen[0]
            if self.senders[k] and 0.01 < level < 0.99:
                factor = part * (weights[0] + np.log(self.scale)) / level
                error = factor * self._error(
                    white[:, tr], rounds, self.world.observation_noise, noise / self.factors[1]
                )
                other = 1.0 / max(error**2, 1e-12)
                gamma = (mine * gamma + other * factor * seen[tr]) / (mine + other)
                mine += other
            found.append(gamma)
            precision.append(mine if heard[k] else 0.0)
        each, precision = np.array(found), np.array(precision)
        pooled = precision @ each / precision.sum()
        length = pooled @ items @ pooled
        # The squared length of a direction that is found with noise is that of the true one and the noise's.
        shrink = max(0.0, 1.0 - (d - 1) / (precision.sum() * max(pooled @ pooled, 1e-30)))
        direction = pooled * np.sqrt(_UNIFORM / max(length, 1e-30))
        along = each @ direction / (direction @ direction)
        of_platform = precision * (direction @ direction)
        traces, errors = random_effects(along, of_platform, bool(self.differ))
        traces, mean = traces * shrink, traces[seeing].mean() * shrink
        rest = [0, *range(1 + d, 1 + 2 * d)]
        given = products[rest] - design[rest, tr] @ (mean * direction)
        c, *w = np.linalg.solve(design[np.ix_(rest, rest)], given)
        traces = traces + self.caution * errors * np.sign(np.array(w) @ items @ direction)
        return np.concatenate([[c], w, direction, choice, traces]).astype(np.float32)

    def _error(self, whiten: Any, rounds: Any, spread: float, noise: Any) -> float:
        """Standard error of a weight of the past: the root of the mean square over features."""
        of_means = spread**2 / rounds + (noise / rounds) ** 2
        return float(np.sqrt((whiten.astype(np.float64) ** 2 * of_means[:, None]).sum(axis=0).mean()))

    # -- its plan ----------------------------------------------------------------------------------------------------

    @override
    def coordinates(self, own, documents):
        """Models as of one feature, and of candidates vᵀz, wᵀz, hᵀz."""
        d, model = self.d, np.asarray(own.model)
        w, v, h = (model[..., 1 + at * d : 1 + (at + 1) * d] for at in range(3))
        traces, number = model[..., 1 + 3 * d :], np.asarray(own.number)
        mine = np.take_along_axis(traces, number[..., None], axis=-1)[..., 0]
        k = self.world.platforms
        others = (traces.sum(axis=-1) - mine) / (k - 1) if k > 1 else mine
        one = np.ones_like(mine)
        models = Models(*(np.stack([model[..., 0], trace, one], axis=-1) for trace in (mine, others)))
        return models, *((documents @ of[..., None])[..., 0] for of in (v, w, h))

    @override
    def trace_of(self, own):
        v = np.asarray(own.model)[..., 1 + self.d : 1 + 2 * self.d]
        return (own.view.known * v).sum(axis=-1)

    @override
    def appeal_of(self, own):
        return self.coordinates(own, own.view.documents)[3]

    @override
    def informs(self, model, clicks, noise):
        # The squared length of weights that are noise alone is d squared standard errors, give or take √(2 d) of them.
        d, whole = self.d, self.whitenings[0]
        error = self._error(whole[:, 1 + d :], max(float(clicks), 1.0), self.spread, float(noise) / self.factors[0])
        least = (d + self.evidence * (2.0 * d) ** 0.5) * (self.evidence > 0)
        return bool((np.square(model[1 : 1 + d]) / error**2).sum() >= least)

    @override
    def residual(self, own, turn):
        item = self.item_of(own, np.maximum(turn.item, 0))
        models, moved, now, _ = self.coordinates(own, item[..., None, :])
        expected = (features(self.trace_of(own), now[..., 0]) * models.own).sum(axis=-1)
        return self._log_engagement(turn) - expected, moved[..., 0]
