"""What a silo asks, and what it shows: neither may tell of its documents what no noise covers."""

import numpy as np
import pytest
from text_worlds import published, run, setup_of, small_texts

from fedrank.core.protocol import Party
from fedrank.texts.silo_sketch.setup.exchange_sketches import Ask, open_sealed
from fedrank.texts.silo_sketch.setup.messages import OwnQuestions, Totals
from fedrank.texts.silo_sketch.setup.rows import SiloTexts
from fedrank.texts.sketch.key import ALL_SILOS


def with_fewer_documents(texts):
    """The same queries over all documents but the first two."""
    corpus = texts.corpus
    kept = corpus.select(np.arange(2, corpus.n_documents), np.arange(corpus.n_queries), corpus.name)
    return SiloTexts(kept, texts.part)


@pytest.mark.parametrize("mode", ["per-query", "paper"])
def test_questions_depend_on_queries_only(mode):
    """A decoy from the documents would show, with certainty, a word that one of them holds."""
    setup, texts = setup_of(mode), small_texts()[0]
    other = with_fewer_documents(texts)
    assert len(other.corpus.vocabulary) < len(texts.corpus.vocabulary) and other.words == texts.words
    request = Totals(np.zeros(setup.terms.length, np.int32))
    own = {"number": np.array(0), "secret": np.arange(32, dtype=np.uint8), "decoys": np.arange(32, dtype=np.uint8)}
    said = [Ask(setup).respond(request, Party(one, dict(own)), np.random.default_rng(0)) for one in (texts, other)]
    asked = [open_sealed(setup, party, OwnQuestions, 0, ALL_SILOS, reply.sealed) for party, reply in said]
    np.testing.assert_array_equal(asked[0].rows, asked[1].rows)
    assert asked[0].words == asked[1].words == len(texts.words)
    assert len(np.unique(asked[0].rows[: len(texts.words)], axis=0)) == len(texts.words)


def test_published_numbers_are_of_one_size_whatever_the_documents_hold():
    """What is not noised in the setup's messages is the same for two silos whose documents differ in a word."""
    setup = setup_of("publish-once", documents=30)
    first = small_texts()
    corpus = first[0].corpus
    changed = [counts.copy() for counts in corpus.counts]
    changed[0].data[0] += 1  # one occurrence more
    other = [first[0]._replace(corpus=_with_counts(corpus, changed)), *first[1:]]
    runs = [run(setup, texts, seed=4) for texts in (first, other)]
    plain, more = (published(setup, state, parties[0]) for state, parties, _ in runs)
    np.testing.assert_array_equal(plain.documents, more.documents)
    # The same noise was drawn: what differs is the one occurrence, in z cells, and in two sizes at most.
    off = np.abs(plain.cells.astype(int) - more.cells.astype(int))
    assert off.sum() == setup.shape.z and off[1:].sum() == 0
    assert np.abs(plain.lengths - more.lengths).sum() <= 1 and (plain.distinct == more.distinct).all()
    totals = np.abs(np.subtract(*(state.totals.astype(int) for state, _, _ in runs)))
    assert totals.sum() == setup.statistics.z + 1  # of all words, and their number; no document frequency changed


def _with_counts(corpus, counts):
    import dataclasses

    return dataclasses.replace(corpus, counts=tuple(counts))
