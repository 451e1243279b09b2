"""``fedrank privacy attack``: what privacy that is promised is worth against an attacker, in numbers."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from fedrank.cli.report import print_findings
from fedrank.cli.silo_tables import LabelledColumns, Public, table_of
from fedrank.cli.terminal import AsJson, headline, print_json, say, table
from fedrank.core import plugins
from fedrank.silos.attacks.settings import MODES, RecordAttack
from fedrank.texts.attacks.settings import DocumentAttack

app = App(
    name="attack",
    help="Attack what is promised to be private, and print measured beside promised.",
    default_parameter=Parameter(consume_multiple=1, negative=""),
)
for _name in plugins.names("fedrank.attacks"):
    app.command(plugins.get("fedrank.attacks", _name), name=_name)


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
    print_findings(sentence, found, title, meaning, out)


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
    ranges = public.of(silos.feature_names) if public.is_given else None
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
    modes = (f"{mode}: {MODES[mode]}." for mode in settings.modes)
    say(headline(sentence), shown, *modes, "0.5 is chance. Simulated noise, seeded.")
