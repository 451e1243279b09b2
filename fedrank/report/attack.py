"""The page of attacks on what is promised: it opens like a report, then has everything that was found."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedrank.core.errors import RunError
from fedrank.report import svg, tables
from fedrank.report.html import Html, document, h, section
from fedrank.report.opening import Opening, head
from fedrank.report.tables import Table


def write_attack_page(
    file: str | os.PathLike[str],
    opening: Opening,
    about: str,
    caveats: Sequence[str],
    chart: Any,
    found: Table,
    words: Sequence[str],
) -> Path:
    """Write the page of an attack.

    Args:
        file: Where.
        opening: Its title, sentence and numbers.
        about: What was attacked, in one line.
        caveats: What belongs to every number.
        chart: The chart of the opening, or None.
        found: A row a finding.
        words: The findings in sentences.

    Returns:
        The file.

    Raises:
        RunError: The page cannot be written.
    """
    drawn = None if chart is None else svg.figure(chart, opening.chart, opening.description)
    said: list[Html] = [h("li", one) for one in words]
    page = document(
        f"{opening.title} – fedrank",
        head(opening, about, caveats, drawn),
        section("found", "All that was found", tables.to_html(found)),
        section("words", "The same in sentences", h("ul", *said)),
        h("footer", "Made by fedrank attack."),
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
