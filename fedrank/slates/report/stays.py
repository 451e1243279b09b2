"""When platforms serve what over a user's stay, beside fixed policies, and how satisfied that leaves the user.

``stays.json`` has it by policy: the share of kale of what is clicked, platform by platform and round by round, and the
mean satisfaction as a round begins. The run's own is "run". Runs of older versions have no such file.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from fedrank.core.trees import Json
from fedrank.report import figures
from fedrank.report.charts import Chart
from fedrank.report.files import checked, json_object
from fedrank.report.html import Html, h
from fedrank.report.run import Run

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

    kale: Mapping[str, tuple[float, ...]]
    satisfaction: tuple[float, ...]

    @property
    def mean_kale(self) -> tuple[float, ...]:
        """Mean over the platforms, by round."""
        return tuple(
            math.fsum(known) / len(known) if (known := [one for one in row if math.isfinite(one)]) else math.nan
            for row in zip(*self.kale.values(), strict=True)
        )


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
    return checked(file, what, lambda: {str(name): _stay(one) for name, one in raw.items()})


def _stay(raw: Mapping[str, Json]) -> Stay:
    kale = {
        str(name): tuple(math.nan if one is None else float(one) for one in row) for name, row in raw["kale"].items()
    }
    satisfaction = tuple(map(float, raw["satisfaction"]))
    if not kale or any(len(row) != len(satisfaction) for row in kale.values()):
        raise ValueError("kale and satisfaction are of different rounds")
    return Stay(kale, satisfaction)


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
    nothing = pl.Series([None], dtype=pl.Float64)
    rows = [
        {"x": float(place + 1), "mean": value, "series": name, "round": place + 1}
        for name, values in series.items()
        for place, value in enumerate(values)
        if math.isfinite(value)
    ]
    frame = pl.DataFrame(rows).with_columns(low=nothing.first(), high=nothing.first())
    palette = (figures.OKABE_ITO[1], figures.OKABE_ITO[2], figures.OKABE_ITO[3])
    mine = [name for name in series if name.startswith("here")]
    others = [name for name in series if name not in mine]
    colours = dict(zip(mine, palette if len(mine) > 1 else figures.OKABE_ITO[:1], strict=False))
    colours |= dict(zip(others, (figures.OKABE_ITO[6], figures.OKABE_ITO[4], figures.OKABE_ITO[5]), strict=False))
    notes = ["fresh users, without exploration; by round of the stay"]
    return figures.line_chart(run, frame, "round", title, measure, colours, {}, notes)


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
