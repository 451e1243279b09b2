"""Figures on a page: SVG that follows the page's colours and answers to a pointer without a script."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from fedrank.report.figures import INK, MUTED, OKABE_ITO, RULE, rendered
from fedrank.report.html import Html, h

if TYPE_CHECKING:
    import altair as alt

#: Names of the page's colours, by the figure's. The page's style sheet gives each a light and a dark value.
COLOURS = {INK: "ink", MUTED: "muted", RULE: "rule", "#FFFFFF": "paper"} | {c: f"c{i}" for i, c in enumerate(OKABE_ITO)}


def figure(chart: alt.TopLevelMixin, name: str, description: str) -> Html:
    """A figure as markup.

    Args:
        chart: From :mod:`fedrank.report.figures`.
        name: Unique on the page, such as ``"online-bytes"``: letters, digits and hyphens.
        description: What it shows, for those who do not see it.
    """
    return h("figure", inline(chart, name, description), class_="chart")


def inline(chart: alt.TopLevelMixin, name: str, description: str) -> Html:
    """The ``<svg>`` element alone; arguments as :func:`figure`."""
    text = rendered(chart)
    # The page's own name, size and text alternative in place of Vega's.
    match = re.match(r"<svg[^>]*?viewBox=\"([^\"]*)\"[^>]*>", text)
    if match is None:
        raise RuntimeError("vl-convert wrote an SVG without a viewBox")
    body = text[match.end() : text.rindex("</svg>")]
    # Several figures share a page, and each calls its clip paths clip0, clip1 ... and its gradients gradient_0 ...
    body = re.sub(r'id="((?:clip|gradient_)\d+)"', rf'id="{name}-\1"', body)
    body = re.sub(r"url\(#((?:clip|gradient_)\d+)\)", rf"url(#{name}-\1)", body)
    # Points, bars and cells that carry a sentence show it as a native tooltip.
    body = re.sub(
        r'<path aria-label="([^"]*)"([^>]*aria-roledescription="(?:point|bar|rect mark)"[^>]*)/>',
        r"<path\2><title>\1</title></path>",
        body,
    )
    body = re.sub(r' (?:aria-[a-z]+|role|pointer-events)="[^"]*"', "", body)
    body = re.sub(r' font-family="[^"]*"', "", body)
    for colour, variable in COLOURS.items():
        body = re.sub(rf'="{colour}"', f'="var(--{variable})"', body, flags=re.IGNORECASE)
    body = body.replace('fill="white"', 'fill="var(--paper)"')
    # Coordinates to a hundredth of a unit: half the size, no visible change. Numbers that are read stay as they are.
    body = re.sub(r"<[^>]*>", lambda tag: re.sub(r"(\d+\.\d\d)\d+", r"\1", tag[0]), body)
    return h(
        "svg",
        Html(body),
        viewBox=match.group(1),
        role="img",
        aria_label=description,
        xmlns="http://www.w3.org/2000/svg",
    )
