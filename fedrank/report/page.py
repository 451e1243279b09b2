"""The page of a run: one file, no script, no network; and its figures as PNG.

A reader gets, in this order: what the run was, its headline numbers, the curves, the final table, what left the
devices, what is private and what is not, and everything needed to run it again. Runs over silos have pages of their
own kind, see :mod:`fedrank.silos.report.page` and :mod:`fedrank.texts.report.page`; so have runs of platforms, see
:mod:`fedrank.slates.report.page`.
"""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path
from typing import Any

from fedrank.core.errors import RunError
from fedrank.report import describe, figures, sections, svg, tables, words
from fedrank.report.html import Html, document, h, join, section, tile
from fedrank.report.load import Run, load
from fedrank.silos.report import page as silo_page
from fedrank.slates.report import page as slate_page
from fedrank.texts.report import page as text_page

#: Charts of offline measures on the page; the table has all of them.
MOST_CHARTS = 5


def write_page(run: Run | str | os.PathLike[str], out: str | os.PathLike[str] | None = None) -> Path:
    """Write ``report.html`` and ``figures/*.png``.

    Args:
        run: A run, or its directory.
        out: The page's file; default ``report.html`` in the run directory. Figures go to ``figures`` beside it.

    Returns:
        The page's file.

    Raises:
        RunError: The directory is not a run that can be read.
    """
    run = run if isinstance(run, Run) else load(run)
    file = Path(out) if out is not None else run.path / "report.html"
    if run.silos is not None:
        charts = silo_page.charts(run)
        return _written(file, charts, silo_page.page(run, charts))
    if run.texts is not None:
        charts = text_page.charts(run)
        return _written(file, charts, text_page.page(run, charts))
    if run.slates is not None:
        charts = slate_page.charts(run)
        return _written(file, charts, slate_page.page(run, charts))
    charts = {f"online-{over}": figures.online_figure(run, over) for over in _online_axes(run)}
    shown = offline_measures(run)[:MOST_CHARTS]
    charts |= {f"offline-{_slug(m)}": figures.offline_figure(run, m) for m in shown}
    return _written(file, charts, _page(run, charts, shown))


def _written(file: Path, charts: dict[str, Any], text: str) -> Path:
    try:
        for name, chart in charts.items():
            figures.save(chart, file.parent / "figures" / f"{name}.png")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise RunError(
            f"{file}: the page or its figures cannot be written ({error.strerror}). The run is kept; make room, then: "
            f"fedrank report {shlex.quote(str(file.parent))}"
        ) from error
    return file


def offline_measures(run: Run) -> list[str]:
    """Offline measures of the run, the most telling first."""
    offline = run.metrics.filter(run.metrics["split"].is_in(["train", "vali", "test"]))
    return describe.order_measures(offline["measure"].unique().to_list())


def _online_axes(run: Run) -> list[str]:
    return figures.axes(run) if (run.metrics["split"] == "online").any() else []


def _page(run: Run, charts: dict[str, Any], shown: list[str]) -> str:
    final = tables.final_table(run)
    links = {
        "curves": "Curves",
        "final": "Final values",
        "left": "What left",
        "privacy": "Privacy",
        "repeat": "Repeat",
        "configuration": "Configuration",
        "citation": "Citation",
    }
    return document(
        f"{run.name} – fedrank report",
        h("header", h("h1", run.name), h("p", describe.headline(run), class_="lead")),
        *(h("p", f"{c}.", class_="caveat") for c in describe.caveats(run)),
        h("dl", *_tiles(run, final), class_="tiles"),
        h("nav", *(h("a", title, href=f"#{anchor}") for anchor, title in links.items()), aria_label="Sections"),
        section("curves", "How it learnt", _curves(run, charts, shown)),
        section("final", "Final values", tables.to_html(final)),
        sections.left(run),
        sections.privacy(run),
        sections.repeat(run),
        sections.configuration(run),
        sections.citation(run),
        h("footer", f"Made by fedrank {run.environment.get('fedrank', '')} from the files of the run directory alone."),
    )


def _tiles(run: Run, final: tables.Table) -> list[Html]:
    out = []
    one, many = describe.party(run)
    best = next((r for s in ("test", "validation", "train", "online") for r in final.rows if r["split"] == s), None)
    if best is not None:
        seeds = (
            "95 % interval over {} seeds".format(best["ranker"].n)
            if best["ranker"].half is not None
            else "one seed, no interval"
        )
        out.append(tile(f"{best['measure']}, {best['split']}", describe.measured(best["ranker"]), seeds))
        against = ""
        if best["difference"] is not None and run.baseline:
            against = f"{describe.measured(best['difference'], signed=True)} against {run.baseline.label}"
        out.append(tile("Gain over the start", describe.measured(best["gain"], signed=True), against))
    rounds = describe.done_rounds(run)
    interactions = run.metrics["interactions"].max()
    out.append(tile("Interactions", describe.number(interactions), f"in {rounds:,} rounds, for one seed"))
    if run.ledger is not None and len(run.ledger) and one != "service":
        flows = words.flows(run.ledger)
        up, down = (sum(f.bytes for f in flows if f.sender == s) for s in ("parties", "server"))
        turns = max(f.messages for f in flows)  # every party sends each kind of message once a round
        each = describe.size(round(up / turns, 1)) if turns else "–"
        received = f"{describe.size(round(down / turns, 1))} received" if turns else ""
        out.append(tile(f"Sent by a {one} per round", each, received, f"{describe.size(up)} up by all {many}"))
    if (private := sections.privacy_tile(run)) is not None:
        out.append(private)
    return out


def _curves(run: Run, charts: dict[str, Any], shown: list[str]) -> Html:
    overs = _online_axes(run)
    names = {"interactions": "by interactions", "bytes": "by bytes sent", "epsilon": "by ε spent"}
    parts: list[Html] = []
    if overs:
        buttons: list[Html] = []
        for i, over in enumerate(overs):
            buttons.append(h("input", type="radio", name="over", id=f"over-{over}", checked=i == 0))
            buttons.append(h("label", names[over], for_=f"over-{over}"))
        panels = [svg.figure(charts[f"online-{o}"], f"online-{o}", _alt(run, "online reward", names[o])) for o in overs]
        label = "Online reward: choose the horizontal axis"
        parts.append(
            h("div", *buttons, h("div", *panels, class_="panels"), class_="choice", role="group", aria_label=label)
        )
    for measure in shown:
        name = f"offline-{_slug(measure)}"
        parts.append(svg.figure(charts[name], name, _alt(run, measure, "by interactions, per split")))
    more = "Point at a curve to read its values." if parts else "There are no curves yet."
    return join(h("div", *parts, class_="charts"), h("p", more, " Figures as PNG: folder figures.", class_="note"))


def _alt(run: Run, measure: str, how: str) -> str:
    caveats = "".join(f" {c}." for c in describe.caveats(run))
    return f"Learning curve of {measure} {how}. The final values are in the table below.{caveats}"


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
