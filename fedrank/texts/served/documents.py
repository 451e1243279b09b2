"""Documents of an owner: read from files, cut into words."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from fedrank.core.errors import FormatError, MissingDataError
from fedrank.texts.data.corpus import tokenise

#: Endings of files that are one document each.
TEXT_FILES = (".txt", ".md")
#: Longest id of a document, in bytes: a ticket holds it, and all tickets have one length.
LONGEST_ID = 128
#: Longest title, in characters: it crosses with a hit, and weighs more than text. A longer one is text.
LONGEST_TITLE = 256
#: Text whose words change where the tokeniser, its stop words or its stemmer change.
_PROBE = (
    "The generously happier nationalities were organising rational relational traditions, wolves' knives, dying and "
    "dies; C++ 7 x1 isn't e-mail Ünïcode naïve flies skies agreed hopping hoping able-bodied university universe their"
)
#: Documents that are cut into words at once.
_AT_ONCE = 1000


class Document(NamedTuple):
    """A document as its owner keeps it.

    Attributes:
        id: Its name at the owner, at most 128 bytes of UTF-8.
        title: Its title, at most 256 characters in one line; may be empty.
        body: Its text without the title; may be empty.
    """

    id: str
    title: str
    body: str


def document_of(id: str, title: str, body: str) -> Document:
    """A document from its parts: what is too long for a title becomes the beginning of the text."""
    title, body = " ".join(title.split()), body.strip()
    if len(title) > LONGEST_TITLE:
        title, body = "", f"{title}\n{body}".strip()
    return Document(id, title, body)


class Words(NamedTuple):
    """The words of a document, in order, as :func:`~fedrank.texts.data.corpus.tokenise` cuts them."""

    title: list[str]
    body: list[str]


def words_of(documents: Sequence[Document]) -> list[Words]:
    """The words of documents."""
    cut = tokenise([text for document in documents for text in (document.title, document.body)])
    return [Words(cut[place], cut[place + 1]) for place in range(0, len(cut), 2)]


@functools.cache
def analyser() -> str:
    """Fingerprint of how this version makes an index: how words are cut, and how long a title is."""
    cut = tokenise([_PROBE])[0]
    return hashlib.sha256(json.dumps([cut, LONGEST_TITLE]).encode()).hexdigest()[:16]


def batches(documents: Iterator[Document], size: int = _AT_ONCE) -> Iterator[list[Document]]:
    """Documents in lists of at most ``size``."""
    batch: list[Document] = []
    for document in documents:
        batch.append(document)
        if len(batch) == size:
            yield batch
            batch = []
    if batch:
        yield batch


def read_documents(path: Path) -> Iterator[Document]:
    """Documents of a file or a folder.

    A folder gives one document for each ``.txt`` or ``.md`` file below it: its id is the path within the folder, its
    title the first line. A file of one line has a text and no title, as has one whose first line is longer than 256
    characters. A ``.jsonl`` file has an object a line with ``id`` (or ``_id``), ``title`` (may be missing)
    and ``text`` (or ``body``), as collections of BEIR have. Nothing is held in memory beyond one document.

    Raises:
        MissingDataError: There is nothing at the path.
        FormatError: A line is no such object, an id is missing, empty or too long, or a file is not UTF-8.
    """
    if path.is_dir():
        files = sorted(file for file in path.rglob("*") if file.suffix.lower() in TEXT_FILES and file.is_file())
        if not files:
            raise MissingDataError(f"{path}: has no {' or '.join(TEXT_FILES)} file. Name a folder of texts, or .jsonl.")
        for file in files:
            yield _of_file(file, file.relative_to(path).as_posix())
    elif path.suffix.lower() in TEXT_FILES and path.is_file():
        yield _of_file(path, path.name)
    elif path.is_file():
        yield from _of_lines(path)
    else:
        raise MissingDataError(f"{path}: there is no such file or folder.")


def _of_file(path: Path, name: str) -> Document:
    try:
        title, _, body = path.read_text(encoding="utf-8").lstrip("\ufeff").strip().partition("\n")
        title, body = (title, body) if body else ("", title)
    except UnicodeDecodeError as error:
        raise FormatError(f"is not text in UTF-8 ({error.reason} at byte {error.start}); convert it.", path) from error
    return _check(document_of(name, title.lstrip("# "), body), path, None)


def _of_lines(path: Path) -> Iterator[Document]:
    with path.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise FormatError("is not a JSON object in UTF-8.", path, number) from error
            if not isinstance(row, dict):
                raise FormatError(f"must be a JSON object, got {type(row).__name__}.", path, number)
            name, title, body = row.get("id", row.get("_id")), row.get("title") or "", row.get("text", row.get("body"))
            name = str(name) if isinstance(name, int) and not isinstance(name, bool) else name
            if not isinstance(name, str) or not isinstance(title, str) or not isinstance(body, str):
                raise FormatError('needs "id" and "text", both text, and "title" only as text.', path, number)
            yield _check(document_of(name, title, body), path, number)


def _check(document: Document, path: Path, line: int | None) -> Document:
    """The document, without what no index keeps; refused if its id cannot be used."""
    try:
        size = len(document.id.encode())
        "".join(document).encode()
    except UnicodeEncodeError as error:
        raise FormatError("has half of a surrogate pair, which is no text in UTF-8.", path, line) from error
    if not 0 < size <= LONGEST_ID:
        raise FormatError(f"the id must have 1 to {LONGEST_ID} bytes, got {size}.", path, line)
    return document
