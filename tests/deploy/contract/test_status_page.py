"""The hub's status page: what it says, and that it holds nothing but what it should."""

import base64
import hashlib
import html
import itertools
import math
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from status_examples import EPSILON, EXAMPLES, NO_EPSILON, point, status

from fedrank.deploy import http
from fedrank.deploy.http.routes import REFUSALS
from fedrank.deploy.hub.status import CSP, page


class Page(HTMLParser):
    """A page's elements, and its words as a reader sees them."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.open, self.kept, self.scripts = [], [], [], {"script": [], "style": []}
        self.feed(text)
        assert not self.open, f"not closed: {self.open}"

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in ("meta", "link"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] in self.scripts:
            self.scripts[self.open[-1]].append(data)
        else:
            self.kept.append(data)

    @property
    def words(self):
        return " ".join("".join(self.kept).split())  # a space that does not break is a space

    def all(self, tag, **wanted):
        wanted = {k.rstrip("_"): v for k, v in wanted.items()}
        return [a for t, a in self.elements if t == tag and all(a.get(k) == v for k, v in wanted.items())]


def words(shown, refused=None):
    return Page(page(shown, refused or {})).words


# -------------------------------------------------------------------------------------------------- what it says


def test_the_headline_says_what_is_going_on():
    for changes, said in [
        ({}, "Round 17 is open: 12 of 50 reports, closes in 58:20 at the latest."),
        ({"seconds_open": 0.0, "reports": 1}, "Round 17 is open: 1 of 50 reports, closes in 1:00:00 at the latest."),
        ({"seconds_open": 3558.2}, "Round 17 is open: 12 of 50 reports, closes in 42 s at the latest."),
        ({"deadline_s": 604_800.0}, "Round 17 is open: 12 of 50 reports, closes in 6 days 23 h at the latest."),
        ({"seconds_open": -50.0}, "Round 17 is open: 12 of 50 reports, closes in 1:00:00 at the latest."),
        ({"deadline_s": None}, "Round 17 is open: 12 of 50 reports, closes when all are in."),
        ({"seconds_open": 4000.0}, "Round 17 is open: 12 of 50 reports, closing now."),
        ({"seconds_open": 4000.0, "reports": 1}, "Round 17 is open: 1 of 50 reports, past its deadline."),
        ({"reports": 50}, "Round 17 is open: 50 of 50 reports, closing now."),
        ({"cohort": 1, "reports": 0}, "Round 17 is open: 0 of 1 report, closes in 58:20 at the latest."),
        ({"state": "between", "reports": 50}, "Round 17 is closed: 50 reports are being applied."),
        ({"state": "between", "reports": 1}, "Round 17 is closed: 1 report is being applied."),
        ({"state": "done", "round": 250}, "Training is over after 250 rounds. The model is still handed out."),
        (
            {"round": 1_000_000, "reports": 4_000_000, "cohort": 10_000_000},
            "Round 1,000,000 is open: 4,000,000 of 10,000,000 reports, closes in 58:20 at the latest.",
        ),
    ]:
        text = page(status(**changes), {})
        assert " ".join(html.unescape(re.search('<p class="now">(.*?)</p>', text)[1]).split()) == said


def test_it_opens_like_a_report_with_a_title_a_sentence_and_four_numbers():
    for changes, title, sentence in [
        # The first eight of 17 rounds are 0.3 + 0.2 i / 17 + 0.01 (i mod 3), and so are the last eight.
        (
            {},
            "learns from 50 devices",
            "Rankings have improved: the mean MaxRR is 0.456 in rounds 9–16, 0.106 above that of rounds 0–7, 0.350",
        ),
        ({"devices": 1, "state": "done"}, "learnt from 1 device", "(95 % interval +0.086 to +0.126)."),
        ({"devices": 0, "history": []}, "waits for its first device", "Nothing has been learnt yet"),
        (
            {"history": [point(0, 0.3, 0.04)]},
            "learns",
            "The mean MaxRR is 0.300 in round 0",
        ),
        (
            {"history": [point(0, 0.3), point(1, 0.4)]},
            "learns",
            "The mean MaxRR is 0.400 in round 1, 0.100 above that of round 0, 0.300 (too few reports",
        ),
        (
            {"history": [point(0, 0.30, 0.03), point(1, 0.33, 0.04)]},
            "learns",
            "No change beyond noise so far: the mean MaxRR is 0.330 in round 1, not told apart from that of round 0, "
            "0.300 (the reports would have shown a difference of more than 0.050).",
        ),
        (
            {"history": [point(0, 0.4, 0.03), point(1, 0.3, 0.04)]},
            "learns",
            "Rankings have deteriorated: the mean MaxRR is 0.300 in round 1, 0.100 below that of round 0, 0.400",
        ),
        ({"history": [point(0)]}, "learns", "these reports say nothing about how good rankings are"),
    ]:
        text = page(status(**changes), {})
        assert title in html.unescape(re.search("<h1>(.*?)</h1>", text)[1])
        assert sentence in html.unescape(re.search('<p class="sentence">(.*?)</p>', text)[1])
        numbers = re.search('<dl class="numbers">(.*?)</dl>', text)[1]
        assert numbers.count("<dt>") == 4
        opening = text.index('class="opening"')
        assert text.index("<h1>") < text.index('class="sentence"') < opening < text.index("<h2")
        if any(p["reward"] is not None for p in status(**changes)["history"]):
            assert opening < text.index('class="chart"') < text.index("<h2")


def test_the_cohort_fills_a_bar():
    (bar,) = Page(page(status(), {})).all("progress")
    assert (bar["value"], bar["max"], bar["aria-label"]) == ("12", "50", "Reports of round 17")
    assert "A round closes with 50 reports, or after 1 h with at least 2. This one has been open for 1:40." in words(
        status()
    )


def test_what_stands_in_the_way_is_said():
    for changes, said in [
        ({"devices": 30}, "30 devices are enrolled and a round waits for 50 reports, one from each device, so every"),
        ({"devices": 30, "deadline_s": None}, "so no round can close before more enrol"),
        ({"devices": 1}, "1 device is enrolled and a round waits for 50 reports, one from each device, so no round"),
        ({"healthy": False}, "The hub cannot write its log."),
    ]:
        assert said in words(status(**changes))
        assert said not in words(status())


def test_epsilon_is_said_by_unit_in_words():
    said = words(status())
    # e^4.4998 = 89.999; 18 and more allow factors of 65 million and more.
    assert "One interactionε = 4.50" in said and "by a factor of at most 90." in said
    assert "One messageε = 18.0" in said and "by a factor of e18.0: too large to be a promise" in said
    assert "sent mostε = 306What counted of it: 17 messages, added up." in said
    assert "which fails with a chance of 1 in 1,000,000 (δ), it is 120." in said
    # One message has no sharper count: 17.9989 is 18.0 for a reader.
    assert "sharper" not in words(status(epsilon={**EPSILON, "user_basic": 17.999, "user": 17.9989}))


def test_no_protection_is_said_plainly():
    said = words(status(epsilon=NO_EPSILON))
    assert "No protection: p = 1." in said and "two unprotected sums of MaxRR" in said
    assert "privatised" not in said and "privatisation" not in said and "ε = " not in said


def test_a_message_of_one_number_is_called_that():
    assert "one privatised number, the difference of two rankers in MaxRR" in words(status(mechanism="piecewise"))
    assert "two privatised sums of MaxRR" in words(status(mechanism="randomised-response"))


def test_where_reports_say_nothing_about_the_reward_the_page_opens_with_checks():
    checks = {
        "best": 0, "checks": 0, "mean": None, "low": None, "high": None, "margin": 0.05, "money": 1.0, "alarm_at": 20.0,
        "share": 0.1, "rounds": [], "halts": [],
    }  # fmt: skip
    now = {"mechanism": "piecewise", "history": [point(0)]}
    said = words(status(**now, checks=checks))
    assert "no device has compared the newest model with the best one yet" in said and "Best modelround 0" in said
    for low, high, verdict in ((0.12, 0.4, "0.260 better than that of round 0"), (-0.1, 0.4, "not told apart")):
        of = {**checks, "checks": 400, "mean": (low + high) / 2, "low": low, "high": high}
        assert verdict in words(status(**now, checks=of))
    won = words(status(**now, checks={**checks, "best": 7}))
    assert "Best modelround 7it won against the one before" in won and won.count("compare the newest model") == 1


def test_reports_of_chance_alone_tell_nothing():
    assert "ε = 0.00" not in (said := words(status(epsilon={**EPSILON, "interaction": 0.0}, history=[point(0)])))
    assert "One interactionε = 0" in said and "would be as likely whatever had happened" in said
    assert "These reports say nothing about the reward." in said


@given(st.floats(1e-3, 9.99))
@settings(max_examples=50, deadline=None)
def test_the_factor_on_the_odds_is_never_understated(epsilon):
    said = words(status(epsilon={**EPSILON, "interaction": epsilon}, history=[]))
    factor = float(re.search(r"factor of at most ([\d.,]+)\.", said)[1].replace(",", ""))
    assert math.exp(epsilon) * (1 - 1e-6) <= factor <= math.exp(epsilon) * 1.11


def test_bytes_are_said_for_people_and_exactly():
    text = page(EXAMPLES["large"], {})
    rows = re.findall(r'<tr><th scope="row">(.*?)</th><td class="number">([^<]*)</td>.*?>([^<]*)</td></tr>', text)
    rows = [(re.sub("<.*?>", "", name), *numbers) for name, *numbers in rows]
    sizes = {name: (size.replace("\xa0", " "), exact) for name, size, exact in rows if "bytes" in size or "B" in size}
    assert sizes == {
        "One report, a device to the hub": ("9 bytes", "9"),
        "All reports that counted": ("9 TB", "9,000,000,000,000"),
        "One model, the hub to a device": ("4 MB", "4,000,005"),
        "All models handed out since 2025-11-20 11:08:00 UTC": ("4 PB", "4,000,000,000,000,000"),
    }
    assert "HTTP headers and encryption are added" in words(status())


def test_refusals_are_shown_by_number_and_only_if_there_were_any():
    assert "Nothing has been refused since 2025-11-20 11:08:00 UTC." in words(status(), {"conflict": 0})
    text = page(status(), {"conflict": 0, "stale-round": 31, "unheard-of": 2, "unauthorised": 1204})
    shown = re.findall(r'<tr><th scope="row"><code>(.*?)</code></th><td>(.*?)</td><td class="number">(.*?)</td>', text)
    assert [(reason, n) for reason, _, n in shown] == [
        ("unauthorised", "1,204"),
        ("stale-round", "31"),
        ("unheard-of", "2"),
    ]
    assert shown[1][1] == "This round is over."


def test_every_reason_that_the_hub_counts_has_words():
    sources = [path.read_text("utf-8") for path in Path(http.__file__).parent.glob("*.py")]
    counted = set(REFUSALS) | {"internal"}
    for source in sources:
        counted |= set(re.findall(r'refuse\([\w."]+, "([a-z-]+)"', source))
    assert {"websocket", "disconnected"} <= counted
    text = page(status(), dict.fromkeys(counted, 1))
    shown = dict(re.findall(r'<tr><th scope="row"><code>(.*?)</code></th><td>(.*?)</td>', text))
    assert set(shown) == counted and all(shown.values()), {why for why, what in shown.items() if not what}


def test_rounds_are_counted_as_the_hub_counts_them():
    assert "Rounds applied17" in words(status()) and "Rounds applied12" in words(status(applied=12))
    assert "Training is over after 12 rounds." in words(status(state="done", applied=12))


def test_who_speaks_is_said():
    said = words(status())
    for fact in ("3fa9c2d10b7e4c55a1d2e3f405162738", "fedrank 1.2.3", "linear ranker of 46 features (46 weights)"):
        assert fact in said
    assert "Reciprocal rank of the highest clicked result" in said
    assert "Reciprocal rank of the highest clicked result" in words(status(reward="MaxRR in 3 values"))


# ------------------------------------------------------------------------------------------------- the pictures


LINE, BAND = r'<path d="M([^"]*)" fill="none" stroke="var\(--c0\)"', r'<path d="M([^"]*)Z" fill="var\(--c0\)"'


def places(path):
    return [tuple(map(float, pair.split(","))) for pair in path.split("L")]


def test_the_curve_goes_through_its_values_inside_its_band():
    # From 0.2 to 0.4 with 0.1 more on each side: an axis of 0.1 to 0.5 on 160 pixels. Ten rounds are the least that it
    # is wide, 36 pixels each.
    rewards = [0.2, 0.3, 0.25, 0.4]
    text = page(status(history=[point(i, r, 0.1) for i, r in enumerate(rewards)]), {})
    assert places(re.search(LINE, text)[1]) == [(18.0, 120.0), (54.0, 80.0), (90.0, 100.0), (126.0, 40.0)]
    band = places(re.search(BAND, text)[1])
    assert band[0] == (18.0, 80.0) and band[-1] == (18.0, 160.0) and len(band) == 8
    ticks = re.findall(r'<text x="-8" y="([\d.]+)"[^>]*>([^<]*)</text>', text)[:5]
    assert ticks == [("164", "0.1"), ("124", "0.2"), ("84", "0.3"), ("44", "0.4"), ("4", "0.5")]
    feet = re.findall(r'<text x="([\d.]+)" y="178"[^>]*>([^<]*)</text>', text)
    assert feet == [(str(18 + 72 * n), str(2 * n)) for n in range(5)]


def test_gaps_are_gaps():
    rewards = [0.2, 0.3, None, 0.25, None, 0.4, 0.3]
    text = page(status(history=[point(i, r) for i, r in enumerate(rewards)]), {})
    assert [len(places(line)) for line in re.findall(LINE, text)] == [2, 2]
    assert not re.search(BAND, text) and text.count('r="3" fill="var(--c0)"') == 1  # a round between two gaps
    assert text.count("round 3: 0.250; 50 reports, open for 2\xa0s") == text.count("round 2: no reward") == 2


def test_long_histories_are_pooled_with_the_interval_of_their_mean():
    points = [point(i, 0.3 + 0.1 * (i % 5), 0.1, seconds=float(i % 5)) for i in range(400)]
    shown = Page(page(status(round=400, history=points), {}))
    assert len(shown.all("path", fill="none", stroke="var(--c0)")) == 1
    bars, over = shown.all("rect", fill="var(--c2)"), shown.all("rect", class_="over")
    assert len(bars) == 80 and len(over) == 2 * 80
    ends = [(float(one["x"]), float(one["x"]) + float(one["width"])) for one in over[:80]]
    assert all(abs(right - left) < 0.02 for (_, right), (left, _) in itertools.pairwise(ends))  # none hides another
    # The mean of 0.3, 0.4, 0.5, 0.6, 0.7 is 0.5; of five independent halves of 0.1 each, 0.1/√5 = 0.045 remains.
    assert "mean of rounds 0–4: 0.500 (0.455 to 0.545); 250 reports, each open for 2 s" in shown.words
    assert "Each point is the mean of 5 rounds." in shown.words


def test_points_that_are_means_already_say_so():
    points = [point(250 * i + 249, 0.3, 0.01) for i in range(3)]
    assert "mean of rounds 250–499: 0.300 (0.290 to 0.310)" in words(status(round=750, history=points))


def test_one_night_does_not_flatten_all_other_rounds():
    points = [point(i, 0.3, 0.1, seconds=40_000.0 if i == 30 else 2.0) for i in range(60)]
    shown = Page(page(status(round=60, history=points), {}))
    heights = [float(bar["height"]) for bar in shown.all("rect", fill="var(--c2)")]
    assert heights[30] == 80 and heights[29] == pytest.approx(40)
    assert "half of them 2 s or less, 11:06:40 at most, which leaves the picture." in shown.words


number = st.none() | st.floats(-1, 1) | st.floats(-1e9, 1e9) | st.just(math.inf)


@given(st.lists(st.tuples(number, number, number, st.none() | st.floats(0, 1e9)), max_size=120))
@settings(max_examples=40, deadline=None)
def test_any_history_stays_in_the_picture(values):
    points = [
        {"round": i, "reports": 3, "reward": reward, "low": low, "high": high, "seconds": seconds}
        for i, (reward, low, high, seconds) in enumerate(values)
    ]
    shown = Page(page(status(history=points), {}))
    assert not re.search(r"\b(nan|inf|none)\b", shown.words, flags=re.IGNORECASE)
    for tag, attributes in shown.elements:
        across, down = (-100, 460) if tag == "text" else (-5, 360), (0, 200) if tag == "text" else (0, 165)
        for names, (low, high) in ((("x", "x1", "x2", "cx"), across), (("y", "y1", "y2", "cy"), down)):
            assert all(low <= float(attributes[name]) <= high for name in names if name in attributes)
        if tag == "path":
            assert all(0 <= x <= 360 and 0 <= y <= 160 for x, y in places(attributes["d"].strip("MZ")))


# ---------------------------------------------------------------------------------------------------- for everybody


def test_it_can_be_read_by_all_at_any_extreme():
    for name in EXAMPLES:
        text = page(EXAMPLES[name], {"stale-round": 3})
        shown = Page(text)
        assert not re.search(r"\b(nan|inf|none)\b", shown.words, flags=re.IGNORECASE)
        assert shown.all("html")[0]["lang"] == "en"
        assert len(shown.all("h1")) == 1 and len(shown.all("main")) == 1 and len(shown.all("h2")) == 4
        pictures = shown.all("svg")
        assert all(a["role"] == "img" and a["aria-label"] for a in pictures)
        assert len(pictures) == {"new": 0, "no reward": 1}.get(name, 2)
        ids = [a["id"] for _, a in shown.elements if "id" in a]
        assert len(ids) == len(set(ids))
        assert {a["aria-labelledby"] for _, a in shown.elements if "aria-labelledby" in a} <= set(ids)
        assert all(a.get("scope") in ("row", "col") for a in shown.all("th"))
        for wanted in ("prefers-color-scheme: dark", "prefers-reduced-motion"):
            assert wanted in "".join(shown.scripts["style"])


def test_names_are_text():
    bad = "<script>alert(1)</script>&\"'$hub ${x}"
    shown = Page(page(status(hub=bad, version=bad, reward=bad, protocol=bad, ranker=bad), {bad: 7}))
    assert len(shown.all("script")) == 1 and "alert" not in "".join(shown.scripts["script"])
    assert shown.words.count(bad) >= 6
    assert any(bad in a.get("aria-label", "") for a in shown.all("svg"))


def test_it_asks_for_nothing_from_elsewhere_and_the_browser_is_told_so():
    for name in EXAMPLES:
        shown = Page(page(EXAMPLES[name], {}))
        rules = dict(rule.strip().split(" ", 1) for rule in CSP.split(";"))
        assert (
            rules["default-src"] == "'none'"
            and rules["connect-src"] == "'self'"
            and rules["frame-ancestors"] == "'none'"
        )
        for kind in ("script", "style"):
            (source,) = shown.scripts[kind]
            digest = base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()
            assert rules[f"{kind}-src"] == f"'sha256-{digest}'"
        asked = {a.get(n) for _, a in shown.elements for n in ("src", "href", "action", "data") if a.get(n)}
        assert {a for a in asked if not a.startswith("data:")} == {"status.json", "metrics"}
        # What a strict policy would not let through: style and handlers in attributes.
        assert not any(name == "style" or name.startswith("on") for _, a in shown.elements for name in a)
        assert not re.search(r"url\(|@import|https?:", "".join(shown.scripts["style"] + shown.scripts["script"]))
