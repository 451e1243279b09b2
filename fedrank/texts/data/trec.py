"""Read the Vaswani collection (NPL), in TREC's mark-up or as it was first published.

TREC's: documents between ``<DOC>`` and ``</DOC>`` with ``<DOCNO>``, queries between ``<top>`` and ``</top>`` with
``<num>`` and ``<title>``, judgements in four columns. The original's: a line with a number, lines of text, and a line
with a slash; judgements in the same way, the text being numbers of documents. Documents have no title.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from fedrank.core.errors import FormatError
from fedrank.data.lines import unpacked
from fedrank.texts.data.collection import Judgement, Texts, UniqueTexts, texts_of

_ENCODING = "latin-1"
_NUMBER = re.compile(r"<num>\s*(\d+)\s*</num>")
_DOCNO = re.compile(r"<DOCNO>\s*(\S+?)\s*</DOCNO>", re.IGNORECASE)
_MARK = re.compile(r"<[^>]*>")
_QRELS_COLUMNS = 4


def read_trec(name: str, documents: Path, queries: Path, judgements: Path) -> Texts:
    """Read a collection in TREC's mark-up.

    Raises:
        FormatError: A line cannot be used, or two of one id differ.
        MissingDataError: A file is not there.
        DataError: There is no document or no query.
    """
    texts = _unique(_marked(documents, "doc", _DOCNO), documents, "document")
    asked = _unique(_marked(queries, "top", _NUMBER), queries, "query")
    return texts_of(name, texts, asked, qrels(judgements))


def read_npl(name: str, documents: Path, queries: Path, judgements: Path) -> Texts:
    """Read the original files: ``doc-text``, ``query-text`` and ``rlv-ass``. Errors as :func:`read_trec`."""
    texts = _unique(_slashed(documents), documents, "document")
    asked = _unique(_slashed(queries), queries, "query")
    rows = ((judgements, line, query, one, 1) for line, query, text in _slashed(judgements) for one in text.split())
    return texts_of(name, texts, asked, rows)


def qrels(path: Path) -> Iterator[Judgement]:
    """Judgements in TREC's four columns: query, anything, document, grade.

    Raises:
        FormatError: A line has not four columns, or the grade is no whole number.
    """
    for line, raw in enumerate(unpacked(path), start=1):
        cells = raw.decode("utf-8", "backslashreplace").split()
        if not cells:
            continue
        if len(cells) != _QRELS_COLUMNS:
            raise FormatError(
                f"expected four columns (query, 0, document, grade), got {len(cells)}: {' '.join(cells)[:60]!r}.",
                path,
                line,
            )
        try:
            grade = int(cells[3])
        except ValueError as cause:
            raise FormatError(f"the grade must be a whole number, got {cells[3][:40]!r}.", path, line) from cause
        yield path, line, cells[0], cells[2], grade


def _marked(path: Path, mark: str, number: re.Pattern[str]) -> Iterator[tuple[int, str, str]]:
    """Each element's line, id and text."""
    first, inside = 0, []
    for line, raw in enumerate(unpacked(path), start=1):
        text = raw.decode(_ENCODING)
        lower = text.strip().lower()
        if lower == f"<{mark}>":
            if first:
                raise FormatError(f"<{mark}> begins inside the <{mark}> of line {first}.", path, line)
            first, inside = line, []
        elif lower == f"</{mark}>":
            whole = "".join(inside)
            found = number.search(whole)
            if not first or not found:
                raise FormatError(f"</{mark}> closes nothing that has a number.", path, line)
            yield first, found.group(1), " ".join(_MARK.sub(" ", whole.replace(found.group(), " ")).split())
            first = 0
        elif first:
            inside.append(text)
        elif lower:
            raise FormatError(f"expected <{mark}>, got {text.strip()[:40]!r}.", path, line)
    if first:
        raise FormatError(f"the <{mark}> that begins here is not closed; the file was probably cut off.", path, first)


def _slashed(path: Path) -> Iterator[tuple[int, str, str]]:
    """Each record's line, number and text."""
    first, number, inside = 0, "", []
    for line, raw in enumerate(unpacked(path), start=1):
        text = raw.decode(_ENCODING).strip()
        if text == "/":
            if number:  # the last record is followed by a slash of its own
                yield first, number, " ".join(" ".join(inside).split())
            number, inside = "", []
        elif number:
            inside.append(text)
        elif text:
            if not text.isdecimal():
                raise FormatError(f"expected a number on a line of its own, got {text[:40]!r}.", path, line)
            first, number = line, text
    if number:
        raise FormatError("the record that begins here is not closed; the file was probably cut off.", path, first)


def _unique(records: Iterator[tuple[int, str, str]], path: Path, what: str) -> UniqueTexts:
    """Documents, which have no title, or queries."""
    found = UniqueTexts(what)
    for line, number, text in records:
        found.put(number, ("", text) if what == "document" else (text,), path, line)
    return found
