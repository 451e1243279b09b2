"""The page of a run, and of findings such as attacks and plans: one file, no network; and its figures as files.

What stands on the page of a run is the task's (:class:`~fedrank.report.run.Shown`); here it becomes a document. A page
of findings opens like a report, then has everything that was found.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedrank.core.errors import RunError
from fedrank.report import figures
from fedrank.report.charts import Chart
from fedrank.report.claims import Opening, head
from fedrank.report.html import Html, document, h, section, write_document
from fedrank.report.load import load
from fedrank.report.run import Run
from fedrank.report.tables import Table


def write_page(
    run: Run | str | os.PathLike[str], out: str | os.PathLike[str] | None = None, *, png: bool = False
) -> Path:
    """Write ``report.html`` and its figures as files.

    Args:
        run: A run, or its directory.
        out: The page's file; default ``report.html`` in the run directory. Figures go to ``figures`` beside it.
        png: Write the figures as PNG files too.

    Returns:
        The page's file.

    Raises:
        RunError: The directory is not a run that can be read, or the page cannot be written.
    """
    run = run if isinstance(run, Run) else load(run)
    file = Path(out) if out is not None else run.path / "report.html"
    charts = run.shown.charts(run)
    text = html_of(run, charts)
    try:
        figures.save_all(charts, file.parent / "figures", png=png)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise RunError(
            f"{file}: the page or its figures cannot be written ({error.strerror}). The run is kept; make room, then: "
            f"fedrank report {shlex.quote(str(file.parent))}"
        ) from error
    return file


def html_of(run: Run, charts: Mapping[str, Chart]) -> str:
    """The page of a run as one HTML document; ``charts`` as :meth:`~fedrank.report.run.Shown.charts` returns them."""
    page = run.shown.page(run, charts)
    opening = page.opening
    drawn = charts.get(opening.chart)
    chart = None if drawn is None else drawn.figure(opening.chart, opening.description)
    return document(
        f"{opening.title} – fedrank",
        head(opening, f"{run.shown.headline(run)} · {run.name}", page.caveats, chart, page.warning),
        *(section(one.anchor, one.title, *one.content) for one in page.sections if one is not None and one.has_content),
        h("footer", f"Made by fedrank {run.environment.get('fedrank', '')} from the files of the run directory alone."),
    )


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
        command: What made it, such as ``"fedrank privacy attack"``.

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
        section("found", "All that was found", found),
        section("words", "The same in sentences", h("ul", *said)),
        h("footer", f"Made by {command}."),
    )
    return write_document(page, file)
