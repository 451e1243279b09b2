"""Diagrams: a round in general, what makes a perturbation, who can see what."""

from __future__ import annotations

from pictures.drawing import COLOURS, MUTED, RULE, arrow, box, dot, line, lines, svg, text


def exchange() -> str:
    """Ask, answer and tell between a server and one of its parties."""
    parts = [
        box(10, 50, 210, 190),
        text(115, 76, "server", size=16, bold=True, anchor="middle"),
        text(115, 98, "has: the state", anchor="middle", fill=MUTED),
        text(28, 138, "ask(state)", mono=True),
        text(28, 212, "tell(state, replies)", mono=True),
        box(540, 20, 250, 250, stroke=COLOURS[1]),
        text(665, 46, "one party", size=16, bold=True, anchor="middle"),
        text(665, 68, "has: its own data", anchor="middle", fill=MUTED),
        box(558, 84, 214, 74, fill="none"),
        text(665, 106, "answer(request, data, key)", anchor="middle", mono=True),
        *(
            lines(
                665,
                126,
                ["the only code that sees the data;", "privatises before it replies"],
                size=12,
                anchor="middle",
                fill=MUTED,
            ),
        ),
        line(558, 176, 772, 176, dash="4 4", stroke=MUTED),
        lines(
            665,
            200,
            ["queries, documents, clicks,", "rows, texts: no message type", "has a field for them"],
            anchor="middle",
            fill=MUTED,
        ),
        arrow(222, 133, 536, 133, width=2.2),
        text(379, 122, "Request: a declared type", anchor="middle"),
        arrow(536, 207, 222, 207, stroke=COLOURS[1], width=2.2),
        text(379, 196, "Reply: a declared type", anchor="middle"),
        box(284, 240, 190, 50),
        text(379, 261, "ledger", size=14, bold=True, anchor="middle"),
        text(379, 279, "counts both, byte by byte", size=12, anchor="middle", fill=MUTED),
        line(379, 210, 379, 240, stroke=MUTED, dash="3 3"),
    ]
    return svg(800, 300, parts)


def perturbation(seed: int = 7, shown: int = 24) -> str:
    """A seed becomes the same vector at the device and at the server."""
    from fedrank.core import rng

    halves, values = rng.perturbation_halves(seed, shown), rng.perturbation(seed, shown)
    parts = []
    for top, who, what in ((16, "the device", "draws the seed"), (176, "the server", "is sent the seed")):
        parts += [
            box(10, top, 150, 130),
            text(85, top + 30, who, size=15, bold=True, anchor="middle"),
            text(85, top + 50, what, size=12, anchor="middle", fill=MUTED),
            text(85, top + 86, f"0x{seed:08x}", size=15, anchor="middle", mono=True),
            text(85, top + 110, "4 bytes", size=12, anchor="middle", fill=MUTED),
            arrow(164, top + 65, 212, top + 65, stroke=MUTED),
            box(216, top + 12, 150, 106, fill="none", stroke=RULE),
            text(291, top + 34, "Threefry-2x32-20", size=13, bold=True, anchor="middle"),
            *(
                text(
                    291,
                    top + 56 + 18 * i,
                    " ".join(f"{half:04x}" for half in halves[3 * i : 3 * i + 3]),
                    anchor="middle",
                    mono=True,
                )
                for i in range(3)
            ),
            text(291, top + 110, "16-bit numbers", size=11, anchor="middle", fill=MUTED),
            arrow(370, top + 65, 418, top + 65, stroke=MUTED),
        ]
        middle = top + 65
        parts.append(line(426, middle, 790, middle, stroke=MUTED))
        for i, value in enumerate(values):
            x, high = 430 + 15 * i, 20.0 * float(value)
            y = middle - max(high, 0)
            fill = COLOURS[0 if value > 0 else 1]
            parts.append(f'<rect x="{x}" y="{y:.1f}" width="10" height="{abs(high):.1f}" fill="{fill}"/>')
    parts.append(text(610, 164, "the same numbers, to the bit", anchor="middle", bold=True))
    return svg(800, 316, parts)


def observers() -> str:
    """What reaches whom on the way from a user to a hub."""
    columns = ("the device", "the network,\na proxy", "the hub", "whoever gets\nthe model")
    rows = (
        ("queries, documents, clicks", (1, 0, 0, 0)),
        ("true rewards", (1, 0, 0, 0)),
        ("seed and one privatised number", (1, 0, 1, 0)),
        ("which device, by a pseudonym", (1, 0, 1, 0)),
        ("address and time of requests", (1, 1, 2, 0)),
        ("the model", (1, 0, 1, 1)),
    )
    left, wide, high, top = 236, 140, 40, 62
    parts = []
    for j, name in enumerate(columns):
        words = name.split("\n")
        parts.append(
            lines(left + wide * (j + 0.5), 46 - 16 * len(words) / 2, words, anchor="middle", bold=True, step=16)
        )
    for i, (what, seen) in enumerate(rows):
        y = top + high * i
        parts += [line(8, y, left + 4 * wide, y), text(8, y + 25, what)]
        for j, how in enumerate(seen):
            x = left + wide * (j + 0.5)
            if how == 1:
                parts.append(dot(x, y + 20, radius=7))
            elif how == 2:
                parts += [dot(x, y + 20, radius=7, fill=COLOURS[1])]
    bottom = top + high * len(rows)
    parts += [
        line(8, bottom, left + 4 * wide, bottom),
        dot(16, bottom + 24, radius=6),
        text(30, bottom + 28, "sees it", size=12),
        dot(116, bottom + 24, radius=6, fill=COLOURS[1]),
        text(130, bottom + 28, "arrives and is not written down; the number of the round is", size=12),
    ]
    return svg(left + 4 * wide + 8, bottom + 40, parts)


def streams() -> str:
    """Which random numbers come from the seed that is sent: as published, and here."""
    parts = []
    for x, title, shared in ((8, "as published", True), (412, "here", False)):
        parts += [
            text(x + 4, 22, title, size=15, bold=True),
            box(x, 64, 120, 56, stroke=COLOURS[0]),
            text(x + 60, 88, "seed", size=14, bold=True, anchor="middle"),
            text(x + 60, 107, "sent to the server", size=11, anchor="middle", fill=MUTED),
        ]
        if not shared:
            parts += [
                box(x, 156, 120, 56),
                text(x + 60, 180, "device’s own", size=14, bold=True, anchor="middle"),
                text(x + 60, 199, "never leaves", size=11, anchor="middle", fill=MUTED),
            ]
        for i, use in enumerate(("perturbation v", "queries", "clicks")):
            y = 62 + 52 * i
            parts += [box(x + 210, y, 168, 36, fill="none"), text(x + 294, y + 23, use, anchor="middle")]
            own = not shared and i > 0
            stroke = MUTED if own else COLOURS[1] if shared and i > 0 else COLOURS[0]
            parts.append(arrow(x + 122, 184 if own else 92, x + 206, y + 18, stroke=stroke))
    return svg(800, 244, parts)


def model_file() -> str:
    """What a model's file holds, and what can be made of it."""
    parts = [
        box(10, 20, 300, 250, stroke=COLOURS[0]),
        text(160, 50, "ranker.safetensors", size=17, bold=True, anchor="middle"),
        lines(
            40,
            90,
            [
                "weights and architecture",
                "names of features",
                "normalisation",
                "where it comes from",
                "privacy: ε by unit",
            ],
            size=16,
            step=32,
        ),
    ]
    for i, (name, what) in enumerate(
        (
            ("load(…).score(X)", "the same scores, to the bit"),
            (".onnx", "other runtimes"),
            ("fedrank rank", "a TREC run"),
        )
    ):
        y = 20 + 90 * i
        parts += [
            box(430, y, 270, 70),
            text(565, y + 30, name, size=16, bold=True, anchor="middle"),
            text(565, y + 54, what, size=14, anchor="middle", fill=MUTED),
            arrow(314, 145, 426, y + 35, stroke=MUTED),
        ]
    return svg(710, 290, parts)
