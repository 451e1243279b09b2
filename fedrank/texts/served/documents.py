"""Documents of an owner, their passages, and the words of both."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from types import MappingProxyType
from typing import NamedTuple, TypeVar

from fedrank.texts.served.analyser import Analyser, english

T = TypeVar("T")

#: Longest id of a document, in bytes: a ticket holds it, and all tickets have one length.
LONGEST_ID = 128
#: Longest title, in characters: it crosses with a hit, and weighs more than text. A longer one is text.
LONGEST_TITLE = 256
#: Characters of a passage; the last one of a document may have half as many more.
PASSAGE = 2000
#: Ends of a passage, the best first.
_ENDS = ("\n\n", "\n", ". ", "。", " ")
#: Documents that are cut into words at once.
_AT_ONCE = 1000


class Document(NamedTuple):
    """A document as its owner keeps it.

    Attributes:
        id: Its name at the owner, at most 128 bytes of UTF-8.
        title: Its title, at most 256 characters in one line; may be empty.
        body: Its text without the title; may be empty.
        about: What is known about it: ``path``, ``type``, ``date``, ``author``, ``cut`` (what was
            left out of its text); each may be missing.
    """

    id: str
    title: str
    body: str
    about: Mapping[str, str] = MappingProxyType({})


def document_of(id: str, title: str, body: str, about: Mapping[str, str] = MappingProxyType({})) -> Document:
    """A document from its parts: what is too long for a title becomes the beginning of the text."""
    title, body = " ".join(title.split()), body.strip()
    if len(title) > LONGEST_TITLE:
        title, body = "", f"{title}\n{body}".strip()
    return Document(id, title, body, about)


def passages_of(body: str) -> list[str]:
    """The text in passages of about :data:`PASSAGE` characters, which together are the text."""
    parts, start = [], 0
    while len(body) - start > PASSAGE * 3 // 2:
        middle, end = start + PASSAGE // 2, start + PASSAGE
        for mark in _ENDS:
            if (place := body.rfind(mark, middle, end)) >= 0:
                end = place + len(mark)
                break
        parts.append(body[start:end])
        start = end
    return [*parts, body[start:]]


class Words(NamedTuple):
    """The words of a document or of a passage, in order.

    Attributes:
        title: Words of the title.
        body: Words of the text.
        parts: Number of passages that the text is searched in.
    """

    title: list[str]
    body: list[str]
    parts: int = 1


def words_of(documents: Sequence[Document], analyser: Analyser | None = None) -> list[Words]:
    """The words of documents, cut by an analyser; None: the one for English."""
    cut = (analyser or english()).cut
    return [Words(cut(document.title), cut(document.body)) for document in documents]


def index_fingerprint(analyser: Analyser) -> str:
    """16 characters that differ where an index would be made otherwise: words, longest title, passages."""
    return hashlib.sha256(f"{analyser.fingerprint} {LONGEST_TITLE} {PASSAGE}".encode()).hexdigest()[:16]


def batches(values: Iterable[T], size: int = _AT_ONCE) -> Iterator[list[T]]:
    """Values, such as documents, in lists of at most ``size``."""
    values = iter(values)
    while batch := list(islice(values, size)):
        yield batch
