"""Generated text collections, for machines without data.

They are no model of language, and no number measured on them says anything about a real collection. They share what
makes search difficult: word frequencies fall off as in text (Zipf's law); documents mix topics; a query has a
few words of one topic, so that a relevant document need not hold all of them; relevance is partly the true share of
the topic, which no word count shows exactly, partly the words themselves, partly chance. BM25 helps and is far from
perfect: its nDCG(dcg='exp-log2')@10 on the default collection is 0.56 to 0.61 with seeds 0 to 4, that of
a random order 0.01 to 0.02.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int64, Integer

from fedrank.core.errors import ConfigError
from fedrank.texts.data.collection import Texts

# Exponent of Zipf's law for the words of a text collection; a little above 1 for English.
_ZIPF = 1.07
# Words that belong to one topic, and the most frequent words, which belong to none: they are in every text.
_TOPIC_WORDS, _COMMON = 120, 25
# Share of a good document's words, and of a title's, that come from its topics; the rest are anybody's.
_ABOUT, _ABOUT_TITLE = 0.45, 0.8
# How strongly a document keeps to few topics: smaller is stronger (concentration of a Dirichlet distribution).
_MIXED = 0.25
_TITLE_LENGTH, _QUERY_LENGTH = (4, 9), (2, 6)
# Relevance: topic, words, chance; in units of the standard deviations of the first two.
_BY_TOPIC, _BY_WORDS, _BY_CHANCE = 1.0, 0.6, 0.5
# Median number of relevant documents of a query, and the share of them that is of the better grade.
_RELEVANT, _BEST = 12, 0.35
_CONSONANTS, _VOWELS = "bdfgklmnprstvz", "aeiou"


@dataclass(frozen=True)
class _Language:
    """Words, and their probabilities in general and in each topic."""

    words: tuple[str, ...]
    common: Float[np.ndarray, " words"]
    topics: Float[np.ndarray, "topics words"]


def generate_texts(
    seed: int = 0,
    documents: int = 600,
    queries: int = 120,
    topics: int = 12,
    words: int = 3000,
    length: int = 80,
) -> Texts:
    """A generated collection with titles, bodies, and grades 0 to 2.

    Args:
        seed: Seed of all random choices (NumPy's PCG64).
        documents: Number of documents, at least 20.
        queries: Number of queries, at least 1; each has a relevant document.
        topics: Number of topics, at least 2.
        words: Size of the vocabulary, at least 500.
        length: Words of a body in the median, at least 5.

    Returns:
        The collection, with the main topic of each document. The same arguments give the same texts.

    Raises:
        ConfigError: A number is out of range.
    """
    _check(documents, queries, topics, words, length)
    rng = np.random.default_rng(seed)
    return _collection(rng, "generated", documents, queries, topics, words, length, np.ones(documents), seed)


def _check(documents: int, queries: int, topics: int, words: int, length: int) -> None:
    least = {"documents": 20, "queries": 1, "topics": 2, "words": 500, "length": 5}
    given = {"documents": documents, "queries": queries, "topics": topics, "words": words, "length": length}
    for what, value in given.items():
        if value < least[what]:
            raise ConfigError(f"{what} of a generated collection must be at least {least[what]}, got {value}.")


def _collection(
    rng: np.random.Generator,
    name: str,
    n_documents: int,
    n_queries: int,
    n_topics: int,
    n_words: int,
    length: int,
    quality: np.ndarray,
    seed: int,
    mixtures: np.ndarray | None = None,
) -> Texts:
    language = _language(rng, n_topics, n_words)
    if mixtures is None:
        mixtures = rng.dirichlet(np.full(n_topics, _MIXED), n_documents)
    lengths = np.maximum(5, np.rint(rng.lognormal(math.log(length), 0.35, n_documents))).astype(np.int64)
    headings = rng.integers(*_TITLE_LENGTH, n_documents)
    bodies = _write(rng, language, mixtures, lengths, _ABOUT * quality)
    titles = _write(rng, language, mixtures, headings, _ABOUT_TITLE * quality)
    about = rng.integers(n_topics, size=n_queries)
    asked = [_ask(rng, language, topic) for topic in about.tolist()]
    there = np.zeros((n_documents, n_words), bool)
    for row, body, title in zip(there, bodies, titles, strict=True):
        row[body] = row[title] = True
    rows = []
    for query, (topic, terms) in enumerate(zip(about, asked, strict=True)):
        overlap = there[:, terms] @ -np.log(language.common[terms])
        grades = _grades(rng, mixtures[:, topic], overlap)
        relevant = np.flatnonzero(grades)
        rows.append(np.stack([np.full(len(relevant), query), relevant, grades[relevant]]))
    judged = np.concatenate(rows, axis=1).astype(np.int32)
    note = (
        f"Generated texts, not a real collection: {n_documents} documents, {n_queries} queries, {n_topics} topics, "
        f"{n_words} words, seed {seed}."
    )
    return Texts(
        name,
        tuple(f"d{number}" for number in range(1, n_documents + 1)),
        tuple(_text_of(language, title) for title in titles),
        tuple(_text_of(language, body) for body in bodies),
        tuple(f"q{number}" for number in range(1, n_queries + 1)),
        tuple(_text_of(language, query) for query in asked),
        judged[0],
        judged[1],
        judged[2],
        topics=mixtures.argmax(axis=1).astype(np.int32),
        generated=True,
        notes=(note,),
    )


def _language(rng: np.random.Generator, n_topics: int, n_words: int) -> _Language:
    frequency = np.arange(1, n_words + 1) ** -_ZIPF
    topics = np.zeros((n_topics, n_words))
    for topic in topics:
        own = np.sort(rng.choice(np.arange(_COMMON, n_words), _TOPIC_WORDS, replace=False))
        topic[own] = np.arange(1, _TOPIC_WORDS + 1) ** -_ZIPF
    return _Language(
        tuple(_word(number) for number in range(n_words)),
        frequency / frequency.sum(),
        topics / topics.sum(axis=1, keepdims=True),
    )


def _word(number: int) -> str:
    """A word of two syllables or more for each number, which no stemmer changes and no list of stop words contains."""
    syllables = [consonant + vowel for consonant in _CONSONANTS for vowel in _VOWELS]
    word = ""
    while number or len(word) < 4:
        number, which = divmod(number, len(syllables))
        word += syllables[which]
    return word + "k"


def _write(
    rng: np.random.Generator,
    language: _Language,
    mixtures: Float[np.ndarray, "texts topics"],
    lengths: Integer[np.ndarray, " texts"],
    about: Float[np.ndarray, " texts"],
) -> list[Int64[np.ndarray, " _"]]:
    """Numbers of the words of each text.

    Args:
        rng: Generator.
        language: Words and topics.
        mixtures: Shares of the topics in each text.
        lengths: Number of words of each text.
        about: Share of each text's words that come from its topics.
    """
    texts = []
    for mixture, length, own in zip(mixtures, lengths, about, strict=True):
        probabilities = np.cumsum(own * (mixture @ language.topics) + (1 - own) * language.common)
        texts.append(np.searchsorted(probabilities, rng.random(length) * probabilities[-1]))
    return texts


def _ask(rng: np.random.Generator, language: _Language, topic: int) -> Int64[np.ndarray, " words"]:
    """Two to five different words of one topic, frequent ones a little more often."""
    weights = np.sqrt(language.topics[topic])
    return rng.choice(len(weights), rng.integers(*_QUERY_LENGTH), replace=False, p=weights / weights.sum())


def _grades(
    rng: np.random.Generator, share: Float[np.ndarray, " documents"], overlap: Float[np.ndarray, " documents"]
) -> Int64[np.ndarray, " documents"]:
    """Grades 0, 1 and 2 of all documents for one query.

    Args:
        rng: Generator.
        share: Share of the query's topic in each document.
        overlap: Weighted number of the query's words in each document.
    """
    score = _BY_TOPIC * _standard(np.sqrt(share)) + _BY_WORDS * _standard(overlap)
    score += _BY_CHANCE * rng.standard_normal(len(share))
    n = min(max(2, round(rng.lognormal(math.log(_RELEVANT), 0.5))), len(share) // 4)
    order = np.argsort(-score, kind="stable")
    grades = np.zeros(len(share), np.int64)
    grades[order[:n]] = 1
    grades[order[: max(1, round(n * _BEST))]] = 2
    return grades


def _standard(values: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """The values with mean 0 and standard deviation 1; zeros where all are equal."""
    spread = values.std()
    return (values - values.mean()) / spread if spread > 0 else np.zeros_like(values)


def _text_of(language: _Language, words: Integer[np.ndarray, " words"]) -> str:
    """The words as a text."""
    return " ".join(language.words[word] for word in words)
