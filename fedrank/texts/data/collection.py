"""Documents, queries and judgements as strings and grades, before words are counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Int32, Integer

from fedrank.core.errors import DataError, FormatError


class Judged:
    """Ids and judgements that fit each other: what :class:`Texts` and a corpus have in common, described there."""

    name: str
    document_ids: tuple[str, ...]
    query_ids: tuple[str, ...]
    judged_queries: Integer[np.ndarray, " judgements"]
    judged_documents: Integer[np.ndarray, " judgements"]
    grades: Integer[np.ndarray, " judgements"]

    @property
    def n_documents(self) -> int:
        """Number of documents in the collection."""
        return len(self.document_ids)

    @property
    def n_queries(self) -> int:
        """Number of queries of the collection."""
        return len(self.query_ids)

    def _check_judgements(self) -> None:
        for what, ids in (("document", self.document_ids), ("query", self.query_ids)):
            if not ids:
                raise DataError(f"collection {self.name!r} has no {what}; it needs one at least.")
            if len(set(ids)) < len(ids):
                twice = next(one for one, count in Counter(ids).items() if count > 1)
                raise DataError(f"{what} id {twice!r} stands twice in {self.name!r}; every id must stand once.")
        for what in ("judged_queries", "judged_documents", "grades"):
            array = getattr(self, what)
            if array.dtype != np.int32 or array.shape != self.grades.shape or array.ndim != 1:
                raise DataError(
                    f"{what} of {self.name!r} must be int32 [{len(self.grades)}], one a judgement, "
                    f"got {array.dtype} {list(array.shape)}."
                )
        if not len(self.grades):
            return
        judged = (
            ("query", self.judged_queries, self.query_ids),
            ("document", self.judged_documents, self.document_ids),
        )
        for what, places, ids in judged:
            if places.min() < 0 or places.max() >= len(ids):
                wrong = int(places.min()) if places.min() < 0 else int(places.max())
                raise DataError(f"a judgement of {self.name!r} names {what} number {wrong}, but there are {len(ids)}.")
        if self.grades.min() < 0:
            raise DataError(f"grades of {self.name!r} must be 0 or more, got {self.grades.min()}.")
        pairs = self.judged_queries.astype(np.int64) * len(self.document_ids) + self.judged_documents
        if len(np.unique(pairs)) < len(pairs):
            pair, _ = Counter(pairs.tolist()).most_common(1)[0]
            query, document = divmod(pair, len(self.document_ids))
            raise DataError(
                f"document {self.document_ids[document]!r} is judged twice for query {self.query_ids[query]!r} of "
                f"{self.name!r}; keep one judgement."
            )


@dataclass(frozen=True, eq=False)
class Texts(Judged):
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
        grades: Its grade, int32; 0 = not relevant, larger is better. Pairs without a judgement count as 0.
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
        self._check_judgements()

    @property
    def n_judged(self) -> int:
        """Number of queries with at least one relevant document."""
        return len(np.unique(self.judged_queries[self.grades > 0]))


#: A judgement as a file has it: the file, its line, the ids of query and document, the grade.
Judgement = tuple[Path, int, str, str, int]

_LARGEST = int(np.iinfo(np.int32).max)


class UniqueTexts(dict[str, tuple[str, ...]]):
    """Documents or queries by id, as they are read: one that stands there again, alike, is counted and left out.

    Args:
        what: What they are called: ``"document"`` or ``"query"``.
    """

    def __init__(self, what: str):
        super().__init__()
        self._what, self._repeated = what, 0

    def put(self, key: str, text: tuple[str, ...], path: Path | None = None, line: int | None = None) -> None:
        """Take one.

        Raises:
            FormatError: There is another one with this id.
        """
        if key not in self:
            self[key] = text
            return
        if self[key] != text:
            raise FormatError(f"{self._what} {key!r} stands twice, with different texts; keep one.", path, line)
        self._repeated += 1

    def notes(self) -> tuple[str, ...]:
        """A sentence about what was left out, if anything was."""
        plural = {"document": "Documents", "query": "Queries"}[self._what]
        said = f"{plural} that stand there again with the same text, and count once: {self._repeated}."
        return (said,) if self._repeated else ()


def texts_of(name: str, documents: UniqueTexts, queries: UniqueTexts, judgements: Iterable[Judgement]) -> Texts:
    """A collection from what was read from files.

    Notes say what was left out: judgements of documents or queries that the collection does not have, and what stands
    there again. A negative grade, by which TREC marks spam, becomes 0.

    Args:
        name: What to call it.
        documents: Title and body of each document.
        queries: The text of each query.
        judgements: In any order.

    Raises:
        FormatError: A judgement contradicts another or has a grade beyond int32, or none names both a query and a
            document that exist; with its file and line.
        DataError: There is no document or no query.
    """
    places = [{key: n for n, key in enumerate(them)} for them in (queries, documents)]
    gone: tuple[set[str], set[str]] = (set(), set())
    seen: dict[tuple[str, str], tuple[str, int]] = {}
    rows: list[tuple[int, int, int]] = []
    negative = total = missing = repeated = 0
    first: list[tuple[str, str, Path, int]] = []
    for path, line, query, document, grade in judgements:
        total += 1
        absent = [key not in there for key, there in zip((query, document), places, strict=True)]
        if any(absent):
            missing += 1
            for key, wanting, them in zip((query, document), absent, gone, strict=True):
                them.update([key] if wanting else [])
            first = first or [(query, document, path, line)]
            continue
        if (query, document) in seen:
            before, same = seen[query, document]
            if same != grade:
                raise FormatError(
                    f"document {document!r} was judged for query {query!r} before, at {before}, with another grade; "
                    "keep one judgement.",
                    path,
                    line,
                )
            repeated += 1
            continue
        if grade > _LARGEST:
            raise FormatError(f"the grade {grade} is too large.", path, line)
        seen[query, document] = f"{path.name}:{line}", grade
        negative += grade < 0
        rows.append((places[0][query], places[1][document], max(grade, 0)))
    if total and not rows:
        query, document, path, line = first[0]
        raise FormatError(
            f"no judgement names both a query and a document of the collection; this one names {query!r} and "
            f"{document!r}.",
            path,
            line,
        )
    judged_queries, judged_documents, grades = (
        np.ascontiguousarray(column) for column in np.array(rows, np.int32).reshape(-1, 3).T
    )
    queries_gone, documents_gone = map(len, gone)
    own = sum(_alike(text, documents[key]) for key, (text,) in queries.items() if key in documents)
    notes = [
        *documents.notes(),
        *queries.notes(),
        (
            f"Judgements left out, as their document or query is not in the collection: {missing} of {total} "
            f"({documents_gone} documents, {queries_gone} queries)."
        )
        * bool(missing),
        f"Judgements that stand there again with the same grade, and count once: {repeated}." * bool(repeated),
        f"Negative grades that became 0: {negative}." * bool(negative),
        (
            f"Queries that are documents of the collection themselves, with id and text: {own}. Each finds itself, and "
            "that counts as any other hit."
        )
        * bool(own),
    ]
    return Texts(
        name,
        tuple(documents),
        tuple(title for title, _ in documents.values()),
        tuple(body for _, body in documents.values()),
        tuple(queries),
        tuple(text for (text,) in queries.values()),
        judged_queries,
        judged_documents,
        grades,
        notes=tuple(note for note in notes if note),
    )


def _alike(query: str, document: tuple[str, ...]) -> bool:
    """True if a document's text is a query's."""
    asked, (title, body) = query.casefold().split(), document
    return bool(asked) and asked in (body.casefold().split(), f"{title} {body}".casefold().split())
