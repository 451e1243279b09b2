"""The method planned slates: its settings and its protocol; what is learnt and planned stands in :mod:`.learner`.

Items of several features have :mod:`.items`.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any, Literal

from typing_extensions import override

from fedrank.core.errors import ConfigError
from fedrank.core.fields import setting
from fedrank.engine.methods import PrivacyMode
from fedrank.slates.build import world_of
from fedrank.slates.config import EPISODE, Evaluation, SlatesRun
from fedrank.slates.learner import LEARNERS, platforms_that_see
from fedrank.slates.planning.items import ItemsLearner
from fedrank.slates.planning.learner import PlanLearner
from fedrank.slates.sums import SummedSlates
from fedrank.slates.sums.learner import SumLearner
from fedrank.slates.world.policies import plays_together
from fedrank.slates.world.satisfaction import Satisfaction

#: Users who are served to find out what they like, where no number is given and the run has as many.
MOST_EXPLORERS = 200
#: Stays of a trial where no number is given: most, and least, without which there is none.
MOST_TRIAL, LEAST_TRIAL = 4000, 2000


@dataclass(frozen=True, kw_only=True)
class Planning:
    """Exploration, learning and planning of platforms that learn from sums over users."""

    feedback: Literal["first", "all"] = setting(
        "first", "Which platforms have clicks and engagement: the first, or all."
    )
    explorers: int | None = setting(
        None,
        "Users who are served to find out what they like; models are made of them, and no platform explores again. "
        "Default: 200 for each feature of an item, or all users of the run if there are fewer; 0 with start_from.",
        low=0,
        high=65_536,
    )
    hold: float = setting(0.2, "Probability a round that a platform which explores draws another taste.")
    learner: str = setting(
        "planned-slates", "The learner: planned-slates, or one from sums over users that an installed package names."
    )
    trial: int | None = setting(
        None,
        "Stays after the explorers by which the plan is compared with random slates; it is served to all where it is "
        "better. 0: it is served without a test. Default: the stays that are left, up to 4,000; 0 if fewer than 2,000.",
        low=0,
        high=10**6,
    )
    looks: int | None = setting(
        None,
        "Times that sums over these stays cross, and the plan is judged anew. Default: 4; with an ε 1.",
        low=1,
        high=1000,
    )
    releases: int = setting(
        1, "Times that sums cross, each of as many explorers; planned-slates plans by the last.", low=1, high=1000
    )
    scale: float = setting(10.0, "A typical engagement of a click, a public number.", low=1e-6, high=1e6)
    observed: bool = setting(
        True, "What platforms observe of the satisfaction says what the past does, beside engagement."
    )
    differ: bool | None = setting(
        None,
        "Users may forgive one platform more than another: those without feedback send sums too, of satisfaction. "
        "Default: yes, but not in a secure sum.",
    )
    caution: float = setting(
        0.75, "Standard errors by which greed is taken to cost more than it was found to.", low=0.0, high=10.0
    )
    evidence: float = setting(
        3.0,
        "Standard errors that what an item is worth must be away from 0: else the model is not handed out.",
        low=0.0,
        high=100.0,
    )
    design: Literal["known", "sent"] = setting(
        "known",
        "Whether the matrix of least squares follows from how users choose, or crosses, clipped and noised like sums.",
    )

    def __post_init__(self):
        if not 0 < self.hold <= 1:
            raise ConfigError(f"slates.hold must be above 0 and at most 1, got {self.hold}.")


@dataclass(frozen=True, kw_only=True)
class PlannedRun(SlatesRun):
    """Settings of runs of planned slates: platforms learn from 200 users, and test the plan by the next 2,000."""

    rounds: int = setting(
        (MOST_EXPLORERS + LEAST_TRIAL) * EPISODE,
        "Rounds, in each of which every platform shows a slate; a user has 61.",
        low=1,
        high=10**8,
    )
    seeds: int = setting(3, "Number of runs with different seeds.", low=1, high=1000)
    evaluation: Evaluation = field(default_factory=lambda: Evaluation(every=(MOST_EXPLORERS + LEAST_TRIAL) * EPISODE))


@dataclass(frozen=True)
class PlannedSlates(SummedSlates):
    """Platforms that share users fit one model of engagement together, once, and each plans the stay alone."""

    slates: Planning = field(default_factory=Planning)

    name = "planned-slates"  # type: ignore[assignment] - elsewhere a property
    paper = "lagoudakis2003lspi"
    published = "Our own; in place of Lagoudakis and Parr: Least-Squares Policy Iteration, JMLR 2003"
    crosses = "five sums over all users of a platform, once"
    recommended = True
    run_settings = PlannedRun
    modes = (PrivacyMode("a user's whole stay", {"sharing": {"epsilon": 2.0}, "privacy": {"delta": 1e-5}}),)

    @override
    def unchanged(self) -> Any:
        return type(self)(learner=self.learner)

    @override
    def resolved(self, run: SlatesRun) -> Any:
        stay = run.world.ticks // run.world.platforms
        users, bounders = run.rounds // stay - self.sharing.bounders, self.sharing.bounders
        if users < 1:
            before = f", and the stays of the {bounders} users by whom the clip is found" if bounders else ""
            raise ConfigError(
                f"rounds must be at least {(bounders + 1) * stay}, one user's stay of {stay} rounds{before}; got "
                f"{run.rounds}."
            )
        warm = bool(run.start_from)
        most = 0 if warm else min(MOST_EXPLORERS * run.world.features, users)
        explorers = most if self.slates.explorers is None else self.slates.explorers
        if not explorers and bounders:
            raise ConfigError("sharing.bounders find the clip of explorers, and slates.explorers is 0: leave them out.")
        if not (not warm) <= explorers <= users:
            raise ConfigError(
                f"slates.explorers must be from 1 to the {users} users of this run, got {explorers}: models are made "
                f"when they have left. A user stays {stay} rounds; raise rounds."
            )
        left = users - explorers
        tested = plays_together(world_of(run)) and issubclass(LEARNERS.get(self.slates.learner), PlanLearner)
        default = min(MOST_TRIAL, left) if tested and left >= LEAST_TRIAL and not run.compute.debug else 0
        trial = default if self.slates.trial is None else self.slates.trial
        if trial > left:
            raise ConfigError(f"slates.trial must be at most the {left} stays after the explorers, got {trial}.")
        looks = self.slates.looks or (4 if self.epsilon is None else 1)
        if trial and trial < looks:
            raise ConfigError(f"slates.looks must be at most slates.trial = {trial}, got {looks}.")
        if trial and (not plays_together(world_of(run)) or run.compute.debug):
            raise ConfigError("a trial takes world.choice = multinomial or proportional, and no debug mode.")
        differ = not self.secure_sum if self.slates.differ is None else self.slates.differ
        return dataclasses.replace(
            self, slates=dataclasses.replace(self.slates, explorers=explorers, differ=differ, trial=trial, looks=looks)
        )

    @override
    def bind(self, world: Satisfaction) -> Any:
        s: Any = self.slates  # resolved
        made: Any = LEARNERS.get(s.learner)
        if made is PlanLearner and world.features > 1:
            made = ItemsLearner
        if not (isinstance(made, type) and issubclass(made, SumLearner)):
            raise ConfigError(
                f"slates.learner: {s.learner} must be a class of SumLearner, got {made!r}. Learners from other "
                "platforms' values are slates.critic of the protocol vertical-slate."
            )
        each, more = divmod(s.explorers, s.releases)
        if each < 1 <= max(s.explorers, s.releases - 1):
            raise ConfigError(f"slates.releases must be at most slates.explorers = {s.explorers}, got {s.releases}.")
        looks = divmod(s.trial, s.looks)
        learner = made.of(
            s,
            world=world,
            feedback=platforms_that_see(s.feedback, world.platforms),
            explorers=tuple(each + (place < more) for place in range(s.releases)),
            hold=s.hold,
            bounders=self.sharing.bounders,
            trial=tuple(looks[0] + (place < looks[1]) for place in range(s.looks)) if s.trial else (),
            **({} if self.sharing.clip is None else {"clip": self.sharing.clip}),
        )
        return dataclasses.replace(self, learner=learner)
