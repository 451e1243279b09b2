"""Lines of a TREC run file, which every evaluation tool reads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from fedrank.core.errors import ModelError

#: A query, the names of its documents, and their scores, float32 [documents].
ScoredQuery = tuple[Any, Sequence[str], Float[np.ndarray, " documents"]]


def run_lines(queries: Iterable[ScoredQuery], name: str) -> Iterator[str]:
    """A line a document: query, ``Q0``, document, rank, score, name of the run; the documents of a query best first.

    Equal scores stay in the order in which the documents are given.

    Args:
        queries: The queries with their documents.
        name: Name of the run.

    Raises:
        ModelError: The name has white space, which separates the words of a line.
    """
    if not name or name.split() != [name]:
        raise ModelError(f"the name of a TREC run must be one word, got {name!r}.")
    return (
        f"{query} Q0 {documents[row]} {rank} {scores[row]!s} {name}"
        for query, documents, scores in queries
        for rank, row in enumerate(np.argsort(-scores, kind="stable"), 1)
    )
