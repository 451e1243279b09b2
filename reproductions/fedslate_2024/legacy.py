"""The publication's metrics beside what it printed, and why they are no measure of learning; every run beside policies.

"Optimal reward" is the largest mean of 100 users in a row while learning, looked at after every 20; ETROR is the number
of users until then (Deng et al., arXiv 2409.14872, 2024, Tables I to IV). A policy that never changes has them, too:
the maximum of a noisy curve lies above the truth, the more so the noisier the curve and the longer the run, and its
place on the curve says nothing about how fast the policy learnt.

An entry of ``expected.json`` whose measure is ``"optimal reward (A)"`` or ``"ETROR (A)"``, of split ``"legacy"``,
stands beside ours of the same name; one of ``"engagement (A)"`` of split ``"test"`` stands beside a quantity that is
not the same, and the notes of the page say so.
"""

from __future__ import annotations

import statistics as exact
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Integer, Shaped

from fedrank.core.arrays import AnyArray
from fedrank.core.errors import ConfigError
from fedrank.core.frame import Frame
from fedrank.core.trees import Json
from fedrank.engine.variations import Variation
from fedrank.report.run import Run
from fedrank.report.statistics import Estimate, Interval, mean_interval, t_quantile
from fedrank.report.tables import Column, Table
from fedrank.slates.report.files import COPYING, POLICIES, SlateRun
from fedrank.slates.report.tables import DIGITS, against, final_engagement, way
from fedrank_zoo.reproduce.study import Paper, Study, expected_value

#: FedSlate's moving mean spans WINDOW episodes and is looked at once every EVERY episodes.
WINDOW, EVERY = 100, 20
#: The policy that never changes.
FIXED = "choc"
#: Curves of it that are drawn, and with which seed.
_CURVES, _SEED = 200, 20240913
#: Ends of what most of them have.
_ENDS = (10, 50, 90)


#: Split of the publication's metrics in ``expected.json``.
LEGACY = "legacy"


class MovingMaximum(NamedTuple):
    """FedSlate's two legacy metrics.

    Attributes:
        optimal_reward: float64 [...], maximum of the moving mean of returns.
        etror: int64 [...], "episodes to reach optimal reward": episodes played when that maximum was recorded.
    """

    optimal_reward: Float[np.ndarray, "*runs"]
    etror: Integer[np.ndarray, "*runs"]


def max_of_moving_mean(
    returns: Sequence[float] | Shaped[AnyArray, "*shape"], window: int = WINDOW, every: int = EVERY
) -> MovingMaximum:
    """The legacy metrics "optimal reward" and ETROR of training curves.

    A record is the mean of the last ``window`` episodes, taken after every ``every``-th episode; only full windows
    count. Among equal records the first is the maximum.

    Args:
        returns: float [..., episodes], returns in the order of training.
        window: Episodes of a mean.
        every: Episodes from one record to the next.

    Raises:
        ConfigError: Fewer episodes than a window needs, or a window or step below 1.

    >>> max_of_moving_mean([1, 1, 4, 4, 1, 1], window=2, every=2)
    MovingMaximum(optimal_reward=array(4.), etror=array(4))
    """
    returns = np.asarray(returns, np.float64)
    if window < 1 or every < 1:
        raise ConfigError(f"window and every count episodes and must be at least 1, got {window} and {every}.")
    first = -(-window // every) * every  # the first record with a full window
    if returns.ndim < 1 or returns.shape[-1] < first:
        raise ConfigError(
            f"A moving mean of {window} episodes, recorded every {every}, needs {first} episodes, got returns of shape "
            f"{returns.shape}."
        )
    total = np.concatenate([np.zeros((*returns.shape[:-1], 1)), np.cumsum(returns, axis=-1)], axis=-1)
    ends = np.arange(first, returns.shape[-1] + 1, every)
    records = (total[..., ends] - total[..., ends - window]) / window
    return MovingMaximum(np.asarray(records.max(axis=-1)), np.asarray(ends[records.argmax(axis=-1)]))


class Legacy(NamedTuple):
    """The publication's metrics of one platform.

    Attributes:
        reward: "Optimal reward": the largest moving mean of the users while learning, over seeds.
        etror: "Episodes to reach" it, by seed.
    """

    reward: Estimate
    etror: tuple[int, ...]


def legacy_metrics(run: Run) -> dict[str, Legacy]:
    """The publication's metrics of a run by platform; exploration counts, first rounds do not.

    Empty where a run served fewer users than a window has.
    """
    episodes = Frame.from_parquet((run.path / "episodes.parquet").read_bytes())
    out = {}
    for name in run.details.names if episodes["episode"].max(initial=-1) + 1 >= WINDOW else ():
        mine = episodes.where(platform=name).sort("episode")
        parts = (mine.where(seed=seed) for seed in run.seeds)
        found = [max_of_moving_mean(part["engagement"] - part["first"]) for part in parts]
        rewards = mean_interval([float(one.optimal_reward) for one in found])
        out[name] = Legacy(rewards, tuple(int(one.etror) for one in found))
    return out


class Fixed(NamedTuple):
    """Metrics of a policy that never changes: medians with the ends of the middle 80 %.

    Attributes:
        mean: Engagement of a user in truth, without the first round.
        reward: "Optimal reward".
        etror: ETROR.
    """

    mean: float
    reward: Interval
    etror: Interval


def constant_metrics(slates: SlateRun, platform: str, users: int) -> Fixed | None:
    """The metrics of :data:`FIXED` over a number of users, by simulation from its mean and spread.

    A user's engagement is a sum over many rounds and nearly normal.

    Args:
        slates: A run.
        platform: One of its platforms.
        users: Users that are served, one after the other.

    Returns:
        None if the run has no such policy, or there are fewer users than a moving mean has.
    """
    mark = slates.mark(FIXED)
    found = None if mark is None else mark.values.get(slates.measures[1 + slates.names.index(platform)])
    if mark is None or found is None or found.high is None or mark.users < 2 or users < 2 * WINDOW:
        return None
    counted = (slates.stay - 1) / slates.stay  # the publication leaves the first round of a user out
    spread = (found.high - found.mean) / t_quantile(mark.users - 1) * mark.users**0.5
    mean, deviation = counted * found.mean, counted**0.5 * spread
    draws = np.random.default_rng(_SEED).normal(mean, deviation, (_CURVES, users))
    rewards, etrors = max_of_moving_mean(draws)
    low, middle, high = np.percentile(rewards, _ENDS)
    first, half, last = np.percentile(etrors, _ENDS)
    return Fixed(
        mean, Interval(float(middle), float(low), float(high)), Interval(float(half), float(first), float(last))
    )


def etror_words(values: tuple[int, ...]) -> str:
    """ETROR over seeds: median, and smallest to largest."""
    return f"{exact.median(values):,.0f}" + (f" ({min(values):,} to {max(values):,})" if len(values) > 1 else "")


def study_tables(paper: Paper, study: Study, runs: Sequence[tuple[str, Variation, Run]]) -> list[Table]:
    """The tables of a study of FedSlate beside that of its measures.

    Args:
        paper: What was printed.
        study: Which table or figure.
        runs: Label, variation and run.
    """
    return [table for table in (policies_table(runs), legacy_table(paper, study, runs)) if table is not None]


def policies_table(runs: Sequence[tuple[str, Variation, Run]]) -> Table | None:
    """Engagement of all platforms less that of each policy for the same users; None if no run has policies.

    Args:
        runs: Label, variation and run.
    """
    rows: list[dict[str, Json | Estimate]] = []
    for label, _, run in runs:
        total = run.details.measures[0]
        apart = {name: against(run, total, name) for name in (*POLICIES, COPYING)}
        known = {name: found for name, found in apart.items() if found is not None}
        if known:
            share = way(run, total)
            row = {"run": label, "value": final_engagement(run, total), **known}
            rows.append(row | {"way": None if share is None else f"{100 * share:.0f}"})
    if not rows:
        return None
    shown = {key for row in rows for key, value in row.items() if value is not None}
    columns = (
        Column("run", "run"),
        Column("value", "all platforms", numeric=True, digits=DIGITS),
        *(Column(name, f"to {name}", numeric=True, signed=True, digits=DIGITS) for name in (*POLICIES, COPYING)),
        Column("way", "of the gap, %", numeric=True),
    )
    said = ["Differences are paired by seed: the same users, without exploration."]
    if COPYING in shown:
        said.append("Copying: all platforms show what the first with feedback would.")
    if "way" in shown:
        said.append("Of the gap: how far from random to the optimum; below 0 where random slates are better.")
    return Table("Beside every policy", tuple(c for c in columns if c.key in shown), tuple(rows), tuple(said))


def legacy_table(paper: Paper, study: Study, runs: Sequence[tuple[str, Variation, Run]]) -> Table | None:
    """“Optimal reward” and ETROR of every run and platform; None if no run has them.

    Args:
        paper: What was printed.
        study: Which table or figure.
        runs: Label, variation and run.
    """
    rows: list[dict[str, Json]] = []
    for label, variation, run in runs:
        for name, ours in legacy_metrics(run).items():
            still = constant_metrics(run.details, name, run.details.users)
            reward, etror = (
                expected_value(paper, study, variation.where, LEGACY, f"{what} ({name})")
                for what in ("optimal reward", "ETROR")
            )
            half = None if ours.reward.high is None else ours.reward.high - ours.reward.mean
            rows.append(
                {
                    "run": label,
                    "platform": name,
                    "reward": Estimate(ours.reward.mean, half, len(ours.etror)),
                    "fixed": None if still is None else still.reward,
                    "paper": None if reward is None else float(reward["value"]),
                    "etror": etror_words(ours.etror),
                    "fixed_etror": None
                    if still is None
                    else f"{still.etror.mean:,.0f} ({still.etror.low:,.0f} to {still.etror.high:,.0f})",
                    "paper_etror": None if etror is None else f"{float(etror['value']):,.0f}",
                }
            )
    if not rows:
        return None
    shown = {key for row in rows for key, value in row.items() if value is not None}
    columns = (
        Column("run", "run"),
        Column("platform", "platform"),
        Column("reward", "“optimal reward”", numeric=True, digits=DIGITS),
        Column("fixed", f"of {FIXED} that never changes", numeric=True, digits=DIGITS),
        Column("paper", "paper", numeric=True, digits=DIGITS),
        Column("etror", "ETROR, users", numeric=True),
        Column("fixed_etror", f"of {FIXED} that never changes", numeric=True),
        Column("paper_etror", "paper", numeric=True),
    )
    served = sorted({run.details.users for _, _, run in runs if legacy_metrics(run)})
    printed = (e for e in paper.values if (e["study"], e["split"]) == (study.name, LEGACY))
    sources = dict.fromkeys(str(e["source"]) for e in printed)
    said = (
        *(f"Paper: {source}." for source in sources),
        "“Optimal reward” is the largest mean of 100 users in a row while learning, ETROR the number of users until "
        "then: the more users, the larger both. Neither is a measure of learning: "
        f"{FIXED} from beginning to end has them, too (in brackets what 80 % of such runs have).",
        f"Users of a run: {' or '.join(f'{users:,}' for users in served)}; the paper’s runs have 5,000.",
    )
    return Table("The publication’s metrics (legacy)", tuple(c for c in columns if c.key in shown), tuple(rows), said)
