"""How the page of a run of platforms opens: what users bring, on the way from random slates to the best policy."""

from __future__ import annotations

import math

from fedrank.core.privacy_report import Unit
from fedrank.report import describe, sentences, words
from fedrank.report.charts import Chart
from fedrank.report.figures import Level, levels_figure
from fedrank.report.opening import Number, Opening
from fedrank.report.run import Run
from fedrank.report.statistics import Estimate, direction
from fedrank.slates.report.figures import slates_of
from fedrank.slates.report.files import OPTIMUM, RANDOM, SlateRun
from fedrank.slates.report.tables import DIGITS, against, reached, way
from fedrank.slates.report.words import rounds_of_platforms

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
        if slates.federated
        else "are run by one learner"
        if slates.central
        else "learn slates each alone"
    )
    many = "Platforms" if len(slates.names) > 1 else "Platform"
    if slates.by_sums:
        how = "plan whole stays" if run.setting("slates.learner") == "planned-slates" else "learn from sums over users"
    title = f"{many} {names} {how}: {slates.world['preset']} users"
    total = slates.measures[0]
    ours, more = reached(run, total), against(run, total, RANDOM)
    done = run.shown.done_rounds(run)
    users = done // slates.stay
    if ours is None:
        return Opening(title, f"Nothing has been measured yet.{sentences.closing(run)}")
    numbers = [Number("A user’s engagement, all platforms", f"{ours.mean:,.{DIGITS}f}", sentences.spread(ours, DIGITS))]
    sentence = f"After {users:,} users, the platforms together bring {ours.mean:,.0f} of engagement a user."
    if more is not None:
        sentence = f"After {users:,} users, slates of {names} bring {_more(more, ours.mean - more.mean)}{_far(run)}."
        note = "one seed" if more.half is None else f"± {more.half:.{DIGITS}f}: {sentences.interval_words(more)}"
        numbers.append(Number("Against random slates", sentences.signed(more.mean, DIGITS), note))
    sentence += _blind(run, slates)
    if not users:
        sentence = f"{done:,} rounds are less than one user’s stay ({slates.stay}): too few to learn from."
    costs = [one for one in (_sent(run, slates), _privacy(run, slates)) if one is not None]
    chart = (CHART, f"{_TITLE}. The same numbers are in the tables below.") if _levels(run) else ("", "")
    return Opening(title, sentence + sentences.closing(run), (*numbers, *costs), *chart)


def chart(run: Run) -> Chart | None:
    """What users bring, beside fixed policies and the optimum; None before the first evaluation."""
    levels = _levels(run)
    if not levels:
        return None
    said = [describe.seeds_in_words(len(run.seeds)).replace("band", "line"), *describe.caveats(run)]
    return levels_figure(levels, _TITLE, said, DIGITS)


def _more(difference: Estimate, base: float) -> str:
    """How engagement compares with that of random slates."""
    few = difference.n < sentences.LEAST_SEEDS or difference.half is None
    if not few and direction(difference) == "neither":
        return f"what is not told apart from random slates ({sentences.seen_from(difference, DIGITS)})"
    percent = 100 * abs(difference.mean) / base if base > 0 else math.nan
    amount = f"{percent:.{0 if percent >= 10 else 1}f} % " if math.isfinite(percent) else ""
    end = f" {sentences.in_few(difference.n)}" if few else ""
    return f"{amount}{'more' if difference.mean >= 0 else 'less'} engagement than random ones{end}"


def _far(run: Run) -> str:
    """How far that is on the way to the optimum."""
    total = slates_of(run).measures[0]
    share, more = way(run, total), against(run, total, RANDOM)
    if share is None or direction(more) == "neither" or share < 0:
        return ""
    if direction(against(run, total, OPTIMUM)) == "gain":
        return ", more than what was computed as the best possible, which is wrong for these users"
    return f", {100 * share:.0f} % of the way to the best possible"


def _blind(run: Run, slates: SlateRun) -> str:
    """What platforms have that see neither clicks nor engagement, against random slates."""
    said = ""
    for name, measure in zip(slates.names, slates.measures[1:], strict=True):
        found = against(run, measure, RANDOM)
        if found is not None and name in slates.without_feedback and not slates.central:
            known = {
                "gain": "gains from the others",
                "loss": "loses by it",
                "neither": "has no measurable gain",
                "unknown": f"has {sentences.signed(found.mean, DIGITS)} in one seed",
            }[direction(found)]
            said += f" {name}, which sees no feedback, {known}."
    return said


def _levels(run: Run) -> list[Level]:
    slates = slates_of(run)
    total = slates.measures[0]
    ours = reached(run, total)
    if ours is None:
        return []
    how = "Learnt together" if slates.federated else "Learnt"
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
    if run.privacy is None or not slates.federated:
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
