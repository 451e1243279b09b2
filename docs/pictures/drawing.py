"""SVG by hand: boxes, arrows and text in the colours of the page, which has them in light and in dark.

Colours are CSS variables (``--ink``, ``--muted``, ``--rule``, ``--paper``, ``--c0`` …) that ``_static/fedrank.css``
sets; the pictures stand in the page itself, so that they follow a reader's theme.
"""

from __future__ import annotations

import html
from collections.abc import Sequence

INK, MUTED, RULE, PAPER = "var(--ink)", "var(--muted)", "var(--rule)", "var(--paper)"
COLOURS = tuple(f"var(--c{i})" for i in range(6))


def text(
    x: float,
    y: float,
    words: str,
    *,
    size: float = 13,
    anchor: str = "start",
    fill: str = INK,
    bold: bool = False,
    mono: bool = False,
) -> str:
    """A line of text; ``y`` is its base line."""
    weight = ' font-weight="600"' if bold else ""
    family = ' font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, monospace"' if mono else ""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size:g}" text-anchor="{anchor}" fill="{fill}"{weight}{family}>'
        f"{html.escape(words)}</text>"
    )


def lines(x: float, y: float, words: Sequence[str], *, step: float = 17, **how: object) -> str:
    """Several lines of text below each other."""
    return "".join(text(x, y + i * step, line, **how) for i, line in enumerate(words))  # type: ignore[arg-type]


def box(x: float, y: float, width: float, height: float, *, stroke: str = MUTED, fill: str = PAPER) -> str:
    """A box with round corners."""
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" rx="6" fill="{fill}" '
        f'stroke="{stroke}" stroke-width="1.2"/>'
    )


def line(x1: float, y1: float, x2: float, y2: float, *, stroke: str = RULE, width: float = 1, dash: str = "") -> str:
    """An SVG line from (x1, y1) to (x2, y2), in pixels of the picture; ``dash`` is an SVG dash pattern."""
    dashed = f' stroke-dasharray="{dash}"' if dash else ""
    return (
        f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{stroke}" '
        f'stroke-width="{width:.2f}"{dashed}/>'
    )


def arrow(x1: float, y1: float, x2: float, y2: float, *, stroke: str = COLOURS[0], width: float = 1.6) -> str:
    """A line with a head at its second end."""
    long = ((x2 - x1) ** 2 + (y2 - y1) ** 2) ** 0.5
    ux, uy = (x2 - x1) / long, (y2 - y1) / long
    head = 7 + width
    bx, by = x2 - head * ux, y2 - head * uy
    half = 3 + width / 2
    corners = f"{x2:.1f},{y2:.1f} {bx - half * uy:.1f},{by + half * ux:.1f} {bx + half * uy:.1f},{by - half * ux:.1f}"
    return line(x1, y1, bx, by, stroke=stroke, width=width) + f'<polygon points="{corners}" fill="{stroke}"/>'


def path(points: Sequence[tuple[float, float]], *, stroke: str = COLOURS[0], width: float = 2, dash: str = "") -> str:
    """An SVG path of straight pieces through points (x, y), in pixels of the picture; not filled."""
    through = " L".join(f"{x:.1f} {y:.1f}" for x, y in points)
    dashed = f' stroke-dasharray="{dash}"' if dash else ""
    return (
        f'<path d="M{through}" fill="none" stroke="{stroke}" stroke-width="{width}" stroke-linejoin="round"{dashed}/>'
    )


def area(points: Sequence[tuple[float, float]], *, fill: str = COLOURS[0], opacity: float = 0.15) -> str:
    """An SVG polygon whose corners are points (x, y), in pixels of the picture; filled, without an outline."""
    through = " L".join(f"{x:.1f} {y:.1f}" for x, y in points)
    return f'<path d="M{through} Z" fill="{fill}" fill-opacity="{opacity:g}"/>'


def dot(x: float, y: float, *, fill: str = COLOURS[0], radius: float = 4.5) -> str:
    """An SVG circle, filled, around (x, y); centre and radius in pixels of the picture."""
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:g}" fill="{fill}"/>'


def svg(width: float, height: float, parts: Sequence[str]) -> str:
    """The whole picture; who shows it adds its text alternative."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" role="img" '
        f'font-family="inherit">{"".join(parts)}</svg>'
    )


def size(count: float) -> str:
    """Bytes in decimal units, as a reader says them."""
    for unit, length in (("MB", 1e6), ("kB", 1e3)):
        if count >= length:
            return f"{count / length:,.3g} {unit}"
    return f"{count:,.0f} byte{'' if count == 1 else 's'}"
