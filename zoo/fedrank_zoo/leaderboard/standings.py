"""Standings of the cells: values pooled over divisions and seeds, and tests over queries corrected for their number.

A value is, for each seed, the mean over the divisions of a data set; its interval is Student's t over seeds. A test
pairs two rankers query by query, each query's value the mean over seeds and over the divisions that have it. Tests are
corrected (Holm) for all tests of the same question, on all data sets and at both budgets.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fedrank.core.frame import Frame
from fedrank.core.trees import Json
from fedrank.report.significance import Compared, adjust, compare_queries
from fedrank.report.statistics import Estimate, difference, mean_interval
from fedrank_zoo.leaderboard.cells import read_cell
from fedrank_zoo.leaderboard.grid import MEASURE, SCEPTICS, Block, Entrant, Grid, Part

#: The two budgets, by their name in files.
BUDGETS = ("interactions", "bytes")
#: Measures by their name in files: final lists, and what users saw while the ranker learnt.
MEASURES = (MEASURE, "RR@10", "expected", "online")
#: Source of rows that were computed here, not submitted.
OURS = "fedrank"


@dataclass(frozen=True)
class Row:
    """One method under some circumstances at one budget.

    Attributes:
        method: What it is called.
        source: :data:`OURS`, ``"labels"``, or who submitted it.
        block: The circumstances.
        budget: ``"interactions"`` or ``"bytes"``.
        parts: Divisions that it is the mean over.
        by_seed: Measure -> seed -> value. Of rankers trained on labels, which have no seeds, one value under -1.
        queries: Query -> value of :data:`~fedrank_zoo.leaderboard.grid.MEASURE`, where it is known.
        rounds: Rounds, the most of the divisions.
        interactions: Interactions, the most of the divisions.
        bytes: Bytes that were sent, the most of the divisions.
        epsilon: ε of all that a user does, as the run's own account says; None: no bound.
        steps: The step size that was chosen on each division.
        why: Why there are no values; or why some divisions have none.
        evidence: What a submitted row points to.
    """

    method: str
    source: str
    block: Block
    budget: str
    parts: tuple[str, ...] = ()
    by_seed: Mapping[str, Mapping[int, float]] = field(default_factory=dict)
    queries: Mapping[str, float] = field(default_factory=dict)
    rounds: int = 0
    interactions: int = 0
    bytes: int = 0
    epsilon: float | None = None
    steps: tuple[float, ...] = ()
    why: str = ""
    evidence: str = ""

    def estimate(self, measure: str = MEASURE) -> Estimate | None:
        """The mean of a measure with its interval over seeds; None where there is none."""
        found = self.by_seed.get(measure)
        if not found:
            return None
        if set(found) == {-1}:
            return Estimate(found[-1], None, 1, "no seeds")
        return mean_interval(list(found.values()))


@dataclass(frozen=True)
class Contrast:
    """Two rows compared: over seeds as an interval, over queries as tests.

    Attributes:
        question: Which question of the page it answers.
        about: What is compared, in words.
        data: Name of the data set.
        budget: At which budget.
        name: The method, or the circumstance, that is compared.
        reference: With what.
        seeds: The difference with its interval over seeds.
        queries: The difference query by query.
        corrected: p of the paired randomisation test, corrected for all tests of the question; None for one query.
    """

    question: str
    about: str
    data: str
    budget: str
    name: str
    reference: str
    seeds: Estimate
    queries: Compared
    corrected: float | None

    @property
    def survives(self) -> bool:
        """True if the difference is significant at 0.05 after correction."""
        return self.corrected is not None and self.corrected < 0.05


@dataclass(frozen=True)
class Standings:
    """Everything that there is to show.

    Attributes:
        grid: What was asked for.
        rows: All rows, those that mean nothing included.
        missing: Cells that have not been computed yet.
        curves: (data, method) -> points of (interactions, bytes, mean of the measure), first users, equal devices.
        notes: What must be said of the rankers trained on labels.
        cpu_seconds: Processor time of all cells.
    """

    grid: Grid
    rows: tuple[Row, ...]
    missing: int
    curves: Mapping[tuple[str, str], Sequence[tuple[int, int, float]]]
    notes: tuple[str, ...]
    cpu_seconds: float

    def having(self, **where: Any) -> list[Row]:
        """Rows with values for which attributes of the block, or of the row where the block has none, are these."""
        return [
            row
            for row in self.rows
            if row.by_seed
            and all(getattr(row.block if hasattr(row.block, k) else row, k) == v for k, v in where.items())
        ]


def collect(grid: Grid, folder: Path, submitted: Iterable[Row] = ()) -> Standings:
    """Read the finished cells and pool them.

    Args:
        grid: What was asked for.
        folder: The cells' folder.
        submitted: Rows of others.
    """
    results = {cell.key: read_cell(folder, cell) for cell in grid.cells()}
    rows: list[Row] = []
    curves: dict[tuple[str, str], list] = {}
    notes: dict[str, None] = {}
    for data in dict.fromkeys(part.data for part in grid.parts):
        parts = grid.parts_of(data)
        blocks = [block for block in grid.blocks if block.data == data]
        clicks = sorted({block.clicks for block in blocks})
        labels = {
            name: [(part, results[grid.label_cell(name, part, clicks).key]) for part in parts] for name in SCEPTICS
        }
        for found in labels.values():
            notes |= dict.fromkeys(
                f"{data}, {part.name}: {note}" for part, r in found if r for note in r.get("notes", ())
            )
        for block in blocks:
            here = [e for e in grid.entrants if block.attack != "none" or "aggregate" not in e.settings]
            for budget in BUDGETS:
                rows += [_label_row(name, block, budget, found) for name, found in labels.items()]
                rows += [_row(grid, entrant, block, budget, parts, results) for entrant in here]
    first = grid.blocks[0].clicks if grid.blocks else ""
    for entrant in grid.entrants:
        for part in grid.parts:
            cell = grid.cell(entrant, Block(part.data, first), part)
            result = None if isinstance(cell, str) else results.get(cell.key)
            if result and "budgets" in result and "curve" in result["budgets"]["interactions"]:
                curves.setdefault((part.data, entrant.name), []).append(result["budgets"]["interactions"]["curve"])
    rows = [row for row in rows if row.by_seed or row.why]
    there = [result for result in results.values() if result is not None]
    return Standings(
        grid,
        (*rows, *submitted),
        len(results) - len(there),
        {key: _mean_curve(found) for key, found in curves.items()},
        tuple(notes),
        sum(float(result.get("cpu_seconds", 0)) for result in there),
    )


def _mean_curve(curves: Sequence[Sequence[Sequence[Any]]]) -> list[tuple[int, int, float]]:
    """The mean of the curves of several divisions, at the rounds that all of them have."""
    shared = set.intersection(*({round_ for round_, *_ in curve} for curve in curves))
    by_round = [{round_: rest for round_, *rest in curve} for curve in curves]
    first = by_round[0]
    return [
        (int(first[r][0]), int(first[r][1]), float(np.mean([one[r][2] for one in by_round]))) for r in sorted(shared)
    ]


def _row(grid: Grid, entrant: Entrant, block: Block, budget: str, parts: list[Part], results: Mapping) -> Row:
    """One method's row, from the cells of its divisions."""
    row = Row(entrant.name, OURS, block, budget)
    whys: dict[str, list[str]] = {}
    found: list[tuple[Part, dict[str, Json]]] = []
    for part in parts:
        cell = grid.cell(entrant, block, part)
        if isinstance(cell, str):
            whys.setdefault(cell, []).append(part.name)
            continue
        result = results[cell.key]
        if result is None:
            return row  # not computed yet: neither values nor a reason
        at = result if "why" in result else result["budgets"][budget]
        if "why" in at:
            whys.setdefault(at["why"], []).append(part.name)
        else:
            found.append((part, at | {"step": result.get("step")}))
    why = "; ".join(
        text if len(names) == len(parts) else f"{text} ({', '.join(names)})" for text, names in whys.items()
    )
    if not found:
        return dataclasses.replace(row, why=why)
    epsilons = [at["epsilon"] for _, at in found]
    return dataclasses.replace(
        row,
        parts=tuple(part.name for part, _ in found),
        by_seed={m: _mean_by_seed([at["values"].get(m, {}) for _, at in found]) for m in MEASURES},
        queries=_queries([at["queries"] for _, at in found]),
        rounds=max(at["rounds"] for _, at in found),
        interactions=max(at["interactions"] for _, at in found),
        bytes=max(at["bytes"] or 0 for _, at in found),
        epsilon=None if None in epsilons else max(epsilons),
        steps=tuple(at["step"] for _, at in found if at["step"] is not None),
        why=why,
    )


def _label_row(name: str, block: Block, budget: str, found: list[tuple[Part, Any]]) -> Row:
    """The row of a ranker trained on labels, which is the same under all circumstances."""
    row = Row(f"labels: {name}", "labels", block, budget)
    if any(result is None for _, result in found):
        return row
    there = [(part, result) for part, result in found if "why" not in result]
    if not there:
        return dataclasses.replace(row, why=found[0][1]["why"])

    def values(measure: str) -> list[dict[str, float]]:
        found = (
            next((v for k, v in result["values"].items() if k.endswith(f"({block.clicks})")), None)
            if measure == "expected"
            else result["values"].get(measure)
            for _, result in there
        )
        return [{} if value is None else {"-1": value} for value in found]

    return dataclasses.replace(
        row,
        parts=tuple(part.name for part, _ in there),
        by_seed={m: _mean_by_seed(values(m)) for m in MEASURES},
        queries=_queries([result["queries"] for _, result in there]),
    )


def _mean_by_seed(values: Sequence[Mapping[str, float]]) -> dict[int, float]:
    """Of each seed that all have, the mean."""
    seeds = set.intersection(*map(set, values)) if values else set()
    return {int(seed): float(np.mean([one[seed] for one in values])) for seed in sorted(seeds, key=int)}


def _queries(values: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Of each query, the mean over those that have it."""
    found: dict[str, list[float]] = {}
    for one in values:
        for query, value in one.items():
            found.setdefault(query, []).append(value)
    return {query: float(np.mean(each)) for query, each in found.items()}


# -------------------------------------------------------------------------------------------------------------- tests


def contrasts(standings: Standings) -> list[Contrast]:
    """All comparisons of the page, each corrected for those of the same question."""
    found: list[Contrast] = []
    for question in (_of_methods, _of_privacy, _of_attacks, _of_heterogeneity):
        these = question(standings)
        tested = [i for i, test in enumerate(these) if test.queries.p_randomisation is not None]
        adjusted = adjust([these[i].queries.p_randomisation or 0.0 for i in tested])
        corrected = dict(zip(tested, adjusted.tolist(), strict=True))
        found += [dataclasses.replace(test, corrected=corrected.get(i)) for i, test in enumerate(these)]
    return found


def over_users(rows: Sequence[Row]) -> Row | None:
    """Rows of one method for several kinds of users as one: the mean over users, seed by seed and query by query."""
    if not rows:
        return None
    by_seed = {
        m: _mean_by_seed([{str(s): v for s, v in row.by_seed.get(m, {}).items()} for row in rows]) for m in MEASURES
    }
    return dataclasses.replace(rows[0], by_seed=by_seed, queries=_queries([row.queries for row in rows]))


def rank_methods(standings: Standings, data: str, budget: str) -> list[Row]:
    """The methods on one data set without promise and attackers, devices alike, mean over users; the best first."""
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in standings.having(data=data, budget=budget, heterogeneity="iid", epsilon=None, attack="none"):
        groups.setdefault((row.source, row.method), []).append(row)
    users = len({row.block.clicks for rows in groups.values() for row in rows})
    whole = [over_users(rows) for rows in groups.values() if len(rows) == users]
    return sorted(
        (row for row in whole if row is not None and row.estimate() is not None),
        key=lambda row: -row.estimate().mean,  # type: ignore[union-attr]
    )


def _of_methods(standings: Standings) -> list[Contrast]:
    """Every method against the best one of clicks, and against the best single feature."""
    out = []
    for data in _data(standings):
        for budget in BUDGETS:
            rows = [row for row in rank_methods(standings, data, budget) if row.queries]
            learnt = [row for row in rows if row.source == OURS]
            feature = next((row for row in rows if row.method == f"labels: {SCEPTICS[0]}"), None)
            about = "methods"
            for reference in (learnt[0] if learnt else None, feature):
                for row in learnt:
                    if reference is not None and row is not reference:
                        out.append(_test("methods", about, row, reference, row.method, reference.method))
    return [test for test in out if test is not None]


def _compare_with_plain(
    standings: Standings, question: str, change: Callable[[Block], tuple[Block, str] | None]
) -> list[Contrast]:
    """Every method under changed circumstances against itself under plain ones, for the first users."""
    first = standings.grid.blocks[0].clicks  # a figure has room for one kind of users
    plain = {
        (row.method, row.block, row.budget): row
        for row in standings.rows
        if row.by_seed and row.source == OURS and row.block.clicks == first
    }
    out = []
    for (method, block, budget), row in plain.items():
        back = change(block)
        if back is None:
            continue
        # A server with a robust rule is compared with the same method without attackers, where no rule is needed.
        name = method if (method, back[0], budget) in plain else method.partition(", ")[0]
        if (name, back[0], budget) in plain:
            out.append(_test(question, method, row, plain[name, back[0], budget], back[1], "without"))
    return [test for test in out if test is not None]


def _alone(block: Block, changed: str) -> bool:
    """True if ``changed`` is the only circumstance that differs from the plain ones."""
    plain = {"heterogeneity": "iid", "epsilon": None, "attack": "none"}
    return all((getattr(block, key) != value) == (key == changed) for key, value in plain.items())


def _of_privacy(standings: Standings) -> list[Contrast]:
    return _compare_with_plain(
        standings,
        "privacy",
        lambda b: (
            (dataclasses.replace(b, epsilon=math.inf), f"ε = {b.epsilon:g}")
            if _alone(b, "epsilon") and b.epsilon != math.inf
            else None
        ),
    )


def _of_attacks(standings: Standings) -> list[Contrast]:
    return _compare_with_plain(
        standings,
        "attacks",
        lambda b: (dataclasses.replace(b, attack="none"), b.attack) if _alone(b, "attack") else None,
    )


def _of_heterogeneity(standings: Standings) -> list[Contrast]:
    return _compare_with_plain(
        standings,
        "heterogeneity",
        lambda b: (
            (dataclasses.replace(b, heterogeneity="iid"), b.heterogeneity) if _alone(b, "heterogeneity") else None
        ),
    )


def _test(question: str, about: str, row: Row, reference: Row, name: str, against: str) -> Contrast | None:
    shared = [query for query in reference.queries if query in row.queries]
    if not shared:
        return None
    ours, theirs = (np.array([of.queries[query] for query in shared]) for of in (row, reference))
    compared = compare_queries(ours, theirs)
    mine, theirs = row.by_seed[MEASURE], reference.by_seed[MEASURE]
    if set(theirs) == {-1}:
        estimate = mean_interval(list(mine.values())).minus(theirs[-1])
    else:
        estimate = difference(mine, theirs)
    return Contrast(question, about, row.block.data, row.budget, name, against, estimate, compared, None)


def _data(standings: Standings) -> list[str]:
    return list(dict.fromkeys(part.data for part in standings.grid.parts))


# -------------------------------------------------------------------------------------------------------------- files


def results_frame(standings: Standings) -> Frame:
    """``results.csv``: a row for each method, circumstances and budget; values with intervals or why there are none."""
    out = []
    for row in standings.rows:
        about: dict[str, Json] = {"method": row.method, "source": row.source, **_of_block(row.block)}
        about |= {"budget": row.budget, "divisions": ", ".join(row.parts), "rounds": row.rounds or None}
        about |= {"interactions": row.interactions or None, "bytes": row.bytes or None}
        about["step sizes"] = ", ".join(f"{one:g}" for one in row.steps)
        about["seeds"] = len(row.by_seed.get(MEASURE, {})) if row.source != "labels" else None
        for measure in MEASURES:
            found = row.estimate(measure)
            about[measure] = None if found is None else found.mean
            about[f"{measure} low"] = None if found is None else found.low
            about[f"{measure} high"] = None if found is None else found.high
        out.append(about | {"epsilon of the account": row.epsilon, "evidence": row.evidence, "why": row.why})
    return Frame.of_dicts(out)


def curves_frame(standings: Standings) -> Frame:
    """``curves.csv``: how methods learn, devices alike, the first users; mean over divisions and seeds."""
    rows = [
        {"data": data, "method": method, "interactions": done, "bytes": sent, MEASURE: value}
        for (data, method), points in standings.curves.items()
        for done, sent, value in points
    ]
    return Frame.of_rows(rows, {"data": str, "method": str, "interactions": int, "bytes": int, MEASURE: float})


def contrasts_frame(found: Sequence[Contrast]) -> Frame:
    """``tests.csv``: every comparison over queries, with its p before and after correction."""
    return Frame.of_dicts(
        [
            {
                "question": test.question,
                "about": test.about,
                "data": test.data,
                "budget": test.budget,
                "compared": test.name,
                "with": test.reference,
                "difference": test.queries.difference,
                "low": test.queries.low,
                "high": test.queries.high,
                "queries": test.queries.queries,
                "wins": test.queries.wins,
                "losses": test.queries.losses,
                "difference over seeds": test.seeds.mean,
                "low over seeds": test.seeds.low,
                "high over seeds": test.seeds.high,
                "p": test.queries.p_randomisation,
                "p corrected (Holm)": test.corrected,
            }
            for test in found
        ]
    )


def runs_frame(standings: Standings) -> Frame:
    """``runs.csv``: a line for each seed, in the columns that a submission has."""
    out = []
    for row in standings.rows:
        if row.source == "labels":
            continue
        for seed in row.by_seed.get(MEASURE, {}):
            about: dict[str, Json] = {"method": row.method, "source": row.source, **_of_block(row.block)}
            about |= {"budget": row.budget, "divisions": " + ".join(row.parts), "seed": seed}
            about |= {"interactions": row.interactions, "bytes": row.bytes}
            out.append(about | {measure: row.by_seed.get(measure, {}).get(seed) for measure in MEASURES})
    return Frame.of_dicts(out)


def _of_block(block: Block) -> dict[str, Json]:
    about = dataclasses.asdict(block)
    return about | {"epsilon": epsilon_words(block.epsilon)}


def epsilon_words(epsilon: float | None) -> str:
    """An ε of a block in a table."""
    if epsilon is None:
        return "none"
    return "the same way, without noise" if epsilon == math.inf else f"{epsilon:g}"
