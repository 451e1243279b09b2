"""Learners that need nothing of other platforms but sums over users, now and then: what an own critic fills in.

Whoever writes one says what is known of a user (``first_known``, ``known_after``), what a click adds to the sums
(``contribution``), what model the sums give (``solve``), what a platform makes of the model (``improve``), and what
clicks are worth by it (``values``); ``examples/parts/my_parts/mean_of_item.py`` is one, whole.

Clipping, noise, its account, what crosses, exploring until there is a model, and the users are the same for all; see
:class:`fedrank.slates.sums.SummedSlates`. An entry point of ``fedrank.slate_learners`` gives it a name for
``fedrank run planned-slates --slates.learner NAME``.

**Exploring.** Slates of one taste for several rounds, then of the other. Runs of one taste move a user's trace of
clicks further than slates at random, and by as much fewer users tell what the trace does. In runs that are too long the
trace says no more than the item does: with a new taste drawn every fifth round, the weights of both are known best: in
Choc and Kale, with 200 users, their standard errors are 0.0095 and 0.016; with every twentieth round 0.010 and 0.021,
with every fiftieth 0.011 and 0.025.

**A clip that is found.** Some users before the explorers say in which bin the norm of their stay is. A user is in one
bin, so that another stay in place of theirs changes two counts by one each: L2 distance √2, whatever the norm. Noise is
on the counts as it is on the sums, and these users add nothing to the sums, so that finding the clip costs no ε beside
that of the sums.
"""

from __future__ import annotations

import abc
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from typing_extensions import override

from fedrank.core.arrays import AnyArray, PyTree, module_of, take
from fedrank.core.arrays import AnyArray as Array
from fedrank.core.errors import ConfigError
from fedrank.core.lazy import jnp
from fedrank.core.native import map_arrays, map_trees
from fedrank.core.streams import AnyKey
from fedrank.slates.learner import SlateLearner
from fedrank.slates.sums import trial as trials
from fedrank.slates.world.best_slate import best_slate, largest
from fedrank.slates.world.satisfaction import ABSENT, Satisfaction, Turn

#: Bins of a factor of two each, from 2⁻⁴ to 2⁴ times the clip that the settings name. There are few of them because
#: each has separate noise.
BINS = 8
#: Users whose vectors the clip should leave as they are, as a share. Noise is in proportion to the clip: one that
#: shortens no vector is twice the one that shortens half of them.
QUANTILE = 0.5


def finite_stay(stay: Float[AnyArray, "*stays statistics"]) -> Float[AnyArray, "*stays statistics"]:
    """Stays, with zero in place of one that has a number that is not finite: neither may get past a clip."""
    xp = module_of(stay)
    return xp.where(xp.isfinite(stay).all(axis=-1, keepdims=True), stay, xp.zeros_like(stay))


def norm_bin(stay: Float[AnyArray, "*stays statistics"], middle: float) -> Int[AnyArray, "*stays bins"]:
    """A 1 in the bin of a stay's norm, else 0; what is beyond the ends is in the first or the last bin.

    A stay with a number that is not finite counts as zero.
    """
    xp, stay = module_of(stay), finite_stay(stay)
    norm = xp.maximum(xp.linalg.norm(stay, axis=-1, keepdims=True), 1e-30)
    place = xp.clip(xp.floor(xp.log2(norm / middle)) + BINS // 2, 0, BINS - 1)
    bins = xp.arange(BINS).reshape((1,) * (place.ndim - 1) + (BINS,))
    return (bins == place).astype(xp.int32)


def clip_of(counts: Float[Array, " bins"], middle: float) -> Float[Array, ""]:
    """The upper end of the bin with which :data:`QUANTILE` of the users is reached.

    Args:
        counts: Of all platforms together, with their noise.
        middle: The clip that the settings name.
    """
    xp = module_of(counts)
    up_to = xp.cumsum(xp.maximum(counts, 0.0))
    place = xp.argmax(up_to >= QUANTILE * up_to[-1])
    return xp.asarray(middle * 2.0 ** (place - BINS // 2 + 1.0), xp.float32)


def next_taste(
    taste: Float[AnyArray, "*#users"], uniform: Float[AnyArray, "*#users 2"], hold: float, d: int = 1
) -> Float[AnyArray, "*#users"]:
    """The taste of the next slate.

    Args:
        taste: +j: the items with the highest value of the j-th of d features; −j: those with the lowest; 0: a user has
            just come.
        uniform: Two numbers uniform in [0, 1).
        hold: Probability of drawing another taste.
        d: Number of features.
    """
    xp = module_of(taste, uniform)
    draws = (uniform[..., 0] < hold) | (taste == 0.0)
    number = xp.floor(uniform[..., 1] * np.float32(2 * d))
    return xp.where(draws, (1 + number // 2) * (1 - 2 * (number % 2)), taste).astype(xp.float32)


def taste_slate(
    taste: Float[AnyArray, "*#users"], documents: Float[AnyArray, "*#users candidates"], slots: int
) -> Int[AnyArray, "*#users slots"]:
    """The candidates of a taste: places of those with the highest feature, or with the lowest."""
    return largest(taste[..., None] * documents, slots)


#: Steps of a unit of a clipped vector.
STEPS = 2**14
#: What is left of a trace of clicks after a tick: β of RecSim's users (Ie et al. 2019), which platforms are not told.
_FADE_A_TICK = 0.9


class View(NamedTuple):
    """Knowledge of a platform about the user it serves, and the candidates that it can show now.

    Attributes:
        observed: The satisfaction that it observes.
        documents: The candidates' feature, in [0, 1].
        left: Rounds until the user leaves, this one included.
        taste: While it explores: +1 shows the items of the highest feature, −1 those of the lowest.
        known: What the learner keeps of the user.
        tally: What a trial keeps of the stay; empty without one.
        arm: The arm of the trial by which the user is served.
    """

    observed: Float[Array, ""]
    documents: Float[Array, " candidates"]
    left: Int[Array, ""]
    taste: Float[Array, ""]
    known: PyTree
    tally: Float[AnyArray, " tally"] = np.zeros(0, np.float32)
    arm: Int[AnyArray, ""] = np.zeros((), np.int32)


class PlatformState(NamedTuple):
    """State of a platform; it never leaves.

    Attributes:
        number: Number of the platform, from 0.
        feedback: Whether it sees clicks and engagement.
        view: What it knows of the present user.
        slate: The slate that it shows in this round.
        rounds: Rounds so far.
        stay: Sum of what the clicks of the present user contribute.
        sums: Sums over the users who have left since the last release, clipped, in steps.
        clip: Largest L2 norm of what a user adds.
        norms: How many users' norms are in each bin, of those by whom the clip is found; empty without them.
        model: The model; zeros before it is told one.
        learnt: What the learner makes of the model and of what it sees.
        tested: Sums over the stays of a trial since the last were sent, in steps; empty without a trial.
        verdict: What the coordinator said last of the trial; see :data:`fedrank.slates.sums.trial.VERDICT`.
    """

    number: Int[Array, ""]
    feedback: Bool[Array, ""]
    view: View
    slate: Int[Array, " slots"]
    rounds: Int[Array, ""]
    stay: Float[Array, " statistics"]
    sums: Int[Array, " statistics"]
    clip: Float[Array, ""]
    norms: Int[Array, " bins"]
    model: Float[Array, " parameters"]
    learnt: PyTree
    tested: Int[Array, " numbers"]
    verdict: Float[Array, " verdict"]


def item_feature(documents: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """The feature of candidates as models have it: in [−1, 1]."""
    return 2.0 * documents - 1.0


def expected_item(world: Satisfaction, shown: Float[AnyArray, "*#users slots"]) -> Float[AnyArray, "*#users"]:
    """The expected feature of what is clicked of a slate, 0 for nothing, by the choice model."""
    return (world.choice.probabilities(world.appeal(shown))[..., :-1] * item_feature(shown)).sum(axis=-1)


@dataclass(frozen=True)
class SumLearner(SlateLearner):
    """A learner from sums over users; see the module.

    Attributes:
        world: The users.
        feedback: Whether each platform sees clicks and engagement.
        explorers: Users until each release; in between, what they did is added up. No user is explored after the last.
            0: none are, and the model is one that there was before.
        hold: Probability a round that a platform which explores draws another taste, in (0, 1].
        fade: Factor of the trace of clicks a round, in [0, 1); None: 0.9 a tick.
        clip: Largest L2 norm of what a user adds to the sums, above 0.
        bounders: Users before the explorers by whom the clip is found; ``clip`` is then the middle of what is tried.
        trial: Stays after the last explorer until each of the sums by which the plan is tested; empty: no test.
        numbers: Length of what a click contributes, and of the sums that cross.
        parameters: Length of the model.
        together: Its functions are written for NumPy as well, with leading axes of users and platforms, so that runs
            need no JAX. A subclass has to say so again.
        steady: Between models, the same user is served the same: what :meth:`learnt_after` does makes no difference to
            ``values``.

    Raises:
        ConfigError: A number out of range, or no platform has feedback.
    """

    world: Satisfaction
    feedback: tuple[bool, ...]
    explorers: tuple[int, ...] = (200,)
    hold: float = 0.2
    fade: float = None  # type: ignore[assignment] - filled in by __post_init__
    clip: float = 10.0
    bounders: int = 0
    trial: tuple[int, ...] = ()

    numbers = 1
    parameters = 1
    steady = False
    together = False

    def __post_init__(self):
        if self.fade is None:
            object.__setattr__(self, "fade", _FADE_A_TICK**self.world.platforms)  # frozen: filled in once, here
        if not (0.0 < self.hold <= 1.0 and 0.0 <= self.fade < 1.0):
            raise ConfigError(f"hold must be in (0, 1] and fade in [0, 1), got {self.hold} and {self.fade}.")
        if not 0.0 < self.clip < 1e6:
            raise ConfigError(f"clip must be above 0 and below a million, got {self.clip}.")
        # The sums are integers of 32 bits in steps, of which a user adds up to STEPS.
        most = 2**30 // STEPS
        if self.explorers != (0,) and not (self.explorers and all(1 <= users <= most for users in self.explorers)):
            raise ConfigError(f"explorers must be in 1..{most:,}, or 0 alone, got {self.explorers}.")
        if not 0 <= self.bounders <= most:
            raise ConfigError(f"bounders must be in 0..{most:,}, got {self.bounders}.")
        if not all(1 <= stays <= most for stays in self.trial):
            raise ConfigError(f"trial must be in 1..{most:,} stays each, got {self.trial}.")
        if self.trial and type(self).residual is SumLearner.residual:
            raise ConfigError(f"a trial needs residuals, and {self.name} has none: take slates.trial = 0.")
        if len(self.feedback) != self.world.platforms or not any(self.feedback):
            raise ConfigError(f"feedback must be one bool a platform, one of them True, got {self.feedback}.")

    def __init_subclass__(cls, **about: Any):
        super().__init_subclass__(**about)
        if cls.solve is SumLearner.solve and cls.solve_platforms is SumLearner.solve_platforms:
            raise TypeError(f"{cls.__name__} makes no model of sums: give it solve or solve_platforms.")

    @classmethod
    def of(cls, settings: Any, **known: Any) -> SumLearner:
        """The learner of a run.

        Args:
            settings: Settings of planned-slates, ``[slates]``, of which a learner takes what it knows; by default none.
            known: Fields of this class.
        """
        del settings
        return cls(**known)

    @property
    def senders(self) -> tuple[bool, ...]:
        """For each platform, true if it sends sums; by default those with feedback. All with feedback do."""
        return self.feedback

    @property
    def by_platform(self) -> bool:
        """True if the model needs the sums of each platform, and not only their total; by default not."""
        return False

    @property
    def release_rounds(self) -> tuple[int, ...]:
        """The rounds after which sums are sent and models made: each the last one of the last explorer before it."""
        ends, users = [], self.bounders
        for more in self.explorers:
            users += more
            ends.append(users * self.world.rounds_per_episode - 1)
        return tuple(ends)

    @property
    def look_rounds(self) -> tuple[int, ...]:
        """The rounds after which sums of the trial are sent: each the last one of its stays."""
        users = self.bounders + sum(self.explorers) + np.cumsum(self.trial, dtype=np.int64)
        return tuple((users * self.world.rounds_per_episode - 1).tolist())

    def looks_at(self, rounds: Any) -> int:
        """Looks of the trial whose last round is this one or before it."""
        return int(np.sum(np.asarray(rounds, np.int64) >= np.array(self.look_rounds, np.int64)))

    def counted_part(self, rounds: Any) -> float:
        """Part of the trial's stays that these looks count."""
        return sum(self.trial[: self.looks_at(rounds)]) / max(sum(self.trial), 1)

    @property
    def bound_round(self) -> int:
        """The last round of the users by whom the clip is found; −1 where there are none."""
        return self.bounders * self.world.rounds_per_episode - 1

    # -- what an own learner fills in --------------------------------------------------------------------------------

    def first_known(self) -> PyTree:
        """Knowledge of a user who has just come; by default a trace of clicks, which is 0."""
        return np.float32(0.0)

    def known_after(self, own: PlatformState, turn: Turn) -> PyTree:
        """Knowledge after a round; by default the trace of clicks x′ = fade · x − z, z = 0 for no click.

        Args:
            own: The platform's state in the round.
            turn: The outcome; a platform without feedback uses nothing of it.
        """
        return self.fade * own.view.known - self.clicked_feature(own, turn)

    def first_learnt(self) -> PyTree:
        """State of the learner before there is a model; by default empty."""
        return ()

    def learnt_after(self, own: PlatformState) -> PyTree:
        """The same after a round; by default as it was."""
        return own.learnt

    def learnt_since(
        self, learnt: PyTree, first: int, documents: Float[np.ndarray, "runs rounds platforms candidates"]
    ) -> PyTree:
        """The same after many rounds of a steady learner, with NumPy; by default as it was.

        Args:
            learnt: Before them, leaves [runs, K, ...].
            first: Number of the first of them.
            documents: The candidates of each round.
        """
        del first, documents
        return learnt

    @abc.abstractmethod
    def contribution(
        self, own: PlatformState, item: Float[Array, "*#users"], engagement: Float[Array, "*#users"]
    ) -> Float[Array, "*#users statistics"]:
        """Contribution of a click to the sums of a user's stay.

        Args:
            own: The platform's state in the round.
            item: Feature of the clicked candidate, in [−1, 1].
            engagement: With it, above 0.
        """

    def without_click(self) -> Float[Array, "*#users statistics"]:
        """Contribution of a round in which nothing was clicked; by default zeros."""
        return np.zeros(self.numbers, np.float32)

    def without_feedback(self, own: PlatformState) -> Float[Array, "*#users statistics"]:
        """Contribution of a round at a platform that sends sums but sees no feedback; by default zeros.

        Args:
            own: The platform's state in the round.
        """
        return np.zeros(self.numbers, np.float32)

    def solve_platforms(
        self,
        sums: Float[Array, "platforms statistics"],
        heard: Bool[Array, " platforms"],
        rounds: Float[Array, ""],
        model: Float[Array, " parameters"],
        noise: Float[Array, ""],
    ) -> Float[Array, " parameters"]:
        """The model that the platforms' sums give; by default :meth:`solve` of what they add up to.

        Args:
            sums: Of each platform, over its users, each user's part clipped; zeros of those who were not heard.
            heard: Whose sums came; one with feedback at least.
            rounds: Rounds behind each platform's sums.
            model: The model before; zeros at first.
            noise: Standard deviation of the noise on each of a platform's sums; 0 without.
        """
        xp = module_of(sums)
        count = heard.sum().astype(xp.float32)
        return self.solve(xp.sum(sums, axis=0), count * rounds, model, noise * xp.sqrt(count))

    def solve(
        self,
        sums: Float[Array, " statistics"],
        rounds: Float[Array, ""],
        model: Float[Array, " parameters"],
        noise: Float[Array, ""],
    ) -> Float[Array, " parameters"]:
        """The model that sums give; a learner has this or :meth:`solve_platforms`.

        Args:
            sums: Over users and platforms, each user's part clipped.
            rounds: How many rounds at platforms are behind them.
            model: The model before; zeros at first.
            noise: Standard deviation of the noise on each of the sums; 0 without.
        """
        raise TypeError(f"{type(self).__name__} makes models by solve_platforms alone.")

    def residual(self, own: PlatformState, turn: Turn) -> tuple[Float[AnyArray, "*#users"], Float[AnyArray, "*#users"]]:
        """Residual of a click's log-engagement, and the clicked item's feature; of learners that can be tested."""
        raise TypeError(f"{type(self).__name__} has no residuals.")

    def typical_stay(self, model: Float[AnyArray, "*#users parameters"]) -> Float[AnyArray, "*#users"]:
        """Engagement of a typical stay by the model, of learners that can be tested."""
        raise TypeError(f"{type(self).__name__} does not know a typical stay.")

    def greedy_values(self, own: PlatformState) -> Float[AnyArray, "*#users values"]:
        """Value of a click on each candidate now, whatever follows; by default :meth:`values`."""
        return self.values(own)

    def informs(
        self, model: Float[Array, " parameters"], clicks: Float[Array, ""], noise: Float[Array, ""]
    ) -> Bool[AnyArray, ""] | bool:
        """False if what a model says of items is no more than its own noise; by default true.

        Args:
            model: The model.
            clicks: Rounds behind it, at all platforms with feedback.
            noise: Standard deviation of the noise on each of the sums of all.
        """
        return True

    def improve(self, own: PlatformState) -> PyTree:
        """State of a platform after a new model, which is ``own.model``: a new ``learnt``; by default as it was."""
        return own.learnt

    def explore_slate(
        self, own: PlatformState, draws: Float[Array, "*#users 2"]
    ) -> tuple[Float[Array, "*#users"], Int[Array, "*#users slots"]]:
        """Taste and slate of a platform while it explores; by default slates of one taste for several rounds.

        Args:
            own: The platform.
            draws: Two numbers uniform in [0, 1).
        """
        taste = next_taste(own.view.taste, draws, self.hold)
        return taste, taste_slate(taste, own.view.documents, self.world.slate)

    @override
    def best(self, own, values):
        """The slate of the highest expected value, by the users' own choice model."""
        appeal, nothing = self.appeal_of(own), module_of(values).zeros_like(values[..., 0])
        if values.shape[-1] > appeal.shape[-1]:  # the last is of no click
            values, nothing = values[..., :-1], values[..., -1]
        slate = best_slate(self.world.choice, appeal, values, self.world.slate, nothing)
        return self.fall_back(own, slate)

    def appeal_of(self, own: PlatformState) -> Float[AnyArray, "*#users candidates"]:
        """Scores by which users choose candidates, as the platform knows them; by default the true ones."""
        return self.world.appeal(own.view.documents)

    def fall_back(self, own: PlatformState, slate: Int[AnyArray, "*#users slots"]) -> Int[AnyArray, "*#users slots"]:
        """The slate, or one at random where the trial decided against the plan, or no model was handed out.

        It follows from the candidates and the rounds that are left: users with the same of both are shown the same.
        """
        xp, fallen = module_of(slate), self.has_fallen(own)
        if xp is np and not fallen.any():
            return slate
        documents = own.view.documents
        one = documents.reshape(*slate.shape[:-1], -1)[..., 0] + own.view.left
        candidates = documents.shape[len(slate.shape) - 1]
        return xp.where(fallen[..., None], trials.random_slate(one, candidates, slate.shape[-1]), slate)

    def has_fallen(self, own: PlatformState) -> Any:
        """True where the trial has decided against the plan, or no model was handed out: bool, one a user."""
        return ~(own.model != 0).any(axis=-1) | (own.verdict[..., 0] == trials.FALLEN_BACK)

    def arm_at(self, own: PlatformState, stay: Int[AnyArray, "*#users"], over: Any) -> Int[np.ndarray, "*#users"]:
        """The arm by which a stay that begins is served; without a model that says anything, the fallback.

        Args:
            own: The platform.
            stay: Number of the stay, or a hash of its name.
            over: Whether the trial is over: the last verdict holds for all then.
        """
        if not self.trial:
            return np.zeros(np.shape(stay), np.int32)
        told = np.broadcast_to(own.verdict[..., 0], np.shape(stay))
        settled = np.where(told == trials.ADOPTED, trials.PLAN, trials.FALLBACK)
        arm = np.where(over, settled, trials.arm_of(stay, told))
        return np.asarray(np.where(own.model.any(axis=-1), arm, trials.FALLBACK), np.int32)

    def serve(self, own: PlatformState, draws: Float[AnyArray, "*#users 2"] | None) -> Int[np.ndarray, "*#users slots"]:
        """The slate of a platform that has a model, by the arm of the stay; NumPy alone."""
        arm = np.asarray(own.view.arm)
        by_lot = (arm == trials.FALLBACK) & (draws is not None)
        slate = np.zeros((*arm.shape, self.world.slate), np.int32)
        if draws is not None and by_lot.any():
            slate = np.asarray(trials.random_slate(draws[..., 1], own.view.documents.shape[arm.ndim], self.world.slate))
        own = own._replace(verdict=np.zeros_like(own.verdict))
        for values, chosen in (
            (self.values, ~by_lot & (arm != trials.MYOPIC)),
            (self.greedy_values, arm == trials.MYOPIC),
        ):
            if chosen.all():
                return np.asarray(self.best(own, values(own)))
            if chosen.any():
                mine = self.choose_users(own, chosen)
                slate[chosen] = self.best(mine, values(mine))
        return slate

    def choose_users(self, own: PlatformState, chosen: Bool[np.ndarray, "*users"]) -> PlatformState:
        """A platform with some of its users alone, for :meth:`values` and :meth:`best`."""
        parts = (own.number, own.view, own.model, own.learnt, own.verdict)
        number, view, model, learnt, verdict = map_trees(lambda leaf: leaf[chosen], parts)
        return own._replace(number=number, view=view, model=model, learnt=learnt, verdict=verdict)

    def tally_after(self, own: PlatformState, turn: Turn) -> Float[np.ndarray, "*#users tally"]:
        """The trial's tally of the stay after a round."""
        residual, item = self.residual(own, turn)
        told = own.feedback & (turn.item >= 0)
        engagement = np.where(told, turn.engagement, 0)
        return trials.add_click(own.view.tally, engagement, residual, item, self.fade, turn.item != ABSENT)

    def trial_part(self, own: PlatformState, tally: Any) -> Int[np.ndarray, "*#users numbers"]:
        """Contribution of a stay to the sums of the trial, in steps."""
        vector = trials.vector_of(tally, own.view.arm, self.typical_stay(own.model))
        return np.asarray(clip_stay(vector, np.full(vector.shape[:-1], trials.CLIP, np.float32)))

    # -- the same for all --------------------------------------------------------------------------------------------

    def features_of(
        self, documents: Float[Array, "*#users candidates"]
    ) -> Float[Array, "*#users candidates *features"]:
        """Features of candidates as a platform has them, of the world's documents; by default the documents."""
        return documents

    def item_of(self, own: PlatformState, places: Int[Array, "*#users"]) -> Float[Array, "*#users *features"]:
        """Features, in [−1, 1], of the candidates at places."""
        return item_feature(take(own.view.documents, places[..., None])[..., 0])

    def clicked_feature(self, own: PlatformState, turn: Turn) -> Float[Array, "*#users"]:
        """The feature of what was clicked, 0 for nothing; without feedback, what is expected by the choice model."""
        xp, documents = module_of(own.view.documents, own.slate), own.view.documents
        clicked = xp.where(turn.item >= 0, self.item_of(own, xp.maximum(turn.item, 0)), xp.float32(0))
        return xp.where(own.feedback, clicked, expected_item(self.world, take(documents, own.slate)))

    @override
    def first_state(self, key: AnyKey | None, number: Int[Array, "*#users"] | int) -> PlatformState:
        world, xp = self.world, np if isinstance(number, np.ndarray) else jnp
        number = xp.asarray(number, xp.int32)

        def full(value: float, *axes: int, kind: Any = np.float32) -> Any:
            return xp.full((*number.shape, *axes), value, kind)

        documents, left = self.features_of(full(0, world.candidates)), full(world.rounds_per_episode, kind=np.int32)
        known, learnt = (_of_each(tree, number) for tree in (self.first_known(), self.first_learnt()))
        return PlatformState(
            number=number,
            feedback=xp.asarray(self.feedback)[number],
            view=View(full(0), documents, left, full(0), known, full(0, self._tally_size), full(0, kind=np.int32)),
            slate=full(0, world.slate, kind=np.int32),
            rounds=full(0, kind=np.int32),
            stay=full(0, self.numbers),
            sums=full(0, self.numbers, kind=np.int32),
            clip=full(self.clip),
            norms=full(0, BINS if self.bounders else 0, kind=np.int32),
            model=full(0, self.parameters),
            learnt=learnt,
            tested=full(0, trials.NUMBERS if self.trial else 0, kind=np.int32),
            verdict=full(0, trials.VERDICT),
        )

    @property
    def _tally_size(self) -> int:
        return trials.TALLY if self.trial else 0

    @override
    def first_view(self, own, observed, documents):
        xp = module_of(observed)
        left = xp.full(observed.shape, self.world.rounds_per_episode, xp.int32)
        known = _of_each(self.first_known(), observed)
        zeros, arm = xp.zeros((*observed.shape, self._tally_size), xp.float32), xp.zeros(observed.shape, xp.int32)
        taste = xp.zeros(observed.shape, xp.float32)
        return View(observed, self.features_of(documents), left, taste, known, zeros, arm)

    @override
    def next_view(self, own, turn, observed, documents, over):
        view: View = own.view
        after = view._replace(
            observed=observed,
            documents=self.features_of(documents),
            left=view.left - 1,
            known=self.known_after(own, turn),
        )
        if over is False:
            return after
        fresh = self.first_view(own, observed, documents)
        return choose_view(over, fresh, after)

    @override
    def record(self, own, turn, number, over):
        del number
        return self.add_round(own, turn, over)._replace(learnt=self.learnt_after(own))

    def round_part(self, own: PlatformState, turn: Turn) -> Float[Array, "*#users statistics"]:
        """Contribution of a round to the sum of a user's stay; arguments as of :meth:`add_round`."""
        xp = module_of(own.stay, turn.item)
        told = own.feedback & (turn.item >= 0)
        item = self.item_of(own, xp.maximum(turn.item, 0))
        more = self.contribution(own, item, xp.where(told, turn.engagement, xp.float32(1)))
        without = xp.where(own.feedback[..., None], self.without_click(), self.without_feedback(own))
        return xp.where(told[..., None], more, without)

    def add_round(self, own: PlatformState, turn: Turn, over: Bool[AnyArray, "*#users"]) -> PlatformState:
        """The state with a round added to the user's stay, and after the last to the sums.

        Args:
            own: The platform's state in the round.
            turn: The outcome of its slate.
            over: Whether the user has left.
        """
        xp = module_of(own.stay, turn.item)
        if xp is np and np.min(own.rounds) > self.release_rounds[-1]:
            stay = np.zeros_like(own.stay)  # no sums of these are sent
        else:
            stay = xp.where(
                (own.rounds > self.release_rounds[-1])[..., None], xp.float32(0), own.stay + self.round_part(own, turn)
            )
        bounding = own.rounds <= self.bound_round
        counts = over & ~bounding & (own.rounds <= self.release_rounds[-1])
        norms = own.norms
        if self.bounders:
            norms = norms + xp.where((over & bounding & own.feedback)[..., None], norm_bin(stay, self.clip), 0)
        if self.trial and self.release_rounds[-1] < np.max(own.rounds) <= self.look_rounds[-1]:
            own = own._replace(view=own.view._replace(tally=self.tally_after(own, turn)))
            counts_now = over & own.feedback & (own.rounds > self.release_rounds[-1])
            if np.any(counts_now):
                tested = np.where(counts_now[..., None], self.trial_part(own, own.view.tally), 0)
                own = own._replace(tested=own.tested + tested)
        return own._replace(
            rounds=own.rounds + 1,
            stay=xp.where(over[..., None], xp.float32(0), stay),
            sums=own.sums + xp.where(counts[..., None], clip_stay(stay, own.clip), 0),
            norms=norms,
        )


def choose_view(other: Bool[AnyArray, ""] | bool, fresh: View, there: View) -> View:
    """The view of one user: ``fresh`` of another user than before, else ``there``."""
    xp = module_of(other)
    return map_arrays(lambda new, old: xp.where(other, new, old), fresh, there)


def _of_each(tree: PyTree, like: AnyArray) -> PyTree:
    """A pytree with the leading axes of an array of NumPy; JAX maps over users."""
    if not isinstance(like, np.ndarray | np.generic):
        return tree
    return map_trees(lambda leaf: np.broadcast_to(leaf, (*like.shape, *np.shape(leaf))), tree)


def clip_stay(
    stay: Float[AnyArray, "*stays statistics"], clip: Float[AnyArray, "*stays"] | float
) -> Int[AnyArray, "*stays statistics"]:
    """A user's vector in steps of clip / 2¹⁴, of L2 norm up to 2¹⁴: shortened, then rounded towards zero.

    Args:
        stay: The sum over the stay; one with a number that is not finite counts as zero.
        clip: Largest norm.
    """
    xp, stay = module_of(stay), finite_stay(stay)
    norm, clip = xp.linalg.norm(stay, axis=-1, keepdims=True), xp.asarray(clip)[..., None]
    # A hair less than the clip, so that rounding of floats does not lead above it.
    shorter = stay * xp.minimum(xp.float32(1), (1.0 - 1e-5) * clip / xp.maximum(norm, 1e-30))
    return xp.trunc(shorter / clip * STEPS).astype(xp.int32)
