"""The page of a run of platforms, for readers who decide whether a platform takes part.

A reader gets, in this order: the engagement of users, on the way from random slates to the optimum, and caveats; what
is served over a stay, and why; then, folded, platform by platform, the parties, the learning curves beside fixed
policies and the optimum, the numbers, faults of the published code that are on, messages and what they reveal, privacy,
the publication's own metrics, and everything needed to run it again.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from fedrank.core.privacy_report import Unit
from fedrank.report import describe, sections, sentences, tables, words
from fedrank.report.charts import Chart
from fedrank.report.figures import Level, levels_figure
from fedrank.report.html import Html, h, tile
from fedrank.report.opening import Number, Opening
from fedrank.report.run import Page, Run, Section
from fedrank.report.statistics import Estimate, direction
from fedrank.slates.report import tables as slate_tables
from fedrank.slates.report.files import FIGURES, OPTIMUM, RANDOM, SlateRun, stay_charts, stay_words
from fedrank.slates.report.study import legacy_table, legacy_words
from fedrank.slates.report.tables import (
    DIGITS,
    against,
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
    "myopic": "Best for now, knowing the user (myopic)",
    "optimum": "Best possible, knowing the user (optimum)",
    "copying": "All show what the first would (copying)",
}


def opening_of(run: Run) -> Opening:
    """Title, sentence, chart and numbers of a run of platforms."""
    slates = slates_of(run)
    names = describe.in_words(slates.names)
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
        return Opening(title, f"Nothing has been measured yet.{sentences.closing(run)}")
    numbers = [Number("A user’s engagement, all platforms", f"{ours.mean:,.{DIGITS}f}", sentences.spread(ours, DIGITS))]
    sentence = f"After {users:,} users, the platforms together bring {ours.mean:,.0f} of engagement a user."
    if more is not None:
        sentence = f"After {users:,} users, slates of {names} bring {_more(more, ours.mean - more.mean)}{_far(run)}."
        note = "one seed" if more.half is None else f"± {more.half:.{DIGITS}f}: {sentences.interval_words(more)}"
        numbers.append(Number("Against random slates", sentences.format_difference(more.mean, DIGITS), note))
    sentence += _blind(run, slates)
    if not users:
        sentence = f"{done:,} rounds are less than one user’s stay ({slates.stay}): too few to learn from."
    costs = [one for one in (_sent(run, slates), _privacy(run, slates)) if one is not None]
    chart = (CHART, f"{_TITLE}. The same numbers are in the tables below.") if _levels(run) else ("", "")
    return Opening(title, sentence + sentences.closing(run), (*numbers, *costs), *chart)


def opening_chart(run: Run) -> Chart | None:
    """Chart of engagement beside fixed policies and the optimum; None before the first evaluation."""
    levels = _levels(run)
    if not levels:
        return None
    said = [describe.seeds_in_words(len(run.seeds)).replace("band", "line"), *describe.caveats(run)]
    return levels_figure(levels, _TITLE, said, DIGITS)


def _more(difference: Estimate, base: float) -> str:
    """Engagement compared with that of random slates, in words."""
    few = difference.n < sentences.LEAST_SEEDS or difference.half is None
    if not few and direction(difference) == "neither":
        return f"what is not told apart from random slates ({sentences.seen_from(difference, DIGITS)})"
    percent = 100 * abs(difference.mean) / base if base > 0 else math.nan
    amount = f"{percent:.{0 if percent >= 10 else 1}f} % " if math.isfinite(percent) else ""
    end = f" {sentences.in_few(difference.n)}" if few else ""
    return f"{amount}{'more' if difference.mean >= 0 else 'less'} engagement than random ones{end}"


def _far(run: Run) -> str:
    """Share of the gap to the optimum, in words."""
    total = slates_of(run).measures[0]
    share, more = way(run, total), against(run, total, RANDOM)
    if share is None or direction(more) == "neither" or share < 0:
        return ""
    if direction(against(run, total, OPTIMUM)) == "gain":
        return ", more than what was computed as the best possible, which is wrong for these users"
    return f", {100 * share:.0f} % of the way to the best possible"


def _blind(run: Run, slates: SlateRun) -> str:
    """Gain of platforms without clicks and engagement against random slates, in words."""
    said = ""
    for name, measure in zip(slates.names, slates.measures[1:], strict=True):
        found = against(run, measure, RANDOM)
        if found is not None and name in slates.without_feedback and not slates.central:
            known = {
                "gain": "gains from the others",
                "loss": "loses by it",
                "neither": "has no measurable gain",
                "unknown": f"has {sentences.format_difference(found.mean, DIGITS)} in one seed",
            }[direction(found)]
            said += f" {name}, which sees no feedback, {known}."
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
    """Bytes that a platform sends and receives in a round; None where nothing crosses."""
    if run.ledger is None or not len(run.ledger):
        return None
    rounds = 1 if slates.by_sums else max(1, rounds_of_platforms(run))
    up, down = (run.ledger.bytes_from(who) / len(slates.names) / rounds for who in ("parties", "server"))
    when = "run" if slates.by_sums else "round"
    return Number(f"Sent by a platform in a {when}", describe.size(round(up)), f"{describe.size(round(down))} received")


def _privacy(run: Run, slates: SlateRun) -> Number | None:
    """ε of a user's stay; None where nothing crosses, or before the run wrote its statement."""
    if run.privacy is None or not slates.federates:
        return None
    one, stay = run.privacy.epsilon(Unit.VECTOR), run.privacy.epsilon(Unit.USER)
    if slates.by_sums:
        one = stay
    note = (
        "of the whole stay, at all platforms"
        if slates.by_sums and not math.isinf(stay)
        else "nothing is randomised"
        if math.isinf(one)
        else f"{words.epsilon_text(one)} for each {Unit.VECTOR} that is sent"
    )
    return Number("Privacy bound of a user’s stay (ε)", words.epsilon_text(stay), note)


#: Platforms that have a figure and a tile each; tables have all of them.
MOST_PLATFORMS = 5

#: What an interval tells, in a tile.
_TOLD = {"gain": "a gain", "loss": "a loss", "neither": "may be chance", "unknown": "one seed, no interval"}


def charts(run: Run) -> dict[str, Chart]:
    """All figures of the page by name, which is also that of its file."""
    slates = slates_of(run)
    first = opening_chart(run)
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
    crossed, policies = slate_tables.crossed_table(run), slate_tables.policies_table(run)
    found = (
        h("ul", *(h("li", said) for said in slate_tables.verdicts(run)), class_="verdicts"),
        h("dl", *_tiles(run), class_="tiles"),
    )
    final = (
        tables.to_html(slate_tables.platforms_table(run)),
        None if policies is None else tables.to_html(policies),
    )
    every = [] if crossed is None else [tables.to_html(crossed, code=("exchange", "message"))]
    return Page(
        opening_of(run),
        sentences.other_caveats(run),
        (
            _stay(run, drawn),
            Section("found", "What was found", found),
            Section("who", "Who is who", (tables.to_html(slate_tables.parties_table(run)),)),
            _curves(run, drawn),
            Section("final", "Engagement", final),
            None if faults is None else _faults(run, faults),
            sections.left(run, *every),
            sections.privacy(run),
            _legacy(run),
            Section("users", "Users", (tables.to_html(slate_tables.world_table(run)),)),
            sections.repeat(run),
            sections.configuration(run, notes=not slates.notes),
            sections.citation(run),
        ),
    )


def _tiles(run: Run) -> list[Html]:
    slates, out = slates_of(run), []
    for place, measure in enumerate(slates.measures[: MOST_PLATFORMS + 1]):
        ours, more = slate_tables.final_engagement(run, measure), slate_tables.against(run, measure, RANDOM)
        if ours is None:
            continue
        notes = ["" if ours.half is None else f"± {ours.half:.{DIGITS}f}, 95 % interval over {ours.n} seeds"]
        if more is not None:
            notes.append(
                f"{describe.format_value(more, signed=True, digits=DIGITS)} against random: {_TOLD[direction(more)]}"
            )
        title = (
            "A user’s engagement, all together" if not place else f"On {slate_tables.measure_owner(slates, measure)}"
        )
        out.append(tile(title, f"{ours.mean:.{DIGITS}f}", *notes))
    share, regret = slate_tables.way(run, slates.measures[0]), slate_tables.against(run, slates.measures[0], OPTIMUM)
    if share is not None and regret is not None:
        half = "" if regret.half is None else f" ± {regret.half:.{DIGITS}f}"
        lost = f"{-regret.mean:.{DIGITS}f}{half}".replace("-", "−")
        far = f"{100 * share:.0f} %" if share >= 0 else "below random"
        out.append(tile("Of the way from random to the optimum", far, f"regret {lost}"))
    out.append(
        tile("Users served", f"{run.shown.done_rounds(run) // slates.stay:,}", f"of {slates.stay:,} rounds each")
    )
    if run.ledger is not None and len(run.ledger):
        up, down = (run.ledger.bytes_from(who) / len(slates.names) for who in ("parties", "server"))
        if slates.by_sums:
            notes = (f"{describe.size(round(down))} received", "sums over users; nothing else crosses")
            out.append(tile("Sent by a platform in the run, on average", describe.size(round(up)), *notes))
        else:
            rounds = max(1, rounds_of_platforms(run))
            notes = (f"{describe.size(round(down / rounds))} received", f"{describe.size(round(up))} sent in the run")
            out.append(tile("Sent by a platform per round, on average", describe.size(round(up / rounds)), *notes))
    private = _privacy_tile(run)
    return out if private is None else [*out, private]


def _privacy_tile(run: Run) -> Html | None:
    privacy = run.privacy
    if privacy is None:
        return None
    if not slates_of(run).federates:
        return tile("Privacy", "–", "nothing crosses between platforms")
    if slates_of(run).by_sums:
        stay = privacy.epsilon(Unit.USER)
        note = "nothing is randomised" if math.isinf(stay) else "of a user’s whole stay, at all platforms together"
        return tile("ε", words.epsilon_text(stay), note)
    one, stay = privacy.epsilon(Unit.VECTOR), words.epsilon_text(privacy.epsilon(Unit.USER))
    if math.isinf(one):
        return tile("ε", "∞", "nothing is randomised: targets tell engagement, see below")
    notes = (f"a user’s stay at one platform: {stay}", "targets and gradients: no noise")
    return tile(f"ε of a {Unit.VECTOR}", words.epsilon_text(one), *notes)


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


def _curves(run: Run, drawn: Mapping[str, Chart]) -> Section:
    caveats = "".join(f" {caveat}." for caveat in describe.caveats(run))
    parts = [
        chart.figure(
            name,
            ("What users brought while platforms learnt" if name == "while-learning" else _about(name))
            + f". The final values are in the tables below.{caveats}",
        )
        for name, chart in drawn.items()
        if name not in (CHART, *FIGURES)
    ]
    note = "Point at a curve to read its values. Their files: folder figures." if parts else "There are no curves yet."
    content = (h("div", *parts, class_="charts"), h("p", note, class_="note"))
    return Section("curves", "How they learnt", content)


def _about(name: str) -> str:
    whose = name.removeprefix("engagement-")
    on = "all platforms together" if whose == "all" else f"platform {whose.upper()}"
    return f"Learning curve of a fresh user’s engagement, {on}, with fixed policies and the optimum as dashed lines"


def _faults(run: Run, faults: tables.Table) -> Section:
    said = (
        "These settings do as the published code does, and not as the publication means. Each is switched off by its "
        'setting, all of them by slates.mode = "corrected".'
    )
    content = (h("p", said), tables.to_html(faults, code=("key",)))
    return Section("faults", "Faults of the published code", content)


def _legacy(run: Run) -> Section:
    table, said = legacy_table(run), legacy_words(run)
    content = h(
        "div",
        h("p", h("b", "Not a measure of learning. "), said[0]),
        *(h("p", line) for line in said[1:]),
        None if table is None else tables.to_html(table),
        class_="legacy",
    )
    return Section("legacy", "Legacy metrics of the publication", (content,))
