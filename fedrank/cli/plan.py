"""``fedrank plan``: what a number of devices can learn under a promise for a user's whole life, and in how long."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Literal

from fedrank.cli.terminal import AsJson, Quiet, print_json
from fedrank.core.privacy_report import DELTA


def plan(
    *,
    devices: int = 100_000,
    searches: float = 4.0,
    epsilon: float = 1.0,
    trust: Literal["nobody", "channel", "secure-sum"] = "nobody",
    delta: float = DELTA,
    participations: int = 1,
    data: str = "generated",
    fold: int = 1,
    clicks: str = "navigational",
    ranker: str = "linear",
    seeds: int = 5,
    seed: int = 0,
    out: Path | None = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Plan training with the devices there are: rounds, devices a round, searches a message; quality and duration.

    Each choice is simulated (FOLtR-ES, one privatised bit a message; with a secure sum FPDGD): seconds each, minutes
    for a plan.

    Args:
        devices: Devices there are.
        searches: Searches of one device's user a day.
        epsilon: ε of all that a user does, over all of training.
        trust: Whom one has to trust: nobody; a channel, not to tell whose a message is; a secure sum, which shows the
            server nothing but a round's sum. With the last two ε holds at delta.
        delta: δ, with a channel or a secure sum.
        participations: Most rounds that a device takes part in.
        data: Data that is nearest to yours: a name or a path.
        fold: Its fold.
        clicks: Click model of the simulated users.
        ranker: The ranker.
        seeds: Runs of each choice.
        seed: The first of them.
        out: Also write a page with a figure there, such as plan.html.
        quiet: No progress.
        as_json: Print JSON instead of a table.
    """
    from fedrank.ranking import plan as planning

    need = planning.Need(
        devices=devices,
        searches=searches,
        epsilon=epsilon,
        trust=trust,
        delta=delta,
        participations=participations,
        data=data,
        fold=fold,
        clicks=clicks,
        ranker=ranker,
        seeds=seeds,
        seed=seed,
    )
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
    _print(made, out)


def _print(made, out: Path | None) -> None:
    from fedrank.cli.console import Console
    from fedrank.cli.terminal import table
    from fedrank.ranking.plan import command_of, rows

    need = made.need
    numbers = ("days", "rounds", "devices", "searches", made.measure.split()[1])
    shown = table(
        *numbers, "95 % of runs", "", numbers=numbers,
        title=f"{need.devices:,} devices, {need.searches:g} searches a day, ε = {need.epsilon:g} over a user's life",
    )  # fmt: skip
    for name, one in rows(made):
        c = one.choice
        if name == "best, other seeds":
            shown.add_section()
        cells = (f"{one.days:,.0f}", f"{c.rounds}", f"{c.clients:,}", f"{c.interactions}", f"{one.mean:.4f}")
        shown.add_row(*cells, f"{one.low:.4f} to {one.high:.4f}", name)
    console = Console()
    console.print(shown)
    best = made.best
    trust = need.way.says + (f"; δ = {need.delta:g}" if need.way.delta else "")
    console.print(
        f"Devices: of a round. Searches: behind a message. {made.measure}: on the training queries of {need.data}; "
        f"{made.untrained:.4f} before training. The promise: {trust}; ε of {need.way.message} is "
        f"{best.epsilon_message:.3g}. Rounds follow each other; the days are those of devices that are never offline.",
        highlight=False,
    )
    console.print(f"At full size: {command_of(made)}", highlight=False, soft_wrap=True)
    if out is not None:
        console.print(f"page: {out}", highlight=False)
