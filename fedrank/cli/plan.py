"""``fedrank privacy plan``: what devices can learn under a promise for a user's whole life, and in how long.

Its page shows how good a ranker the devices make, how long it takes, and what more of them would give.
"""

from __future__ import annotations

import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from fedrank.cli.report import drawn
from fedrank.cli.terminal import AsJson, Quiet, headline, print_json, say
from fedrank.ranking import plan as planning
from fedrank.ranking.plan import Need, Plan, command_of, rows
from fedrank.report import claims
from fedrank.report.claims import Measured, Named, Number, Opening
from fedrank.report.figures import Level, levels_figure
from fedrank.report.page import write_findings_page
from fedrank.report.statistics import Interval
from fedrank.report.tables import Column, Table

_CHART = "plan"


def plan_opening(made: Plan) -> Opening:
    """Title, sentence and numbers of the page."""
    need, best = made.need, made.best
    ours, twice = (Measured(Interval(one.mean, one.low, one.high), made.measure, 4) for one in (best, made.twice))
    share = Named(f"{100 * best.mean / made.without.mean:.1f} %")
    years = f" (about {best.days / 365:.0f} years)" if best.days >= 730 else ""
    who = f"In {best.days:,.0f} days{years} {need.devices:,} devices train a ranker that keeps "
    worth = claims.say(" of the quality that it has without privacy (", Named(made.measure), " ", ours)
    start = claims.say("; before training it has ", Measured(made.untrained, made.measure, 4))
    sentence = claims.say(who, share, worth, start, f", simulated on {_data(need)}).")
    numbers = (
        Number(made.measure, ours, f"95 % of runs: {best.low:.4f} to {best.high:.4f}"),
        Number("Days", Named(f"{best.days:,.0f}"), f"{best.choice.rounds} rounds of {best.choice.clients:,} devices"),
        Number("Searches behind a message", Named(f"{best.choice.interactions}"), f"{need.searches:g} searches a day"),
        Number("With twice the devices", twice, f"{made.twice.low:.4f} to {made.twice.high:.4f}"),
    )
    said = f"before training: {made.untrained:.4f}; " + "; ".join(
        f"{_name(name, one)}: {one.mean:.4f}" for name, one in rows(made)
    )
    return Opening(
        f"A plan for ε = {need.epsilon:g} of a user's whole life",
        sentence,
        numbers,
        _CHART,
        said,
        ("simulate it at full size:", command_of(made)),
    )


def _name(name: str, one: Any) -> str:
    c = one.choice
    what = f"{one.days:,.0f} days: {c.rounds} × {c.clients:,} devices, {c.interactions} searches"
    return f"{what} (taken)" if name == "taken" else name or what


def chart(made: Plan) -> Any:
    """The quality of every choice, with the interval of one further run."""
    levels = [Level(_name(name, one), one.mean, one.low, one.high, name != "no privacy") for name, one in rows(made)]
    said = [f"{made.measure}, last round", "95 % intervals of one further run"]
    return levels_figure(levels, "What the ranker will be worth", said, digits=4)


def table(made: Plan) -> Table:
    """The table of the page: a row for each choice."""
    columns = (
        Column("name", ""),
        Column("days", "days", numeric=True, digits=0),
        Column("rounds", "rounds", numeric=True),
        Column("clients", "devices a round", numeric=True),
        Column("interactions", "searches a message", numeric=True),
        Column("epsilon_message", "ε of a message", numeric=True, digits=3),
        Column("mean", made.measure, numeric=True, digits=4),
        Column("low", "low", numeric=True, digits=4),
        Column("high", "high", numeric=True, digits=4),
        Column("simulated_devices", "devices simulated", numeric=True),
    )
    found = tuple({"name": name, **one.as_json(made.need)} for name, one in rows(made))
    notes = (
        "Low and high: where one further run lies with 95 % probability.",
        "More devices than are simulated are stood for by fewer with a larger ε and the same noise.",
    )
    return Table("What was simulated", columns, found, notes)


def write_page(made: Plan, file: str | os.PathLike[str]) -> Path:
    """Write the page.

    Args:
        made: The plan.
        file: Where.

    Returns:
        The file.
    """
    need = made.need
    about = f"fedrank privacy plan · {need.devices:,} devices, {need.searches:g} searches a day, ε = {need.epsilon:g}"
    caveats = (f"Simulated users, {_data(need)}", "Other data learns faster or slower")
    words = [
        f"Rounds follow each other, each as long as a user takes for the searches of a message: {made.best.days:,.0f} "
        "days if no device is ever offline.",
        f"At full size: {command_of(made)}",
    ]
    top, command = plan_opening(made), "fedrank privacy plan"
    return write_findings_page(file, top, about, caveats, chart(made), table(made), words, command)


def _data(need: Need) -> str:
    return "generated data" if need.data == "generated" else need.data


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
        write_page(made, out)
    sentence = plan_opening(made).sentence
    if as_json:
        found = [{"name": name, **one.as_json(need)} for name, one in planning.rows(made)]
        print_json({
            "sentence": str(sentence), **asdict(need), "measure": made.measure, "untrained": made.untrained,
            "predictions": found, "command": planning.command_of(made),
        })  # fmt: skip
        return
    shown = table(made)
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
