"""Questions of a plan, prepared: the design of each, the analysis at the server, and the answer of a silo."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import combinations, product
from typing import Any

import numpy as np
from jaxtyping import Float

from fedrank.core.errors import ConfigError, DataError, UnknownNameError
from fedrank.silos.studies import meta, survival
from fedrank.silos.studies.codebook import MODELS, Codebook, Question
from fedrank.silos.studies.comparison import gather, summarise
from fedrank.silos.studies.families import family_of
from fedrank.silos.studies.formula import Design, design_of
from fedrank.silos.studies.protocol import Analysis, Ask, Rows
from fedrank.silos.studies.regression import answer, fit, fit_patterns
from fedrank.silos.studies.table_one import count_columns, table_one

#: Most exact times of events that a silo may have.
MOST_TIMES = 4096
#: Most numbers of one name that an ask may hold.
MOST_NUMBERS = 2_000_000
#: Most points at which one ask may ask for sums: no search tries more at once.
MOST_POINTS = 9
#: Most patterns of levels whose counts are asked for.
MOST_PATTERNS = 1024


@dataclass(frozen=True, eq=False)
class Prepared:
    """A question that can be asked and answered.

    Attributes:
        question: The question.
        design: The design of its formula.
        parameters: Number of coefficients; 0 of a description.
        outcome_levels: Levels of the outcome, or of the event; empty of a number.
        analysis: Makes the server's half.
        answer: Answers an ask from a silo's rows: blocks of :class:`~fedrank.silos.studies.protocol.Rows`, or of
            columns as they are where ``of_blocks`` is true.
        labels: Names of the coefficients; empty of what has none.
        bins: Ends of the bins of time by which sums leave a silo; None where none do, or exact times may.
        tables: Columns of levels, and :data:`TIME` for the bins of time: from the answers the number of rows of each
            cell of each such table follows.
        weigh: Finds weights of the rows in the sums at coefficients, each at least 0; None where sums are of no
            coefficients.
        steps: The steps of the analysis, each with the numbers of its asks: those that follow from the codebook, and
            None of those that the server chooses.
        of_blocks: Whether answers are made of columns, with rows that lack values.
        by_silo: Whether the analysis needs each silo's own answer; else their sum.
    """

    question: Question
    design: Design
    parameters: int
    outcome_levels: tuple[str, ...]
    analysis: Callable[[], Analysis[Any]]
    answer: Callable[[Ask, Iterable[Any]], Float[np.ndarray, " numbers"]]
    labels: tuple[str, ...] = ()
    bins: Float[np.ndarray, " times"] | None = None
    tables: tuple[tuple[str, ...], ...] = ()
    weigh: Callable[[Float[np.ndarray, " p"], Rows], Float[np.ndarray, "kinds rows"]] | None = None
    of_blocks: bool = False
    by_silo: bool = False
    steps: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def grids(self) -> dict[str, list[float]]:
        """Column -> ends of the bins by which its values are counted in answers."""
        design = self.design
        names = design.factors if self.of_blocks else [design.time] if self.bins is not None else []
        found = [design.codebook.column(name) for name in names if name != design.codebook.site]
        return {one.name: one.grid().tolist() for one in found if one.range}

    def check(self, ask: Ask) -> None:
        """Refuse an ask that the question's analysis does not make.

        Raises:
            DataError: Says what is not of the analysis.
        """
        if ask.step not in self.steps:
            raise DataError(f"question {self.question.name!r} has no step {ask.step!r}.")
        known = self.steps[ask.step]
        wrong = sorted(set(known) ^ set(ask.numbers))
        wrong += [
            name
            for name, own in known.items()
            if own is not None and name in ask.numbers and not np.array_equal(np.asarray(own, float), ask.numbers[name])
        ]
        if ask.step == "sums" and "theta" in ask.numbers and len(np.atleast_2d(ask.numbers["theta"])) > MOST_POINTS:
            wrong.append("points")
        if wrong or any(value.size > MOST_NUMBERS for value in ask.numbers.values()):
            raise DataError(f"the ask of question {self.question.name!r} has other {', '.join(wrong) or 'sizes'}.")


def prepare(question: Question, codebook: Codebook) -> Prepared:
    """Prepare a question of a codebook.

    Raises:
        ConfigError: Its formula cannot be read, or its outcome is not what the model takes.
        UnknownNameError: The codebook has no such column.
    """
    fields = question.model not in ("cox", "curves", "table", "compare")
    design = design_of(question.formula, codebook, strata_as_fields=fields)
    if codebook.rules.same_rows:
        plans = [design_of(one.formula, codebook) for one in codebook.questions if one.model != "table"]
        design = replace(design, needed=tuple(dict.fromkeys(name for one in plans for name in one.all_columns)))
    if (question.model in ("cox", "curves")) != bool(design.time):
        raise _refusal(question, f"the outcome must be {MODELS[question.model]}")
    if design.by and question.model != "table":
        raise _refusal(question, "groups after | are for a table")
    if question.errors == "cluster" and not design.cluster:
        raise _refusal(question, "errors by cluster need cluster(column) in the formula")
    if question.pool == "silos" and (question.one_round or question.penalty):
        raise _refusal(question, "two stages are without a penalty, and already take one round")
    if question.pool == "silos" and codebook.site in (*design.strata, *design.factors, *_sites(design)):
        raise _refusal(question, "in two stages each silo fits its model alone, so that site is no term")
    made = _MAKERS.get(question.model, _regression)(question, design)
    if unknown := [name for name in question.tests if name not in made.labels]:
        raise UnknownNameError(f"coefficient of question {question.name!r}", unknown[0], made.labels)
    return _two_stages(made) if question.pool == "silos" else made


def _sites(design: Design) -> list[str]:
    return [design.codebook.site for one in design.fields if one.name.startswith("site=")]


def _table(question: Question, design: Design) -> Prepared:
    if design.outcome or not design.factors:
        raise _refusal(question, "a table has no outcome: ~ age + sex | treatment")
    return Prepared(
        question, design, 0, (), lambda: table_one(design), lambda ask, blocks: count_columns(design, blocks),
        of_blocks=True, by_silo=True, steps={"counts": {}},
    )  # fmt: skip


def _comparison(question: Question, design: Design) -> Prepared:
    """A message of each silo by which others find whose models help."""
    about = design.codebook.column(design.outcome) if design.outcome else None
    if about is None or len(about.levels) != 2:
        raise _refusal(question, f"the outcome must be {MODELS['compare']}")
    if design.offset or design.weights or design.strata or not design.intercept or not design.fields:
        raise _refusal(question, "a comparison has columns and an intercept, without offset, weights and strata")
    if question.pool != "rows" or question.errors != "model" or _sites(design):
        raise _refusal(question, "in a comparison each silo answers by itself, so that site is no term")
    return Prepared(
        question, design, len(design.names), about.levels, lambda: gather(design), lambda ask, rows: summarise(rows),
        tables=_tables(design), by_silo=True, steps={"summary": {}},
    )  # fmt: skip


def _cox(question: Question, design: Design) -> Prepared:
    """Cox's model: no intercept, and with ``strata(site)`` hazards that no silo shares."""
    own = np.pad(replace(design, intercept=False).units, ((1, 0), (1, 0)))
    site = design.codebook.site
    by_silo = site in design.strata
    design = replace(design, intercept=False, strata=tuple(name for name in design.strata if name != site))
    robust = {"model": "", "robust": "HC0", "cluster": "CR0"}[question.errors]

    def analysis() -> Analysis[Any]:
        return survival.fit_cox(
            design.names, _times(design), strata=design.n_strata(), by_silo=by_silo, ties=question.ties, own=own,
            robust=robust, most_times=MOST_TIMES,
        )  # fmt: skip

    levels, times = design.codebook.column(design.outcome).levels, _times(design)
    flags = {**_grid(design, by_silo), "efron": float(question.ties == "efron"), "by_silo": float(by_silo)}
    steps: dict[str, dict[str, Any]] = {"sums": {"theta": None, **flags}}
    if robust:
        steps["meat"] = {"theta": None, **flags, "hazards": None, "clusters": float(robust == "CR0")}
    if times is None and not by_silo:
        steps["times"] = {"most": float(MOST_TIMES)}
    bins = None if by_silo else times
    return Prepared(
        question, design, len(design.names), levels, analysis, survival.answer, design.names, bins=bins, steps=steps,
        tables=_tables(design, of_times=bins is not None),
        weigh=survival.weigh if by_silo or bins is not None else None,
    )  # fmt: skip


def _grid(design: Design, by_silo: bool = False) -> dict[str, Any]:
    """Numbers of an ask that say by which times sums are made; exact times that were asked for are the server's."""
    times = _times(design)
    exact = times is None
    given = (np.zeros(0) if by_silo else None) if exact else times
    return {"times": given, "exact": float(exact), "strata": float(design.n_strata())}


def _curves(question: Question, design: Design) -> Prepared:
    """Kaplan-Meier curves by the levels of one column, or of all rows."""
    if len(design.factors) > 1 or any(not one.is_level for one in design.fields):
        raise _refusal(question, "curves are of the levels of one column, Surv(time, event) ~ sex, or ~ 1 of all rows")
    groups = design.codebook.column(design.factors[0]).levels if design.factors else ("all",)

    def answers(ask: Ask, blocks: Iterable[Rows]) -> Float[np.ndarray, " numbers"]:
        return survival.answer(ask, (_with_groups(rows) for rows in blocks))

    def analysis() -> Analysis[Any]:
        return survival.compare_groups(groups, _times(design), strata=design.n_strata(), most_times=MOST_TIMES)

    levels, times = design.codebook.column(design.outcome).levels, _times(design)
    steps: dict[str, dict[str, Any]] = {"counts": {**_grid(design), "groups": float(len(groups))}}
    if times is None:
        steps["times"] = {"most": float(MOST_TIMES)}
    tables = _tables(design, of_times=times is not None)
    return Prepared(question, design, 0, levels, analysis, answers, bins=times, steps=steps, tables=tables)


def _with_groups(rows: Rows) -> Rows:
    """The same rows with the number of their group in place of their columns, of which the first is one of ones."""
    return rows._replace(x=rows.x @ np.arange(rows.x.shape[1], dtype=float)[:, None])


def _times(design: Design) -> np.ndarray | None:
    """Ends of the bins of time; None where the codebook permits exact times."""
    return None if design.codebook.rules.exact_times else design.codebook.column(design.time).grid()


def _two_stages(made: Prepared) -> Prepared:
    """The same question by each silo's own fit."""
    if not made.labels:
        raise _refusal(made.question, "a meta-analysis is of a regression or Cox's model")

    def answers(ask: Ask, blocks: Iterable[Rows]) -> Float[np.ndarray, " numbers"]:
        return meta.answer(made.analysis, made.answer, len(made.labels), blocks)

    return replace(
        made, analysis=lambda: meta.fit(made.labels), answer=answers, by_silo=True, bins=None,
        tables=_tables(made.design), steps={"own": {}},
    )  # fmt: skip


#: Name of the bins of time among the columns of a table.
TIME = "bin of time"


def _tables(
    design: Design, *, of_times: bool = False, by_outcome: bool = False, whole: bool = False
) -> tuple[tuple[str, ...], ...]:
    """Tables of levels whose cells follow from the answers: those of products of two columns of the design.

    Args:
        design: The design.
        of_times: Whether sums leave by bin of time, stratum and event.
        by_outcome: Whether products of columns are told by level of the outcome too, as by squares of scores.
        whole: Whether sums of many rounds give the count of each pattern of levels.
    """
    book = design.codebook
    outcome = {design.outcome} if design.outcome and book.column(design.outcome).levels else set()
    levels, strata = set(_own_levels(design)), set(design.strata) - {book.site}
    terms = [set(), *(set(one.columns) for one in design.fields if one.is_level)]
    products = [one | two for one, two in product(terms, terms)]
    if of_times:
        found = [one | strata | outcome | {TIME} for one in products]
    else:
        names = sorted(levels | strata | outcome)
        found = [*({one} for one in names), *(set(pair) for pair in combinations(names, 2)), *products]
        found += [one | outcome for one in (products if by_outcome else terms)]
        found += [levels | (outcome if by_outcome else set())] if whole else []
    different = {tuple(sorted(one)) for one in found if one}
    return tuple(sorted(one for one in different if not any(set(one) < set(other) for other in different)))


def _regression(question: Question, design: Design) -> Prepared:
    """A regression: strata are columns of the design; an ordinal model has cut points in place of an intercept."""
    model, about = question.model, design.codebook.column(design.outcome) if design.outcome else None
    of_levels = {"logistic": 2, "multinomial": 3, "ordinal": 3}.get(model, 0)
    if about is None or (len(about.levels) != 2 if of_levels == 2 else len(about.levels) < of_levels):
        raise _refusal(question, f"the outcome must be {MODELS[model]}")
    if not of_levels and not about.range:
        raise _refusal(question, f"the outcome must be {MODELS[model]}")
    if model in ("poisson", "negative-binomial") and about.low < 0:
        raise _refusal(
            question, f"the outcome must be {MODELS[model]}, and the range of {about.name!r} has less than 0"
        )
    own = design.units
    if model == "ordinal":
        design = replace(design, intercept=False)
        own = np.pad(design.units, ((1, 0), (1, 0)))
        own[0, 0] = 1.0
    elif not design.intercept:
        own = np.pad(own, ((1, 0), (1, 0)))
        own[0, 0] = 1.0
    family = family_of(model, len(about.levels))
    robust = {"model": "", "robust": "HC1" if model == "linear" else "HC0", "cluster": "CR1"}[question.errors]

    def analysis() -> Analysis[Any]:
        return fit(
            family, design.names, levels=about.levels, own=own, intercept=design.intercept, robust=robust,
            use_firth=question.firth, level=design.codebook.level, penalty=question.penalty,
        )  # fmt: skip

    def answers(ask: Ask, blocks: Iterable[Rows]) -> Float[np.ndarray, " numbers"]:
        return answer(family, ask, blocks)

    labels = family.labels(design.names, about.levels)
    steps: dict[str, dict[str, Any]] = {"moments": {}, "sums": {"theta": None}}
    if robust:
        steps["meat"] = {"theta": None, "clusters": float(robust.startswith("CR"))}
    if question.firth:
        steps["firth"] = {"theta": None, "inverse": None}
    # Sums at several coefficients are equations about the counts of patterns, of which there are fewer.
    of_patterns = all(one.is_level for one in design.fields) and not design.offset and not design.weights
    few = math.prod(len(design.codebook.column(name).levels) for name in _own_levels(design)) <= MOST_PATTERNS
    whole = question.one_round or (model != "linear" and of_patterns and few)
    made = Prepared(
        question, design, len(labels), about.levels, analysis, answers, tuple(labels), steps=steps, weigh=family.weigh,
        tables=_tables(design, by_outcome=bool(robust) or model == "ordinal" or question.one_round, whole=whole),
    )  # fmt: skip
    if not question.one_round:
        return made
    patterns = _patterns(question, design)
    return replace(
        made, analysis=lambda: fit_patterns(family, patterns, analysis()), steps={"patterns": {"patterns": patterns}}
    )


def _own_levels(design: Design) -> list[str]:
    """Columns of levels on the right side, the silo not among them."""
    book = design.codebook
    return [name for name in design.factors if name != book.site and book.column(name).levels]


def _patterns(question: Question, design: Design) -> Float[np.ndarray, "patterns p"]:
    """The rows of a design that there can be, where all of its columns are of levels."""
    book = design.codebook
    if design.offset or design.weights or not all(one.is_level for one in design.fields):
        raise _refusal(question, "counts by pattern are of columns of levels, without offset and weights")
    levels = {name: len(book.column(name).levels) for name in design.factors if name != book.site}
    if _sites(design):
        levels[book.site] = len(book.silos)
    if math.prod(levels.values()) > MOST_PATTERNS:
        raise _refusal(question, f"there are more than {MOST_PATTERNS} patterns of levels")
    grid = np.array(np.meshgrid(*(np.arange(float(n)) for n in levels.values()), indexing="ij")).reshape(
        len(levels), -1
    )
    block = dict(zip(levels, grid, strict=True))
    columns = [np.ones(grid.shape[1])] if design.intercept else []
    return np.unique(np.column_stack([*columns, *(one.value(block) for one in design.fields)]), axis=0)


#: What prepares a question, by its model; of other models it is a regression.
_MAKERS: dict[str, Callable[[Question, Design], Prepared]] = {
    "table": _table, "cox": _cox, "curves": _curves, "compare": _comparison,
}  # fmt: skip


def _refusal(question: Question, why: str) -> ConfigError:
    return ConfigError(f"question {question.name!r}, {question.formula!r}: {why}.")
