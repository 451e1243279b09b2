"""``fedrank privacy plan``: what devices can learn under a promise for a user's whole life, and in how long."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from fedrank.cli.report import drawn
from fedrank.cli.terminal import AsJson, Quiet, headline, print_json, say
from fedrank.ranking import plan as planning
from fedrank.ranking.report import plan as page


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
        page.write_page(made, out)
    sentence = page.plan_opening(made).sentence
    if as_json:
        found = [{"name": name, **one.as_json(need)} for name, one in planning.rows(made)]
        print_json({
            "sentence": str(sentence), **asdict(need), "measure": made.measure, "untrained": made.untrained,
            "predictions": found, "command": planning.command_of(made),
        })  # fmt: skip
        return
    shown = page.table(made)
    trust = need.way.says + (f"; δ = {need.delta:g}" if need.way.delta else "")
    say(
        headline(sentence),
        f"{need.devices:,} devices, {need.searches:g} searches a day, ε = {need.epsilon:g} over a user's life",
        drawn(shown, ["name", "days", "rounds", "clients", "interactions", "mean", "low", "high"]),
        f"{made.measure}: on the training queries of {need.data}; {made.untrained:.4f} before training. The promise: "
        f"{trust}; ε of {need.way.message} is {made.best.epsilon_message:.3g}. Rounds follow each other; the days are "
        "those of devices that are never offline.",
        *shown.notes,
        f"At full size: {planning.command_of(made)}",
        page=out,
    )
