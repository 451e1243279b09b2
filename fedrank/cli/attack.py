"""``fedrank privacy attack``: what privacy that is promised is worth against an attacker, in numbers."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, Parameter

from fedrank.cli.silo_tables import LabelledColumns, Public, table_of
from fedrank.cli.terminal import AsJson, headline, print_json, say, table
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
    from fedrank.texts.attacks.page import attack_opening, write_page
    from fedrank.texts.attacks.suite import attack_sketches

    found = attack_sketches(settings)
    if out is not None:
        write_page(found, settings, out)
    asked = settings.z1 if settings.asks else None
    sentence = str(attack_opening(found, settings.epsilon).sentence)
    if as_json:
        print_json(
            {"sentence": sentence, **asdict(settings), "z1": asked, "findings": [one.as_json() for one in found]}
        )
        return
    own = "" if asked is None else f", z₁ = {asked}"
    title = f"z = {settings.z}, w = {settings.w}{own}, ε = {settings.epsilon:g}; simulated noise, seeded"
    silent = "publish-once: no question leaves the querier, so there is no term to find."
    _print_findings(sentence, found, title, [silent] if "publish-once" in settings.modes else [], out)


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
    from fedrank.texts.attacks.page import documents_opening, write_documents_page
    from fedrank.texts.attacks.served import attack_documents

    found = attack_documents(collection, settings)
    if out is not None:
        write_documents_page(found, collection, settings, out)
    sentence = str(documents_opening(found, collection).sentence)
    if as_json:
        print_json(
            {
                "sentence": sentence,
                "collection": collection,
                **asdict(settings),
                "findings": [one.as_json() for one in found],
            }
        )
        return
    title = f"{collection}, {settings.owners} owners; simulated noise, seeded"
    meaning = ["Words read: those that a guess does not name. AUC: 0.5 is chance."]
    _print_findings(sentence, found, title, meaning, out)


def _print_findings(sentence: str, found: Sequence[Any], title: str, words: Sequence[str], page: Path | None) -> None:
    """Print what attacks on texts found: the page's first sentence, its table, and sentences below it."""
    from fedrank.cli.report import drawn
    from fedrank.texts.attacks.page import table as table_of_page

    made = table_of_page(found, title)
    shown = drawn(made, [column.key for column in made.columns if column.key != "trials"])
    found_words = (f"{one.attack}, {one.mode}: {one.words}." for one in found)
    say(headline(sentence), shown, *made.notes, *words, *found_words, page=page)


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
    from fedrank.slates.attacks.page import attack_opening, write_page
    from fedrank.slates.attacks.suite import attack_slates

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


@app.command
def records(
    data: str,
    /,
    *,
    of: str = "",
    meaning: Annotated[LabelledColumns, Parameter(name="*")] = LabelledColumns(),
    public: Annotated[Public, Parameter(name="*")] = Public(),
    settings: Annotated[RecordAttack, Parameter(name="*")] = RecordAttack(),
    as_json: AsJson = False,
) -> None:
    """Attack what a silo sends: was a record among its rows? Membership inference by shadow models (LiRA).

    Args:
        data: A CSV or parquet file with a column for the silo; or the name of a set (fedrank data list).
        of: The silo that is attacked, by name; without it the first.
        meaning: What the columns mean.
        public: Public ranges of the columns; without ranges nothing with noise is attacked.
        settings: The attack.
    """
    from fedrank.silos.attacks.membership import attack_records, membership_sentence
    from fedrank.silos.sceptic.learners import rows_of

    silos = table_of(data, meaning)
    number = silos.index(of) if of else 0
    ranges = public.of(silos.feature_names) if public.range_ else None
    found = attack_records(rows_of(silos)[number], ranges, settings)
    sentence = membership_sentence(found, silos.names[number])
    if as_json:
        told = {"data": silos.name, "of": silos.names[number], **asdict(settings)}
        print_json({"sentence": str(sentence), **told, "findings": [one.as_json() for one in found]})
        return

    columns = ("what is sent", "ε", "AUC of the attack \\[99 %]", "named, of 5 % wrong", "largest AUC that ε allows")
    title = f"{silos.names[number]}, {silos.silos[number].n_rows:,} rows"
    shown = table(*columns, numbers=columns[1:], whole=("what is sent",), title=title)
    for one in found:
        told = f"{one.auc:.3f} \\[{one.low:.3f}, {one.high:.3f}]"
        bad = "red" if one.broken else "green"
        epsilon, most = ("–", "–") if one.epsilon is None else (f"{one.epsilon:g}", f"{one.most:.3f}")
        shown.add_row(one.mode, epsilon, f"[{bad}]{told}[/{bad}]", f"{100 * one.found:.1f} %", most)
    modes = (f"{mode}: {RECORD_MODES[mode]}." for mode in settings.modes)
    say(headline(sentence), shown, *modes, "0.5 is chance. Simulated noise, seeded.")


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

    from fedrank.core.optional import require
    from fedrank.deploy.linking.world import attack, linking_sentence, observe

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
        shown.add_row(f"[bold]{mode}[/bold]: {LINK_MODES[mode]}")
        for one in all_:
            right = f"{100 * one.right:.1f} % \\[{100 * one.low:.1f}, {100 * one.high:.1f}]"
            shown.add_row(one.attack, right, f"{100 * one.chance:.1f} %")
    say(headline(sentence), shown)
