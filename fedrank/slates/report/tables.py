"""Tables, figures and sentences of runs of platforms: parties, engagement, policies, faults, messages."""

from __future__ import annotations

import math
import statistics as exact
from collections.abc import Mapping
from dataclasses import fields

from fedrank.core.frame import Frame
from fedrank.core.ledger import Ledger
from fedrank.core.trees import Json
from fedrank.report import figures, wording, words
from fedrank.report.charts import Chart
from fedrank.report.claims import Comparison, Verdict, diff_words
from fedrank.report.run import Run
from fedrank.report.statistics import Estimate, curve, difference, final_values, mean_interval
from fedrank.report.tables import Column, Table, filled, settings_table, table_of
from fedrank.report.words import Flow, flows
from fedrank.slates.config import World
from fedrank.slates.report.files import (
    COPYING,
    ENGAGEMENT,
    GREEDY,
    MYOPIC,
    OPTIMUM,
    POLICIES,
    RANDOM,
    PolicyBaseline,
    SlateRun,
)

#: Exchanges of platforms that take place in every round; the others need a batch to learn from.
ACTING = ("look", "recommend")
#: Exchanges of platforms that learn from sums over users, which take place once or now and then.
ONCE = ("bound", "clip", "release", "improve", "trial", "verdict")


def kind_of(flow: Flow) -> str:
    """Occasion of a message: once a ``"run"``, in a ``"round"``, a ``"batch"``, or for a secret ``"sum"``."""
    if flow.exchange in ONCE:
        return "run"
    return "round" if flow.exchange in ACTING else "sum" if flow.exchange.startswith("secure sum") else "batch"


def times_asked(run: Run, exchange: str) -> int:
    """Times that the ledger of a run of platforms has an exchange, each of which asks every platform once.

    ``look``, for values of candidates, takes place in every round; ``batch`` names the transitions to learn from.
    """
    asked = sum(f.messages for f in flows(run.ledger or Ledger()) if (f.exchange, f.sender) == (exchange, "server"))
    return asked // max(1, len(run.details.names))


def ledger_words(run: Run) -> list[str]:
    """Sentences about messages between platforms and coordinator: sizes by round and batch, and what they reveal."""
    ledger = run.ledger or Ledger()
    slates: SlateRun = run.details
    rounds, batches, each = times_asked(run, "look"), times_asked(run, "batch"), run.setting("slates.batch")
    lines = flows(ledger)
    sums = sum(f.messages for f in lines if f.message == "Advertisement") // len(slates.names)
    transitions = f" of {wording.number(each)} transitions" if each else ""
    out = []
    for kind, turns, purpose, what in (
        ("round", rounds, "To show slates", "rounds, all platforms together"),
        ("batch", batches, "To learn", f"batches{transitions}"),
        ("sum", sums, "So that sums are secret", "secure sum" if sums == 1 else "secure sums"),
    ):
        mine = [flow for flow in lines if kind_of(flow) == kind]
        up, down = (sum(f.bytes for f in mine if f.sender == s) / max(1, turns) for s in ("parties", "server"))
        if turns:
            sizes = f"{wording.size(round(up))} up and {wording.size(round(down))} down"
            out.append(f"{purpose}: {sizes} in each of {turns:,} {what}.")
    up, down = ledger.bytes_from("parties"), ledger.bytes_from("server")
    seeds = "" if len(run.seeds) == 1 else "; each of the other seeds moved as much"
    out.append(
        f"In all: {wording.size(up)} up and {wording.size(down)} down, for one run of one seed{seeds}. Transport "
        "(TCP, TLS, HTTP) comes on top."
    )
    if slates.without_feedback and batches and run.setting("slates.regress") != "nothing":
        to, of = wording.in_words(slates.without_feedback), wording.in_words(slates.with_feedback)
        verb = "receive" if len(slates.without_feedback) > 1 else "receives"
        scale, discount = run.setting("slates.reward_scale"), run.setting("slates.discount")
        divided = f", divided by {scale:g}," if isinstance(scale, float) and scale != 1 else ""
        follows = f" plus {discount:g} times what is expected to follow" if isinstance(discount, float) else ""
        out.append(
            f"What it tells: {to} {verb} targets of {of}. A target is the engagement of a "
            f"transition{divided}{follows}, so that engagement can be estimated from it, although no message names it. "
            "How well: fedrank privacy attack slates (fedrank-zoo)."
        )
    return out


#: What curves are of.
_ENGAGEMENT = "engagement of a user"
#: Points of the curve while learning, whose single users differ by a fifth of the mean and more.
_POINTS = 20


def learning_figure(run: Run, measure: str) -> Chart:
    """Engagement of fresh users without exploration over the users served before; fixed policies are dashed.

    Args:
        run: A run of platforms.
        measure: One of its measures.
    """
    slates = slates_of(run)
    platform = slates.names[slates.measures.index(measure) - 1] if measure != ENGAGEMENT else None
    frame, _ = figures.points(run, [("test", measure, _said(slates, platform))], "users")
    colour = figures.OKABE_ITO[0 if platform is None else 1 + slates.names.index(platform) % 6]
    title = "All platforms together" if platform is None else f"Platform {_said(slates, platform)}"
    notes = [f"{slates.judges:,} fresh users a seed, no exploration"]
    said, marks = _said(slates, platform), slates.lines(measure)
    return figures.line_chart(run, frame, "users", title, _ENGAGEMENT, {said: colour}, notes, marks=marks)


def online_figure(run: Run) -> Chart | None:
    """Engagement while platforms learnt, exploration included; None before a user has left."""
    slates = slates_of(run)
    parts, block = [], 1
    for name, measure in zip(slates.names, slates.measures[1:], strict=True):
        part, block = curve(run.metrics, "online", measure, points=_POINTS)
        parts.append(part.with_columns({"x": part["round"] / slates.stay, "series": _said(slates, name)}))
    frame = Frame.concat(parts)
    if not len(frame):
        return None
    colours = {
        _said(slates, name): figures.OKABE_ITO[1 + place % 6] for place, name in enumerate(slates.names)
    }  # a platform has the same colour in every figure
    notes = ["exploration included", *([f"each point the mean of {block} users"] if block > 1 else [])]
    return figures.line_chart(run, frame, "users", "While they learnt", _ENGAGEMENT, colours, notes)


def slates_of(run: Run) -> SlateRun:
    """The run's data about platforms."""
    return run.details


def _said(slates: SlateRun, platform: str | None) -> str:
    """A platform, and whether it sees what users do."""
    if platform is None:
        return "all platforms"
    if slates.central:
        return platform
    return f"{platform}, {'with' if slates.feedback[slates.names.index(platform)] else 'without'} feedback"


#: Measures that a table of policies has columns for: all platforms together, and three of them.
_MOST_COLUMNS = 4
#: Engagement of a user that is less than this is rounding of a sum of about a thousand.
_ROUNDING = 0.01
#: Decimals of engagement, which is about a thousand.
DIGITS = 1


def final_engagement(run: Run, measure: str) -> Estimate | None:
    """Engagement of fresh users at the last evaluation, without exploration; None before the first."""
    found = final_values(run.metrics, "test", measure)
    return mean_interval(list(found.values())) if found else None


def against(run: Run, measure: str, policy: str) -> Estimate | None:
    """The same minus what a fixed policy gets of the same users, paired by seed; None if the run has no such policy."""
    mark, found = slates_of(run).mark(policy), final_values(run.metrics, "test", measure)
    if mark is None or not found:
        return None
    if theirs := mark.runs.get(measure):
        return difference(found, theirs)
    return mean_interval(list(found.values())).minus(mark.values[measure].mean)


def way(run: Run, measure: str) -> float | None:
    """Share of the gap from random to the optimum; None without either, or where they are the same.

    Both are of the users that the run is judged by, as the run is: other users differ by more than policies do.
    """
    ours, short = against(run, measure, RANDOM), against(run, measure, OPTIMUM)
    if ours is None or short is None or ours.mean <= short.mean:
        return None
    return ours.mean / (ours.mean - short.mean)


def measure_owner(slates: SlateRun, measure: str) -> str:
    """Platforms of a measure: ``"all platforms"``, ``"A, with feedback"``."""
    place = slates.measures.index(measure)
    return _said(slates, slates.names[place - 1] if place else None)


def platforms_table(run: Run) -> Table:
    """Engagement of each platform and of all, with differences, regret and the time to the threshold."""
    slates, rows = slates_of(run), []
    for place, measure in enumerate(slates.measures):
        regret = None if place else against(run, measure, OPTIMUM)
        rows.append(
            {
                "who": measure_owner(slates, measure),
                "value": final_engagement(run, measure),
                RANDOM: against(run, measure, RANDOM),
                MYOPIC: against(run, measure, MYOPIC),
                "regret": None if regret is None else Estimate(-regret.mean, regret.half, regret.n, regret.method),
                "time": _time(slates, measure),
            }
        )
    apart = {policy: f"difference to {policy}" for policy in (RANDOM, MYOPIC)}
    columns = (
        Column("who", "platform"),
        Column("value", "engagement of a user", numeric=True, digits=DIGITS),
        *(Column(policy, title, numeric=True, signed=True, digits=DIGITS) for policy, title in apart.items()),
        Column("regret", "regret to the optimum", numeric=True, digits=DIGITS),
        Column("time", f"users until {_half(slates)} to the optimum", numeric=True),
    )
    notes = [
        f"The last networks without exploration, for {slates.judges:,} fresh users a seed; a user stays for "
        f"{slates.stay:,} rounds. Engagement is summed over the stay, without a discount. "
        + wording.spread_note(len(run.seeds)),
    ]
    if any(mark.runs for mark in slates.marks):
        notes.append("Differences and regret are paired by seed: fixed policies are shown the same users.")
    if slates.mark(OPTIMUM):
        notes.append(
            "The optimum is of all platforms together, so that a single platform has no regret: it may get more than "
            "its part of the optimum, at the expense of others."
        )
    if slates.thresholds:
        levels = [
            f"{threshold.level:.{DIGITS}f} ({measure_owner(slates, m)})" for m, threshold in slates.thresholds.items()
        ]
        first = any(0.0 in threshold.users for threshold in slates.thresholds.values())
        luck = " 0 is before learning: networks as they are drawn may sort items well by luck." if first else ""
        notes.append(
            f"Time to threshold: the first of two evaluations in a row at {', '.join(levels)} or above, "
            f"{_half(slates)} from random to the optimum; there is an evaluation every "
            f"{slates.every / slates.stay:,.3g} users.{luck}"
        )
    return Table("What a fresh user brings", filled(columns, rows), tuple(rows), tuple(notes))


def policies_table(run: Run) -> Table | None:
    """Fixed policies and what the run adds to them; None if the run has none."""
    slates = slates_of(run)
    known = [mark for name in (*POLICIES, COPYING, GREEDY) if (mark := slates.mark(name)) is not None]
    if not known:
        return None
    measures, total = slates.measures[:_MOST_COLUMNS], final_engagement(run, slates.measures[0])
    rows: list[dict[str, Json]] = []
    for mark in known:
        row: dict[str, Json] = {"policy": mark.name}
        apart = against(run, slates.measures[0], mark.name)
        if total is not None and apart is not None and total.mean > apart.mean:
            part = 100 / (total.mean - apart.mean)
            half = None if apart.half is None else part * apart.half
            row["part"] = Estimate(part * apart.mean, half, apart.n, apart.method)
        for i, measure in enumerate(measures):
            row |= {f"v{i}": _over_users(mark, measure), f"d{i}": against(run, measure, mark.name)}
        rows.append(row)
    columns = [Column("policy", "policy"), Column("part", "run − policy, % of it", numeric=True, signed=True, digits=1)]
    for i, measure in enumerate(measures):
        who = "all" if measure == slates.measures[0] else slates.names[slates.measures.index(measure) - 1]
        columns.append(Column(f"v{i}", who, numeric=True, digits=DIGITS))
        columns.append(Column(f"d{i}", f"run − policy, {who}", numeric=True, signed=True, digits=DIGITS))
    users = max((mark.users for mark in slates.marks if mark.name not in (COPYING, GREEDY)), default=0)
    notes = [
        f"Policies: mean over {users:,} fresh users (copying and greedy: those of the run), with its 95 % interval. "
        "Run − policy: for the users that the run is judged by, so that it is not the difference of the means "
        "that stand here.",
        *(f"{mark.name}: {note}" for mark in slates.marks for note in mark.notes),
    ]
    return Table("Fixed policies, and copying", tuple(columns), tuple(rows), tuple(notes))


def trial_table(run: Run) -> Table | None:
    """Verdicts of the trial of the plan by seed; None where nothing was planned, or before the end."""
    slates = slates_of(run)
    if not slates.by_sums or final_engagement(run, slates.measures[0]) is None:
        return None
    columns = (
        Column("seed", "seed", numeric=True),
        Column("over", "plan over the fallback"),
        Column("myopic", "plan over greedy slates"),
        Column("serves", "served"),
        Column("residuals", "residual tests, z"),
    )
    rows = []
    for seed, one in zip(run.seeds, slates.trial, strict=False):
        missed = "the model misses how items engage" if max(map(abs, one["residuals"])) > _RESIDUAL else ""
        scores = ", ".join(f"{score:+.1f}" for score in one["residuals"])
        over = _gain(one.get("over_fallback")) if one["informs"] else "no model: it says no more than its noise"
        served = "the plan" if one["serves"] == "plan" else "random slates"
        rows.append((seed, over, _gain(one.get("over_myopic")), served, f"{scores}: {missed}" if missed else scores))
    how = (
        "Stays after the explorers were served by the plan, at random (the fallback) or by the best slate for now, by "
        "lot. Gains are of engagement at platforms with feedback, as a part of the fallback’s; 95 % intervals that are "
        "valid at all looks together. The plan is served where its interval was above 0 at a look, not below it later."
    )
    none = (
        "The plan was not tested on users: slates.trial is 0, or the run has too few users for it. It is served, but "
        "where its fit says no more than its noise (slates.evidence): random slates are served there."
    )
    return table_of("Trial of the plan", columns, rows, (how if rows else none,))


#: z from which a residual test says that the model has missed something.
_RESIDUAL = 4.0


def _gain(found: Mapping[str, float] | None) -> str:
    if found is None:
        return "not known"
    return f"{100 * found['gain']:+.1f} % ({100 * found['low']:+.1f} to {100 * found['high']:+.1f})"


#: What a platform learns from and is sent, by how platforms learn and whether it has feedback.
_LEARNS = {
    ("alone", True): ("its own engagement, by itself", "nothing"),
    ("alone", False): ("nothing: its network stays as it was drawn", "nothing"),
    ("sums", True): ("the model, to which its own users’ clicks and engagement have added", "the model"),
    ("sums", False): (
        "the model, to which it has added at most what it observes of satisfaction; its clicks are expected ones",
        "the model",
    ),
    ("values", True): (
        "its own engagement, and what it expects to follow (equations 13 and 14)",
        "federated values of its candidates; gradients",
    ),
    ("values", False): (
        "targets of who has feedback, which tell that platform’s engagement (equation 15)",
        "federated values of its candidates; gradients; targets of who has feedback",
    ),
}


def parties_table(run: Run) -> Table:
    """Data that each party sees, learns from and is sent."""
    slates, rows = slates_of(run), []
    way = "sums" if slates.by_sums else "values" if slates.federates else "alone"
    for name, sees in zip(slates.names, slates.feedback, strict=True):
        seen = "clicks and engagement" if sees or slates.central else "no click, no engagement"
        whose = "candidates" if slates.central else "its candidates"
        learns, sent = _LEARNS[way, sees]
        if slates.central:
            learns, sent = "with what all know of the user", "nothing: all have everything"
        rows.append((_said(slates, name), f"{whose}; the user’s satisfaction with noise; {seen}", learns, sent))
    blind = ("coordinator", "nothing of a user or an item")
    if slates.by_sums:
        noised = "with noise" if run.setting("sharing.epsilon") else "without noise"
        pooled = bool(run.setting("sharing.secure_sum"))
        of = "the total over all explorers of all" if pooled else "sums over all explorers, each of the"
        learns = f"the {'total of all' if pooled else 'sums of all'} platforms, of which it makes the model"
        rows.append((*blind, learns, f"{of} platforms that send any, clipped, {noised}"))
    elif slates.federates:
        learns = "gradients of all, how values are joined to federated ones"
        rows.append((*blind, learns, "of every platform: Q-values, targets, gradients"))
    columns = (
        Column("platform", "who"),
        Column("sees", "sees"),
        Column("learns", "learns from"),
        Column("sent", "is sent"),
    )
    return table_of("Platforms and coordinator", columns, rows)


#: Values of settings of the users that do not say by themselves what they mean.
_MEANT = {
    "semantics": {"recsim-code": "chocolate (RecSim’s code)", "paper": "kale (the publications)"},
    "shared_candidates": {True: "the same", False: "each its own"},
}


def world_table(run: Run) -> Table:
    """Settings of the users, those that follow from the preset among them."""
    slates, settings = slates_of(run), {one.name for one in fields(World)}
    facts = {
        f"world.{key}": _MEANT[key].get(value, value) if key in _MEANT else value
        for key, value in slates.world.items()
        if key in settings
    }
    facts |= {"rounds of a user’s stay": slates.stay, "users of a run, one after the other": slates.users}
    return settings_table(run, "The users, made up by a program", facts, slates.notes)


def faults_table(run: Run) -> Table | None:
    """Faults of the published code that are on; None if none is."""
    rows = slates_of(run).faults
    if not rows:
        return None
    columns = (Column("name", "fault"), Column("what", "what it does"), Column("key", "setting", code=True))
    note = "They do as the published code does, and not as the publication means. Each is switched off by its setting."
    return Table("Faults of the published code that are on", columns, rows, (note,))


def crossed_table(run: Run) -> Table | None:
    """Messages that crossed, with their numbers; None if none has."""
    flows = [flow for flow in words.flows(run.ledger or Ledger()) if flow.messages]
    if not flows:
        return None
    rounds, batches = times_asked(run, "look"), times_asked(run, "batch")
    rows = []
    for flow in flows:
        kind = kind_of(flow)
        turns = {"run": 1, "round": rounds, "batch": batches}.get(kind, flow.messages / len(slates_of(run).names))
        each = flow.messages / turns if turns else math.nan
        way, turn = "up" if flow.sender == "parties" else "down", wording.size(round(each * flow.bytes_each))
        sizes = flow.bytes_each, turn, wording.size(flow.bytes)
        rows.append((flow.exchange, flow.message, way, kind, f"{each:,.3g}", *sizes))
    columns = (
        Column("exchange", "exchange", code=True),
        Column("message", "message", code=True),
        Column("way", "way"),
        Column("when", "in each"),
        Column("each", "messages", numeric=True),
        Column("bytes_each", "bytes of one", numeric=True),
        Column("turn", "bytes of all", numeric=True),
        Column("total", "in total", numeric=True),
    )
    counted = f": {rounds:,} rounds, and {batches:,} batches to learn from" if rounds or batches else ""
    note = f"One seed, all platforms together{counted}. up: to the coordinator; down: from it."
    return table_of("Everything that crossed (one seed)", columns, rows, (note,))


def verdicts(run: Run) -> list[str]:
    """Sentences on the gain of each platform and of all over random slates, and on fixed policies that do as well."""
    slates, out = slates_of(run), []
    for measure in slates.measures:
        found = against(run, measure, RANDOM)
        if found is not None:
            who = "All platforms together" if measure == slates.measures[0] else measure_owner(slates, measure)
            out.append(f"{who}: {_describe(found)} against random slates.")
    if slates.trial:
        served, many = sum(one["serves"] == "plan" for one in slates.trial), len(slates.trial)
        rest = "" if served == many else "; in the others random slates are"
        out.append(f"Tested on users, the plan beats random slates and is served in {served} of {many} seeds{rest}.")
    total = slates.measures[0]
    same = [name for name in POLICIES if _same(against(run, total, name))]
    if same:
        out.append(
            f"Without exploration platforms bring exactly as much as {wording.in_words(same)} for the same users: "
            "nothing else that they may have learnt shows."
        )
    short = None if MYOPIC in same else against(run, total, MYOPIC)
    if short is not None:
        out.append(
            f"All platforms together: {_describe(short)} against the myopic policy, which knows the user’s mind and "
            "thinks of now only."
        )
    myopic, best = (slates.mark(name) for name in (MYOPIC, OPTIMUM))
    if myopic and best and myopic.runs.get(total) and best.runs.get(total):
        found = against_optimum(run, difference(myopic.runs[total], best.runs[total]))
        if found is not None and found.verdict is Verdict.EQUAL:
            out.append(f"In this world there is no tension: the myopic policy is {found}. World tension has one.")
    return out


def against_optimum(run: Run, apart: Estimate | None) -> Comparison | None:
    """A difference of engagement to the optimum, as a comparison that calls small differences none.

    The bound is :data:`EQUAL_WITHIN` of the way from random slates to the optimum.

    Args:
        run: A run of platforms.
        apart: Engagement on all platforms minus that of the optimum, or None.

    Returns:
        The comparison; None without a difference, or if the optimum brings no more than random slates.
    """
    slates = slates_of(run)
    lines = slates.lines(slates.measures[0], (RANDOM, OPTIMUM))
    if apart is None or len(lines) < 2 or lines[OPTIMUM] <= lines[RANDOM]:
        return None
    bound = EQUAL_WITHIN * (lines[OPTIMUM] - lines[RANDOM])
    best = "the best possible"
    return Comparison(apart, best, ways=("above", "below"), than="", within=bound, digits=DIGITS)


def _over_users(mark: PolicyBaseline, measure: str) -> Estimate | None:
    found = mark.values.get(measure)
    if found is None:
        return None
    return Estimate(found.mean, None if found.high is None else found.high - found.mean, mark.users)


#: Engagement is called equal to the optimum's if the interval of the difference lies within this part of the way from
#: random slates to the optimum.
EQUAL_WITHIN = 0.02


def _same(found: Estimate | None) -> bool:
    """True if two policies brought the same in every seed, but for rounding."""
    return found is not None and max(abs(found.mean), found.half or 0.0) < _ROUNDING


def _describe(found: Estimate) -> str:
    """A difference in words: ``"+81.2 (95 % interval +60.1 to +102.3)"``, and whether it may be chance."""
    chance = found.low is not None and found.high is not None and found.low <= 0 <= found.high
    return diff_words(found, DIGITS) + (", which may be chance," if chance else "")


def _half(slates: SlateRun) -> str:
    return "half-way" if slates.share == 0.5 else f"{slates.share:.0%} of the way".replace("%", " %")


def _time(slates: SlateRun, measure: str) -> str | None:
    threshold = slates.thresholds.get(measure)
    if threshold is None:
        return None
    there = [users for users in threshold.users if users is not None]
    if len(there) == len(threshold.users):
        middle = f"{exact.median(there):,.0f} (median)" if len(there) > 1 else f"{there[0]:,.0f}"
        return middle if len(there) == 1 else f"{middle}, {min(there):,.0f} to {max(there):,.0f}"
    return f"reached by {len(there)} of {len(threshold.users)} seeds"
