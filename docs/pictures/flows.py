"""Who sends what to whom: the exchanges of a protocol, drawn from its own declarations."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from pictures.drawing import COLOURS, INK, MUTED, RULE, arrow, box, line, size, svg, text

#: The exchange's name stands left of the server; a message takes a row.
LEFT, SERVER, PARTY, WIDTH = 12, 168, 700, 800
ROW, GAP, HEAD = 40, 12, 44
#: Longer descriptions of a message leave the shapes of its fields out.
LONGEST = 56


def flow(server: str, party: str, groups: Sequence[tuple[str, Sequence[Any]]]) -> str:
    """Exchanges below each other: the question to one party, and its answer.

    Args:
        server: What the server is called.
        party: What a party is called.
        groups: A heading, such as when they take place, and exchanges, for each group.
    """
    rows, y = [], HEAD + 22
    for heading, exchanges in groups:
        rows.append(text(LEFT, y + 4, heading, size=12, fill=MUTED))
        y += 16
        for one in exchanges:
            rows.append(text(LEFT, y + 24, one.name, size=14, bold=True))
            for layout, there in ((one.request, True), (one.reply, False)):
                rows.append(_message(layout, there, y + 24))
                y += ROW
            rows.append(line(LEFT, y + 6, WIDTH - LEFT, y + 6))
            y += GAP
        y += 18
    bottom = y - 18
    lives = [
        line(x, HEAD, x, bottom, stroke=RULE, width=2)
        + box(x - 75, 6, 150, HEAD - 10)
        + text(x, 29, name, size=14, bold=True, anchor="middle")
        for x, name in ((SERVER, server), (PARTY, party))
    ]
    return svg(WIDTH, bottom + 6, [*lives, *rows])


def _message(layout: Any, there: bool, y: float) -> str:
    """One arrow: the message's name, its bytes, its fields; the wider the more bytes."""
    colour = COLOURS[0] if there else COLOURS[1]
    ends = (SERVER + 4, PARTY - 4) if there else (PARTY - 4, SERVER + 4)
    wide = 1.2 + 0.75 * math.log10(max(1, layout.nbytes))
    fields = ", ".join(one.name + _shape(one) for one in layout.fields)
    if len(layout.name + fields) > LONGEST:
        fields = ", ".join(one.name for one in layout.fields)
    words = f"{layout.name}: {fields}" if fields else layout.name
    return (
        text(SERVER + 16, y - 7, words, size=12.5, fill=INK)
        + text(PARTY - 16, y - 7, size(layout.nbytes), size=12.5, fill=INK, anchor="end", bold=True)
        + arrow(ends[0], y, ends[1], y, stroke=colour, width=wide)
    )


def _shape(field: Any) -> str:
    """The lengths of a field's axes, such as ``[350 × 4,096]``; nothing for a single number."""
    return f"[{' × '.join(f'{length:,}' for _, length in field.axes)}]" if field.axes else ""
