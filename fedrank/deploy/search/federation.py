"""A federation of owners, as a file says it, and the asker's side of a search.

``federation.toml``::

    name = "four hospitals"
    broker = "https://search.example.org"

    [analyser]                      # how all of them cut texts into words; this is the default
    languages = ["english"]

    [statistics]                    # what the owners agreed on; these are the defaults
    epsilon = 1.0
    releases = 1

    [ranking]                       # may be missing: hits then stand in the order of their scores
    cosine = 2.0                    # weight of the encoder's cosine beside a score; this is the default

    [[owners]]
    name = "north"
    key = "…"
    url = "https://north.example.org:8760"     # for the broker alone

``asker.toml``::

    name = "anna"

    [tokens]                        # fedrank search owner allow FOLDER anna, at each owner
    north = "…"

    [person]                        # where anna's company signs for its people: fedrank search person
    said = "…"
    signature = "…"
"""

from __future__ import annotations

import base64
import dataclasses
import json
import math
import os
import re
import statistics
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
from jaxtyping import Float32, Float64

from fedrank.core.errors import ConfigError, RunError, WireError
from fedrank.core.privacy_report import DELTA
from fedrank.core.trees import Json
from fedrank.deploy.http.client import HttpClient
from fedrank.deploy.search.choice import PastAnswers
from fedrank.engine.settings import named_in_errors, read_toml
from fedrank.texts.data.features import K1
from fedrank.texts.served.analyser import Analyser
from fedrank.texts.served.documents import LONGEST_TITLE
from fedrank.texts.served.envelopes import LARGEST_ANSWER, LONGEST_TICKET, Question, key_of
from fedrank.texts.served.owner import (
    COSINE,
    LARGEST_STEP,
    LONGEST_QUERY,
    LONGEST_WORD,
    MOST_ENDINGS,
    MOST_WORDS,
    NAMES,
    expected_cosines,
)
from fedrank.texts.served.query import NO_SNIPPET, Snippet, parse_query, snippet_of, words_of_query
from fedrank.texts.served.statistics import StatisticsTerms

#: Most that a word of a query adds to a score: BM25's saturation is below k₁ + 1 in each field, body and title, and
#: its IDF at most the logarithm of the number of documents, for which a million million is taken.
_LARGEST_OF_A_WORD = 2 * (K1 + 1) * math.log(1e12)
#: What an owner's encoder is known by: :attr:`fedrank.texts.served.encoder.Encoder.digest`.
_DIGEST = re.compile("[0-9a-f]{16}")
#: Longest name of an owner, in characters.
_LONGEST_NAME = 64
#: Cosines of an owner, and of the others, from which a lying encoder is told; standard deviation below which they are
#: alike; and how far a median may lie above the largest of the others.
_LEAST_COSINES, _ALIKE, _FAR = 5, 0.01, 0.75
#: Beginning of the reason why an owner is missing that gave its first hits and no more.
NO_FURTHER = "no further hits"
#: Why a query finds nothing: it has words, or conditions alone.
_NO_WORDS = "These are words that nearly every text has, and are not searched; add another."
_NOTHING = "Add a word to search for: phrases, exclusions and filters choose among what words find."
#: Hits that each owner is asked for at least where not the scores alone put them in order.
_RERANKED = 20
#: First hits of a list by whose owners later ones are chosen.
_LED = 10


@dataclass(frozen=True)
class OwnerCard:
    """Public data of an owner.

    Attributes:
        name: Its name in the federation.
        key: Its public key, as text.
        url: Its address, which only the broker needs; may be empty.
    """

    name: str
    key: str
    url: str = ""


@dataclass(frozen=True)
class RankingTerms:
    """Order of hits, where not by their scores alone.

    Attributes:
        cosine: Weight of the encoder's cosine beside a score; see
            :func:`base_and_features`.

    Raises:
        ConfigError: The weight is out of range.
    """

    cosine: float = COSINE

    def __post_init__(self) -> None:
        if not 0 <= self.cosine <= 100:
            raise ConfigError(f"ranking.cosine must be in 0..100, got {self.cosine}.")


@dataclass(frozen=True)
class FederationFile:
    """The content of ``federation.toml``.

    Attributes:
        name: What the federation is called.
        owners: Who searches.
        broker: Address of the broker.
        epsilon: ε of a document over all releases of the statistics.
        delta: δ of the same.
        releases: Releases of the statistics.
        ranking: What hits are put in order by, beside their scores; None: nothing.
        languages: Languages of the texts; see :class:`~fedrank.texts.served.analyser.Analyser`.

    Raises:
        ConfigError: A name stands twice, a key is none, or there is no owner.
    """

    name: str
    owners: tuple[OwnerCard, ...]
    broker: str = ""
    epsilon: float = 1.0
    delta: float = DELTA
    releases: int = 1
    ranking: RankingTerms | None = None
    languages: tuple[str, ...] = ("english",)

    def __post_init__(self) -> None:
        names = [owner.name for owner in self.owners]
        if not names:
            raise ConfigError("a federation needs [[owners]], one at least, each with name and key.")
        if strange := next((name for name in names if not name.isprintable() or len(name) > _LONGEST_NAME), None):
            raise ConfigError(
                f"an owner's name must be at most {_LONGEST_NAME} printable characters, got {strange!r:.100}."
            )
        if len(set(names)) < len(names):
            raise ConfigError(f"two owners have one name: {', '.join(sorted(names))}.")
        for owner in self.owners:
            try:
                key_of(owner.key)
            except ConfigError as error:
                raise ConfigError(f"owner {owner.name!r}: {error}") from error
        if len({owner.key for owner in self.owners}) < len(names):
            raise ConfigError("two owners have one key; each has its own.")
        if len(names) > 1:
            self.statistics()

    def statistics(self) -> StatisticsTerms:
        """Terms of the sums of statistics.

        Raises:
            ConfigError: A number is out of range, or there is one owner only.
        """
        return StatisticsTerms(len(self.owners), self.epsilon, self.delta, self.releases)


def read_federation(path: Path) -> FederationFile:
    """Read ``federation.toml``.

    Raises:
        ConfigError: It cannot be read, has an unknown key, or lacks one.
    """
    with named_in_errors(path):
        return federation_of(read_toml(path))


def federation_of(raw: Mapping[str, Any]) -> FederationFile:
    """The federation that the tables of ``federation.toml`` describe.

    Raises:
        ConfigError: A key is unknown, missing, or of the wrong type.
    """
    _only(raw, ("name", "broker", "owners", "analyser", "statistics", "ranking"), "")
    statistics, rows, ranking = raw.get("statistics", {}), raw.get("owners", []), raw.get("ranking", {})
    if not isinstance(statistics, dict) or not isinstance(ranking, dict) or not isinstance(rows, list):
        raise ConfigError("statistics and ranking must be tables and owners a list of tables.")
    _only(ranking, ("cosine",), "ranking.")
    cosine = _number(ranking.get("cosine", COSINE), "ranking.cosine")
    terms = RankingTerms(cosine) if "ranking" in raw else None
    _only(statistics, ("epsilon", "delta", "releases"), "statistics.")
    owners = []
    for row in rows:
        if not isinstance(row, dict):
            raise ConfigError("owners must be a list of tables: [[owners]].")
        _only(row, ("name", "key", "url"), "owners.")
        owners.append(OwnerCard(*(_text(row, name, name == "url") for name in ("name", "key", "url"))))
    analyser = raw.get("analyser", {})
    languages = analyser.get("languages", ["english"]) if isinstance(analyser, dict) else None
    if not isinstance(languages, list) or not all(isinstance(one, str) for one in languages):
        raise ConfigError('analyser must be a table with languages = ["english", …].')
    _only(analyser, ("languages",), "analyser.")
    numbers = {key: _number(value, f"statistics.{key}") for key, value in statistics.items()}
    texts = {"name": _text(raw, "name", False), "broker": _text(raw, "broker", True)}
    return FederationFile(owners=tuple(owners), **texts, **numbers, ranking=terms, languages=tuple(languages))


def federation_text(file: FederationFile) -> str:
    """The text of ``federation.toml``, which :func:`read_federation` reads."""
    import tomlkit

    tables: dict[str, Any] = {"name": file.name, "broker": file.broker, "analyser": {"languages": [*file.languages]}}
    tables["statistics"] = {name: getattr(file, name) for name in ("epsilon", "delta", "releases")}
    if file.ranking is not None:
        tables["ranking"] = {"cosine": file.ranking.cosine}
    return tomlkit.dumps(tables | {"owners": [vars(owner) for owner in file.owners]})


@dataclass(frozen=True)
class Hit:
    """A document that was found.

    Attributes:
        owner: Whose it is.
        score: Its score, which compares with those of other owners.
        title: Its title or beginning; empty where the owner does not show it.
        ticket: What it can be fetched by, with :meth:`Federation.fetch`, for a day; another one in each answer.
        features: Numbers of :data:`fedrank.texts.served.owner.NAMES`; None: the owner gave none.
        snippet: Piece of its text that holds words of the query; empty where the owner does not give texts out.
    """

    owner: str
    score: float
    title: str
    ticket: str
    features: tuple[float, ...] | None = None
    snippet: Snippet = NO_SNIPPET


@dataclass(frozen=True)
class Answer:
    """Result of a search.

    Attributes:
        hits: Best first.
        missing: Owner → why it did not answer.
        own_statistics: Owners whose scores do not compare with the others', as they lack the federation's statistics.
        left_out_cosines: Owners whose cosines are none that an encoder gives, and were not used.
        note: Why the query finds nothing anywhere; empty where owners were asked.
        not_asked: Owners that the query was not shown, as past answers let expect nothing of them.
        unknown: Word of the query that no owner which answered holds → the nearest that one does; empty: none is near.
        more: There may be further hits; :meth:`Federation.extend` gets them.
        search: The query and all that the owners gave; None: no owner was asked.
    """

    hits: tuple[Hit, ...]
    missing: Mapping[str, str]
    own_statistics: tuple[str, ...] = ()
    left_out_cosines: tuple[str, ...] = ()
    note: str = ""
    not_asked: tuple[str, ...] = ()
    unknown: Mapping[str, str] = field(default_factory=dict)
    more: bool = False
    search: _Search | None = field(default=None, repr=False, compare=False)


@dataclass
class _Search:
    """A query, and what the owners gave for it.

    Attributes:
        question: What each is asked.
        person: Who asks, as the company says it; None: the asker.
        conditions: The query has phrases, exclusions or filters.
        hits: Those of each owner that answered, best first as it gave them.
        unfinished: Owners that say that they have more.
        encoders: Owner → digest of its encoder; empty: none.
        alone: Owners whose scores do not compare.
        missing: Owner → why it did not answer, or not all that it was asked.
    """

    question: dict[str, Json]
    person: Mapping[str, Json] | None
    conditions: bool
    hits: dict[str, list[Hit]] = field(default_factory=dict)
    unfinished: set[str] = field(default_factory=set)
    encoders: dict[str, str] = field(default_factory=dict)
    alone: set[str] = field(default_factory=set)
    missing: dict[str, str] = field(default_factory=dict)

    def copy(self) -> _Search:
        """A copy of the search; changes of its hits and sets of owners do not reach this one."""
        hits = {owner: [*several] for owner, several in self.hits.items()}
        changed = {name: getattr(self, name).copy() for name in ("unfinished", "encoders", "alone", "missing")}
        return dataclasses.replace(self, hits=hits, **changed)

    def all_hits(self) -> list[Hit]:
        """Hits of all owners, owner by owner in the order in which they first answered, each best first."""
        return [hit for several in self.hits.values() for hit in several]

    def list_behind(self, k: int) -> list[str]:
        """Owners that may have one of the k best by score besides those that they gave."""
        scores = sorted((hit.score for hit in self.all_hits()), reverse=True)
        least = scores[k - 1] if len(scores) >= k else -math.inf
        return [
            owner
            for owner, own in self.hits.items()
            if owner in self.unfinished and len(own) < k and own[-1].score > least
        ]

    def add(self, owner: str, body: Mapping[str, Any]) -> None:
        """Add an owner's answer.

        Raises:
            WireError: No honest owner of this version answers so.
            KeyError, TypeError, ValueError, IndexError, OverflowError: Something in it is missing, or of another kind.
        """
        words = [str(word) for word in cast("list[Json]", self.question["words"])]
        most_words = sum(MOST_ENDINGS if word.endswith("*") else 1 for word in words)
        if self.conditions and body.get("conditions") is not True:
            raise WireError("its version knows no phrases, exclusions and filters")
        if most_words > len(words) and body.get("beginnings") is not True:
            raise WireError("it looks for no beginnings of words")
        found = _hits(owner, body, cast("int", self.question["k"]), most_words)
        digest = str(body.get("encoder", ""))
        self.hits[owner] = self.hits.get(owner, []) + found
        self.encoders[owner] = digest if _DIGEST.fullmatch(digest) else ""
        if body.get("statistics") != "shared":
            self.alone.add(owner)
        if found and body.get("more") is True:
            self.unfinished.add(owner)


class Fetched(NamedTuple):
    """A document as its owner gives it.

    Attributes:
        title: Its title; may be empty.
        body: Its text.
        about: What its owner knows about it: ``path``, ``type``, ``date``, ``author``; each may be missing.
    """

    title: str
    body: str
    about: Mapping[str, str]


class Federation:
    """Asks the owners of a federation, through its broker or one by one.

    Args:
        federation: ``federation.toml``, or what stands in it.
        asker: ``asker.toml``, or the name and the tokens by owner.
        person: The company's word for who asks (:func:`~fedrank.texts.served.rights.sign_person`), where the file has
            none.
        ca: File with the certificates to trust in place of the system's.
        allow_http: Plain http to another machine, where the network itself is protected.
        timeout: Longest silence of the broker, in seconds.
        past: Past answers, by which the owners to ask are chosen where no person is named; None: all are asked.

    Raises:
        ConfigError: A file cannot be used, or there is no way to the owners.
    """

    def __init__(
        self,
        federation: str | os.PathLike[str] | FederationFile,
        asker: str | os.PathLike[str] | tuple[str, Mapping[str, str]],
        *,
        person: Mapping[str, Json] | None = None,
        ca: str | os.PathLike[str] | None = None,
        allow_http: bool = False,
        timeout: float = 20.0,
        past: PastAnswers | None = None,
    ):
        self._past, self._lock = past, threading.Lock()
        self.file = federation if isinstance(federation, FederationFile) else read_federation(Path(federation))
        self._analyser = Analyser(self.file.languages)
        self.asker, self._tokens, self._person = (*asker, None) if isinstance(asker, tuple) else read_asker(Path(asker))
        self._person = person or self._person
        if not self.file.broker:
            raise ConfigError('the federation names no broker; put broker = "https://…" into its file.')
        self._broker = HttpClient(self.file.broker, ca=ca, allow_http=allow_http, timeout=timeout)

    def search(
        self, query: str, k: int = 10, person: Mapping[str, Json] | None = None, all_owners: bool = False
    ) -> Answer:
        """The best documents of all owners for a query.

        Args:
            query: Words, phrases, exclusions and filters as a person types them; see
                :mod:`fedrank.texts.served.query`.
            k: Most hits; for more than 20, owners are asked several times, as :meth:`extend` does.
            person: Who asks, in place of the person of the class.
            all_owners: Ask all owners, whatever past answers say.

        Raises:
            ConfigError: The query has too many or too long words, or k is out of range.
            RunError: The broker cannot be reached, or no owner answered.
        """
        if not 1 <= k <= 1000:
            raise ConfigError(f"k must be in 1..1000, got {k}.")
        query = query.encode("utf-8", "replace").decode()  # half of a surrogate pair is no text that can be sent
        query, conditions = parse_query(query, self._analyser)
        words = [word for word in words_of_query(query, self._analyser) if len(word) <= LONGEST_WORD]  # as owners take
        if len(words) > MOST_WORDS:
            raise ConfigError(f"a query has at most {MOST_WORDS} words, got {len(words)}; leave some out.")
        if not words:
            return Answer((), {}, note=_NO_WORDS if query else _NOTHING)
        ranked = self.file.ranking is not None
        most = max(k, _RERANKED) if ranked else k
        question: dict[str, Json] = {"kind": "search", "k": most, "words": [*words]}
        question |= {"analyser": self._analyser.fingerprint, "snippets": most, "conditions": conditions.as_json()}
        if ranked:
            question |= {"features": True, "query": query[:LONGEST_QUERY]}
        search = _Search(question, person, bool(conditions))
        names = [owner.name for owner in self.file.owners]
        # What one person may read must not decide what another is given, so people of a company ask all.
        past = None if person or self._person else self._past
        asked = names
        if past is not None and not all_owners:
            with self._lock:
                asked = past.choose(words, names)
        answers = self._collect(search, asked)
        if not answers and len(asked) < len(names):  # none of those chosen: all others are asked
            answers = self._collect(search, [name for name in names if name not in asked])
            asked = names
        if not answers or len(search.missing) == len(asked):
            why = "; ".join(f"{owner}: {reason}" for owner, reason in search.missing.items())
            raise RunError(f"no owner answered: {why}")
        unknown: dict[str, str] = {}
        if len(asked) == len(names):
            unknown = self._find_unknown(query, words, [one for owner, one in answers.items() if owner in search.hits])
        left = tuple(name for name in names if name not in asked)
        answer = self._extend(Answer((), {}, not_asked=left, unknown=unknown, search=search), k, _questions(k) - 1)
        if past is not None and len(asked) == len(names) and not answer.missing and not conditions:
            hits = self._order(search)
            words_of = [{*self._analyser.cut(f"{hit.title} {hit.snippet.text}")} for hit in hits]
            pieces = [(hit.owner, hit.title or hit.snippet.text, cut) for hit, cut in zip(hits, words_of, strict=True)]
            with self._lock:
                past.record(words, [hit.owner for hit in hits[:_LED]], [piece for piece in pieces if piece[2]])
        return answer

    def extend(self, answer: Answer, k: int = 10, person: Mapping[str, Json] | None = None) -> Answer:
        """An answer with the next hits after its own, for the person who asked.

        Owners are asked again, each time a question of the asker's budget, where they have more than they give at a
        time (20 hits, if they did not choose otherwise) and one of it may belong to the hits that are wanted. Where an
        index or the statistics change in between, a document may come twice or not at all.

        Args:
            answer: An answer of :meth:`search` or of this method; it stays as it is.
            k: Most hits to add.
            person: The same person, in the company's word for today; None: in that of the search.

        Raises:
            RunError: The broker cannot be reached.
        """
        return self._extend(answer, k, _questions(k), person)

    def _extend(self, answer: Answer, k: int, questions: int, person: Mapping[str, Json] | None = None) -> Answer:
        if answer.search is None:
            return answer
        search = answer.search.copy()
        search.person = person or search.person
        search.question = search.question | dict.fromkeys(("k", "snippets"), max(k, _RERANKED))
        before = {(hit.owner, hit.ticket) for hit in answer.hits}
        for _ in range(questions):
            if not (behind := search.list_behind(len(answer.hits) + k)):
                break
            try:
                self._collect(search, behind)
            except RunError as error:  # of the broker: what came before stays
                search.missing |= dict.fromkeys(behind, f"{NO_FURTHER}: {error}")
                break
        ordered = [hit for hit in self._order(search) if (hit.owner, hit.ticket) not in before]
        alone = [one.name for one in self.file.owners if one.name in search.alone] if len(self.file.owners) > 1 else []
        return dataclasses.replace(
            answer,
            hits=(*answer.hits, *ordered[:k]),
            missing=search.missing,
            own_statistics=tuple(alone),
            left_out_cosines=tuple(sorted(_lying_encoders(search.all_hits()))),
            more=len(ordered) > k or bool(search.unfinished),
            search=search,
        )

    def _collect(self, search: _Search, owners: Sequence[str]) -> dict[str, dict[str, Any]]:
        """Ask owners for the hits after those that they gave; their answers, also those that cannot be used."""
        questions = {owner: search.question | {"skip": len(search.hits.get(owner, ()))} for owner in owners}
        answers, missing = self._ask(questions, search.person)
        for owner, why in missing.items():
            search.missing[owner] = f"{NO_FURTHER}: {why}" if owner in search.hits else why
        for owner in owners:
            search.unfinished.discard(owner)
            if owner not in answers:
                continue
            try:
                search.add(owner, answers[owner])
            except WireError as error:
                search.missing[owner] = str(error)
            except (KeyError, TypeError, ValueError, IndexError, OverflowError):
                search.missing[owner] = "its answer makes no sense"
        return answers

    def _find_unknown(self, query: str, words: list[str], answers: list[Mapping[str, Any]]) -> dict[str, str]:
        """Words as they were typed that all answers say to be in no document, and the word named most often instead."""
        said = [one for one in (body.get("unknown") for body in answers) if isinstance(one, dict)]
        found: dict[str, str] = {}
        if len(said) < len(answers):
            return found
        for start, end, _ in self._analyser.find(query, set(words)):
            stems = set(self._analyser.cut_query(query[start:end]))  # one a language
            if all(stems <= one.keys() for one in said):
                named = (str(one[stem])[:LONGEST_WORD] for one in said for stem in stems)
                near = Counter(one for one in named if one.isalpha())
                found[query[start:end]] = near.most_common(1)[0][0] if near else ""
        return found

    def _order(self, search: _Search) -> list[Hit]:
        """All hits, best first: by their scores or, where the file says so and all have numbers, by the cosine too."""
        # Owners stand in the order of the file, as one could choose when it is asked by what it gave before.
        owners = [one.name for one in self.file.owners if one.name in search.hits]
        hits = sorted((hit for owner in owners for hit in search.hits[owner]), key=lambda hit: -hit.score)
        if self.file.ranking is None or not hits or any(hit.features is None for hit in hits):
            return hits
        lying = _lying_encoders(hits)
        encoders = {owner: "" if owner in lying else search.encoders[owner] for owner in owners}
        usual, terms = _usual_encoder(encoders), self.file.ranking
        comparable = [encoders[hit.owner] == usual != "" for hit in hits]
        numbers = [hit.features or () for hit in hits]
        base, _ = base_and_features([hit.score for hit in hits], numbers, comparable, terms.cosine)
        return [hits[place] for place in np.argsort(-base, kind="stable").tolist()]

    def fetch(self, hit: Hit, person: Mapping[str, Json] | None = None) -> Fetched:
        """A document that was found, for the person who found it.

        Raises:
            RunError: The owner does not give it, or cannot be reached.
        """
        answers, missing = self._ask({hit.owner: {"kind": "fetch", "ticket": hit.ticket}}, person)
        if hit.owner in missing:
            raise RunError(f"{hit.owner}: {missing[hit.owner]}")
        document = answers[hit.owner].get("document")
        if not isinstance(document, dict):
            raise RunError(f"{hit.owner}: its answer makes no sense.")
        about = document.get("about")
        known = {str(key)[:20]: str(value)[:1000] for key, value in about.items()} if isinstance(about, dict) else {}
        return Fetched(str(document.get("title", "")), str(document.get("body", "")), known)

    def _ask(
        self, bodies: Mapping[str, dict[str, Json]], person: Mapping[str, Json] | None
    ) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
        """Answers by owner, and why others are missing."""
        questions: dict[str, Question] = {}
        missing: dict[str, str] = {}
        cards = {owner.name: owner for owner in self.file.owners}
        for owner, body in bodies.items():
            if owner not in cards or owner not in self._tokens:
                missing[owner] = "no token: it has not allowed you to ask"
                continue
            full = {"asker": self.asker, "token": self._tokens[owner], "day": int(time.time() // 86400), **body}
            if said := person or self._person:
                full["person"] = {**said}
            questions[owner] = Question(key_of(cards[owner].key), full)
        if not questions:
            return {}, missing
        sealed = {owner: base64.b64encode(question.sealed).decode() for owner, question in questions.items()}
        limit = (LARGEST_ANSWER * 4 // 3 + 1000) * len(questions)
        try:
            response = self._broker.request("POST", "/v1/ask", "", body=json.dumps(sealed).encode(), limit=limit)
        except OSError as error:
            raise RunError(f"the broker {self._broker.url} cannot be reached ({error}).") from error
        found = response.json()
        if response.status != 200:
            raise RunError(f"the broker refused: {found.get('detail') or response.status}.")
        answers: dict[str, dict[str, Any]] = {}
        for owner, question in questions.items():
            opened = _open(question, found.get(owner))
            if isinstance(opened, str):
                missing[owner] = opened
            else:
                answers[owner] = opened
        return answers, missing


def _questions(k: int) -> int:
    """Questions to each owner for so many hits: one for as many as an owner gives at a time by default."""
    return math.ceil(k / _RERANKED)


def _open(question: Question, found: Any) -> dict[str, Any] | str:
    """An owner's answer, or why there is none."""
    if not isinstance(found, dict) or not isinstance(found.get("answer"), str):
        why = found.get("missing") if isinstance(found, dict) else None
        return str(why)[:200] if why else "it did not answer"
    try:
        body = question.open_answer(base64.b64decode(found["answer"], validate=True))
    except ValueError:  # not in base64, or a WireError
        return "what came is not its answer to this question"
    if "error" in body:
        return str(body.get("detail") or body["error"])[:500]
    return body


def _hits(owner: str, body: Mapping[str, Any], most: int, words: int) -> list[Hit]:
    """The hits of an owner's answer, within what an honest owner can give.

    Args:
        owner: Its name.
        body: The answer.
        most: Hits that it was asked for.
        words: Words of the query.

    Raises:
        WireError: It gives more hits, or a score or numbers that no document can have.
    """
    rows, largest = body["hits"], words * _LARGEST_OF_A_WORD + LARGEST_STEP / 2
    if len(rows) > most:
        raise WireError(f"it gave {len(rows):,} hits where {most} were asked for: refused")
    found = []
    for row in rows:
        score, features, title = float(row["score"]), row.get("features"), row.get("title", "")
        if not 0 <= score <= largest:
            raise WireError(f"it gave a score of {score:.3g}, which no document can have (0 to {largest:.0f}): refused")
        if features is not None:
            features = tuple(float(number) for number in features)
            if len(features) != len(NAMES):
                raise WireError(f"it gave {len(features)} numbers of a hit where {len(NAMES)} are known: refused")
            if not all(abs(number) <= 1 for number in features):
                raise WireError("it gave a number of a hit outside -1 to 1: refused")
        title, ticket = str(title)[:LONGEST_TITLE], str(row["ticket"])[:LONGEST_TICKET]
        found.append(Hit(owner, score, title, ticket, features, snippet_of(row.get("snippet"))))
    return found


def _lying_encoders(hits: Sequence[Hit]) -> set[str]:
    """Owners whose cosines no honest encoder gives: all alike, or half of them far above every other owner's.

    Honest owners of other subjects differ much: of 301 lists of Cranfield and CISI as two owners, and 260 of ADI and
    Cranfield, the median was up to .67 above the others' largest cosine with all-MiniLM-L6-v2, and .45 with the static
    encoder; the standard deviation was .038 or more (1,317 lists of ADI and CISI). So a lie within this is not noticed,
    as none about scores within their range is.
    """
    found = set[str]()
    for owner in {hit.owner for hit in hits}:
        own = [hit.features[0] for hit in hits if hit.features is not None and hit.owner == owner]
        others = [hit.features[0] for hit in hits if hit.features is not None and hit.owner != owner]
        alike = len(own) >= _LEAST_COSINES and any(own) and statistics.pstdev(own) < _ALIKE
        far = len(own) >= _LEAST_COSINES <= len(others) and statistics.median(own) > max(others) + _FAR
        if alike or far:
            found.add(owner)
    return found


def _usual_encoder(encoders: Mapping[str, str]) -> str:
    """The encoder that most owners have; of as many, that of the owner who comes first; empty where none has one.

    Args:
        encoders: Digests by owner, in the order of the federation's file: an owner cannot choose its place.
    """
    counts = Counter(digest for digest in encoders.values() if digest)
    return max(counts, key=counts.__getitem__, default="")


def base_and_features(
    scores: Sequence[float], features: Sequence[Sequence[float]], comparable: Sequence[bool], cosine: float = COSINE
) -> tuple[Float32[np.ndarray, " hits"], Float32[np.ndarray, "hits features"]]:
    """Input of a ranker: a base score, and the numbers of each hit.

    The base score is that of BM25 as a part of the list's best, plus ``cosine`` times the cosine.

    Args:
        scores: BM25 scores of a list's hits.
        features: Their numbers.
        comparable: Whether a hit's cosine is of the encoder that most owners have. The others take what the line
            through those (least squares over scores) says for their score; without any, all cosines count as 0.
        cosine: Weight of the cosine.
    """
    base = np.asarray(scores, np.float64)
    numbers: Float64[np.ndarray, "hits features"] = np.array(features, np.float64).reshape(len(base), len(NAMES))
    best = base.max(initial=0.0)
    base = base / best if best > 0 else base
    known = np.asarray(comparable, np.bool_)
    numbers[~known, 0] = expected_cosines(base[known], numbers[known, 0], base[~known])
    return (base + cosine * numbers[:, 0]).astype(np.float32), numbers.astype(np.float32)


def read_asker(path: Path) -> tuple[str, Mapping[str, str], Mapping[str, Json] | None]:
    """Name, tokens, and the company's word for a person, of ``asker.toml``; None: it names no person.

    Raises:
        ConfigError: It cannot be read, or lacks one of them.
    """
    with named_in_errors(path):
        raw = read_toml(path)
        _only(raw, ("name", "tokens", "person"), "")
        person = raw.get("person")
        if person is not None and not (isinstance(person, dict) and set(person) == {"said", "signature"}):
            raise ConfigError("person must be the table that fedrank search person prints.")
        tokens = raw.get("tokens", {})
        if not isinstance(tokens, dict) or not all(isinstance(token, str) for token in tokens.values()):
            raise ConfigError("tokens must be a table of texts, one an owner.")
        return _text(raw, "name", False), tokens, person


#: Settings of earlier versions.
_GONE = ("decoys", "ranking.hub")


def _only(table: Mapping[str, Any], known: Sequence[str], where: str) -> None:
    if strange := next((key for key in table if key not in known), None):
        if where + strange in _GONE:
            raise ConfigError(f"{where}{strange} is of an earlier version, and without effect now; delete it.")
        raise ConfigError(f"{where}{strange} is unknown; there are {', '.join(known)}.")


def _text(table: Mapping[str, Any], name: str, optional: bool) -> str:
    value = table.get(name, "" if optional else None)
    if not isinstance(value, str) or not (value or optional):
        raise ConfigError(f"{name} must be a text, got {value!r}.")
    return value


def _number(value: Any, name: str) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ConfigError(f"{name} must be a number, got {value!r}.")
    return value
