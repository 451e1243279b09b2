"""Files of a run of platforms besides its metrics: platforms, users, fixed policies.

``slates.json`` says who has feedback, what the users are like and which faults of the published code are on, and at
the end when a threshold was reached. ``baselines.json`` has fixed policies
with their means over fresh users, and over the users that each run is judged by, so that a difference is paired.

``stays.json`` has a user's stay by policy: the share of kale of what is clicked, platform by platform and round by
round, and the mean satisfaction as a round begins. The run's own is "run". Runs of older versions have no such file.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fedrank.core.frame import Frame
from fedrank.core.trees import Json
from fedrank.report import figures
from fedrank.report.charts import Chart
from fedrank.report.files import Undefinable, convert, convert_content, json_object, object_of
from fedrank.report.html import Html, h
from fedrank.report.run import Run
from fedrank.report.statistics import Interval
from fedrank.report.wording import in_words

#: What is measured: the sum of engagement over a user's stay, of all platforms together or of one.
ENGAGEMENT = "engagement"
#: The policy that knows nothing, the one that thinks of now only, and the yardstick.
RANDOM, MYOPIC, OPTIMUM = "random", "myopic", "optimum"
#: The run's own policy where every platform shows what the first with feedback would, and where it thinks of now only.
COPYING, GREEDY = "copying", "greedy"
#: Fixed policies, from worst to best where there is no tension.
POLICIES = ("kale", RANDOM, "choc", "kale-then-choc", "best-fixed", MYOPIC, OPTIMUM)

#: Faults that a caveat names one by one.
_MOST_NAMED = 3
#: Settings of the users that are the preset's unless they are given.
_GIVEN = {"sensitivity": "τ", "memory_discount": "β", "observation_noise": "noise", "semantics": "semantics"}


def measures(names: Sequence[str]) -> tuple[str, ...]:
    """Engagement in all, and of each platform."""
    return (ENGAGEMENT, *(f"{ENGAGEMENT} ({name})" for name in names))


@dataclass(frozen=True)
class PolicyBaseline:
    """A fixed policy.

    Attributes:
        name: One of :data:`POLICIES`.
        values: Mean over fresh users with its interval, by measure.
        users: How many those are.
        runs: Mean over the users that a run is judged by, by measure and seed; empty if the run did not write it.
        notes: What it is.
    """

    name: str
    values: Mapping[str, Interval]
    users: int
    runs: Mapping[str, Mapping[int, float]]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Threshold:
    """Users until the evaluation curve reached a level.

    Attributes:
        level: Engagement of a user.
        users: By seed, how many users had been served; None where the level was not reached.
    """

    level: float
    users: tuple[float | None, ...]


@dataclass(frozen=True, kw_only=True)
class SlateRun:
    """Everything of a run that concerns platforms.

    Attributes:
        names: The platforms.
        feedback: Which of them see clicks and engagement.
        protocol: How they learn.
        central: Whether each platform sees the user as all of them do.
        faults: Faults of a published code that are on: ``key``, ``name`` and ``what`` of each.
        world: What the users are like, by setting.
        stay: Rounds that a user stays.
        users: Users that a run serves.
        every: Rounds between evaluations.
        judges: Fresh users of an evaluation.
        notes: What a reader should know about the users and the networks.
        given: Settings of the users that are not the preset's.
        marks: Fixed policies, and at the end copying.
        share: How far the threshold lies from random to the optimum.
        thresholds: By measure; empty before the run has ended.
        stays: When what was served, by policy; empty before the run has ended.
    """

    names: tuple[str, ...]
    feedback: tuple[bool, ...]
    protocol: str
    central: bool = False
    faults: tuple[Mapping[str, Json], ...]
    world: Mapping[str, Json]
    stay: int
    users: int
    every: int
    judges: int
    notes: tuple[str, ...] = ()
    given: tuple[str, ...] = ()
    marks: tuple[PolicyBaseline, ...] = ()
    share: float = 0.5
    thresholds: Mapping[str, Threshold] = field(default_factory=dict)
    stays: Mapping[str, Stay] = field(default_factory=dict)
    trial: tuple[Mapping[str, Any], ...] = ()

    @property
    def measures(self) -> tuple[str, ...]:
        """Engagement in all, and of each platform."""
        return measures(self.names)

    @property
    def federates(self) -> bool:
        """True if platforms send each other anything."""
        return self.protocol != "slateq"

    @property
    def by_sums(self) -> bool:
        """True if sums over users cross, once or a few times, and no values of candidates."""
        return self.protocol == "planned-slates"

    @property
    def users_in_words(self) -> str:
        """The users in few words: their world, how much is to choose from, and what differs from the preset."""
        world = self.world
        parts = [
            f"{world['preset']} users",
            f"N = {int(world['candidates']):,}",
            f"n = {int(world['slate']):,}",
            *(f"{said} {world[key]}" for key, said in _GIVEN.items() if key in self.given),
            *([] if world["choice"] == "multinomial" else [f"choice {world['choice']}"]),
            *([] if world["shared_candidates"] else ["candidates of one’s own"]),
            *([] if len(self.names) == 2 else [f"{len(self.names)} platforms"]),
        ]
        return ", ".join(parts)

    @property
    def with_feedback(self) -> tuple[str, ...]:
        """Platforms that see clicks and engagement."""
        return tuple(name for name, sees in zip(self.names, self.feedback, strict=True) if sees)

    @property
    def without_feedback(self) -> tuple[str, ...]:
        """The platforms that see neither clicks nor engagement."""
        return tuple(name for name, sees in zip(self.names, self.feedback, strict=True) if not sees)

    @property
    def feedback_in_words(self) -> str:
        """Platforms with and without clicks and engagement: ``"A with feedback, B without"``."""
        if self.central:
            return "each sees the user as all do"
        without = self.without_feedback
        return (
            f"{in_words(self.with_feedback)} with feedback, {in_words(without)} without"
            if without
            else "all with feedback"
        )

    @property
    def caveats(self) -> tuple[str, ...]:
        """Faults of the published code that are on, for figures."""
        if len(self.faults) > _MOST_NAMED:
            return (f"{len(self.faults)} faults of the published code are on",)
        named = [str(one["name"]) for one in self.faults]
        return (f"Faults of the published code: {in_words(named)}",) if named else ()

    def mark(self, name: str) -> PolicyBaseline | None:
        """A fixed policy by name."""
        return next((one for one in self.marks if one.name == name), None)

    def lines(self, measure: str, names: Sequence[str] = (*POLICIES, COPYING, GREEDY)) -> dict[str, float]:
        """Means of fixed policies over fresh users, in this order."""
        found = ((name, self.mark(name)) for name in names)
        return {name: mark.values[measure].mean for name, mark in found if mark and measure in mark.values}


def read_slates(folder: Path, config: Mapping[str, Json], *, finished: bool) -> SlateRun:
    """Read what a run of platforms wrote.

    Args:
        folder: The run directory.
        config: Its configuration.
        finished: Whether the run came to its end: then nothing may be missing.

    Raises:
        RunError: A file is missing, cut, or of another schema; says which file and what to do.
    """
    file, marks_file = folder / "slates.json", folder / "baselines.json"
    first, count = (value if isinstance(value := config.get(key), int) else 0 for key in ("seed", "seeds"))
    seeds, users = range(first, first + count), config.get("world")
    given = tuple(users) if isinstance(users, Mapping) else ()
    raw = json_object(file)
    known = json_object(marks_file, needed=finished)
    what = "for each policy 'values', 'episodes' and 'runs' of as many platforms as slates.json has"
    marks = convert_content(
        marks_file, what, lambda: _marks(known["baselines"] if known else (), raw["platforms"], seeds)
    )
    what = "'platforms', 'feedback', 'world' and at the end 'results' as fedrank writes them"
    made = convert_content(
        file, what, lambda: _made(raw, (*marks, *_copying_policy(raw, seeds)), given, needed=finished)
    )
    return replace(made, stays=read_stays(folder))


def _copying_policy(raw: Mapping[str, Json], seeds: Sequence[int]) -> tuple[PolicyBaseline, ...]:
    found = raw.get("results") or {}
    return _marks([found[name] for name in (COPYING, GREEDY) if found.get(name)], raw["platforms"], seeds)


def _marks(known: Sequence[Json], names: Sequence[str], seeds: Sequence[int]) -> tuple[PolicyBaseline, ...]:
    return tuple(_mark(one, measures(names), seeds) for one in known)


def _mark(raw: Mapping[str, Json], measures: Sequence[str], seeds: Sequence[int]) -> PolicyBaseline:
    runs: dict[str, dict[int, float]] = {}
    rows = [[float(value) for value in row] for row in raw.get("runs") or ()]
    if rows and len(rows) != len(seeds):
        raise ValueError(f"runs of {raw['name']} are {len(rows)}, not {len(seeds)}")
    for seed, row in zip(seeds, rows, strict=False):
        for measure, value in zip(measures, (math.fsum(row), *row), strict=True):
            runs.setdefault(measure, {})[seed] = value
    return PolicyBaseline(
        name=str(raw["name"]),
        values={str(one["measure"]): _interval(one) for one in raw["values"] if one["split"] == "test"},
        users=int(raw["episodes"]),
        runs=runs,
        notes=tuple(map(str, raw.get("notes") or ())),
    )


def _made(
    raw: Mapping[str, Json], marks: tuple[PolicyBaseline, ...], given: tuple[str, ...], *, needed: bool
) -> SlateRun:
    found = raw["results"] if needed else raw.get("results") or {}
    names, feedback = tuple(map(str, raw["platforms"])), tuple(map(bool, raw["feedback"]))
    if not names or len(names) != len(feedback):
        raise ValueError(f"{len(feedback)} feedback of {len(names)} platforms")
    threshold = found.get("threshold") or {}
    return object_of(
        SlateRun,
        raw,
        names=names,
        feedback=feedback,
        stay=int(raw["world"]["rounds_per_episode"]),
        users=int(raw["episodes"]),
        every=int(raw["evaluation"]["every"]),
        judges=int(raw["evaluation"]["episodes"]),
        given=given,
        marks=marks,
        share=float(threshold.get("share", 0.5)),
        trial=tuple(found.get("trial") or ()),
        thresholds={str(name): _threshold(one) for name, one in (threshold.get("measures") or {}).items()},
    )


def _threshold(raw: Mapping[str, Json]) -> Threshold:
    return Threshold(float(raw["level"]), tuple(None if one is None else float(one) for one in raw["episodes"]))


def _interval(raw: Mapping[str, Json]) -> Interval:
    low, high = (None if raw.get(end) is None else float(raw[end]) for end in ("low", "high"))
    return Interval(float(raw["value"]), low, high)


#: Name of the run's own stay, and of the policies that are drawn beside it.
OURS, _BESIDE = "run", {"optimum": "best possible", "random": "random slates", "myopic": "best for now"}
#: Names of the two figures.
FIGURES = ("stay-kale", "stay-satisfaction")
#: Rounds that the end of a stay is.
_END = 7
#: A difference of shares of kale, and of satisfaction, that is worth a word.
_TELLS, _FELT = 0.05, 0.002


@dataclass(frozen=True)
class Stay:
    """A user's stay under a policy, mean over fresh users.

    Attributes:
        kale: Share of kale of what was clicked, by platform and round, in [0, 1]; NaN where nothing was.
        satisfaction: As a round begins, by round, in [0, 1].
    """

    kale: Mapping[str, tuple[Undefinable, ...]]
    satisfaction: tuple[float, ...]

    @property
    def mean_kale(self) -> tuple[float, ...]:
        """Mean over the platforms, by round."""
        return tuple(map(_mean, zip(*self.kale.values(), strict=True)))


def read_stays(folder: Path) -> dict[str, Stay]:
    """The stays of a run by policy; none where the run left none.

    Raises:
        RunError: The file is damaged; says which.
    """
    file = folder / "stays.json"
    if not file.exists():
        return {}
    raw = json_object(file)
    what = "for each policy 'kale' of as many rounds a platform as 'satisfaction' has"
    return convert_content(file, what, lambda: {str(name): _stay(one) for name, one in raw.items()})


def _stay(raw: Mapping[str, Json]) -> Stay:
    made = convert(Stay, raw)
    if not made.kale or any(len(row) != len(made.satisfaction) for row in made.kale.values()):
        raise ValueError("kale and satisfaction are of different rounds")
    return made


def stay_charts(run: Run, stays: Mapping[str, Stay]) -> dict[str, Chart]:
    """Share of kale and satisfaction by round of the stay; none before the run has ended."""
    if OURS not in stays:
        return {}
    ours = stays[OURS]
    names = list(ours.kale)
    kale = {f"here, {name}": values for name, values in ours.kale.items()} if len(names) <= 3 else {}
    kale = kale or {"here, all platforms": ours.mean_kale}
    satisfaction = {"here": ours.satisfaction}
    for policy, called in _BESIDE.items():
        if policy in stays:
            kale[called] = stays[policy].mean_kale
            satisfaction[called] = stays[policy].satisfaction
    return {
        FIGURES[0]: _drawn(run, kale, "What users click over their stay", "share of kale"),
        FIGURES[1]: _drawn(run, satisfaction, "How satisfied that leaves them", "satisfaction"),
    }


def _drawn(run: Run, series: Mapping[str, tuple[float, ...]], title: str, measure: str) -> Chart:
    rows = [
        {"x": float(place + 1), "mean": value, "series": name, "round": place + 1}
        for name, values in series.items()
        for place, value in enumerate(values)
        if math.isfinite(value)
    ]
    frame = Frame.of_dicts(rows).with_columns({"low": math.nan, "high": math.nan})
    palette = (figures.OKABE_ITO[1], figures.OKABE_ITO[2], figures.OKABE_ITO[3])
    mine = [name for name in series if name.startswith("here")]
    others = [name for name in series if name not in mine]
    colours = dict(zip(mine, palette if len(mine) > 1 else figures.OKABE_ITO[:1], strict=False))
    colours |= dict(zip(others, (figures.OKABE_ITO[6], figures.OKABE_ITO[4], figures.OKABE_ITO[5]), strict=False))
    notes = ["fresh users, without exploration; by round of the stay"]
    return figures.line_chart(run, frame, "round", title, measure, colours, notes)


def stay_words(stays: Mapping[str, Stay]) -> list[Html]:
    """The story in sentences, made from the numbers: what is served when, what that does to the user, and why."""
    if OURS not in stays:
        return []
    ours = stays[OURS]
    rounds = len(ours.satisfaction)
    if rounds < 2 * _END:
        return []
    before, end = _mean(ours.mean_kale[:-_END]), _mean(ours.mean_kale[-_END:])
    out = [
        f"Until the last {_END} of {rounds} rounds {before:.0%} of what users click is kale, which does good and is "
        f"dull; in the last {_END} it is {end:.0%}."
    ]
    if "optimum" in stays:
        best = stays["optimum"].mean_kale
        out[0] += f" The best possible: {_mean(best[:-_END]):.0%}, then {_mean(best[-_END:]):.0%}."
    middle = slice(rounds // 3, -_END)
    if "random" in stays:
        felt = _mean(ours.satisfaction[middle]) - _mean(stays["random"].satisfaction[middle])
        if abs(felt) < _FELT:
            out.append("Users are as satisfied on the way as with random slates.")
        else:
            how = "more" if felt > 0 else "less"
            out.append(
                f"On the way users are {how} satisfied than with random slates, by {abs(felt):.3f} of a scale from 0 "
                "to 1. Every later engagement is scaled with that, on all platforms."
            )
    if before - end > _TELLS:
        out.append(
            "Why it turns at the end: what a slate does to the user counts only as long as the user stays. Chocolate "
            "engages at once and costs later, so that it pays when there is no later."
        )
    elif before < 0.5 - _TELLS:
        out.append(
            "Why chocolate all along: it engages at once, and either these users hardly mind, or nothing here sees "
            "what it costs later."
        )
    elif before > 0.5 + _TELLS:
        out.append(
            "Why kale to the end: here nothing tells when the user leaves, and what kale does for later counts as much "
            "in the last round as in the first."
        )
    else:
        out.append("Neither is served for long: these slates are close to random ones.")
    return [h("p", said) for said in out]


def _mean(values: tuple[float, ...]) -> float:
    known = [one for one in values if math.isfinite(one)]
    return math.fsum(known) / len(known) if known else math.nan
