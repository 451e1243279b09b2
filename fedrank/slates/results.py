"""Results of a run of platforms, and the fixed policies that it is compared with.

Each policy is played for the same fresh users, and for the users that each run is judged by, so that a difference
between a run and a baseline is one of slates and not of users. Results are intervals over seeds, regret, and time to a
threshold.
"""

from __future__ import annotations

import json
import math
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from jaxtyping import Float, UInt32

from fedrank.core.errors import FedrankWarning, RunError
from fedrank.core.frame import Frame
from fedrank.core.lazy import jax
from fedrank.core.native import map_trees
from fedrank.core.streams import fold_words, run_words, split
from fedrank.core.trees import Json
from fedrank.metrics.returns import mean_interval, time_to_threshold
from fedrank.slates.build import SlateExperiment
from fedrank.slates.report.files import COPYING, ENGAGEMENT, GREEDY, MYOPIC, OPTIMUM, RANDOM, measures
from fedrank.slates.world.optimum import OptimalPolicy, Solution, solve
from fedrank.slates.world.policies import (
    BASELINES,
    LateChocolate,
    OneOf,
    Played,
    Policy,
    StayKeys,
    TopFeature,
    draws_of,
    play_compiled,
    play_together,
    plays_together,
    stay_keys,
)
from fedrank.slates.world.satisfaction import Satisfaction

#: Fresh users that a baseline is played for.
BASELINE_EPISODES = 2000
#: Name of the winner of an A/B test.
BEST_FIXED = "best-fixed"

#: Numbers of candidates of an A/B test that are played at once: they bound its memory.
_AT_ONCE = 4_000_000
#: Folds of a run's key that no round and no simulator uses.
FRESH, USERS, TESTED = 0xFFFFFFF0, 0xFFFFFFF1, 0xFFFFFFEF

#: Smallest excess over an optimum that counts: part of the optimum, and number of standard errors.
_LEAST, _ERRORS = 0.01, 4.0

_NOTES = {
    "random": "Every slate is drawn at random.",
    "choc": "Every slate has the items with most chocolate.",
    "kale": "Every slate has the items with least chocolate.",
    "kale-then-choc": "Most kale until seven rounds are left, then most chocolate; nothing is learnt.",
    BEST_FIXED: "The best fixed rule (random, choc, kale or kale-then-choc at all platforms) by an A/B test, as "
    "platforms with feedback see it; if all have it, also choc at the first and kale at the others, and the reverse.",
    GREEDY: "Myopic with features: the slate with the largest expected engagement of the tick by the run's own model.",
    MYOPIC: "The slate with the largest expected engagement of the tick, by the true user and the true model.",
    COPYING: "The run's own last policy, but every platform shows what the first one with feedback would show of its "
    "candidates. What platforms learn from each other is worth what they bring above this.",
    OPTIMUM: "Dynamic programming over the user's exposure, which no platform sees, for the engagement of all "
    "platforms together; its policy plans each round before the clicks of that round are known.",
}


@dataclass(frozen=True, eq=False)
class SlateBaseline:
    """One baseline.

    Attributes:
        name: One of the baselines of the configuration.
        engagement: Engagement of each fresh user at each platform.
        runs: Mean over the users that each run is evaluated with.
        played: What was played, all users together.
        solution: Of the optimum: its computed mean engagement of a user, all platforms together, and the standard error
            of that.
        note: One more sentence about it.
    """

    name: str
    engagement: Float[np.ndarray, "episodes platforms"]
    runs: Float[np.ndarray, "runs platforms"]
    played: Played
    solution: tuple[float, float] | None = None
    note: str = ""

    def as_json(self, names: Sequence[str]) -> dict[str, Json]:
        """As it stands in ``baselines.json``: means over users with their intervals, and each run's users.

        Args:
            names: Of the platforms.
        """
        return {
            "name": self.name,
            "notes": [_NOTES[self.name], *([self.note] if self.note else [])],
            "values": [
                {"split": "test", "measure": measure, **interval(values)}
                for measure, values in by_measure(self.engagement, names).items()
            ],
            "episodes": len(self.engagement),
            "runs": self.runs.tolist(),
            **(
                {} if self.solution is None else {"solution": dict(zip(("value", "error"), self.solution, strict=True))}
            ),
        }


def by_measure(
    engagement: Float[np.ndarray, "*shape platforms"], names: Sequence[str]
) -> dict[str, Float[np.ndarray, "*shape"]]:
    """Values of all measures, by measure.

    Args:
        engagement: Of each platform.
        names: Of the platforms.
    """
    each = np.asarray(engagement, np.float64)
    return dict(zip(measures(names), (each.sum(axis=-1), *np.moveaxis(each, -1, 0)), strict=True))


def interval(values: Any) -> dict[str, float | None]:
    """Mean and 95 % t-interval of independent values, with None for ends that one value does not have."""
    found = mean_interval(values)
    return {
        "value": found.mean,
        "low": found.low if np.isfinite(found.low) else None,
        "high": found.high if np.isfinite(found.high) else None,
    }


def fresh_users(seeds: Sequence[int], episodes: int, rounds: int) -> StayKeys:
    """The users that runs are evaluated with, [runs, episodes]: always the same, and never those of training.

    Args:
        seeds: Of the runs.
        episodes: Users a run.
        rounds: Of a stay.
    """
    return _stays(run_words(seeds), FRESH, episodes, rounds)


def _stays(keys: UInt32[np.ndarray, "runs 2"], number: int, users: int, rounds: int) -> StayKeys:
    return stay_keys(split(fold_words(keys, number), users), rounds)


def list_rules(world: Satisfaction, feedback: Sequence[bool]) -> tuple[Policy, ...]:
    """The rules of an A/B test.

    Rules by which platforms differ are tested where all of them see engagement. Elsewhere they would win by what they
    take from the platforms that see none: in Choc and Kale choc at the first and kale at the other.

    Args:
        world: The users.
        feedback: Whether each platform sees engagement.
    """
    apart = ((1.0, -1.0), (-1.0, 1.0)) if all(feedback) and world.platforms > 1 else ()
    signs = ((0.0, 0.0), (1.0, 1.0), (-1.0, -1.0), *apart)
    return (*(TopFeature(world, (one, *[rest] * (world.platforms - 1))) for one, rest in signs), LateChocolate(world))


def baselines(
    world: Satisfaction,
    names: Sequence[str],
    users: StayKeys,
    seed: int,
    seeds: Sequence[int] = (),
    feedback: Sequence[bool] = (),
    tested: int = 0,
) -> list[SlateBaseline]:
    """Play every baseline.

    An optimum that its own policy or another one beats is left out, with a warning: the world is not of the kind that
    :mod:`fedrank.slates.world.optimum` solves.

    Args:
        world: The users.
        names: Baselines of the configuration.
        users: :func:`fresh_users` of the runs.
        seed: Of the fresh users that all baselines share, and of the optimum's samples.
        seeds: Of the runs, for their A/B tests.
        feedback: Whether each platform sees engagement, likewise.
        tested: Users of an A/B test; as many as a run learns from.
    """
    shared = _stays(run_words([seed]), USERS, BASELINE_EPISODES, world.rounds_per_episode)
    together = StayKeys(
        *(np.concatenate([all_[0], own.reshape(-1, *own.shape[2:])]) for all_, own in zip(shared, users, strict=True))
    )
    solved = solve(world, seed=seed) if OPTIMUM in names else None
    rules = list_rules(world, feedback)
    won, plain = (), [name for name in names if name != BEST_FIXED]
    if len(plain) < len(names) and len(seeds) and plays_together(world):
        won = find_winners(world, rules, seeds, feedback, tested)
    policies = [_policy(world, name, solved) for name in plain]
    out, draws = [], draws_of(world, together) if plays_together(world) else []
    for name, policy in zip(plain, policies, strict=True):
        if plays_together(world):
            all_of_it: Any = play_together(world, policy, together, draws)
        else:
            all_of_it = _play_compiled(world, policy, policies, together)
        solution = (float(solved.total), float(solved.error)) if solved and name == OPTIMUM else None
        found = all_of_it.engagement.astype(np.float64)
        of_runs = found[BASELINE_EPISODES:].reshape(*users.first.shape[:2], -1).mean(axis=1)
        out.append(SlateBaseline(name, found[:BASELINE_EPISODES], of_runs, all_of_it, solution))
    if won:
        known = {one.name: one.played for one in out}
        each = {
            rule: known[name]
            if (name := rules[rule].name) in known
            else play_together(world, rules[rule], together, draws)
            for rule in set(won)
        }
        found = {rule: one.engagement.astype(np.float64) for rule, one in each.items()}
        runs = [
            found[rule][BASELINE_EPISODES:].reshape(len(won), users.first.shape[1], -1)[run].mean(axis=0)
            for run, rule in enumerate(won)
        ]
        shown = np.mean([found[rule][:BASELINE_EPISODES] for rule in won], axis=0)
        named = Counter(rules[rule].name for rule in won)
        note = f"Of {tested:,} users in each of {len(won)} runs; the winner: {_count_names(named)}."
        most = each[max(set(won), key=won.count)]
        out.append(SlateBaseline(BEST_FIXED, shown, np.array(runs), most, note=note))
    beaten = _beating_optimum(out)
    if beaten:
        warnings.warn(
            f"The optimum of these users cannot be computed: {beaten}. It is left out. Dynamic programming here is for "
            "engagement that is smooth in one feature of an item, with one hump or one dip.",
            FedrankWarning,
            stacklevel=2,
        )
    return [one for one in out if one.name != OPTIMUM or not beaten]


def find_winners(
    world: Satisfaction, rules: Sequence[Policy], seeds: Sequence[int], feedback: Sequence[bool], tested: int
) -> tuple[int, ...]:
    """For each run, the rule that an A/B test finds best: of the highest mean engagement at platforms with feedback.

    Args:
        world: The users.
        rules: Each serves as many users as the others, but for a remainder.
        seeds: Of the runs.
        feedback: Whether each platform sees engagement.
        tested: Users in all; at least one for each rule.
    """
    users, means = max(tested, len(rules)), []
    at_once = max(1, _AT_ONCE // (len(seeds) * world.platforms * world.candidates * world.rounds_per_episode))
    keys = split(fold_words(run_words(seeds), TESTED), users)
    for rule, mine in zip(rules, np.array_split(keys, len(rules), axis=1), strict=True):
        total = np.zeros(len(seeds))
        for first in range(0, mine.shape[1], at_once):
            stays = stay_keys(mine[:, first : first + at_once], world.rounds_per_episode)
            engagement = play_together(world, rule, stays).engagement[..., list(feedback)]
            total += engagement.sum(axis=(1, 2), dtype=np.float64)
        means.append(total / mine.shape[1])
    return tuple(np.argmax(means, axis=0).tolist())


def _count_names(names: Counter[str]) -> str:
    return ", ".join(f"{name} in {count}" for name, count in names.most_common())


def _play_compiled(world: Satisfaction, policy: Policy, policies: Sequence[Policy], users: StayKeys) -> Played:
    """Outcome of one of several policies, all in one compiled program."""
    kinds = {jax.tree.structure(one): one for one in policies}
    mine = jax.tree.structure(policy)
    one_of = OneOf(tuple({**kinds, mine: policy}.values()), np.int32(list(kinds).index(mine)))
    return map_trees(np.asarray, play_compiled(world, one_of, users))


def _beating_optimum(found: Sequence[SlateBaseline]) -> str:
    """Sentence about a policy that brings more than the computed optimum, beyond chance; empty if none does."""
    best = next((one for one in found if one.name == OPTIMUM), None)
    if best is None or best.solution is None:
        return ""
    value, error = best.solution
    ours = best.engagement.sum(axis=1)
    if exceeds(ours, value, error):
        return f"its policy brings {ours.mean():.1f}, more than the optimum of {value:.1f}"
    for other in found:
        more = other.engagement.sum(axis=1) - ours  # of the same users
        if other is not best and exceeds(more, 0.0, 0.0, least=_LEAST * abs(ours.mean())):
            return f"the policy {other.name} brings {more.mean():.1f} more than its policy"
    return ""


def exceeds(values: Float[np.ndarray, " users"], bound: float, error: float, least: float | None = None) -> bool:
    """True if the mean of independent values is above a bound, beyond chance and beyond rounding.

    Args:
        values: Of users.
        bound: The bound.
        error: Its standard error.
        least: How far above the mean must be; None: a hundredth of the bound.
    """
    least = _LEAST * abs(bound) if least is None else least
    over = float(values.mean()) - bound
    noise = math.hypot(float(values.std(ddof=1)) / math.sqrt(len(values)), error)
    return over > max(float(least), _ERRORS * noise)


def row_of_policy(found: Played, experiment: SlateExperiment, name: str = COPYING) -> dict[str, Json]:
    """A row of what is made of the run's last policy, as a baseline stands in ``baselines.json``.

    Args:
        found: What the policy brings, [runs, ...].
        experiment: The run.
        name: Of the row: all copy the first platform with feedback, or think of now only.
    """
    each = np.asarray(found.engagement, np.float64)  # [runs, episodes, K]
    all_users = each.reshape(-1, each.shape[-1])
    return SlateBaseline(name, all_users, each.mean(axis=1), found).as_json(experiment.names)


def stay_json(found: Played, names: Sequence[str]) -> dict[str, Json]:
    """Share of kale by platform and round, and satisfaction by round, of one run."""
    kale, satisfaction = np.asarray(found.kale, np.float64), np.asarray(found.satisfaction, np.float64)
    shares = {
        name: [round(one, 4) if np.isfinite(one) else None for one in row.tolist()]
        for name, row in zip(names, kale.T, strict=True)
    }
    return {"kale": shares, "satisfaction": satisfaction.round(5).tolist()}


def _policy(world: Satisfaction, name: str, solved: Solution | None) -> Policy:
    """A baseline's policy; with the optimum at hand, myopia is to plan with nothing to come: one kind for both."""
    if solved is None or name not in (OPTIMUM, MYOPIC):
        return BASELINES.get(name)(world)
    return OptimalPolicy(
        world, solved if name == OPTIMUM else solved._replace(series=np.zeros(solved.series.shape, np.float32))
    )


#: The threshold, as a share of the way from random slates to the optimum.
SHARE = 0.5
#: Consecutive evaluations that must reach it, so that none does by luck.
CONSECUTIVE = 2


def about(experiment: SlateExperiment) -> dict[str, Json]:
    """The content of ``slates.json`` before the run, without ``results``."""
    e, world = experiment, experiment.world
    w = e.config.world
    return {
        "platforms": list(e.names),
        "feedback": list(e.protocol.feedback),
        "protocol": e.config.protocol,
        "central": e.protocol.central,
        "faults": [dict(one) for one in e.protocol.faults],
        "world": {
            "preset": w.preset,
            "candidates": world.candidates,
            "slate": world.slate,
            "platforms": world.platforms,
            "memory_discount": world.memory_discount,
            "sensitivity": world.sensitivity,
            "sensitivities": list(world.sensitivities),
            "drift": world.drift,
            "observation_noise": world.observation_noise,
            "semantics": world.semantics,
            "choice": w.choice,
            "shared_candidates": world.shared_candidates,
            "turns": world.turns,
            "fresh": world.fresh,
            "rounds_per_episode": world.rounds_per_episode,
        },
        "episodes": e.config.rounds // world.rounds_per_episode,
        "evaluation": {"every": e.config.evaluation.every, "episodes": e.config.evaluation.episodes},
        "generated": True,
        "notes": list(e.notes),
    }


def read_baselines(file: Path) -> list[dict[str, Json]]:
    """The content of ``baselines.json``.

    Raises:
        RunError: The file is not one that a run wrote.
    """
    try:
        found = json.loads(file.read_text(encoding="utf-8"))["baselines"]
        return [{**one, "runs": np.array(one["runs"], float)} for one in found]
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise RunError(f"{file}: cannot be read ({error}). Restore it, or run again in another folder.") from error


def results(
    experiment: SlateExperiment,
    metrics: Frame,
    known: list[dict[str, Json]],
    made: Mapping[str, dict[str, Json]] = MappingProxyType({}),
) -> dict[str, Json]:
    """The results.

    Args:
        experiment: The run.
        metrics: ``metrics.parquet``.
        known: :func:`read_baselines`.
        made: Rows of :func:`~fedrank.slates.results.row_of_policy`.

    Returns:
        ``test``, the last networks' engagement of a fresh user; ``against``, differences to every baseline, paired by
        run; ``optimum``, that baseline's engagement, ``solution``, the value that was computed for it, and ``regret``
        to it; ``threshold``, users until it was reached; and the rows that were made of the run's policy. By measure,
        with 95 % t-intervals over runs.
    """
    names, seeds = experiment.names, experiment.config.all_seeds
    test = metrics.where(split="test")
    last = _by_seed(test.where(round=experiment.config.rounds), measures(names), seeds)
    against = {
        one["name"]: {
            measure: interval(last[measure] - theirs)
            for measure, theirs in by_measure(np.asarray(one["runs"], np.float64), names).items()
        }
        for one in (*known, *made.values())
    }
    best = next((one for one in known if one["name"] == OPTIMUM), None)
    return {
        "test": {measure: interval(values) for measure, values in last.items()},
        "against": against,
        "optimum": None if best is None else {one["measure"]: _ends(one) for one in best["values"]},
        "solution": None if best is None else best["solution"],
        "regret": None if best is None else {ENGAGEMENT: _negative(against[OPTIMUM][ENGAGEMENT])},
        "threshold": _threshold(experiment, test, known),
        **made,
    }


def _by_seed(frame: Frame, names: tuple[str, ...], seeds: tuple[int, ...]) -> dict[str, np.ndarray]:
    """Measure -> float64 [seeds], of rows that are one a seed and measure."""
    table = {(seed, measure): value for seed, measure, value in frame.select(("seed", "measure", "value")).tuples()}
    return {measure: np.array([table[seed, measure] for seed in seeds]) for measure in names}


def _ends(found: dict[str, Json]) -> dict[str, Json]:
    return {name: found[name] for name in ("value", "low", "high")}


def _negative(found: dict[str, float | None]) -> dict[str, float | None]:
    low, high = found["low"], found["high"]
    return {
        "value": None if found["value"] is None else -found["value"],
        "low": None if high is None else -high,
        "high": None if low is None else -low,
    }


def _threshold(experiment: SlateExperiment, test: Frame, known: list[dict[str, Json]]) -> dict[str, Json] | None:
    """Users until the evaluation curve is half-way from chance to the optimum; None without either baseline."""
    levels = {one["name"]: {value["measure"]: value["value"] for value in one["values"]} for one in known}
    if RANDOM not in levels or OPTIMUM not in levels:
        return None
    length, out = experiment.world.rounds_per_episode, {}
    for measure in measures(experiment.names):
        low, high = levels[RANDOM][measure], levels[OPTIMUM][measure]
        level = low + SHARE * (high - low)
        times = []
        for seed in experiment.config.all_seeds:
            curve = test.where(seed=seed, measure=measure).sort("round")
            time = time_to_threshold(curve["round"] / length, curve["value"], level, min(CONSECUTIVE, len(curve)))
            times.append(time if np.isfinite(time) else None)
        out[measure] = {"level": level, "episodes": times}
    return {"share": SHARE, "stay": CONSECUTIVE, "measures": out}
