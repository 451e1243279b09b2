"""``fedrank attack``: what privacy that is promised is worth against an attacker, in numbers."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from fedrank.cli.silo_tables import LabelledColumns, table_of
from fedrank.cli.terminal import AsJson, print_json
from fedrank.deploy.linking import LinkAttack
from fedrank.silos.attacks.settings import MODES as RECORD_MODES
from fedrank.silos.attacks.settings import RecordAttack
from fedrank.slates.attacks.settings import MODES, SlateAttack
from fedrank.texts.attacks.settings import DocumentAttack, SketchAttack

if TYPE_CHECKING:
    import rich.console

app = App(
    name="attack",
    help="Attack what is promised to be private, and print measured beside promised.",
    default_parameter=Parameter(consume_multiple=1, negative=""),
)


@app.command
def sketch(
    *,
    settings: Annotated[SketchAttack, Parameter(name="*")] = SketchAttack(),  # noqa: B008 - frozen
    out: Path | None = None,
    as_json: AsJson = False,
) -> None:
    """Attack sketches of documents and questions about them, on generated documents.

    Documents: is one more occurrence of a word in it; can the noise be taken off; does it average out. Questions: which
    term is it; which positions are its own.

    Args:
        settings: The attack.
        out: Also write a page there, such as attack.html.
        as_json: Print JSON instead of a table.
    """
    from fedrank.texts.attacks.suite import attack_sketches

    found = attack_sketches(settings)
    if out is not None:
        from fedrank.texts.attacks.page import write_page

        write_page(found, settings, out)
    s = settings
    asked, own = (s.z1, f"z₁ = {s.z1}") if s.asks else (None, "")
    if as_json:
        print_json({**asdict(settings), "z1": asked, "findings": [one.as_json() for one in found]})
        return

    from fedrank.cli.console import Console
    from fedrank.cli.terminal import table

    shown = table(
        "attack",
        "mode",
        "measure",
        "measured \\[99 %]",
        "promised",
        "verdict",
        numbers=("promised",),
        title=", ".join(part for part in (f"z = {s.z}", f"w = {s.w}", own, f"ε = {s.epsilon:g}") if part),
    )
    for one in found:
        verdict = "[red]broken[/red]" if one.broken else "[green]holds[/green]"
        shown.add_row(
            one.attack,
            one.mode,
            one.measure,
            f"{one.measured:.3g} \\[{one.low:.3g}, {one.high:.3g}]",
            f"{one.promised:.3g}",
            f"{verdict} (control)" if one.control else verdict,
        )
    console = Console()
    console.print(shown)
    console.print(
        "Simulated noise, seeded. Controls are no modes: each lacks a part that its mode has.", highlight=False
    )
    for one in found:
        console.print(f"{one.attack}, {one.mode}: {one.words}.", highlight=False, markup=False)
    if "publish-once" in settings.modes:
        console.print("publish-once: no question leaves the querier, so there is no term to find.", highlight=False)
    _say_page(console, out)


@app.command
def documents(
    collection: str,
    /,
    *,
    settings: Annotated[DocumentAttack, Parameter(name="*")] = DocumentAttack(),  # noqa: B008 - frozen
    out: Path | None = None,
    as_json: AsJson = False,
) -> None:
    """Attack the documents of a collection: who reads their words, and is a given text there?

    Sketches of a run, as its mode shows them, read by another owner and by the server; the statistics of a search that
    is served, read by an owner; its scores, read by an asker who asks about one document as often as he may.

    Args:
        collection: Name of a collection of texts, or a folder.
        settings: The attack.
        out: Also write a page there, such as attack.html.
        as_json: Print JSON instead of a table.
    """
    from fedrank.texts.attacks.served import attack_documents

    found = attack_documents(collection, settings)
    if out is not None:
        from fedrank.texts.attacks.page import write_documents_page

        write_documents_page(found, collection, settings, out)
    if as_json:
        print_json({"collection": collection, **asdict(settings), "findings": [one.as_json() for one in found]})
        return

    from fedrank.cli.console import Console
    from fedrank.cli.terminal import table

    columns = ("attack", "on", "measure", "measured \\[99 %]", "limit", "verdict")
    shown = table(*columns, numbers=("limit",), title=f"{collection}, {settings.owners} owners")
    for one in found:
        bad = "readable" if one.measure == "words read" else "found"
        shown.add_row(
            one.attack,
            one.mode,
            one.measure,
            f"{one.measured:.3g} \\[{one.low:.3g}, {one.high:.3g}]",
            f"{one.promised:.3g}",
            f"[red]{bad}[/red]" if one.broken else f"[green]not {bad}[/green]",
        )
    console = Console()
    console.print(shown)
    console.print(
        "Words read: those that a guess does not name. AUC: 0.5 is chance. Simulated noise, seeded.", highlight=False
    )
    for one in found:
        console.print(f"{one.attack}, {one.mode}: {one.words}.", highlight=False, markup=False)
    _say_page(console, out)


@app.command
def slates(
    *,
    settings: Annotated[SlateAttack, Parameter(name="*")] = SlateAttack(),  # noqa: B008 - frozen
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
        as_json: Print JSON instead of a table.
    """
    from fedrank.slates.attacks.suite import attack_slates

    told = not as_json and sys.stderr.isatty()
    found = attack_slates(settings, lambda line: print(f"{line} …", file=sys.stderr) if told else None)
    if out is not None:
        from fedrank.slates.attacks.page import write_page

        write_page(found, settings, out)
    if as_json:
        print_json({**asdict(settings), "leaks": [one.as_json() for one in found]})
        return

    from fedrank.cli.console import Console

    console, s = Console(), settings
    title = f"N = {s.candidates}, n = {s.slate}, K = {s.platforms}, {s.seeds} seeds"
    values, sums = ([one for one in found if one.of_sums is which] for which in (False, True))
    if values:
        _print_values(console, values, f"{title} of {s.episodes} users")
    if sums:
        _print_sums(console, sums, ", ".join((title, f"{s.targets} users attacked", *s.set)))
    shown = {one.mode.split(",")[0] for one in found}
    said = "".join(f"{name}: {meaning}.\n" for name, meaning in MODES.items() if name in shown)
    console.print(said, highlight=False, markup=False)
    _say_page(console, out)


def _print_values(console: rich.console.Console, found: Sequence[Any], title: str) -> None:
    """Print the results of attacks on values, targets and gradients."""
    from fedrank.cli.terminal import table

    columns = ("by", "R² \\[95 %]", "rank", "error (blind)", "exact")
    shown, heading = table(*columns, numbers=columns[1:], title=title), ""
    for one in found:
        heading = _add_heading(shown, heading, one)
        m = one.measures
        told = "r2" in m
        shown.add_row(
            one.means,
            _interval(m["r2"]) if told else "",
            f"{m['rank'].mean:.3f}" if told else "",
            f"{m['error'].mean:.3g} ({m['blind'].mean:.3g})" if told else f"(guess: {100 * m['blind'].mean:.1f} %)",
            f"{100 * m['exact'].mean:.1f} %",
        )
    console.print(shown)
    console.print(
        "R² and rank correlation: 1 is everything. Error: mean absolute. Exact: right to a part in a hundred.",
        highlight=False,
    )


def _print_sums(console: rich.console.Console, found: Sequence[Any], title: str) -> None:
    """Print the results of attacks on sums over users."""
    from fedrank.cli.terminal import table

    columns = ("by", "found \\[95 %]", "best attacker", "ε allows")
    shown, heading = table(*columns, numbers=columns[1:], title=title), ""
    for one in found:
        heading = _add_heading(shown, heading, one)
        m = one.measures
        measured = f"R² {_interval(m['r2'])}" if "r2" in m else f"advantage {_interval(m['advantage'])}"
        best = f"{m['ceiling'].mean:.3f}" if "ceiling" in m else ""
        shown.add_row(one.means, measured, best, f"{m['bound'].mean:.3f}" if "bound" in m else "")
    console.print(shown)
    console.print(
        "Engagement: the mean logarithm over a stay; R² 1 is everything, 0 a blind guess. Advantage: true less false "
        "positives, 1 is certainty. Others known: what each other user added, at all platforms.",
        highlight=False,
    )


def _add_heading(shown: Any, before: str, one: Any) -> str:
    """The heading of a finding, which a table gets where it is not the one before."""
    if before != (heading := f"{one.mode}: {one.attacker} looks for {one.secret}"):
        shown.add_section()
        shown.add_row(f"[bold]{heading}[/bold]")
    return heading


def _interval(found: Any) -> str:
    return f"{found.mean:.3f} \\[{found.low:.3f}, {found.high:.3f}]"


@app.command
def records(
    data: str,
    /,
    *,
    of: str = "",
    meaning: Annotated[LabelledColumns, Parameter(name="*")] = LabelledColumns(),  # noqa: B008 - frozen
    range_: Annotated[tuple[str, ...], Parameter(name="--range")] = (),
    clip: float | None = None,
    settings: Annotated[RecordAttack, Parameter(name="*")] = RecordAttack(),  # noqa: B008 - frozen
    as_json: AsJson = False,
) -> None:
    """Attack what a silo sends: was a record among its rows? Membership inference by shadow models (LiRA).

    Args:
        data: A CSV or parquet file with a column for the silo; or the name of a set (fedrank data list).
        of: The silo that is attacked, by name; without it the first.
        meaning: What the columns mean.
        range_: Public range of a column, such as age=0:110; without ranges nothing with noise is attacked.
        clip: Largest length of a row, in half ranges.
        settings: The attack.
        as_json: Print JSON instead of a table.
    """
    from fedrank.silos.attacks.membership import attack_records
    from fedrank.silos.records.ranges import parse_ranges, ranges_of
    from fedrank.silos.sceptic.learners import rows_of

    silos = table_of(data, meaning)
    number = silos.index(of) if of else 0
    ranges = ranges_of(silos.feature_names, parse_ranges(range_), clip) if range_ else None
    found = attack_records(rows_of(silos)[number], ranges, settings)
    if as_json:
        told = {"data": silos.name, "of": silos.names[number], **asdict(settings)}
        print_json({**told, "findings": [one.as_json() for one in found]})
        return

    from fedrank.cli.console import Console
    from fedrank.cli.terminal import table

    columns = ("what is sent", "ε", "AUC of the attack \\[99 %]", "named, of 5 % wrong", "largest AUC that ε allows")
    title = f"{silos.names[number]}, {silos.silos[number].n_rows:,} rows"
    shown = table(*columns, numbers=columns[1:], whole=("what is sent",), title=title)
    for one in found:
        told = f"{one.auc:.3f} \\[{one.low:.3f}, {one.high:.3f}]"
        bad = "red" if one.broken else "green"
        epsilon, most = ("–", "–") if one.epsilon is None else (f"{one.epsilon:g}", f"{one.most:.3f}")
        shown.add_row(one.mode, epsilon, f"[{bad}]{told}[/{bad}]", f"{100 * one.found:.1f} %", most)
    console = Console()
    console.print(shown)
    console.print("".join(f"{m}: {RECORD_MODES[m]}.\n" for m in settings.modes), highlight=False, markup=False)
    console.print("0.5 is chance. Simulated noise, seeded.", highlight=False)


@app.command
def links(
    *,
    settings: Annotated[LinkAttack, Parameter(name="*")] = LinkAttack(),  # noqa: B008 - frozen
    as_json: AsJson = False,
) -> None:
    """Attack a hub's devices: which reports are of one device? Real devices, hub and relay on this machine.

    The attacker has everything that reached the hub, and names for each report one of the round before.

    Args:
        settings: The attack.
        as_json: Print JSON instead of a table.
    """
    import numpy as np

    from fedrank.deploy.linking import MODES
    from fedrank.deploy.linking.world import attack, observe

    found = {}
    for mode in settings.modes:
        found[mode] = attack(observe(settings, mode), np.random.default_rng(settings.seed), settings.devices)
    if as_json:
        print_json(
            {**asdict(settings), "linked": {mode: [asdict(one) for one in all_] for mode, all_ in found.items()}}
        )
        return

    from fedrank.cli.console import Console
    from fedrank.cli.terminal import table

    title = f"{settings.devices} devices, {settings.rounds} rounds"
    shown = table(
        "the attacker looks at", "right \\[95 %]", "chance", numbers=("right \\[95 %]", "chance"), title=title
    )
    for mode, all_ in found.items():
        shown.add_section()
        shown.add_row(f"[bold]{mode}[/bold]: {MODES[mode]}")
        for one in all_:
            right = f"{100 * one.right:.1f} % \\[{100 * one.low:.1f}, {100 * one.high:.1f}]"
            shown.add_row(one.attack, right, f"{100 * one.chance:.1f} %")
    Console().print(shown)


def _say_page(console: rich.console.Console, out: Path | None) -> None:
    """Say where the page is, if there is one."""
    if out is not None:
        console.print(f"page: {out}", soft_wrap=True, highlight=False)
