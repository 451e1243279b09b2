"""A page of findings, of attacks or plans: it opens like a report, then has everything that was found."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedrank.core.errors import RunError
from fedrank.report import tables
from fedrank.report.html import Html, document, h, section
from fedrank.report.opening import Opening, head
from fedrank.report.tables import Table


def write_findings_page(
    file: str | os.PathLike[str],
    opening: Opening,
    about: str,
    caveats: Sequence[str],
    chart: Any,
    found: Table,
    words: Sequence[str],
    command: str,
) -> Path:
    """Write a page of findings.

    Args:
        file: Where.
        opening: Its title, sentence and numbers.
        about: What was looked at, in one line.
        caveats: What belongs to every number.
        chart: The chart of the opening, or None.
        found: A row a finding.
        words: The findings in sentences.
        command: What made it, such as ``"fedrank attack"``.

    Returns:
        The file.

    Raises:
        RunError: The page cannot be written.
    """
    drawn = None if chart is None else chart.figure(opening.chart, opening.description)
    said: list[Html] = [h("li", one) for one in words]
    page = document(
        f"{opening.title} – fedrank",
        head(opening, about, caveats, drawn),
        section("found", "All that was found", tables.to_html(found)),
        section("words", "The same in sentences", h("ul", *said)),
        h("footer", f"Made by {command}."),
    )
    path = Path(file)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(page, encoding="utf-8")
    except OSError as error:
        raise RunError(
            f"{path}: the page cannot be written ({error.strerror}). Name another file with --out."
        ) from error
    return path
