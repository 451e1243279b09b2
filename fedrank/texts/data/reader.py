"""Read the Vaswani collection (NPL), in TREC's mark-up or as it was first published.

TREC's: documents between ``<DOC>`` and ``</DOC>`` with ``<DOCNO>``, queries between ``<top>`` and ``</top>`` with
``<num>`` and ``<title>``, judgements in four columns. The original's: a line with a number, lines of text, and a line
with a slash; judgements in the same way, the text being numbers of documents. Documents have no title.

Read text collections in SMART's format: Cranfield, CISI, MED, CACM, ADI, as the University of Glasgow keeps them.

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

Read a user's own text collection: a folder with documents, queries and judgements.

Documents and queries are JSON, one object a line; plain, .gz, .bz2 or .xz::

    documents.jsonl   {"id": "d1", "title": "Wings", "text": "A wing in a slipstream."}
    queries.jsonl     {"id": "q1", "text": "lift of a wing"}
    qrels             q1 0 d1 2

``documents.jsonl`` may be called ``corpus.jsonl``, ``id`` may be ``_id``, ``text`` may be ``body``, and numbers will do
for ids; so a folder as BEIR (Thakur et al. 2021) publishes it can be read as it is. Judgements are in TREC's four
columns, or in three between tabs under the header ``query-id  corpus-id  score``; in ``qrels``, ``qrels.txt``,
``qrels.tsv``, or in the files of a folder ``qrels``.

Text collections in every form that :func:`fedrank.data.load` takes: names, files, mappings, data frames.

What lies under a known name is checked against its published checksums; an edited or look-alike file is refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from typing_extensions import override

from fedrank.core.errors import DataError, FormatError, MissingDataError, UnknownNameError
from fedrank.core.frame import Frame, to_list
from fedrank.core.lazy import require
from fedrank.core.registry import Entry
from fedrank.core.trees import Json
from fedrank.data.catalogue import DataSet
from fedrank.data.folders import find
from fedrank.data.frames import as_frame, ids_of
from fedrank.data.lines import read_lines, verify
from fedrank.data.sources import Reader
from fedrank.texts.data.collection import Judgement, Texts, UniqueTexts, texts_of
from fedrank.texts.data.generate import generate_texts

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
    texts = _unique(_read_marked(documents, "doc", _DOCNO), documents, "document")
    asked = _unique(_read_marked(queries, "top", _NUMBER), queries, "query")
    return texts_of(name, texts, asked, qrels(judgements))


def read_npl(name: str, documents: Path, queries: Path, judgements: Path) -> Texts:
    """Read the original files: ``doc-text``, ``query-text`` and ``rlv-ass``. Errors as :func:`read_trec`."""
    texts = _unique(_read_slashed(documents), documents, "document")
    asked = _unique(_read_slashed(queries), queries, "query")
    rows = (
        (judgements, line, query, one, 1) for line, query, text in _read_slashed(judgements) for one in text.split()
    )
    return texts_of(name, texts, asked, rows)


def qrels(path: Path) -> Iterator[Judgement]:
    """Judgements in TREC's four columns: query, anything, document, grade.

    Raises:
        FormatError: A line has not four columns, or the grade is no whole number.
    """
    for line, raw in enumerate(read_lines(path), start=1):
        cells = raw.decode("utf-8", "backslashreplace").split()
        if not cells:
            continue
        if len(cells) != _QRELS_COLUMNS:
            raise FormatError(
                f"expected four columns (query, 0, document, grade), got {len(cells)}: {' '.join(cells)[:_SHOWN]!r}.",
                path,
                line,
            )
        yield path, line, cells[0], cells[2], _whole(cells[3], "grade", path, line)


def _whole(cell: str, what: str, path: Path, line: int, more: str = "") -> int:
    try:
        return int(cell)
    except ValueError as cause:
        raise FormatError(f"the {what} must be a whole number, got {cell[:_SHOWN]!r}.{more}", path, line) from cause


def _read_marked(path: Path, mark: str, number: re.Pattern[str]) -> Iterator[tuple[int, str, str]]:
    """Each element's line, id and text."""
    first, inside = 0, []
    for line, raw in enumerate(read_lines(path), start=1):
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


def _read_slashed(path: Path) -> Iterator[tuple[int, str, str]]:
    """Each record's line, number and text."""
    first, number, inside = 0, "", []
    for line, raw in enumerate(read_lines(path), start=1):
        text = raw.decode(_ENCODING).strip()
        if text == "/":
            if number:  # the last record is followed by one more slash
                yield first, number, " ".join(" ".join(inside).split())
            number, inside = "", []
        elif number:
            inside.append(text)
        elif text:
            if not text.isdecimal():
                raise FormatError(f"expected a number alone on a line, got {text[:40]!r}.", path, line)
            first, number = line, text
    if number:
        raise FormatError("the record that begins here is not closed; the file was probably cut off.", path, first)


def _unique(records: Iterator[tuple[int, str, str]], path: Path, what: str) -> UniqueTexts:
    """Documents, which have no title, or queries."""
    found = UniqueTexts(what)
    for line, number, text in records:
        found.put(number, ("", text) if what == "document" else (text,), path, line)
    return found


#: Cleverdon's codes (``cranqrel.readme``) as grades of which larger is better. Code 5, of no interest, does not occur.
#: Each query has one document of code -1, which the scale does not define. It is the paper that the question came
#: from: query 3 asks what problems of heat conduction in composite slabs have been solved, and its -1 is "linear heat
#: flow in a composite slab"; plain BM25 puts it among the first ten for 72 % of the queries, and the complete answers
#: (code 1) for 51 %. The readme counts it among the relevant pairs. So it is relevant, to an unknown degree: the least.
CRANFIELD_GRADES: Mapping[int, int] = {1: 4, 2: 3, 3: 2, 4: 1, -1: 1}

_SECTION = re.compile(r"\.([A-Z])\s*")
_RECORD = re.compile(r"\.I\s+(\d+)\s*")


@dataclass(frozen=True)
class SmartLayout:
    """Layout of a collection in SMART's format where it differs from the others.

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
        title, body = _join(sections.get("T", [])), _join(sections.get("W", []))
        body = _without(title, body) if layout.repeated_titles else body
        texts.put(number, (title, body), documents, line)
    for place, (number, line, sections) in enumerate(_records(queries), start=1):
        key = str(place) if layout.by_place else number
        asked.put(key, (_join(sections.get("W", [])),), queries, line)
    return texts_of(name, texts, asked, _smart_judgements(judgements, layout))


def _records(path: Path) -> Iterator[tuple[str, int, dict[str, list[str]]]]:
    """Each record: its number without leading zeros, its line, and for each letter the sections' texts."""
    number, first, letter = "", 0, ""
    sections: dict[str, list[str]] = {}
    for line, raw in enumerate(read_lines(path), start=1):
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


def _join(parts: list[str]) -> str:
    """The sections of one letter as one text, without line ends; a section that stands twice is taken once."""
    return " ".join(dict.fromkeys(text for text in (" ".join(part.split()) for part in parts) if text))


def _without(title: str, body: str) -> str:
    """The body without the title at its beginning."""
    while title and body.startswith(title):  # one document of Cranfield has it twice there
        body = body[len(title) :].lstrip()
    return body


def _smart_judgements(path: Path, layout: SmartLayout) -> Iterator[Judgement]:
    needed = 1 + max(layout.document_column, layout.grade_column or 0)
    for line, raw in enumerate(read_lines(path), start=1):
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


_PACKED = ("", ".gz", ".bz2", ".xz")
_DOCUMENTS, _QUERIES = ("documents.jsonl", "corpus.jsonl"), ("queries.jsonl",)
_JUDGEMENTS = ("qrels", "qrels.txt", "qrels.tsv")
_ENDS = (".tsv", ".txt", ".qrels", "")
_HEADER = ("query-id", "corpus-id", "score")
_SHOWN = 60


def is_text_path(path: Path) -> bool:
    """True if a path is, or by its name would be, a text collection: a .jsonl file or a folder with documents."""
    if ".jsonl" in path.suffixes:
        return True
    return path.is_dir() and _find_file(path, _DOCUMENTS) is not None


def read_texts(path: Path, judged: bool = True) -> Texts:
    """A collection from a folder, or from its file of documents with the queries and judgements beside it.

    Documents and queries stay in the order of their files. A negative grade, by which TREC marks spam, becomes 0, and a
    note says so.

    Args:
        path: The folder, or the .jsonl file of the documents.
        judged: Whether there must be judgements.

    Raises:
        MissingDataError: A file is not there; says which names were looked for.
        FormatError: A line cannot be used, an id stands twice, or a judgement names what is not there or repeats
            another; with the file and the line.
        DataError: There is no document, no query, or no relevant pair; or the file is no .jsonl file.
    """
    if path.is_dir():
        folder, documents = path, _require_file(path, _DOCUMENTS)
    elif path.is_file():
        if ".jsonl" not in path.suffixes:
            raise DataError(
                "is no text collection: give a folder with documents.jsonl, queries.jsonl and qrels, or its file of "
                "documents.",
                path,
            )
        folder, documents = path.parent, path
    else:
        raise MissingDataError("there is no such folder or file.", path)
    queries = _require_file(folder, _QUERIES)
    judgements = _judgement_files(folder, judged)
    found, asked = UniqueTexts("document"), UniqueTexts("query")
    for line, row in _objects(documents):
        key, title = _id(row, documents, line), _text(row, ("title",), documents, line, needed=False)
        body = _text(row, ("text", "body"), documents, line, needed=not title)
        found.put(key, (title, body), documents, line)
    for line, row in _objects(queries):
        asked.put(_id(row, queries, line), (_text(row, ("text", "query"), queries, line),), queries, line)
    rows = (row for one in judgements for row in (_beir(one) if _has_tabs(one) else qrels(one)))
    texts = texts_of(folder.resolve().name, found, asked, rows)
    if judged and not texts.n_judged:
        raise DataError("no document is relevant for any query; every grade is 0 or there is none.", judgements[0])
    if len(judgements) < 2:
        return texts
    note = f"Judgements of {', '.join(one.name for one in judgements)} were put together."
    return replace(texts, notes=(*texts.notes, note))


def _find_file(folder: Path, names: tuple[str, ...]) -> Path | None:
    return next((p for name in names for end in _PACKED if (p := folder / (name + end)).is_file()), None)


def _require_file(folder: Path, names: tuple[str, ...]) -> Path:
    path = _find_file(folder, names)
    if path is None:
        raise MissingDataError(f"there is no {' or '.join(names)}, plain or as .gz, .bz2, .xz.", folder)
    return path


def _judgement_files(folder: Path, needed: bool) -> list[Path]:
    path = _find_file(folder, _JUDGEMENTS)
    if path is not None:
        return [path]
    inside = folder / "qrels"
    files = []
    for one in sorted(inside.iterdir()) if inside.is_dir() else []:
        plain = one.with_suffix("") if one.suffix in _PACKED else one
        if one.is_file() and plain.suffix in _ENDS and not one.name.startswith("."):
            files.append(one)
    if not files and needed:
        raise MissingDataError(
            f"there are no judgements: looked for {', '.join(_JUDGEMENTS)}, and for qrels/test.tsv and others in a "
            "folder qrels.",
            folder,
        )
    return files


def _objects(path: Path) -> Iterator[tuple[int, dict[str, Json]]]:
    """Each line that is not blank, as an object."""
    for line, raw in enumerate(read_lines(path), start=1):
        if not raw.strip():
            continue
        try:
            # The mark that some editors write at the beginning of a file is no part of the first line.
            row = json.loads(raw.decode("utf-8-sig" if line == 1 else "utf-8"))
        except UnicodeDecodeError as cause:
            raise FormatError(f"the text is not UTF-8 ({cause.reason}); save the file as UTF-8.", path, line) from cause
        except json.JSONDecodeError as cause:
            cut = "" if raw.endswith(b"\n") else " The file ends with this line: it was probably cut off here."
            raise FormatError(f"this is no JSON ({cause.msg} at column {cause.colno}).{cut}", path, line) from cause
        except (RecursionError, ValueError) as cause:  # brackets without end, or a number of thousands of digits
            raise FormatError(
                "this JSON is nested too deeply, or holds a number too long to read.", path, line
            ) from cause
        if not isinstance(row, dict):
            raise FormatError(f"expected an object with id and text, got {raw.decode()[:_SHOWN].strip()}.", path, line)
        yield line, row


def _id(row: dict[str, Json], path: Path, line: int) -> str:
    key = row.get("id", row.get("_id"))
    if isinstance(key, bool) or not isinstance(key, str | int):
        raise FormatError(f"expected an id (id or _id) that is text or a whole number, got {key!r}.", path, line)
    key = str(key)
    if not key or key.split() != [key]:
        raise FormatError(f"an id must have a character at least and no spaces, got {key!r}.", path, line)
    return key


def _text(row: dict[str, Json], keys: tuple[str, ...], path: Path, line: int, needed: bool = True) -> str:
    key = next((key for key in keys if row.get(key) is not None), None)
    if key is None:
        if needed:
            raise FormatError(f"there is no {' or '.join(keys)}; found {', '.join(row) or 'nothing'}.", path, line)
        return ""
    if not isinstance(row[key], str):
        raise FormatError(f"{key} must be text, got {str(row[key])[:_SHOWN]!r}.", path, line)
    return row[key]


def _has_tabs(path: Path) -> bool:
    """True if the first line has BEIR's three columns between tabs; TREC's are four, between anything."""
    first = next(iter(read_lines(path))).decode("utf-8-sig", "backslashreplace").rstrip("\r\n").split("\t")
    return len(first) == len(_HEADER)


def _beir(path: Path) -> Iterator[Judgement]:
    for line, raw in enumerate(read_lines(path), start=1):
        cells = [cell.strip() for cell in raw.decode("utf-8-sig", "backslashreplace").split("\t")]
        if cells == [""] or (line == 1 and tuple(cells) == _HEADER):
            continue
        if len(cells) != len(_HEADER):
            raise FormatError(
                f"expected three columns between tabs ({', '.join(_HEADER)}), got {len(cells)}.", path, line
            )
        header = f" The header must be {' '.join(_HEADER)}." if line == 1 else ""
        yield path, line, cells[0], cells[1], _whole(cells[2], "score", path, line, header)


# Documents, queries, judgements. Where a set circulates in two forms, the ways to name its files, in this order.
_FILES: dict[str, tuple[tuple[str, str, str], ...]] = {
    "cranfield": (("cran.all.1400", "cran.qry", "cranqrel"),),
    "cisi": (("CISI.ALL", "CISI.QRY", "CISI.REL"),),
    "adi": (("ADI.ALL", "ADI.QRY", "ADI.REL"),),
    "med": (("MED.ALL", "MED.QRY", "MED.REL"),),
    "cacm": (("cacm.all", "query.text", "qrels.text"),),
    "vaswani": (("doc-text.trec", "query-text.trec", "qrels"), ("doc-text", "query-text", "rlv-ass")),
}
_PARTS = ("documents", "queries", "judgements")
# Names of columns that are understood, the first found is taken.
_ID, _TEXT = ("id", "_id"), ("text", "body", "query")
_QUERY, _DOCUMENT = ("query", "query-id", "qid"), ("document", "corpus-id", "docid")
_GRADE = ("grade", "score", "label")


@dataclass(frozen=True, kw_only=True)
class TextReader(Reader[Texts]):
    """Reads a text collection. One that is handed over is taken as it is.

    In memory a collection is ``(documents, queries, judgements)``, or a mapping with these three names. Documents and
    queries are mappings from id to text, or data frames with columns ``id`` and ``text`` (documents may have a
    ``title``); judgements map a query's id to its documents' ids and grades, or are a data frame with columns
    ``query``, ``document`` and ``grade``. BEIR's names of columns are understood, too.

    Attributes:
        seed: Seed of the generated collection.
        documents: Number of documents of the generated collection.
        queries: Number of queries of the generated collection.
        judged: Whether files must have judgements, which training and measuring need, and searching does not.
    """

    kind: ClassVar[str] = "texts"
    called: ClassVar[str] = "text collection"
    arrays_form: ClassVar[str] = "(documents, queries, judgements), each a mapping or a data frame"

    seed: int = 0
    documents: int = 600
    queries: int = 120
    judged: bool = True

    @override
    def loaded(self, source: Any) -> Texts | None:
        return source if isinstance(source, Texts) else None

    @override
    def generated(self) -> Texts:
        return generate_texts(seed=self.seed, documents=self.documents, queries=self.queries)

    @override
    def named(self, entry: Entry[DataSet], folder: Path | None) -> Texts:
        name, place = entry.name, find(entry.obj, folder)
        if name not in _FILES:  # a set that another package describes: a folder, read as a user's own
            return replace(self.path(place), name=name, citation=entry.citation, notes=entry.obj.notes)
        paths, unverified = _locate(entry.obj, place, _FILES[name])
        if name in LAYOUTS:
            texts = read_smart(name, *paths, LAYOUTS[name])
        elif paths[2].name.startswith("rlv"):
            texts = read_npl(name, *paths)
        else:
            texts = read_trec(name, *paths)
        notes = list(entry.obj.notes)
        if unverified:
            notes.append(f"No checksum is known for {', '.join(unverified)}; what was read was not verified.")
        return replace(texts, citation=entry.citation, notes=tuple(notes))

    @override
    def path(self, path: Path) -> Texts:
        return read_texts(path, self.judged)

    @override
    def collection(self, name: str) -> Texts:
        require("ir-datasets", f"ir_datasets:{name}", "ir_datasets")
        import ir_datasets  # type: ignore[import-not-found] - an extra

        try:
            found: Any = ir_datasets.load(name)
        except KeyError as cause:
            tops = sorted({one.partition("/")[0] for one in ir_datasets.registry})
            raise UnknownNameError("id of ir-datasets", name, tops) from cause
        lacking = [part for part in ("docs", "queries", "qrels") if not getattr(found, f"has_{part}")()]
        if lacking:
            raise DataError(f"ir_datasets:{name} has no {' and no '.join(lacking)}; take an id that has all three.")
        documents = {one.doc_id: one.default_text() for one in found.docs_iter()}
        queries = {one.query_id: one.default_text() for one in found.queries_iter()}
        grades: dict[str, dict[str, int]] = {}
        for one in found.qrels_iter():  # grades below 0 are for spam and the like
            grades.setdefault(one.query_id, {})[one.doc_id] = max(0, one.relevance)
        return replace(self.arrays((documents, queries, grades)), name=f"ir_datasets:{name}")

    @override
    def frame(self, frame: Frame) -> Texts:
        raise DataError(f"one data frame is no text collection; hand over {self.arrays_form}.")

    @override
    def arrays(self, arrays: tuple[Any, ...] | Mapping[str, Any]) -> Texts:
        parts = arrays if isinstance(arrays, tuple) else tuple(arrays[part] for part in _PARTS if part in arrays)
        if len(parts) != len(_PARTS) or len(arrays) != len(_PARTS):
            raise DataError(f"a text collection must be {self.arrays_form}; got {len(arrays)} parts.")
        documents, queries, judgements = parts
        texts, asked = (
            _texts(source, what, self.arrays_form) for source, what in ((documents, "documents"), (queries, "queries"))
        )
        return texts_of("own data", texts, asked, _judgements(judgements, self.arrays_form))


def _texts(source: Any, what: str, form: str) -> UniqueTexts:
    """Documents with their titles, or queries; raises DataError for another form."""
    frame = as_frame(source)
    if frame is None:
        if not isinstance(source, Mapping):
            raise DataError(f"{what} must be a mapping or a data frame in {form}; got {type(source).__name__}.")
        rows = [(str(key), "", text) for key, text in source.items()]
    else:
        keys = ids_of(_column(frame, _ID, what), f"ids of {what}").tolist()
        texts = _column(frame, _TEXT, what).tolist()
        titles = frame["title"].tolist() if "title" in frame.columns else [""] * len(keys)
        rows = [(str(key), title or "", text) for key, title, text in zip(keys, titles, texts, strict=True)]
    documents = what == "documents"
    found = UniqueTexts("document" if documents else "query")
    for row, (key, title, text) in enumerate(rows, start=1):
        if not isinstance(text, str) or not isinstance(title, str):
            raise DataError(f"{what}: the text of {key!r} must be text, got {type(text).__name__}.")
        found.put(key, (title, text) if documents else (text,), Path(what), row)
    return found


def _judgements(source: Any, form: str) -> Iterator[Judgement]:
    where = Path("judgements")  # for errors, with the number of the row
    frame = as_frame(source)
    if frame is not None:
        query, document, grade = (_column(frame, names, "judgements") for names in (_QUERY, _DOCUMENT, _GRADE))
        ids = (ids_of(values, "ids of judgements").tolist() for values in (query, document))
        rows = list(zip(*ids, to_list(grade), strict=True))
    elif isinstance(source, Mapping) and all(isinstance(own, Mapping) for own in source.values()):
        rows = [(query, document, grade) for query, own in source.items() for document, grade in own.items()]
    else:
        raise DataError(
            f"judgements must be a data frame, or a mapping of mappings, in {form}; got {type(source).__name__}."
        )
    for row, (query, document, grade) in enumerate(rows, start=1):
        if isinstance(grade, bool) or not isinstance(grade, int | float) or int(grade) != grade:
            raise DataError(f"a grade must be a whole number, got {grade!r}.", where, row)
        yield where, row, str(query), str(document), int(grade)


def _column(frame: Frame, names: Sequence[str], what: str) -> np.ndarray:
    """The first of some columns that a data frame has."""
    name = next((name for name in names if name in frame.columns), None)
    if name is None:
        raise UnknownNameError(f"column of the data frame of {what}", names[0], frame.columns)
    return frame[name]


def _locate(
    entry: DataSet, place: Path, ways: Sequence[tuple[str, str, str]]
) -> tuple[tuple[Path, Path, Path], list[str]]:
    """The files of a collection, verified where a checksum is known, and the names of those that are not verified."""
    # Whatever the case of the names, and in a folder inside: archives often have one around.
    there = {path.name.lower(): path for path in sorted(place.rglob("*"), reverse=True) if path.is_file()}
    found = [
        [
            next((there[key] for key in (name.lower() + packed for packed in _PACKED) if key in there), None)
            for name in way
        ]
        for way in ways
    ]
    for way, paths in zip(ways, found, strict=True):
        if all(paths):
            documents, queries, judgements = (path for path in paths if path is not None)
            verified = {
                name: verify(path, entry.checksums.get(name, ()))
                for name, path in zip(way, (documents, queries, judgements), strict=True)
            }
            return (documents, queries, judgements), [name for name, known in verified.items() if not known]
    missing = [name for name, path in zip(ways[0], found[0], strict=True) if path is None]
    raise MissingDataError(
        f"there is no {' and no '.join(missing)}, plain or as .xz, .gz, .bz2. {entry.by_hand} Home: {entry.home}", place
    )
