"""Figures on a page: SVG that follows the page's colours and answers to a pointer without a script."""

from __future__ import annotations

import re

from fedrank.report.charts import INK, MUTED, OKABE_ITO, PAPER, RULE, Chart
from fedrank.report.html import Html, h

#: Names of the page's colours, by the figure's. The page's style sheet gives each a light and a dark value.
COLOURS = {INK: "ink", MUTED: "muted", RULE: "rule", PAPER: "paper"} | {c: f"c{i}" for i, c in enumerate(OKABE_ITO)}


def figure(chart: Chart, name: str, description: str) -> Html:
    """A figure as markup.

    Args:
        chart: From :mod:`fedrank.report.figures`.
        name: Unique on the page, such as ``"online-bytes"``: letters, digits and hyphens; links lead to it.
        description: What it shows, for those who do not see it.
    """
    return h("figure", inline(chart, description), class_="chart", id=f"figure-{name}")


def inline(chart: Chart, description: str) -> Html:
    """The ``<svg>`` element alone; arguments as of :func:`figure`."""
    colour = re.compile("|".join(f'"{one}"' for one in COLOURS))
    body = colour.sub(lambda found: f'"var(--{COLOURS[found[0].strip(chr(34))]})"', chart.markup)
    return h(
        "svg",
        Html(body),
        viewBox=f"0 0 {chart.width:.0f} {chart.height:.0f}",
        role="img",
        aria_label=description,
        xmlns="http://www.w3.org/2000/svg",
    )
