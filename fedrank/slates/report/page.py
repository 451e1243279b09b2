"""The page of a run of platforms, for readers who decide whether a platform takes part.

A reader gets, in this order: the engagement of users, on the way from random slates to the optimum, and caveats; what
is served over a stay, and why; then, folded, platform by platform, the parties, the learning curves beside fixed
policies and the optimum, the numbers, faults of the published code that are on, messages and what they reveal, privacy,
and everything needed to run it again.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from fedrank.core.privacy_report import Unit
from fedrank.report import describe, sections, tables, wording
from fedrank.report.charts import Chart
from fedrank.report.claims import Comparison, Measured, Named, Number, Opening, Percent, Sentence, Spent, Verdict, say
from fedrank.report.curves import NOTHING_YET
from fedrank.report.figures import Level
from fedrank.report.html import h
from fedrank.report.run import Page, Run, Section
from fedrank.report.statistics import Estimate
from fedrank.slates.report import tables as slate_tables
from fedrank.slates.report.files import FIGURES, OPTIMUM, RANDOM, SlateRun, stay_charts, stay_words
from fedrank.slates.report.tables import (
    DIGITS,
    against,
    against_optimum,
    final_engagement,
    learning_figure,
    online_figure,
    rounds_of_platforms,
    slates_of,
    way,
)

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


def opening_of(run: Run) -> Opening:
    """Title, sentence, chart and numbers of a run of platforms."""
    slates = slates_of(run)
    names = wording.in_words(slates.names)
    how = (
        "learn slates together"
        if slates.federates
        else "are run by one learner"
        if slates.central
        else "learn slates each alone"
    )
    many = "Platforms" if len(slates.names) > 1 else "Platform"
    if slates.by_sums:
        how = "plan whole stays" if run.setting("slates.learner") == "planned-slates" else "learn from sums over users"
    title = f"{many} {names} {how}: {slates.world['preset']} users"
    total = slates.measures[0]
    ours, more = final_engagement(run, total), against(run, total, RANDOM)
    done = run.shown.done_rounds(run)
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
    share, more = way(run, total), against(run, total, RANDOM)
    if share is None or more is None or _more(more, 0.0).verdict is Verdict.NOT_TOLD_APART or share < 0:
        return Sentence(())
    short = against_optimum(run, against(run, total, OPTIMUM))
    if short is not None and short.verdict is Verdict.EQUAL:
        return say(", ", short)
    if short is not None and short.verdict is Verdict.BETTER:
        return say(", more than what was computed as the best possible, which is wrong for these users")
    return say(", ", Percent(min(share, 1.0)), " of the way to the best possible")


def _blind(run: Run, slates: SlateRun) -> Sentence:
    """Engagement on platforms without feedback, compared with that of random slates there."""
    said = Sentence(())
    for name, measure in zip(slates.names, slates.measures[1:], strict=True):
        found = against(run, measure, RANDOM)
        if found is not None and name in slates.without_feedback and not slates.central:
            ours = final_engagement(run, measure)
            base = ours.mean - found.mean if ours is not None else 0.0
            said += say(" On ", Named(name), ", which sees no feedback, it is ", _more(found, base), ".")
    return said


def _levels(run: Run) -> list[Level]:
    slates = slates_of(run)
    total = slates.measures[0]
    ours = final_engagement(run, total)
    if ours is None:
        return []
    how = "Learnt together" if slates.federates else "Learnt"
    # What policies bring the run's own users, as differences are known for these: of more users, or of others, they are
    # more or less than that by chance, and the optimum may stand below the run.
    lines = {}
    for name, value in slates.lines(total).items():
        apart = against(run, total, name)
        lines[_POLICIES.get(name, name)] = value if apart is None else ours.mean - apart.mean
    levels = [Level(how, ours.mean, ours.low, ours.high, ours=True)]
    return [*levels, *(Level(name, value) for name, value in sorted(lines.items(), key=lambda one: -one[1]))]


def _sent(run: Run, slates: SlateRun) -> Number | None:
    """Bytes that a platform sends and receives in a round, or a run; None where nothing crosses."""
    rounds = 1 if slates.by_sums else max(1, rounds_of_platforms(run))
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


def charts(run: Run) -> dict[str, Chart]:
    """All figures of the page by name, which is also that of its file."""
    slates = slates_of(run)
    first = sections.opening_chart(run, _levels(run), _TITLE, DIGITS)
    out: dict[str, Chart] = {} if first is None else {CHART: first}
    for place, measure in enumerate(slates.measures[: MOST_PLATFORMS + 1]):
        if slate_tables.final_engagement(run, measure) is not None:
            name = "all" if not place else slates.names[place - 1].lower()
            out[f"engagement-{name}"] = learning_figure(run, measure)
    out |= stay_charts(run, slates.stays)
    online = online_figure(run)
    return out if online is None else {**out, "while-learning": online}


def page(run: Run, drawn: Mapping[str, Chart]) -> Page:
    """The page as data.

    Args:
        run: A run of platforms.
        drawn: From :func:`charts`.
    """
    slates, faults = slates_of(run), slate_tables.faults_table(run)
    return Page(
        run.shown.opening(run),
        describe.other_caveats(run),
        (
            _stay(run, drawn),
            sections.found(slate_tables.verdicts(run)),
            _trial(run),
            Section("who", "Who is who", (slate_tables.parties_table(run),)),
            sections.curves(run, drawn, _described(drawn), "How they learnt"),
            Section("final", "Engagement", (slate_tables.platforms_table(run), slate_tables.policies_table(run))),
            None if faults is None else _faults(run, faults),
            sections.left(run, slate_tables.crossed_table(run)),
            sections.privacy(run),
            Section("users", "Users", (slate_tables.world_table(run),)),
            sections.repeat(run),
            sections.configuration(run, notes=not slates.notes),
            sections.citation(run),
        ),
    )


def _trial(run: Run) -> Section | None:
    """Section of the trial of the plan; None where nothing was planned, or before the end."""
    table = slate_tables.trial_table(run)
    return None if table is None else Section("trial", "Is the plan better than what it replaces?", (table,))


def _stay(run: Run, drawn: Mapping[str, Chart]) -> Section | None:
    """Section of what is served over a stay, and why; None before the run has ended."""
    said = stay_words(slates_of(run).stays)
    pictures = [
        drawn[name].figure(name, f"{about}, round by round, beside the best possible and random slates.")
        for name, about in zip(FIGURES, ("Share of kale of what users click", "Satisfaction of users"), strict=True)
        if name in drawn
    ]
    if not said and not pictures:
        return None
    return Section("stay", "What is served when", (*said, h("div", *pictures, class_="charts")))


def _described(drawn: Mapping[str, Chart]) -> dict[str, str]:
    """The words for each learning curve."""
    return {name: _about(name) for name in drawn if name not in (CHART, *FIGURES)}


def _about(name: str) -> str:
    if name == "while-learning":
        return "What users brought while platforms learnt"
    whose = name.removeprefix("engagement-")
    on = "all platforms together" if whose == "all" else f"platform {whose.upper()}"
    return f"Learning curve of a fresh user’s engagement, {on}, with fixed policies and the optimum as dashed lines"


def _faults(run: Run, faults: tables.Table) -> Section:
    said = (
        "These settings do as the published code does, and not as the publication means. Each is switched off by its "
        "setting."
    )
    content = (h("p", said), faults)
    return Section("faults", "Faults of the published code", content)
