"""Common parts of engines that an owner has already: documents come and go there, and numbers are kept a while."""

from __future__ import annotations

import abc
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, NoReturn, TypeVar

import numpy as np
from jaxtyping import Float64

from fedrank.core.errors import ConfigError, RunError
from fedrank.texts.served.analyser import Analyser, english
from fedrank.texts.served.documents import LONGEST_ID, Document, Words, batches, document_of, words_of
from fedrank.texts.served.engines import Candidate
from fedrank.texts.served.rights import OPEN

T = TypeVar("T")

#: Seconds for which numbers of an engine are kept: its statistics change slowly, and each costs a question.
KEPT = 600.0
#: Words whose frequencies are kept.
_MOST_WORDS = 100_000
#: Documents from which mean lengths are estimated.
SAMPLE = 1000


@dataclass(frozen=True)
class Columns:
    """Names of what a document is made of in an engine.

    Attributes:
        id: Its name, the document's id.
        title: Its title; empty: documents have none.
        body: Its text.
    """

    id: str
    title: str
    body: str

    @classmethod
    def of(cls, names: str) -> Columns:
        """The columns that a setting names, in the order id, title, body; two names are id and body.

        Raises:
            ConfigError: They are fewer or more, or one stands twice.
        """
        found = names.replace(",", " ").split()
        if len(found) not in (2, 3) or len(set(found)) < len(found):
            raise ConfigError(f"columns must name id, title and body, or id and body, got {names!r}.")
        return cls(found[0], "" if len(found) == 2 else found[1], found[-1])


@dataclass(frozen=True)
class Place:
    """The place of an owner's documents in an engine that it has already.

    Attributes:
        url: Address, whose scheme names the engine: an entry point of ``fedrank.search_engines``, a function from a
            place to an :class:`~fedrank.texts.served.engines.Engine`.
        columns: Names of what a document is made of.
        table: Name of the table, for engines with tables.
        authorization: Value of a header ``Authorization``; empty: none.
        analyser: Cuts documents into words; None: that for English.
    """

    url: str
    columns: Columns
    table: str = ""
    authorization: str = ""
    analyser: Analyser | None = None


class Remembered(Generic[T]):
    """A value that is asked for again only after :data:`KEPT` seconds."""

    def __init__(self, ask: Callable[[], T]):
        self._ask, self._at = ask, -KEPT
        self._value: T | None = None

    def get(self) -> T:
        """The value."""
        if time.monotonic() - self._at > KEPT or self._value is None:
            self._value, self._at = self._ask(), time.monotonic()
        return self._value


class Frequencies:
    """Document frequencies of words that an engine was asked for, kept for :data:`KEPT` seconds.

    Args:
        ask: Gives body's and title's document frequency of each word.
    """

    def __init__(self, ask: Callable[[Sequence[str]], list[tuple[int, int]]]):
        self._ask = ask
        self._known: dict[str, tuple[float, tuple[int, int]]] = {}

    def of(self, words: Sequence[str]) -> list[tuple[int, int]]:
        """Frequencies of words."""
        now = time.monotonic()
        new = [word for word in dict.fromkeys(words) if now - self._known.get(word, (-KEPT, None))[0] >= KEPT]
        if new:
            if len(self._known) > _MOST_WORDS:
                self._known.clear()
                new = list(dict.fromkeys(words))
            self._known.update((word, (now, found)) for word, found in zip(new, self._ask(new), strict=True))
        return [self._known[word][1] for word in words]


def mean_lengths(words: Sequence[Words]) -> Float64[np.ndarray, " fields"]:
    """Mean number of words of body and title; 1 without documents."""
    if not words:
        return np.ones(2)
    return np.maximum(np.mean([[len(one.body), len(one.title)] for one in words], axis=0), 1e-3)


def document_of_row(id: object, title: object, body: object) -> Document | None:
    """A document of an engine; None where its id is none that a ticket holds."""
    name = str(id)
    if id is None or not 0 < len(name.encode("utf-8", "surrogatepass")) <= LONGEST_ID:
        return None
    return document_of(name, "" if title is None else str(title), "" if body is None else str(body))


class ForeignEngine(abc.ABC):
    """An engine that an owner has already, which is only read: what such engines have in common.

    Args:
        where: What errors call the place.
        analyser: Cuts documents into words; None: that for English.
    """

    def __init__(self, where: str, analyser: Analyser | None = None):
        self._where, self._analyser = where, analyser or english()
        self._count = Remembered(self._how_many)
        self._lengths = Remembered(lambda: mean_lengths(words_of(self._some(SAMPLE), self._analyser)))
        self._frequencies = Frequencies(self._count_words)

    def _candidates(self, documents: Sequence[Document]) -> list[Candidate]:
        """Documents that were found, with their words."""
        cut = words_of(documents, self._analyser)
        return [Candidate(one.id, own, None, one.title, one.body) for one, own in zip(documents, cut, strict=True)]

    @abc.abstractmethod
    def _how_many(self) -> int:
        """Number of documents that the engine holds now, at least 0; asked anew after :data:`KEPT` seconds."""

    @abc.abstractmethod
    def _some(self, most: int) -> list[Document]:
        """Any documents, at most this number."""

    @abc.abstractmethod
    def _count_words(self, words: Sequence[str]) -> list[tuple[int, int]]:
        """Number of documents whose body and whose title hold each word."""

    @abc.abstractmethod
    def _documents(self) -> Iterator[Document]:
        """All documents, one after another."""

    def __len__(self) -> int:
        return self._count.get()

    def find_similar(self, word: str, readers: Collection[str] = (OPEN,)) -> list[str] | None:
        """None: the engine is not asked for its words."""
        return None

    def count_open(self) -> int:
        """Number of documents: none names readers."""
        return len(self)

    def add(self, documents: Iterable[Document]) -> int:
        """Refused, unless there are none; see :class:`~fedrank.texts.served.engines.Engine`."""
        if next(iter(documents), None) is None:
            return 0
        self._refuse_changes()

    def remove(self, ids: Iterable[str]) -> int:
        """Refused; see :class:`~fedrank.texts.served.engines.Engine`."""
        self._refuse_changes()

    def frequencies(self, words: Sequence[str]) -> list[tuple[int, int]]:
        """Number of documents whose body and whose title hold each word; at most ten minutes old."""
        return self._frequencies.of(words)

    def lengths(self) -> Float64[np.ndarray, " fields"]:
        """Mean number of words of body and title, of a thousand documents."""
        return self._lengths.get()

    def words(self) -> Iterator[Words]:
        """The words of every document."""
        for batch in batches(self._documents()):
            yield from words_of(batch, self._analyser)

    def close(self) -> None:
        """Give back what is held: nothing, unless an engine says otherwise."""
        return

    def _refuse_changes(self) -> NoReturn:
        raise RunError(f"{self._where}: documents are added and taken away there, as before; the owner only reads.")
