"""What a question of the plan is at the server and at a silo: its design, its analysis, and what answers it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Float

from fedrank.core.errors import ConfigError
from fedrank.silos.studies.codebook import MODELS, Codebook, Question
from fedrank.silos.studies.formula import Design, design_of
from fedrank.silos.studies.protocol import Analysis, Ask
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
    """

    question: Question
    design: Design
    parameters: int
    outcome_levels: tuple[str, ...]
    analysis: Callable[[], Analysis[Any]]
    answer: Callable[[Ask, Iterable[Any]], Float[np.ndarray, " numbers"]]
    of_blocks: bool = False


def prepare(question: Question, codebook: Codebook) -> Prepared:
    """Prepare a question of a codebook.

    Raises:
        ConfigError: Its formula cannot be read, or its outcome is not what the model takes.
        UnknownNameError: The codebook has no such column.
    """
    design = design_of(question.formula, codebook)
    if codebook.rules.same_rows:
        plans = [design_of(one.formula, codebook) for one in codebook.questions if one.model != "table"]
        needed = dict.fromkeys(name for one in plans for name in one.named)
        design = replace(design, needed=tuple(needed))
    if question.model == "table":
        if design.outcome or not design.factors:
            raise ConfigError(f"question {question.name!r}: a table has no outcome: ~ age + sex | treatment.")
        return Prepared(
            question, design, 0, (), lambda: table_one(design), lambda ask, blocks: count_columns(design, blocks), True
        )
    raise ConfigError(f"question {question.name!r}: {MODELS[question.model]}")
