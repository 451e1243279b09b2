"""``fedrank privacy attack sketch``."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from fedrank.cli.terminal import AsJson, print_json
from fedrank_zoo.findings import print_findings
from fedrank_zoo.sketch_attack.settings import SketchAttack


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
    from fedrank_zoo.sketch_attack.page import attack_opening, write_page
    from fedrank_zoo.sketch_attack.suite import attack_sketches

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
    print_findings(sentence, found, title, [silent] if "publish-once" in settings.modes else [], out)
