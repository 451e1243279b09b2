"""A search engine over a file with a document a line, a JSON object each: ``engine = "jsonl:///srv/pages.jsonl"``."""

import json
from itertools import islice
from pathlib import Path
from urllib.parse import urlsplit

from fedrank.texts.served.documents import words_of
from fedrank.texts.served.engines import Candidate
from fedrank.texts.served.engines.foreign import ForeignEngine, document_of_row


class JsonLines(ForeignEngine):
    """Documents in a file, read once and searched word by word."""

    def __init__(self, place):
        names = place.columns
        lines = map(json.loads, Path(urlsplit(place.url).path).read_text("utf-8").splitlines())
        rows = (document_of_row(*(line.get(name) for name in (names.id, names.title, names.body))) for line in lines)
        self._kept = {row.id: row for row in rows if row is not None}
        self._words = dict(zip(self._kept, words_of(list(self._kept.values())), strict=True))
        super().__init__(place.url)

    def get(self, id):
        """The document of this id; None if there is none."""
        return self._kept.get(id)

    def candidates(self, weights, most, readers=("*",), needed=()):
        """The documents whose words weigh most; they name no readers."""
        if "*" not in readers:
            return []
        worth = {id: sum(weights.get(word, 0) for word in {*one.title, *one.body}) for id, one in self._words.items()}
        best = sorted((id for id in worth if worth[id]), key=worth.__getitem__, reverse=True)
        return [Candidate(id, self._words[id]) for id in best[:most]]

    def _how_many(self):
        return len(self._kept)

    def _some(self, most):
        return list(islice(self._kept.values(), most))

    def _documents(self):
        return iter(self._kept.values())

    def _count_words(self, words):
        both = [(set(one.body), set(one.title)) for one in self._words.values()]
        return [(sum(word in body for body, _ in both), sum(word in title for _, title in both)) for word in words]
