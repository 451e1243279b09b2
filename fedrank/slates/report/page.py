"""The page of a run of platforms, for readers who decide whether a platform takes part.

A reader gets, in this order: the engagement of users, on the way from random slates to the optimum, and caveats; what
is served over a stay, and why; then, folded, platform by platform, the parties, the learning curves beside fixed
policies and the optimum, the numbers, faults of the published code that are on, messages and what they reveal, privacy,
and everything needed to run it again.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from typing_extensions import override

from fedrank.core.privacy_report import Unit
from fedrank.core.trees import Json, flat
from fedrank.report import describe, sections, wording
from fedrank.report.charts import Chart
from fedrank.report.claims import Comparison, Measured, Named, Number, Opening, Percent, Sentence, Spent, Verdict, say
from fedrank.report.curves import NOTHING_YET
from fedrank.report.figures import Level
from fedrank.report.run import Line, Page, Run, Section, Shown
from fedrank.report.statistics import Estimate
from fedrank.report.tables import Table, to_json
from fedrank.slates.report import tables
from fedrank.slates.report.files import (
    FIGURES,
    OPTIMUM,
    POLICIES,
    RANDOM,
    SlateRun,
    read_slates,
    stay_charts,
    stay_words,
)
from fedrank.slates.report.tables import DIGITS, slates_of

#: Name of the chart that the page opens with.
CHART = "opening"

#: Title of that chart.
_TITLE = "A user’s engagement on all platforms"

#: How fixed policies are called on the chart.
_POLICIES = {
    "kale": "Always the most nutritious (kale)",
    "random": "Random slates",
    "choc": "Always the most tempting (choc)",
    "kale-then-choc": "Kale, then chocolate in the last 7 rounds",
    "best-fixed": "Best fixed rule (A/B test)",
    "greedy": "Best for now, by the model (greedy)",
    "myopic": "Best for now, knowing the user (myopic)",
    "optimum": "Best possible, knowing the user (optimum)",
    "copying": "All show what the first would (copying)",
}


def _advice(run: Run) -> tuple[str, str]:
    """Services for what the wing recommends; that, for the paper's way."""
    if run.setting("protocol") == "planned-slates":
        return "test it on users of your service:", "fedrank slates serve platform-a --index 0 --config run.toml"
    return "compare with a plan made of sums:", "fedrank run planned-slates"


def _more(difference: Estimate, base: float) -> Comparison:
    """Engagement compared with that of random slates."""
    return Comparison(difference, "that of random ones", base, ways=("above", "below"), than="", digits=DIGITS)


def _far(run: Run) -> Sentence:
    """Share of the gap to the optimum."""
    total = slates_of(run).measures[0]
    share, more = tables.way(run, total), tables.against(run, total, RANDOM)
    if share is None or more is None or _more(more, 0.0).verdict is Verdict.NOT_TOLD_APART or share < 0:
        return Sentence(())
    short = tables.against_optimum(run, tables.against(run, total, OPTIMUM))
    if short is not None and short.verdict is Verdict.EQUAL:
        return say(", ", short)
    if short is not None and short.verdict is Verdict.BETTER:
        return say(", more than what was computed as the best possible, which is wrong for these users")
    return say(", ", Percent(min(share, 1.0)), " of the way to the best possible")


def _blind(run: Run, slates: SlateRun) -> Sentence:
    """Engagement on platforms without feedback, compared with that of random slates there."""
    said = Sentence(())
    for name, measure in zip(slates.names, slates.measures[1:], strict=True):
        found = tables.against(run, measure, RANDOM)
        if found is not None and name in slates.without_feedback and not slates.central:
            ours = tables.final_engagement(run, measure)
            base = ours.mean - found.mean if ours is not None else 0.0
            said += say(" On ", Named(name), ", which sees no feedback, it is ", _more(found, base), ".")
    return said


def _levels(run: Run) -> list[Level]:
    slates = slates_of(run)
    total = slates.measures[0]
    ours = tables.final_engagement(run, total)
    if ours is None:
        return []
    how = "Learnt together" if slates.federates else "Learnt"
    # What policies bring the run's own users, as differences are known for these: of more users, or of others, they are
    # more or less than that by chance, and the optimum may stand below the run.
    lines = {}
    for name, value in slates.lines(total).items():
        apart = tables.against(run, total, name)
        lines[_POLICIES.get(name, name)] = value if apart is None else ours.mean - apart.mean
    levels = [Level(how, ours.mean, ours.low, ours.high, ours=True)]
    return [*levels, *(Level(name, value) for name, value in sorted(lines.items(), key=lambda one: -one[1]))]


def _sent(run: Run, slates: SlateRun) -> Number | None:
    """Bytes that a platform sends and receives in a round, or a run; None where nothing crosses."""
    rounds = 1 if slates.by_sums else max(1, tables.times_asked(run, "look"))
    return sections.sent(run, len(slates.names) * rounds, f"in a {'run' if slates.by_sums else 'round'}")


def _privacy(run: Run, slates: SlateRun) -> Number | None:
    """ε of a user's stay; None where nothing crosses, or before the run wrote its statement."""
    if run.privacy is None or not slates.federates:
        return None
    one, stay = (Spent(run.privacy, unit) for unit in (Unit.VECTOR, Unit.USER))
    if slates.by_sums:
        one = stay
    note = (
        "of the whole stay, at all platforms"
        if slates.by_sums and not math.isinf(stay.epsilon)
        else "nothing is randomised"
        if math.isinf(one.epsilon)
        else f"{one} for each {Unit.VECTOR} that is sent"
    )
    return Number("Privacy bound of a user’s stay (ε)", stay, note)


#: Platforms that have a figure and a tile each; tables have all of them.
MOST_PLATFORMS = 5


def _stay(run: Run, drawn: Mapping[str, Chart]) -> Section:
    """Section of what is served over a stay, and why; empty before the run has ended."""
    said = "{}, round by round, beside the best possible and random slates."
    about = (said.format(what) for what in ("Share of kale of what users click", "Satisfaction of users"))
    charts = sections.side_by_side(drawn, dict(zip(FIGURES, about, strict=True)))
    return Section("stay", "What is served when", (*stay_words(slates_of(run).stays), charts))


def _about(name: str) -> str:
    """The words for a learning curve."""
    if name == "while-learning":
        return "What users brought while platforms learnt"
    whose = name.removeprefix("engagement-")
    on = "all platforms together" if whose == "all" else f"platform {whose.upper()}"
    return f"Learning curve of a fresh user’s engagement, {on}, with fixed policies and the optimum as dashed lines"


#: Measures with a figure in a comparison: engagement in all, and of three platforms.
_DRAWN = 4


class SlatesShown(Shown):
    """Engagement of users at each platform, beside fixed policies and the optimum."""

    party = ("platform", "platforms")
    digits = 1
    over = "users"
    learnt = "learnt from clicks"
    baseline_names: ClassVar[Mapping[str, str]] = {name: name for name in POLICIES}
    generated_words = "Generated users: no real people"
    generated_sentence = "The users are simulated: the numbers say nothing about real people."
    comparison_notes = (
        "engagement: of a user's stay, without a discount; test: fresh users, without exploration.",
        "Fixed policies, the optimum and regret are on the page of each run.",
    )
    reads_every_ledger_line = False  # a line of the ledger is of all rounds from one evaluation to the next

    @override
    def read(self, folder: Path, config: Mapping[str, Json], *, finished: bool) -> SlateRun:
        return read_slates(folder, config, finished=finished)

    @override
    def subject(self, run: Run) -> str:
        return run.details.users_in_words

    @override
    def headline(self, run: Run) -> str:
        return " · ".join((str(run.setting("protocol")), self.subject(run), run.details.feedback_in_words))

    @override
    def generated(self, run: Run) -> bool:
        return True  # the world makes users up

    @override
    def more_caveats(self, run: Run) -> list[str]:
        return [*run.details.caveats, *describe.few_seeds(run)]

    @override
    def nothing_crossed(self, run: Run) -> list[str]:
        return ["Nothing is federated: one learner sees what all platforms see."] if run.details.central else []

    @override
    def crossed_title(self, run: Run) -> str | None:
        return None if run.details.federates else "What crossed"

    @override
    def ledger_words(self, run: Run) -> list[str]:
        return tables.ledger_words(run)

    @override
    def qualified(self, run: Run, split: str, measure: str) -> str:
        return f"{measure}, {self.subject(run)}"

    @override
    def drawn_measures(self, run: Run, ordered: Sequence[str]) -> list[str]:
        return [m for m in run.details.measures[:_DRAWN] if m in ordered] or list(ordered[:1])

    @override
    def same_question(self, run: Run) -> str:
        return self.subject(run)

    @override
    def rounds_in_unit(self, run: Run) -> float:
        return run.details.stay

    @override
    def lines(self, runs: Mapping[str, Run], split: str, measure: str) -> dict[str, float]:
        label, first = next(iter(runs.items()))
        users = {run.details.users_in_words for run in runs.values()}
        of = "" if len(users) == 1 else f" of {label}"
        return {f"{name}{of}": value for name, value in first.details.lines(measure, (RANDOM, OPTIMUM)).items()}

    @override
    def data_settings(self, run: Run) -> list[str]:
        return [key for key, _ in flat(run.config) if key.startswith("world.")]

    @override
    def opening(self, run: Run) -> Opening:
        slates = slates_of(run)
        names, many = wording.in_words(slates.names), "Platforms" if len(slates.names) > 1 else "Platform"
        if slates.by_sums:
            planned = run.setting("slates.learner") == "planned-slates"
            how = "plan whole stays" if planned else "learn from sums over users"
        elif slates.federates:
            how = "learn slates together"
        else:
            how = "are run by one learner" if slates.central else "learn slates each alone"
        title = f"{many} {names} {how}: {slates.world['preset']} users"
        total = slates.measures[0]
        ours, more = tables.final_engagement(run, total), tables.against(run, total, RANDOM)
        done = self.done_rounds(run)
        users = done // slates.stay
        if ours is None:
            return Opening(title, say(NOTHING_YET) + describe.closing(run))
        reached = Measured(ours, "engagement", DIGITS)
        numbers = [Number("A user’s engagement, all platforms", reached)]
        if not users:
            sentence = say(f"{done:,} rounds are less than one user’s stay ({slates.stay}): too few to learn from.")
        elif more is None:
            sentence = say(f"After {users:,} users, the platforms together bring ", reached, " of engagement a user.")
        else:
            found = _more(more, ours.mean - more.mean)
            brings = say(f"After {users:,} users, the engagement that slates of ", Named(names), " bring is ", found)
            sentence = say(brings, _far(run), ".") + _blind(run, slates)
            numbers.append(Number("Against random slates", found))
        costs = [one for one in (_sent(run, slates), _privacy(run, slates)) if one is not None]
        chart = (CHART, f"{_TITLE}. The same numbers are in the tables below.") if _levels(run) else ("", "")
        return Opening(title, sentence + describe.closing(run), (*numbers, *costs), *chart, advice=_advice(run))

    @override
    def charts(self, run: Run) -> dict[str, Chart]:
        slates = slates_of(run)
        first = sections.opening_chart(run, _levels(run), _TITLE, DIGITS)
        out: dict[str, Chart] = {} if first is None else {CHART: first}
        for place, measure in enumerate(slates.measures[: MOST_PLATFORMS + 1]):
            if tables.final_engagement(run, measure) is not None:
                name = "all" if not place else slates.names[place - 1].lower()
                out[f"engagement-{name}"] = tables.learning_figure(run, measure)
        out |= stay_charts(run, slates.stays)
        online = tables.online_figure(run)
        return out if online is None else {**out, "while-learning": online}

    @override
    def page(self, run: Run, charts: Mapping[str, Chart]) -> Page:
        slates, curves = slates_of(run), {name: _about(name) for name in charts if name not in (CHART, *FIGURES)}
        return Page(
            self.opening(run),
            describe.other_caveats(run),
            (
                _stay(run, charts),
                sections.found(tables.verdicts(run)),
                Section("trial", "Is the plan better than what it replaces?", (tables.trial_table(run),)),
                Section("who", "Who is who", (tables.parties_table(run),)),
                sections.curves(run, charts, curves, "How they learnt"),
                Section("final", "Engagement", (tables.platforms_table(run), tables.policies_table(run))),
                Section("faults", "Faults of the published code", (tables.faults_table(run),)),
                sections.left(run, tables.crossed_table(run)),
                sections.privacy(run),
                Section("users", "Users", (tables.world_table(run),)),
                sections.repeat(run),
                sections.configuration(run, notes=not slates.notes),
                sections.citation(run),
            ),
        )

    @override
    def final(self, run: Run) -> Table:
        return tables.platforms_table(run)

    @override
    def terminal(self, run: Run) -> list[Any]:
        return [(self.final(run), ("who", "value", "random", "regret")), *map(Line, tables.verdicts(run))]

    @override
    def for_machines(self, run: Run) -> dict[str, Json]:
        made = {
            "policies": tables.policies_table(run),
            "crossed": tables.crossed_table(run),
        }
        return {
            "platforms": [
                {"name": name, "feedback": sees}
                for name, sees in zip(run.details.names, run.details.feedback, strict=True)
            ],
            "faults": [one["key"] for one in run.details.faults],
            "verdicts": tables.verdicts(run),
            **{name: None if table is None else to_json(table)["rows"] for name, table in made.items()},
        }


SHOWN = SlatesShown()
