"""The report of a task that defines no other: curves, final values, messages, privacy.

A task of another package takes :class:`CurvesShown` as it is, or a subclass that names its parties.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import ClassVar

from typing_extensions import override

from fedrank.report import describe, figures, sections, tables, wording, words
from fedrank.report.charts import Chart
from fedrank.report.claims import Comparison, Measured, Named, Number, Opening, Size, say
from fedrank.report.html import Html, h, join
from fedrank.report.run import Page, Run, Section, Shown
from fedrank.report.statistics import final_values, first_values, mean_interval

#: Charts of offline measures on the page; the table has all of them.
MOST_CHARTS = 5

#: The first sentence before the first evaluation.
NOTHING_YET = "Nothing has been measured yet."

#: Name of the chart that a page opens with.
OPENING = "opening"


class CurvesShown(Shown):
    """Curves of what users experienced and of all offline measures, and the final values.

    Attributes:
        where: On which queries or rows a split's values are, in words.
    """

    where: ClassVar[Mapping[str, str]] = {
        "test": "on data it has not seen",
        "vali": "on validation data",
        "train": "on the data it learnt from",
        "online": "in the users’ own sessions",
    }

    @override
    def done_rounds(self, run: Run) -> int:
        online = run.metrics.where(split="online")
        if not len(online):  # evaluations alone: one is named by how many rounds were done before it
            return run.last_round
        return min(len(online.where(seed=seed).unique("round")) for seed in run.seeds)

    @override
    def telling(self, run: Run, split: str, measure: str) -> bool:
        return split == "online" or measure.startswith("expected")

    @override
    def drawn_measures(self, run: Run, ordered: Sequence[str]) -> list[str]:
        return [measure for measure in ordered if measure.startswith("expected")] or list(ordered[:1])

    @override
    def opening(self, run: Run) -> Opening:
        """The page's opening; says no more than that a measure moved, which may be one of which less is better."""
        _, many = describe.party(run)
        title = f"What {many} learnt together: {run.setting('protocol')} on {self.data_words(run)}"
        leading = leading_measure(run)
        if leading is None:
            return Opening(title, say(NOTHING_YET, describe.closing(run)), self.costs(run))
        split, measure = leading
        name, place = Named(_upper(measure)), Named(self.where[split])
        final, first = (of(run.metrics, split, measure) for of in (final_values, first_values))
        reached, start = (Measured(mean_interval(list(of.values())), measure) for of in (final, first))
        change = mean_interval([final[seed] - first[seed] for seed in final])
        compared = Comparison(change, "what it was at the start", ways=("higher", "lower"))
        sentence = say(name, " ", place, " went from ", start, " to ", reached, ": ", compared, ".")
        number = Number(f"{name} {place}", reached)
        return Opening(title, sentence + describe.closing(run), (number, *self.costs(run)), *self.opening_chart(run))

    def data_words(self, run: Run) -> str:
        """The data that the run learnt from, for a title."""
        data, fold = run.setting("data.name", run.setting("data")), run.setting("fold")
        if self.generated(run) or isinstance(data, Mapping):
            return "generated data"
        return f"{data}" if fold is None else f"{data}, fold {fold}"

    def opening_chart(self, run: Run) -> tuple[str, str]:
        """Name and description of the chart that the page opens with; both empty if there is none."""
        leading = leading_measure(run)
        if leading is None:
            return "", ""
        name = OPENING if leading[0] != "online" else f"online-{_online_axes(run)[0]}"
        return name, _alt(run, leading[1], f"{self.where[leading[0]]}, by {self.counted}")

    def costs(self, run: Run) -> tuple[Number, ...]:
        """The cost of learning to a party and to a person: bytes and privacy."""
        numbers = (sent_number(run), sections.privacy_number(run))
        return tuple(number for number in numbers if number is not None)

    @override
    def charts(self, run: Run) -> dict[str, Chart]:
        leading, out = leading_measure(run), {}
        if leading is not None and leading[0] != "online":
            split, measure = leading
            title = f"{_upper(measure)} {self.where[split]}"
            out[OPENING] = figures.opening_figure(run, split, measure, title, self.learnt)
        out |= {f"online-{over}": figures.online_figure(run, over) for over in _online_axes(run)}
        return out | {
            f"offline-{wording.slug(m)}": figures.offline_figure(run, m)
            for m in run.measures(*describe.OFFLINE)[:MOST_CHARTS]
        }

    @override
    def page(self, run: Run, charts: Mapping[str, Chart]) -> Page:
        final, shown = self.final(run), run.measures(*describe.OFFLINE)[:MOST_CHARTS]
        return Page(
            self.opening(run),
            describe.other_caveats(run),
            (
                Section("curves", "How it learnt", (_curves(run, charts, shown, self.opening_chart(run)[0]),)),
                Section("final", "Final values", (final,)),
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


def leading_measure(run: Run) -> tuple[str, str] | None:
    """Split and name of the most telling measure on the most telling split; None before anything was measured."""
    for split in ("test", "vali", "train", "online"):
        for measure in run.measures(split):
            if final_values(run.metrics, split, measure):
                return split, measure
    return None


def sent_number(run: Run) -> Number | None:
    """Bytes that a party sends in a round, and what it receives; None where nothing crosses."""
    if run.ledger is None or not len(run.ledger) or run.shown.crossed_title(run) is not None:
        return None
    flows = words.flows(run.ledger)
    turns = max(f.messages for f in flows)  # every party sends each kind of message once a round
    up, down = (sum(f.bytes for f in flows if f.sender == s) / max(1, turns) for s in ("parties", "server"))
    note = f"{wording.size(round(down, 1))} received" if turns else ""
    return Number(f"Sent by a {describe.party(run)[0]} in a round", Size(round(up, 1)), note)


def _upper(measure: str) -> str:
    """A measure as a reader says it: without what a wing's users are called, which the page says."""
    return re.sub(r"^expected ", "", measure)


def _online_axes(run: Run) -> list[str]:
    return figures.axes(run) if (run.metrics["split"] == "online").any() else []


def _curves(run: Run, charts: Mapping[str, Chart], shown: list[str], opened: str) -> Html:
    """The figures but the one that the page opens with."""
    overs = [over for over in _online_axes(run) if f"online-{over}" != opened]
    names = {"interactions": "by interactions", "bytes": "by bytes sent", "epsilon": "by ε spent"}
    parts: list[Html] = []
    if overs:
        buttons: list[Html] = []
        for i, over in enumerate(overs):
            buttons.append(h("input", type="radio", name="over", id=f"over-{over}", checked=i == 0))
            buttons.append(h("label", names[over], for_=f"over-{over}"))
        panels = [charts[f"online-{o}"].figure(f"online-{o}", _alt(run, "online reward", names[o])) for o in overs]
        label = "Online reward: choose the horizontal axis"
        parts.append(
            h("div", *buttons, h("div", *panels, class_="panels"), class_="choice", role="group", aria_label=label)
        )
    for measure in shown:
        name = f"offline-{wording.slug(measure)}"
        parts.append(charts[name].figure(name, _alt(run, measure, "by interactions, per split")))
    more = "Point at a curve to read its values." if parts else "There are no curves yet."
    return join(
        h("div", *parts, class_="charts"), h("p", more, " Files of the figures: folder figures.", class_="note")
    )


def _alt(run: Run, measure: str, how: str) -> str:
    return describe.chart_words(run, f"Learning curve of {measure} {how}")
