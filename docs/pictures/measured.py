"""Pictures of what was measured: drawn from the tables of the pages themselves, and from ``kept/``.

``make numbers`` measures what is in ``kept/`` anew (``docs/measured.py``).
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedrank.report.charts import (
    MUTED,
    OKABE_ITO,
    Chart,
    Panel,
    compose,
    decimal_labels,
    element,
    si_label,
    text,
    text_width,
    ticks,
)
from fedrank.report.figures import Level, levels_figure, nice_domain

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


def noise_and_gain() -> Chart:
    """What a search of everybody's documents gains, by ε."""
    _, *rows = table("tutorial/texts-of-others.md", "| | nDCG(dcg='exp-log2')@10, all documents")
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
        ["Difference of nDCG(dcg='exp-log2')@10; five seeds, 95 % intervals"],
        signed=True,
    )


def private_ways() -> Chart:
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


def dots(
    rows: Sequence[dict[str, Any]], order: Sequence[str], title: str, ends: tuple[float, float], ours: str
) -> Chart:
    """Numbers of very different size on a logarithmic scale, a dot each with what it is.

    Args:
        rows: With ``who``, ``value``, ``said`` (the number as text) and ``panel``.
        order: Of ``who``, from the top.
        title: Of the horizontal axis.
        ends: Of the horizontal axis.
        ours: The name that is not grey.
    """
    panels = []
    for name in dict.fromkeys(row["panel"] for row in rows):
        panel = Panel(400, 28.0 * len(order), ends, title=name, log_x=True)
        panel.rows(order, grid=True)
        tens = [10.0**k for k in range(math.ceil(math.log10(ends[0])), int(math.log10(ends[1])) + 1)]
        panel.x_axis(tens, si_label, title)
        for row in rows:
            if row["panel"] == name:
                x, y = panel.x(row["value"]), 28 * (order.index(row["who"]) + 0.5)
                panel.dot(x, y, OKABE_ITO[0] if row["who"] == ours else MUTED, radius=6.0)
                panel.add(text(x + 9, y + 4, row["said"]))
                panel.right = max(panel.right, x + 9 + text_width(row["said"], 13.0) - panel.width)
        panels.append(panel)
    return compose(panels, "")


def speeds() -> Chart:
    """Interactions a CPU-second of four programs."""
    head, *found = table("explanation/speed.md", "| ranker | data |")
    rows = [
        {"panel": f"{row[0]} ranker", "who": who, "value": float(cell.replace(",", "")), "said": cell}
        for row in found
        if all(row[2:])
        for who, cell in zip(head[2:], row[2:], strict=True)
    ]
    return dots(rows, head[2:], "interactions a CPU-second", (1_000, 8_000_000), "fedrank")


def sent_bytes() -> Chart:
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


def result(first: str, title: str, ours: tuple[str, ...], said: str, digits: int = 3) -> Chart:
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


def correlations() -> Chart:
    """How strongly each coordinate of the perturbation goes with the reward where no ranking is better than another."""
    found = json.loads((KEPT / "correlations.json").read_text(encoding="utf-8"))
    return correlation_chart(found)


def correlation_chart(found: dict[str, Sequence[float]]) -> Chart:
    """T values by coordinate, a panel for each way to draw."""
    low, high = nice_domain([-2.0, 2.0, *(value for values in found.values() for value in values)])
    panels = []
    for way, values in found.items():
        panel = Panel(480, 120, (0.0, len(values) + 1.0), (low, high), title=way)
        levels = ticks(low, high, 4)
        panel.y_axis(levels, decimal_labels(levels), "t value")
        panel.x_axis(ticks(1, len(values), 6, whole=True), decimal_labels([0, 1]), "coordinate of the perturbation")
        band = panel.y(-2) - panel.y(2)
        panel.add(element("rect", x=0.0, y=panel.y(2), width=panel.width, height=band, fill=MUTED, opacity=0.18))
        for i, value in enumerate(values):
            top, end = sorted((panel.y(0), panel.y(value)))
            colour = OKABE_ITO[1] if abs(value) > 4 else OKABE_ITO[0]
            panel.add(element("rect", x=panel.x(i + 1) - 2, y=top, width=4.0, height=end - top, fill=colour))
        panels.append(panel)
    return compose(panels, "")
