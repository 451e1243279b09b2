"""Numbers of a hit that stand beside its BM25 score; the same code makes them for learning and for serving.

Both lie in [−1, 1] and are rounded to multiples of :data:`STEP`. They tell no more about a document's words than its
score does: the title's share is computed from scores that are rounded already.

Scores of documents that owners with different engines give alike: BM25 with the federation's statistics.

An owner of documents: opens sealed questions, searches at home, answers with tickets and rounded scores.

What an asker may learn, by setting: always, for each hit, a score rounded to a step and a ticket; with ``reveals =
"title"`` its title, of at most 256 characters; with ``reveals = "beginning"`` its title or, where it has none, the
first 80 characters of its text; with ``features`` the rounded numbers that a list is put in order by; with ``fetch``
the document behind a ticket, and a piece of its text that holds words of the query. What an owner learns: who asks, the
words of the query, with an encoder the query as it was typed, and which documents are fetched.
"""

from __future__ import annotations

import errno
import functools
import hashlib
import json
import sqlite3
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from jaxtyping import Float32, Float64

from fedrank.core.errors import ConfigError, RunError, WireError
from fedrank.core.fields import setting
from fedrank.core.trees import Json
from fedrank.texts.data.corpus import FIELDS
from fedrank.texts.data.features import Statistics, bm25
from fedrank.texts.served.analyser import Analyser, english
from fedrank.texts.served.documents import LONGEST_TITLE, Words, words_of
from fedrank.texts.served.encoder import WORDLLAMA, Encoder, text_of
from fedrank.texts.served.engines import Candidate, Engine
from fedrank.texts.served.envelopes import Tickets, open_question, seal_answer
from fedrank.texts.served.query import NO_CONDITIONS, Conditions, find_snippet
from fedrank.texts.served.rights import OPEN, Asking, identify, may_read, readers_text
from fedrank.texts.served.statistics import TermTable

#: The numbers, in order: cosine of the query's and the document's vectors (0 without an encoder); share of the BM25
#: score that comes from the title.
NAMES = ("dense", "title")
#: Weight of the cosine beside a BM25 score that is divided by the list's best: what collections other than a given one
#: would choose for it (``python -m benchmarks.served_search``).
COSINE = 2.0
#: What the numbers are rounded to.
STEP = 0.01


def features_of(
    by_field: Float64[np.ndarray, "documents fields"], cosines: Float64[np.ndarray, " documents"] | None
) -> Float64[np.ndarray, "documents features"]:
    """The numbers of each document.

    Args:
        by_field: BM25 of body and title of each document, rounded as scores are that leave.
        cosines: Cosine of the vectors of query and document; None: there is no encoder.
    """
    out = np.zeros((len(by_field), len(NAMES)))
    if cosines is not None:
        out[:, 0] = cosines
    total = by_field.sum(axis=1)
    np.divide(by_field[:, 1], total, out=out[:, 1], where=total > 0)
    return np.clip(np.round(out / STEP) * STEP, -1.0, 1.0)


def expected_cosines(
    scores: Float64[np.ndarray, " known"], cosines: Float64[np.ndarray, " known"], at: Float64[np.ndarray, " others"]
) -> Float64[np.ndarray, " others"]:
    """The cosines that hits with these scores are expected to have; 0 where none is known."""
    if not len(cosines):
        return np.zeros_like(at)
    spread = np.var(scores)
    slope = np.mean((scores - scores.mean()) * cosines) / spread if spread > 0 else 0.0
    return np.clip(cosines.mean() + slope * (at - scores.mean()), -1.0, 1.0)


def score_documents(
    query: Sequence[str], documents: Sequence[Words], statistics: Statistics
) -> Float64[np.ndarray, "documents fields"]:
    """BM25 of body and title; a document's score is their sum.

    Args:
        query: Words of the query; one that stands twice counts twice.
        documents: Words of the documents.
        statistics: Statistics of the query's words, row by row.
    """
    if not documents:
        return np.zeros((0, len(FIELDS)))
    counts, lengths = counts_of(query, documents)
    return bm25(counts, lengths, statistics)


def counts_of(
    query: Sequence[str], documents: Sequence[Words]
) -> tuple[Float64[np.ndarray, "terms documents fields"], Float64[np.ndarray, "documents fields"]]:
    """Counts of the query's words in each document's body and title, and their lengths in words."""
    counts = np.zeros((len(query), len(documents), 2))
    for place, word in enumerate(query):
        counts[place] = [(words.body.count(word), words.title.count(word)) for words in documents]
    return counts, np.array([(len(words.body), len(words.title)) for words in documents], np.float64).reshape(-1, 2)


#: Most words of a query, and characters of one.
MOST_WORDS, LONGEST_WORD = 64, 64
#: Most beginnings of a question that are looked for, and words that one stands for.
MOST_BEGINNINGS, MOST_ENDINGS = 4, 8
#: Letters from which a word is compared with others; most words of a question for which the nearest is named.
_SHORTEST, _MOST_UNKNOWN = 4, 8
#: Largest step that scores are rounded to.
LARGEST_STEP = 100.0
#: Most characters of a query as it was typed.
LONGEST_QUERY = 2000


@dataclass(frozen=True)
class OwnerSettings:
    """Limits of an owner: what it gives away, and how hard it searches.

    Raises:
        ConfigError: A setting is out of range.
    """

    reveals: Literal["title", "beginning", "score"] = setting(
        "title",
        "What stands beside a hit: its title; its title or, where it has none, the beginning of its text; or nothing "
        "but its score.",
    )
    fetch: bool = setting(True, "Whether askers may fetch the documents that they found.")
    most_hits: int = setting(20, "Most hits of an answer.", low=1, high=1000)
    pages: int = setting(10, "Answers that one query can page through; each is a question.", low=1, high=1000)
    step: float = setting(0.1, "Scores are rounded to a multiple of this.")
    candidates: int = setting(
        50, "Documents or passages that the index finds for a query and that are scored exactly.", low=1, high=100_000
    )
    questions_a_day: int = setting(2000, "Questions of one asker in a day.", low=1, high=10**9)
    features: bool = setting(
        True, "Whether askers may have the rounded numbers of a hit that a list is put in order by."
    )
    encoder: str = setting(
        WORDLLAMA,
        "Encoder of texts, whose cosine is one of these numbers: wordllama (static), all-minilm-l6-v2 (better, and a "
        "hundred times slower), a folder, or none (also: empty).",
    )
    fetches_a_day: int = setting(500, "Documents that one asker fetches in a day.", low=0, high=10**9)
    questions_a_person: int = setting(
        200,
        "Questions in a day of one person for whom a company signs, within those of the company.",
        low=1,
        high=10**9,
    )
    readers: str = setting(
        "", "Askers, groups and people who may read documents that name no readers, with spaces; empty: all askers."
    )
    log_days: int = setting(
        90, "Days for which it is kept who asked what and which documents were given; 0: it is not.", low=0, high=36_500
    )
    languages: str = setting(
        "english",
        "Languages of the texts, with spaces between; those of the federation's file, where the owner has one.",
    )
    engine: str = setting(
        "",
        "Existing index: postgresql://… or https://HOST:9200/INDEX (OpenSearch, Elasticsearch); empty: "
        "one of the owner's own.",
    )
    table: str = setting("documents", "Table of documents in PostgreSQL.")
    columns: str = setting(
        "id title body", "Columns or fields of a document there: id, title and text; or id and text."
    )

    def gives(self) -> str:
        """Parts of an answer to an asker, in words."""
        shown = {
            "title": f"titles or names of files (at most {LONGEST_TITLE} characters)",
            "beginning": f"titles, or the first {_BEGINNING} characters of a text",
        }
        parts = [shown[self.reveals]] if self.reveals in shown else []
        parts.append(f"scores in steps of {self.step:g}" if self.step else "exact scores")
        if self.features:
            parts.append("numbers to put a list in order by" + (f" (encoder {self.encoder})" if self.encoder else ""))
        if self.fetch:
            parts.append("pieces of the text, and whole documents that were found")
        return ", ".join(parts)

    def __post_init__(self) -> None:
        if self.readers:
            readers_text(self.readers)
        if not 0 <= self.step <= LARGEST_STEP:
            raise ConfigError(f"step must be in 0..{LARGEST_STEP:g}, got {self.step}.")


class OwnHit(NamedTuple):
    """A document that was found at home.

    Attributes:
        id: Its id.
        score: Its rounded score.
        features: Its rounded numbers, as :data:`fedrank.texts.served.owner.NAMES`.
        title: Its title.
        text: Text of its best passage.
        file: Name of the file that it is the only document of; else empty.
    """

    id: str
    score: float
    features: tuple[float, ...]
    title: str = ""
    text: str = ""
    file: str = ""


class Admitted(NamedTuple):
    """An asker that may ask.

    Attributes:
        groups: Groups that the owner puts it into.
        key: Public key by which it signs for its people; empty: it does not.
    """

    groups: tuple[str, ...] = ()
    key: bytes = b""


@runtime_checkable
class Askers(Protocol):
    """List of who may ask an owner, and record of what was asked."""

    def know(self, name: str, token: str) -> Admitted | None:
        """The asker of this name with this token; None if there is none."""
        ...

    def count(self, name: str, kind: str, identity: bytes, day: int, person: str) -> str:
        """Count a question, before it is answered; a reason where it is not to be, and then nothing is counted.

        Args:
            name: The asker.
            kind: ``"search"`` or ``"fetch"``.
            identity: What no other question has.
            day: The day that it names, since 1970.
            person: Its person, ``company/name``; empty: none.
        """
        ...

    def note(self, name: str, kind: str, query: str, documents: Sequence[str]) -> None:
        """Write down who was given which documents, by their ids, for which query."""
        ...


_Note = Callable[[str, Sequence[str]], None]


class Owner:
    """Answers questions; for one thread at a time.

    Args:
        engine: The index.
        key: Private key that questions are sealed for.
        tickets: Makes tickets.
        askers: Who may ask; None: no one, who does not call :meth:`search` itself.
        settings: What the owner gives.
        table: The federation's statistics; None: the owner's own, with which scores of owners do not compare.
        encoder: The encoder that the index keeps vectors of; None: it keeps none.
        analyser: Cut the documents into words; None: that for English.
    """

    def __init__(
        self,
        engine: Engine,
        key: X25519PrivateKey,
        tickets: Tickets,
        askers: Askers | None,
        settings: OwnerSettings,
        table: TermTable | None = None,
        encoder: Encoder | None = None,
        analyser: Analyser | None = None,
    ):
        self.analyser = analyser or english()
        self.engine, self.settings, self.table, self.encoder = engine, settings, table, encoder
        self._key, self._tickets, self._askers = key, tickets, askers
        # People look at the next page of a list, and many ask the same.
        self._vector = functools.lru_cache(_VECTORS)(self._encode)
        self._made: dict[bytes, Float32[np.ndarray, " size"]] = {}
        self._forget_at = time.monotonic() + _KEPT

    @functools.cached_property
    def _knows_words(self) -> bool:
        """False of an engine that is not asked for its words."""
        return self.engine.find_similar("fedrank*", ()) is not None

    @property
    def common(self) -> TermTable | None:
        """The federation's statistics where they are better than the owner's own; else None."""
        return None if self.table is None or self.table.few else self.table

    def answer(self, sealed: bytes) -> bytes:
        """The sealed answer to a sealed question; one that is refused says why to the asker alone.

        Raises:
            WireError: It cannot be opened, so that there is no asker to answer.
        """
        body, asker = open_question(sealed, self._key)
        try:
            json.dumps(body, ensure_ascii=False).encode()
            answer = self._answer(body, asker.public_bytes_raw())
        except WireError as error:
            answer = _refuse("malformed", str(error))
        except UnicodeEncodeError:  # JSON may hold half of a surrogate pair, which no index takes
            answer = _refuse("malformed", "A question is text that UTF-8 can write.")
        except RunError as error:  # its message names paths
            answer = _refuse(*(_FULL if _is_disk_full(error.__cause__) else _UNAVAILABLE))
        return seal_answer(answer, asker, sealed)

    def _answer(self, body: Mapping[str, Any], identity: bytes) -> dict[str, Json]:
        """The answer; ``identity`` is the key that the asker made for this question alone."""
        name, token, kind, day = (body.get(part) for part in ("asker", "token", "kind", "day"))
        if not isinstance(name, str) or not isinstance(token, str) or kind not in ("search", "fetch"):
            return _refuse("malformed", "A question has an asker, a token, and the kind search or fetch.")
        if not isinstance(day, int) or isinstance(day, bool):
            return _refuse("malformed", "A question has the day of its asker; ask with this version of fedrank.")
        askers = self._askers
        if askers is None or (known := askers.know(name, token)) is None:
            return _refuse("unauthorised", _REASONS["unauthorised"])
        today = int(time.time() // 86400)
        asking = identify(name, *known, body.get("person"), today, self.settings.readers.split())
        person = asking.name if asking.name != name else ""
        if why := askers.count(name, kind, identity, day, person):
            return _refuse(why, _REASONS[why])
        if body.get("analyser", self.analyser.fingerprint) != self.analyser.fingerprint:
            return _refuse("other-analyser", _REASONS["other-analyser"].format(", ".join(self.analyser.languages)))
        # What leaves is written down before it does.
        note = functools.partial(askers.note, asking.name, kind)
        return self._fetch(body, asking, note) if kind == "fetch" else self._search(body, asking, note)

    def _search(self, body: Mapping[str, Any], asking: Asking, note: _Note) -> dict[str, Json]:
        words, most = body.get("words"), body.get("k")
        if not isinstance(most, int) or isinstance(most, bool) or not 1 <= most <= 1000:
            return _refuse("malformed", "k must be a number in 1..1000.")
        if not isinstance(words, list) or not all(isinstance(w, str) and 0 < len(w) <= LONGEST_WORD for w in words):
            return _refuse("malformed", f"words must be a list of words of at most {LONGEST_WORD} characters.")
        if len(words) > MOST_WORDS or any(len(word.split()) != 1 for word in words):
            return _refuse("malformed", f"A query has at most {MOST_WORDS} words, and no word a space.")
        conditions, shown = Conditions.from_json(body.get("conditions", {})), body.get("snippets", 0)
        if not isinstance(shown, int) or isinstance(shown, bool):
            return _refuse("malformed", "snippets must be a number.")
        given_out = self.settings.fetch and self.settings.fetches_a_day > 0
        if conditions and not given_out:
            return _refuse("no-conditions", _REASONS["no-conditions"])
        features, query = body.get("features", False), body.get("query", "")
        if not isinstance(features, bool) or not isinstance(query, str) or len(query) > LONGEST_QUERY:
            return _refuse("malformed", f"features is true or false, query a text of at most {LONGEST_QUERY} letters.")
        features = features and self.settings.features
        skip, last = body.get("skip", 0), self.settings.most_hits * self.settings.pages
        if not isinstance(skip, int) or isinstance(skip, bool) or skip < 0:
            return _refuse("malformed", "skip must be a number of hits.")
        end = min(skip + min(most, self.settings.most_hits), last)
        wanted = self._extend(words, asking.readers if given_out else ())
        # One hit more tells whether there are more.
        typed = query if features else ""
        hits = self.search(wanted, end + 1, typed, conditions, asking.readers, skip) if skip < end else []
        more, hits = len(hits) > end - skip and end < last, hits[: max(end - skip, 0)]
        searched: dict[str, Json] = {"words": [*words], **conditions.as_json()}
        note(json.dumps(searched | ({"query": query} if query else {}), ensure_ascii=False), [one.id for one in hits])
        given: list[Json] = []
        tickets = self._tickets.make([one.id for one in hits], asking.name)
        for place, (found, ticket) in enumerate(zip(hits, tickets, strict=True)):
            hit: dict[str, Json] = {"ticket": ticket, "score": found.score}
            if self.settings.reveals != "score":
                hit["title"] = self._shown(found)
            if given_out and place < shown:  # who may not have the text may not have a piece of it
                hit["snippet"] = find_snippet(found.text, wanted, self.analyser)._asdict()
            if features:
                hit["features"] = list(found.features)
            given.append(hit)
        answer: dict[str, Json] = {
            "hits": given,
            "more": more,
            "conditions": bool(conditions),
            "fetch": self.settings.fetch,
            "statistics": "shared" if self.common else "own",
        }
        answer["beginnings"] = given_out and self._knows_words
        if given_out:  # a word of a text, as a snippet is
            answer["unknown"] = self._name_nearest(words, asking.readers)
        if features:
            answer["encoder"] = self.encoder.digest if self.encoder is not None else ""
        return answer

    def search(
        self,
        words: list[str],
        most: int,
        query: str = "",
        conditions: Conditions = NO_CONDITIONS,
        readers: Collection[str] = (OPEN,),
        skip: int = 0,
    ) -> list[OwnHit]:
        """The best documents that hold a word of the query, best first.

        Args:
            words: Words of the query.
            most: Most documents, with those that are skipped.
            query: The query as it was typed, for the encoder; empty: no cosines.
            conditions: What the documents have to meet, phrases within a passage. They are looked for among four times
                as many candidates.
            readers: Only documents that one of these may read.
            skip: Documents that are left out, as they were given before.
        """
        if not words:
            return []
        statistics = self._statistics(words, OPEN in readers)
        weights: dict[str, float] = {}
        for word, weight in zip(words, statistics.idf.max(axis=1).tolist(), strict=True):
            weights[word] = weights.get(word, 0.0) + max(weight, _LEAST)
        # The first candidates are as many for each page of a list, and each further group comes after them, sorted
        # within: were all sorted together, a page would repeat hits of the one before.
        first = max(self.settings.candidates, self.settings.most_hits)
        needed = conditions.list_needed(self.analyser)
        best: list[tuple[Candidate, Float64[np.ndarray, " fields"]]] = []
        seen: set[str] = set()
        deeper = sum(most > first * 4**number for number in range(5))
        for number in range(
            (2 if conditions else _ROUNDS + 1) + deeper
        ):  # passages of a few long documents, or ones that do not fit, may hide others
            asked = first * 4**number
            found = self.engine.candidates(weights, asked, readers, needed)
            new = [candidate for candidate in found if candidate.id not in seen]
            by_field = score_documents(words, [candidate.words for candidate in new], statistics)
            scores = by_field.sum(axis=1)
            # The engine's own order knows of documents that others may read.
            for place in sorted(range(len(new)), key=lambda place: (-scores[place], new[place].id)):
                if new[place].id in seen:  # of a document's passages the first
                    continue
                seen.add(new[place].id)
                if len(best) < most and (not conditions or self._meets(conditions, new[place])):
                    best.append((new[place], by_field[place]))
            if len(found) < asked or len(best) == most:
                break
        best = best[skip:]
        if not best:
            return []
        documents, scored = [candidate for candidate, _ in best], np.array([numbers for _, numbers in best])
        # Rounded before anything is made of them: the total and the title's part, and the body's as what is left.
        total, title = self._round(scored.sum(axis=1)), self._round(scored[:, 1])
        numbers = features_of(np.column_stack([total - title, title]), self._cosines(query, documents))
        return [
            OwnHit(
                candidate.id,
                round(score, 6),
                tuple(round(number, 6) for number in row),
                candidate.title,
                candidate.text,
                candidate.id.rpartition("/")[2] if candidate.about.get("path") == candidate.id else "",
            )
            for candidate, score, row in zip(documents, total.tolist(), numbers.tolist(), strict=True)
        ]

    def _extend(self, words: list[str], readers: Collection[str]) -> list[str]:
        """The words, and in place of a beginning (``heat*``) those that begin so, of documents that one may read.

        Without readers no beginning stands for anything: who tried them letter by letter would read words.
        """
        begins = [one for one in words if one.endswith("*")][:MOST_BEGINNINGS]
        found = [(self.engine.find_similar(one, readers) or [])[:MOST_ENDINGS] for one in begins if readers]
        whole = [one for one in words if not one.endswith("*")]
        return [*whole, *({one for several in found for one in several} - {*whole})]

    def _name_nearest(self, words: list[str], readers: Collection[str]) -> dict[str, Json]:
        """Words that no document holds which one of these may read → the nearest that one does, as a text writes it."""
        out: dict[str, Json] = {}
        asked = [one for one in dict.fromkeys(words) if len(one) >= _SHORTEST and one.isalpha()]
        open = self.engine.frequencies(asked) if OPEN in readers else [(0, 0)] * len(asked)
        for word, held in zip(asked, open, strict=True):
            if len(out) == _MOST_UNKNOWN or any(held) or self.engine.candidates({word: 1.0}, 1, readers):
                continue
            if (near := self.engine.find_similar(word, readers)) is None:
                continue
            for one in self.engine.candidates({near[0]: 1.0}, 1, readers) if near else ():
                text = f"{one.title} {one.text}"
                start, end, _ = next(iter(self.analyser.find(text, near[:1])), (0, 0, ""))
                out[word] = text[start:end].lower()
            out.setdefault(word, "")
        return out

    def _meets(self, conditions: Conditions, found: Candidate) -> bool:
        """True if the passage meets the conditions, and the rest of its document has no words that are excluded."""
        if not conditions.meet(found.about, found.words, self.analyser):
            return False
        if not conditions.without or found.words.parts == 1:
            return True
        whole = self.engine.get(found.id)
        return whole is not None and Conditions(without=conditions.without).meet(
            whole.about, words_of([whole], self.analyser)[0], self.analyser
        )

    def _statistics(self, words: list[str], open: bool) -> Statistics:
        """Statistics of a query's words, of documents that name no readers and of the federation's table.

        Args:
            words: Words of the query.
            open: Whether the asker may read documents that name none; else nothing is taken of them.
        """
        if not open:
            return _alike(len(words)) if self.common is None else self.common.at(words)
        own, n = self.engine.frequencies(words), self.engine.count_open()
        return _own_statistics(own, n, self.engine) if self.common is None else self.common.at(words, own, n)

    def _round(self, scores: Float64[np.ndarray, " documents"]) -> Float64[np.ndarray, " documents"]:
        """Scores as they leave: multiples of the step."""
        step = self.settings.step
        return np.round(scores / step) * step if step else scores

    def _shown(self, hit: OwnHit) -> str:
        """Parts of a document that are shown beside its score."""
        if hit.title or self.settings.reveals == "title":
            return _cut(hit.title or hit.file, LONGEST_TITLE)
        document = self.engine.get(hit.id)
        return _cut(document.body, _BEGINNING) if document else ""

    def _cosines(self, query: str, documents: list[Candidate]) -> Float64[np.ndarray, " documents"] | None:
        """Cosines of the query's vector with the documents'; None without an encoder or a query."""
        if self.encoder is None or not query:
            return None
        if time.monotonic() > self._forget_at:  # a text may be gone from an engine that does not say so
            self._made.clear()
            self._forget_at = time.monotonic() + _KEPT
        asked, vectors = self._vector(query), [self._vector_of(candidate) for candidate in documents]
        until, base = time.monotonic() + _ENCODING, np.arange(len(documents), 0.0, -1.0)
        for place, candidate in enumerate(documents):  # of an engine that keeps no vectors
            if vectors[place] is None and time.monotonic() < until:
                vector = self.encoder.encode([_text_to_encode(candidate)])[0]
                vectors[place] = self._made[_digest(candidate)] = vector
        while len(self._made) > _MADE:
            self._made.pop(next(iter(self._made)))
        found = np.array([0.0 if vector is None else float(vector @ asked) for vector in vectors])
        known = np.array([vector is not None for vector in vectors], np.bool_)
        found[~known] = expected_cosines(base[known], found[known], base[~known])
        return found

    def _vector_of(self, candidate: Candidate) -> Float32[np.ndarray, " size"] | None:
        """A passage's vector that the index keeps, or that was made for a former query."""
        return self._made.get(_digest(candidate)) if candidate.vector is None else candidate.vector

    def _encode(self, query: str) -> Float32[np.ndarray, " size"]:
        assert self.encoder is not None
        return self.encoder.encode([query])[0]

    def _fetch(self, body: Mapping[str, Any], asking: Asking, note: _Note) -> dict[str, Json]:
        ticket = body.get("ticket")
        if not self.settings.fetch:
            return _refuse("not-given", _REASONS["not-given"])
        id = self._tickets.read(ticket, asking.name) if isinstance(ticket, str) else None
        if id is None:
            return _refuse("no-ticket", "This is no ticket of this owner for you, or it is older than a day.")
        found = self.engine.get(id)
        if found is None or not may_read(found, asking.readers):  # its readers may be others than when it was found
            return _refuse("gone", "The owner has taken the document away.")
        note("", [id])
        about = {name: value for name, value in found.about.items() if name != "readers"}
        return {"document": {"title": found.title, "body": found.body, "about": about}}


#: Why a question is refused.
_REASONS = {
    "unauthorised": "The owner does not know this asker with this token.",
    "too-many": "The asker's questions of this day are used up; come back tomorrow, or ask the owner for more.",
    "replayed": "This question was asked before, and has been answered; it was not counted again.",
    "other-day": "The question is of another day; set the clock of the asker's machine.",
    "other-analyser": "The owner cuts texts into other words, of {}; all need one federation.toml and one version.",
    "no-conditions": "This owner gives no documents out, and so answers no phrases, exclusions or filters.",
    "not-given": "This owner gives no documents out; ask it in another way.",
}
_FULL = ("disk-full", "The owner's disk is full, so that it can count no question, and answers none.")
_UNAVAILABLE = ("unavailable", "The owner's index cannot be read at the moment.")
#: Vectors of queries that are kept in memory.
_VECTORS = 256
#: Seconds for which a query may encode what it found, vectors that are kept of that, and seconds after which all are
#: forgotten; hits that are left get the cosine that those above them let expect.
_ENCODING, _MADE, _KEPT = 0.5, 20_000, 3600.0
#: Characters of a text that are encoded.
_READ = 4000
#: Times that four times as many passages are asked for, where they are of fewer documents than the answer may hold.
_ROUNDS = 3
#: Weight of a word that stands in every document: those that hold it are found, after all others.
_LEAST = 1e-6
#: Characters of a document's text that stand in place of a title, where the owner shows them.
_BEGINNING = 80


def _text_to_encode(candidate: Candidate) -> str:
    """The part of a candidate's text that an encoder reads: more than its tokens hold, of a text of any length."""
    return text_of(candidate.title, candidate.text)[:_READ]


def _digest(candidate: Candidate) -> bytes:
    return hashlib.blake2b(_text_to_encode(candidate).encode("utf-8", "surrogatepass"), digest_size=16).digest()


def _refuse(reason: str, detail: str) -> dict[str, Json]:
    return {"error": reason, "detail": detail}


def _is_disk_full(cause: BaseException | None) -> bool:
    return getattr(cause, "errno", None) == errno.ENOSPC or (
        getattr(cause, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL
    )


def _cut(text: str, most: int) -> str:
    text = " ".join(text.split())
    return text if len(text) <= most else text[: most - 1] + "…"


def _alike(words: int) -> Statistics:
    """Statistics of which each word has the same weight: one of a hundred documents of a hundred words holds it."""
    frequency = np.ones((words, 2))
    return Statistics(100.0, frequency, frequency, np.array([10_000.0, 1_000.0]))


def _own_statistics(own: list[tuple[int, int]], n: int, engine: Engine) -> Statistics:
    """Statistics of the owner alone, with which it searches until there are those of all."""
    documents, frequency = max(n, 1), np.asarray(own, np.float64).reshape(-1, 2)
    return Statistics(float(documents), frequency, frequency, engine.lengths() * documents)
