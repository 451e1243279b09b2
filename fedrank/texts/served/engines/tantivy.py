"""An index of the owner's own, in a folder, kept by tantivy: documents are added and taken away at any time."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float64

from fedrank.core.errors import RunError
from fedrank.core.optional import OptionalModule
from fedrank.engine.checkpoint import write_atomically
from fedrank.texts.served.documents import Document, Words, analyser, batches, document_of, words_of
from fedrank.texts.served.encoder import Encoder
from fedrank.texts.served.engines import Candidate

_log = logging.getLogger("fedrank.owner")

tantivy = OptionalModule("tantivy", "search", "An owner's index")

#: Memory of the writer before it writes a segment, in bytes.
_HEAP = 128 << 20
#: Documents that are indexed anew at once.
_AT_ONCE = 1000
#: Fields that are searched; each holds words that are cut already, with a space between.
_SEARCHED = ("body_words", "title_words")


class TantivyEngine:
    """An index in a folder, made anew from the documents that it holds if it was made by another version.

    Args:
        folder: The folder; made if it is not there.
        encoder: Makes vectors of documents when they are added; None: the index keeps none.

    Raises:
        RunError: It cannot be made, holds something else, or another process writes to it.
        MissingExtraError: The extra ``search`` is not installed.
    """

    def __init__(self, folder: Path, encoder: Encoder | None = None):
        self._folder, self._encoder = folder, encoder
        builder = tantivy.SchemaBuilder()
        builder.add_text_field("id", stored=True, tokenizer_name="raw", index_option="basic")
        for name in ("title", "body"):
            builder.add_text_field(name, stored=True, tokenizer_name="raw", index_option="basic")
        for name in _SEARCHED:
            builder.add_text_field(name, stored=True, tokenizer_name="whitespace", index_option="freq")
            builder.add_integer_field(f"{name}_length", fast=True)
        if encoder is not None:
            builder.add_bytes_field(_vector_field(encoder), stored=True)
        self._schema = builder.build()
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._index = tantivy.Index(self._schema, path=str(folder))
            self._writer = self._index.writer(_HEAP, 1)
        except (OSError, ValueError) as error:
            other = "schema" in str(error).lower()
            why = (
                "was made with another encoder, or without one; set encoder as it was, or move this folder away and "
                "add the documents again"
                if other
                else f"cannot be used as an index ({error})"
            )
            raise RunError(f"{folder}: {why}.") from error
        self._know_analyser()

    def _know_analyser(self) -> None:
        """Index all documents anew where words were cut in another way than those of queries are."""
        path = self._folder / "analyser"
        try:
            if path.exists() and path.read_text() == analyser():
                return
            if len(self):
                _log.warning(
                    "%s: was made by another version, which cuts words or titles otherwise; its %d documents are "
                    "indexed anew",
                    self._folder,
                    len(self),
                )
                self._index_anew()
            write_atomically(path, analyser().encode(), 0o600)
        except OSError as error:
            raise RunError(f"{self._folder}: cannot be used as an index ({error}).") from error

    def _index_anew(self) -> None:
        """Cut all documents into words again; what an encoder made of them stays."""
        searcher = self._searcher()
        hits = searcher.search(tantivy.Query.all_query(), max(1, searcher.num_docs), count=False).hits
        for start in range(0, len(hits), _AT_ONCE):
            stored = [searcher.doc(address) for _, address in hits[start : start + _AT_ONCE]]
            batch = [document_of(*(one.get_first(name) or "" for name in ("id", "title", "body"))) for one in stored]
            field = "" if self._encoder is None else _vector_field(self._encoder)
            self._write(batch, [{field: [bytes(one.get_first(field))]} if field else {} for one in stored])
        self._commit()

    def __len__(self) -> int:
        return int(self._searcher().num_docs)

    def add(self, documents: Iterable[Document]) -> int:
        """Add documents; see :class:`~fedrank.texts.served.engines.Engine`."""
        count = 0
        try:
            for batch in batches(iter(documents)):
                self._write(batch, self._vectors(batch))
                count += len(batch)
            self._commit()
        except BaseException:
            self._writer.rollback()
            raise
        return count

    def _write(self, batch: Sequence[Document], vectors: Sequence[Mapping[str, list[bytes]]]) -> None:
        for document, words, vector in zip(batch, words_of(batch), vectors, strict=True):
            self._writer.delete_documents_by_term("id", document.id)
            self._writer.add_document(
                tantivy.Document(
                    id=[document.id],
                    title=[document.title],
                    body=[document.body],
                    title_words=[" ".join(words.title)],
                    body_words=[" ".join(words.body)],
                    title_words_length=[len(words.title)],
                    body_words_length=[len(words.body)],
                    **vector,
                )
            )

    def remove(self, ids: Iterable[str]) -> int:
        """Remove documents; see :class:`~fedrank.texts.served.engines.Engine`."""
        before = len(self)
        for one in ids:
            self._writer.delete_documents_by_term("id", one)
        self._commit()
        return before - len(self)

    def get(self, id: str) -> Document | None:
        """The document of this id; None if there is none."""
        searcher = self._searcher()
        hits = searcher.search(tantivy.Query.term_query(self._schema, "id", id, index_option="basic"), 1).hits
        if not hits:
            return None
        stored = searcher.doc(hits[0][1])
        return Document(id, stored.get_first("title") or "", stored.get_first("body") or "")

    def candidates(self, weights: Mapping[str, float], most: int) -> list[Candidate]:
        """The best documents by tantivy's BM25 of body and title, each word at its weight in place of tantivy's own."""
        searcher = self._searcher()
        clauses = []
        for word, weight in weights.items():
            for field in _SEARCHED:
                own = _idf(searcher.num_docs, searcher.doc_freq(field, word))
                term = tantivy.Query.term_query(self._schema, field, word, index_option="freq")
                clauses.append((tantivy.Occur.Should, tantivy.Query.boost_query(term, weight / own)))
        if not clauses:
            return []
        hits = searcher.search(tantivy.Query.boolean_query(clauses), most, count=False).hits
        return [self._candidate(searcher.doc(address)) for _, address in hits]

    def frequencies(self, words: Sequence[str]) -> list[tuple[int, int]]:
        """Number of documents whose body and whose title hold each word; removed documents count for a while."""
        searcher = self._searcher()
        return [tuple(int(searcher.doc_freq(field, word)) for field in _SEARCHED) for word in words]  # type: ignore[misc]

    def lengths(self) -> Float64[np.ndarray, " fields"]:
        """Mean number of words of body and title; 1 without documents."""
        wanted = {name: {"avg": {"field": f"{name}_length"}} for name in _SEARCHED}
        found = self._searcher().aggregate(tantivy.Query.all_query(), wanted)
        return np.array([found[name]["value"] or 1.0 for name in _SEARCHED])

    def words(self) -> Iterator[Words]:
        """The words of every document."""
        searcher = self._searcher()
        for _, address in searcher.search(tantivy.Query.all_query(), max(1, searcher.num_docs), count=False).hits:
            yield self._candidate(searcher.doc(address)).words

    def close(self) -> None:
        """End the writer; the folder can then be used by another process."""
        self._writer.wait_merging_threads()

    def _searcher(self) -> Any:
        return self._index.searcher()

    def _vectors(self, batch: Sequence[Document]) -> list[dict[str, list[bytes]]]:
        """The field with each document's vector, in half precision; no field without an encoder."""
        if self._encoder is None:
            return [{} for _ in batch]
        vectors = self._encoder.encode([". ".join(filter(None, (d.title, d.body))) for d in batch])
        return [{_vector_field(self._encoder): [vector.astype("<f2").tobytes()]} for vector in vectors]

    def _candidate(self, stored: Any) -> Candidate:
        title, body = (stored.get_first(name) or "" for name in ("title_words", "body_words"))
        raw = None if self._encoder is None else stored.get_first(_vector_field(self._encoder))
        vector = None if raw is None else np.frombuffer(bytes(raw), "<f2").astype(np.float32)
        return Candidate(stored.get_first("id"), Words(title.split(), body.split()), vector)

    def _commit(self) -> None:
        try:
            self._writer.commit()
            self._index.reload()
        except (OSError, ValueError) as error:
            raise RunError(f"{self._folder}: the index cannot be written ({error}). Nothing was added.") from error


def _vector_field(encoder: Encoder) -> str:
    """Name of the field with vectors, by the encoder: an index opens with the encoder that it was made with."""
    return f"vector_{encoder.digest}"


def _idf(documents: int, frequency: int) -> float:
    """The weight that tantivy gives a word by itself (BM25 of Lucene)."""
    return math.log1p((documents - frequency + 0.5) / (frequency + 0.5))
