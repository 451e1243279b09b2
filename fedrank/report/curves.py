"""What runs of a task show that says nothing else: curves, final values, what left, privacy.

A task of another package takes :class:`CurvesShown` as it is, or a subclass that names its parties.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from typing_extensions import override

from fedrank.report import describe, figures, sections, svg, tables, words
from fedrank.report.html import Html, h, join, tile
from fedrank.report.run import Page, Run, Section, Shown

#: Charts of offline measures on the page; the table has all of them.
MOST_CHARTS = 5


class CurvesShown(Shown):
    """Curves of what users experienced and of all offline measures, and the final values."""

    @override
    def telling(self, run: Run, split: str, measure: str) -> bool:
        return split == "online" or measure.startswith("expected")

    @override
    def drawn_measures(self, run: Run, ordered: Sequence[str]) -> list[str]:
        return [measure for measure in ordered if measure.startswith("expected")] or list(ordered[:1])

    @override
    def charts(self, run: Run) -> dict[str, Any]:
        out = {f"online-{over}": figures.online_figure(run, over) for over in _online_axes(run)}
        return out | {
            f"offline-{_slug(m)}": figures.offline_figure(run, m) for m in offline_measures(run)[:MOST_CHARTS]
        }

    @override
    def page(self, run: Run, charts: Mapping[str, Any]) -> Page:
        final, shown = self.final(run), offline_measures(run)[:MOST_CHARTS]
        top = (
            *(h("p", f"{said}.", class_="caveat") for said in describe.caveats(run)),
            h("dl", *_tiles(run, final), class_="tiles"),
        )
        return Page(
            self.headline(run),
            top,
            (
                Section("curves", "How it learnt", (_curves(run, charts, shown),), "Curves"),
                Section("final", "Final values", (tables.to_html(final),), "Final values"),
                sections.left(run),
                sections.privacy(run),
                sections.repeat(run),
                sections.configuration(run),
                sections.citation(run),
            ),
        )

    @override
    def final(self, run: Run) -> tables.Table:
        return tables.final_table(run)


def offline_measures(run: Run) -> list[str]:
    """Offline measures of the run, the most telling first."""
    offline = run.metrics.filter(run.metrics["split"].is_in(["train", "vali", "test"]))
    return describe.order_measures(offline["measure"].unique().to_list())


def _online_axes(run: Run) -> list[str]:
    return figures.axes(run) if (run.metrics["split"] == "online").any() else []


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
    rounds = run.shown.done_rounds(run)
    interactions = run.metrics["interactions"].max()
    out.append(tile("Interactions", describe.number(interactions), f"in {rounds:,} rounds, for one seed"))
    if run.ledger is not None and len(run.ledger) and run.shown.crossed_title(run) is None:
        flows = words.flows(run.ledger)
        up, down = (sum(f.bytes for f in flows if f.sender == s) for s in ("parties", "server"))
        turns = max(f.messages for f in flows)  # every party sends each kind of message once a round
        each = describe.size(round(up / turns, 1)) if turns else "–"
        received = f"{describe.size(round(down / turns, 1))} received" if turns else ""
        out.append(tile(f"Sent by a {one} per round", each, received, f"{describe.size(up)} up by all {many}"))
    if (private := sections.privacy_tile(run)) is not None:
        out.append(private)
    return out


def _curves(run: Run, charts: Mapping[str, Any], shown: list[str]) -> Html:
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
