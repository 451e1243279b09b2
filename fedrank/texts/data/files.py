"""Read a user's own text collection: a folder with documents, queries and judgements.

Documents and queries are JSON, one object a line; plain, .gz, .bz2 or .xz::

    documents.jsonl   {"id": "d1", "title": "Wings", "text": "A wing in a slipstream."}
    queries.jsonl     {"id": "q1", "text": "lift of a wing"}
    qrels             q1 0 d1 2

``documents.jsonl`` may be called ``corpus.jsonl``, ``id`` may be ``_id``, ``text`` may be ``body``, and numbers will do
for ids; so a folder as BEIR (Thakur et al. 2021) publishes it can be read as it is. Judgements are in TREC's four
columns, or in three between tabs under the header ``query-id  corpus-id  score``; in ``qrels``, ``qrels.txt``,
``qrels.tsv``, or in the files of a folder ``qrels``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from fedrank.core.errors import DataError, FormatError, MissingDataError
from fedrank.core.trees import Json
from fedrank.data.lines import unpacked
from fedrank.texts.data.collection import Judgement, Texts, UniqueTexts, texts_of
from fedrank.texts.data.trec import qrels

_PACKED = ("", ".gz", ".bz2", ".xz")
_DOCUMENTS, _QUERIES = ("documents.jsonl", "corpus.jsonl"), ("queries.jsonl",)
_JUDGEMENTS = ("qrels", "qrels.txt", "qrels.tsv")
_ENDS = (".tsv", ".txt", ".qrels", "")
_HEADER = ("query-id", "corpus-id", "score")
_SHOWN = 60


def is_text_path(path: Path) -> bool:
    """Whether a path is, or by its name would be, a text collection: a .jsonl file or a folder with documents."""
    if ".jsonl" in path.suffixes:
        return True
    return path.is_dir() and _named(path, _DOCUMENTS) is not None


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
        folder, documents = path, _needed(path, _DOCUMENTS)
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
    queries = _needed(folder, _QUERIES)
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


def _named(folder: Path, names: tuple[str, ...]) -> Path | None:
    return next((p for name in names for end in _PACKED if (p := folder / (name + end)).is_file()), None)


def _needed(folder: Path, names: tuple[str, ...]) -> Path:
    path = _named(folder, names)
    if path is None:
        raise MissingDataError(f"there is no {' or '.join(names)}, plain or as .gz, .bz2, .xz.", folder)
    return path


def _judgement_files(folder: Path, needed: bool) -> list[Path]:
    path = _named(folder, _JUDGEMENTS)
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
    for line, raw in enumerate(unpacked(path), start=1):
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
    """Whether the first line has BEIR's three columns between tabs; TREC's are four, between anything."""
    first = next(iter(unpacked(path))).decode("utf-8-sig", "backslashreplace").rstrip("\r\n").split("\t")
    return len(first) == len(_HEADER)


def _beir(path: Path) -> Iterator[Judgement]:
    for line, raw in enumerate(unpacked(path), start=1):
        cells = [cell.strip() for cell in raw.decode("utf-8-sig", "backslashreplace").split("\t")]
        if cells == [""] or (line == 1 and tuple(cells) == _HEADER):
            continue
        if len(cells) != len(_HEADER):
            raise FormatError(
                f"expected three columns between tabs ({', '.join(_HEADER)}), got {len(cells)}.", path, line
            )
        try:
            grade = int(cells[2])
        except ValueError as cause:
            where = f" The header must be {' '.join(_HEADER)}." if line == 1 else ""
            got = cells[2][:_SHOWN]
            raise FormatError(f"the score must be a whole number, got {got!r}.{where}", path, line) from cause
        yield path, line, cells[0], cells[1], grade
