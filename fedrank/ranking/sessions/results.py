"""Clicks of a user on lists of results, and the quality of the lists."""

from __future__ import annotations

from typing import NamedTuple

from jaxtyping import Float, Int

from fedrank.core.arrays import AnyArray


class SessionResults(NamedTuple):
    """Clicks of a user on lists of results, and the quality of the lists.

    Attributes:
        patterns: int32 [...]: bit i is set when the document at rank i + 1 was clicked.
        ndcg: float32 [...]: nDCG of the list that was shown, down to the last rank shown; 0 for a query without a
            relevant document. From the labels, which only a simulation has.
    """

    patterns: Int[AnyArray, "*interactions"]
    ndcg: Float[AnyArray, "*interactions"]


class InterleavedResults(NamedTuple):
    """Clicks of a user on lists that two rankers made together, and the clicks credited to each ranker.

    Attributes:
        shown: The clicks on the lists, and how good these were.
        credited: int32 [2, ...]: the clicks on documents of each ranker and on those of both, as
            :attr:`SessionResults.patterns`.
    """

    shown: SessionResults
    credited: Int[AnyArray, "2 *interactions"]
