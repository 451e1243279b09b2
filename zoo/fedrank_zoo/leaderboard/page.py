"""The leaderboard's page: one chart a question, the tests behind it, and every row, also those without a value.

A chart has dots with intervals: rows under several circumstances, in panels below each other.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fedrank import __version__
from fedrank.core.trees import Json
from fedrank.engine.checkpoint import write_atomically
from fedrank.report import describe, figures, wording
from fedrank.report.charts import OKABE_ITO, RULE, Chart, Entry, Panel, compose, decimal_labels, element, nice_domain
from fedrank.report.claims import Measured, Named, Number, Opening, Sentence, Share, head, join_all, say
from fedrank.report.html import Html, document, h, join, section
from fedrank.report.statistics import Estimate
from fedrank.report.tables import Column, Table
from fedrank_zoo.leaderboard.grid import DIVISION, FIRST_SEED, MEASURE, SCEPTICS, STEPS, data_title
from fedrank_zoo.leaderboard.standings import (
    BUDGETS,
    OURS,
    Contrast,
    Standings,
    contrasts,
    contrasts_frame,
    curves_frame,
    epsilon_words,
    rank_methods,
    results_frame,
    runs_frame,
)

#: Width of the figure beside the names, and height that each dot of a row takes.
_WIDTH, _STEP = 250, 14
#: Characters of a name at most.
_LONGEST = 26


@dataclass(frozen=True)
class Dot:
    """One value.

    Attributes:
        panel: Which of the panels below each other, such as a data set.
        row: Name of its row.
        series: What its colour stands for.
        value: The value.
        low: Lower end of its interval, or None.
        high: Upper end of its interval, or None.
        strong: Whether it is drawn filled: a difference that survives correction, say.
    """

    panel: str
    row: str
    series: str
    value: float
    low: float | None = None
    high: float | None = None
    strong: bool = True


def dots_figure(
    dots: Sequence[Dot], title: str, said: Sequence[str], measure: str, *, signed: bool = False, digits: int = 3
) -> Chart:
    """Rows of dots with their intervals, a panel for each data set.

    Args:
        dots: At least one; panels, rows and series in the order in which they come.
        title: Of the figure.
        said: What a reader must know, for the subtitle.
        measure: Title of the axis.
        signed: Values are differences: they carry their sign, and a line stands at 0.
        digits: Decimals of the numbers that a pointer shows.
    """
    series = list(dict.fromkeys(dot.series for dot in dots))
    colours = {name: OKABE_ITO[i % len(OKABE_ITO)] for i, name in enumerate(series)}
    panels = []
    for name in dict.fromkeys(dot.panel for dot in dots):
        mine = [dot for dot in dots if dot.panel == name]
        panels.append(_panel(name, mine, series, colours, measure, signed, digits))
    legend = [Entry(name, colour, "circle") for name, colour in colours.items()] if len(series) > 1 else []
    return compose(panels, title, said, legend)


def _panel(
    title: str,
    dots: Sequence[Dot],
    series: Sequence[str],
    colours: Mapping[str, str],
    measure: str,
    signed: bool,
    digits: int,
) -> Panel:
    here = [name for name in series if any(dot.series == name for dot in dots)]
    rows = list(dict.fromkeys(dot.row for dot in dots))
    height = max(2, len(here)) * _STEP
    bounds = [end for dot in dots for end in (dot.value, dot.low, dot.high) if end is not None]
    domain = nice_domain([*bounds, *([0.0] if signed else [])])
    panel = Panel(_WIDTH, height * len(rows), domain, title=title)
    places = _ticks(*domain, signed)
    panel.x_axis(places, decimal_labels(places, signed=signed), measure, grid=True)
    panel.rows([textwrap.shorten(row, _LONGEST, placeholder="…") for row in rows])
    for row in range(1, len(rows)):
        at = float(row * height)
        panel.add(element("line", x1=0.0, x2=panel.width, y1=at, y2=at, stroke=RULE))
    if signed and domain[0] < 0 < domain[1]:
        panel.vertical(0.0)
    lanes = {row: [name for name in here if any((d.row, d.series) == (row, name) for d in dots)] for row in rows}
    for dot in dots:
        lane = lanes[dot.row]
        y = (rows.index(dot.row) + (lane.index(dot.series) + 0.5) / len(lane)) * height
        if dot.low is not None and dot.high is not None:
            panel.interval(dot.low, dot.high, y, colours[dot.series])
        note = _note(dot, signed, digits)
        panel.dot(panel.x(dot.value), y, colours[dot.series], filled=dot.strong, note=note)
    return panel


def _ticks(low: float, high: float, signed: bool) -> list[float]:
    """Places of the axis that have a label: its ends and its middle, or zero; never so near that labels touch.

    >>> _ticks(0.3, 0.5, False), _ticks(-0.3, 0.02, True)
    ([0.3, 0.4, 0.5], [-0.3, 0.0])
    """
    between = 0.0 if signed else (low + high) / 2
    ends = [end for end in (low, high) if abs(end - between) > 0.3 * (high - low)]
    return sorted({*ends, between})


def _note(dot: Dot, signed: bool, digits: int) -> str:
    form = f"{'+' if signed else ''}.{digits}f"
    ends = "" if dot.low is None or dot.high is None else f" ({dot.low:{form}} to {dot.high:{form}})"
    return f"{dot.row}, {dot.series}: {dot.value:{form}}{ends}".replace("-", "−")


#: Rows of the table of everything at most; a browser becomes slow with more, and results.csv has all.
MOST_ROWS = 4000
#: Name of the chart at the top.
FIRST = "methods"


@dataclass(frozen=True)
class Question:
    """A question that the page answers with one chart.

    Attributes:
        name: Of its tests and its section.
        title: The question.
        without: What the values are differences to.
    """

    name: str
    title: str
    without: str


#: Questions about a changed circumstance, in the order of the page.
CHANGES = (
    Question("privacy", "What does privacy cost?", "the same way without noise"),
    Question("attacks", "Who withstands poisoning?", "the same method without attackers"),
    Question("heterogeneity", "What does it cost that devices differ?", "the same method with devices that are alike"),
)


def budget_words(standings: Standings, budget: str) -> str:
    """A budget as a reader reads it: ``"80,000 interactions"``, ``"400 kB sent"``."""
    terms = standings.grid.terms
    if budget == "interactions":
        return f"{terms.budget:,} interactions"
    return f"{wording.size(terms.upload)} sent"


def charts(standings: Standings, found: Sequence[Contrast]) -> dict[str, Chart]:
    """One chart a question, by its name; a question without values has none."""
    out: dict[str, Chart] = {}
    dots = []
    for data in _data(standings):
        order = {row.method: None for budget in BUDGETS for row in rank_methods(standings, data, budget)}
        by_budget = {
            budget: {row.method: row for row in rank_methods(standings, data, budget)} for budget in BUDGETS
        }  # fmt: skip
        for method in order:
            for budget in BUDGETS:
                row = by_budget[budget].get(method)
                if row is None or (row.source == "labels" and budget == "bytes"):
                    continue
                series = "trained on labels" if row.source == "labels" else budget_words(standings, budget)
                dots.append(_dot(data, row.method, series, row.estimate(), True))
    if dots:
        seeds = standings.grid.terms.seeds
        said = [f"Unseen queries, {_users(standings)}", wording.seeds_in_words(seeds, shown="bar")]
        out[FIRST] = dots_figure(dots, "Which method at which budget?", said, MEASURE)
    for question in CHANGES:
        mine = [test for test in found if test.question == question.name and test.budget == "interactions"]
        if mine:
            dots = [_dot(t.data, t.about, t.name, t.seeds, t.survives) for t in mine]
            said = [
                f"{MEASURE} less that of {question.without}; {budget_words(standings, 'interactions')}",
                "Filled: significant over queries after correction; bars: 95 % intervals over seeds",
            ]
            title = f"difference of {MEASURE}"
            out[question.name] = dots_figure(dots, question.title, said, title, signed=True)
    return out


def _dot(data: str, row: str, series: str, estimate: Estimate | None, strong: bool) -> Dot:
    assert estimate is not None
    return Dot(data, row, series, estimate.mean, estimate.low, estimate.high, strong)


def _data(standings: Standings) -> list[str]:
    return list(dict.fromkeys(part.data for part in standings.grid.parts))


def _users(standings: Standings) -> str:
    users = dict.fromkeys(b.clicks for b in standings.grid.blocks)
    return f"mean over {len(users)} kinds of users" if len(users) > 1 else f"{next(iter(users))} users"


# ------------------------------------------------------------------------------------------------------------- tables


def ranking_table(standings: Standings, data: str, found: Sequence[Contrast]) -> Table:
    """The methods on one data set, the best first, at both budgets; their differences to the leader with p."""
    at = {budget: {row.method: row for row in rank_methods(standings, data, budget)} for budget in BUDGETS}
    against = {
        (t.budget, t.name): t
        for t in found
        if t.question == "methods" and t.data == data and not t.reference.startswith("labels")
    }
    to_feature = {
        (t.budget, t.name): t
        for t in found
        if t.question == "methods" and t.data == data and t.reference.startswith("labels")
    }
    plain = standings.having(data=data, budget="interactions", heterogeneity="iid", epsilon=None, attack="none")
    rows = []
    for method in dict.fromkeys(name for budget in BUDGETS for name in at[budget]):
        row: dict[str, Json] = {"method": method}
        for budget in BUDGETS:
            mine = at[budget].get(method)
            test, feature = against.get((budget, method)), to_feature.get((budget, method))
            row[budget] = None if mine is None else mine.estimate()
            row[f"{budget} p"] = None if test is None else _p(test.corrected)
            row[f"{budget} f"] = None if feature is None else _p(feature.corrected)
            if mine is not None:
                row["source"] = mine.source
        row |= {
            one.block.clicks: one.estimate() for one in plain if (one.method, one.source) == (method, row["source"])
        }
        rows.append(row)
    users = dict.fromkeys(one.block.clicks for one in plain)
    sources = {row["source"] for row in rows} - {OURS, "labels"}
    columns = (
        Column("method", "method"),
        Column("interactions", f"{MEASURE} at {budget_words(standings, 'interactions')}", numeric=True),
        Column("interactions p", "p, to the best", numeric=True),
        Column("interactions f", f"p, to {SCEPTICS[0]}", numeric=True),
        Column("bytes", f"{MEASURE} at {budget_words(standings, 'bytes')}", numeric=True),
        Column("bytes p", "p, to the best", numeric=True),
        *(Column(one, f"{one} users", numeric=True) for one in users if len(users) > 1),
        *([Column("source", "source")] if sources else []),
    )
    parts = wording.in_words([part.name for part in standings.grid.parts_of(data)])
    notes = (
        f"Means over {parts}; {_users(standings)}. p: paired randomisation test over queries, corrected (Holm) for "
        "all tests of this question.",
    )
    return Table(f"{data}: {data_title(data)}", columns, tuple(rows), notes)


def tests_table(question: Question, found: Sequence[Contrast]) -> Table:
    """The comparisons of a question: over seeds, over queries, before and after correction."""
    mine = [test for test in found if test.question == question.name]
    rows = [
        {
            "method": t.about,
            "what": t.name,
            "data": t.data,
            "budget": t.budget,
            "difference": t.seeds,
            "wins": f"{t.queries.wins} / {t.queries.losses} of {t.queries.queries}",
            "p": _p(t.queries.p_randomisation),
            "corrected": _p(t.corrected),
            "survives": "yes" if t.survives else "no",
        }
        for t in mine
    ]
    columns = (
        Column("method", "method"),
        Column("what", "what changes"),
        Column("data", "data"),
        Column("budget", "budget"),
        Column("difference", f"difference of {MEASURE}", numeric=True, signed=True),
        Column("wins", "queries better / worse", numeric=True),
        Column("p", "p", numeric=True),
        Column("corrected", "p corrected", numeric=True),
        Column("survives", "survives"),
    )
    count = sum(t.corrected is not None for t in mine)
    note = f"Differences to {question.without}. p over queries, corrected (Holm) for {count} tests; ± over seeds."
    return Table(question.title, columns, tuple(rows), (note,))


def rows_table(standings: Standings) -> Table:
    """All rows with values; rankers trained on labels once, as no promise changes them."""
    having = [row for row in standings.having() if row.source != "labels" or row.block.epsilon is None]
    rows = []
    for row in having[:MOST_ROWS]:
        block = row.block
        about: dict[str, Json] = {"method": row.method, "data": block.data, "clicks": block.clicks}
        about |= {"heterogeneity": block.heterogeneity, "attack": block.attack, "budget": row.budget}
        about["epsilon"] = "no noise" if block.epsilon == math.inf else epsilon_words(block.epsilon)
        about |= {"value": row.estimate(), "online": row.estimate("online"), "source": row.source}
        about["sent"] = wording.size(row.bytes) if row.bytes else ""
        about["why"] = row.why or row.evidence
        rows.append(about)
    columns = (
        Column("method", "method"),
        Column("data", "data"),
        Column("clicks", "users"),
        Column("heterogeneity", "devices differ in"),
        Column("epsilon", "ε of a user"),
        Column("attack", "attack"),
        Column("budget", "budget"),
        Column("value", MEASURE, numeric=True),
        Column("online", "users saw meanwhile", numeric=True),
        Column("sent", "sent", numeric=True),
        Column("source", "source"),
        *([Column("why", "what lacks, or evidence")] if any(row["why"] for row in rows) else []),
    )
    more = len(having) - MOST_ROWS
    notes = [f"{more:,} more rows are in results.csv."] if more > 0 else []
    return Table("Every row", columns, tuple(rows), (*notes, "results.csv has more measures of the same rows."))


def _without_value(standings: Standings) -> Html:
    """Why rows have no value: each reason with the methods that have it."""
    reasons: dict[str, dict[str, None]] = {}
    for row in standings.rows:
        if not row.by_seed:
            reasons.setdefault(row.why, {})[row.method] = None
    return h("ul", *(h("li", f"{wording.in_words(list(names))}: {why}") for why, names in reasons.items()))


def _p(value: float | None) -> str:
    return "–" if value is None else "< 0.001" if value < 0.001 else f"{value:.3f}"


# --------------------------------------------------------------------------------------------------------------- words


def leaders(standings: Standings, found: Sequence[Contrast]) -> Sentence:
    """On each data set: how many methods are above the best single feature, who leads, and what labels reach."""
    said = []
    for data in _data(standings):
        ranked = rank_methods(standings, data, "interactions")
        rows = [row for row in ranked if row.source == OURS]
        if not rows:
            continue
        reached = {
            row.method.removeprefix("labels: "): one.mean
            for row in ranked
            if row.source == "labels" and (one := row.estimate()) is not None
        }
        best = rows[0].estimate()
        assert best is not None  # a row of ours has values
        sentence = say(Named(data), ": ")
        if SCEPTICS[0] in reached:
            above = sum(t.survives and t.queries.difference > 0 for t in _to_feature(found, data))
            feature = Measured(reached.pop(SCEPTICS[0]), MEASURE)
            sentence += say(
                Share(above, len(rows)), " methods are above the best single feature (", feature, ") after correction; "
            )
        sentence += say(Named(rows[0].method), " leads with ", Measured(best, MEASURE))
        if reached:
            most = max(reached, key=lambda name: reached[name])
            sentence += say("; labels reach ", Measured(reached[most], MEASURE), " (", Named(most), ")")
        said.append(sentence + say("."))
    return join_all(said)


def _to_feature(found: Sequence[Contrast], data: str, budget: str = "interactions") -> list[Contrast]:
    asked = ("methods", data, budget, f"labels: {SCEPTICS[0]}")
    return [test for test in found if (test.question, test.data, test.budget, test.reference) == asked]


def survivors(standings: Standings, data: str, found: Sequence[Contrast]) -> list[str]:
    """The differences between methods that survive correction on one data set, in words: a text for each budget."""
    said = []
    for budget in BUDGETS:
        to_feature = _to_feature(found, data, budget)
        mine = [t for t in found if (t.question, t.data, t.budget) == ("methods", data, budget)]
        to_best = [test for test in mine if test not in to_feature]
        above, below = (
            [t for t in to_feature if t.survives and (t.queries.difference > 0) == more] for more in (True, False)
        )
        clauses = [f"above {SCEPTICS[0]} {_listed(above)}", f"below it {_listed(below)}"]
        if to_best:
            lost = _listed([test for test in to_best if test.survives])
            level = [test.name for test in to_best if not test.survives]
            clauses.append(f"below the best, {to_best[0].reference}, {lost}")
            clauses.append(f"{wording.in_words(level) if level else 'no method'} not told apart from it")
        if mine:
            said.append(f"After correction, {budget_words(standings, budget)}: {'; '.join(clauses)}.")
    return said


def _listed(tests: Sequence[Contrast]) -> str:
    named = [f"{t.name} ({wording.format_value(t.seeds.mean, signed=True, digits=3)})" for t in tests]
    return wording.in_words(named) if named else "no method"


def findings(standings: Standings, found: Sequence[Contrast]) -> dict[str, str]:
    """Findings: the answer to each question, in a sentence or two."""
    out = {FIRST: str(leaders(standings, found))}
    for question in CHANGES:
        mine = [t for t in found if t.question == question.name and t.budget == "interactions"]
        lost = [t for t in mine if t.survives and t.queries.difference < 0]
        won = [t for t in mine if t.survives and t.queries.difference > 0]
        if not mine:
            out[question.name] = ""
            continue
        text = f"{len(lost)} of {len(mine)} differences are losses that survive correction"
        text += f", {len(won)} are gains." if won else "."
        if len(lost) == 1:
            text += f" {_describe_contrast(lost[0])}."
        elif lost:
            most = min(lost, key=lambda t: t.seeds.mean)
            least = max(lost, key=lambda t: t.seeds.mean)
            text += f" The largest: {_describe_contrast(most)}; the smallest: {_describe_contrast(least)}."
        out[question.name] = text
    return out


def _describe_contrast(test: Contrast) -> str:
    return f"{test.about}, {test.name}, {test.data}: {wording.format_value(test.seeds.mean, signed=True)}"


def board_opening(standings: Standings, found: Sequence[Contrast], drawn: Iterable[str]) -> Opening:
    """Title, sentence and numbers of the page."""
    methods = {row.method.partition(", ")[0] for row in standings.rows if row.source == OURS and row.by_seed}
    sets, terms = _data(standings), standings.grid.terms
    survive = sum(test.survives for test in found)
    tested = sum(test.corrected is not None for test in found)
    sentence = leaders(standings, found) or say("Nothing has been computed yet.")
    numbers = [
        Number("Differences that survive correction", Share(survive, tested), "over queries, Holm, by question"),
        Number(
            "Interactions of a run", Named(f"{terms.budget:,}"), f"the other budget: {budget_words(standings, 'bytes')}"
        ),
        Number(
            "Interactions to tune by",
            Named(f"{len(STEPS) * terms.budget:,}"),
            f"alike for all: {len(STEPS)} step sizes, on queries that do not judge",
        ),
        Number("Seeds", Named(f"{terms.seeds}"), "none of them was used in development or to choose by"),
    ]
    title = f"{len(methods)} methods that learn to rank from clicks, on {len(sets)} data set{'s' * (len(sets) > 1)}"
    shown = FIRST if FIRST in drawn else ""
    return Opening(title, sentence, tuple(numbers), shown, f"{MEASURE} of each method at two budgets: {sentence}")


def _measurements(standings: Standings) -> Html:
    """Description of the measurements, as a list."""
    terms = standings.grid.terms
    parts = "; ".join(
        f"{data_title(data)}: {wording.in_words([part.name for part in standings.grid.parts_of(data)])}"
        for data in _data(standings)
    )
    items = [
        f"Rounds: {terms.clients:,} devices with {terms.interactions} searches each, {terms.rounds} rounds; where "
        f"amounts differ, as many rounds as the budget pays for. Seeds {terms.seed} to {terms.seed + terms.seeds - 1}; "
        f"those below {FIRST_SEED} were used in development.",
        f"A budget of bytes ends a run after the last round that it pays for, or at the budget of interactions: "
        f"{budget_words(standings, 'bytes')} by all devices together. The shape of a round is the same for all; with "
        "fewer devices a round, methods with large messages would take more steps for the same bytes.",
        f"Data: {parts}. Parts are fifths of all queries, dealt by seed {DIVISION}: three to learn from, one to "
        "choose by, one to judge by, each in turn.",
        f"Step sizes: in each cell a method chooses one of {len(STEPS)}, its default times "
        f"{wording.in_words([f'{one:g}' for one in STEPS])}, by a run of the whole budget each, on the validation "
        f"queries: {len(STEPS) * terms.budget:,} interactions more, with a seed that judges nothing. All other "
        "settings are the method’s defaults; without a promise nothing is privatised.",
        "A row with an ε shows other lists and clips than one without a promise; it is compared with the same way "
        "without noise.",
        f"ε of a user: each of {terms.population:,} users takes part in one round; where devices keep queries of their "
        f"own, the same {terms.clients:,} take part in all rounds, and ε is for all of them.",
        "Poisoning: 30 % of the devices click what is worst; all else that they send is as it should be.",
        "Intervals: 95 %, Student’s t over seeds of the mean over divisions. Tests: over queries, each the mean over "
        "seeds and divisions; the leader is chosen on the same queries, which favours it.",
        f"Processor time: {standings.cpu_seconds / 60:,.1f} minutes.",
        *standings.notes,
    ]
    return h("ul", *(h("li", item) for item in items))


def document_of(standings: Standings, found: Sequence[Contrast], drawn: Mapping[str, Chart]) -> str:
    """The page as one HTML document."""
    top, said = board_opening(standings, found, drawn), findings(standings, found)
    chart = drawn[FIRST].figure(FIRST, top.description) if FIRST in drawn else None
    caveats = ["Simulated users", *_caveats(standings)]
    about = f"fedrank reproduce leaderboard · {', '.join(_data(standings))}"
    methods = []
    for data in _data(standings):
        methods.append(ranking_table(standings, data, found).as_html())
        methods += [h("p", text) for text in survivors(standings, data, found)]
    parts = [section("methods", "Which method at which budget?", *methods)]
    for question in CHANGES:
        if question.name not in drawn:
            continue
        picture = drawn[question.name].figure(question.name, f"{question.title} {said[question.name]}")
        grid = tests_table(question, found).as_html(filters={"data": "", "budget": "interactions", "what": ""})
        framed = h("div", picture, class_="opening")
        parts.append(section(question.name, question.title, h("p", said[question.name]), framed, grid))
    everything = rows_table(standings)
    first = standings.grid.blocks[0]
    chosen = {"data": first.data, "clicks": first.clicks, "heterogeneity": "", "epsilon": "", "attack": ""}
    chosen |= {"budget": "interactions", "source": "", "method": ""}
    listed = everything.as_html(filters=chosen)
    parts.append(section("rows", "Every row", listed, h("p", "Without a value:"), _without_value(standings)))
    parts.append(section("measured", "How it was measured", _measurements(standings)))
    parts.append(section("submit", "Add a method of yours", _how_to_submit()))
    foot = h("footer", f"Made by fedrank {__version__} from the files of the cells alone.")
    return document(f"{top.title} – fedrank", head(top, about, caveats, chart), *parts, foot)


def _caveats(standings: Standings) -> list[str]:
    out = []
    if standings.missing:
        out.append(f"Unfinished: {standings.missing:,} cells are not there yet")
    if any(part.data == "generated" for part in standings.grid.parts):
        out.append("Generated data")
    if standings.grid.terms.seeds < describe.FEW_SEEDS:
        out.append(f"Few seeds: {standings.grid.terms.seeds}")
    return out


def _how_to_submit() -> Html:
    return join(
        h(
            "p",
            "A method that a package registers under the entry points fedrank.protocols takes part by itself. Numbers "
            "of other programs are submitted as a CSV, a line for each seed and division, with evidence: the directory "
            "of a fedrank run, which is read and whose ranker is scored again, or a link with a checksum, which is "
            "shown as not checked.",
        ),
        h("pre", "fedrank reproduce leaderboard submit mine.csv"),
    )


def write(standings: Standings, folder: Path) -> Path:
    """Write the page with its figures, and the tables beside it as CSV; the results as parquet, too.

    Args:
        standings: What there is.
        folder: Gets the files.

    Returns:
        The page.

    """
    found = contrasts(standings)
    results = results_frame(standings)
    write_atomically(folder / "results.csv", results.to_csv().encode())
    write_atomically(folder / "tests.csv", contrasts_frame(found).to_csv().encode())
    write_atomically(folder / "runs.csv", runs_frame(standings).to_csv().encode())
    write_atomically(folder / "curves.csv", curves_frame(standings).to_csv().encode())
    write_atomically(folder / "results.parquet", results.to_parquet())
    drawn = charts(standings, found)
    figures.save_all(drawn, folder / "figures")
    page = folder / "leaderboard.html"
    write_atomically(page, document_of(standings, found, drawn).encode())
    return page
