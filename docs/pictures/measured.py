"""Pictures of what was measured: drawn from the tables of the pages themselves, and from ``kept/``.

``make numbers`` measures what is in ``kept/`` anew (``docs/measured.py``).
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl

from fedrank.report.charts import alt
from fedrank.report.figures import INK, MUTED, OKABE_ITO, Level, levels_figure, styled

DOCS = Path(__file__).resolve().parents[1]
KEPT = Path(__file__).with_name("kept")

_MARK = re.compile(r"<!--.*?-->")


def table(page: str, first: str) -> list[list[str]]:
    """The rows of a Markdown table of a page, headings first.

    Args:
        page: Below ``docs``, such as ``"explanation/speed.md"``.
        first: How the table's first line begins.

    Raises:
        ValueError: There is no such table.
    """
    lines = (DOCS / page).read_text(encoding="utf-8").splitlines()
    start = next((i for i, line in enumerate(lines) if line.startswith(first)), None)
    if start is None:
        raise ValueError(f"{page} has no table that begins with {first!r}")
    rows = []
    for line in lines[start:]:
        if not line.startswith("|"):
            break
        rows.append(
            [
                _MARK.sub("", cell).replace("`", "").strip()
                for cell in line.strip().removeprefix("|").removesuffix("|").split("|")
            ]
        )
    return [rows[0], *rows[2:]]


def estimate(cell: str) -> tuple[float, float]:
    """A cell such as ``+0.185 ± 0.052`` as a value and half of its interval."""
    found = re.findall(r"[+−-]?\d[\d,]*\.?\d*", cell)
    value, half = (float(number.replace("−", "-").replace(",", "")) for number in found[:2])
    return value, half


def noise_and_gain() -> Any:
    """What a search of everybody's documents gains, by ε."""
    _, *rows = table("tutorial/texts-of-others.md", "| | nDCG@10, all documents")
    levels = []
    for name, _, gain in rows:
        value, half = estimate(gain)
        levels.append(
            Level(
                name.split(",")[0].replace("plain: no noise", "no noise"),
                value,
                value - half,
                value + half,
                name.startswith("ε = 8"),
            )
        )
    return levels_figure(
        levels,
        "Searching everybody’s documents, against searching at home",
        ["Difference of nDCG@10; five seeds, 95 % intervals"],
        signed=True,
    )


def private_ways() -> Any:
    """What is learnt at one promise for a user's life, by how it is done."""
    _, *rows = table("explanation/privacy.md", "| at ε = 1 of a user's life")
    levels = []
    for name, cell in rows:
        value, *half = (float(number) for number in re.findall(r"\d\.\d+", cell))
        ends = (value - half[0], value + half[0]) if half else (None, None)
        levels.append(Level(name.removeprefix("… "), value, *ends, "no privacy" not in name and "labels" not in name))
    return levels_figure(
        levels,
        "What 200,000 devices teach a ranker at ε = 1 of a user’s whole life",
        ["Expected MaxRR on training queries; MQ2008, five seeds, 95 % intervals"],
    )


def dots(rows: Sequence[dict[str, Any]], order: Sequence[str], title: str, ends: tuple[float, float], ours: str) -> Any:
    """Numbers of very different size on a logarithmic scale, a dot each with what it is.

    Args:
        rows: With ``who``, ``value``, ``said`` (the number as text) and ``panel``.
        order: Of ``who``, from the top.
        title: Of the horizontal axis.
        ends: Of the horizontal axis.
        ours: The name that is not grey.
    """
    frame = pl.DataFrame(list(rows))
    base = alt.Chart(frame).encode(
        y=alt.Y("who:N").title(None).sort(list(order)).axis(labelLimit=0, ticks=False, domain=False, grid=True),
        x=alt.X("value:Q").title(title).scale(type="log", domain=list(ends), nice=False).axis(format="~s", tickCount=5),
    )
    colour = alt.condition(f"datum.who == '{ours}'", alt.value(OKABE_ITO[0]), alt.value(MUTED))
    points = base.mark_point(filled=True, size=120, opacity=1).encode(color=colour)
    words = base.mark_text(align="left", dx=9, fontSize=12.5, color=INK).encode(text="said:N")
    chart = alt.layer(points, words).properties(width=400, height=28 * len(order))
    panels = list(dict.fromkeys(row["panel"] for row in rows))
    return styled(_panels(chart, "panel", panels) if len(panels) > 1 else chart)


def _panels(chart: Any, by: str, order: Sequence[str]) -> Any:
    header = alt.Header(
        labelAngle=0, labelOrient="top", labelAnchor="start", labelFontSize=14, labelFontWeight=600, labelColor=INK
    )
    return chart.facet(row=alt.Row(f"{by}:N").title(None).sort(list(order)).header(header))


def speeds() -> Any:
    """Interactions a CPU-second of four programs."""
    head, *found = table("explanation/speed.md", "| ranker | data |")
    rows = [
        {"panel": f"{row[0]} ranker", "who": who, "value": float(cell.replace(",", "")), "said": cell}
        for row in found
        if all(row[2:])
        for who, cell in zip(head[2:], row[2:], strict=True)
    ]
    return dots(rows, head[2:], "interactions a CPU-second", (1_000, 8_000_000), "fedrank")


def sent_bytes() -> Any:
    """Bytes that a device sends in a round, by what it learns with."""
    import generate

    rows = []
    for title, protocol in generate.devices().items():
        sent = sum(
            one.reply.nbytes + sum(extra.nbytes for _, sender, extra in one.extra_messages(1000) if sender == "parties")
            for one in protocol.exchanges
        )
        name = title.partition(", ")[0].partition(": ")[0]
        if title.startswith(("FOLtR-ES, the paper", "FPDGD")):
            who = {"FOLtR-ES": "FOLtR-ES: a seed and two sums", "FPDGD": "FPDGD: weights"}.get(
                name, "FPDGD: integers in a secure sum"
            )
            rows.append({"panel": "", "who": who, "value": sent, "said": f"{sent:,} bytes"})
    return dots(rows, [row["who"] for row in rows], "bytes a device and round", (5, 20_000), rows[0]["who"])


def result(first: str, title: str, ours: tuple[str, ...], said: str, digits: int = 3) -> Any:
    """A table of the page of results, a row a level: its name, its value with an interval or without.

    Args:
        first: How the table begins.
        title: Of the figure.
        ours: How the names of rows begin that are not what is compared with.
        said: What a reader must know.
        digits: Decimals.
    """
    _, *rows = table("explanation/results.md", first)
    levels = []
    for name, cell, *_ in rows:
        value, *ends = _numbers(cell)
        low, high = (value - ends[0], value + ends[0]) if len(ends) == 1 else ends or (None, None)
        levels.append(Level(name, value, low, high, name.startswith(ours)))
    return levels_figure(levels, title, [said], digits)


def _numbers(cell: str) -> list[float]:
    return [
        float(n.replace("−", "-").replace(",", ""))
        for n in re.findall(r"[+−-]?\d[\d,]*\.?\d*", cell.replace("95 %", ""))
    ]


def kept(name: str) -> str:
    """A picture as ``make numbers`` kept it."""
    return (KEPT / f"{name}.svg").read_text(encoding="utf-8")


def correlations() -> Any:
    """How strongly each coordinate of the perturbation goes with the reward where no ranking is better than another."""
    found = json.loads((KEPT / "correlations.json").read_text(encoding="utf-8"))
    return correlation_chart(found)


def correlation_chart(found: dict[str, Sequence[float]]) -> Any:
    """T values by coordinate, a panel for each way to draw."""
    rows = [
        {"way": way, "coordinate": i + 1, "t": value} for way, values in found.items() for i, value in enumerate(values)
    ]
    frame = pl.DataFrame(rows)
    base = alt.Chart(frame)
    band = (
        base.transform_filter("datum.coordinate == 1")
        .mark_rect(color=MUTED, opacity=0.18)
        .encode(y=alt.datum(-2), y2=alt.datum(2))
    )
    sticks = base.mark_bar(width=4).encode(
        x=alt.X("coordinate:Q").title("coordinate of the perturbation").axis(tickCount=6).scale(nice=False),
        y=alt.Y("t:Q").title("t value"),
        color=alt.condition("abs(datum.t) > 4", alt.value(OKABE_ITO[1]), alt.value(OKABE_ITO[0])),
    )
    return styled(_panels(alt.layer(band, sticks).properties(width=480, height=120), "way", list(found)))
