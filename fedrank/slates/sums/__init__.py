"""Platforms that share users learn from sums over them, which cross once or now and then; each serves by itself.

A round, for any learner (:class:`fedrank.slates.sums.learner.SumLearner`)::

    show      each platform shows a slate: of its exploration up to the last release, of its values afterwards; users
              act, nothing crosses
    release   after the last round of the explorers: a platform with feedback sends the sum of what its users' clicks
              contribute; the coordinator solves what came for a model
    improve   all are sent the model, and serve by it
    trial     after stays that were served by the plan, at random, or greedily, by lot: platforms with feedback send
              sums over these; the coordinator compares
    verdict   all are told whether the plan is served; see :mod:`fedrank.slates.sums.trial`

A platform without feedback is lent the model. Where the learner says so (``senders``), it sends a sum too, of what it
sees without feedback.

**Privacy.** A user's whole stay at a platform is one vector, shortened to a clip and counted once, in one release. With
``epsilon`` each platform adds discrete Gaussian noise to its sums before they leave, so that no other party is trusted;
ε is of the whole stay at all platforms together, with any stay replaced by any other, however many releases there are:
their users are others. The clip can be found by other users before (``bound``, ``clip``;
:mod:`fedrank.slates.sums.learner`). With ``secure_sum`` and three platforms with feedback or more the coordinator sees
the total of their sums and nothing else (:mod:`fedrank.slates.sums.secure_sum`).
"""

from __future__ import annotations

import functools
import operator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped, UInt32
from typing_extensions import override

from fedrank.core.arrays import AnyArray, PyTree, module_of
from fedrank.core.arrays import AnyArray as Array
from fedrank.core.errors import ConfigError
from fedrank.core.fields import bound, setting
from fedrank.core.lazy import jax, jnp
from fedrank.core.messages import Layout
from fedrank.core.native import map_arrays, map_trees
from fedrank.core.privacy_report import AuditedBy, PrivacyReport
from fedrank.core.protocol import Environment, Exchange
from fedrank.core.streams import AnyKey, stream, uniforms
from fedrank.core.trees import Json
from fedrank.privacy.accounts.vectors import sum_account
from fedrank.privacy.calibration import replacement_sensitivity, shared_gaussian_sigma
from fedrank.privacy.noise.discrete import discrete_gaussian
from fedrank.privacy.noise.simulated import simulated_discrete_gaussian
from fedrank.privacy.secure_sum.messages import extra_messages
from fedrank.slates.config import LARGEST, Privacy
from fedrank.slates.learner import LearnerProtocol, UserVisits
from fedrank.slates.sums import trial as trials
from fedrank.slates.sums.learner import BINS, STEPS, PlatformState, SumLearner, clip_of
from fedrank.slates.sums.messages import (
    Bound,
    Done,
    NormCounts,
    NormSummand,
    RoundStart,
    SharedModel,
    Statistics,
    StatisticsSummand,
    TrialSummand,
    TrialSums,
    Verdict,
)
from fedrank.slates.sums.secure_sum import check as check_secure_sum
from fedrank.slates.sums.secure_sum import total

_COVERS = (
    "A user's whole stay, at all platforms together: replaced by any other stay, it changes what crosses by no more "
    "than ε and δ say. Everything after it follows from what crossed.",
)
_NOT_COVERED = (
    "That a user came, and how many did: the number of explorers is public.",
    "Users after the explorers and after the stays of a trial: nothing of them crosses.",
)
_OWN_NOISE = (
    "Against a platform, which knows its own noise and what it put in: what the other {others} put into a total is "
    "under the noise of those {others}, which is enough for what a user does there."
)
_RULES = (
    "One platform's sums, against a coordinator that breaks the rules of the secure sum, by handing out keys of its "
    "own for instance: it sees them with that platform's noise. ε holds all the same."
)
_VISIBLE = (
    "Of a secure sum of {platforms} platforms the coordinator sees the total and who took part; no other party sees a "
    "platform's own sums. If a platform fails in between, nothing is unmasked, and the same sums are summed again."
)
_NO_LESS = (
    "The secure sum takes no noise away: a user who comes to all {platforms} platforms changes the total by "
    "{platforms} clips, so that each platform adds the noise that its sums would need if they were seen alone."
)


@dataclass(frozen=True, kw_only=True)
class SumSharing:
    """Clipping and noise of a platform's sums, before they leave it."""

    clip: float | None = setting(
        None,
        "Largest L2 norm of what a user adds to the sums. Default: the learner's, 20 of planned-slates.",
        low=1e-3,
        high=1e6,
    )
    bounders: int = setting(
        0,
        "Users before the explorers by whom the clip is found, with the same ε; clip is then the middle of what is "
        "tried.",
        low=0,
        high=65_536,
    )
    epsilon: float | None = setting(
        None, "ε of a user's whole stay at all platforms together, at privacy.delta. Default: no noise."
    )
    secure_sum: bool = setting(
        False, "The coordinator sees the total of the platforms with feedback only; needs three of them."
    )

    def __post_init__(self):
        if self.epsilon is not None and not 0 < self.epsilon < LARGEST:
            raise ConfigError(
                f"sharing.epsilon must be above 0 and below {LARGEST:g}, got {self.epsilon}; or leave it out."
            )


class CoordinatorState(NamedTuple):
    """The coordinator's state.

    Attributes:
        round: Rounds so far.
        model: The model; zeros before sums have come.
        clip: Largest L2 norm of what a user adds to the sums.
        evidence: What trials have said; see :data:`fedrank.slates.sums.trial.EVIDENCE`.
    """

    round: UInt32[Array, ""]
    model: Float[Array, " parameters"]
    clip: Float[Array, ""]
    evidence: Float[Array, " evidence"]


@dataclass(frozen=True)
class Show(Exchange, request=RoundStart, reply=Done):
    """Every platform shows a slate: it explores, or serves by its model. Nothing crosses."""

    settings: SummedSlates

    name = "show"
    silent = True

    @property
    def environment(self) -> Environment:  # type: ignore[override] - elsewhere an attribute of the class
        """Users come to each platform and look at its slate."""
        return UserVisits(self.settings.learner)

    @override
    def ask(self, state):
        return RoundStart(state.round)

    @override
    def draw(self, key: AnyKey):
        return uniforms(stream(key, 2)) if isinstance(key, np.ndarray) else jax.random.uniform(key, (2,))

    @override
    def draw_from_os(self):
        # Exploring is no protection; it may come from any generator.
        return np.random.default_rng().random(2, np.float32)

    @override
    def respond(self, request, party, draws):
        learner, own = self.settings.learner, party.own
        taste, exploring = learner.explore_slate(own, draws)
        served = learner.best(own, learner.values(own))
        slate = module_of(exploring).where(own.rounds <= learner.release_rounds[-1], exploring, served)
        return party._replace(own=own._replace(view=own.view._replace(taste=taste), slate=slate)), Done()

    @override
    def tell(self, state, replies, arrived):
        return state._replace(round=state.round + 1)


@dataclass(frozen=True)
class AfterExplorers(Exchange):
    """An exchange after the last round of some users, with the platforms that have feedback or with all.

    Attributes:
        settings: The protocol.
        rounds: The rounds in which it is due.
    """

    settings: SummedSlates
    rounds: tuple[int, ...]

    @override
    def due(self, number):
        return functools.reduce(operator.or_, (number == one for one in self.rounds))


@dataclass(frozen=True)
class TellAll(AfterExplorers):
    """The coordinator tells all platforms something; it learns nothing from their replies."""

    @override
    def tell(self, state, replies, arrived):
        return state


@dataclass(frozen=True)
class IntegersOfUsers(AfterExplorers):
    """Platforms send integers over users, each with separate discrete Gaussian noise.

    With a secure sum what they send is masked, and the coordinator sees the total.

    Attributes:
        numbers: Length of the vector of integers that a platform sends for all its users together, at least 1.
        sigma: σ of the noise on each; None without noise.
        senders: For each platform, true if it sends integers.
    """

    numbers: int
    sigma: float | None
    senders: tuple[bool, ...]

    #: What is sent, and what is sent into a secure sum.
    messages: ClassVar[tuple[type, type]]

    @property
    @override
    def reply(self) -> Layout:
        return self.layout(self.messages[self.settings.secure_sum])

    @override
    def extra_messages(self, parties):
        """Further messages of a secure sum, which those who send vectors send alone."""
        senders = sum(self.senders)
        return extra_messages(self.numbers, senders, senders) if self.settings.secure_sum else ()

    @override
    def asked(self, state, parties):
        return np.asarray(self.senders)

    @override
    def max_asked(self, parties):
        return sum(self.senders)

    @override
    def ask(self, state):
        return RoundStart(state.round)

    @override
    def draw(self, key: AnyKey):
        return () if self.sigma is None else simulated_discrete_gaussian(key, (self.numbers,), self.sigma)

    @override
    def draw_from_os(self):
        return () if self.sigma is None else np.asarray(discrete_gaussian(self.sigma, self.numbers), np.int32)

    def noisy(self, integers: Int[Array, " numbers"], draws: Any) -> Any:
        """Integers that leave the platform, or go under its masks; ``draws`` is the noise, () without."""
        noisy = integers if self.sigma is None else integers + draws
        message = self.messages[self.settings.secure_sum]
        return message(noisy.astype(np.uint32) if self.settings.secure_sum else noisy)

    def total(
        self, vectors: Shaped[Array, "platforms numbers"], arrived: Bool[AnyArray, " platforms"]
    ) -> tuple[Float[Array, " numbers"], Int[Array, ""]]:
        """The sum of what platforms sent, and how many of them are in it."""
        xp = module_of(vectors)
        senders, arrived = xp.asarray(self.senders), xp.asarray(arrived)
        if self.settings.secure_sum:
            summed, count = total(vectors, arrived, senders)
            return summed.astype(xp.float32), count
        heard = arrived & senders
        return xp.sum(xp.where(heard[:, None], vectors, 0).astype(xp.float32), axis=0), xp.sum(heard)


@dataclass(frozen=True)
class CountNorms(IntegersOfUsers, request=RoundStart):
    """Once, before the explorers: platforms with feedback say how long their users' vectors are."""

    name = "bound"
    messages = NormCounts, NormSummand

    @override
    def respond(self, request, party, draws):
        return party, self.noisy(party.own.norms, draws)

    @override
    def tell(self, state, replies, arrived):
        counts, platforms = self.total(replies.counts, arrived)
        clip = clip_of(counts, self.settings.learner.clip)
        return state._replace(clip=module_of(counts).where(platforms > 0, clip, state.clip))


@dataclass(frozen=True)
class SetClip(TellAll, request=Bound, reply=Done):
    """Once, after the counts: all are told the clip."""

    name = "clip"

    @override
    def ask(self, state):
        return Bound(state.clip)

    @override
    def respond(self, request, party, draws):
        xp = module_of(request.clip, party.own.clip)
        good = xp.isfinite(request.clip) & (request.clip > 0)
        return party._replace(own=party.own._replace(clip=xp.where(good, request.clip, party.own.clip))), Done()


@dataclass(frozen=True)
class Release(IntegersOfUsers, request=RoundStart):
    """After explorers: platforms send their sums; the coordinator solves for the model."""

    name = "release"
    messages = Statistics, StatisticsSummand

    @override
    def respond(self, request, party, draws):
        sums = party.own.sums
        if len(self.rounds) > 1:  # a user counts in one release
            party = party._replace(own=party.own._replace(sums=module_of(sums).zeros_like(sums)))
        return party, self.noisy(sums, draws)

    @override
    def tell(self, state, replies, arrived):
        s, learner = self.settings, self.settings.learner
        xp = module_of(state.model, replies.sums)
        # Which release it is, by the round; ``show`` has counted this one already.
        done = state.round.astype(xp.int32) > xp.asarray(learner.release_rounds)
        users = xp.asarray(learner.explorers)[xp.maximum(xp.sum(done) - 1, 0)]
        rounds = (users * learner.world.rounds_per_episode).astype(xp.float32)
        unit = state.clip / STEPS
        noise = unit * (s.sigma or 0.0)
        if s.secure_sum:
            steps, count = self.total(replies.sums, arrived)
            of_all = noise * xp.sqrt(count.astype(xp.float32))
            model = learner.solve(steps * unit, count * rounds, state.model, of_all)
            good = count > 0
        else:
            heard = xp.asarray(arrived) & xp.asarray(s.senders)
            steps = xp.where(heard[:, None], replies.sums, 0).astype(xp.float32)
            model = learner.solve_platforms(steps * unit, heard, rounds, state.model, noise)
            good = xp.any(heard & xp.asarray(s.feedback))  # without feedback it is unknown what engages
            count = xp.sum(heard & xp.asarray(s.feedback))
            of_all = noise * xp.sqrt(count.astype(xp.float32))
        good = good & xp.all(xp.isfinite(model))
        # A model that says no more than its noise is not handed out.
        good = good & learner.informs(model, count * rounds, of_all)
        return state._replace(model=xp.where(good, model, state.model))


@dataclass(frozen=True)
class Improve(TellAll, request=SharedModel, reply=Done):
    """After the sums: every platform is sent the model, and serves by it."""

    name = "improve"

    @override
    def ask(self, state):
        return SharedModel(state.model)

    @override
    def respond(self, request, party, draws):
        own: PlatformState = party.own
        new = request.weights, self.settings.learner.improve(own._replace(model=request.weights))
        xp, finite = module_of(request.weights), []
        map_arrays(lambda leaf: finite.append(xp.isfinite(leaf).all()), new)
        good = functools.reduce(operator.and_, finite)
        model, learnt = map_arrays(lambda after, before: xp.where(good, after, before), new, (own.model, own.learnt))
        return party._replace(own=own._replace(model=model, learnt=learnt)), Done()


@dataclass(frozen=True)
class Trial(IntegersOfUsers, request=RoundStart):
    """After stays that were served by lot: platforms with feedback send sums over them; the coordinator compares."""

    name = "trial"
    messages = TrialSums, TrialSummand

    @property
    def noise(self) -> float:
        """Standard deviation of the noise on each number of a platform."""
        return (self.sigma or 0.0) * trials.CLIP / STEPS

    @override
    def respond(self, request, party, draws):
        own = party.own
        return party._replace(own=own._replace(tested=np.zeros_like(own.tested))), self.noisy(own.tested, draws)

    @override
    def tell(self, state, replies, arrived):
        steps, count = self.total(replies.sums, arrived)
        part = self.settings.learner.counted_part(state.round)
        noise = self.noise * float(count) ** 0.5
        sums = np.asarray(steps) * (trials.CLIP / STEPS)
        looks = self.settings.learner.looks_at(state.round)
        return state._replace(evidence=trials.add_evidence(state.evidence, sums, float(count), noise, part, looks))


@dataclass(frozen=True)
class Decide(TellAll, request=Verdict, reply=Done):
    """After a look: all are told whether the plan is served."""

    name = "verdict"

    @override
    def ask(self, state):
        return Verdict(self.settings.verdict(state))

    @override
    def respond(self, request, party, draws):
        decision = np.clip(np.nan_to_num(request.verdict[0]), 0, trials.FALLEN_BACK)
        told = np.concatenate([[np.floor(decision)], request.verdict[1:]]).astype(np.float32)
        return party._replace(own=party.own._replace(verdict=told)), Done()


@dataclass(frozen=True)
class SummedSlates(LearnerProtocol):
    """Platforms that learn from sums over users.

    Attributes:
        learner: What is learnt.
        sharing: Clipping and noise of the sums.
        privacy: δ of the noise.
        start: The model that there is before the first user, a :class:`fedrank.slates.model.SumModel`; None: none.

    Raises:
        ConfigError: A secure sum of fewer than three platforms, of too many users, or for a learner that needs each
            platform's sums.
    """

    learner: SumLearner = bound()
    sharing: SumSharing = field(default_factory=SumSharing)
    privacy: Privacy = field(default_factory=Privacy)
    start: Any = bound()

    quick = True
    plans = True

    def __post_init__(self):
        if self.learner is None or not self.secure_sum:
            return
        if self.learner.by_platform:
            raise ConfigError(
                f"a secure sum shows no platform's own sums, of which {self.learner.name} makes a weight for each "
                "where users may forgive one more than another. Take one weight for all (slates.differ = false), or "
                "leave sharing.secure_sum out."
            )
        if self.senders != self.feedback:
            raise ConfigError(
                f"a secure sum is of platforms with feedback, and of {self.learner.name} others send sums as well. "
                "Leave sharing.secure_sum out."
            )
        check_secure_sum(self.releases, max(self.learner.explorers), STEPS, self.sigma or 0.0)
        check_secure_sum(self.releases, self.learner.bounders, 1, self.bound_sigma or 0.0)
        check_secure_sum(self.releases, max(self.learner.trial, default=0), STEPS, self.trial_sigma or 0.0)

    @property
    def name(self) -> str:  # type: ignore[override] - elsewhere an attribute of the class
        """Name of the learner."""
        return self.learner.name

    @property
    def world(self) -> Any:  # type: ignore[override] - as above
        """The simulated users that all platforms share; None: those of the run."""
        return None if self.learner is None else self.learner.world

    @property
    @override
    def feedback(self) -> tuple[bool, ...]:
        return self.learner.feedback

    @property
    def secure_sum(self) -> bool:
        """True if the coordinator sees the total over the platforms with feedback only."""
        return self.sharing.secure_sum

    @property
    def epsilon(self) -> float | None:
        """ε of a user's whole stay at all platforms together; None: no noise."""
        return self.sharing.epsilon

    @property
    def delta(self) -> float:  # type: ignore[override] - as above
        """δ of the noise, and of the account of a run."""
        return self.privacy.delta

    @property
    def cites(self) -> tuple[str, ...]:  # type: ignore[override] - as above
        """The publication of the secure sum, if there is one."""
        return ("bonawitz2017secagg",) if self.secure_sum else ()

    @property
    def sizes(self) -> dict[str, int]:  # type: ignore[override] - elsewhere an attribute of the class
        """Lengths of the axes of messages."""
        return {"statistics": self.learner.numbers, "parameters": self.learner.parameters}

    @property
    def senders(self) -> tuple[bool, ...]:
        """For each platform, true if it sends sums."""
        return self.learner.senders

    @property
    def releases(self) -> int:
        """Messages that tell of a user: one of each platform that sends sums."""
        return sum(self.senders)

    @cached_property
    def sensitivity(self) -> float:
        """The largest L2 distance, in steps, between what two users add to the sums of a platform."""
        return replacement_sensitivity(1.0, "l2", self.learner.numbers, "l2", STEPS)

    @cached_property
    def sigma(self) -> float | None:
        """σ of the discrete Gaussian noise on each platform's sums, in steps; None without noise."""
        return self._sigma(self.sensitivity, self.learner.numbers)

    @cached_property
    def bound_sigma(self) -> float | None:
        """σ of the noise on each platform's counts of norms, of which a user changes two; None without noise."""
        return self._sigma(2.0**0.5, BINS)

    def _sigma(self, sensitivity: float, numbers: int) -> float | None:
        if self.epsilon is None:
            return None
        return shared_gaussian_sigma(self.epsilon, self.delta, sensitivity, 1, numbers, self.releases)

    @property
    @override
    def exchanges(self) -> tuple[Exchange, ...]:
        learner, feedback = self.learner, self.feedback
        made: list[Exchange] = [Show(self)]
        if learner.bounders:
            bound = (learner.bound_round,)
            made += [CountNorms(self, bound, BINS, self.bound_sigma, feedback), SetClip(self, bound)]
        after = learner.release_rounds
        made += [Release(self, after, learner.numbers, self.sigma, self.senders), Improve(self, after)]
        if learner.trial:
            looks = learner.look_rounds
            made += [Trial(self, looks, trials.NUMBERS, self.trial_sigma, feedback), Decide(self, looks)]
        return tuple(made)

    @cached_property
    def trial_sigma(self) -> float | None:
        """σ of the noise on each platform's sums of a trial, in steps; None without noise."""
        sensitivity = replacement_sensitivity(1.0, "l2", trials.NUMBERS, "l2", STEPS)
        return self._sigma(sensitivity, trials.NUMBERS)

    def verdict(self, state: CoordinatorState) -> Float[np.ndarray, " verdict"]:
        """The verdict so far; see :data:`fedrank.slates.sums.trial.VERDICT`."""
        looks, part = self.learner.looks_at(state.round), self.learner.counted_part(state.round)
        noise = (self.trial_sigma or 0.0) * trials.CLIP / STEPS * sum(self.feedback) ** 0.5
        return trials.verdict_of(state.evidence, part, noise, looks)

    @override
    def init(self, key: AnyKey | None) -> CoordinatorState:
        learner = self.learner
        xp: Any = np if key is None or isinstance(key, np.ndarray) else jnp
        evidence = xp.zeros(trials.EVIDENCE if learner.trial else 0, xp.float32)
        model = xp.zeros(learner.parameters, xp.float32) if self.start is None else xp.asarray(self.start.model)
        return CoordinatorState(xp.uint32(0), model, xp.float32(learner.clip), evidence)

    @override
    def platform(self, key: AnyKey | None, number: Int[Array, "*#users"] | int) -> PlatformState:
        own = self.learner.first_state(key, number)
        if self.start is None:
            return own
        xp = module_of(own.number)
        model = xp.broadcast_to(xp.asarray(self.start.model), own.model.shape)
        each = [self.start.fill_learnt(name) for name in self.start.names]
        return own._replace(model=model, learnt=map_trees(lambda *leaves: xp.stack(leaves)[number], *each))

    @override
    def weights(self, state: CoordinatorState) -> Float[Array, "*runs parameters"]:
        return state.model

    @override
    def changing(self, first: int, last: int) -> bool:
        learner = self.learner
        # A subclass that changes how it is served has to say so again.
        steady = learner.steady and "steady" in vars(type(learner))
        return not steady or any(first <= number < last for number in (*learner.release_rounds, *learner.look_rounds))

    @override
    def count_learnt_from(self, users: int) -> int:
        learner = self.learner
        return min(users, learner.bounders + sum(learner.explorers) + sum(learner.trial))

    @override
    def describe(self) -> dict[str, Json]:
        learner = self.learner
        return {"network": learner.name, "n_features": learner.numbers, "parameters": learner.parameters}

    @override
    def platform_tensors(self, own: PlatformState) -> dict[str, PyTree]:
        if isinstance(own.slate, np.ndarray):
            learnt = {f"learnt.{name}": leaf for name, leaf in own.learnt._asdict().items()} if own.learnt else {}
            return {**learnt, "verdict": own.verdict} if self.learner.trial else learnt
        leaves = jax.tree_util.tree_leaves_with_path(own.learnt)
        return {f"learnt{jax.tree_util.keystr(path)}": leaf for path, leaf in leaves}

    @override
    def watch(self, state: CoordinatorState) -> dict[str, Float[Array, ""]]:
        """The length of the model: 0 until there is one."""
        return {"model_norm": jnp.linalg.norm(state.model)}

    @override
    def account(self, rounds: int, delta: float) -> PrivacyReport:
        """Privacy of the noise on the sums: of one message a platform that sends any, however long the run is."""
        learner = self.learner
        if self.sigma is None:
            of_trial = f"sums of {trials.NUMBERS} numbers over the stays of its trial"
            whose = (
                of_trial.capitalize()
                if not sum(learner.explorers)
                else f"The total of {learner.numbers} numbers over all explorers of {self.releases} platforms together"
                if self.secure_sum
                else f"Sums of {learner.numbers} numbers over all explorers of each platform that sends them"
            )
            seen = f"{whose}, clipped but without noise."
            words = (_VISIBLE.format(platforms=self.releases), *_NOT_COVERED) if self.secure_sum else _NOT_COVERED
            return PrivacyReport.none(rounds, seen, words)
        report = sum_account(
            mechanism="gaussian",
            scale=self.sigma,
            sensitivity=self.sensitivity,
            rounds=self.releases,
            enough=1,
            secure_sum=False,
            parameters=learner.numbers,
            delta=self.delta,
        )
        about = {"numbers": learner.numbers, "platforms": self.releases, "releases": min(2, len(learner.explorers))}
        audit = AuditedBy("slate-sums", {"epsilon": self.epsilon, "delta": self.delta, **about})
        report = replace(report, covers=_COVERS, not_covered=(*_NOT_COVERED, *report.not_covered), audit=audit)
        if not self.secure_sum:
            return report
        n = self.releases
        return replace(
            report,
            covers=(*_COVERS, _OWN_NOISE.format(others=n - 1)),
            not_covered=(_RULES, *report.not_covered),
            details={**report.details, "secure_sum": True},
            words=(*report.words, _VISIBLE.format(platforms=n), _NO_LESS.format(platforms=n)),
        )
