"""``fedrank privacy attack links``."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

from cyclopts import Parameter

from fedrank.cli.terminal import AsJson, headline, print_json, say, table
from fedrank_zoo.linking import MODES, LinkAttack


def links(
    *,
    settings: Annotated[LinkAttack, Parameter(name="*")] = LinkAttack(),
    as_json: AsJson = False,
) -> None:
    """Attack a hub's devices: which reports are of one device? Real devices, hub and relay on this machine.

    The attacker has everything that reached the hub, and names for each report one of the round before.

    Args:
        settings: The attack.
    """
    import numpy as np

    from fedrank.core.lazy import require
    from fedrank_zoo.linking.world import attack, linking_sentence, observe

    require("sklearn", "The attack that learns how reports are linked", "sklearn")  # before devices report for minutes

    found = {
        mode: attack(observe(settings, mode), np.random.default_rng(settings.seed), settings.devices)
        for mode in settings.modes
    }
    sentence = linking_sentence(found)
    if as_json:
        linked = {mode: [asdict(one) for one in all_] for mode, all_ in found.items()}
        print_json({"sentence": str(sentence), **asdict(settings), "linked": linked})
        return
    numbers = ("right \\[95 %]", "chance")
    title = f"{settings.devices} devices, {settings.rounds} rounds"
    shown = table("the attacker looks at", *numbers, numbers=numbers, title=title)
    for mode, all_ in found.items():
        shown.add_section()
        shown.add_row(f"[bold]{mode}[/bold]: {MODES[mode]}")
        for one in all_:
            right = f"{100 * one.right:.1f} % \\[{100 * one.low:.1f}, {100 * one.high:.1f}]"
            shown.add_row(one.attack, right, f"{100 * one.chance:.1f} %")
    say(headline(sentence), shown)
