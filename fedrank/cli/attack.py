"""``fedrank privacy attack``: what privacy that is promised is worth against an attacker, in numbers."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, Parameter

from fedrank.cli.silo_tables import LabelledColumns, Ranges, table_of
from fedrank.cli.terminal import AsJson, print_json, say, table
from fedrank.deploy.linking import MODES as LINK_MODES
from fedrank.deploy.linking import LinkAttack
from fedrank.silos.attacks.settings import MODES as RECORD_MODES
from fedrank.silos.attacks.settings import RecordAttack
from fedrank.slates.attacks.settings import MODES, SlateAttack
from fedrank.texts.attacks.settings import DocumentAttack, SketchAttack

app = App(
    name="attack",
    help="Attack what is promised to be private, and print measured beside promised.",
    default_parameter=Parameter(consume_multiple=1, negative=""),
)


@app.command
def sketch(
    *,
    settings: Annotated[SketchAttack, Parameter(name="*")] = SketchAttack(),
    out: Path | None = None,
    as_json: AsJson = False,
) -> None:
    """Attack sketches of documents and questions about them, on generated documents.

    Documents: is one more occurrence of a word in it; can the noise be taken off; does it average out. Questions: which
    term is it; which positions are its own.

    Args:
        settings: The attack.
        out: Also write a page there, such as attack.html.
    """
    from fedrank.texts.attacks.page import write_page
    from fedrank.texts.attacks.suite import attack_sketches

    found, s = attack_sketches(settings), settings
    if out is not None:
        write_page(found, settings, out)
    asked, own = (s.z1, [f"z₁ = {s.z1}"]) if s.asks else (None, [])
    if as_json:
        print_json({**asdict(settings), "z1": asked, "findings": [one.as_json() for one in found]})
        return
    title = ", ".join((f"z = {s.z}", f"w = {s.w}", *own, f"ε = {s.epsilon:g}"))
    words = ["Simulated noise, seeded. Controls are no modes: each lacks a part that its mode has."]
    if "publish-once" in s.modes:
        words.append("publish-once: no question leaves the querier, so there is no term to find.")
    _print_findings(found, ("mode", "promised"), ("broken", "holds"), title, words, out)


@app.command
def documents(
    collection: str,
    /,
    *,
    settings: Annotated[DocumentAttack, Parameter(name="*")] = DocumentAttack(),
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
    """
    from fedrank.texts.attacks.page import write_documents_page
    from fedrank.texts.attacks.served import attack_documents

    found = attack_documents(collection, settings)
    if out is not None:
        write_documents_page(found, collection, settings, out)
    if as_json:
        print_json({"collection": collection, **asdict(settings), "findings": [one.as_json() for one in found]})
        return
    words = ["Words read: those that a guess does not name. AUC: 0.5 is chance. Simulated noise, seeded."]
    title = f"{collection}, {settings.owners} owners"
    _print_findings(found, ("on", "limit"), ("succeeds", "fails"), title, words, out)


def _print_findings(
    found: Sequence[Any],
    columns: tuple[str, str],
    verdicts: tuple[str, str],
    title: str,
    words: Sequence[str],
    page: Path | None,
) -> None:
    """Print what attacks on texts found.

    Args:
        found: The findings.
        columns: What is attacked, and the number beside which a measured one stands.
        verdicts: Of an attack that finds more than that number, and of one that does not.
        title: Title of the table.
        words: Sentences below it.
        page: The page that was written.
    """
    on, limit = columns
    shown = table("attack", on, "measure", "measured \\[99 %]", limit, "verdict", numbers=(limit,), title=title)
    for one in found:
        verdict = f"[red]{verdicts[0]}[/red]" if one.broken else f"[green]{verdicts[1]}[/green]"
        measured = f"{one.measured:.3g} \\[{one.low:.3g}, {one.high:.3g}]"
        named = f"{verdict} (control)" if one.control else verdict
        shown.add_row(one.attack, one.mode, one.measure, measured, f"{one.promised:.3g}", named)
    say(shown, *words, *(f"{one.attack}, {one.mode}: {one.words}." for one in found), page=page)


@app.command
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
    from fedrank.slates.attacks.page import write_page
    from fedrank.slates.attacks.suite import attack_slates

    told = not as_json and sys.stderr.isatty()
    found = attack_slates(settings, lambda line: print(f"{line} …", file=sys.stderr) if told else None)
    if out is not None:
        write_page(found, settings, out)
    if as_json:
        print_json({**asdict(settings), "leaks": [one.as_json() for one in found]})
        return

    s = settings
    title = f"N = {s.candidates}, n = {s.slate}, K = {s.platforms}, {s.seeds} seeds"
    values, sums = ([one for one in found if one.of_sums is which] for which in (False, True))
    shown = {one.mode.split(",")[0] for one in found}
    say(
        *(_values(values, f"{title} of {s.episodes} users") if values else ()),
        *(_sums(sums, ", ".join((title, f"{s.targets} users attacked", *s.set))) if sums else ()),
        *(f"{name}: {meaning}." for name, meaning in MODES.items() if name in shown),
        page=out,
    )


def _values(found: Sequence[Any], title: str) -> tuple[Any, str]:
    """The results of attacks on values, targets and gradients, and what their columns mean."""
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
    words = "R² and rank correlation: 1 is everything. Error: mean absolute. Exact: right to a part in a hundred."
    return shown, words


def _sums(found: Sequence[Any], title: str) -> tuple[Any, str]:
    """The results of attacks on sums over users, and what their columns mean."""
    columns = ("by", "found \\[95 %]", "best attacker", "ε allows")
    shown, heading = table(*columns, numbers=columns[1:], title=title), ""
    for one in found:
        heading = _add_heading(shown, heading, one)
        m = one.measures
        measured = f"R² {_interval(m['r2'])}" if "r2" in m else f"advantage {_interval(m['advantage'])}"
        best = f"{m['ceiling'].mean:.3f}" if "ceiling" in m else ""
        shown.add_row(one.means, measured, best, f"{m['bound'].mean:.3f}" if "bound" in m else "")
    return shown, (
        "Engagement: the mean logarithm over a stay; R² 1 is everything, 0 a blind guess. Advantage: true less false "
        "positives, 1 is certainty. Others known: what each other user added, at all platforms."
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
    meaning: Annotated[LabelledColumns, Parameter(name="*")] = LabelledColumns(),
    range_: Ranges = (),
    clip: float | None = None,
    settings: Annotated[RecordAttack, Parameter(name="*")] = RecordAttack(),
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

    columns = ("what is sent", "ε", "AUC of the attack \\[99 %]", "named, of 5 % wrong", "largest AUC that ε allows")
    title = f"{silos.names[number]}, {silos.silos[number].n_rows:,} rows"
    shown = table(*columns, numbers=columns[1:], whole=("what is sent",), title=title)
    for one in found:
        told = f"{one.auc:.3f} \\[{one.low:.3f}, {one.high:.3f}]"
        bad = "red" if one.broken else "green"
        epsilon, most = ("–", "–") if one.epsilon is None else (f"{one.epsilon:g}", f"{one.most:.3f}")
        shown.add_row(one.mode, epsilon, f"[{bad}]{told}[/{bad}]", f"{100 * one.found:.1f} %", most)
    say(shown, *(f"{m}: {RECORD_MODES[m]}." for m in settings.modes), "0.5 is chance. Simulated noise, seeded.")


@app.command
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

    from fedrank.deploy.linking.world import attack, observe

    found = {
        mode: attack(observe(settings, mode), np.random.default_rng(settings.seed), settings.devices)
        for mode in settings.modes
    }
    if as_json:
        linked = {mode: [asdict(one) for one in all_] for mode, all_ in found.items()}
        print_json({**asdict(settings), "linked": linked})
        return
    numbers = ("right \\[95 %]", "chance")
    title = f"{settings.devices} devices, {settings.rounds} rounds"
    shown = table("the attacker looks at", *numbers, numbers=numbers, title=title)
    for mode, all_ in found.items():
        shown.add_section()
        shown.add_row(f"[bold]{mode}[/bold]: {LINK_MODES[mode]}")
        for one in all_:
            right = f"{100 * one.right:.1f} % \\[{100 * one.low:.1f}, {100 * one.high:.1f}]"
            shown.add_row(one.attack, right, f"{100 * one.chance:.1f} %")
    say(shown)
