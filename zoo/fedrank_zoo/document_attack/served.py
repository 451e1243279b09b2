"""Reading documents of a search that is served.

* :func:`statistics_tell`: an owner of the federation reads the summed statistics. He knows all documents but one, and
  his own share of the noise: what is left is that document in the noise of the others. Is it a given text, and which
  words are in it?
* :func:`scores_tell`: an asker who knows a document's title asks for the title with more words, many at a time. Where
  the best hit's score or one of its numbers moves, one of them is in the document; halves of the words are asked until
  it is known which. The owner is as it ships, but that it gives no documents out: there, whoever may ask may read.

All attacks on the documents of a collection.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from jaxtyping import Float64, Int64

from fedrank.data import load
from fedrank.texts.data.reader import TextReader
from fedrank.texts.insider import Holdings, Reading, auc
from fedrank.texts.served.documents import Words
from fedrank.texts.served.engines.tantivy import TantivyEngine
from fedrank.texts.served.envelopes import Tickets
from fedrank.texts.served.owner import MOST_WORDS, Owner, OwnerSettings
from fedrank.texts.served.statistics import StatisticsTerms, TermTable, cells_of
from fedrank_zoo.document_attack import DocumentAttack
from fedrank_zoo.document_attack.documents import attack_sketched, finding_of_auc, finding_of_reading, holdings_of
from fedrank_zoo.findings import Finding

#: Words of a question that keep the document on top; the others are looked for.
_ANCHOR = 36
#: How often each text is looked for in the statistics, with noise drawn anew.
_AGAIN = 5
#: Words that are expected in the document of those that are asked for at once: about the most telling number.
_EXPECTED = 0.7


def attack_served(held: Holdings, s: DocumentAttack, rng: np.random.Generator) -> list[Finding]:
    """All attacks on a served search of one collection."""
    found = statistics_tell(held, s, rng)
    for questions, reading in scores_tell(held, s, rng).items():
        how = f"scores in steps of {s.step:g}, {questions:,} questions"
        words = "an asker who knows the title, of an owner that gives no documents out"
        found.append(finding_of_reading("asker reads", how, reading, words))
    return found


def statistics_tell(held: Holdings, s: DocumentAttack, rng: np.random.Generator) -> list[Finding]:
    """Membership and words of one document, from the statistics and all other documents."""
    terms = StatisticsTerms(s.owners, s.statistics_epsilon)
    variance = terms.share**2 * (s.owners - 1)
    prior = held.prior(held.of(0))
    odds = np.log(prior) - np.log1p(-prior)
    cells = cells_of(held.vocabulary, terms.cells)
    evidence: tuple[list[float], list[float]] = ([], [])
    reading = Reading.empty()
    texts = rng.permutation(held.of(1))[: s.trials].tolist()
    for number, text in enumerate(texts * _AGAIN):
        change = terms.count_words([held.words[text]]).astype(np.float64)
        left = _noise(rng, terms, s.owners - 1)
        there = number % 2 == 0
        seen = left + change if there else left
        evidence[0 if there else 1].append(float((seen @ change - change @ change / 2) / variance))
        if number >= len(texts):
            continue
        told = odds + ((left + change)[cells] - 0.5) / variance
        reading = reading.with_document(held, text, np.flatnonzero(told > 0), prior)
    how = f"statistics, ε = {s.statistics_epsilon:g} a document"
    area, trials = auc(np.array(evidence[0]), np.array(evidence[1])), len(evidence[0]) + len(evidence[1])
    who = "an owner who knows all other documents and his share of the noise"
    return [
        finding_of_reading("insider reads", how, reading, f"{who} reads one"),
        finding_of_auc("is it there?", how, area, trials, f"{who} looks for a text"),
    ]


def _noise(rng: np.random.Generator, terms: StatisticsTerms, owners: int) -> Float64[np.ndarray, " length"]:
    """The noise of some owners together, simulated."""
    return np.rint(rng.normal(0.0, terms.share * math.sqrt(owners), terms.length))


def scores_tell(held: Holdings, s: DocumentAttack, rng: np.random.Generator) -> dict[int, Reading]:
    """Reading by an asker, by number of questions about each document."""
    theirs = held.of(1)
    titled = [text for text in rng.permutation(theirs).tolist() if 2 <= len(held.words[text].title) <= _ANCHOR]
    prior = held.prior(held.of(0))
    # The asker's dictionary: words of documents of his own, the most frequent first.
    known = np.flatnonzero(np.asarray(held.word_presence(held.of(0)).sum(axis=0)).ravel())
    dictionary = known[np.argsort(-prior[known], kind="stable")]
    budgets = sorted({max(1, s.questions // 10), s.questions})
    readings = dict.fromkeys(budgets, Reading.empty())
    with tempfile.TemporaryDirectory() as folder:
        engine = TantivyEngine(Path(folder) / "index")
        try:
            engine.add([held.documents[text] for text in theirs])
            settings = OwnerSettings(fetch=False, step=s.step)
            key, tickets = X25519PrivateKey.generate(), Tickets(bytes(32))
            owner = Owner(engine, key, tickets, None, settings, _table(held, s, rng))

            def best(words: list[str]) -> tuple[float, ...]:
                return next(((hit.score, *hit.features) for hit in owner.search(words, 1)), ())

            for text in titled[: s.targets]:
                title, asked, read = held.words[text].title, 0, list[int]()
                left = list(budgets)
                for asked, word in _probe(title, dictionary, held.vocabulary, prior, best):
                    while left and asked > left[0]:
                        readings[left[0]] = readings[left[0]].with_document(held, text, np.array(read, np.int64), prior)
                        left.pop(0)
                    if not left:
                        break
                    if word is not None:
                        read.append(word)
                for budget in left:  # the dictionary was through before the questions were
                    readings[budget] = readings[budget].with_document(held, text, np.array(read, np.int64), prior)
        finally:
            engine.close()
    return readings


def _probe(
    title: list[str],
    dictionary: Int64[np.ndarray, " words"],
    vocabulary: tuple[str, ...],
    prior: Float64[np.ndarray, " vocabulary"],
    best: Callable[[list[str]], tuple[float, ...]],
) -> Iterator[tuple[int, int | None]]:
    """Ask about one document; gives the number of questions so far, and the word that the last one told, if any."""
    anchor = title * max(1, _ANCHOR // len(title))
    most = MOST_WORDS - len(anchor)
    plain, asked = best(anchor), 1
    yield asked, None
    dictionary = dictionary[[vocabulary[word] not in title for word in dictionary]]
    start = 0
    while start < len(dictionary):
        end, expected = start, 0.0
        while end < len(dictionary) and end - start < most and (end == start or expected < _EXPECTED):
            expected += prior[dictionary[end]]
            end += 1
        waiting = [dictionary[start:end].tolist()]
        while waiting:
            group = waiting.pop()
            moved, asked = best([*anchor, *(vocabulary[word] for word in group)]) != plain, asked + 1
            yield asked, group[0] if moved and len(group) == 1 else None
            if moved and len(group) > 1:  # each half may hold a word
                waiting += [group[len(group) // 2 :], group[: len(group) // 2]]
        start = end


def _table(held: Holdings, s: DocumentAttack, rng: np.random.Generator) -> TermTable:
    """The statistics that the owners summed, with simulated noise."""
    terms = StatisticsTerms(s.owners, s.statistics_epsilon)
    total = np.zeros(terms.length, np.int64)
    for owner in range(s.owners):
        own: list[Words] = [held.words[text] for text in held.of(owner)]
        total += terms.count_words(own)
    total += _noise(rng, terms, s.owners).astype(np.int64)
    return terms.table((total % 2**32).astype(np.uint32))


def attack_documents(collection: str, settings: DocumentAttack = DocumentAttack()) -> list[Finding]:  # noqa: B008 - frozen
    """Attack the sketches of documents and the search over them.

    Args:
        collection: Name of a collection of texts, or a folder.
        settings: What protects the documents, and how hard they are attacked.

    Returns:
        What was found: of sketches, of a served search's statistics, of its scores.

    Raises:
        DataError: The collection is too small.
    """
    # What one attack finds does not depend on the others.
    held = holdings_of(load(collection, TextReader()), settings.owners, np.random.default_rng((settings.seed, 0)))
    found = attack_sketched(held, settings, np.random.default_rng((settings.seed, 1)))
    return found + attack_served(held, settings, np.random.default_rng((settings.seed, 2)))
