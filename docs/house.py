"""A picture of the package made from its imports: a box for each part, in the layers that the import contract names."""

from __future__ import annotations

import ast
import html
import tomllib
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
#: What each part is for, as the picture says it.
PURPOSE = {
    "cli": "commands",
    "deploy": "hub, platforms, Flower",
    "api": "train, results, models",
    "ranking": "devices learn from clicks",
    "silos": "whose models to average",
    "texts": "search each other's texts",
    "slates": "platforms that share users",
    "report": "tables, figures, pages",
    "engine": "runs: simulate, resume, sweep",
    "aggregation": "robust rules",
    "metrics": "how good",
    "privacy": "mechanisms, accounts",
    "data": "sets, places, checksums",
    "core": "ask, answer, tell",
}
WIDTH, HEIGHT, GAP, ROW = 192, 62, 14, 104


def layers() -> list[list[str]]:
    """The parts of the package by layer, the highest first, as the import contract in pyproject.toml has them."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    found = next(contract for contract in contracts if contract["type"] == "layers")
    return [[part.strip() for part in layer.split("|")] for layer in found["layers"]]


def measured() -> tuple[Counter[str], Counter[tuple[str, str]]]:
    """Lines of each part, and how many imports lead from one part to another."""
    lines: Counter[str] = Counter()
    arrows: Counter[tuple[str, str]] = Counter()
    for path in sorted((ROOT / "fedrank").rglob("*.py")):
        parts = path.relative_to(ROOT / "fedrank").parts
        if len(parts) < 2:
            continue
        text = path.read_text(encoding="utf-8")
        lines[parts[0]] += text.count("\n")
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("fedrank."):
                other = str(node.module).split(".")[1]
                if other != parts[0]:
                    arrows[parts[0], other] += 1
    return lines, arrows


def svg() -> str:
    """The picture: a box a part with its lines, a line for each pair of parts, the wider the more imports.

    Colours are those of the page (``_static/fedrank.css``).
    """
    rows, (lines, arrows) = layers(), measured()
    widest = max(map(len, rows))
    total = widest * (WIDTH + GAP) - GAP
    places: dict[str, tuple[float, float]] = {}
    for y, row in enumerate(rows):
        left = (total - len(row) * (WIDTH + GAP) + GAP) / 2
        places |= {part: (left + x * (WIDTH + GAP), 10 + y * ROW) for x, part in enumerate(row)}
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="-10 0 {total + 20} {len(rows) * ROW}" role="img" '
        'font-family="inherit">'
    ]
    for (above, below), count in sorted(arrows.items(), key=lambda pair: -pair[1]):
        if above in places and below in places:
            (x1, y1), (x2, y2) = places[above], places[below]
            a, b, c, d = x1 + WIDTH / 2, y1 + HEIGHT, x2 + WIDTH / 2, y2
            middle = (b + d) / 2
            path = f"M{a:.0f} {b:.0f} C{a:.0f} {middle:.0f} {c:.0f} {middle:.0f} {c:.0f} {d:.0f}"
            wide = min(4.0, 0.4 + count**0.5 / 4)
            out.append(
                f'<path d="{path}" fill="none" stroke="var(--c0)" stroke-opacity=".22" stroke-width="{wide:.1f}">'
                f"<title>{above} imports {below} {count} times</title></path>"
            )
    for part, (x, y) in places.items():
        out.append(
            f'<g transform="translate({x:.0f} {y:.0f})" text-anchor="middle" fill="var(--ink)">'
            f'<rect width="{WIDTH}" height="{HEIGHT}" rx="6" fill="var(--paper)" stroke="var(--muted)"/>'
            f'<text x="{WIDTH / 2}" y="25" font-size="16" font-weight="600">{part}</text>'
            f'<text x="{WIDTH / 2}" y="43" font-size="11">{html.escape(PURPOSE.get(part, ""))}</text>'
            f'<text x="{WIDTH / 2}" y="56" font-size="10" fill="var(--muted)">{lines[part]:,} lines</text></g>'
        )
    return "\n".join([*out, "</svg>", ""])
