"""``fedrank privacy attack slates``."""

from __future__ import annotations

import math
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from fedrank.cli.terminal import AsJson, headline, print_json, say
from fedrank_zoo.slate_attacks.settings import MODES, SlateAttack


def slates(
    *,
    settings: Annotated[SlateAttack, Parameter(name="*")] = SlateAttack(),
    out: Path | None = None,
    as_json: AsJson = False,
) -> None:
    """Attack platforms that learn slates together: what do Q-values, targets, gradients and sums tell?

    By default A sees engagement, B does not. Networks are trained for some users, messages are recorded, and three
    attackers look at them: B for A's engagement, the coordinator for A's clicks and engagement, A for B's values.
    Where sums over users are sent, the coordinator and the first and last platform look for one user's engagement, and
    for whether that user was there.

    Args:
        settings: The attack.
        out: Also write a page there, such as attack.html.
    """
    from fedrank_zoo.slate_attacks.page import attack_opening, write_page
    from fedrank_zoo.slate_attacks.suite import attack_slates

    told = not as_json and sys.stderr.isatty()
    found = attack_slates(settings, lambda line: print(f"{line} …", file=sys.stderr) if told else None)
    if out is not None:
        write_page(found, settings, out)
    sentence = attack_opening(found, settings.seeds).sentence
    if as_json:
        print_json({"sentence": str(sentence), **asdict(settings), "leaks": [one.as_json() for one in found]})
        return

    s, shown = settings, {one.mode.split(",")[0] for one in found}
    say(
        headline(sentence),
        f"N = {s.candidates}, n = {s.slate}, K = {s.platforms}, {s.seeds} seeds" + "".join(f", {one}" for one in s.set),
        *(f"• {one.words}{_ends(one)}." for one in found),
        "R²: 1 is everything, 0 a blind guess. Advantage: true less false positives.",
        *(f"{name}: {meaning}." for name, meaning in MODES.items() if name in shown),
        page=out,
    )


def _ends(leak: Any) -> str:
    """The interval of what a leak is measured by, if it has one."""
    measured = leak.measures.get("r2") or leak.measures.get("advantage")
    if measured is None or not math.isfinite(measured.low):
        return ""
    return f"; 95 % interval {measured.low:.3f} to {measured.high:.3f}"
