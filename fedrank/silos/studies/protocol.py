"""Analyses as questions and answers: the server's half is a generator, a silo's half a function of its rows.

An analysis yields an :class:`Ask`, is sent the :data:`Answers` of the silos, and returns its result. So one analysis
runs over a pooled table, over message files and over a network alike: whoever drives it carries asks and answers
(:func:`run`). The number of numbers in an answer follows from the codebook and the ask alone.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

import numpy as np
from jaxtyping import Float, Int

Result = TypeVar("Result")


@dataclass(frozen=True, eq=False)
class Ask:
    """One question to all silos.

    Attributes:
        step: Name of the step of the analysis, such as ``sums``.
        numbers: What the answer depends on beside a silo's rows, such as coefficients, by name.
    """

    step: str
    numbers: Mapping[str, Float[np.ndarray, "..."]] = field(default_factory=dict)


#: The numbers of each silo that answered, by its name; all of one length.
Answers = dict[str, Float[np.ndarray, " numbers"]]
#: The server's half of an analysis.
Analysis = Generator[Ask, Answers, Result]


class Rows(NamedTuple):
    """Complete rows of one silo, as an analysis takes them: all of them, or one block of many.

    Attributes:
        x: Columns of the design, scaled by the codebook's public ranges; a column of ones first where the model has an
            intercept.
        y: Outcome: a number; the number of its level (0, 1, …); or a time until an event.
        event: 1 where the time is that of an event, 0 where following ended; 1 everywhere without times.
        offset: Part of the linear predictor that has no coefficient.
        weight: Weight of each row (case weights: 2 counts like two equal rows).
        stratum: Number of the row's stratum; 0 without strata.
        cluster: Number of the row's cluster within its silo, from 0; the row's own number without clusters.
    """

    x: Float[np.ndarray, "rows p"]
    y: Float[np.ndarray, " rows"]
    event: Float[np.ndarray, " rows"]
    offset: Float[np.ndarray, " rows"]
    weight: Float[np.ndarray, " rows"]
    stratum: Int[np.ndarray, " rows"]
    cluster: Int[np.ndarray, " rows"]

    @classmethod
    def of(cls, x, y, event=None, offset=None, weight=None, stratum=None, cluster=None) -> Rows:
        """Rows whose missing parts are those of a model without them."""
        n = len(y)
        return cls(
            np.asarray(x, float),
            np.asarray(y, float),
            np.ones(n) if event is None else np.asarray(event, float),
            np.zeros(n) if offset is None else np.asarray(offset, float),
            np.ones(n) if weight is None else np.asarray(weight, float),
            np.zeros(n, int) if stratum is None else np.asarray(stratum, int),
            np.arange(n) if cluster is None else np.asarray(cluster, int),
        )


#: What answers an ask from a silo's rows, given as blocks.
Answerer = Callable[[Ask, Iterable[Rows]], Float[np.ndarray, " numbers"]]


def run(analysis: Analysis[Result], carry: Callable[[Ask], Answers]) -> Result:
    """Drive an analysis to its end.

    Args:
        analysis: The server's half.
        carry: Brings an ask to the silos and their answers back.
    """
    answers: Answers | None = None
    while True:
        try:
            ask = next(analysis) if answers is None else analysis.send(answers)
        except StopIteration as end:
            return end.value
        answers = carry(ask)
