"""The hub's status page: the state of training in sentences, tables and two charts.

The complete page is built here, so that it can be read without JavaScript; a small script fetches it again and replaces
what has changed. It loads nothing from anywhere else, which :data:`CSP` lets a browser enforce. Text is escaped unless
it is an :class:`Html` that was built here.
"""

from __future__ import annotations

import base64
import hashlib
import itertools
import math
import statistics
import string
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import resources

from fedrank.core.trees import finite
from fedrank.core.words import format_count
from fedrank.deploy.http.routes import REASONS
from fedrank.deploy.terms import ONE_NUMBER
from fedrank.metrics.online import REWARDS
from fedrank.report.charts import (
    INK,
    OKABE_ITO,
    Panel,
    compose,
    decimal_labels,
    element,
    nice_domain,
    ticks,
    tooltip_of,
)
from fedrank.report.claims import Comparison, Ends, Measured, Named, Number, Opening, Sentence, Verdict, head, say
from fedrank.report.html import Html, h, join
from fedrank.report.statistics import Interval

#: A no-break space.
JOINT = "\u00a0"


def value_text(reward: float) -> str:
    """A reward with three digits."""
    return f"{reward:.3f}" if abs(reward) < 1000 else f"{reward:.3g}"


def epsilon_text(value: float) -> str:
    """An ε with two or three digits, or as a whole number from 100 on."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}" if value < 0.01 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def size(number: float) -> str:
    """A number of bytes in decimal units."""
    if number < 1000:
        return format_count(round(number), "byte")
    units = ("kB", "MB", "GB", "TB", "PB")
    power = next((i for i in range(1, 5) if number < 999.5 * 1000**i), 5)
    return f"{float(f'{number / 1000**power:.3g}'):,.6g}{JOINT}{units[power - 1]}"


def clock(seconds: float) -> str:
    """A duration: seconds, minutes and hours as a clock from a minute on, days and hours from two days on."""
    if seconds < 59.5:
        return f"{seconds:.2g}{JOINT}s" if seconds < 9.95 else f"{seconds:.0f}{JOINT}s"
    whole = round(seconds)
    minutes, hours, days = whole // 60 % 60, whole // 3600, whole // 86400
    if days >= 2:
        return f"{days:,}{JOINT}days {hours % 24}{JOINT}h"
    return f"{hours}:{minutes:02}:{whole % 60:02}" if hours else f"{minutes}:{whole % 60:02}"


def span(seconds: float) -> str:
    """A duration in the largest unit that divides it."""
    for unit, length in (("days", 86400), ("h", 3600), ("min", 60)):
        if seconds % length == 0 and seconds >= length * (2 if unit == "days" else 1):
            return f"{seconds / length:,.0f}{JOINT}{unit}"
    return clock(seconds)


def when(moment: float) -> Html:
    """A time in seconds since 1970, as UTC."""
    at = datetime.fromtimestamp(moment, UTC)
    return h("time", f"{at:%Y-%m-%d %H:%M:%S} UTC", datetime=f"{at:%Y-%m-%dT%H:%M:%SZ}")


#: Words on where the heads of the log are before they are shown.
_COPIES = {
    "folder": "What devices saw outlives this hub’s disk: each head of its log is shown once a copy has it.",
    "standby": "What devices saw outlives this hub’s disk: each head of its log is shown once a standby has it.",
    "none": "No copy is kept: if its disk is lost, devices go on only where its operator signs that it was put back.",
}
#: Most points of a chart; neighbouring points of longer histories are averaged.
_DRAWN = 80
#: Fewest rounds on the horizontal axis; size of a chart.
_WIDE, _WIDTH, _HEIGHT = 10, 360.0, 160.0


@dataclass(frozen=True)
class Point:
    """A round, or the mean of the rounds ``first`` to ``last``."""

    first: int
    last: int
    reports: int
    reward: float | None
    low: float | None
    high: float | None
    seconds: float | None

    @property
    def middle(self) -> float:
        """Middle of the rounds, as a number of a round."""
        return (self.first + self.last) / 2

    @property
    def numbers(self) -> str:
        """Number of the round, or range of the rounds, as text."""
        return f"{self.last:,}" if self.first == self.last else f"{self.first:,}–{self.last:,}"

    @property
    def where(self) -> str:
        """The round or rounds, as a phrase."""
        return f"round {self.numbers}" if self.first == self.last else f"mean of rounds {self.numbers}"

    @property
    def rounds(self) -> str:
        """The round or rounds, as a sentence names them."""
        return f"round {self.numbers}" if self.first == self.last else f"rounds {self.numbers}"

    @property
    def interval(self) -> str:
        """The 95 % interval as text; empty if there is none."""
        return "" if self.low is None or self.high is None else f"{value_text(self.low)} to {value_text(self.high)}"

    @property
    def cells(self) -> tuple[str, str, str, str]:
        """Cells of a table: reports, reward, interval, time."""
        reward = "–" if self.reward is None else value_text(self.reward)
        return f"{self.reports:,}", reward, self.interval or "–", "–" if self.seconds is None else clock(self.seconds)

    @property
    def words(self) -> str:
        """The whole point as a sentence, for a tooltip."""
        reports, reward, interval, took = self.cells
        each = "open for" if self.first == self.last else "each open for"
        said = "no reward" if reward == "–" else f"{reward} ({interval})" if self.interval else reward
        return f"{self.where}: {said}; {reports} report{'' if reports == '1' else 's'}, {each} {took}"


def points_of(history: Sequence[dict]) -> list[Point]:
    """Points of a status's history; each is a round, or the mean of neighbouring rounds up to the one it names."""
    stride = history[1]["round"] - history[0]["round"] if len(history) > 1 else 1
    out: list[Point] = []
    for p in history:
        first = out[-1].last + 1 if out else max(0, p["round"] - stride + 1)
        numbers = (finite(p[name]) for name in ("reward", "low", "high", "seconds"))
        out.append(Point(first, p["round"], p["reports"], *numbers))
    return out


def pool(points: Sequence[Point]) -> list[Point]:
    """At most :data:`_DRAWN` points: neighbours are averaged, with the interval of their mean."""
    stride = -(-len(points) // _DRAWN)
    return [mean_of(points[i : i + stride]) for i in range(0, len(points), stride)] if stride > 1 else list(points)


def mean_of(block: Sequence[Point]) -> Point:
    """Neighbouring points as one: their mean, with the interval that it has if rounds err independently."""
    rewards = [p.reward for p in block if p.reward is not None]
    halves = [(p.high - p.low) / 2 for p in block if p.high is not None and p.low is not None]
    times = [p.seconds for p in block if p.seconds is not None]
    reward = statistics.fmean(rewards) if rewards else None
    seconds = statistics.fmean(times) if times else None
    low = high = None
    if reward is not None and len(halves) == len(rewards):
        half = math.hypot(*halves) / len(halves)  # rounds err independently
        low, high = reward - half, reward + half
    return Point(block[0].first, block[-1].last, sum(p.reports for p in block), reward, low, high, seconds)


def _round_axis(points: Sequence[Point]) -> tuple[float, float]:
    """Ends of an axis of rounds."""
    return points[0].first - 0.5, max(points[-1].last, points[0].first + _WIDE - 1) + 0.5


def reward_chart(name: str, points: Sequence[Point]) -> Html:
    """Chart of the reward with its 95 % band, or a sentence where there is none."""
    known = [(p, p.reward) for p in points if p.reward is not None]
    if not known:
        why = "These reports say nothing about the reward." if points else "The curve begins with the first round."
        return h("p", why, class_="empty")
    rewards = [reward for _, reward in known]
    # A few intervals of rounds with next to no reports may leave the chart; the curve never does.
    lows = sorted(p.low for p in points if p.low is not None)
    highs = sorted((p.high for p in points if p.high is not None), reverse=True)
    low, high = min(rewards + lows[len(lows) // 20 :][:1]), max(rewards + highs[len(highs) // 20 :][:1])
    spare = max(0.0, 0.02 - (high - low)) / 2
    low, high = nice_domain([low - spare, high + spare])
    panel = Panel(_WIDTH, _HEIGHT, _round_axis(points), (low, high))
    levels = ticks(low, high, 5)
    panel.y_axis(levels, decimal_labels(levels))
    _draw_rounds(panel, points)
    panel.band([(p.middle, _clip(p.low, low, high), _clip(p.high, low, high)) for p in points], OKABE_ITO[0])
    for some, run in itertools.groupby(points, lambda p: p.reward is not None):
        panel.line([(p.middle, p.reward or 0.0) for p in run if some], OKABE_ITO[0])
    _describe_rounds(panel, points)
    ends = (f"{value_text(reward)} in {p.where}" for p, reward in known[:: max(1, len(known) - 1)])
    return _figure_of(panel, f"Mean {name}: {', '.join(ends)}")


def _clip(value: float | None, low: float, high: float) -> float | None:
    return None if value is None else min(max(value, low), high)


def _draw_rounds(panel: Panel, points: Sequence[Point]) -> None:
    first, last = _round_axis(points)
    panel.x_axis(ticks(math.ceil(first), math.floor(last), 5, whole=True), lambda value: f"{value:,.0f}", "round")


def _describe_rounds(panel: Panel, points: Sequence[Point]) -> None:
    """A column over each point, as high as the chart, which tells it to a pointer."""
    for p in points:
        left, right = panel.x(p.first - 0.5), panel.x(p.last + 0.5)
        place = {"x": left, "y": 0.0, "width": right - left, "height": panel.height}
        panel.add(element("rect", tooltip_of(p.words), class_="over", fill=INK, opacity="0", **place))


def _figure_of(panel: Panel, label: str) -> Html:
    return h("div", compose([panel], "").inline(label), class_="chart")


def checks_chart(rounds: Sequence[dict]) -> Html:
    """Chart of what checks said round by round, with 95 % intervals, or a sentence before the first."""
    if not rounds:
        return h("p", "The curve begins with the first checks.", class_="empty")
    points, before = [], -1
    for one in rounds:
        points.append(Point(before + 1, one["round"], one["checks"], one["mean"], one["low"], one["high"], None))
        before = one["round"]
    return reward_chart("difference of the newest model and the best one", pool(points))


def top_of(points: Sequence[Point]) -> float:
    """Largest time of the chart in seconds: outliers are cut, because one night would flatten all else."""
    times = sorted(p.seconds for p in points if p.seconds is not None)
    most = times[len(times) * 19 // 20]
    return times[-1] if times[-1] < 5 * most else 2 * most


def seconds_chart(points: Sequence[Point]) -> Html | None:
    """Bar chart of the time for which each round was open; None before the first."""
    times = [p.seconds for p in points if p.seconds is not None]
    if not times:
        return None
    top = top_of(points)
    unit, length = next((u, n) for u, n in (("h", 3600), ("min", 60), ("s", 1)) if top >= 2 * n or n == 1)
    high = nice_domain([0.0, max(top / length, 1e-3)])[1]
    panel = Panel(_WIDTH, _HEIGHT / 2, _round_axis(points), (0.0, high))
    label = decimal_labels([high])
    panel.y_axis([0.0, high], lambda value: f"{label(value)} {unit}" if value else "0")
    _draw_rounds(panel, points)
    for p in points:
        left, right, y = panel.x(p.first - 0.4), panel.x(p.last + 0.4), panel.y(min((p.seconds or 0.0) / length, high))
        place = {"x": left, "y": y, "width": right - left, "height": panel.height - y}
        panel.add(element("rect", fill=OKABE_ITO[2], **place))
    _describe_rounds(panel, points)
    return _figure_of(panel, f"How long rounds were open: {clock(min(times))} to {clock(max(times))}")


def _file(name: str) -> str:
    return resources.files("fedrank.deploy.hub").joinpath(name).read_text(encoding="utf-8")


def _source(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


_PAGE, _STYLE, _SCRIPT = string.Template(_file("status.html")), _file("status.css"), _file("status.js")
#: Another style or script: an open page loads itself anew.
_BUILD = hashlib.sha256((_STYLE + _SCRIPT).encode()).hexdigest()[:8]

#: Content-Security-Policy of the page, for its HTTP header: its own style and script by their hashes, requests to its
#: own hub, a picture that is part of the page; nothing else.
CSP = (
    f"default-src 'none'; style-src {_source(_STYLE)}; script-src {_source(_SCRIPT)}; connect-src 'self'; "
    "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)

#: Number of rounds in the table.
_LATEST = 10
#: Most rounds at the beginning, and at the end, that the sentence at the top compares.
_COMPARED = 10
#: ε beyond which e^ε is no promise: a factor of 22,026 on the odds.
_VOID = 10.0

#: Reasons of refused requests, and what they mean: what refusals say, and of requests that got none what happened.
_REASONS = {
    **{reason: detail for reason, (_, detail, _) in REASONS.items()},
    "websocket": "It asked for a WebSocket.",
    "disconnected": "It went away before the end.",
    "internal": "An error of the hub; its log says where.",
}


def _tile(label: str, value: str, *notes: str) -> Html:
    return h("div", h("dt", label), h("dd", h("b", value), *(h("small", n) for n in notes if n)), class_="tile")


def _cell(value: object) -> Html:
    return h("td", value, class_="number")


def _table(name: str, columns: Sequence[str], rows: Sequence[Html], numbers: Sequence[str]) -> Html:
    """A table; ``numbers`` are the columns that are set flush right."""
    heads = (h("th", column, scope="col", class_="number" if column in numbers else None) for column in columns)
    table = h("table", h("thead", h("tr", *heads)), h("tbody", *rows))
    return h("div", table, class_="scroll", role="region", aria_label=name, tabindex="0")


def page(status: dict, refused: dict[str, int]) -> str:
    """The status page.

    Args:
        status: Result of :meth:`fedrank.deploy.hub.hub.Hub.status`.
        refused: Number of refused requests since the hub was started, by reason.

    Returns:
        A complete HTML document, to be sent with :data:`CSP` and not to be cached.
    """
    s, points = status, points_of(status["history"])
    drawn = pool(points)
    block = max((p.last - p.first + 1 for p in drawn), default=1)
    private = finite(s["epsilon"]["interaction"]) is not None
    applied = s.get("applied", s["round"])
    name = s["reward"].split(" in ")[0]  # without how it was rounded
    noise = " with the noise of privatisation averaged out" if private else ""
    said = f"Mean {s['reward']} of a round’s interactions, estimated from its reports{noise}. Pale band: 95 % interval."
    if block > 1:
        said += f" Each point is the mean of {block:,} rounds."
    if name in REWARDS:
        said += f" {name}: {REWARDS.entry(name).summary}"
    checks = s.get("checks")
    chart = h("figure", h("figcaption", said), reward_chart(s["reward"], drawn), class_="card")
    if opens := _shows_checks(s):
        chart = _checks_figure(s["checks"])
    weights = format_count(s["weights"], "weight")
    about = join(h("span", class_=f"dot {s['state']}"), "fedrank hub ", h("code", s["hub"][:8]))
    values = {
        "build": _BUILD,
        "style": Html(_STYLE),
        "script": Html(_SCRIPT),
        "title": f"{_title(s)} · fedrank hub {s['hub'][:8]}",
        "head": head(_opening(s, applied, points), about, (), chart, _now(s, applied)),
        "alert": join(_trial(s), _alert(s.get("alert"))),
        "checks": "" if checks is None else _checks(checks, opens),
        "seconds_caption": _seconds_words(points, drawn),
        "seconds": seconds_chart(drawn),
        "latest": _latest(points),
        "epsilons": _epsilons(s["epsilon"], s["interactions"], bool(s.get("tokens"))),
        **_linking(s),
        "sums": _content(s.get("mechanism"), private),
        "reward_name": s["reward"],
        "bytes": _bytes(s["bytes"], s["started"]),
        "refused": _refusals(refused, s["started"]),
        "credentials": _credentials(s.get("credentials", ())),
        "version": s["version"],
        "protocol": s["protocol"],
        "ranker": f"{s['ranker']} ranker of {format_count(s['n_features'], 'feature')} ({weights})",
        "hub": s["hub"],
        "copied": _COPIES.get(s.get("copy", ""), ""),
        "started": when(s["started"]),
        "now": when(s["now"]),
    }
    return _PAGE.substitute({k: join(v) for k, v in values.items()})


# ------------------------------------------------------------------------------------------------------- in words


def _opening(s: dict, applied: int, points: Sequence[Point]) -> Opening:
    """Title, sentence and numbers of the page."""
    devices = format_count(s["devices"], "device")
    learns = "learnt" if s["state"] in ("done", "halted") else "learns"
    title = f"A ranker that {learns} from {devices}" if s["devices"] else "A ranker that waits for its first device"
    return Opening(title, _sentence(s, applied, points), _numbers(s, applied, points))


def _shows_checks(s: dict) -> bool:
    """True if checks open the page: reports of one number each say nothing about the reward."""
    return s.get("checks") is not None and s.get("mechanism") in ONE_NUMBER


def _of_checks(checks: dict) -> Comparison:
    """The newest model against the best one, by the checks since that is the best."""
    best = f"that of round {checks['best']:,}"
    return Comparison(Interval(checks["mean"], checks["low"], checks["high"]), best, unit="checks")


def _sentence(s: dict, applied: int, points: Sequence[Point]) -> Sentence:
    """Sentence on what was learnt so far: the first rounds beside the latest ones, or the checks."""
    known = [p for p in points if p.reward is not None]
    if not points:
        return say("Nothing has been learnt yet: the first round is not over.")
    if _shows_checks(s):
        n, done = s["checks"]["checks"], f"{format_count(applied, 'round')} applied"
        if not n:
            return say(f"{done}; no device has compared the newest model with the best one yet.")
        found = _of_checks(s["checks"])
        return say(f"{done}; by {format_count(n, 'check')} the newest model is ", found, Ends(found), ".")
    if not known:
        return say(f"{format_count(applied, 'round')} applied; these reports say nothing about how good rankings are.")
    compared = min(_COMPARED, len(known) // 2)
    mean = say(" mean ", Named(s["reward"]), " is ")
    if not compared:
        return say("The", mean, _reward_of(known[0]), f" in {known[0].rounds}, the only one so far.")
    first, last = mean_of(known[:compared]), mean_of(known[-compared:])
    before, after = first.reward or 0.0, last.reward or 0.0
    change, ends = after - before, (None, None)
    if first.high is not None and last.high is not None:
        half = math.hypot(first.high - before, last.high - after)
        ends = (change - half, change + half)
    was = f"that of {first.rounds}, {value_text(before)}"
    found = Comparison(Interval(change, *ends), was, ways=("above", "below"), than="", unit="reports")
    said = say(mean, _reward_of(last), f" in {last.rounds}, ", found)
    if found.verdict is Verdict.NOT_TOLD_APART:
        return say("No change beyond noise so far: the", said, ".")
    lead = {Verdict.BETTER: "Rankings have improved: the", Verdict.WORSE: "Rankings have deteriorated: the"}
    return say(lead.get(found.verdict, "The"), said, Ends(found), ".")


def _with_sign(value: float) -> str:
    return ("+" if value >= 0 else "−") + value_text(abs(value))


def _reward_of(point: Point) -> Measured:
    return Measured(Interval(point.reward or 0.0, point.low, point.high))


def _now(s: dict, applied: int) -> Html:
    """Present state of the hub: the open round, how full it is, what stands in the way."""
    said, caveat = h("p", _headline(s, applied), class_="now"), _caveat(s)
    warning = h("p", caveat, class_="caveat") if caveat else Html()
    return h("div", said, _progress(s), h("p", _rule(s), class_="lead"), warning, class_="round")


def _headline(s: dict, applied: int) -> str:
    n, reports, wanted = f"{s['round']:,}", s["reports"], s["cohort"]
    if s["state"] == "halted":
        return "Learning is halted because the model sank. The best model so far is handed out."
    if s["state"] == "done":
        return f"Training is over after {format_count(applied, 'round')}. The model is still handed out."
    if s["state"] == "between":
        return (
            f"Round {n} is closed: {format_count(reports, 'report')} {'is' if reports == 1 else 'are'} being applied."
        )
    so_far = f"Round {n} is open: {reports:,} of {format_count(wanted, 'report')}"
    left = (s["deadline_s"] or math.inf) - max(0.0, s["seconds_open"])
    wait = s.get("least_s", 0.0) - s["seconds_open"]
    if reports >= wanted and wait > 0:
        came = f"Round {n} is open: {format_count(reports, 'report')}"
        return f"{came}; {wanted:,} are drawn by lot in {clock(math.ceil(wait))}."
    if reports >= wanted or (left <= 0 and reports >= s["least"]):
        return f"{so_far}, closing now."
    if left == math.inf:
        return f"{so_far}, closes when all are in."
    if left <= 0:
        return f"{so_far}, past its deadline."
    return f"{so_far}, closes in {clock(math.ceil(left))} at the latest."


def _title(s: dict) -> str:
    if s["state"] == "halted":
        return "⚠ Learning is halted"
    if s["state"] == "done":
        return "Training is over"
    wanted = f" of {s['cohort']:,}" if s["reports"] <= s["cohort"] else " reports"
    return f"Round {s['round']:,}: {s['reports']:,}{wanted}"


def _rule(s: dict) -> str:
    if s["state"] == "done":
        return "Devices can go on ranking with it; reports are not taken any more."
    if s["state"] == "halted":
        return "Devices rank with it; no reports are taken until an operator resumes."
    rule = f"A round closes with {format_count(s['cohort'], 'report')}"
    if s.get("least_s"):
        rule += f", after {span(s['least_s'])} at the earliest; of more, that number is drawn by lot"
    if s["deadline_s"]:
        rule += f", or after {span(s['deadline_s'])} with at least {s['least']:,}"
    opened = f" This one has been open for {clock(math.floor(s['seconds_open']))}." if s["state"] == "open" else ""
    return f"{rule}.{opened}"


def _progress(s: dict) -> Html:
    if s["state"] in ("done", "halted"):
        return Html()
    label, done = f"Reports of round {s['round']:,}", min(s["reports"], s["cohort"])
    return h("progress", f"{done:,} of {s['cohort']:,}", value=done, max=s["cohort"], aria_label=label)


def _caveat(s: dict) -> str:
    """A warning where reports do not count, or a round cannot fill; empty where nothing is wrong."""
    devices, cohort, over = s["devices"], s["cohort"], s["state"] in ("done", "halted")
    if not s.get("healthy", True):
        return "The hub cannot write its log. Nothing is counted until it can."
    if s.get("copy_waits"):
        return "The copy of the hub cannot be written: no new head of its log is shown until it can. Its log says why."
    enrolled = format_count(devices, "device")
    if devices >= s.get("most_devices", math.inf):
        return f"The hub is full: it has {enrolled}, as many as most_devices allows. No more enrol."
    if s.get("flooded"):
        return "More devices want to enrol than enrolments_per_minute lets in: newcomers are asked to come back later."
    if s.get("void") and not over:
        sold = f"{format_count(s['sales'], 'token')} {'was' if s['sales'] == 1 else 'were'} sold for this epoch"
        return f"{sold}, fewer than least_sales = {s['least_sales']:,}: it is void, and no device reports in it."
    due = int(devices * s.get("due", 1.0))
    if over or devices >= cohort <= max(due, 1):
        return ""
    if devices >= cohort:
        return f"About {due:,} of {enrolled} are due in a round, which waits for {cohort:,} reports."
    late = s["deadline_s"] and devices >= s["least"]
    then = "so every round lasts until its deadline" if late else "so no round can close before more enrol"
    waits = f"a round waits for {format_count(cohort, 'report')}, one from each device, {then}."
    return f"{enrolled} {'is' if devices == 1 else 'are'} enrolled and {waits}"


def _numbers(s: dict, applied: int, points: Sequence[Point]) -> tuple[Number, ...]:
    """The four numbers at the top."""
    known = [p for p in points if p.reward is not None]
    reward, said, label = Named("–"), "nothing is known yet", f"Latest {s['reward']}"
    if _shows_checks(s):
        best = s["checks"]["best"]
        label, reward = "Best model", Named(f"round {best:,}")
        said = "it won against the one before" if best else "no later one has won against it"
    elif known:
        last = known[-1]
        reward = _reward_of(last)
        said = f"95 % interval {last.interval}, {last.where}" if last.interval else last.where
    most = s["epsilon"]["messages_most"]
    busiest = f"the busiest {'can have sent' if s.get('tokens') else 'sent'} {format_count(most, 'report')}"
    times = [p.seconds for p in points if p.seconds is not None]
    usual, latest = "–", "no round is over yet"
    if times:
        usual, latest = clock(statistics.median(times)), f"the latest {clock(times[-1])}"
    return (
        Number("Rounds applied", Named(f"{applied:,}"), f"of {s['rounds']:,}" if s["rounds"] else "no end is set"),
        Number("Devices enrolled", Named(f"{s['devices']:,}"), busiest if most else ""),
        Number(label, reward, said),
        Number("A round takes", Named(usual), latest),
    )


def _content(mechanism: str | None, private: bool) -> str:
    """Words on the numbers of a report, before the name of the reward."""
    if mechanism in ONE_NUMBER:
        return "one privatised number, the difference of two rankers in"
    return "two privatised sums of" if private else "two unprotected sums of"


def _linking(s: dict) -> dict[str, str]:
    """Words on who can put the reports of a device together."""
    if not s.get("tokens"):
        return {
            "whose": "the number of its device",
            "bought": "",
            "where": ", in which rounds, or the network address it comes from",
            "together": "Reports of one device stand under its number: put together, they are a history of it. Blind "
            "tokens and a relay would end that; this hub does without.",
        }
    epoch = "round" if s["tokens"] == 1 else f"{s['tokens']:,} rounds"
    together = (
        "Each report comes with a token that was bought blindly: the server cannot tell whose it is, nor which reports "
        "are of one device."
    )
    if s["batch"]:
        together += (
            f" Reports come through a relay, at least {s['batch']:,} together and without addresses. One has to trust "
            "whoever runs it, and whoever runs this server, not to tell each other what they see."
        )
    else:
        together += " It sees the network address that a report comes from; there is no relay."
    return {
        "whose": "a hash of its token",
        "bought": f", and whether it bought its token for this {epoch} and the next",
        "where": "" if s["batch"] else ", or the network address that it comes from",
        "together": together,
    }


def _trial(s: dict) -> Html:
    """A note at the top of a trial's page; empty of others."""
    words = (
        "A trial on one machine: devices report in every round and under their own tokens. People need a hub without "
    )
    return h("p", words, h("code", "--trial"), ".", class_="caveat") if s.get("trial") else Html()


def _alert(alert: dict | None) -> Html:
    """The alert at the top of everything; empty while there is none."""
    if alert is None:
        return Html()
    words = alert["words"].partition("fedrank hub resume")[0].rstrip(": ")
    return h(
        "div",
        h("p", h("b", "Learning is halted: the model sank.")),
        h("p", words, ": ", h("code", "fedrank hub resume"), ". Since ", when(alert["since"]), "."),
        class_="alert",
        role="alert",
    )


def _checks_figure(checks: dict) -> Html:
    """Figure of the checks, round by round: the newest model beside the best one."""
    share, n = f"{100 * checks['share']:.3g} %", checks["checks"]
    said = [
        f"{share} of the devices, drawn anew in each round, compare the newest model with the best one so far, that of "
        f"round {checks['best']:,}, in place of learning. Their messages are as private as any other."
    ]
    if n:
        mean, low, high = (_with_sign(checks[key]) for key in ("mean", "low", "high"))
        said.append(
            f"{format_count(n, 'check')} against it: the newest is better by {mean} (95 % interval that holds at all "
            f"times together: {low} to {high}), where 1 would be better in every message."
        )
    money, alarm = checks["money"], checks["alarm_at"]
    said.append(
        f"The evidence that the newest is worse by more than {checks['margin']:g} is {money:.3g}; at {alarm:.3g} the "
        "hub halts."
    )
    return h("figure", h("figcaption", " ".join(said)), checks_chart(checks["rounds"]), class_="card")


def _checks(checks: dict, opens: bool) -> Html:
    """The section about checks.

    Args:
        checks: What they say.
        opens: The figure stands at the top of the page already.
    """
    halts = [
        h(
            "li",
            f"before round {one['round']:,}, to the model of round {one['best']:,}: ",
            when(one["halted"]),
            join(", resumed ", when(one["resumed"])) if one["resumed"] else ", not resumed",
        )
        for one in checks["halts"]
    ]
    history = join(h("h3", "Halts"), h("ul", *halts)) if halts else Html()
    if opens and not halts:
        return Html()
    chart = Html() if opens else _checks_figure(checks)
    return h("section", h("h2", "Newest model and best model", id="checks"), chart, history, aria_labelledby="checks")


def _credentials(credentials: Sequence[dict]) -> Html:
    """The section about who may enrol, and how much of each cap is used; empty where there are no credentials."""
    if not credentials:
        return Html()
    columns, rows = ("credential", "devices enrolled", "of", "counted"), []
    for one in credentials:
        full = one["used"] >= one["devices"]
        state = " (revoked)" if one["revoked"] else " (full)" if full else ""
        kind = ", by codes" if one["codes"] else ""
        over = f"in the last {format_count(one['days'], 'day')}" if one["days"] else "ever"
        cells = (h("td", one["name"] + state), _cell(f"{one['used']:,}"), _cell(f"{one['devices']:,}"))
        rows.append(h("tr", *cells, h("td", over + kind)))
    said = "Devices that left count as well: leaving and enrolling anew does not help."
    return h(
        "section",
        h("h2", "Who may enrol", id="enrolment"),
        _table("Who may enrol", columns, rows, columns[1:3]),
        h("p", said, class_="note"),
        aria_labelledby="enrolment",
    )


def _epsilons(epsilon: dict, interactions: int, unknown: bool) -> Html:
    """ε of an interaction, of a message, and of the device that has sent most, or could have."""
    one, message, basic, tight = (finite(epsilon[k]) for k in ("interaction", "message", "user_basic", "user"))
    if one is None or message is None:
        words = (
            "No protection: p = 1. Rewards are sent as they are, and nothing bounds what they reveal (ε is infinite). "
            "Queries, documents and clicks stay on the devices all the same."
        )
        return h("p", words, class_="caveat")
    several = f"{format_count(interactions, 'interaction')} in one report, taken together."
    most, shown, sent = epsilon["messages_most"], "ε = 0", ["No message has counted yet."]
    if most and basic is not None:
        what = "One in each epoch" if unknown else "What counted of it"
        shown, sent = f"ε = {epsilon_text(basic)}", [f"{what}: {format_count(most, 'message')}, added up."]
        if tight is not None and tight < basic and epsilon_text(tight) != epsilon_text(basic):
            chance = f"a chance of 1 in {1 / epsilon['delta']:,.0f}"
            sent.append(f"By a sharper count, which fails with {chance} (δ), it is {epsilon_text(tight)}.")
            basic = tight
        sent.append(_odds(basic))
    return h(
        "dl",
        _tile("One interaction", f"ε = {epsilon_text(one)}", "A query, its results and its clicks.", _odds(one)),
        _tile("One message", f"ε = {epsilon_text(message)}", several, _odds(message)),
        _tile("The most that a device can have sent" if unknown else "The device that has sent most", shown, *sent),
        class_="tiles",
    )


def _odds(epsilon: float) -> str:
    """Meaning of an ε: the factor by which the odds of a guess may change, as a sentence."""
    if epsilon == 0:
        return "What is sent tells nothing about it: it would be as likely whatever had happened."
    if epsilon > _VOID:
        power = h("sup", epsilon_text(epsilon))
        return join(
            "What is sent may shift the odds of a guess by a factor of e", power, ": too large to be a promise."
        )
    unit = 10.0 ** (math.floor(epsilon / math.log(10)) - 1)  # two digits, upwards: "at most" stays true
    factor = math.ceil(math.exp(epsilon) / unit - 1e-9) * unit
    return f"What is sent shifts the odds of anybody’s guess about it by a factor of at most {factor:,.6g}."


def _bytes(sizes: dict, started: float) -> Html:
    rows = (
        ("One report, a device to the hub", sizes["report"]),
        ("All reports that counted", sizes["reports"]),
        ("One model, the hub to a device", sizes["model"]),
        (join("All models handed out since ", when(started)), sizes["models"]),
    )
    return join(*(h("tr", h("th", text, scope="row"), _cell(size(n)), _cell(f"{n:,}")) for text, n in rows))


def _refusals(refused: dict[str, int], started: float) -> Html:
    found = sorted(((n, reason) for reason, n in refused.items() if n), key=lambda r: (-r[0], r[1]))
    since = join(" since ", when(started), ".")
    if not found:
        return h("p", "Nothing has been refused", since, class_="lead")
    rows = [
        h("tr", h("th", h("code", why), scope="row"), h("td", _REASONS.get(why, "")), _cell(f"{n:,}"))
        for n, why in found
    ]
    note = h("p", "Counted", since, " What is refused changes nothing.", class_="note")
    return join(_table("Refused requests", ("reason", "what it was", "requests"), rows, ("requests",)), note)


def _latest(points: Sequence[Point]) -> Html:
    if not points:
        return Html()
    name, columns = "The latest rounds in numbers", ("round", "reports", "reward", "95 % interval", "open for")
    rows = [
        h("tr", h("th", p.numbers, scope="row", class_="number"), *(_cell(v) for v in p.cells))
        for p in reversed(points[-_LATEST:])
    ]
    return h("details", h("summary", name), _table(name, columns, rows, columns))


def _seconds_words(points: Sequence[Point], drawn: Sequence[Point]) -> str:
    times = [p.seconds for p in points if p.seconds is not None]
    if not times:
        return "How long rounds are open will be shown here."
    usual, longest = clock(statistics.median(times)), clock(max(times))
    beyond = ", which leaves the picture" if max(p.seconds or 0.0 for p in drawn) > top_of(drawn) else ""
    return f"How long rounds were open: half of them {usual} or less, {longest} at most{beyond}."
