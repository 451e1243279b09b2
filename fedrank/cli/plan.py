"""``fedrank privacy plan``: what devices can learn under a promise for a user's whole life, and in how long."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from fedrank.cli.terminal import AsJson, Quiet, print_json, say, table
from fedrank.ranking import plan as planning


def plan(
    *,
    need: Annotated[planning.Need, Parameter(name="*")] = planning.Need(),
    out: Path | None = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Plan training with the devices there are: rounds, devices a round, searches a message; quality and duration.

    Each choice is simulated (FOLtR-ES, one privatised bit a message; with a secure sum FPDGD): seconds each, minutes
    for a plan.

    Args:
        need: The devices, data and privacy.
        out: Also write a page with a figure there, such as plan.html.
    """
    number = len(planning.choices(need)) + 3

    def hear(said: str) -> None:
        nonlocal number
        if not quiet:
            print(f"simulating {said} ({number} to go) …", file=sys.stderr)
        number -= 1

    made = planning.plan(need, hear)
    if out is not None:
        from fedrank.ranking.report.plan import write_page

        write_page(made, out)
    if as_json:
        found = [{"name": name, **one.as_json(need)} for name, one in planning.rows(made)]
        print_json({
            **asdict(need), "measure": made.measure, "untrained": made.untrained,
            "predictions": found, "command": planning.command_of(made),
        })  # fmt: skip
        return
    numbers = ("days", "rounds", "devices", "searches", made.measure.split()[1])
    title = f"{need.devices:,} devices, {need.searches:g} searches a day, ε = {need.epsilon:g} over a user's life"
    shown = table(*numbers, "95 % of runs", "", numbers=numbers, title=title)
    for name, one in planning.rows(made):
        c = one.choice
        if name == "best, other seeds":
            shown.add_section()
        cells = (f"{one.days:,.0f}", f"{c.rounds}", f"{c.clients:,}", f"{c.interactions}", f"{one.mean:.4f}")
        shown.add_row(*cells, f"{one.low:.4f} to {one.high:.4f}", name)
    trust = need.way.says + (f"; δ = {need.delta:g}" if need.way.delta else "")
    say(
        shown,
        f"Devices: of a round. Searches: behind a message. {made.measure}: on the training queries of {need.data}; "
        f"{made.untrained:.4f} before training. The promise: {trust}; ε of {need.way.message} is "
        f"{made.best.epsilon_message:.3g}. Rounds follow each other; the days are those of devices that are never "
        "offline.",
    )
    print(f"At full size: {planning.command_of(made)}")
    if out is not None:
        print(f"page: {out}")
