"""The page of a run of silos with texts, for people who decide for one of the silos.

A reader gets, in this order: what searching together is worth, beside BM25, a warning where nothing is protected; then,
folded, what was found and what protection took of it, all methods by all measures, a search of all documents,
each silo and who adopts, how it learnt, what is private and what is not, what crossed, the data, and everything needed
to run it again.
"""

from __future__ import annotations

from collections.abc import Mapping

from fedrank.report import describe, sections, sentences, tables, words
from fedrank.report.charts import Chart
from fedrank.report.figures import Level, levels_figure
from fedrank.report.html import Html, h, tile
from fedrank.report.opening import Number, Opening
from fedrank.report.run import Page, Run, Section
from fedrank.report.statistics import Estimate, direction, mean_interval
from fedrank.texts.report import privacy
from fedrank.texts.report import privacy as text_privacy
from fedrank.texts.report import tables as text_tables
from fedrank.texts.report.files import BM25, BM25_EXACT, EXACT, FEDERATED, LOCAL
from fedrank.texts.report.tables import (
    DIGITS,
    READABLE_TO_SILOS,
    UNPROTECTED,
    details_of,
    gain,
    gate_figure,
    lacks_judgements,
    lead,
    learning_figure,
    queries_table,
)
from fedrank.texts.report.verdicts import against, gate_table, verdicts

#: Name of the chart that the page opens with.
CHART = "opening"


def opening_of(run: Run) -> Opening:
    """Title, sentence, chart and numbers of a run of silos with texts."""
    texts = details_of(run)
    data = run.setting("data.name", run.setting("data"))
    known = "generated texts" if run.shown.generated(run) or not isinstance(data, str) else data
    title = f"Searching the texts of {len(texts.silos)} silos together: {known}"
    sentence, numbers = _search_values(run) if _of_search(run) else _own(run)
    if texts.mode in UNPROTECTED:
        sentence += " Nothing protects the documents: see the warning."
    elif texts.insider is not None and texts.insider.readable:
        sentence += " Other silos can read the documents: see the warning."
    elif texts.insider is not None and texts.insider.found is not None and not texts.insider.finds:
        sentence += _hidden(run)
    costs = []
    if run.ledger is not None and len(run.ledger):
        up, down = (run.ledger.bytes_from(who) / len(texts.silos) for who in ("parties", "server"))
        costs.append(
            Number("Sent by a silo in all", describe.size(round(up)), f"{describe.size(round(down))} received")
        )
    if (private := privacy.tile_words(run)) is not None:
        costs.append(Number(*private))
    chart = (CHART, f"{_title(run)}. The same numbers are in the tables below.") if _levels(run) else ("", "")
    return Opening(title, sentence + sentences.closing(run), (*numbers, *costs), *chart)


def opening_chart(run: Run) -> Chart | None:
    """Value that each way of searching reached; None without values."""
    levels = _levels(run)
    if not levels:
        return None
    said = [describe.seeds_in_words(len(run.seeds)).replace("band", "line"), *describe.caveats(run)]
    return levels_figure(levels, _title(run), said)


def _of_search(run: Run) -> bool:
    """True if the page opens with the search of all documents: it has values, and foreign documents are judged."""
    from_home = lead(run, FEDERATED, BM25, scope="federation", at="home")
    return from_home is not None and not lacks_judgements(run)


def _search_values(run: Run) -> tuple[str, list[Number]]:
    texts = details_of(run)
    measure = str(texts.search_measure)
    from_home, trained = (lead(run, FEDERATED, BM25, scope="federation", at=at) for at in ("home", "federation"))
    assert from_home is not None  # asked before
    home, plain = (_mean(run, BM25, scope) for scope in ("home", "federation"))
    sentence = (
        f"Searching all {len(texts.silos)} silos’ documents is "
        f"{sentences.against(from_home, home, 'searching only one’s own with BM25')}"
    )
    numbers = [Number(f"{measure} against BM25 at home", sentences.format_difference(from_home.mean), _note(from_home))]
    if trained is not None:
        sentence += f"; the trained ranker is {sentences.against(trained, plain, 'plain BM25 in the same search')}"
        numbers.append(
            Number("Training against BM25 in that search", sentences.format_difference(trained.mean), _note(trained))
        )
    return f"{sentence}.", numbers


def _hidden(run: Run) -> str:
    """Remaining value of a search where other silos neither read documents nor find texts."""
    said = " Other silos were not seen to read the documents or to tell whether a text is there (see the attacks below)"
    seen, exact = (_mean(run, name, "federation") for name in (BM25, BM25_EXACT))
    if lacks_judgements(run) or not exact:
        return f"{said}."
    return (
        f"{said}: BM25 reaches {seen:.3f} in what they see, and {exact:.3f} with exact counts, which owners have who "
        "look queries up at home (fedrank search owner serve)."
    )


def _own(run: Run) -> tuple[str, list[Number]]:
    measure = details_of(run).measure
    over_bm25, over_local = lead(run, FEDERATED, BM25), gain(run)
    parts, numbers = [], []
    for name, value, said in ((BM25, over_bm25, "plain BM25"), (LOCAL, over_local, "one trained by the silo alone")):
        if value is not None:
            parts.append(sentences.against(value, _mean(run, name, "own"), said))
            numbers.append(Number(f"{measure} against {name}", sentences.format_difference(value.mean), _note(value)))
    if not parts:
        reached = _mean(run, FEDERATED, "own")
        return f"On its own documents a silo reaches {measure} {reached:.3f}; there is nothing to compare with.", []
    return f"On a silo’s own documents, the ranker trained together is {describe.in_words(parts)}.", numbers


def _levels(run: Run) -> list[Level]:
    texts = details_of(run)
    rows = (
        [
            ("Trained ranker, all documents", FEDERATED, "federation"),
            ("BM25, all documents", BM25, "federation"),
            ("BM25 at home", BM25, "home"),
            ("Own ranker at home", LOCAL, "home"),
        ]
        if _of_search(run)
        else [
            ("Trained together", FEDERATED, "own"),
            ("BM25, not trained", BM25, "own"),
            ("Trained alone", LOCAL, "own"),
        ]
    )
    levels = []
    for name, method, scope in rows:
        measure = texts.measure if scope == "own" else texts.search_measure
        values = list(texts.values(method, str(measure), scope=scope).values())
        if values:
            found = mean_interval(values)
            ours = method == FEDERATED
            low, high = (
                (found.low, found.high) if ours and found.low is not None and found.high is not None else (None, None)
            )
            ends = (None, None) if low is None or high is None else (max(low, 0.0), min(high, 1.0))
            levels.append(Level(name, found.mean, *ends, ours=ours))
    return levels


def _title(run: Run) -> str:
    texts = details_of(run)
    return f"{texts.search_measure} of a search" if _of_search(run) else f"{texts.measure} on a silo’s own documents"


def _mean(run: Run, method: str, scope: str) -> float:
    texts = details_of(run)
    measure = texts.measure if scope == "own" else texts.search_measure
    values = list(texts.values(method, str(measure), scope=scope).values())
    return mean_interval(values).mean if values else 0.0


def _note(value: Estimate) -> str:
    return (
        sentences.interval_words(value)
        if value.half is None
        else f"± {value.half:.3f}: {sentences.interval_words(value)}"
    )


#: What an interval tells, in a tile.
_TOLD = {"gain": "a gain", "loss": "a loss", "neither": "may be none", "unknown": "one seed, no interval"}


def charts(run: Run) -> dict[str, Chart]:
    """All figures of the page, by the name that their PNG files have."""
    made = {
        CHART: opening_chart(run),
        "curve-own": learning_figure(run, "own"),
        "curve-search": learning_figure(run, "federation"),
        "gate": gate_figure(run),
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
    methods = (tables.to_html(text_tables.methods_table(run)), _table(queries_table(run)))
    found = (
        h("ul", *(h("li", said) for said in verdicts(run)), class_="verdicts"),
        h("dl", *_tiles(run), class_="tiles"),
    )
    return Page(
        opening_of(run),
        tuple(said for said in sentences.other_caveats(run) if said not in warned),
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
        measure = str(texts.search_measure)
        home = mean_interval(list(texts.values(alone, measure, scope="home").values())).mean
        whole = mean_interval(list(texts.values(FEDERATED, measure, scope="federation").values())).mean
        reached = f"{whole:.{DIGITS}f} against {home:.{DIGITS}f} of {alone} at home"
        out.append(_gain_tile("Search of all against search at home", everywhere, reached))
    added = lead(run, FEDERATED, BM25, scope="federation")
    if added is not None:
        plain = mean_interval(list(texts.values(BM25, str(texts.search_measure), scope="federation").values())).mean
        out.append(_gain_tile("Training over plain BM25 in that search", added, f"BM25 there: {plain:.{DIGITS}f}"))
    exact = gain(run, EXACT)
    if exact is not None:
        more = gain(run, EXACT, scope="federation")
        searched = "" if more is None else f"search of all: {_with_minus(more.mean)}"
        out.append(_gain_tile("Gain over Local with exact features", exact, searched))
    if texts.decisions:
        adopted = sum(one.adopted for one in texts.decisions)
        lost = sum(one.adopted and one.test < 0 for one in texts.decisions)
        of = f"{len(texts.silos)} silos × {len(run.seeds)} seeds, against {against(texts.decisions)}; "
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
    return tile(label, _with_minus(value.mean), half + _TOLD[direction(value)], *notes)


def _with_minus(value: float) -> str:
    return describe.format_value(value, signed=True, digits=DIGITS)


def _warning(run: Run) -> Html | None:
    said = text_privacy.warning(run)
    if said is None:
        return None
    title, lines = said
    return h(
        "div", h("strong", title), *(h("p", line) for line in lines), class_="warning", role="note", aria_label=title
    )


def _silos(run: Run, drawn: Mapping[str, Chart]) -> Section:
    gate = gate_table(run)
    figure = None
    if "gate" in drawn:
        said = "What adopting the federation’s ranker is worth to each silo in each seed; the table below has the sums"
        figure = h("div", drawn["gate"].figure("gate", _alt(run, said)), class_="matrix")
    content = (tables.to_html(text_tables.silos_table(run)), figure, _table(gate))
    return Section("silos", "Silo by silo", content)


def _curves(run: Run, drawn: Mapping[str, Chart]) -> Section:
    names = {
        "curve-own": "Learning curve on own documents, BM25, Local and Local+ as dashed lines",
        "curve-search": "Learning curve of a search of all documents; dashed lines: BM25 there, BM25 and Local at home",
    }
    parts = [drawn[name].figure(name, _alt(run, said)) for name, said in names.items() if name in drawn]
    note = "Point at a curve to read its values. Figures as PNG: folder figures." if parts else "There are no curves."
    content = (h("div", *parts, class_="charts"), h("p", note, class_="note"))
    return Section("curves", "How it learnt", content)


def _privacy(run: Run) -> Section:
    statement = [h("p", h("b", f"Mode {details_of(run).mode}. "), line) for line in words.privacy_words(run)]
    shown = [text_privacy.epsilon_table(run), text_privacy.errors_table(run), text_privacy.questions_table(run)]
    content = (
        *statement,
        *(tables.to_html(table) for table in shown if table is not None),
        sections.list_coverage(run),
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
