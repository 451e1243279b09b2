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

from fedrank.deploy.hub.status.pictures import (
    Point,
    checks_picture,
    mean_of,
    points_of,
    pooled,
    reward_picture,
    seconds_picture,
    top_of,
)
from fedrank.deploy.hub.status.text import clock, count, epsilon_text, finite, size, span, value_text, when
from fedrank.metrics.online import REWARDS
from fedrank.report.html import Html, h, join
from fedrank.report.opening import Number, Opening, head


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
#: Most rounds at the beginning, and at the end, that the sentence at the top compares.
_COMPARED = 10
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
    "spent": "a token that was used in an earlier round",
    "replayed": "an encapsulated request that was opened before",
    "wrong-epoch": "a token of another epoch",
    "other-purchase": "a second, different purchase in an epoch",
    "too-few": "waited for others at a relay, in vain",
    "done": "a report after training was over",
    "too-large": "more bytes than any message has",
    "out-of-range": "numbers that no honest device sends",
    "too-many": "too many requests in a minute",
    "between-rounds": "came while a round was being applied",
    "unavailable": "could not be written down",
    "wrong-host": "came under a name that the hub does not go by",
    "wrong-origin": "came from a page of another site",
    "large-headers": "headers larger than any that are needed",
    "slow-headers": "did not finish its headers in time",
    "slow-reader": "did not read its answer",
    "connections": "too many connections at once",
    "upgrade": "asked to speak another protocol",
    "websocket": "asked for a WebSocket",
    "disconnected": "went away before the end",
    "internal": "an error of the hub; its log says where",
    "not-due": "a report of a device that was not drawn for it",
    "not-halted": "asked to resume a hub that was not halted",
    "hub-full": "wanted to enrol when the hub had as many devices as it takes",
    "enrolment-full": "as many devices had enrolled as may",
    "attestation-needed": "wanted to enrol without a statement of its platform",
    "not-attested": "its platform’s statement was not accepted",
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
    noise = " with the noise of privatisation averaged out" if private else ""
    said = f"Mean {s['reward']} of a round’s interactions, estimated from its reports{noise}. Pale band: 95 % interval."
    if block > 1:
        said += f" Each point is the mean of {block:,} rounds."
    if name in REWARDS:
        said += f" {name}: {REWARDS.entry(name).summary}"
    chart = h("figure", h("figcaption", said), reward_picture(s["reward"], drawn), class_="card")
    about = join(h("span", class_=f"dot {s['state']}"), "fedrank hub ", h("code", s["hub"][:8]))
    values = {
        "build": _BUILD,
        "style": Html(_STYLE),
        "script": Html(_SCRIPT),
        "title": f"{_title(s)} · fedrank hub {s['hub'][:8]}",
        "head": head(_opening(s, applied, points), about, (), chart, _now(s, applied)),
        "alert": _alert(s.get("alert")),
        "checks": _checks(s.get("checks")),
        "seconds_caption": _seconds_words(points, drawn),
        "seconds": seconds_picture(drawn),
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
        "ranker": f"{s['ranker']} ranker of {count(s['n_features'], 'feature')} ({count(s['weights'], 'weight')})",
        "hub": s["hub"],
        "started": when(s["started"]),
        "now": when(s["now"]),
    }
    return _PAGE.substitute({k: join(v) for k, v in values.items()})


# ------------------------------------------------------------------------------------------------------- in words


def _opening(s: dict, applied: int, points: Sequence[Point]) -> Opening:
    """Title, sentence and numbers of the page."""
    devices = count(s["devices"], "device")
    learns = "learnt" if s["state"] in ("done", "halted") else "learns"
    title = f"A ranker that {learns} from {devices}" if s["devices"] else "A ranker that waits for its first device"
    return Opening(title, _sentence(s, applied, points), _numbers(s, applied, points))


def _sentence(s: dict, applied: int, points: Sequence[Point]) -> str:
    """What has been learnt so far: the first rounds beside the latest ones."""
    known = [p for p in points if p.reward is not None]
    if not points:
        return "Nothing has been learnt yet: the first round is not over."
    if not known:
        return f"{count(applied, 'round')} applied; these reports say nothing about how good rankings are."
    compared = min(_COMPARED, len(known) // 2)
    if not compared:
        only, reward = known[0], value_text(known[0].reward or 0.0)
        interval = f" (95 % interval {only.interval})" if only.interval else ""
        return f"The mean {s['reward']} is {reward}{interval} in {only.rounds}, the only one so far."
    first, last = mean_of(known[:compared]), mean_of(known[-compared:])
    before, after = first.reward or 0.0, last.reward or 0.0
    was, now = f"{value_text(before)} in {first.rounds}", f"{value_text(after)} in {last.rounds}"
    change = after - before
    if first.high is None or last.high is None:
        return f"The mean {s['reward']} was {was} and {now}; these rounds give no interval."
    half = math.hypot(first.high - before, last.high - after)
    ends = f"95 % interval {_signed(change - half)} to {_signed(change + half)}"
    if abs(change) <= half:
        return f"No change beyond noise so far: the mean {s['reward']} was {was} and {now} ({ends})."
    how, went = ("better", "rose") if change > 0 else ("worse", "fell")
    return f"Rankings have got {how}: the mean {s['reward']} {went} from {was} to {now}, {_signed(change)} ({ends})."


def _signed(value: float) -> str:
    return ("+" if value >= 0 else "−") + value_text(abs(value))


def _now(s: dict, applied: int) -> Html:
    """What the hub is doing: the open round, how full it is, what stands in the way."""
    return h(
        "div",
        h("p", _headline(s, applied), class_="now"),
        _progress(s),
        h("p", _rule(s), class_="lead"),
        _caveat(s),
        class_="round",
    )


def _headline(s: dict, applied: int) -> str:
    n, reports, wanted = f"{s['round']:,}", s["reports"], s["cohort"]
    if s["state"] == "halted":
        return "Learning is halted because the model sank. The best model so far is handed out."
    if s["state"] == "done":
        return f"Training is over after {count(applied, 'round')}. The model is still handed out."
    if s["state"] == "between":
        return f"Round {n} is closed: {count(reports, 'report')} {'is' if reports == 1 else 'are'} being applied."
    so_far = f"Round {n} is open: {reports:,} of {count(wanted, 'report')}"
    left = (s["deadline_s"] or math.inf) - max(0.0, s["seconds_open"])
    wait = s.get("least_s", 0.0) - s["seconds_open"]
    if reports >= wanted and wait > 0:
        return (
            f"Round {n} is open: {count(reports, 'report')}; {wanted:,} are drawn by lot in {clock(math.ceil(wait))}."
        )
    if reports >= wanted or (left <= 0 and reports >= s["least"]):
        return f"{so_far}, closing now."
    if left == math.inf:
        return f"{so_far}, closes when all are in."
    return (
        f"{so_far}, closes in {clock(math.ceil(left))} at the latest." if left > 0 else f"{so_far}, past its deadline."
    )


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
    rule = f"A round closes with {count(s['cohort'], 'report')}"
    if s.get("least_s"):
        rule += f", after {span(s['least_s'])} at the earliest; of more, so many are drawn by lot"
    if s["deadline_s"]:
        rule += f", or after {span(s['deadline_s'])} with at least {s['least']:,}"
    opened = f" This one has been open for {clock(math.floor(s['seconds_open']))}." if s["state"] == "open" else ""
    return f"{rule}.{opened}"


def _progress(s: dict) -> Html:
    if s["state"] in ("done", "halted"):
        return Html()
    label, done = f"Reports of round {s['round']:,}", min(s["reports"], s["cohort"])
    return h("progress", f"{done:,} of {s['cohort']:,}", value=done, max=s["cohort"], aria_label=label)


def _caveat(s: dict) -> Html:
    """A warning where reports do not count, or a round cannot fill."""
    devices, cohort = s["devices"], s["cohort"]
    if not s.get("healthy", True):
        return h("p", "The hub cannot write its log. Nothing is counted until it can.", class_="caveat")
    if devices >= s.get("most_devices", math.inf):
        words = f"The hub is full: it has {count(devices, 'device')}, as many as most_devices allows. No more enrol."
        return h("p", words, class_="caveat")
    due = int(devices * s.get("due", 1.0))
    if s["state"] in ("done", "halted") or devices >= cohort <= max(due, 1):
        return Html()
    if devices >= cohort:
        words = f"About {due:,} of {count(devices, 'device')} are due in a round, which waits for {cohort:,} reports."
        return h("p", words, class_="caveat")
    enrolled = f"{count(devices, 'device')} {'is' if devices == 1 else 'are'} enrolled"
    late = s["deadline_s"] and devices >= s["least"]
    then = "so every round lasts until its deadline" if late else "so no round can close before more enrol"
    words = f"{enrolled} and a round waits for {count(cohort, 'report')}, one from each device, {then}."
    return h("p", words, class_="caveat")


def _numbers(s: dict, applied: int, points: Sequence[Point]) -> tuple[Number, ...]:
    """The four numbers at the top."""
    known = [p for p in points if p.reward is not None]
    reward, said = "–", "nothing is known yet"
    if known:
        last = known[-1]
        reward = last.cells[1]
        said = f"95 % interval {last.interval}, {last.where}" if last.interval else last.where
    most = s["epsilon"]["messages_most"]
    sent = "can have sent" if s.get("tokens") else "sent"
    times = [p.seconds for p in points if p.seconds is not None]
    usual, latest = "–", "no round is over yet"
    if times:
        usual, latest = clock(statistics.median(times)), f"the latest {clock(times[-1])}"
    return (
        Number("Rounds applied", f"{applied:,}", f"of {s['rounds']:,}" if s["rounds"] else "no end is set"),
        Number("Devices enrolled", f"{s['devices']:,}", f"the busiest {sent} {count(most, 'report')}" if most else ""),
        Number(f"Latest {s['reward']}", reward, said),
        Number("A round takes", usual, latest),
    )


def _content(mechanism: str | None, private: bool) -> str:
    """Words on the numbers of a report, before the name of the reward."""
    if mechanism == "piecewise":
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


def _checks(checks: dict | None) -> Html:
    """The section about checks: the newest model beside the best one; empty where devices do not compare."""
    if checks is None:
        return Html()
    share, n = f"{100 * checks['share']:.3g} %", checks["checks"]
    said = [
        f"{share} of the devices, drawn anew in each round, compare the newest model with the best one so far, that of "
        f"round {checks['best']:,}, in place of learning. Their messages are as private as any other."
    ]
    if n:
        mean, low, high = (_signed(checks[key]) for key in ("mean", "low", "high"))
        said.append(
            f"{count(n, 'check')} against it: the newest is better by {mean} (95 % interval that holds at all times "
            f"together: {low} to {high}), where 1 would be better in every message."
        )
    money, alarm = checks["money"], checks["alarm_at"]
    said.append(
        f"The evidence that the newest is worse by more than {checks['margin']:g} is {money:.3g}; at {alarm:.3g} the "
        "hub halts."
    )
    picture = checks_picture(checks["rounds"])
    chart = h("figure", h("figcaption", " ".join(said)), picture, class_="card")
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
    return h("section", h("h2", "Newest model and best model", id="checks"), chart, history, aria_labelledby="checks")


def _credentials(credentials: Sequence[dict]) -> Html:
    """The section about who may enrol, and how much of each cap is used; empty where there are no credentials."""
    if not credentials:
        return Html()
    heads = (
        h("th", "credential", scope="col"),
        h("th", "devices enrolled", scope="col", class_="number"),
        h("th", "of", scope="col", class_="number"),
        h("th", "counted", scope="col"),
    )
    rows = []
    for one in credentials:
        full = one["used"] >= one["devices"]
        state = " (revoked)" if one["revoked"] else " (full)" if full else ""
        kind = ", by codes" if one["codes"] else ""
        over = f"in the last {count(one['days'], 'day')}" if one["days"] else "ever"
        cells = (h("td", one["name"] + state), _cell(f"{one['used']:,}"), _cell(f"{one['devices']:,}"))
        rows.append(h("tr", *cells, h("td", over + kind)))
    said = "Devices that left count as well: leaving and enrolling anew gives nobody more."
    return h(
        "section",
        h("h2", "Who may enrol", id="enrolment"),
        _table("Who may enrol", heads, rows),
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
    several = f"{count(interactions, 'interaction')} in one report, taken together."
    most, shown, sent = epsilon["messages_most"], "ε = 0", ["No message has counted yet."]
    if most and basic is not None:
        what = "One in each epoch" if unknown else "What counted of it"
        shown, sent = f"ε = {epsilon_text(basic)}", [f"{what}: {count(most, 'message')}, added up."]
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
