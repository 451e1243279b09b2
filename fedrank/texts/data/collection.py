"""Documents, queries and judgements as strings and grades, before words are counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Int32, Integer

from fedrank.core.errors import DataError, FormatError


@dataclass(frozen=True, eq=False)
class Texts:
    """A text collection with judged queries.

    Attributes:
        name: Such as ``"cranfield"``.
        document_ids: Id of each document, each once.
        titles: Title of each document; empty where there is none.
        bodies: Text of each document without the title; may be empty.
        query_ids: Id of each query, each once.
        queries: Text of each query.
        judged_queries: Place in ``query_ids`` of each judgement's query, int32.
        judged_documents: Place in ``document_ids`` of its document, int32.
        grades: Its grade, int32; 0 = not relevant, larger is better. Pairs that nobody judged count as 0.
        topics: Main topic of each document of a generated collection; None otherwise.
        generated: True if the texts were made up by a program; said wherever their numbers appear.
        citation: Key in ``core/references.bib``; empty if there is nothing to cite.
        notes: What a reader of the numbers should know, one sentence each.

    Raises:
        DataError: There is no document or query, an id stands twice, the arrays do not fit each other, a judgement
            names what is not there, a grade is negative, or a pair is judged twice.
    """

    name: str
    document_ids: tuple[str, ...]
    titles: tuple[str, ...]
    bodies: tuple[str, ...]
    query_ids: tuple[str, ...]
    queries: tuple[str, ...]
    judged_queries: Integer[np.ndarray, " judgements"]
    judged_documents: Integer[np.ndarray, " judgements"]
    grades: Integer[np.ndarray, " judgements"]
    topics: Int32[np.ndarray, " documents"] | None = None
    generated: bool = False
    citation: str = ""
    notes: tuple[str, ...] = ()

    def __post_init__(self):
        if not len(self.titles) == len(self.bodies) == self.n_documents or len(self.queries) != self.n_queries:
            raise DataError(
                f"collection {self.name!r} needs one title and one body a document and one text a query, got "
                f"{self.n_documents} document ids, {len(self.titles)} titles, {len(self.bodies)} bodies, "
                f"{self.n_queries} query ids and {len(self.queries)} queries."
            )
        if self.topics is not None and self.topics.shape != (self.n_documents,):
            raise DataError(
                f"topics of {self.name!r} must be [{self.n_documents}], one a document, got {list(self.topics.shape)}."
            )
        check_parts(
            self.name, self.document_ids, self.query_ids, self.judged_queries, self.judged_documents, self.grades
        )

    @property
    def n_documents(self) -> int:
        """Number of documents in the collection."""
        return len(self.document_ids)

    @property
    def n_queries(self) -> int:
        """Number of queries of the collection."""
        return len(self.query_ids)

    @property
    def n_judged(self) -> int:
        """Number of queries with at least one relevant document."""
        return len(np.unique(self.judged_queries[self.grades > 0]))


#: A judgement as a file has it: the file, its line, the ids of query and document, the grade.
Judgement = tuple[Path, int, str, str, int]

_LARGEST = int(np.iinfo(np.int32).max)


def texts_of(
    name: str,
    titles: Mapping[str, str],
    bodies: Mapping[str, str],
    queries: Mapping[str, str],
    judgements: Iterable[Judgement],
) -> Texts:
    """A collection from what was read from files.

    A negative grade, by which TREC marks spam, becomes 0; a note says so.

    Args:
        name: What to call it.
        titles: The title of each document by its id.
        bodies: The body of each document, the same ids in the same order.
        queries: The text of each query by its id.
        judgements: In any order.

    Raises:
        FormatError: A judgement names what is not there, repeats another, or has a grade beyond int32; with its file
            and line.
        DataError: There is no document or no query.
    """
    places = {"query": {key: n for n, key in enumerate(queries)}, "document": {key: n for n, key in enumerate(titles)}}
    seen: dict[tuple[str, str], str] = {}
    rows: list[tuple[int, int, int]] = []
    negative = 0
    for path, line, query, document, grade in judgements:
        for what, key in (("query", query), ("document", document)):
            if key not in places[what]:
                raise FormatError(f"there is no {what} {key!r} in the collection.", path, line)
        if (query, document) in seen:
            before = seen[query, document]
            raise FormatError(
                f"document {document!r} was judged for query {query!r} before, at {before}; keep one judgement.",
                path,
                line,
            )
        if grade > _LARGEST:
            raise FormatError(f"the grade {grade} is too large.", path, line)
        seen[query, document] = f"{path.name}:{line}"
        negative += grade < 0
        rows.append((places["query"][query], places["document"][document], max(grade, 0)))
    judged_queries, judged_documents, grades = (
        np.ascontiguousarray(column) for column in np.array(rows, np.int32).reshape(-1, 3).T
    )
    return Texts(
        name,
        tuple(titles),
        tuple(titles.values()),
        tuple(bodies.values()),
        tuple(queries),
        tuple(queries.values()),
        judged_queries,
        judged_documents,
        grades,
        notes=(f"Negative grades that became 0: {negative}.",) if negative else (),
    )


def check_parts(
    name: str,
    document_ids: Sequence[str],
    query_ids: Sequence[str],
    judged_queries: np.ndarray,
    judged_documents: np.ndarray,
    grades: np.ndarray,
) -> None:
    """Refuse ids and judgements that do not fit each other; what :class:`Texts` and a corpus have in common.

    Raises:
        DataError: See :class:`Texts`.
    """
    for what, ids in (("document", document_ids), ("query", query_ids)):
        if not ids:
            raise DataError(f"collection {name!r} has no {what}; it needs one at least.")
        if len(set(ids)) < len(ids):
            twice = next(one for one, count in Counter(ids).items() if count > 1)
            raise DataError(f"{what} id {twice!r} stands twice in {name!r}; every id must stand once.")
    arrays = {"judged_queries": judged_queries, "judged_documents": judged_documents, "grades": grades}
    for what, array in arrays.items():
        if array.dtype != np.int32 or array.shape != grades.shape or array.ndim != 1:
            raise DataError(
                f"{what} of {name!r} must be int32 [{len(grades)}], one a judgement, "
                f"got {array.dtype} {list(array.shape)}."
            )
    if not len(grades):
        return
    for what, places, ids in (("query", judged_queries, query_ids), ("document", judged_documents, document_ids)):
        if places.min() < 0 or places.max() >= len(ids):
            wrong = int(places.min()) if places.min() < 0 else int(places.max())
            raise DataError(f"a judgement of {name!r} names {what} number {wrong}, but there are {len(ids)}.")
    if grades.min() < 0:
        raise DataError(f"grades of {name!r} must be 0 or more, got {grades.min()}.")
    pairs = judged_queries.astype(np.int64) * len(document_ids) + judged_documents
    if len(np.unique(pairs)) < len(pairs):
        pair, _ = Counter(pairs.tolist()).most_common(1)[0]
        query, document = divmod(pair, len(document_ids))
        raise DataError(
            f"document {document_ids[document]!r} is judged twice for query {query_ids[query]!r} of {name!r}; "
            "keep one judgement."
        )
