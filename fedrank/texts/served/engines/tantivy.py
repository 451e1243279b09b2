"""An index of the owner's own, in a folder, kept by tantivy: documents are added and taken away at any time.

A long document is indexed as several passages, and found by its best one; how many documents hold a word, and the
words of a document, are those of whole documents.
"""

from __future__ import annotations

import json
import logging
import math
import shutil
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float64

from fedrank.core.errors import RunError
from fedrank.core.lazy import OptionalModule
from fedrank.engine.checkpoint import write_atomically
from fedrank.texts.served.analyser import Analyser, english
from fedrank.texts.served.documents import Document, Words, batches, document_of, index_fingerprint, passages_of
from fedrank.texts.served.encoder import Encoder, text_of
from fedrank.texts.served.engines import Candidate
from fedrank.texts.served.rights import OPEN, readers_of

_log = logging.getLogger("fedrank.owner")

tantivy = OptionalModule("tantivy", "search", "An owner's index")
distances = OptionalModule("rapidfuzz.distance", "search", "An owner's index")
process = OptionalModule("rapidfuzz.process", "search", "An owner's index")

#: Memory of the writer before it writes a segment, in bytes.
_HEAP = 128 << 20
#: Fields that are searched; each holds words that are cut already, with a space between.
_SEARCHED = ("body_words", "title_words")
#: What stands before a word of the body and of the title among the words of a whole document.
_MARKS = ("b", "t")
#: Letters from which two slips of the keyboard are looked for, and not one; passages whose words are compared, and
#: times that they are looked for.
_LONG, _LOOKED_AT, _LOOKS = 8, 100, 4
#: Layout of the fields, which differs from that of other versions.
_LAYOUT = "3"


class TantivyEngine:
    """An index in a folder, made anew from the documents that it holds where it was made in another way.

    Args:
        folder: The folder; made if it is not there.
        encoder: Makes vectors of passages when documents are added; None: the index keeps none.
        analyser: Cuts texts into words; None: that for English.

    Raises:
        RunError: It cannot be made, holds something else, or another process writes to it.
        MissingExtraError: The extra ``search`` is not installed.
    """

    def __init__(self, folder: Path, encoder: Encoder | None = None, analyser: Analyser | None = None):
        self._folder, self._encoder, self._analyser = folder, encoder, analyser or english()
        self._count: int | None = None
        self._marker, self._matches = folder / "restricted", dict[tuple[str, str], int]()
        #: If any document ever named readers: of removed ones words stay until tantivy merges what holds them.
        self._is_restricted = False
        self._lengths: Float64[np.ndarray, " fields"] | None = None
        made_by = " ".join((_LAYOUT, index_fingerprint(self._analyser), encoder.digest if encoder else "-"))
        path, former = folder / "analyser", folder.with_name(f"{folder.name}.former")
        try:
            if former.exists():  # a stop left it: once the new index says how it was made, all documents are there
                shutil.rmtree(former if path.exists() else folder, ignore_errors=True)
            before = path.read_text() if path.exists() else ""
            if before != made_by and not former.exists() and folder.exists() and any(folder.iterdir()):
                folder.rename(former)
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._schema, self._query = _schema(), tantivy.Query
            self._index = tantivy.Index(self._schema, path=str(folder))
            self._writer = self._index.writer(_HEAP, 1)
            if former.exists():
                self._index_anew(former, made_by)
            self._is_restricted = self._marker.exists()
            write_atomically(path, made_by.encode(), 0o600)
            shutil.rmtree(former, ignore_errors=True)
        except (OSError, ValueError) as error:
            raise RunError(f"{folder}: cannot be used as an index ({error}).") from error

    def _index_anew(self, former: Path, made_by: str) -> None:
        """Add the documents of an index that was made in another way; what this encoder made of them stays."""
        old = tantivy.Index.open(str(former)).searcher()
        if old.num_docs:
            _log.warning(
                "%s: was made with other languages, another encoder or by another version; its documents are indexed "
                "anew",
                self._folder,
            )
        before = (former / "analyser").read_text().split() if (former / "analyser").exists() else []
        keep = self._encoder is not None and before[:1] in (["2"], ["3"]) and before[2:] == made_by.split()[2:]
        for batch in batches(_by_document(old)):
            vectors = (
                [{"vector": [bytes(one.get_first("vector"))]} for parts in batch for one in parts] if keep else None
            )
            self._write([document_of(*_document(parts)) for parts in batch], vectors)
        self._commit()

    def __len__(self) -> int:
        if self._count is None:
            first = self._query.term_query(self._schema, "first", "1", index_option="basic")
            self._count = int(self._searcher().search(first, 1).count or 0)
        return self._count

    def count_open(self) -> int:
        """Number of documents that name no readers."""
        if not self._is_restricted:
            return len(self)
        first = self._query.term_query(self._schema, "first", "1", index_option="basic")
        return self._count_matches(first)

    def add(self, documents: Iterable[Document]) -> int:
        """Add documents; see :class:`~fedrank.texts.served.engines.Engine`."""
        count = 0
        try:
            for batch in batches(iter(documents)):
                self._write(batch)
                count += len(batch)
            self._commit()
        except BaseException:
            self._writer.rollback()
            raise
        return count

    def _write(self, batch: Sequence[Document], kept: Iterable[dict[str, list[bytes]]] | None = None) -> None:
        if any("readers" in document.about for document in batch):
            self._marker.touch()
            self._is_restricted = True
        passages = [passages_of(document.body) for document in batch]
        vectors = iter(self._vectors(batch, passages) if kept is None else kept)
        for document, own in zip(batch, passages, strict=True):
            self._writer.delete_documents_by_term("id", document.id)
            title, cut = self._analyser.cut(document.title), [self._analyser.cut(passage) for passage in own]
            whole = {f"b{word}" for words in cut for word in words} | {f"t{word}" for word in title}
            for number, (passage, body) in enumerate(zip(own, cut, strict=True)):
                first: dict[str, Any] = {} if number else {"first": ["1"], "whole_words": [" ".join(sorted(whole))]}
                if document.about:
                    first["about"] = [json.dumps(dict(document.about)).encode()]
                self._writer.add_document(
                    tantivy.Document(
                        id=[document.id],
                        part=[number],
                        parts=[len(own)],
                        title=[document.title.encode()],
                        body=[passage.encode()],
                        title_words=[" ".join(title)],
                        body_words=[" ".join(body)],
                        title_words_length=[len(title)],
                        body_words_length=[len(body)],
                        readers=readers_of(document),
                        **first,
                        **next(vectors),
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
        wanted = self._query.term_query(self._schema, "id", id, index_option="basic")
        parts = [searcher.doc(address) for _, address in searcher.search(wanted, _MOST_PARTS, count=False).hits]
        return _document(parts) if parts else None

    def candidates(
        self,
        weights: Mapping[str, float],
        most: int,
        readers: Collection[str] = (OPEN,),
        needed: Collection[str] = (),
    ) -> list[Candidate]:
        """The best passages by tantivy's BM25 of body and title, each word at its weight in place of tantivy's own."""
        searcher = self._searcher()
        clauses, term_query, boost = [], self._query.term_query, self._query.boost_query
        should, documents = tantivy.Occur.Should, searcher.num_docs
        for word, weight in weights.items():
            for field in _SEARCHED:
                if frequency := searcher.doc_freq(field, word):
                    term = term_query(self._schema, field, word, index_option="freq")
                    own = _idf(documents, frequency)
                    clauses.append((should, boost(term, weight / own)))
        if not clauses:
            return []
        must = [self._query.boolean_query(clauses)]
        if self._is_restricted or OPEN not in readers:
            must.append(self._of(readers))
        for word in needed:
            terms = [(should, term_query(self._schema, field, word, index_option="basic")) for field in _SEARCHED]
            must.append(self._query.const_score_query(self._query.boolean_query(terms), 0.0))
        wanted = self._query.boolean_query([(tantivy.Occur.Must, one) for one in must])
        hits = searcher.search(wanted, most, count=False).hits
        return [self._candidate(searcher.doc(address)) for _, address in hits]

    def find_similar(self, word: str, readers: Collection[str] = (OPEN,)) -> list[str]:
        """Words of documents that one of these may read; see :class:`~fedrank.texts.served.engines.Engine`."""
        start, slips = word.removesuffix("*"), 1 if len(word) < _LONG else 2
        begins = len(start) < len(word)
        searcher, should, without = self._searcher(), tantivy.Occur.Should, tantivy.Occur.MustNot
        terms = [
            (should, self._query.fuzzy_term_query(self._schema, field, start, 0 if begins else slips, True, begins))
            for field in _SEARCHED
        ]
        must = [(tantivy.Occur.Must, one) for one in (self._query.boolean_query(terms), self._of(readers))]
        counts, near = Counter[str](), dict[str, int]()
        for _ in range(_LOOKS):  # passages that hold other words than those that were found
            known = [
                (without, self._query.term_query(self._schema, field, one, index_option="basic"))
                for one in near
                for field in _SEARCHED
            ]
            hits = searcher.search(self._query.boolean_query([*must, *known]), _LOOKED_AT, count=False).hits
            found = [self._candidate(searcher.doc(at)).words for _, at in hits]
            counts.update(one for words in found for one in {*words.title, *words.body})
            before, new = len(near), counts.keys() - near.keys()
            if begins:
                near |= dict.fromkeys((one for one in new if one.startswith(start)), 0)
            else:
                like = process.extract(start, new, scorer=distances.OSA.distance, score_cutoff=slips, limit=None)
                near |= {one: int(distance) for one, distance, _ in like}
            if len(hits) < _LOOKED_AT or len(near) == before:
                break
        return sorted(near, key=lambda one: (near[one], -counts[one], one))

    def frequencies(self, words: Sequence[str]) -> list[tuple[int, int]]:
        """Number of documents that name no readers whose body and whose title hold each word.

        Where all are such, removed documents count for a while.
        """
        frequency = self._searcher().doc_freq
        if self._is_restricted:

            def frequency(field: str, word: str) -> int:
                if (field, word) not in self._matches:
                    term = self._query.term_query(self._schema, field, word, index_option="basic")
                    self._matches[field, word] = self._count_matches(term)
                return self._matches[field, word]

        return [tuple(int(frequency("whole_words", mark + word)) for mark in _MARKS) for word in words]  # type: ignore[misc]

    def lengths(self) -> Float64[np.ndarray, " fields"]:
        """Mean number of words of body and title of a passage of documents that name no readers; 1 without any."""
        if self._lengths is None:
            wanted = {name: {"avg": {"field": f"{name}_length"}} for name in _SEARCHED}
            found = self._searcher().aggregate(self._of((OPEN,)), wanted)
            self._lengths = np.array([found[name]["value"] or 1.0 for name in _SEARCHED])
        return self._lengths

    def words(self) -> Iterator[Words]:
        """The words of every document."""
        for parts in _by_document(self._searcher()):
            title = str(parts[0].get_first("title_words") or "").split()
            body = [word for one in parts for word in (one.get_first("body_words") or "").split()]
            yield Words(title, body, len(parts))

    def close(self) -> None:
        """End the writer; the folder can then be used by another process."""
        self._writer.wait_merging_threads()

    def _of(self, readers: Collection[str]) -> Any:
        """The query for passages that one of these may read; it adds nothing to scores."""
        return self._query.const_score_query(self._query.term_set_query(self._schema, "readers", [*readers]), 0.0)

    def _count_matches(self, query: Any) -> int:
        """Number of passages of documents that name no readers for which a query holds."""
        both = self._query.boolean_query([(tantivy.Occur.Must, self._of((OPEN,))), (tantivy.Occur.Must, query)])
        return int(self._searcher().search(both, 1).count or 0)

    def _searcher(self) -> Any:
        return self._index.searcher()

    def _vectors(
        self, batch: Sequence[Document], passages: Sequence[Sequence[str]]
    ) -> Iterator[dict[str, list[bytes]]]:
        """The field with each passage's vector, in half precision; no field without an encoder."""
        texts = [
            text_of(document.title, passage) for document, own in zip(batch, passages, strict=True) for passage in own
        ]
        if self._encoder is None:
            return ({} for _ in texts)
        return ({"vector": [vector.astype("<f2").tobytes()]} for vector in self._encoder.encode(texts))

    def _candidate(self, stored: Any) -> Candidate:
        title, body = (stored.get_first(name) or "" for name in ("title_words", "body_words"))
        raw = None if self._encoder is None else stored.get_first("vector")
        vector = None if raw is None else np.frombuffer(bytes(raw), "<f2").astype(np.float32)
        words = Words(title.split(), body.split(), stored.get_first("parts") or 1)
        about = _text(stored, "about")
        title, body = _text(stored, "title"), _text(stored, "body")
        return Candidate(stored.get_first("id"), words, vector, title, body, json.loads(about) if about else {})

    def _commit(self) -> None:
        try:
            self._writer.commit()
            self._index.reload()
        except (OSError, ValueError) as error:
            raise RunError(f"{self._folder}: the index cannot be written ({error}). Nothing was added.") from error
        finally:
            self._count = self._lengths = None
            self._matches.clear()


def _schema() -> Any:
    """Schema of tantivy's index: one row a passage, with its document's id, searched fields and lengths in words."""
    builder = tantivy.SchemaBuilder()
    for name in ("id", "first"):
        builder.add_text_field(name, stored=name == "id", tokenizer_name="raw", index_option="basic")
    builder.add_text_field("readers", tokenizer_name="raw", index_option="basic")
    builder.add_text_field("whole_words", tokenizer_name="whitespace", index_option="basic")
    for name in _SEARCHED:
        builder.add_text_field(name, stored=True, tokenizer_name="whitespace", index_option="freq")
        builder.add_integer_field(f"{name}_length", fast=True)
    for name in ("part", "parts"):
        builder.add_integer_field(name, stored=True)
    for name in ("title", "about", "body", "vector"):
        builder.add_bytes_field(name, stored=True)
    return builder.build()


#: Most passages of a document that are given back.
_MOST_PARTS = 100_000


def _text(stored: Any, name: str) -> str:
    """A text that is stored as bytes, or as text by former versions."""
    value = stored.get_first(name) or ""
    return value if isinstance(value, str) else bytes(value).decode()


def _document(parts: Sequence[Any]) -> Document:
    """A document from its stored passages."""
    parts = _in_order(parts)
    about = json.loads(_text(parts[0], "about") or "{}")
    id, title = parts[0].get_first("id"), _text(parts[0], "title")
    return Document(id, title, "".join(_text(one, "body") for one in parts), about)


def _in_order(parts: Sequence[Any]) -> list[Any]:
    return sorted(parts, key=lambda one: one.get_first("part") or 0)


def _by_document(searcher: Any) -> Iterator[list[Any]]:
    """The stored passages of each document in turn, in order; those of one mostly lie side by side."""
    begun: dict[str, list[Any]] = {}
    for _, address in searcher.search(tantivy.Query.all_query(), max(1, searcher.num_docs), count=False).hits:
        stored = searcher.doc(address)
        parts = begun.setdefault(stored.get_first("id"), [])
        parts.append(stored)
        if len(parts) == (stored.get_first("parts") or 1):
            yield _in_order(begun.pop(stored.get_first("id")))


def _idf(documents: int, frequency: int) -> float:
    """The weight that tantivy gives a word by itself (BM25 of Lucene)."""
    return math.log1p((documents - frequency + 0.5) / (frequency + 0.5))
