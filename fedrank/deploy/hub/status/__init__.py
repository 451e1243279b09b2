"""The hub's status page: the state of training in sentences, tables and two charts.

The complete page is built here, so that it can be read without JavaScript; a small script fetches it again and replaces
what has changed. It loads nothing from anywhere else, which :data:`CSP` lets a browser enforce. Text is escaped unless
it is an :class:`Html` that was built here.
"""

from __future__ import annotations

import base64
import hashlib
import math
import statistics
import string
from collections.abc import Sequence
from importlib import resources

from fedrank.deploy.hub.status.pictures import Point, points_of, pooled, reward_picture, seconds_picture, top_of
from fedrank.deploy.hub.status.text import Html, clock, count, epsilon_text, finite, h, join, size, span, when
from fedrank.metrics.online import REWARDS


def _file(name: str) -> str:
    return resources.files("fedrank.deploy.hub.status").joinpath(name).read_text(encoding="utf-8")


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
#: ε beyond which e^ε is no promise: a factor of 22,026 on the odds.
_VOID = 10.0

#: Reasons of refused requests, and what they mean.
_REASONS = {
    "malformed": "not a message of this protocol",
    "unauthorised": "no token, or an unknown one",
    "not-found": "no such address or device",
    "method": "an address asked in the wrong way",
    "too-slow": "did not finish sending in time",
    "stale-round": "a report about a round that is over",
    "early-round": "a report about a round that has not begun",
    "conflict": "a second, different report for a round",
    "no-reports": "asked to close a round without reports",
    "done": "a report after training was over",
    "too-large": "more bytes than any message has",
    "out-of-range": "numbers that no honest device sends",
    "too-many": "too many requests in a minute",
    "between-rounds": "came while a round was being applied",
    "unavailable": "could not be written down",
    "large-headers": "headers larger than any that are needed",
    "slow-headers": "did not finish its headers in time",
    "slow-reader": "did not read its answer",
    "connections": "too many connections at once",
    "upgrade": "asked to speak another protocol",
    "websocket": "asked for a WebSocket",
    "disconnected": "went away before the end",
    "internal": "an error of the hub; its log says where",
    "not-closed": "asked for a round’s messages before it had closed",
    "round-open": "asked a new question while a round was open",
}


def _tile(label: str, value: str, *notes: str) -> Html:
    return h("div", h("dt", label), h("dd", h("b", value), *(h("small", n) for n in notes if n)), class_="tile")


def _cell(value: object) -> Html:
    return h("td", value, class_="number")


def _table(name: str, heads: Sequence[Html], rows: Sequence[Html]) -> Html:
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
    drawn = pooled(points)
    block = max((p.last - p.first + 1 for p in drawn), default=1)
    private = finite(s["epsilon"]["interaction"]) is not None
    applied = s.get("applied", s["round"])
    name = s["reward"].split(" in ")[0]  # without how it was rounded
    values = {
        "build": _BUILD,
        "style": Html(_STYLE),
        "script": Html(_SCRIPT),
        "title": f"{_title(s)} · fedrank hub {s['hub'][:8]}",
        "state": s["state"],
        "short": s["hub"][:8],
        "headline": _headline(s, applied),
        "progress": _progress(s),
        "rule": _rule(s),
        "caveat": _caveat(s),
        "tiles": _tiles(s, applied, points),
        "reward_name": s["reward"],
        "noise": " with the noise of privatisation averaged out" if private else "",
        "pooled": f" Each point is the mean of {block:,} rounds." if block > 1 else "",
        "meaning": f" {name}: {REWARDS.entry(name).summary}" if name in REWARDS else "",
        "reward": reward_picture(s["reward"], drawn),
        "seconds_caption": _seconds_words(points, drawn),
        "seconds": seconds_picture(drawn),
        "latest": _latest(points),
        "epsilons": _epsilons(s["epsilon"], s["interactions"]),
        "sums": "two privatised sums of" if private else "two unprotected sums of",
        "bytes": _bytes(s["bytes"], s["started"]),
        "refused": _refusals(refused, s["started"]),
        "version": s["version"],
        "protocol": s["protocol"],
        "ranker": f"{s['ranker']} ranker of {count(s['n_features'], 'feature')} ({count(s['weights'], 'weight')})",
        "hub": s["hub"],
        "started": when(s["started"]),
        "now": when(s["now"]),
    }
    return _PAGE.substitute({k: join(v) for k, v in values.items()})


# ------------------------------------------------------------------------------------------------------- in words


def _headline(s: dict, applied: int) -> str:
    n, reports, wanted = f"{s['round']:,}", s["reports"], s["cohort"]
    if s["state"] == "done":
        return f"Training is over after {count(applied, 'round')}. The model is still handed out."
    if s["state"] == "between":
        return f"Round {n} is closed: {count(reports, 'report')} {'is' if reports == 1 else 'are'} being applied."
    so_far = f"Round {n} is open: {reports:,} of {count(wanted, 'report')}"
    left = (s["deadline_s"] or math.inf) - max(0.0, s["seconds_open"])
    if reports >= wanted or (left <= 0 and reports >= s["least"]):
        return f"{so_far}, closing now."
    if left == math.inf:
        return f"{so_far}, closes when all are in."
    return (
        f"{so_far}, closes in {clock(math.ceil(left))} at the latest." if left > 0 else f"{so_far}, past its deadline."
    )


def _title(s: dict) -> str:
    if s["state"] == "done":
        return "Training is over"
    return f"Round {s['round']:,}: {s['reports']:,} of {s['cohort']:,}"


def _rule(s: dict) -> str:
    if s["state"] == "done":
        return "Devices can go on ranking with it; reports are not taken any more."
    rule = f"A round closes with {count(s['cohort'], 'report')}"
    if s["deadline_s"]:
        rule += f", or after {span(s['deadline_s'])} with at least {s['least']:,}"
    opened = f" This one has been open for {clock(math.floor(s['seconds_open']))}." if s["state"] == "open" else ""
    return f"{rule}.{opened}"


def _progress(s: dict) -> Html:
    if s["state"] == "done":
        return Html()
    label, done = f"Reports of round {s['round']:,}", min(s["reports"], s["cohort"])
    return h("progress", f"{done:,} of {s['cohort']:,}", value=done, max=s["cohort"], aria_label=label)


def _caveat(s: dict) -> Html:
    """A warning where reports do not count, or a round cannot fill."""
    devices, cohort = s["devices"], s["cohort"]
    if not s.get("healthy", True):
        return h("p", "The hub cannot write its log. Nothing is counted until it can.", class_="caveat")
    if s["state"] == "done" or devices >= cohort:
        return Html()
    enrolled = f"{count(devices, 'device')} {'is' if devices == 1 else 'are'} enrolled"
    late = s["deadline_s"] and devices >= s["least"]
    then = "so every round lasts until its deadline" if late else "so no round can close before more enrol"
    words = f"{enrolled} and a round waits for {count(cohort, 'report')}, one from each device, {then}."
    return h("p", words, class_="caveat")


def _tiles(s: dict, applied: int, points: Sequence[Point]) -> Html:
    known = [p for p in points if p.reward is not None]
    reward, said = "–", ("nothing is known yet",)
    if known:
        last = known[-1]
        reward, said = last.cells[1], (last.interval and f"95 % interval {last.interval}", last.where)
    most = s["epsilon"]["messages_most"]
    times = [p.seconds for p in points if p.seconds is not None]
    usual, latest = "–", "no round is over yet"
    if times:
        usual, latest = clock(statistics.median(times)), f"the latest {clock(times[-1])}"
    return join(
        _tile("Rounds applied", f"{applied:,}", f"of {s['rounds']:,}" if s["rounds"] else "no end is set"),
        _tile("Devices enrolled", f"{s['devices']:,}", f"the busiest sent {count(most, 'report')}" if most else ""),
        _tile(f"Latest {s['reward']}", reward, *said),
        _tile("A round takes", usual, latest),
    )


def _epsilons(epsilon: dict, interactions: int) -> Html:
    """ε of an interaction, of a message, and of the device that has sent most."""
    one, message, basic, tight = (finite(epsilon[k]) for k in ("interaction", "message", "user_basic", "user"))
    if one is None or message is None:
        words = (
            "No protection: p = 1. Rewards are sent as they are, and nothing bounds what they reveal (ε is infinite). "
            "Queries, documents and clicks stay on the devices all the same."
        )
        return h("p", words, class_="caveat")
    several = f"{count(interactions, 'interaction')} in one report, taken together."
    most, shown, sent = epsilon["messages_most"], "ε = 0", ["No message has counted yet."]
    if most and basic is not None:
        shown, sent = f"ε = {epsilon_text(basic)}", [f"What counted of it: {count(most, 'message')}, added up."]
        if tight is not None and tight < basic and epsilon_text(tight) != epsilon_text(basic):
            chance = f"a chance of 1 in {1 / epsilon['delta']:,.0f}"
            sent.append(f"By a sharper count, which fails with {chance} (δ), it is {epsilon_text(tight)}.")
            basic = tight
        sent.append(_odds(basic))
    return h(
        "dl",
        _tile("One interaction", f"ε = {epsilon_text(one)}", "A query, its results and its clicks.", _odds(one)),
        _tile("One message", f"ε = {epsilon_text(message)}", several, _odds(message)),
        _tile("The device that has sent most", shown, *sent),
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
    heads = [h("th", text, scope="col") for text in ("reason", "what it was")]
    heads.append(h("th", "requests", scope="col", class_="number"))
    rows = [
        h("tr", h("th", h("code", why), scope="row"), h("td", _REASONS.get(why, "")), _cell(f"{n:,}"))
        for n, why in found
    ]
    note = h("p", "Counted", since, " What is refused changes nothing.", class_="note")
    return join(_table("Refused requests", heads, rows), note)


def _latest(points: Sequence[Point]) -> Html:
    if not points:
        return Html()
    name = "The latest rounds in numbers"
    texts = ("round", "reports", "reward", "95 % interval", "open for")
    heads = [h("th", text, scope="col", class_="number") for text in texts]
    rows = [
        h("tr", h("th", p.numbers, scope="row", class_="number"), *(_cell(v) for v in p.cells))
        for p in reversed(points[-_LATEST:])
    ]
    return h("details", h("summary", name), _table(name, heads, rows))


def _seconds_words(points: Sequence[Point], drawn: Sequence[Point]) -> str:
    times = [p.seconds for p in points if p.seconds is not None]
    if not times:
        return "How long rounds are open will be shown here."
    usual, longest = clock(statistics.median(times)), clock(max(times))
    beyond = ", which leaves the picture" if max(p.seconds or 0.0 for p in drawn) > top_of(drawn) else ""
    return f"How long rounds were open: half of them {usual} or less, {longest} at most{beyond}."
