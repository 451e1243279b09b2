"""Indexes in which an owner finds candidates for a query: its own, or that of an engine which it has already.

An engine finds; it does not decide. The candidates that it gives are scored again from their words
(:mod:`fedrank.texts.served.owner`), so that owners with different engines give scores of one scale.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float32, Float64

from fedrank.texts.served.documents import Document, Words
from fedrank.texts.served.rights import OPEN


class Candidate(NamedTuple):
    """A document that an engine found, or a passage of it.

    Attributes:
        id: Name of the document at its owner.
        words: Words of its title and of the passage.
        vector: What an encoder makes of the passage, of length 1; None where the engine keeps none.
        title: The document's title.
        text: Text of the passage.
        about: What is known about the document.
    """

    id: str
    words: Words
    vector: Float32[np.ndarray, " size"] | None = None
    title: str = ""
    text: str = ""
    about: Mapping[str, str] = MappingProxyType({})


@runtime_checkable
class Engine(Protocol):
    """An index of one owner's documents. Methods may raise :class:`~fedrank.core.errors.RunError`.

    Only one thread uses it at a time.
    """

    def __len__(self) -> int:
        """Number of documents."""
        ...

    def add(self, documents: Iterable[Document]) -> int:
        """Add documents, each in place of one of the same id; durable when this returns.

        Returns:
            How many were added.
        """
        ...

    def remove(self, ids: Iterable[str]) -> int:
        """Remove documents; ids that are not there are ignored. Durable when this returns.

        Returns:
            How many were removed.
        """
        ...

    def get(self, id: str) -> Document | None:
        """The document of this id; None if there is none."""
        ...

    def candidates(
        self,
        weights: Mapping[str, float],
        most: int,
        readers: Collection[str] = (OPEN,),
        needed: Collection[str] = (),
    ) -> list[Candidate]:
        """Documents, or passages of them, that hold some of the words, the most promising ones.

        Args:
            weights: Word → how much it is worth, positive; an engine that cannot weigh words may ignore it.
            most: Largest number of documents.
            readers: Only documents that one of these may read; an engine that knows no readers has documents that
                name none, for which :data:`~fedrank.texts.served.rights.OPEN` stands.
            needed: Words of which a document holds each; an engine may ignore them.
        """
        ...

    def find_similar(self, word: str, readers: Collection[str] = (OPEN,)) -> list[str] | None:
        """Words of documents that one of these may read, in the most of some hundreds of passages first.

        Args:
            word: A word that was cut: words are as near to it as a slip of the keyboard leaves them. With ``*`` at its
                end words that begin with it.
            readers: As of :meth:`candidates`.

        Returns:
            None where the engine cannot say.
        """
        ...

    def count_open(self) -> int:
        """Number of documents that name no readers."""
        ...

    def frequencies(self, words: Sequence[str]) -> list[tuple[int, int]]:
        """Number of documents that name no readers whose body and whose title hold each word; an estimate does."""
        ...

    def lengths(self) -> Float64[np.ndarray, " fields"]:
        """Mean number of words of body and title of what is scored; 1 without documents."""
        ...

    def words(self) -> Iterator[Words]:
        """The words of every document, one after the other."""
        ...

    def close(self) -> None:
        """Give back what is held; the engine cannot be used afterwards."""
        ...
