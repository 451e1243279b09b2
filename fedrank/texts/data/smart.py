"""Read text collections in SMART's format: Cranfield, CISI, MED, CACM, ADI, as the University of Glasgow keeps them.

A record begins with ``.I number``; a line with a dot and a capital letter begins a section: ``.T`` title, ``.W`` text,
``.A`` authors, ``.B`` where published, and more. Files are latin-1, with Unix or Windows line ends. Judgements are
lines of numbers: query, document, and what each collection makes of the rest.

Traps, each handled where it arises:

* Cranfield's judgements name queries by their place, 1 .. 225; the numbers after ``.I`` in its file of queries go
  to 365 and mean nothing.
* Cranfield's grades run from 1, a complete answer, to 4, of minimum interest; see :data:`CRANFIELD_GRADES`.
* Cranfield's texts begin with their own titles; the repetition is taken out, or a word of the title would count as a
  word of the body too.
* A section can stand twice: several authors, an abstract cut in two, a title typed twice.
* Judgements of CISI and ADI have no grade that means anything: their third and fourth column are 0 throughout.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from fedrank.core.errors import FormatError
from fedrank.data.lines import unpacked
from fedrank.texts.data.collection import Judgement, Texts, UniqueTexts, texts_of

#: Cleverdon's codes (``cranqrel.readme``) as grades of which larger is better. Code 5, of no interest, does not occur.
#: Each query has one document of code -1, which the scale does not define. It is the paper that the question came
#: from: query 3 asks what problems of heat conduction in composite slabs have been solved, and its -1 is "linear heat
#: flow in a composite slab"; plain BM25 puts it among the first ten for 72 % of the queries, and the complete answers
#: (code 1) for 51 %. The readme counts it among the relevant pairs. So it is relevant, to an unknown degree: the least.
CRANFIELD_GRADES: Mapping[int, int] = {1: 4, 2: 3, 3: 2, 4: 1, -1: 1}

_SECTION = re.compile(r"\.([A-Z])\s*")
_RECORD = re.compile(r"\.I\s+(\d+)\s*")
_ENCODING = "latin-1"


@dataclass(frozen=True)
class SmartLayout:
    """How a collection in SMART's format differs from the others.

    Attributes:
        by_place: Whether queries are named by their place in the file, from 1, not by the number after ``.I``.
        document_column: Column of a judgement, from 0, with the document; the query is in column 0.
        grade_column: Column with the grade; None if every row means relevant.
        grades: Grade of each number in that column; empty if the numbers are grades already.
        repeated_titles: Whether the text of a document begins with its title.
    """

    by_place: bool = False
    document_column: int = 1
    grade_column: int | None = None
    grades: Mapping[int, int] = field(default_factory=dict)
    repeated_titles: bool = False


#: The collections by name.
LAYOUTS: Mapping[str, SmartLayout] = {
    "cranfield": SmartLayout(by_place=True, grade_column=2, grades=CRANFIELD_GRADES, repeated_titles=True),
    "cisi": SmartLayout(),
    "adi": SmartLayout(),
    # Columns as TREC has them: query, 0, document, 1.
    "med": SmartLayout(document_column=2, grade_column=3),
    "cacm": SmartLayout(),
}


def read_smart(name: str, documents: Path, queries: Path, judgements: Path, layout: SmartLayout) -> Texts:
    """Read a collection.

    Args:
        name: What to call it.
        documents: The file of documents, plain or packed.
        queries: The file of queries.
        judgements: The file of judgements.
        layout: How the collection differs from others.

    Raises:
        FormatError: A line cannot be used, or two of one number differ.
        MissingDataError: A file is not there.
        DataError: There is no document or no query.
    """
    texts, asked = UniqueTexts("document"), UniqueTexts("query")
    for number, line, sections in _records(documents):
        title, body = _joined(sections.get("T", [])), _joined(sections.get("W", []))
        body = _without(title, body) if layout.repeated_titles else body
        texts.put(number, (title, body), documents, line)
    for place, (number, line, sections) in enumerate(_records(queries), start=1):
        key = str(place) if layout.by_place else number
        asked.put(key, (_joined(sections.get("W", [])),), queries, line)
    return texts_of(name, texts, asked, _judgements(judgements, layout))


def _records(path: Path) -> Iterator[tuple[str, int, dict[str, list[str]]]]:
    """Each record: its number without leading zeros, its line, and for each letter the sections' texts."""
    number, first, letter = "", 0, ""
    sections: dict[str, list[str]] = {}
    for line, raw in enumerate(unpacked(path), start=1):
        text = raw.decode(_ENCODING).rstrip("\r\n")
        record, section = _RECORD.fullmatch(text), _SECTION.fullmatch(text)
        if record:
            if number:
                yield number, first, sections
            number, first, letter, sections = str(int(record.group(1))), line, "", {}
        elif section and number:
            letter = section.group(1)
            sections.setdefault(letter, []).append("")
        elif letter:
            sections[letter][-1] += text + "\n"
        elif text.strip():
            what = "a section such as .T or .W" if number else "a record, .I and its number"
            raise FormatError(f"expected {what}, got {text[:40]!r}; is this a SMART file?", path, line)
    if not number:
        raise FormatError("there is no record (.I and its number); is this a SMART file?", path)
    yield number, first, sections


def _joined(parts: list[str]) -> str:
    """The sections of one letter as one text, without line ends; a section that stands twice is taken once."""
    return " ".join(dict.fromkeys(text for text in (" ".join(part.split()) for part in parts) if text))


def _without(title: str, body: str) -> str:
    """The body without the title at its beginning."""
    while title and body.startswith(title):  # one document of Cranfield has it twice there
        body = body[len(title) :].lstrip()
    return body


def _judgements(path: Path, layout: SmartLayout) -> Iterator[Judgement]:
    needed = 1 + max(layout.document_column, layout.grade_column or 0)
    for line, raw in enumerate(unpacked(path), start=1):
        cells = raw.decode(_ENCODING).split()
        if not cells:
            continue
        if len(cells) < needed:
            raise FormatError(f"expected {needed} numbers at least, got {len(cells)}.", path, line)
        try:
            query, document = int(cells[0]), int(cells[layout.document_column])
            grade = 1 if layout.grade_column is None else int(cells[layout.grade_column])
        except ValueError as cause:
            raise FormatError(f"expected whole numbers; {cause}.", path, line) from cause
        if layout.grades and grade not in layout.grades:
            known = ", ".join(map(str, layout.grades))
            raise FormatError(f"the code of a judgement must be one of {known}, got {grade}.", path, line)
        yield path, line, str(query), str(document), layout.grades.get(grade, grade)
