"""Charts: places on axes, ticks, and what a page makes of them."""

import itertools
import math
import re
import xml.etree.ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedrank.report.charts import COLOURS, Entry, Panel, Scale, compose, decimal_labels, si_label, ticks

finite = st.floats(-1e9, 1e9)


@given(finite, st.floats(1e-3, 1e9), st.integers(1, 12))
def test_ticks_are_round_evenly_spaced_and_within_their_ends(low, width, count):
    high = low + max(width, 1e-5 * abs(low))
    places = ticks(low, high, count)
    assert len(places) >= (2 if count > 3 else 1)
    assert all(low - 1e-6 * (high - low) <= one <= high + 1e-6 * (high - low) for one in places)
    assert len(places) <= 2 * count + 2
    if len(places) > 1:
        step = places[1] - places[0]
        leading = step / 10 ** math.floor(math.log10(step) + 1e-9)
        assert min(abs(leading - one) for one in (1, 2, 5, 10)) < 1e-3
        assert all(abs(b - a - step) < 1e-3 * step for a, b in itertools.pairwise(places))


@given(st.integers(0, 10**6), st.integers(1, 10**6), st.integers(1, 12))
def test_whole_ticks_are_whole_and_their_labels_differ(low, more, count):
    places = ticks(low, low + more, count, whole=True)
    assert all(one == round(one) for one in places)
    labels = list(map(decimal_labels(places), places))
    assert len(set(labels)) == len(labels) and all(
        float(s.replace(",", "")) == v for s, v in zip(labels, places, strict=True)
    )


def test_labels_of_neighbouring_ticks_tell_them_apart():
    for low, high in [(0, 1), (0.35, 0.36), (-3, 41), (1e-4, 2e-4), (0, 1e6)]:
        places = ticks(low, high, 6)
        labels = list(map(decimal_labels(places, signed=True), places))
        assert len(set(labels)) == len(places)
    assert [si_label(one) for one in (0, 999, 12_500, 3e9)] == ["0", "999", "12.5k", "3G"]


def test_scales_map_ends_to_ends_and_equal_ratios_to_equal_lengths():
    linear, log = Scale(2, 6, 0, 100), Scale(1, 1000, 0, 300, log=True)
    assert [linear(v) for v in (2, 4, 6)] == [0, 50, 100]
    assert [log(v) for v in (1, 10, 100, 1000)] == pytest.approx([0, 100, 200, 300])


def drawn():
    panel = Panel(100, 50, (0, 10), (0, 1), title="a & b")
    panel.y_axis([0, 1], decimal_labels([0, 1]), "y <1>")
    panel.x_axis([0, 10], decimal_labels([0, 10]), "x")
    panel.band([(0, 0.2, 0.4), (5, None, None), (6, 0.1, 0.3), (10, 0.2, 0.4)], "#0072B2")
    panel.line([(0, 0.0), (5, 0.5), (10, 1.0)], "#0072B2")
    panel.dot(5, 5, "#D55E00", note="it <is> 5")
    panel.stacks([{"a": 0.25, "b": 0.5}], {"a": "#0072B2", "b": "#D55E00"}, lambda place, name: f"{place} {name}")
    return compose([panel], "Title", ["said"], [Entry("one", "#0072B2"), Entry("two", "#D55E00", "cross")])


def test_a_chart_is_svg_with_each_point_in_its_place_and_texts_escaped():
    root = ET.fromstring(drawn().svg)
    texts = [one.text for one in root.iter() if one.tag.endswith("text")]
    assert {"a & b", "y <1>", "x", "Title", "said", "one", "two"} <= set(texts)
    paths = [one.attrib["d"] for one in root.iter() if one.tag.endswith("path")]
    assert "M0.00,50.00L50.00,25.00L100.00,0.00" in paths
    assert sum(path.endswith("Z") for path in paths) == 1  # of one point there is no band
    notes = [one.text for one in root.iter() if one.tag.endswith("title")]
    assert notes == ["it <is> 5", "0 a", "0 b"]
    bars = [one.attrib for one in root.iter() if one.tag.endswith("rect") and "y" in one.attrib]
    assert [(float(bar["y"]), float(bar["height"])) for bar in bars] == [(37.5, 12.5), (12.5, 25.0)]


def test_a_page_has_its_own_colours_and_the_text_alternative():
    markup = str(drawn().inline("what <it> shows"))
    root = ET.fromstring(markup)
    assert root.attrib["aria-label"] == "what <it> shows"
    assert not re.search("|".join(COLOURS), markup) and "var(--c0)" in markup and "var(--ink)" in markup


def test_names_with_any_characters_and_values_that_are_not_finite_make_a_readable_file():
    nan, inf = math.nan, math.inf
    panel = Panel(100, 50, (0.0, 2.0), (0.0, 1.0), "a\x0b<b>\x1b&\ud800")
    panel.line([(0.0, 0.5), (1.0, nan), (2.0, inf)], "#000000")
    panel.band([(0.0, nan, 1.0), (1.0, 0.0, inf), (2.0, 0.0, 1.0)], "#000000")
    panel.interval(nan, 1.0, 3.0, "#000000")
    panel.dot(nan, 3.0, "#000000", note="\x00")
    chart = compose([panel], "t\x07")
    tree = ET.fromstring(chart.svg)
    assert "a\ufffd<b>\ufffd&\ufffd" in [one.text for one in tree.iter() if one.text]
    assert not re.search(r"\b(nan|inf)\b", chart.markup)
    assert len(list(tree.iter("{http://www.w3.org/2000/svg}circle"))) == 1  # the one point of the line
