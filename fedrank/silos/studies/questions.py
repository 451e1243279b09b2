"""What a question of the plan is at the server and at a silo: its design, its analysis, and what answers it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Float

from fedrank.core.errors import ConfigError, UnknownNameError
from fedrank.silos.studies.codebook import MODELS, Codebook, Question
from fedrank.silos.studies.families import family_of
from fedrank.silos.studies.formula import Design, design_of
from fedrank.silos.studies.protocol import Analysis, Ask, Rows
from fedrank.silos.studies.regression import answer, fit
from fedrank.silos.studies.table_one import count_columns, table_one


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
        of_blocks: Whether answers are made of columns, with rows that lack values.
        by_silo: Whether the analysis needs each silo's own answer; else their sum.
    """

    question: Question
    design: Design
    parameters: int
    outcome_levels: tuple[str, ...]
    analysis: Callable[[], Analysis[Any]]
    answer: Callable[[Ask, Iterable[Any]], Float[np.ndarray, " numbers"]]
    of_blocks: bool = False
    by_silo: bool = False


def prepare(question: Question, codebook: Codebook) -> Prepared:
    """Prepare a question of a codebook.

    Raises:
        ConfigError: Its formula cannot be read, or its outcome is not what the model takes.
        UnknownNameError: The codebook has no such column.
    """
    fields = question.model not in ("cox", "curves", "table")
    design = design_of(question.formula, codebook, strata_as_fields=fields)
    if codebook.rules.same_rows:
        plans = [design_of(one.formula, codebook) for one in codebook.questions if one.model != "table"]
        design = replace(design, needed=tuple(dict.fromkeys(name for one in plans for name in one.named)))
    if (question.model in ("cox", "curves")) != bool(design.time):
        raise _refused(question, f"the outcome must be {MODELS[question.model]}")
    if design.by and question.model != "table":
        raise _refused(question, "groups after | are for a table")
    if question.errors == "cluster" and not design.cluster:
        raise _refused(question, "errors by cluster need cluster(column) in the formula")
    if unknown := [name for name in question.tests if name not in design.names and question.model != "multinomial"]:
        raise UnknownNameError(f"coefficient of question {question.name!r}", unknown[0], design.names)
    if question.model == "table":
        return _table(question, design)
    return _regression(question, design)


def _table(question: Question, design: Design) -> Prepared:
    if design.outcome or not design.factors:
        raise _refused(question, "a table has no outcome: ~ age + sex | treatment")
    return Prepared(
        question, design, 0, (), lambda: table_one(design), lambda ask, blocks: count_columns(design, blocks),
        of_blocks=True, by_silo=True,
    )  # fmt: skip


def _regression(question: Question, design: Design) -> Prepared:
    """A regression: strata are columns of the design; an ordinal model has cut points in place of an intercept."""
    model, about = question.model, design.codebook.column(design.outcome) if design.outcome else None
    of_levels = {"logistic": 2, "multinomial": 3, "ordinal": 3}.get(model, 0)
    if about is None or (len(about.levels) != 2 if of_levels == 2 else len(about.levels) < of_levels):
        raise _refused(question, f"the outcome must be {MODELS[model]}")
    if not of_levels and not about.range:
        raise _refused(question, f"the outcome must be {MODELS[model]}")
    if model in ("poisson", "negative-binomial") and about.low < 0:
        raise _refused(
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
        made = fit(
            family, design.names, levels=about.levels, own=own, intercept=design.intercept, robust=robust,
            use_firth=question.firth, level=design.codebook.level,
        )  # fmt: skip
        return made

    def answers(ask: Ask, blocks: Iterable[Rows]) -> Float[np.ndarray, " numbers"]:
        return answer(family, ask, blocks)

    labels = family.labels(design.names, about.levels)
    return Prepared(question, design, len(labels), about.levels, analysis, answers)


def _refused(question: Question, why: str) -> ConfigError:
    return ConfigError(f"question {question.name!r}, {question.formula!r}: {why}.")
