"""The page of a run of silos with texts, for people who decide for one of the silos.

A reader gets, in this order: what searching together is worth, beside BM25, a warning where nothing is protected; then,
folded, what was found and what protection took of it, all methods by all measures, a search of everybody's documents,
each silo and who adopts, how it learnt, what is private and what is not, what crossed, the data, and everything needed
to run it again.
"""

from __future__ import annotations

from collections.abc import Mapping

from fedrank.report import describe, sections, sentences, svg, tables, words
from fedrank.report.charts import Chart
from fedrank.report.html import Html, h, tile
from fedrank.report.run import Page, Run, Section
from fedrank.report.statistics import Estimate, direction, mean_interval
from fedrank.texts.report import figures as text_figures
from fedrank.texts.report import gate as text_gate
from fedrank.texts.report import privacy as text_privacy
from fedrank.texts.report import queries as text_queries
from fedrank.texts.report import tables as text_tables
from fedrank.texts.report.files import BM25, EXACT, FEDERATED, LOCAL
from fedrank.texts.report.opening import CHART, opening_of
from fedrank.texts.report.opening import chart as opening_chart
from fedrank.texts.report.tables import DIGITS, details_of, gain, lead
from fedrank.texts.report.verdicts import verdicts
from fedrank.texts.report.words import READABLE_TO_SILOS, UNPROTECTED

#: What an interval tells, in a tile.
_TOLD = {"gain": "a gain", "loss": "a loss", "neither": "may be none", "unknown": "one seed, no interval"}


def charts(run: Run) -> dict[str, Chart]:
    """All figures of the page, by the name that their PNG files have."""
    made = {
        CHART: opening_chart(run),
        "curve-own": text_figures.learning_figure(run, "own"),
        "curve-search": text_figures.learning_figure(run, "federation"),
        "gate": text_figures.gate_figure(run),
    }
    return {name: chart for name, chart in made.items() if chart is not None}


def page(run: Run, drawn: Mapping[str, Chart]) -> Page:
    """The page as data.

    Args:
        run: A run of silos with texts.
        drawn: From :func:`charts`.
    """
    search = text_tables.search_table(run)
    warned = (*UNPROTECTED.values(), READABLE_TO_SILOS)  # said by the warning
    methods = (tables.to_html(text_tables.methods_table(run)), _table(text_queries.queries_table(run)))
    found = (
        h("ul", *(h("li", said) for said in verdicts(run)), class_="verdicts"),
        h("dl", *_tiles(run), class_="tiles"),
    )
    return Page(
        opening_of(run),
        tuple(said for said in sentences.unsaid(run) if said not in warned),
        (
            Section("found", "What was found", found),
            Section("methods", "Methods", methods),
            Section("search", "Searching together", (tables.to_html(search),)) if search is not None else None,
            _silos(run, drawn),
            _curves(run, drawn),
            _privacy(run),
            sections.left(run, *_some(text_tables.crossed_table(run))),
            _data(run),
            sections.repeat(run),
            sections.configuration(run, notes=False),
            sections.citation(run),
        ),
        _warning(run),
    )


def _tiles(run: Run) -> list[Html]:
    texts = details_of(run)
    ours = mean_interval(list(texts.values(FEDERATED, texts.measure).values()))
    over = text_tables.seeds_in_words(run)
    half = "no interval" if ours.half is None else f"± {ours.half:.{DIGITS}f}, 95 % interval"
    out = [tile(f"{texts.measure}, {FEDERATED}", f"{ours.mean:.{DIGITS}f}", half, over)]
    own, everywhere = gain(run), gain(run, scope="federation")
    if own is not None:
        local = mean_interval(list(texts.values(LOCAL, texts.measure).values())).mean
        out.append(_gain_tile("Gain over Local, own documents", own, f"Local: {local:.{DIGITS}f}"))
    untrained = lead(run, FEDERATED, BM25)
    if untrained is not None:
        plain = mean_interval(list(texts.values(BM25, texts.measure).values())).mean
        out.append(
            _gain_tile("Gain over plain BM25, own documents", untrained, f"BM25, not trained: {plain:.{DIGITS}f}")
        )
    from_bm25 = lead(run, FEDERATED, BM25, scope="federation", at="home")
    if everywhere is not None or from_bm25 is not None:
        alone = LOCAL if from_bm25 is None else BM25
        everywhere = from_bm25 or everywhere
        assert everywhere is not None  # one of them is
        home = mean_interval(list(texts.values(alone, str(texts.searched), scope="home").values())).mean
        whole = mean_interval(list(texts.values(FEDERATED, str(texts.searched), scope="federation").values())).mean
        reached = f"{whole:.{DIGITS}f} against {home:.{DIGITS}f} of {alone} at home"
        out.append(_gain_tile("Search of all against search at home", everywhere, reached))
    added = lead(run, FEDERATED, BM25, scope="federation")
    if added is not None:
        plain = mean_interval(list(texts.values(BM25, str(texts.searched), scope="federation").values())).mean
        out.append(_gain_tile("Training over plain BM25 in that search", added, f"BM25 there: {plain:.{DIGITS}f}"))
    exact = gain(run, EXACT)
    if exact is not None:
        more = gain(run, EXACT, scope="federation")
        searched = "" if more is None else f"search of all: {_signed(more.mean)}"
        out.append(_gain_tile("Gain over Local with exact features", exact, searched))
    if texts.decisions:
        adopted = sum(one.adopted for one in texts.decisions)
        lost = sum(one.adopted and one.test < 0 for one in texts.decisions)
        of = f"{len(texts.silos)} silos × {len(run.seeds)} seeds, against {text_gate.against(texts.decisions)}; "
        of += f"{lost} of these lost on test queries"
        out.append(tile("Adopt the federation’s ranker", f"{adopted} of {len(texts.decisions)}", of))
    private = text_privacy.tile_words(run)
    if private is not None:
        out.append(tile(*private))
    if run.ledger is not None and len(run.ledger):
        up, down = (run.ledger.bytes_from(who) / len(texts.silos) for who in ("parties", "server"))
        out.append(tile("Sent by a silo", describe.size(round(up)), f"{describe.size(round(down))} received, in all"))
    return out


def _gain_tile(label: str, value: Estimate, *notes: str) -> Html:
    half = "" if value.half is None else f"± {value.half:.{DIGITS}f}, paired by seed: "
    return tile(label, _signed(value.mean), half + _TOLD[direction(value)], *notes)


def _signed(value: float) -> str:
    return describe.measured(value, signed=True, digits=DIGITS)


def _warning(run: Run) -> Html | None:
    said = text_privacy.warning(run)
    if said is None:
        return None
    title, lines = said
    return h(
        "div", h("strong", title), *(h("p", line) for line in lines), class_="warning", role="note", aria_label=title
    )


def _silos(run: Run, drawn: Mapping[str, Chart]) -> Section:
    gate = text_gate.gate_table(run)
    figure = None
    if "gate" in drawn:
        said = "What adopting the federation’s ranker is worth to each silo in each seed; the table below has the sums"
        figure = h("div", svg.figure(drawn["gate"], "gate", _alt(run, said)), class_="matrix")
    content = (tables.to_html(text_tables.silos_table(run)), figure, _table(gate))
    return Section("silos", "Silo by silo", content)


def _curves(run: Run, drawn: Mapping[str, Chart]) -> Section:
    names = {
        "curve-own": "Learning curve on own documents, BM25, Local and Local+ as dashed lines",
        "curve-search": "Learning curve of a search of all documents; dashed lines: BM25 there, BM25 and Local at home",
    }
    parts = [svg.figure(drawn[name], name, _alt(run, said)) for name, said in names.items() if name in drawn]
    note = "Point at a curve to read its values. Figures as PNG: folder figures." if parts else "There are no curves."
    content = (h("div", *parts, class_="charts"), h("p", note, class_="note"))
    return Section("curves", "How it learnt", content)


def _privacy(run: Run) -> Section:
    statement = [h("p", h("b", f"Mode {details_of(run).mode}. "), line) for line in words.privacy_words(run)]
    shown = [text_privacy.epsilon_table(run), text_privacy.errors_table(run), text_privacy.questions_table(run)]
    content = (
        *statement,
        *(tables.to_html(table) for table in shown if table is not None),
        sections.covered(run),
    )
    return Section("privacy", "Privacy of documents", content)


def _data(run: Run) -> Section:
    texts = details_of(run)
    first = "Generated data: no real collection." if texts.generated else None
    items = [*([first] if first else ()), *texts.notes]
    notes = h("ul", *(h("li", note) for note in items)) if items else None
    return Section("data", "Data", (tables.to_html(text_tables.data_table(run)), notes))


def _some(table: tables.Table | None) -> list[Html]:
    return [] if table is None else [tables.to_html(table, code=("exchange",))]


def _table(table: tables.Table | None) -> Html | None:
    return None if table is None else tables.to_html(table)


def _alt(run: Run, what: str) -> str:
    return f"{what}. The final values are in the tables.{''.join(f' {c}.' for c in describe.caveats(run))}"
