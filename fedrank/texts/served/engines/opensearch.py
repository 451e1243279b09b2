"""OpenSearch and Elasticsearch over an index that a company has already, by their REST interface.

Nothing is written. Documents are found by ``match`` of each word in body and title, each boosted to the weight that
the federation gives it; the best are scored again from their source. Fields should have an analyser that stems English
(``english``): a query's words come stemmed, and are compared both as they come and as the field's analyser makes them.
Requests that both engines document alike: ``_count``, ``_search`` with ``bool``, ``match``, ``dis_max`` and ``filter``
aggregations, ``_doc`` and scrolling.
"""

from __future__ import annotations

import json
import math
import ssl
import urllib.error
import urllib.request
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import quote, urlsplit

import numpy as np
from typing_extensions import override

from fedrank.core.errors import ConfigError, RunError
from fedrank.core.trees import Json
from fedrank.texts.served.analyser import Analyser
from fedrank.texts.served.documents import Document
from fedrank.texts.served.engines import Candidate
from fedrank.texts.served.engines.foreign import Columns, ForeignEngine, Place, document_of_row
from fedrank.texts.served.rights import OPEN

#: Most documents that an engine gives at once, unless it was set up otherwise (``index.max_result_window``).
_WINDOW = 10_000
#: Documents of one step of a scroll, and how long the engine keeps it.
_STEP, _SCROLL = 500, "2m"
#: Longest silence of the engine, in seconds, and largest answer, in bytes.
_PATIENCE, _LARGEST = 20.0, 256 << 20


class OpenSearchEngine(ForeignEngine):
    """Documents in an index.

    Args:
        url: ``https://host:9200/INDEX``.
        columns: Names of title and body in a document's source; its id is ``_id``, whatever is named for it.
        authorization: Value of the header ``Authorization``, such as ``ApiKey …`` or ``Basic …``; empty: none.
        ca: File with the certificates to trust in place of the system's.
        analyser: Cuts documents into words; None: that for English.

    Raises:
        ConfigError: The address names no index.
        RunError: The engine cannot be reached, or refuses.
    """

    def __init__(
        self,
        url: str,
        columns: Columns,
        authorization: str = "",
        ca: str | None = None,
        analyser: Analyser | None = None,
    ):
        parts = urlsplit(url)
        index = parts.path.strip("/")
        if parts.scheme not in ("http", "https") or not parts.hostname or not index or "/" in index:
            raise ConfigError(f"the address of an index is https://host:9200/INDEX, got {url!r:.100}.")
        self._base, self._index = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}", quote(index, safe="*,-_.")
        self._columns, self._authorization = columns, authorization
        super().__init__(f"{self._base}/{index}", analyser)
        context = ssl.create_default_context(cafile=ca)
        # No proxy is looked up: documents are at home.
        handlers = (urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context))
        self._opener = urllib.request.build_opener(*handlers)
        len(self)

    @classmethod
    def at(cls, place: Place) -> OpenSearchEngine:
        """The engine of a place; errors as of the class."""
        return cls(place.url, place.columns, place.authorization, analyser=place.analyser)

    def get(self, id: str) -> Document | None:
        """The document of this id; None if there is none."""
        found = self._ask("GET", f"/{self._index}/_doc/{quote(id, safe='')}", missing=True)
        return self._document(found) if found.get("found") else None

    def candidates(
        self,
        weights: Mapping[str, float],
        most: int,
        readers: Collection[str] = (OPEN,),
        needed: Collection[str] = (),
    ) -> list[Candidate]:
        """The best documents by the engine's BM25, with each word's own weight divided out and the given one put in."""
        if not weights or OPEN not in readers:
            return []
        clauses: list[Json] = []
        for (word, weight), held in zip(weights.items(), self.frequencies(list(weights)), strict=True):
            for field, frequency in zip(self._fields(), held, strict=False):
                own = math.log1p((len(self) - min(frequency, len(self)) + 0.5) / (frequency + 0.5))
                clauses.append(self._match(field, word, weight / own))
        query: Json = {"bool": {"should": clauses, "minimum_should_match": 1}}
        body: dict[str, Json] = {"size": min(most, _WINDOW), "_source": self._sources(), "query": query}
        return self._candidates(self._hits(self._ask("POST", f"/{self._index}/_search", body)))

    def _fields(self) -> tuple[str, ...]:
        return tuple(filter(None, (self._columns.body, self._columns.title)))

    def _sources(self) -> list[Json]:
        """Names in a document's source: a sub-field has its parent's text."""
        names = [part for name in self._fields() for part in (name, name.rpartition(".")[0]) if part]
        return list(dict.fromkeys(names))

    @staticmethod
    def _match(field: str, word: str, boost: float = 1.0) -> Json:
        """Documents whose field holds a word, as it is or as the field's analyser makes it."""
        as_it_is: Json = {"match": {field: {"query": word, "analyzer": "whitespace"}}}
        return {"dis_max": {"queries": [as_it_is, {"match": {field: {"query": word}}}], "boost": boost}}

    @override
    def _count_words(self, words: Sequence[str]) -> list[tuple[int, int]]:
        names = [(place, field) for place in range(len(words)) for field in range(len(self._fields()))]
        wanted: dict[str, Json] = {
            f"w{place}f{field}": {"filter": self._match(self._fields()[field], words[place])} for place, field in names
        }
        found = self._ask("POST", f"/{self._index}/_search", {"size": 0, "track_total_hits": False, "aggs": wanted})
        counts = np.zeros((len(words), 2), np.int64)
        for place, field in names:
            counts[place, field] = int(self._part(found, "aggregations", f"w{place}f{field}", "doc_count"))
        return [(int(body), int(title)) for body, title in counts]

    @override
    def _how_many(self) -> int:
        return int(self._ask("GET", f"/{self._index}/_count")["count"])

    @override
    def _some(self, most: int) -> list[Document]:
        body: dict[str, Json] = {"size": most, "_source": self._sources(), "query": {"match_all": {}}}
        return self._hits(self._ask("POST", f"/{self._index}/_search", body))

    @override
    def _documents(self) -> Iterator[Document]:
        body: dict[str, Json] = {"size": _STEP, "_source": self._sources(), "sort": ["_doc"]}
        found = self._ask("POST", f"/{self._index}/_search?scroll={_SCROLL}", body)
        try:
            while documents := self._hits(found):
                yield from documents
                more: dict[str, Json] = {"scroll": _SCROLL, "scroll_id": self._part(found, "_scroll_id")}
                found = self._ask("POST", "/_search/scroll", more)
        finally:
            if "_scroll_id" in found:
                self._ask("DELETE", "/_search/scroll", {"scroll_id": found["_scroll_id"]}, missing=True)

    def _hits(self, found: dict[str, Any]) -> list[Document]:
        rows = self._part(found, "hits", "hits")
        return [document for row in rows if (document := self._document(row)) is not None]

    def _document(self, row: Mapping[str, Any]) -> Document | None:
        source = row.get("_source") or {}
        title = _within(source, self._columns.title) if self._columns.title else ""
        return document_of_row(row.get("_id"), title, _within(source, self._columns.body))

    def _part(self, found: Any, *path: str) -> Any:
        for name in path:
            if not isinstance(found, dict) or name not in found:
                raise RunError(f"{self._where}: the engine's answer lacks {'.'.join(path)}.")
            found = found[name]
        return found

    def _ask(
        self, method: str, path: str, body: dict[str, Json] | None = None, missing: bool = False
    ) -> dict[str, Any]:
        """The JSON object that the engine answers; with ``missing``, an empty one where there is nothing (404)."""
        request = urllib.request.Request(self._base + path, method=method)
        if body is not None:
            request.data = json.dumps(body).encode()
            request.add_header("Content-Type", "application/json")
        if self._authorization:
            request.add_unredirected_header("Authorization", self._authorization)
        try:
            with self._opener.open(request, timeout=_PATIENCE) as response:
                raw = response.read(_LARGEST + 1)
            if len(raw) > _LARGEST:
                raise RunError(f"{self._where}: the engine's answer is larger than {_LARGEST >> 20} MiB.")
            found = json.loads(raw)
        except urllib.error.HTTPError as error:
            if missing and error.code == 404:
                return {}
            said = error.read(2000).decode("utf-8", "replace")
            raise RunError(f"{self._where}: the engine refuses with status {error.code} ({said:.300}).") from error
        except (OSError, ValueError) as error:
            raise RunError(f"{self._where}: the engine cannot be asked ({error}).") from error
        if not isinstance(found, dict):
            raise RunError(f"{self._where}: the engine's answer is no JSON object.")
        return found


def _within(source: Mapping[str, Any], name: str) -> Any:
    """A field of a source; points go goes into objects, and a sub-field (``title.english``) is its parent's."""
    if name in source:
        return source[name]
    found: Any = source
    for part in name.split("."):
        if not isinstance(found, Mapping):
            break
        found = found.get(part)
    return " ".join(map(str, found)) if isinstance(found, list) else found
