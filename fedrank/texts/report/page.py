"""The page of a run of silos with texts, for people who decide for one of the silos.

A reader gets, in this order: what searching together is worth, beside BM25, a warning where nothing is protected; then,
folded, what was found and what protection took of it, all methods by all measures, a search of all documents,
each silo and who adopts, how it learnt, what is private and what is not, what crossed, the data, and everything needed
to run it again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from typing_extensions import override

from fedrank.core.trees import Json
from fedrank.report import describe, sections, wording, words
from fedrank.report.charts import Chart
from fedrank.report.claims import Comparison, Measured, Number, Opening, Sentence, list_all, say
from fedrank.report.figures import Level
from fedrank.report.html import bullets, h, warn
from fedrank.report.run import MESSAGE_AXES, Line, Page, Run, Section, Shown
from fedrank.report.tables import Table, to_json
from fedrank.texts.report import privacy, tables
from fedrank.texts.report.files import BM25, BM25_EXACT, FEDERATED, LOCAL, METHODS, read_texts
from fedrank.texts.report.tables import details_of, lead
from fedrank.texts.report.verdicts import gate_table, verdicts

#: Name of the chart that the page opens with.
CHART = "opening"
_ADVICE = ("search documents where they are, without sketches:", "fedrank search broker my-federation --owners 3")

#: Charts of the section about learning, and what each shows.
_CURVES = {
    "curve-own": "Learning curve on own documents, BM25, Local and Local+ as dashed lines",
    "curve-search": "Learning curve of a search of all documents; dashed lines: BM25 there, BM25 and Local at home",
}


def _of_search(run: Run) -> bool:
    """True if the page opens with the search of all documents: it has values, and foreign documents are judged."""
    from_home = lead(run, FEDERATED, BM25, scope="federation", at="home")
    return from_home is not None and not tables.lacks_judgements(run)


def _search_values(run: Run) -> tuple[Sentence, list[Number]]:
    texts = details_of(run)
    from_home, trained = (lead(run, FEDERATED, BM25, scope="federation", at=at) for at in ("home", "federation"))
    assert from_home is not None  # asked before
    home, plain = (_mean(run, BM25, scope) for scope in ("home", "federation"))
    found = Comparison(from_home, "searching only one’s own with BM25", home)
    sentence = say(f"Searching all {len(texts.silos)} silos’ documents is ", found)
    numbers = [Number(f"{texts.search_measure} against BM25 at home", found)]
    if trained is not None:
        added = Comparison(trained, "plain BM25 in the same search", plain)
        sentence += say("; the trained ranker is ", added)
        numbers.append(Number("Training against BM25 in that search", added))
    return say(sentence, "."), numbers


def _hidden(run: Run) -> Sentence:
    """Remaining value of a search where other silos neither read documents nor find texts."""
    said = say(
        " Other silos were not seen to read the documents or to tell whether a text is there (see the attacks below)"
    )
    seen, exact = (_mean(run, name, "federation") for name in (BM25, BM25_EXACT))
    if tables.lacks_judgements(run) or not exact:
        return say(said, ".")
    measure = str(details_of(run).search_measure)
    said += say(": BM25 reaches ", Measured(seen, measure), " in what they see, and ", Measured(exact, measure))
    return said + say(" with exact counts, which owners have who look queries up at home (fedrank search owner serve).")


def _own(run: Run) -> tuple[Sentence, list[Number]]:
    measure = details_of(run).measure
    over_bm25, over_local = lead(run, FEDERATED, BM25), tables.gain(run)
    found, numbers = [], []
    for name, value, said in ((BM25, over_bm25, "plain BM25"), (LOCAL, over_local, "one trained by the silo alone")):
        if value is not None:
            found.append(Comparison(value, said, _mean(run, name, "own")))
            numbers.append(Number(f"{measure} against {name}", found[-1]))
    if not found:
        reached = Measured(_mean(run, FEDERATED, "own"), measure)
        said = say(f"On its own documents a silo reaches {measure} ", reached)
        return say(said, "; there is nothing to compare with."), []
    return say("On a silo’s own documents, the ranker trained together is ", list_all(found), "."), numbers


def _levels(run: Run) -> list[Level]:
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
        ours, found = method == FEDERATED, tables.level(run, method, scope)
        if found is None:
            continue
        low, high = (found.low, found.high) if ours else (None, None)
        ends = () if low is None or high is None else (max(low, 0.0), min(high, 1.0))
        levels.append(Level(name, found.mean, *ends, ours=ours))
    return levels


def _title(run: Run) -> str:
    texts = details_of(run)
    return f"{texts.search_measure} of a search" if _of_search(run) else f"{texts.measure} on a silo’s own documents"


def _mean(run: Run, method: str, scope: str) -> float:
    found = tables.level(run, method, scope)
    return found.mean if found else 0.0


def _silos(run: Run, drawn: Mapping[str, Chart]) -> Section:
    figure = None
    if "gate" in drawn:
        said = "What adopting the federation’s ranker is worth to each silo in each seed; the table below has the sums"
        figure = h("div", drawn["gate"].figure("gate", describe.chart_words(run, said)), class_="matrix")
    return Section("silos", "Silo by silo", (tables.silos_table(run), figure, gate_table(run)))


def _privacy(run: Run) -> Section:
    statement = [h("p", h("b", f"Mode {details_of(run).mode}. "), line) for line in words.privacy_words(run)]
    shown = (privacy.epsilon_table(run), privacy.errors_table(run))
    return Section("privacy", "Privacy of documents", (*statement, *shown, sections.list_coverage(run)))


def _data(run: Run) -> Section:
    texts = details_of(run)
    first = "Generated data: no real collection." if texts.generated else None
    items = [*([first] if first else ()), *texts.notes]
    notes = bullets(items) if items else None
    return Section("data", "Data", (tables.data_table(run), notes))


class TextsShown(Shown):
    """Pages, tables and figures about the federation's gains, silo by silo, and the cost of protection."""

    party = ("silo", "silos")
    counted = "messages"
    over = "round"
    spread_baselines = True
    baseline_names: ClassVar[Mapping[str, str]] = {name: name for name in METHODS}
    generated_sentence = "The texts are generated: the numbers say nothing about real ones."
    comparison_notes = ("Single silos and other methods are on the page of each run; MAP-JOS is a cost, 1 is best.",)
    axis_titles = MESSAGE_AXES

    @override
    def read(self, folder: Path, config: Mapping[str, Json], *, finished: bool) -> Any:
        evaluation = config.get("evaluation")
        measures = evaluation.get("measures") if isinstance(evaluation, Mapping) else None
        names = [str(name) for name in measures] if isinstance(measures, list) else []
        return read_texts(folder, str(config.get("protocol")), finished=finished, measures=names)

    @override
    def subject(self, run: Run) -> str:
        return f"{len(run.details.silos)} silos"

    @override
    def headline(self, run: Run) -> str:
        epsilon, data = run.setting("sketch.epsilon"), run.setting("data.name", run.setting("data"))
        mode = run.details.mode if epsilon is None else f"{run.details.mode}, ε = {wording.number(epsilon)}"
        return " · ".join((str(run.setting("protocol")), str(data), self.subject(run), mode))

    @override
    def more_caveats(self, run: Run) -> list[str]:
        out = [tables.unprotected(run)] if not run.details.protects else []
        if not out and run.details.insider is not None and run.details.insider.readable:
            out.append(tables.READABLE_TO_SILOS)
        if run.setting("sketch.as_published"):
            out.append("Features as printed")
        return [*out, *describe.few_seeds(run)]

    @override
    def ledger_words(self, run: Run) -> list[str]:
        return tables.ledger_words(run)

    @override
    def summarised(self, run: Run, measure: str) -> bool:
        ends = (*(f" ({name})" for name in run.details.names), *(f", {name}" for name in run.details.ordered_methods))
        return not measure.endswith(ends)

    @override
    def telling(self, run: Run, split: str, measure: str) -> bool:
        return split == "test" and self.summarised(run, measure) and run.details.is_headline(measure)

    @override
    def drawn_measures(self, run: Run, ordered: Sequence[str]) -> list[str]:
        telling = [m for m in ordered if self.summarised(run, m) and run.details.is_headline(m)]
        return telling or list(ordered[:1])

    @override
    def same_question(self, run: Run) -> str:
        return f"{run.setting('data')}, {self.subject(run)}"

    @override
    def lines(self, runs: Mapping[str, Run], split: str, measure: str) -> dict[str, float]:
        label, first = next(iter(runs.items()))
        return {f"{name} of {label}": value for name, value in first.details.baseline_values(split, measure).items()}

    @override
    def privacy_table(self, runs: Mapping[str, Run]) -> Table | None:
        return privacy.budgets_table(runs)

    @override
    def data_settings(self, run: Run) -> list[str]:
        divided = ("silos", "cut", "train", "vali", "depth", "negatives", "foreign", "candidates")
        return ["data", "data_seed", *(f"texts.{name}" for name in divided)]

    @override
    def opening(self, run: Run) -> Opening:
        texts = details_of(run)
        data = run.setting("data.name", run.setting("data"))
        known = "generated texts" if self.generated(run) or not isinstance(data, str) else data
        title = f"Searching the texts of {len(texts.silos)} silos together: {known}"
        sentence, numbers = _search_values(run) if _of_search(run) else _own(run)
        if not texts.protects:
            sentence += say(" Nothing protects the documents: see the warning.")
        elif texts.insider is not None and texts.insider.readable:
            sentence += say(" Other silos can read the documents: see the warning.")
        elif texts.insider is not None and texts.insider.found is not None and not texts.insider.finds:
            sentence += _hidden(run)
        costs = [one for one in (sections.sent(run, len(texts.silos), "in all"), privacy.privacy_number(run)) if one]
        chart = (CHART, f"{_title(run)}. The same numbers are in the tables below.") if _levels(run) else ("", "")
        return Opening(title, sentence + describe.closing(run), (*numbers, *costs), *chart, advice=_ADVICE)

    @override
    def charts(self, run: Run) -> dict[str, Chart]:
        made = {
            CHART: sections.opening_chart(run, _levels(run), _title(run)),
            "curve-own": tables.learning_figure(run, "own"),
            "curve-search": tables.learning_figure(run, "federation"),
            "gate": tables.gate_figure(run),
        }
        return {name: chart for name, chart in made.items() if chart is not None}

    @override
    def page(self, run: Run, charts: Mapping[str, Chart]) -> Page:
        warning = privacy.warning(run)
        warned = (tables.unprotected(run), tables.READABLE_TO_SILOS)  # said by the warning
        return Page(
            self.opening(run),
            tuple(said for said in describe.other_caveats(run) if said not in warned),
            (
                sections.found(verdicts(run)),
                Section("methods", "Methods", (tables.methods_table(run), tables.queries_table(run))),
                Section("search", "Searching together", (tables.search_table(run),)),
                _silos(run, charts),
                sections.curves(run, charts, _CURVES),
                _privacy(run),
                sections.left(run, tables.crossed_table(run)),
                _data(run),
                sections.repeat(run),
                sections.configuration(run, notes=False),
                sections.citation(run),
            ),
            None if warning is None else warn(warning[0], *(h("p", line) for line in warning[1])),
        )

    @override
    def final(self, run: Run) -> Table:
        return tables.methods_table(run)

    @override
    def terminal(self, run: Run) -> list[Any]:
        out: list[Any] = []
        warned = privacy.warning(run)
        if warned is not None:
            out += [Line(line, warning=True) for line in (warned[0], *warned[1])]
        elif (read := privacy.reading_words(run)) is not None:
            out.append(Line(read))
        shown = [(tables.methods_table(run), ("m0", "gain", "lead"))]
        shown += [(tables.search_table(run), ("everywhere", "gain", "lead"))]
        out += [(made, ("method", *keys)) for made, keys in shown if made is not None]
        return [*out, *map(Line, verdicts(run))]

    @override
    def for_machines(self, run: Run) -> dict[str, Json]:
        warned = privacy.warning(run)
        made = {
            "search": tables.search_table(run),
            "silos": tables.silos_table(run),
            "gate": gate_table(run),
            "by_query": tables.queries_table(run),
            "count_errors": privacy.errors_table(run),
        }
        return {
            "warnings": [] if warned is None else [warned[0], *warned[1]],
            "verdicts": verdicts(run),
            **{name: None if table is None else to_json(table)["rows"] for name, table in made.items()},
            "decisions": [vars(one) for one in run.details.decisions],
        }


SHOWN = TextsShown()
