"""``fedrank privacy attack documents``."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from fedrank.cli.terminal import AsJson, print_json
from fedrank_zoo.document_attack import DocumentAttack
from fedrank_zoo.findings import print_findings


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
    from fedrank_zoo.document_attack.page import documents_opening, write_documents_page
    from fedrank_zoo.document_attack.served import attack_documents

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
